//! Adds an entry to the text of a configuration, or removes one, and leaves every other byte as it is.
//!
//! People have comments and an order of their own in the file, so it is not written from what was read. It is
//! cut between lines, and read again: if anything but the one entry is another then, nothing is changed.

use std::{collections::BTreeSet, fmt, path::PathBuf};

use super::{ClusterConfig, Config, Document, Fault, Remote, read};
use crate::runtime::printable;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("the configuration has faults already: {}", Faults(.0))]
    Faults(Vec<Fault>),
    #[error("the configuration would be refused without this cluster: {}", Faults(.0))]
    Needed(Vec<Fault>),
    #[error(
        "the configuration can't be changed line by line: each cluster has to begin on a line of its own \
         below \"clusters:\", as in docs/review.md"
    )]
    Form,
    #[error("the configuration has this cluster already, and {}", .0.join("; and "))]
    Different(Vec<String>),
    #[error(
        "cluster {0} has this api_server already. Two entries of one cluster contest each other's keys, and \
         then the tokens of neither are known"
    )]
    SameServer(String),
    #[error("it is the only cluster of the configuration, and one without any is refused")]
    Last,
}

struct Faults<'a>(&'a [Fault]);

impl fmt::Display for Faults<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&all.join("; "))
    }
}

/// What the configuration is to say of a remote cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    pub issuer: String,
    pub additional_issuers: Vec<String>,
    pub api_server: String,
    /// The CAs of the machine if there is none.
    pub ca_cert: Option<PathBuf>,
    pub token_path: PathBuf,
}

impl NewEntry {
    fn issuers(&self) -> BTreeSet<String> {
        std::iter::once(&self.issuer).chain(&self.additional_issuers).cloned().collect()
    }

    fn config(&self) -> ClusterConfig {
        let remote = Remote {
            api_server: self.api_server.clone(),
            ca_cert: self.ca_cert.clone(),
            token_path: self.token_path.clone(),
        };
        let kids = BTreeSet::new();
        ClusterConfig { issuers: self.issuers(), kids, prefixes: None, remote: Some(remote) }
    }

    /// Two spaces deeper than `indent` where its members are. Every text of JSON is one of YAML.
    fn lines(&self, name: &str, indent: usize, end: &str) -> String {
        let text = |text: &str| printable::json(&serde_json::Value::from(text).to_string());
        let path = |path: &PathBuf| text(&path.to_string_lossy());
        let mut members = vec![("issuer", text(&self.issuer))];
        let more: BTreeSet<_> = self.additional_issuers.iter().collect();
        let more: Vec<_> =
            more.into_iter().filter(|it| **it != self.issuer).map(|it| text(it)).collect();
        if !more.is_empty() {
            members.push(("additional_issuers", format!("[{}]", more.join(", "))));
        }
        members.push(("api_server", text(&self.api_server)));
        members.extend(self.ca_cert.as_ref().map(|it| ("ca_cert", path(it))));
        members.push(("token_path", path(&self.token_path)));
        let deeper = indent + 2;
        let members = members.iter().map(|(key, it)| format!("{:deeper$}{key}: {it}{end}", ""));
        format!("{:indent$}{}:{end}{}", "", key(name), members.collect::<String>())
    }

    /// What an entry that is there says otherwise. It may say more.
    fn differences(&self, found: &ClusterConfig) -> Vec<String> {
        let Some(remote) = &found.remote else {
            return vec![
                "it has no api_server, so it is the cluster that trustplane review runs in".into(),
            ];
        };
        let mut differences = Vec::new();
        if remote.api_server != self.api_server {
            let (found, wanted) = (&remote.api_server, &self.api_server);
            differences.push(format!("its api_server is {found}, not {wanted}"));
        }
        for issuer in self.issuers().difference(&found.issuers) {
            differences.push(format!(
                "it does not list issuer {issuer}, which belongs under issuer or additional_issuers"
            ));
        }
        let shown = |path: &Option<PathBuf>| {
            path.as_ref().map_or_else(|| "missing".to_owned(), |it| it.display().to_string())
        };
        let paths = [
            ("ca_cert", &remote.ca_cert, &self.ca_cert),
            ("token_path", &Some(remote.token_path.clone()), &Some(self.token_path.clone())),
        ];
        for (key, found, wanted) in paths.into_iter().filter(|(_, found, wanted)| found != wanted) {
            differences.push(format!("its {key} is {}, not {}", shown(found), shown(wanted)));
        }
        differences
    }
}

