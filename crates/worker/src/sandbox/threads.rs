//! Threads that live as long as the host, and tasks that live as long as an instance: their end must
//! not go unnoticed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};
use std::{any::Any, io};

use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Why the host can no longer run instances, once it cannot.
#[derive(Debug, Clone)]
pub(super) struct Failure(watch::Sender<Option<String>>);

impl Failure {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Reports a failure; the first is the one that counts.
    pub(super) fn report(&self, sentence: String) {
        self.0.send_if_modified(|failure| {
            let first = failure.is_none();
            if first {
                tracing::error!("{sentence}");
                *failure = Some(sentence);
            }
            first
        });
    }

    /// Resolves with a sentence once something has failed, and never otherwise.
    pub(super) fn reported(&self) -> impl Future<Output = String> + Send + use<> {
        let mut failures = self.0.subscribe();
        let sender = self.clone();
        async move {
            let failure = failures.wait_for(Option::is_some).await;
            let sentence = failure.ok().and_then(|failure| failure.clone());
            // The sender is held until here, so there is a sentence.
            drop(sender);
            sentence.unwrap_or_default()
        }
    }
}

/// Starts a thread that returns when it is asked to end. If it panics, `failure` has a sentence:
/// "the thread that {purpose} has ended: ...".
pub(super) fn start(
    name: &str,
    purpose: &'static str,
    failure: &Failure,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let failure = failure.clone();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Nothing of the thread is used after its panic.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
            let cause = message(&*panic);
            failure.report(format!("the thread that {purpose} has ended: {cause}"));
        }
    })
}

/// Runs a task; if it panics, `on_panic` is called with what it said.
pub(super) fn spawn_task(
    task: impl Future<Output = ()> + Send + 'static,
    on_panic: impl FnOnce(&str) + Send + 'static,
) -> AbortHandle {
    let task = tokio::spawn(task);
    let handle = task.abort_handle();
    tokio::spawn(async move {
        if let Err(error) = task.await
            && let Ok(panic) = error.try_into_panic()
        {
            on_panic(message(&*panic));
        }
    });
    handle
}

/// Runs what waits for the kernel, some time soon, on a thread that nobody needs; outside of a runtime,
/// here and now.
pub(super) fn run_aside(work: impl FnOnce() + Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => work(),
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_that_panics_is_a_failure_and_one_that_returns_is_none() {
        let failure = Failure::new();
        let (end, ended) = std::sync::mpsc::channel();
        start("asked", "returns", &failure, move || end.send(()).unwrap()).unwrap();
        ended.recv().unwrap();
        let reported = failure.reported();
        start("panics", "does nothing", &failure, || panic!("on purpose")).unwrap();
        assert_eq!(reported.await, "the thread that does nothing has ended: on purpose");
        failure.report("another".into());
        assert!(failure.reported().await.ends_with("on purpose"));
    }

    #[tokio::test]
    async fn a_task_that_panics_is_noticed_and_one_that_ends_or_is_aborted_is_not() {
        let (noticed, mut notice) = tokio::sync::mpsc::unbounded_channel();
        let on_panic = |noticed: &tokio::sync::mpsc::UnboundedSender<String>| {
            let noticed = noticed.clone();
            move |cause: &str| noticed.send(cause.to_owned()).unwrap()
        };
        spawn_task(async {}, on_panic(&noticed));
        spawn_task(std::future::pending(), on_panic(&noticed)).abort();
        spawn_task(async { panic!("on purpose") }, on_panic(&noticed));
        drop(noticed);
        assert_eq!(notice.recv().await.as_deref(), Some("on purpose"));
        assert_eq!(notice.recv().await, None);
    }
}
