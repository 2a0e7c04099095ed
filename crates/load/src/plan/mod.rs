//! A configuration, checked and made ready: hosts resolved, requests rendered, schedule known.

mod descriptors;
mod endpoint;
mod schedule;

use std::path::Path;

use sha2::{Digest, Sha256};
use uncia_arrivals::{MAX_SPAN_NS, Process};
use uncia_record::Text;

use crate::config::{Closed, Config, ConnectionPolicy, Share, StopRules, Stream, Target};
use crate::error::LoadError;
use crate::request::{self, Moment, RequestTemplate};
use crate::thread;
use endpoint::Endpoints;

pub(crate) use endpoint::Endpoint;
pub(crate) use schedule::{Entry, Extent, Schedule};

/// Covers the error of a sleep with a timer slack of 1 ns on a busy virtual machine; see
/// `benches/load`.
const DEFAULT_SPIN_NS: i64 = 100_000;
/// The longest invocation id that the embedded platform takes.
const MAX_INVOCATION_ID: usize = 128;
/// Room in an invocation id for `-<stream>-<number>`.
const INVOCATION_SUFFIX: usize = 32;
/// Digits of the hash that keeps two prefixes apart whose differing characters had to go.
const PREFIX_HASH_DIGITS: usize = 8;

/// Everything that a run needs to know before its first request.
#[derive(Debug)]
pub(crate) struct Plan {
    pub run: Option<Text>,
    pub experiment: Option<Text>,
    pub platform: Option<Text>,
    pub prefix: String,
    pub seed: u64,
    pub endpoints: Vec<Endpoint>,
    pub streams: Vec<PlannedStream>,
    pub connect_timeout_ns: i64,
    pub total_timeout_ns: i64,
    pub drain_timeout_ns: i64,
    pub spin_ns: i64,
    /// Whether the sending thread goes before every ordinary one.
    pub realtime: bool,
    pub max_connections: Option<usize>,
    pub first_byte_timeout_ns: Option<i64>,
    pub connections: ConnectionPolicy,
    pub share: Share,
    pub stop_rules: StopRules,
    pub rtt_probes: u32,
    pub extent: Extent,
    /// What the person should know before the run starts.
    pub warnings: Vec<String>,
}

/// A stream of requests to one function.
#[derive(Debug)]
pub(crate) struct PlannedStream {
    pub function: Text,
    pub label: String,
    pub pacing: Pacing,
    pub start_ns: i64,
    pub targets: Vec<PlannedTarget>,
}

/// What decides when the requests of a stream are sent.
#[derive(Debug)]
pub(crate) enum Pacing {
    /// A schedule.
    Open(Process),
    /// Answers. Of the clients and requests, those of this process's share.
    Closed(Closed),
}

/// A replica: where its requests go, and what they say.
#[derive(Debug)]
pub(crate) struct PlannedTarget {
    pub function: Text,
    /// Index into [`Plan::endpoints`].
    pub endpoint: usize,
    pub request: RequestTemplate,
}

impl Plan {
    /// Checks the configuration and resolves its hosts. Nothing is sent.
    pub(crate) fn new(config: &Config) -> Result<Self, LoadError> {
        check_times(config)?;
        check_share_and_rules(config)?;
        check_output(&config.out)?;
        if let Some(spans) = &config.spans_out {
            check_output(spans)?;
        }
        if config.streams.is_empty() {
            return Err(LoadError::NoStreams);
        }
        let mut endpoints = Endpoints::new(&config.tls, config.dry_run);
        let streams = config
            .streams
            .iter()
            .map(|stream| plan_stream(stream, &mut endpoints, config))
            .collect::<Result<Vec<_>, _>>()?;
        let endpoints = endpoints.into_vec();
        check_pool(config, endpoints.len())?;
        let has_clients = streams.iter().any(|stream| matches!(stream.pacing, Pacing::Closed(_)));
        let extent = Extent::measure(config.seed, &streams, config.share, config.total_timeout_ns);
        if extent.total == 0 && !has_clients && config.share.of == 1 {
            return Err(LoadError::NothingScheduled);
        }
        let mut warnings = Vec::new();
        if !config.dry_run {
            warnings.extend(descriptors::provide(&extent, config.max_connections)?);
        }
        let mut realtime = config.realtime && !config.dry_run;
        if realtime {
            let refused = thread::may_take_precedence().err();
            realtime = refused.is_none();
            warnings.extend(refused.map(|error| {
                format!(
                    "real-time scheduling was refused ({error}): it takes root, CAP_SYS_NICE, or an \
                     rtprio limit of at least 10 (`ulimit -r`); going on without, so requests may \
                     be late when the CPUs are busy"
                )
            }));
        }
        let text = |value: &Option<String>| value.as_deref().map(Text::from);
        Ok(Self {
            run: text(&config.run),
            experiment: text(&config.experiment),
            platform: text(&config.platform),
            prefix: prefix(config)?,
            seed: config.seed,
            endpoints,
            streams,
            connect_timeout_ns: config.connect_timeout_ns,
            total_timeout_ns: config.total_timeout_ns,
            drain_timeout_ns: config.drain_timeout_ns.unwrap_or(config.total_timeout_ns),
            spin_ns: config.spin_ns.unwrap_or_else(|| default_spin(&extent)),
            realtime,
            max_connections: config.max_connections,
            first_byte_timeout_ns: config.first_byte_timeout_ns,
            connections: config.connections,
            share: config.share,
            stop_rules: config.stop_rules,
            rtt_probes: config.rtt_probes,
            extent,
            warnings,
        })
    }

