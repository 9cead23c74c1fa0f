//! The command line, which `cargo test` shares with the other tests.

/// The cases to run, and how.
#[derive(Default)]
pub struct Arguments {
    /// Parts of names; all cases where there are none.
    names: Vec<String>,
    /// Only say the names.
    pub list: bool,
    /// Without cases that make many objects.
    pub quick: bool,
}

impl Arguments {
    /// Reads them. Flags of the usual test harness that mean nothing here are let pass, since
    /// `cargo test -- --show-output` gives them to all tests.
    pub fn of(arguments: impl IntoIterator<Item = String>) -> Self {
        let mut read = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match &*argument {
                "--list" => read.list = true,
                "--quick" => read.quick = true,
                "--test-threads" | "--format" | "--color" | "--skip" | "--logfile" | "-Z" => {
                    arguments.next();
                }
                flag if flag.starts_with('-') => {}
                name => read.names.push(name.to_owned()),
            }
        }
        read
    }

    /// Whether a case is meant.
    pub fn mean(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|part| name.contains(&**part))
    }
}
