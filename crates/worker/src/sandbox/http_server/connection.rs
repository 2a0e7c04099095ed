//! Connections to an instance's server. They are used again for a while, as any reverse proxy does.

use std::io;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::Server;
use crate::passage::OutgoingBody;
use crate::sandbox::live::Inner;

/// A connection that waited longer is closed: servers close theirs after two seconds (gunicorn) to five
/// (Node.js, uvicorn), and a request that crosses such an end on its way is lost.
const MAX_IDLE: Duration = Duration::from_secs(1);

/// The longest head of an answer.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// A connection that waits for a request.
pub(super) struct Idle {
    connection: Connection,
    since: Instant,
}

/// A connection on which a request may be sent. It is closed when this is dropped.
pub(super) struct Connection {
    pub sender: SendRequest<OutgoingBody>,
    /// Whether it has carried a request before.
    pub is_used: bool,
    _task: Task,
}

/// The task that reads and writes for a connection, as long as this lives.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Server {
    /// A connection that waits, or a new one.
    pub(super) async fn connection(&self, inner: &Inner) -> io::Result<Connection> {
        loop {
            // The lock is given back before anything is waited for.
            let Some(mut idle) = self.idle().pop() else { break };
            if idle.since.elapsed() <= MAX_IDLE && idle.connection.sender.ready().await.is_ok() {
                return Ok(idle.connection);
            }
        }
        self.new_connection(inner).await
    }

    /// A connection that no other request was sent on.
    pub(super) async fn new_connection(&self, inner: &Inner) -> io::Result<Connection> {
        let stream = self.connect(inner).await?;
        let (sender, connection) = Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        // What goes wrong, the request in it learns.
        let task = tokio::spawn(async move { drop(connection.with_upgrades().await) });
        Ok(Connection { sender, is_used: false, _task: Task(task.abort_handle()) })
    }

    /// Keeps a connection for the next request.
    pub(super) fn keep(&self, connection: Connection) {
        let mut idle = self.idle();
        idle.retain(|it| !it.connection.sender.is_closed() && it.since.elapsed() <= MAX_IDLE);
        if !connection.sender.is_closed() {
            let connection = Connection { is_used: true, ..connection };
            idle.push(Idle { connection, since: Instant::now() });
        }
    }

    /// Closes the connections that wait: the server's clock goes on while it is frozen, and it would
    /// close them at its first moment.
    pub(in crate::sandbox) fn close_idle(&self) {
        self.idle().clear();
    }

    /// Connects to the server, inside the instance's network.
    pub(super) async fn connect(&self, inner: &Inner) -> io::Result<TcpStream> {
        inner.connector.connect(inner, self.port).await
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
