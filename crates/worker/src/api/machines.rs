//! AWS Step Functions' API, in its protocol: a POST to `/` whose target is named in a header.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uncia_flow::{Failure, Status};

use super::Api;
use super::error::{Answer, ApiError, json_answer};
use super::invoke::{self, Call, INVOCATION_HEADER, Names};
use super::versions::find_version;
use crate::clock::{epoch_seconds, monotonic_ns, unix_ns};
use crate::failure;
use crate::ids;
use crate::machines::{
    ExecutionRow, Hop, Invoke, Kind, MACHINE_ARN, Machine, MachineError, Machines, Start,
};

/// What the header says before the operation's name.
pub(super) const TARGET: &str = "AWSStepFunctions.";
const MAX_DEFINITION_BYTES: usize = 1_048_576;
const MAX_NAME: usize = 80;
/// Most bytes of what a failure's cause says, as in the API.
const MAX_CAUSE_BYTES: usize = 32_768;
/// Most entries of a page, as in the API; and where a request names none.
const MAX_PAGE: usize = 1_000;
const PAGE: usize = 100;

/// An error of this API: its name, and a sentence.
struct Refusal(&'static str, String);

impl From<MachineError> for Refusal {
    fn from(error: MachineError) -> Self {
        let kind = match &error {
            MachineError::Definition(_) => "InvalidDefinition",
            MachineError::NoMachine(_) => "StateMachineDoesNotExist",
            MachineError::MachineExists(_) => "StateMachineAlreadyExists",
            MachineError::NoExecution(_) => "ExecutionDoesNotExist",
            MachineError::ExecutionExists(_) => "ExecutionAlreadyExists",
            MachineError::TooMany | MachineError::NoRoom(_) => "ExecutionLimitExceeded",
            MachineError::WrongKind => "StateMachineTypeNotSupported",
            MachineError::Database(_) => "InternalFailure",
        };
        Self(kind, error.to_string())
    }
}

/// Carries out an operation.
pub(super) async fn answer(api: &Arc<Api>, head: &Parts, body: Bytes) -> Answer {
    let target = head.headers.get("x-amz-target").and_then(|target| target.to_str().ok());
    let operation = target.and_then(|target| target.strip_prefix(TARGET)).unwrap_or_default();
    let carried_out = carry_out(&api.machines, operation, head, body).await;
    let is_measured = head.headers.contains_key(INVOCATION_HEADER);
    let ended = carried_out.as_ref().ok().filter(|_| is_measured).map(Ended::of);
    let (status, value) = match carried_out {
        Ok(value) => (StatusCode::OK, value),
        Err(Refusal(kind, message)) => {
            let status = if kind == "InternalFailure" {
                StatusCode::INTERNAL_SERVER_ERROR
            } else {
                StatusCode::BAD_REQUEST
            };
            (status, json!({"__type": kind, "message": message}))
        }
    };
    let mut answer = json_answer(status, &value);
    let content_type = HeaderValue::from_static("application/x-amz-json-1.0");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    if let Some(ended) = ended {
        ended.describe(answer.headers_mut());
    }
    answer
}

/// How an execution that was waited for ended, for a client that measures.
struct Ended {
    /// As rows have it; none: the answer is of another operation.
    outcome: Option<&'static str>,
    failure: Value,
}

impl Ended {
    fn of(answer: &Value) -> Self {
        let outcome = match answer["status"].as_str() {
            Some("SUCCEEDED") => Some("ok"),
            Some("TIMED_OUT") => Some("timeout"),
            Some("FAILED") => Some("function_error"),
            _ => None,
        };
        let failure = json!({"errorType": answer["error"], "errorMessage": answer["cause"]});
        Self { outcome, failure }
    }

    fn describe(&self, headers: &mut HeaderMap) {
        let Some(outcome) = self.outcome else { return };
        invoke::put(headers, "x-uncia-outcome", outcome);
        if outcome != "ok" {
            invoke::put_error(headers, self.failure.to_string().as_bytes());
        }
    }
}

async fn carry_out(
    machines: &Arc<Machines>,
    operation: &str,
    head: &Parts,
    body: Bytes,
) -> Result<Value, Refusal> {
    match operation {
        "StartExecution" => return start(machines, request(machines, head, &body)?).await,
        "StartSyncExecution" => return start_sync(machines, request(machines, head, &body)?).await,
        _ => {}
    }
    let (machines, operation) = (machines.clone(), operation.to_owned());
    let done = tokio::task::spawn_blocking(move || manage(&machines, &operation, &body)).await;
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// The operations that read or change the database.
fn manage(machines: &Machines, operation: &str, body: &[u8]) -> Result<Value, Refusal> {
    match operation {
        "CreateStateMachine" => create(machines, read(body)?),
        "UpdateStateMachine" => update(machines, read(body)?),
        "DeleteStateMachine" => {
            let ByArn { stateMachineArn, .. } = read(body)?;
            machines.delete(&stateMachineArn.unwrap_or_default())?;
            Ok(json!({}))
        }
        "DescribeStateMachine" => {
            let ByArn { stateMachineArn, .. } = read(body)?;
            Ok(describe_machine(&machines.find(&stateMachineArn.unwrap_or_default())?))
        }
        "ListStateMachines" => {
            let request: ByArn = read(body)?;
            let rows = machines.all()?;
            page("stateMachines", rows.iter().map(list_machine).collect(), &request)
        }
        "DescribeExecution" => {
            let ByArn { executionArn, .. } = read(body)?;
            Ok(describe_execution(&machines.describe(&executionArn.unwrap_or_default())?))
        }
        "ListExecutions" => {
            let request: ByArn = read(body)?;
            let (from, most) = bounds(&request)?;
            let machine = request.stateMachineArn.as_deref().unwrap_or_default();
            let status = request.statusFilter.as_deref();
            // One more, which says that there are more.
            let rows = machines.executions(machine, status, from, most + 1)?;
            Ok(paged("executions", rows.iter().map(list_execution).collect(), from, most))
        }
        "StopExecution" => {
            let request: ByArn = read(body)?;
            let failure = Failure {
                error: request.error.unwrap_or_default(),
                cause: cut(request.cause.unwrap_or_default()),
            };
            machines.stop(&request.executionArn.unwrap_or_default(), failure)?;
            Ok(json!({ "stopDate": epoch_seconds(unix_ns().into()) }))
        }
        "GetExecutionHistory" => {
            let request: ByArn = read(body)?;
            let mut events =
                machines.history(request.executionArn.as_deref().unwrap_or_default())?;
            if request.reverseOrder == Some(true) {
                events.reverse();
            }
            page("events", events, &request)
        }
        "ListTagsForResource" => Ok(json!({ "tags": [] })),
        _ => {
            let message = format!("{operation:?} is not an operation of this platform");
            Err(Refusal("UnknownOperationException", message))
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case)]
struct Create {
    name: String,
    definition: String,
    roleArn: String,
    r#type: Option<String>,
    /// Nobody reads them: this platform's logs are its own.
    #[serde(rename = "loggingConfiguration")]
    _logging: Option<Value>,
    #[serde(rename = "tracingConfiguration")]
    _tracing: Option<Value>,
    #[serde(rename = "tags")]
    _tags: Option<Value>,
    publish: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case)]
struct Update {
    stateMachineArn: String,
    definition: Option<String>,
    roleArn: Option<String>,
    #[serde(rename = "loggingConfiguration")]
    _logging: Option<Value>,
    #[serde(rename = "tracingConfiguration")]
    _tracing: Option<Value>,
    publish: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case)]
struct StartRequest {
    stateMachineArn: String,
    name: Option<String>,
    input: Option<String>,
    #[serde(rename = "traceHeader")]
    _trace: Option<String>,
    #[serde(rename = "includedData")]
    _included: Option<String>,
}

/// What operations on one machine or execution, and lists, may say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case)]
struct ByArn {
    stateMachineArn: Option<String>,
    executionArn: Option<String>,
    error: Option<String>,
    cause: Option<String>,
    maxResults: Option<usize>,
    nextToken: Option<String>,
    statusFilter: Option<String>,
    reverseOrder: Option<bool>,
    #[serde(rename = "includeExecutionData")]
    _include: Option<bool>,
    #[serde(rename = "includedData")]
    _included: Option<String>,
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body)
        .map_err(|error| invalid(format!("The request is not valid: {error}")))
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal("ValidationException", message.into())
}

