//! The CPU is divided between functions, however many instances each has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::cgroup::{CgroupError, CpuShare, Group, Layout, Limits};
use crate::ids;

/// The shares of the functions that have instances.
#[derive(Default)]
pub(super) struct Shares(Mutex<HashMap<String, Weak<CpuShare>>>);

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

    fn of(&self, layout: &Layout, function: &str) -> Result<Option<Arc<CpuShare>>, CgroupError> {
        let mut by_function = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
