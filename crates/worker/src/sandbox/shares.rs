//! The CPU is divided between functions, however many instances each has.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::cgroup::{CgroupError, CpuShare, Group, Layout, Limits};
use super::threads;
use crate::ids;
use crate::instance::InstanceSpec;

/// A function's name, and the shares that it asks for; None: as much as any.
type Key = (String, Option<u64>);

/// The shares of the functions that have instances.
pub(super) struct Shares {
    /// Whether functions have shares at all; otherwise each instance has a weight of its own.
    are_equal: bool,
    by_function: Mutex<HashMap<Key, Weak<CpuShare>>>,
    adopted: Arc<Adopted>,
}

/// Groups that were made before it was known which function's they would be.
#[derive(Default)]
struct Adopted {
    by_function: Mutex<HashMap<Key, Siblings>>,
    /// Held by who writes to control files.
    dividing: Mutex<()>,
    /// Functions that run only where others do not want to.
    yielding: Mutex<HashSet<String>>,
}

/// The adopted groups of a function.
#[derive(Default)]
struct Siblings {
    groups: Vec<Weak<Group>>,
    /// Whether somebody is about to divide the share between them.
    is_due: bool,
    /// Whether they yield, or some of them do yet.
    yield_now: bool,
}

impl Adopted {
    /// Changes the groups of a function, and has its share divided between them, some time soon.
    fn change(self: &Arc<Self>, function: &Key, change: impl FnOnce(&mut Vec<Weak<Group>>)) {
        let mut by_function = lock(&self.by_function);
        let siblings = by_function.entry(function.clone()).or_default();
        change(&mut siblings.groups);
        self.divide_soon(by_function, function);
    }

    fn divide_soon(
        self: &Arc<Self>,
        mut by_function: MutexGuard<'_, HashMap<Key, Siblings>>,
        function: &Key,
    ) {
        let Some(siblings) = by_function.get_mut(function) else { return };
        if !std::mem::replace(&mut siblings.is_due, true) {
            let (adopted, function) = (self.clone(), function.clone());
            drop(by_function);
            threads::run_aside(move || adopted.divide(&function));
        }
    }

    /// Gives each group of a function an equal part. Blocks for the kernel.
    fn divide(&self, function: &Key) {
        let _dividing = lock(&self.dividing);
        let (groups, yields, yielded) = {
            let mut by_function = lock(&self.by_function);
            let Some(siblings) = by_function.get_mut(function) else { return };
            siblings.is_due = false;
            if siblings.groups.is_empty() {
                by_function.remove(function);
                return;
            }
            // Whoever changes this from here on has them divided again.
            let yields = function.1.is_none() && lock(&self.yielding).contains(&function.0);
            let yielded = std::mem::replace(&mut siblings.yield_now, yields);
            (siblings.groups.clone(), yields, yielded)
        };
        let parts = u64::try_from(groups.len()).unwrap_or(u64::MAX);
        for group in groups.iter().filter_map(Weak::upgrade) {
            if yields || yielded {
                let _ = group.set_idle(yields);
            }
            // A group that refuses is one that is gone, or yields: then it has no weight.
            let _ = match function.1 {
                Some(shares) => group.set_shares(shares / parts),
                None if yields => Ok(()),
                None => group.set_cpu_part(parts),
            };
        }
    }
}

/// The part that an adopted group has of its function's share, until this is dropped.
pub(super) struct Part {
    adopted: Arc<Adopted>,
    function: Key,
    group: Weak<Group>,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.adopted.change(&self.function, |groups| {
            groups.retain(|group| !group.ptr_eq(&self.group));
        });
    }
}

impl Shares {
    /// `are_equal`: whether all functions get as much as each other.
    pub(super) fn new(are_equal: bool) -> Self {
        Self { are_equal, by_function: Mutex::default(), adopted: Arc::default() }
    }

