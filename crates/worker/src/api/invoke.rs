//! Invoke, and what every answer of a function carries.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;
use uncia_policy::Rejection;
use uncia_record::Invocation;

use super::error::{Answer, ApiError, empty_answer};
use super::route::decode;
use super::versions::{Target, find_version};
use super::{Api, events, hints};
use crate::dispatch::{self, Disposition, GivenHint, Submission};
use crate::failure::Failure;
use crate::function::Function;
use crate::ids;
use crate::instance::{HttpHead, Outcome, Passage, StartError};
use crate::json;
use crate::runtime::in_proportion;

/// Lambda's limit for a request whose answer is waited for: 6 MB and a little.
pub(super) const MAX_PAYLOAD_BYTES: usize = 6_291_556;
/// Lambda's documented limit for an asynchronous request.
pub(super) const MAX_EVENT_BYTES: usize = 256 * 1024;
/// Names an invocation.
pub(super) const INVOCATION_HEADER: &str = "x-uncia-invocation";
/// Names the invocation that causes this one.
pub(super) const PARENT_HEADER: &str = "x-uncia-parent";
/// Names the stage of a chain that it is.
const STAGE_HEADER: &str = "x-uncia-stage";
/// Lambda's limit for the client context, in base64.
const MAX_CLIENT_CONTEXT: usize = 3_583;
/// Longest name that a client may give an invocation.
const MAX_INVOCATION_NAME: usize = 128;

/// Who asks, under which names.
pub(super) struct Names {
    pub request_id: String,
    pub invocation: String,
    pub parent: Option<String>,
    pub stage: Option<String>,
    /// How many triggers led to it, if one began it; else what its parent has.
    pub generation: u32,
}

impl Names {
    /// Takes the client's name for the invocation if it gives a proper one.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        let request_id = ids::uuid();
        let named = |header: &str| -> Result<Option<String>, ApiError> {
            let Some(value) = headers.get(header) else { return Ok(None) };
            let text = value.to_str().unwrap_or("");
            let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-');
            if text.is_empty() || text.len() > MAX_INVOCATION_NAME || !text.bytes().all(fine) {
                return Err(ApiError::invalid(format!(
                    "{header} must be 1 to {MAX_INVOCATION_NAME} letters, digits and _.:-"
                )));
            }
            Ok(Some(text.to_owned()))
        };
        let invocation = named(INVOCATION_HEADER)?.unwrap_or_else(|| request_id.clone());
        let (parent, stage) = (named(PARENT_HEADER)?, named(STAGE_HEADER)?);
        Ok(Self { request_id, invocation, parent, stage, generation: 0 })
    }

    /// Remembers which invocation the request is, for what it writes.
    pub(super) fn note(&self, api: &Api) {
        let lineage = &api.triggers.lineage;
        lineage.note(&self.request_id, &self.invocation, self.parent.as_deref(), self.generation);
    }
}

/// What is to be run, and with what.
pub(super) struct Call {
    pub target: Target,
    pub names: Names,
    pub payload: Bytes,
    pub head: Option<Arc<HttpHead>>,
    pub client_context: Option<String>,
    /// What it says of those to come.
    pub hint: Option<GivenHint>,
}

/// Runs a function to its end even if the client goes away meanwhile.
pub(super) async fn run(
    api: &Arc<Api>,
    call: Call,
    passage: Option<Arc<Passage>>,
) -> Result<dispatch::Completion, ApiError> {
    let Call { target, names, payload, head, client_context, hint } = call;
    let Target { version: function, qualified_arn } = target;
    if function.broken.is_some() {
        return Err(ApiError::broken(&function));
    }
    if api.members.as_ref().is_some_and(|members| members.is_empty()) {
        return Err(ApiError::unavailable(
            "There is no worker: start one with `uncia serve --join` and this controller's address",
        ));
    }
    names.note(api);
    let invoked_arn = qualified_arn.filter(|arn| *arn != function.arn);
    let submission = Submission {
        function,
        request_id: names.request_id,
        invocation: names.invocation,
        parent: names.parent,
        stage: names.stage,
        payload,
        head,
        passage,
        client_context,
        invoked_arn,
        hint,
    };
    let answer = api.dispatcher.submit(submission).await;
    answer.map_err(|stopped| ApiError::unavailable(stopped.to_string()))
}