/// Checks the name of a machine or an execution.
fn check_name(name: &str) -> Result<(), Refusal> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+!@".contains(&byte);
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_allowed) {
        return Ok(());
    }
    let message =
        format!("Invalid Name: '{name}': write 1 to {MAX_NAME} letters, digits and -_.+!@");
    Err(Refusal("InvalidName", message))
}

fn check_definition(definition: &str) -> Result<(), Refusal> {
    if definition.len() <= MAX_DEFINITION_BYTES {
        return Ok(());
    }
    Err(invalid(format!("The definition has more than {MAX_DEFINITION_BYTES} bytes")))
}

fn check_published(publish: Option<bool>) -> Result<(), Refusal> {
    match publish {
        Some(true) => Err(invalid("State machines have no versions on this platform")),
        _ => Ok(()),
    }
}

fn create(machines: &Machines, request: Create) -> Result<Value, Refusal> {
    check_name(&request.name)?;
    check_definition(&request.definition)?;
    check_published(request.publish)?;
    let kind = request.r#type.as_deref().unwrap_or("STANDARD");
    let kind = Kind::of(kind)
        .ok_or_else(|| invalid(format!("The type is STANDARD or EXPRESS, not {kind:?}")))?;
    let machine = machines.create(Machine {
        name: request.name,
        definition: request.definition,
        role: request.roleArn,
        kind,
        created: unix_ns(),
    })?;
    Ok(json!({
        "stateMachineArn": format!("{MACHINE_ARN}{}", machine.name),
        "creationDate": epoch_seconds(machine.created.into()),
    }))
}

