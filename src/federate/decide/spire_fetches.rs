//! Whether the SPIRE server itself fetches the bundles of its peers, as its metrics show. Pure.
//!
//! SPIRE counts fetches by status and trust domain. Its library forgets a counter that did not change for a
//! minute and starts it again at one. So only growth between two reads means anything, and a counter that is
//! gone or smaller started at zero.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    api::spire_server::{PeerStatus, SpireFetch},
    runtime::printable::printable,
};

const NAME: &str = "spire_server_bundle_manager_fetch_federated_bundle";
/// The status of a successful fetch.
const OK: &str = "OK";
/// While a server is replaced its metrics can't be read; the last answer is kept this long.
const GRACE: TimeDelta = TimeDelta::minutes(2);
/// gRPC has few statuses; this bounds the memory for made-up ones.
const MOST_STATUSES: usize = 32;

/// Fetches by the label of a trust domain and by status.
pub type Counts = BTreeMap<String, BTreeMap<String, u64>>;

/// Parses Prometheus' text format. Lines that can't be parsed are skipped.
pub fn parse(page: &str) -> Counts {
    let mut counts = Counts::new();
    for line in page.lines() {
        let Some((labels, value)) = line.strip_prefix(NAME).and_then(sample) else { continue };
        let find = |name: &str| labels.iter().find(|(it, _)| it == name).map(|(_, value)| value);
        if let (Some(trust_domain), Some(status)) = (find("trust_domain_id"), find("status")) {
            let statuses = counts.entry(trust_domain.clone()).or_default();
            if statuses.len() < MOST_STATUSES {
                *statuses.entry(status.clone()).or_default() += value;
            }
        }
    }
    counts
}

type Labels = Vec<(String, String)>;

/// Parses a line after the metric's name: `{status="OK",trust_domain_id="b"} 3`.
fn sample(text: &str) -> Option<(Labels, u64)> {
    let mut rest = text.strip_prefix('{')?;
    let mut labels = Labels::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, count(after.split_whitespace().next()?)?));
        }
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = quoted(after)?;
        labels.push((name.trim().to_owned(), value));
        rest = after;
    }
}

/// The value up to its closing quote, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                escaped => value.push(escaped),
            },
            c => value.push(c),
        }
    }
    None
}

/// Prometheus' counters are floating-point numbers.
fn count(text: &str) -> Option<u64> {
    let value: f64 = text.parse().ok()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (value.is_finite() && value >= 0.0).then_some(value as u64)
}

/// How SPIRE's metrics spell a trust domain.
fn label(trust_domain: &str) -> String {
    trust_domain.replace(['.', '-'], "_")
}

/// What SPIRE's metrics say of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Fetches,
    /// With this status.
    Fails(String),
    /// The metrics do not show it, for this reason.
    Unseen(String),
}

/// Judges by the counters that grew since the last read: one success is enough.
fn judge(before: Option<&BTreeMap<String, u64>>, now: &BTreeMap<String, u64>) -> Option<Answer> {
    let grown = |(status, now): (&String, &u64)| {
        let before = before.and_then(|it| it.get(status)).copied().unwrap_or_default();
        // Smaller: the counter restarted.
        (*now > before || (*now < before && *now > 0)).then(|| status.clone())
    };
    let grown: Vec<_> = now.iter().filter_map(grown).collect();
    match grown.iter().any(|status| status == OK) {
        true => Some(Answer::Fetches),
        false => grown.into_iter().next().map(Answer::Fails),
    }
}

/// The first read does not show whether a success or a failure came last.
fn first_judgement(now: &BTreeMap<String, u64>) -> Option<Answer> {
    let is_mixed = now.contains_key(OK) && now.len() > 1;
    if is_mixed { None } else { judge(None, now) }
}

#[derive(Debug, Default)]
pub struct Fetches {
    peers: Vec<String>,
    /// Every trust domain that SPIRE fetches a bundle of, listed or not.
    fetched: Vec<String>,
    last: Option<Counts>,
    known: BTreeMap<String, Answer>,
    /// Since when the metrics can't be read, and why.
    unreadable: Option<(DateTime<Utc>, String)>,
}

