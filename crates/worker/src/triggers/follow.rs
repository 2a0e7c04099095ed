//! How a trigger follows the feed, and whose the changes are.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use super::feed::{Change, Feed};
use super::lineage::{self, Origin};
use super::{Hindrance, MAX_GENERATION, Place, SERVICE, Trigger, TriggerError};
use crate::api::{Api, begin_change};
use crate::machines::{ExecutionRow, MachineError};
use crate::meterlog::TriggerUpdate;
use crate::services::Located;

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

/// Follows the feed until the trigger is stopped.
pub(super) async fn follow(api: Arc<Api>, trigger: Arc<Trigger>) {
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
    let connect = async {
        let mut feed = Feed::connect(service(api)?).await?;
        let (id, newest) = (feed.id().await?, feed.newest().await?);
        Ok::<_, TriggerError>((feed, id, newest))
    };
    let (mut feed, id, newest) = tokio::select! {
        _ = stopped.wait_for(|is_stopped| *is_stopped) => return Ok(()),
        connected = connect => connected?,
    };
    tokio::select! {
        _ = stopped.wait_for(|is_stopped| *is_stopped) => return Ok(()),
        place = find_place(api, trigger, &mut feed, &id, newest) => place?,
    }
    trigger.earlier.store(newest, Ordering::Relaxed);
    let mut written = trigger.position();
    loop {
        let after = trigger.position();
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
                api.log.trigger(TriggerUpdate::Passed(trigger.passed(&change))).await?;
                written = position;
            }
            trigger.pass(&change);
        }
    }
}

/// Compares where the trigger has come with the feed as it is now, and goes on from the right place in it.
async fn find_place(
    api: &Api,
    trigger: &Trigger,
    feed: &mut Feed,
    id: &str,
    newest: i64,
) -> Result<(), TriggerError> {
    let Place { position, feed: known, digest } = trigger.place();
    let is_same = known.as_deref() == Some(id);
    let name = &trigger.name;
    if newest < position && is_same {
        // The same feed as it was earlier. What it has was followed before, or cannot be told from that.
        let digest = feed.at(newest).await?.map(|it| it.digest());
        trigger.warn(format!(
            "the trigger {name}: the documents' server was set back from change {position} to {newest}, and the \
             changes from there on are followed. Those that were written up to there since it was set back, if any, \
             are not"
        ));
        return Ok(trigger.move_to(api, Place::new(newest, id, digest)).await?);
    }
    if newest < position || known.is_some() && !is_same {
        // Another feed than was followed before: its positions are its own.
        trigger.warn(format!(
            "the trigger {name}: the documents' server has begun anew, and all its changes since are followed"
        ));
        return Ok(trigger.move_to(api, Place::new(0, id, None)).await?);
    }
    let here = feed.at(position).await?.map(|it| it.digest());
    let is_another = digest.is_some() && digest != here;
    if is_another {
        trigger.warn(format!(
            "the trigger {name}: the documents' server was set back and has been written to since, as its change \
             {position} is not the one that was followed. The changes behind it are followed; those that were \
             written up to it since the server was set back are not"
        ));
    }
    if known.is_none() || digest != here {
        trigger.move_to(api, Place::new(position, id, here)).await?;
    }
    Ok(())
}

/// Where the documents are.
pub(super) fn service(api: &Api) -> Result<&Located, TriggerError> {
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
pub(super) async fn resume(api: &Arc<Api>, row: ExecutionRow) {
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
    let origin = writer(api, &trigger, &change).await;
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
    let invocation_id = read.ok().and_then(Result::ok).flatten();
    let of_trigger = |name: &str| api.triggers.lock().contains_key(name);
    let known = invocation_id.map(|invocation| Origin {
        generation: lineage::generation_in(&invocation, of_trigger),
        invocation: Arc::from(invocation),
    });
    Some(known.unwrap_or(unknown))
}
