//! Triggers: a function, or a state machine, is invoked for every change below a prefix of the documents.
//!
//! Each follows the feed of changes by itself and begins what its changes ask for, in their order. How far
//! it has come is written with the event that a change became ([`crate::meterlog`]), so that a worker that
//! was killed goes on behind it: no change is begun twice, and none is left out. An execution of a machine
//! has the change in its name, which there is once.

mod feed;
mod follow;
mod lineage;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use feed::Change;
use feed::{Feed, FeedError};
pub(crate) use lineage::{Lineage, Origin, name};

use crate::api::Api;
use crate::meterlog::{KeptTrigger, LogError, Passed, TriggerUpdate, WaitingEvent};

/// The service whose changes are followed.
const SERVICE: &str = "documents";
/// What a trigger led to may lead to it again so often: as Lambda's own detection of loops has it, about.
/// <https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html>
pub(crate) const MAX_GENERATION: u32 = 16;

/// So many sentences about the feed are kept for readers of results.
const MOST_TOLD: usize = 16;

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
    place: Mutex<Place>,
    /// Changes that were there before it began to follow: their writers' rows are on the disk.
    earlier: AtomicI64,
    begun: AtomicU64,
    stopped: AtomicU64,
    trouble: Mutex<Trouble>,
    stop: watch::Sender<bool>,
    follows: Mutex<Option<JoinHandle<()>>>,
}

/// Up to where a trigger has come.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    position: i64,
    /// In which feed, once that is known.
    feed: Option<String>,
    /// Of the change there, once it is known.
    digest: Option<String>,
}

impl Place {
    fn new(position: i64, feed: &str, digest: Option<String>) -> Self {
        Self { position, feed: Some(feed.to_owned()), digest }
    }
}

#[derive(Default)]
struct Trouble {
    /// Why it waits, if it does.
    waits: Option<String>,
    /// What it passed over for good, a sentence.
    passed: Option<String>,
    /// How the feed was changed behind its back, a sentence each, the newest.
    feed: VecDeque<String>,
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
    /// Held while one is made or removed: two that are made at once would both follow, under one name.
    changing: tokio::sync::Mutex<()>,
    /// Executions that an earlier worker left and that do not run yet.
    resuming: AtomicUsize,
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
        let (kept, triggers) = (api.log.triggers()?, &api.triggers);
        if !kept.is_empty() {
            triggers.lineage.remember();
        }
        for event in left {
            let of_trigger = |name: &str| kept.iter().any(|kept| kept.name == name);
            let generation = lineage::generation_in(&event.invocation, of_trigger);
            let (parent, request) = (event.parent.as_deref(), &event.request_id);
            triggers.lineage.note(request, &event.invocation, parent, generation);
        }
        for KeptTrigger { name, definition, position, feed, digest } in kept {
            let place = Place { position, feed, digest };
            match serde_json::from_str(&definition) {
                Ok(definition) => triggers.follow(api, &name, definition, place),
                Err(error) => tracing::warn!("the trigger {name} cannot be read: {error}"),
            }
        }
        // Also those of triggers that are gone, which fail.
        for row in api.machines.take_left() {
            triggers.resuming.fetch_add(1, Ordering::SeqCst);
            let api = api.clone();
            tokio::spawn(async move {
                follow::resume(&api, row).await;
                api.triggers.resuming.fetch_sub(1, Ordering::SeqCst);
            });
        }
        Ok(())
    }

    /// Makes a trigger, or makes it anew. `from`: behind which position it begins; by default where it was,
    /// or behind the newest change. To be awaited to its end, or it may be stored and not followed.
    pub(crate) async fn put(
        api: &Arc<Api>,
        name: &str,
        definition: Definition,
        from: Option<i64>,
    ) -> Result<Standing, TriggerError> {
        let mut feed = Feed::connect(follow::service(api)?).await?;
        let (id, newest) = (feed.id().await?, feed.newest().await?);
        let triggers = &api.triggers;
        let _alone = triggers.changing.lock().await;
        let was = triggers.take(name).await;
        let place = match (&was, from) {
            (Some(was), None) => was.place(),
            (_, from) => Place::new(from.unwrap_or(newest), &id, None),
        };
        let kept = definition.kept(name, &place);
        if let Err(error) = api.log.trigger(TriggerUpdate::Put(kept)).await {
            triggers.follow_again(api, was);
            return Err(error.into());
        }
        triggers.lineage.remember();
        triggers.follow(api, name, definition, place);
        let made = triggers.lock().get(name).map(|trigger| trigger.standing());
        Ok(made.expect("it was put there"))
    }

    /// Ends a trigger; false if there is none. To be awaited to its end, or it may end and be stored still.
    pub(crate) async fn remove(api: &Arc<Api>, name: &str) -> Result<bool, LogError> {
        let _alone = api.triggers.changing.lock().await;
        let was = api.triggers.take(name).await;
        let is_there = was.is_some();
        if let Err(error) = api.log.trigger(TriggerUpdate::Removed(name.to_owned())).await {
            api.triggers.follow_again(api, was);
            return Err(error);
        }
        Ok(is_there)
    }

    /// How all stand, and whether all they have to do is done: nothing is behind, and nothing that was begun
    /// runs.
    pub(crate) async fn standings(api: &Arc<Api>) -> Result<(Vec<Standing>, bool), TriggerError> {
        let all: Vec<_> = api.triggers.lock().values().cloned().collect();
        let standings = all.iter().map(|trigger| trigger.standing()).collect();
        if all.is_empty() {
            return Ok((standings, true));
        }
        let mut feed = Feed::connect(follow::service(api)?).await?;
        let begun = || all.iter().map(|it| it.begun.load(Ordering::SeqCst)).sum::<u64>();
        let (before, newest) = (begun(), feed.newest().await?);
        // In this order: what has been resumed runs by then.
        let has_resumed = api.triggers.resuming.load(Ordering::SeqCst) == 0;
        let is_idle =
            has_resumed && api.dispatcher.events_waiting() == 0 && api.machines.running() == 0;
        // Of what is begun after this look, something was counted or is behind.
        let is_level = all.iter().all(|it| it.position() >= newest);
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
            warnings.extend(trouble.feed.iter().chain(&trouble.passed).cloned());
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

    /// Follows on with a trigger that was taken out in vain.
    fn follow_again(&self, api: &Arc<Api>, was: Option<Arc<Trigger>>) {
        if let Some(was) = was {
            self.follow(api, &was.name, was.definition.clone(), was.place());
        }
    }

    fn follow(&self, api: &Arc<Api>, name: &str, definition: Definition, place: Place) {
        let trigger = Arc::new(Trigger {
            name: Arc::from(name),
            definition,
            place: Mutex::new(place),
            earlier: AtomicI64::new(0),
            begun: AtomicU64::new(0),
            stopped: AtomicU64::new(0),
            trouble: Mutex::default(),
            stop: watch::Sender::new(false),
            follows: Mutex::default(),
        });
        let follows = tokio::spawn(follow::follow(api.clone(), trigger.clone()));
        *trigger.follows.lock().unwrap_or_else(PoisonError::into_inner) = Some(follows);
        self.lock().insert(trigger.name.clone(), trigger);
    }

    /// The map is whole after every statement, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Trigger>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Definition {
    fn kept(&self, name: &str, place: &Place) -> KeptTrigger {
        let definition = serde_json::to_string(self).expect("it is JSON");
        let Place { position, feed, digest } = place.clone();
        KeptTrigger { name: name.to_owned(), definition, position, feed, digest }
    }
}

