//! Memory on smaller clusters, and with Secrets of other types.

use super::{Settings, cold_start};
use crate::{
    figures::{Memory, Report},
    fill::fill,
    population::Population,
    process::Process,
    stage::Stage,
};

pub async fn measure(settings: &Settings, report: &mut Report) -> anyhow::Result<()> {
    for &routes in &settings.smaller_sizes {
        let memory = memory(routes, 0, settings).await?;
        report.curves.memory.push(memory);
    }
    let Some(alone) = report.curves.memory.first().cloned() else { return Ok(()) };
    let others = 10 * alone.routes;
    let beside = memory(alone.routes, others, settings).await?;
    let remark = format!("{:.1} MB without them, {} Routes each", alone.steady, alone.routes);
    report.add(format!("memory with {others} other Secrets"), beside.steady, "MB", remark);
    Ok(())
}

async fn memory(routes: usize, others: usize, settings: &Settings) -> anyhow::Result<Memory> {
    let population = Population::of(routes, others)?;
    let mut stage = Stage::start("size").await?;
    fill(&stage.client, &population).await?;
    let (controller, start) = cold_start::measure(&mut stage, &population, settings).await?;
    let steady = Process(controller.pid()).resident()?;
    Ok(Memory { routes, steady, peak: start.peak })
}
