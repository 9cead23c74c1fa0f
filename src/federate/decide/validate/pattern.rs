//! Regular expressions that the CRD has, too: both judge a text alike.

use std::sync::LazyLock;

use regex::Regex;

/// A pattern that does not compile accepts nothing.
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
