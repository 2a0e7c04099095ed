//! The instance that was used last: the likeliest to be unfrozen and in the caches, while those that
//! are not needed any more age towards their removal.

use super::Reuse;
use crate::{FunctionView, InstanceId, Random, View};

/// Takes the last used instance.
#[derive(Debug, Clone, Copy, Default)]
pub struct MostRecentlyUsed;

/// Makes the policy.
pub fn policy() -> Box<dyn Reuse> {
    Box::new(MostRecentlyUsed)
}

impl Reuse for MostRecentlyUsed {
    fn choose(
        &mut self,
        _: View<'_>,
        _: &mut Random,
        function: &FunctionView<'_>,
    ) -> Option<InstanceId> {
        function.last_available().map(|instance| instance.id())
    }
}
