//! Which addresses and names belong to networks that are not public. Pure.
//!
//! People who may add a peer must not learn from its status what listens in such a network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Suffixes of names that the public DNS does not have.
const INTERNAL: [&str; 8] =
    ["localhost", "localdomain", "local", "internal", "svc", "lan", "intranet", "home.arpa"];

/// Whether an address belongs to this machine or its network, or is reserved.
pub(super) fn is_internal(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => v6(address),
    }
}

fn v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        // "This network", which Linux takes for this machine.
        || a == 0
        // Between a provider and its customers (RFC 6598): OpenShift uses it inside clusters.
        || (a == 100 && (64..128).contains(&b))
        // For IETF protocols, for benchmarks, and reserved.
        || (a, b, c) == (192, 0, 0)
        || (a == 198 && (18..20).contains(&b))
        || a >= 240
}

fn v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // fec0::/10 was for sites, before there were unique local addresses.
    let of_site = segments[0] & 0xffc0 == 0xfec0;
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_unique_local()
        || address.is_unicast_link_local()
        || of_site
        || carried(&segments).is_some_and(v4)
}

/// The IPv4 address inside an IPv6 address.
fn carried(segments: &[u16; 8]) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match *segments {
        // ::ffff:1.2.3.4, and the older ::1.2.3.4.
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] => Some(of(high, low)),
        // ::ffff:0:1.2.3.4 and NAT64, by the well-known prefix or one of one's own (64:ff9b:1::/48).
        [0, 0, 0, 0, 0xffff, 0, high, low] => Some(of(high, low)),
        [0x64, 0xff9b, 0 | 1, .., high, low] => Some(of(high, low)),
        // 6to4.
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

/// Whether only a private network knows the name.
pub(super) fn is_internal_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_below = |end: &&str| {
        name.strip_suffix(*end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    !name.contains('.') || INTERNAL.iter().any(is_below)
}

/// Whether the cluster's DNS may know a name that could not be resolved: `db.shop` is also the Service db
/// of the namespace shop, and the error must not show which Services there are.
pub(super) fn may_be_internal_name(name: &str) -> bool {
    is_internal_name(name) || (!name.ends_with('.') && name.matches('.').count() < 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_network_that_is_not_public_is_told_from_others_in_every_spelling() {
        for internal in [
            "127.0.0.1",
            "127.255.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.127.255.255",
            "224.0.0.1",
            "192.0.0.1",
            "198.19.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fdff::1",
            "fec0::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::169.254.169.254",
            "2002:0a00:0001::",
        ] {
            assert!(is_internal(internal.parse().unwrap()), "{internal}");
        }
        for public in [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "198.20.0.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:0101:0101::",
        ] {
            assert!(!is_internal(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn a_name_that_only_a_cluster_knows_is_told_from_a_public_one() {
        for internal in
            ["localhost", "db", "db.shop.svc", "db.shop.svc.cluster.local", "a.LOCALHOST", "db."]
        {
            assert!(is_internal_name(internal), "{internal}");
        }
        for public in ["b.example.com", "b.example.com.", "svc.example.com", "mylocal"] {
            assert_eq!(is_internal_name(public), public == "mylocal", "{public}");
        }
        assert!(may_be_internal_name("db.shop") && !may_be_internal_name("db.shop."));
        assert!(!may_be_internal_name("b.example.com"));
    }
}
