//! That the run of both sides notices what it is there to notice: with a bug switched on, it fails. Only with the
//! feature `seeded-bugs`, which make asks for.

use std::time::Duration;

use trustplane::runtime::failpoints::{Bug, switch};

use super::spire::{Both, rotate_both_twice};
use crate::peer::Profile;

/// On one thread, because bugs are switched on by thread.
#[tokio::test]
async fn a_ca_that_signs_at_once_is_refused_by_go_spiffe() {
    // So long that nobody asks again between publication and use, however slow this machine is.
    let hint = Duration::from_secs(600);
    let both = Both::start_with("activates-at-once", Profile::Web, hint).await;
    switch(Some(Bug::ActivatesAtOnce));
    let verified = rotate_both_twice(&both).await;
    let of_ours = |it: &&String| it.contains("could not verify leaf certificate");
    let refused = verified.refused.iter().filter(of_ours).count();
    assert!(refused > 0, "{:?}", verified.refused);
    println!("{refused} SVIDs refused, {} verified", verified.accepted);
    both.replica.stop().await;
}
