//! What instances of a function share besides its code: files that are made of one of them, and that later ones start
//! with.
//!
//! Each function has its own, made for it as it is now, from an instance of its own: with the code, a setting or a
//! variable changed, there is none at first. Instances see the files read-only, and the worker keeps their digests in
//! memory: what is not as it was written is used by nobody. It lasts as long as the worker, and as the folder has room
//! (`checkpoint_cache`).

mod table;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use tokio::sync::Semaphore;

use table::{Entry, State, Table};

use super::environment::BYTES_PER_MIB;
use super::kept::{Kept, Place};
use super::recording::Recording;
use super::runtimes::RuntimeDefinition;
use super::terms::Terms;
use crate::ids;
use crate::instance::{InstanceSpec, ShareState, StartFrom};

/// Where instances see it.
pub(super) const PLACE: &str = "/var/runtime/shared";

/// So many instances may end while something is made of them; then it is given up.
const MAX_LOST: u32 = 3;

/// What functions share, by function.
pub(super) struct SharedStates {
    folder: PathBuf,
    /// Bytes that the folder may hold.
    most: u64,
    /// Starts with something of it so far.
    uses: AtomicU64,
    table: Mutex<BTreeMap<String, Entry>>,
    /// What those hold that make a function's checkpoint.
    making: Mutex<BTreeMap<String, Weak<tokio::sync::Mutex<()>>>>,
    /// Checkpoints that are made.
    pub at_a_time: Semaphore,
}

/// What an instance has of what its function shares.
#[derive(Default)]
pub(super) struct Share {
    /// What it starts with, which stays until it has ended.
    pub kept: Option<Arc<Kept>>,
    /// Set if it is the one that it is made of.
    pub recording: Option<Recording>,
}

impl Share {
    /// What the instance is started from: one that notes something does so from its runtime's start on, and one that is
    /// restored is no runtime that was started ahead.
    pub(super) fn start_from(&self, spec: &InstanceSpec) -> StartFrom {
        let is_restored = self.kept.as_ref().is_some_and(|kept| kept.dumped.is_some());
        match spec.start_from {
            StartFrom::Pool if spec.records || is_restored => StartFrom::Prepared,
            StartFrom::Checkpoint if spec.records && !spec.restorable => StartFrom::Prepared,
            other => other,
        }
    }
}

impl SharedStates {
    /// Empties the folder: what is in it is an earlier worker's, which alone knew its digests.
    pub(super) fn open(folder: PathBuf, most: u64) -> io::Result<Self> {
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir(&folder)?;
        // Instances have users of their own, and reach what is theirs through mounts.
        fs::set_permissions(&folder, Permissions::from_mode(0o711))?;
        let at_a_time = Semaphore::new(thread::available_parallelism().map_or(1, usize::from));
        Ok(Self {
            folder,
            most,
            uses: AtomicU64::new(0),
            table: Mutex::default(),
            making: Mutex::default(),
            at_a_time,
        })
    }

    /// Has an instance start with what its function shares, or note what that is made of, if it is to share anything.
    pub(super) fn begin(self: &Arc<Self>, spec: &mut InstanceSpec) -> Share {
        if !can_share(spec) || !shares(spec.runtime.definition(), spec.share_state) {
            return Share::default();
        }
        let mut table = self.table();
        let entry = table.entry(spec, spec.share_state);
        let kept = match &entry.state {
            State::Ready(kept) => kept.clone(),
            State::Recording(instance) if instance.strong_count() > 0 => return Share::default(),
            State::Missing | State::Recording(_) => {
                let lives = Arc::new(());
                entry.state = State::Recording(Arc::downgrade(&lives));
                spec.records = true;
                spec.restorable = spec.share_state == ShareState::Warm;
                let recording = Recording::new(self.clone(), spec, entry.terms.clone(), lives);
                return Share { kept: None, recording: Some(recording) };
            }
            State::Refused(_) => return Share::default(),
        };
        drop(table);
        let without = "what its instances share";
        let Some(kept) = self.whole(&spec.function, kept, without) else { return Share::default() };
        if kept.dumped.is_none() {
            spec.mounts.push((kept.folder.clone(), PLACE.into()));
        }
        Share { kept: Some(kept), recording: None }
    }

