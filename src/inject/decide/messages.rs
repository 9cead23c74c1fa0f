//! The texts of conditions and Events about a Route's certificate. Pure.
//!
//! Every text says what is the matter and what to do next. Nothing in a condition's message
//! changes with a renewal, so that a renewal costs no status write.

use std::borrow::Cow;

use chrono::{DateTime, SecondsFormat, Utc};

use crate::{
    inject::decide::{
        apply_error::ApplyError,
        facts::{RequestedSecret, RouteFacts},
        secret_state::Unusable,
        state::{Reason, State, Verdict, shortened},
        write::{Before, CompletedWrite, Write},
    },
    k8s::api_error::ApiError,
    names::SECRET_NAME_ANNOTATION,
    runtime::printable::printable,
    tls::{Problem, Warning},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub severity: Severity,
    pub reason: Reason,
    /// A field of the Event.
    pub action: &'static str,
    pub note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

/// The certificate that is served while the Secret can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    ServesDefault,
    KeepsTheirs,
    KeepsLastGood,
    /// The Route holds the refused pair already, and it stays.
    KeepsSame,
}

impl Consequence {
    fn as_str(self) -> &'static str {
        match self {
            Self::ServesDefault => "the router serves its default certificate",
            Self::KeepsTheirs => "the Route keeps its own certificate",
            Self::KeepsLastGood => "the Route keeps the last good certificate",
            Self::KeepsSame => {
                "they would not be injected today. The Route has them already and keeps them until the \
                 Secret changes"
            }
        }
    }
}

/// A problem's text, for the condition and the Event alike.
#[derive(Clone, Debug)]
pub struct Explanation {
    reason: Reason,
    text: String,
}

impl Explanation {
    pub fn verdict(&self, state: State, reason: Reason) -> Verdict {
        Verdict { state: Some(state), reason, message: self.text.clone() }
    }

    pub fn notice(self) -> Notice {
        warning(self.reason, "CheckSecret", self.text)
    }
}

fn warning(reason: Reason, action: &'static str, note: String) -> Notice {
    Notice { severity: Severity::Warning, reason, action, note }
}

fn verdict(state: Option<State>, reason: Reason, message: impl Into<String>) -> Verdict {
    Verdict { state, reason, message: message.into() }
}

/// Row 2.
pub fn not_secured() -> Verdict {
    let message = "The Route has no spec.tls, so no certificate is served.";
    verdict(None, Reason::RouteNotSecured, message)
}

/// Row 3.
pub fn passthrough() -> Verdict {
    let message = "Termination is passthrough, so the backend serves its own certificate.";
    verdict(None, Reason::PassthroughTermination, message)
}

/// Row 4.
pub fn external() -> Verdict {
    let message = "The router reads the certificate from spec.tls.externalCertificate.";
    verdict(Some(State::Custom), Reason::ExternalCertificate, message)
}

/// Rows 5 to 7. Of warnings only the kinds are named: a date would cost a status write with each
/// renewal.
pub fn managed(route: &RouteFacts, warnings: &[Notice]) -> Verdict {
    let mut message = format!("The Route has the certificate of Secret {}.", secret_of(route));
    if !warnings.is_empty() {
        let kinds: Vec<_> = warnings.iter().map(|notice| notice.reason.as_str()).collect();
        message += &format!(" Warnings: {}. The Events say more.", kinds.join(", "));
    }
    verdict(Some(State::Managed), Reason::SecretInjected, message)
}

pub fn no_certificate() -> Verdict {
    let message = "The Route has no certificate, so the router serves its default certificate.";
    verdict(Some(State::Default), Reason::NoCertificate, message)
}

pub fn custom() -> Verdict {
    let message = "The Route has a certificate of its own, which trustplane did not inject.";
    verdict(Some(State::Custom), Reason::CertificateInRoute, message)
}

/// An annotation that nobody reads, where the right one is not set.
pub fn misspelt(key: &str, message: &str) -> Notice {
    let note = format!(
        "{message} trustplane does not read the annotation {}. Did you mean \
         {SECRET_NAME_ANNOTATION}?",
        printable(key)
    );
    warning(Reason::AnnotationMisspelt, "CheckRoute", note)
}

/// Row 2, annotated.
pub fn annotated_but_not_secured(route: &RouteFacts) -> Notice {
    let note = format!(
        "The Route has no spec.tls, so the certificate of Secret {} can't be served. \
         Set spec.tls.termination to edge or reencrypt, or remove the annotation {SECRET_NAME_ANNOTATION}.",
        secret_of(route)
    );
    warning(Reason::RouteNotSecured, "CheckRoute", note)
}

/// Row 3, annotated.
pub fn annotated_but_passthrough(route: &RouteFacts) -> Notice {
    let note = format!(
        "With passthrough termination the router never decrypts, so it can't serve the certificate of Secret {}. \
         Set spec.tls.termination to edge or reencrypt, or remove the annotation {SECRET_NAME_ANNOTATION}.",
        secret_of(route)
    );
    warning(Reason::PassthroughTermination, "CheckRoute", note)
}

