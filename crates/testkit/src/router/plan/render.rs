//! The files that HAProxy reads.
//!
//! Connections arrive in tcp mode. Those for a passthrough Route are forwarded to the backend;
//! others go through an internal socket to a frontend that terminates TLS with the Route's
//! certificate or the default one. There the request's host selects the backend, or 503 if no Route
//! has it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use trustplane::runtime::redact::PrivateKeyPem;

use super::offer::{Offer, Termination};
use super::table::{At, Entry};

/// Settings that do not depend on Routes.
pub struct Layout {
    /// Folder of the files and sockets.
    pub folder: PathBuf,
    /// Address for clients.
    pub listen: SocketAddr,
    /// Plain HTTP backend, for edge.
    pub plain_backend: SocketAddr,
    /// TLS backend, for reencrypt and passthrough.
    pub tls_backend: SocketAddr,
    /// The name in the TLS backend's certificate.
    pub backend_host: String,
    /// CA of the TLS backend's certificate, in PEM.
    pub backend_authority: String,
    /// The default certificate: chain and key.
    pub default_pair: PrivateKeyPem,
}

/// Contents by name. Has no `Debug`, because they hold keys.
#[derive(Clone, Default, PartialEq)]
pub struct Files(BTreeMap<String, String>);

impl Files {
    /// Every file, by its name below the folder.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, content)| (name.as_str(), content.as_str()))
    }

    /// Content of a file.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn put(&mut self, name: impl Into<String>, content: impl Into<String>) {
        self.0.insert(name.into(), content.into());
    }
}

pub const CONFIGURATION: &str = "haproxy.cfg";
const CERTIFICATES: &str = "certificates.list";
const HOSTS: &str = "hosts.map";
/// Map value of passthrough hosts, and the name of their backend.
const PASSTHROUGH: &str = "passthrough";
const DEFAULT_PAIR: &str = "default.pem";
const SERVICE_AUTHORITY: &str = "service-ca.pem";

/// The files for these admitted Routes.
pub fn render<'a>(
    layout: &Layout,
    admitted: impl IntoIterator<Item = (&'a Entry, &'a Offer)>,
) -> Files {
    let path = |name: &str| layout.folder.join(name).display().to_string();
    let mut files = Files::default();
    // `!*`: the default certificate matches no name.
    let mut certificates = format!("{} !*\n", path(DEFAULT_PAIR));
    let (mut hosts, mut backends) = (String::new(), String::new());
    for (entry, offer) in admitted {
        let Some(claim) = entry.route.spec.claim() else { continue };
        let file = file_name(&entry.at);
        match &offer.termination {
            Termination::None => continue,
            Termination::Passthrough => hosts += &format!("{claim} {PASSTHROUGH}\n"),
            Termination::Edge => hosts += &format!("{claim} edge\n"),
            Termination::Reencrypt { authorities } => {
                let trusted = match authorities {
                    Some(_) => format!("ca_{file}"),
                    None => SERVICE_AUTHORITY.to_owned(),
                };
                let backend = format!("reencrypt_{}_{}", entry.at.namespace, entry.at.name);
                hosts += &format!("{claim} {backend}\n");
                backends += &reencrypt_backend(layout, &backend, &path(&trusted));
                if let Some(authorities) = authorities {
                    files.put(trusted, authorities);
                }
            }
        }
        if let Some(pair) = &offer.pair {
            certificates += &format!("{} {claim}\n", path(&file));
            files.put(file, pair.expose());
        }
    }
    files.put(CONFIGURATION, configuration(layout) + &backends);
    files.put(CERTIFICATES, certificates);
    files.put(HOSTS, hosts);
    files.put(DEFAULT_PAIR, layout.default_pair.expose());
    files.put(SERVICE_AUTHORITY, &layout.backend_authority);
    files
}

/// No name in Kubernetes has an underscore, so no two Routes share a file.
fn file_name(at: &At) -> String {
    format!("{}_{}.pem", at.namespace, at.name)
}

fn configuration(layout: &Layout) -> String {
    let folder = layout.folder.display();
    let (listen, plain, tls) = (layout.listen, layout.plain_backend, layout.tls_backend);
    format!(
        r#"global
    maxconn 2000
    hard-stop-after 5m
    nbthread 2
    ssl-default-bind-options ssl-min-ver TLSv1.2
    ssl-load-extra-files none
    tune.ssl.default-dh-param 2048

defaults
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout tunnel 1h

frontend public
    mode tcp
    bind {listen}
    tcp-request inspect-delay 5s
    tcp-request content set-var(sess.host) req.ssl_sni,lower if {{ req.ssl_hello_type 1 }}
    tcp-request content set-var(sess.backend) var(sess.host),map({folder}/{HOSTS})
    tcp-request content set-var(sess.backend) 'var(sess.host),regsub("^[^.]*","*"),map({folder}/{HOSTS})' if !{{ var(sess.backend) -m found }}
    use_backend {PASSTHROUGH} if {{ var(sess.backend) -m str {PASSTHROUGH} }}
    default_backend terminate

backend terminate
    mode tcp
    server here unix@{folder}/tls.sock send-proxy-v2

frontend terminated
    mode http
    bind unix@{folder}/tls.sock accept-proxy mode 600 ssl crt-list {folder}/{CERTIFICATES} alpn http/1.1
    http-request set-var(txn.host) req.hdr(host),field(1,:),lower
    http-request set-var(txn.backend) var(txn.host),map({folder}/{HOSTS})
    http-request set-var(txn.backend) 'var(txn.host),regsub("^[^.]*","*"),map({folder}/{HOSTS})' if !{{ var(txn.backend) -m found }}
    use_backend %[var(txn.backend)] if {{ var(txn.backend) -m found }} !{{ var(txn.backend) -m str {PASSTHROUGH} }}
    default_backend nobody

backend nobody
    mode http

backend edge
    mode http
    server backend {plain}

backend {PASSTHROUGH}
    mode tcp
    server backend {tls}
"#
    )
}

fn reencrypt_backend(layout: &Layout, name: &str, trusted: &str) -> String {
    let (tls, host) = (layout.tls_backend, &layout.backend_host);
    let mut text = String::new();
    let _ = writeln!(text, "\nbackend {name}\n    mode http");
    let _ = writeln!(
        text,
        "    server backend {tls} ssl verify required ca-file {trusted} sni str({host}) verifyhost {host}"
    );
    text
}
