//! Finds a token wherever it should not be.
//!
//! Every token that a [`Member`](super::Member) gives is registered with the cluster that it is of, in a file of
//! the suite's folder. Whoever knows a token's signature can use it, so its pieces are searched for: as they are,
//! in base64, and as HTTP/2 writes them into a header.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use regex::bytes::{Regex, RegexBuilder};

use crate::suite;

/// Characters of a signature. Long enough to be no accident, short enough that half a token is found.
const PIECE: usize = 32;
/// Of one signature: those of RSA have more, and each takes time to look for.
const PIECES: usize = 2;
/// The file of [`register`].
const TOKENS: &str = "tokens";
/// Holds what a [`RecordingProxy`](super::RecordingProxy) noted, in a folder per cluster.
pub(super) const TRAFFIC: &str = "traffic";
/// Begins the names of the folders with logs of a cluster's API servers.
pub(super) const LOGS: &str = "review-";

/// A token in a file where it has no business.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leak {
    /// The cluster that the token is of.
    pub of: String,
    pub file: PathBuf,
}

/// Registers a token of a cluster, or of nobody.
pub fn register(cluster: &str, token: &str) {
    suite::append(TOKENS, &format!("{cluster} {token}"));
}

/// How many tokens a run registered.
pub fn registered(folder: &Path) -> usize {
    tokens(folder).values().map(Vec::len).sum()
}

/// All files below the folder of one run or of several that hold a token, but for what its own cluster was sent,
/// and wrote into its audit log.
pub fn leaks(folder: &Path) -> Vec<Leak> {
    let tokens = tokens(folder);
    let all = tokens.iter().flat_map(|(of, all)| all.iter().map(move |it| (&**of, &**it)));
    let search = Search::of(all);
    let mut found = Vec::new();
    for file in files(folder).into_iter().filter(|it| !it.ends_with(TOKENS)) {
        let content = fs::read(&file).expect("the suite's files can be read");
        let leaked = search.found_in(&content).into_iter().filter(|of| !is_own(&file, of));
        found.extend(leaked.map(|of| Leak { of: of.to_owned(), file: file.clone() }));
    }
    found.sort();
    found
}

/// Whether it is what a cluster was sent, or its audit log.
fn is_own(file: &Path, cluster: &str) -> bool {
    let folders: Vec<_> = file.parent().into_iter().flat_map(Path::components).collect();
    let names: Vec<_> = folders.iter().filter_map(|it| it.as_os_str().to_str()).collect();
    let is_traffic = names.windows(2).any(|it| it == [TRAFFIC, cluster]);
    let is_log = names.iter().any(|it| {
        let number = it.strip_prefix(LOGS).and_then(|rest| rest.strip_prefix(cluster));
        number.and_then(|rest| rest.strip_prefix('-')).is_some_and(|it| it.parse::<u32>().is_ok())
    });
    is_traffic || (is_log && file.ends_with("audit.log"))
}

fn tokens(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let mut tokens: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files(folder).iter().filter(|it| it.ends_with(TOKENS)) {
        let text = fs::read_to_string(file).expect("tokens can be read");
        for (cluster, token) in text.lines().filter_map(|line| line.split_once(' ')) {
            tokens.entry(cluster.to_owned()).or_default().push(token.to_owned());
        }
    }
    tokens
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

/// Looks for tokens, all at once.
pub struct Search<'a> {
    /// None without any.
    regex: Option<Regex>,
    /// Whose each piece is.
    owners: HashMap<Vec<u8>, &'a str>,
}

impl<'a> Search<'a> {
    /// Of owners and tokens.
    pub fn of(tokens: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let owned = |(of, token)| pieces(token).into_iter().map(move |piece| (piece, of));
        let owners: HashMap<_, _> = tokens.into_iter().flat_map(owned).collect();
        let patterns: Vec<_> = owners.keys().map(|piece| pattern(piece)).collect();
        // Thousands of tokens make a long pattern.
        let regex =
            RegexBuilder::new(&patterns.join("|")).unicode(false).size_limit(1 << 28).build();
        let regex = regex.expect("a pattern of literal bytes");
        Self { regex: (!owners.is_empty()).then_some(regex), owners }
    }

