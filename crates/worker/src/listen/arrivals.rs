//! Connections that have asked for nothing yet.
//!
//! Whoever connects and then says nothing, or begins to agree on TLS and does not go on, costs memory and
//! one of the connections that there may be at a time. So there are few that have not asked yet, and for
//! little time; when one more comes, the oldest of them gives way. Who does ask is there for milliseconds
//! only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// Connections that have not asked for anything, at a time.
const MAX_ARRIVALS: usize = 256;
/// TLS must be agreed on by then.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Those connections, by the order in which they came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arrivals(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    number: u64,
    /// To drop an entry is to end its connection.
    connections: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One of them, until it has asked for something or is dropped.
#[derive(Debug)]
pub(crate) struct Arrival {
    arrivals: Arrivals,
    number: u64,
}

impl Arrivals {
    /// Counts a connection; the receiver resolves when it has to give way.
    pub(crate) fn enter(&self) -> (Arrival, Displaced) {
        let mut waiting = self.lock();
        let (sender, receiver) = oneshot::channel();
        if waiting.connections.len() == MAX_ARRIVALS {
            waiting.connections.pop_first();
        }
        waiting.number += 1;
        let number = waiting.number;
        waiting.connections.insert(number, sender);
        (Arrival { arrivals: self.clone(), number }, Displaced(Some(receiver)))
    }

    /// The map is whole after every statement, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(sender) = self.arrivals.lock().connections.remove(&self.number) {
            // It stays, whatever comes; whoever waited may be gone.
            let _ = sender.send(());
        }
    }
}

/// Learns that a connection has to give way.
#[derive(Debug)]
pub(crate) struct Displaced(Option<oneshot::Receiver<()>>);

impl Displaced {
    /// Of a connection that never has to.
    pub(crate) fn never() -> Self {
        Self(None)
    }

    /// Resolves when the connection has to give way; never if it has asked before.
    pub(crate) async fn displaced(&mut self) {
        if let Some(receiver) = &mut self.0 {
            let has_asked = receiver.await.is_ok();
            self.0 = None;
            if !has_asked {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn the_oldest_gives_way_unless_it_has_asked() {
        let arrivals = Arrivals::default();
        let mut first: Vec<_> = (0..MAX_ARRIVALS).map(|_| arrivals.enter()).collect();
        let (asked, mut stays) = first.remove(0);
        drop(asked);
        let mut others: Vec<_> = (0..2).map(|_| arrivals.enter()).collect();
        first[0].1.displaced().await;
        let lasts = |displaced: &mut Displaced| {
            let mut context = Context::from_waker(Waker::noop());
            pin!(displaced.displaced()).as_mut().poll(&mut context).is_pending()
        };
        assert!(lasts(&mut stays) && lasts(&mut stays));
        assert!(lasts(&mut first[1].1) && lasts(&mut others[1].1));
        drop((first, others));
        assert!(arrivals.lock().connections.is_empty());
    }
}
