use super::*;
use crate::authority::decide::testing::noon;

const HINT: i64 = 300;

fn policy() -> Policy {
    Policy {
        refresh_hint: TimeDelta::seconds(HINT),
        ca_ttl: TimeDelta::days(30),
        svid_ttl: TimeDelta::hours(1),
    }
}

fn new_ca(id: &str, at: DateTime<Utc>) -> NewCa {
    NewCa {
        id: id.to_owned(),
        chain: vec![format!("certificate of {id}")],
        not_before: at,
        not_after: at + policy().ca_ttl,
    }
}

fn begun() -> AuthorityState {
    first("td-a.test", new_ca("a", noon()), Before::default(), &policy(), noon())
}

fn none() -> Requests {
    Requests::default()
}

/// Takes every step that is due at this time.
fn after_due_steps(
    mut state: AuthorityState,
    requests: &Requests,
    now: DateTime<Utc>,
) -> AuthorityState {
    for step in 0..10 {
        match plan(&state, requests, &policy(), now) {
            CaPlan::Wait(at) => {
                assert!(at > now, "a wait until {at}, which is past");
                return state;
            }
            CaPlan::Change(change) => {
                let new = change.new.map(|_| new_ca(&format!("new{step}-{}", state.sequence), now));
                state = apply(&state, &change, new, &policy(), now).0;
            }
        }
    }
    panic!("it never ends: {state:?}");
}

fn phases(state: &AuthorityState) -> Vec<&'static str> {
    state.cas.iter().map(|ca| ca.phase.name()).collect()
}

#[test]
fn the_first_ca_signs_at_once_and_the_sequence_begins_with_one() {
    let state = begun();
    assert_eq!((phases(&state), state.sequence), (vec!["active"], 1));
    assert_eq!(
        plan(&state, &none(), &policy(), noon()),
        CaPlan::Wait(noon() + TimeDelta::days(15))
    );
}

#[test]
fn a_new_authority_counts_on_from_what_was_published() {
    let before = Before { sequence: Some(41), ..Before::default() };
    let state = first("td-a.test", new_ca("a", noon()), before, &policy(), noon());
    assert_eq!(state.sequence, 42);
}

#[test]
fn after_a_new_authority_no_ca_signs_before_clients_that_poll_by_the_old_hint_know_it() {
    let hint = policy().refresh_hint * 10;
    let before = Before { sequence: Some(41), refresh_hint: hint };
    let state = first("td-a.test", new_ca("a", noon()), before, &policy(), noon());
    let asked = Requests { rotate: Some("now".to_owned()), ..none() };
    let state = after_due_steps(state, &asked, noon());
    let next = state.cas.iter().find(|ca| ca.phase == Phase::Prepared).unwrap();
    assert!(next.usable_at >= noon() + hint * 3, "{}", next.usable_at);
}

#[test]
fn at_half_of_its_life_the_next_ca_is_published_and_signs_nothing_yet() {
    let state = after_due_steps(begun(), &none(), noon() + TimeDelta::days(15));
    assert_eq!((phases(&state), state.sequence), (vec!["active", "prepared"], 2));
    assert_eq!(state.active().unwrap().id, "a");
}

#[test]
fn a_ca_signs_no_earlier_than_three_hints_after_its_publication() {
    let now = noon() + TimeDelta::days(1);
    let asked = Requests { rotate: Some("now".to_owned()), ..none() };
    let state = after_due_steps(begun(), &asked, now);
    assert_eq!(phases(&state), ["active", "prepared"]);
    let early = after_due_steps(state.clone(), &asked, now + TimeDelta::seconds(4 * HINT - 1));
    assert_eq!(early, state);
    let rotated = after_due_steps(state, &asked, now + TimeDelta::seconds(4 * HINT));
    assert_eq!(phases(&rotated), ["retiring", "active"]);
}

#[test]
fn clients_that_saw_a_longer_hint_get_the_time_that_it_asks_for() {
    let now = noon() + TimeDelta::days(1);
    let long = AuthorityState { refresh_hint: 3600, ..begun() };
    let asked = Requests { rotate: Some("now".to_owned()), ..none() };
    let state = after_due_steps(long, &asked, now);
    let next = state.cas.iter().find(|ca| ca.phase == Phase::Prepared).unwrap();
    assert_eq!(next.usable_at, now + TimeDelta::hours(4));
}

