//! Chains under way: which answers have come, and which requests they let be sent.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use slab::Slab;

use super::exchanges::key_of;
use crate::answer::Whole;
use crate::plan::{Entry, Plan};

/// A chain that has begun and is not over.
#[derive(Debug)]
struct Task {
    /// Number of its first request, which is that of all others too.
    number: u64,
    /// The client of a closed loop that waits for its end.
    client: Option<u32>,
    /// Requests that were sent and have not ended, or will be sent.
    open: usize,
    /// By stage of the chain.
    stages: Vec<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many of those that it waits for have ended so that it may follow.
    answered: usize,
    /// Kept as long as the task goes on, if others are made of it; none of a request that failed.
    answer: Option<Whole>,
    /// What the references of its request stand for.
    values: Vec<Vec<u8>>,
}

/// A request of a later stage that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: i64,
    /// Of those due at the same time, the one that was there first goes first.
    order: u64,
    task: u32,
    stream: usize,
    /// The stream whose answer came last of those that it waits for.
    parent: usize,
}

/// A request of a chain that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub task: u32,
    pub stream: usize,
    pub is_ok: bool,
    pub answer: Option<Whole>,
}

/// A request of a later stage.
#[derive(Debug, Clone, Copy)]
pub(super) struct Later {
    pub task: u32,
    pub parent: usize,
    pub entry: Entry,
}

/// All chains of a run that are under way. Times are on the clock of whoever asks.
#[derive(Debug, Default)]
pub(super) struct Chains {
    tasks: Slab<Task>,
    due: BinaryHeap<Reverse<Due>>,
    released: u64,
    stopped: bool,
}

impl Chains {
    /// Begins the chain of a request, if there is one: the task that its requests belong to.
    pub(super) fn begin(&mut self, plan: &Plan, entry: &Entry, client: Option<u32>) -> Option<u32> {
        let stage = plan.stage(entry.stream).filter(|stage| stage.head == entry.stream)?;
        let stages = std::iter::repeat_with(State::default).take(stage.stages).collect();
        let task = Task { number: entry.number, client, open: 1, stages };
        Some(key_of(self.tasks.insert(task)))
    }

    /// When the next request is due.
    pub(super) fn next_at(&self) -> Option<i64> {
        self.due.peek().map(|Reverse(due)| due.at)
    }

    /// The request that is due at `next_at`.
    pub(super) fn peek(&self) -> Option<Later> {
        let Reverse(due) = self.due.peek()?;
        let number = self.tasks[due.task as usize].number;
        let entry = Entry { at: due.at, stream: due.stream, number, burst: None };
        Some(Later { task: due.task, parent: due.parent, entry })
    }

    /// Takes the request that is due at `next_at`.
    pub(super) fn take(&mut self) -> Option<Later> {
        let later = self.peek()?;
        self.due.pop();
        Some(later)
    }

    /// Takes what a request needs from earlier answers; the error says what cannot be had.
    pub(super) fn fill(&mut self, plan: &Plan, later: &Later) -> Result<(), String> {
        let Some(stage) = plan.stage(later.entry.stream) else { return Ok(()) };
        let states = &mut self.tasks[later.task as usize].stages;
        let mut values = Vec::with_capacity(stage.references.len());
        for reference in &stage.references {
            let index = plan.stage(reference.stream).map_or(0, |stage| stage.index);
            let answer = states[index].answer.as_ref().ok_or_else(|| reference.unanswered())?;
            values.push(reference.resolve(answer)?);
        }
        let entry = &later.entry;
        plan.target(entry).request.check_target(&plan.moment(entry, 0, &values))?;
        states[stage.index].values = values;
        Ok(())
    }

    /// What the references of a request stand for.
    pub(super) fn values(&self, plan: &Plan, task: Option<u32>, stream: usize) -> &[Vec<u8>] {
        match (task, plan.stage(stream)) {
            (Some(task), Some(stage)) => &self.tasks[task as usize].stages[stage.index].values,
            _ => &[],
        }
    }

    /// A request of a chain ended at `now`. Returns the client that waited for the chain, if this
    /// was the chain's end.
    pub(super) fn ended(&mut self, plan: &Plan, ended: Ended, now: i64) -> Option<u32> {
        let Ended { task: key, stream, is_ok, answer } = ended;
        let task = &mut self.tasks[key as usize];
        task.open -= 1;
        let stage = plan.stage(stream).expect("only stages have tasks");
        let state = &mut task.stages[stage.index];
        state.values = Vec::new();
        state.answer = answer.filter(|_| is_ok);
        let followers = if self.stopped { &[] } else { stage.followers.as_slice() };
        for &follower in followers {
            let next = plan.stage(follower).expect("it waits for this one");
            if !is_ok && !next.after_failures {
                continue;
            }
            let state = &mut task.stages[next.index];
            state.answered += 1;
            if state.answered == next.predecessors {
                task.open += 1;
                let order = self.released;
                self.released += 1;
                let at = now.saturating_add(plan.streams[follower].think.draw(task.number));
                self.due.push(Reverse(Due {
                    at,
                    order,
                    task: key,
                    stream: follower,
                    parent: stream,
                }));
            }
        }
        if task.open > 0 {
            return None;
        }
        self.tasks.remove(key as usize).client
    }

