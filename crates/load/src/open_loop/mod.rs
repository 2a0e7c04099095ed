//! The open loop: sends every request at its time, whatever became of those before.
//!
//! One thread does everything with sockets, without ever blocking in one. It sleeps in the poller
//! until shortly before the next send time and then polls without sleeping until it has come, so
//! that answers are read at once meanwhile and no wake-up of the kernel's lies between the
//! scheduled time and the write. Whatever is not sockets (rows, files, figures) is another thread's.

mod connections;
mod deadlines;
mod receive;
mod send;

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::{self, Clock};
use crate::error::LoadError;
use crate::net::{Event, Poller};
use crate::plan::{Entry, Plan, Schedule};
use crate::request::Rendered;
use crate::rows::{Completion, Counters, Failure, Outbox};
use crate::stop::{Stop, Urgency};
use crate::thread;
use connections::{Connections, Phase};
use deadlines::Deadlines;

/// The poller's token for the wake-up of [`Stop`]; no slot has it.
const STOP_TOKEN: u64 = u64::MAX;
/// Requests sent in a row before answers are looked at: at the most a few hundred microseconds.
const SENDS_IN_A_ROW: usize = 64;
/// The same, between two answers of one look.
const SENDS_BETWEEN_ANSWERS: usize = 8;
/// The longest sleep; nothing depends on it.
const LONGEST_WAIT_NS: i64 = 1_000_000_000;
/// What a connection may bring before others get their turn.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// How a run ended.
#[derive(Debug, Clone, Copy)]
pub struct Finished {
    pub sent: u64,
}

/// The sending side of a run.
pub struct OpenLoop<'a> {
    plan: &'a Plan,
    clock: Clock,
    /// The start of the schedule on that clock.
    start: i64,
    stop: &'a Stop,
    counters: &'a Counters,
    outbox: Outbox,
    poller: Poller,
    schedule: Schedule,
    /// The next request, with its time on the clock.
    next: Option<(i64, Entry)>,
    connections: Connections,
    /// Idle connections by endpoint; the one used last is used first.
    idle: Vec<Vec<u32>>,
    /// By endpoint, the index of the address that answered last.
    preferred: Vec<usize>,
    connect_deadlines: Deadlines,
    total_deadlines: Deadlines,
    in_flight: usize,
    sent: u64,
    /// When waiting for answers ends, once the run is being stopped.
    drain_until: Option<i64>,
    /// Connections that had more to read than their turn allowed.
    unread: Vec<u64>,
    rendered: Rendered,
    /// From this clock to Unix time; for signatures, which need no more than a second.
    unix_offset: i64,
    buffer: Box<[u8]>,
    now: i64,
}

impl<'a> OpenLoop<'a> {
    pub fn new(
        plan: &'a Plan,
        clock: Clock,
        start: i64,
        stop: &'a Stop,
        counters: &'a Counters,
        outbox: Outbox,
        mut poller: Poller,
    ) -> io::Result<Self> {
        poller.register(stop.woken(), STOP_TOKEN, false)?;
        let mut schedule = plan.schedule();
        let next = schedule.next().map(|entry| (start + entry.at, entry));
        Ok(Self {
            plan,
            clock,
            start,
            stop,
            counters,
            outbox,
            poller,
            schedule,
            next,
            connections: Connections::default(),
            idle: vec![Vec::new(); plan.endpoints.len()],
            preferred: vec![0; plan.endpoints.len()],
            connect_deadlines: Deadlines::new(plan.connect_timeout_ns),
            total_deadlines: Deadlines::new(plan.total_timeout_ns),
            in_flight: 0,
            sent: 0,
            drain_until: None,
            unread: Vec::new(),
            rendered: Rendered::new(),
            unix_offset: clock::unix_now() - clock.now(),
            buffer: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
            now: clock.now(),
        })
    }

    /// Sends the whole schedule and waits for the answers.
    pub fn run(mut self) -> Result<Finished, LoadError> {
        thread::sharpen_timers();
        if self.plan.realtime {
            // Whether it is allowed was found out before the run.
            let _ = thread::take_precedence();
        }
        let mut events = Vec::new();
        loop {
            self.now = self.clock.now();
            self.send_due(SENDS_IN_A_ROW);
            self.expire();
            self.outbox.tick(self.now);
            if let Some(rows) = self.outbox.excess() {
                self.end_now();
                self.outbox.hand_over();
                return Err(LoadError::Backlog { rows });
            }
            if self.next.is_none() && self.in_flight == 0 {
                break;
            }
            let wait = Duration::from_nanos(self.wait_ns().try_into().unwrap_or_default());
            self.poller.wait(&mut events, wait).map_err(LoadError::Poll)?;
            for event in &events {
                self.handle(event);
                self.send_due(SENDS_BETWEEN_ANSWERS);
            }
            for token in std::mem::take(&mut self.unread) {
                if let Some(slot) = self.connections.slot_of(token) {
                    self.read(slot, false);
                }
            }
        }
        self.outbox.hand_over();
        Ok(Finished { sent: self.sent })
    }

