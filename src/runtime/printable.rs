//! Escapes text from tenants, so that it can't move a cursor, change a colour, turn the direction of
//! writing, hide a part of itself or begin a line of its own.
//!
//! Names in certificates, annotations, types of Secrets and field managers can be any Unicode. They
//! are escaped where they become part of a message. What leaves the process in a form of its own
//! (Events, logs, JSON) is escaped there again, so that no message can forget it.

use std::borrow::Cow;

/// The text with everything escaped that is not meant to be seen: control characters, line breaks,
/// Unicode's controls of direction and format, private and unassigned characters.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// The same of a text of several lines.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n')
}

/// A document of JSON with the same characters escaped as JSON escapes them, so that it means what
/// it meant. It must be valid JSON: only then do such characters occur in strings only.
pub fn json(document: &str) -> String {
    let mut text = String::with_capacity(document.len());
    for c in document.chars() {
        if c == '\n' || is_printable(c) {
            text.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    text
}

/// As much of the text as fits into so many bytes, cut between two characters.
pub fn shortened(text: &str, longest: usize) -> &str {
    let end = (0..=longest.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

fn escaped(text: &str, keeps: impl Fn(char) -> bool) -> Cow<'_, str> {
    let stays = |c: char| is_printable(c) || keeps(c);
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match stays(c) {
            true => escaped.push(c),
            false => escaped.extend(c.escape_debug()),
        }
    }
    Cow::Owned(escaped)
}

/// What `Debug` would not escape, and the characters that it escapes only because of its quotes.
fn is_printable(c: char) -> bool {
    matches!(c, '\'' | '"' | '\\') || c.escape_debug().len() == 1
}

/// Text that a tenant may write to deceive a reader, for tests.
#[cfg(test)]
pub(crate) const HOSTILE: &str =
    "\u{1b}[31mred\u{7}\r\n\u{9b}2J\u{202e}drow\u{2066}\u{200b}\u{feff}";

/// Whether a text could deceive a reader.
#[cfg(test)]
pub(crate) fn is_harmless(text: &str) -> bool {
    matches!(lines(text), Cow::Borrowed(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant_to_be_seen_stays_as_it_is() {
        for text in ["", "shop.example.com", "Bäckerei \"Süß\" & 'Söhne' \\ 日本 🦀"] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn terminal_escapes_line_breaks_and_controls_of_direction_are_escaped() {
        assert_eq!(
            printable(HOSTILE),
            "\\u{1b}[31mred\\u{7}\\r\\n\\u{9b}2J\\u{202e}drow\\u{2066}\\u{200b}\\u{feff}"
        );
        for c in
            ['\0', '\u{7f}', '\u{85}', '\u{ad}', '\u{61c}', '\u{200f}', '\u{2028}', '\u{e0041}']
        {
            assert_ne!(printable(&c.to_string()), c.to_string(), "{c:?}");
        }
    }

    #[test]
    fn a_text_of_several_lines_keeps_its_line_breaks_and_nothing_else() {
        assert_eq!(lines("one\ntwo\u{1b}\r\n"), "one\ntwo\\u{1b}\\r\n");
    }

    #[test]
    fn a_document_means_the_same_after_it_was_made_printable() {
        let value = serde_json::json!({ "secret": HOSTILE, "tag": "\u{e0041}ä" });
        let text = json(&format!("{value:#}"));
        assert!(is_harmless(&text), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
