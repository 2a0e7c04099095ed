//! Where spans are sent, by OpenTelemetry's environment variables.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where spans are sent, and what is said with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub(super) endpoint: Uri,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) timeout: Duration,
    /// Of what sends them, in order.
    pub(super) resource: Vec<(String, String)>,
}

impl Settings {
    /// Those of a process's environment; None if it names no collector, or wants no traces.
    ///
    /// # Errors
    /// A sentence: a variable has a value that cannot be used.
    pub fn of_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let given = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        // That of traces alone is more particular.
        let either = |name: &str| {
            let names =
                [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
            names.into_iter().find_map(|name| given(&name).map(|value| (name, value)))
        };
        let is_off = given("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"))
            || given("OTEL_TRACES_EXPORTER").as_deref() == Some("none");
        let Some((name, text)) = either("ENDPOINT").filter(|_| !is_off) else { return Ok(None) };
        if let Some((name, protocol)) = either("PROTOCOL").filter(|(_, it)| it == "grpc") {
            return Err(format!(
                "{name} is {protocol}, but spans are sent over HTTP alone: set it to http/json, and the \
                 endpoint to the collector's port for HTTP, 4318 unless it has another"
            ));
        }
        let address = if name.contains("TRACES") {
            text.clone()
        } else {
            format!("{}/v1/traces", text.trim_end_matches('/'))
        };
        let endpoint = address.parse::<Uri>().ok().filter(|uri| {
            uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty())
        });
        let endpoint = endpoint.ok_or_else(|| {
            format!(
                "{name} must be an address like http://127.0.0.1:4318 (TLS is not spoken: run a \
                 collector on this machine that passes them on), not {text:?}"
            )
        })?;
        let mut headers = Vec::new();
        if let Some((name, text)) = either("HEADERS") {
            for (key, value) in pairs(&name, &text)? {
                let refused = || format!("{name}: {key:?} is not a header");
                let key_name = HeaderName::from_bytes(key.as_bytes()).map_err(|_| refused())?;
                headers.push((key_name, HeaderValue::from_str(&value).map_err(|_| refused())?));
            }
        }
        let timeout = match either("TIMEOUT") {
            None => DEFAULT_TIMEOUT,
            Some((name, text)) => match text.trim().parse() {
                Ok(ms) if ms > 0 => Duration::from_millis(ms),
                _ => return Err(format!("{name} must be milliseconds above 0, not {text:?}")),
            },
        };
        let mut resource = match given("OTEL_RESOURCE_ATTRIBUTES") {
            Some(text) => pairs("OTEL_RESOURCE_ATTRIBUTES", &text)?,
            None => Vec::new(),
        };
        if let Some(service) = given("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), service));
        } else if resource.iter().all(|(key, _)| key != "service.name") {
            resource.push(("service.name".to_owned(), "uncia".to_owned()));
        }
        Ok(Some(Self { endpoint, headers, timeout, resource }))
    }
}

/// Reads `key=value,key=value`, percent-encoded, as baggage is.
fn pairs(name: &str, text: &str) -> Result<Vec<(String, String)>, String> {
    let decode = |part: &str| percent_decode_str(part.trim()).decode_utf8_lossy().into_owned();
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').filter(|(key, _)| !key.trim().is_empty())?;
        Some((decode(key), decode(value)))
    });
    // The text may be secret.
    pairs.collect::<Option<_>>().ok_or_else(|| format!("{name} must be KEY=VALUE,KEY=VALUE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        Settings::of_environment(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_an_endpoint_there_are_none() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), Ok(None));
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1]:4318/");
        assert_eq!(read(&[endpoint, ("OTEL_SDK_DISABLED", "True")]), Ok(None));
        assert_eq!(read(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
        assert_eq!(read(&[endpoint]).unwrap().unwrap().endpoint, "http://[::1]:4318/v1/traces");
    }

    #[test]
    fn what_is_of_traces_alone_goes_first() {
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b:2/own"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20eA%3D%3D, x-a = b "),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "500"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment=lab"),
            ("OTEL_SERVICE_NAME", "mine"),
        ]);
        let settings = settings.unwrap().unwrap();
        assert_eq!(settings.endpoint, "http://b:2/own");
        assert_eq!(settings.headers[0].1, "Basic eA==");
        assert_eq!(settings.headers[1], ("x-a".parse().unwrap(), "b".parse().unwrap()));
        assert_eq!(settings.timeout, Duration::from_millis(500));
        let resource = [("deployment.environment", "lab"), ("service.name", "mine")];
        let resource = resource.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(settings.resource, resource);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1");
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://a:1"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "a:1"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=c"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_RESOURCE_ATTRIBUTES", "=x"),
        ] {
            let error = read(&[endpoint, (name, value)]).unwrap_err();
            assert!(error.contains(name) && !error.contains("secret"), "{error}");
        }
    }
}
