//! Definitions, parsed and checked.

mod reader;
mod states;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use crate::choice::Rule;
use crate::error::DefinitionError;
use crate::path::Path;
use crate::retry::{Catcher, Retrier};
use crate::template::Template;
use reader::Reader;

/// A definition that can be executed.
#[derive(Debug, Clone)]
pub struct StateMachine {
    /// The whole, and the branches and processors within it; the first is the whole.
    pub(crate) machines: Arc<[Machine]>,
    /// How long an execution may take, in seconds.
    pub(crate) timeout_s: Option<u64>,
}

/// States that lead to each other: a definition, a branch, or what a map state does to each item.
#[derive(Debug)]
pub(crate) struct Machine {
    pub states: Vec<State>,
    pub start: usize,
}

#[derive(Debug)]
pub(crate) struct State {
    pub name: String,
    pub kind: Kind,
    /// None: it ends its machine, or says itself where to go on.
    pub next: Option<usize>,
    /// None: an empty object instead of the input.
    pub input: Option<Path>,
    pub output: Option<Path>,
    pub parameters: Option<Template>,
    pub result_selector: Option<Template>,
    /// None discards the result.
    pub result: Option<Path>,
    pub retry: Vec<Retrier>,
    pub catch: Vec<Catcher>,
    /// Whether it reads the context object.
    pub uses_context: bool,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Task { target: Target, timeout: Amount },
    Pass { result: Option<Value> },
    Choice { rules: Vec<(Rule, usize)>, default: Option<usize> },
    Wait(Until),
    Succeed,
    Fail { error: Text, cause: Text },
    Parallel { branches: Vec<usize> },
    Map { items: Path, selector: Option<Template>, processor: usize, concurrency: Amount },
}

impl Kind {
    /// The state's type, as definitions and history events name it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Task { .. } => "Task",
            Self::Pass { .. } => "Pass",
            Self::Choice { .. } => "Choice",
            Self::Wait(_) => "Wait",
            Self::Succeed => "Succeed",
            Self::Fail { .. } => "Fail",
            Self::Parallel { .. } => "Parallel",
            Self::Map { .. } => "Map",
        }
    }
}

/// What a task invokes, and what it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The function of this ARN or name, with the state's input; its answer is the result.
    Function(String),
    /// The function that the parameters name (`arn:aws:states:::lambda:invoke`), with their `Payload`; the
    /// result is its answer in an envelope.
    Parameters,
}

/// A number that is given, or found in the input.
#[derive(Debug)]
pub(crate) enum Amount {
    None,
    Number(u64),
    Path(Path),
}

/// A text that is given, or found in the input.
#[derive(Debug)]
pub(crate) enum Text {
    None,
    Literal(String),
    Path(Path),
}

/// How long a state waits.
#[derive(Debug)]
pub(crate) enum Until {
    Seconds(u64),
    SecondsPath(Path),
    Timestamp(i128),
    TimestampPath(Path),
}

