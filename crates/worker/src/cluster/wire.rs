//! What a controller and the workers that joined it say to each other.
//!
//! The worker opens the connection ([`PROTOCOL`], an upgrade of HTTP/1.1); from then on the controller is
//! the client of HTTP/2 on it, and the worker the server. Bodies are in postcard's form: both sides are of
//! the same version.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uncia_clock::Moment;
use uncia_policy::{Capacity, Resources};

use crate::instance::{
    HttpHead, InstanceSpec, Outcome, Phase, Reply, Request, Runtime, Sandbox, StartError, Usage,
};
use crate::store::{Code, FetchedZip, Origin, StoredImage};

/// What the connection of a worker becomes. Its number grows with every change of what is said on it.
pub(crate) const PROTOCOL: &str = "uncia-worker/6";
/// Where a worker joins.
pub(crate) const JOIN_PATH: &str = "/uncia/v1/workers/join";
/// What a worker says of itself: [`Introduction`] in JSON.
pub(crate) const INTRODUCTION_HEADER: &str = "x-uncia-worker";
/// Longest name of a worker.
const MAX_NAME: usize = 64;
/// Longest name of a phase that is passed on.
const MAX_PHASES: usize = 256;

/// What a worker says of itself when it joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    /// By which rows name it.
    pub name: String,
    /// Of the engine: what one says, only the same understands.
    pub version: String,
    /// In micro-vCPU; none if it has no bound.
    pub cpu: Option<u64>,
    /// In bytes; none if it has no bound.
    pub memory: Option<u64>,
    pub max_instances: u32,
}

impl Introduction {
    /// Rows, addresses and messages have the name as it is; the error is a sentence.
    pub(crate) fn check_name(&self) -> Result<(), String> {
        let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if self.name.is_empty() || self.name.len() > MAX_NAME || !self.name.bytes().all(fine) {
            let name = &self.name;
            return Err(format!(
                "A worker's name must be 1 to {MAX_NAME} letters, digits and _.-, not {name:?}"
            ));
        }
        Ok(())
    }

    pub(crate) fn capacity(&self) -> Capacity {
        let resources = Resources {
            cpu: self.cpu.unwrap_or(u64::MAX),
            memory: self.memory.unwrap_or(u64::MAX),
        };
        Capacity { resources, max_instances: self.max_instances }
    }
}

/// The version that both sides must have.
pub(crate) fn engine_version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// Asks for an instance.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartRequest {
    pub spec: InstanceSpec,
    pub package: PackageSource,
    /// The hashes of its layers' packages, the lowest first.
    pub layers: Vec<String>,
}

/// Where a worker has an instance's package from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PackageSource {
    /// A zip file that the controller keeps, by its hash.
    Kept(String),
    /// A zip file that each start fetches from a store of objects, by its hash.
    Fetched(String, #[serde(with = "as_json")] FetchedZip),
    /// An image, whose layers come from the controller, or from its registry if it has one.
    Image(#[serde(with = "as_json")] StoredImage),
}

impl PackageSource {
    /// Where the package of a function comes from.
    pub(super) fn of(code: &Code) -> Self {
        match (code.image(), code.origin()) {
            (Some(image), _) => Self::Image(image.clone()),
            (None, Some(Origin::Store(zip))) => {
                Self::Fetched(code.sha256().to_owned(), zip.clone())
            }
            (None, _) => Self::Kept(code.sha256().to_owned()),
        }
    }

    /// What it is called where one waits for another.
    pub(super) fn hash(&self) -> &str {
        match self {
            Self::Kept(sha256) | Self::Fetched(sha256, _) => sha256,
            Self::Image(stored) => stored.image.digest.hex(),
        }
    }
}

/// For what leaves out what it has not, which the form of all else cannot say.
mod as_json {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serde_json::to_string(value).map_err(S::Error::custom)?.serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(deserializer)?;
        serde_json::from_str(&text).map_err(D::Error::custom)
    }
}

/// How a start went, with moments of the worker's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartAnswer {
    pub error: Option<StartError>,
    pub phases: Vec<(String, Moment, Moment)>,
    pub restored: bool,
    pub initialization_ns: i64,
    pub log_tail: Bytes,
    pub cgroup: Option<String>,
    pub stay: Stay,
}

