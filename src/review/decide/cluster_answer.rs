//! Whether what a cluster answers about a token counts.
//!
//! A cluster can say yes or no. Who the token is follows from the claims that its own key signed, so a cluster
//! that says anything else is refused: it could make its tokens somebody else's.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};

use super::{
    config::Prefixes,
    identity::{EXTRA, Identity},
    token::Token,
};
use crate::runtime::printable;

/// Says which cluster a token is of.
const CLUSTER_NAME: &str = "cluster-name";
/// Of an error that a cluster words, in bytes.
const LONGEST_ERROR: usize = 1024;
/// The user of a request that proves nothing.
const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";

/// What is told about a token of which the cluster says yes.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    pub user: UserInfo,
    pub audiences: Vec<String>,
    /// How many extras of the cluster's own were left out.
    pub dropped: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ClusterAnswer {
    Accepted(Box<Accepted>),
    /// The cluster says no, in these words.
    Refused(String),
    /// The answer contradicts the token, so it does not count.
    Mismatch(Mismatch),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("the cluster took the token for nobody's ({ANONYMOUS})")]
    Anonymous,
    #[error("the cluster's answer lacks the group {AUTHENTICATED}")]
    NotAuthenticated,
    #[error("the cluster names another user than the token")]
    Username,
    #[error("the cluster names another UID than the token")]
    Uid,
    #[error("the cluster names other groups than those of a ServiceAccount")]
    Groups,
    #[error("the cluster names another Pod, Node or credential than the token")]
    Extra,
    #[error("the cluster accepts the token for an audience that was not asked for")]
    AudienceNotAsked,
    #[error("the cluster accepts the token for an audience that is not its own")]
    AudienceNotOwn,
    #[error("the cluster accepts the token without one of the audiences that were asked for")]
    NoAudience,
}

impl Accepted {
    /// What the user's own cluster knows of it.
    pub fn without_cluster_name(
        mut extra: BTreeMap<String, Vec<String>>,
    ) -> BTreeMap<String, Vec<String>> {
        extra.remove(&format!("{EXTRA}{CLUSTER_NAME}"));
        extra
    }

    /// With the names that a cluster's users and groups have elsewhere.
    pub fn prefixed(mut self, prefixes: &Prefixes) -> Self {
        let Prefixes { username, groups } = prefixes;
        self.user.username = self.user.username.map(|name| format!("{username}{name}"));
        for group in self.user.groups.iter_mut().flatten() {
            group.insert_str(0, groups);
        }
        self
    }
}

/// What the answer of the token's own cluster means. The `name` is ours for the cluster.
pub fn judge(
    status: Option<TokenReviewStatus>,
    token: &Token<'_>,
    asked: &[String],
    name: &str,
) -> ClusterAnswer {
    let status = status.unwrap_or_default();
    if status.authenticated != Some(true) {
        return ClusterAnswer::Refused(shown_error(status.error));
    }
    let (user, audiences) = (status.user.unwrap_or_default(), status.audiences.unwrap_or_default());
    let identity = &token.identity;
    match contradiction(&user, identity).or(misplaced(&audiences, token, asked)) {
        Some(mismatch) => ClusterAnswer::Mismatch(mismatch),
        None => ClusterAnswer::Accepted(Box::new(accepted(&user, audiences, identity, name))),
    }
}

fn shown_error(error: Option<String>) -> String {
    let error = error.unwrap_or_default();
    match printable::shortened(&printable::printable(&error), LONGEST_ERROR) {
        "" => "invalid bearer token".to_owned(),
        shown => shown.to_owned(),
    }
}

fn contradiction(user: &UserInfo, identity: &Identity) -> Option<Mismatch> {
    let mut groups = user.groups.clone().unwrap_or_default();
    if user.username.as_deref() == Some(ANONYMOUS) {
        return Some(Mismatch::Anonymous);
    }
    if !groups.iter().any(|it| it == AUTHENTICATED) {
        return Some(Mismatch::NotAuthenticated);
    }
    if user.username.as_deref() != Some(&*identity.username()) {
        return Some(Mismatch::Username);
    }
    if user.uid.as_deref() != Some(&*identity.uid) {
        return Some(Mismatch::Uid);
    }
    let mut expected = identity.groups();
    groups.sort();
    expected.sort();
    if groups != expected {
        return Some(Mismatch::Groups);
    }
    let known: BTreeMap<_, _> = user.extra.clone().unwrap_or_default();
    let known: BTreeMap<_, _> = known.into_iter().filter(|(name, _)| is_known(name)).collect();
    (known != identity.extra()).then_some(Mismatch::Extra)
}

/// Whether Kubernetes derives it from the claims.
fn is_known(extra: &str) -> bool {
    let known = ["pod-name", "pod-uid", "node-name", "node-uid", "credential-id"];
    extra.strip_prefix(EXTRA).is_some_and(|name| known.contains(&name))
}

