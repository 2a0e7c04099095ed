//! A configuration, checked and made ready: hosts resolved, requests rendered, schedule known.

mod chain;
mod check;
mod descriptors;
mod endpoint;
mod hints;
mod schedule;
mod think;

use sha2::{Digest, Sha256};
use uncia_arrivals::Process;
use uncia_record::Text;

use crate::config::{
    Closed, Config, ConnectionPolicy, Execution, Share, StopRules, Stream, Target,
};
use crate::error::LoadError;
use crate::request::{self, Moment, RequestTemplate};
use crate::thread;
use endpoint::Endpoints;

pub(crate) use chain::Stage;
pub(crate) use endpoint::Endpoint;
pub(crate) use schedule::{Entry, Extent, Schedule};
pub(crate) use think::Think;

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
    /// From an answer to the request that follows, in closed loops and later stages.
    pub think: Think,
    pub targets: Vec<PlannedTarget>,
    /// What its rows name as stage.
    pub stage_name: Option<Text>,
    /// Its part in a chain of several stages.
    pub stage: Option<Stage>,
    pub declared: Declared,
}

/// What rows say where answers do not.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Declared {
    /// In bytes.
    pub memory: Option<i64>,
    /// In micro-vCPU.
    pub cpu: Option<i64>,
    pub execution: Option<Execution>,
}

/// What decides when the requests of a stream are sent.
#[derive(Debug)]
pub(crate) enum Pacing {
    /// A schedule.
    Open(Process),
    /// Answers. Of the clients and requests, those of this process's share.
    Closed(Closed),
    /// The answers to a chain's earlier requests.
    After,
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
        check::times(config)?;
        check::share_and_rules(config)?;
        check::output(&config.out)?;
        if let Some(spans) = &config.spans_out {
            check::output(spans)?;
        }
        if config.streams.is_empty() {
            return Err(LoadError::NoStreams);
        }
        let mut endpoints = Endpoints::new(&config.tls, config.dry_run);
        let streams = plan_streams(&mut endpoints, config)?;
        let endpoints = endpoints.into_vec();
        check::pool(config, endpoints.len())?;
        let has_clients = streams.iter().any(|one| matches!(one.pacing, Pacing::Closed(_)));
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

    /// A stream's part in a chain of several stages.
    pub(crate) fn stage(&self, stream: usize) -> Option<&Stage> {
        self.streams[stream].stage.as_ref()
    }

    /// Whether any stream is a closed loop, whose send times come from answers alone.
    pub(crate) fn has_clients(&self) -> bool {
        self.streams.iter().any(|stream| matches!(stream.pacing, Pacing::Closed(_)))
    }

    /// How many requests there will be; none when answers decide that as it goes.
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

    /// What a request needs to know about itself when it is sent at this time; `answers` has what
    /// the references of its stream stand for.
    pub(crate) fn moment<'a>(
        &'a self,
        entry: &Entry,
        unix_ns: i64,
        answers: &'a [Vec<u8>],
    ) -> Moment<'a> {
        Moment {
            prefix: &self.prefix,
            stream: entry.stream,
            number: entry.number,
            unix_ns,
            answers,
        }
    }

    pub(crate) fn target(&self, entry: &Entry) -> &PlannedTarget {
        let PlannedStream { targets, pacing, .. } = &self.streams[entry.stream];
        let by_burst = matches!(pacing, Pacing::Closed(closed) if closed.one_replica);
        &targets[entry.target(targets.len(), by_burst)]
    }
}

fn plan_streams(
    endpoints: &mut Endpoints<'_>,
    config: &Config,
) -> Result<Vec<PlannedStream>, LoadError> {
    let stages = chain::stages(&config.streams)?;
    let mut streams = Vec::with_capacity(stages.len());
    for (stream, stage) in config.streams.iter().zip(stages) {
        streams.push(plan_stream(stream, stage, endpoints, config)?);
    }
    let references = |stream: &PlannedStream| {
        let references = stream.stage.as_ref().map(|stage| stage.references.iter());
        references.into_iter().flatten().map(|reference| reference.stream).collect::<Vec<_>>()
    };
    let used: Vec<usize> = streams.iter().flat_map(references).collect();
    for index in used {
        if let Some(stage) = &mut streams[index].stage {
            stage.keeps_answer = true;
        }
    }
    Ok(streams)
}