impl Fetches {
    /// Replaces the peers to report on. `fetched` are all trust domains that SPIRE federates with: an
    /// unlisted one can have the same metric label as a peer.
    pub fn set_peers(&mut self, peers: Vec<String>, fetched: Vec<String>) {
        self.known.retain(|peer, _| peers.contains(peer));
        self.peers = peers;
        self.fetched = fetched;
    }

    /// The peer's endpoint changed: fetches from the old one say nothing about it.
    pub fn endpoint_changed(&mut self, peer: &str) {
        let why = "its endpoint changed, and SPIRE's metrics show no fetch since";
        self.known.insert(peer.to_owned(), Answer::Unseen(why.to_owned()));
    }

    pub fn has_peers(&self) -> bool {
        !self.peers.is_empty()
    }

    pub fn record(&mut self, counts: Counts) {
        for peer in &self.peers {
            let label = label(peer);
            let Some(now) = counts.get(&label) else { continue };
            let judged = match &self.last {
                None => first_judgement(now),
                Some(last) => judge(last.get(&label), now),
            };
            if let Some(judged) = judged {
                self.known.insert(peer.clone(), judged);
            }
        }
        self.last = Some(counts);
        self.unreadable = None;
    }

    pub fn record_failure(&mut self, why: String, now: DateTime<Utc>) {
        let since = self.unreadable.take().map_or(now, |(since, _)| since);
        self.unreadable = Some((since, why));
        if now - since > GRACE {
            // A server that comes back later counts from zero.
            self.last = Some(Counts::new());
            self.known.clear();
        }
    }

    /// None if the metrics have not shown it yet.
    pub fn answer(&self, peer: &str, now: DateTime<Utc>) -> Option<Answer> {
        let same = |other: &&String| **other != peer && label(other) == label(peer);
        if let Some(other) = self.peers.iter().chain(&self.fetched).find(same) {
            let why = format!("SPIRE's metrics cannot be told apart from those of {other}");
            return Some(Answer::Unseen(why));
        }
        match &self.unreadable {
            Some((since, why)) if now - *since > GRACE => {
                Some(Answer::Unseen(format!("SPIRE's metrics cannot be read: {why}")))
            }
            _ => self.known.get(peer).cloned(),
        }
    }

    /// All answers, to detect a change.
    pub fn answers(&self, now: DateTime<Utc>) -> Vec<Option<Answer>> {
        self.peers.iter().map(|peer| self.answer(peer, now)).collect()
    }
}

/// Without an answer yet, the reported one stays.
pub fn with_answer(
    status: PeerStatus,
    existing: Option<&PeerStatus>,
    answer: Option<Answer>,
) -> PeerStatus {
    let (spire_fetch, spire_detail) = match answer {
        Some(Answer::Fetches) => (Some(SpireFetch::Ok), None),
        Some(Answer::Fails(code)) => (Some(SpireFetch::Failing), Some(failing(&code))),
        Some(Answer::Unseen(why)) => {
            (Some(SpireFetch::Unknown), Some(printable(&why).into_owned()))
        }
        None => existing.map(|it| (it.spire_fetch, it.spire_detail.clone())).unwrap_or_default(),
    };
    PeerStatus { spire_fetch, spire_detail, ..status }
}

fn failing(code: &str) -> String {
    format!(
        "the SPIRE server itself cannot fetch its bundle (status {}). Does the controller manager run, and has the server a way to that endpoint? Its log says more",
        printable(code)
    )
}