/// Reads what Invoke is to run; an asynchronous invocation has another limit.
pub(super) async fn read(
    api: &Api,
    reference: &str,
    head: &Parts,
    body: Bytes,
    most: usize,
) -> Result<Call, ApiError> {
    let target = find_version(api, &decode(reference), head.uri.query().unwrap_or(""))?;
    if body.len() > most {
        return Err(ApiError::too_large(body.len(), most));
    }
    let payload = if body.is_empty() { Bytes::from_static(b"{}") } else { body };
    let text = payload.clone();
    if let Err(error) = in_proportion(payload.len(), move || json::check(&text)).await {
        return Err(ApiError::content(format!("Could not parse request body into json: {error}")));
    }
    let names = Names::of(&head.headers)?;
    if let Some(traces) = &api.traces {
        traces.begin(&names.request_id, &head.headers, "other");
    }
    let client_context = header(head, "x-amz-client-context").map(str::to_owned);
    if client_context.as_ref().is_some_and(|context| context.len() > MAX_CLIENT_CONTEXT) {
        return Err(ApiError::invalid(format!(
            "X-Amz-Client-Context must be at most {MAX_CLIENT_CONTEXT} bytes"
        )));
    }
    Ok(Call { target, names, payload, head: None, client_context, hint: None })
}

/// A header that is text.
pub(super) fn header<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    head.headers.get(name).and_then(|value| value.to_str().ok())
}

/// Whether the client asks for the end of the function's output.
pub(super) fn wants_tail(head: &Parts) -> bool {
    header(head, "x-amz-log-type") == Some("Tail")
}

pub(super) async fn answer(
    api: &Arc<Api>,
    reference: &str,
    head: &Parts,
    body: Bytes,
) -> Result<Answer, ApiError> {
    let kind = header(head, "x-amz-invocation-type").unwrap_or("RequestResponse");
    let most = if kind == "Event" { MAX_EVENT_BYTES } else { MAX_PAYLOAD_BYTES };
    let mut call = read(api, reference, head, body, most).await?;
    let function = call.target.version.clone();
    match kind {
        "RequestResponse" => {
            let (hint, note) = hints::read(api, &head.headers, call.client_context.as_deref());
            call.hint = hint;
            let answer = run(api, call, None).await?;
            let is_measured = head.headers.contains_key(INVOCATION_HEADER);
            let mut response = respond(&answer, &function, wants_tail(head), is_measured);
            note.put(response.headers_mut()).await;
            Ok(response)
        }
        "Event" if function.broken.is_some() => Err(ApiError::broken(&function)),
        "Event" => {
            if let Some(refusal) = function.refusal(&api.config) {
                // Nobody would learn of it later.
                return Err(ApiError::invalid(refusal));
            }
            let allocation = function.settings(&api.config).allocation;
            if api.members.as_ref().is_some_and(|members| !members.could_hold(allocation)) {
                return Err(Rejection::TooLarge.into());
            }
            let request_id = call.names.request_id.clone();
            let (hint, note) = hints::read(api, &head.headers, call.client_context.as_deref());
            events::accept(api, &function, call.names, call.payload, call.client_context, None)
                .await?;
            let mut accepted = empty_answer(StatusCode::ACCEPTED);
            put(accepted.headers_mut(), "x-amzn-requestid", &request_id);
            if let Some(hint) = hint {
                api.dispatcher.hint(function.id, hint);
            }
            note.put(accepted.headers_mut()).await;
            Ok(accepted)
        }
        "DryRun" => Ok(empty_answer(StatusCode::NO_CONTENT)),
        other => Err(ApiError::invalid(format!(
            "X-Amz-Invocation-Type must be RequestResponse, Event or DryRun, not {other:?}"
        ))),
    }
}

/// What the caller of Invoke gets, with the end of the output if it asked for that, or if it
/// measures and the function failed.
fn respond(
    answer: &dispatch::Completion,
    function: &Function,
    tail: bool,
    is_measured: bool,
) -> Answer {
    let request_id = answer.row().request_id.clone().unwrap_or_default();
    let (payload, failed) = match payload(&answer.disposition, answer.row(), &request_id) {
        Ok(found) => found,
        Err(error) => {
            let mut refused = error.answer();
            describe(refused.headers_mut(), answer.row(), function);
            return refused;
        }
    };
    let mut response = http::Response::new(payload.into());
    let headers = response.headers_mut();
    put(headers, "content-type", "application/json");
    if failed {
        put(headers, "x-amz-function-error", "Unhandled");
    }
    if tail {
        put(headers, "x-amz-log-result", &STANDARD.encode(&answer.log_tail));
    }
    if failed && is_measured {
        put_output(headers, &answer.log_tail);
    }
    describe(headers, answer.row(), function);
    response
}

/// Puts what a function failed with into a header, where the body does not say it.
pub(super) fn put_error(headers: &mut HeaderMap, payload: &[u8]) {
    put(headers, "x-uncia-error", &STANDARD.encode(Failure::read(payload).to_json()));
}

/// Puts the end of what a function wrote into a header.
pub(super) fn put_output(headers: &mut HeaderMap, output: &[u8]) {
    if !output.is_empty() {
        put(headers, "x-uncia-log-tail", &STANDARD.encode(output));
    }
}

