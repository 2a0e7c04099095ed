//! Spans of invocations, sent to an OpenTelemetry collector (OTLP over HTTP, encoded as JSON).
//!
//! Off unless the environment names a collector ([`Settings`]). A row that is in the log becomes spans
//! ([`span`]) that wait in a bounded queue until a task of its own sends them ([`exporter`]): no answer
//! waits for a collector, and what does not fit is dropped and counted.

mod context;
mod exporter;
mod settings;
mod span;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use tokio::sync::{mpsc, oneshot};
use uncia_clock::Moment;

use crate::meterlog::{EventUpdate, Recorded};
use context::Context;
pub use settings::Settings;

/// Invocations that may wait to be sent.
const QUEUE: usize = 4_096;
/// Requests in flight whose callers' contexts are remembered; of further ones those that came first are
/// forgotten, and their spans begin traces of their own.
const MAX_CONTEXTS: usize = 20_000;

/// An invocation on its way to the collector.
struct Finished {
    recorded: Arc<Recorded>,
    request: Request,
    ended: Moment,
}

/// What is known of a request besides its row.
#[derive(Debug, Clone)]
struct Request {
    context: Context,
    arrived: Moment,
    /// What it came by, in OpenTelemetry's words.
    trigger: &'static str,
}

/// How many invocations went where.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    exported: AtomicU64,
    dropped: AtomicU64,
}

impl Counts {
    /// Invocations whose spans a collector took.
    pub(crate) fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Invocations whose spans are lost.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Makes spans of invocations.
pub(crate) struct Traces {
    requests: Mutex<Requests>,
    queue: mpsc::Sender<Finished>,
    counts: Arc<Counts>,
    stop: Mutex<Option<oneshot::Sender<oneshot::Sender<()>>>>,
}

/// The requests in flight, by id, and their ids from the first to the last.
#[derive(Default)]
struct Requests {
    by_id: HashMap<String, Request>,
    ids: VecDeque<String>,
}

impl Traces {
    /// Starts the task that sends.
    pub(crate) fn start(settings: Settings) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (stop, stopped) = oneshot::channel();
        let counts = Arc::<Counts>::default();
        tokio::spawn(exporter::run(settings, waiting, counts.clone(), stopped));
        Self { requests: Mutex::default(), queue, counts, stop: Mutex::new(Some(stop)) }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Takes over the trace of a request's caller, if it has one.
    pub(crate) fn begin(&self, request_id: &str, headers: &HeaderMap, trigger: &'static str) {
        let request = Request { context: Context::of(headers), arrived: Moment::now(), trigger };
        let mut requests = self.lock();
        if requests.ids.len() == MAX_CONTEXTS
            && let Some(oldest) = requests.ids.pop_front()
        {
            requests.by_id.remove(&oldest);
        }
        requests.ids.push_back(request_id.to_owned());
        requests.by_id.insert(request_id.to_owned(), request);
    }

    /// Has the spans of an invocation sent, if its caller wants them.
    pub(crate) fn end(&self, recorded: &Arc<Recorded>) {
        let ended = Moment::now();
        let request = recorded.row.request_id.as_deref().and_then(|id| {
            let mut requests = self.lock();
            match recorded.event {
                // Another attempt follows.
                Some(EventUpdate::Failed { .. } | EventUpdate::Attempted { .. }) => {
                    requests.by_id.get(id).cloned()
                }
                _ => requests.by_id.remove(id),
            }
        });
        let request = request.unwrap_or_else(|| Request {
            context: Context::new(),
            arrived: ended,
            trigger: "other",
        });
        if !request.context.is_sampled {
            return;
        }
        let finished = Finished { recorded: recorded.clone(), request, ended };
        if self.queue.try_send(finished).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends what waits, for some seconds at most.
    pub(crate) async fn close(&self) {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (done, sent) = oneshot::channel();
        if stop.is_some_and(|stop| stop.send(done).is_ok()) {
            let _ = tokio::time::timeout(exporter::FLUSH_TIMEOUT, sent).await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Requests> {
        // It is whole after every statement but one, and then only forgets a request too late.
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        // Ids of requests that have ended, which are most of them.
        while let Some(id) = requests.ids.front()
            && !requests.by_id.contains_key(id)
        {
            requests.ids.pop_front();
        }
        requests
    }
}
