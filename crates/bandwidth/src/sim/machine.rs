//! CPUs, their queues and ticks, and the group on them: the loop from event to event.
//!
//! Function names in comments are those of kernel/sched/fair.c and core.c.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::class::{Entity, Granularity, Queue};
use super::pool::{Local, Pool};
use super::setting::{Setting, Throttling};
use super::thread::{Counters, FOREVER, State, Thread};

/// A CPU.
#[derive(Debug, Clone, Default)]
struct Cpu {
    /// Its threads outside the group, and the group if that has a thread to run here.
    root: Queue,
    /// The group's threads.
    group: Queue,
    throttled_since: i64,
    current: Option<usize>,
    /// Until when the thread that runs has been followed, and until when the root has been charged.
    since: i64,
    root_since: i64,
    /// Time that ran until `since` but has not been charged yet, as between a tick and a step's end.
    uncharged: i64,
    /// Its next tick; it has none while it is idle (`NO_HZ_IDLE`).
    tick: i64,
    /// Whose tasks are throttled one by one and wait for runtime.
    limbo: Vec<usize>,
}

/// A machine with one group of threads under a quota, and others beside it.
pub(super) struct Machine<'a> {
    setting: &'a Setting,
    by: Granularity,
    pool: Option<Pool>,
    cpus: Vec<Cpu>,
    locals: Vec<Local>,
    entities: Vec<Entity>,
    pub threads: Vec<Thread>,
    /// Threads of the group that are not done.
    left: usize,
    throttled_time: i64,
    tick: i64,
    tick_offset: i64,
    freed: Vec<usize>,
    random: &'a mut ChaCha8Rng,
    /// Ticks that were handled, for those who measure the simulator.
    pub ticks: u64,
}

impl<'a> Machine<'a> {
    pub(super) fn new(
        setting: &'a Setting,
        pool: Option<Pool>,
        threads: Vec<Thread>,
        random: &'a mut ChaCha8Rng,
    ) -> Self {
        let mut entities = vec![Entity::new(super::class::DEFAULT_WEIGHT); threads.len()];
        entities.extend((0..setting.cpus).map(|_| Entity::new(setting.weight)));
        let left = threads.iter().filter(|thread| thread.grouped).count();
        let remaining = i64::try_from(setting.remaining_ns).unwrap_or(FOREVER);
        Self {
            setting,
            by: Granularity::of(setting.cpus),
            pool,
            cpus: vec![Cpu::default(); setting.cpus],
            locals: vec![Local { remaining, throttled: false }; setting.cpus],
            entities,
            threads,
            left,
            throttled_time: 0,
            tick: i64::try_from(setting.tick()).unwrap_or(FOREVER),
            tick_offset: i64::try_from(setting.tick_offset_ns).unwrap_or(0),
            freed: Vec::new(),
            random,
            ticks: 0,
        }
    }

    /// Runs until every thread of the group is done.
    pub(super) fn run(&mut self) {
        while self.left > 0 {
            self.next();
        }
    }

    /// One event. At the same time the pool's timers come before ticks: they were armed earlier, and
    /// timers that expire together are served in the order in which they were armed.
    fn next(&mut self) {
        let timer = self.pool.as_ref().and_then(Pool::next_timer).unwrap_or(FOREVER);
        let (mut at, mut what) = (timer, Next::Pool);
        for (id, thread) in self.threads.iter().enumerate() {
            if thread.state == State::Sleeping && thread.wakes < at {
                (at, what) = (thread.wakes, Next::Wake(id));
            }
        }
        let mut others = at;
        for (number, cpu) in self.cpus.iter().enumerate() {
            let Some(current) = cpu.current else { continue };
            let ends = cpu.since + self.threads[current].left;
            if ends < at {
                (at, what) = (ends, Next::Step(number));
            }
            others = at;
            if cpu.tick < at {
                (at, what) = (cpu.tick, Next::Tick(number));
            }
        }
        match what {
            Next::Pool => self.expire(at),
            Next::Wake(id) => self.wake(id, at),
            Next::Step(cpu) => self.step(cpu, at),
            Next::Tick(cpu) => self.on_tick(cpu, at, others),
        }
    }

    fn counters(&self) -> Counters {
        let (periods, throttled_periods) =
            self.pool.as_ref().map_or((0, 0), |pool| (pool.periods, pool.throttled_periods));
        Counters { periods, throttled_periods, throttled_time: self.throttled_time }
    }

