//! Rows of the invocation table from what the sending thread hands over.
//!
//! Most answers say nothing about the platform and most requests succeed: of such a request the
//! columns are set one by one, without a row in between. Every other becomes a whole row first,
//! which the interpretation of the answer fills. Both ways give the same table.

use uncia_record::{Epoch, Invocation, InvocationBuilder, Text};

use super::batch::Completion;
use super::interpret::{self, Reported};
use crate::config::Execution;
use crate::plan::Plan;

/// What is alike in all rows of a stream.
struct StreamColumns {
    template: Invocation,
    /// The invocation ids but for the number.
    invocation_prefix: String,
}

/// Makes rows of a plan's requests.
pub(super) struct RowMaker<'a> {
    plan: &'a Plan,
    epoch: Epoch,
    streams: Vec<StreamColumns>,
    ok: Text,
}

impl<'a> RowMaker<'a> {
    pub(super) fn new(plan: &'a Plan, epoch: Epoch) -> Self {
        let streams = plan.streams.iter().enumerate().map(|(index, stream)| StreamColumns {
            template: Invocation {
                run: plan.run.clone(),
                experiment: plan.experiment.clone(),
                platform: plan.platform.clone(),
                function: stream.function.clone(),
                attempt: 1,
                stage: stream.stage_name.clone(),
                open_loop: Some(plan.is_open(index)),
                allocated_memory: stream.declared.memory,
                allocated_cpu: stream.declared.cpu,
                ..Invocation::default()
            },
            invocation_prefix: format!("{}-{index}-", plan.prefix),
        });
        let streams = streams.collect();
        Self { plan, epoch, streams, ok: interpret::text("ok") }
    }

    /// Whether an answer is as [`RowMaker::set_plain`] takes it for granted: in order, and with
    /// nothing in it to interpret.
    pub(super) fn is_plain(completion: &Completion, head: &[u8], body: &[u8]) -> bool {
        head.is_empty()
            && body.is_empty()
            && completion.failure.is_none()
            && matches!(completion.status, Some(200..=299))
    }

    /// Sets the columns of the row of a plain request.
    #[inline]
    pub(super) fn set_plain(
        &self,
        to: &mut InvocationBuilder,
        row: usize,
        completion: &Completion,
    ) {
        let entry = &completion.entry;
        let StreamColumns { template, invocation_prefix } = &self.streams[entry.stream];
        let same = [
            (&mut to.run, &template.run),
            (&mut to.experiment, &template.experiment),
            (&mut to.platform, &template.platform),
        ];
        for (column, text) in same {
            if let Some(text) = text {
                column.set(row, text);
            }
        }
        if let Some(stage) = &template.stage {
            to.stage.set(row, stage);
        }
        if let Some(parent) = completion.parent {
            let prefix = &self.streams[parent].invocation_prefix;
            to.parent.set_numbered(row, prefix, entry.number);
        }
        to.function.set(row, &template.function);
        to.invocation.set_numbered(row, invocation_prefix, entry.number);
        to.attempt.set(row, template.attempt);
        let times = [
            (&mut to.burst, entry.burst),
            (&mut to.scheduled, completion.scheduled),
            (&mut to.sent, Some(completion.sent)),
            (&mut to.connected, completion.connected),
            (&mut to.first_byte, completion.first_byte),
            (&mut to.received, completion.received),
            (&mut to.request_bytes, completion.request_bytes),
            (&mut to.response_bytes, response_bytes(completion)),
            (&mut to.status, completion.status.map(i64::from)),
            (&mut to.allocated_memory, template.allocated_memory),
            (&mut to.allocated_cpu, template.allocated_cpu),
            (&mut to.execution, self.stand_in(completion)),
        ];
        for (column, number) in times {
            if let Some(number) = number {
                column.set(row, number);
            }
        }
        for (column, known) in [
            (&mut to.open_loop, template.open_loop),
            (&mut to.connection_reused, completion.reused),
        ] {
            if let Some(known) = known {
                column.set(row, known);
            }
        }
        to.outcome.set(row, &self.ok);
    }

    /// Makes `row` that of any request; returns the span of the handler if the function reported
    /// one.
    pub(super) fn fill(
        &self,
        row: &mut Invocation,
        completion: &Completion,
        head: &[u8],
        body: &[u8],
    ) -> Reported {
        let entry = &completion.entry;
        *row = Invocation {
            invocation: self.plan.invocation(entry),
            parent: completion.parent.map(|parent| {
                format!("{}{}", self.streams[parent].invocation_prefix, entry.number)
            }),
            burst: entry.burst,
            scheduled: completion.scheduled,
            sent: Some(completion.sent),
            connected: completion.connected,
            first_byte: completion.first_byte,
            received: completion.received,
            connection_reused: completion.reused,
            request_bytes: completion.request_bytes,
            response_bytes: response_bytes(completion),
            status: completion.status.map(i64::from),
            ..self.streams[entry.stream].template.clone()
        };
        let reported = interpret::fill(row, completion, head, body, self.epoch);
        if matches!(&*row.outcome, "ok" | "function_error") {
            row.execution = row.execution.or_else(|| self.stand_in(completion));
        }
        reported
    }

    /// What stands for the execution of an answered request if its answer does not say it.
    fn stand_in(&self, completion: &Completion) -> Option<i64> {
        let Execution::Response = self.plan.streams[completion.entry.stream].declared.execution?;
        let began = completion.connected.unwrap_or(completion.sent).max(completion.sent);
        completion.received?.checked_sub(began).filter(|time| *time >= 0)
    }
}

