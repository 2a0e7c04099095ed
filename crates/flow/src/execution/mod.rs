//! Executions: what happened goes in, what is to be done comes out.

mod branch;
mod children;
mod data;
mod history;
mod steps;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use crate::definition::StateMachine;
use crate::error::{Failure, names};
use crate::size::{MAX_DEPTH, is_deeper, size};
use crate::{Nanos, retry};
use branch::{Branch, Pending};
pub use history::History;
use steps::Step;
pub use stored::Room;
use stored::Stored;

/// A function's invocation within an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// A timer of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(pub u64);

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The execution is to begin; the first event, and once.
    Started {
        /// Its input.
        input: Value,
    },
    /// A function has answered.
    Succeeded {
        /// Which invocation.
        task: TaskId,
        /// Its answer.
        output: Value,
    },
    /// A function has failed, or could not be invoked.
    Failed {
        /// Which invocation.
        task: TaskId,
        /// Why.
        failure: Failure,
    },
    /// A timer's time has come.
    Due {
        /// Which.
        timer: TimerId,
    },
    /// Nothing; it follows [`Decision::Continue`].
    Continued,
    /// Somebody stops the execution.
    Stopped {
        /// Why, in their words.
        failure: Failure,
    },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// A function is to be invoked; [`Event::Succeeded`] or [`Event::Failed`] is to follow.
    Invoke {
        /// Names the invocation.
        task: TaskId,
        /// The function's name or ARN.
        function: String,
        /// What it is given.
        payload: Value,
        /// The name of the state that it is the task of.
        state: String,
    },
    /// The answer of an invocation is no longer wanted.
    Cancel {
        /// Which.
        task: TaskId,
    },
    /// [`Event::Due`] is to follow at this time.
    SetTimer {
        /// Names the timer.
        timer: TimerId,
        /// When it is due.
        at: Nanos,
    },
    /// A timer is no longer wanted.
    CancelTimer {
        /// Which.
        timer: TimerId,
    },
    /// There is more to do at once than one event may: [`Event::Continued`] is to follow, after other
    /// events that have come meanwhile.
    Continue,
    /// The history goes on.
    Record(History),
    /// The execution has ended; the last decision.
    Ended(Status),
}

/// How an execution ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Status {
    /// With this output.
    Succeeded(Arc<Value>),
    /// A state failed, and nothing caught it.
    Failed(Failure),
    /// It took longer than its definition allows.
    TimedOut(Failure),
    /// It was stopped.
    Aborted(Failure),
}

/// What an execution is called, and its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The execution's ARN.
    pub id: String,
    /// The execution's name.
    pub name: String,
    /// The state machine's ARN.
    pub machine_id: String,
    /// The state machine's name.
    pub machine_name: String,
    /// Most bytes of a state's input, result or output, as JSON.
    pub data_limit: usize,
    /// Most events of its history; an execution that would have more fails.
    pub max_events: u64,
    /// Most items that a map state works on at a time, whatever its definition says.
    pub map_concurrency: usize,
    /// Room for its data while it waits, which others share; of a full one, whoever's data grows fails.
    pub room: Room,
}

/// Most steps that follow one event, a few for each state: whoever carries out an execution does so for
/// others, too, and what is decided takes memory until it is carried out.
const MAX_STEPS: usize = 16;

impl Settings {
    /// The bounds of AWS Step Functions: 262,144 bytes, 25,000 events, 40 items.
    #[must_use]
    pub fn new(id: &str, name: &str, machine_id: &str, machine_name: &str) -> Self {
        Self {
            id: id.to_owned(),
            name: name.to_owned(),
            machine_id: machine_id.to_owned(),
            machine_name: machine_name.to_owned(),
            data_limit: 262_144,
            max_events: 25_000,
            map_concurrency: 40,
            room: Room::new(usize::MAX),
        }
    }
}

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The whole execution must have ended by then.
    Deadline,
    /// A task must have answered by then.
    Timeout(u64),
    /// A state has waited.
    Wait(u64),
    /// A state is tried again.
    Retry(u64),
}

