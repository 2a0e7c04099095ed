//! What happens on workers: phases end, cores are divided anew, memory is freed, accounts are given.

use uncia_policy::{Event, WorkerId};

use super::{Failed, Simulation};
use crate::{Interval, Sink};

impl<S: Sink> Simulation<'_, S> {
    /// Ends the phases on a worker that are due.
    pub(super) fn end_phases(&mut self, index: usize) -> Result<(), Failed<S::Error>> {
        self.touch(index);
        self.last_progress = self.now;
        let mut ended = std::mem::take(&mut self.ended);
        let (mut from, worker) = (0, &mut self.workers[index]);
        while let Some(position) = worker.ended(from) {
            self.summary.events += 1;
            if worker.enter_next(position, &self.trace.phases) {
                from = position + 1;
            } else {
                ended.push(worker.remove(position));
                from = position;
            }
        }
        for running in ended.drain(..) {
            self.serve(&running)?;
        }
        self.ended = ended;
        Ok(())
    }

    /// Accounts for the time until now on a worker, on which something changes.
    pub(super) fn touch(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        worker.advance(self.now);
        if !std::mem::replace(&mut worker.is_changed, true) {
            self.changed.push(index);
        }
    }

    /// Divides the cores anew where something has changed, and frees memory where there is too little.
    pub(super) fn settle(&mut self) -> Result<(), Failed<S::Error>> {
        while let Some(index) = self.changed.pop() {
            self.relieve(index)?;
            let worker = &mut self.workers[index];
            if !worker.is_changed {
                continue;
            }
            let end = worker.divide(self.sharing.as_mut(), &mut self.scratch);
            self.events.plan_phase(index, end);
            self.sample(index)?;
        }
        Ok(())
    }

    /// Has instances stopped until what is used of a worker's memory is no more than there is.
    fn relieve(&mut self, index: usize) -> Result<(), Failed<S::Error>> {
        let mut stopped = None;
        loop {
            let bytes = self.workers[index].excess();
            if bytes == 0 {
                return Ok(());
            }
            // What was stopped may have held less than the scheduler knew.
            if stopped.replace(self.stopped) == Some(self.stopped) {
                return Err(Failed::OutOfMemory { at: self.now, worker: index, bytes });
            }
            self.sample(index)?;
            self.report(Event::MemoryPressure { worker: WorkerId(index as u32), bytes })?;
        }
    }

    /// Tells the scheduler what instances use, where that has changed.
    fn sample(&mut self, index: usize) -> Result<(), Failed<S::Error>> {
        if !self.reads_samples {
            return Ok(());
        }
        self.workers[index].sample(&mut self.samples);
        self.report_samples()
    }

    /// Has all workers give account of the time since the last account.
    pub(super) fn account(&mut self) -> Result<(), Failed<S::Error>> {
        for (index, worker) in self.workers.iter_mut().enumerate() {
            worker.advance(self.now);
            let (start, before) = self.accounts[index];
            if start == self.now {
                continue;
            }
            self.accounts[index] = (self.now, worker.totals);
            let totals = worker.totals - before;
            let interval = Interval { worker: index, start, end: self.now, totals };
            self.sink.interval(&interval).map_err(Failed::Sink)?;
        }
        Ok(())
    }
}
