//! Which of several threads runs: CFS as in Linux 6.2 and EEVDF as in 6.8 and later, on one queue.
//!
//! A queue is one level of one CPU: its root, or the group on it. With a single thread the two
//! schedulers do the same; they differ in whom they prefer when threads wait.

use serde::{Deserialize, Serialize};

/// Weight of a thread or group of the default niceness and shares (`NICE_0_LOAD`).
pub(super) const DEFAULT_WEIGHT: u64 = 1024;

/// Who may run next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The completely fair scheduler, to Linux 6.5.
    #[default]
    Cfs,
    /// Earliest eligible virtual deadline first, from Linux 6.6.
    Eevdf,
}

/// A thread, or a group on one CPU (`struct sched_entity`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Entity {
    pub weight: u64,
    vruntime: i64,
    deadline: i64,
    /// EEVDF: how far it was from the average when it left the queue.
    lag: i64,
    /// CFS: what it has run since it was picked.
    run: i64,
    /// EEVDF: it keeps the CPU until it has had its slice (`RUN_TO_PARITY`).
    protected: bool,
}

impl Entity {
    pub(super) fn new(weight: u64) -> Self {
        Self { weight, vruntime: 0, deadline: 0, lag: 0, run: 0, protected: false }
    }

    fn virtual_time(&self, real: i64) -> i64 {
        if self.weight == DEFAULT_WEIGHT {
            return real;
        }
        let scaled = i128::from(real) * i128::from(DEFAULT_WEIGHT) / i128::from(self.weight.max(1));
        i64::try_from(scaled).unwrap_or(i64::MAX)
    }
}

/// Granularities, which the kernel scales with the number of CPUs (`get_update_sysctl_factor`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Granularity {
    latency: i64,
    minimum: i64,
    wakeup: i64,
    slice: i64,
}

impl Granularity {
    pub(super) fn of(cpus: usize) -> Self {
        let factor = 1 + i64::from(cpus.clamp(1, 8).ilog2());
        Self {
            latency: 6_000_000 * factor,
            minimum: 750_000 * factor,
            wakeup: 1_000_000 * factor,
            slice: 750_000 * factor,
        }
    }
}

