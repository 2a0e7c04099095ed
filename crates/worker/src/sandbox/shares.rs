//! The CPU is divided between functions, however many instances each has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::cgroup::{CgroupError, CpuShare, Group, Layout, Limits};
use crate::ids;

/// The shares of the functions that have instances.
#[derive(Default)]
pub(super) struct Shares {
    by_function: Mutex<HashMap<String, Weak<CpuShare>>>,
    adopted: Arc<Mutex<Adopted>>,
}

/// Groups that were made before it was known which function's they would be, by function.
type Adopted = HashMap<String, Vec<Weak<Group>>>;

/// The part that an adopted group has of its function's share, until this is dropped.
pub(super) struct Part {
    adopted: Arc<Mutex<Adopted>>,
    function: String,
    group: Weak<Group>,
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut adopted = lock(&self.adopted);
        if let Some(groups) = adopted.get_mut(&self.function) {
            groups.retain(|group| !group.ptr_eq(&self.group));
            divide(groups);
            if groups.is_empty() {
                adopted.remove(&self.function);
            }
        }
    }
}

impl Shares {
    /// Makes the group of an instance in its function's share. Blocks for the kernel.
    pub(super) fn group(
        &self,
        layout: &Layout,
        function: &str,
        id: &str,
        limits: &Limits,
    ) -> Result<Group, CgroupError> {
        match self.of(layout, function)? {
            Some(share) => share.member(id, limits),
            None => Group::create(layout, id, limits),
        }
    }

    /// Has a group that is in no share be a function's: all such of a function together have the weight
    /// of one share. Moving its processes into the function's own would take up to 20 ms.
    pub(super) fn adopt(&self, function: &str, group: &Arc<Group>) -> Part {
        let mut adopted = lock(&self.adopted);
        let groups = adopted.entry(function.to_owned()).or_default();
        groups.push(Arc::downgrade(group));
        divide(groups);
        Part {
            adopted: self.adopted.clone(),
            function: function.to_owned(),
            group: Arc::downgrade(group),
        }
    }

    fn of(&self, layout: &Layout, function: &str) -> Result<Option<Arc<CpuShare>>, CgroupError> {
        let mut by_function = lock(&self.by_function);
        if let Some(share) = by_function.get(function).and_then(Weak::upgrade) {
            return Ok(Some(share));
        }
        by_function.retain(|_, share| share.strong_count() > 0);
        // Random, like an instance's: one that is being removed, or was left behind, has its name yet.
        let name = format!("function-{}", ids::instance());
        let Some(share) = CpuShare::create(layout, &name)? else { return Ok(None) };
        let share = Arc::new(share);
        by_function.insert(function.to_owned(), Arc::downgrade(&share));
        Ok(Some(share))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives each of these groups an equal part.
fn divide(groups: &[Weak<Group>]) {
    let parts = u64::try_from(groups.len()).unwrap_or(u64::MAX);
    for group in groups.iter().filter_map(Weak::upgrade) {
        // A group without this file is one that is gone.
        let _ = group.set_cpu_part(parts);
    }
}
