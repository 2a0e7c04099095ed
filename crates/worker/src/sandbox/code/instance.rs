//! A function that the host of code has loaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use uncia_code::{FUNCTION, Failure, Kind, Order, Report, TIMEOUT_MS};

use super::{ask, command, directions, payload, take_report};
use crate::clock::Moment;
use crate::instance::{Outcome, Reply, Request, Usage};
use crate::sandbox::http_server::Trouble;
use crate::sandbox::live::Instance;

/// The host ends what takes too long, and says what that used; so much later it is given up.
const GRACE: Duration = Duration::from_secs(2);
/// For the host to forget a function.
const UNLOAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Before it is told so again.
const UNLOAD_PAUSE: Duration = Duration::from_secs(1);

/// A function's code in the host; clones are the same.
#[derive(Clone)]
pub struct LoadedCode(Arc<Loaded>);

struct Loaded {
    host: Instance,
    id: String,
    is_unloaded: AtomicBool,
    unloaded: Notify,
}

impl LoadedCode {
    pub(super) fn new(host: Instance, id: String) -> Self {
        let (is_unloaded, unloaded) = (AtomicBool::new(false), Notify::new());
        Self(Arc::new(Loaded { host, id, is_unloaded, unloaded }))
    }

    /// Runs the code for a request, beside others, in an instance that ends with it. What it used is its
    /// own.
    pub async fn invoke(&self, mut request: Request) -> Reply {
        let timeout = request.timeout;
        let limit = timeout.as_millis().to_string();
        request.directions = directions(&[(FUNCTION, &self.0.id), (TIMEOUT_MS, &limit)]);
        request.timeout = timeout + GRACE;
        let called = Moment::now();
        let (mut started, mut ended) = (None, None);
        let answer = ask(&self.0.host, &request, &mut started, &mut ended).await;
        let (outcome, report) = match answer {
            Ok(mut answer) => {
                let mut report = take_report(&mut answer);
                // How code ended, and what it used, is what its host says alone.
                let unknown = || Failure::new(Kind::Unknown, "its host did not say how it ended");
                let failure = match &mut report {
                    Some(report) => report.failure.take(),
                    None => Some(unknown()),
                };
                let outcome = failure.map_or_else(|| Outcome::Answered(Box::new(answer)), failed);
                (outcome, report)
            }
            Err(trouble) => (self.trouble(trouble).await, None),
        };
        let ended = ended.unwrap_or_else(Moment::now);
        let started_at = started.unwrap_or(called);
        Reply {
            outcome,
            delivered: started.is_some(),
            started: started_at,
            ended: started_at.at(ended.monotonic()),
            usage: report.as_ref().map(usage).unwrap_or_default(),
            shared: false,
            services: None,
            extensions: None,
            log_tail: report.map(|report| Bytes::from(report.printed)).unwrap_or_default(),
        }
    }

    async fn trouble(&self, trouble: Trouble) -> Outcome {
        match trouble {
            Trouble::TimeUp => Outcome::GivenUp,
            Trouble::TooLarge(bytes) => Outcome::ResponseTooLarge(bytes),
            Trouble::ClientGone(sentence) => Outcome::ClientGone(sentence.into()),
            Trouble::Gone => self.gone().await,
            other if !self.0.host.inner().ends_soon().await => {
                Outcome::FunctionError(payload(&Failure::new(Kind::Unknown, other.sentence())))
            }
            _ => self.gone().await,
        }
    }

    async fn gone(&self) -> Outcome {
        let how = self.0.host.exited().await;
        Outcome::Exited(format!("the host of code has ended: {how}"))
    }

    /// Has the host forget it: the next start is cold. May be called again.
    pub async fn stop(&self) {
        if self.0.is_unloaded.swap(true, Ordering::SeqCst) {
            return;
        }
        if !self.0.unload().await {
            let loaded = self.0.clone();
            tokio::spawn(async move { loaded.unload_at_last().await });
        }
        self.0.unloaded.notify_waiters();
    }

    /// Resolves when it is unloaded, or the host has ended.
    pub async fn exited(&self) {
        let unloaded = self.0.unloaded.notified();
        if self.0.is_unloaded.load(Ordering::SeqCst) {
            return;
        }
        tokio::select! {
            () = unloaded => {}
            _ = self.0.host.exited() => {}
        }
    }
}

impl Loaded {
    /// Whether the host has forgotten it, or is ending, and with it all that it knows.
    async fn unload(&self) -> bool {
        let id = Some(&*self.id);
        let told = command(&self.host, Order::Unload, id, Bytes::new(), UNLOAD_TIMEOUT).await;
        told.is_ok() || self.host.is_ending()
    }

    /// Repeats it: what a host does not forget, it holds the code of for as long as it runs.
    async fn unload_at_last(&self) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(UNLOAD_PAUSE) => {}
                _ = self.host.exited() => return,
            }
            if self.unload().await {
                return;
            }
        }
    }
}

fn failed(failure: Failure) -> Outcome {
    match failure.kind {
        Kind::Timeout => Outcome::GivenUp,
        _ => Outcome::FunctionError(payload(&failure)),
    }
}

fn usage(report: &Report) -> Usage {
    Usage {
        cpu_user_ns: Some(report.cpu_user_ns),
        cpu_system_ns: Some(report.cpu_system_ns),
        memory_avg: Some(report.memory_avg),
        memory_peak: Some(report.memory_peak),
        // It has no quota, but a limit.
        ..Usage::default()
    }
}
