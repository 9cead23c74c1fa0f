//! The jobs beside `trustplane inject`. What they keep is left alone, and named.

use kube::Client;
use serde_json::Value;

use super::{
    authority::{self, Authority},
    federate::{self, Federate},
    plan::Outlook,
    review::{self, Review},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    pub federate: Federate,
    pub authority: Authority,
    pub review: Review,
}

impl Others {
    pub async fn find(client: &Client, installed_in: &str) -> Self {
        let (federate, authority, review) = tokio::join!(
            federate::find(client, installed_in),
            authority::find(client, installed_in),
            review::find(client, installed_in),
        );
        Self { federate, authority, review }
    }

    /// Shown before anything is done.
    pub fn notice(&self, outlook: &Outlook, width: usize) -> String {
        let Self { federate, authority, review } = self;
        [federate.notice(outlook, width), authority.notice(width), review.notice(width)].concat()
    }

    /// How to remove them, before the rest is removed.
    pub fn next_steps(&self, width: usize) -> String {
        let Self { federate, authority, review } = self;
        [federate.next_steps(width), authority.next_steps(width), review.next_steps(width)].concat()
    }

    /// The same for scripts, by the job's name.
    pub fn documents(&self) -> [(&'static str, Value); 3] {
        let Self { federate, authority, review } = self;
        [
            ("federate", federate.document()),
            ("authority", authority.document()),
            ("review", review.document()),
        ]
    }
}
