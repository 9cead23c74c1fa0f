//! What `trustplane review register` and `unregister` change, there and here. Decided before anything is done, so
//! that it can be shown.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;

use super::{
    config::edit::{EditError, NewEntry, with_entry},
    credential::Life,
    identity::{Identity, Style},
    token::{Token, TokenError},
};
use objects::{Change, Object, ObjectError, change};

pub mod mount;
pub mod objects;
pub mod removal;

/// What is to be registered, and where its files will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub cluster: String,
    pub api_server: String,
    /// PEM. The CAs of the machine if there is none.
    pub ca: Option<String>,
    /// Beside the one that its tokens name.
    pub issuers: Vec<String>,
    pub ca_cert: PathBuf,
    pub token_path: PathBuf,
}

impl Registration {
    pub fn entry(&self, issuer: &str) -> NewEntry {
        let others = self.issuers.iter().filter(|it| **it != issuer);
        NewEntry {
            issuer: issuer.to_owned(),
            additional_issuers: others.cloned().collect(),
            api_server: self.api_server.clone(),
            ca_cert: self.ca.as_ref().map(|_| self.ca_cert.clone()),
            token_path: self.token_path.clone(),
        }
    }
}

/// What a token of our account there says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedToken {
    pub issuer: String,
    pub account: Identity,
    pub life: Life,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssuedTokenError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("the token is none that TokenRequest makes: it has no end")]
    Endless,
}

impl IssuedToken {
    pub fn read(token: &str) -> Result<Self, IssuedTokenError> {
        let token = Token::read(token)?;
        match (token.identity.style, token.issued, token.expires) {
            (Style::Bound, Some(issued), Some(expires)) => {
                let life = Life { issued, expires };
                Ok(Self { issuer: token.issuer, account: token.identity, life })
            }
            _ => Err(IssuedTokenError::Endless),
        }
    }
}

/// What the API server says of a credential that we have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    Accepted,
    Refused,
    /// It could not be asked.
    Unknown,
}

/// What is here already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The text of the configuration.
    pub config: Option<String>,
    pub ca: Option<String>,
    pub credential: Option<(IssuedToken, Acceptance)>,
    /// Whether there is a token, though not one that can be read.
    pub has_token: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What belongs there, with what is there. Without what that cluster does not know.
    pub objects: Vec<(Object, Option<Value>)>,
    /// As its discovery document says; none if that can't be read.
    pub issuer: Option<String>,
    /// Whether it signs with the keys of the cluster that we run in.
    pub has_our_keys: bool,
    pub stored: Stored,
    pub now: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error(transparent)]
    Entry(#[from] EditError),
    #[error(
        "it signs its tokens with the keys of the cluster that trustplane review runs in, so it is the same one. \
         That one needs no registration: name it in the configuration with its issuer alone. Choose another with \
         --kubeconfig or --context"
    )]
    SameCluster,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    Create,
    Change,
    Remove,
    Nothing,
}

/// Where something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// In the cluster whose tokens are reviewed.
    Remote,
    /// Where trustplane review runs.
    Here,
}

/// What is shown of a plan, and of what was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    pub side: Side,
    pub action: Action,
    pub object: String,
    /// Why it is so, where that is not obvious.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Step {
    pub fn new(side: Side, action: Action, object: impl ToString) -> Self {
        Self { side, action, object: object.to_string(), note: None }
    }

    pub fn note(self, note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..self }
    }
}

/// What becomes of the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenPlan {
    Keep(Box<IssuedToken>),
    Request(&'static str),
}

/// What becomes of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryPlan {
    Nothing,
    Write(String),
    /// Once the token says which issuer.
    Later,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub objects: Vec<(Object, Change)>,
    pub token: TokenPlan,
    pub entry: EntryPlan,
}

/// What things are called here, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    pub credential: String,
    pub config: String,
}

pub fn plan(wanted: &Registration, facts: &Facts) -> Result<Plan, Refusal> {
    if facts.has_our_keys {
        return Err(Refusal::SameCluster);
    }
    let changes = facts.objects.iter().map(|(object, found)| {
        let change = change(object, found.as_ref())?;
        Ok((object.clone(), change))
    });
    let objects = changes.collect::<Result<_, ObjectError>>()?;
    let token = token_plan(facts);
    let issuer = match &token {
        TokenPlan::Keep(credential) => Some(&credential.issuer),
        TokenPlan::Request(_) => facts.issuer.as_ref(),
    };
    let entry = match issuer {
        Some(issuer) => entry_plan(wanted, facts.stored.config.as_deref(), issuer)?,
        None => EntryPlan::Later,
    };
    Ok(Plan { objects, token, entry })
}

