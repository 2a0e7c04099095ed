//! What instances use, as the scheduler is told; and who is stopped when that is too much.

use std::collections::HashMap;
use std::time::Duration;

use uncia_policy::{Decision, Event, Sample, WorkerId};

use super::Owner;
use crate::dispatch::host::{InstanceHost, Log};
use crate::dispatch::message::{Order, Preemption};
use crate::instance::InUse;

/// What an instance has used counts once it has served for so long: by then all of it was used for a request.
/// Until then it is expected to use what its function's past says.
const SETTLED: Duration = Duration::from_millis(100);

/// This machine.
const HERE: WorkerId = WorkerId(0);

impl<H: InstanceHost, L: Log> Owner<H, L> {
    /// Tells the scheduler, and carries out what it decides; of too much memory it decides with what each
    /// uses at hand.
    pub(super) fn note_use(&mut self, in_use: &InUse) {
        let by_name: HashMap<&str, _> = in_use.of.iter().map(|it| (&*it.instance, it)).collect();
        let samples = self.instances.iter().filter_map(|(id, state)| {
            let used = by_name.get(&*state.name)?;
            let sample = Sample { instance: *id, cpu: used.cpu, memory: used.memory };
            if in_use.excess > 0 || state.has_served_for(SETTLED) {
                Some(sample)
            } else {
                // By what it used while it idled, nobody knows what its request will.
                Some(Sample { cpu: 0, memory: 0, ..sample })
            }
        });
        let samples: Vec<_> = samples.collect();
        let mut decisions = std::mem::take(&mut self.decisions);
        self.scheduler.on_samples(self.now(), &samples, &mut decisions);
        let before = decisions.len();
        if in_use.excess > 0 {
            let event = Event::MemoryPressure { worker: HERE, bytes: in_use.excess };
            self.scheduler.on_event(self.now(), &event, &mut decisions);
            self.note_relief(in_use, &decisions[before..]);
        }
        for (index, decision) in decisions.drain(..).enumerate() {
            match decision {
                Decision::Preempt { instance } if index >= before => {
                    self.stop(instance, Order::Preempt(Preemption::Memory));
                }
                other => self.carry_out(other),
            }
        }
        self.decisions = decisions;
    }

    /// Notes who is stopped, if anybody is.
    fn note_relief(&self, in_use: &InUse, decisions: &[Decision]) {
        let after = in_use.noticed.elapsed();
        let count = |is: fn(&Decision) -> bool| decisions.iter().filter(|it| is(it)).count() as u64;
        let cached = count(|it| matches!(it, Decision::Stop { .. }));
        let active = count(|it| matches!(it, Decision::Preempt { .. }));
        if cached + active == 0 {
            return;
        }
        self.relief.note(cached, active, after);
        tracing::info!(
            excess_bytes = in_use.excess,
            cached,
            active,
            decided_us = after.as_micros() as u64,
            "instances use more memory than the capacity: some are stopped"
        );
    }
}
