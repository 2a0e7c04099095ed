//! Triggers over HTTP, and what each begins for a change.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::error::{Answer, ApiError, empty_answer, json_answer};
use super::invoke::{MAX_EVENT_BYTES, Names};
use super::route::decode;
use super::versions::find_version;
use super::{Api, events};
use crate::ids;
use crate::machines::{MACHINE_ARN, MachineError, Start};
use crate::triggers::{
    Action, Change, Definition, Hindrance, Kind, Origin, Trigger, TriggerError, Triggers, name,
};

/// The longest name of a trigger, so that those of its invocations are not too long.
const MAX_TRIGGER_NAME: usize = 64;
/// The longest prefix, in bytes.
const MAX_PREFIX_BYTES: usize = 1_024;
/// The key of the change in an event.
const CHANGE: &str = "change";
/// Of the digest that tells an execution from an earlier one with its name.
const OTHER_DIGITS: usize = 16;

/// An event of a change.
#[derive(Serialize)]
struct Event<'a> {
    #[serde(flatten)]
    event: &'a Map<String, Value>,
    change: Described<'a>,
}

/// The change in it.
#[derive(Serialize)]
struct Described<'a> {
    trigger: &'a str,
    key: &'a str,
    kind: &'a str,
    position: i64,
    value: &'a RawValue,
    writer: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    omitted: bool,
}

/// A trigger as a client describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default)]
    prefix: String,
    changes: Option<Vec<Kind>>,
    function: Option<String>,
    machine: Option<String>,
    #[serde(default)]
    event: Map<String, Value>,
    stage: Option<String>,
    /// Behind which position it begins.
    from: Option<i64>,
}

impl From<TriggerError> for ApiError {
    fn from(error: TriggerError) -> Self {
        match error {
            TriggerError::NoService => Self::invalid(error.to_string()),
            TriggerError::Feed(_) => Self::unavailable(error.to_string()),
            TriggerError::Log(_) => Self::service(error.to_string()),
        }
    }
}

/// Answers a request at the path of triggers.
pub(super) async fn answer(
    api: &Arc<Api>,
    path: &[&str],
    head: &Parts,
    body: &[u8],
) -> Result<Answer, ApiError> {
    match (&head.method, path) {
        (&Method::GET, []) => {
            let (triggers, is_settled) = Triggers::standings(api).await?;
            let body = json!({"triggers": triggers, "settled": is_settled});
            Ok(json_answer(StatusCode::OK, &body))
        }
        (&Method::PUT, [name]) => {
            let name = decode(name);
            let (definition, from) = read(api, &name, body)?;
            let api = api.clone();
            let put = async move { Triggers::put(&api, &name, definition, from).await };
            let standing = to_its_end(put).await?;
            Ok(json_answer(StatusCode::OK, &json!(standing)))
        }
        (&Method::DELETE, [name]) => {
            let name = decode(name);
            let (api, named) = (api.clone(), name.clone());
            let remove = async move { Triggers::remove(&api, &named).await };
            if to_its_end(remove).await.map_err(TriggerError::from)? {
                return Ok(empty_answer(StatusCode::NO_CONTENT));
            }
            Err(ApiError::not_found(format!("There is no trigger {name:?}")))
        }
        _ => Err(ApiError::no_operation(&head.method, head.uri.path())),
    }
}

/// Carries out what must not stop half-way where the client goes away meanwhile.
async fn to_its_end<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

