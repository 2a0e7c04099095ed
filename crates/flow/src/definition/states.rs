//! Parses one state.

use serde_json::Value;

use super::{Amount, Kind, Parser, Reader, State, Target, Text, Until};
use crate::choice::{Rule, timestamp};
use crate::error::{DefinitionError, names};
use crate::path::Path;
use crate::retry::{BACKOFF_RATE, Catcher, INTERVAL_S, MAX_ATTEMPTS, Retrier};

/// Invokes a function that the parameters name.
const INVOKE: &str = "arn:aws:states:::lambda:invoke";
/// What the parameters of [`INVOKE`] may hold.
const INVOKE_KEYS: [&str; 2] = ["FunctionName", "Payload"];

type Found = Result<usize, DefinitionError>;

pub(super) fn parse(
    parser: &mut Parser,
    name: &str,
    value: &Value,
    find: &dyn Fn(&Reader<'_>, &str, &str) -> Found,
) -> Result<State, DefinitionError> {
    let mut reader = Reader::new(format!("state {name}"), value)?;
    reader.ignore(&["Comment"]);
    reader.language()?;
    let kind = reader.text("Type")?.ok_or_else(|| reader.missing("Type"))?.to_owned();
    let mut state = State {
        name: name.to_owned(),
        kind: Kind::Succeed,
        next: None,
        input: None,
        output: None,
        parameters: None,
        result_selector: None,
        result: Path::parse("$").ok(),
        retry: Vec::new(),
        catch: Vec::new(),
        uses_context: value.to_string().contains("\"$$"),
    };
    if kind != "Fail" {
        state.input = reader.path("InputPath")?;
        state.output = reader.path("OutputPath")?;
    }
    if matches!(kind.as_str(), "Task" | "Pass" | "Parallel" | "Map") {
        state.result = reader.reference("ResultPath")?;
        // The old name of a map's selector.
        if kind != "Map" {
            state.parameters = reader.template("Parameters")?;
        }
    }
    if matches!(kind.as_str(), "Task" | "Parallel" | "Map") {
        state.result_selector = reader.template("ResultSelector")?;
        state.retry = retriers(&mut reader)?;
        state.catch = catchers(&mut reader, find)?;
    }
    if !matches!(kind.as_str(), "Choice" | "Succeed" | "Fail") {
        state.next = next(&mut reader, find)?;
    }
    state.kind = match kind.as_str() {
        "Task" => task(&mut reader, &state)?,
        "Pass" => Kind::Pass { result: reader.take("Result").cloned() },
        "Choice" => choice(&mut reader, find)?,
        "Wait" => Kind::Wait(until(&mut reader)?),
        "Succeed" => Kind::Succeed,
        "Fail" => Kind::Fail {
            error: text(&mut reader, "Error", "ErrorPath")?,
            cause: text(&mut reader, "Cause", "CausePath")?,
        },
        "Parallel" => parallel(parser, &mut reader)?,
        "Map" => map(parser, &mut reader)?,
        _ => return Err(reader.unsupported(&format!("Type {kind}"))),
    };
    reader.finish()?;
    Ok(state)
}

fn next(
    reader: &mut Reader<'_>,
    find: &dyn Fn(&Reader<'_>, &str, &str) -> Found,
) -> Result<Option<usize>, DefinitionError> {
    let is_end = reader.flag("End")?.unwrap_or(false);
    match (reader.text("Next")?, is_end) {
        (Some(_), true) => Err(reader.invalid("Next", "is there beside End")),
        (Some(target), false) => find(reader, "Next", target).map(Some),
        (None, true) => Ok(None),
        (None, false) => Err(reader.missing("Next or End")),
    }
}

fn task(reader: &mut Reader<'_>, state: &State) -> Result<Kind, DefinitionError> {
    let resource = reader.text("Resource")?.ok_or_else(|| reader.missing("Resource"))?;
    let target = if resource == INVOKE {
        let parameters = reader.has("Parameters").then_some(state.parameters.as_ref()).flatten();
        check_invoke(reader, parameters)?;
        Target::Parameters
    } else if resource.starts_with("arn:aws:lambda:") && resource.contains(":function:") {
        Target::Function(resource.to_owned())
    } else {
        return Err(reader.unsupported(&format!("Resource {resource}")));
    };
    let timeout = amount(reader, "TimeoutSeconds", "TimeoutSecondsPath")?;
    if matches!(timeout, Amount::Number(0)) {
        return Err(reader.invalid("TimeoutSeconds", "is 0"));
    }
    Ok(Kind::Task { target, timeout })
}

/// Checks that the parameters name a function, and hold nothing that would be left out.
fn check_invoke(
    reader: &Reader<'_>,
    parameters: Option<&crate::template::Template>,
) -> Result<(), DefinitionError> {
    use crate::template::Template;
    let names: Vec<&str> = match parameters {
        Some(Template::Object(entries)) => entries.iter().map(|(key, _)| key.as_str()).collect(),
        Some(Template::Value(Value::Object(object))) => object.keys().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    if !names.contains(&"FunctionName") {
        return Err(reader.missing("Parameters, FunctionName"));
    }
    match names.iter().find(|name| !INVOKE_KEYS.contains(name)) {
        None => Ok(()),
        Some(name) => Err(reader.unsupported(&format!("Parameters, {name}"))),
    }
}

fn choice(
    reader: &mut Reader<'_>,
    find: &dyn Fn(&Reader<'_>, &str, &str) -> Found,
) -> Result<Kind, DefinitionError> {
    let choices = reader.array("Choices")?.filter(|choices| !choices.is_empty());
    let mut rules = Vec::new();
    for value in choices.ok_or_else(|| reader.missing("Choices"))? {
        let mut rule = Reader::new(format!("{}, Choices", reader.at()), value)?;
        let target = rule.text("Next")?.ok_or_else(|| rule.missing("Next"))?;
        let next = find(&rule, "Next", target)?;
        let at = rule.at().to_owned();
        let rule = Rule::parse(rule.whole()).map_err(|(key, problem)| match problem {
            Some(problem) => DefinitionError::Invalid { at, key, problem },
            None => DefinitionError::Unsupported { at, key },
        })?;
        rules.push((rule, next));
    }
    let default = match reader.text("Default")? {
        None => None,
        Some(target) => Some(find(reader, "Default", target)?),
    };
    Ok(Kind::Choice { rules, default })
}

fn until(reader: &mut Reader<'_>) -> Result<Until, DefinitionError> {
    let seconds = reader.whole_number("Seconds")?.map(Until::Seconds);
    let seconds_path = reader.given_path("SecondsPath")?.map(Until::SecondsPath);
    let moment = match reader.take("Timestamp") {
        None => None,
        Some(value) => {
            let moment = timestamp(value).ok_or_else(|| {
                reader.invalid("Timestamp", "is no time such as 2026-01-01T00:00:00Z")
            })?;
            Some(Until::Timestamp(moment.as_nanosecond()))
        }
    };
    let moment_path = reader.given_path("TimestampPath")?.map(Until::TimestampPath);
    let mut given = [seconds, seconds_path, moment, moment_path].into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(until), None) => Ok(until),
        (None, _) => Err(reader.missing("Seconds, SecondsPath, Timestamp or TimestampPath")),
        (Some(_), Some(_)) => Err(reader.invalid("Seconds", "is there beside another time")),
    }
}

fn parallel(parser: &mut Parser, reader: &mut Reader<'_>) -> Result<Kind, DefinitionError> {
    let branches = reader.array("Branches")?.filter(|branches| !branches.is_empty());
    let branches = branches.ok_or_else(|| reader.missing("Branches"))?;
    let branches = branches.iter().enumerate().map(|(position, branch)| {
        parser.nested(Reader::new(format!("{}, Branches[{position}]", reader.at()), branch)?)
    });
    Ok(Kind::Parallel { branches: branches.collect::<Result<_, _>>()? })
}

fn map(parser: &mut Parser, reader: &mut Reader<'_>) -> Result<Kind, DefinitionError> {
    let items = reader.path("ItemsPath")?;
    let items = items.ok_or_else(|| reader.invalid("ItemsPath", "is null"))?;
    let selector = match (reader.template("ItemSelector")?, reader.template("Parameters")?) {
        (Some(_), Some(_)) => {
            return Err(reader.invalid("Parameters", "is there beside ItemSelector"));
        }
        (selector, parameters) => selector.or(parameters),
    };
    let key = if reader.has("Iterator") { "Iterator" } else { "ItemProcessor" };
    let processor = reader.take(key).ok_or_else(|| reader.missing(key))?;
    let mut nested = Reader::new(format!("{}, {key}", reader.at()), processor)?;
    if let Some(value) = nested.take("ProcessorConfig") {
        let mut config = Reader::new(format!("{}, ProcessorConfig", nested.at()), value)?;
        if config.text("Mode")?.is_some_and(|mode| mode != "INLINE") {
            return Err(config.invalid("Mode", "is not INLINE"));
        }
        config.finish()?;
    }
    let concurrency = amount(reader, "MaxConcurrency", "MaxConcurrencyPath")?;
    Ok(Kind::Map { items, selector, processor: parser.nested(nested)?, concurrency })
}

fn amount(reader: &mut Reader<'_>, key: &str, path: &str) -> Result<Amount, DefinitionError> {
    match (reader.whole_number(key)?, reader.given_path(path)?) {
        (Some(_), Some(_)) => Err(reader.invalid(path, format!("is there beside {key}"))),
        (Some(number), None) => Ok(Amount::Number(number)),
        (None, Some(path)) => Ok(Amount::Path(path)),
        (None, None) => Ok(Amount::None),
    }
}

fn text(reader: &mut Reader<'_>, key: &str, path: &str) -> Result<Text, DefinitionError> {
    match (reader.text(key)?, reader.given_path(path)?) {
        (Some(_), Some(_)) => Err(reader.invalid(path, format!("is there beside {key}"))),
        (Some(text), None) => Ok(Text::Literal(text.to_owned())),
        (None, Some(path)) => Ok(Text::Path(path)),
        (None, None) => Ok(Text::None),
    }
}

fn retriers(reader: &mut Reader<'_>) -> Result<Vec<Retrier>, DefinitionError> {
    let values = reader.array("Retry")?.unwrap_or_default();
    let parse = |(index, value): (usize, &Value)| {
        let is_last = index + 1 == values.len();
        let mut retrier = Reader::new(format!("{}, Retry", reader.at()), value)?;
        retrier.ignore(&["Comment"]);
        if retrier.text("JitterStrategy")?.is_some_and(|strategy| strategy != "NONE") {
            return Err(retrier.invalid("JitterStrategy", "is not NONE"));
        }
        let parsed = Retrier {
            errors: errors(&mut retrier, is_last)?,
            interval_s: seconds(&mut retrier, "IntervalSeconds")?.unwrap_or(INTERVAL_S),
            max_attempts: retrier.whole_number("MaxAttempts")?.unwrap_or(MAX_ATTEMPTS),
            backoff_rate: retrier.number("BackoffRate")?.unwrap_or(BACKOFF_RATE),
            max_delay_s: seconds(&mut retrier, "MaxDelaySeconds")?,
        };
        if parsed.backoff_rate < 1.0 {
            return Err(retrier.invalid("BackoffRate", "is below 1"));
        }
        retrier.finish()?;
        Ok(parsed)
    };
    values.iter().enumerate().map(parse).collect()
}

/// Seconds of a pause, 1 at least: without one a state that always fails would never let go.
fn seconds(reader: &mut Reader<'_>, key: &str) -> Result<Option<u64>, DefinitionError> {
    match reader.whole_number(key)? {
        Some(0) => Err(reader.invalid(key, "is 0")),
        seconds => Ok(seconds),
    }
}

fn catchers(
    reader: &mut Reader<'_>,
    find: &dyn Fn(&Reader<'_>, &str, &str) -> Found,
) -> Result<Vec<Catcher>, DefinitionError> {
    let values = reader.array("Catch")?.unwrap_or_default();
    let parse = |(index, value): (usize, &Value)| {
        let is_last = index + 1 == values.len();
        let mut catcher = Reader::new(format!("{}, Catch", reader.at()), value)?;
        catcher.ignore(&["Comment"]);
        let target = catcher.text("Next")?.ok_or_else(|| catcher.missing("Next"))?;
        let parsed = Catcher {
            errors: errors(&mut catcher, is_last)?,
            next: find(&catcher, "Next", target)?,
            result_path: catcher.reference("ResultPath")?,
        };
        catcher.finish()?;
        Ok(parsed)
    };
    values.iter().enumerate().map(parse).collect()
}

/// The names of errors. What stands for all of them stands alone and in the last, as nothing after it
/// would ever be reached (*Amazon States Language*, Errors).
fn errors(reader: &mut Reader<'_>, is_last: bool) -> Result<Vec<String>, DefinitionError> {
    let values = reader.array("ErrorEquals")?.filter(|names| !names.is_empty());
    let values = values.ok_or_else(|| reader.missing("ErrorEquals"))?;
    let text = |name: &Value| {
        name.as_str()
            .map(str::to_owned)
            .ok_or_else(|| reader.invalid("ErrorEquals", "holds no names"))
    };
    let errors = values.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let has_all = errors.iter().any(|name| name == names::ALL);
    if has_all && errors.len() > 1 {
        let problem = format!("has other names beside {}", names::ALL);
        return Err(reader.invalid("ErrorEquals", problem));
    }
    if has_all && !is_last {
        let problem = format!("is {}, and others come after it", names::ALL);
        return Err(reader.invalid("ErrorEquals", problem));
    }
    Ok(errors)
}