/// What waits or runs at one level of one CPU, by number of entity.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    members: Vec<usize>,
    current: Option<usize>,
    least: i64,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whom is running has nobody beside it.
    pub(super) fn is_alone(&self) -> bool {
        self.members.len() == 1 && self.current.is_some()
    }

    pub(super) fn contains(&self, id: usize) -> bool {
        self.members.contains(&id)
    }

    pub(super) fn members(&self) -> &[usize] {
        &self.members
    }

    /// Charges time to whom is running (`update_curr`).
    pub(super) fn charge(&mut self, entities: &mut [Entity], ran: i64) {
        if let Some(id) = self.current {
            let entity = &mut entities[id];
            entity.vruntime += entity.virtual_time(ran);
            entity.run += ran;
            if self.members.len() == 1 {
                self.least = entity.vruntime;
            }
        }
    }

    /// So many ticks after each other of whom is alone: each is `charge` and `tick`.
    pub(super) fn coast(
        &mut self,
        class: Class,
        entities: &mut [Entity],
        by: &Granularity,
        ran: i64,
        ticks: u32,
    ) {
        let Some(id) = self.current else { return };
        let entity = &mut entities[id];
        let (each, slice) = (entity.virtual_time(ran), entity.virtual_time(by.slice));
        for _ in 0..ticks {
            entity.vruntime += each;
            if class == Class::Eevdf && entity.vruntime >= entity.deadline {
                entity.deadline = entity.vruntime + slice;
                entity.protected = false;
            }
        }
        entity.run += ran * i64::from(ticks);
        self.least = entity.vruntime;
    }

    /// Puts an entity on the queue (`place_entity`, `enqueue_entity`).
    pub(super) fn enqueue(
        &mut self,
        class: Class,
        entities: &mut [Entity],
        by: &Granularity,
        id: usize,
    ) {
        self.settle(entities);
        match class {
            Class::Cfs => {
                // A sleeper is credited with half a latency (`GENTLE_FAIR_SLEEPERS`), no more.
                let entity = &mut entities[id];
                entity.vruntime = entity.vruntime.max(self.least - by.latency / 2);
            }
            Class::Eevdf => {
                let average = self.average(entities);
                let entity = &mut entities[id];
                entity.vruntime = average - entity.lag;
                entity.deadline = entity.vruntime + entity.virtual_time(by.slice);
            }
        }
        self.members.push(id);
    }

    /// Takes an entity off the queue (`dequeue_entity`).
    pub(super) fn dequeue(&mut self, entities: &mut [Entity], by: &Granularity, id: usize) {
        let average = self.average(entities);
        let entity = &mut entities[id];
        let most = entity.virtual_time(2 * by.slice);
        entity.lag = (average - entity.vruntime).clamp(-most, most);
        entity.protected = false;
        self.members.retain(|&member| member != id);
        if self.current == Some(id) {
            self.current = None;
        }
        self.settle(entities);
    }

    /// `update_min_vruntime`: never goes back.
    fn settle(&mut self, entities: &[Entity]) {
        if let Some(least) = self.members.iter().map(|&id| entities[id].vruntime).min() {
            self.least = self.least.max(least);
        }
    }

    /// `avg_vruntime`: the average weighted by weight.
    fn average(&self, entities: &[Entity]) -> i64 {
        if let [only] = self.members[..] {
            return entities[only].vruntime;
        }
        let (mut sum, mut weights) = (0_i128, 0_i128);
        for &id in &self.members {
            let weight = i128::from(entities[id].weight);
            sum += weight * i128::from(entities[id].vruntime - self.least);
            weights += weight;
        }
        if weights == 0 {
            return self.least;
        }
        self.least + i64::try_from(sum.div_euclid(weights)).unwrap_or(0)
    }

    /// Chooses who runs (`pick_next_entity`).
    pub(super) fn pick(&mut self, class: Class, entities: &mut [Entity]) -> Option<usize> {
        let chosen = match self.members[..] {
            [] => None,
            [only] => Some(only),
            _ => match class {
                Class::Cfs => self.members.iter().copied().min_by_key(|&id| entities[id].vruntime),
                Class::Eevdf => Some(self.earliest_deadline(entities)),
            },
        };
        if self.current != chosen {
            if let Some(id) = self.current {
                entities[id].protected = false;
            }
            if let Some(id) = chosen {
                entities[id].run = 0;
                entities[id].protected = true;
            }
        }
        self.current = chosen;
        chosen
    }

    /// Nobody of this queue runs any more, though some may wait.
    pub(super) fn put(&mut self) {
        self.current = None;
    }

    /// `pick_eevdf`.
    fn earliest_deadline(&self, entities: &[Entity]) -> usize {
        let average = self.average(entities);
        let eligible = |id: usize| entities[id].vruntime <= average;
        if let Some(current) = self.current
            && entities[current].protected
            && eligible(current)
        {
            return current;
        }
        let members = || self.members.iter().copied();
        members()
            .filter(|&id| eligible(id))
            .min_by_key(|&id| entities[id].deadline)
            .or_else(|| members().min_by_key(|&id| entities[id].vruntime))
            .expect("the queue has several members")
    }

    /// Whether whom is running has had its turn (`entity_tick`).
    pub(super) fn tick(&mut self, class: Class, entities: &mut [Entity], by: &Granularity) -> bool {
        let Some(current) = self.current else { return false };
        match class {
            Class::Cfs => {
                if self.members.len() < 2 {
                    return false;
                }
                let weights: u64 = self.members.iter().map(|&id| entities[id].weight).sum();
                let waiting = i64::try_from(self.members.len()).unwrap_or(i64::MAX);
                let round = if waiting > 8 { waiting * by.minimum } else { by.latency };
                let part = i128::from(round) * i128::from(entities[current].weight)
                    / i128::from(weights.max(1));
                let ideal = i64::try_from(part).unwrap_or(i64::MAX);
                if entities[current].run > ideal {
                    return true;
                }
                if entities[current].run < by.minimum {
                    return false;
                }
                let others = self.members.iter().copied().filter(|&id| id != current);
                let least = others.map(|id| entities[id].vruntime).min().unwrap_or(i64::MAX);
                entities[current].vruntime.saturating_sub(least) > ideal
            }
            Class::Eevdf => {
                let entity = &mut entities[current];
                if entity.vruntime < entity.deadline {
                    return false;
                }
                entity.deadline = entity.vruntime + entity.virtual_time(by.slice);
                entity.protected = false;
                self.members.len() > 1
            }
        }
    }

    /// Whether an entity that has just woken takes the CPU from whom is running
    /// (`check_preempt_wakeup_fair`).
    pub(super) fn preempts(
        &self,
        class: Class,
        entities: &[Entity],
        by: &Granularity,
        id: usize,
    ) -> bool {
        let Some(current) = self.current else { return true };
        match class {
            Class::Cfs => {
                let woken = &entities[id];
                entities[current].vruntime - woken.vruntime > woken.virtual_time(by.wakeup)
            }
            Class::Eevdf => self.earliest_deadline(entities) == id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs threads of these weights on one queue for a second of 4 ms ticks, and tells what each got.
    fn share(class: Class, weights: &[u64]) -> Vec<i64> {
        let by = Granularity::of(2);
        let mut entities: Vec<Entity> = weights.iter().map(|&weight| Entity::new(weight)).collect();
        let (mut queue, mut got) = (Queue::default(), vec![0; weights.len()]);
        for id in 0..weights.len() {
            queue.enqueue(class, &mut entities, &by, id);
        }
        let mut current = queue.pick(class, &mut entities).unwrap();
        for _ in 0..2500 {
            queue.charge(&mut entities, 4_000_000);
            got[current] += 4_000_000;
            if queue.tick(class, &mut entities, &by) {
                current = queue.pick(class, &mut entities).unwrap();
            }
        }
        got
    }

    #[test]
    fn equals_get_equal_shares() {
        for class in [Class::Cfs, Class::Eevdf] {
            for count in [2, 3, 7, 12] {
                let got = share(class, &vec![DEFAULT_WEIGHT; count]);
                let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
                assert!(most - least <= 40_000_000, "{class:?}: {got:?}");
            }
        }
    }

    #[test]
    fn shares_follow_the_weights() {
        for class in [Class::Cfs, Class::Eevdf] {
            let got = share(class, &[3 * DEFAULT_WEIGHT, DEFAULT_WEIGHT]);
            let ratio = got[0] as f64 / got[1] as f64;
            assert!((2.7..3.3).contains(&ratio), "{class:?}: {ratio}");
        }
    }

    #[test]
    fn a_sleeper_comes_first_but_is_not_owed_its_sleep() {
        for class in [Class::Cfs, Class::Eevdf] {
            let by = Granularity::of(2);
            let mut entities = [Entity::new(DEFAULT_WEIGHT); 2];
            let mut queue = Queue::default();
            queue.enqueue(class, &mut entities, &by, 0);
            queue.pick(class, &mut entities);
            queue.charge(&mut entities, 10_000_000_000);
            queue.enqueue(class, &mut entities, &by, 1);
            let behind = entities[0].vruntime - entities[1].vruntime;
            assert!((0..=by.latency).contains(&behind), "{class:?}: {behind}");
        }
    }
}
