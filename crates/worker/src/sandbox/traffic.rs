//! Bytes that pass between an instance and the services that its function reaches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uncia_record::Traffic as Row;

use crate::services::Reach;

/// A number of bytes that grows.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What has passed between an instance and one service since its start.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// By the instance.
    pub sent: Count,
    pub received: Count,
}

/// What has passed between an instance and services since its start.
#[derive(Debug)]
pub(super) struct Traffic(Vec<Service>);

#[derive(Debug)]
struct Service {
    /// Among all that there are.
    index: usize,
    name: &'static str,
    passed: Arc<Passed>,
}

/// What had passed at a moment, for each service.
#[derive(Debug)]
pub(super) struct Reading(Vec<(u64, u64)>);

impl Traffic {
    pub(super) fn new(reach: Reach) -> Self {
        let service = |(index, service): (usize, &crate::services::Service)| Service {
            index,
            name: service.name,
            passed: Arc::default(),
        };
        Self(reach.services().map(service).collect())
    }

    /// Where what passes to and from the service with this index is counted; none if it is not reached.
    pub(super) fn of(&self, index: usize) -> Option<Arc<Passed>> {
        self.0.iter().find(|it| it.index == index).map(|it| it.passed.clone())
    }

    /// What has passed until now.
    pub(super) fn read(&self) -> Reading {
        Reading(self.0.iter().map(|it| (it.passed.sent.get(), it.passed.received.get())).collect())
    }

    /// What has passed since then, by service; none if no service is reached.
    pub(super) fn since(&self, before: &Reading) -> Option<Vec<Row>> {
        let bytes =
            |now: u64, then: u64| i64::try_from(now.saturating_sub(then)).unwrap_or(i64::MAX);
        let rows = self.0.iter().zip(&before.0).map(|(it, (sent, received))| Row {
            service: Arc::from(it.name),
            sent: bytes(it.passed.sent.get(), *sent),
            received: bytes(it.passed.received.get(), *received),
        });
        (!self.0.is_empty()).then(|| rows.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passed_before_is_not_counted_again() {
        assert_eq!(Traffic::new(Reach::NONE).since(&Traffic::new(Reach::NONE).read()), None);
        let traffic = Traffic::new(Reach::named(&["store", "documents"]).unwrap());
        let of = |name: &str| {
            let service = traffic.0.iter().find(|it| it.name == name).unwrap();
            traffic.of(service.index).unwrap()
        };
        of("store").sent.add(5);
        let before = traffic.read();
        of("store").sent.add(7);
        of("store").received.add(9);
        let mut rows = traffic.since(&before).unwrap();
        rows.sort_by(|a, b| a.service.cmp(&b.service));
        let row = |service: &str, sent, received| Row { service: service.into(), sent, received };
        assert_eq!(rows, [row("documents", 0, 0), row("store", 7, 9)]);
    }
}
