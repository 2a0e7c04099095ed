//! Which instance gives up its room: one file per policy.

use crate::{InstanceId, InstanceView, Random, View, WorkerId};

include!(concat!(env!("OUT_DIR"), "/eviction.rs"));

/// Whose room may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Victims {
    /// [`WorkerView::idle`](crate::WorkerView::idle): another instance is to be started.
    Idle,
    /// [`WorkerView::active`](crate::WorkerView::active): a request is admitted at the expense of
    /// others.
    Active,
    /// Either: the worker is short of memory.
    Any,
}

/// Decides which instance is evicted, or preempted if it is active.
pub trait Eviction: Send {
    /// Whether it reads what instances use by their samples.
    fn reads_samples(&self) -> bool {
        false
    }

    /// One of these instances on the worker. Asked again until there is room enough, or the answer
    /// is None or an instance that is not among them.
    fn victim(
        &mut self,
        view: View<'_>,
        random: &mut Random,
        worker: WorkerId,
        victims: Victims,
    ) -> Option<InstanceId>;

    /// Takes note of an instance that has become idle, or that idles and may be evicted from now on; for
    /// policies that keep an order of their own.
    fn on_idle(&mut self, view: View<'_>, instance: &InstanceView<'_>) {
        let _ = (view, instance);
    }

    /// Takes note of an instance that is gone.
    fn on_gone(&mut self, instance: InstanceId) {
        let _ = instance;
    }
}