    /// The files, unless somebody has changed them: then nobody uses them any more. Not to be called with the table
    /// locked, as it may read all of them.
    fn whole(&self, function: &str, kept: Arc<Kept>, what: &str) -> Option<Arc<Kept>> {
        kept.used.store(self.next_use(), Ordering::Relaxed);
        if kept.is_whole() {
            return Some(kept);
        }
        let folder = kept.folder.display();
        let reason =
            format!("what the platform had written to {folder} was changed by somebody else");
        tracing::warn!(function, "it starts without {what}: {reason}");
        let mut table = self.table();
        if table.entries.get(function).is_some_and(|it| it.has(&kept)) {
            table.set(function, State::Refused(reason));
        }
        None
    }

    /// A new folder for files.
    pub(super) fn place(&self) -> io::Result<Place> {
        let folder = self.folder.join(ids::staging());
        fs::create_dir(&folder)?;
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        Ok(Place(folder))
    }

    /// What there is for an instance that starts now.
    pub(super) fn ready(&self, spec: &InstanceSpec) -> Option<Arc<Kept>> {
        let kept = {
            let table = self.table();
            let entry =
                table.entries.get(&spec.function).filter(|it| it.terms == Terms::of(spec))?;
            let State::Ready(kept) = &entry.state else { return None };
            kept.clone()
        };
        self.whole(&spec.function, kept, "its checkpoint")
    }

    /// Takes note that a function is to have a checkpoint, as it is now.
    pub(super) fn note(&self, spec: &InstanceSpec) {
        self.table().entry(spec, ShareState::None);
    }

    /// Whether somebody is to make it: not of a function that has been forgotten or changed since it was noted.
    pub(super) fn lacks(&self, spec: &InstanceSpec) -> bool {
        let table = self.table();
        let entry = table.entries.get(&spec.function).filter(|it| it.terms == Terms::of(spec));
        entry.is_some_and(|it| matches!(it.state, State::Missing))
    }

