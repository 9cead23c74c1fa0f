//! The ways in which people and tools break PEM texts.

use std::sync::LazyLock;

use openssl::pkey::PKey;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::material::POOL;

/// One change to a text.
#[derive(Clone, Debug)]
pub enum Mutation {
    Truncate(Index),
    Behead(Index),
    Remove(Index, usize),
    Repeat(Index, usize),
    FlipBit(Index, u8),
    Put(Index, &'static str),
    PutAtLine(Index, &'static str),
    Junk(Index, Vec<u8>),
    WindowsLineEnds,
    BlankLines,
    NoLineEnds,
    SwapBlocks(Index, Index),
    DropBlock(Index),
    Append(Index),
    PutBlock(Index, Index),
    SpliceWith(Index, Index),
    Content(Content),
}

/// A change to the decoded content of one block.
#[derive(Clone, Debug)]
pub struct Content {
    block: Index,
    change: Change,
}

#[derive(Clone, Debug)]
enum Change {
    FlipBit(Index, u8),
    Set(Index, u8),
    Grow(Index, u8),
    Cut(Index),
    Nothing,
}

const SNIPPETS: [&str; 16] = [
    "-----BEGIN CERTIFICATE-----\n",
    "-----END CERTIFICATE-----\n",
    "-----BEGIN PRIVATE KEY-----\n",
    "-----BEGIN RSA PRIVATE KEY-----",
    "-----BEGIN ",
    "-----END ",
    "-----",
    "Proc-Type: 4,ENCRYPTED\n",
    "Comment: hello\n",
    "\u{feff}",
    " ",
    "\t",
    "\r",
    "\n",
    "=",
    "subject=CN = shop\n",
];

/// Blocks that may or may not be allowed beside others.
static BLOCKS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let key = PKey::private_key_from_pem(POOL[0].key.as_bytes()).expect("a key");
    let public = key.public_key_to_der().expect("its public half");
    let curve = [6, 8, 42, 134, 72, 206, 61, 3, 1, 7];
    let mut made = vec![POOL[0].key.clone(), block("EC PARAMETERS", &curve)];
    let labels = ["PUBLIC KEY", "RSA PUBLIC KEY", "DSA PUBLIC KEY", "ECDSA PUBLIC KEY"];
    made.extend(labels.map(|label| block(label, &public)));
    made
});

pub fn content() -> impl Strategy<Value = Content> {
    let change = prop_oneof![
        6 => (any::<Index>(), 0u8..8).prop_map(|(at, bit)| Change::FlipBit(at, bit)),
        3 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        1 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Grow(at, byte)),
        1 => any::<Index>().prop_map(Change::Cut),
        1 => Just(Change::Nothing),
    ];
    (any::<Index>(), change).prop_map(|(block, change)| Content { block, change })
}

pub fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<Index>;
    let snippet = || prop::sample::select(&SNIPPETS[..]);
    prop_oneof![
        2 => at().prop_map(Mutation::Truncate),
        1 => at().prop_map(Mutation::Behead),
        2 => (at(), 1usize..80).prop_map(|(at, n)| Mutation::Remove(at, n)),
        1 => (at(), 1usize..80).prop_map(|(at, n)| Mutation::Repeat(at, n)),
        3 => (at(), 0u8..8).prop_map(|(at, bit)| Mutation::FlipBit(at, bit)),
        3 => (at(), snippet()).prop_map(|(at, text)| Mutation::Put(at, text)),
        4 => (at(), snippet()).prop_map(|(at, text)| Mutation::PutAtLine(at, text)),
        1 => (at(), prop::collection::vec(any::<u8>(), 1..20)).prop_map(|(at, junk)| Mutation::Junk(at, junk)),
        3 => Just(Mutation::WindowsLineEnds),
        2 => Just(Mutation::BlankLines),
        1 => Just(Mutation::NoLineEnds),
        3 => (at(), at()).prop_map(|(one, two)| Mutation::SwapBlocks(one, two)),
        2 => at().prop_map(Mutation::DropBlock),
        2 => at().prop_map(Mutation::Append),
        3 => (at(), at()).prop_map(|(at, block)| Mutation::PutBlock(at, block)),
        2 => (at(), at()).prop_map(|(other, place)| Mutation::SpliceWith(other, place)),
        3 => content().prop_map(Mutation::Content),
    ]
}

impl Mutation {
    pub fn apply_all(mutations: &[Self], text: &str) -> Vec<u8> {
        mutations.iter().fold(text.as_bytes().to_vec(), |text, mutation| mutation.apply(text))
    }

