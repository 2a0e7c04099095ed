//! Triggers: a function, or a state machine, is invoked for every change below a prefix of the documents.
//!
//! Each follows the feed of changes by itself and begins what its changes ask for, in their order. How far
//! it has come is written with the event that a change became ([`crate::meterlog`]), so that a worker that
//! was killed goes on behind it: no change is begun twice, and none is left out. An execution of a machine
//! has the change in its name, which there is once.

mod feed;
mod lineage;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use feed::Change;
use feed::{Feed, FeedError};
pub(crate) use lineage::{Lineage, Origin, name};

use crate::api::{Api, begin_change};
use crate::machines::{ExecutionRow, MachineError};
use crate::meterlog::{KeptTrigger, LogError, Passed, TriggerUpdate, WaitingEvent};
use crate::services::Located;

/// The service whose changes are followed.
const SERVICE: &str = "documents";
/// What a trigger led to may lead to it again so often: as Lambda's own detection of loops has it, about.
/// <https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html>
pub(crate) const MAX_GENERATION: u32 = 16;
/// Changes that are read at once.
const PAGE: usize = 100;
/// A read of the feed waits so long for a change.
const WAIT: Duration = Duration::from_secs(5);
/// Before the server is tried again, or what cannot be begun now.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Changes of others that may be passed before that is written down.
const UNWRITTEN: i64 = 1_000;
/// Of a change that was made before this worker began, the writer is looked for in so many rows.
const MOST_ROWS: i64 = 100_000;
/// The longest name of an invocation.
const MAX_NAME: usize = 128;

/// What happens to a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Put,
    Delete,
}

/// What is invoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    /// A function's name or ARN: an event of it.
    Function(String),
    /// A state machine's ARN: an execution of it.
    Machine(String),
}

/// A trigger as it is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Definition {
    /// What the keys of its documents begin with.
    pub prefix: String,
    pub changes: Vec<Kind>,
    pub action: Action,
    /// What the event says beside the change.
    #[serde(default)]
    pub event: Map<String, Value>,
    /// What its invocations' rows call it.
    #[serde(default)]
    pub stage: Option<String>,
}

/// A trigger that follows the feed.
pub(crate) struct Trigger {
    pub name: Arc<str>,
    pub definition: Definition,
    /// Up to where it has come.
    position: AtomicI64,
    /// Changes that were there before it began to follow: their writers' rows are on the disk.
    earlier: AtomicI64,
    begun: AtomicU64,
    stopped: AtomicU64,
    trouble: Mutex<Trouble>,
    stop: watch::Sender<bool>,
    follows: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Trouble {
    /// Why it waits, if it does.
    waits: Option<String>,
    /// What it passed over for good, or read anew, a sentence each.
    passed: Vec<String>,
}

/// Why a change is not begun.
#[derive(Debug)]
pub(crate) enum Hindrance {
    /// It may be later; a sentence if somebody should know.
    Later(Option<String>),
    /// It never will be; a sentence.
    Never(String),
}

/// How a trigger stands.
#[derive(Debug, Serialize)]
pub(crate) struct Standing {
    name: Arc<str>,
    #[serde(flatten)]
    definition: Definition,
    position: i64,
    /// Changes that it began something for, since the platform was started.
    begun: u64,
    /// Changes that it did not, as it had followed on itself too often.
    stopped: u64,
    /// Why it waits, if it does.
    trouble: Option<String>,
}

/// All triggers.
#[derive(Default)]
pub(crate) struct Triggers {
    by_name: Mutex<BTreeMap<Arc<str>, Arc<Trigger>>>,
    pub lineage: Lineage,
}

/// Why the triggers' service cannot be used: a sentence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TriggerError {
    #[error(
        "This platform has no service documents, whose changes a trigger follows. Name its address when the \
         platform is started: `uncia serve --service documents=HOST:PORT`"
    )]
    NoService,
    #[error("The feed of changes cannot be followed: {0}")]
    Feed(String),
    #[error("The trigger was not stored: {0}")]
    Log(#[from] LogError),
}

impl From<FeedError> for TriggerError {
    fn from(error: FeedError) -> Self {
        Self::Feed(error.to_string())
    }
}