fn plan_stream(
    stream: &Stream,
    mut stage: Option<Stage>,
    endpoints: &mut Endpoints<'_>,
    config: &Config,
) -> Result<PlannedStream, LoadError> {
    let pacing = pacing(stream, config.share)?;
    let label = stream.label.as_ref().unwrap_or(&stream.function).clone();
    let with_hints = match &stream.hints {
        Some(hints) => Some(hints::add(stream, hints, &label, config.seed)?),
        None => None,
    };
    let stream = with_hints.as_ref().unwrap_or(stream);
    check::columns(stream, &label, config.seed)?;
    if stream.targets.is_empty() {
        return Err(LoadError::NoTargets { stream: stream.function.clone() });
    }
    let parse = |target: &Target| endpoint::Address::parse(&stream.function, &target.url);
    let addresses = stream.targets.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let places: Vec<_> = addresses.iter().map(endpoint::Address::place).collect();
    let closes = config.connections == ConnectionPolicy::Fresh;
    let ancestors = chain::ancestors(&config.streams, stream);
    let (requests, references) = request::plan(stream, config.seed, closes, &places, &ancestors)?;
    if let Some(stage) = &mut stage {
        stage.references = references;
    }
    let targets = stream.targets.iter().zip(&addresses).zip(requests);
    let targets = targets.map(|((target, address), request)| {
        let endpoint = endpoints.add(&stream.function, target, address, stream.http_version)?;
        Ok(PlannedTarget { function: target.function.as_str().into(), endpoint, request })
    });
    let think = match (&stream.closed, &stream.after) {
        (Some(closed), _) => (closed.think_ns, closed.think_max_ns),
        (None, Some(after)) => (after.think_ns, after.think_max_ns),
        (None, None) => (0, None),
    };
    Ok(PlannedStream {
        function: stream.function.as_str().into(),
        think: Think::new(config.seed, &label, think.0, think.1),
        label,
        pacing,
        start_ns: stream.start_ns,
        targets: targets.collect::<Result<_, LoadError>>()?,
        stage_name: stream.stage.as_deref().map(Text::from),
        stage,
        declared: Declared {
            memory: stream.allocated_memory,
            cpu: stream.allocated_cpu,
            execution: stream.execution,
        },
    })
}

fn pacing(stream: &Stream, share: Share) -> Result<Pacing, LoadError> {
    match (&stream.arrivals, stream.closed, &stream.after) {
        (Some(process), None, None) => {
            process.validate().map_err(|source| LoadError::Arrivals {
                stream: stream.function.clone(),
                source,
            })?;
            Ok(Pacing::Open(process.clone()))
        }
        (None, None, Some(_)) => Ok(Pacing::After),
        (None, Some(closed), None) => Ok(Pacing::Closed(Closed {
            clients: portion(closed.clients.into(), share) as u32,
            requests: closed.requests.map(|requests| {
                // Only shares that have clients can send.
                let of = share.of.min(closed.clients.into());
                if share.index < of { portion(requests, Share { of, ..share }) } else { 0 }
            }),
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
        let cases: [(&str, Change); 16] = [
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
            ("it has 3 values for 2 requests", |c| {
                c["streams"][0]["headers"]["a"] = "{{x}}".into();
                c["streams"][0]["fields"] =
                    serde_json::json!({"x": {"kind": "column", "values": [1, 2, 3]}});
            }),
            ("answers decide how many requests", |c| {
                let stream = c["streams"][0].as_object_mut().unwrap();
                stream.remove("arrivals");
                stream.insert(
                    "closed".to_owned(),
                    serde_json::json!({"clients": 1, "requests": 1, "duration_ns": 1000}),
                );
                stream.insert(
                    "fields".to_owned(),
                    serde_json::json!({"x": {"kind": "column", "values": [1]}}),
                );
            }),
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
    fn all_requests_of_a_closed_loop_fall_to_shares_that_have_clients() {
        for (clients, expected) in [
            (1, [(1, 10), (0, 0), (0, 0)]),
            (2, [(1, 5), (1, 5), (0, 0)]),
            (4, [(2, 4), (1, 3), (1, 3)]),
        ] {
            let of_share = |index: u64| {
                let plan = config(|c| {
                    let stream = c["streams"][0].as_object_mut().unwrap();
                    stream.remove("arrivals");
                    stream.insert(
                        "closed".to_owned(),
                        serde_json::json!(
                            {"clients": clients, "requests": 10, "duration_ns": 1_000_000_000}
                        ),
                    );
                    c["share"] = serde_json::json!({"index": index, "of": 3});
                });
                let Pacing::Closed(closed) = plan.unwrap().streams.remove(0).pacing else {
                    panic!("it is a closed loop");
                };
                (closed.clients, closed.requests.unwrap())
            };
            assert_eq!([of_share(0), of_share(1), of_share(2)], expected);
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
