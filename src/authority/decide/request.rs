//! The texts of annotations that ask for something. What was asked is kept, so that it counts once.

use crate::api::spiffe_federation::digest;

/// In bytes. Whoever may ask must not fill the object where it is kept: that could not be written any more.
const LONGEST: usize = 256;
/// A fingerprint has fewer.
const LONGEST_WORD: usize = 128;

/// What is kept of a text. Equal texts stay equal, and a first word that is a fingerprint stays the first word.
pub fn kept(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let first = text.split_whitespace().next().filter(|it| it.len() <= LONGEST_WORD);
    match first {
        Some(first) => format!("{first} {}", digest(text)),
        None => digest(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_kept_in_little_space_and_told_from_others() {
        let print = "ab".repeat(32);
        for text in ["x".repeat(250_000), format!("{print} {}", "\u{1}".repeat(250_000))] {
            let short = kept(&text);
            assert!(short.len() <= LONGEST, "{} bytes", short.len());
            assert_eq!(kept(&short), short, "it is kept as it is kept");
            assert_ne!(kept(&format!("{text}y")), short);
        }
        assert!(kept(&format!("{print} {}", "x".repeat(300))).starts_with(&format!("{print} ")));
        assert_eq!(kept("2026-01-01T00:00:00Z"), "2026-01-01T00:00:00Z");
    }
}
