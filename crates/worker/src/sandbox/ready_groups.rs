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
use crate::cpu_list::CpuList;
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
    cpus: Option<CpuList>,
    cpu_shares: Option<u64>,
}

impl Terms {
    fn of(spec: &InstanceSpec) -> Self {
        let (enforcement, init_throttled) = (spec.enforcement, spec.init_throttled);
        let (cpus, cpu_shares) = (spec.cpus, spec.cpu_shares);
        Self { limits: limits(spec), enforcement, init_throttled, cpus, cpu_shares }
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
    /// Held while one is made.
    making: tokio::sync::Mutex<()>,
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
        // One at a time: when the platform starts, all functions want one, and only the last keep theirs.
        let _making = self.ready_groups.making.lock().await;
        if !self.ready_groups.lacks(spec) {
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
        let group = self.shares.group(layout, spec, name, &limits)?;
        limit_start(spec, &group, &limits)?;
        Ok(Some(group))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::sandbox::cgroup::{Controller, Layout, Version};
    use crate::sandbox::environment::tests::spec;

    fn group(top: &Path, name: &str) -> Group {
        let parents = BTreeMap::from([(Controller::Cpu, top.to_owned())]);
        let available = vec![Controller::Cpu];
        let version = Version::V1;
        let layout = Layout { version, parents, unified: None, available, obstacle: None };
        Group::unlimited(&layout, name).unwrap()
    }

    #[test]
    fn a_group_is_taken_once_and_on_its_terms() {
        let top = tempfile::tempdir().unwrap();
        let groups = ReadyGroups::default();
        let spec = spec("python", &[]);
        assert!(!groups.lacks(&spec));
        groups.note(&spec.function);
        assert!(groups.lacks(&spec));
        groups.keep(&spec, group(top.path(), "a"));
        assert!(!groups.lacks(&spec));
        let larger = InstanceSpec { memory_bytes: spec.memory_bytes * 2, ..spec.clone() };
        let throttled = InstanceSpec { init_throttled: true, ..spec.clone() };
        let of_another = InstanceSpec { function: "other".into(), ..spec.clone() };
        for other in [&larger, &throttled, &of_another] {
            assert!(groups.take(other).is_none());
        }
        assert!(groups.lacks(&larger));
        let taken = groups.take(&spec).unwrap();
        assert!(groups.take(&spec).is_none());
        assert!(top.path().join("a").exists());
        drop(taken);
    }

    #[test]
    fn a_forgotten_function_has_none() {
        let top = tempfile::tempdir().unwrap();
        let groups = ReadyGroups::default();
        let spec = spec("python", &[]);
        groups.note(&spec.function);
        groups.keep(&spec, group(top.path(), "a"));
        groups.forget(&spec.function);
        assert!(!top.path().join("a").exists());
        // One that was just being made.
        groups.keep(&spec, group(top.path(), "b"));
        assert!(!top.path().join("b").exists());
        assert!(groups.take(&spec).is_none());
    }

    #[test]
    fn only_those_of_the_functions_started_last_are_kept() {
        let top = tempfile::tempdir().unwrap();
        let groups = ReadyGroups::default();
        let first = spec("python", &[]);
        groups.note(&first.function);
        groups.keep(&first, group(top.path(), "a"));
        for number in 1..MAX_FUNCTIONS {
            groups.note(&number.to_string());
        }
        assert!(top.path().join("a").exists());
        groups.note("one more");
        assert!(!top.path().join("a").exists());
        assert!(groups.take(&first).is_none());
    }
}