    fn group_entity(&self, cpu: usize) -> usize {
        self.threads.len() + cpu
    }

    /// `update_curr` of every level. True: the group has no runtime left here.
    fn update(&mut self, cpu: usize, now: i64) -> bool {
        self.update_root(cpu, now);
        let Some(current) = self.follow(cpu, now) else { return false };
        let local = &mut self.locals[cpu];
        let cpu = &mut self.cpus[cpu];
        let ran = std::mem::take(&mut cpu.uncharged);
        if !self.threads[current].grouped {
            return false;
        }
        cpu.group.charge(&mut self.entities, ran);
        match &mut self.pool {
            Some(pool) => !pool.account(now, local, ran),
            None => false,
        }
    }

    /// Brings the thread that runs, if any, up to date without charging anybody.
    fn follow(&mut self, cpu: usize, now: i64) -> Option<usize> {
        let cpu = &mut self.cpus[cpu];
        let current = cpu.current?;
        let ran = (now - cpu.since).max(0);
        cpu.since = cpu.since.max(now);
        cpu.uncharged += ran;
        self.threads[current].ran(ran);
        Some(current)
    }

    /// `update_curr` of the root alone, as a wake-up of another of its entities does.
    fn update_root(&mut self, cpu: usize, now: i64) {
        let cpu = &mut self.cpus[cpu];
        let ran = (now - cpu.root_since).max(0);
        cpu.root_since = cpu.root_since.max(now);
        cpu.root.charge(&mut self.entities, ran);
    }

    /// `sched_tick`, `task_tick_fair`: a tick, and those that follow it before `others`, which is when
    /// anything else happens on a machine with one CPU.
    fn on_tick(&mut self, cpu: usize, now: i64, others: i64) {
        self.ticks += 1;
        self.cpus[cpu].tick += self.tick;
        let empty = self.update(cpu, now);
        let class = self.setting.scheduler;
        let grouped = self.current_is_grouped(cpu);
        let this = &mut self.cpus[cpu];
        let mut turn = this.root.tick(class, &mut self.entities, &self.by);
        if grouped {
            turn |= this.group.tick(class, &mut self.entities, &self.by);
        }
        if empty || turn {
            self.schedule(cpu, now);
        } else if self.cpus.len() == 1 {
            self.coast(now, others);
        }
    }

    /// Ticks after `now` and before `others` of a CPU on which a thread is alone: the same as one by
    /// one, without asking in between what comes next.
    fn coast(&mut self, now: i64, others: i64) {
        let (this, local, tick) = (&mut self.cpus[0], &mut self.locals[0], self.tick);
        let Some(id) = this.current else { return };
        let thread = &mut self.threads[id];
        let charged = this.since == now && this.root_since == now && this.uncharged == 0;
        let alone = this.root.is_alone() && (!thread.grouped || this.group.is_alone());
        let mut pool = self.pool.as_mut().filter(|_| thread.grouped);
        if !charged || !alone {
            return;
        }
        // This tick may have armed a timer; another would arm one that is not, and not be followed.
        let timer = pool.as_ref().map_or(Some(others), |pool| pool.next_timer());
        let Some(until) = timer.map(|timer| timer.min(others)) else { return };
        let (mut ticks, mut empty) = (0_u32, false);
        while this.tick < until && !empty && ticks < u32::MAX {
            this.since = this.tick;
            this.tick += tick;
            ticks += 1;
            empty = pool.as_mut().is_some_and(|pool| !pool.account(this.since, local, tick));
        }
        if ticks == 0 {
            return;
        }
        self.ticks += u64::from(ticks);
        this.root_since = this.since;
        thread.ran(i64::from(ticks) * tick);
        let class = self.setting.scheduler;
        this.root.coast(class, &mut self.entities, &self.by, tick, ticks);
        if thread.grouped {
            this.group.coast(class, &mut self.entities, &self.by, tick, ticks);
        }
        if empty {
            let now = this.since;
            self.schedule(0, now);
        }
    }

    fn current_is_grouped(&self, cpu: usize) -> bool {
        self.cpus[cpu].current.is_some_and(|id| self.threads[id].grouped)
    }