    /// What to hold while a function's checkpoint is made.
    pub(super) fn making(&self, function: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, it| it.strong_count() > 0);
        if let Some(making) = all.get(function).and_then(Weak::upgrade) {
            return making;
        }
        let making = Arc::default();
        all.insert(function.to_owned(), Arc::downgrade(&making));
        making
    }

    /// Keeps what was made of an instance, or why nothing was, unless the function has been deleted or changed
    /// meanwhile.
    pub(super) fn keep(&self, function: &str, terms: &Terms, made: Result<Kept, String>) {
        let mut table = self.table();
        let entry = table.entries.get_mut(function).filter(|it| it.terms == *terms);
        let Some(entry) = entry else { return };
        match made {
            Ok(kept) => {
                let kept = Arc::new(kept);
                entry.lost = 0;
                table.set(function, State::Missing);
                let bytes = kept.bytes + table.used_bytes();
                if bytes > self.most {
                    // Nothing makes room for what would not fit then.
                    table.taken.push(State::Ready(kept));
                    let (all, most) = (bytes.div_ceil(BYTES_PER_MIB), self.most / BYTES_PER_MIB);
                    let reason = format!(
                        "with what instances use it takes {all} MB, and checkpoint_cache is {most} MB"
                    );
                    table.refuse(function, reason);
                } else {
                    table.make_room(self.most - kept.bytes);
                    kept.used.store(self.next_use(), Ordering::Relaxed);
                    table.set(function, State::Ready(kept));
                }
            }
            // It has been deleted meanwhile, and that is why.
            Err(_) if !terms.code.exists() => table.remove(function),
            Err(reason) => table.refuse(function, reason),
        }
    }

    /// Takes note that the instance has ended, and how, of which something was being made. Another one may do better,
    /// a few times.
    pub(super) fn lost(&self, function: &str, terms: &Terms, how: &str) {
        let mut table = self.table();
        let entry = table.entries.get_mut(function).filter(|it| it.terms == *terms);
        let Some(entry) = entry else { return };
        entry.lost += 1;
        if entry.lost == MAX_LOST {
            let reason = format!(
                "{MAX_LOST} instances have ended while it was made of them (the last: {how})"
            );
            table.refuse(function, reason);
        }
    }

    /// Takes note of why a function is to share nothing, as it is now.
    pub(super) fn deny(&self, spec: &InstanceSpec, reason: String) {
        let mut table = self.table();
        if !matches!(table.entry(spec, spec.share_state).state, State::Refused(_)) {
            table.refuse(&spec.function, reason);
        }
    }

    /// Keeps a checkpoint of a function no longer, if it does, because it cannot be restored.
    pub(super) fn refuse(&self, function: &str, kept: &Arc<Kept>, reason: String) {
        let mut table = self.table();
        if table.entries.get(function).is_some_and(|it| it.has(kept)) {
            table.refuse(function, reason);
        }
    }

    /// Keeps nothing any more for a function.
    pub(super) fn forget(&self, function: &str) {
        self.table().remove(function);
    }

    /// Why functions share nothing, though they want to: a sentence each.
    pub(super) fn refusals(&self) -> Vec<String> {
        let table = self.table();
        table.entries.iter().filter_map(|(function, entry)| entry.refusal(function)).collect()
    }

    fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn table(&self) -> Table<'_> {
        let entries = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        Table::new(entries)
    }
}

/// Whether instances of a runtime can share this.
pub(crate) fn shares(runtime: &dyn RuntimeDefinition, share_state: ShareState) -> bool {
    match share_state {
        ShareState::None => false,
        ShareState::Warm => runtime.can_be_restored(),
        ShareState::Classes | ShareState::Profile | ShareState::Code => {
            runtime.shared_file(share_state).is_some()
        }
    }
}

