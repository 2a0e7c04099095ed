//! Functions with the host's network as clients of the platform's own API: few connections each, at
//! their own expense.
//!
//! The API's connections, and the time of the thread that serves them, are everybody's. Of functions
//! that reach it, each user has an account, as instances have for their Runtime APIs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::pace::{Pace, Paced, REQUEST};
use super::runtime_api::MAX_CONNECTIONS;

/// Who is at the other end of a connection to the platform's own API.
pub enum Peer {
    /// A program of the host.
    Program,
    /// A function.
    Function(Visit),
    /// A function with too many connections, or somebody who has closed this one already.
    Unwelcome,
}

/// A connection of a function.
pub struct Visit {
    pace: Arc<Pace>,
    _connection: OwnedSemaphorePermit,
}

impl Visit {
    /// Has each read of the connection charged.
    pub fn paced<S>(&self, stream: S) -> Paced<S> {
        Paced::new(stream, self.pace.clone())
    }

    /// Charges a request, and waits if there were too many.
    pub async fn charge_request(&self) {
        self.pace.spend(REQUEST).await;
    }
}

/// The accounts of users that have connected.
#[derive(Debug, Default)]
pub(super) struct Visitors {
    accounts: Mutex<HashMap<u32, Account>>,
    /// Connections that were not admitted.
    refused: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Account {
    pace: Arc<Pace>,
    connections: Arc<Semaphore>,
}

impl Visitors {
    /// How many connections were not admitted so far.
    pub(super) fn refused(&self) -> Arc<AtomicU64> {
        self.refused.clone()
    }

    /// Admits a connection of a user, unless it has too many.
    pub(super) fn admit(&self, user: u32) -> Option<Visit> {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if !accounts.contains_key(&user) {
            // An account that owes nothing is as good as none.
            accounts.retain(|_, it| {
                it.connections.available_permits() < MAX_CONNECTIONS || it.pace.owes()
            });
        }
        let account = accounts.entry(user).or_insert_with(|| Account {
            pace: Pace::new(),
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        });
        account.pace.charge(REQUEST);
        let Ok(connection) = account.connections.clone().try_acquire_owned() else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        Some(Visit { pace: account.pace.clone(), _connection: connection })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_user_has_few_connections_and_an_account_that_lasts() {
        let visitors = Visitors::default();
        let mut visits: Vec<_> = (0..MAX_CONNECTIONS).map(|_| visitors.admit(1).unwrap()).collect();
        assert!(visitors.admit(1).is_none());
        assert_eq!(visitors.refused().load(Ordering::Relaxed), 1);
        let other = visitors.admit(2);
        assert!(other.is_some(), "another user's are its own");
        visits.pop();
        assert!(visitors.admit(1).is_some());
        let pace = visits[0].pace.clone();
        visits.clear();
        pace.charge(Duration::from_secs(10));
        drop((other, visitors.admit(3)));
        assert!(Arc::ptr_eq(&visitors.admit(1).unwrap().pace, &pace), "closing settles no account");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(visitors.admit(4).is_some());
        assert_eq!(visitors.accounts.lock().unwrap().len(), 1);
    }
}
