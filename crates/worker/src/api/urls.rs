//! Function URLs: a function as plain HTTP, by payload format 2.0.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};
use uncia_sigv4::without_signature;

use super::admission::LAMBDA;
use super::error::{Answer, ApiError, empty_answer, json_answer};
use super::forms::{self, UrlForm};
use super::functions::{change, find};
use super::invoke::{self, Call, MAX_PAYLOAD_BYTES, Names};
use super::route::decode;
use super::streams::{self, Beginning, PRELUDE_END};
use super::versions::Target;
use super::{Api, Client, guard, hints};
use crate::clock;
use crate::dispatch::Completion;
use crate::function::{Function, InvokeMode, UrlConfig};
use crate::ids;
use crate::instance::Architecture;
use crate::runtime::in_proportion;

/// Statuses that a function may answer with: those that end a request.
const STATUSES: std::ops::RangeInclusive<u16> = 200..=599;
/// Most headers, and most cookies, of a function's answer. Clients take some hundred.
const MAX_HEADERS: usize = 1_000;

pub(super) fn create(api: &Arc<Api>, reference: &str, body: &[u8]) -> Result<Answer, ApiError> {
    let form: UrlForm = forms::read(body, &["Cors"])?;
    let (signed, invoke_mode) = check(api, &form, true)?;
    let (signed, invoke_mode) = (signed.unwrap_or_default(), invoke_mode.unwrap_or_default());
    let function = change(api, reference, None, |function| {
        if function.url.is_some() {
            return Err(ApiError::conflict(format!(
                "Failed to create function url config for [functionArn = {}]: it exists already",
                function.arn
            )));
        }
        let now = clock::unix_ns() / 1_000_000;
        function.url = Some(UrlConfig {
            id: ids::url(),
            created_unix_ms: now,
            modified_unix_ms: now,
            signed,
            invoke_mode,
        });
        Ok(())
    })?;
    Ok(json_answer(StatusCode::CREATED, &describe(api, &function)?))
}

pub(super) fn update(api: &Arc<Api>, reference: &str, body: &[u8]) -> Result<Answer, ApiError> {
    let form: UrlForm = forms::read(body, &["Cors"])?;
    let (signed, invoke_mode) = check(api, &form, false)?;
    let function = change(api, reference, None, |function| {
        let Some(url) = &mut function.url else { return Err(no_url()) };
        url.signed = signed.unwrap_or(url.signed);
        url.modified_unix_ms = clock::unix_ns() / 1_000_000;
        url.invoke_mode = invoke_mode.unwrap_or(url.invoke_mode);
        Ok(())
    })?;
    Ok(json_answer(StatusCode::OK, &describe(api, &function)?))
}

pub(super) fn get(api: &Api, reference: &str) -> Result<Answer, ApiError> {
    Ok(json_answer(StatusCode::OK, &describe(api, &*find(api, reference)?)?))
}

pub(super) fn list(api: &Api, reference: &str) -> Result<Answer, ApiError> {
    let function = find(api, reference)?;
    let urls: Vec<Value> = describe(api, &function).into_iter().collect();
    Ok(json_answer(StatusCode::OK, &json!({"FunctionUrlConfigs": urls})))
}

pub(super) fn delete(api: &Arc<Api>, reference: &str) -> Result<Answer, ApiError> {
    change(api, reference, None, |function| match function.url.take() {
        Some(_) => Ok(()),
        None => Err(no_url()),
    })?;
    Ok(empty_answer(StatusCode::NO_CONTENT))
}