impl Triggers {
    /// Goes on with the triggers that an earlier worker had, and knows the events that it left.
    pub(crate) fn resume(api: &Arc<Api>, left: &[WaitingEvent]) -> Result<(), LogError> {
        let kept = api.log.triggers()?;
        if kept.is_empty() {
            return Ok(());
        }
        let triggers = &api.triggers;
        triggers.lineage.remember();
        for event in left {
            let generation = lineage::generation_in(&event.invocation);
            let (parent, request) = (event.parent.as_deref(), &event.request_id);
            triggers.lineage.note(request, &event.invocation, parent, generation);
        }
        for KeptTrigger { name, definition, position } in kept {
            match serde_json::from_str(&definition) {
                Ok(definition) => triggers.follow(api, &name, definition, position),
                Err(error) => tracing::warn!("the trigger {name} cannot be read: {error}"),
            }
        }
        for row in api.machines.take_left() {
            tokio::spawn(resume(api.clone(), row));
        }
        Ok(())
    }

    /// Makes a trigger, or makes it anew. `from`: behind which position it begins; by default where it was,
    /// or behind the newest change.
    pub(crate) async fn put(
        api: &Arc<Api>,
        name: &str,
        definition: Definition,
        from: Option<i64>,
    ) -> Result<Standing, TriggerError> {
        let newest = Feed::connect(service(api)?).await?.newest().await?;
        let triggers = &api.triggers;
        let was = triggers.take(name).await.map(|it| it.position.load(Ordering::Relaxed));
        let position = from.or(was).unwrap_or(newest);
        let text = serde_json::to_string(&definition).expect("it is JSON");
        let kept = KeptTrigger { name: name.to_owned(), definition: text, position };
        api.log.trigger(TriggerUpdate::Put(kept)).await?;
        triggers.lineage.remember();
        triggers.follow(api, name, definition, position);
        let made = triggers.lock().get(name).map(|trigger| trigger.standing());
        Ok(made.expect("it was put there"))
    }

    /// Ends a trigger; false if there is none.
    pub(crate) async fn remove(api: &Arc<Api>, name: &str) -> Result<bool, LogError> {
        let was = api.triggers.take(name).await;
        api.log.trigger(TriggerUpdate::Removed(name.to_owned())).await?;
        Ok(was.is_some())
    }

    /// How all stand, and whether all they have to do is done: nothing is behind, and nothing that was begun
    /// runs.
    pub(crate) async fn standings(api: &Arc<Api>) -> Result<(Vec<Standing>, bool), TriggerError> {
        let all: Vec<_> = api.triggers.lock().values().cloned().collect();
        let standings = all.iter().map(|trigger| trigger.standing()).collect();
        if all.is_empty() {
            return Ok((standings, true));
        }
        let mut feed = Feed::connect(service(api)?).await?;
        let begun = || all.iter().map(|it| it.begun.load(Ordering::SeqCst)).sum::<u64>();
        let (before, newest) = (begun(), feed.newest().await?);
        let is_idle = api.dispatcher.events_waiting() == 0 && api.machines.running() == 0;
        // Of what is begun after this look, something was counted or is behind.
        let is_level = all.iter().all(|it| it.position.load(Ordering::SeqCst) >= newest);
        let is_same = feed.newest().await? == newest && begun() == before;
        Ok((standings, is_idle && is_level && is_same))
    }