/// An execution of a state machine.
#[derive(Debug)]
pub struct Execution {
    machine: StateMachine,
    settings: Settings,
    /// None before it has begun.
    input: Option<Stored>,
    started: Nanos,
    branches: BTreeMap<u64, Branch>,
    tasks: BTreeMap<TaskId, u64>,
    timers: BTreeMap<TimerId, Purpose>,
    /// The number of branches, tasks and timers so far: each has a name of its own.
    named: u64,
    recorded: u64,
    /// What is left to do when an event had more steps than it may have.
    steps: VecDeque<Step>,
    status: Option<Status>,
}

impl Execution {
    /// An execution that has not begun; [`Event::Started`] begins it.
    #[must_use]
    pub fn new(machine: StateMachine, settings: Settings) -> Self {
        Self {
            machine,
            settings,
            input: None,
            started: 0,
            branches: BTreeMap::new(),
            tasks: BTreeMap::new(),
            timers: BTreeMap::new(),
            named: 0,
            recorded: 0,
            steps: VecDeque::new(),
            status: None,
        }
    }

    /// How it ended; None while it has not.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// Takes note of what happened at `now`, and appends what is to be done to `out`. What comes too late
    /// (the answer to a cancelled invocation, anything after the end) changes nothing.
    pub fn on_event(&mut self, now: Nanos, event: Event, out: &mut Vec<Decision>) {
        if self.status.is_some() {
            return;
        }
        let held = self.settings.room.used();
        self.take_turn(now, event, out);
        let room = &self.settings.room;
        if self.status.is_none() && room.used() > held && !room.has(0) {
            let cause = format!(
                "the executions that run hold {} bytes of data, and there is room for {}",
                room.used(),
                room.most()
            );
            let mut turn = Turn { now, out, steps: VecDeque::new() };
            self.end(&mut turn, Status::Failed(Failure::runtime(cause)));
        }
    }

    fn take_turn(&mut self, now: Nanos, event: Event, out: &mut Vec<Decision>) {
        let mut turn = Turn { now, out, steps: std::mem::take(&mut self.steps) };
        match event {
            Event::Started { input } => self.start(&mut turn, input),
            Event::Succeeded { task, output } => self.succeeded(&mut turn, task, output),
            Event::Failed { task, failure } => self.failed(&mut turn, task, failure),
            Event::Due { timer } => self.due(&mut turn, timer),
            Event::Continued => {}
            Event::Stopped { failure } => self.end(&mut turn, Status::Aborted(failure)),
        }
        for _ in 0..MAX_STEPS {
            if self.status.is_some() {
                return;
            }
            let Some(step) = turn.steps.pop_front() else { return };
            if self.recorded >= self.settings.max_events {
                let cause = format!(
                    "the execution reached the most events that its history may have, {}",
                    self.settings.max_events
                );
                self.end(&mut turn, Status::Failed(Failure::runtime(cause)));
                return;
            }
            self.step(&mut turn, step);
        }
        if self.status.is_none() && !turn.steps.is_empty() {
            self.steps = turn.steps;
            turn.out.push(Decision::Continue);
        }
    }

    fn start(&mut self, turn: &mut Turn<'_>, input: Value) {
        if self.recorded > 0 {
            return;
        }
        self.started = turn.now;
        let input = Arc::new(input);
        let event = History::new("ExecutionStarted").data(&input);
        let first = self.record(turn, 0, event);
        if let Some(seconds) = self.machine.timeout_s {
            self.set_timer(turn, turn.now + nanoseconds(seconds), Purpose::Deadline);
        }
        if let Err(failure) = self.check_size(&input, "the execution's input") {
            self.end(turn, Status::Failed(failure));
            return;
        }
        let (machine, input) = (0, self.stored(&input));
        self.input = Some(input.clone());
        let branch = Branch::new(machine, self.machine.machines[machine].start, input, None, first);
        self.add_branch(turn, branch);
    }