/// What the function answered, and whether that is an error of it.
pub(super) fn payload(
    result: &Disposition,
    row: &Invocation,
    request_id: &str,
) -> Result<(Bytes, bool), ApiError> {
    let said = |kind: &str, message: String| {
        let text = format!("RequestId: {request_id} Error: {message}");
        Ok((json!({"errorType": kind, "errorMessage": text}).to_string().into(), true))
    };
    let timed_out = || {
        let message = row.error.clone().unwrap_or_else(|| "Task timed out".to_owned());
        said("Sandbox.Timedout", message)
    };
    match result {
        Disposition::Ran(Outcome::Ok(payload)) => Ok((payload.clone(), false)),
        Disposition::Ran(Outcome::FunctionError(payload)) => Ok((payload.clone(), true)),
        Disposition::Ran(Outcome::Answered(answer)) => {
            Ok((answer.body.clone().unwrap_or_default(), answer.is_failure()))
        }
        Disposition::Ran(Outcome::Passed) => Ok((Bytes::new(), false)),
        Disposition::Ran(Outcome::ClientGone(how)) => said("Client.Gone", how.to_string()),
        Disposition::Ran(Outcome::WorkerLost(how)) => Err(ApiError::service(how.clone())),
        Disposition::Ran(Outcome::NotHttp(how)) => said("Server.NotHttp", how.clone()),
        Disposition::Ran(Outcome::Extension { kind, message }) => said(kind, message.clone()),
        Disposition::Ran(Outcome::Timeout | Outcome::GivenUp | Outcome::Late(_))
        | Disposition::NotReady(StartError::Timeout(_)) => timed_out(),
        Disposition::Ran(Outcome::Exited(how)) | Disposition::NotReady(StartError::Exited(how)) => {
            said("Runtime.ExitError", format!("Runtime exited with error: {how}"))
        }
        Disposition::Ran(Outcome::OutOfMemory) | Disposition::NotReady(StartError::OutOfMemory) => {
            said(
                "Runtime.OutOfMemory",
                "Runtime exited with error: signal: killed (out of memory)".to_owned(),
            )
        }
        Disposition::Ran(Outcome::ResponseTooLarge(bytes)) => {
            let message = format!(
                "Response payload size ({bytes} bytes) exceeded maximum allowed payload size \
                 ({MAX_PAYLOAD_BYTES} bytes)."
            );
            let body =
                json!({"errorType": "Function.ResponseSizeTooLarge", "errorMessage": message});
            Ok((body.to_string().into(), true))
        }
        Disposition::NotReady(StartError::Init { payload, .. }) => Ok((payload.clone(), true)),
        Disposition::NotReady(error @ (StartError::Sandbox(_) | StartError::Package(_))) => {
            Err(ApiError::service(error.to_string()))
        }
        Disposition::Rejected(reason) => Err((*reason).into()),
        Disposition::NotLogged(error) => Err(ApiError::service(format!(
            "The invocation ran, but could not be recorded: {error}"
        ))),
    }
}

/// Puts what became of an invocation into its answer's headers, and where.
pub(super) fn identify(headers: &mut HeaderMap, row: &Invocation) {
    if let Some(request_id) = &row.request_id {
        put(headers, "x-amzn-requestid", request_id);
    }
    put(headers, "x-uncia-outcome", &row.outcome);
    let texts = [("x-uncia-start", &row.start), ("x-uncia-instance", &row.instance)];
    for (name, text) in texts {
        if let Some(text) = text {
            put(headers, name, text);
        }
    }
}

/// The same with what was invoked, and what the platform measured.
pub(super) fn describe(headers: &mut HeaderMap, row: &Invocation, function: &Function) {
    identify(headers, row);
    put(headers, "x-amz-executed-version", &function.version_name());
    let numbers = [
        ("x-uncia-queued-ns", row.queued),
        ("x-uncia-initialization-ns", row.initialization),
        ("x-uncia-execution-ns", row.execution),
        ("x-uncia-billed-ns", row.billed),
        ("x-uncia-allocated-cpu", row.allocated_cpu),
        ("x-uncia-allocated-memory", row.allocated_memory),
        ("x-uncia-cpu-user-ns", row.cpu_user),
        ("x-uncia-cpu-system-ns", row.cpu_system),
        ("x-uncia-memory-avg", row.memory_avg),
        ("x-uncia-memory-peak", row.memory_peak),
        ("x-uncia-throttled-count", row.throttled_count),
        ("x-uncia-throttled-ns", row.throttled_time),
        ("x-uncia-started-unix-ns", row.started),
        ("x-uncia-ended-unix-ns", row.ended),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            headers.insert(name, number.into());
        }
    }
}

/// Sets a header; a value that no header can have is left out.
pub(super) fn put(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
