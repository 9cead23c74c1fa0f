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
        let others = ours.filter(|request| !watches(request)).count();
        let counts: Vec<_> = by_verb(requests)
            .into_iter()
            .map(|(request, count)| format!("{count} {request}"))
            .collect();
        let window = format!("in {} s", self.settings.idle.as_secs());
        let report = &mut self.report;
        report.add("memory, steady", steady, "MB", format!("resident, after {window} of idling"));
        report.add("idle: processor", busy * 100.0, "%", format!("of one core, {window}"));
        let remark = format!("{window}: {}", counts.join(", "));
        report.add("idle: requests", counts.len() as f64, " kinds", remark);
        report.at_most("memory, steady", steady, 40.0, "MB");
        report.at_most("idle: writes", writes as f64, 0.0, "");
        report.at_most("idle: requests other than watches", others as f64, 0.0, "");
        report.at_most("idle: processor", busy * 100.0, 0.1, "%");
        let memory = Memory { routes: start.routes, steady, peak: start.peak };
        report.curves.memory.push(memory);
        let (Some(least), Some(most)) = (report.curves.memory.first(), report.curves.memory.last())
        else {
            return Ok(());
        };
        if most.routes > least.routes {
            let growth = (most.steady - least.steady) * 1e3 / (most.routes - least.routes) as f64;
            let remark = format!("steady, from {} to {} Routes", least.routes, most.routes);
            report.add("memory for a Route and its Secret", growth, "KB", remark);
            report.at_most("memory for a Route and its Secret", growth, 1.5, "KB");
        }
        Ok(())
    }
}