    fn succeeded(&mut self, turn: &mut Turn<'_>, task: TaskId, output: Value) {
        let Some(name) = self.take_task(turn, task) else { return };
        let output = Arc::new(output);
        self.record_of(turn, name, History::new("LambdaFunctionSucceeded").data(&output));
        let result = match self.check_size(&output, "the function's answer") {
            Ok(()) => output,
            Err(failure) => {
                turn.steps.push_back(Step::Fail { branch: name, failure, is_branch: false });
                return;
            }
        };
        turn.steps.push_back(Step::Answer { branch: name, result });
    }

    fn failed(&mut self, turn: &mut Turn<'_>, task: TaskId, failure: Failure) {
        let Some(name) = self.take_task(turn, task) else { return };
        self.record_of(turn, name, History::new("LambdaFunctionFailed").failure(&failure));
        turn.steps.push_back(Step::Fail { branch: name, failure, is_branch: false });
    }

    /// Forgets a task and its timer; returns the branch that waited for it, if it still does.
    fn take_task(&mut self, turn: &mut Turn<'_>, task: TaskId) -> Option<u64> {
        let name = self.tasks.remove(&task)?;
        let branch = self.branches.get_mut(&name)?;
        if let Pending::Task { timer: Some(timer), .. } =
            std::mem::replace(&mut branch.pending, Pending::Nothing)
        {
            self.cancel_timer(turn, timer);
        }
        Some(name)
    }

    fn due(&mut self, turn: &mut Turn<'_>, timer: TimerId) {
        let Some(purpose) = self.timers.remove(&timer) else { return };
        match purpose {
            Purpose::Deadline => {
                let cause = "the execution took longer than its TimeoutSeconds".to_owned();
                let failure = Failure { error: names::TIMEOUT.to_owned(), cause };
                self.end(turn, Status::TimedOut(failure));
            }
            Purpose::Timeout(name) => {
                let Some(branch) = self.branches.get_mut(&name) else { return };
                let pending = std::mem::replace(&mut branch.pending, Pending::Nothing);
                let Pending::Task { task, .. } = pending else { return };
                self.tasks.remove(&task);
                turn.out.push(Decision::Cancel { task });
                let failure =
                    Failure::new(names::TIMEOUT, "the function took longer than its timeout");
                self.record_of(
                    turn,
                    name,
                    History::new("LambdaFunctionTimedOut").failure(&failure),
                );
                turn.steps.push_back(Step::Fail { branch: name, failure, is_branch: false });
            }
            Purpose::Wait(name) => {
                // It is its state's input that goes on.
                let result = Arc::default();
                self.resume(turn, name, |branch| Step::Finish { branch, result });
            }
            Purpose::Retry(name) => self.resume(turn, name, |branch| Step::Run { branch }),
        }
    }

    /// Goes on with a branch whose timer was due.
    fn resume(&mut self, turn: &mut Turn<'_>, name: u64, step: impl FnOnce(u64) -> Step) {
        if let Some(branch) = self.branches.get_mut(&name) {
            branch.pending = Pending::Nothing;
            turn.steps.push_back(step(name));
        }
    }

    /// Ends the execution, whatever still goes on.
    fn end(&mut self, turn: &mut Turn<'_>, status: Status) {
        for task in std::mem::take(&mut self.tasks).into_keys() {
            turn.out.push(Decision::Cancel { task });
        }
        for timer in std::mem::take(&mut self.timers).into_keys() {
            turn.out.push(Decision::CancelTimer { timer });
        }
        self.branches.clear();
        self.input = None;
        self.steps.clear();
        let event = match &status {
            Status::Succeeded(output) => History::new("ExecutionSucceeded").data(output),
            Status::Failed(failure) => History::new("ExecutionFailed").failure(failure),
            Status::TimedOut(failure) => History::new("ExecutionTimedOut").failure(failure),
            Status::Aborted(failure) => History::new("ExecutionAborted").failure(failure),
        };
        self.record(turn, self.recorded, event);
        self.status = Some(status.clone());
        turn.out.push(Decision::Ended(status));
    }

