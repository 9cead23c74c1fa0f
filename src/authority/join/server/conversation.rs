//! One stream, which is one try: init, challenge, solution, certificates.

use std::{pin::pin, sync::Arc, time::Duration};

use aws_lc_rs::rand;
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use super::{
    Held, JoinService, Peer, Requests,
    admission::{Admitted, Claim},
    answer::{Answer, Answers},
    follow::FollowStream,
    limits::StreamSlot,
    open_connections::OpenStream,
};
use crate::{
    authority::{
        decide::challenge::NONCE_LENGTH,
        join::{
            messages::{Challenge, Request, RequestPayload, Response, ResponsePayload},
            request,
        },
    },
    spiffe::svid::PresentedSvid,
};

/// A client may take this long for each of its messages.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// What goes to the client next.
enum Step {
    Reply(ResponsePayload),
    Follow(Box<FollowStream>),
    End(Status),
}

/// Answers a client. A join that is being judged goes on if the client leaves: whatever becomes of it is
/// audited.
pub(super) fn start(
    service: &Arc<JoinService>,
    requests: impl Stream<Item = Result<Request, Status>> + Send + 'static,
    peer: Peer,
    stream: Option<OpenStream>,
) -> Result<Answers, Status> {
    let Some(slot) = service.limits.take(peer.address, service.metrics.join_streams()) else {
        service.metrics.joined("limited");
        return Err(too_many());
    };
    let (replies, steps) = mpsc::channel(1);
    let (service, held, requests) = (service.clone(), Held { slot, stream }, requests.boxed());
    tokio::spawn(async move {
        let mut talk = Talk { service: &service, requests, peer, replies: &replies };
        let end = match talk.join(&held.slot).await {
            Ok(Some(joined)) => talk.finish(joined, held).await,
            Ok(None) => None,
            Err(status) => Some(Step::End(status)),
        };
        if let Some(end) = end {
            reply(&replies, end).await;
        }
    });
    let answers = ReceiverStream::new(steps).flat_map(|step| match step {
        Step::Reply(payload) => one(Ok(Answer::One(Response { payload: Some(payload) }))),
        Step::End(status) => one(Err(status)),
        Step::Follow(follow) => follow.bundles(),
    });
    Ok(answers.boxed())
}

fn too_many() -> Status {
    Status::resource_exhausted("too many clients are joining; try again later")
}

fn one(answer: Result<Answer, Status>) -> Answers {
    stream::once(std::future::ready(answer)).boxed()
}

/// A client that joined, and whether it wants to hear of bundles.
struct Joined {
    admitted: Admitted,
    follows: bool,
}

struct Talk<'a> {
    service: &'a JoinService,
    requests: Requests,
    peer: Peer,
    replies: &'a mpsc::Sender<Step>,
}

