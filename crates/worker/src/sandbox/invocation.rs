//! One request that the runtime of an instance serves.

use std::sync::atomic::Ordering;

use tokio::time::{timeout, timeout_at};

use super::http_server;
use super::live::{Guard, Inner, Instance};
use super::runtime_api::{AnswerKind, Delivered, ExtensionFailure, Reason, RuntimeAnswer};
use super::telemetry::Status;
use crate::clock::Moment;
use crate::failure::Failure;
use crate::instance::{Outcome, Reply, Request, Usage};

/// What ended the wait for an answer.
enum Waited {
    Answered(AnswerKind),
    Gone,
    TimeUp,
    /// The runtime does not take events.
    Unreachable(String),
    /// Who was still at work when the time was up, after the answer.
    Late(String),
    Failed(ExtensionFailure),
}

impl AnswerKind {
    fn status(&self) -> Status {
        match self {
            Self::Response(_) | Self::Passed => Status::SUCCESS,
            Self::Error(payload) => {
                let kind = Failure::read(payload).kind().unwrap_or("Runtime.Unknown").to_owned();
                Status::error(kind)
            }
            Self::TooLarge(_) => Status::error("Function.ResponseSizeTooLarge"),
        }
    }
}

impl Waited {
    fn status(&self) -> Status {
        match self {
            Self::Answered(kind) => kind.status(),
            Self::TimeUp | Self::Late(_) => Status::TIMEOUT,
            Self::Gone | Self::Unreachable(_) => Status::failure("Runtime.ExitError"),
            Self::Failed(failure) => Status::failure(&failure.kind),
        }
    }
}

impl Inner {
    /// Tells those who want to know of the runtime's answer.
    fn runtime_done(&self, answer: &RuntimeAnswer) {
        let telemetry = self.api.telemetry();
        if telemetry.is_active() {
            self.log.catch_up();
            let status = answer.kind.status();
            telemetry.runtime_done(answer.at, &status, answer.began, Some(answer.size));
        }
    }

    /// Tells those who want to know that an invocation is over.
    fn report(&self, waited: &Waited, ended: Moment, usage: &Usage) {
        let telemetry = self.api.telemetry();
        if telemetry.is_active() {
            self.log.catch_up();
            let status = waited.status();
            telemetry.runtime_done(ended, &status, None, None);
            telemetry.report(ended, &status, usage);
        }
    }

    /// Tells those who want to know that the runtime has ended by itself, in an invocation or before.
    pub(super) fn runtime_exited(&self) {
        let telemetry = self.api.telemetry();
        if telemetry.is_active() {
            self.log.catch_up();
            let (now, status) = (Moment::now(), Status::failure("Runtime.ExitError"));
            telemetry.runtime_initialized(now, &Status::error("Runtime.ExitError"));
            telemetry.runtime_done(now, &status, None, None);
            // One that is being served is reported with what it used, once that is known.
            if !self.busy.load(Ordering::Acquire) {
                telemetry.report(now, &status, &Usage::default());
            }
        }
    }
}

