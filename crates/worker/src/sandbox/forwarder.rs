//! Services for the functions of an instance: bytes passed on between endpoints inside and the services' addresses.
//!
//! An instance has no way out of its network. What it sends to the endpoint of a service that its function
//! reaches, the worker sends to that service and to nothing else, on a thread apart from that of requests.

use std::io;
use std::net::TcpListener as StdListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::pace::{Pace, READ, REQUEST};
use super::traffic::{Count, Passed};
use crate::instance::Services;

/// Connections of one instance to one service at a time: AWS's clients keep fifty.
const MAX_CONNECTIONS: usize = 64;
/// The kernel's buffer for what an instance has sent and the service has not taken, which the kernel doubles.
const RECEIVE_BUFFER: usize = 256 * 1024;
/// Most that is read at once.
const PIECE: usize = 256 * 1024;
/// Smaller reads are charged in full: each costs the worker a wake-up, however little it brings.
const LARGE_READ: usize = 32 * 1024;
/// A large read's price.
const LARGE_READ_PRICE: Duration = Duration::from_micros(60);
/// For the service to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// After a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Passes bytes on between instances and services.
pub(super) struct Forwarder {
    services: Services,
    /// None if there are no services; taken when it ends.
    runtime: Option<Runtime>,
}

impl Forwarder {
    pub(super) fn new(services: Services) -> io::Result<Self> {
        let is_needed = services.indices().next().is_some();
        let runtime = is_needed.then(|| {
            let mut threads = Builder::new_multi_thread();
            threads.worker_threads(1).max_blocking_threads(1).thread_name("uncia-services");
            threads.enable_all().build()
        });
        Ok(Self { services, runtime: runtime.transpose()? })
    }

    /// The services and where they are.
    pub(super) fn located(&self) -> &Services {
        &self.services
    }

    /// Makes a task that serves an instance's endpoint of the service with this index; it ends with the task.
    /// What passes is counted in `passed`.
    pub(super) fn forward(
        &self,
        index: usize,
        listener: OwnedFd,
        instance: String,
        passed: Arc<Passed>,
    ) -> io::Result<impl Future<Output = ()> + Send + 'static> {
        let unknown = || io::Error::other("there is no such service");
        let address = self.services.get(index).ok_or_else(unknown)?.address.clone();
        let handle = self.runtime.as_ref().ok_or_else(unknown)?.handle().clone();
        let listener = StdListener::from(listener);
        listener.set_nonblocking(true)?;
        setsockopt(&listener, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        // The sockets are looked after by the thread that passes on their bytes.
        let listener = {
            let _context = handle.enter();
            TcpListener::from_std(listener)?
        };
        Ok(async move {
            // Aborts what it runs when it is dropped.
            let mut serving = JoinSet::new();
            serving.spawn_on(accept(listener, address, instance, passed), &handle);
            if let Some(Err(error)) = serving.join_next().await
                && let Ok(panic) = error.try_into_panic()
            {
                std::panic::resume_unwind(panic);
            }
        })
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, address: String, instance: String, passed: Arc<Passed>) {
    let pace = Pace::new();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                // Beyond the limit: closed at once.
                Ok(_) if connections.len() >= MAX_CONNECTIONS => pace.spend(REQUEST).await,
                Ok((inside, _)) => {
                    let (address, instance) = (address.clone(), instance.clone());
                    let connection = connect(inside, address, pace.clone(), instance, passed.clone());
                    connections.spawn(connection);
                    pace.spend(REQUEST).await;
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

/// Passes a connection on to the service, until both sides have closed it or one has reset it.
async fn connect(
    inside: TcpStream,
    address: String,
    pace: Arc<Pace>,
    instance: String,
    passed: Arc<Passed>,
) {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&address)).await;
    let outside = match connected {
        Ok(Ok(outside)) => outside,
        Ok(Err(error)) => {
            tracing::warn!(instance, "the service at {address} cannot be reached: {error}");
            return;
        }
        Err(_) => {
            tracing::warn!(instance, "the service at {address} does not accept connections");
            return;
        }
    };
    // Without it, small messages may be late by 40 ms.
    let _ = inside.set_nodelay(true);
    let _ = outside.set_nodelay(true);
    let (from_inside, to_inside) = inside.into_split();
    let (from_outside, to_outside) = outside.into_split();
    // If one direction fails, the other is closed with it: its side would wait for nothing.
    let _ = tokio::try_join!(
        copy(from_inside, to_outside, &pace, &passed.sent),
        copy(from_outside, to_inside, &pace, &passed.received),
    );
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    pace: &Pace,
    passed: &Count,
) -> io::Result<()> {
    // Only as long as there is something to pass on: idle connections hold no buffer.
    loop {
        from.readable().await?;
        let mut piece = Vec::with_capacity(PIECE);
        let count = from.read_buf(&mut piece).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        // Before it waits or writes: the instance may have answered before this goes on.
        passed.add(count);
        pace.spend(if count < LARGE_READ { READ } else { LARGE_READ_PRICE }).await;
        to.write_all(&piece).await?;
    }
}