fn read(api: &Api, name: &str, body: &[u8]) -> Result<(Definition, Option<i64>), ApiError> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if name.is_empty() || name.len() > MAX_TRIGGER_NAME || !name.bytes().all(fine) {
        return Err(ApiError::invalid(format!(
            "A trigger's name must be 1 to {MAX_TRIGGER_NAME} letters, digits, - and _, not {name:?}"
        )));
    }
    let form: Form = serde_json::from_slice(body)
        .map_err(|error| ApiError::content(format!("The trigger cannot be read: {error}")))?;
    let changes = form.changes.unwrap_or_else(|| vec![Kind::Put, Kind::Delete]);
    if changes.is_empty() {
        return Err(ApiError::invalid("A trigger follows put, delete or both: changes names none"));
    }
    if form.prefix.len() > MAX_PREFIX_BYTES {
        return Err(ApiError::invalid(format!(
            "A trigger's prefix may have {MAX_PREFIX_BYTES} bytes"
        )));
    }
    if form.event.contains_key(CHANGE) {
        return Err(ApiError::invalid(format!(
            "The event's key {CHANGE:?} is that of the change itself"
        )));
    }
    if form.from.is_some_and(|from| from < 0) {
        return Err(ApiError::invalid("A trigger begins behind a position, from 0 on"));
    }
    if form.stage.as_ref().is_some_and(|stage| stage.is_empty() || stage.len() > MAX_TRIGGER_NAME) {
        return Err(ApiError::invalid(format!("A stage has 1 to {MAX_TRIGGER_NAME} bytes")));
    }
    let action = match (form.function, form.machine) {
        (Some(function), None) => {
            find_version(api, &function, "")?;
            Action::Function(function)
        }
        (None, Some(machine)) => {
            let missing = |error: MachineError| ApiError::not_found(error.to_string());
            api.machines.find(&machine).map_err(missing)?;
            Action::Machine(machine)
        }
        _ => {
            return Err(ApiError::invalid(format!(
                "A trigger begins one of a function (its name) and a machine ({MACHINE_ARN}NAME)"
            )));
        }
    };
    let definition =
        Definition { prefix: form.prefix, changes, action, event: form.event, stage: form.stage };
    Ok((definition, form.from))
}

/// Begins what a change asks for: an event of a function, which is in the log when this returns, or an
/// execution of a machine, which is in its database.
pub(crate) async fn begin_change(
    api: &Arc<Api>,
    trigger: &Trigger,
    change: &Change,
    origin: Option<&Origin>,
    generation: u32,
) -> Result<(), Hindrance> {
    let parent = origin.map(|origin| origin.invocation.to_string());
    let definition = &trigger.definition;
    match &definition.action {
        Action::Function(function) => {
            let target = find_version(api, function, "").map_err(|error| later(&error))?;
            let function = target.version;
            if function.broken.is_some() {
                return Err(later(&ApiError::broken(&function)));
            }
            let names = Names {
                request_id: ids::uuid(),
                invocation: name(&trigger.name, change.position, generation),
                parent,
                stage: definition.stage.clone(),
                generation,
            };
            let payload = payload(definition, &trigger.name, change, MAX_EVENT_BYTES)?;
            let passed = Some(trigger.passed(change));
            events::accept(api, &function, names, payload.into(), None, passed)
                .await
                .map_err(|error| later(&error))
        }
        Action::Machine(machine) => {
            let most = api.machines.data_limit();
            let input = payload(definition, &trigger.name, change, most)?;
            let start = |name: String| Start {
                machine: machine.clone(),
                name: Some(name),
                input: input.clone(),
                invocation: parent.clone(),
                generation,
            };
            let name = name(&trigger.name, change.position, generation);
            let mut begun = api.machines.start(start(name.clone())).await;
            if let Err(MachineError::ExecutionExists(arn)) = &begun
                && api.machines.describe(arn).is_ok_and(|it| !is_same_change(&it.input, &input))
            {
                // The change of a feed that was there before this one had the same position.
                let digest = hex::encode(Sha256::digest(input.as_bytes()));
                let other = format!("{name}-{}", &digest[..OTHER_DIGITS]);
                begun = api.machines.start(start(other)).await;
            }
            match begun {
                // It has run already: what follows was cut off before that was noted.
                Ok(_) | Err(MachineError::ExecutionExists(_)) => {}
                Err(MachineError::TooMany | MachineError::NoRoom(_)) => {
                    return Err(Hindrance::Later(None));
                }
                Err(error) => return Err(Hindrance::Later(Some(error.to_string()))),
            }
            let update = crate::meterlog::TriggerUpdate::Passed(trigger.passed(change));
            api.log.trigger(update).await.map_err(|error| Hindrance::Later(Some(error.to_string())))
        }
    }
}

