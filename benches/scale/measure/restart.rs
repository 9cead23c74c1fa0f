//! A restart with everything in place.

use std::time::Duration;

use chrono::Utc;

use super::{Bench, now};
use crate::{
    journal::{Request, seconds_between},
    process::Process,
};

const LOOK: Duration = Duration::from_millis(20);

impl Bench {
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        now("restart");
        self.end().await?;
        let mark = self.stage.journal.mark()?;
        let begin = Utc::now();
        self.controller = self.stage.controller();
        while self.controller.page("/readyz").await.0 != 200 {
            tokio::time::sleep(LOOK).await;
        }
        let ready = Utc::now();
        let end = self.stage.journal.quiet(self.settings.silence).await?;
        let requests = self.stage.journal.between(mark, end);
        let writes = requests.iter().filter(|request| request.is_write()).count();
        let lists = |request: &&Request| request.ours && request.lists && request.answered <= ready;
        let listed = requests.iter().filter(lists).map(|request| request.answered).max();
        let process = Process(self.controller.pid());
        let (resident, peak) = (process.resident()?, process.peak()?);

        let report = &mut self.report;
        let to_ready = seconds_between(begin, ready);
        report.add("restart: ready", to_ready, "s", "from the start of the process");
        let after = listed.map_or(to_ready, |listed| seconds_between(listed, ready));
        report.add("- of it after the last list", after, "s", "");
        report.add("- writes", writes as f64, "", "until it was still");
        let remark = format!("resident; peak {peak:.1} MB");
        report.add("- memory", resident, "MB", remark);
        report.add_cost("restart", self.settings.size.routes, requests);
        report.at_most("restart: writes", writes as f64, 0.0, "");
        report.at_most("restart: ready after the lists", after, 5.0, "s");
        Ok(())
    }
}
