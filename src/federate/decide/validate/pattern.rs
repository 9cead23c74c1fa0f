//! Regular expressions that stand in the CRD, too: a text is judged alike there and here.

use std::sync::LazyLock;

use regex::Regex;

/// A regular expression. None accepts nothing: what cannot be judged is refused.
pub struct Pattern(pub LazyLock<Option<Regex>>);

impl Pattern {
    pub fn accepts(&self, text: &str) -> bool {
        self.0.as_ref().is_some_and(|pattern| pattern.is_match(text))
    }
}

macro_rules! pattern {
    ($(#[$about:meta])* $name:ident, $text:expr) => {
        $(#[$about])*
        pub static $name: $crate::federate::decide::validate::pattern::Pattern =
            $crate::federate::decide::validate::pattern::Pattern(std::sync::LazyLock::new(|| {
                regex::Regex::new($text).ok()
            }));
    };
}
pub(super) use pattern;