/// Checks what a URL is to be; returns whether its requests must be signed, and its mode, as far as the
/// form says.
fn check(
    api: &Api,
    form: &UrlForm,
    required: bool,
) -> Result<(Option<bool>, Option<InvokeMode>), ApiError> {
    let named = form.InvokeMode.as_deref();
    let mode = named.and_then(InvokeMode::named);
    if named.is_some() && mode.is_none() {
        return Err(ApiError::invalid("InvokeMode must be BUFFERED or RESPONSE_STREAM"));
    }
    match form.AuthType.as_deref() {
        Some("NONE") => Ok((Some(false), mode)),
        Some("AWS_IAM") if api.access.is_empty() => Err(ApiError::invalid(
            "URLs of AuthType AWS_IAM need credentials: start the platform with AWS_ACCESS_KEY_ID set, and \
             AWS_SECRET_ACCESS_KEY, or with --credentials FILE",
        )),
        Some("AWS_IAM") => Ok((Some(true), mode)),
        None if !required => Ok((None, mode)),
        other => {
            let given = other.unwrap_or("nothing");
            Err(ApiError::invalid(format!("AuthType must be NONE or AWS_IAM, not {given}")))
        }
    }
}

/// Checks that whoever has the platform's credentials sent a request.
pub(super) async fn check_signed(api: &Api, head: &Parts, body: &Bytes) -> Result<(), ApiError> {
    let checked = api.access.check(head, body, LAMBDA).await;
    checked.map_err(|refusal| ApiError::unsigned(refusal.kind, refusal.message))
}

/// Removes what only the platform is to know: a function may print all that it gets, and what signs an address is
/// good for others, too, as long as it is.
pub(super) fn remove_credentials(head: &mut Parts) {
    let in_header = head.headers.remove(http::header::AUTHORIZATION).is_some();
    head.headers.remove("x-amz-security-token");
    let query = head.uri.query().filter(|_| !in_header).and_then(without_signature);
    let Some(query) = query else { return };
    let path = head.uri.path();
    let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    // Parts of what was valid are.
    if let Ok(uri) = target.parse() {
        head.uri = uri;
    }
}

fn no_url() -> ApiError {
    ApiError::not_found("The function has no URL")
}

fn describe(api: &Api, function: &Function) -> Result<Value, ApiError> {
    let url = function.url.as_ref().ok_or_else(no_url)?;
    Ok(json!({
        "FunctionUrl": format!("{}/url/{}/", api.base_url, url.id),
        "FunctionArn": function.arn,
        "AuthType": if url.signed { "AWS_IAM" } else { "NONE" },
        "InvokeMode": url.invoke_mode.name(),
        "CreationTime": clock::iso_8601(url.created_unix_ms),
        "LastModifiedTime": clock::iso_8601(url.modified_unix_ms),
    }))
}

/// The function behind a path, if that is the URL of one that is an HTTP server.
pub(super) fn server(api: &Api, path: &str) -> Option<Arc<Function>> {
    api.registry
        .by_url(guard::url_id(path)?)
        .filter(|function| function.architecture(&api.config) != Architecture::Polling)
}

