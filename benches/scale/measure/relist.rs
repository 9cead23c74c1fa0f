//! The API server comes back without its history, and everything has to be listed again.

use std::time::Instant;

use super::{Bench, now};
use crate::{journal::Request, process::Process};

impl Bench {
    pub async fn relist(&mut self) -> anyhow::Result<()> {
        now("the API server forgets its history");
        let process = Process(self.controller.pid());
        process.forget_peak()?;
        let before = process.resident()?;
        let mark = self.stage.journal.mark()?;
        self.stage.forget_history().await?;
        let begin = Instant::now();
        let mut missing = vec!["routes", "secrets"];
        let listed = |request: &Request| {
            if request.ours && request.lists && request.code == 200 {
                missing.retain(|kind| **kind != *request.kind);
            }
            missing.is_empty()
        };
        self.stage.journal.until("a list of Routes and one of Secrets", mark, listed).await?;
        let seconds = begin.elapsed().as_secs_f64();
        let end = self.stage.journal.quiet(self.settings.silence).await?;
        let requests = self.stage.journal.between(mark, end);
        let writes = requests.iter().filter(|request| request.is_write()).count();
        let (peak, after) = (process.peak()?, process.resident()?);
        let report = &mut self.report;
        let remark = "after the API server was ready again";
        report.add("relist after 410: listed", seconds, "s", remark);
        report.add("- writes", writes as f64, "", "nothing had changed");
        let remark = format!("{before:.1} MB before, {after:.1} MB afterwards");
        report.add("- peak of memory", peak, "MB", remark);
        report.at_most("peak in a relist", peak, 80.0, "MB");
        Ok(())
    }
}