    /// The thread that runs has done its step. What goes on running is not charged: the kernel
    /// charges at ticks and switches, not where a program turns to something else.
    fn step(&mut self, cpu: usize, now: i64) {
        let Some(id) = self.follow(cpu, now) else { return };
        let counters = self.counters();
        if self.threads[id].step(now, counters) {
            // Out of the kernel, a throttled thread stops (throttle_cfs_rq_work).
            if self.locals[cpu].throttled && !self.threads[id].kernel {
                self.schedule(cpu, now);
            }
            return;
        }
        self.update(cpu, now);
        if self.threads[id].state == State::Done && self.threads[id].grouped {
            self.left -= 1;
        }
        self.dequeue(cpu, id, now);
        self.schedule(cpu, now);
    }

    /// `dequeue_task_fair`.
    fn dequeue(&mut self, cpu: usize, id: usize, now: i64) {
        let group = self.group_entity(cpu);
        let this = &mut self.cpus[cpu];
        if !self.threads[id].grouped {
            this.root.dequeue(&mut self.entities, &self.by, id);
            return;
        }
        this.group.dequeue(&mut self.entities, &self.by, id);
        if this.group.is_empty() {
            if this.root.contains(group) {
                this.root.dequeue(&mut self.entities, &self.by, group);
            }
            if let Some(pool) = &mut self.pool {
                pool.give_back(now, &mut self.locals[cpu]);
            }
        }
    }

    /// `enqueue_task_fair`, with `check_enqueue_throttle` for a group that was not there.
    fn enqueue(&mut self, cpu: usize, id: usize, now: i64) {
        let class = self.setting.scheduler;
        self.threads[id].cpu = cpu;
        let group = self.group_entity(cpu);
        let this = &mut self.cpus[cpu];
        if !self.threads[id].grouped {
            this.root.enqueue(class, &mut self.entities, &self.by, id);
            return;
        }
        let first = this.group.is_empty();
        this.group.enqueue(class, &mut self.entities, &self.by, id);
        if first {
            self.throttle_if_empty(cpu, now, true);
        }
        let held = self.locals[cpu].throttled && self.setting.throttling == Throttling::Group;
        let this = &mut self.cpus[cpu];
        if !held && !this.root.contains(group) {
            this.root.enqueue(class, &mut self.entities, &self.by, group);
        }
    }

    /// `check_cfs_rq_runtime`, or `check_enqueue_throttle`, which first takes a slice.
    fn throttle_if_empty(&mut self, cpu: usize, now: i64, enqueued: bool) {
        let Some(pool) = &mut self.pool else { return };
        let local = &mut self.locals[cpu];
        if local.throttled {
            return;
        }
        let has = if enqueued { pool.account(now, local, 0) } else { local.remaining > 0 };
        if has || !pool.throttle(now, cpu, local) {
            return;
        }
        let group = self.group_entity(cpu);
        let this = &mut self.cpus[cpu];
        this.throttled_since = now;
        if self.setting.throttling == Throttling::Group && this.root.contains(group) {
            this.root.dequeue(&mut self.entities, &self.by, group);
        }
    }

    /// `__schedule`: who runs on this CPU from now on.
    fn schedule(&mut self, cpu: usize, now: i64) {
        let class = self.setting.scheduler;
        let group = self.group_entity(cpu);
        let before = self.cpus[cpu].current;
        self.update(cpu, now);
        // put_prev_entity: also when the thread sleeps, so that a debt is paid while it does.
        if before.is_some_and(|id| self.threads[id].grouped) {
            self.throttle_if_empty(cpu, now, false);
        }
        let after = loop {
            let this = &mut self.cpus[cpu];
            let Some(entity) = this.root.pick(class, &mut self.entities) else {
                if self.pull(cpu, now) {
                    continue;
                }
                break None;
            };
            if entity != group {
                this.group.put();
                break Some(entity);
            }
            let Some(id) = this.group.pick(class, &mut self.entities) else { break None };
            if self.locals[cpu].throttled && !self.threads[id].kernel {
                self.hold(cpu, id);
                continue;
            }
            break Some(id);
        };
        self.switch(cpu, now, before, after);
    }

    /// `throttle_cfs_rq_work`: the thread leaves its queue until there is runtime.
    fn hold(&mut self, cpu: usize, id: usize) {
        let group = self.group_entity(cpu);
        let this = &mut self.cpus[cpu];
        this.group.dequeue(&mut self.entities, &self.by, id);
        this.limbo.push(id);
        self.threads[id].state = State::Limbo;
        if this.group.is_empty() {
            this.root.dequeue(&mut self.entities, &self.by, group);
        }
    }