impl Talk<'_> {
    /// None if the client has left, or was sent away.
    async fn join(&mut self, slot: &StreamSlot) -> Result<Option<Joined>, Status> {
        let init = match self.next(slot).await? {
            Some(RequestPayload::Init(init)) => init,
            Some(RequestPayload::ChallengeSolution(_)) => {
                return Err(self.malformed("init comes first"));
            }
            None => return Ok(None),
        };
        let parsed = request::parse(&init).map_err(|why| self.malformed(&why))?;
        let svid = PresentedSvid::read(&parsed.chain)
            .map_err(|error| self.malformed(&format!("x509_svid: {error}")))?;
        let svid_key =
            svid.key().map_err(|error| self.malformed(&format!("x509_svid: {error}")))?;
        self.service.check_ready()?;
        let nonce = nonce().ok_or_else(|| Status::unavailable("no random numbers"))?;
        let challenge = ResponsePayload::Challenge(Challenge { nonce: nonce.to_vec() });
        if !reply(self.replies, Step::Reply(challenge)).await {
            return Ok(None);
        }
        let solution = match self.next(slot).await? {
            Some(RequestPayload::ChallengeSolution(solution)) => solution,
            Some(RequestPayload::Init(_)) => {
                return Err(self.malformed("one stream is one try: challenge_solution comes next"));
            }
            None => return Ok(None),
        };
        if !slot.judged() {
            self.send_away();
            return Ok(None);
        }
        let claim = Claim {
            nonce: &nonce,
            signature: &solution.signed_nonce,
            signed: parsed.signed(),
            svid: &svid,
            svid_key: &svid_key,
            new_key: parsed.new_key.as_ref(),
            role: parsed.role,
            node_name: &parsed.request.node_name,
            address: self.peer.address,
        };
        let admitted = self.service.admit(&claim).await?;
        Ok(Some(Joined { admitted, follows: parsed.request.follow }))
    }

    /// Hands the certificates out; answers what comes after them.
    async fn finish(&mut self, joined: Joined, mut held: Held) -> Option<Step> {
        let Admitted { certs, foreign, until } = joined.admitted;
        held.slot.joined();
        let follower = held.stream.as_ref().map(OpenStream::follower);
        if !reply(self.replies, Step::Reply(ResponsePayload::Certs(certs))).await {
            return None;
        }
        if !joined.follows {
            let is_second_try = matches!(self.requests.next().now_or_never(), Some(Some(Ok(_))));
            return is_second_try.then(|| Step::End(super::second_try()));
        }
        let Some(share) = self.service.limits.follow(&foreign) else {
            self.service.metrics.joined("limited");
            let why = "too many clients follow with this SPIFFE ID already; try again later";
            return Some(Step::End(Status::resource_exhausted(why)));
        };
        let requests = std::mem::replace(&mut self.requests, stream::empty().boxed());
        let follow = FollowStream::new(self.service, until, requests, (held, follower, share));
        Some(Step::Follow(Box::new(follow)))
    }

    /// None if the client has left, or was sent away.
    async fn next(&mut self, slot: &StreamSlot) -> Result<Option<RequestPayload>, Status> {
        let closed = pin!(self.replies.closed());
        let message = tokio::select! {
            () = closed => return Ok(None),
            () = slot.taken() => {
                self.send_away();
                return Ok(None);
            }
            message = timeout(SILENCE, self.requests.next()) => message,
        };
        match message {
            Err(_) => {
                self.service.metrics.joined("silent");
                Err(Status::deadline_exceeded("the next message took too long"))
            }
            Ok(Some(Ok(Request { payload: Some(payload) }))) => Ok(Some(payload)),
            Ok(Some(Ok(Request { payload: None }))) => Err(self.malformed("the message is empty")),
            Ok(Some(Err(status))) => Err(match status.code() {
                // What tonic answers to bytes that are no message.
                Code::Internal => self.malformed("the message can't be read"),
                Code::OutOfRange => {
                    self.service.metrics.joined("malformed");
                    Status::out_of_range("the message is too long")
                }
                _ => status,
            }),
            Ok(None) => Ok(None),
        }
    }

    /// A newer client has the slot of this one. It is told so if it reads, and nobody waits for that.
    fn send_away(&self) {
        self.service.metrics.joined("limited");
        let _ = self.replies.try_send(Step::End(too_many()));
    }

    fn malformed(&self, why: &str) -> Status {
        self.service.metrics.joined("malformed");
        Status::invalid_argument(why)
    }
}

/// Whether the client could take it. One that does not read holds its slot no longer than one that does
/// not write.
async fn reply(replies: &mpsc::Sender<Step>, step: Step) -> bool {
    matches!(timeout(SILENCE, replies.send(step)).await, Ok(Ok(())))
}

fn nonce() -> Option<[u8; NONCE_LENGTH]> {
    let mut nonce = [0; NONCE_LENGTH];
    rand::fill(&mut nonce).ok()?;
    Some(nonce)
}