    fn add_branch(&mut self, turn: &mut Turn<'_>, branch: Branch) -> u64 {
        let name = self.name();
        self.branches.insert(name, branch);
        turn.steps.push_back(Step::Enter { branch: name });
        name
    }

    /// Removes a branch and all below it, with what they wait for.
    fn remove_branch(&mut self, turn: &mut Turn<'_>, name: u64) {
        let Some(branch) = self.branches.remove(&name) else { return };
        match branch.pending {
            Pending::Nothing => {}
            Pending::Task { task, timer } => {
                self.tasks.remove(&task);
                turn.out.push(Decision::Cancel { task });
                if let Some(timer) = timer {
                    self.cancel_timer(turn, timer);
                }
            }
            Pending::Timer(timer) => self.cancel_timer(turn, timer),
            Pending::Children(children) => {
                for child in children.running {
                    self.remove_branch(turn, child);
                }
            }
        }
    }

    fn set_timer(&mut self, turn: &mut Turn<'_>, at: Nanos, purpose: Purpose) -> TimerId {
        let timer = TimerId(self.name());
        self.timers.insert(timer, purpose);
        turn.out.push(Decision::SetTimer { timer, at });
        timer
    }

    fn cancel_timer(&mut self, turn: &mut Turn<'_>, timer: TimerId) {
        if self.timers.remove(&timer).is_some() {
            turn.out.push(Decision::CancelTimer { timer });
        }
    }

    fn name(&mut self) -> u64 {
        self.named += 1;
        self.named
    }

    /// Appends to the history; returns the event's number.
    fn record(&mut self, turn: &mut Turn<'_>, previous: u64, event: History) -> u64 {
        self.recorded += 1;
        let event = History { id: self.recorded, previous, time: turn.now, ..event };
        turn.out.push(Decision::Record(event));
        self.recorded
    }

    /// Appends to the history of a branch.
    fn record_of(&mut self, turn: &mut Turn<'_>, name: u64, event: History) {
        let previous = self.branches.get(&name).map_or(0, |branch| branch.previous);
        let id = self.record(turn, previous, event);
        if let Some(branch) = self.branches.get_mut(&name) {
            branch.previous = id;
        }
    }

    /// A value as it is held while nothing is done with it.
    fn stored(&self, value: &Value) -> Stored {
        Stored::new(&self.settings.room, value)
    }

    /// Checks that data is within the limit, and not too deep.
    fn check_size(&self, value: &Value, what: &str) -> Result<(), Failure> {
        if is_deeper(value, MAX_DEPTH) {
            let cause = format!("{what} has more than {MAX_DEPTH} lists and objects in each other");
            return Err(Failure::new(names::DATA_LIMIT, cause));
        }
        self.check_bytes(size(value), what)
    }

    fn check_bytes(&self, bytes: usize, what: &str) -> Result<(), Failure> {
        let limit = self.settings.data_limit;
        if bytes <= limit {
            return Ok(());
        }
        let cause = format!("{what} has {bytes} bytes as JSON, and the limit is {limit}");
        Err(Failure::new(names::DATA_LIMIT, cause))
    }
}

/// An event's turn: the time, what is decided, and what is left to do.
struct Turn<'a> {
    now: Nanos,
    out: &'a mut Vec<Decision>,
    steps: VecDeque<Step>,
}

fn nanoseconds(seconds: u64) -> Nanos {
    Nanos::from(seconds) * 1_000_000_000
}

/// What a catcher's state gets: its input with the error in it.
fn caught(failure: &Failure) -> Value {
    retry::output(&failure.error, &failure.cause)
}
