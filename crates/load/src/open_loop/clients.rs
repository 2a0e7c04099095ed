//! Closed loops: clients that wait for one answer before they send again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::config::Share;
use crate::plan::{Entry, Pacing, PlannedStream, Think};

/// The clients of one stream.
#[derive(Debug)]
struct Group {
    stream: usize,
    think: Think,
    /// How often was thought.
    thoughts: u64,
    /// No client sends at or after this time.
    until: i64,
    /// How many more requests may be sent, if that is limited.
    left: Option<u64>,
    sent: u64,
    /// Of clients that wait for one another.
    bursts: Option<Bursts>,
}

/// Bursts back to back.
#[derive(Debug)]
struct Bursts {
    /// Number of the burst that is due or under way.
    number: i64,
    /// Clients whose answers in it are not there yet.
    open: u32,
    /// The others, which wait for them.
    waiting: Vec<u32>,
}

/// All clients of all closed streams. Times are on the clock of whoever asks.
#[derive(Debug)]
pub(super) struct Clients {
    groups: Vec<Group>,
    /// By client, its group.
    group_of: Vec<usize>,
    /// When clients are due that wait for no answer.
    due: BinaryHeap<Reverse<(i64, u32)>>,
    share: Share,
}

impl Clients {
    /// `start`: of the schedule.
    pub(super) fn new(streams: &[PlannedStream], start: i64, share: Share) -> Self {
        let mut clients =
            Self { groups: Vec::new(), group_of: Vec::new(), due: BinaryHeap::new(), share };
        for (stream, planned) in streams.iter().enumerate() {
            let Pacing::Closed(closed) = &planned.pacing else {
                continue;
            };
            let begin = start.saturating_add(planned.start_ns);
            for _ in 0..closed.clients {
                clients.due.push(Reverse((begin, clients.group_of.len() as u32)));
                clients.group_of.push(clients.groups.len());
            }
            clients.groups.push(Group {
                stream,
                think: planned.think.clone(),
                thoughts: 0,
                until: begin.saturating_add(closed.duration_ns),
                left: closed.requests,
                sent: 0,
                bursts: closed.together.then(|| Bursts {
                    number: 0,
                    open: most_in_a_burst(closed.clients, closed.requests),
                    waiting: Vec::new(),
                }),
            });
        }
        clients.skip_finished();
        clients
    }

    /// When the next client is due.
    pub(super) fn next_at(&self) -> Option<i64> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// The request of the next client, due at `next_at`. Its number is unlike those of other shares.
    pub(super) fn peek(&self) -> Option<Entry> {
        let Reverse((at, client)) = *self.due.peek()?;
        let group = &self.groups[self.group_of[client as usize]];
        let number = group.sent * self.share.of + self.share.index;
        // As the numbers of requests: those of other shares are other bursts.
        let of_share = |number: i64| number * self.share.of as i64 + self.share.index as i64;
        let burst = group.bursts.as_ref().map(|bursts| of_share(bursts.number));
        Some(Entry { at, stream: group.stream, number, burst })
    }

    /// Takes the request of the next client: when it is due, the client, and the request.
    pub(super) fn take(&mut self) -> Option<(i64, u32, Entry)> {
        let entry = self.peek()?;
        let Reverse((at, client)) = self.due.pop()?;
        let group = &mut self.groups[self.group_of[client as usize]];
        group.sent += 1;
        group.left = group.left.map(|left| left - 1);
        self.skip_finished();
        Some((at, client, entry))
    }

    /// The client's request ended at `now`.
    pub(super) fn answered(&mut self, client: u32, now: i64) {
        let share = self.share;
        let Group { think, thoughts, bursts, left, .. } =
            &mut self.groups[self.group_of[client as usize]];
        let mut next_at = || {
            let number = *thoughts * share.of + share.index;
            *thoughts += 1;
            now.saturating_add(think.draw(number))
        };
        match bursts {
            None => self.due.push(Reverse((next_at(), client))),
            Some(bursts) => {
                bursts.waiting.push(client);
                bursts.open -= 1;
                if bursts.open == 0 {
                    let at = next_at();
                    bursts.number += 1;
                    bursts.open = most_in_a_burst(bursts.waiting.len() as u32, *left);
                    self.due.extend(bursts.waiting.drain(..).map(|client| Reverse((at, client))));
                }
            }
        }
        self.skip_finished();
    }

    /// Nobody sends any more.
    pub(super) fn stop(&mut self) {
        self.due.clear();
        for group in &mut self.groups {
            group.left = Some(0);
        }
    }

    fn skip_finished(&mut self) {
        while let Some(Reverse((at, client))) = self.due.peek() {
            let group = &self.groups[self.group_of[*client as usize]];
            if group.left != Some(0) && *at < group.until {
                return;
            }
            self.due.pop();
        }
    }
}

