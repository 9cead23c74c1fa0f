//! SPIFFE IDs by their grammar, and what is nearly one.

use proptest::{prelude::*, sample::Index};

pub fn id() -> impl Strategy<Value = String> {
    (scheme(), trust_domain(), path(), ending(), changes()).prop_map(
        |(scheme, trust_domain, path, ending, changes)| {
            changed(&[scheme, &trust_domain, &path, ending].concat(), &changes)
        },
    )
}

/// The name of a trust domain, or nearly one.
pub fn name() -> impl Strategy<Value = String> {
    (trust_domain(), changes()).prop_map(|(name, changes)| changed(&name, &changes))
}

fn scheme() -> impl Strategy<Value = &'static str> {
    let odd = [
        "SPIFFE://",
        "Spiffe://",
        "spiffe:/",
        "spiffe:",
        "spiffe:///",
        "https://",
        " spiffe://",
        "",
    ];
    prop_oneof![9 => Just("spiffe://"), 1 => prop::sample::select(odd.to_vec())]
}

fn trust_domain() -> impl Strategy<Value = String> {
    let odd = [
        "",
        ".",
        "..",
        "-",
        "_",
        "10.0.0.1",
        "010.0.0.1",
        "[::1]",
        "td:443",
        "td:",
        "me@td",
        "me:pw@td",
        "t%64",
        "tá",
        "t d",
        "*",
        "spiffe",
        "xn--td-4ia",
        "td\u{0}",
        "TD.test",
        "ſd",
        "\u{212a}",
    ];
    let long = prop_oneof![Just(254_usize), Just(255), Just(256), 1..400_usize];
    prop_oneof![
        12 => "[a-z0-9]{1,8}(\\.[a-z0-9-]{1,8}){0,3}",
        4 => "[a-z0-9._-]{1,30}",
        3 => "[a-zA-Z0-9._-]{1,30}",
        2 => prop::sample::select(odd.to_vec()).prop_map(str::to_owned),
        1 => long.prop_map(|length| "a".repeat(length)),
    ]
}

fn path() -> impl Strategy<Value = String> {
    let odd = [
        ".", "..", "...", ".a", "", "%2F", "%2e", "a b", "ä", "~", "*", "a:b", "a@b", "a\\b",
        "a\u{0}", "$",
    ];
    let segment = prop_oneof![
        30 => "[a-zA-Z0-9._-]{1,12}",
        30 => "[a-z]{1,8}",
        3 => prop::sample::select(odd.to_vec()).prop_map(str::to_owned),
    ];
    // Around the longest that everybody reads.
    let long = (2020..2060_usize).prop_map(|length| format!("/{}", "x".repeat(length)));
    let segments = prop::collection::vec(segment, 0..5);
    let path = segments.prop_map(|segments| segments.iter().map(|it| format!("/{it}")).collect());
    prop_oneof![30 => path, 1 => long]
}

fn ending() -> impl Strategy<Value = &'static str> {
    let odd = ["/", "//", "?", "?a=b", "#", "#a", "\n", " ", "/.", "\u{feff}", "%"];
    prop_oneof![12 => Just(""), 1 => prop::sample::select(odd.to_vec())]
}

#[derive(Clone, Debug)]
enum Change {
    Put(Index, char),
    Replace(Index, char),
    Remove(Index),
    UpperCase(Index),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let count = prop_oneof![4 => Just(0), 1 => 1..3_usize];
    count.prop_flat_map(|count| prop::collection::vec(change(), count))
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut text: Vec<char> = text.chars().collect();
    changes.iter().for_each(|change| change.apply(&mut text));
    text.into_iter().collect()
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let odd: Vec<char> =
        "/./:@?#%[]\\ \t\n\0~*-_Aa0áſK\u{212a}\u{ff0f}\u{202e}\u{10ffff}".chars().collect();
    let character = move || prop_oneof![3 => prop::sample::select(odd.clone()), 1 => any::<char>()];
    prop_oneof![
        (at(), character()).prop_map(|(at, it)| Change::Put(at, it)),
        (at(), character()).prop_map(|(at, it)| Change::Replace(at, it)),
        at().prop_map(Change::Remove),
        at().prop_map(Change::UpperCase),
    ]
}

impl Change {
    fn apply(&self, text: &mut Vec<char>) {
        if let Self::Put(at, character) = self {
            return text.insert(at.index(text.len() + 1), *character);
        }
        if text.is_empty() {
            return;
        }
        let place = |at: &Index| at.index(text.len());
        match self {
            Self::Put(..) => {}
            Self::Replace(at, character) => {
                let place = place(at);
                text[place] = *character;
            }
            Self::Remove(at) => drop(text.remove(place(at))),
            Self::UpperCase(at) => {
                let place = place(at);
                text[place] = text[place].to_ascii_uppercase();
            }
        }
    }
}
