//! Several workers behind one API.
//!
//! The *controller* has the functions, the scheduler and the log, and runs nothing itself. *Workers* join
//! it, and start instances that it asks for: to the [dispatcher](crate::dispatch) they are hosts like the
//! one that a platform alone has. A worker that is gone takes its instances along; what they served ends
//! with an error, and is not run again, since nobody knows how far it came.
//!
//! | module | concern |
//! |---|---|
//! | [`wire`] | what both sides say to each other |
//! | [`frames`] | an answer that passes while it is made |
//! | [`members`] | the workers, as the controller reaches them |
//! | [`remote`] | an instance on one of them |
//! | [`agent`] | a worker that has joined |
//! | [`instances`] | what runs there |
//! | [`uplink`] | how that reaches its controller |
//! | [`websockets`] | bytes that pass both ways |

mod agent;
mod ahead;
mod frames;
mod instances;
mod members;
mod packages;
mod remote;
mod uplink;
mod websockets;
mod wire;

pub use agent::{Agent, JoinError, JoinSettings, Joined};
pub(crate) use members::Members;
pub(crate) use remote::RemoteInstance;
pub(crate) use wire::{INTRODUCTION_HEADER, Introduction, JOIN_PATH, PROTOCOL, engine_version};