/// Serves a request to the URL of a function that polls.
pub(super) async fn serve(
    api: &Arc<Api>,
    id: &str,
    head: &Parts,
    body: Bytes,
) -> Result<Answer, ApiError> {
    let function = api.registry.by_url(id).ok_or_else(no_url)?;
    let is_signed = function.url.as_ref().is_some_and(|url| url.signed);
    if is_signed {
        check_signed(api, head, &body).await?;
    }
    let mode = function.url.as_ref().map(|url| url.invoke_mode).unwrap_or_default();
    let (names, bytes) = (Names::of(&head.headers)?, body.len());
    if let Some(traces) = &api.traces {
        traces.begin(&names.request_id, &head.headers, "http");
    }
    let is_measured = head.headers.contains_key(invoke::INVOCATION_HEADER);
    let (id, mut parts, request_id) = (id.to_owned(), head.clone(), names.request_id.clone());
    let (hint, note) = hints::read(api, &head.headers, None);
    parts.headers.remove(hints::NEXT_HEADER);
    if is_signed || api.access.is_known_token(head) {
        remove_credentials(&mut parts);
    }
    let make = move || Bytes::from(event(&id, &parts, &body, &request_id).to_string());
    let payload = in_proportion(bytes, make).await;
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(ApiError::too_large(payload.len(), MAX_PAYLOAD_BYTES));
    }
    let request_id = names.request_id.clone();
    let target = Target { version: function.clone(), qualified_arn: None };
    let call = Call { target, names, payload, head: None, client_context: None, hint };
    let answer = match mode {
        InvokeMode::Buffered => invoke::run(api, call, None).await?,
        InvokeMode::ResponseStream => match streams::begin(api, call).await? {
            Beginning::Whole(answer) => answer,
            Beginning::Begun(stream) => {
                let stream = stream.with_head(head);
                let mut response = stream.integrate(failed()).await;
                streams::name(response.headers_mut(), &request_id, &function);
                note.put(response.headers_mut()).await;
                return Ok(response);
            }
        },
    };
    let mut response = match invoke::payload(&answer.disposition, answer.row(), &request_id) {
        Ok((payload, false)) if mode == InvokeMode::ResponseStream => {
            super::bytes_answer("application/json", payload)
        }
        Ok((payload, false)) => in_proportion(payload.len(), move || respond(&payload)).await,
        Ok((payload, true)) => failure(&payload, &answer, is_measured),
        Err(error) => error.answer(),
    };
    invoke::describe(response.headers_mut(), answer.row(), &function);
    note.put(response.headers_mut()).await;
    Ok(response)
}

/// What a client gets for an answer that a function has not given.
fn failed() -> Response<Bytes> {
    let body = Bytes::from_static(br#"{"Message":"Internal Server Error"}"#);
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

fn failure(payload: &[u8], answer: &Completion, is_measured: bool) -> Answer {
    let mut failed: Answer = failed().map(Into::into);
    if is_measured {
        invoke::put_error(failed.headers_mut(), payload);
        invoke::put_output(failed.headers_mut(), &answer.log_tail);
    }
    failed
}

/// The event that a request becomes.
fn event(id: &str, head: &Parts, body: &Bytes, request_id: &str) -> Value {
    let prefix = format!("/url/{id}");
    let path = head.uri.path().strip_prefix(&prefix).filter(|path| !path.is_empty()).unwrap_or("/");
    let query = head.uri.query().unwrap_or("");
    let mut headers: BTreeMap<&str, String> = BTreeMap::new();
    let mut cookies = Vec::new();
    for (name, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        if name == http::header::COOKIE {
            cookies.extend(value.split("; ").map(str::to_owned));
            continue;
        }
        let joined = headers.entry(name.as_str()).or_default();
        if !joined.is_empty() {
            joined.push(',');
        }
        joined.push_str(&value);
    }
    let host = headers.get("host").cloned().unwrap_or_default();
    let agent = headers.get("user-agent").cloned().unwrap_or_default();
    let milliseconds = clock::unix_ns() / 1_000_000;
    let client = head.extensions.get::<Client>().copied().unwrap_or(Client::Owner);
    let mut event = json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": decode(path),
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "accountId": "anonymous",
            "apiId": id,
            "domainName": host,
            "domainPrefix": id,
            "http": {
                "method": head.method.as_str(),
                "path": decode(path),
                "protocol": "HTTP/1.1",
                "sourceIp": client.source_ip().to_string(),
                "userAgent": agent,
            },
            "requestId": request_id,
            "routeKey": "$default",
            "stage": "$default",
            "time": clock::common_log(milliseconds),
            "timeEpoch": milliseconds,
        },
        "isBase64Encoded": false,
    });
    if !cookies.is_empty() {
        event["cookies"] = json!(cookies);
    }
    if !query.is_empty() {
        event["queryStringParameters"] = Value::Object(parameters(query));
    }
    if !body.is_empty() {
        if let Ok(text) = std::str::from_utf8(body) {
            event["body"] = json!(text);
        } else {
            event["body"] = json!(STANDARD.encode(body));
            event["isBase64Encoded"] = json!(true);
        }
    }
    event
}

