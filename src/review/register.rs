//! Registers a cluster, and takes it out again: gathers what is there, and carries out what was decided.

use std::time::Duration;

use chrono::{DateTime, Utc};
use kube::Client;
use zeroize::Zeroizing;

use super::{
    decide::{
        config::{Renewal, edit::EditError, read},
        directory::{Cluster, Directory, PublishedKey},
        register::{
            Action, EntryPlan, Facts, IssuedToken, Plan, Refusal, Registration, Side, Step, Stored,
            TOKEN, TokenPlan, entry_plan, object_step, removal,
        },
    },
    keys,
};
use remote::{RemoteCluster, RemoteError};
use store::{Found, NewCredential, Store, StoreError};

pub mod kubeconfig;
pub mod remote;
pub mod store;

#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Refusal(#[from] Refusal),
    #[error(transparent)]
    Edit(#[from] EditError),
}

/// What was read before anything is decided.
pub struct Gathered {
    pub facts: Facts,
    found: Found,
}

/// `here` is the cluster that trustplane review runs in, if that is known.
pub async fn gather(
    wanted: &Registration,
    remote: &RemoteCluster,
    store: &Store,
    here: Option<&Client>,
    now: DateTime<Utc>,
) -> Result<Gathered, RegisterError> {
    let found = store.read(&wanted.cluster).await?;
    let objects = remote.objects().await?;
    let (issuer, keys) = tokio::join!(remote.issuer(), remote.keys());
    let has_our_keys = match (here, keys) {
        (Some(here), Some(keys)) => {
            keys::fetch(here).await.is_ok_and(|(ours, _)| share_a_key(ours, keys))
        }
        _ => false,
    };
    let token = found.token.as_ref().map(|it| it.trim().to_owned()).map(Zeroizing::new);
    let credential = match token.as_ref().and_then(|it| IssuedToken::read(it).ok().zip(Some(it))) {
        Some((read, token)) => Some((read, remote.acceptance(token).await)),
        None => None,
    };
    let stored = Stored {
        config: found.config.clone(),
        ca: found.ca.clone(),
        credential,
        has_token: token.is_some_and(|it| !it.is_empty()),
    };
    Ok(Gathered { facts: Facts { objects, issuer, has_our_keys, stored, now }, found })
}

fn share_a_key(ours: Vec<PublishedKey>, theirs: Vec<PublishedKey>) -> bool {
    let cluster = |name: &str, keys| Cluster { name: name.into(), keys, ..Cluster::default() };
    let both = [cluster("here", ours), cluster("there", theirs)];
    !Directory::new(&both, &Default::default()).shared.is_empty()
}

/// What a cluster is asked with from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    pub issuer: String,
    pub expires: DateTime<Utc>,
}

/// `report` hears of each step once it is done.
pub async fn execute(
    plan: Plan,
    wanted: &Registration,
    gathered: &Gathered,
    (remote, store): (&RemoteCluster, &Store),
    mut report: impl FnMut(Step),
) -> Result<Registered, RegisterError> {
    let Gathered { facts, found } = gathered;
    for (object, change) in &plan.objects {
        remote.write(object, change).await?;
        report(object_step(object, change));
    }
    let (token, issued) = match plan.token {
        TokenPlan::Keep(issued) => (None, *issued),
        TokenPlan::Request(_) => {
            let (token, issued) = new_token(&plan, remote, &life(facts)).await?;
            match facts.takes(&issued) {
                true => (Some(token), issued),
                // What we have is good for longer.
                false => match &facts.stored.credential {
                    Some((old, _)) => (None, old.clone()),
                    None => (Some(token), issued),
                },
            }
        }
    };
    let action = if token.is_some() { Action::Create } else { Action::Nothing };
    let note = format!("valid until {}", issued.life.expires.to_rfc3339());
    report(Step::new(Side::Remote, action, TOKEN).note(note));
    // Before anything is written here, so that nothing is half done where it is refused.
    let entry = entry_plan(wanted, found.config.as_deref(), &issued.issuer)?;
    let places = store.places(&wanted.cluster);
    let action = facts.credential_action(wanted.ca.as_deref(), token.is_some());
    if action != Action::Nothing {
        let token = token.as_ref().or(found.token.as_ref());
        let token = token.map(|it| it.trim()).unwrap_or_default();
        let new = NewCredential { ca: wanted.ca.as_deref(), token };
        store.write_credential(&wanted.cluster, found, new).await?;
    }
    report(Step::new(Side::Here, action, &places.credential));
    if let EntryPlan::Write(text) = &entry {
        store.write_config(&wanted.cluster, found, text).await?;
    }
    report(Step::new(Side::Here, facts.config_action(&entry), &places.config));
    Ok(Registered { issuer: issued.issuer, expires: issued.life.expires })
}

/// As long as trustplane review asks for, too.
fn life(facts: &Facts) -> Duration {
    let config = facts.stored.config.as_deref().and_then(|text| read(text).ok());
    config.map_or_else(Renewal::default, |it| it.renewal).token_duration
}

async fn new_token(
    plan: &Plan,
    remote: &RemoteCluster,
    life: &Duration,
) -> Result<(Zeroizing<String>, IssuedToken), RegisterError> {
    let account = plan.objects.iter().find(|(object, _)| object.is_account());
    let (account, _) =
        account.ok_or_else(|| RemoteError::Token("there is no account".to_owned()))?;
    let token = remote.token(account, *life).await?;
    let issued = IssuedToken::read(&token);
    let issued = issued.map_err(|error| RemoteError::Token(error.to_string()))?;
    remote.try_token(&token).await?;
    Ok((token, issued))
}

/// What was read before anything is removed.
pub struct Leaving {
    pub facts: removal::Facts,
    found: Found,
}

/// `remote` is the cluster, if anything is removed there.
pub async fn gather_removal(
    cluster: &str,
    remote: Option<&RemoteCluster>,
    store: &Store,
) -> Result<Leaving, RegisterError> {
    let found = store.read(cluster).await?;
    let objects = match remote {
        Some(remote) => remote.objects().await?,
        None => Vec::new(),
    };
    let (config, has_credential) = (found.config.clone(), found.has_credential());
    let facts = removal::Facts { config, has_credential, objects };
    Ok(Leaving { facts, found })
}

pub async fn remove(
    plan: &removal::Plan,
    cluster: &str,
    leaving: &Leaving,
    (remote, store): (Option<&RemoteCluster>, &Store),
    mut report: impl FnMut(Step),
) -> Result<(), RegisterError> {
    let steps = plan.steps(&store.places(cluster));
    let mut steps = steps.into_iter();
    if let Some(text) = &plan.config {
        store.write_config(cluster, &leaving.found, text).await?;
    }
    steps.next().into_iter().for_each(&mut report);
    if plan.credential {
        store.remove_credential(cluster, &leaving.found).await?;
    }
    steps.next().into_iter().for_each(&mut report);
    for ((object, removal), step) in plan.objects.iter().zip(steps) {
        if let Some(remote) = remote {
            remote.remove(object, removal).await?;
        }
        report(step);
    }
    Ok(())
}
