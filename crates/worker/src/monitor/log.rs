//! A log whose rows the monitor, and who makes spans of them, learn of.

use std::sync::Arc;

use bytes::Bytes;
use uncia_record::{Instance as InstanceRow, Invocation};

use super::Monitor;
use crate::dispatch::Log;
use crate::meterlog::{LogError, Recorded};
use crate::output::OutputLog;
use crate::traces::Traces;

/// A log whose rows the monitor and the traces learn of, once they are written.
pub(crate) struct MonitoredLog<L> {
    log: Arc<L>,
    monitor: Arc<Monitor>,
    traces: Option<Arc<Traces>>,
    output: Arc<OutputLog>,
}

impl<L: Log> MonitoredLog<L> {
    pub(crate) fn new(
        log: Arc<L>,
        monitor: Arc<Monitor>,
        traces: Option<Arc<Traces>>,
        output: Arc<OutputLog>,
    ) -> Self {
        Self { log, monitor, traces, output }
    }
}

impl<L: Log> Log for MonitoredLog<L> {
    fn invocation(&self, recorded: Arc<Recorded>) -> Result<(), LogError> {
        let written = self.log.invocation(recorded.clone());
        match written {
            Ok(()) => {
                self.monitor.record(&recorded);
                if let Some(traces) = &self.traces {
                    traces.end(&recorded);
                }
            }
            Err(_) => self.monitor.miss(),
        }
        written
    }

    fn output(&self, row: &Invocation, output: &Bytes) {
        self.output.add(row, output);
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
