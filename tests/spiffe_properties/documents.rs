//! Bundle documents: good ones, and what people, tools and attackers make of them.

use std::fmt;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use proptest::{prelude::*, sample::Index};

use crate::material::{KEYS, Key, object};

/// A document, or bytes in the place of one.
#[derive(Clone)]
pub struct Text(pub Vec<u8>);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

pub fn document() -> impl Strategy<Value = Text> {
    let keys = prop::collection::vec(any::<Index>(), 0..5);
    let number = || prop::option::of(prop_oneof![0..1_000_u64, any::<u64>()]);
    let hint = prop::option::of(0..100_000_u64);
    let changes = prop_oneof![3 => Just(0), 6 => Just(1), 4 => 2..5_usize];
    let changes = changes.prop_flat_map(|count| prop::collection::vec(change(), count));
    let damages = prop_oneof![5 => Just(0), 1 => 1..3_usize];
    let damages = damages.prop_flat_map(|count| prop::collection::vec(damage(), count));
    (keys, number(), hint, any::<bool>(), changes, damages).prop_map(
        |(keys, sequence, hint, keys_last, changes, damages)| {
            let mut members = Vec::new();
            let mut number = |name: &str, value: Option<u64>| {
                members.extend(value.map(|value| (name.to_owned(), value.to_string())));
            };
            number("spiffe_sequence", sequence);
            number("spiffe_refresh_hint", hint);
            let keys = keys.iter().map(|key| Entry::Key(key.get(&KEYS).clone())).collect();
            let mut document = Document { keys: Some(keys), members, keys_last };
            changes.iter().for_each(|change| change.apply(&mut document));
            let mut text = document.text().into_bytes();
            damages.iter().for_each(|damage| damage.apply(&mut text));
            Text(text)
        },
    )
}

struct Document {
    keys: Option<Vec<Entry>>,
    /// The other members, each value as JSON.
    members: Vec<(String, String)>,
    keys_last: bool,
}

enum Entry {
    Key(Key),
    Odd(&'static str),
}

impl Document {
    fn text(&self) -> String {
        let text = |entry: &Entry| match entry {
            Entry::Key(key) => key.text(),
            Entry::Odd(text) => (*text).to_owned(),
        };
        let keys = self.keys.as_ref().map(|keys| {
            let keys: Vec<_> = keys.iter().map(text).collect();
            ("keys".to_owned(), format!("[{}]", keys.join(", ")))
        });
        let mut members = self.members.clone();
        let place = if self.keys_last { members.len() } else { 0 };
        members.splice(place..place, keys);
        object(&members)
    }

