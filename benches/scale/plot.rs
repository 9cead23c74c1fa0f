//! Line charts as SVG, plain enough to be read in a review.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// So many points are as good as all of them.
const POINTS: usize = 300;
const COLOURS: [&str; 4] = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728"];

/// What is drawn.
pub struct Chart {
    pub title: &'static str,
    pub x: &'static str,
    pub y: &'static str,
    pub lines: Vec<Line>,
}

/// One line of it.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Line {
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points: thinned(points) }
    }

    /// How many, or which part, were through at each of these sorted values; `whole` is all of them.
    pub fn growing(name: impl Into<String>, sorted: &[f64], whole: f64) -> Self {
        let step = whole / sorted.len().max(1) as f64;
        let points = sorted.iter().zip(1..).map(|(value, count)| (*value, step * f64::from(count)));
        Self::new(name, points.collect())
    }
}

impl Chart {
    pub fn svg(&self) -> String {
        let most = |value: fn(&(f64, f64)) -> f64| {
            let all = self.lines.iter().flat_map(|line| &line.points).map(value);
            all.fold(0.0, f64::max).max(1e-9)
        };
        let (x_step, x_end) = axis(most(|point| point.0));
        let (y_step, y_end) = axis(most(|point| point.1));
        let x_at = |x: f64| LEFT + x / x_end * (WIDTH - LEFT - RIGHT);
        let y_at = |y: f64| HEIGHT - BOTTOM - y / y_end * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        text(&mut svg, WIDTH / 2.0, 20.0, "middle", self.title);
        text(&mut svg, WIDTH / 2.0, HEIGHT - 10.0, "middle", self.x);
        text(&mut svg, 8.0, TOP - 12.0, "start", self.y);
        for x in ticks(x_step, x_end) {
            rule(&mut svg, (x_at(x), TOP), (x_at(x), HEIGHT - BOTTOM));
            text(&mut svg, x_at(x), HEIGHT - BOTTOM + 16.0, "middle", &number(x));
        }
        for y in ticks(y_step, y_end) {
            rule(&mut svg, (LEFT, y_at(y)), (WIDTH - RIGHT, y_at(y)));
            text(&mut svg, LEFT - 6.0, y_at(y) + 4.0, "end", &number(y));
        }
        for (place, (line, colour)) in self.lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let points: Vec<_> = line
                .points
                .iter()
                .map(|(x, y)| format!("{:.1},{:.1}", x_at(*x), y_at(*y)))
                .collect();
            let points = points.join(" ");
            add(
                &mut svg,
                format_args!(
                    "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{points}\"/>"
                ),
            );
            let y = HEIGHT - BOTTOM - 12.0 - 16.0 * place as f64;
            add(
                &mut svg,
                format_args!(
                    "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\" fill=\"{colour}\">{}</text>",
                    WIDTH - RIGHT - 8.0,
                    line.name
                ),
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(POINTS).max(1);
    let last = points.last().copied();
    let mut thin: Vec<_> = points.into_iter().step_by(step).collect();
    if step > 1 {
        thin.extend(last);
    }
    thin
}

/// A round step, and the end of an axis that reaches so far.
fn axis(most: f64) -> (f64, f64) {
    let power = 10f64.powf((most / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = step.into_iter().find(|step| most / step <= 6.0).unwrap_or(power * 10.0);
    (step, (most / step).ceil() * step)
}

fn ticks(step: f64, end: f64) -> impl Iterator<Item = f64> {
    (0..=(end / step).round() as u32).map(move |count| step * f64::from(count))
}

fn number(value: f64) -> String {
    // As many digits as the step has, and no more.
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    add(
        svg,
        format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"),
    );
}

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    add(
        svg,
        format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>"
        ),
    );
}

fn add(svg: &mut String, element: std::fmt::Arguments<'_>) {
    // A String takes everything.
    let _ = writeln!(svg, "{element}");
}
