//! Making what instances share of one that has served for a while.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

use super::kept::Kept;
use super::live::{Inner, Instance};
use super::pieces;
use super::runtime_api::{AnswerKind, Delivered};
use super::shared_state::SharedStates;
use super::terms::Terms;
use crate::instance::{InstanceSpec, Outcome, Request, ShareState};

/// How long it may take, on however busy a machine. The next request waits for it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// So long after an instance has ended, whatever is done with it may fail before that is known.
const NOTICED: Duration = Duration::from_millis(100);

/// The instance of which it is made.
pub(super) struct Recording {
    states: Arc<SharedStates>,
    function: String,
    terms: Terms,
    share_state: ShareState,
    file: &'static str,
    /// After so many invocations.
    after: u32,
    served: AtomicU32,
    /// Held while the instance serves a request, or is asked for what others are to share.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Says that it lives, until it has ended.
    lives: Mutex<Option<Arc<()>>>,
}

impl Recording {
    pub(super) fn new(
        states: Arc<SharedStates>,
        spec: &InstanceSpec,
        terms: Terms,
        lives: Arc<()>,
    ) -> Self {
        Self {
            states,
            function: spec.function.clone(),
            terms,
            share_state: spec.share_state,
            file: spec.runtime.definition().shared_file(spec.share_state).unwrap_or_default(),
            after: spec.share_after,
            served: AtomicU32::new(0),
            turn: Arc::default(),
            lives: Mutex::new(Some(lives)),
        }
    }

    /// The instance has ended: another one may be the next.
    pub(super) fn end(&self) {
        drop(self.lives.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Whether the invocation that has just ended was the last before it is made.
    fn is_due(&self) -> bool {
        self.served.fetch_add(1, Ordering::Relaxed) + 1 == self.after
    }
}

impl Inner {
    /// Waits until nothing is made of the instance, which is kept so as long as what this returns lives.
    pub(super) async fn turn(&self) -> Option<OwnedMutexGuard<()>> {
        let recording = self.recording.as_ref()?;
        Some(recording.turn.clone().lock_owned().await)
    }

    /// [`Self::turn`], or an error if something is made of it now.
    pub(super) fn try_turn(&self) -> io::Result<Option<OwnedMutexGuard<()>>> {
        let turn = |it: &Recording| it.turn.clone().try_lock_owned();
        let turn = self.recording.as_ref().map(turn).transpose();
        let busy = "what instances share is being made of it";
        turn.map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, busy))
    }
}

impl Instance {
    /// Resolves once nothing is made of it, and it can be paused.
    pub async fn free(&self) {
        drop(self.inner().turn().await);
    }

    /// Has what instances share made of this one, if it is the one and it is time: before the next request, which
    /// `turn` keeps out.
    pub(super) fn has_served(&self, turn: Option<OwnedMutexGuard<()>>) {
        let due = self.inner().recording.as_ref().is_some_and(Recording::is_due);
        if !due {
            return;
        }
        let instance = self.clone();
        tokio::spawn(async move {
            let inner = instance.inner();
            let Some(recording) = &inner.recording else { return };
            let deadline = Instant::now() + TIMEOUT;
            let mut made = tokio::select! {
                biased;
                made = instance.make(recording, deadline) => made,
                end = inner.gone() => Err(end.description),
            };
            let is_late = made.is_err() && Instant::now() >= deadline;
            if is_late && recording.share_state != ShareState::Warm {
                // Its client is still at work on it, and would take no request.
                inner.kill();
                made = Err(format!("it took longer than {} s", TIMEOUT.as_secs()));
            }
            // What went wrong may have followed from its end.
            let is_lost = made.is_err() && !is_late && inner.ends_within(NOTICED).await;
            let lost = if is_lost { Some(inner.gone().await.description) } else { None };
            let (states, function) = (recording.states.clone(), recording.function.clone());
            let terms = recording.terms.clone();
            let note = move || match lost {
                Some(how) => states.lost(&function, &terms, &how),
                None => states.keep(&function, &terms, made),
            };
            let _ = tokio::task::spawn_blocking(note).await;
            drop(turn);
        });
    }

    async fn make(&self, recording: &Recording, deadline: Instant) -> Result<Kept, String> {
        let text = |error: io::Error| error.to_string();
        let place = recording.states.place().map_err(text)?;
        if recording.share_state == ShareState::Warm {
            return self.checkpoint(place, true, deadline).await;
        }
        let path = place.path().join(recording.file);
        let order = Some(recording.share_state.name());
        let ask = |request: Request| {
            let instance = self.clone();
            async move { instance.ask(&request, deadline).await }
        };
        pieces::take(&path, order, deadline, ask).await.map_err(text)?;
        tokio::task::spawn_blocking(move || place.keep(None)).await.map_err(|it| it.to_string())?
    }

    /// Has the runtime's client do what is no invocation: it is in no row and in no log.
    async fn ask(&self, request: &Request, deadline: Instant) -> Outcome {
        let api = &self.inner().api;
        let delivered = match timeout_at(deadline, api.deliver(request, &mut None)).await {
            Ok(Ok(delivered)) => delivered,
            Ok(Err(error)) => return Outcome::Exited(error.to_string()),
            Err(_) => return Outcome::Timeout,
        };
        let Delivered { answer, .. } = delivered;
        match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => match answer.kind {
                AnswerKind::Response(bytes) => Outcome::Ok(bytes),
                AnswerKind::Error(error) => Outcome::FunctionError(error),
                AnswerKind::TooLarge(size) => Outcome::ResponseTooLarge(size),
                AnswerKind::Passed => Outcome::Passed,
            },
            Ok(Err(_)) => Outcome::Exited("the Runtime API is gone".into()),
            Err(_) => Outcome::Timeout,
        }
    }
}