    fn key(&mut self, at: &Index) -> Option<&mut Key> {
        let keys = self.keys.iter_mut().flatten().filter_map(|entry| match entry {
            Entry::Key(key) => Some(key),
            Entry::Odd(_) => None,
        });
        let mut keys: Vec<_> = keys.collect();
        if keys.is_empty() { None } else { Some(keys.swap_remove(at.index(keys.len()))) }
    }
}

/// One change of a document's members.
#[derive(Clone, Debug)]
enum Change {
    Drop(Index, Index),
    DropNumbers(Index),
    Set(Index, &'static str, &'static str),
    Rename(Index, Index, &'static str),
    Twice(Index, Index, Option<&'static str>),
    /// Takes a member from a good key.
    Take(Index, Index, &'static str),
    SecondCertificate(Index, Index),
    Damage(Index, &'static str, Damage),
    DropKey(Index),
    Put(Index, &'static str),
    SetTop(&'static str, &'static str),
    AddTop(&'static str, &'static str),
    DropKeys,
}

/// Of all types of key.
const NUMBERS: [&str; 5] = ["crv", "x", "y", "n", "e"];

/// Known members of a key, the others of RFC 7517 and 7518, and what is nearly one.
const NAMES: [&str; 34] = [
    "kty",
    "kty",
    "use",
    "use",
    "kid",
    "crv",
    "x",
    "y",
    "n",
    "e",
    "x5c",
    "x5c",
    "alg",
    "key_ops",
    "x5u",
    "x5t",
    "x5t#S256",
    "k",
    "d",
    "p",
    "q",
    "dp",
    "dq",
    "qi",
    "oth",
    "new",
    "Kty",
    "USE",
    "X5c",
    "N",
    "\u{212a}ty",
    "u\u{17f}e",
    "\\u006bty",
    "",
];

const TOP_NAMES: [&str; 11] = [
    "keys",
    "spiffe_sequence",
    "spiffe_sequence",
    "spiffe_refresh_hint",
    "spiffe_refresh_hint",
    "new",
    "Keys",
    "key\u{17f}",
    "SPIFFE_SEQUENCE",
    "\\u006beys",
    "",
];

/// Values as JSON.
pub const VALUES: [&str; 50] = [
    "null",
    "true",
    "0",
    "1",
    "-1",
    "-0",
    "1.5",
    "1.0",
    "1e3",
    "1e999",
    "300",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "[]",
    "[null]",
    "[\"\"]",
    "[\"AAAA\"]",
    "[[]]",
    "{}",
    "{\"a\": 1, \"a\": 2}",
    "\"\"",
    "\"EC\"",
    "\"RSA\"",
    "\"OKP\"",
    "\"oct\"",
    "\"ec\"",
    "\"XX\"",
    "\"\\u0045C\"",
    "\"x509-svid\"",
    "\"x509-svid\"",
    "\"jwt-svid\"",
    "\"jwt-svid\"",
    "\"wit-svid\"",
    "\"X509-SVID\"",
    "\"sig\"",
    "\"P-256\"",
    "\"P-384\"",
    "\"P-224\"",
    "\"secp256k1\"",
    "\"Ed25519\"",
    "\"AQAB\"",
    "\"AAAA\"",
    "\"A\"",
    "\"AA==\"",
    "\"%%%\"",
    "\"\\ud800\"",
    "\"\\u0000\"",
    "\"http://[\"",
];

/// In the place of a key.
const ODD_KEYS: [&str; 15] = [
    "null",
    "5",
    "\"x509-svid\"",
    "[]",
    "{}",
    "{\"kty\": \"XX\", \"use\": \"x509-svid\"}",
    "{\"kty\": \"EC\", \"use\": \"x509-svid\"}",
    "{\"kty\": \"RSA\", \"use\": \"x509-svid\", \"x5c\": []}",
    "{\"kty\": \"EC\", \"use\": \"sig\", \"crv\": \"P-256\"}",
    "{\"kty\": \"EC\", \"use\": \"jwt-svid\", \"kid\": \"a\", \"crv\": \"secp256k1\", \"x\": \"AA\", \"y\": \"AA\"}",
    "{\"kty\": \"RSA\", \"use\": \"jwt-svid\", \"kid\": \"a\", \"n\": \"gggg\", \"e\": \"AQAB\"}",
    "{\"kty\": \"oct\", \"use\": \"jwt-svid\", \"kid\": \"a\", \"k\": \"AAAA\"}",
    "{\"kty\": \"oct\", \"use\": \"jwt-svid\", \"kid\": \"a\"}",
    "{\"kty\": \"OKP\", \"use\": \"jwt-svid\", \"kid\": \"a\", \"crv\": \"X25519\", \"x\": \"AA\"}",
    "{\"use\": \"new\", \"new\": {\"nested\": [1, {}]}}",
];

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let name = || prop::sample::select(&NAMES[..]);
    let top_name = || prop::sample::select(&TOP_NAMES[..]);
    let value = || prop::sample::select(&VALUES[..]);
    let number = || prop::sample::select(vec!["x5c", "x5c", "x5c", "x5c", "x", "y", "n", "e"]);
    prop_oneof![
        3 => (at(), at()).prop_map(|(key, member)| Change::Drop(key, member)),
        3 => at().prop_map(Change::DropNumbers),
        8 => (at(), name(), value()).prop_map(|(key, name, value)| Change::Set(key, name, value)),
        2 => (at(), at(), name()).prop_map(|(key, member, name)| Change::Rename(key, member, name)),
        1 => (at(), at(), prop::option::of(value()))
            .prop_map(|(key, member, value)| Change::Twice(key, member, value)),
        2 => (at(), at(), name()).prop_map(|(key, from, name)| Change::Take(key, from, name)),
        2 => (at(), at()).prop_map(|(key, other)| Change::SecondCertificate(key, other)),
        10 => (at(), number(), damage()).prop_map(|(key, name, damage)| Change::Damage(key, name, damage)),
        1 => at().prop_map(Change::DropKey),
        3 => (at(), prop::sample::select(&ODD_KEYS[..])).prop_map(|(at, key)| Change::Put(at, key)),
        3 => (top_name(), value()).prop_map(|(name, value)| Change::SetTop(name, value)),
        1 => (top_name(), value()).prop_map(|(name, value)| Change::AddTop(name, value)),
        1 => Just(Change::DropKeys),
    ]
}

impl Change {
    fn apply(&self, document: &mut Document) {
        match self {
            Self::DropKey(at) => {
                if let Some(keys) = document.keys.as_mut().filter(|keys| !keys.is_empty()) {
                    keys.remove(at.index(keys.len()));
                }
            }
            Self::Put(at, key) => {
                let keys = document.keys.get_or_insert_default();
                keys.insert(at.index(keys.len() + 1), Entry::Odd(key));
            }
            Self::SetTop(name, value) => {
                document.members.retain(|(existing, _)| existing != name);
                document.members.push(((*name).to_owned(), (*value).to_owned()));
            }
            Self::AddTop(name, value) => {
                document.members.push(((*name).to_owned(), (*value).to_owned()));
            }
            Self::DropKeys => document.keys = None,
            Self::Drop(key, _)
            | Self::DropNumbers(key)
            | Self::Set(key, ..)
            | Self::Rename(key, ..)
            | Self::Twice(key, ..)
            | Self::Take(key, ..)
            | Self::SecondCertificate(key, _)
            | Self::Damage(key, ..) => {
                if let Some(key) = document.key(key) {
                    self.apply_to_key(key);
                }
            }
        }
    }

    fn apply_to_key(&self, key: &mut Key) {
        let member = |at: &Index, key: &Key| (!key.0.is_empty()).then(|| at.index(key.0.len()));
        match self {
            Self::Drop(_, at) => {
                if let Some(place) = member(at, key) {
                    key.0.remove(place);
                }
            }
            Self::DropNumbers(_) => *key = key.clone().without(&NUMBERS),
            Self::Set(_, name, value) => *key = key.clone().with(name, value),
            Self::Rename(_, at, name) => {
                if let Some(place) = member(at, key) {
                    (*name).clone_into(&mut key.0[place].0);
                }
            }
            Self::Twice(_, at, value) => {
                if let Some(place) = member(at, key) {
                    let (name, existing) = key.0[place].clone();
                    key.0.push((name, value.map_or(existing, str::to_owned)));
                }
            }
            Self::Take(_, from, name) => {
                if let Some(value) = from.get(&KEYS).value(name) {
                    *key = key.clone().with(name, value);
                }
            }
            Self::SecondCertificate(_, other) => {
                let second = other.get(&KEYS).value("x5c").unwrap_or("[\"AAAA\"]");
                if let Some(own) = key.value("x5c").and_then(|chain| chain.strip_suffix(']')) {
                    let both = format!("{own}, {}", &second[1..]);
                    *key = key.clone().with("x5c", &both);
                }
            }
            Self::Damage(_, name, damage) => {
                if let Some(damaged) = key.value(name).and_then(|value| inside(value, damage)) {
                    *key = key.clone().with(name, &damaged);
                }
            }
            _ => {}
        }
    }
}

/// A value with its first text decoded, damaged and encoded again; none if it is no base64.
fn inside(value: &str, damage: &Damage) -> Option<String> {
    let (before, rest) = value.split_once('"')?;
    let (text, after) = rest.split_once('"')?;
    let is_certificate = before.starts_with('[');
    let engine = if is_certificate { &STANDARD } else { &URL_SAFE_NO_PAD };
    let mut bytes = engine.decode(text).ok()?;
    damage.apply(&mut bytes);
    Some(format!("{before}\"{}\"{after}", engine.encode(bytes)))
}

/// One change of bytes.
#[derive(Clone, Debug)]
pub enum Damage {
    FlipBit(Index, u8),
    Set(Index, u8),
    Put(Index, &'static str),
    Remove(Index, usize),
    Repeat(Index, usize),
    Truncate(Index),
}

const SNIPPETS: [&str; 18] = [
    "\"", "{", "}", "[", "]", ",", ":", " ", "\n", "\t", "\u{0}", "\u{feff}", "\\", "\\u006b",
    "\\ud800", "null", "1", "=",
];

pub fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    let snippet = prop::sample::select(&SNIPPETS[..]);
    prop_oneof![
        6 => (at(), 0..8_u8).prop_map(|(at, bit)| Damage::FlipBit(at, bit)),
        3 => (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        3 => (at(), snippet).prop_map(|(at, text)| Damage::Put(at, text)),
        1 => (at(), 1..40_usize).prop_map(|(at, count)| Damage::Remove(at, count)),
        1 => (at(), 1..40_usize).prop_map(|(at, count)| Damage::Repeat(at, count)),
        1 => at().prop_map(Damage::Truncate),
    ]
}

impl Damage {
    pub fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        let place = |at: &Index| at.index(length);
        match self {
            Self::FlipBit(at, bit) => bytes[place(at)] ^= 1 << bit,
            Self::Set(at, byte) => bytes[place(at)] = *byte,
            Self::Put(at, text) => {
                let place = at.index(length + 1);
                bytes.splice(place..place, text.bytes());
            }
            Self::Remove(at, count) => {
                drop(bytes.drain(place(at)..(place(at) + count).min(length)))
            }
            Self::Repeat(at, count) => {
                let piece = bytes[place(at)..(place(at) + count).min(length)].to_vec();
                bytes.splice(place(at)..place(at), piece);
            }
            Self::Truncate(at) => bytes.truncate(place(at)),
        }
    }
}