impl Trigger {
    fn place(&self) -> Place {
        self.lock_place().clone()
    }

    fn position(&self) -> i64 {
        self.lock_place().position
    }

    /// The change is behind it.
    fn pass(&self, change: &Change) {
        let mut place = self.lock_place();
        place.position = change.position;
        place.digest = Some(change.digest());
    }

    /// It is whole after every statement, so a panic elsewhere does not spoil it.
    fn lock_place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of how far it has come in which feed: behind what it has begun, and before what it begins.
    async fn move_to(&self, api: &Api, place: Place) -> Result<(), LogError> {
        let kept = self.definition.kept(&self.name, &place);
        api.log.trigger(TriggerUpdate::Put(kept)).await?;
        *self.lock_place() = place;
        Ok(())
    }

    fn standing(&self) -> Standing {
        Standing {
            name: self.name.clone(),
            definition: self.definition.clone(),
            position: self.position(),
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
        let (trigger, position) = (self.name.clone(), change.position);
        Passed { trigger, position, digest: change.digest() }
    }

    fn concerns(&self, change: &Change) -> bool {
        let kind = if change.kind == "delete" { Kind::Delete } else { Kind::Put };
        change.key.starts_with(&self.definition.prefix) && self.definition.changes.contains(&kind)
    }

    fn wait_for(&self, why: Option<String>) {
        self.lock().waits = why;
    }

    fn note(&self, sentence: String) {
        // One of a kind tells: a loop or a broken change comes again and again.
        self.lock().passed.get_or_insert(sentence);
    }

    /// Says what became of the feed.
    fn warn(&self, sentence: String) {
        tracing::warn!("{sentence}");
        let told = &mut self.lock().feed;
        if told.len() == MOST_TOLD {
            told.pop_front();
        }
        told.push_back(sentence);
    }

    fn lock(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
