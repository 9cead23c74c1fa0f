//! The benchmark still runs. What it measures is not judged here: see docs/performance.md.

#[path = "../../benches/sandbox/figures.rs"]
mod figures;
#[path = "../../benches/sandbox/measure.rs"]
mod measure;
#[path = "../../benches/sandbox/population.rs"]
mod population;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_benchmark_measures_a_sandbox_with_two_hundred_routes() {
    let report = measure::run(200).await.expect("everything was measured");
    println!("{report}");
    let unmeasured = report.figures.iter().filter(|figure| figure.value.is_nan());
    assert_eq!(unmeasured.count(), 0);
}
