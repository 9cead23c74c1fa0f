//! `trustplane review check`.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::{
    check::{
        checks::{CheckResult, Status},
        printer::{self, Target},
    },
    cli::{
        Exit,
        cluster::{self, namespace_name},
        output::{self, Output, print},
    },
    names::NAMESPACE,
    review::{
        decide::{
            config::{Config, Fault, read},
            inspect::{self, Finding, Findings, Severity, worst},
        },
        inspect::Access,
    },
    runtime::{clock::Clock, controller::Unable, printable, terminal::BOLD},
};

/// Checks a configuration, and every cluster that it names.
///
/// It reads the configuration with every fault in it, and asks each cluster what trustplane review asks it: whether
/// it is reached, whether our credential is valid and until when, which rights it has, whether the issuer of our
/// own token is listed, and which keys it publishes. Nothing is changed, and no token is sent but our own, to the
/// cluster that made it. The cluster that trustplane review runs in is the one that kubectl uses.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Of files on this machine:
    trustplane review check clusters.yaml

  In the Pods, with their configuration and their credentials:
    kubectl -n trustplane exec deployment/trustplane-review -- trustplane review check

Exit codes: 0 all is well, possibly with warnings; 1 somebody has to act; 2 the configuration can't be read, or a
cluster could not be asked and nothing else is wrong. No call takes longer than 10 seconds. NO_COLOR switches
colours off.")]
pub(super) struct Check {
    /// The configuration
    #[arg(
        value_name = "CONFIG",
        env = "TRUSTPLANE_REVIEW_CONFIG",
        default_value = "/etc/trustplane/review/clusters.yaml"
    )]
    config: PathBuf,

    /// The namespace of trustplane review, whose Secret has the renewed credentials
    #[arg(long, short, env = "POD_NAMESPACE", value_parser = namespace_name, default_value = NAMESPACE, value_name = "NAME")]
    namespace: String,

    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

/// All that was found.
struct Report {
    /// Of the configuration, and of all clusters together.
    general: Vec<Finding>,
    clusters: Findings,
}

impl Check {
    pub async fn run(self) -> anyhow::Result<()> {
        let text = fs::read_to_string(&self.config)
            .with_context(|| format!("{} can't be read", self.config.display()))
            .map_err(Unable)?;
        let report = match read(&text) {
            Ok(config) => self.report(&config).await,
            Err(faults) => Report { general: faulty(&faults), clusters: Vec::new() },
        };
        print(&match self.output {
            Output::Text => report.text(output::width()),
            Output::Json => report.document(&self.config.display().to_string()),
        })?;
        match report.worst() {
            Severity::Ok | Severity::Warning => Ok(()),
            Severity::Act => bail!(Exit::Reported),
            Severity::NotAsked => bail!(Exit::NotAsked),
        }
    }

    async fn report(&self, config: &Config) -> Report {
        let here = cluster::config().await.map_err(|error| error.to_string());
        let clock = Clock::system();
        let access = Access::open(config, here, &self.namespace, clock.clone()).await;
        let (facts, shared) = access.facts().await;
        let mut general = inspect::config(&[], config.clusters.len());
        general.extend(access.problem.as_deref().map(inspect::without_state));
        general.extend(inspect::shared(&shared, access.problem.is_none()));
        let now = clock.now();
        let findings = facts.into_iter().filter_map(|(name, facts)| {
            let of = config.clusters.get(&*name)?;
            let found = inspect::cluster(&name, of, &facts, config.renewal, now);
            Some((name, found))
        });
        Report { general, clusters: findings.collect() }
    }
}

fn faulty(faults: &[Fault]) -> Vec<Finding> {
    inspect::config(faults, 0)
}

impl Report {
    fn all(&self) -> impl Iterator<Item = &Finding> {
        self.general.iter().chain(self.clusters.iter().flat_map(|(_, found)| found))
    }

    fn worst(&self) -> Severity {
        worst(self.all())
    }

    fn text(&self, width: usize) -> String {
        let mut text = printer::rows(&rows(&self.general), width);
        for (name, found) in &self.clusters {
            let name = printable::printable(name);
            text.push_str(&format!(
                "\n{BOLD}{name}{BOLD:#}\n{}",
                printer::rows(&rows(found), width)
            ));
        }
        let all: Vec<_> = self.all().cloned().collect();
        format!("{text}\n{}\n", printer::summary(&rows(&all), Target::Cluster))
    }

    fn document(&self, config: &str) -> String {
        let lines = |found: &[Finding]| found.iter().map(line).collect::<Value>();
        let clusters: Map<_, _> =
            self.clusters.iter().map(|(name, found)| (name.to_string(), lines(found))).collect();
        let page = json!({
            "config": config,
            "result": self.worst(),
            "lines": lines(&self.general),
            "clusters": clusters,
        });
        printable::json(&format!("{page:#}\n"))
    }
}

/// Fields may be added; none is renamed or removed.
fn line(finding: &Finding) -> Value {
    let Finding { check, subject, severity, found, todo } = finding;
    json!({ "check": check, "subject": subject, "result": severity, "found": found, "do": todo })
}

fn rows(findings: &[Finding]) -> Vec<CheckResult> {
    let row = |it: &Finding| CheckResult {
        check: it.check,
        result: match it.severity {
            Severity::Ok => Status::Ok,
            Severity::Warning => Status::Warning,
            Severity::Act | Severity::NotAsked => Status::Failed,
        },
        subject: it.subject,
        found: it.found.clone(),
        todo: it.todo.clone(),
        command: None,
    };
    findings.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;
    use crate::runtime::{printable::is_harmless, terminal::fits};

    fn report(clusters: &str) -> Report {
        let general = match read(clusters) {
            Ok(config) => inspect::config(&[], config.clusters.len()),
            Err(faults) => faulty(&faults),
        };
        Report { general, clusters: Vec::new() }
    }

    #[test]
    fn every_fault_of_a_configuration_has_a_line_with_its_place() {
        let text = "clusters:\n  B:\n    issuer: ''\n  c:\n    issuer: i\n";
        let shown = strip_str(&report(text).text(100)).to_string();
        for words in
            ["FAILED  configuration", "line 2, column 3:", "line 3, column 13:", "lines failed."]
        {
            assert!(shown.contains(words), "{shown}");
        }
        assert_eq!(report(text).worst(), Severity::Act);
    }

    #[test]
    fn whatever_a_configuration_holds_what_is_shown_is_harmless_and_fits() {
        let text = "clusters:\n  \"\\e[31mred\": {issuer: i, \"\\u202e\": 1}\n";
        let report = report(text);
        for width in [50, 80] {
            let shown = strip_str(&report.text(width)).to_string();
            assert!(is_harmless(&shown) && fits(&shown, width), "{shown}");
        }
        assert!(is_harmless(&report.document("\u{1b}")));
    }

    #[test]
    fn scripts_get_one_object_with_names_that_do_not_change() {
        let document = report("clusters:\n  a:\n    issuer: i\n").document("clusters.yaml");
        let document: Value = serde_json::from_str(&document).unwrap();
        let expected = json!({
            "config": "clusters.yaml", "result": "ok", "clusters": {},
            "lines": [{
                "check": "configuration", "subject": "configuration", "result": "ok",
                "found": "1 cluster", "do": null,
            }],
        });
        assert_eq!(document, expected);
    }
}
