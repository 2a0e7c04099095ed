//! HTTP/1.1 responses (RFC 9112), read without I/O: bytes in, facts out.

mod head;
mod response;

use uncia_http1::chunked::ChunkError;

pub(crate) use response::{ResponseReader, header};

/// Why bytes are not a response, or not all of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResponseError {
    #[error("the answer is not HTTP/1: {0}")]
    NotHttp(httparse::Error),
    #[error("the head of the answer is longer than {limit} bytes")]
    HeadTooLong { limit: usize },
    #[error("the answer has an invalid Content-Length")]
    ContentLength,
    #[error("the answer's body cannot be read: {0}")]
    Chunks(#[from] ChunkError),
    #[error("the server switched protocols")]
    SwitchedProtocols,
    #[error("the server closed the connection before it answered")]
    NoAnswer,
    #[error("the server closed the connection within the head of its answer")]
    EndedInHead,
    #[error("the server closed the connection after {received} of {expected} bytes of its answer")]
    EndedInBody { received: u64, expected: u64 },
    #[error("the server closed the connection within a chunked answer, after {received} bytes")]
    EndedInChunks { received: u64 },
}
