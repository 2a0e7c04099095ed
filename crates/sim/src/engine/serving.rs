//! What the scheduler decides: instances start and stop, and serve requests.

use uncia_policy::{
    Decision, End, Event, FunctionId, InstanceId, RequestId, Sample, StopReason, Usage, WorkerId,
};

use super::{Again, Failed, Instance, MOST_ATTEMPTS, Simulation};
use crate::events::Due;
use crate::running::Running;
use crate::setting::Outcome;
use crate::totals::Integral;
use crate::{Gone, Life, Run, Served, Sink};

const MICRO_PER_VCPU: Integral = 1_000_000;

/// So many attempts are preempted one after the other when they have just begun, at most.
const MOST_IN_VAIN: u64 = 100_000;

/// `a / b`; most of these fit in 64 bits, which is much quicker.
fn quotient(a: Integral, b: u64) -> Option<u64> {
    match u64::try_from(a) {
        Ok(a) => a.checked_div(b),
        Err(_) => a.checked_div(b.into()).map(|quotient| quotient as u64),
    }
}

impl<S: Sink> Simulation<'_, S> {
    pub(super) fn carry_out(
        &mut self,
        mut decisions: Vec<Decision>,
    ) -> Result<(), Failed<S::Error>> {
        for decision in decisions.drain(..) {
            self.carry_out_one(decision)?;
        }
        self.decisions = decisions;
        Ok(())
    }

    fn carry_out_one(&mut self, decision: Decision) -> Result<(), Failed<S::Error>> {
        match decision {
            Decision::Start { instance, function, worker } => {
                self.start(instance, function, worker);
            }
            Decision::Assign { request, instance, .. } => self.assign(request, instance),
            Decision::Reject { request, reason } => {
                self.outstanding -= 1;
                self.summary.rejected += 1;
                let Again { since, attempt } = self.waited(request);
                let (invocation, outcome) = (request.0 as usize, Outcome::Rejected(reason));
                let served = Served { invocation, attempt, outcome, arrived: since, run: None };
                self.sink.served(&served).map_err(Failed::Sink)?;
            }
            Decision::Stop { instance, reason } => {
                self.stop(instance, Gone::Stopped(reason))?;
                self.reports.push_back(Event::InstanceGone { instance });
            }
            Decision::Preempt { instance } => self.preempt(instance)?,
            Decision::Hold { instance } => {
                let now = self.now;
                if let Some(instance) = self.instance(instance) {
                    instance.on_hint_since.get_or_insert(now);
                }
            }
            Decision::Release { instance } => {
                let now = self.now;
                if let Some(instance) = self.instance(instance) {
                    instance.end_hint(now);
                }
            }
            Decision::WakeAt(at) => {
                let at = at.max(self.now);
                self.wake_at = Some(at);
                self.events.plan(at, Due::Wake);
            }
            // Cores are shared by the rule of the setting; a frozen instance uses none, and neither
            // does another idle one.
            Decision::SetCpu { .. } | Decision::Pause { .. } => {}
        }
        Ok(())
    }

    /// Since when a request has waited, and for which attempt; it does no more.
    fn waited(&mut self, request: RequestId) -> Again {
        if !self.again.is_empty()
            && let Some(again) = self.again.remove(&request)
        {
            return again;
        }
        Again { since: self.trace.invocations[request.0 as usize].arrival, attempt: 1 }
    }

    /// An instance that is there.
    pub(super) fn instance(&mut self, id: InstanceId) -> Option<&mut Instance> {
        self.instances.get_mut(id.slot())?.as_mut().filter(|instance| instance.id == id)
    }

    fn start(&mut self, id: InstanceId, function: FunctionId, worker: WorkerId) {
        let lengths = &self.setting.starts;
        let length = lengths[self.starts.whole_below(lengths.len() as u64, 1) as usize];
        self.events.plan(self.now.saturating_add(length), Due::Ready(id));
        let life = Life {
            instance: self.summary.starts as usize,
            function: function.0 as usize,
            worker: worker.0 as usize,
            started: self.now,
            initialized: None,
            ended: None,
            invocations: 0,
            idle: Vec::new(),
            hint_idle: 0,
        };
        self.summary.starts += 1;
        self.starting += 1;
        self.last_progress = self.now;
        if self.instances.len() <= id.slot() {
            self.instances.resize_with(id.slot() + 1, || None);
        }
        let (idle_since, on_hint_since) = (None, None);
        self.instances[id.slot()] =
            Some(Instance { id, life, idle_since, on_hint_since, idle_memory: 0 });
    }

    /// An instance has started.
    pub(super) fn ready(&mut self, id: InstanceId) -> Result<(), Failed<S::Error>> {
        let now = self.now;
        let Some(instance) = self.instance(id) else { return Ok(()) };
        instance.life.initialized = Some(now);
        instance.idle_since = Some(now);
        let initialization = now - instance.life.started;
        self.starting -= 1;
        self.summary.events += 1;
        self.last_progress = now;
        self.report(Event::InstanceReady { instance: id, initialization })
    }

    fn assign(&mut self, request: RequestId, id: InstanceId) {
        let invocation = request.0 as usize;
        let known = self.trace.invocations[invocation];
        let settings = &self.setting.functions[known.function as usize].settings;
        let phases = known.first_phase..known.first_phase + known.phases as usize;
        let now = self.now;
        let Again { since, attempt } = self.waited(request);
        let mut running = Running::new(settings, invocation, id, phases, now);
        (running.arrived, running.attempt) = (since, attempt);
        let Some(instance) = self.instance(id) else { return };
        let life = &mut instance.life;
        if life.invocations == 0 && life.initialized == Some(now) {
            running.initialization = Some(now - life.started.max(since));
        }
        life.invocations += 1;
        instance.end_idle(now);
        let (worker, idle_memory) =
            (instance.life.worker, std::mem::take(&mut instance.idle_memory));
        self.touch(worker);
        let worker = &mut self.workers[worker];
        worker.remove_idle_memory(idle_memory);
        worker.push(running, settings, &self.trace.phases);
    }

    /// An attempt has run to its end.
    pub(super) fn serve(&mut self, running: &Running) -> Result<(), Failed<S::Error>> {
        let (id, memory, now) = (running.instance, running.memory, self.now);
        self.outstanding -= 1;
        self.summary.served += 1;
        if self.reads_samples {
            self.samples.push(Sample { instance: id, cpu: 0, memory });
            self.report_samples()?;
        }
        if let Some(instance) = self.instance(id) {
            instance.idle_since = Some(now);
            instance.idle_memory = memory;
            let worker = instance.life.worker;
            self.workers[worker].add_idle_memory(memory);
        }
        let request = RequestId(running.invocation as u64);
        let usage = self.write(running, Outcome::Ok)?;
        self.report(Event::InvocationEnded { request, instance: id, end: End::Survives, usage })
    }

    /// Writes the row of an attempt that ran; what it used.
    pub(super) fn write(
        &mut self,
        running: &Running,
        outcome: Outcome,
    ) -> Result<Usage, Failed<S::Error>> {
        let Running { invocation, attempt, arrived, initialization, started, meter, .. } = *running;
        let duration = self.now - started;
        let life = self.instance(running.instance).map(|it| (it.life.instance, it.life.worker));
        let (instance, worker) = life.unwrap_or_default();
        let (slot, ended) = (running.instance.slot(), self.now);
        let run = Run { instance, slot, worker, initialization, started, ended, meter };
        let served = Served { invocation, attempt, outcome, arrived, run: Some(run) };
        self.sink.served(&served).map_err(Failed::Sink)?;
        Ok(Usage {
            duration,
            cpu: quotient(meter.cpu(), MICRO_PER_VCPU as u64),
            memory: quotient(meter.memory, duration),
        })
    }

    /// An instance that serves nothing is gone.
    pub(super) fn stop(&mut self, id: InstanceId, why: Gone) -> Result<(), Failed<S::Error>> {
        let slot = self.instances.get_mut(id.slot());
        let Some(mut instance) = slot.and_then(|slot| slot.take_if(|it| it.id == id)) else {
            return Ok(());
        };
        let worker = instance.life.worker;
        self.stopped += 1;
        self.starting -= u64::from(instance.life.initialized.is_none());
        if instance.idle_memory > 0 {
            self.touch(worker);
            self.workers[worker].remove_idle_memory(instance.idle_memory);
        }
        instance.life.ended = Some((self.now, why));
        self.bury(instance)
    }

    /// Writes the row of an instance that is gone, or there to the end.
    pub(super) fn bury(&mut self, mut instance: Instance) -> Result<(), Failed<S::Error>> {
        instance.end_idle(self.now);
        self.sink.instance(&instance.life).map_err(Failed::Sink)
    }

    /// Stops an instance that serves; its request waits again.
    fn preempt(&mut self, id: InstanceId) -> Result<(), Failed<S::Error>> {
        let Some(worker) = self.instance(id).map(|known| known.life.worker) else {
            return Ok(());
        };
        self.touch(worker);
        let Some(position) = self.workers[worker].position(id) else { return Ok(()) };
        let running = self.workers[worker].remove(position);
        if running.started == self.now {
            self.vain += 1;
            if self.vain > MOST_IN_VAIN {
                return Err(Failed::Livelock { at: self.now, worker });
            }
        } else {
            self.vain = 0;
        }
        self.summary.events += 1;
        self.summary.preempted += 1;
        let usage = self.cut_short(&running, Outcome::Preempted)?;
        self.stop(id, Gone::Stopped(StopReason::Preempted))?;
        let (request, end) = (RequestId(running.invocation as u64), End::Preempted);
        self.reports.push_back(Event::InvocationEnded { request, instance: id, end, usage });
        Ok(())
    }

    /// An attempt was stopped before its end, and its request waits again.
    pub(super) fn cut_short(
        &mut self,
        running: &Running,
        outcome: Outcome,
    ) -> Result<Usage, Failed<S::Error>> {
        let Running { invocation: request, attempt: attempts, .. } = *running;
        if attempts >= MOST_ATTEMPTS {
            let function = self.trace.invocations[request].function as usize;
            let function = self.setting.functions[function].name.clone();
            return Err(Failed::NeverEnds { at: self.now, request, function, attempts });
        }
        let again = Again { since: self.now, attempt: attempts + 1 };
        self.again.insert(RequestId(request as u64), again);
        self.write(running, outcome)
    }
}
