//! The API server restarts without its history, so everything is listed again.

use std::{collections::HashMap, time::Instant};

use anyhow::{Context, ensure};
use testkit::process::Process;

use super::{Bench, now};
use crate::{journal::Request, requests::first_event};

/// The kinds that the controller watches, with their paths.
const WATCHED: [(&str, &str); 2] =
    [("routes", "/apis/route.openshift.io/v1/routes"), ("secrets", "/api/v1/secrets")];

impl Bench {
    pub async fn relist(&mut self) -> anyhow::Result<()> {
        now("the API server forgets its history");
        let process = Process(self.controller.pid());
        process.forget_peak()?;
        let before = process.resident()?;
        let mark = self.stage.journal.mark()?;
        self.stage.forget_history().await?;
        let begin = Instant::now();
        let mut missing: Vec<&str> = WATCHED.iter().map(|(kind, _)| *kind).collect();
        // The last watch of each kind before its list is the one that was refused.
        let mut refused = HashMap::new();
        let listed = |request: &Request| {
            if request.ours && missing.contains(&&*request.kind) {
                if let Some(version) = &request.watches_from {
                    refused.insert(request.kind.clone(), version.clone());
                } else if request.lists && request.code == 200 {
                    missing.retain(|kind| **kind != *request.kind);
                }
            }
            missing.is_empty()
        };
        self.stage.journal.until("a list of Routes and one of Secrets", mark, listed).await?;
        let seconds = begin.elapsed().as_secs_f64();
        let versions = self.got_410(&refused).await?;
        let end = self.stage.journal.quiet(self.settings.silence).await?;
        let (peak, after) = (process.peak()?, process.resident()?);
        let requests = self.stage.journal.between(mark, end);
        let writes = requests.iter().filter(|request| request.is_write()).count();
        let lists = requests.iter().filter(|one| one.ours && one.lists && one.code == 200).count();

        let report = &mut self.report;
        let remark =
            format!("after the API server was ready again; watches {versions} were told 410");
        report.add("relist after 410: listed", seconds, "s", remark);
        report.add("- lists", lists as f64, "", "pages of them, from the audit log");
        report.add("- writes", writes as f64, "", "nothing had changed");
        let remark = format!("{before:.1} MB before, {after:.1} MB afterwards");
        report.add("- peak of memory", peak, "MB", remark);
        report.add_cost("relist", self.settings.size.routes, requests);
        report.at_most("peak in a relist", peak, 80.0, "MB");
        Ok(())
    }

    /// Repeats the controller's watches: the audit log does not show the 410, which is an event
    /// after a 200.
    async fn got_410(&self, refused: &HashMap<Box<str>, Box<str>>) -> anyhow::Result<String> {
        let mut watches = Vec::new();
        for (kind, path) in WATCHED {
            let version = refused.get(kind).with_context(|| format!("no watch of {kind}"))?;
            let path = format!("{path}?watch=true&resourceVersion={version}&timeoutSeconds=5");
            let event = first_event(&self.stage.client().await?, &path).await?;
            let gone = event["type"] == "ERROR" && event["object"]["code"] == 410;
            ensure!(gone, "a watch of {kind} from {version} was not told 410");
            watches.push(format!("of {kind} from {version}"));
        }
        Ok(watches.join(" and "))
    }
}
