mod bounds;

use super::*;
use crate::{
    api::spire_server::{BundleEndpoint, HttpsWeb, ServingCert},
    federate::decide::render,
};

fn peer(trust_domain: &str) -> Peer {
    Peer {
        trust_domain: trust_domain.to_owned(),
        bundle_endpoint_url: format!("https://federation.{trust_domain}"),
        bundle_endpoint_profile: Profile::HttpsSpiffe,
        endpoint_spiffe_id: Some(format!("spiffe://{trust_domain}/spire/server")),
    }
}

fn acme() -> Acme {
    Acme {
        directory_url: "https://acme.example.com/directory".to_owned(),
        domain_name: "federation.a.example.com".to_owned(),
        email: "admin@example.com".to_owned(),
        tos_accepted: "true".to_owned(),
    }
}

fn endpoint(profile: Profile, https_web: Option<HttpsWeb>) -> Federation {
    Federation {
        bundle_endpoint: BundleEndpoint { profile, refresh_hint: 300, https_web },
        federates_with: Vec::new(),
        managed_route: "true".to_owned(),
        route_host: None,
    }
}

fn by_acme(acme: Acme) -> Federation {
    endpoint(Profile::HttpsWeb, Some(HttpsWeb { acme: Some(acme), serving_cert: None }))
}

fn with_peers(peers: impl IntoIterator<Item = Peer>) -> Federation {
    let federates_with = peers.into_iter().collect();
    Federation { federates_with, ..endpoint(Profile::HttpsSpiffe, None) }
}

fn server(federation: Option<Federation>) -> SpireServerSpec {
    SpireServerSpec {
        trust_domain: "a.example.com".to_owned(),
        federation,
        ..render::tests::server(serde_json::Value::Null).spec
    }
}

fn problem_texts(federation: Federation) -> Vec<String> {
    problems(&server(Some(federation))).iter().map(ToString::to_string).collect()
}

/// The fields that are complained about; for those where somebody else has the words.
fn blamed(spec: &SpireServerSpec) -> Vec<String> {
    problems(spec).into_iter().map(|problem| problem.field).collect()
}

const NONE: [&str; 0] = [];

#[test]
fn what_can_work_has_no_problem() {
    assert_eq!(problems(&server(None)), []);
    let serving_cert = ServingCert { file_sync_interval: 86_400, external_secret_ref: None };
    let serving_cert = HttpsWeb { acme: None, serving_cert: Some(serving_cert) };
    let by_web = Peer {
        bundle_endpoint_profile: Profile::HttpsWeb,
        endpoint_spiffe_id: None,
        ..peer("c.example.com")
    };
    for federation in [
        endpoint(Profile::HttpsSpiffe, None),
        endpoint(Profile::HttpsWeb, Some(serving_cert)),
        by_acme(acme()),
        with_peers([peer("b.example.com"), by_web]),
        with_peers((1..=MOST_PEERS).map(|number| peer(&format!("b{number}.example.com")))),
        Federation {
            route_host: Some("federation.a.example.com".to_owned()),
            ..endpoint(Profile::HttpsSpiffe, None)
        },
    ] {
        assert_eq!(problem_texts(federation), NONE);
    }
}

#[test]
fn a_trust_domain_is_judged_by_the_rules_of_spiffe() {
    for wrong in ["", "a b", "spiffe://a.example.com", "a/b"] {
        let spec = SpireServerSpec { trust_domain: wrong.to_owned(), ..server(None) };
        assert_eq!(blamed(&spec), ["spec.trustDomain"], "{wrong:?}");
        let spec = server(Some(with_peers([Peer {
            trust_domain: wrong.to_owned(),
            ..peer("b.example.com")
        }])));
        assert_eq!(blamed(&spec), ["spec.federation.federatesWith[0].trustDomain"], "{wrong:?}");
    }
}

#[test]
fn the_id_of_an_endpoint_is_a_whole_spiffe_id() {
    let with_id = |id: Option<&str>, profile| {
        let id = id.map(str::to_owned);
        let peer = Peer {
            endpoint_spiffe_id: id,
            bundle_endpoint_profile: profile,
            ..peer("b.example.com")
        };
        server(Some(with_peers([peer])))
    };
    let field = "spec.federation.federatesWith[0].endpointSpiffeId";
    for wrong in ["b.example.com/spire/server", "https://b.example.com", "spiffe://"] {
        assert_eq!(blamed(&with_id(Some(wrong), Profile::HttpsSpiffe)), [field], "{wrong:?}");
    }
    let right = Some("spiffe://b.example.com/spire/server");
    assert_eq!(problems(&with_id(right, Profile::HttpsSpiffe)), []);
    let idle = Problem::new(field, "it is for the profile https_spiffe alone; remove it");
    assert_eq!(problems(&with_id(right, Profile::HttpsWeb)), [idle]);
    for missing in [None, Some("")] {
        let needed = Problem::new(field, "it is needed for the profile https_spiffe");
        assert_eq!(problems(&with_id(missing, Profile::HttpsSpiffe)), [needed]);
        assert_eq!(problems(&with_id(missing, Profile::HttpsWeb)), []);
    }
}

