//! Connections that stand before the schedule starts.

use super::OpenLoop;
use super::connections::Phase;
use crate::config::ConnectionPolicy;
use crate::error::LoadError;

/// Connections being opened at once: listeners queue 128 and more.
const AT_ONCE: usize = 64;

impl OpenLoop<'_> {
    /// Opens the pool, if there is to be one. Whatever cannot be opened is an error: a run on fewer
    /// connections would be another one.
    pub(crate) fn prepare(&mut self) -> Result<(), LoadError> {
        let ConnectionPolicy::Pool(wanted) = self.plan.connections else {
            return Ok(());
        };
        let mut events = Vec::new();
        for endpoint in 0..self.plan.endpoints.len() {
            for opened in 0..wanted {
                self.open_for(endpoint, None);
                if opened % AT_ONCE == AT_ONCE - 1 || opened + 1 == wanted {
                    self.await_connections(&mut events)?;
                }
                if let Some(reason) = self.pool_failure.take() {
                    return Err(LoadError::Pool {
                        endpoint: self.plan.endpoints[endpoint].name.clone(),
                        opened: self.standing(endpoint),
                        wanted,
                        reason,
                    });
                }
            }
        }
        Ok(())
    }

    fn await_connections(&mut self, events: &mut Vec<crate::net::Event>) -> Result<(), LoadError> {
        while self.connect_deadlines.first().is_some() && self.pool_failure.is_none() {
            self.now = self.clock.now();
            if self.connect_deadlines.first().is_some_and(|(_, at)| at <= self.now) {
                let ms = self.plan.connect_timeout_ns / 1_000_000;
                self.pool_failure = Some(format!("no connection within {ms} ms"));
                return Ok(());
            }
            self.wait(events)?;
            if self.stop.urgency() != crate::stop::Urgency::None {
                self.pool_failure = Some("the run was stopped".to_owned());
            }
        }
        Ok(())
    }

    fn standing(&mut self, endpoint: usize) -> usize {
        let station = &self.stations[endpoint];
        let slots: Vec<u32> = station.idle.iter().chain(&station.sessions).copied().collect();
        slots.into_iter().filter(|slot| self.connections.get(*slot).phase == Phase::Open).count()
    }
}