    /// Whether the requests of a stream are sent at times fixed beforehand.
    pub(crate) fn is_open(&self, stream: usize) -> bool {
        matches!(self.streams[stream].pacing, Pacing::Open(_))
    }

    /// How many requests there will be; none when a closed loop decides that as it goes.
    pub(crate) fn total(&self) -> Option<u64> {
        (0..self.streams.len()).all(|stream| self.is_open(stream)).then_some(self.extent.total)
    }

    /// All requests of all streams, in the order of their send times.
    pub(crate) fn schedule(&self) -> Schedule {
        Schedule::new(self.seed, &self.streams, self.share)
    }

    /// The id of a request: the same in every run of the same configuration.
    pub(crate) fn invocation(&self, entry: &Entry) -> String {
        format!("{}-{}-{}", self.prefix, entry.stream, entry.number)
    }

    /// What a request needs to know about itself when it is sent at this time.
    pub(crate) fn moment(&self, entry: &Entry, unix_ns: i64) -> Moment<'_> {
        Moment { prefix: &self.prefix, stream: entry.stream, number: entry.number, unix_ns }
    }

    pub(crate) fn target(&self, entry: &Entry) -> &PlannedTarget {
        let targets = &self.streams[entry.stream].targets;
        &targets[entry.target(targets.len())]
    }
}

fn check_pool(config: &Config, endpoints: usize) -> Result<(), LoadError> {
    let (ConnectionPolicy::Pool(wanted), Some(limit)) =
        (config.connections, config.max_connections)
    else {
        return Ok(());
    };
    let wanted = wanted as u64 * endpoints as u64;
    if wanted > limit as u64 {
        return Err(LoadError::PoolAboveLimit { wanted, limit });
    }
    Ok(())
}

fn check_times(config: &Config) -> Result<(), LoadError> {
    let positive = |key, value: i64| match value {
        ..=0 => Err(LoadError::OutOfRange { key, value, rule: "above zero" }),
        _ if value > MAX_SPAN_NS => {
            Err(LoadError::OutOfRange { key, value, rule: "at most 100 years" })
        }
        _ => Ok(()),
    };
    let not_negative = |key, value: i64| match value {
        0 => Ok(()),
        _ if value < 0 => Err(LoadError::OutOfRange { key, value, rule: "zero or more" }),
        _ => positive(key, value),
    };
    positive("connect_timeout_ns", config.connect_timeout_ns)?;
    positive("total_timeout_ns", config.total_timeout_ns)?;
    not_negative("drain_timeout_ns", config.drain_timeout_ns.unwrap_or(0))?;
    not_negative("spin_ns", config.spin_ns.unwrap_or(0))?;
    for (key, value) in
        [("epoch_unix_ns", config.epoch_unix_ns), ("start_unix_ns", config.start_unix_ns)]
    {
        if let Some(value @ ..0) = value {
            return Err(LoadError::OutOfRange { key, value, rule: "zero or more" });
        }
    }
    if config.max_connections == Some(0) {
        return Err(LoadError::OutOfRange {
            key: "max_connections",
            value: 0,
            rule: "at least 1, or left out",
        });
    }
    if let Some(timeout_ns) = config.first_byte_timeout_ns {
        positive("first_byte_timeout_ns", timeout_ns)?;
    }
    for stream in &config.streams {
        not_negative("start_ns", stream.start_ns)?;
        if let Some(closed) = &stream.closed {
            positive("closed.clients", closed.clients.into())?;
            not_negative("closed.think_ns", closed.think_ns)?;
            positive("closed.duration_ns", closed.duration_ns)?;
            if closed.requests == Some(0) {
                return Err(LoadError::OutOfRange {
                    key: "closed.requests",
                    value: 0,
                    rule: "at least 1, or left out",
                });
            }
        }
    }
    Ok(())
}

