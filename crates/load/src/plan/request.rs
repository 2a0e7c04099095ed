//! What requests say: rendered once, so that sending one is a copy.

use std::io::Write;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue, Method};

use super::endpoint::Address;
use crate::config::{Body, Stream};
use crate::error::LoadError;

/// Headers that the generator sets itself, because they say how the message is delimited.
const RESERVED: [&str; 4] = ["content-length", "transfer-encoding", "connection", "upgrade"];
const USER_AGENT: &str = concat!("uncia/", env!("CARGO_PKG_VERSION"));

/// A request but for its invocation id, which is the last header.
#[derive(Debug)]
pub struct RequestTemplate {
    /// Request line and headers; ends with `name: ` when the id is sent, else before the empty line.
    head: Vec<u8>,
    sends_invocation: bool,
    pub body: Arc<[u8]>,
    /// A HEAD request's answer has no body whatever its headers say.
    pub is_head: bool,
}

/// A buffer in which requests are put together.
pub type Scratch = Vec<u8>;

impl RequestTemplate {
    /// Puts the head of the request of stream `stream`, number `number` into `scratch`.
    pub fn write_head(&self, scratch: &mut Scratch, prefix: &str, stream: usize, number: u64) {
        scratch.clear();
        scratch.extend_from_slice(&self.head);
        if self.sends_invocation {
            // Writing to memory does not fail.
            let _ = write!(scratch, "{prefix}-{stream}-{number}\r\n");
        }
        scratch.extend_from_slice(b"\r\n");
    }
}

/// What all targets of a stream share.
pub struct Parts {
    method: Method,
    headers: Vec<u8>,
    has_host: bool,
    invocation_header: Option<String>,
    body: Arc<[u8]>,
}

impl Parts {
    pub fn of(stream: &Stream) -> Result<Self, LoadError> {
        let body = match &stream.body {
            None => Vec::new(),
            Some(Body::Text(text)) => text.clone().into_bytes(),
            Some(Body::Base64(text)) => STANDARD
                .decode(text)
                .map_err(|source| LoadError::Base64 { stream: stream.function.clone(), source })?,
        };
        let method = method(stream)?;
        let mut headers = Vec::new();
        let mut names = Vec::new();
        for (name, value) in &stream.headers {
            let checked = header_name(stream, name)?;
            let value = HeaderValue::from_str(value).map_err(|_| {
                header_error(stream, name, "its value has characters that may not be in one")
            })?;
            headers.extend_from_slice(checked.as_str().as_bytes());
            headers.extend_from_slice(b": ");
            headers.extend_from_slice(value.as_bytes());
            headers.extend_from_slice(b"\r\n");
            names.push(checked);
        }
        if !names.iter().any(|name| name == "user-agent") {
            headers.extend_from_slice(format!("user-agent: {USER_AGENT}\r\n").as_bytes());
        }
        // RFC 9110, 8.6: a length also where a method usually comes with a body and has none.
        if !body.is_empty() || matches!(method, Method::POST | Method::PUT | Method::PATCH) {
            headers.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        let invocation_header = match &stream.invocation_header {
            None => None,
            Some(name) => {
                let checked = header_name(stream, name)?;
                if names.contains(&checked) || checked == "host" {
                    return Err(header_error(stream, name, "it is to carry the invocation id"));
                }
                Some(checked.as_str().to_owned())
            }
        };
        let has_host = names.iter().any(|name| name == "host");
        Ok(Self { method, headers, has_host, invocation_header, body: body.into() })
    }

    pub fn render(&self, address: &Address) -> RequestTemplate {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, address.path).into_bytes();
        if !self.has_host {
            head.extend_from_slice(format!("host: {}\r\n", address.authority).as_bytes());
        }
        head.extend_from_slice(&self.headers);
        if let Some(name) = &self.invocation_header {
            head.extend_from_slice(format!("{name}: ").as_bytes());
        }
        RequestTemplate {
            head,
            sends_invocation: self.invocation_header.is_some(),
            body: self.body.clone(),
            is_head: self.method == Method::HEAD,
        }
    }
}

fn method(stream: &Stream) -> Result<Method, LoadError> {
    let Some(name) = &stream.method else {
        return Ok(if stream.body.is_some() { Method::POST } else { Method::GET });
    };
    match Method::from_bytes(name.as_bytes()) {
        // A tunnel is no request to a function.
        Ok(method) if method != Method::CONNECT => Ok(method),
        _ => Err(LoadError::Method { stream: stream.function.clone(), method: name.clone() }),
    }
}

fn header_name(stream: &Stream, name: &str) -> Result<HeaderName, LoadError> {
    let checked = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| header_error(stream, name, "it is not a header's name"))?;
    if RESERVED.contains(&checked.as_str()) {
        return Err(header_error(stream, name, "the generator sets it"));
    }
    Ok(checked)
}

fn header_error(stream: &Stream, name: &str, reason: &'static str) -> LoadError {
    LoadError::Header { stream: stream.function.clone(), name: name.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(stream: serde_json::Value, url: &str) -> String {
        let mut json = serde_json::json!({"function": "f", "targets": [],
            "arrivals": {"kind": "burst", "sizes": [1], "interval_ns": 0, "bursts": 1}});
        json.as_object_mut().unwrap().extend(stream.as_object().unwrap().clone());
        let stream: Stream = serde_json::from_value(json).unwrap();
        let template = Parts::of(&stream).unwrap().render(&Address::parse("f", url).unwrap());
        let mut scratch = Scratch::new();
        template.write_head(&mut scratch, "demo", 3, 14);
        String::from_utf8([scratch.as_slice(), &template.body].concat()).unwrap()
    }

    #[test]
    fn a_request_is_as_the_standard_says() {
        let request = rendered(
            serde_json::json!({"headers": {"Content-Type": "application/json"},
                "body": {"text": "{}"}, "invocation_header": "x-uncia-invocation"}),
            "http://localhost:8000/f?x=1",
        );
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            "POST /f?x=1 HTTP/1.1\r\nhost: localhost:8000\r\ncontent-type: application/json\r\n\
             user-agent: uncia/{version}\r\ncontent-length: 2\r\n\
             x-uncia-invocation: demo-3-14\r\n\r\n{{}}"
        );
        assert_eq!(request, expected);
    }

    #[test]
    fn without_a_body_it_is_a_get_without_a_length() {
        let request =
            rendered(serde_json::json!({"headers": {"host": "h", "user-agent": "me"}}), "http://a");
        assert_eq!(request, "GET / HTTP/1.1\r\nhost: h\r\nuser-agent: me\r\n\r\n");
        let request = rendered(serde_json::json!({"method": "POST"}), "http://a");
        assert!(request.contains("content-length: 0\r\n"), "{request}");
        let request = rendered(serde_json::json!({"body": {"base64": "aGk="}}), "http://a");
        assert!(request.ends_with("content-length: 2\r\n\r\nhi"), "{request}");
    }
}
