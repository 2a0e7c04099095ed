//! The loop that sends: every scheduled request at its time, whatever became of those before.
//!
//! One thread does everything with sockets, without ever blocking in one. It sleeps in the poller
//! until shortly before the next send time and then polls without sleeping until it has come, so
//! that answers are read at once meanwhile and no wake-up of the kernel's lies between the
//! scheduled time and the write. Whatever is not sockets (rows, files, figures) is another thread's.
//!
//! Closed loops ([`clients`]) and the later stages of [`chains`] run in it too: their send times come
//! from answers, and everything else is alike.

mod chains;
mod clients;
mod connections;
mod deadlines;
mod exchanges;
mod open;
mod place;
mod pool;
mod receive;
mod send;

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::Clock;
use crate::config::ConnectionPolicy;
use crate::error::LoadError;
use crate::http2::SessionEvent;
use crate::net::{Event, Poller};
use crate::plan::{Entry, Plan, Schedule};
use crate::request::Rendered;
use crate::rows::{Completion, Counters, Failure, Outbox};
use crate::stop::{Stop, Urgency};
use crate::thread;
use chains::{Chains, Ended};
use clients::Clients;
use connections::{Connections, Phase, Protocol};
use deadlines::Deadlines;
use exchanges::{Exchange, Exchanges, Order, key_of};

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
/// Longer than any run.
const NEVER_NS: i64 = i64::MAX / 4;

/// How a run ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finished {
    pub sent: u64,
    /// Of them, those of later stages of chains.
    pub later: u64,
}

/// What is known of an endpoint's connections.
#[derive(Debug, Default)]
struct Station {
    /// Connections without a request, for one at a time; the one used last is used first.
    idle: Vec<u32>,
    /// Connections that take many requests at a time.
    sessions: Vec<u32>,
    /// Whether the server was found to speak HTTP/2.
    speaks_http2: bool,
    /// Index of the address that answered last.
    preferred: usize,
}

/// Where requests are handed over when they have ended, and what is counted of them.
pub(crate) struct Output<'a> {
    pub outbox: Outbox,
    pub counters: &'a Counters,
}

/// The sending side of a run.
pub(crate) struct OpenLoop<'a> {
    plan: &'a Plan,
    stop: &'a Stop,
    poller: Poller,
    clock: Clock,
    output: Option<Output<'a>>,
    /// The start of the schedule on the clock.
    start: i64,
    schedule: Schedule,
    /// The next request of the schedule, with its time on the clock.
    next: Option<(i64, Entry)>,
    clients: Clients,
    chains: Chains,
    connections: Connections,
    exchanges: Exchanges,
    stations: Vec<Station>,
    /// By slot of a connection that does not stand yet.
    connect_deadlines: Deadlines,
    /// By key of a request.
    first_byte_deadlines: Option<Deadlines>,
    total_deadlines: Deadlines,
    sent: u64,
    /// Of them, those of later stages of chains.
    later: u64,
    /// When waiting for answers ends, once the run is being stopped.
    drain_until: Option<i64>,
    /// Why a connection that no request asked for could not be opened.
    pool_failure: Option<String>,
    /// Connections that had more to read than their turn allowed.
    unread: Vec<u64>,
    rendered: Rendered,
    events: Vec<SessionEvent>,
    buffer: Box<[u8]>,
    now: i64,
}

impl<'a> OpenLoop<'a> {
    pub(crate) fn new(plan: &'a Plan, stop: &'a Stop, mut poller: Poller) -> io::Result<Self> {
        poller.register(stop.woken(), STOP_TOKEN, false)?;
        let clock = Clock::monotonic();
        Ok(Self {
            plan,
            stop,
            poller,
            clock,
            output: None,
            start: 0,
            schedule: plan.schedule(),
            next: None,
            clients: Clients::new(&[], 0, plan.share),
            chains: Chains::default(),
            connections: Connections::default(),
            exchanges: Exchanges::default(),
            stations: plan.endpoints.iter().map(|_| Station::default()).collect(),
            connect_deadlines: Deadlines::new(plan.connect_timeout_ns),
            first_byte_deadlines: plan.first_byte_timeout_ns.map(Deadlines::new),
            total_deadlines: Deadlines::new(plan.total_timeout_ns),
            sent: 0,
            later: 0,
            drain_until: None,
            pool_failure: None,
            unread: Vec::new(),
            rendered: Rendered::new(),
            events: Vec::new(),
            buffer: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
            now: clock.now(),
        })
    }