#[test]
fn a_ca_stays_published_until_the_last_svid_that_it_may_have_signed_has_expired() {
    let now = noon() + TimeDelta::days(1);
    let asked = Requests { rotate: Some("now".to_owned()), ..none() };
    let activated = now + TimeDelta::seconds(4 * HINT);
    let state = after_due_steps(after_due_steps(begun(), &asked, now), &asked, activated);
    let over = activated + TimeDelta::hours(1) + MAX_STALENESS;
    assert_eq!(after_due_steps(state.clone(), &asked, over), state);
    let gone = after_due_steps(state.clone(), &asked, over + TimeDelta::seconds(1));
    assert_eq!(phases(&gone), ["active"]);
    assert_eq!(gone.sequence, state.sequence + 1);
}

#[test]
fn longer_svids_keep_the_ca_for_longer_even_if_they_get_shorter_again() {
    let state = begun();
    let long = Policy { svid_ttl: TimeDelta::hours(4), ..policy() };
    let CaPlan::Change(change) = plan(&state, &none(), &long, noon()) else {
        panic!("nothing is noted")
    };
    let (noted, _) = apply(&state, &change, None, &long, noon());
    assert_eq!(noted.active().unwrap().longest_svid, 4 * 3600);
    assert_eq!(noted.sequence, state.sequence, "the bundle is the same");
    assert!(matches!(plan(&noted, &none(), &policy(), noon()), CaPlan::Wait(_)));
}

#[test]
fn activation_changes_no_key_so_the_sequence_stays() {
    let now = noon() + TimeDelta::days(1);
    let asked = Requests { rotate: Some("now".to_owned()), ..none() };
    let prepared = after_due_steps(begun(), &asked, now);
    let rotated = after_due_steps(prepared.clone(), &asked, now + TimeDelta::seconds(4 * HINT));
    assert_eq!(rotated.sequence, prepared.sequence);
}

#[test]
fn a_changed_hint_is_a_changed_document() {
    let state = begun();
    let other = Policy { refresh_hint: TimeDelta::seconds(60), ..policy() };
    let CaPlan::Change(change) = plan(&state, &none(), &other, noon()) else {
        panic!("not published")
    };
    let (next, changed) = apply(&state, &change, None, &other, noon());
    assert_eq!((next.sequence, next.refresh_hint), (2, 60));
    assert_eq!(changed, Changed::default());
}

#[test]
fn a_request_counts_once() {
    let now = noon() + TimeDelta::days(1);
    let asked = Requests { rotate: Some("one".to_owned()), ..none() };
    let activated = now + TimeDelta::seconds(4 * HINT);
    let state = after_due_steps(after_due_steps(begun(), &asked, now), &asked, activated);
    let later = after_due_steps(state.clone(), &asked, activated + TimeDelta::minutes(10));
    assert_eq!(later, state);
    let again = Requests { rotate: Some("two".to_owned()), ..none() };
    let next = after_due_steps(state, &again, activated + TimeDelta::minutes(10));
    assert_eq!(phases(&next), ["retiring", "active", "prepared"]);
}

#[test]
fn a_revoked_ca_leaves_at_once_and_a_new_one_signs() {
    let now = noon() + TimeDelta::days(1);
    let asked = Requests { revoke: Some("a".to_owned()), ..none() };
    let state = after_due_steps(begun(), &asked, now);
    assert_eq!((phases(&state), state.sequence), (vec!["active"], 2));
    assert_ne!(state.active().unwrap().id, "a");
    assert_eq!(after_due_steps(state.clone(), &asked, now), state, "once");
}

#[test]
fn with_the_active_ca_all_others_go_because_their_keys_lay_beside_it() {
    let now = noon() + TimeDelta::days(1);
    let asked = |text: &str| Requests { rotate: Some(text.to_owned()), ..none() };
    let rotated = now + TimeDelta::seconds(4 * HINT);
    let state =
        after_due_steps(after_due_steps(begun(), &asked("one"), now), &asked("one"), rotated);
    let state = after_due_steps(state, &asked("two"), rotated);
    assert_eq!(phases(&state), ["retiring", "active", "prepared"]);

    let stolen = state.active().unwrap().id.clone();
    let revoke = Requests { revoke: Some(stolen), ..asked("two") };
    let after = after_due_steps(state.clone(), &revoke, rotated);
    assert_eq!((phases(&after), after.sequence), (vec!["active"], state.sequence + 1));
    assert!(state.cas.iter().all(|ca| ca.id != after.cas[0].id), "{after:?}");
}

