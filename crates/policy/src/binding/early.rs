//! A request waits for the instance that was started for it, so that every request of a burst on no
//! instance is a cold start.

use super::Binding;
use crate::{FunctionView, Random, View};

/// Never lets a request leave its instance.
#[derive(Debug, Clone, Copy, Default)]
pub struct Early;

/// Makes the policy.
pub fn policy() -> Box<dyn Binding> {
    Box::new(Early)
}

impl Binding for Early {
    fn is_late(&mut self, _: View<'_>, _: &mut Random, _: &FunctionView<'_>) -> bool {
        false
    }
}
