//! Names of functions, requests, instances and workers, and the unit of time.

use crate::state::slot_of;

/// Nanoseconds since whatever moment the driver counts from; never goes back.
pub type Nanos = u64;

/// Names a function; chosen by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u64);

/// Names a request; chosen by the driver, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Names an instance; chosen by the scheduler, ascending in the order of starts but not consecutive,
/// never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId(pub u64);

impl InstanceId {
    /// A small number that no other instance has which is not gone yet: where a driver keeps it.
    pub fn slot(self) -> usize {
        slot_of(self)
    }
}

/// Names a worker; chosen by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u32);
