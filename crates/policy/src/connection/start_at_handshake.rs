//! Cloudflare's rule: an instance is started while the client still agrees on TLS, so that its first
//! request finds it ready, or nearly so.
//!
//! `starts = max((connecting + in_flight) / concurrency - instances, 0)`, the quotient rounded up, where
//! `connecting` are the connections that have asked for nothing yet: each is expected to bring one request.
//!
//! *Eliminating cold starts with Cloudflare Workers*, blog.cloudflare.com/eliminating-cold-starts-with-cloudflare-workers
//! (2020): the name of the host stands in the first message of the handshake (SNI, RFC 6066, 3), a round trip
//! or more before the request.

use super::Connection;
use crate::{FunctionView, Random, View};

/// Starts what the first requests of connections will need.
#[derive(Debug, Clone, Copy, Default)]
pub struct StartAtHandshake;

/// Makes the policy.
pub fn policy() -> Box<dyn Connection> {
    Box::new(StartAtHandshake)
}

impl Connection for StartAtHandshake {
    fn starts(&mut self, _: View<'_>, _: &mut Random, function: &FunctionView<'_>) -> u32 {
        let requests = u64::from(function.connecting()) + u64::from(function.in_flight());
        let needed = requests.div_ceil(function.settings().concurrency.max(1).into());
        u32::try_from(needed).unwrap_or(u32::MAX).saturating_sub(function.instances())
    }
}
