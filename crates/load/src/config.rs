//! What a load run is told, as JSON. Unknown keys are errors.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use uncia_arrivals::{Hints, NS_PER_S, Process};

mod request;

pub use request::{AwsSigv4, Body, ChoiceValue, Column, Field, Fields, HttpVersion, Secret, Sign};

/// A connection that does not stand after this has met a host that does not answer: TCP has sent
/// its SYN four times by then.
const DEFAULT_CONNECT_TIMEOUT_NS: i64 = 10 * NS_PER_S;
/// Longer than the functions of most experiments, shorter than anybody's patience.
const DEFAULT_TOTAL_TIMEOUT_NS: i64 = 60 * NS_PER_S;

/// A load run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Copied to the rows.
    pub run: Option<String>,
    /// Copied to the rows.
    pub experiment: Option<String>,
    /// Copied to the rows.
    pub platform: Option<String>,
    /// The invocation table: `NAME.arrows` while running.
    pub out: PathBuf,
    /// The spans that functions report; none: they are not kept.
    #[serde(default)]
    pub spans_out: Option<PathBuf>,
    /// The Unix time from which the rows count; default: the start of the schedule.
    #[serde(default)]
    pub epoch_unix_ns: Option<i64>,
    /// The Unix time at which the schedule starts; default: as soon as everything is ready.
    #[serde(default)]
    pub start_unix_ns: Option<i64>,
    /// Seeds all random numbers of the run: arrivals, fields and random bodies.
    pub seed: u64,
    /// Write the schedule, and send nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// How long connecting may take, in nanoseconds, above zero; default: 10 s.
    #[serde(default = "default_connect_timeout")]
    pub connect_timeout_ns: i64,
    /// From the first act for a request (connecting or writing) to the end of its answer.
    #[serde(default = "default_total_timeout")]
    pub total_timeout_ns: i64,
    /// After SIGINT or SIGTERM, how long to wait for answers; default: the total timeout.
    #[serde(default)]
    pub drain_timeout_ns: Option<i64>,
    /// Connections open at once; default: as many as it takes.
    #[serde(default)]
    pub max_connections: Option<usize>,
    /// How long before a send time sleeping ends and polling begins; default: 100 us, but no more
    /// than half of the average gap.
    #[serde(default)]
    pub spin_ns: Option<i64>,
    /// Whether the sending thread goes before every ordinary one (SCHED_FIFO), where that is allowed.
    #[serde(default)]
    pub realtime: bool,
    /// What invocation ids begin with; default: made of `run` and `experiment`.
    #[serde(default)]
    pub invocation_prefix: Option<String>,
    /// From the first act for a request to the head of its answer; default: only the total counts.
    #[serde(default)]
    pub first_byte_timeout_ns: Option<i64>,
    /// Which connection a request goes out on; default: an idle one, else a new one.
    #[serde(default)]
    pub connections: ConnectionPolicy,
    /// Which certificates are trusted; default: those that the system trusts.
    #[serde(default)]
    pub tls: Tls,
    /// TCP connects to each endpoint before the run, and again after it, to tell the round-trip
    /// time of the network.
    #[serde(default)]
    pub rtt_probes: u32,
    /// The part of the schedule that this process sends, when several share it.
    #[serde(default)]
    pub share: Share,
    /// When the run ends before its schedule; default: never.
    #[serde(default)]
    pub stop_rules: StopRules,
    /// The streams, at least one.
    pub streams: Vec<Stream>,
}

/// Which connection a request goes out on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum ConnectionPolicy {
    /// One that is idle, else a new one.
    #[default]
    Reuse,
    /// A new one for every request, closed after the answer.
    Fresh,
    /// As `reuse`, with so many to each endpoint open before the schedule starts.
    Pool(usize),
}

/// Whom to trust behind `https://`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Certificates (PEM) that are trusted instead of the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Trust whatever certificate comes.
    #[serde(default)]
    pub insecure: bool,
}

/// Of `of` processes the one with number `index`: it sends the requests whose place in the whole
/// schedule leaves the remainder `index` when divided by `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The number of this process, from 0 to `of` - 1.
    pub index: u64,
    /// How many processes share the schedule, 1 or more.
    pub of: u64,
}

impl Default for Share {
    fn default() -> Self {
        Self { index: 0, of: 1 }
    }
}

/// When a run ends before its schedule does.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopRules {
    /// The share of all scheduled requests that may fail.
    #[serde(default)]
    pub error_budget: Option<f64>,
    /// How late the p99 of the sends of a second may be.
    #[serde(default)]
    pub lag_p99_ns: Option<i64>,
    /// How many times the median latency may grow.
    #[serde(default)]
    pub slowdown: Option<f64>,
}