#[test]
fn a_revoked_retiring_ca_goes_alone_and_once() {
    let now = noon() + TimeDelta::days(1);
    let asked = Requests { rotate: Some("one".to_owned()), ..none() };
    let rotated = now + TimeDelta::seconds(4 * HINT);
    let state = after_due_steps(after_due_steps(begun(), &asked, now), &asked, rotated);
    let revoke = Requests { revoke: Some("a".to_owned()), ..asked };
    let after = after_due_steps(state.clone(), &revoke, rotated);
    assert_eq!(after.cas, state.cas[1..]);
    // Also where its time has come in the same moment.
    let CaPlan::Change(change) = plan(&state, &revoke, &policy(), rotated + TimeDelta::days(1))
    else {
        panic!("it stays")
    };
    assert_eq!(change.remove, ["a"]);
}

#[test]
fn a_revoked_prepared_ca_is_replaced_in_good_order() {
    let now = noon() + TimeDelta::days(16);
    let prepared = after_due_steps(begun(), &none(), now);
    let stolen = prepared.cas[1].id.clone();
    let asked = Requests { revoke: Some(stolen.clone()), ..none() };
    let state = after_due_steps(prepared, &asked, now);
    assert_eq!(phases(&state), ["active", "prepared"]);
    assert_eq!(state.active().unwrap().id, "a");
    assert!(state.cas.iter().all(|ca| ca.id != stolen));
}

#[test]
fn a_ca_that_is_not_there_cannot_be_revoked_and_that_is_told_once() {
    let asked = Requests { revoke: Some("b".to_owned()), ..none() };
    let CaPlan::Change(change) = plan(&begun(), &asked, &policy(), noon()) else {
        panic!("silent")
    };
    let (state, changed) = apply(&begun(), &change, None, &policy(), noon());
    assert_eq!(changed.unknown.as_deref(), Some("b"));
    assert_eq!(state.sequence, 1);
    assert!(matches!(plan(&state, &asked, &policy(), noon()), CaPlan::Wait(_)));
}

#[test]
fn an_active_ca_that_expired_while_nobody_led_is_replaced_at_once() {
    let state = after_due_steps(begun(), &none(), noon() + TimeDelta::days(31));
    assert_eq!(phases(&state), ["active"]);
    assert_ne!(state.active().unwrap().id, "a");
}

#[test]
fn a_prepared_ca_that_others_know_takes_over_from_one_that_expired_while_nobody_led() {
    let prepared = after_due_steps(begun(), &none(), noon() + TimeDelta::days(15));
    let next = prepared.cas[1].id.clone();
    let state = after_due_steps(prepared, &none(), noon() + TimeDelta::days(31));
    assert_eq!(state.active().unwrap().id, next);
    assert_eq!(state.cas[0].id, next, "the expired one is gone");
}

#[test]
fn after_a_shorter_hint_a_new_ca_waits_for_those_who_poll_by_the_longer_one() {
    let (longer, now) = (begun(), noon() + TimeDelta::hours(1));
    let shorter = Policy { refresh_hint: TimeDelta::seconds(HINT / 10), ..policy() };
    let CaPlan::Change(change) = plan(&longer, &none(), &shorter, now) else { panic!() };
    let (state, _) = apply(&longer, &change, None, &shorter, now);
    let asked = Requests { rotate: Some("now".to_owned()), ..none() };
    let soon = now + TimeDelta::seconds(1);
    let CaPlan::Change(change) = plan(&state, &asked, &shorter, soon) else { panic!() };
    let (state, _) = apply(&state, &change, Some(new_ca("b", soon)), &shorter, soon);
    assert!(state.cas[1].usable_at >= now + TimeDelta::seconds(4 * HINT), "{state:?}");
}

/// The step that is taken while the state is not published; none if there is none.
fn unpublished(
    state: &AuthorityState,
    requests: &Requests,
    was_published: bool,
    now: DateTime<Utc>,
) -> Option<AuthorityState> {
    let CaPlan::Change(change) = plan(state, requests, &policy(), now) else { return None };
    let change = change.before_publication(state, was_published)?;
    let new = change.new.map(|_| new_ca("emergency", now));
    Some(apply(state, &change, new, &policy(), now).0)
}

