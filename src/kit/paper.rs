//! Text for a terminal: how wide, in which colours, broken where. Pure: what writes it takes the
//! colours out where they don't belong.

use anstyle::{AnsiColor, Style};

use super::printable::printable;

/// No line is longer.
pub const WIDTH: usize = 100;
/// Narrower than this, nothing could be read.
const NARROWEST: usize = 40;

/// A title.
pub const BOLD: Style = Style::new().bold();
/// What matters less.
pub const FAINT: Style = Style::new().dimmed();
/// As it should be.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Not as it should be.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// To be looked at.
pub const WARNING: Style = AnsiColor::Yellow.on_default();

/// How long a line may be where the terminal, if there is one, has so many columns.
pub fn width(columns: Option<u16>) -> usize {
    columns.map_or(WIDTH, |columns| usize::from(columns).clamp(NARROWEST, WIDTH))
}

/// A text in lines of this width.
pub fn paragraph(text: &str, width: usize) -> String {
    format!("{}\n", wrapped(text, width).join("\n"))
}

/// Broken at spaces; a word that is longer than a line has one of its own. Much of what is printed
/// comes from a cluster, so nothing but what can be seen gets through.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace().map(printable) {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(&word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(word.into_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::printable::{HOSTILE, is_harmless};

    #[test]
    fn what_a_tenant_wrote_is_escaped_before_it_is_broken_into_lines() {
        let lines = wrapped(HOSTILE, 40);
        assert!(lines.iter().all(|line| is_harmless(line)), "{lines:?}");
        assert_eq!(lines[0], "\\u{1b}[31mred\\u{7}");
    }

    #[test]
    fn lines_are_as_wide_as_the_terminal_but_never_too_narrow_or_too_wide() {
        assert_eq!([None, Some(9), Some(72), Some(300)].map(width), [100, 40, 72, 100]);
        assert_eq!(paragraph("one two three", 8), "one two\nthree\n");
    }
}