    /// Makes the group of an instance in its function's share. Blocks for the kernel.
    pub(super) fn group(
        &self,
        layout: &Layout,
        spec: &InstanceSpec,
        id: &str,
        limits: &Limits,
    ) -> Result<Group, CgroupError> {
        let share = if self.are_equal { self.of(layout, spec)? } else { None };
        match share {
            Some(share) => share.member(id, limits),
            None => Group::create(layout, id, limits),
        }
    }

    /// Has a group that is in no share be a function's: all such of a function together have the weight
    /// of one share. Moving its processes into the function's own would take up to 20 ms.
    pub(super) fn adopt(&self, spec: &InstanceSpec, group: &Arc<Group>) -> Option<Part> {
        if !self.are_equal {
            return None;
        }
        let group = Arc::downgrade(group);
        let function = (spec.function.clone(), spec.cpu_shares);
        self.adopted.change(&function, |groups| groups.push(group.clone()));
        Some(Part { adopted: self.adopted.clone(), function, group })
    }

    /// How many groups a function has beside those of others.
    pub(super) fn parts(&self, function: &str) -> usize {
        let key = (function.to_owned(), None);
        let has_share = lock(&self.by_function).get(&key).is_some_and(|it| it.strong_count() > 0);
        let adopted = lock(&self.adopted.by_function);
        usize::from(has_share) + adopted.get(&key).map_or(0, |siblings| siblings.groups.len())
    }

    /// Has a function run only where no other one wants to, or as any other again. Blocks for the kernel.
    pub(super) fn set_yields(&self, function: &str, yields: bool) {
        let is_change = {
            let mut yielding = lock(&self.adopted.yielding);
            if yields { yielding.insert(function.to_owned()) } else { yielding.remove(function) }
        };
        if !is_change {
            return;
        }
        let key = (function.to_owned(), None);
        let share = lock(&self.by_function).get(&key).and_then(Weak::upgrade);
        if let Some(Err(error)) = share.map(|share| share.set_idle(yields)) {
            tracing::debug!(function, "it goes on as it did: {error}");
        }
        self.adopted.divide_soon(lock(&self.adopted.by_function), &key);
    }

    fn of(
        &self,
        layout: &Layout,
        spec: &InstanceSpec,
    ) -> Result<Option<Arc<CpuShare>>, CgroupError> {
        let key = (spec.function.clone(), spec.cpu_shares);
        let mut by_function = lock(&self.by_function);
        if let Some(share) = by_function.get(&key).and_then(Weak::upgrade) {
            return Ok(Some(share));
        }
        by_function.retain(|_, share| share.strong_count() > 0);
        // Random, like an instance's: one that is being removed, or was left behind, has its name yet.
        let name = format!("function-{}", ids::instance());
        let Some(share) = CpuShare::create(layout, &name)? else { return Ok(None) };
        if let Some(shares) = spec.cpu_shares {
            share.set_shares(shares)?;
        } else if lock(&self.adopted.yielding).contains(&spec.function) {
            share.set_idle(true)?;
        }
        let share = Arc::new(share);
        by_function.insert(key, Arc::downgrade(&share));
        Ok(Some(share))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use nix::sys::stat::Mode;

    use super::*;
    use crate::sandbox::cgroup::{Controller, Version};
    use crate::sandbox::environment::tests::spec;

    #[tokio::test]
    async fn nobody_waits_for_the_kernel_to_divide_a_share() {
        let top = tempfile::tempdir().unwrap();
        let parents = BTreeMap::from([(Controller::Cpu, top.path().to_owned())]);
        let available = vec![Controller::Cpu];
        let version = Version::V1;
        let layout = Layout { version, parents, unified: None, available, obstacle: None };
        let shares = Shares::new(true);
        let group = Arc::new(Group::unlimited(&layout, "a").unwrap());
        // Whoever writes to it waits until somebody reads.
        let file = top.path().join("a/cpu.shares");
        nix::unistd::mkfifo(&file, Mode::S_IRWXU).unwrap();
        let part = shares.adopt(&spec("python", &[]), &group);
        assert!(!fs::read_to_string(file).unwrap().is_empty());
        drop(part);
        while !lock(&shares.adopted.by_function).is_empty() {
            tokio::task::yield_now().await;
        }
    }
}
