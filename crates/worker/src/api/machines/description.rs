//! Machines and executions as the API describes them, and pages of them.

use serde_json::{Value, json};

use super::Refusal;
use super::forms::{ByArn, invalid};
use crate::clock::epoch_seconds;
use crate::machines::{ExecutionRow, MACHINE_ARN, Machine};

/// Most entries of a page, as in the API; and where a request names none.
const MAX_PAGE: usize = 1_000;
const PAGE: usize = 100;

/// A page of a list, from the number in the token on.
pub(super) fn page(key: &str, rows: Vec<Value>, request: &ByArn) -> Result<Value, Refusal> {
    let (from, most) = bounds(request)?;
    Ok(paged(key, rows.into_iter().skip(from).collect(), from, most))
}

/// Where a page begins, and how many entries it has at most.
pub(super) fn bounds(request: &ByArn) -> Result<(usize, usize), Refusal> {
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
pub(super) fn paged(key: &str, mut rows: Vec<Value>, from: usize, most: usize) -> Value {
    let more = rows.len() > most;
    rows.truncate(most);
    let mut value = json!({ key: rows });
    if more {
        value["nextToken"] = json!((from + most).to_string());
    }
    value
}

pub(super) fn list_machine(machine: &Machine) -> Value {
    json!({
        "stateMachineArn": format!("{MACHINE_ARN}{}", machine.name),
        "name": machine.name,
        "type": machine.kind.name(),
        "creationDate": epoch_seconds(machine.created.into()),
    })
}

pub(super) fn describe_machine(machine: &Machine) -> Value {
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

pub(super) fn list_execution(row: &ExecutionRow) -> Value {
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

pub(super) fn describe_execution(row: &ExecutionRow) -> Value {
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