    fn switch(&mut self, cpu: usize, now: i64, before: Option<usize>, after: Option<usize>) {
        if before == after {
            return;
        }
        if let Some(id) = before
            && matches!(self.threads[id].state, State::Runnable | State::Limbo)
        {
            self.threads[id].waits = Some(now);
        }
        let starts = now + if before.is_none() { self.delay() } else { 0 };
        let this = &mut self.cpus[cpu];
        this.current = after;
        if after.is_none() {
            this.group.put();
        }
        if let Some(id) = after {
            this.since = starts;
            this.root_since = starts;
            if before.is_none() {
                let passed = (now - self.tick_offset).div_euclid(self.tick) + 1;
                this.tick = self.tick_offset + passed * self.tick;
            }
            self.threads[id].begin(starts);
        }
    }

    /// What an idle CPU takes to begin: the interrupt, and the switch to the thread.
    fn delay(&mut self) -> i64 {
        let least = i64::try_from(self.setting.wake_delay_ns).unwrap_or(0);
        if self.setting.wake_jitter_ns == 0 {
            return least;
        }
        let uniform: f64 = 1.0 - self.random.random::<f64>();
        let more = -libm::log(uniform) * self.setting.wake_jitter_ns as f64;
        least + more as i64
    }

    /// `newidle_balance`: an idle CPU takes a thread that waits on another.
    fn pull(&mut self, cpu: usize, now: i64) -> bool {
        for other in 0..self.cpus.len() {
            if other == cpu || self.locals[other].throttled {
                continue;
            }
            let from = &self.cpus[other];
            let running = from.current;
            let grouped = from.group.members().iter().copied();
            let ours = from.root.members().iter().copied().filter(|&id| id < self.threads.len());
            let Some(id) = grouped.chain(ours).find(|&id| Some(id) != running) else { continue };
            self.dequeue(other, id, now);
            self.enqueue(cpu, id, now);
            if self.cpus[cpu].root.is_empty() {
                return false; // the group is throttled here, too
            }
            return true;
        }
        false
    }

    /// `try_to_wake_up`: on the CPU where it was if that is idle, else on an idle one, else there.
    fn wake(&mut self, id: usize, now: i64) {
        let counters = self.counters();
        self.threads[id].wake(now, counters);
        let last = self.threads[id].cpu;
        let idle = |cpu: &Cpu| cpu.current.is_none();
        let cpu = if idle(&self.cpus[last]) {
            last
        } else {
            self.cpus.iter().position(idle).unwrap_or(last)
        };
        self.update_root(cpu, now);
        self.enqueue(cpu, id, now);
        let this = &self.cpus[cpu];
        let Some(current) = this.current else {
            self.schedule(cpu, now);
            return;
        };
        let class = self.setting.scheduler;
        let same = self.threads[current].grouped && self.threads[id].grouped;
        let preempts = if same {
            this.group.preempts(class, &self.entities, &self.by, id)
        } else {
            let woken = if self.threads[id].grouped { self.group_entity(cpu) } else { id };
            this.root.contains(woken) && this.root.preempts(class, &self.entities, &self.by, woken)
        };
        if preempts {
            self.schedule(cpu, now);
        }
    }

    /// The pool's timers: refills and slack, and whom they let run (`unthrottle_cfs_rq`).
    fn expire(&mut self, now: i64) {
        let Some(pool) = &mut self.pool else { return };
        let mut freed = std::mem::take(&mut self.freed);
        pool.expire(now, &mut self.locals, &mut freed);
        for &cpu in &freed {
            self.throttled_time += now - self.cpus[cpu].throttled_since;
            self.release(cpu);
            if self.cpus[cpu].current.is_none() {
                self.schedule(cpu, now);
            }
        }
        freed.clear();
        self.freed = freed;
    }

    fn release(&mut self, cpu: usize) {
        let class = self.setting.scheduler;
        let group = self.group_entity(cpu);
        let this = &mut self.cpus[cpu];
        for id in std::mem::take(&mut this.limbo) {
            self.threads[id].state = State::Runnable;
            this.group.enqueue(class, &mut self.entities, &self.by, id);
        }
        if !this.group.is_empty() && !this.root.contains(group) {
            this.root.enqueue(class, &mut self.entities, &self.by, group);
        }
    }
}

#[derive(Clone, Copy)]
enum Next {
    Pool,
    Wake(usize),
    Step(usize),
    Tick(usize),
}
