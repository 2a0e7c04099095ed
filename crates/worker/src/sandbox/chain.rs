//! Invoke for the functions of an instance: the endpoint behind `AWS_ENDPOINT_URL_LAMBDA`.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use super::pace::{CHUNK, Pace, Paced, REQUEST};
use super::runtime_api::{RuntimeApi, accept};
use crate::instance::ChainService;

/// A function that has not sent the head of its request by then is not going to.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Shows for which of several requests a server asks: what it was given with that one.
pub(super) const TOKEN_HEADER: &str = "x-uncia-token";
/// Most that is read at once, and the longest head.
const BUFFER_BYTES: usize = 32 * 1024;

/// The function that makes a request: an extension of it.
#[derive(Clone)]
pub struct Caller {
    /// The name of the invocation that it asks for, if that is sure.
    pub invocation: Option<String>,
    pace: Arc<Pace>,
}

impl Caller {
    /// Charges a piece of the request's body, and waits if the instance has sent too many.
    pub async fn charge_piece(&self) {
        self.pace.spend(CHUNK).await;
    }
}

/// Serves Invoke to the instance that `api` is of.
pub(super) async fn serve(listener: TcpListener, chain: ChainService, api: Arc<RuntimeApi>) {
    let served = api.clone();
    accept(
        listener,
        &served,
        |_| true,
        |stream| {
            let (chain, api) = (chain.clone(), api.clone());
            async move {
                // Without it, answers may be late by 40 ms.
                let _ = stream.set_nodelay(true);
                let pace = api.pace().clone();
                let stream = Paced::new(stream, pace.clone());
                let service = service_fn(move |mut request: http::Request<Incoming>| {
                    let (chain, pace) = (chain.clone(), pace.clone());
                    let token = request.headers_mut().remove(TOKEN_HEADER);
                    // What is no text is no token that was given.
                    let token = token.as_ref().map(|it| it.to_str().unwrap_or_default());
                    let invocation = api.asking(token);
                    async move {
                        pace.spend(REQUEST).await;
                        request.extensions_mut().insert(Caller { invocation, pace });
                        Ok::<_, std::convert::Infallible>(chain(request).await)
                    }
                });
                // The function may close the connection as it likes.
                let _ = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_TIMEOUT)
                    .max_buf_size(BUFFER_BYTES)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            }
        },
    )
    .await;
}
