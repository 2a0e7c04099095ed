//! What an instance may be started from: a file for each kind of start.
//!
//! A kind says where the first process of an instance comes from, and whether its runtime does what one
//! that is started before has done already. All else is the same for all, and is in
//! [`start`](super::start).

mod checkpoint;
mod fresh;
mod function_zygote;
mod function_zygotes;
mod pool;
mod prepared;
mod zygote;

use std::pin::Pin;
use std::sync::Arc;

use super::cgroup::Group;
use super::host::Host;
use super::kept::Kept;
use super::runtimes::Runtime;
use super::users::User;
use crate::instance::{InstanceSpec, StartError, StartFrom};

pub(super) use checkpoint::obstacle;
pub(super) use function_zygotes::FunctionZygotes;
pub(super) use pool::RuntimePool;
pub(super) use prepared::{Pool, Prepared, output_pipe};
pub(super) use zygote::{Zygote, Zygotes, is_zygote_of};

/// What an instance begins with.
pub(super) struct Origin {
    pub first: Prepared,
    /// What its runtime is to be a copy of.
    pub zygote: Option<Arc<Zygote>>,
    /// The runtime that waits in its sandbox, if one does.
    pub waiting: Option<Waiting>,
    /// The checkpoint that its runtime is restored from.
    pub restore: Option<Arc<Kept>>,
    /// Whether the first process was there before: what has become of it meanwhile is no fault of this
    /// start.
    pub made_ahead: bool,
}

/// A runtime that was started before its instance was known.
pub(super) struct Waiting {
    pub group: Option<Arc<Group>>,
    pub user: User,
}

/// A start's beginning, which may have to wait.
pub(super) type Begun<'a> = Pin<Box<dyn Future<Output = Result<Origin, StartError>> + Send + 'a>>;

/// The end of a replacement.
pub(super) type Replenished<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A kind of start.
pub(super) trait StartKind: Sync {
    /// Why instances of a runtime cannot be started so, if they cannot: what follows a colon.
    fn refuse(&self, _runtime: Runtime) -> Option<String> {
        None
    }

    /// Takes what an instance begins with, if it was made ahead with its control groups.
    fn take(&self, _host: &Host, _spec: &InstanceSpec) -> Option<Origin> {
        None
    }

    /// Takes or makes what an instance begins with.
    fn begin<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Begun<'a>;

    /// Learns that a function's instances begin so, for as long as [`Host::forget`] does not say otherwise.
    fn note(&self, _host: &Host, _spec: &InstanceSpec) {}

    /// Makes ahead what the first instances of a function begin with; returns when that is there, or why it
    /// is not has been reported. Nothing by default: not every kind is worth it for functions that may
    /// never be called.
    fn expect<'a>(&self, _host: &'a Arc<Host>, _spec: &'a InstanceSpec) -> Replenished<'a> {
        Box::pin(async {})
    }

    /// Replaces what an instance has taken, a moment after its start has ended: not at the expense of that,
    /// nor of its first request.
    fn replenish<'a>(&self, _host: &'a Arc<Host>, _spec: &'a InstanceSpec) -> Replenished<'a> {
        Box::pin(async {})
    }
}

impl StartFrom {
    /// Why instances of a runtime cannot be started so, if they cannot: what follows a colon.
    pub(crate) fn refusal(self, runtime: Runtime) -> Option<String> {
        of(self).refuse(runtime)
    }
}

/// The kind that a setting means.
pub(super) fn of(start_from: StartFrom) -> &'static dyn StartKind {
    match start_from {
        StartFrom::Fresh => &fresh::Fresh,
        StartFrom::Prepared => &prepared::FromPrepared,
        StartFrom::Zygote => &zygote::FromZygote,
        StartFrom::FunctionZygote => &function_zygote::FromFunctionZygote,
        StartFrom::Pool => &pool::FromPool,
        StartFrom::Checkpoint => &checkpoint::FromCheckpoint,
    }
}
