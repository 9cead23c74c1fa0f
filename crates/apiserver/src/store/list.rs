//! Lists: selected, paged, and as they were at a version that is still remembered.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Store, key};
use crate::{api_error::ApiError, kinds::Kind, select::Selector};

/// The parameters of a list.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pub selector: Selector,
    /// How many at most; 0 for all.
    pub limit: usize,
    /// Where the page before ended.
    pub continued: String,
    /// How current it must be.
    pub version: VersionMatch,
}

/// How current a list must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionMatch {
    /// As current as can be.
    #[default]
    Latest,
    /// At least that.
    NotOlderThan(u64),
    /// Exactly that.
    Exact(u64),
    /// The same, because it is asked for in pages.
    Page(u64),
}

/// A page of objects, as they are stored.
#[derive(Clone, Debug)]
pub struct List {
    /// In the order of namespace and name.
    pub items: Vec<Arc<Value>>,
    /// The version of the whole list.
    pub version: u64,
    /// Where the next page begins; empty at the end.
    pub continued: String,
    /// How many follow, where that is known.
    pub remaining: Option<usize>,
}

impl Store {
    /// Objects of a kind, in one namespace or, with "", in all.
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
        // Whether what follows is selected is for the next page to see.
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

    /// The objects that changed since, as they were at that version; None if absent then.
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
        // '0' is the letter that follows the slash.
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

/// Two sorted lists as one.
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
    // The zero byte is how Kubernetes says "right after".
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
