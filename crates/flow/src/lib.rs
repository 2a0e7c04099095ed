//! State machines of the Amazon States Language, interpreted without I/O and without a clock.
//!
//! A [`StateMachine`] is parsed from its definition once; what this interpreter does not do is refused
//! then, by state and key. An [`Execution`] is told what happened ([`Event`]) and when, and says what is
//! to be done ([`Decision`]): functions to invoke, timers to set, and the history that Step Functions
//! would report. The same events at the same times give the same decisions, so that an execution can be
//! restored by repeating its events.
//!
//! Source: *Amazon States Language*, states-language.net/spec.html, and the documentation of AWS Step
//! Functions for history events, the names of errors and the limit of 262,144 bytes of data.

mod choice;
mod definition;
mod error;
mod execution;
mod path;
mod retry;
mod size;
mod template;

pub use definition::{StateMachine, Target};
pub use error::{DefinitionError, Failure, names};
pub use execution::{Decision, Event, Execution, History, Room, Settings, Status, TaskId, TimerId};

/// Unix time in nanoseconds.
pub type Nanos = i128;