/// A query's keys, with the values of each joined by commas.
fn parameters(query: &str) -> Map<String, Value> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode(&value.replace('+', " "));
        found.entry(decode(key)).or_default().push(value);
    }
    found.into_iter().map(|(key, values)| (key, json!(values.join(",")))).collect()
}

/// What a function answered, as an HTTP answer: an object with `statusCode` says all of it, or what comes
/// before eight zero bytes all but the body, and anything else is the body.
fn respond(payload: &Bytes) -> Answer {
    let prelude = payload.windows(PRELUDE_END.len()).position(|bytes| bytes == PRELUDE_END);
    if let Some(end) = prelude.filter(|_| payload.first() == Some(&b'{'))
        && let Some(answer) = integrated(&payload[..end])
    {
        return answer.map(|_| payload.slice(end + PRELUDE_END.len()..).into());
    }
    let parsed: Option<Value> = serde_json::from_slice(payload).ok();
    let Some(answer) =
        parsed.as_ref().and_then(Value::as_object).filter(|it| it.contains_key("statusCode"))
    else {
        // A string stands for its text.
        let body = match &parsed {
            Some(Value::String(text)) => Bytes::from(text.clone()),
            _ => payload.clone(),
        };
        return super::bytes_answer("application/json", body);
    };
    shaped(answer).unwrap_or_else(|| failed().map(Into::into))
}

/// The head of an answer, as the prelude of one of the type [`INTEGRATION`](streams::INTEGRATION) describes it.
pub(super) fn integrated(prelude: &[u8]) -> Option<Answer> {
    let mut answer: Map<String, Value> = serde_json::from_slice(prelude).ok()?;
    answer.remove("body");
    answer.entry("statusCode").or_insert(json!(200));
    shaped(&answer)
}

fn shaped(answer: &Map<String, Value>) -> Option<Answer> {
    let status = u16::try_from(answer["statusCode"].as_u64()?).ok()?;
    if !STATUSES.contains(&status) {
        return None;
    }
    let body = match answer.get("body") {
        None | Some(Value::Null) => Bytes::new(),
        Some(Value::String(text)) if answer.get("isBase64Encoded") == Some(&Value::Bool(true)) => {
            STANDARD.decode(text).ok()?.into()
        }
        Some(Value::String(text)) => Bytes::from(text.clone()),
        Some(other) => Bytes::from(other.to_string()),
    };
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).ok()?;
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(Value::Object(given)) = answer.get("headers") {
        if given.len() > MAX_HEADERS {
            return None;
        }
        for (name, value) in given {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            let value = HeaderValue::from_str(&text).ok()?;
            if !is_the_platforms(name.as_str()) {
                headers.insert(name, value);
            }
        }
    }
    if let Some(Value::Array(cookies)) = answer.get("cookies") {
        if cookies.len() > MAX_HEADERS {
            return None;
        }
        for cookie in cookies.iter().filter_map(Value::as_str) {
            headers.append(http::header::SET_COOKIE, HeaderValue::from_str(cookie).ok()?);
        }
    }
    Some(response)
}

/// Whether a header of an answer is the platform's affair: those of the connection, and what it says
/// of an invocation, of which it leaves out what it has not measured.
fn is_the_platforms(name: &str) -> bool {
    is_of_an_invocation(name)
        || matches!(
            name,
            "connection"
                | "content-length"
                | "keep-alive"
                | "proxy-connection"
                | "te"
                | "trailer"
                | "transfer-encoding"
                | "upgrade"
        )
}