/// In quotes if YAML could take it for something else than a text.
fn key(name: &str) -> String {
    const OTHER: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase()) && !OTHER.contains(&name);
    if is_plain { name.to_owned() } else { format!("\"{name}\"") }
}

/// The text with this entry. None if it has it.
pub fn with_entry(text: &str, name: &str, entry: &NewEntry) -> Result<Option<String>, EditError> {
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(is_blank) {
        let begin = format!("{}clusters:\n", ended(text, "\n"));
        return checked(format!("{begin}{}", entry.lines(name, 2, "\n")), |it| {
            it.clusters.len() == 1 && it.clusters.get(name) == Some(&entry.config())
        })
        .map(Some);
    }
    let mut config = read(text).map_err(EditError::Faults)?;
    if let Some(found) = config.clusters.get(name) {
        let differences = entry.differences(found);
        return if differences.is_empty() {
            Ok(None)
        } else {
            Err(EditError::Different(differences))
        };
    }
    let has_server = |it: &ClusterConfig| {
        it.remote.as_ref().is_some_and(|remote| remote.api_server == entry.api_server)
    };
    if let Some((other, _)) = config.clusters.iter().find(|(_, it)| has_server(it)) {
        return Err(EditError::SameServer(other.clone()));
    }
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    let blocks = blocks(text, &lines)?;
    let last = blocks.last().ok_or(EditError::Form)?;
    let end = if lines[last.begin].ends_with("\r\n") { "\r\n" } else { "\n" };
    let before = ended(&lines[..last.end].concat(), end);
    let new = entry.lines(name, last.indent, end);
    let text = format!("{before}{new}{}", lines[last.end..].concat());
    config.clusters.insert(name.to_owned(), entry.config());
    checked(text, |it| *it == config).map(Some)
}

/// The text without this entry. None if it has none.
pub fn without_entry(text: &str, name: &str) -> Result<Option<String>, EditError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let mut config = read(text).map_err(EditError::Faults)?;
    if config.clusters.remove(name).is_none() {
        return Ok(None);
    }
    if config.clusters.is_empty() {
        return Err(EditError::Last);
    }
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    let blocks = blocks(text, &lines)?;
    let block = blocks.iter().find(|it| it.name == name).ok_or(EditError::Form)?;
    let text = [&lines[..block.begin], &lines[block.end..]].concat().concat();
    if let Err(faults) = read(&text) {
        return Err(EditError::Needed(faults));
    }
    checked(text, |it| *it == config).map(Some)
}

fn checked(text: String, is_meant: impl Fn(&Config) -> bool) -> Result<String, EditError> {
    match read(&text) {
        Ok(config) if is_meant(&config) => Ok(text),
        _ => Err(EditError::Form),
    }
}

/// With an end of its last line.
fn ended(text: &str, end: &str) -> String {
    let is_ended = text.is_empty() || text.ends_with('\n');
    format!("{text}{}", if is_ended { "" } else { end })
}

/// The lines of an entry, the last one not among them.
struct Block {
    name: String,
    begin: usize,
    end: usize,
    /// Of its name.
    indent: usize,
}

/// In the order of the text.
fn blocks(text: &str, lines: &[&str]) -> Result<Vec<Block>, EditError> {
    let document: Document = serde_saphyr::from_str(text).map_err(|_| EditError::Form)?;
    let number = |number: u64| usize::try_from(number).ok()?.checked_sub(1);
    let mut blocks = Vec::new();
    for (name, _) in &document.clusters.value.0 {
        let place = &name.referenced;
        let place = number(place.line()).zip(number(place.column()));
        let (begin, indent) = place.ok_or(EditError::Form)?;
        let line = lines.get(begin).ok_or(EditError::Form)?;
        if indent == 0 || indent_of(line) != indent {
            return Err(EditError::Form);
        }
        let end = end(lines, begin, indent);
        blocks.push(Block { name: name.value.clone(), begin, end, indent });
    }
    blocks.sort_by_key(|it| it.begin);
    Ok(blocks)
}

/// Where the lines end that are deeper than this one. Blank lines, and comments of what follows, stay with it.
fn end(lines: &[&str], begin: usize, indent: usize) -> usize {
    let mut end = begin + 1;
    for (at, line) in lines.iter().enumerate().skip(begin + 1) {
        let content = line.trim();
        if content.is_empty() {
            continue;
        }
        if indent_of(line) > indent {
            end = at + 1;
        } else if !content.starts_with('#') {
            break;
        }
    }
    end
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

#[cfg(test)]
mod tests;
