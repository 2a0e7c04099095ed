//! Which connection a request goes out on.

use super::OpenLoop;
use super::connections::{Phase, Protocol};
use super::exchanges::Order;
use crate::config::HttpVersion;
use crate::rows::Failure;

/// Requests that may wait for one HTTP/2 connection to stand: what servers usually take at once,
/// and say only when it stands.
const USUAL_CONCURRENCY: usize = 100;

impl OpenLoop<'_> {
    /// Whether the number of connections allows the request that is due next. Only a limit that was
    /// asked for holds requests back; they wait in the schedule, and their rows show it.
    pub(super) fn may_send(&mut self) -> bool {
        let Some(limit) = self.plan.max_connections else {
            return true;
        };
        if self.connections.open() < limit {
            return true;
        }
        let Some(entry) = self.peek() else {
            return true;
        };
        let endpoint = self.plan.target(&entry).endpoint;
        let takes_another = self.keeps_connections()
            && (!self.stations[endpoint].idle.is_empty()
                || self.session_with_room(endpoint).is_some());
        takes_another || self.dispensable().is_some()
    }

    /// Sends a request that is due.
    pub(super) fn send(&mut self, order: Order) {
        let endpoint = self.plan.target(&order.entry).endpoint;
        let filled = match &order.later {
            Some(later) => self.chains.fill(self.plan, later),
            None => Ok(()),
        };
        let key = self.begin(&order);
        if let Err(reason) = filled {
            return self.finish(key, Some(Failure::Unmade { reason }), None);
        }
        if self.keeps_connections() {
            if self.place_on_session(endpoint, key) {
                return;
            }
            while let Some(slot) = self.take_idle(endpoint) {
                if self.send_http1(slot, key) {
                    return;
                }
                // The server had closed it, and nothing of the request went out: no attempt was
                // made as yet.
                self.close(slot);
            }
        }
        self.open_for(endpoint, Some(key));
    }

    /// Puts a request on a session of the endpoint, if one takes it.
    fn place_on_session(&mut self, endpoint: usize, key: u32) -> bool {
        let Some(slot) = self.session_with_room(endpoint) else {
            return false;
        };
        let connection = self.connections.get(slot);
        if connection.phase == Phase::Open {
            self.send_http2(slot, &[key]);
        } else {
            connection.waiting.push(key);
            self.exchanges[key as usize].connection = Some(slot);
        }
        true
    }

    /// Of the endpoint's sessions that take another request, the one that has the fewest.
    fn session_with_room(&mut self, endpoint: usize) -> Option<u32> {
        let mut best: Option<(usize, u32)> = None;
        for &slot in &self.stations[endpoint].sessions {
            let connection = self.connections.get(slot);
            let Protocol::Http2(session) = &mut connection.protocol else {
                continue;
            };
            let waiting = connection.waiting.len();
            let (load, room) = match connection.phase {
                Phase::Open => (session.open_streams(), session.capacity() > 0),
                _ => (waiting, waiting < USUAL_CONCURRENCY),
            };
            if room && best.is_none_or(|(least, _)| load < least) {
                best = Some((load, slot));
            }
        }
        best.map(|(_, slot)| slot)
    }

    fn take_idle(&mut self, endpoint: usize) -> Option<u32> {
        let slot = self.stations[endpoint].idle.pop()?;
        self.connections.get(slot).idle_at = None;
        Some(slot)
    }

    /// Makes a connection available for later requests.
    pub(super) fn rest(&mut self, slot: u32) {
        let connection = self.connections.get(slot);
        let idle = &mut self.stations[connection.endpoint].idle;
        connection.idle_at = Some(idle.len());
        idle.push(slot);
    }

    /// Closes a connection of any endpoint that carries no request, if there is one.
    pub(super) fn make_room(&mut self) -> bool {
        let Some(slot) = self.dispensable() else {
            return false;
        };
        self.close(slot);
        true
    }

    /// A connection of any endpoint that carries no request.
    fn dispensable(&mut self) -> Option<u32> {
        let idle = self.stations.iter().find_map(|station| station.idle.last().copied());
        idle.or_else(|| {
            let mut sessions = self.stations.iter().flat_map(|station| &station.sessions);
            let is_free = |slot: &&u32| {
                let connection = self.connections.get(**slot);
                connection.phase == Phase::Open && connection.is_free()
            };
            sessions.find(is_free).copied()
        })
    }

    /// Whether a new connection of the endpoint is for HTTP/2 before the server has said so.
    pub(super) fn expects_http2(&self, endpoint: usize) -> bool {
        match self.plan.endpoints[endpoint].version {
            HttpVersion::Http1 => false,
            HttpVersion::Http2 => true,
            HttpVersion::Auto => self.stations[endpoint].speaks_http2,
        }
    }
}
