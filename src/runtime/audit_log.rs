//! Writes audit records, one line of JSON each.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Mutex,
};

use serde::Serialize;

use crate::runtime::{lock::lock, printable};

pub struct AuditLog(Mutex<Output>);

struct Output {
    to: Box<dyn Write + Send>,
    /// Whether half a line may be there, which would swallow the next.
    is_torn: bool,
}

impl AuditLog {
    /// Appends to a file, or writes to the standard output for `-`.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::to(Box::new(io::stdout())));
        }
        let file: File = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self::to(Box::new(file)))
    }

    pub fn to(output: Box<dyn Write + Send>) -> Self {
        Self(Mutex::new(Output { to: output, is_torn: false }))
    }

    /// The record is out when this returns without an error.
    pub fn write(&self, record: &impl Serialize) -> io::Result<()> {
        let line = printable::json(&serde_json::to_string(record)?) + "\n";
        let mut output = lock(&self.0);
        if output.is_torn {
            output.to.write_all(b"\n")?;
        }
        let written = output.to.write_all(line.as_bytes()).and_then(|()| output.to.flush());
        output.is_torn = written.is_err();
        written
    }
}
