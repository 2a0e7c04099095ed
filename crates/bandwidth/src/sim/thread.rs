//! A thread of the simulation, what it does next, and what is seen of it.

use super::setting::Step;

/// Longer than anything that is simulated.
pub(super) const FOREVER: i64 = i64::MAX / 4;

/// What a thread does.
#[derive(Debug, Clone)]
pub(super) enum Program {
    /// Runs until the clock says so.
    Until(i64),
    /// Sleeps and computes in turn; `rest` is what it computes after what comes before.
    Tasks { tasks: Vec<Task>, next: usize, rest: Option<i64> },
    /// Repeats its steps until the clock says so.
    Pattern { steps: Vec<Step>, next: usize, end: i64 },
}

/// A task, the sleep before it, and what is used between the two, in ns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub sleep: i64,
    pub before: i64,
    pub cpu: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// On a queue, running or not.
    Runnable,
    Sleeping,
    /// Throttled by itself (`throttled_limbo_list`).
    Limbo,
    Done,
}

/// What was seen of one run: a probe, a task or a pattern.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// When it was ready to run, on the simulation's clock.
    pub start: i64,
    /// When it ended, on the same clock, in ns.
    pub end: i64,
    /// CPU time it used, in ns.
    pub cpu: i64,
    /// From when to when it did not run though it could have, where that was long enough.
    pub gaps: Vec<(i64, i64)>,
    /// The group's counters between start and end, as `cpu.stat` has them.
    pub periods: u64,
    /// Periods in which the group was throttled (`nr_throttled`).
    pub throttled_periods: u64,
    /// How long the group was throttled, in ns.
    pub throttled_time: i64,
}

/// The group's counters at a time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub periods: u64,
    pub throttled_periods: u64,
    pub throttled_time: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Thread {
    pub program: Program,
    pub state: State,
    /// Of the group, not a neighbour.
    pub grouped: bool,
    pub cpu: usize,
    /// CPU time until its step ends.
    pub left: i64,
    /// In the kernel.
    pub kernel: bool,
    pub wakes: i64,
    /// Since when it has waited for a CPU.
    pub waits: Option<i64>,
    pub threshold: i64,
    /// What is seen of the run that goes on; none between tasks.
    pub now: Option<Seen>,
    before: Counters,
    pub seen: Vec<Seen>,
}

impl Thread {
    pub(super) fn new(program: Program, grouped: bool, cpu: usize, threshold: i64) -> Self {
        Self {
            program,
            state: State::Sleeping,
            grouped,
            cpu,
            left: 0,
            kernel: false,
            wakes: FOREVER,
            waits: None,
            threshold,
            now: None,
            before: Counters::default(),
            seen: Vec::new(),
        }
    }

    /// It can run from `now` on.
    pub(super) fn wake(&mut self, now: i64, counters: Counters) {
        self.state = State::Runnable;
        self.waits = Some(now);
        if self.now.is_none() {
            self.open(now, counters);
        }
    }

    fn open(&mut self, now: i64, counters: Counters) {
        self.now = Some(Seen { start: now, ..Seen::default() });
        self.before = counters;
    }

    /// It has run so long.
    pub(super) fn ran(&mut self, time: i64) {
        self.left -= time;
        if let Some(seen) = &mut self.now {
            seen.cpu += time;
        }
    }

    /// It begins to run.
    pub(super) fn begin(&mut self, now: i64) {
        if let (Some(since), Some(seen)) = (self.waits.take(), &mut self.now)
            && now - since >= self.threshold.max(1)
        {
            seen.gaps.push((since, now));
        }
        if let Program::Until(end) = self.program {
            self.left = (end - now).max(0);
        }
    }

    /// Its step is over: what it does now. False: it does not run on.
    pub(super) fn step(&mut self, now: i64, counters: Counters) -> bool {
        loop {
            match &mut self.program {
                Program::Until(_) => {
                    self.finish(now, counters);
                    self.state = State::Done;
                    return false;
                }
                Program::Tasks { tasks, next, rest } => {
                    if let Some(cpu) = rest.take() {
                        self.left = cpu;
                        self.open(now, counters);
                        return true;
                    }
                    let after = tasks.get(*next).copied();
                    *next += 1;
                    if let Some(Task { before: 1.., cpu, .. }) = after {
                        *rest = Some(cpu);
                    }
                    self.finish(now, counters);
                    let Some(task) = after else {
                        self.state = State::Done;
                        return false;
                    };
                    self.left = if task.before > 0 { task.before } else { task.cpu };
                    self.sleep(now + task.sleep);
                    return false;
                }
                Program::Pattern { steps, next, end } => {
                    if now >= *end {
                        self.finish(now, counters);
                        self.state = State::Done;
                        return false;
                    }
                    let step = steps[*next];
                    *next = (*next + 1) % steps.len();
                    match step {
                        Step::RunNs(0) | Step::KernelNs(0) | Step::SleepNs(0) => {}
                        Step::RunNs(cpu) | Step::KernelNs(cpu) => {
                            self.left = i64::try_from(cpu).unwrap_or(FOREVER);
                            self.kernel = matches!(step, Step::KernelNs(_));
                            return true;
                        }
                        Step::SleepNs(time) => {
                            self.left = 0;
                            self.kernel = false;
                            let end = now.saturating_add(i64::try_from(time).unwrap_or(FOREVER));
                            self.sleep(end);
                            return false;
                        }
                    }
                }
            }
        }
    }

    fn sleep(&mut self, until: i64) {
        self.state = State::Sleeping;
        self.wakes = until;
    }

    fn finish(&mut self, now: i64, counters: Counters) {
        if let Some(mut seen) = self.now.take() {
            seen.end = now;
            seen.periods = counters.periods - self.before.periods;
            seen.throttled_periods = counters.throttled_periods - self.before.throttled_periods;
            seen.throttled_time = counters.throttled_time - self.before.throttled_time;
            self.seen.push(seen);
        }
    }
}
