//! Control groups that are made before the instance that they are for.
//!
//! To make and limit them takes longer than all else that the worker does for a start. Each is its
//! function's from the beginning: in its share of the CPU and with its limits. Nothing has run in it, and
//! the next instance of the function takes it, once.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cgroup::{CgroupError, Group, Limits};
use super::host::Host;
use super::start::{limit_start, limits};
use super::threads;
use crate::ids;
use crate::instance::{Enforcement, InstanceSpec};

/// Functions of which one group is kept: those that were started last. A group without processes takes
/// the kernel some 100 KB.
const MAX_FUNCTIONS: usize = 16;

/// What a group is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Terms {
    limits: Limits,
    enforcement: Enforcement,
    init_throttled: bool,
}

impl Terms {
    fn of(spec: &InstanceSpec) -> Self {
        let (enforcement, init_throttled) = (spec.enforcement, spec.init_throttled);
        Self { limits: limits(spec), enforcement, init_throttled }
    }
}

struct Entry {
    function: String,
    /// None while it is being made, and once it is taken.
    group: Option<(Terms, Arc<Group>)>,
}

/// What is kept.
#[derive(Default)]
pub(super) struct ReadyGroups {
    /// The function that was started last is the last.
    entries: Mutex<Vec<Entry>>,
}

impl ReadyGroups {
    /// Notes that a group is to be kept for a function, until [`Self::forget`].
    pub(super) fn note(&self, function: &str) {
        let mut entries = self.entries();
        let entry = match entries.iter().position(|it| it.function == function) {
            Some(index) => entries.remove(index),
            None => Entry { function: function.to_owned(), group: None },
        };
        entries.push(entry);
        if entries.len() > MAX_FUNCTIONS {
            remove_aside(vec![entries.remove(0)]);
        }
    }

    /// The group for an instance, if there is one.
    pub(super) fn take(&self, spec: &InstanceSpec) -> Option<Arc<Group>> {
        let mut entries = self.entries();
        let entry = entries.iter_mut().find(|it| it.function == spec.function)?;
        entry.group.take_if(|(terms, _)| *terms == Terms::of(spec)).map(|(_, group)| group)
    }

    /// Whether one is to be made.
    fn lacks(&self, spec: &InstanceSpec) -> bool {
        let terms = Terms::of(spec);
        let is_kept =
            |it: &Entry| it.group.as_ref().is_some_and(|(made_for, _)| *made_for == terms);
        self.entries().iter().any(|it| it.function == spec.function && !is_kept(it))
    }

    /// Keeps one, unless the function has been forgotten meanwhile.
    fn keep(&self, spec: &InstanceSpec, group: Group) {
        let mut kept = Some((Terms::of(spec), Arc::new(group)));
        if let Some(entry) = self.entries().iter_mut().find(|it| it.function == spec.function) {
            std::mem::swap(&mut entry.group, &mut kept);
        }
        if kept.is_some() {
            threads::run_aside(move || drop(kept));
        }
    }

    /// Keeps none any more for a function.
    pub(super) fn forget(&self, function: &str) {
        remove_aside(self.entries().extract_if(.., |it| it.function == function).collect());
    }

    /// Removes all. Blocks until they are gone.
    pub(super) fn clear(&self) {
        let entries = std::mem::take(&mut *self.entries());
        drop(entries);
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removing groups waits for the kernel.
fn remove_aside(entries: Vec<Entry>) {
    if entries.iter().any(|it| it.group.is_some()) {
        threads::run_aside(move || drop(entries));
    }
}

impl Host {
    /// Makes the group of a function's next instance, unless it is there already or nobody wants it.
    pub(super) async fn make_group_ready(self: &Arc<Self>, spec: &InstanceSpec) {
        if self.layout.is_none() || !self.ready_groups.lacks(spec) {
            return;
        }
        let (host, spec) = (self.clone(), spec.clone());
        let make = move || {
            if host.closed.load(Ordering::SeqCst) {
                return;
            }
            // Its next start makes it then, and learns why that fails.
            if let Ok(Some(group)) = host.make_group(&spec, &ids::instance()) {
                host.ready_groups.keep(&spec, group);
            }
        };
        let _ = tokio::task::spawn_blocking(make).await;
    }

    /// Makes the group of an instance, in its function's share and with its limits; none where there are no
    /// control groups. Blocks for the kernel.
    pub(super) fn make_group(
        &self,
        spec: &InstanceSpec,
        name: &str,
    ) -> Result<Option<Group>, CgroupError> {
        let Some(layout) = &self.layout else { return Ok(None) };
        let limits = limits(spec);
        let group = self.shares.group(layout, &spec.function, name, &limits)?;
        limit_start(spec, &group, &limits)?;
        Ok(Some(group))
    }
}