fn check_share_and_rules(config: &Config) -> Result<(), LoadError> {
    let Share { index, of } = config.share;
    if index >= of {
        return Err(LoadError::Share { index, of });
    }
    let StopRules { error_budget, lag_p99_ns, slowdown } = config.stop_rules;
    if let Some(value) = error_budget.filter(|budget| !(0.0..=1.0).contains(budget)) {
        let rule = "between 0 and 1, a share of all requests";
        return Err(LoadError::StopRule { key: "error_budget", value, rule });
    }
    if let Some(value) = slowdown.filter(|factor| !(factor.is_finite() && *factor > 1.0)) {
        return Err(LoadError::StopRule { key: "slowdown", value, rule: "a number above 1" });
    }
    if let Some(value @ ..=0) = lag_p99_ns {
        let key = "stop_rules.lag_p99_ns";
        return Err(LoadError::OutOfRange { key, value, rule: "above zero" });
    }
    Ok(())
}

fn check_output(path: &Path) -> Result<(), LoadError> {
    if path.extension().is_none_or(|extension| extension != "arrows") {
        return Err(LoadError::OutName { path: path.to_owned() });
    }
    if path.exists() {
        return Err(LoadError::OutExists { path: path.to_owned() });
    }
    Ok(())
}

fn plan_stream(
    stream: &Stream,
    endpoints: &mut Endpoints<'_>,
    config: &Config,
) -> Result<PlannedStream, LoadError> {
    let pacing = pacing(stream, config.share)?;
    if stream.targets.is_empty() {
        return Err(LoadError::NoTargets { stream: stream.function.clone() });
    }
    let parse = |target: &Target| endpoint::Address::parse(&stream.function, &target.url);
    let addresses = stream.targets.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let places: Vec<_> = addresses.iter().map(endpoint::Address::place).collect();
    let closes = config.connections == ConnectionPolicy::Fresh;
    let requests = request::plan(stream, config.seed, closes, &places)?;
    let targets = stream.targets.iter().zip(&addresses).zip(requests);
    let targets = targets.map(|((target, address), request)| {
        let endpoint = endpoints.add(&stream.function, target, address, stream.http_version)?;
        Ok(PlannedTarget { function: target.function.as_str().into(), endpoint, request })
    });
    Ok(PlannedStream {
        function: stream.function.as_str().into(),
        label: stream.label.as_ref().unwrap_or(&stream.function).clone(),
        pacing,
        start_ns: stream.start_ns,
        targets: targets.collect::<Result<_, LoadError>>()?,
    })
}

fn pacing(stream: &Stream, share: Share) -> Result<Pacing, LoadError> {
    match (&stream.arrivals, stream.closed) {
        (Some(process), None) => {
            process.validate().map_err(|source| LoadError::Arrivals {
                stream: stream.function.clone(),
                source,
            })?;
            Ok(Pacing::Open(process.clone()))
        }
        (None, Some(closed)) => Ok(Pacing::Closed(Closed {
            clients: portion(closed.clients.into(), share) as u32,
            requests: closed.requests.map(|requests| portion(requests, share)),
            ..closed
        })),
        _ => Err(LoadError::OneLoop { stream: stream.function.clone() }),
    }
}

/// How long to poll before a send time when nobody said so. Where gaps are short, polling through all
/// of them would take a CPU that the system under test may need, if it shares the machine.
fn default_spin(extent: &Extent) -> i64 {
    let gaps = i64::try_from(extent.total.saturating_sub(1)).unwrap_or(i64::MAX);
    match (extent.last_ns - extent.first_ns).checked_div(gaps) {
        // All at once: nothing comes after them that polling could take the CPU from.
        None | Some(0) => DEFAULT_SPIN_NS,
        Some(average) => DEFAULT_SPIN_NS.min(average / 2),
    }
}

/// What of `count` things falls to a share.
fn portion(count: u64, share: Share) -> u64 {
    count / share.of + u64::from(share.index < count % share.of)
}

fn allowed_in_id(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_.:-".contains(character)
}

