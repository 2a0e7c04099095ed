//! The trace that a caller's request is a part of: W3C Trace Context, headers `traceparent` and
//! `tracestate`.

use http::{HeaderMap, HeaderValue};

use crate::ids::random;

/// The longest `tracestate` that is passed on; a longer one may be dropped (W3C, 3.3.1.5).
const MAX_STATE_BYTES: usize = 512;

/// Where in which trace a span belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Context {
    pub trace: [u8; 16],
    /// The caller's span; None: the trace begins here.
    pub parent: Option<[u8; 8]>,
    pub state: Option<String>,
    /// Whether the caller records the trace.
    pub is_sampled: bool,
}

impl Context {
    /// A trace that begins here.
    pub(super) fn new() -> Self {
        Self { trace: random(), parent: None, state: None, is_sampled: true }
    }

    /// That of a request; a new one if its headers have none, or none that is valid.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut parents = headers.get_all("traceparent").iter();
        let parent = match (parents.next(), parents.next()) {
            (Some(parent), None) => parent.to_str().ok().and_then(parse),
            _ => None,
        };
        let Some((trace, parent, is_sampled)) = parent else { return Self::new() };
        let states = headers.get_all("tracestate").iter().map(HeaderValue::to_str);
        let state = states.collect::<Result<Vec<_>, _>>().ok().map(|all| all.join(","));
        let state = state.filter(|it| !it.is_empty() && it.len() <= MAX_STATE_BYTES);
        Self { trace, parent: Some(parent), state, is_sampled }
    }
}

/// Reads `00-<trace>-<parent>-<flags>`; what a later version has behind it is left out (W3C, 3.2.4).
fn parse(text: &str) -> Option<([u8; 16], [u8; 8], bool)> {
    let is_hex =
        |part: &str| part.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it));
    let mut parts = text.split('-');
    let (version, trace, parent, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_of_this_version = version == "00" && parts.next().is_none();
    let is_later = version.len() == 2 && version != "00" && version != "ff";
    let sizes = [trace.len(), parent.len(), flags.len()];
    if !(is_of_this_version || is_later) || sizes != [32, 16, 2] {
        return None;
    }
    if ![version, trace, parent, flags].into_iter().all(is_hex) {
        return None;
    }
    let (mut trace_id, mut parent_id) = ([0; 16], [0; 8]);
    hex::decode_to_slice(trace, &mut trace_id).ok()?;
    hex::decode_to_slice(parent, &mut parent_id).ok()?;
    let flags = u8::from_str_radix(flags, 16).ok()?;
    let is_valid = trace_id != [0; 16] && parent_id != [0; 8];
    is_valid.then_some((trace_id, parent_id, flags & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_callers_trace_is_taken_over() {
        let context = Context::of(&headers(&[("traceparent", PARENT), ("tracestate", "a=1,b=2")]));
        assert_eq!(hex::encode(context.trace), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.parent.map(hex::encode).as_deref(), Some("00f067aa0ba902b7"));
        assert_eq!((context.state.as_deref(), context.is_sampled), (Some("a=1,b=2"), true));
        let unsampled = PARENT.replace("-01", "-02");
        assert!(!Context::of(&headers(&[("traceparent", &unsampled)])).is_sampled);
        let later = format!("{}-more", PARENT.replacen("00", "cc", 1));
        assert_eq!(Context::of(&headers(&[("traceparent", &later)])).trace, context.trace);
    }

    #[test]
    fn what_is_not_valid_begins_a_trace() {
        let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let no_parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        let (upper, long) = (PARENT.to_uppercase(), format!("{PARENT}-x"));
        let version = PARENT.replacen("00", "ff", 1);
        for odd in ["", "00", zeros, no_parent, &upper, &long, &version, "00-é-b-c"] {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", HeaderValue::from_bytes(odd.as_bytes()).unwrap());
            assert_eq!(Context::of(&headers).parent, None, "{odd}");
        }
        let twice = headers(&[("traceparent", PARENT), ("traceparent", PARENT)]);
        assert_eq!(Context::of(&twice).parent, None);
        assert_ne!(Context::new().trace, Context::new().trace);
    }
}