    /// What readers of results must know, a sentence each.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let all: Vec<_> = self.lock().values().cloned().collect();
        let mut warnings = Vec::new();
        for trigger in all {
            let trouble = trigger.lock();
            let name = &trigger.name;
            warnings
                .extend(trouble.waits.iter().map(|why| format!("the trigger {name} waits: {why}")));
            warnings.extend(trouble.passed.iter().cloned());
        }
        warnings
    }

    /// Lets nothing begin any more.
    pub(crate) async fn close(&self) {
        let all: Vec<_> = self.lock().values().cloned().collect();
        for trigger in all {
            trigger.end().await;
        }
    }

    /// Takes out a trigger, which has ended when this returns.
    async fn take(&self, name: &str) -> Option<Arc<Trigger>> {
        let trigger = self.lock().remove(name)?;
        trigger.end().await;
        Some(trigger)
    }

    fn follow(&self, api: &Arc<Api>, name: &str, definition: Definition, position: i64) {
        let trigger = Arc::new(Trigger {
            name: Arc::from(name),
            definition,
            position: AtomicI64::new(position),
            earlier: AtomicI64::new(0),
            begun: AtomicU64::new(0),
            stopped: AtomicU64::new(0),
            trouble: Mutex::default(),
            stop: watch::Sender::new(false),
            follows: Mutex::default(),
        });
        let follows = tokio::spawn(follow(api.clone(), trigger.clone()));
        *trigger.follows.lock().unwrap_or_else(PoisonError::into_inner) = Some(follows);
        self.lock().insert(trigger.name.clone(), trigger);
    }

    /// The map is whole after every statement, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Trigger>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trigger {
    fn standing(&self) -> Standing {
        Standing {
            name: self.name.clone(),
            definition: self.definition.clone(),
            position: self.position.load(Ordering::Relaxed),
            begun: self.begun.load(Ordering::Relaxed),
            stopped: self.stopped.load(Ordering::Relaxed),
            trouble: self.lock().waits.clone(),
        }
    }

    /// Stops it, and returns when it has begun its last change.
    async fn end(&self) {
        self.stop.send_replace(true);
        let follows = self.follows.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(follows) = follows {
            let _ = follows.await;
        }
    }

    /// Where a change leaves it.
    pub(crate) fn passed(&self, change: &Change) -> Passed {
        Passed { trigger: self.name.clone(), position: change.position }
    }

    fn concerns(&self, change: &Change) -> bool {
        let kind = if change.kind == "delete" { Kind::Delete } else { Kind::Put };
        change.key.starts_with(&self.definition.prefix) && self.definition.changes.contains(&kind)
    }

    fn wait_for(&self, why: Option<String>) {
        self.lock().waits = why;
    }

    fn note(&self, sentence: String) {
        let mut trouble = self.lock();
        // One of a kind tells: a loop or a broken change comes again and again.
        if trouble.passed.is_empty() {
            trouble.passed.push(sentence);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the feed until the trigger is stopped.
async fn follow(api: Arc<Api>, trigger: Arc<Trigger>) {
    let mut stopped = trigger.stop.subscribe();
    let mut pause = FIRST_PAUSE;
    while !*stopped.borrow() {
        let Err(error) = read(&api, &trigger, &mut stopped, &mut pause).await else { return };
        trigger.wait_for(Some(error.to_string()));
        tokio::select! {
            _ = stopped.wait_for(|is_stopped| *is_stopped) => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Reads the feed by one connection; ends with why that ended, or once the trigger is stopped.
async fn read(
    api: &Arc<Api>,
    trigger: &Trigger,
    stopped: &mut watch::Receiver<bool>,
    pause: &mut Duration,
) -> Result<(), TriggerError> {
    let mut feed = Feed::connect(service(api)?).await?;
    let newest = feed.newest().await?;
    if newest < trigger.position.load(Ordering::Relaxed) {
        // Another feed than was followed before: its positions are its own.
        trigger.note(format!(
            "the trigger {}: the documents' server has begun anew, and all its changes since are followed",
            trigger.name
        ));
        trigger.position.store(0, Ordering::SeqCst);
    }
    trigger.earlier.store(newest, Ordering::Relaxed);
    let mut written = trigger.position.load(Ordering::Relaxed);
    loop {
        let after = trigger.position.load(Ordering::Relaxed);
        let changes = tokio::select! {
            _ = stopped.wait_for(|is_stopped| *is_stopped) => return Ok(()),
            changes = feed.changes(after, PAGE, WAIT) => changes?,
        };
        *pause = FIRST_PAUSE;
        trigger.wait_for(None);
        for change in changes {
            let position = change.position;
            if trigger.concerns(&change) {
                if !begin(api, trigger, &change, stopped).await {
                    return Ok(());
                }
                written = position;
            } else if position - written >= UNWRITTEN {
                let passed = Passed { trigger: trigger.name.clone(), position };
                api.log.trigger(TriggerUpdate::Passed(passed)).await?;
                written = position;
            }
            trigger.position.store(position, Ordering::SeqCst);
        }
    }
}

/// Where the documents are.
fn service(api: &Api) -> Result<&Located, TriggerError> {
    api.config.services.named(SERVICE).ok_or(TriggerError::NoService)
}

/// Begins what a change asks for, however long that takes; false if the trigger is stopped before.
async fn begin(
    api: &Arc<Api>,
    trigger: &Trigger,
    change: &Change,
    stopped: &mut watch::Receiver<bool>,
) -> bool {
    let parent = writer(api, trigger, change).await;
    let generation = parent.as_ref().map_or(0, |origin| origin.generation) + 1;
    let mut pause = FIRST_PAUSE;
    while !*stopped.borrow() {
        let begun = if generation > MAX_GENERATION {
            trigger.stopped.fetch_add(1, Ordering::SeqCst);
            Err(Hindrance::Never(format!(
                "the trigger {} was stopped at the change {} of {:?}: it had followed on itself {MAX_GENERATION} \
                 times. What a trigger begins must not write below the trigger's prefix, {:?}, without end",
                trigger.name, change.position, change.key, trigger.definition.prefix
            )))
        } else {
            begin_change(api, trigger, change, parent.as_ref(), generation).await
        };
        match begun {
            Ok(()) => {
                trigger.begun.fetch_add(1, Ordering::SeqCst);
                trigger.wait_for(None);
                return true;
            }
            Err(Hindrance::Never(sentence)) => {
                tracing::warn!("{sentence}");
                trigger.note(sentence);
                let passed = TriggerUpdate::Passed(trigger.passed(change));
                if api.log.trigger(passed).await.is_ok() {
                    return true;
                }
            }
            Err(Hindrance::Later(why)) => trigger.wait_for(why),
        }
        tokio::select! {
            _ = stopped.wait_for(|is_stopped| *is_stopped) => {}
            () = tokio::time::sleep(pause) => {}
        }
        pause = LONGEST_PAUSE.min(pause * 2);
    }
    false
}

/// Carries out an execution from its start that the end of an earlier worker cut off.
async fn resume(api: Arc<Api>, row: ExecutionRow) {
    let name = row.name.split(':').next().unwrap_or_default();
    let Some(trigger) = api.triggers.lock().get(name).cloned() else {
        let cause = format!("the platform ended while it ran, and the trigger {name} is gone");
        return api.machines.clone().fail(row, cause).await;
    };
    let input: Value = serde_json::from_str(&row.input).unwrap_or_default();
    let text = |key: &str| input["change"][key].as_str().unwrap_or_default().to_owned();
    let change = Change {
        position: input["change"]["position"].as_i64().unwrap_or_default(),
        key: text("key"),
        kind: text("kind"),
        json: String::new(),
        writer: text("writer"),
    };
    // It is older than this worker.
    trigger.earlier.fetch_max(change.position, Ordering::Relaxed);
    let origin = writer(&api, &trigger, &change).await;
    let generation = origin.as_ref().map_or(0, |origin| origin.generation) + 1;
    let cause = (origin.map(|it| it.invocation.to_string()), generation);
    loop {
        match api.machines.clone().resume(row.clone(), cause.clone()).await {
            Ok(()) => return,
            Err(MachineError::TooMany | MachineError::NoRoom(_)) => {}
            Err(error) => return api.machines.clone().fail(row, error.to_string()).await,
        }
        tokio::time::sleep(LONGEST_PAUSE).await;
    }
}

/// The invocation that made a change. Of one that was killed with the platform before it had a row, its
/// request's id stands for it; of a writer outside, what it calls itself, if that is a name.
async fn writer(api: &Arc<Api>, trigger: &Trigger, change: &Change) -> Option<Origin> {
    let writer = change.writer.as_str();
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-');
    if writer.is_empty() || writer.len() > MAX_NAME || !writer.bytes().all(fine) {
        return None;
    }
    if let Some(origin) = api.triggers.lineage.find(writer) {
        return Some(origin);
    }
    let unknown = Origin { invocation: Arc::from(writer), generation: 0 };
    if change.position > trigger.earlier.load(Ordering::Relaxed) {
        return Some(unknown);
    }
    // The row may be on its way into the database.
    let _ = api.log.barrier().await;
    let (log, request) = (api.log.clone(), writer.to_owned());
    let read = tokio::task::spawn_blocking(move || log.invocation_of(&request, MOST_ROWS)).await;
    let found = read.ok().and_then(Result::ok).flatten();
    let known = found.map(|invocation| Origin {
        generation: lineage::generation_in(&invocation),
        invocation: Arc::from(invocation),
    });
    Some(known.unwrap_or(unknown))
}
