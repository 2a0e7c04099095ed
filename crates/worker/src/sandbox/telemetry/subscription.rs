//! What an extension asks for when it subscribes, within Lambda's limits.
//! Source: <https://docs.aws.amazon.com/lambda/latest/dg/telemetry-api-reference.html>

use std::time::Duration;

use http::Uri;
use serde::Deserialize;

use super::Kind;
use crate::sandbox::environment::RUNTIME_API_PORT;

/// The versions of the schema, which differ in what is written here by nothing but additions.
const VERSIONS: [&str; 3] = ["2022-07-01", "2022-12-13", "2025-01-29"];
/// The names under which an instance knows itself.
const HOSTS: [&str; 2] = ["sandbox.localdomain", "sandbox"];

/// The limits of one field of `buffering`: what it is if it is not given, at least and at most.
struct Limits {
    name: &'static str,
    default: u64,
    least: u64,
    most: u64,
}

const MAX_ITEMS: Limits = Limits { name: "maxItems", default: 1_000, least: 1_000, most: 10_000 };
const MAX_BYTES: Limits =
    Limits { name: "maxBytes", default: 262_144, least: 262_144, most: 1_048_576 };
const TIMEOUT_MS: Limits = Limits { name: "timeoutMs", default: 1_000, least: 25, most: 30_000 };

/// A subscription as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subscription {
    pub kinds: Vec<Kind>,
    pub port: u16,
    pub path: String,
    pub host: String,
    /// A batch is sent when it has so many events, so many bytes, or is so old.
    pub max_items: usize,
    pub max_bytes: usize,
    pub timeout: Duration,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    schema_version: String,
    types: Vec<String>,
    destination: Destination,
    #[serde(default)]
    buffering: Buffering,
}

#[derive(Deserialize)]
struct Destination {
    protocol: String,
    #[serde(rename = "URI")]
    uri: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Buffering {
    max_items: Option<u64>,
    max_bytes: Option<u64>,
    timeout_ms: Option<u64>,
}

impl Limits {
    fn check(&self, value: Option<u64>) -> Result<u64, String> {
        let value = value.unwrap_or(self.default);
        if (self.least..=self.most).contains(&value) {
            return Ok(value);
        }
        let Self { name, least, most, .. } = self;
        Err(format!("buffering.{name} must be {least} to {most}, not {value}"))
    }
}

impl Subscription {
    /// Reads a request's body; if it asks for what is not offered, says in a sentence what.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        let asked: Asked = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if !VERSIONS.contains(&&*asked.schema_version) {
            let versions = VERSIONS.join(", ");
            return Err(format!(
                "schemaVersion must be one of {versions}, not {:?}",
                asked.schema_version
            ));
        }
        let kinds = asked.types.iter().map(|name| {
            Kind::named(name).ok_or_else(|| {
                format!("types are platform, function and extension: there is no {name:?}")
            })
        });
        let kinds = kinds.collect::<Result<Vec<_>, _>>()?;
        if kinds.is_empty() {
            return Err("types must name at least one of platform, function and extension".into());
        }
        let Destination { protocol, uri } = asked.destination;
        if protocol != "HTTP" {
            return Err(format!("destination.protocol must be HTTP, not {protocol:?}"));
        }
        let (host, port, path) = destination(&uri)?;
        let Buffering { max_items, max_bytes, timeout_ms } = asked.buffering;
        let size = |limits: Limits, value| {
            limits.check(value).map(|value| usize::try_from(value).unwrap_or(usize::MAX))
        };
        Ok(Self {
            kinds,
            host,
            port,
            path,
            max_items: size(MAX_ITEMS, max_items)?,
            max_bytes: size(MAX_BYTES, max_bytes)?,
            timeout: Duration::from_millis(TIMEOUT_MS.check(timeout_ms)?),
        })
    }
}

/// The host as it is named to the listener, the port and the path of a destination.
fn destination(uri: &str) -> Result<(String, u16, String), String> {
    let wrong = || {
        format!(
            "destination.URI must be http://sandbox.localdomain:PORT or http://sandbox:PORT, with a path \
             if need be, not {uri:?}"
        )
    };
    let parsed: Uri = uri.parse().map_err(|_| wrong())?;
    let host = parsed.host().filter(|host| HOSTS.contains(host)).ok_or_else(wrong)?;
    let is_http = parsed.scheme_str() == Some("http");
    let port = parsed.port_u16().filter(|port| is_http && *port > 0).ok_or_else(wrong)?;
    if port == RUNTIME_API_PORT {
        return Err(format!("destination.URI: port {port} is the platform's own, choose another"));
    }
    let path = parsed.path_and_query().map_or("/", |path| path.as_str());
    Ok((format!("{host}:{port}"), port, path.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(changes: &[(&str, Value)]) -> Result<Subscription, String> {
        let mut body = json!({
            "schemaVersion": "2022-12-13",
            "types": ["platform", "function"],
            "destination": {"protocol": "HTTP", "URI": "http://sandbox.localdomain:8080/logs?a=b"},
        });
        for (name, value) in changes {
            body[*name] = value.clone();
        }
        Subscription::read(body.to_string().as_bytes())
    }

    #[test]
    fn what_is_not_said_is_lambdas_default() {
        let subscription = read(&[]).unwrap();
        assert_eq!(subscription.kinds, [Kind::Platform, Kind::Function]);
        assert_eq!((subscription.port, &*subscription.path), (8080, "/logs?a=b"));
        assert_eq!((subscription.max_items, subscription.max_bytes), (1_000, 262_144));
        assert_eq!(subscription.timeout, Duration::from_secs(1));
    }

    #[test]
    fn what_is_not_offered_is_refused_with_a_sentence() {
        let to = |uri: &str| ("destination", json!({"protocol": "HTTP", "URI": uri}));
        for (change, words) in [
            (("schemaVersion", json!("2021-03-18")), "schemaVersion must be"),
            (("types", json!([])), "types must name"),
            (("types", json!(["logs"])), "there is no \"logs\""),
            (("buffering", json!({"maxItems": 999})), "maxItems must be 1000 to 10000, not 999"),
            (("buffering", json!({"maxBytes": 2_000_000})), "maxBytes must be 262144 to 1048576"),
            (("buffering", json!({"timeoutMs": 24})), "timeoutMs must be 25 to 30000, not 24"),
            (("destination", json!({"protocol": "TCP", "URI": "x"})), "must be HTTP, not \"TCP\""),
            (to("http://example.com:80"), "must be http://sandbox.localdomain:PORT"),
            (to("http://127.0.0.1:8080"), "must be http://sandbox.localdomain:PORT"),
            (to("https://sandbox:8080"), "must be http://sandbox.localdomain:PORT"),
            (to("http://sandbox"), "must be http://sandbox.localdomain:PORT"),
            (to("http://sandbox:9001"), "port 9001 is the platform's own"),
        ] {
            let error = read(std::slice::from_ref(&change)).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
