//! A tour of a sandbox without an injector.

use std::time::Duration;

use trustplane::demo::tour::{Tour, TourError};

use crate::stage::Stage;

#[tokio::test]
async fn no_step_succeeds_without_an_injector() {
    let stage = Stage::new().await;
    let tour = Tour {
        client: stage.client.clone(),
        edge: stage.edge.address(),
        default: stage.edge.default_certificate().clone(),
        patience: Duration::from_millis(100),
        pause: Duration::ZERO,
    };
    let mut told = 0;
    let outcomes = tour.walk(|_| -> Result<(), TourError> {
        told += 1;
        Ok(())
    });
    let outcomes = outcomes.await.expect("it can be walked to its end");
    assert_eq!(told, 2 * outcomes.len(), "each step begins and ends");
    assert!(outcomes.iter().all(|outcome| !outcome.holds()), "{outcomes:#?}");
    let first = outcomes[0].differences.join("; ");
    assert_eq!(first, "the condition should be Default, reason NoCertificate");
}
