//! Who may ask for a review.

use super::identity::Identity;

/// `cluster/namespace/serviceaccount`, in which `*` stands for any name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    cluster: String,
    namespace: String,
    account: String,
}

impl Pattern {
    pub fn read(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.split('/').collect();
        let is_part = |it: &&str| !it.is_empty() && (*it == "*" || !it.contains('*'));
        match parts[..] {
            [cluster, namespace, account] if parts.iter().all(is_part) => Some(Self {
                cluster: cluster.to_owned(),
                namespace: namespace.to_owned(),
                account: account.to_owned(),
            }),
            _ => None,
        }
    }

    /// Whether one of these clusters can match.
    pub fn has_cluster_of<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> bool {
        names.any(|name| is_match(&self.cluster, name))
    }

    pub fn allows(&self, cluster: &str, caller: &Identity) -> bool {
        is_match(&self.cluster, cluster)
            && is_match(&self.namespace, &caller.namespace)
            && is_match(&self.account, &caller.account)
    }
}

fn is_match(pattern: &str, name: &str) -> bool {
    pattern == "*" || pattern == name
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            testing::{Issuer, claims},
            token::Token,
        },
        *,
    };

    #[test]
    fn a_star_stands_for_one_name_and_for_no_part_of_one() {
        for (text, allows) in [
            ("b/shop/cart", true),
            ("*/*/*", true),
            ("b/*/cart", true),
            ("*/shop/*", true),
            ("a/shop/cart", false),
            ("b/shop/till", false),
            ("b/till/cart", false),
        ] {
            let token = Issuer::p256("k").token(&claims());
            let token = Token::read(&token).ok().unwrap();
            let pattern = Pattern::read(text).unwrap();
            assert_eq!(pattern.allows("b", &token.identity), allows, "{text}");
        }
        for text in ["", "b", "b/shop", "b/shop/cart/x", "b//cart", "b/sh*/cart", "**/shop/cart"] {
            assert_eq!(Pattern::read(text), None, "{text}");
        }
    }
}
