//! State machines: which there are, and their executions, as AWS Step Functions has them.
//!
//! What an execution does next is decided by the crate `uncia-flow`. Here it gets a clock, functions to
//! invoke ([`Invoke`]) and a place in a database, so that an accepted execution is never gone: one that
//! runs when the platform is killed is marked failed at the next start.

mod execution;
mod history;
mod store;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use uncia_flow::{DefinitionError, Failure, Room, Settings, StateMachine, Status, names};

use crate::clock::unix_ns;
use crate::ids;
use crate::store::DatabaseError;
use execution::Running;
use store::Store;
pub(crate) use store::{Ended, ExecutionRow, Kind, Machine};

/// What the ARNs of state machines begin with.
pub(crate) const MACHINE_ARN: &str = "arn:aws:states:us-east-1:000000000000:stateMachine:";
/// What the ARNs of executions begin with; the machine's name and the execution's follow.
pub(crate) const EXECUTION_ARN: &str = "arn:aws:states:us-east-1:000000000000:execution:";
/// Executions at a time; more are refused.
const MAX_RUNNING: usize = 1_000;
/// Bytes of JSON that all of them hold while they wait.
const MAX_DATA_BYTES: usize = 256 << 20;
/// How long an execution of an express machine may take, in seconds.
const EXPRESS_TIMEOUT_S: u64 = 300;

/// How long until the end of an execution is written again that the disk did not take.
const RETRY: Duration = Duration::from_secs(1);
/// An execution that was accepted runs by then.
const BEGINNING: Duration = Duration::from_secs(1);

/// What the rows of a function that an execution invokes say of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hop {
    /// What caused it.
    pub cause: String,
    /// The state's name.
    pub stage: String,
    /// How many triggers led to it.
    pub generation: u32,
}

/// Invokes a function by name or ARN, as a hop of an execution; the answer is JSON.
pub(crate) type Invoke = Arc<
    dyn Fn(String, Bytes, Hop) -> Pin<Box<dyn Future<Output = Result<Value, Failure>> + Send>>
        + Send
        + Sync,
>;

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MachineError {
    #[error("Invalid State Machine Definition: {0}")]
    Definition(#[from] DefinitionError),
    #[error("State Machine Does Not Exist: '{0}'")]
    NoMachine(String),
    #[error("State Machine Already Exists: '{0}'")]
    MachineExists(String),
    #[error("Execution Does Not Exist: '{0}'")]
    NoExecution(String),
    #[error("Execution Already Exists: '{0}'")]
    ExecutionExists(String),
    #[error("{MAX_RUNNING} executions run already")]
    TooMany,
    #[error(
        "The executions that run hold {} MB of data, and with this one's input they would hold more than the \
         {} MB that there is room for: wait for some to end, or stop them", .0.used() >> 20, .0.most() >> 20
    )]
    NoRoom(Room),
    #[error("This operation is not supported by this type of state machine")]
    WrongKind,
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// The state machines of a platform, and their executions.
pub(crate) struct Machines {
    store: Store,
    invoke: Invoke,
    /// For so many executions more there is room.
    room: Arc<Semaphore>,
    /// For the data of executions.
    data: Room,
    /// By ARN.
    running: Mutex<HashMap<String, Arc<Running>>>,
    /// Bytes of data between states, at most.
    data_limit: usize,
    /// Executions that triggers began and an earlier platform left.
    left: Mutex<Vec<ExecutionRow>>,
}

/// A request for an execution.
pub(crate) struct Start {
    /// The ARN of its machine.
    pub machine: String,
    /// Its name; none: one is made.
    pub name: Option<String>,
    /// JSON.
    pub input: String,
    /// What the client calls the request: the parent of the execution's invocations. None: the
    /// execution's name.
    pub invocation: Option<String>,
    /// How many triggers led to it.
    pub generation: u32,
}

/// An execution that has begun.
pub(crate) struct Begun {
    pub arn: String,
    pub name: String,
    pub started: i64,
    pub ended: oneshot::Receiver<Status>,
}

/// An execution that is in the database and about to begin.
struct Stored {
    machine: Machine,
    definition: StateMachine,
    row: ExecutionRow,
    room: OwnedSemaphorePermit,
}

