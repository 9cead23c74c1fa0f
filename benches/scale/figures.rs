//! The figures of a run, for people and for machines.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};
use testkit::figures::{Times, machine, with_unit};

use crate::journal::{Request, by_verb};

#[derive(Serialize, Deserialize)]
pub struct Report {
    pub subject: String,
    pub machine: String,
    pub date: String,
    /// Why the figures are void, if they are.
    pub void: Option<String>,
    pub figures: Vec<Figure>,
    /// Figures of the hostile tenant, in a table of their own.
    #[serde(default)]
    pub tenants: Vec<Figure>,
    pub goals: Vec<Goal>,
    pub costs: Vec<Cost>,
    pub curves: Curves,
}

/// Requests of the controller during one measurement.
#[derive(Clone, Serialize, Deserialize)]
pub struct Cost {
    pub when: String,
    pub routes: usize,
    /// By verb and kind.
    pub requests: BTreeMap<String, usize>,
}

impl Cost {
    pub fn of<'a>(
        when: &str,
        routes: usize,
        requests: impl IntoIterator<Item = &'a Request>,
    ) -> Self {
        Self { when: when.to_owned(), routes, requests: by_verb(requests) }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Figure {
    pub what: String,
    pub value: f64,
    pub unit: String,
    pub remark: String,
}

/// A goal, and the measured figure.
#[derive(Serialize, Deserialize)]
pub struct Goal {
    pub what: String,
    pub value: f64,
    pub bound: f64,
    pub unit: String,
    pub reached: bool,
}

/// Data of the plots.
#[derive(Default, Serialize, Deserialize)]
pub struct Curves {
    /// Patches per second of the plain client.
    pub limit: f64,
    /// Seconds after the start at which pairs were in place, in order.
    pub pairs: Vec<f64>,
    /// The same for statuses.
    pub statuses: Vec<f64>,
    /// The same for Events.
    pub events: Vec<f64>,
    /// Milliseconds from a Secret's change to the Route's patch.
    pub change: Vec<f64>,
    /// The same for the lone Route while all others are renewed.
    pub lone: Vec<f64>,
    /// Milliseconds of a single patch by the plain client, by the same clock.
    pub single: Vec<f64>,
    pub memory: Vec<Memory>,
}

/// Memory in MB by number of Routes and of Secrets of other types.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Memory {
    pub routes: usize,
    pub others: usize,
    pub steady: f64,
    pub peak: f64,
}

impl Report {
    pub fn about(subject: String) -> Self {
        Self {
            subject,
            machine: machine(),
            date: chrono::Utc::now().format("%Y-%m-%d").to_string(),
            void: None,
            figures: Vec::new(),
            tenants: Vec::new(),
            goals: Vec::new(),
            costs: Vec::new(),
            curves: Curves::default(),
        }
    }

    pub fn add(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &str,
        remark: impl Into<String>,
    ) {
        let (what, unit, remark) = (what.into(), unit.to_owned(), remark.into());
        self.figures.push(Figure { what, value, unit, remark });
    }

    /// The median, with the others beside it.
    pub fn add_times(&mut self, what: impl Into<String>, times: &Times, remark: &str) {
        let gap = if remark.is_empty() { "" } else { "; " };
        let remark = format!(
            "p90 {:.1}, p99 {:.1}, max {:.1} ms of {}{gap}{remark}",
            times.at(0.9),
            times.at(0.99),
            times.at(1.0),
            times.0.len()
        );
        self.add(what, times.at(0.5), "ms", remark);
    }

    pub fn add_cost<'a>(
        &mut self,
        when: &str,
        routes: usize,
        requests: impl IntoIterator<Item = &'a Request>,
    ) {
        self.costs.push(Cost::of(when, routes, requests));
    }

    pub fn at_most(&mut self, what: &str, value: f64, bound: f64, unit: &str) {
        self.add_goal(what, value, bound, unit, value <= bound);
    }

    pub fn at_least(&mut self, what: &str, value: f64, bound: f64, unit: &str) {
        self.add_goal(what, value, bound, unit, value >= bound);
    }

    fn add_goal(&mut self, what: &str, value: f64, bound: f64, unit: &str, reached: bool) {
        let (what, unit) = (what.to_owned(), unit.to_owned());
        self.goals.push(Goal { what, value, bound, unit, reached });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}. {}, {}.\n", self.subject, self.machine, self.date)?;
        if let Some(why) = &self.void {
            writeln!(f, "**This run is void: {why}**\n")?;
        }
        write_figures(&self.figures, f)?;
        writeln!(f, "\n| wanted | measured | bound | |\n|---|--:|--:|---|")?;
        for Goal { what, value, bound, unit, reached } in &self.goals {
            let (value, bound) = (with_unit(*value, unit), with_unit(*bound, unit));
            let reached = if *reached { "reached" } else { "**not reached**" };
            writeln!(f, "| {what} | {value} | {bound} | {reached} |")?;
        }
        if !self.costs.is_empty() {
            write_costs(&self.costs, f)?;
        }
        if !self.tenants.is_empty() {
            writeln!(f, "\n### A hostile tenant\n")?;
            write_figures(&self.tenants, f)?;
        }
        Ok(())
    }
}

fn write_figures(figures: &[Figure], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "| what | | |\n|---|--:|---|")?;
    for Figure { what, value, unit, remark } in figures {
        writeln!(f, "| {what} | {} | {remark} |", with_unit(*value, unit))?;
    }
    Ok(())
}

/// One row per kind of request, one column per measurement.
fn write_costs(costs: &[Cost], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let kinds: BTreeSet<&String> = costs.iter().flat_map(|cost| cost.requests.keys()).collect();
    write!(f, "\n| requests a Route |")?;
    costs.iter().try_for_each(|cost| write!(f, " {} |", cost.when))?;
    writeln!(f, "\n|---|{}", "--:|".repeat(costs.len()))?;
    for kind in kinds {
        write!(f, "| {kind} |")?;
        for cost in costs {
            let count = cost.requests.get(kind).copied().unwrap_or_default();
            write!(f, " {} |", with_unit(count as f64 / cost.routes as f64, ""))?;
        }
        writeln!(f)?;
    }
    Ok(())
}
