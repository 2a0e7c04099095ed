//! HTTP/1.1 (RFC 9112) as functions over bytes, without I/O: the heads of requests, and chunked bodies.
//!
//! The worker reads requests with it, the load generator responses; so that both can be fuzzed,
//! nothing here waits, allocates without bound, or panics.

pub mod chunked;
mod request;
mod shorten;

pub use request::{HeadError, Length, MAX_HEAD_BYTES, RequestHead, content_length, parse_request};
pub use shorten::Shortener;