/// When a request was with the worker, by the worker's clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stay {
    pub came: Moment,
    pub left: Moment,
}

impl Stay {
    /// From when the request came until now.
    pub(crate) fn since(came: Moment) -> Self {
        Self { came, left: Moment::now() }
    }
}

/// Puts moments of a worker's clocks on the controller's, from the four stamps of a request and its
/// answer: both ways are taken to have lasted as long, so that a moment is off by half of what was
/// on the way at most. What lies between two moments of the same request is exact.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Translation {
    /// What came to the worker then...
    came: Moment,
    /// ... came then by the controller's clocks.
    here: Moment,
}

impl Translation {
    /// `sent` and `received`: by the controller's clocks.
    pub(crate) fn new(sent: Moment, received: Moment, stay: Stay) -> Self {
        let away = received.since(sent) - stay.left.since(stay.came);
        Self { came: stay.came, here: sent.plus((away / 2).max(0)) }
    }

    /// The moment of the worker's clocks on the controller's.
    pub(crate) fn moment(&self, moment: Moment) -> Moment {
        self.here.plus(moment.since(self.came))
    }
}

/// Gives an instance a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServeRequest {
    pub request_id: String,
    pub invocation: String,
    pub payload: Bytes,
    pub head: Option<HttpHead>,
    pub timeout_ms: u64,
    pub client_context: Option<String>,
    pub invoked_arn: Option<String>,
    /// Whether the client takes an answer piece by piece.
    pub streams: bool,
}

impl ServeRequest {
    /// A request with this payload.
    pub(crate) fn of(request: &Request, payload: Bytes) -> Self {
        Self {
            request_id: request.request_id.clone(),
            invocation: request.invocation.clone(),
            payload,
            head: request.head.as_deref().cloned(),
            timeout_ms: u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX),
            client_context: request.client_context.clone(),
            invoked_arn: request.invoked_arn.clone(),
            streams: request.passage.is_some(),
        }
    }
}

impl From<ServeRequest> for Request {
    fn from(request: ServeRequest) -> Self {
        Self {
            request_id: request.request_id,
            invocation: request.invocation,
            payload: request.payload,
            head: request.head.map(Into::into),
            timeout: std::time::Duration::from_millis(request.timeout_ms),
            client_context: request.client_context,
            invoked_arn: request.invoked_arn,
            ..Self::default()
        }
    }
}

/// What an instance answered, with moments of the worker's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServeAnswer {
    pub reply: Reply,
    /// CPU time in ns that it has used while it served nothing.
    pub idle_cpu: Option<i64>,
    pub stay: Stay,
}

impl ServeAnswer {
    /// The reply with moments of the controller's clocks.
    pub(crate) fn translated(self, sent: Moment, received: Moment) -> Reply {
        let there = Translation::new(sent, received, self.stay);
        let Reply { started, ended, extensions, .. } = self.reply;
        Reply {
            started: there.moment(started),
            ended: there.moment(ended),
            extensions: extensions.map(|(start, end)| (there.moment(start), there.moment(end))),
            ..self.reply
        }
    }
}

/// Asks how many bytes the instance has taken of a websocket, once those are more than `known`; a `u64` answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TakenRequest {
    /// Of the request that became the websocket.
    pub request_id: String,
    pub known: u64,
}

/// The reply of an instance whose worker is gone.
pub(crate) fn lost(sent: Moment, delivered: bool, sentence: String) -> Reply {
    Reply {
        outcome: Outcome::WorkerLost(sentence),
        delivered,
        started: sent,
        ended: Moment::now(),
        usage: Usage::default(),
        shared: false,
        services: None,
        extensions: None,
        log_tail: Bytes::new(),
    }
}

/// Phases with moments of the controller's clocks.
pub(crate) fn phases(named: &[(String, Moment, Moment)], there: &Translation) -> Vec<Phase> {
    named
        .iter()
        .map(|(name, start, end)| Phase {
            name: phase_name(name),
            start: there.moment(*start),
            end: there.moment(*end),
        })
        .collect()
}