/// Whether the platform's own client runs in an instance, and nothing that wants to know of its events.
fn can_share(spec: &InstanceSpec) -> bool {
    let restores = spec.share_state == ShareState::Warm;
    spec.image.is_none()
        && spec.extensions.is_empty()
        && super::start::config::wrapper(spec).is_none()
        && !(restores && super::kinds::obstacle(spec).is_some())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sandbox::environment::tests::spec;

    fn java(code: &str) -> InstanceSpec {
        InstanceSpec { share_state: ShareState::Classes, code: code.into(), ..spec("java", &[]) }
    }

    fn made(states: &SharedStates, spec: &InstanceSpec) {
        let place = states.place().unwrap();
        fs::write(place.path().join("classes.jsa"), "classes").unwrap();
        states.keep(&spec.function, &Terms::of(spec), place.keep(None));
    }

    #[test]
    fn one_instance_records_and_later_ones_use_it_until_the_function_changes() {
        let folder = tempfile::tempdir().unwrap();
        let states = Arc::new(SharedStates::open(folder.path().join("shared"), 1 << 20).unwrap());
        let start = |code: &str| {
            let mut spec = java(code);
            let share = states.begin(&mut spec);
            (share, spec)
        };
        let (first, recorder) = start("/a");
        assert!(recorder.records && first.recording.is_some());
        let (second, other) = start("/a");
        assert!(!other.records && second.recording.is_none() && second.kept.is_none());
        // It ended before anything was made of it.
        drop(first);
        assert!(start("/a").0.recording.is_some());
        made(&states, &java("/a"));
        let (used, user) = start("/a");
        assert!(used.kept.is_some() && user.mounts.last().unwrap().1 == Path::new(PLACE));
        // What was made of other code is nobody's any more, once those that use it have ended.
        assert!(start("/b").0.recording.is_some());
        made(&states, &java("/a"));
        assert!(start("/b").0.kept.is_none());
        let place = user.mounts.last().unwrap().0.clone();
        assert!(place.exists());
        drop(used);
        assert!(!place.exists());
    }

    #[test]
    fn nothing_is_said_of_a_function_that_was_deleted_while_it_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let states = Arc::new(SharedStates::open(folder.path().join("shared"), 1 << 20).unwrap());
        for (code, count) in [(folder.path().to_str().unwrap(), 1), ("/gone", 0)] {
            let spec = java(code);
            states.note(&spec);
            assert!(states.lacks(&spec));
            states.keep(&spec.function, &Terms::of(&spec), Err("it has ended".into()));
            assert_eq!(states.refusals().len(), count, "{code}");
        }
    }

    #[test]
    fn what_is_noted_from_a_runtimes_start_on_begins_with_it() {
        let begins = |start_from, records, restorable| {
            let spec = InstanceSpec { start_from, records, restorable, ..java("/a") };
            Share::default().start_from(&spec)
        };
        assert_eq!(begins(StartFrom::Checkpoint, true, false), StartFrom::Prepared);
        assert_eq!(begins(StartFrom::Checkpoint, true, true), StartFrom::Checkpoint);
        assert_eq!(begins(StartFrom::Checkpoint, false, false), StartFrom::Checkpoint);
        assert_eq!(begins(StartFrom::Pool, true, true), StartFrom::Prepared);
        assert_eq!(begins(StartFrom::Pool, false, false), StartFrom::Pool);
        assert_eq!(begins(StartFrom::Fresh, true, false), StartFrom::Fresh);
    }

    #[test]
    fn what_was_forgotten_or_changed_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let states = SharedStates::open(folder.path().join("shared"), 1 << 20).unwrap();
        let (first, changed) = (java("/a"), java("/b"));
        states.note(&first);
        assert!(states.lacks(&first) && states.ready(&first).is_none());
        states.note(&changed);
        assert!(!states.lacks(&first) && states.lacks(&changed));
        states.forget(&first.function);
        assert!(!states.lacks(&changed) && states.ready(&changed).is_none());
        assert!(states.table().entries.is_empty());
    }

    #[test]
    fn it_is_given_up_once_instances_end_while_it_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let states = Arc::new(SharedStates::open(folder.path().join("shared"), 1 << 20).unwrap());
        let terms = Terms::of(&java("/a"));
        for _ in 0..MAX_LOST {
            assert!(states.begin(&mut java("/a")).recording.is_some());
            states.lost(&java("/a").function, &terms, "exit status 7");
        }
        assert!(states.begin(&mut java("/a")).recording.is_none());
        let refusals = states.refusals();
        let says = |it: &str| it.contains("3 instances have ended") && it.contains("exit status 7");
        assert!(says(&refusals[0]), "{refusals:?}");
    }

    #[test]
    fn instances_that_ended_before_it_was_made_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let states = Arc::new(SharedStates::open(folder.path().join("shared"), 1 << 20).unwrap());
        let spec = java("/a");
        let lost = || states.lost(&spec.function, &Terms::of(&spec), "exit status 7");
        assert!(states.begin(&mut spec.clone()).recording.is_some());
        for _ in 1..MAX_LOST {
            lost();
        }
        made(&states, &spec);
        lost();
        assert!(states.begin(&mut spec.clone()).kept.is_some(), "{:?}", states.refusals());
    }

    #[test]
    fn nobody_makes_room_for_what_does_not_fit() {
        let folder = tempfile::tempdir().unwrap();
        let states = Arc::new(SharedStates::open(folder.path().join("shared"), 8).unwrap());
        let other = InstanceSpec { function: "other".into(), ..java("/a") };
        assert!(states.begin(&mut other.clone()).recording.is_some());
        made(&states, &other);
        let spec = java("/a");
        assert!(states.begin(&mut spec.clone()).recording.is_some());
        let place = states.place().unwrap();
        fs::write(place.path().join("classes.jsa"), "larger than all").unwrap();
        states.keep(&spec.function, &Terms::of(&spec), place.keep(None));
        assert!(states.refusals()[0].contains("checkpoint_cache"), "{:?}", states.refusals());
        assert!(states.begin(&mut other.clone()).kept.is_some());
        // What fits alone does not if an instance uses the rest.
        let used = states.begin(&mut other.clone()).kept;
        states.forget(&spec.function);
        assert!(states.begin(&mut spec.clone()).recording.is_some());
        made(&states, &spec);
        assert_eq!(states.refusals().len(), 1);
        drop(used);
        assert!(states.begin(&mut other.clone()).kept.is_some());
    }

    #[test]
    fn a_function_that_may_share_nothing_here_says_why_until_it_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let states = Arc::new(SharedStates::open(folder.path().join("shared"), 8).unwrap());
        let spec = InstanceSpec { share_state: ShareState::Profile, ..java("/a") };
        for _ in 0..2 {
            states.deny(&spec, "Java is old".into());
            assert!(states.refusals()[0].ends_with("share no profile: Java is old."));
        }
        assert!(states.begin(&mut java("/a")).recording.is_some() && states.refusals().is_empty());
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let most = 2 * "classes".len() as u64;
        let states = Arc::new(SharedStates::open(folder.path().join("shared"), most).unwrap());
        let of = |name: &str| InstanceSpec { function: name.into(), ..java("/a") };
        let make = |name| {
            assert!(states.begin(&mut of(name)).recording.is_some(), "{name}");
            made(&states, &of(name));
        };
        let uses = |name| states.begin(&mut of(name)).kept;
        let count = || fs::read_dir(folder.path().join("shared")).unwrap().count();
        make("a");
        make("b");
        assert!(uses("a").is_some());
        make("c");
        assert_eq!(count(), 2);
        assert!(uses("a").is_some() && uses("c").is_some());
        // What an instance uses stays.
        let held = (uses("a"), uses("c"));
        make("b");
        assert!(count() == 2 && states.refusals()[0].contains("checkpoint_cache"));
        states.forget("b");
        drop(held);
        make("b");
        assert!(uses("b").is_some() && uses("c").is_some());
        make("a");
        assert!(uses("c").is_some() && uses("a").is_some());
    }

    #[test]
    fn what_is_larger_than_the_bound_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let states = Arc::new(SharedStates::open(folder.path().join("shared"), 3).unwrap());
        assert!(states.begin(&mut java("/a")).recording.is_some());
        made(&states, &java("/a"));
        assert!(states.begin(&mut java("/a")).recording.is_none());
        assert!(states.refusals()[0].contains("checkpoint_cache"), "{:?}", states.refusals());
        assert_eq!(fs::read_dir(folder.path().join("shared")).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_was_changed_is_used_by_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let states = Arc::new(SharedStates::open(folder.path().join("shared"), 1 << 20).unwrap());
        let used = || states.begin(&mut java("/a")).kept.is_some();
        for changed in ["klasses", "class"] {
            let mut spec = java("/a");
            drop(states.begin(&mut spec));
            made(&states, &spec);
            assert!(states.begin(&mut spec).kept.is_some());
            let file = spec.mounts.last().unwrap().0.join("classes.jsa");
            fs::write(&file, "classes").unwrap();
            assert!(used(), "it is the same");
            fs::write(&file, changed).unwrap();
            assert!(!used() && !used() && !file.exists(), "{changed}");
            assert!(states.refusals()[0].contains("was changed by"), "{:?}", states.refusals());
            states.forget(&spec.function);
            assert!(states.refusals().is_empty());
        }
    }
}
