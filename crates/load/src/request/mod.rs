//! What requests say: made ready once, so that sending one is little more than a copy.

mod answers;
mod body;
mod encode;
mod fields;
mod headers;
mod http2;
mod plan;
mod sigv4;
mod target;
mod template;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

pub(crate) use answers::{Ancestor, Reference};
use body::Content;
use encode::{NUMBER_BYTES, push_number};
use fields::{Drawable, Drawn};
pub(crate) use fields::{draw_integer, random};
use http2::Http2Head;
pub(crate) use plan::{Place, plan};
use sigv4::{Signer, Unsigned};
use template::{Pieces, Source, Values};

/// Bodies up to this size go out in one write with the head.
const JOINED_BODY_BYTES: usize = 16 << 10;

/// Which request it is, and when it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'a> {
    /// What the run's invocation ids begin with.
    pub prefix: &'a str,
    /// Index of the stream.
    pub stream: usize,
    /// Number within the stream.
    pub number: u64,
    /// The time of a signature. Whoever renders a request again, to go on with it where a write
    /// ended, must give the same.
    pub unix_ns: i64,
    /// What the stream's references stand for.
    pub answers: &'a [Vec<u8>],
}

/// The id of a request: the same in every run of the same configuration.
pub(crate) struct Invocation<'a>(pub &'a Moment<'a>);

impl Invocation<'_> {
    /// The longest prefix of a plan's, and two numbers.
    const MAX_LENGTH: usize = 96 + 2 * (1 + NUMBER_BYTES);

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.prefix.as_bytes());
        out.push(b'-');
        push_number(out, self.0.stream as u64);
        out.push(b'-');
        push_number(out, self.0.number);
    }
}

/// The requests of one target of one stream.
pub(crate) struct RequestTemplate {
    method: http::Method,
    /// All of the stream's.
    fields: Arc<[Drawable]>,
    /// Indices of those that this target's requests have.
    used: Vec<usize>,
    /// Path and query.
    target: Pieces,
    body: Content,
    signer: Option<Signer>,
    http1: Http1Head,
    http2: Http2Head,
}

/// A request of HTTP/1.1. The length of a body that is a template comes between the two parts, and
/// so do the headers of a signature.
struct Http1Head {
    start: Pieces,
    /// Ends with the empty line and a small constant body.
    end: Pieces,
}

/// The part of a body that is not in one piece with the head.
#[derive(Default)]
enum Apart {
    #[default]
    Nothing,
    Shared(Bytes),
    Own,
}

/// A request of HTTP/1.1 as bytes: the head, with a small body, and a large body. Used again for the
/// next, its buffers are not allocated anew.
#[derive(Default)]
pub(crate) struct Rendered {
    head: Vec<u8>,
    apart: Apart,
    body: Vec<u8>,
    body_bytes: usize,
    drawn: Drawn,
}

impl Rendered {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The head, and the body if it is small.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// The body if it is large; else nothing.
    pub(crate) fn body(&self) -> &[u8] {
        match &self.apart {
            Apart::Nothing => &[],
            Apart::Shared(bytes) => bytes,
            Apart::Own => &self.body,
        }
    }

    /// The body if it is large, to be kept.
    pub(crate) fn shared_body(&self) -> Bytes {
        match &self.apart {
            Apart::Nothing => Bytes::new(),
            Apart::Shared(bytes) => bytes.clone(),
            Apart::Own => Bytes::copy_from_slice(&self.body),
        }
    }

    /// Bytes of the request's body, wherever it is.
    pub(crate) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// What is to be written after so many bytes have been; nothing at the end.
    pub(crate) fn rest(&self, written: usize) -> &[u8] {
        match written.checked_sub(self.head.len()) {
            None | Some(0) if written < self.head.len() => &self.head[written..],
            after => self.body().get(after.unwrap_or_default()..).unwrap_or_default(),
        }
    }
}

impl RequestTemplate {
    /// Whether it is HEAD, whose answers have no body whatever their headers say.
    pub(crate) fn is_head(&self) -> bool {
        self.method == http::Method::HEAD
    }

    /// That the target is not too long with the answers in it; the error says by how much. All
    /// else that a target can have was checked in the plan.
    pub(crate) fn check_target(&self, moment: &Moment) -> Result<(), String> {
        if !self.target.sources().any(|source| matches!(source, Source::Answer(_))) {
            return Ok(());
        }
        let mut drawn = Drawn::default();
        drawn.fill(&self.fields, &self.used, moment.number);
        let bytes = self.target.render(Values { moment, drawn: &drawn }).len();
        if bytes > target::MAX_BYTES {
            return Err(format!(
                "the path and query have {bytes} bytes with the answers in them, more than {}: \
                 send them in the body",
                target::MAX_BYTES
            ));
        }
        Ok(())
    }

    /// Makes a request of HTTP/1.1.
    pub(crate) fn render_http1(&self, rendered: &mut Rendered, moment: &Moment) {
        let Rendered { head, apart, body, body_bytes, drawn } = rendered;
        head.clear();
        *apart = Apart::Nothing;
        drawn.fill(&self.fields, &self.used, moment.number);
        let values = Values { moment, drawn };
        self.http1.start.write(head, values);
        let content: &[u8] = match &self.body {
            Content::Constant(bytes) => bytes,
            Content::Template(pieces) => {
                body.clear();
                pieces.write(body, values);
                head.extend_from_slice(b"content-length: ");
                push_number(head, body.len() as u64);
                head.extend_from_slice(b"\r\n");
                body
            }
        };
        *body_bytes = content.len();
        if let Some(signer) = &self.signer {
            let unsigned =
                || Unsigned { target: self.target.render(values), body: content, values };
            signer.stamp(moment.unix_ns, unsigned, |stamp| {
                for (name, value) in stamp.headers() {
                    push_header(head, name, value);
                }
            });
        }
        self.http1.end.write(head, values);
        match &self.body {
            // Small ones are in the head.
            Content::Constant(bytes) if bytes.len() > JOINED_BODY_BYTES => {
                *apart = Apart::Shared(bytes.clone());
            }
            Content::Constant(_) => {}
            Content::Template(_) if body.len() > JOINED_BODY_BYTES => *apart = Apart::Own,
            Content::Template(_) => head.extend_from_slice(body),
        }
    }

    /// Makes a request of HTTP/2, and its body.
    pub(crate) fn render_http2(&self, moment: &Moment) -> (http::Request<()>, Bytes) {
        let mut drawn = Drawn::default();
        drawn.fill(&self.fields, &self.used, moment.number);
        let values = Values { moment, drawn: &drawn };
        let body = match &self.body {
            Content::Constant(bytes) => bytes.clone(),
            Content::Template(pieces) => pieces.render(values).into(),
        };
        let mut request = self.http2.render(values);
        if matches!(self.body, Content::Template(_)) {
            http2::set_length(&mut request, body.len());
        }
        if let Some(signer) = &self.signer {
            let unsigned = || Unsigned { target: self.target.render(values), body: &body, values };
            signer.stamp(moment.unix_ns, unsigned, |stamp| http2::stamp(&mut request, stamp));
        }
        (request, body)
    }
}

/// Appends a header of HTTP/1.1.
fn push_header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Headers may be secrets, so they are left out.
impl fmt::Debug for RequestTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestTemplate").field("method", &self.method).finish_non_exhaustive()
    }
}