    /// How long nothing has to be done but to wait for sockets.
    fn wait_ns(&self) -> i64 {
        if !self.unread.is_empty() {
            return 0;
        }
        let send = match self.next {
            // With every connection busy only an answer helps.
            Some(_) if !self.may_send() => None,
            Some((at, _)) => Some(at - self.plan.spin_ns),
            None => None,
        };
        let deadline = |deadlines: &Deadlines| deadlines.first().map(|(_, at)| at);
        let times = [
            send,
            deadline(&self.connect_deadlines),
            deadline(&self.total_deadlines),
            self.outbox.due(),
            self.drain_until,
        ];
        let first = times.into_iter().flatten().min().unwrap_or(i64::MAX);
        first.saturating_sub(self.now).clamp(0, LONGEST_WAIT_NS)
    }

    /// Sends what is due, up to `limit` requests.
    fn send_due(&mut self, limit: usize) {
        for _ in 0..limit {
            let Some((at, entry)) = self.next.filter(|(at, _)| *at <= self.now) else {
                return;
            };
            if !self.may_send() {
                return;
            }
            self.next = self.schedule.next().map(|next| (self.start + next.at, next));
            self.send(at, entry);
            self.now = self.clock.now();
        }
    }

    fn handle(&mut self, event: &Event) {
        if event.token == STOP_TOKEN {
            self.stop.take_wakes();
            self.heed_stop();
            return;
        }
        let Some(slot) = self.connections.slot_of(event.token) else {
            return;
        };
        if matches!(self.connections.get(slot).phase, Phase::Connecting { .. }) {
            if event.writable || event.hang_up {
                self.connected(slot);
            }
            return;
        }
        if event.writable && !self.connections.get(slot).is_written() {
            self.write(slot);
        }
        // Writing may have ended the connection.
        if (event.readable || event.hang_up) && self.connections.slot_of(event.token).is_some() {
            self.read(slot, event.hang_up);
        }
        self.now = self.clock.now();
    }

    fn heed_stop(&mut self) {
        match self.stop.urgency() {
            Urgency::None => {}
            Urgency::Drain => {
                self.next = None;
                let until = self.clock.now().saturating_add(self.plan.drain_timeout_ns);
                self.drain_until.get_or_insert(until);
            }
            Urgency::Now => {
                self.next = None;
                self.end_now();
            }
        }
    }

    /// Ends requests whose time is over.
    fn expire(&mut self) {
        let now = self.now;
        let is_over = |(slot, at): (u32, i64)| (at <= now).then_some(slot);
        while let Some(slot) = self.connect_deadlines.first().and_then(is_over) {
            self.fail(slot, Failure::ConnectTimeout { timeout_ns: self.plan.connect_timeout_ns });
        }
        while let Some(slot) = self.total_deadlines.first().and_then(is_over) {
            self.fail(slot, Failure::TotalTimeout { timeout_ns: self.plan.total_timeout_ns });
        }
        if self.drain_until.is_some_and(|until| until <= now) {
            self.end_now();
        }
    }

    /// Gives up on everything in flight.
    fn end_now(&mut self) {
        for slot in self.connections.busy() {
            self.fail(slot, Failure::Interrupted);
        }
    }

    /// Ends the request on a connection with a failure, and the connection with it.
    fn fail(&mut self, slot: u32, failure: Failure) {
        let connection = self.connections.get(slot);
        connection.exchange.failure = Some(failure);
        self.finish(slot);
        self.close(slot);
    }

    /// Hands over the request on a connection. What becomes of the connection is the caller's.
    fn finish(&mut self, slot: u32) {
        self.connect_deadlines.drop(slot);
        self.total_deadlines.drop(slot);
        let connection = self.connections.get(slot);
        let entry = connection.exchange.entry;
        let mut completion =
            std::mem::replace(&mut connection.exchange, Completion::new(entry, 0, 0));
        connection.phase = Phase::Idle;
        let reader = &connection.reader;
        completion.wrote = connection.written > 0;
        completion.status = reader.status();
        completion.response_bytes = reader.status().map(|_| reader.body_bytes());
        self.outbox.push(completion, reader.head_bytes(), reader.body(), self.now);
        self.count_ended();
    }

    fn count_ended(&mut self) {
        self.in_flight -= 1;
        let ended = self.sent - self.in_flight as u64;
        self.counters.ended.store(ended, Ordering::Relaxed);
    }

    /// Closes a connection that has no request.
    fn close(&mut self, slot: u32) {
        let connection = self.connections.remove(slot);
        self.poller.forget(&connection.socket);
    }

    /// Closes a connection that was idle.
    fn close_idle(&mut self, slot: u32) {
        let connection = self.connections.get(slot);
        let (idle, at) = (&mut self.idle[connection.endpoint], connection.idle_at);
        idle.swap_remove(at);
        if let Some(&moved) = idle.get(at) {
            self.connections.get(moved).idle_at = at;
        }
        self.close(slot);
    }
}
