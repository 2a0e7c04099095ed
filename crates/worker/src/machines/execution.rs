//! Carries out one execution: timers by the clock, functions by [`Invoke`].

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use uncia_flow::{
    Decision, Event, Execution, Failure, Nanos, Settings, StateMachine, Status, TaskId, TimerId,
};

use super::history::Log;
use super::{Hop, Invoke};
use crate::clock::Moment;

/// An execution that runs.
pub(super) struct Running {
    pub(super) history: Log,
    stop: watch::Sender<Option<Failure>>,
}

impl Running {
    /// `keeps_history`: whether its history is kept, or forgotten as it comes.
    pub(super) fn new(keeps_history: bool) -> Self {
        Self { history: Log::new(keeps_history), stop: watch::Sender::new(None) }
    }

    /// Asks the execution to end; the first who asks says why.
    pub(super) fn stop(&self, failure: Failure) {
        self.stop.send_if_modified(|stop| {
            let is_first = stop.is_none();
            stop.get_or_insert(failure);
            is_first
        });
    }
}

/// What is outstanding of an execution.
#[derive(Default)]
struct Outstanding {
    timers: BTreeSet<(Nanos, TimerId)>,
    /// When each of them is due.
    times: HashMap<TimerId, Nanos>,
    tasks: HashMap<TaskId, AbortHandle>,
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        for task in self.tasks.values() {
            task.abort();
        }
    }
}

/// Runs an execution to its end; `cause` is the parent of its invocations, with how many triggers
/// led to it. Functions that are no longer waited for run to theirs, as on Lambda.
pub(super) async fn run(
    machine: StateMachine,
    settings: Settings,
    input: String,
    running: &Running,
    (cause, generation): &(String, u32),
    invoke: &Invoke,
) -> Status {
    let mut execution = Execution::new(machine, settings);
    let mut outstanding = Outstanding::default();
    let (answers, mut answered) = mpsc::unbounded_channel();
    let mut stop = running.stop.subscribe();
    // From one reading of both clocks, so that a step of the clock shortens and lengthens no wait.
    let begun = Moment::exact();
    let now = || Nanos::from(begun.at(crate::clock::monotonic_ns()).unix());
    let read = serde_json::from_str(&input);
    // It is held as long as the execution runs, once.
    drop(input);
    let mut event = match read {
        Ok(input) => Event::Started { input },
        Err(error) => return Status::Failed(invalid_input(&error)),
    };
    loop {
        let mut decisions = Vec::new();
        let mut goes_on = false;
        execution.on_event(now(), event, &mut decisions);
        for decision in decisions {
            match decision {
                Decision::Invoke { task, function, payload, state } => {
                    let hop = Hop { cause: cause.clone(), stage: state, generation: *generation };
                    let answer = invoke(function, Bytes::from(payload.to_string()), hop);
                    let mut answers = Answers { task: Some(task), answers: answers.clone() };
                    let handle = tokio::spawn(async move { answers.give(answer.await) });
                    outstanding.tasks.insert(task, handle.abort_handle());
                }
                Decision::Cancel { task } => {
                    if let Some(handle) = outstanding.tasks.remove(&task) {
                        handle.abort();
                    }
                }
                Decision::SetTimer { timer, at } => {
                    outstanding.timers.insert((at, timer));
                    outstanding.times.insert(timer, at);
                }
                Decision::CancelTimer { timer } => {
                    if let Some(at) = outstanding.times.remove(&timer) {
                        outstanding.timers.remove(&(at, timer));
                    }
                }
                Decision::Continue => goes_on = true,
                Decision::Record(event) => running.history.add(event),
                Decision::Ended(status) => return status,
            }
        }
        if goes_on {
            // It may go on for long, on the thread of all requests.
            tokio::task::yield_now().await;
        }
        let due = outstanding.timers.first().copied();
        event = tokio::select! {
            biased;
            failure = stopped(&mut stop) => Event::Stopped { failure },
            timer = sleep_until(due, now) => {
                outstanding.timers.remove(&timer);
                outstanding.times.remove(&timer.1);
                Event::Due { timer: timer.1 }
            }
            Some((task, answer)) = answered.recv() => {
                outstanding.tasks.remove(&task);
                match answer {
                    Ok(output) => Event::Succeeded { task, output },
                    Err(failure) => Event::Failed { task, failure },
                }
            }
            () = std::future::ready(()), if goes_on => Event::Continued,
        };
    }
}