fn update(machines: &Machines, request: Update) -> Result<Value, Refusal> {
    check_published(request.publish)?;
    if let Some(definition) = &request.definition {
        check_definition(definition)?;
    }
    machines.update(&request.stateMachineArn, request.definition, request.roleArn)?;
    Ok(json!({ "updateDate": epoch_seconds(unix_ns().into()) }))
}

/// The input of an execution, which is JSON and within the limit of data: what is not is neither stored
/// nor begun.
fn input(machines: &Machines, request: &StartRequest) -> Result<String, Refusal> {
    let input = request.input.clone().unwrap_or_else(|| "{}".to_owned());
    let limit = machines.data_limit();
    if input.len() > limit {
        return Err(Refusal(
            "InvalidExecutionInput",
            format!("The input has {} bytes, and the limit is {limit}", input.len()),
        ));
    }
    match crate::json::check(input.as_bytes()) {
        Ok(()) => Ok(input),
        Err(error) => {
            Err(Refusal("InvalidExecutionInput", format!("The input is no JSON: {error}")))
        }
    }
}

/// Reads which execution is asked for.
fn request(machines: &Machines, head: &Parts, body: &[u8]) -> Result<Start, Refusal> {
    let request: StartRequest = read(body)?;
    let input = input(machines, &request)?;
    if let Some(name) = &request.name {
        check_name(name)?;
    }
    let names = Names::of(&head.headers).map_err(|error| invalid(error.message))?;
    let is_named = head.headers.contains_key(INVOCATION_HEADER);
    Ok(Start {
        machine: request.stateMachineArn,
        name: request.name,
        input,
        invocation: is_named.then_some(names.invocation),
        generation: 0,
    })
}

async fn start(machines: &Arc<Machines>, request: Start) -> Result<Value, Refusal> {
    let (arn, started) = machines.start(request).await?;
    Ok(json!({ "executionArn": arn, "startDate": epoch_seconds(started.into()) }))
}