fn misplaced(audiences: &[String], token: &Token<'_>, asked: &[String]) -> Option<Mismatch> {
    // Sets, because a caller and a cluster that know each other could make both lists long.
    let own: Option<HashSet<_>> = token.audiences.as_ref().map(|own| own.iter().collect());
    let all_asked: HashSet<_> = asked.iter().collect();
    let is_asked = |it: &String| asked.is_empty() || all_asked.contains(it);
    let is_own = |it: &String| own.as_ref().is_none_or(|own| own.contains(it));
    if !audiences.iter().all(is_asked) {
        return Some(Mismatch::AudienceNotAsked);
    }
    if !audiences.iter().all(is_own) {
        return Some(Mismatch::AudienceNotOwn);
    }
    (!asked.is_empty() && audiences.is_empty()).then_some(Mismatch::NoAudience)
}

fn accepted(user: &UserInfo, audiences: Vec<String>, identity: &Identity, name: &str) -> Accepted {
    let all = user.extra.iter().flatten();
    let dropped = all.filter(|(name, _)| !is_known(name)).count();
    let mut extra = identity.extra();
    extra.insert(format!("{EXTRA}{CLUSTER_NAME}"), vec![name.to_owned()]);
    let user = UserInfo {
        username: Some(identity.username()),
        uid: Some(identity.uid.clone()),
        groups: Some(identity.groups()),
        extra: Some(extra),
    };
    Accepted { user, audiences, dropped }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{Issuer, claims, legacy_claims},
        *,
    };

    /// What an honest API server says.
    fn honest(token: &Token<'_>, audiences: &[&str]) -> TokenReviewStatus {
        let identity = &token.identity;
        let user = UserInfo {
            username: Some(identity.username()),
            uid: Some(identity.uid.clone()),
            groups: Some(identity.groups()),
            extra: Some(identity.extra()),
        };
        TokenReviewStatus {
            authenticated: Some(true),
            audiences: Some(owned(audiences)),
            error: None,
            user: Some(user),
        }
    }

    fn owned(audiences: &[&str]) -> Vec<String> {
        audiences.iter().map(|it| (*it).to_owned()).collect()
    }

    fn with_token<T>(claims: &serde_json::Value, check: impl FnOnce(&Token<'_>) -> T) -> T {
        let text = Issuer::p256("k").token(claims);
        check(&Token::read(&text).ok().unwrap())
    }

    fn mismatch(asked: &[&str], lie: impl FnOnce(&mut TokenReviewStatus)) -> Option<Mismatch> {
        with_token(&claims(), |token| {
            let mut status = honest(token, &["shop"]);
            lie(&mut status);
            match judge(Some(status), token, &owned(asked), "a") {
                ClusterAnswer::Mismatch(mismatch) => Some(mismatch),
                _ => None,
            }
        })
    }

    #[test]
    fn a_yes_is_told_with_what_the_claims_say_and_the_name_of_the_cluster() {
        with_token(&claims(), |token| {
            let status = Some(honest(token, &["shop"]));
            let ClusterAnswer::Accepted(it) =
                judge(status, token, &owned(&["shop", "x"]), "cluster-b")
            else {
                panic!("not accepted")
            };
            assert_eq!(it.audiences, ["shop"]);
            assert_eq!(it.user.username.as_deref(), Some("system:serviceaccount:shop:cart"));
            assert_eq!(it.user.groups, Some(token.identity.groups()));
            let extra = it.user.extra.unwrap();
            assert_eq!(extra["authentication.kubernetes.io/cluster-name"], ["cluster-b"]);
            assert_eq!(extra["authentication.kubernetes.io/pod-name"], ["cart-0"]);
            assert_eq!((extra.len(), it.dropped), (6, 0));
        });
    }

    #[test]
    fn prefixes_stand_before_the_name_and_every_group() {
        with_token(&claims(), |token| {
            let status = Some(honest(token, &["shop"]));
            let ClusterAnswer::Accepted(it) = judge(status, token, &[], "b") else {
                panic!("not accepted")
            };
            let prefixes = Prefixes { username: "b:".to_owned(), groups: "b/".to_owned() };
            let user = it.prefixed(&prefixes).user;
            assert_eq!(user.username.as_deref(), Some("b:system:serviceaccount:shop:cart"));
            let groups = user.groups.unwrap();
            assert_eq!(groups.len(), 3);
            assert!(groups.iter().all(|it| it.starts_with("b/system:")), "{groups:?}");
        });
    }

    #[test]
    fn extras_of_the_clusters_own_are_left_out_and_counted() {
        with_token(&claims(), |token| {
            let mut status = honest(token, &["shop"]);
            let extra = status.user.as_mut().unwrap().extra.as_mut().unwrap();
            for name in ["authentication.kubernetes.io/cluster-name", "admin"] {
                extra.insert(name.to_owned(), owned(&["local"]));
            }
            let ClusterAnswer::Accepted(it) = judge(Some(status), token, &[], "b") else {
                panic!("not accepted")
            };
            let extra = it.user.extra.unwrap();
            assert_eq!(extra["authentication.kubernetes.io/cluster-name"], ["b"]);
            assert!(!extra.contains_key("admin"));
            assert_eq!(it.dropped, 2);
        });
    }

    #[test]
    fn a_cluster_that_says_who_the_token_is_otherwise_than_its_claims_is_refused() {
        type Lie = fn(&mut UserInfo);
        let lies: [(Mismatch, Lie); 13] = [
            (Mismatch::Anonymous, |it| it.username = Some("system:anonymous".to_owned())),
            (Mismatch::NotAuthenticated, |it| it.groups = None),
            (Mismatch::NotAuthenticated, |it| it.groups.as_mut().unwrap().truncate(2)),
            (Mismatch::Username, |it| it.username = Some("system:admin".to_owned())),
            (Mismatch::Username, |it| {
                it.username = Some("system:serviceaccount:shop:till".to_owned());
            }),
            (Mismatch::Username, |it| it.username = None),
            (Mismatch::Uid, |it| it.uid = Some("u-2".to_owned())),
            (Mismatch::Uid, |it| it.uid = None),
            (Mismatch::Groups, |it| it.groups.as_mut().unwrap().push("system:masters".to_owned())),
            (Mismatch::Groups, |it| {
                it.groups.as_mut().unwrap().remove(0);
            }),
            (Mismatch::Extra, |it| it.extra = None),
            (Mismatch::Extra, |it| {
                let extra = it.extra.as_mut().unwrap();
                extra.insert(format!("{EXTRA}pod-name"), vec!["till-0".to_owned()]);
            }),
            (Mismatch::Extra, |it| {
                let extra = it.extra.as_mut().unwrap();
                extra.get_mut(&format!("{EXTRA}node-uid")).unwrap().push("n-2".to_owned());
            }),
        ];
        for (number, (expected, lie)) in lies.into_iter().enumerate() {
            let found = mismatch(&[], |status| lie(status.user.as_mut().unwrap()));
            assert_eq!(found, Some(expected), "lie {number}");
        }
        assert_eq!(mismatch(&[], |status| status.user = None), Some(Mismatch::NotAuthenticated));
    }

    #[test]
    fn audiences_that_nobody_asked_for_or_that_are_not_the_tokens_are_refused() {
        let says = |audiences: &'static [&str]| {
            move |it: &mut TokenReviewStatus| it.audiences = Some(owned(audiences))
        };
        let not_asked = mismatch(&["till"], says(&["shop"]));
        assert_eq!(not_asked, Some(Mismatch::AudienceNotAsked));
        assert_eq!(mismatch(&["x"], says(&["x"])), Some(Mismatch::AudienceNotOwn));
        assert_eq!(mismatch(&[], says(&["x"])), Some(Mismatch::AudienceNotOwn));
        assert_eq!(mismatch(&["shop"], says(&[])), Some(Mismatch::NoAudience));
        assert_eq!(mismatch(&["shop"], |it| it.audiences = None), Some(Mismatch::NoAudience));
        assert_eq!(mismatch(&["shop", "till"], says(&["till", "shop"])), None);
        assert_eq!(mismatch(&[], says(&[])), None);
    }

    #[test]
    fn a_legacy_token_is_for_whatever_audience_its_api_server_has() {
        with_token(&legacy_claims(), |token| {
            let status = honest(token, &["https://kubernetes.default.svc"]);
            let judged = judge(Some(status.clone()), token, &[], "a");
            assert!(matches!(judged, ClusterAnswer::Accepted(_)));
            let judged = judge(Some(status), token, &owned(&["shop"]), "a");
            assert_eq!(judged, ClusterAnswer::Mismatch(Mismatch::AudienceNotAsked));
        });
    }

    #[test]
    fn a_no_is_told_in_the_clusters_words_as_far_as_they_can_be_shown() {
        let refused = |authenticated: Option<bool>, error: Option<&str>| {
            with_token(&claims(), |token| {
                let status = TokenReviewStatus {
                    authenticated,
                    error: error.map(str::to_owned),
                    ..honest(token, &["shop"])
                };
                match judge(Some(status), token, &[], "a") {
                    ClusterAnswer::Refused(words) => words,
                    _ => panic!("not refused"),
                }
            })
        };
        let words = "[invalid bearer token, service account UID (a) does not match claim (b)]";
        assert_eq!(refused(Some(false), Some(words)), words);
        assert_eq!(refused(None, None), "invalid bearer token");
        assert!(!refused(None, Some("a\u{1b}[2J\nb")).contains(['\u{1b}', '\n']));
        assert!(refused(None, Some(&"ü".repeat(4000))).len() <= 1024);
        with_token(&claims(), |token| {
            assert!(matches!(judge(None, token, &[], "a"), ClusterAnswer::Refused(_)));
        });
    }
}
