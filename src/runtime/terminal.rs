//! Text for a terminal: its width, colours and line breaks. Pure: its printer removes
//! the colours if they don't belong there.

use anstyle::{AnsiColor, Style};

use super::printable::printable;

pub const WIDTH: usize = 100;
/// Narrower than this, nothing could be read.
const NARROWEST: usize = 40;

pub const BOLD: Style = Style::new().bold();
pub const FAINT: Style = Style::new().dimmed();
pub const GOOD: Style = AnsiColor::Green.on_default();
pub const BAD: Style = AnsiColor::Red.on_default().bold();
pub const WARNING: Style = AnsiColor::Yellow.on_default();

/// The width for a terminal with so many columns.
pub fn width(columns: Option<u16>) -> usize {
    columns.map_or(WIDTH, |columns| usize::from(columns).clamp(NARROWEST, WIDTH))
}

pub fn paragraph(text: &str, width: usize) -> String {
    format!("{}\n", wrapped(text, width).join("\n"))
}

/// Breaks at spaces; a word longer than a line has a line of its own. Much of the text comes from a cluster,
/// so it is escaped.
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

/// Shell commands, each in lines of this width, still to be copied: a long one goes on after a `\`.
/// Comments are wrapped as comments.
#[cfg(any(test, feature = "demo"))]
pub fn commands(text: &str, width: usize) -> String {
    text.lines().flat_map(|line| command(line, width)).map(|line| line + "\n").collect()
}

/// One line of a script. A word alone may be longer than the width.
pub fn command(line: &str, width: usize) -> Vec<String> {
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    if let Some(comment) = line.strip_prefix("# ") {
        return wrapped(comment, width - 2).iter().map(|line| format!("# {line}")).collect();
    }
    const CONTINUED: &str = " \\";
    let mut lines = vec![String::new()];
    for word in shell_words(line) {
        let Some(line) = lines.last_mut() else { break };
        if line.trim().is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() + CONTINUED.len() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            line.push_str(CONTINUED);
            lines.push(format!("  {word}"));
        }
    }
    lines
}

/// The words of a command: what is quoted is one word, spaces and all.
fn shell_words(line: &str) -> Vec<&str> {
    let mut quote = None;
    let is_break = |c: char| match quote {
        Some(open) => {
            quote = Some(open).filter(|open| *open != c);
            false
        }
        None => {
            quote = Some(c).filter(|c| matches!(c, '\'' | '"'));
            c == ' '
        }
    };
    line.split(is_break).filter(|word| !word.is_empty()).collect()
}

/// Help as it is written in the source: what is indented by four spaces are commands, everything
/// else is text. Lines that follow each other with the same indentation are one paragraph.
pub fn help(text: &str, width: usize) -> String {
    let indent_of = |line: &str| line.len() - line.trim_start().len();
    let mut lines = text.lines().peekable();
    let mut shown = String::new();
    while let Some(line) = lines.next() {
        let indent = indent_of(line);
        let parts = if indent >= 4 {
            command(line.trim(), width - indent)
        } else {
            let mut paragraph = line.trim().to_owned();
            let goes_on = |next: &&str| {
                !line.trim().is_empty() && !next.trim().is_empty() && indent_of(next) == indent
            };
            while let Some(next) = lines.next_if(goes_on) {
                paragraph = format!("{paragraph} {}", next.trim());
            }
            wrapped(&paragraph, width - indent)
        };
        for part in parts {
            shown.push_str(format!("{:indent$}{part}", "").trim_end());
            shown.push('\n');
        }
    }
    shown.truncate(shown.trim_end().len());
    shown
}

/// Whether every line fits, but for those that are one long word: what texts of every width keep.
#[cfg(test)]
pub(crate) fn fits(text: &str, width: usize) -> bool {
    let one_word = |line: &str| shell_words(line.trim().trim_end_matches(" \\")).len() <= 1;
    text.lines().all(|line| line.chars().count() <= width || one_word(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::printable::{HOSTILE, is_harmless};

    #[test]
    fn what_a_tenant_wrote_is_escaped_before_it_is_broken_into_lines() {
        let lines = wrapped(HOSTILE, 40);
        assert!(lines.iter().all(|line| is_harmless(line)), "{lines:?}");
        assert_eq!(lines[0], "\\u{1b}[31mred\\u{7}");
    }

    #[test]
    fn a_long_command_goes_on_in_the_next_line_and_stays_the_same_command() {
        let long = "kubectl -n shop patch secret shop-tls -p '{\"a b\": \"c d e f g h i j\"}'";
        let expected = [
            "kubectl -n shop patch secret \\",
            "  shop-tls -p \\",
            "  '{\"a b\": \"c d e f g h i j\"}'",
        ];
        assert_eq!(command(long, 32), expected);
        assert_eq!(command("# one two three", 10), ["# one two", "# three"]);
        assert_eq!(commands("short\n  host: a\n", 32), "short\n  host: a\n");
    }

    #[test]
    fn help_is_wrapped_by_paragraph_and_its_commands_stay_commands() {
        let text =
            "Examples:\n  Look at\n  it:\n    kubectl get routes -n shop\n\nExit codes: 0 or 1.";
        let narrow = "Examples:\n  Look at it:\n    kubectl get \\\n      routes -n \\\n      shop\n\nExit codes: 0 or\n1.";
        assert_eq!(help(text, 18), narrow);
        assert!(fits(narrow, 18));
    }

    #[test]
    fn lines_are_as_wide_as_the_terminal_but_never_too_narrow_or_too_wide() {
        assert_eq!([None, Some(9), Some(72), Some(300)].map(width), [100, 40, 72, 100]);
        assert_eq!(paragraph("one two three", 8), "one two\nthree\n");
    }
}
