//! Accepting an instance's connections.

use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::RuntimeApi;
use crate::sandbox::pace::REQUEST;

/// Connections of one instance at a time to one of its endpoints. Runtimes use one or two, and an SDK that invokes
/// others ten by default; a function that opens more must not use up the worker's descriptors.
pub(crate) const MAX_CONNECTIONS: usize = 24;

/// The kernel's buffer for what a connection has sent and the worker has not read, which the kernel
/// doubles. It counts as nobody's memory.
const RECEIVE_BUFFER: usize = 128 * 1024;

/// After a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Accepts an instance's connections, those that `is_own`, a few at a time; those it has end with it. When the instance
/// has ended, returns as soon as all of them, and those that wait to be accepted, were read.
pub(crate) async fn accept<F>(
    listener: TcpListener,
    api: &RuntimeApi,
    is_own: impl Fn(&TcpStream) -> bool,
    serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    // Inherited by the connections. Without it, more of the kernel's memory is used.
    let _ = setsockopt(&listener, sockopt::RcvBuf, &RECEIVE_BUFFER);
    let mut draining = api.draining.subscribe();
    let mut connections = JoinSet::new();
    loop {
        let ended = async { drop(draining.wait_for(|draining| *draining).await) };
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                // The instance pays for nobody else, who might exhaust its account.
                Ok((stream, _)) if !is_own(&stream) => {}
                // Beyond the limit: closed at once.
                Ok(_) if connections.len() >= MAX_CONNECTIONS + api.extensions.connections() => api.pace.spend(REQUEST).await,
                Ok((stream, _)) => {
                    connections.spawn(serve(stream));
                    api.pace.spend(REQUEST).await;
                }
                // The client gave up, or the worker has no descriptor left: others may come later.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            () = ended => break,
        }
    }
    while connections.join_next().await.is_some() {}
}
