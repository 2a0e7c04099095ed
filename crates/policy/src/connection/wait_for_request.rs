//! Nothing: instances are started for requests.

use super::Connection;
use crate::{FunctionView, Random, View};

/// Starts nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitForRequest;

/// Makes the policy.
pub fn policy() -> Box<dyn Connection> {
    Box::new(WaitForRequest)
}

impl Connection for WaitForRequest {
    fn reads_connections(&self) -> bool {
        false
    }

    fn starts(&mut self, _: View<'_>, _: &mut Random, _: &FunctionView<'_>) -> u32 {
        0
    }
}