    /// Nothing that waits for an answer is sent any more.
    pub(super) fn stop(&mut self) {
        self.due.clear();
        self.stopped = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Streams of which each waits for those given, and the plan of them.
    fn plan(after: &[Vec<usize>]) -> Plan {
        plan_with(after, &[false; 8])
    }

    /// The same, with which of them follow failures, too.
    fn plan_with(after: &[Vec<usize>], after_failures: &[bool]) -> Plan {
        let streams: Vec<Value> = after
            .iter()
            .enumerate()
            .map(|(index, after)| {
                let mut stream = json!({
                    "function": "f", "stage": format!("s{index}"),
                    "targets": [{"function": "f", "url": "http://127.0.0.1:1/"}],
                });
                if after.is_empty() {
                    stream["arrivals"] =
                        json!({"kind": "burst", "sizes": [1], "interval_ns": 0, "bursts": 1});
                } else {
                    stream["after"] = json!({
                        "streams": after, "think_ns": 10 * index,
                        "after_failures": after_failures[index],
                    });
                    stream["body"] = json!({"template": format!("{{{{answers.s{}}}}}", after[0])});
                }
                stream
            })
            .collect();
        let config = json!({"out": "/nonexistent/x.arrows", "seed": 7, "streams": streams});
        Plan::new(&serde_json::from_value(config).unwrap()).unwrap()
    }

    fn head() -> Entry {
        Entry { at: 0, stream: 0, number: 5, burst: None }
    }

    #[test]
    fn a_chain_goes_on_from_answers_and_frees_its_client() {
        let plan = plan(&[vec![], vec![0], vec![0], vec![1, 2]]);
        let mut chains = Chains::default();
        let task = chains.begin(&plan, &head(), Some(9)).unwrap();
        let end = |stream, answer: &str| Ended {
            task,
            stream,
            is_ok: true,
            answer: Some(Whole::Kept(answer.into())),
        };
        assert_eq!(chains.ended(&plan, end(0, "zero"), 100), None);
        let first = chains.take().unwrap();
        assert_eq!((first.entry.at, first.entry.stream, first.parent), (110, 1, 0));
        assert_eq!(first.entry.number, 5);
        chains.fill(&plan, &first).unwrap();
        assert_eq!(chains.values(&plan, Some(task), 1), [b"zero".to_vec()]);
        let second = chains.take().unwrap();
        assert_eq!((second.entry.at, second.entry.stream), (120, 2));
        assert_eq!(chains.ended(&plan, end(2, "two"), 130), None);
        assert_eq!(chains.next_at(), None, "the last stage waits for both");
        assert_eq!(chains.ended(&plan, end(1, "one"), 140), None);
        let last = chains.take().unwrap();
        assert_eq!((last.entry.at, last.parent), (170, 1), "the later answer released it");
        chains.fill(&plan, &last).unwrap();
        assert_eq!(chains.values(&plan, Some(task), 3), [b"one".to_vec()]);
        assert_eq!(chains.ended(&plan, end(3, ""), 180), Some(9));
        assert!(chains.tasks.is_empty());
    }

    #[test]
    fn after_a_stop_nothing_is_released() {
        let plan = plan(&[vec![], vec![0]]);
        let mut chains = Chains::default();
        let task = chains.begin(&plan, &head(), None).unwrap();
        chains.stop();
        let end = Ended { task, stream: 0, is_ok: true, answer: None };
        assert_eq!(chains.ended(&plan, end, 1), None);
        assert!(chains.next_at().is_none() && chains.tasks.is_empty());
    }

    /// Of up to eight stages, what each waits for.
    fn any_chain() -> impl Strategy<Value = Vec<Vec<usize>>> {
        prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 1..4), 0..7)
            .prop_map(|stages| {
                let mut after = vec![vec![]];
                for (index, stage) in stages.iter().enumerate() {
                    let mut of: Vec<usize> = stage.iter().map(|i| i.index(index + 1)).collect();
                    of.sort_unstable();
                    of.dedup();
                    after.push(of);
                }
                after
            })
    }

    proptest! {
        /// Whatever fails and in whatever order answers come: a stage is sent once, if all that it
        /// waits for were ok (or only sent, if it follows failures), and not before; the client is
        /// free when all of it is over.
        #[test]
        fn a_stage_is_sent_exactly_when_all_before_it_are_ok(
            after in any_chain(), fails in prop::collection::vec(any::<bool>(), 8),
            after_failures in prop::collection::vec(any::<bool>(), 8),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 8),
        ) {
            let plan = plan_with(&after, &after_failures);
            let mut expected: Vec<bool> = Vec::new();
            for (index, before) in after.iter().enumerate() {
                let lets = |stage: usize| !fails[stage] || after_failures[index];
                expected.push(before.iter().all(|&stage| expected[stage] && lets(stage)));
            }
            let mut chains = Chains::default();
            let Some(task) = chains.begin(&plan, &head(), Some(1)) else {
                prop_assert_eq!(after.len(), 1);
                return Ok(());
            };
            let (mut under_way, mut sent) = (vec![0], vec![0]);
            let mut freed = None;
            let mut over = 0;
            while !under_way.is_empty() {
                prop_assert_eq!(freed, None);
                let stream = under_way.swap_remove(picks[over].index(under_way.len()));
                let is_ok = !fails[stream];
                let answer = Some(Whole::Kept(Vec::new()));
                freed = chains.ended(&plan, Ended { task, stream, is_ok, answer }, over as i64);
                over += 1;
                while let Some(later) = chains.take() {
                    // Its body is made of the first of them.
                    let first = after[later.entry.stream][0];
                    prop_assert_eq!(chains.fill(&plan, &later).is_ok(), !fails[first]);
                    prop_assert!(after[later.entry.stream].contains(&later.parent));
                    under_way.push(later.entry.stream);
                    sent.push(later.entry.stream);
                }
            }
            prop_assert_eq!(freed, Some(1));
            prop_assert!(chains.tasks.is_empty());
            sent.sort_unstable();
            let all: Vec<usize> = (0..after.len()).filter(|&stage| expected[stage]).collect();
            prop_assert_eq!(sent, all);
        }
    }
}