/// Takes the answer of an invocation; it has failed if there is none in the end, as after a panic.
struct Answers {
    task: Option<TaskId>,
    answers: mpsc::UnboundedSender<(TaskId, Result<Value, Failure>)>,
}

impl Answers {
    fn give(&mut self, answer: Result<Value, Failure>) {
        if let Some(task) = self.task.take() {
            // Whoever waits may have ended.
            let _ = self.answers.send((task, answer));
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        let cause = "the platform failed at this invocation".to_owned();
        self.give(Err(Failure { error: uncia_flow::names::RUNTIME.to_owned(), cause }));
    }
}

/// Resolves when the timer is due; never without one.
async fn sleep_until(due: Option<(Nanos, TimerId)>, now: impl Fn() -> Nanos) -> (Nanos, TimerId) {
    let Some(due) = due else { return std::future::pending().await };
    loop {
        let left = due.0 - now();
        if left <= 0 {
            return due;
        }
        // Centuries are more than a duration in ns may be; after as many it looks again.
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        tokio::time::sleep(Duration::from_nanos(left)).await;
    }
}

/// Resolves when somebody stops the execution.
async fn stopped(stop: &mut watch::Receiver<Option<Failure>>) -> Failure {
    let asked = stop.wait_for(Option::is_some).await.ok().and_then(|stop| stop.clone());
    match asked {
        Some(failure) => failure,
        None => std::future::pending().await,
    }
}

fn invalid_input(error: &serde_json::Error) -> Failure {
    Failure {
        error: uncia_flow::names::RUNTIME.to_owned(),
        cause: format!("the input is no JSON: {error}"),
    }
}

/// A value as text, as the API hands it out.
pub(super) fn text(value: &Value) -> String {
    value.to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    async fn begin(definition: &str, running: &Running) -> Status {
        let machine = StateMachine::parse(definition).unwrap();
        let settings = Settings::new("arn:e", "e", "arn:m", "m");
        let invoke: Invoke = Arc::new(|_, _, _| Box::pin(std::future::pending()));
        run(machine, settings, "{}".to_owned(), running, &("e".to_owned(), 0), &invoke).await
    }

    #[tokio::test(start_paused = true)]
    async fn waits_of_centuries_do_not_end_at_once() {
        for wait in [r#""Timestamp": "9000-01-01T00:00:00Z""#, r#""Seconds": 100000000000"#] {
            let definition = format!(
                r#"{{"StartAt": "W", "States": {{"W": {{"Type": "Wait", {wait}, "End": true}}}}}}"#
            );
            let running = Running::new(true);
            let waits = begin(&definition, &running);
            let waited = tokio::time::timeout(Duration::from_secs(3_600), waits).await;
            assert!(waited.is_err(), "{wait}: {waited:?}");
        }
    }

    #[tokio::test]
    async fn an_execution_that_never_waits_leaves_room_for_others_and_can_be_stopped() {
        let definition = r#"{"StartAt": "A", "States": {
            "A": {"Type": "Pass", "Next": "B"}, "B": {"Type": "Pass", "Next": "A"}}}"#;
        let running = Running::new(false);
        let failure = Failure { error: "Own".to_owned(), cause: String::new() };
        let (status, ()) = tokio::join!(biased; begin(definition, &running), async {
            running.stop(failure.clone());
        });
        assert_eq!(status, Status::Aborted(failure));
    }
}
