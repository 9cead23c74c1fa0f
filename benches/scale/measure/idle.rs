//! Nothing happens, and that is what the controller should do.

use super::{Bench, cold_start::ColdStart, now};
use crate::{
    figures::Memory,
    journal::{Request, by_verb},
    process::Process,
};

impl Bench {
    pub async fn idle(&mut self, start: &ColdStart) -> anyhow::Result<()> {
        now("idle");
        let process = Process(self.controller.pid());
        let mark = self.stage.journal.mark()?;
        let before = process.busy()?;
        tokio::time::sleep(self.settings.idle).await;
        let busy = (process.busy()? - before).as_secs_f64() / self.settings.idle.as_secs_f64();
        let steady = process.resident()?;
        let requests = self.stage.journal.since(mark)?;
        let writes = requests.iter().filter(|request| request.is_write()).count();
        let watches = |request: &&Request| *request.verb == *"watch";
        let ours = requests.iter().filter(|request| request.ours);
        let (all, others) = (ours.clone().count(), ours.filter(|one| !watches(one)).count());
        let counts: Vec<_> = by_verb(requests)
            .into_iter()
            .map(|(request, count)| format!("{count} {request}"))
            .collect();
        let window = format!("in {} s", self.settings.idle.as_secs());
        let report = &mut self.report;
        report.add("memory, steady", steady, "MB", "resident, after the time that it idled");
        report.add("idle: processor", busy * 100.0, "%", format!("of one core, {window}"));
        let remark = format!("{window}: {}", counts.join(", "));
        report.add("idle: requests", all as f64, "", remark);
        report.at_most("memory, steady", steady, 40.0, "MB");
        report.at_most("idle: writes", writes as f64, 0.0, "");
        report.at_most("idle: requests other than watches", others as f64, 0.0, "");
        report.at_most("idle: processor", busy * 100.0, 0.1, "%");
        report.curves.memory.push(Memory { routes: start.routes, steady, peak: start.peak });
        self.tell_growth();
        Ok(())
    }

    fn tell_growth(&mut self) {
        let memory = &self.report.curves.memory;
        let Some((least, most)) = memory.first().cloned().zip(memory.last().cloned()) else {
            return;
        };
        if most.routes > least.routes {
            let growth = (most.steady - least.steady) * 1e3 / (most.routes - least.routes) as f64;
            let what = "memory for a Route and its Secret";
            let remark = format!("steady, from {} to {} Routes", least.routes, most.routes);
            self.report.add(what, growth, "KB", remark);
            self.report.at_most(what, growth, 1.5, "KB");
        }
    }
}
