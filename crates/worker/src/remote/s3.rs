//! Packages from S3, or from whatever speaks its language at `AWS_ENDPOINT_URL_S3`.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use uncia_oci::Digest;
use uncia_sigv4::{Scope, hash};

use super::{RemoteError, SaveError, save, send};
use crate::clock;
use crate::services::Services;

const ENDPOINT: &str = "AWS_ENDPOINT_URL_S3";
const SERVICE: &str = "store";
/// What an error says of itself fits in it.
const MAX_ERROR_BYTES: u64 = 64 * 1024;
/// S3 encodes all but these and, in keys, slashes.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const ENCODED_IN_KEYS: &AsciiSet = &ENCODED.remove(b'/');

/// Where a package is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Object {
    pub bucket: String,
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A store of objects: where it is, and what requests to it are signed with.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    endpoint: Uri,
    credentials: Credentials,
}

/// Credentials of one account.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub access_key_id: String,
    pub secret: String,
    pub token: Option<String>,
    pub region: String,
}

impl Credentials {
    /// Those among some variables; the error is the name of one that is missing.
    pub(crate) fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self, &'static str> {
        let needed = |name: &'static str| variable(name).ok_or(name);
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        Ok(Self {
            access_key_id: needed("AWS_ACCESS_KEY_ID")?,
            secret: needed("AWS_SECRET_ACCESS_KEY")?,
            token: variable("AWS_SESSION_TOKEN"),
            region: region.unwrap_or_else(|| "us-east-1".to_owned()),
        })
    }
}

/// A variable of the environment that says something.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn invalid(message: impl Into<String>) -> RemoteError {
    RemoteError::Refused(message.into())
}

/// As Lambda says it.
fn failed(code: &str, message: &str) -> RemoteError {
    invalid(format!(
        "Error occurred while GetObject. S3 Error Code: {code}. S3 Error Message: {message}"
    ))
}

impl Store {
    /// The platform's service of this name, or else the store that the environment names.
    ///
    /// A run's own store holds its packages, whatever the shell that the run was started in names.
    pub(crate) fn find(services: &Services) -> Result<Self, RemoteError> {
        let (text, variables) = match (services.named(SERVICE), variable(ENDPOINT)) {
            (Some(located), _) => {
                (format!("http://{}", located.address), Some(&located.environment.0))
            }
            (None, Some(text)) => (text, None),
            (None, None) => {
                return Err(invalid(format!(
                    "Packages from S3 need an endpoint: start the platform with {ENDPOINT} set or with a \
                     service `{SERVICE}`, or give the package as ZipFile"
                )));
            }
        };
        let uri = text.parse::<Uri>().ok().filter(|uri| {
            uri.scheme_str() == Some("http") && uri.authority().is_some() && uri.query().is_none()
        });
        let endpoint = uri.ok_or_else(|| {
            invalid(format!(
                "{ENDPOINT} must be an address like http://127.0.0.1:9000 (TLS is not spoken), not \
                 {text:?}"
            ))
        })?;
        let of_service = |variables: &BTreeMap<String, String>, name: &str| {
            variables.get(name).cloned().filter(|value| !value.is_empty())
        };
        let credentials = match variables {
            None => Credentials::of(variable),
            Some(variables) => Credentials::of(|name| of_service(variables, name)),
        };
        let credentials = credentials.map_err(|name| {
            invalid(format!(
                "Packages from S3 need credentials: start the platform with {name} set"
            ))
        })?;
        Ok(Self { endpoint, credentials })
    }

    /// Writes an object to a new file, unless it has more than `most` bytes; returns its digest and its size. Only
    /// for threads that may wait.
    pub(crate) fn fetch(
        &self,
        object: &Object,
        file: &Path,
        most: u64,
    ) -> Result<(Digest, u64), RemoteError> {
        let endpoint = &self.endpoint;
        let unreachable = |error: &dyn std::fmt::Display| {
            failed("ServiceUnavailable", &format!("{endpoint} cannot be asked: {error}"))
        };
        let date = clock::basic_iso_8601(clock::unix_ns() / 1_000_000);
        let request = object.request(endpoint, &self.credentials, &date);
        let request = request.map_err(|error| unreachable(&error))?;
        let host = endpoint.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = endpoint.port_u16().unwrap_or(80);
        let answer = send(host, port, request).map_err(|error| unreachable(&error))?;
        let status = answer.head.status;
        if status == StatusCode::OK {
            if let Some(length) = answer.declared().filter(|length| *length > most) {
                return Err(RemoteError::TooLarge(length));
            }
            let saved = save(answer, file, most);
            let (digest, bytes) = saved.map_err(|error| match error {
                SaveError::Source(error) => unreachable(&error),
                SaveError::Disk(error) => invalid(format!("The package cannot be kept: {error}")),
            })?;
            if bytes > most {
                return Err(RemoteError::TooLarge(bytes));
            }
            return Ok((digest, bytes));
        }
        let body = answer.text(MAX_ERROR_BYTES).map_err(|error| unreachable(&error))?;
        let text = String::from_utf8_lossy(&body);
        let inside = |name: &str| {
            let rest = text.split_once(&format!("<{name}>"))?.1;
            Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
        };
        let code = inside("Code").unwrap_or_else(|| status.as_u16().to_string());
        Err(failed(&code, &inside("Message").unwrap_or_else(|| "it gave no reason".to_owned())))
    }
}

impl Object {
    /// Path and query of it, as they are sent and signed.
    fn path_and_query(&self, endpoint: &Uri) -> (String, String) {
        let path = format!(
            "{}/{}/{}",
            endpoint.path().trim_end_matches('/'),
            utf8_percent_encode(&self.bucket, ENCODED),
            utf8_percent_encode(&self.key, ENCODED_IN_KEYS)
        );
        let query = self
            .version
            .as_deref()
            .map(|version| format!("versionId={}", utf8_percent_encode(version, ENCODED)));
        (path, query.unwrap_or_default())
    }

    /// The request for it, signed at `date` (`20260501T120000Z`).
    fn request(
        &self,
        endpoint: &Uri,
        credentials: &Credentials,
        date: &str,
    ) -> Result<Request<Empty<Bytes>>, http::Error> {
        let host = endpoint.authority().map_or("", |it| it.as_str());
        let body_hash = hash(b"");
        // In the order of their names.
        let mut headers =
            vec![("host", host), ("x-amz-content-sha256", &body_hash), ("x-amz-date", date)];
        headers.extend(credentials.token.as_deref().map(|it| ("x-amz-security-token", it)));
        let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let (path, query) = self.path_and_query(endpoint);
        let lines: String =
            headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let canonical = format!("GET\n{path}\n{query}\n{lines}\n{names}\n{body_hash}");
        let Credentials { access_key_id, region, .. } = credentials;
        let scope = Scope { access_key_id, region, service: "s3" };
        let key = scope.key(&credentials.secret, date);
        let authorization = scope.authorization(key, date, &names, canonical.as_bytes());
        let target = if query.is_empty() { path } else { format!("{path}?{query}") };
        let request = Request::get(target).header("authorization", authorization);
        let signed = headers.into_iter().fold(request, |it, (name, value)| it.header(name, value));
        signed.body(Empty::new())
    }
}