/// The name for as long as the program runs. There are few; a worker that makes up more gets them called
/// `other`.
fn phase_name(name: &str) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    // The set is whole after every statement, so a panic elsewhere does not spoil it.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = known.get(name) {
        return name;
    }
    if known.len() >= MAX_PHASES {
        return "other";
    }
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    known.insert(name);
    name
}

/// A body as bytes.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Bytes, String> {
    let bytes = postcard::to_stdvec(value);
    bytes.map(Bytes::from).map_err(|error| format!("it cannot be written: {error}"))
}

/// Reads a body.
pub(crate) async fn decode<T: DeserializeOwned>(body: Incoming) -> Result<T, String> {
    let bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    read(&bytes)
}

/// Reads what [`encode`] made.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    postcard::from_bytes(bytes).map_err(|error| format!("it cannot be read: {error}"))
}

impl Serialize for Runtime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Runtime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| D::Error::custom(format!("unknown runtime `{name}`")))
    }
}

impl Serialize for Sandbox {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.runtime().map_or("process", |runtime| runtime.name()))
    }
}

impl<'de> Deserialize<'de> for Sandbox {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::named(&String::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::remote::s3::Object;

    #[test]
    fn a_moment_is_as_far_from_the_request_here_as_there() {
        // The worker's clocks are an hour ahead and began elsewhere.
        let hour = 3_600_000_000_000;
        let there = |ns: i64| Moment::new(hour + ns, 77 * hour + ns);
        let here = |ns: i64| Moment::new(ns, ns);
        let stay = Stay { came: there(1_100), left: there(1_900) };
        let translation = Translation::new(here(1_000), here(2_000), stay);
        assert_eq!(translation.moment(there(1_100)), here(1_100));
        assert_eq!(translation.moment(there(1_500)), here(1_500));
        // An answer that came earlier than it left, as after a step of a clock, is no reason to go back.
        let stay = Stay { came: there(0), left: there(5_000) };
        assert_eq!(Translation::new(here(0), here(100), stay).moment(there(7)), here(7));
    }

    #[test]
    fn what_is_asked_for_arrives_as_it_was() {
        let runtime = Runtime::all()[0];
        let spec =
            InstanceSpec::new("i-1".to_owned(), "f:3", runtime, "m.h", PathBuf::from("/code/x"));
        let object = Object { bucket: "b".to_owned(), key: "k".to_owned(), version: None };
        let zip = FetchedZip { object, zip_bytes: 1, unzipped_bytes: 2 };
        let digest = uncia_oci::Digest::of(b"manifest");
        let execution = uncia_oci::document::Execution::default();
        let image = uncia_oci::Image { digest, execution, layers: Vec::new() };
        for package in [
            PackageSource::Kept("ab".to_owned()),
            PackageSource::Fetched("ab".to_owned(), zip),
            PackageSource::Image(StoredImage { image, bytes: 3, repository: None }),
        ] {
            let (spec, layers) = (spec.clone(), vec!["cd".to_owned()]);
            let request = StartRequest { spec, package, layers };
            let bytes = encode(&request).unwrap();
            let read: StartRequest = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(format!("{request:?}"), format!("{read:?}"));
        }

        let mut headers = http::HeaderMap::new();
        headers.append("set-cookie", "a=1".parse().unwrap());
        headers.append("set-cookie", "b=2".parse().unwrap());
        let answer = crate::instance::HttpAnswer {
            status: http::StatusCode::IM_A_TEAPOT,
            headers,
            body: Some(Bytes::from_static(b"\xff\0")),
        };
        for outcome in [
            Outcome::Answered(Box::new(answer)),
            Outcome::ClientGone("gone".into()),
            Outcome::Ok(Bytes::from(vec![7; 100_000])),
        ] {
            let reply = Reply { outcome, ..lost(Moment::now(), true, String::new()) };
            let bytes = encode(&reply).unwrap();
            let read: Reply = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(read.outcome, reply.outcome);
        }
    }

    #[test]
    fn names_of_phases_stay_few() {
        assert_eq!(phase_name("spawn"), "spawn");
        for n in 0..2 * MAX_PHASES {
            phase_name(&format!("made up {n}"));
        }
        assert_eq!(phase_name("one more"), "other");
        assert_eq!(phase_name("spawn"), "spawn");
    }
}
