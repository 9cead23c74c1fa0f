//! Memory on smaller clusters, and with fewer Secrets of other types.

use super::{Settings, cold_start};
use crate::{
    figures::{Memory, Report},
    population::Size,
    stage::Stage,
    stores::Stores,
};

/// The smallest is first measured with a tenth of its other Secrets: nothing else differs between
/// the first two.
pub fn smaller(settings: &Settings) -> Vec<Size> {
    let Size { routes, others } = settings.size;
    let parts =
        settings.parts.iter().map(|part| Size { routes: routes / part, others: others / part });
    let mut sizes: Vec<Size> = parts.collect();
    if let Some(&least) = sizes.first() {
        sizes.insert(0, Size { others: least.others / 10, ..least });
    }
    sizes
}

pub async fn measure(
    settings: &Settings,
    stores: &Stores,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut memories = Vec::new();
    for size in smaller(settings) {
        let mut stage = Stage::with("size", &stores.of(size)).await?;
        let (controller, start) = cold_start::measure(&mut stage, size, settings).await?;
        memories.push(start.memory());
        drop(controller);
    }
    if let [fewer, more, ..] = &*memories {
        report_others(fewer, more, report);
    }
    report.curves.memory = memories.split_off(memories.len().min(1));
    Ok(())
}

fn report_others(fewer: &Memory, more: &Memory, report: &mut Report) {
    let each = (more.steady - fewer.steady) * 1e3 / (more.others - fewer.others) as f64;
    let remark = format!(
        "{:.1} MB with {} of them, {:.1} MB with {}, {} Routes each",
        fewer.steady, fewer.others, more.steady, more.others, more.routes
    );
    report.add("memory for a Secret of another type", each, "KB", remark);
    // Less than a trace of each Secret would take, and the difference between two equal runs.
    report.at_most("memory for a Secret of another type", each, 0.05, "KB");
}

/// The slope of the regression line over all sizes.
pub fn report_growth(report: &mut Report) {
    let memory = &report.curves.memory;
    if memory.len() < 2 {
        return;
    }
    let count = memory.len() as f64;
    let mean = |value: &dyn Fn(&Memory) -> f64| memory.iter().map(value).sum::<f64>() / count;
    let (routes, steady) = (mean(&|one| one.routes as f64), mean(&|one| one.steady));
    let away = |one: &Memory| one.routes as f64 - routes;
    let slope = mean(&|one| away(one) * (one.steady - steady)) / mean(&|one| away(one).powi(2));
    let each: Vec<_> =
        memory.iter().map(|one| format!("{:.1} MB with {}", one.steady, one.routes)).collect();
    let what = "memory for a Route and its Secret";
    report.add(what, slope * 1e3, "KB", format!("{}; the line that fits best", each.join(", ")));
    report.at_most(what, slope * 1e3, 1.0, "KB");
}
