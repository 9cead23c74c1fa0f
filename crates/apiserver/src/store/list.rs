//! Lists: selected, paged, and at an earlier version.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Store, key};
use crate::{api_error::ApiError, kinds::Kind, select::Selector};

#[derive(Clone, Debug, Default)]
pub struct Query {
    pub selector: Selector,
    /// Page size; 0 for all.
    pub limit: usize,
    /// The continue token.
    pub continued: String,
    /// The required version.
    pub version: VersionMatch,
}

/// The required version of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionMatch {
    /// The newest.
    #[default]
    Latest,
    /// At least this.
    NotOlderThan(u64),
    /// Exactly this.
    Exact(u64),
    /// The same, for later pages.
    Page(u64),
}

/// A page of stored objects.
#[derive(Clone, Debug)]
pub struct List {
    /// In the order of namespace and name.
    pub items: Vec<Arc<Value>>,
    /// The version of the whole list.
    pub version: u64,
    /// The continue token of the next page; empty at the end.
    pub continued: String,
    /// Number of remaining objects, if known.
    pub remaining: Option<usize>,
}

impl Store {
    /// Objects of a kind in one namespace, or in all for "".
    pub fn list(&self, kind: &Kind, namespace: &str, query: &Query) -> Result<List, ApiError> {
        let (start, version) = self.start(query)?;
        let prefix = if namespace.is_empty() { String::new() } else { key(namespace, "") };
        let undone = self.undone(kind, version)?;
        let mut entries = self.entries(kind, start.as_deref(), &prefix, &undone);

        let limit = if query.limit == 0 { usize::MAX } else { query.limit };
        let mut items = Vec::new();
        let mut last: &str = "";
        let selected = |(_, object): &(&str, &Arc<Value>)| query.selector.matches(object);
        for (key, object) in entries.by_ref().filter(selected).take(limit) {
            last = key;
            items.push(object.clone());
        }
        let mut list = List { items, version, continued: String::new(), remaining: None };
        // The rest is filtered with the next page.
        let is_full = list.items.len() == limit && query.selector.only_name().is_none();
        let following = if is_full { entries.count() } else { 0 };
        if following > 0 {
            list.continued = token(version, &last[prefix.len()..]);
            list.remaining = query.selector.is_empty().then_some(following);
        }
        Ok(list)
    }

    fn start(&self, query: &Query) -> Result<(Option<String>, u64), ApiError> {
        if !query.continued.is_empty() {
            let (version, start) = read_token(&query.continued).ok_or_else(|| {
                ApiError::bad_request("invalid continue token: continue key is not valid")
            })?;
            if query.version != VersionMatch::Latest {
                let why = "specifying resource version is not allowed when using continue";
                return Err(ApiError::bad_request(why));
            }
            return Ok((Some(start), version));
        }
        match query.version {
            VersionMatch::Latest => Ok((None, self.version)),
            VersionMatch::NotOlderThan(asked)
            | VersionMatch::Exact(asked)
            | VersionMatch::Page(asked)
                if asked > self.version =>
            {
                Err(ApiError::too_large_version(asked, self.version))
            }
            VersionMatch::NotOlderThan(_) => Ok((None, self.version)),
            VersionMatch::Exact(asked) | VersionMatch::Page(asked) => Ok((None, asked)),
        }
    }

    /// Objects that changed since that version, in their state then; None if absent then.
    fn undone(
        &self,
        kind: &Kind,
        version: u64,
    ) -> Result<BTreeMap<Arc<str>, Option<Arc<Value>>>, ApiError> {
        if version >= self.version {
            return Ok(BTreeMap::new());
        }
        let changes = self.changes_since(version).map_err(|_| {
            ApiError::expired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.")
        })?;
        let mut undone = BTreeMap::new();
        for change in changes.filter(|change| change.kind.slot == kind.slot) {
            let key: Arc<str> = key(&change.namespace, &change.name).into();
            undone.entry(key).or_insert_with(|| change.before.clone());
        }
        Ok(undone)
    }

    fn entries<'a>(
        &'a self,
        kind: &Kind,
        start: Option<&str>,
        prefix: &str,
        undone: &'a BTreeMap<Arc<str>, Option<Arc<Value>>>,
    ) -> impl Iterator<Item = (&'a str, &'a Arc<Value>)> {
        let from = match start {
            Some(start) => Bound::Excluded(format!("{prefix}{start}")),
            None => Bound::Included(prefix.to_owned()),
        };
        // '0' is the character after the slash.
        let to = match prefix.strip_suffix('/') {
            Some(namespace) => Bound::Excluded(format!("{namespace}0")),
            None => Bound::Unbounded,
        };
        let range = (from.as_ref().map(String::as_str), to.as_ref().map(String::as_str));
        let current = self
            .of_kind(kind)
            .range::<str, _>(range)
            .filter(|(key, _)| !undone.contains_key(*key))
            .map(|(key, object)| (&**key, object));
        let past = undone
            .range::<str, _>(range)
            .filter_map(|(key, object)| Some((&**key, object.as_ref()?)));
        merged(current, past)
    }
}

/// Merges two sorted lists.
fn merged<'a, T: 'a>(
    left: impl Iterator<Item = (&'a str, T)>,
    right: impl Iterator<Item = (&'a str, T)>,
) -> impl Iterator<Item = (&'a str, T)> {
    let (mut left, mut right) = (left.peekable(), right.peekable());
    std::iter::from_fn(move || match (left.peek(), right.peek()) {
        (Some((one, _)), Some((other, _))) if other < one => right.next(),
        (None, _) => right.next(),
        _ => left.next(),
    })
}

fn token(version: u64, last: &str) -> String {
    // Kubernetes appends a zero byte for "right after".
    let token = json!({ "v": "meta.k8s.io/v1", "rv": version, "start": format!("{last}\0") });
    URL_SAFE_NO_PAD.encode(token.to_string())
}

fn read_token(token: &str) -> Option<(u64, String)> {
    let token: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let start = token["start"].as_str()?.trim_end_matches('\0');
    if start.is_empty() {
        return None;
    }
    Some((token["rv"].as_u64()?, start.to_owned()))
}