pub fn without_answer(status: &PeerStatus) -> PeerStatus {
    PeerStatus { spire_fetch: None, spire_detail: None, ..status.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noon() -> DateTime<Utc> {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    fn page(counters: &[(&str, &str, u64)]) -> Counts {
        let line = |(label, status, value): &(&str, &str, u64)| {
            format!("{NAME}{{status=\"{status}\",trust_domain_id=\"{label}\"}} {value}\n")
        };
        parse(&counters.iter().map(line).collect::<String>())
    }

    fn watching(peers: &[&str]) -> Fetches {
        let mut fetches = Fetches::default();
        fetches.set_peers(peers.iter().map(|it| (*it).to_owned()).collect(), Vec::new());
        fetches
    }

    #[test]
    fn the_counter_is_read_among_others_whatever_the_order_of_its_labels() {
        let text = r#"# HELP spire_server_bundle_manager_fetch_federated_bundle help
# TYPE spire_server_bundle_manager_fetch_federated_bundle counter
spire_server_bundle_manager_fetch_federated_bundle{status="OK",trust_domain_id="td_b_test"} 3
spire_server_bundle_manager_fetch_federated_bundle{trust_domain_id="td_b_test", status="NotFound", a="\"},"} 1e+00 1700000000
spire_server_bundle_manager_fetch_federated_bundle_elapsed_time{status="OK",trust_domain_id="td_b_test",quantile="0.5"} 7
spire_server_bundle_manager_update_federated_bundle{trust_domain_id="td_b_test"} 9
spire_server_bundle_manager_fetch_federated_bundle{status="OK"} 5
"#;
        let statuses = [("NotFound".to_owned(), 1), ("OK".to_owned(), 3)];
        assert_eq!(parse(text), Counts::from([("td_b_test".to_owned(), statuses.into())]));
    }

    #[test]
    fn no_line_that_is_no_counter_is_more_than_passed_over() {
        for rest in [
            "",
            "{",
            "{}",
            "{} x",
            "{status=\"OK",
            "{status=\"OK\\",
            "{status=OK} 1",
            " 3",
            "{} NaN",
            "{status=\"OK\",trust_domain_id=\"b\"}",
            "{status=\"OK\",trust_domain_id=\"b\"} -1",
        ] {
            assert_eq!(parse(&format!("{NAME}{rest}\n")), Counts::new(), "{rest}");
        }
    }

    #[test]
    fn spire_fetches_where_its_successes_grow_and_fails_where_only_its_errors_do() {
        let mut fetches = watching(&["td-b.test", "td-c.test", "td-d.test"]);
        let answer = |fetches: &Fetches, peer: &str| fetches.answer(peer, noon());
        fetches.record(page(&[("td_b_test", "OK", 1), ("td_c_test", "NotFound", 1)]));
        assert_eq!(answer(&fetches, "td-b.test"), Some(Answer::Fetches));
        assert_eq!(answer(&fetches, "td-c.test"), Some(Answer::Fails("NotFound".to_owned())));
        assert_eq!(answer(&fetches, "td-d.test"), None, "nothing was seen of it");

        fetches.record(page(&[("td_b_test", "OK", 1), ("td_b_test", "Unknown", 1)]));
        assert_eq!(answer(&fetches, "td-b.test"), Some(Answer::Fails("Unknown".to_owned())));
        assert!(answer(&fetches, "td-c.test").is_some(), "what was seen stays while it rests");
        fetches.record(page(&[("td_b_test", "OK", 2), ("td_b_test", "Unknown", 1)]));
        assert_eq!(answer(&fetches, "td-b.test"), Some(Answer::Fetches));
    }

    #[test]
    fn a_counter_that_the_server_forgot_or_began_anew_grows_from_zero() {
        let mut fetches = watching(&["td-b.test"]);
        fetches.record(page(&[("td_b_test", "OK", 4)]));
        fetches.record(page(&[]));
        fetches.record(page(&[("td_b_test", "Unknown", 1)]));
        assert_eq!(fetches.answer("td-b.test", noon()), Some(Answer::Fails("Unknown".to_owned())));
        fetches.record(page(&[("td_b_test", "Unknown", 9)]));
        fetches.record(page(&[("td_b_test", "OK", 1), ("td_b_test", "Unknown", 9)]));
        assert_eq!(fetches.answer("td-b.test", noon()), Some(Answer::Fetches));
        fetches.record(page(&[("td_b_test", "Unknown", 1)]));
        assert!(matches!(fetches.answer("td-b.test", noon()), Some(Answer::Fails(_))), "restarted");
    }

    #[test]
    fn a_first_look_at_successes_and_errors_does_not_guess_which_came_last() {
        let mut fetches = watching(&["td-b.test"]);
        fetches.record(page(&[("td_b_test", "OK", 7), ("td_b_test", "Unknown", 2)]));
        assert_eq!(fetches.answer("td-b.test", noon()), None);
    }

    #[test]
    fn peers_whose_names_differ_in_dots_and_dashes_alone_cannot_be_seen() {
        let mut fetches = watching(&["td-b.test", "td.b.test", "td-c.test"]);
        fetches.record(page(&[("td_b_test", "OK", 1), ("td_c_test", "OK", 1)]));
        for (peer, other) in [("td-b.test", "td.b.test"), ("td.b.test", "td-b.test")] {
            let Some(Answer::Unseen(why)) = fetches.answer(peer, noon()) else {
                panic!("{peer} cannot be seen")
            };
            assert!(why.contains(other), "{why}");
        }
        assert_eq!(fetches.answer("td-c.test", noon()), Some(Answer::Fetches));
    }

    #[test]
    fn a_peer_cannot_be_seen_where_spire_fetches_an_unlisted_trust_domain_by_the_same_label() {
        let mut fetches = Fetches::default();
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let peers = names(&["td-b.test", "td-c.test"]);
        fetches.set_peers(peers.clone(), names(&["td-b.test", "td.b.test", "td-c.test"]));
        fetches.record(page(&[("td_b_test", "OK", 1), ("td_c_test", "OK", 1)]));
        let Some(Answer::Unseen(why)) = fetches.answer("td-b.test", noon()) else {
            panic!("the success may be that of td.b.test")
        };
        assert!(why.contains("td.b.test"), "{why}");
        assert_eq!(fetches.answer("td-c.test", noon()), Some(Answer::Fetches));
        assert_eq!(fetches.answers(noon()).len(), 2, "only listed peers are reported on");

        fetches.set_peers(peers, names(&["td-b.test"]));
        assert_eq!(fetches.answer("td-b.test", noon()), Some(Answer::Fetches), "it was deleted");
    }

    #[test]
    fn a_server_that_is_replaced_is_not_unseen_at_once_and_one_that_stays_silent_is() {
        let mut fetches = watching(&["td-b.test"]);
        fetches.record(page(&[("td_b_test", "OK", 1)]));
        fetches.record_failure("connection refused".to_owned(), noon());
        assert_eq!(fetches.answer("td-b.test", noon()), Some(Answer::Fetches));
        let later = noon() + GRACE + TimeDelta::seconds(1);
        fetches.record_failure("connection refused".to_owned(), later);
        let unseen = fetches.answer("td-b.test", later);
        assert!(
            matches!(&unseen, Some(Answer::Unseen(why)) if why.contains("refused")),
            "{unseen:?}"
        );
        fetches.record(page(&[("td_b_test", "OK", 1)]));
        assert_eq!(fetches.answer("td-b.test", later), Some(Answer::Fetches), "it is back");
    }

    #[test]
    fn what_was_told_of_spire_stays_until_its_metrics_show_more() {
        let told = PeerStatus { spire_fetch: Some(SpireFetch::Ok), ..PeerStatus::default() };
        let kept = with_answer(PeerStatus::default(), Some(&told), None);
        assert_eq!(kept.spire_fetch, Some(SpireFetch::Ok));
        let fails =
            with_answer(PeerStatus::default(), Some(&told), Some(Answer::Fails("X".into())));
        assert_eq!(fails.spire_fetch, Some(SpireFetch::Failing));
        assert!(fails.spire_detail.unwrap().contains("status X"));
    }
}
