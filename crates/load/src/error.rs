use std::io;
use std::path::PathBuf;

use uncia_arrivals::ArrivalError;
use uncia_record::RecordError;

use crate::net::tls::TlsError;

/// Why a load run could not start, or could not go on. A request that fails is none of these: it is
/// a row.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum LoadError {
    #[error("the configuration is not valid: {0}")]
    Configuration(#[from] serde_json::Error),
    #[error("there are no streams: nothing would be sent")]
    NoStreams,
    #[error("stream {stream:?} has no targets: give at least one {{\"function\", \"url\"}}")]
    NoTargets { stream: String },
    #[error("the schedule is empty: no stream has an arrival within its duration")]
    NothingScheduled,
    #[error(
        "a closed loop has no schedule that could be written: its send times come from answers"
    )]
    NoSchedule,
    #[error("stream {stream:?}: {source}")]
    Arrivals { stream: String, source: ArrivalError },
    #[error("{key} is {value}: it must be {rule}")]
    OutOfRange { key: &'static str, value: i64, rule: &'static str },
    #[error("stream {stream:?}: {url:?} is not a URL that can be driven: {reason}")]
    Url { stream: String, url: String, reason: String },
    #[error("stream {stream:?}: the host of {url:?} does not resolve: {source}")]
    Resolve { stream: String, url: String, source: io::Error },
    #[error("stream {stream:?}: {method:?} is not a method that can be sent")]
    Method { stream: String, method: String },
    #[error("stream {stream:?}: the header {name:?} can't be sent: {reason}")]
    Header { stream: String, name: String, reason: &'static str },
    #[error("stream {stream:?}: hints: {reason}")]
    Hints { stream: String, reason: String },
    #[error("stream {stream:?}: the body is not valid base64: {source}")]
    Base64 { stream: String, source: base64::DecodeError },
    #[error(
        "the invocation prefix {prefix:?} may only have letters, digits and the characters _ . : - and at most {limit} of them"
    )]
    Prefix { prefix: String, limit: usize },
    #[error("{path} must end in .arrows: it is a stream of rows until the run is over")]
    OutName { path: PathBuf },
    #[error("{path} exists already: choose another name, or move it away")]
    OutExists { path: PathBuf },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("stream {stream:?}: give exactly one of arrivals, closed and after")]
    OneLoop { stream: String },
    #[error("stream {stream:?} can't be a stage of a chain: {reason}")]
    Chain { stream: String, reason: String },
    #[error(
        "share is {index} of {of}: the index counts from 0 and is below the number of processes"
    )]
    Share { index: u64, of: u64 },
    #[error("stop_rules.{key} is {value}: it must be {rule}")]
    StopRule { key: &'static str, value: f64, rule: &'static str },
    #[error(
        "only {opened} of the {wanted} connections of the pool to {endpoint} could be opened before the start: {reason}"
    )]
    Pool { endpoint: String, opened: usize, wanted: usize, reason: String },
    #[error(
        "max_connections is {limit}, fewer than the {wanted} connections of the pool: lower the pool or raise the limit"
    )]
    PoolAboveLimit { wanted: u64, limit: usize },
    #[error("start_unix_ns is {late_ns} ns in the past: choose a later common start time")]
    StartPassed { late_ns: i64 },
    #[error(
        "{simultaneous} requests are scheduled for the same moment and each needs a connection, but this process may have {limit} files open (hard limit): raise it (`ulimit -Hn`, or LimitNOFILE= of a service), or lower max_connections and accept that requests wait"
    )]
    DescriptorLimit { simultaneous: u64, limit: u64 },
    #[error("{0}")]
    Create(#[source] RecordError),
    #[error("rows could not be written, so the run was stopped: {0}")]
    Record(#[source] RecordError),
    #[error(
        "rows come faster than they can be written ({rows} wait in memory): use a faster disk, a lower rate, or smaller answers; every row was kept"
    )]
    Backlog { rows: u64 },
    #[error("the sockets could not be polled: {0}")]
    Poll(#[source] io::Error),
    #[error("a thread could not be started: {0}")]
    Thread(#[source] io::Error),
    #[error("stream {stream:?}: {place} is not a template that can be filled in: {reason}")]
    Template { stream: String, place: String, reason: String },
    #[error("stream {stream:?}: the field {name:?} can't be drawn: {reason}")]
    Field { stream: String, name: String, reason: String },
    #[error("stream {stream:?}: the query parameter {name:?} can't be sent: {reason}")]
    Query { stream: String, name: String, reason: String },
    #[error(
        "stream {stream:?}: the body would have {bytes} bytes: at most {limit} (1 GiB) can be sent"
    )]
    BodySize { stream: String, bytes: u64, limit: u64 },
    #[error("stream {stream:?}: requests can't be signed: {reason}")]
    Sign { stream: String, reason: String },
}

impl LoadError {
    /// Whether the configuration is to blame (exit code 2), and nothing was sent.
    pub fn is_bad_input(&self) -> bool {
        !matches!(self, Self::Record(_) | Self::Backlog { .. } | Self::Poll(_) | Self::Thread(_))
    }
}