impl StateMachine {
    /// Parses a definition.
    ///
    /// # Errors
    /// It is no definition, or needs something that this interpreter does not do: by state and key.
    pub fn parse(text: &str) -> Result<Self, DefinitionError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| DefinitionError::Json(error.to_string()))?;
        let mut reader = Reader::new("the definition".to_owned(), &value)?;
        reader.ignore(&["Comment", "Version"]);
        reader.language()?;
        let timeout_s = reader.whole_number("TimeoutSeconds")?;
        if timeout_s == Some(0) {
            return Err(reader.invalid("TimeoutSeconds", "is 0"));
        }
        let mut parser = Parser::default();
        // Its own place comes first, before those of the machines in it.
        parser.machines.push(None);
        let machine = parser.machine(&mut reader)?;
        reader.finish()?;
        parser.machines[0] = Some(machine);
        let machines: Option<Vec<_>> = parser.machines.into_iter().collect();
        Ok(Self { machines: machines.expect("each was parsed").into(), timeout_s })
    }

    /// The same, with executions that take so many seconds at most.
    #[must_use]
    pub fn with_timeout(self, seconds: u64) -> Self {
        let timeout_s = Some(self.timeout_s.map_or(seconds, |own| own.min(seconds)));
        Self { timeout_s, ..self }
    }

    /// The names or ARNs of the functions that tasks name in the definition itself, each once.
    #[must_use]
    pub fn functions(&self) -> Vec<&str> {
        let mut functions = Vec::new();
        for state in self.machines.iter().flat_map(|machine| &machine.states) {
            let Kind::Task { target, .. } = &state.kind else { continue };
            let name = match (target, &state.parameters) {
                (Target::Function(name), _) => Some(name.as_str()),
                (Target::Parameters, Some(Template::Value(value))) => {
                    value["FunctionName"].as_str()
                }
                (Target::Parameters, Some(Template::Object(entries))) => {
                    entries.iter().find_map(|(key, entry)| match entry {
                        Template::Value(value) if key == "FunctionName" => value.as_str(),
                        _ => None,
                    })
                }
                _ => None,
            };
            functions.extend(name.filter(|name| !functions.contains(name)));
        }
        functions
    }
}

/// Parses machines, which hold others.
#[derive(Default)]
struct Parser {
    machines: Vec<Option<Machine>>,
    names: HashSet<String>,
}

impl Parser {
    /// Parses `StartAt` and `States`.
    fn machine(&mut self, reader: &mut Reader<'_>) -> Result<Machine, DefinitionError> {
        let start = reader.text("StartAt")?.ok_or_else(|| reader.missing("StartAt"))?.to_owned();
        let states = reader.object("States")?.ok_or_else(|| reader.missing("States"))?;
        let index: HashMap<&str, usize> =
            states.keys().enumerate().map(|(position, name)| (name.as_str(), position)).collect();
        let find = |reader: &Reader<'_>, key: &str, target: &str| {
            index.get(target).copied().ok_or_else(|| DefinitionError::NoState {
                at: reader.at().to_owned(),
                key: key.to_owned(),
                target: target.to_owned(),
            })
        };
        let start = find(reader, "StartAt", &start)?;
        let mut parsed = Vec::with_capacity(states.len());
        for (name, value) in states {
            if !self.names.insert(name.clone()) {
                return Err(DefinitionError::Repeated { at: format!("state {name}") });
            }
            parsed.push(states::parse(self, name, value, &find)?);
        }
        let machine = Machine { states: parsed, start };
        check_reached(&machine)?;
        Ok(machine)
    }

    /// Parses a machine within another; returns where it is.
    fn nested(&mut self, mut reader: Reader<'_>) -> Result<usize, DefinitionError> {
        let position = self.machines.len();
        self.machines.push(None);
        reader.ignore(&["Comment"]);
        reader.language()?;
        let machine = self.machine(&mut reader)?;
        reader.finish()?;
        self.machines[position] = Some(machine);
        Ok(position)
    }
}

/// Checks that every state can be reached from the start.
fn check_reached(machine: &Machine) -> Result<(), DefinitionError> {
    let mut reached = vec![false; machine.states.len()];
    let mut waiting = vec![machine.start];
    while let Some(position) = waiting.pop() {
        if std::mem::replace(&mut reached[position], true) {
            continue;
        }
        let state = &machine.states[position];
        waiting.extend(state.next);
        waiting.extend(state.catch.iter().map(|catcher| catcher.next));
        if let Kind::Choice { rules, default } = &state.kind {
            waiting.extend(rules.iter().map(|(_, next)| *next));
            waiting.extend(default);
        }
    }
    match reached.iter().position(|reached| !reached) {
        None => Ok(()),
        Some(position) => Err(DefinitionError::Unreachable {
            at: format!("state {}", machine.states[position].name),
        }),
    }
}
