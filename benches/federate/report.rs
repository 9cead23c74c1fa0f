//! The figures of a run, for people and for machines.

use std::fmt;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use testkit::figures::{machine, with_unit};

const BEGIN: &str = "<!-- federate: written by make bench-federate -->\n";
const END: &str = "<!-- federate: end -->\n";

#[derive(Serialize, Deserialize)]
pub struct Report {
    pub subject: String,
    pub machine: String,
    pub date: String,
    /// Why the figures are void, if they are.
    pub void: Option<String>,
    pub tables: Vec<Table>,
}

/// A table with one column per measurement.
#[derive(Serialize, Deserialize)]
pub struct Table {
    pub about: String,
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
}

/// One figure, in every column.
#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    pub what: String,
    pub values: Vec<f64>,
    pub unit: String,
    pub remark: String,
}

impl Row {
    pub fn is_finite(&self) -> bool {
        self.values.iter().all(|value| value.is_finite())
    }
}

impl Table {
    pub fn new(about: &str, columns: Vec<String>) -> Self {
        Self { about: about.to_owned(), columns, rows: Vec::new() }
    }

    /// Adds a row with one column for each item of `of`.
    pub fn row<T>(
        &mut self,
        what: &str,
        unit: &str,
        of: &[T],
        value: impl Fn(&T) -> f64,
        remark: impl Into<String>,
    ) {
        self.rows.push(Row {
            what: what.to_owned(),
            values: of.iter().map(value).collect(),
            unit: unit.to_owned(),
            remark: remark.into(),
        });
    }
}

impl Report {
    pub fn about(subject: String) -> Self {
        Self {
            subject,
            machine: machine(),
            date: chrono::Utc::now().format("%Y-%m-%d").to_string(),
            void: None,
            tables: Vec::new(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}. {}, {}.", self.subject, self.machine, self.date)?;
        if let Some(why) = &self.void {
            writeln!(f, "\n**This run is void: {why}**")?;
        }
        self.tables.iter().try_for_each(|table| write!(f, "\n{table}"))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| {} | {} | |", self.about, self.columns.join(" | "))?;
        writeln!(f, "|---|{}---|", "--:|".repeat(self.columns.len()))?;
        for Row { what, values, unit, remark } in &self.rows {
            let values: Vec<String> = values.iter().map(|value| with_unit(*value, unit)).collect();
            writeln!(f, "| {what} | {} | {remark} |", values.join(" | "))?;
        }
        Ok(())
    }
}

/// The page with its figures replaced by these.
pub fn placed(page: &str, report: &Report) -> anyhow::Result<String> {
    let (before, rest) = page.split_once(BEGIN).context("the page has no place for the figures")?;
    let (_, after) = rest.split_once(END).context("the page has no end of that place")?;
    Ok(format!("{before}{BEGIN}\n{report}\n{END}{after}"))
}