/// Row 4, annotated.
pub fn annotated_but_external(route: &RouteFacts) -> Notice {
    let note = format!(
        "spec.tls.externalCertificate is set, so the certificate of Secret {} is not injected. \
         Remove one of the two: spec.tls.externalCertificate or the annotation {SECRET_NAME_ANNOTATION}.",
        secret_of(route)
    );
    warning(Reason::ExternalCertificate, "CheckRoute", note)
}

pub fn completed(write: CompletedWrite, route: &RouteFacts) -> Notice {
    match write {
        CompletedWrite::Injected(before) => injected(route, before),
        CompletedWrite::Cleared => Notice {
            severity: Severity::Normal,
            reason: Reason::CertificateCleared,
            action: "Clear",
            note: format!(
                "The annotation {SECRET_NAME_ANNOTATION} was removed, so the injected certificate was \
                 removed from the Route. The router serves its default certificate."
            ),
        },
    }
}

fn injected(route: &RouteFacts, before: Before) -> Notice {
    let (reason, replaced) = match before {
        Before::Ours => (Reason::CertificateUpdated, ""),
        Before::Nothing => (Reason::CertificateInjected, ""),
        Before::Theirs => {
            (Reason::CertificateInjected, " It replaced the certificate that the Route had.")
        }
    };
    let described = route.description().map_or_else(String::new, |held| {
        format!(": serial {}, valid until {}", held.serial, day(held.validity.not_after))
    });
    let secret = secret_of(route);
    let note = format!("The Route has the certificate of Secret {secret}{described}.{replaced}");
    Notice { severity: Severity::Normal, reason, action: "Inject", note }
}

/// While the write waits because somebody keeps undoing it.
pub fn contested_interim() -> (Reason, String) {
    let message = "Something else keeps changing the certificate of this Route, so the next attempt waits. \
         If a GitOps tool manages the Route, see docs/gitops.md.";
    (Reason::CertificateContested, message.to_owned())
}

/// Describes a write, for the log.
pub fn doing(write: Option<Write>) -> &'static str {
    match write {
        Some(Write::Inject(_)) => "inject certificate and key of the Secret",
        Some(Write::AddMarker(_)) => "mark certificate and key in the Route as injected",
        Some(Write::Clear) => "remove the injected certificate and key",
        Some(Write::ClearKey) => "remove an injected key without its certificate",
        Some(Write::DropMarker) => "remove an annotation of an earlier injection",
        None => "write the status alone",
    }
}

/// Somebody else keeps writing our fields.
pub fn contested(manager: Option<&str>) -> Notice {
    let who = manager.map_or_else(String::new, |name| {
        format!(" The last to write it was {:?}.", shortened(name))
    });
    warning(
        Reason::CertificateContested,
        "BackOff",
        format!(
            "Something else keeps changing the certificate that was injected into this Route, so the \
             next attempts wait up to 5 minutes.{who} Make it ignore spec.tls.certificate, spec.tls.key \
             and the annotations trustplane.dev/injected and trustplane.dev/injected-from (docs/gitops.md \
             says how), or remove the annotation {SECRET_NAME_ANNOTATION}."
        ),
    )
}

/// The Route can't be changed. What it has stays.
pub fn not_done(route: &RouteFacts, error: &ApplyError) -> Option<Notice> {
    let cause = error.cause()?;
    let note = match error {
        ApplyError::PairMissing { .. } => return None,
        ApplyError::Status { .. } => return Some(status_not_written(cause)),
        ApplyError::Secret { secret, .. } => secret_not_read(&secret.name, cause),
        ApplyError::Read { .. } => route_not_read(cause),
        ApplyError::Pair { .. } => pair_not_written(route, cause),
    };
    Some(warning(Reason::InjectionFailed, "Inject", note))
}

fn secret_not_read(secret: &str, cause: &ApiError) -> String {
    match cause {
        ApiError::Forbidden => format!(
            "trustplane is not allowed to read Secret {secret}. Ask an administrator to grant its \
             account get, list and watch on secrets, by applying again what it was installed with."
        ),
        cause => format!(
            "Secret {secret} could not be read, so the Route keeps what it has: {cause}. This is \
             tried again. If it goes on, ask an administrator to look at the API server."
        ),
    }
}

fn route_not_read(cause: &ApiError) -> String {
    match cause {
        ApiError::Forbidden => {
            "trustplane is not allowed to read this Route by itself, so the Route keeps what it has. \
             Ask an administrator to grant its account get on routes, by applying again what it was \
             installed with."
                .to_owned()
        }
        cause => format!(
            "The Route could not be read to check its certificate, so the Route keeps what it has: \
             {cause}. This is tried again. If it goes on, ask an administrator to look at the API server."
        ),
    }
}