#[test]
fn a_url_is_https_and_names_a_host_and_nothing_that_does_not_belong_there() {
    for right in [
        "https://b.example.com",
        "https://b.example.com/",
        "https://b.example.com:8443/bundle?format=spiffe",
        "https://localhost",
        "https://192.0.2.1:443",
        "https://[2001:db8::1]",
        "https://[2001:db8::1]:8443/",
        "HTTPS://b.example.com",
        "https://b.example.com/path@with/at:and:colons",
        "https://b.example.com./",
        "https://b.example.com.:8443",
        "https://xn--bcher-kva.example/",
    ] {
        assert!(https_url(right).is_ok(), "{right}: {:?}", https_url(right));
    }
    for (wrong, why) in [
        ("", UrlError::NotHttps),
        ("b.example.com", UrlError::NotHttps),
        ("http://b.example.com", UrlError::NotHttps),
        ("https:/b.example.com", UrlError::NotHttps),
        ("häppily", UrlError::NotHttps),
        ("https://me@b.example.com", UrlError::UserInfo),
        ("https://me:word@b.example.com/", UrlError::UserInfo),
        ("https://@b.example.com", UrlError::UserInfo),
        ("https://", UrlError::NoHost),
        ("https:///bundle", UrlError::NoHost),
        ("https://?a=b", UrlError::NoHost),
        ("https://:8443", UrlError::NoHost),
        ("https://b_c.example.com", UrlError::NoHost),
        ("https://b..example.com", UrlError::NoHost),
        ("https://-b.example.com", UrlError::NoHost),
        ("https://b example.com", UrlError::NoHost),
        ("https://[::zz]", UrlError::NoHost),
        ("https://.", UrlError::NoHost),
        ("https://b.example.com..", UrlError::NoHost),
        ("https://b\u{fc}cher.example", UrlError::NotAscii),
        ("https://2001:db8::1", UrlError::NoHost),
        ("https://b.example.com:", UrlError::Port),
        ("https://b.example.com:0", UrlError::Port),
        ("https://b.example.com:65536", UrlError::Port),
        ("https://b.example.com:https", UrlError::Port),
        ("https://b.example.com:-1", UrlError::Port),
        ("https://b.example.com:+443", UrlError::Port),
        ("https://b.example.com#keys", UrlError::Fragment),
        ("https://b.example.com/ a", UrlError::NotAUrl),
    ] {
        assert_eq!(https_url(wrong), Err(why), "{wrong}");
    }
}

#[test]
fn a_name_of_a_host_is_as_long_as_dns_allows() {
    let label = "a".repeat(63);
    assert!(is_host(&label) && !is_host(&format!("{label}a")));
    let longest = [label.as_str(), &label, &label, &"a".repeat(61)].join(".");
    assert!(longest.len() == 253 && is_host(&longest) && !is_host(&format!("{longest}a")));
}

#[test]
fn a_peer_with_a_bad_url_is_told_in_words() {
    let url = |url: &str| Peer { bundle_endpoint_url: url.to_owned(), ..peer("b.example.com") };
    let told =
        problem_texts(with_peers([peer("c.example.com"), url("https://me:word@b.example.com")]));
    assert_eq!(
        told,
        ["spec.federation.federatesWith[1].bundleEndpointUrl: \
          it must not carry a user name or password"]
    );
    assert!(!told[0].contains("word@"), "what may be a password is not repeated");
}

#[test]
fn a_trust_domain_federates_with_others_and_with_each_once() {
    assert_eq!(
        problem_texts(with_peers([
            peer("b.example.com"),
            peer("a.example.com"),
            peer("b.example.com")
        ])),
        [
            "spec.federation.federatesWith[1].trustDomain: \
             a trust domain can't federate with itself",
            "spec.federation.federatesWith[2].trustDomain: b.example.com is listed twice",
        ]
    );
}

#[test]
fn fifty_one_peers_are_too_many() {
    let peers = (1..=51).map(|number| peer(&format!("b{number}.example.com")));
    assert_eq!(
        problem_texts(with_peers(peers)),
        ["spec.federation.federatesWith: 51 trust domains, where 50 are the most"]
    );
}

