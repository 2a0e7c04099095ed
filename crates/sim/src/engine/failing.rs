//! Workers that fail, and come back.

use uncia_arrivals::RandomStream;
use uncia_policy::{Event, InstanceId, Nanos, WorkerId};

use super::{Failed, Simulation};
use crate::events::Due;
use crate::setting::{Outcome, Setting};
use crate::{Gone, Sink};

/// What is drawn of failures, for each worker.
pub(super) struct Failures {
    streams: Vec<RandomStream>,
}

impl Failures {
    pub(super) fn new(setting: &Setting) -> Self {
        let stream = RandomStream::new(setting.seed, "failures of workers");
        let workers = if setting.random_failures.is_some() { setting.workers.len() } else { 0 };
        Self { streams: (0..workers).map(|worker| stream.part(worker)).collect() }
    }
}

/// An exponential time of this mean: at least a nanosecond.
fn draw(stream: &mut RandomStream, mean: Nanos) -> Nanos {
    ((stream.exponential() * mean as f64) as Nanos).max(1)
}

impl<S: Sink> Simulation<'_, S> {
    pub(super) fn plan_failures(&mut self) {
        for failure in &self.setting.failures {
            self.events.plan(failure.at, Due::Failure(failure.worker, failure.lasts));
        }
        for worker in 0..self.failures.streams.len() {
            self.plan_failure(worker);
        }
    }

    /// Draws when a worker that is back fails again, and for how long.
    fn plan_failure(&mut self, worker: usize) {
        if let (Some((works, lasts)), Some(stream)) =
            (self.setting.random_failures, self.failures.streams.get_mut(worker))
        {
            let at = self.now.saturating_add(draw(stream, works));
            let lasts = draw(stream, lasts);
            self.events.plan(at, Due::Failure(worker, lasts));
        }
    }

    /// A worker is gone with all that runs there. One that is gone already is not gone for longer.
    pub(super) fn fail(&mut self, index: usize, lasts: Nanos) -> Result<(), Failed<S::Error>> {
        if !self.workers[index].is_up {
            return Ok(());
        }
        self.touch(index);
        self.summary.events += 1;
        self.summary.failures += 1;
        while self.workers[index].len() > 0 {
            let running = self.workers[index].remove(0);
            self.summary.lost += 1;
            self.cut_short(&running, Outcome::Lost)?;
        }
        let mut instances: Vec<(usize, InstanceId)> = self
            .instances
            .iter()
            .flatten()
            .filter(|instance| instance.life.worker == index)
            .map(|instance| (instance.life.instance, instance.id))
            .collect();
        instances.sort_unstable();
        for (_, instance) in instances {
            self.stop(instance, Gone::WorkerFailed)?;
        }
        self.workers[index].is_up = false;
        self.events.plan(self.now.saturating_add(lasts), Due::Recovery(index));
        self.report(Event::WorkerGone { worker: WorkerId(index as u32) })
    }

    /// A worker is back, empty.
    pub(super) fn recover(&mut self, index: usize) -> Result<(), Failed<S::Error>> {
        self.touch(index);
        self.workers[index].is_up = true;
        self.summary.events += 1;
        self.last_progress = self.now;
        self.plan_failure(index);
        self.join(index)
    }
}