#[test]
fn a_ca_that_is_published_late_signs_no_earlier_than_three_hints_after_that() {
    let now = noon() + TimeDelta::days(1);
    let asked = Requests { rotate: Some("now".to_owned()), ..none() };
    let prepared = after_due_steps(begun(), &asked, now);
    // For a day nobody ran.
    let late = now + TimeDelta::days(1);
    let state = unpublished(&prepared, &asked, false, late).unwrap();
    assert_eq!(phases(&state), ["active", "prepared"]);
    assert_eq!(state.sequence, prepared.sequence, "the document is the same");
    assert_eq!(unpublished(&state, &asked, false, late), None, "once");
    let early = after_due_steps(state.clone(), &asked, late + TimeDelta::seconds(4 * HINT - 1));
    assert_eq!(early, state);
    let rotated = after_due_steps(state, &asked, late + TimeDelta::seconds(4 * HINT));
    assert_eq!(phases(&rotated), ["retiring", "active"]);
}

#[test]
fn somebody_who_removes_what_was_published_does_not_delay_a_rotation() {
    let now = noon() + TimeDelta::days(1);
    let asked = Requests { rotate: Some("now".to_owned()), ..none() };
    let prepared = after_due_steps(begun(), &asked, now);
    assert_eq!(unpublished(&prepared, &asked, true, now + TimeDelta::days(1)), None);
}

#[test]
fn a_prepared_ca_that_is_the_only_one_left_waits_for_its_publication_alone() {
    let prepared = after_due_steps(begun(), &none(), noon() + TimeDelta::days(15));
    assert_eq!(unpublished(&prepared, &none(), false, noon() + TimeDelta::days(31)), None);
}

#[test]
fn a_stolen_key_goes_though_the_next_ca_is_not_published_yet() {
    let asked = |text: &str| Requests { rotate: Some(text.to_owned()), ..none() };
    let (first, hints) = (noon() + TimeDelta::days(1), TimeDelta::seconds(4 * HINT));
    let state = after_due_steps(
        after_due_steps(begun(), &asked("one"), first),
        &asked("one"),
        first + hints,
    );
    let state = after_due_steps(state, &asked("two"), first + hints);
    assert_eq!(phases(&state), ["retiring", "active", "prepared"]);
    let revoke = Requests { revoke: Some("a".to_owned()), ..asked("two") };
    for was_published in [false, true] {
        let after = unpublished(&state, &revoke, was_published, first + hints * 2).unwrap();
        assert_eq!(phases(&after), ["active", "prepared"]);
        assert!(after.rotating && after.cas.iter().all(|ca| ca.id != "a"), "{after:?}");
    }
}

#[test]
fn rotations_in_quick_succession_are_bounded() {
    let (mut state, mut now) = (begun(), noon() + TimeDelta::days(1));
    for n in 0..50 {
        let asked = Requests { rotate: Some(n.to_string()), ..none() };
        state = after_due_steps(state, &asked, now);
        now += TimeDelta::seconds(4 * HINT);
    }
    assert!(state.cas.len() <= MOST_CAS, "{}", state.cas.len());
}

#[test]
fn over_many_years_the_sequence_only_grows_and_no_ca_signs_unpublished_or_goes_early() {
    let (mut state, mut now) = (begun(), noon());
    for _ in 0..500 {
        now += TimeDelta::hours(37);
        let next = after_due_steps(state.clone(), &none(), now);
        assert!(next.sequence >= state.sequence);
        let changed = next.cas.iter().map(|ca| &ca.id).ne(state.cas.iter().map(|ca| &ca.id));
        assert_eq!(next.sequence > state.sequence, changed);
        let active = next.active().expect("somebody signs");
        assert!(active.usable_at <= now && active.not_after > now);
        for gone in state.cas.iter().filter(|ca| next.cas.iter().all(|it| it.id != ca.id)) {
            assert!(gone.over_at() < now, "{gone:?} went at {now}");
        }
        state = next;
    }
    assert!(state.sequence > 50, "{}", state.sequence);
}

#[test]
fn the_whole_state_survives_being_written_down() {
    let state = after_due_steps(begun(), &none(), noon() + TimeDelta::days(15));
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<AuthorityState>(&text).unwrap(), state);
}
