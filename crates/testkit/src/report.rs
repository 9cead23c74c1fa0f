//! The figures of a bench, for people and for machines.

use std::{fmt, fs, path::Path};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::{
    bench::Figures,
    figures::{machine, with_unit},
};

#[derive(Serialize, Deserialize)]
pub struct Report {
    /// Names its place in docs/performance.md, and its make target.
    pub bench: String,
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
    pub fn about(bench: &str, subject: String) -> Self {
        Self {
            bench: bench.to_owned(),
            subject,
            machine: machine(),
            date: chrono::Utc::now().format("%Y-%m-%d").to_string(),
            void: None,
            tables: Vec::new(),
        }
    }

    /// The page with the figures of this bench replaced by these.
    pub fn placed(&self, page: &str) -> anyhow::Result<String> {
        let bench = &self.bench;
        let begin = format!("<!-- {bench}: written by make bench-{bench} -->\n");
        let end = format!("<!-- {bench}: end -->\n");
        let (before, rest) =
            page.split_once(&*begin).context("the page has no place for the figures")?;
        let (_, after) = rest.split_once(&*end).context("the page has no end of that place")?;
        Ok(format!("{before}{begin}\n{self}\n{end}{after}"))
    }
}

impl Figures for Report {
    fn void(&self) -> Option<&str> {
        self.void.as_deref()
    }

    fn write_docs(&self, folder: &Path) -> anyhow::Result<()> {
        let page = folder.join("performance.md");
        Ok(fs::write(&page, self.placed(&fs::read_to_string(&page)?)?)?)
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

/// Checks that the figures of a small run were made, fit into the page, and survive a file.
pub fn check(report: &Report) -> anyhow::Result<()> {
    let rows = report.tables.iter().flat_map(|table| &table.rows);
    let unmeasured: Vec<_> = rows.filter(|row| !row.is_finite()).collect();
    anyhow::ensure!(unmeasured.is_empty(), "not measured: {unmeasured:?}");
    let page = fs::read_to_string(crate::at("docs/performance.md"))?;
    let updated = report.placed(&page)?;
    let shown = report.to_string();
    anyhow::ensure!(updated.contains(&shown), "the figures are not in the page:\n{updated}");
    anyhow::ensure!(report.placed(&updated)? == updated, "a second run changes the page");
    let read: Report = serde_json::from_slice(&serde_json::to_vec(report)?)?;
    anyhow::ensure!(read.to_string() == shown, "--figures would show something else");
    Ok(())
}