async fn start_sync(machines: &Arc<Machines>, request: Start) -> Result<Value, Refusal> {
    let (machine, input) = (request.machine.clone(), request.input.clone());
    let begun = machines.start_sync(request).await?;
    let began = monotonic_ns();
    let status = begun.ended.await;
    // By the monotonic clock, so that a step of the other is not billed.
    let took = monotonic_ns() - began;
    let stopped = begun.started + took;
    let status = status
        .map_err(|_| Refusal("InternalFailure", "The platform is shutting down".to_owned()))?;
    let milliseconds = billed_milliseconds(took);
    let mut value = json!({
        "executionArn": begun.arn,
        "stateMachineArn": machine,
        "name": begun.name,
        "startDate": epoch_seconds(begun.started.into()),
        "stopDate": epoch_seconds(stopped.into()),
        "input": input,
        "billingDetails": {"billedDurationInMilliseconds": milliseconds, "billedMemoryUsedInMB": 64},
    });
    let (name, output, failure) = match &status {
        Status::Succeeded(output) => ("SUCCEEDED", Some(output.to_string()), None),
        Status::TimedOut(failure) => ("TIMED_OUT", None, Some(failure)),
        Status::Failed(failure) | Status::Aborted(failure) => ("FAILED", None, Some(failure)),
    };
    value["status"] = json!(name);
    if let Some(output) = output {
        value["output"] = json!(output);
    }
    if let Some(failure) = failure {
        value["error"] = json!(failure.error);
        value["cause"] = json!(failure.cause);
    }
    Ok(value)
}

/// A page of a list, from the number in the token on.
fn page(key: &str, rows: Vec<Value>, request: &ByArn) -> Result<Value, Refusal> {
    let (from, most) = bounds(request)?;
    Ok(paged(key, rows.into_iter().skip(from).collect(), from, most))
}

/// Where a page begins, and how many entries it has at most.
fn bounds(request: &ByArn) -> Result<(usize, usize), Refusal> {
    let most = match request.maxResults.unwrap_or(0) {
        0 => PAGE,
        most if most <= MAX_PAGE => most,
        _ => return Err(invalid(format!("maxResults is at most {MAX_PAGE}"))),
    };
    let from = match request.nextToken.as_deref() {
        None => 0,
        Some(token) => token
            .parse::<usize>()
            .map_err(|_| Refusal("InvalidToken", format!("Invalid Token: '{token}'")))?,
    };
    Ok((from, most))
}

/// A page of entries, of which the first has the number `from`; there are more if it has too many.
fn paged(key: &str, mut rows: Vec<Value>, from: usize, most: usize) -> Value {
    let more = rows.len() > most;
    rows.truncate(most);
    let mut value = json!({ key: rows });
    if more {
        value["nextToken"] = json!((from + most).to_string());
    }
    value
}

fn list_machine(machine: &Machine) -> Value {
    json!({
        "stateMachineArn": format!("{MACHINE_ARN}{}", machine.name),
        "name": machine.name,
        "type": machine.kind.name(),
        "creationDate": epoch_seconds(machine.created.into()),
    })
}

fn describe_machine(machine: &Machine) -> Value {
    let mut value = list_machine(machine);
    value["status"] = json!("ACTIVE");
    value["definition"] = json!(machine.definition);
    value["roleArn"] = json!(machine.role);
    value["loggingConfiguration"] = json!({"level": "OFF", "includeExecutionData": false});
    value["tracingConfiguration"] = json!({"enabled": false});
    value
}

fn status(row: &ExecutionRow) -> &str {
    row.ended.as_ref().map_or("RUNNING", |ended| &ended.status)
}

fn list_execution(row: &ExecutionRow) -> Value {
    let mut value = json!({
        "executionArn": row.arn,
        "stateMachineArn": format!("{MACHINE_ARN}{}", row.machine),
        "name": row.name,
        "status": status(row),
        "startDate": epoch_seconds(row.started.into()),
    });
    if let Some(ended) = &row.ended {
        value["stopDate"] = json!(epoch_seconds(ended.time.into()));
    }
    value
}

