//! No change in the cluster: the controller should send nothing.

use std::time::Duration;

use testkit::process::Process;

use super::{Bench, now};
use crate::journal::{Request, by_verb};

/// The controller's default watch timeout, and its number of watches.
const WATCH_TIMEOUT: Duration = Duration::from_secs(60);
const WATCHES: f64 = 2.0;

impl Bench {
    pub async fn idle(&mut self) -> anyhow::Result<()> {
        let seconds = self.settings.idle.as_secs_f64();
        now(&format!("idle for {seconds} s"));
        let process = Process(self.controller.pid());
        let mark = self.stage.journal.mark()?;
        let before = process.busy()?;
        tokio::time::sleep(self.settings.idle).await;
        let busy = (process.busy()? - before).as_secs_f64() / seconds * 100.0;
        let steady = process.resident()?;
        let requests = self.stage.journal.since(mark)?;
        let ours: Vec<&Request> = requests.iter().filter(|request| request.ours).collect();
        let writes = ours.iter().filter(|request| request.is_write()).count();
        let watches = ours.iter().filter(|request| *request.verb == *"watch").count();
        let others = ours.len() - watches;
        let counts = by_verb(requests).into_iter();
        let counts: Vec<_> = counts.map(|(request, count)| format!("{count} {request}")).collect();

        let report = &mut self.report;
        let remark = format!("resident, after {seconds} s without a change");
        report.add("memory, steady", steady, "MB", remark);
        report.add("idle: processor", busy, "%", format!("of one core, in {seconds} s"));
        let remark = format!("in {seconds} s: {}", counts.join(", "));
        report.add("idle: requests", (watches + others) as f64, "", remark);
        report.at_most("memory, steady", steady, 30.0, "MB");
        report.at_most("idle: writes", writes as f64, 0.0, "");
        report.at_most("idle: requests other than watches", others as f64, 0.0, "");
        let renewals = WATCHES * (seconds / WATCH_TIMEOUT.as_secs_f64()).ceil();
        report.at_most("idle: watches renewed", watches as f64, renewals, "");
        report.at_most("idle: processor", busy, 0.1, "%");
        Ok(())
    }
}