#[test]
fn the_profile_https_web_needs_one_source_of_certificates() {
    let both = HttpsWeb {
        acme: Some(acme()),
        serving_cert: Some(ServingCert { file_sync_interval: 3600, external_secret_ref: None }),
    };
    let neither = HttpsWeb { acme: None, serving_cert: None };
    let field = "spec.federation.bundleEndpoint.httpsWeb";
    assert_eq!(
        problem_texts(endpoint(Profile::HttpsWeb, None)),
        [format!("{field}: it is needed for the profile https_web")]
    );
    let idle = Some(HttpsWeb { acme: Some(acme()), serving_cert: None });
    assert_eq!(
        problem_texts(endpoint(Profile::HttpsSpiffe, idle)),
        [format!("{field}: it is for the profile https_web alone; remove it")]
    );
    for web in [both, neither] {
        assert_eq!(
            problem_texts(endpoint(Profile::HttpsWeb, Some(web))),
            [format!("{field}: exactly one of acme and servingCert must be set")]
        );
    }
}

#[test]
fn an_acme_authority_needs_a_directory_a_name_and_its_terms_accepted() {
    let field = |name: &str| format!("spec.federation.bundleEndpoint.httpsWeb.acme.{name}");
    let directory = Acme { directory_url: "http://acme.example.com".to_owned(), ..acme() };
    assert_eq!(
        problem_texts(by_acme(directory)),
        [format!("{}: it must begin with https://", field("directoryUrl"))]
    );
    let domain = Acme { domain_name: "https://a.example.com".to_owned(), ..acme() };
    assert_eq!(
        problem_texts(by_acme(domain)),
        [format!("{}: it is not the name of a host", field("domainName"))]
    );
    let terms = Acme { tos_accepted: "false".to_owned(), ..acme() };
    let why = "the authority's terms are not accepted; read them, then set it to \"true\"";
    assert_eq!(problem_texts(by_acme(terms)), [format!("{}: {why}", field("tosAccepted"))]);
}

#[test]
fn the_host_of_a_route_is_the_name_of_a_host() {
    for wrong in ["", "https://a.example.com", "a.example.com:443", "a b"] {
        let federation = Federation {
            route_host: Some(wrong.to_owned()),
            ..endpoint(Profile::HttpsSpiffe, None)
        };
        let expected = ["spec.federation.routeHost: it is not the name of a host"];
        assert_eq!(problem_texts(federation), expected, "{wrong:?}");
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once_in_the_order_of_the_fields() {
    let web = HttpsWeb {
        acme: Some(Acme {
            directory_url: String::new(),
            domain_name: String::new(),
            email: String::new(),
            tos_accepted: "false".to_owned(),
        }),
        serving_cert: Some(ServingCert { file_sync_interval: 3600, external_secret_ref: None }),
    };
    let broken = Peer {
        trust_domain: "B/C".to_owned(),
        bundle_endpoint_url: "http://b".to_owned(),
        bundle_endpoint_profile: Profile::HttpsSpiffe,
        endpoint_spiffe_id: None,
    };
    let federation = Federation {
        federates_with: vec![broken.clone(), broken],
        route_host: Some("-".to_owned()),
        ..endpoint(Profile::HttpsWeb, Some(web))
    };
    let spec = SpireServerSpec { trust_domain: "A/B".to_owned(), ..server(Some(federation)) };
    let web = "spec.federation.bundleEndpoint.httpsWeb";
    let peer = |index: usize, name: &str| format!("spec.federation.federatesWith[{index}].{name}");
    let expected = [
        "spec.trustDomain".to_owned(),
        web.to_owned(),
        format!("{web}.acme.directoryUrl"),
        format!("{web}.acme.domainName"),
        format!("{web}.acme.tosAccepted"),
        "spec.federation.routeHost".to_owned(),
        peer(0, "trustDomain"),
        peer(0, "bundleEndpointUrl"),
        peer(0, "endpointSpiffeId"),
        peer(1, "trustDomain"),
        peer(1, "trustDomain"),
        peer(1, "bundleEndpointUrl"),
        peer(1, "endpointSpiffeId"),
    ];
    assert_eq!(blamed(&spec), expected);
}

#[test]
fn what_the_spire_server_would_refuse_to_start_with_is_a_problem_here() {
    let with = |field: &str, value: &str| {
        let mut federation = crate::federate::decide::render::tests::spiffe();
        federation["federatesWith"][0][field] = serde_json::json!(value);
        problems(&crate::federate::decide::render::tests::server(federation).spec)
    };
    for id in
        ["spiffe://TD-B.test/spire/server", "SPIFFE://td-b.test/spire/server", "spiffe://td-b.test"]
    {
        assert_eq!(with("endpointSpiffeId", id).len(), 1, "{id}");
    }
    assert_eq!(with("endpointSpiffeId", "spiffe://td-b.test/spire/server"), []);
    assert_eq!(with("bundleEndpointUrl", "https://b.example/%zz").len(), 1);
    assert_eq!(with("bundleEndpointUrl", "https://b.example/%20"), []);
}