fn pair_not_written(route: &RouteFacts, cause: &ApiError) -> String {
    let what_to_do = match cause {
        ApiError::Forbidden => {
            return "trustplane is not allowed to write this Route, so the Route keeps what it has. \
                    Ask an administrator to grant its account patch on routes and routes/status, \
                    and create and update on routes/custom-host, by applying again what it was \
                    installed with."
                .to_owned();
        }
        ApiError::Denied { .. } => {
            "Ask an administrator to let the account of trustplane write Routes".to_owned()
        }
        ApiError::WebhookFailed { .. } => {
            "Ask an administrator to repair or remove that webhook".to_owned()
        }
        ApiError::RequestTooLarge => format!(
            "Make the Route smaller (annotations, status), or shorten the certificate chain in \
             Secret {}",
            secret_of(route)
        ),
        ApiError::Invalid { .. } => {
            "Look at the Route with kubectl describe; on OpenShift the account of trustplane needs \
             create and update on routes/custom-host"
                .to_owned()
        }
        _ => "This is tried again. If it goes on, ask an administrator to look at the API server"
            .to_owned(),
    };
    format!(
        "The certificate of this Route could not be changed, so the Route keeps what it has: {cause}. \
         {what_to_do}."
    )
}

/// The right certificate is served; only the condition is missing.
fn status_not_written(cause: &ApiError) -> Notice {
    let so = "so .status.certificate does not say which certificate it has. What the router \
              serves is not affected.";
    let note = match cause {
        ApiError::Forbidden => format!(
            "trustplane is not allowed to write the status of this Route, {so} Ask an administrator to grant its \
             account patch on routes/status, by applying again what it was installed with."
        ),
        ApiError::Denied { .. } => format!(
            "The status of this Route could not be written, {so} Reason: {cause}. Ask an administrator \
             to let the account of trustplane patch routes/status."
        ),
        ApiError::Invalid { .. } => format!(
            "The status of this Route could not be written, {so} Reason: {cause}. Apply the CRD of \
             Routes again, or run trustplane with --status=off."
        ),
        _ => format!(
            "The status of this Route could not be written, {so} Reason: {cause}. This is tried again. \
             If it goes on, ask an administrator to look at the API server."
        ),
    };
    warning(Reason::StatusNotWritten, "WriteStatus", note)
}

/// Rows 8 to 10: what is wrong with the Secret, what is served instead, what to do.
pub fn unusable(route: &RouteFacts, why: &Unusable<'_>, consequence: Consequence) -> Explanation {
    let secret = secret_of(route);
    let so = consequence.as_str();
    let text = match why {
        Unusable::Missing { .. } => format!(
            "Secret {secret} was not found, so {so}. Create it in namespace {} with type \
             kubernetes.io/tls, or correct the annotation {SECRET_NAME_ANNOTATION}.",
            route.at.namespace
        ),
        Unusable::InvalidName(value) => format!(
            "{:?} can't be the name of a Secret, so {so}. Set the annotation {SECRET_NAME_ANNOTATION} \
             to the name of a Secret in namespace {}, or remove it.",
            shortened(value),
            route.at.namespace
        ),
        Unusable::WrongType(found) => format!(
            "Secret {secret} is of type {:?}, not \"kubernetes.io/tls\", so {so}. The type of a \
             Secret can't be changed: delete it and create it again with kubectl create secret tls.",
            shortened(found)
        ),
        Unusable::Invalid(problems) => format!(
            "The certificate and key in Secret {secret} can't be used, so {so}. Fix the Secret: {}.",
            listed(problems)
        ),
        Unusable::CaMismatch(problems) => format!(
            "The caCertificate of the Route would make the router refuse the certificate in Secret {secret}, \
             so {so}. Remove spec.tls.caCertificate or set it to the issuer of that certificate: {}.",
            listed(problems)
        ),
    };
    Explanation { reason: why.reason(), text }
}

/// The router serves it, but a client may not like it.
pub fn pair_warning(route: &RouteFacts, what: &Warning) -> Notice {
    let note = format!("Certificate of Secret {}: {what}", secret_of(route));
    warning(Reason::from(what), "CheckSecret", note)
}

/// The same of a pair that stays although its Secret is no longer usable.
pub fn kept_warning(what: &Warning) -> Notice {
    let note = format!("Certificate that the Route keeps: {what}");
    warning(Reason::from(what), "CheckSecret", note)
}

fn secret_of(route: &RouteFacts) -> Cow<'_, str> {
    match &route.requested {
        RequestedSecret::Secret(name) => Cow::Borrowed(name),
        // Any value, line breaks included, is shown as one word.
        RequestedSecret::Invalid(value) => Cow::Owned(format!("{:?}", shortened(value))),
        RequestedSecret::Nothing | RequestedSecret::Misspelt(_) => Cow::Borrowed(""),
    }
}

/// Numbered where there are several: a problem's text may have a semicolon of its own.
fn listed(problems: &[Problem]) -> String {
    if let [only] = problems {
        return only.to_string();
    }
    let numbered = problems.iter().enumerate();
    let texts: Vec<_> = numbered.map(|(at, problem)| format!("({}) {problem}", at + 1)).collect();
    texts.join("; ")
}

fn day(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests;
