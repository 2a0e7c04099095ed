//! Every instance runs on any CPU, as the driver started it.

use super::Cpu;

/// Assigns nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unmanaged;

/// Makes the policy.
pub fn policy() -> Box<dyn Cpu> {
    Box::new(Unmanaged)
}

impl Cpu for Unmanaged {}