    fn apply(&self, mut text: Vec<u8>) -> Vec<u8> {
        let place = |at: &Index, text: &[u8]| at.index(text.len() + 1);
        match self {
            Self::Truncate(at) => text.truncate(place(at, &text)),
            Self::Behead(at) => text = text.split_off(place(at, &text)),
            Self::Remove(at, n) => {
                let start = place(at, &text);
                text.drain(start..(start + n).min(text.len()));
            }
            Self::Repeat(at, n) => {
                let start = place(at, &text);
                let piece = text[start..(start + n).min(text.len())].to_vec();
                text.splice(start..start, piece);
            }
            Self::FlipBit(at, bit) if !text.is_empty() => {
                let place = at.index(text.len());
                text[place] ^= 1 << bit;
            }
            Self::FlipBit(..) => {}
            Self::Put(at, piece) => insert(&mut text, at, piece.as_bytes()),
            Self::PutAtLine(at, piece) => {
                let starts: Vec<_> =
                    (0..=text.len()).filter(|i| *i == 0 || text[i - 1] == b'\n').collect();
                let start = *at.get(&starts);
                text.splice(start..start, piece.bytes());
            }
            Self::Junk(at, junk) => insert(&mut text, at, junk),
            Self::WindowsLineEnds => text = replaced(&text, b"\r\n"),
            Self::BlankLines => text = replaced(&text, b"\n\n"),
            Self::NoLineEnds => text = replaced(&text, b""),
            Self::SwapBlocks(one, two) => {
                let mut blocks = blocks(&text);
                let (one, two) = (one.index(blocks.len()), two.index(blocks.len()));
                blocks.swap(one, two);
                text = blocks.concat();
            }
            Self::DropBlock(at) => {
                let mut blocks = blocks(&text);
                blocks.remove(at.index(blocks.len()));
                text = blocks.concat();
            }
            Self::Append(other) => text.extend(other.get(&POOL).crt.bytes()),
            Self::PutBlock(at, block) => {
                let mut blocks = blocks(&text);
                let at = at.index(blocks.len() + 1);
                blocks.insert(at, block.get(&BLOCKS).clone().into_bytes());
                text = blocks.concat();
            }
            Self::SpliceWith(other, at) => {
                let other = other.get(&POOL).crt.as_bytes();
                let place = at.index(text.len().min(other.len()) + 1);
                text.truncate(place);
                text.extend(&other[place..]);
            }
            Self::Content(content) => text = content.apply(&String::from_utf8_lossy(&text)),
        }
        text
    }
}

impl Content {
    /// The text with one block decoded, changed and encoded again; unchanged without blocks.
    pub fn apply(&self, text: &str) -> Vec<u8> {
        let mut blocks = blocks(text.as_bytes());
        let at = self.block.index(blocks.len());
        let block = String::from_utf8_lossy(&blocks[at]).into_owned();
        let lines: Vec<_> = block.lines().collect();
        if let [first, middle @ .., last] = &lines[..]
            && let Ok(mut der) = openssl::base64::decode_block(&middle.concat())
            && !der.is_empty()
        {
            self.change.apply(&mut der);
            let base64 = openssl::base64::encode_block(&der);
            let wrapped: Vec<_> =
                base64.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
            blocks[at] = format!("{first}\n{}\n{last}\n", wrapped.join("\n")).into_bytes();
        }
        blocks.concat()
    }
}

impl Change {
    fn apply(&self, der: &mut Vec<u8>) {
        match self {
            Self::FlipBit(at, bit) => {
                let place = at.index(der.len());
                der[place] ^= 1 << bit;
            }
            Self::Set(at, byte) => {
                let place = at.index(der.len());
                der[place] = *byte;
            }
            Self::Grow(at, byte) => der.insert(at.index(der.len() + 1), *byte),
            Self::Cut(at) => der.truncate(at.index(der.len())),
            Self::Nothing => {}
        }
    }
}

fn insert(text: &mut Vec<u8>, at: &Index, piece: &[u8]) {
    let place = at.index(text.len() + 1);
    text.splice(place..place, piece.iter().copied());
}

fn replaced(text: &[u8], line_end: &[u8]) -> Vec<u8> {
    text.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(line_end)
}

/// The text split after every END line. Never empty.
fn blocks(text: &[u8]) -> Vec<Vec<u8>> {
    let mut blocks = vec![Vec::new()];
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let last = blocks.len() - 1;
        blocks[last].extend(line);
        if line.starts_with(b"-----END ") {
            blocks.push(Vec::new());
        }
    }
    if blocks.len() > 1 && blocks.last().is_some_and(Vec::is_empty) {
        blocks.pop();
    }
    blocks
}

/// A handmade PEM block, for contents that no library would write.
pub fn block(label: &str, der: &[u8]) -> String {
    let base64 = openssl::base64::encode_block(der);
    let lines: Vec<_> = base64.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
