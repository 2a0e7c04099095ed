//! AWS Step Functions' API, in its protocol: a POST to `/` whose target is named in a header.

mod description;
mod forms;
mod invoker;

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use uncia_flow::{Failure, Status};

use self::description::{
    bounds, describe_execution, describe_machine, list_execution, list_machine, page, paged,
};
use self::forms::{
    ByArn, Create, StartRequest, Update, check_definition, check_name, check_published, invalid,
    read,
};
use self::invoker::cut;
pub(crate) use self::invoker::invoker;
use super::Api;
use super::error::{Answer, json_answer};
use super::invoke::{self, INVOCATION_HEADER, Names};
use crate::clock::{epoch_seconds, monotonic_ns, unix_ns};
use crate::machines::{Kind, MACHINE_ARN, Machine, MachineError, Machines, Start};

/// What the header says before the operation's name.
pub(super) const TARGET: &str = "AWSStepFunctions.";

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

/// The input of an execution, which is JSON that can be read and within the limit of data: what is not is
/// neither stored nor begun. Surrogates that stand alone are replaced, as in events.
fn input(machines: &Machines, request: &StartRequest) -> Result<String, Refusal> {
    let input = request.input.as_deref().unwrap_or("{}");
    let input = String::from_utf8_lossy(&crate::json::well_formed(input.as_bytes())).into_owned();
    let limit = machines.data_limit();
    if input.len() > limit {
        return Err(Refusal(
            "InvalidExecutionInput",
            format!("The input has {} bytes, and the limit is {limit}", input.len()),
        ));
    }
    match serde_json::from_str::<Value>(&input) {
        Ok(_) => Ok(input),
        Err(error) => Err(Refusal(
            "InvalidExecutionInput",
            format!("The input is no JSON that can be read: {error}"),
        )),
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
}