pub fn entry_plan(
    wanted: &Registration,
    config: Option<&str>,
    issuer: &str,
) -> Result<EntryPlan, EditError> {
    let text = with_entry(config.unwrap_or_default(), &wanted.cluster, &wanted.entry(issuer))?;
    Ok(text.map_or(EntryPlan::Nothing, EntryPlan::Write))
}

/// A token that is good is kept: nothing is gained by another, and one with a longer life is not given away.
fn token_plan(facts: &Facts) -> TokenPlan {
    let Some((credential, acceptance)) = &facts.stored.credential else {
        let why = match facts.stored.has_token {
            true => "what is there is no token",
            false => "there is none",
        };
        return TokenPlan::Request(why);
    };
    let mut accounts = facts.objects.iter().filter(|(object, _)| object.is_account());
    let account = accounts.find_map(|(_, found)| found.as_ref()?["metadata"]["uid"].as_str());
    let Life { issued, expires } = credential.life;
    if account != Some(&credential.account.uid) {
        TokenPlan::Request("it was for another account, or for one that was deleted")
    } else if *acceptance == Acceptance::Refused {
        TokenPlan::Request("the API server refuses it")
    } else if facts.issuer.as_ref().is_some_and(|issuer| *issuer != credential.issuer) {
        TokenPlan::Request("the issuer of the cluster has changed")
    } else if facts.now >= issued + (expires - issued) / 2 {
        TokenPlan::Request("half of its life is over")
    } else {
        TokenPlan::Keep(Box::new(credential.clone()))
    }
}

impl Facts {
    /// Whether a new token is written. One that ends no later than a good one that we have is not.
    pub fn takes(&self, new: &IssuedToken) -> bool {
        let Some((old, acceptance)) = &self.stored.credential else { return true };
        let is_of_same = old.account.uid == new.account.uid && old.issuer == new.issuer;
        *acceptance != Acceptance::Accepted || !is_of_same || old.life.expires < new.life.expires
    }

    /// What is done with the file or Secret that holds CA and token.
    pub fn credential_action(&self, ca: Option<&str>, is_new: bool) -> Action {
        let stored = &self.stored;
        let is_there = stored.ca.is_some() || stored.has_token;
        match is_new || stored.ca.as_deref() != ca {
            true if is_there => Action::Change,
            true => Action::Create,
            false => Action::Nothing,
        }
    }

    pub fn config_action(&self, entry: &EntryPlan) -> Action {
        match entry {
            EntryPlan::Nothing => Action::Nothing,
            _ if self.stored.config.is_none() => Action::Create,
            EntryPlan::Write(_) | EntryPlan::Later => Action::Change,
        }
    }
}

impl Plan {
    /// All of it, for people and programs.
    pub fn steps(&self, wanted: &Registration, facts: &Facts, places: &Places) -> Vec<Step> {
        let mut steps: Vec<_> =
            self.objects.iter().map(|(object, change)| object_step(object, change)).collect();
        let token = match &self.token {
            TokenPlan::Keep(credential) => {
                let note = format!("valid until {}", credential.life.expires.to_rfc3339());
                Step::new(Side::Remote, Action::Nothing, TOKEN).note(note)
            }
            TokenPlan::Request(why) => Step::new(Side::Remote, Action::Create, TOKEN).note(*why),
        };
        let is_new = matches!(self.token, TokenPlan::Request(_));
        let credential = facts.credential_action(wanted.ca.as_deref(), is_new);
        let config = facts.config_action(&self.entry);
        steps.push(token);
        steps.push(Step::new(Side::Here, credential, &places.credential));
        steps.push(Step::new(Side::Here, config, &places.config));
        steps
    }
}

/// How the token is called in a step.
pub const TOKEN: &str = "token of trustplane-review/trustplane-review";

pub fn object_step(object: &Object, change: &Change) -> Step {
    let action = match change {
        Change::Nothing => Action::Nothing,
        Change::Create => Action::Create,
        Change::Patch(_) => Action::Change,
    };
    Step::new(Side::Remote, action, object)
}

#[cfg(test)]
mod tests;