impl Instance {
    /// Has the runtime serve one request. One at a time: another one while it runs is refused, unless it
    /// serves HTTP. Thaws nothing by itself. When the instance is gone, on any outcome that it does not
    /// survive, nothing of it is left when this returns.
    pub async fn invoke(&self, request: Request) -> Reply {
        let inner = self.inner();
        if let Some(server) = &inner.server {
            return http_server::invoke(inner, server, request).await;
        }
        let Ok(turn) = timeout(request.timeout, inner.turn()).await else {
            // Another instance may serve it: no code of the function has seen it.
            inner.end(Reason::Failure).await;
            let how = "making what instances share of it took longer than a request's time limit";
            return unserved(Outcome::Exited(how.into()));
        };
        if inner.busy.swap(true, Ordering::AcqRel) {
            let payload = br#"{"errorType":"Uncia.Busy","errorMessage":"the instance is serving another request"}"#;
            return unserved(Outcome::FunctionError(bytes::Bytes::from_static(payload)));
        }
        let guard = Guard::new(inner);
        inner.log.begin();
        if let Some(watched) = &inner.watched {
            watched.begin();
        }
        inner.meter.begin().await;
        let passed = inner.traffic.read();
        let called = Moment::now();
        let (mut started, mut ended, mut answered) = (None, None, None);
        let waited = tokio::select! {
            biased;
            // First, since an instance that is gone may have answered.
            waited = self.exchange(&request, &mut started, &mut ended, &mut answered) => waited,
            _ = inner.gone() => Waited::Gone,
        };
        let ended = ended.unwrap_or_else(Moment::now);
        let services = inner.traffic.since(&passed);
        let usage = inner.meter.end().await;
        inner.rest();
        inner.report(&waited, ended, &usage);
        let outcome = match waited {
            Waited::Answered(AnswerKind::Response(bytes)) => Outcome::Ok(bytes),
            Waited::Answered(AnswerKind::Passed) => Outcome::Passed,
            Waited::Answered(AnswerKind::Error(bytes)) => Outcome::FunctionError(bytes),
            Waited::Answered(AnswerKind::TooLarge(size)) => Outcome::ResponseTooLarge(size),
            Waited::TimeUp => {
                inner.end(Reason::Timeout).await;
                Outcome::Timeout
            }
            Waited::Late(who) => {
                inner.end(Reason::Timeout).await;
                Outcome::Late(who)
            }
            Waited::Failed(ExtensionFailure { kind, message }) => {
                inner.end(Reason::Failure).await;
                Outcome::Extension { kind, message }
            }
            Waited::Unreachable(description) => {
                inner.kill();
                inner.gone().await;
                Outcome::Exited(description)
            }
            Waited::Gone => {
                let out_of_memory = inner.meter.out_of_memory();
                let end = inner.gone().await;
                match inner.api.extensions().failure() {
                    _ if end.killed && out_of_memory => Outcome::OutOfMemory,
                    Some(ExtensionFailure { kind, message }) => {
                        Outcome::Extension { kind, message }
                    }
                    None => Outcome::Exited(end.description),
                }
            }
        };
        let reply = Reply {
            outcome,
            delivered: started.is_some(),
            started: started.unwrap_or(called),
            ended: started.unwrap_or(called).at(ended.monotonic()),
            usage,
            shared: false,
            services,
            extensions: answered,
            log_tail: inner.log.tail(),
        };
        guard.release();
        inner.busy.store(false, Ordering::Release);
        if matches!(reply.outcome, Outcome::Ok(_) | Outcome::Passed) {
            self.has_served(turn);
        }
        reply
    }

    /// Hands the request to the runtime and waits for its answer. The time limit runs from the moment
    /// at which the runtime was given the request, and before it for as long as it does not ask.
    async fn exchange(
        &self,
        request: &Request,
        started: &mut Option<Moment>,
        ended: &mut Option<Moment>,
        answered: &mut Option<(Moment, Moment)>,
    ) -> Waited {
        let limit = request.timeout;
        let Ok(delivered) = timeout(limit, self.inner().api.deliver(request, started)).await else {
            return Waited::TimeUp;
        };
        let Delivered { since, answer } = match delivered {
            Ok(delivered) => delivered,
            Err(error) => return Waited::Unreachable(error.to_string()),
        };
        match timeout_at(since + limit, answer).await {
            Ok(Ok(answer)) => {
                *ended = Some(answer.at);
                self.inner().runtime_done(&answer);
                if !self.inner().api.extensions().exist() {
                    return Waited::Answered(answer.kind);
                }
                // Until then the invocation goes on.
                let rested = timeout_at(since + limit, self.inner().api.rest()).await;
                let now = Moment::now();
                *ended = Some(now);
                *answered = Some((answer.at, now));
                match rested {
                    Ok(Ok(())) => Waited::Answered(answer.kind),
                    Ok(Err(failure)) => Waited::Failed(failure),
                    Err(_) => Waited::Late(self.inner().api.who_works()),
                }
            }
            // The API is closed when the instance has ended.
            Ok(Err(_)) => Waited::Gone,
            Err(_) => Waited::TimeUp,
        }
    }
}

/// The reply to a request of which nothing was served.
fn unserved(outcome: Outcome) -> Reply {
    let now = Moment::now();
    Reply {
        outcome,
        delivered: false,
        started: now,
        ended: now,
        usage: Usage::default(),
        shared: false,
        services: None,
        extensions: None,
        log_tail: bytes::Bytes::new(),
    }
}
