//! A request goes to whichever instance is free first, so that short requests of a burst share the
//! instances that are ready early, and the others were started for nothing.

use super::Binding;
use crate::{FunctionView, Random, View};

/// Always lets a request leave its instance.
#[derive(Debug, Clone, Copy, Default)]
pub struct Late;

/// Makes the policy.
pub fn policy() -> Box<dyn Binding> {
    Box::new(Late)
}

impl Binding for Late {
    fn is_late(&mut self, _: View<'_>, _: &mut Random, _: &FunctionView<'_>) -> bool {
        true
    }
}