impl Machines {
    /// Opens the database in the state folder. Executions that an earlier platform left are failed.
    pub(crate) fn open(
        state: &Path,
        data_limit: usize,
        invoke: Invoke,
    ) -> Result<Self, DatabaseError> {
        let store = Store::open(state)?;
        let left = store.cut_off()?;
        let room = Arc::new(Semaphore::new(MAX_RUNNING));
        let data = Room::new(MAX_DATA_BYTES);
        Ok(Self {
            store,
            invoke,
            room,
            data,
            running: Mutex::default(),
            data_limit,
            left: Mutex::new(left),
        })
    }

    /// Executions that triggers began and an earlier platform left, once: they are to be resumed or failed.
    pub(crate) fn take_left(&self) -> Vec<ExecutionRow> {
        std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many executions run.
    pub(crate) fn running(&self) -> usize {
        self.lock().len()
    }

    /// Bytes of data between states, at most.
    pub(crate) fn data_limit(&self) -> usize {
        self.data_limit
    }

    /// Makes a machine; one that is there already with the same definition stays. Blocks for the disk.
    pub(crate) fn create(&self, machine: Machine) -> Result<Machine, MachineError> {
        StateMachine::parse(&machine.definition)?;
        if let Some(present) = self.store.machine(&machine.name)? {
            let is_same = present.definition == machine.definition && present.kind == machine.kind;
            let exists = || MachineError::MachineExists(format!("{MACHINE_ARN}{}", machine.name));
            return if is_same { Ok(present) } else { Err(exists()) };
        }
        self.store.put(&machine)?;
        Ok(machine)
    }

    /// Changes a machine's definition or role. Executions that run go on as they were begun.
    pub(crate) fn update(
        &self,
        arn: &str,
        definition: Option<String>,
        role: Option<String>,
    ) -> Result<(), MachineError> {
        let mut machine = self.find(arn)?;
        if let Some(definition) = definition {
            StateMachine::parse(&definition)?;
            machine.definition = definition;
        }
        machine.role = role.unwrap_or(machine.role);
        Ok(self.store.put(&machine)?)
    }

    /// Removes a machine, if there is one; its executions stay.
    pub(crate) fn delete(&self, arn: &str) -> Result<(), MachineError> {
        Ok(self.store.delete(arn.strip_prefix(MACHINE_ARN).unwrap_or(arn))?)
    }

    /// A machine by its ARN.
    pub(crate) fn find(&self, arn: &str) -> Result<Machine, MachineError> {
        let missing = || MachineError::NoMachine(arn.to_owned());
        let name = arn.strip_prefix(MACHINE_ARN).ok_or_else(missing)?;
        self.store.machine(name)?.ok_or_else(missing)
    }

    /// All machines, by name.
    pub(crate) fn all(&self) -> Result<Vec<Machine>, MachineError> {
        Ok(self.store.machines()?)
    }

    /// Begins an execution that is in the database when this returns. One of the same name that runs with
    /// the same input is that one.
    pub(crate) async fn start(
        self: &Arc<Self>,
        start: Start,
    ) -> Result<(String, i64), MachineError> {
        let machines = self.clone();
        // Whoever asked may go away meanwhile: what is in the database is carried out all the same.
        let begun = tokio::spawn(machines.begin(start)).await;
        begun.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    async fn begin(self: Arc<Self>, start: Start) -> Result<(String, i64), MachineError> {
        let Start { machine, name, input, invocation, generation } = start;
        let stored =
            self.clone().blocking(move |machines| machines.store(&machine, name, input)).await?;
        match stored {
            Ok(stored) => Ok(self.carry_out(stored, (invocation, generation))),
            Err(row) => Ok((row.arn, row.started)),
        }
    }

    /// Carries out an execution from its start that an earlier platform did not end.
    pub(crate) async fn resume(
        self: Arc<Self>,
        row: ExecutionRow,
        cause: (Option<String>, u32),
    ) -> Result<(), MachineError> {
        let arn = format!("{MACHINE_ARN}{}", row.machine);
        let machine = self.clone().blocking(move |machines| machines.find(&arn)).await?;
        let definition = StateMachine::parse(&machine.definition)?;
        let room = self.room(&row.input)?;
        self.carry_out(Stored { machine, definition, row, room }, cause);
        Ok(())
    }

    /// Fails an execution that cannot be resumed.
    pub(crate) async fn fail(self: Arc<Self>, row: ExecutionRow, cause: String) {
        // The disk may be full: then it is tried again at the next start.
        let _ = self.blocking(move |machines| machines.store.fail(&row, cause)).await;
    }

    /// Runs an execution that is in the database; returns its ARN, and since when it runs.
    fn carry_out(self: Arc<Self>, stored: Stored, cause: (Option<String>, u32)) -> (String, i64) {
        let Stored { machine, definition, row, room } = stored;
        let (execution, started) = (row.arn.clone(), row.started);
        let running = Arc::new(Running::new(machine.kind == Kind::Standard));
        self.lock().insert(execution.clone(), running.clone());
        let run = self.run(&machine, definition, row, cause, running.clone());
        let arn = execution.clone();
        tokio::spawn(async move {
            let ended = Arc::new(Ended::of(&end_of(run).await));
            // The disk may be full. Until there is room again it runs on for whoever asks, since it would
            // have failed if the platform ended now.
            while !self.clone().keep_end(&arn, &ended, &running).await {
                tokio::time::sleep(RETRY).await;
            }
            drop(room);
        });
        (execution, started)
    }

    /// Writes how an execution ended, which then runs no more; whether that could be done.
    async fn keep_end(
        self: Arc<Self>,
        arn: &str,
        ended: &Arc<Ended>,
        running: &Arc<Running>,
    ) -> bool {
        let (arn, ended, running) = (arn.to_owned(), ended.clone(), running.clone());
        self.blocking(move |machines| {
            let is_kept = machines.store.end(&arn, &ended, &running.history.to_json()).is_ok();
            if is_kept {
                machines.lock().remove(&arn);
            }
            is_kept
        })
        .await
    }

    /// Puts an execution into the database, if there is room for it; the inner error is the one of the
    /// same name and input that runs.
    fn store(
        &self,
        arn: &str,
        name: Option<String>,
        input: String,
    ) -> Result<Result<Stored, ExecutionRow>, MachineError> {
        let machine = self.find(arn)?;
        let definition = StateMachine::parse(&machine.definition)?;
        let name = name.unwrap_or_else(ids::uuid);
        let row = ExecutionRow {
            arn: format!("{EXECUTION_ARN}{}:{name}", machine.name),
            name,
            machine: machine.name.clone(),
            input,
            started: unix_ns(),
            ended: None,
        };
        let same = |present: ExecutionRow| {
            let is_same = present.ended.is_none() && present.input == row.input;
            if is_same { Ok(Err(present)) } else { Err(MachineError::ExecutionExists(present.arn)) }
        };
        if let Some(present) = self.store.execution(&row.arn)? {
            return same(present);
        }
        let room = self.room(&row.input)?;
        match self.store.begin(&row)? {
            None => Ok(Ok(Stored { machine, definition, row, room })),
            // Somebody was faster.
            Some(present) => same(present),
        }
    }

    /// Begins an execution of an express machine, of which nothing is kept.
    pub(crate) async fn start_sync(self: &Arc<Self>, start: Start) -> Result<Begun, MachineError> {
        let Start { machine: arn, name, input, invocation, generation } = start;
        let machine = self.clone().blocking(move |machines| machines.find(&arn)).await?;
        if machine.kind != Kind::Express {
            return Err(MachineError::WrongKind);
        }
        let definition = StateMachine::parse(&machine.definition)?;
        let room = self.room(&input)?;
        let name = name.unwrap_or_else(ids::uuid);
        // Names of express executions need not be unique.
        let execution = format!("{EXECUTION_ARN}{}:{name}:{}", machine.name, ids::uuid()).replacen(
            ":execution:",
            ":express:",
            1,
        );
        let row = ExecutionRow {
            arn: execution.clone(),
            name: name.clone(),
            machine: machine.name.clone(),
            input,
            started: unix_ns(),
            ended: None,
        };
        let started = row.started;
        let running = Arc::new(Running::new(false));
        self.lock().insert(execution.clone(), running.clone());
        let run = self.run(&machine, definition, row, (invocation, generation), running);
        let (answer, ended) = oneshot::channel();
        let (machines, arn) = (self.clone(), execution.clone());
        tokio::spawn(async move {
            let status = end_of(run).await;
            machines.lock().remove(&arn);
            drop(room);
            // Whoever asked may be gone.
            let _ = answer.send(status);
        });
        Ok(Begun { arn: execution, name, started, ended })
    }

    /// Carries out an execution.
    fn run(
        &self,
        machine: &Machine,
        definition: StateMachine,
        row: ExecutionRow,
        (invocation, generation): (Option<String>, u32),
        running: Arc<Running>,
    ) -> impl Future<Output = Status> + Send + use<> {
        let mut settings = Settings::new(
            &row.arn,
            &row.name,
            &format!("{MACHINE_ARN}{}", machine.name),
            &machine.name,
        );
        settings.data_limit = self.data_limit;
        settings.room = self.data.clone();
        let definition = match machine.kind {
            Kind::Standard => definition,
            Kind::Express => definition.with_timeout(EXPRESS_TIMEOUT_S),
        };
        let invoke = self.invoke.clone();
        async move {
            let ExecutionRow { name, input, .. } = row;
            let cause = (invocation.unwrap_or(name), generation);
            execution::run(definition, settings, input, &running, &cause, &invoke).await
        }
    }

    /// Stops an execution that runs; one that has ended stays as it is. Blocks for the disk.
    pub(crate) fn stop(&self, arn: &str, failure: Failure) -> Result<(), MachineError> {
        let until = Instant::now() + BEGINNING;
        loop {
            if let Some(running) = self.lock().get(arn) {
                running.stop(failure);
                return Ok(());
            }
            // One that has just been accepted is in the database before it runs.
            if self.describe(arn)?.ended.is_some() || Instant::now() > until {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// An execution of a standard machine.
    pub(crate) fn describe(&self, arn: &str) -> Result<ExecutionRow, MachineError> {
        let row = self.store.execution(arn)?;
        row.ok_or_else(|| MachineError::NoExecution(arn.to_owned()))
    }

    /// Executions of a machine, the newest first: at most `most` of those with this status, from the one
    /// with the number `from` on. Their data is left out.
    pub(crate) fn executions(
        &self,
        arn: &str,
        status: Option<&str>,
        from: usize,
        most: usize,
    ) -> Result<Vec<ExecutionRow>, MachineError> {
        let machine = self.find(arn)?;
        Ok(self.store.executions(&machine.name, status, from, most)?)
    }

    /// The history of an execution so far, in the API's form.
    pub(crate) fn history(&self, arn: &str) -> Result<Vec<Value>, MachineError> {
        let row = self.describe(arn)?;
        let running = self.lock().get(arn).cloned();
        match running {
            Some(running) if row.ended.is_none() => Ok(running.history.events()),
            _ => Ok(self.store.history(arn)?),
        }
    }

    /// Room for an execution with this input, until it is dropped.
    fn room(&self, input: &str) -> Result<OwnedSemaphorePermit, MachineError> {
        if !self.data.has(input.len()) {
            return Err(MachineError::NoRoom(self.data.clone()));
        }
        self.room.clone().try_acquire_owned().map_err(|_| MachineError::TooMany)
    }

    /// Does what waits for the disk, on a thread that may.
    async fn blocking<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> T {
        let done = tokio::task::spawn_blocking(move || work(&self)).await;
        done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    /// The map is whole after every statement, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Running>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How an execution ends; one that panics has failed, and not only at the platform's next start.
async fn end_of(run: impl Future<Output = Status> + Send + 'static) -> Status {
    let ended = tokio::spawn(run).await;
    ended.unwrap_or_else(|error| {
        let cause = format!("the platform failed at this execution: {error}");
        Status::Failed(Failure { error: names::RUNTIME.to_owned(), cause })
    })
}
