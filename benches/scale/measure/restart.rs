//! A restart with everything in place, and one after labels of Secrets have changed.

use chrono::{DateTime, Utc};
use serde_json::json;
use testkit::process::Process;

use super::{Bench, end, now, until_ready};
use crate::{
    fill::{all, patched},
    journal::{Mark, Request, seconds_between},
    population::place,
};

struct Restart {
    begin: DateTime<Utc>,
    ready: DateTime<Utc>,
    /// Marks of the start and of the last request.
    requests: (Mark, Mark),
}

impl Bench {
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        now("restart");
        end(&mut self.controller).await?;
        let Restart { begin, ready, requests } = self.start_again().await?;
        let requests = self.stage.journal.between(requests.0, requests.1);
        let writes = requests.iter().filter(|request| request.is_write()).count();
        let reads = requests.iter().filter(|request| request.is_secret_read()).count();
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
        report.add("- reads of Secrets", reads as f64, "", "one by one, until it was still");
        let remark = format!("resident; peak {peak:.1} MB");
        report.add("- memory", resident, "MB", remark);
        report.add_cost("restart", self.settings.size.routes, requests);
        report.at_most("restart: writes", writes as f64, 0.0, "");
        report.at_most("restart: reads of Secrets", reads as f64, 0.0, "");
        report.at_most("restart: ready after the lists", after, 5.0, "s");
        Ok(())
    }

    /// Labels do not matter to a Route, but only a read of the Secret shows that nothing else
    /// changed.
    pub async fn labels(&mut self) -> anyhow::Result<()> {
        let count = self.settings.labelled;
        now("restart after labels of Secrets have changed");
        end(&mut self.controller).await?;
        let client = &self.stage.client().await?;
        let label = &json!({ "metadata": { "labels": { "bench": "labelled" } } });
        all("labels changed", count, |number| {
            patched(client, place(number).secret().secret_path(), label.clone())
        })
        .await?;
        let Restart { requests, .. } = self.start_again().await?;
        let requests = self.stage.journal.between(requests.0, requests.1);
        let writes = requests.iter().filter(|request| request.is_write()).count();
        let reads = requests.iter().filter(|request| request.is_secret_read()).count();

        let report = &mut self.report;
        let after = format!("restart after {count} Secrets were labelled");
        let what = format!("{after}: reads of Secrets");
        report.add(&what, reads as f64, "", "one by one, until it was still");
        report.add("- writes", writes as f64, "", "until it was still");
        report.at_most(&what, reads as f64, count as f64, "");
        report.at_most(&format!("{after}: writes"), writes as f64, 0.0, "");
        Ok(())
    }

    /// Starts the controller and waits until it is ready and done.
    async fn start_again(&mut self) -> anyhow::Result<Restart> {
        let mark = self.stage.journal.mark()?;
        let begin = Utc::now();
        self.controller = self.stage.controller();
        until_ready(&mut self.controller).await?;
        let ready = Utc::now();
        let still = self.stage.journal.quiet(self.settings.silence).await?;
        Ok(Restart { begin, ready, requests: (mark, still) })
    }
}