    /// Whose tokens are there.
    pub fn found_in(&self, content: &[u8]) -> BTreeSet<&'a str> {
        let matches = self.regex.iter().flat_map(|regex| regex.find_iter(content));
        matches.filter_map(|found| self.owners.get(found.as_bytes()).copied()).collect()
    }

    pub fn is_in(&self, content: &[u8]) -> bool {
        self.regex.as_ref().is_some_and(|it| it.is_match(content))
    }
}

/// Matches these bytes.
fn pattern(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
}

/// Of the signature alone: two tokens of one account share parts of the rest.
fn pieces(token: &str) -> Vec<Vec<u8>> {
    let signature = token.rsplit('.').next().unwrap_or_default().as_bytes();
    let plain: Vec<_> = signature.chunks_exact(PIECE).take(PIECES).collect();
    let base64 = plain.iter().flat_map(|piece| {
        // Other base64 may begin at any byte, and has four characters for three bytes.
        (0..3).map(|from| STANDARD.encode(&piece[from..from + PIECE / 4 * 3]).into_bytes())
    });
    let headers = plain.iter().flat_map(|piece| (0..8).map(|bits| huffman(piece, bits)));
    plain.iter().map(|piece| piece.to_vec()).chain(base64).chain(headers).collect()
}

/// The codes of RFC 7541, appendix B, for characters of tokens: the length of a code, the first code of that
/// length, and their characters in the order of their codes.
const CODES: [(u32, u32, &str); 4] = [
    (5, 0x00, "012aceiost"),
    (6, 0x14, " %-./3456789=A_bdfghlmnpru"),
    (7, 0x5c, ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, 0xf8, "&*,;XZ"),
];

/// The whole bytes of a text in HPACK, which begins `before` bits after the beginning of a byte.
fn huffman(text: &[u8], before: usize) -> Vec<u8> {
    let mut bits = vec![false; before];
    for character in text {
        let (length, code) = code(*character);
        bits.extend((0..length).rev().map(|bit| code >> bit & 1 == 1));
    }
    let bytes =
        bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | u8::from(*bit)));
    // The first byte holds bits of what is before the text.
    bytes.skip(usize::from(before > 0)).collect()
}

fn code(character: u8) -> (u32, u32) {
    let found = CODES.iter().find_map(|(length, first, characters)| {
        let place = characters.bytes().position(|it| it == character)?;
        Some((*length, first + place as u32))
    });
    found.expect("a signature is base64")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_written_into_headers_as_rfc_7541_shows_it() {
        // C.4.1 and C.4.3.
        assert_eq!(huffman(b"www.example.com", 0), hex::decode("f1e3c2e5f23a6ba0ab90f4").unwrap());
        assert_eq!(huffman(b"no-cache", 0)[..5], hex::decode("a8eb10649c").unwrap());
        // One bit later: the same bits, each byte shifted.
        let [plain, later] = [0, 1].map(|before| huffman(b"www.example.com", before));
        assert_eq!(plain[0] << 7 | plain[1] >> 1, later[0]);
    }

    #[test]
    fn a_token_is_found_however_it_is_written_and_its_readable_half_is_no_leak() {
        let signature: String = (0..86).map(|_| char::from(b'a' + fastrand::u8(..26))).collect();
        let token = format!("eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4In0.{signature}");
        let search = Search::of([("a", &*token)]);
        let in_header = |before| huffman(format!("Bearer {token}").as_bytes(), before);
        for found in [
            token.clone().into_bytes(),
            format!("{{\"token\":\"{token}\"}}").into_bytes(),
            signature[20..].to_owned().into_bytes(),
            STANDARD.encode(format!("xy{token}")).into_bytes(),
            in_header(0),
            [vec![7; 3], in_header(5), vec![9; 3]].concat(),
        ] {
            assert_eq!(search.found_in(&found), ["a"].into());
        }
        let readable = token.strip_suffix(&signature).unwrap();
        assert!(!search.is_in(readable.as_bytes()));
        assert!(!Search::of([]).is_in(token.as_bytes()));
    }
}
