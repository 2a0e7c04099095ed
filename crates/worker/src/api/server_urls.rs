//! URLs of functions that are HTTP servers: requests and answers pass as they are, piece by piece unless
//! they are small.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, Uri};
use hyper::body::{Body, Incoming};
use hyper::upgrade::OnUpgrade;
use serde_json::json;

use super::Api;
use super::Client;
use super::body::{self, Connected};
use super::error::{Answer, ApiError, json_answer};
use super::hints;
use super::invoke::{self, Call, Names};
use super::streams::{self, Beginning};
use super::urls::{check_signed, is_of_an_invocation, remove_credentials};
use super::versions::Target;
use crate::dispatch::{Completion, Disposition};
use crate::failure::Failure;
use crate::function::Function;
use crate::instance::{HttpHead, Outcome, Passage};
use crate::reception::FREE_BYTES;

/// Serves a request to the URL of a function that is an HTTP server.
pub(super) async fn serve(
    api: &Arc<Api>,
    function: Arc<Function>,
    mut head: Parts,
    body: Incoming,
) -> Result<Answer, ApiError> {
    let names = Names::of(&head.headers)?;
    if let Some(traces) = &api.traces {
        traces.begin(&names.request_id, &head.headers, "http");
    }
    let request_id = names.request_id.clone();
    let (passage, begun) = Passage::new();
    let upgrade = head.extensions.remove::<OnUpgrade>();
    let connected = head.extensions.get::<Connected>().cloned();
    let signed = function.url.as_ref().is_some_and(|url| url.signed);
    let (payload, passage) = match (upgrade, connected) {
        (Some(upgrade), Some(connected)) if body.is_end_stream() && wants_websocket(&head) => {
            (Bytes::new(), passage.with_upgrade(upgrade, connected.0))
        }
        // A signature is one of the whole body.
        _ if signed || body.size_hint().exact().is_some_and(|it| it <= FREE_BYTES as u64) => {
            (body::of_client(body, head.uri.path()).await?, passage)
        }
        _ => (Bytes::new(), passage.with_body(body)),
    };
    if signed {
        check_signed(api, &head, &payload).await?;
    }
    // A browser that knows the platform's token sends it with all that it asks this address for.
    if signed || api.access.is_known_token(&head) {
        remove_credentials(&mut head);
    }
    let (hint, note) = hints::read(api, &head.headers, None);
    head.headers.remove(hints::NEXT_HEADER);
    let client = head.extensions.get::<Client>().copied().unwrap_or(Client::Owner);
    let passed = HttpHead {
        client: client.source_ip(),
        is_secure: client.is_secure(),
        method: head.method.clone(),
        target: target(&head.uri),
        headers: head.headers.clone(),
    };
    let target = Target { version: function.clone(), qualified_arn: None };
    let passed = Some(Arc::new(passed));
    let call = Call { target, names, payload, head: passed, client_context: None, hint };
    match streams::pass(api, call, passage, begun).await? {
        Beginning::Whole(answer) => {
            let mut response = whole(&answer, &head, &function);
            note.put(response.headers_mut()).await;
            Ok(response)
        }
        Beginning::Begun(stream) => {
            let mut response = stream.with_head(&head).pass();
            remove_what_is_not_the_servers(response.headers_mut());
            streams::name(response.headers_mut(), &request_id, &function);
            note.put(response.headers_mut()).await;
            Ok(response)
        }
    }
}

/// An answer that is there as a whole, or why there is none.
fn whole(answer: &Completion, head: &Parts, function: &Function) -> Answer {
    let mut response = match &answer.disposition {
        Disposition::Ran(Outcome::Answered(passed)) => {
            let mut response = Answer::new(passed.body.clone().unwrap_or_default().into());
            *response.status_mut() = passed.status;
            *response.headers_mut() = passed.headers.clone();
            remove_what_is_not_the_servers(response.headers_mut());
            response
        }
        disposition => {
            let request_id = answer.row().request_id.clone().unwrap_or_default();
            match invoke::payload(disposition, answer.row(), &request_id) {
                Ok((payload, _)) => {
                    let message = Failure::read(&payload).sentence();
                    let mut failed =
                        json_answer(status_of(disposition), &json!({"Message": message}));
                    if head.headers.contains_key(invoke::INVOCATION_HEADER) {
                        invoke::put_error(failed.headers_mut(), &payload);
                        invoke::put_output(failed.headers_mut(), &answer.log_tail);
                    }
                    failed
                }
                Err(error) => error.answer(),
            }
        }
    };
    // Whoever names its invocation measures. Others would read twice as many headers for nothing.
    if head.headers.contains_key(invoke::INVOCATION_HEADER) {
        invoke::describe(response.headers_mut(), answer.row(), function);
    } else {
        invoke::identify(response.headers_mut(), answer.row());
    }
    response
}

/// Removes headers that would be taken for what the platform measured.
fn remove_what_is_not_the_servers(headers: &mut HeaderMap) {
    let names: Vec<_> =
        headers.keys().filter(|name| is_of_an_invocation(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// The status of an answer that a server has not given.
fn status_of(disposition: &Disposition) -> StatusCode {
    match disposition {
        Disposition::Ran(Outcome::GivenUp) => StatusCode::GATEWAY_TIMEOUT,
        Disposition::NotReady(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    }
}

/// Whether a request asks for a websocket (RFC 6455, 4.1), and for nothing else.
fn wants_websocket(head: &Parts) -> bool {
    let mut protocols = head.headers.get_all(UPGRADE).iter();
    let (Some(protocol), None) = (protocols.next(), protocols.next()) else { return false };
    head.method == Method::GET
        && protocol.as_bytes().eq_ignore_ascii_case(b"websocket")
        && head.headers.contains_key("sec-websocket-key")
        && head
            .headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|option| option.trim().eq_ignore_ascii_case("upgrade"))
}

/// What a client asks a function's URL for, without the part that names the function.
fn target(uri: &Uri) -> Uri {
    let named = uri.path().strip_prefix("/url/").unwrap_or_default();
    let path = named.find('/').map_or("/", |slash| &named[slash..]);
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    // It is a part of one that has been read.
    format!("{path}{query}").parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_sees_the_path_behind_its_name() {
        for (asked, seen) in [
            ("/url/abc", "/"),
            ("/url/abc/", "/"),
            ("/url/abc/x/y%20z?q=%26&q", "/x/y%20z?q=%26&q"),
            ("/url/abc?q", "/?q"),
            ("/url/abc//x", "//x"),
        ] {
            let target = target(&asked.parse().unwrap());
            assert_eq!(target.path_and_query().unwrap().as_str(), seen, "{asked}");
        }
    }

    #[test]
    fn only_websockets_are_what_a_connection_may_become() {
        let asked = |pairs: &[(&str, &str)]| {
            let mut request = http::Request::get("/url/abc/");
            for (name, value) in pairs {
                request = request.header(*name, *value);
            }
            wants_websocket(&request.body(()).unwrap().into_parts().0)
        };
        let key = ("sec-websocket-key", "x");
        let upgrade = ("upgrade", "WebSocket");
        let connection = ("connection", "keep-alive, Upgrade");
        assert!(asked(&[key, upgrade, connection]));
        for other in [
            vec![upgrade, connection],
            vec![key, connection],
            vec![key, upgrade],
            vec![key, upgrade, ("upgrade", "h2c"), connection],
            vec![key, ("upgrade", "websocket, h2c"), connection],
            vec![key, ("upgrade", "h2c"), connection],
        ] {
            assert!(!asked(&other), "{other:?}");
        }
    }
}
