//! HTTP/2 (RFC 9113) as a client, without I/O: bytes in, events out, and bytes to be written.
//!
//! * [`Session`]: one connection and the requests on it. `h2` knows the protocol; it is polled by
//!   hand, so that no runtime and no other thread stands between the loop and its sockets.
//! * `pipe`: what `h2` takes for the socket. `wake`: how it says which request has news.
//! * `opening`: whether the peer speaks HTTP/2 at all.
//! * `exchange`: a request and as much of its answer as has come.

mod error;
mod exchange;
mod opening;
mod pipe;
mod session;
#[cfg(test)]
mod tests;
mod wake;

use crate::answer::Whole;
pub(crate) use error::SessionError;
pub(crate) use session::{Limits, Session};

/// What became of a request, named by the key that it was sent with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionEvent {
    /// The head of the answer has come.
    Head { key: u32 },
    /// The answer is complete.
    Done { key: u32, answer: Answer },
    /// There will be no complete answer. `wrote`: the server may have acted on the request;
    /// otherwise it certainly has not. `answer`: what has come of one, if its head has.
    Failed { key: u32, error: SessionError, wrote: bool, answer: Option<Answer> },
}

/// The facts of an answer that rows need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub status: u16,
    /// Bytes of the body, whether kept or not.
    pub body_bytes: u64,
    /// The head in the form of HTTP/1.1, which `http1::header` reads, if a header begins with `x-`.
    /// Otherwise empty.
    pub head: Vec<u8>,
    /// What was kept of the body: JSON, of a long one the members that matter, or the beginning of
    /// an error's text.
    pub body: Vec<u8>,
    /// All of the body, if [`Session::keep_whole`] asked for it.
    pub whole: Option<Whole>,
}