/// Requests to one function, with send times of their own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// The function's name in the table.
    pub function: String,
    /// The key of the random stream; default: the function's name.
    #[serde(default)]
    pub label: Option<String>,
    /// Replicas, visited in turn.
    pub targets: Vec<Target>,
    /// Default: POST with a body, GET without.
    #[serde(default)]
    pub method: Option<String>,
    /// Appended to the query of the targets' URLs.
    #[serde(default)]
    pub query: BTreeMap<String, String>,
    /// Headers of every request, by name.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body of every request; none: requests have no body.
    #[serde(default)]
    pub body: Option<Body>,
    /// What `{{name}}` stands for in URLs, query, headers and the body.
    #[serde(default)]
    pub fields: Fields,
    /// The version of HTTP; default: 1.1.
    #[serde(default)]
    pub http_version: HttpVersion,
    /// How requests are signed; none: they are not.
    #[serde(default)]
    pub sign: Option<Sign>,
    /// The header that carries the invocation id; none: it is not sent.
    #[serde(default)]
    pub invocation_header: Option<String>,
    /// Its name in the rows, as a stage of a chain.
    #[serde(default)]
    pub stage: Option<String>,
    /// Memory of an instance in bytes, for the rows; what an answer says counts before it.
    #[serde(default)]
    pub allocated_memory: Option<i64>,
    /// CPU of an instance in micro-vCPU, likewise.
    #[serde(default)]
    pub allocated_cpu: Option<i64>,
    /// What stands for the execution where no answer says how long it was; default: nothing.
    #[serde(default)]
    pub execution: Option<Execution>,
    /// When requests are sent: open loop. Either this, `closed` or `after`.
    #[serde(default)]
    pub arrivals: Option<Process>,
    /// What each request says of those to come; none: nothing.
    #[serde(default)]
    pub hints: Option<Hints>,
    /// Clients that wait for their answers: closed loop.
    #[serde(default)]
    pub closed: Option<Closed>,
    /// Earlier streams, whose answers let requests of this one be sent: a later stage of a chain.
    #[serde(default)]
    pub after: Option<After>,
    /// When the stream's arrivals, or its clients, start, after the start of the schedule.
    #[serde(default)]
    pub start_ns: i64,
}

/// What stands for the execution in the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    /// The response time, network included: no execution is longer.
    Response,
}

/// A closed loop: each client sends a request, waits for the answer, thinks, and sends the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Closed {
    /// How many clients there are, 1 or more.
    pub clients: u32,
    /// From an answer to the client's next request.
    #[serde(default)]
    pub think_ns: i64,
    /// It is drawn at random from `think_ns` to this; default: it is `think_ns`.
    #[serde(default)]
    pub think_max_ns: Option<i64>,
    /// After this no client sends.
    pub duration_ns: i64,
    /// The most requests of all clients together.
    #[serde(default)]
    pub requests: Option<u64>,
    /// Whether the clients wait for one another: bursts back to back, each sent when all answers of
    /// the one before are there, and have been thought about.
    #[serde(default)]
    pub together: bool,
    /// With `together`: whether all requests of a burst go to one replica, and bursts visit them in
    /// turn; default: requests visit them in turn.
    #[serde(default)]
    pub one_replica: bool,
}

/// What a request of a later stage waits for: the answers to the requests of the same number in
/// other streams.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct After {
    /// Indices of earlier streams, at least one; all of them must be `ok`.
    pub streams: Vec<usize>,
    /// Whether it is sent as well after those that failed.
    #[serde(default)]
    pub after_failures: bool,
    /// From the last of the answers to the request.
    #[serde(default)]
    pub think_ns: i64,
    /// It is drawn at random from `think_ns` to this; default: it is `think_ns`.
    #[serde(default)]
    pub think_max_ns: Option<i64>,
}

/// A replica of a function.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The replica's own name.
    pub function: String,
    /// An `http://` or `https://` URL, with `{{name}}` only in its path and query.
    pub url: String,
    /// The socket to connect to instead of the URL's host.
    #[serde(default)]
    pub unix_socket: Option<PathBuf>,
}

impl Config {
    /// Reads a configuration; the error says line, column and what was expected.
    pub fn from_json(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }
}

fn default_connect_timeout() -> i64 {
    DEFAULT_CONNECT_TIMEOUT_NS
}

fn default_total_timeout() -> i64 {
    DEFAULT_TOTAL_TIMEOUT_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"{"out": "x.arrows", "seed": 7, "streams": [{"function": "hello",
        "targets": [{"function": "hello-0", "url": "http://127.0.0.1:1/"}],
        "arrivals": {"kind": "constant", "rate_per_s": "100", "duration_ns": 1000000000}}]}"#;

    #[test]
    fn defaults_fill_what_is_left_out() {
        let config = Config::from_json(MINIMAL).unwrap();
        assert!(!config.dry_run && config.epoch_unix_ns.is_none());
        assert_eq!(config.total_timeout_ns, DEFAULT_TOTAL_TIMEOUT_NS);
    }

    #[test]
    fn unknown_keys_are_errors_that_name_them() {
        for (from, to) in [
            ("\"seed\"", "\"sede\": 1, \"seed\""),
            ("\"url\"", "\"uri\": \"\", \"url\""),
            ("\"kind\": \"constant\"", "\"kind\": \"constant\", \"rate\": 5"),
            ("\"function\": \"hello\"", "\"function\": \"hello\", \"burst\": 5"),
        ] {
            let error = Config::from_json(&MINIMAL.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains("unknown field"), "{error}");
        }
        let kind = MINIMAL.replace("\"constant\"", "\"unheard_of\"");
        let error = Config::from_json(&kind).unwrap_err().to_string();
        assert!(error.contains("`burst`, `constant`"), "{error}");
        let rate = MINIMAL.replace("\"100\"", "\"NaN\"");
        let error = Config::from_json(&rate).unwrap_err().to_string();
        assert!(error.contains("\"NaN\" is not a rate"), "{error}");
    }
}
