//! The Lambda API, function URLs, and the platform's own log, over HTTP.

mod error;
mod events;
mod forms;
mod functions;
mod guard;
mod invoke;
mod logs;
mod route;
mod tags;
mod urls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

pub use error::{Answer, ApiError};

use crate::config::Config;
use crate::dispatch::Dispatcher;
use crate::instance::{Capabilities, Host};
use crate::meterlog::MeterLog;
use crate::store::Registry;

/// A client that has not sent the head of its request by then is not going to.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Nothing that is taken is larger: a zip of 50 MB in base64, and what is around it.
const MAX_BODY_BYTES: usize = 72 * 1024 * 1024;
/// The account and region that ARNs carry.
pub const ARN_PREFIX: &str = "arn:aws:lambda:us-east-1:000000000000:function:";

/// Everything that a request may need.
pub struct Api {
    pub config: Config,
    pub address: SocketAddr,
    pub host: Arc<Host>,
    pub registry: Arc<Registry>,
    pub dispatcher: Dispatcher,
    pub log: Arc<MeterLog>,
}

impl Api {
    /// Serves connections until `listener` is dropped with this future.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(_) => {
                    // Out of descriptors, most likely: others are closed in a moment.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            // Answers are small and are waited for.
            let _ = stream.set_nodelay(true);
            let api = self.clone();
            let from_instance = self.host.is_from_instance(&stream);
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let api = api.clone();
                    async move {
                        let answer = api.answer(request, from_instance).await;
                        Ok::<_, std::convert::Infallible>(answer)
                    }
                });
                // A client that breaks off is its own affair.
                let _ = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_TIMEOUT)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    }

    async fn answer(
        self: &Arc<Self>,
        request: http::Request<Incoming>,
        from_instance: bool,
    ) -> Answer {
        if from_instance && !request.uri().path().starts_with("/url/") {
            return ApiError::denied(
                "Functions may not manage the platform; those with the tag uncia:network set to \
                 platform may invoke others, at AWS_ENDPOINT_URL_LAMBDA",
            )
            .answer();
        }
        if let Err(error) = guard::check(&self.config, request.uri().path(), request.headers()) {
            return error.answer();
        }
        let (head, body) = request.into_parts();
        match read_body(body).await {
            Ok(body) => {
                route::answer(self, &head, body).await.unwrap_or_else(|error| error.answer())
            }
            Err(error) => error.answer(),
        }
    }

    /// Serves the Invoke requests of instances that may make them, and nothing else.
    pub async fn answer_instance(self: &Arc<Self>, request: http::Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let name = path
            .strip_prefix("/2015-03-31/functions/")
            .and_then(|rest| rest.strip_suffix("/invocations"))
            .filter(|_| head.method == http::Method::POST);
        let Some(name) = name else {
            return ApiError::denied(format!(
                "{} {path} is not allowed from within a function; only Invoke is",
                head.method
            ))
            .answer();
        };
        let body = match read_body(body).await {
            Ok(body) => body,
            Err(error) => return error.answer(),
        };
        invoke::answer(self, name, &head, body).await.unwrap_or_else(|error| error.answer())
    }

    pub fn capabilities(&self) -> &Capabilities {
        self.host.capabilities()
    }
}

async fn read_body(body: Incoming) -> Result<Bytes, ApiError> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(ApiError::too_large(MAX_BODY_BYTES, MAX_BODY_BYTES))
        }
        Err(error) => Err(ApiError::bad_http(format!("The request's body broke off: {error}"))),
    }
}

/// An answer with bytes.
pub(crate) fn bytes_answer(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = http::Response::new(Full::new(body.into()));
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    answer
}
