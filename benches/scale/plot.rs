//! Line charts as SVG that can be read in a review.

use std::fmt::{Arguments, Write};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
/// Width of the legend.
const RIGHT: f64 = 270.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 50.0;
/// Lines are thinned to this many points.
const POINTS: usize = 300;
/// Lines with fewer points show each of them.
const DOTS: usize = 10;
const COLOURS: [&str; 4] = ["#0b5fa5", "#d9730d", "#2b8a3e", "#7048a8"];
/// Colour of bounds, which are not measured.
const GREY: &str = "#777";

pub struct Chart {
    pub title: &'static str,
    pub x: &'static str,
    pub y: &'static str,
    pub scale: Scale,
    pub lines: Vec<Line>,
}

/// Label of the x axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from 0.
    Linear,
    /// Logarithmic, from 1.
    Powers,
}

/// One line of a chart.
pub struct Line {
    name: String,
    points: Vec<(f64, f64)>,
    bound: bool,
}

impl Line {
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points: thinned(points), bound: false }
    }

    /// Draws it as a bound for the others.
    pub fn dashed(self) -> Self {
        Self { bound: true, ..self }
    }

    /// Cumulative distribution of sorted values; `whole` is the height of the last one.
    pub fn growing(name: impl Into<String>, sorted: &[f64], whole: f64) -> Self {
        let step = whole / sorted.len().max(1) as f64;
        let points = sorted.iter().zip(1..).map(|(value, count)| (*value, step * f64::from(count)));
        Self::new(name, points.collect())
    }
}

/// Maps values to coordinates.
struct Frame {
    scale: Scale,
    x_end: f64,
    y_end: f64,
}

impl Frame {
    fn x(&self, x: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => x / self.x_end,
            Scale::Powers => x.max(1.0).log10() / self.x_end.log10(),
        };
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - y / self.y_end * (HEIGHT - TOP - BOTTOM)
    }

    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.x(x), self.y(y))
    }
}

impl Chart {
    pub fn svg(&self) -> String {
        let (x_ticks, x_end) = match self.scale {
            Scale::Linear => axis(self.most(|point| point.0)),
            Scale::Powers => powers(self.most(|point| point.0)),
        };
        let (y_ticks, y_end) = axis(self.most(|point| point.1));
        let frame = Frame { scale: self.scale, x_end, y_end };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        add(
            &mut svg,
            format_args!(
                "<text x=\"{LEFT}\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{}</text>",
                self.title
            ),
        );
        text(&mut svg, LEFT, TOP - 10.0, "start", self.y);
        text(&mut svg, WIDTH - RIGHT, HEIGHT - 12.0, "end", self.x);
        for x in x_ticks {
            rule(&mut svg, (frame.x(x), TOP), (frame.x(x), HEIGHT - BOTTOM));
            text(&mut svg, frame.x(x), HEIGHT - BOTTOM + 16.0, "middle", &number(x));
        }
        for y in y_ticks {
            rule(&mut svg, (LEFT, frame.y(y)), (WIDTH - RIGHT, frame.y(y)));
            text(&mut svg, LEFT - 6.0, frame.y(y) + 4.0, "end", &number(y));
        }
        let mut colours = COLOURS.iter().cycle();
        for (place, line) in self.lines.iter().enumerate() {
            let colour = if line.bound { GREY } else { colours.next().unwrap_or(&GREY) };
            line.draw(&mut svg, &frame, colour);
            line.explain(&mut svg, TOP + 10.0 + 20.0 * place as f64, colour);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn most(&self, value: fn(&(f64, f64)) -> f64) -> f64 {
        let all = self.lines.iter().flat_map(|line| &line.points).map(value);
        all.fold(0.0, f64::max).max(1e-9)
    }
}

impl Line {
    fn draw(&self, svg: &mut String, frame: &Frame, colour: &str) {
        let points: Vec<(f64, f64)> = self.points.iter().map(|point| frame.at(*point)).collect();
        let text: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let (dashes, points_text) = (self.dashes(), text.join(" "));
        add(
            svg,
            format_args!(
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes} points=\"{points_text}\"/>"
            ),
        );
        if self.points.len() <= DOTS && !self.bound {
            for (x, y) in points {
                add(
                    svg,
                    format_args!(
                        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"
                    ),
                );
            }
        }
    }

    /// Its entry in the legend.
    fn explain(&self, svg: &mut String, y: f64, colour: &str) {
        let (begin, dashes) = (WIDTH - RIGHT + 18.0, self.dashes());
        let end = begin + 26.0;
        add(
            svg,
            format_args!(
                "<line x1=\"{begin:.1}\" y1=\"{y:.1}\" x2=\"{end:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>"
            ),
        );
        text(svg, end + 6.0, y + 4.0, "start", &self.name);
    }

    fn dashes(&self) -> &'static str {
        if self.bound { " stroke-dasharray=\"5 4\"" } else { "" }
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

/// Round ticks, and the end of an axis up to this value.
fn axis(most: f64) -> (Vec<f64>, f64) {
    let power = 10f64.powf((most / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = step.into_iter().find(|step| most / step <= 6.0).unwrap_or(power * 10.0);
    let count = (most / step).ceil();
    ((0..=count as u32).map(|place| step * f64::from(place)).collect(), count * step)
}

/// 1, 3, 10, 30 and so on.
fn powers(most: f64) -> (Vec<f64>, f64) {
    let all = (0..9).flat_map(|power| [1.0, 3.0].map(|factor| factor * 10f64.powi(power)));
    let mut places: Vec<f64> = Vec::new();
    for place in all {
        places.push(place);
        if place >= most.max(10.0) {
            break;
        }
    }
    let end = places.last().copied().unwrap_or(10.0);
    (places, end)
}

fn number(value: f64) -> String {
    // As many digits as the step has.
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

fn add(svg: &mut String, element: Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = writeln!(svg, "{element}");
}