    /// Sends the whole schedule, which starts at `start` on `clock`, and waits for the answers.
    pub(crate) fn run(
        mut self,
        clock: Clock,
        start: i64,
        output: Output<'a>,
    ) -> Result<Finished, LoadError> {
        self.clock = clock;
        self.output = Some(output);
        self.start = start;
        self.next = self.schedule.next().map(|entry| (start + entry.at, entry));
        self.clients = Clients::new(&self.plan.streams, start, self.plan.share);
        uncia_process::thread::sharpen_timers();
        let _precedence = self.plan.realtime.then(thread::Precedence::take);
        let mut events = Vec::new();
        loop {
            self.now = self.clock.now();
            self.send_due(SENDS_IN_A_ROW);
            self.expire();
            let now = self.now;
            let outbox = &mut self.output().outbox;
            outbox.tick(now);
            if let Some(rows) = outbox.excess() {
                self.end_now();
                self.output().outbox.hand_over();
                return Err(LoadError::Backlog { rows });
            }
            if self.next_at().is_none() && self.exchanges.is_empty() {
                break;
            }
            self.wait(&mut events)?;
        }
        self.output().outbox.hand_over();
        Ok(Finished { sent: self.sent, later: self.later })
    }

    fn output(&mut self) -> &mut Output<'a> {
        self.output.as_mut().expect("requests are sent by `run` alone")
    }

    /// Waits for sockets, and handles what comes.
    fn wait(&mut self, events: &mut Vec<Event>) -> Result<(), LoadError> {
        let wait = Duration::from_nanos(self.wait_ns().try_into().unwrap_or_default());
        self.poller.wait(events, wait).map_err(LoadError::Poll)?;
        for event in events.iter() {
            self.handle(event);
            self.send_due(SENDS_BETWEEN_ANSWERS);
        }
        for token in std::mem::take(&mut self.unread) {
            if let Some(slot) = self.connections.slot_of(token) {
                self.read(slot, false);
            }
        }
        Ok(())
    }

    /// How long nothing has to be done but to wait for sockets.
    fn wait_ns(&mut self) -> i64 {
        if !self.unread.is_empty() {
            return 0;
        }
        let send = match self.next_at() {
            // With every connection busy only an answer helps.
            Some(_) if !self.may_send() => None,
            Some(at) => Some(at - self.plan.spin_ns),
            None => None,
        };
        let deadline = |deadlines: &Deadlines| deadlines.first().map(|(_, at)| at);
        let times = [
            send,
            deadline(&self.connect_deadlines),
            self.first_byte_deadlines.as_ref().and_then(deadline),
            deadline(&self.total_deadlines),
            self.output.as_ref().and_then(|output| output.outbox.due()),
            self.drain_until,
        ];
        let first = times.into_iter().flatten().min().unwrap_or(i64::MAX);
        first.saturating_sub(self.now).clamp(0, LONGEST_WAIT_NS)
    }

    /// When the next request is due, of the schedule, of a chain or of a client.
    fn next_at(&self) -> Option<i64> {
        let scheduled = self.next.map(|(at, _)| at);
        let times = [scheduled, self.chains.next_at(), self.clients.next_at()];
        times.into_iter().flatten().min()
    }

    /// The next request; of those due at the same time, the schedule's is first, then a chain's.
    fn peek(&self) -> Option<Entry> {
        let at = self.next_at()?;
        if let Some((_, entry)) = self.next.filter(|(next, _)| *next == at) {
            return Some(entry);
        }
        let later = self.chains.peek().filter(|later| later.entry.at == at);
        later.map(|later| later.entry).or_else(|| self.clients.peek())
    }

    /// Takes the next request, as [`OpenLoop::peek`] shows it.
    fn take(&mut self) -> Option<Order> {
        let at = self.next_at()?;
        if let Some((_, entry)) = self.next.filter(|(next, _)| *next == at) {
            self.next = self.schedule.next().map(|next| (self.start + next.at, next));
            return Some(Order { entry, scheduled: Some(at), client: None, later: None });
        }
        if self.chains.next_at() == Some(at) {
            let later = self.chains.take()?;
            return Some(Order {
                entry: later.entry,
                scheduled: None,
                client: None,
                later: Some(later),
            });
        }
        let (at, client, entry) = self.clients.take()?;
        Some(Order { entry, scheduled: Some(at), client: Some(client), later: None })
    }

    /// Sends what is due, up to `limit` requests.
    fn send_due(&mut self, limit: usize) {
        for _ in 0..limit {
            if self.next_at().is_none_or(|at| at > self.now) || !self.may_send() {
                return;
            }
            if let Some(order) = self.take() {
                self.send(order);
            }
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
        match self.connections.get(slot).phase {
            Phase::Connecting { .. } => {
                if event.writable || event.hang_up {
                    self.connected(slot);
                }
            }
            Phase::Handshaking { .. } => self.shake_hands(slot),
            Phase::Open => {
                if event.writable {
                    self.write_rest(slot);
                }
                // Writing may have ended the connection.
                if (event.readable || event.hang_up)
                    && self.connections.slot_of(event.token).is_some()
                {
                    self.read(slot, event.hang_up);
                }
            }
        }
    }

    fn heed_stop(&mut self) {
        let urgency = self.stop.urgency();
        if urgency == Urgency::None {
            return;
        }
        self.next = None;
        self.clients.stop();
        self.chains.stop();
        if urgency == Urgency::Now {
            return self.end_now();
        }
        let until = self.clock.now().saturating_add(self.plan.drain_timeout_ns);
        self.drain_until.get_or_insert(until);
    }

    /// Ends requests whose time is over.
    fn expire(&mut self) {
        let now = self.now;
        let is_over = |(slot, at): (u32, i64)| (at <= now).then_some(slot);
        while let Some(slot) = self.connect_deadlines.first().and_then(is_over) {
            let timeout_ns = self.plan.connect_timeout_ns;
            self.fail_connection(slot, || Failure::ConnectTimeout { timeout_ns });
        }
        while let Some(key) =
            self.first_byte_deadlines.as_ref().and_then(|first| first.first().and_then(is_over))
        {
            let timeout_ns = self.plan.first_byte_timeout_ns.unwrap_or(NEVER_NS);
            self.give_up(key, Failure::FirstByteTimeout { timeout_ns });
        }
        while let Some(key) = self.total_deadlines.first().and_then(is_over) {
            self.give_up(key, Failure::TotalTimeout { timeout_ns: self.plan.total_timeout_ns });
        }
        if self.drain_until.is_some_and(|until| until <= now) {
            self.end_now();
        }
    }

    /// Gives up on everything in flight.
    fn end_now(&mut self) {
        let keys: Vec<u32> = self.exchanges.iter().map(|(index, _)| key_of(index)).collect();
        for key in keys {
            // One failure may have ended several.
            if self.exchanges.contains(key as usize) {
                self.give_up(key, Failure::Interrupted);
            }
        }
    }

    /// Ends a request for a reason that is not the connection's.
    fn give_up(&mut self, key: u32, failure: Failure) {
        let Some(slot) = self.exchanges[key as usize].connection else {
            return self.finish(key, Some(failure), None);
        };
        let connection = self.connections.get(slot);
        if let Protocol::Http2(session) = &mut connection.protocol {
            connection.waiting.retain(|waiting| *waiting != key);
            let answer = session.cancel(key);
            self.finish(key, Some(failure), answer);
            return self.write_session(slot);
        }
        // Of an answer that nobody awaits any more the connection can't be cleared.
        let mut failure = Some(failure);
        self.fail_connection(slot, || failure.take().unwrap_or(Failure::Interrupted));
    }

    /// Ends a connection, and all requests on it with a failure.
    fn fail_connection(&mut self, slot: u32, mut failure: impl FnMut() -> Failure) {
        let connection = self.connections.get(slot);
        let mut keys = std::mem::take(&mut connection.waiting);
        match &mut connection.protocol {
            Protocol::Http1(http) => {
                if let Some(key) = http.exchange.take() {
                    self.finish_http1(slot, key, Some(failure()));
                }
            }
            Protocol::Http2(session) => keys.extend(session.keys()),
        }
        for key in keys {
            self.finish(key, Some(failure()), None);
        }
        self.close(slot);
    }

    /// Ends the request of an HTTP/1 connection. What becomes of the connection is the caller's.
    fn finish_http1(&mut self, slot: u32, key: u32, failure: Option<Failure>) {
        let mut exchange = self.take_exchange(key);
        let now = self.now;
        let connection = self.connections.get(slot);
        let Protocol::Http1(http) = &mut connection.protocol else {
            unreachable!("the caller has looked");
        };
        let answer = http.reader.take_whole();
        let reader = &http.reader;
        let completion = &mut exchange.completion;
        completion.failure = failure.map(Box::new);
        completion.status = reader.status();
        completion.response_bytes = reader.status().map(|_| reader.body_bytes());
        let ended = exchange.stage(reader.head_bytes(), reader.body(), answer);
        let output = self.output.as_mut().expect("requests are sent by `run` alone");
        output.outbox.push(exchange.completion, reader.head_bytes(), reader.body(), now);
        self.ended(exchange.client, ended);
    }

    /// Ends a request, with the answer if there is one.
    fn finish(&mut self, key: u32, failure: Option<Failure>, answer: Option<crate::http2::Answer>) {
        let mut exchange = self.take_exchange(key);
        let now = self.now;
        exchange.completion.failure = failure.map(Box::new);
        exchange.completion.status = answer.as_ref().map(|answer| answer.status);
        exchange.completion.response_bytes = answer.as_ref().map(|answer| answer.body_bytes);
        let answer = answer.unwrap_or_default();
        let (head, body) = (answer.head.as_slice(), answer.body.as_slice());
        let ended = exchange.stage(head, body, answer.whole);
        self.output().outbox.push(exchange.completion, head, body, now);
        self.ended(exchange.client, ended);
    }

    fn take_exchange(&mut self, key: u32) -> Exchange {
        if let Some(deadlines) = &mut self.first_byte_deadlines {
            deadlines.drop(key);
        }
        self.total_deadlines.drop(key);
        self.exchanges.remove(key as usize)
    }

    /// A request ended: whoever waits for it goes on.
    fn ended(&mut self, client: Option<u32>, stage: Option<Ended>) {
        let ended = self.sent - self.exchanges.len() as u64;
        self.output().counters.ended.store(ended, Ordering::Relaxed);
        let client = match stage {
            Some(stage) => self.chains.ended(self.plan, stage, self.now),
            None => client,
        };
        if let Some(client) = client {
            self.clients.answered(client, self.now);
        }
    }

    /// Closes a connection that has no request.
    fn close(&mut self, slot: u32) {
        self.connect_deadlines.drop(slot);
        let connection = self.connections.remove(slot);
        self.poller.forget(&connection.transport.socket);
        let station = &mut self.stations[connection.endpoint];
        if matches!(connection.protocol, Protocol::Http2(_)) {
            station.sessions.retain(|session| *session != slot);
        }
        if let Some(at) = connection.idle_at {
            station.idle.swap_remove(at);
            if let Some(&moved) = station.idle.get(at) {
                self.connections.get(moved).idle_at = Some(at);
            }
        }
    }

    fn keeps_connections(&self) -> bool {
        self.plan.connections != ConnectionPolicy::Fresh
    }

    /// A request that is due, as it begins.
    fn begin(&mut self, order: &Order) -> u32 {
        let &Order { entry, scheduled, client, later } = order;
        let task = match later {
            Some(later) => Some(later.task),
            None => self.chains.begin(self.plan, &entry, client),
        };
        let sent = self.clock.now();
        self.now = sent;
        let mut completion = Completion::new(entry, scheduled, sent);
        completion.parent = later.map(|later| later.parent);
        let exchange = Exchange { completion, connection: None, client, task };
        self.later += u64::from(later.is_some());
        let key = key_of(self.exchanges.insert(exchange));
        self.sent += 1;
        if let Some(deadlines) = &mut self.first_byte_deadlines {
            deadlines.set(key, sent);
        }
        self.total_deadlines.set(key, sent);
        let sent = self.sent;
        self.output().counters.sent.store(sent, Ordering::Relaxed);
        key
    }
}
