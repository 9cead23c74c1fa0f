//! The command line of tests, as `cargo test` passes it to all of them.

#[derive(Default)]
pub struct Arguments {
    /// Parts of names; all cases if empty.
    names: Vec<String>,
    /// Only print the names.
    pub list: bool,
    /// Skip cases that create many objects.
    pub quick: bool,
}

impl Arguments {
    /// Parses arguments. Other flags of the usual test harness are ignored, because
    /// `cargo test -- --show-output` passes them to all tests.
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

    /// Whether to run a binary's only test. Prints its name for `--list`.
    pub fn select_only_test(&self, name: &str) -> bool {
        let selected = self.selects(name);
        if selected && self.list {
            println!("{name}: test");
        }
        selected && !self.list
    }

    /// Whether a case is selected.
    pub fn selects(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|part| name.contains(&**part))
    }
}
