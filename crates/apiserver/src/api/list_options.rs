//! Parses and validates the query of a list or watch.

use std::time::Duration;

use super::params::Params;
use crate::{
    api_error::{ApiError, Cause},
    kinds::Kind,
    select::Selector,
    store::{Query, VersionMatch},
};

const MATCH: &str = "resourceVersionMatch";

/// Options of a list.
pub(super) struct ListOptions {
    pub limit: usize,
    pub continued: String,
    pub version: VersionMatch,
}

/// Options of a watch.
pub(super) struct WatchOptions {
    pub start: Start,
    pub bookmarks: bool,
    pub timeout: Option<Duration>,
}

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// With the existing objects.
    Now,
    /// After that version.
    After(u64),
}

impl ListOptions {
    pub fn read(params: &Params, kind: &Kind) -> Result<Self, ApiError> {
        check_numbers(params)?;
        let (wanted, version) = (params.text(MATCH), params.text("resourceVersion"));
        let continued = params.text("continue");
        let mut causes = Vec::new();
        if !wanted.is_empty() {
            let mut forbid = |why: &str| causes.push(Cause::forbidden(MATCH, why));
            if version.is_empty() {
                forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if !continued.is_empty() {
                forbid("resourceVersionMatch is forbidden when continue is provided");
            }
            if wanted == "Exact" && version == "0" {
                forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            }
            if !matches!(wanted, "Exact" | "NotOlderThan") {
                let known = ["Exact", "NotOlderThan", ""];
                causes.push(Cause::unsupported(MATCH, &format!("{wanted:?}"), &known));
            }
        }
        if params.is_set("sendInitialEvents") {
            let why = "sendInitialEvents is forbidden for list";
            causes.push(Cause::forbidden("sendInitialEvents", why));
        }
        if !causes.is_empty() {
            return Err(ApiError::invalid_options("ListOptions", causes));
        }
        // Lists from the watch cache are not paged. Events have no watch cache.
        let at_hand = version == "0" && kind.kind != "Event";
        let limit = if at_hand { "" } else { params.text("limit") };
        let limit = limit.parse().unwrap_or(0);
        let version = version_match(wanted, version, continued, limit)?;
        Ok(Self { limit, continued: continued.to_owned(), version })
    }
}

impl ListOptions {
    pub fn query(self, selector: Selector) -> Query {
        let version = match self.version {
            // A list of one name is a consistent read of that object.
            VersionMatch::Page(version) if selector.only_name().is_some() => {
                VersionMatch::NotOlderThan(version)
            }
            version => version,
        };
        Query { selector, limit: self.limit, continued: self.continued, version }
    }
}

fn version_match(
    wanted: &str,
    version: &str,
    continued: &str,
    limit: usize,
) -> Result<VersionMatch, ApiError> {
    let number = match version {
        "" => 0,
        text => text.parse::<u64>().map_err(|_| ApiError::bad_list_version(text))?,
    };
    match wanted {
        _ if number == 0 => Ok(VersionMatch::Latest),
        // The token holds the version; the store refuses another.
        _ if !continued.is_empty() => Ok(VersionMatch::Exact(number)),
        "Exact" => Ok(VersionMatch::Exact(number)),
        // A page of a version shows exactly that version.
        "" if limit > 0 => Ok(VersionMatch::Page(number)),
        _ => Ok(VersionMatch::NotOlderThan(number)),
    }
}

impl WatchOptions {
    /// Checks that the options are consistent.
    pub fn check(params: &Params) -> Result<(), ApiError> {
        check_numbers(params)?;
        let wanted = params.text(MATCH);
        let asks_for_initial = params.is_set("sendInitialEvents");
        let mut causes = Vec::new();
        let mut forbid = |why: &str| causes.push(Cause::forbidden(MATCH, why));
        if asks_for_initial && wanted != "NotOlderThan" {
            forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        if !wanted.is_empty() {
            if !asks_for_initial {
                forbid(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
            if !params.text("continue").is_empty() {
                forbid("resourceVersionMatch is forbidden when continue is provided");
            }
            if wanted != "NotOlderThan" {
                let known = ["NotOlderThan"];
                causes.push(Cause::unsupported(MATCH, &format!("{wanted:?}"), &known));
            }
        }
        if causes.is_empty() {
            Ok(())
        } else {
            Err(ApiError::invalid_options("ListOptions", causes))
        }
    }

    pub fn read(params: &Params) -> Result<Self, ApiError> {
        Self::check(params)?;
        let asks_for_initial = params.is_set("sendInitialEvents");
        let version = match params.text("resourceVersion") {
            "" => 0,
            text => text.parse::<u64>().map_err(|_| ApiError::bad_watch_version(text))?,
        };
        let initial = params.flag("sendInitialEvents") || !asks_for_initial && version == 0;
        let timeout = params.text("timeoutSeconds").parse().ok().filter(|seconds| *seconds > 0);
        Ok(Self {
            start: if initial { Start::Now } else { Start::After(version) },
            bookmarks: params.flag("allowWatchBookmarks"),
            timeout: timeout.map(Duration::from_secs),
        })
    }
}

fn check_numbers(params: &Params) -> Result<(), ApiError> {
    params.number("timeoutSeconds")?;
    params.number("limit")?;
    Ok(())
}
