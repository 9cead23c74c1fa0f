//! Reads Teleport's resources: of `spiffe_federation` v1 a SPIFFEFederation is made, of `token` v2 with the join
//! method spiffe a JoinToken.

mod token;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use serde_saphyr::Spanned;
use sha2::{Digest as _, Sha256};

use crate::{
    api::spiffe_federation::{API_VERSION, KIND},
    spiffe::{bundle::Bundle, id::TrustDomain},
};

/// A fault, and the line that it is on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Fault {
    pub line: usize,
    pub what: String,
}

/// What kind of resource a document is; the rest of it is read by that.
#[derive(Debug, Deserialize)]
struct Header {
    kind: Spanned<String>,
    version: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resource<M, S> {
    #[allow(dead_code)]
    kind: String,
    #[allow(dead_code)]
    version: String,
    #[serde(default)]
    #[allow(dead_code)]
    sub_kind: Option<String>,
    metadata: M,
    spec: S,
    /// An export has it; ours is made by the authority.
    #[serde(default)]
    #[allow(dead_code)]
    status: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    bundle_source: Source,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    #[serde(rename = "static", default)]
    fixed: Option<Static>,
    #[serde(default)]
    https_web: Option<HttpsWeb>,
    #[serde(default)]
    https_spiffe: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Static {
    bundle: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpsWeb {
    bundle_endpoint_url: String,
}

/// The objects of a file with one or more documents, or all of its faults.
pub fn objects(text: &str) -> Result<Vec<Value>, Vec<Fault>> {
    let (mut objects, mut faults) = (Vec::new(), Vec::new());
    for (first_line, document) in documents(text) {
        match object(&document) {
            Ok(object) => objects.push(object),
            Err(found) => faults.extend(
                found.into_iter().map(|(line, what)| Fault { line: first_line + line - 1, what }),
            ),
        }
    }
    if objects.is_empty() && faults.is_empty() {
        faults.push(Fault { line: 1, what: "there is no resource in the file".to_owned() });
    }
    match faults.is_empty() {
        true => Ok(objects),
        false => Err(faults),
    }
}

/// Documents that say something, each with the number of its first line.
fn documents(text: &str) -> Vec<(usize, String)> {
    let mut all = vec![(1, String::new())];
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_end() == "---" {
            all.push((number + 1, String::new()));
        } else if let Some((_, document)) = all.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    let says_something = |text: &str| {
        text.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    };
    all.retain(|(_, document)| says_something(document));
    all
}

/// The line within the document, and what is wrong there.
type LocalFault = (usize, String);

fn object(document: &str) -> Result<Value, Vec<LocalFault>> {
    let Header { kind, version } = read(document).map_err(|fault| vec![fault])?;
    match (kind.value.as_str(), version.as_str()) {
        ("spiffe_federation", "v1") => federation(document).map_err(|fault| vec![fault]),
        ("token", "v2") => token::object(document),
        (found, version) => {
            let what = format!(
                "this is a {found} {version}; only spiffe_federation v1 and token v2 can be imported"
            );
            Err(vec![(line(&kind), what)])
        }
    }
}

fn read<T: DeserializeOwned>(document: &str) -> Result<T, LocalFault> {
    serde_saphyr::from_str(document).map_err(|error| {
        let line = error.location().map_or(1, |it| usize::try_from(it.line()).unwrap_or(1));
        (line, without_place(&first_line(&error.to_string())).to_owned())
    })
}

fn line<T>(value: &Spanned<T>) -> usize {
    usize::try_from(value.referenced.line()).unwrap_or(1)
}

fn federation(document: &str) -> Result<Value, LocalFault> {
    let resource: Resource<Metadata, Spec> = read(document)?;
    let at = |key: &str| line_of(document, key);
    let trust_domain = TrustDomain::parse(&resource.metadata.name)
        .map_err(|error| (at("name"), format!("metadata.name is no trust domain: {error}")))?;
    let source = source(&resource.spec.bundle_source, document)?;
    let name = object_name(trust_domain.as_str());
    let mut spec = json!({ "bundleSource": source });
    if name != trust_domain.as_str() {
        spec["trustDomain"] = trust_domain.as_str().into();
    }
    Ok(
        json!({ "apiVersion": API_VERSION, "kind": KIND, "metadata": { "name": name }, "spec": spec }),
    )
}

fn source(source: &Source, document: &str) -> Result<Value, LocalFault> {
    let at = |key: &str| line_of(document, key);
    match source {
        Source { fixed: Some(fixed), https_web: None, https_spiffe: None } => {
            Bundle::parse(fixed.bundle.as_bytes())
                .map_err(|error| (at("bundle"), format!("the static bundle can't be used: {error}")))?;
            Ok(json!({ "static": { "bundle": fixed.bundle } }))
        }
        Source { fixed: None, https_web: Some(web), https_spiffe: None } => {
            if !web.bundle_endpoint_url.starts_with("https://") {
                return Err((at("bundle_endpoint_url"), "bundle_endpoint_url must begin with https://".to_owned()));
            }
            Ok(json!({ "httpsWeb": { "bundleEndpointURL": web.bundle_endpoint_url } }))
        }
        Source { fixed: None, https_web: None, https_spiffe: Some(_) } => Err((
            at("https_spiffe"),
            "https_spiffe does not name the SPIFFE ID of the endpoint, and it must not be guessed. Write a \
             SPIFFEFederation with spec.bundleSource.httpsSPIFFE.endpointSPIFFEID yourself"
                .to_owned(),
        )),
        Source { fixed: None, https_web: None, https_spiffe: None } => {
            Err((at("bundle_source"), "bundle_source needs one of static and https_web".to_owned()))
        }
        _ => Err((at("bundle_source"), "bundle_source has more than one source".to_owned())),
    }
}

/// The line on which a key stands first.
fn line_of(document: &str, key: &str) -> usize {
    let is_key = |line: &str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
    };
    document.lines().position(is_key).map_or(1, |index| index + 1)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Without the parser's own line, which counts from the start of the document, not of the file.
fn without_place(text: &str) -> &str {
    let placed = text.strip_prefix("error: line ").and_then(|rest| rest.split_once(": "));
    placed.map_or(text, |(_, what)| what)
}

/// The trust domain where that can be a name, otherwise one that is made of it.
fn object_name(trust_domain: &str) -> String {
    if is_object_name(trust_domain) {
        return trust_domain.to_owned();
    }
    let plain: String =
        trust_domain.chars().map(|c| if is_inner(c) { c } else { '-' }).take(40).collect();
    let digest = hex::encode(&Sha256::digest(trust_domain)[..4]);
    format!("td-{}-{digest}", plain.trim_matches('-'))
}

/// Whether Kubernetes takes it as the name of an object.
fn is_object_name(text: &str) -> bool {
    const LONGEST: usize = 253;
    let is_label = |label: &str| {
        label.starts_with(is_inner)
            && label.ends_with(is_inner)
            && label.chars().all(|c| is_inner(c) || c == '-')
    };
    text.len() <= LONGEST && text.split('.').all(is_label)
}

fn is_inner(character: char) -> bool {
    character.is_ascii_lowercase() || character.is_ascii_digit()
}

#[cfg(test)]
mod tests;
