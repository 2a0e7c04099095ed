//! The HTTP server architecture: an instance serves HTTP at a port, as Cloud Run has it, several requests
//! at a time.
//!
//! | module | concern |
//! |---|---|
//! | [`connection`] | connections to the server, inside the instance's network |
//! | [`exchange`] | one request and its answer |
//! | [`headers`] | which headers pass |
//! | [`passing`] | answers that pass piece by piece, and websockets |
//! | [`ready`] | waiting until the server listens |

mod connection;
mod exchange;
mod headers;
mod passing;
mod ready;

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::live::{Guard, Inner};
use super::wire::InitConfig;
use crate::clock::Moment;
use crate::instance::{Outcome, Reply, Request};
use connection::Idle;
pub(super) use exchange::Trouble;

/// The port of a server in a network of its own: Cloud Run's default.
const PORT: u16 = 8080;

/// The variable that names the port to the server.
const PORT_VARIABLE: &str = "PORT";

/// The HTTP server of one instance.
pub(super) struct Server {
    port: u16,
    /// Connections that wait for a request, the last used last.
    idle: Mutex<Vec<Idle>>,
    /// Whether it has answered a request, in HTTP.
    has_answered: AtomicBool,
    /// Requests in flight.
    in_flight: AtomicUsize,
    /// Whether the worker left a request to it that it had not answered: it may be at work on that still.
    has_abandoned: AtomicBool,
}

/// Counts a request as long as it is in flight.
struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    /// The server that an instance is to have.
    pub(super) fn new(own_network: bool) -> io::Result<Self> {
        let port = if own_network {
            PORT
        } else {
            // Others share the port numbers: one that is free now. If somebody takes it meanwhile, the
            // server fails to listen, and says so.
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port()
        };
        Ok(Self {
            port,
            idle: Mutex::default(),
            has_answered: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            has_abandoned: AtomicBool::new(false),
        })
    }

    /// Tells the server its port.
    pub(super) fn announce(&self, config: &mut InitConfig) {
        config.environment.retain(|(name, _)| name != PORT_VARIABLE);
        config.environment.push((PORT_VARIABLE.into(), self.port.to_string()));
    }

    /// Whether one request that it has not answered in HTTP says nothing of the others: it has answered
    /// before, or may be answering others now.
    fn is_sound(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed) || self.in_flight.load(Ordering::Relaxed) > 1
    }
}

/// Has the server answer a request, beside others. If the time is up, the request is given up and the
/// instance goes on; on any outcome that it does not survive, nothing of it is left when this returns.
pub(super) async fn invoke(inner: &Arc<Inner>, server: &Server, request: Request) -> Reply {
    let guard = Guard::new(inner);
    let _in_flight = InFlight::begin(&server.in_flight);
    let part = inner.meter.join(|| begin(inner)).await;
    let passed = inner.traffic.read();
    let is_beside_abandoned = server.has_abandoned.load(Ordering::Relaxed);
    let served = inner.api.serves(&request.invocation);
    let called = Moment::now();
    let (mut started, mut ended) = (None, None);
    let answer = tokio::select! {
        biased;
        // First, since an instance that is gone may have answered.
        answer = server.exchange(inner, &request, served.token(), &mut started, &mut ended) => answer,
        _ = inner.gone() => Err(Trouble::Gone),
    };
    if matches!(answer, Err(Trouble::TimeUp | Trouble::ClientGone(_))) {
        server.has_abandoned.store(true, Ordering::Relaxed);
    }
    let outcome = match answer {
        Ok(answer) => {
            server.has_answered.store(true, Ordering::Relaxed);
            Outcome::Answered(Box::new(answer))
        }
        Err(Trouble::TooLarge(bytes)) => Outcome::ResponseTooLarge(bytes),
        Err(Trouble::TimeUp) => Outcome::GivenUp,
        Err(Trouble::Unanswered(sentence)) => {
            Outcome::FunctionError(failure("Server.Unanswered", &sentence))
        }
        Err(Trouble::ClientGone(sentence)) => Outcome::ClientGone(sentence.into()),
        Err(Trouble::Gone) => ended_by_itself(inner).await,
        // An answer that failed half-way is no reason to end those beside it.
        Err(Trouble::BrokenOff(sentence)) => {
            if inner.ends_soon().await {
                ended_by_itself(inner).await
            } else {
                Outcome::FunctionError(failure("Server.BrokenOff", &sentence))
            }
        }
        Err(Trouble::NotHttp(sentence)) => {
            if inner.ends_soon().await {
                ended_by_itself(inner).await
            } else if server.is_sound() {
                Outcome::FunctionError(failure("Server.NotHttp", &sentence))
            } else {
                inner.kill();
                inner.gone().await;
                Outcome::NotHttp(sentence)
            }
        }
        Err(Trouble::Deaf(sentence)) => {
            if inner.ends_soon().await {
                ended_by_itself(inner).await
            } else {
                inner.kill();
                inner.gone().await;
                Outcome::NotHttp(sentence)
            }
        }
    };
    drop(served);
    let ended = ended.unwrap_or_else(Moment::now);
    let services = inner.traffic.since(&passed);
    let (usage, shared) = inner.meter.leave(part, || inner.rest()).await;
    let started_at = started.unwrap_or(called);
    let reply = Reply {
        extensions: None,
        outcome,
        delivered: started.is_some(),
        started: started_at,
        ended: started_at.at(ended.monotonic()),
        usage,
        shared,
        // What several had together is no single one's.
        services: services.filter(|_| !shared && !is_beside_abandoned),
        log_tail: inner.log.tail(),
    };
    guard.release();
    reply
}

/// The instance begins to serve.
fn begin(inner: &Inner) {
    inner.log.begin();
    if let Some(watched) = &inner.watched {
        watched.begin();
    }
}

/// Why an instance that is gone has ended.
async fn ended_by_itself(inner: &Inner) -> Outcome {
    let end = inner.gone().await;
    if end.killed && inner.meter.out_of_memory() {
        Outcome::OutOfMemory
    } else {
        Outcome::Exited(end.description)
    }
}

/// What Invoke answers where the server has not.
fn failure(kind: &str, sentence: &str) -> bytes::Bytes {
    let error = serde_json::json!({"errorType": kind, "errorMessage": sentence});
    error.to_string().into()
}
