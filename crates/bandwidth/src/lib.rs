//! CPU bandwidth control: what the kernel's quota in a period does to a task.
//!
//! A control group may run for a *quota* of CPU time in each *period*; when it has run for so long,
//! it is throttled until the period ends (Turner, Rao and Rao, *CPU bandwidth control for CFS*,
//! 2010). [`closed_form`] says how long a task takes if the kernel accounts perfectly; it accounts
//! at ticks, so that reality differs in the task's favour. [`expected`] is the closed form of a CPU
//! time that varies, begun at any time.

pub mod closed_form;
mod control;
pub mod expected;
#[cfg(target_os = "linux")]
pub mod probe;
pub mod sim;

pub use control::{Control, ControlError};
pub use uncia_cgroup as cgroup;
pub use uncia_cgroup::Nanos;
pub use uncia_cgroup::bandwidth::{MAX_PERIOD, MICRO_PER_VCPU, MIN_PERIOD, MIN_QUOTA};
