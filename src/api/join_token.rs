//! JoinToken: who may join this trust domain with an SVID of another one, and as what.
//!
//! What the API server validates is in the CRD (`crds/spiffe/trustplane.dev_jointokens.yaml`), and is not
//! repeated here.

use chrono::{DateTime, Utc};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Deserialize, Serialize};

use super::{
    metadata,
    resource::{reference, resource},
    spiffe_federation::{GROUP, VERSION},
};

pub const KIND: &str = "JoinToken";

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct JoinToken {
    #[serde(deserialize_with = "metadata::readable")]
    pub metadata: ObjectMeta,
    pub spec: JoinTokenSpec,
    #[serde(default)]
    pub status: JoinTokenStatus,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinTokenSpec {
    pub roles: Vec<Role>,
    /// The name of those that join as Bot; set if `roles` has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bot_name: Option<String>,
    pub join_method: JoinMethod,
    pub spiffe: SpiffeRules,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<DateTime<Utc>>,
    /// How many different SPIFFE IDs may join. Joining again with the same one is a renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum Role {
    Bot,
    Agent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JoinMethod {
    Spiffe,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct SpiffeRules {
    /// One of these must match.
    pub allow: Vec<AllowRule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct AllowRule {
    /// A pattern.
    #[serde(rename = "spiffeID")]
    pub spiffe_id: String,
}

/// Written by the authority alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JoinTokenStatus {
    /// How many joined first with this token, also those that are no longer in `used_by`.
    pub uses: u64,
    /// Those that joined, in the order of their first time. Without `maxUses` only the newest are kept.
    pub used_by: Vec<Use>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Use {
    #[serde(rename = "spiffeID")]
    pub spiffe_id: String,
    pub first_joined_at: DateTime<Utc>,
}

impl JoinToken {
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// For Events.
    pub fn reference(&self) -> ObjectReference {
        reference(self)
    }
}

resource!(JoinToken, ClusterResourceScope, GROUP, VERSION, KIND, "jointokens");