fn prefix(config: &Config) -> Result<String, LoadError> {
    const LIMIT: usize = MAX_INVOCATION_ID - INVOCATION_SUFFIX;
    if let Some(prefix) = &config.invocation_prefix {
        if prefix.is_empty() || prefix.len() > LIMIT || !prefix.chars().all(allowed_in_id) {
            return Err(LoadError::Prefix { prefix: prefix.clone(), limit: LIMIT });
        }
        return Ok(prefix.clone());
    }
    let Some(run) = &config.run else {
        // Without a run's name the time keeps the ids of two runs apart in a platform's log; a
        // dry run has no such log and is to come out the same each time.
        return Ok(if config.dry_run {
            "dry".to_owned()
        } else {
            format!("load-{:x}-{:x}", uncia_clock::unix_ns(), std::process::id())
        });
    };
    let full = match &config.experiment {
        Some(experiment) => format!("{run}:{experiment}"),
        None => run.clone(),
    };
    if full.len() <= LIMIT && full.chars().all(allowed_in_id) {
        return Ok(full);
    }
    let replaced = full.chars().map(|c| if allowed_in_id(c) { c } else { '_' });
    let kept: String = replaced.take(LIMIT - PREFIX_HASH_DIGITS - 1).collect();
    let hash = hex::encode(Sha256::digest(&full));
    Ok(format!("{kept}.{}", &hash[..PREFIX_HASH_DIGITS]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(change: impl FnOnce(&mut serde_json::Value)) -> Result<Plan, LoadError> {
        let mut json = serde_json::json!({"out": "/nonexistent/x.arrows", "seed": 7, "streams": [
            {"function": "hello", "targets": [{"function": "hello-0", "url": "http://127.0.0.1:1/"}],
             "arrivals": {"kind": "burst", "sizes": [2], "interval_ns": 0, "bursts": 1}}]});
        change(&mut json);
        Plan::new(&serde_json::from_value(json).unwrap())
    }

    fn message(change: impl FnOnce(&mut serde_json::Value)) -> String {
        config(change).expect_err("the configuration is bad").to_string()
    }

    #[test]
    fn bad_input_is_a_sentence_that_names_the_place() {
        type Change = fn(&mut serde_json::Value);
        let cases: [(&str, Change); 14] = [
            ("no streams", |c| c["streams"] = serde_json::json!([])),
            ("\"hello\" has no targets", |c| c["streams"][0]["targets"] = serde_json::json!([])),
            ("total_timeout_ns is -1", |c| c["total_timeout_ns"] = (-1).into()),
            ("start_ns is -5", |c| c["streams"][0]["start_ns"] = (-5).into()),
            ("max_connections is 0", |c| c["max_connections"] = 0.into()),
            ("must end in .arrows", |c| c["out"] = "x.parquet".into()),
            ("number 0 of \"sizes\"", |c| c["streams"][0]["arrivals"]["sizes"][0] = 0.into()),
            ("not a URL", |c| c["streams"][0]["targets"][0]["url"] = "http://".into()),
            ("not http or https", |c| c["streams"][0]["targets"][0]["url"] = "ftp://a/".into()),
            ("not a method", |c| c["streams"][0]["method"] = "G T".into()),
            ("can't be sent", |c| c["streams"][0]["headers"]["a b"] = "".into()),
            ("can't be sent", |c| c["streams"][0]["headers"]["a"] = "x\r\ny: z".into()),
            ("Content-Length", |c| c["streams"][0]["headers"]["Content-Length"] = "5".into()),
            ("not valid base64", |c| {
                c["streams"][0]["body"] = serde_json::json!({"base64": "!"});
            }),
        ];
        for (expected, change) in cases {
            let message = message(change);
            assert!(message.contains(expected), "{expected:?} not in {message:?}");
        }
    }

    #[test]
    fn a_schedule_without_a_single_request_is_an_error() {
        let message = message(|c| {
            c["streams"][0]["arrivals"] =
                serde_json::json!({"kind": "poisson", "rate_per_s": "0.001", "duration_ns": 1});
        });
        assert!(message.contains("schedule is empty"), "{message}");
    }

    #[test]
    fn ids_are_the_same_each_time_and_fit_the_platform_s_rule() {
        let named = |run: &str| {
            let plan = config(|c| {
                c["run"] = run.into();
                c["experiment"] = "warm".into();
            });
            let plan = plan.unwrap();
            let last = plan.schedule().last().unwrap();
            plan.invocation(&last)
        };
        assert_eq!(named("demo"), "demo:warm-0-1");
        assert_ne!(named("a b"), named("a/b"));
        for run in ["a b", "ü", &"x".repeat(500)] {
            let id = named(run);
            assert!(id.len() <= MAX_INVOCATION_ID && id.chars().all(allowed_in_id), "{id}");
            assert_eq!(id, named(run));
        }
    }
}