/// How many of so many clients can send once more.
fn most_in_a_burst(clients: u32, left: Option<u64>) -> u32 {
    left.map_or(clients, |left| left.min(clients.into()) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Closed;
    use proptest::prelude::*;

    fn stream(closed: Closed) -> PlannedStream {
        PlannedStream {
            function: "f".into(),
            label: "f".to_owned(),
            pacing: Pacing::Closed(closed),
            start_ns: 5,
            think: Think::new(0, "f", closed.think_ns, closed.think_max_ns),
            targets: Vec::new(),
            stage_name: None,
            declared: crate::plan::Declared::default(),
            stage: None,
        }
    }

    #[test]
    fn a_client_waits_thinks_and_stops_in_time() {
        let closed = Closed {
            clients: 1,
            think_ns: 10,
            think_max_ns: None,
            duration_ns: 40,
            requests: None,
            together: false,
            one_replica: false,
        };
        let mut clients = Clients::new(&[stream(closed)], 100, Share::default());
        assert_eq!(clients.next_at(), Some(105));
        let (at, client, entry) = clients.take().unwrap();
        assert_eq!((at, entry.number, entry.at), (105, 0, 105));
        // It waits for its answer now.
        assert_eq!(clients.next_at(), None);
        clients.answered(client, 120);
        assert_eq!(clients.take().map(|(at, _, entry)| (at, entry.number)), Some((130, 1)));
        clients.answered(client, 135);
        assert_eq!(clients.next_at(), None, "145 is the end");
    }

    #[test]
    fn bursts_of_several_shares_have_numbers_of_their_own() {
        let closed = Closed {
            clients: 2,
            think_ns: 0,
            think_max_ns: None,
            duration_ns: i64::MAX / 2,
            requests: Some(6),
            together: true,
            one_replica: false,
        };
        let bursts = |index| {
            let share = Share { index, of: 3 };
            let mut clients = Clients::new(&[stream(closed)], 0, share);
            let mut bursts = Vec::new();
            while let Some((_, first, entry)) = clients.take() {
                let (_, second, other) = clients.take().unwrap();
                assert_eq!(entry.burst, other.burst);
                bursts.push(entry.burst.unwrap());
                clients.answered(first, 10);
                clients.answered(second, 10);
            }
            bursts
        };
        assert_eq!([bursts(0), bursts(1), bursts(2)], [[0, 3, 6], [1, 4, 7], [2, 5, 8]]);
    }

    proptest! {
        /// In whatever order answers come, and however few requests are left for the last burst.
        #[test]
        fn a_burst_begins_when_all_answers_of_the_one_before_are_there(
            number in 1u32..9, requests in 1u64..40, batch in 1usize..9,
            picks in prop::collection::vec(any::<prop::sample::Index>(), 40),
        ) {
            let closed = Closed {
                clients: number, think_ns: 10, think_max_ns: None, duration_ns: i64::MAX / 2, requests: Some(requests),
                together: true,
                one_replica: false,
            };
            let mut clients = Clients::new(&[stream(closed)], 0, Share::default());
            let (mut waiting, mut now, mut sent, mut last) = (Vec::new(), 5, 0, None);
            loop {
                // Not all that is due is sent at once.
                for _ in 0..batch {
                    let Some((at, client, entry)) = clients.take() else { break };
                    prop_assert_eq!(entry.burst, Some((sent / u64::from(number)) as i64));
                    if entry.burst != last {
                        prop_assert!(waiting.is_empty());
                        prop_assert!(last.is_none() || at == now + 10, "{} {}", at, now);
                        last = entry.burst;
                    }
                    sent += 1;
                    waiting.push(client);
                }
                if waiting.is_empty() {
                    break;
                }
                now += 1;
                let index = picks[sent as usize - 1].index(waiting.len());
                clients.answered(waiting.swap_remove(index), now);
            }
            prop_assert_eq!(sent, requests);
        }

        #[test]
        fn there_are_never_more_in_flight_than_clients_nor_more_than_asked_for(
            number in 1u32..20, requests in 1u64..100, answers in prop::collection::vec(0usize..20, 0..300)
        ) {
            let closed = Closed {
                clients: number, think_ns: 0, think_max_ns: None, duration_ns: i64::MAX / 2, requests: Some(requests),
                together: false,
            one_replica: false,
            };
            let share = Share { index: 1, of: 3 };
            let mut clients = Clients::new(&[stream(closed)], 0, share);
            let mut waiting = Vec::new();
            let mut numbers = Vec::new();
            for (now, answer) in (5..).zip(answers) {
                while let Some((_, client, entry)) = clients.take() {
                    waiting.push(client);
                    numbers.push(entry.number);
                }
                prop_assert!(waiting.len() <= number as usize);
                if !waiting.is_empty() {
                    let client = waiting.swap_remove(answer % waiting.len());
                    clients.answered(client, now);
                }
            }
            prop_assert!(numbers.len() as u64 <= requests);
            prop_assert!(numbers.iter().zip(0..).all(|(found, n)| *found == n * 3 + 1));
        }
    }
}
