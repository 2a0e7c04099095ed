//! What requests that overlap used, each.
//!
//! Between two moments at which a request begins or ends, the CPU time that the instance used is divided
//! equally among those in flight: `part = sum over intervals of cpu(interval) / in_flight(interval)`.
//! Nanoseconds that are left over go to those that began first, so that the parts add up to the whole.

use std::collections::BTreeMap;

/// The requests in flight on one instance, and what each has used so far.
#[derive(Debug, Default)]
pub(super) struct Apportionment {
    in_flight: BTreeMap<u64, Part>,
    next: u64,
    /// Where the account of CPU time stood when a request last began or ended; None if not known.
    last: Option<i64>,
}

/// What a request has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// CPU time in ns; None if a part of it was not measured.
    pub cpu: Option<i64>,
    /// Whether another was in flight at any time.
    pub shared: bool,
}

impl Apportionment {
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Whether a request is the only one in flight.
    pub(super) fn is_last(&self) -> bool {
        self.in_flight.len() == 1
    }

    /// A request begins when the account stands at `cpu`; returns its number.
    pub(super) fn join(&mut self, cpu: Option<i64>) -> u64 {
        self.advance(cpu);
        let shared = !self.in_flight.is_empty();
        if shared {
            self.in_flight.values_mut().for_each(|part| part.shared = true);
        }
        self.next += 1;
        self.in_flight.insert(self.next, Part { cpu: Some(0), shared });
        self.next
    }

    /// A request ends when the account stands at `cpu`.
    pub(super) fn leave(&mut self, request: u64, cpu: Option<i64>) -> Option<Part> {
        self.advance(cpu);
        self.in_flight.remove(&request)
    }

    fn advance(&mut self, cpu: Option<i64>) {
        let used = cpu.zip(self.last).map(|(now, before)| (now - before).max(0));
        // An account never goes back.
        self.last = cpu.map(|now| now.max(self.last.unwrap_or(now)));
        if self.in_flight.is_empty() {
            self.last = cpu;
            return;
        }
        let count = i64::try_from(self.in_flight.len()).unwrap_or(i64::MAX);
        for (index, part) in (0..).zip(self.in_flight.values_mut()) {
            let own = used.map(|used| used / count + i64::from(index < used % count));
            part.cpu = part.cpu.zip(own).map(|(before, own)| before + own);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_interval_is_divided_among_those_in_flight() {
        let mut apportionment = Apportionment::default();
        let first = apportionment.join(Some(100));
        let second = apportionment.join(Some(110));
        // 21 ns of both: the odd one is the first's.
        let ended = apportionment.leave(first, Some(131)).unwrap();
        assert_eq!(ended, Part { cpu: Some(10 + 11), shared: true });
        let ended = apportionment.leave(second, Some(140)).unwrap();
        assert_eq!(ended, Part { cpu: Some(10 + 9), shared: true });
        // What is used while none is in flight is nobody's.
        let alone = apportionment.join(Some(500));
        let ended = apportionment.leave(alone, Some(507)).unwrap();
        assert_eq!(ended, Part { cpu: Some(7), shared: false });
    }

    #[test]
    fn what_was_not_measured_is_not_known_of_any_part() {
        let mut apportionment = Apportionment::default();
        let (first, second) = (apportionment.join(Some(0)), apportionment.join(None));
        let third = apportionment.join(Some(30));
        assert_eq!(apportionment.leave(first, Some(40)).unwrap().cpu, None);
        assert_eq!(apportionment.leave(second, Some(40)).unwrap().cpu, None);
        assert_eq!(apportionment.leave(third, Some(45)).unwrap().cpu, Some(3 + 5));
    }

    proptest! {
        #[test]
        fn the_parts_add_up_to_what_was_used_while_any_was_in_flight(
            steps in proptest::collection::vec((0_i64..1_000_000_000, any::<bool>(), any::<usize>()), 1..200),
        ) {
            let mut apportionment = Apportionment::default();
            let (mut cpu, mut busy, mut parts) = (0, 0, 0);
            let mut in_flight = Vec::new();
            let finish = |apportionment: &mut Apportionment, request, cpu| {
                apportionment.leave(request, Some(cpu)).unwrap().cpu.unwrap()
            };
            for (used, begins, which) in steps {
                cpu += used;
                if !in_flight.is_empty() {
                    busy += used;
                }
                if begins || in_flight.is_empty() {
                    in_flight.push(apportionment.join(Some(cpu)));
                } else {
                    let request = in_flight.swap_remove(which % in_flight.len());
                    parts += finish(&mut apportionment, request, cpu);
                }
            }
            for request in in_flight {
                parts += finish(&mut apportionment, request, cpu);
            }
            prop_assert_eq!(parts, busy);
            prop_assert!(apportionment.is_empty());
        }
    }
}
