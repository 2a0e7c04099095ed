//! Packages from S3, or from whatever speaks its language at `AWS_ENDPOINT_URL_S3`.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use uncia_sigv4::{Scope, hash};

use super::credentials::{Credentials, variable};
use super::error::ApiError;
use crate::clock;
use crate::store::{MAX_ZIPPED_BYTES, PackageError};

const ENDPOINT: &str = "AWS_ENDPOINT_URL_S3";
/// A package must be there by then, as a request's body.
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Packages that are fetched at a time: each may be 50 MB, and is held in memory.
const MAX_FETCHES: usize = 2;
/// What an error says of itself fits in it.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// S3 encodes all but these and, in keys, slashes.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const ENCODED_IN_KEYS: &AsciiSet = &ENCODED.remove(b'/');

/// Where a package is.
pub(super) struct Object<'a> {
    pub bucket: &'a str,
    pub key: &'a str,
    pub version: Option<&'a str>,
}

/// The object's bytes. Only for threads that may wait.
pub(super) fn fetch(object: &Object<'_>) -> Result<Vec<u8>, ApiError> {
    static PLACES: Semaphore = Semaphore::const_new(MAX_FETCHES);
    let endpoint = endpoint()?;
    let credentials = Credentials::of_environment("Packages from S3")?;
    let fetched = Handle::current().block_on(timeout(FETCH_TIMEOUT, async {
        // Nobody closes it.
        let _place = PLACES.acquire().await;
        object.get(&endpoint, &credentials).await
    }));
    fetched.unwrap_or_else(|_| {
        Err(failed("RequestTimeout", &format!("it took more than {} s", FETCH_TIMEOUT.as_secs())))
    })
}

/// As Lambda says it.
fn failed(code: &str, message: &str) -> ApiError {
    ApiError::invalid(format!(
        "Error occurred while GetObject. S3 Error Code: {code}. S3 Error Message: {message}"
    ))
}

fn endpoint() -> Result<Uri, ApiError> {
    let text = variable(ENDPOINT).ok_or_else(|| {
        ApiError::invalid(format!(
            "Packages from S3 need an endpoint: start the platform with {ENDPOINT} set, or give the \
             package as ZipFile"
        ))
    })?;
    let uri = text.parse::<Uri>().ok().filter(|uri| {
        uri.scheme_str() == Some("http") && uri.authority().is_some() && uri.query().is_none()
    });
    uri.ok_or_else(|| {
        ApiError::invalid(format!(
            "{ENDPOINT} must be an address like http://127.0.0.1:9000 (TLS is not spoken), not \
             {text:?}"
        ))
    })
}

impl Object<'_> {
    /// Path and query of it, as they are sent and signed.
    fn path_and_query(&self, endpoint: &Uri) -> (String, String) {
        let path = format!(
            "{}/{}/{}",
            endpoint.path().trim_end_matches('/'),
            utf8_percent_encode(self.bucket, ENCODED),
            utf8_percent_encode(self.key, ENCODED_IN_KEYS)
        );
        let query = self
            .version
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

    async fn get(&self, endpoint: &Uri, credentials: &Credentials) -> Result<Vec<u8>, ApiError> {
        let unreachable = |error: &dyn std::error::Error| {
            failed("ServiceUnavailable", &format!("{endpoint} cannot be asked: {error}"))
        };
        let date = clock::basic_iso_8601(clock::unix_ns() / 1_000_000);
        let request =
            self.request(endpoint, credentials, &date).map_err(|error| unreachable(&error))?;
        let host = endpoint.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = endpoint.port_u16().unwrap_or(80);
        let stream = TcpStream::connect((host, port)).await.map_err(|error| unreachable(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| unreachable(&error))?;
        // Ends with the sender, whatever becomes of the request.
        tokio::spawn(connection);
        let answer = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
        let status = answer.status();
        let is_there = status == http::StatusCode::OK;
        let most = if is_there { MAX_ZIPPED_BYTES } else { MAX_ERROR_BYTES };
        let length = answer.headers().get(http::header::CONTENT_LENGTH);
        let length = length.and_then(|it| it.to_str().ok()?.parse().ok());
        if let Some(length) = length.filter(|length| is_there && *length > most) {
            return Err(PackageError::Zipped(length).into());
        }
        let body = Limited::new(answer.into_body(), most).collect().await;
        let body = match body {
            Ok(body) => body.to_bytes(),
            Err(error) if is_there && error.is::<http_body_util::LengthLimitError>() => {
                return Err(PackageError::Zipped(most + 1).into());
            }
            Err(error) => return Err(unreachable(&*error)),
        };
        if is_there {
            return Ok(body.into());
        }
        let text = String::from_utf8_lossy(&body);
        let said = |name: &str| {
            let rest = text.split_once(&format!("<{name}>"))?.1;
            Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
        };
        let code = said("Code").unwrap_or_else(|| status.as_u16().to_string());
        Err(failed(&code, &said("Message").unwrap_or_else(|| "it gave no reason".to_owned())))
    }
}