/// Whether a header is what the platform says of an invocation.
pub(super) fn is_of_an_invocation(name: &str) -> bool {
    name.starts_with("x-uncia-")
        || matches!(
            name,
            "x-amz-executed-version"
                | "x-amz-function-error"
                | "x-amz-log-result"
                | "x-amzn-requestid"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_platform_says_of_an_invocation_is_not_the_functions_to_say() {
        let given = json!({
            "X-Uncia-Initialization-Ns": "1", "x-uncia-new": "1", "X-Amz-Function-Error": "Unhandled",
            "Transfer-Encoding": "chunked", "Upgrade": "h2c", "Connection": "upgrade", "x-own": "kept",
        });
        let body = json!({"statusCode": 200, "headers": given}).to_string();
        let answer = respond(&Bytes::from(body));
        let names: Vec<_> = answer.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["content-type", "x-own"]);
    }

    #[test]
    fn what_signs_an_address_is_the_platforms_to_know() {
        let stripped = |uri: &str, authorization: Option<&str>| {
            let mut request = http::Request::get(uri).header("x-amz-security-token", "secret");
            if let Some(text) = authorization {
                request = request.header("authorization", text);
            }
            let (mut head, ()) = request.body(()).unwrap().into_parts();
            remove_credentials(&mut head);
            assert!(head.headers.is_empty());
            head.uri.to_string()
        };
        let signed = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Security-Token=a%2F&X-Amz-Signature=b";
        assert_eq!(stripped(&format!("/url/x/?{signed}"), None), "/url/x/");
        assert_eq!(stripped(&format!("/url/x/p?a=%20&{signed}&c"), None), "/url/x/p?a=%20&c");
        let query = format!("/url/x/?{signed}");
        assert_eq!(stripped(&query, Some("AWS4-HMAC-SHA256 x")), query);
        assert_eq!(stripped("/url/x/?a=b", None), "/url/x/?a=b");
    }

    #[test]
    fn answers_take_the_shape_that_functions_give_them() {
        let plain = respond(&Bytes::from_static(b"{\"a\":1}"));
        assert_eq!(plain.status(), StatusCode::OK);
        let shaped = respond(&Bytes::from_static(
            br#"{"statusCode":201,"headers":{"X-A":"b"},"cookies":["c=d"],"body":"e"}"#,
        ));
        assert_eq!(shaped.status(), StatusCode::CREATED);
        assert_eq!(shaped.headers()["x-a"], "b");
        assert_eq!(shaped.headers()["set-cookie"], "c=d");
        for broken in ["\"x\"", "99999", "999", "199", "101", "100", "-1", "2e2"] {
            let answer = respond(&Bytes::from(format!("{{\"statusCode\":{broken}}}")));
            assert_eq!(answer.status(), StatusCode::BAD_GATEWAY, "{broken}");
        }
    }

    #[test]
    fn more_headers_than_an_answer_can_have_are_refused() {
        let answer = |count: usize| {
            let headers: Map<String, Value> =
                (0..count).map(|number| (format!("x-{number}"), json!("y"))).collect();
            let cookies = vec!["a=b"; count];
            let body = json!({"statusCode": 200, "headers": headers, "cookies": cookies});
            respond(&Bytes::from(body.to_string())).status()
        };
        assert_eq!(answer(MAX_HEADERS), StatusCode::OK);
        assert_eq!(answer(32_768), StatusCode::BAD_GATEWAY);
    }

    #[test]
    fn events_have_payload_format_2() {
        let request = http::Request::builder()
            .method("POST")
            .uri("/url/abc/some%20path?x=1&x=2&y=a%26b")
            .header("host", "localhost")
            .header("cookie", "a=1; b=2")
            .body(())
            .unwrap();
        let (head, ()) = request.into_parts();
        let event = event("abc", &head, &Bytes::from_static(&[0xff]), "id");
        assert_eq!(event["rawPath"], "/some path");
        assert_eq!(event["queryStringParameters"], json!({"x": "1,2", "y": "a&b"}));
        assert_eq!(event["cookies"], json!(["a=1", "b=2"]));
        assert_eq!((&event["body"], &event["isBase64Encoded"]), (&json!("/w=="), &json!(true)));
    }
}