/// Whether two events are of one change. The rest of them may have been redefined meanwhile.
fn is_same_change(event: &str, other: &str) -> bool {
    let change = |text: &str| serde_json::from_str::<Value>(text).ok().map(|it| it[CHANGE].clone());
    change(event) == change(other)
}

/// A refusal that may pass; one for want of room is nobody's concern.
fn later(error: &ApiError) -> Hindrance {
    let is_full = error.status == StatusCode::TOO_MANY_REQUESTS;
    Hindrance::Later((!is_full).then(|| error.message.clone()))
}

/// The event of a change. A value that is no JSON, or too long for an event, is left out: it is null, and
/// `omitted` says so.
fn payload(
    definition: &Definition,
    trigger: &str,
    change: &Change,
    most: usize,
) -> Result<String, Hindrance> {
    let described = |value: &RawValue, omitted: bool| {
        let of_change = Described {
            trigger,
            key: &change.key,
            kind: &change.kind,
            position: change.position,
            value,
            writer: &change.writer,
            omitted,
        };
        let event = Event { event: &definition.event, change: of_change };
        serde_json::to_string(&event).expect("it is JSON")
    };
    let value = if change.kind == "put" { change.json.as_str() } else { "null" };
    if let Ok(value) = serde_json::from_str(value)
        && change.json.len() <= most
    {
        let whole = described(value, false);
        if whole.len() <= most {
            return Ok(whole);
        }
    }
    let without = described(RawValue::NULL, true);
    if without.len() > most {
        return Err(Hindrance::Never(format!(
            "the trigger {trigger} passed over the change {} of {:?}: its event has {} bytes, and the limit is \
             {most}",
            change.position,
            change.key,
            without.len()
        )));
    }
    Ok(without)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_in_events_as_they_were_written() {
        let event = json!({"a": {"change": {}}, "z": "\"change\":{"}).as_object().cloned().unwrap();
        let definition = Definition {
            prefix: String::new(),
            changes: vec![Kind::Put],
            action: Action::Function("f".to_owned()),
            event,
            stage: None,
        };
        let change = |json: &str| Change {
            position: 3,
            key: "k\"".to_owned(),
            kind: "put".to_owned(),
            json: json.to_owned(),
            writer: String::new(),
        };
        let of = |json: &str, most| payload(&definition, "t", &change(json), most).unwrap();
        let text = of(r#"{"n":12345678901234567890.50}"#, 1_000);
        assert!(text.contains("12345678901234567890.50"), "{text}");
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["z"], "\"change\":{");
        assert_eq!(read["a"], json!({"change": {}}));
        assert_eq!(
            (&read["change"]["key"], &read["change"]["position"]),
            (&json!("k\""), &json!(3))
        );
        for (json, most) in [("{", 1_000), (&*format!("{:?}", "x".repeat(900)), 300)] {
            let read: Value = serde_json::from_str(&of(json, most)).unwrap();
            assert_eq!(read["change"]["value"], Value::Null);
            assert_eq!(read["change"]["omitted"], true);
        }
        assert!(matches!(payload(&definition, "t", &change("1"), 20), Err(Hindrance::Never(_))));
        let redefined = Definition { event: Map::new(), ..definition.clone() };
        let again = payload(&redefined, "t", &change("1"), 1_000).unwrap();
        assert!(is_same_change(&of("1", 1_000), &again));
        assert!(!is_same_change(&of("1", 1_000), &of("2", 1_000)));
    }
}
