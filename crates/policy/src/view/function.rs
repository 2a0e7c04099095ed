//! A function as policies see it.

use super::InstanceView;
use crate::leopard::Expected;
use crate::state::{Function, State, count_phase};
use crate::{Counts, FunctionId, FunctionSettings, Nanos, Resources};

/// A function, its requests and its past.
#[derive(Debug, Clone, Copy)]
pub struct FunctionView<'a> {
    pub(super) state: &'a State,
    pub(super) function: &'a Function,
}

impl<'a> FunctionView<'a> {
    /// Its name.
    pub fn id(&self) -> FunctionId {
        self.function.extra.id
    }

    /// What its owner asks for.
    pub fn settings(&self) -> &'a FunctionSettings {
        &self.function.settings
    }

    /// What one more of its instances takes up of a worker's capacity: its allocation, or what is
    /// reserved for it, see [`Admission::reserves_only`](crate::admission::Admission::reserves_only).
    pub fn room(&self) -> Resources {
        self.state.size_of_settings(&self.function.settings).room
    }

    /// Admitted requests that have not ended.
    pub fn in_flight(&self) -> u32 {
        self.function.in_flight
    }

    /// Admitted requests that no instance serves yet.
    pub fn waiting(&self) -> usize {
        self.function.waiting() as usize
    }

    /// Those of them that do not wait for an instance that retires.
    pub fn waiting_for_new(&self) -> usize {
        (self.function.waiting() - self.function.bound_to_retiring) as usize
    }

    /// Requests that wait to be admitted.
    pub fn backlog(&self) -> usize {
        self.function.extra.backlog.len()
    }

    /// Connections to it that have asked for nothing yet, see
    /// [`Event::ConnectionBegan`](crate::Event::ConnectionBegan).
    pub fn connecting(&self) -> u32 {
        self.function.extra.connecting
    }

    /// Instances on the account of hints: started for one and not used yet, or kept for one.
    pub fn on_hint(&self) -> u32 {
        self.function.extra.on_hint
    }

    /// Starting instances. Like the next two, without those that retire.
    pub fn starting(&self) -> u32 {
        self.function.starting
    }

    /// Instances that serve nothing.
    pub fn idle(&self) -> u32 {
        self.function.idle
    }

    /// Instances that serve.
    pub fn active(&self) -> u32 {
        self.function.active
    }

    /// Instances that do not retire.
    pub fn instances(&self) -> u32 {
        self.function.instances()
    }

    /// How many of its instances do what, retiring ones included, and how many of its requests wait.
    pub fn counts(&self) -> Counts {
        let mut counts =
            Counts { waiting: self.waiting(), backlog: self.backlog(), ..Counts::default() };
        for slot in &self.function.extra.members {
            count_phase(&mut counts, &self.state.instances[*slot as usize], 1);
        }
        counts
    }

    /// Requests that its instances serve.
    pub fn serving(&self) -> u32 {
        self.function.serving
    }

    /// Further requests that its instances, starting ones included, can take.
    pub fn free_slots(&self) -> u64 {
        let function = self.function;
        function
            .capacity
            .saturating_sub(u64::from(function.serving) + self.waiting_for_new() as u64)
    }

    /// Arrivals so far, admitted or not.
    pub fn arrivals(&self) -> u64 {
        self.function.statistics.arrivals
    }

    /// When the last request arrived.
    pub fn last_arrival(&self) -> Option<Nanos> {
        self.function.statistics.last_arrival()
    }

    /// Arrivals a second of late.
    pub fn arrival_rate(&self) -> f64 {
        self.function.statistics.arrival_rate(self.state.now)
    }

    /// Invocations that ended by themselves; the means are of these.
    pub fn ended(&self) -> u64 {
        self.function.statistics.ended()
    }

    /// Mean duration of an invocation; None if none has ended.
    pub fn mean_duration(&self) -> Option<Nanos> {
        self.function.statistics.mean_duration()
    }

    /// Mean CPU time of an invocation; None if none was measured.
    pub fn mean_cpu(&self) -> Option<Nanos> {
        self.function.statistics.mean_cpu()
    }

    /// Mean of the invocations' average memory; None if none was measured.
    pub fn mean_memory(&self) -> Option<u64> {
        self.function.statistics.mean_memory()
    }

    /// What is expected of an invocation.
    pub(crate) fn expected(&self) -> Expected {
        if self.state.expects {
            self.function.extra.prospect.expected
        } else {
            Expected::of(&self.function.settings, &self.function.statistics)
        }
    }

    /// Mean time that the start of an instance took; None if none was ready yet.
    pub fn mean_initialization(&self) -> Option<Nanos> {
        self.function.extra.initialization.get()
    }

    /// The one of [`Self::available`] that was used last.
    pub fn last_available(&self) -> Option<InstanceView<'a>> {
        self.function.available.last().map(|slot| InstanceView::new(self.state, slot))
    }

    /// The instances that can take a request now, the least recently used first.
    pub fn available(&self) -> impl DoubleEndedIterator<Item = InstanceView<'a>> + use<'a> {
        let state = self.state;
        let slots = self.function.available.iter(&state.instances);
        slots.map(move |slot| InstanceView::new(state, slot))
    }
}