fn describe_execution(row: &ExecutionRow) -> Value {
    let mut value = list_execution(row);
    value["input"] = json!(row.input);
    let Some(ended) = &row.ended else { return value };
    for (key, text) in [("output", &ended.output), ("error", &ended.error), ("cause", &ended.cause)]
    {
        if let Some(text) = text {
            value[key] = json!(text);
        }
    }
    value
}

/// Invokes functions of this platform for executions.
pub(crate) fn invoker(api: Arc<std::sync::OnceLock<Arc<Api>>>) -> Invoke {
    Arc::new(move |function, payload, hop| {
        let api = api.clone();
        Box::pin(async move {
            match api.get() {
                Some(api) => invoke_function(api, &function, payload, hop).await,
                None => Err(of_api(&ApiError::unavailable("The platform is starting"))),
            }
        })
    })
}

async fn invoke_function(
    api: &Arc<Api>,
    function: &str,
    payload: Bytes,
    hop: Hop,
) -> Result<Value, Failure> {
    let target = find_version(api, function, "").map_err(|error| of_api(&error))?;
    let request_id = ids::uuid();
    let names = Names {
        invocation: request_id.clone(),
        parent: Some(hop.cause),
        stage: Some(hop.stage),
        generation: hop.generation,
        request_id,
    };
    let call = Call { target, names, payload, head: None, client_context: None };
    let completion = invoke::run(api, call, None).await;
    let completion = completion.map_err(|error| of_api(&error))?;
    let request_id = completion.row().request_id.clone().unwrap_or_default();
    let (body, has_failed) =
        invoke::payload(&completion.disposition, completion.row(), &request_id)
            .map_err(|error| of_api(&error))?;
    if has_failed {
        let error = failure::Failure::read(&body).kind().unwrap_or("Lambda.Unknown").to_owned();
        return Err(Failure { error, cause: cut(String::from_utf8_lossy(&body).into_owned()) });
    }
    let (limit, bytes) = (api.machines.data_limit(), crate::json::plain_bytes(&body));
    if bytes > limit {
        // Before it is read: its values take many times the memory.
        return Err(Failure {
            error: uncia_flow::names::DATA_LIMIT.to_owned(),
            cause: format!(
                "the function's answer has {bytes} bytes as JSON, and the limit is {limit}"
            ),
        });
    }
    serde_json::from_slice(&body).map_err(|error| Failure {
        error: uncia_flow::names::TASK_FAILED.to_owned(),
        cause: format!("the function's answer is no JSON: {error}"),
    })
}

/// A cause of a failure, of which every event of a history may hold one.
fn cut(mut cause: String) -> String {
    let end = (0..=MAX_CAUSE_BYTES.min(cause.len())).rev().find(|end| cause.is_char_boundary(*end));
    cause.truncate(end.unwrap_or(0));
    cause
}

/// A refusal of the Lambda API, as Step Functions names it.
fn of_api(error: &ApiError) -> Failure {
    Failure { error: format!("Lambda.{}", error.kind), cause: error.message.clone() }
}

/// Nanoseconds as milliseconds that are billed: whole steps of 100.
fn billed_milliseconds(ns: i64) -> i64 {
    const STEP_NS: i64 = 100_000_000;
    (ns.max(0) + STEP_NS - 1) / STEP_NS * 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_billed_in_steps() {
        for (ns, ms) in [(-1, 0), (0, 0), (1, 100), (100_000_000, 100), (100_000_001, 200)] {
            assert_eq!(billed_milliseconds(ns), ms);
        }
    }

    #[test]
    fn causes_are_cut_between_characters() {
        assert_eq!(cut("é".to_owned()), "é");
        assert_eq!(cut(format!("x{}", "é".repeat(MAX_CAUSE_BYTES))).len(), MAX_CAUSE_BYTES - 1);
    }

    #[test]
    fn names_are_checked() {
        assert!(check_name("a-b_c.9+!@").is_ok());
        for name in ["", "a b", "a/b", "é", &"x".repeat(81)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
