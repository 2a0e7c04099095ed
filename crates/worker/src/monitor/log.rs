//! A log whose rows the monitor learns of.

use std::sync::Arc;

use bytes::Bytes;
use uncia_record::Instance as InstanceRow;

use super::Monitor;
use crate::dispatch::Log;
use crate::meterlog::{LogError, Recorded};

/// A log whose rows the monitor learns of, once they are written.
pub(crate) struct MonitoredLog<L> {
    log: Arc<L>,
    monitor: Arc<Monitor>,
}

impl<L: Log> MonitoredLog<L> {
    pub(crate) fn new(log: Arc<L>, monitor: Arc<Monitor>) -> Self {
        Self { log, monitor }
    }
}

impl<L: Log> Log for MonitoredLog<L> {
    fn invocation(&self, recorded: Arc<Recorded>) -> Result<(), LogError> {
        let written = self.log.invocation(recorded.clone());
        match written {
            Ok(()) => self.monitor.record(&recorded),
            Err(_) => self.monitor.miss(),
        }
        written
    }

    fn instance(&self, row: InstanceRow) {
        self.log.instance(row);
    }

    fn drop_events(&self, ids: Vec<i64>) {
        self.log.drop_events(ids);
    }

    async fn payload(self: Arc<Self>, id: i64) -> Result<Option<Bytes>, LogError> {
        self.log.clone().payload(id).await
    }
}
