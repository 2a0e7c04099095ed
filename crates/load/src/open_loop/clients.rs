//! Closed loops: clients that wait for one answer before they send again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::config::Share;
use crate::plan::{Entry, Pacing, PlannedStream};

/// The clients of one stream.
#[derive(Debug)]
struct Group {
    stream: usize,
    think_ns: i64,
    /// No client sends at or after this time.
    until: i64,
    /// How many more requests may be sent, if that is limited.
    left: Option<u64>,
    sent: u64,
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
                think_ns: closed.think_ns,
                until: begin.saturating_add(closed.duration_ns),
                left: closed.requests,
                sent: 0,
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
        Some(Entry { at, stream: group.stream, number, burst: None })
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
        let group = &self.groups[self.group_of[client as usize]];
        self.due.push(Reverse((now.saturating_add(group.think_ns), client)));
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
            targets: Vec::new(),
        }
    }

    #[test]
    fn a_client_waits_thinks_and_stops_in_time() {
        let closed = Closed { clients: 1, think_ns: 10, duration_ns: 40, requests: None };
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

    proptest! {
        #[test]
        fn there_are_never_more_in_flight_than_clients_nor_more_than_asked_for(
            number in 1u32..20, requests in 1u64..100, answers in prop::collection::vec(0usize..20, 0..300)
        ) {
            let closed = Closed {
                clients: number, think_ns: 0, duration_ns: i64::MAX / 2, requests: Some(requests),
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