fn response_bytes(completion: &Completion) -> Option<i64> {
    completion.response_bytes.and_then(|bytes| i64::try_from(bytes).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uncia_record::Table;

    use super::*;
    use crate::plan::Entry;
    use crate::rows::failure::Failure;
    use crate::rows::support;

    type Time = Option<i64>;

    fn any_completion() -> impl Strategy<Value = Completion> {
        let entry = (0usize..3, any::<u64>(), any::<Time>());
        let times = (any::<Time>(), any::<i64>(), any::<Time>(), any::<Time>(), any::<Time>());
        let rest = (
            any::<Option<bool>>(),
            any::<Option<i64>>(),
            100u16..600,
            any::<Option<u64>>(),
            prop::bool::weighted(0.2),
            any::<bool>(),
        );
        (entry, times, rest).prop_map(|((stream, number, burst), times, rest)| {
            let entry = Entry { at: 0, stream, number, burst };
            let mut completion = Completion::new(entry, times.0, times.1);
            completion.parent = rest.5.then_some(number as usize % 3);
            (completion.connected, completion.first_byte, completion.received) =
                (times.2, times.3, times.4);
            (completion.reused, completion.request_bytes) = (rest.0, rest.1);
            // Half of the answers are in order.
            completion.status = Some(if rest.2 < 350 { 200 + rest.2 % 100 } else { rest.2 });
            completion.response_bytes = rest.3;
            completion.failure = rest.4.then(|| Failure::Interrupted.into());
            completion
        })
    }

    const HEADS: [&[u8]; 3] = [
        b"",
        b"HTTP/1.1 200 OK\r\nx-uncia-start: warm\r\nx-uncia-queued-ns: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx-amzn-requestid: r\r\nx-uncia-outcome: throttled\r\n\r\n",
    ];
    const BODIES: [&[u8]; 3] = [b"", b"{\"uncia\": {\"instance\": \"i\"}}", b"{\"a\": 1}"];

    proptest! {
        #[test]
        fn both_ways_give_the_same_table(
            completions in prop::collection::vec((any_completion(), 0usize..6, 0usize..6), 0..100),
            named in any::<bool>(),
        ) {
            let plan = support::plan(3, named);
            let epoch = Epoch::from_unix_ns(77);
            let maker = RowMaker::new(&plan, epoch);
            let mut builder = Invocation::builder();
            let mut rows = Vec::new();
            let mut plain = 0;
            for (number, (completion, head, body)) in completions.iter().enumerate() {
                let head = HEADS.get(*head).copied().unwrap_or_default();
                let body = BODIES.get(*body).copied().unwrap_or_default();
                let mut row = Invocation::default();
                maker.fill(&mut row, completion, head, body);
                if RowMaker::is_plain(completion, head, body) {
                    plain += 1;
                    maker.set_plain(&mut builder, number, completion);
                    Invocation::end_row(&mut builder);
                } else {
                    row.append(&mut builder);
                }
                rows.push(row);
            }
            prop_assert!(completions.len() < 50 || plain > 0);
            let mixed = Invocation::finish(&mut builder, &Invocation::schema(epoch));
            prop_assert_eq!(mixed, Invocation::batch(&rows, epoch));
        }
    }

    #[test]
    fn the_response_time_stands_for_an_execution_that_nobody_says() {
        let plan = support::plan(3, true);
        let maker = RowMaker::new(&plan, Epoch::UNIX);
        let executed = |stream: usize, status: u16, head: &[u8]| {
            let entry = Entry { at: 0, stream, number: 0, burst: None };
            let mut completion = Completion::new(entry, Some(100), 101);
            completion.connected = Some(110);
            completion.received = Some(150);
            completion.status = Some(status);
            let mut row = Invocation::default();
            maker.fill(&mut row, &completion, head, b"");
            row.execution
        };
        assert_eq!(executed(2, 200, b""), Some(40));
        assert_eq!(executed(2, 500, b""), Some(40));
        assert_eq!(executed(2, 429, b""), None);
        assert_eq!(executed(1, 200, b""), None);
        let said = b"HTTP/1.1 200 OK\r\nx-uncia-execution-ns: 7\r\n\r\n";
        assert_eq!(executed(2, 200, said), Some(7));
    }

    #[test]
    fn the_columns_of_a_plain_row() {
        let plan = support::plan(2, true);
        let maker = RowMaker::new(&plan, Epoch::UNIX);
        let entry = Entry { at: 0, stream: 1, number: 10, burst: Some(4) };
        let mut completion = Completion::new(entry, Some(100), 101);
        completion.first_byte = Some(102);
        completion.received = Some(103);
        completion.reused = Some(true);
        completion.request_bytes = Some(1);
        completion.status = Some(204);
        completion.response_bytes = Some(0);
        let mut builder = Invocation::builder();
        maker.set_plain(&mut builder, 0, &completion);
        Invocation::end_row(&mut builder);
        let expected = Invocation {
            run: Some("run".into()),
            experiment: Some("warm".into()),
            platform: Some("local".into()),
            function: "function-1".into(),
            invocation: "run:warm-1-10".to_owned(),
            attempt: 1,
            burst: Some(4),
            open_loop: Some(true),
            scheduled: Some(100),
            sent: Some(101),
            first_byte: Some(102),
            received: Some(103),
            connection_reused: Some(true),
            request_bytes: Some(1),
            response_bytes: Some(0),
            outcome: "ok".into(),
            status: Some(204),
            allocated_memory: Some(1 << 20),
            ..Invocation::default()
        };
        let schema = Invocation::schema(Epoch::UNIX);
        let batch = Invocation::finish(&mut builder, &schema);
        assert_eq!(batch, Invocation::batch(&[expected], Epoch::UNIX));
    }
}
