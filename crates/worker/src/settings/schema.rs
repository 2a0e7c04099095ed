//! Settings, policies and runtimes as `uncia-engine schema` prints them.
//!
//! Python has copies in `python/uncia/settings`, from which it makes its forms, options and pages;
//! `make settings` writes them.

use serde::{Serialize, Serializer};
use uncia_policy::Policies;

use crate::instance::Runtime;
use crate::sandbox::Client;
use crate::services;

use super::{Default, Kind, Scope, Setting, Unit, Value, function, platform};

/// A setting for who cannot read Rust.
#[derive(Serialize)]
struct Description {
    name: &'static str,
    scope: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    /// Of numbers as they are written in `tag` and `config_key`; in `minimum` and so on, too.
    unit: &'static str,
    minimum: Option<u64>,
    maximum: Option<u64>,
    choices: Vec<&'static str>,
    default: Option<Value>,
    /// The default in words, if it follows from something else.
    default_rule: Option<&'static str>,
    tag: Option<String>,
    config_key: Option<String>,
    /// Whether a change of it for a function replaces the function's instances.
    replaces_instances: bool,
    description: &'static str,
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_u64(*number),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Word(word) => serializer.serialize_str(word),
            Self::Services(reach) => {
                let names: Vec<_> = reach.services().map(|(_, service)| service.name).collect();
                serializer.serialize_str(&names.join(" "))
            }
            Self::Cpus(cpus) => serializer.serialize_str(&cpus.to_string()),
        }
    }
}

fn describe(setting: &Setting) -> Description {
    let is_of_function = matches!(setting.scope, Scope::Function { .. });
    let mut description = Description {
        name: setting.name,
        scope: if is_of_function { "function" } else { "platform" },
        kind: "integer",
        unit: "",
        minimum: None,
        maximum: None,
        choices: Vec::new(),
        default: None,
        default_rule: None,
        tag: is_of_function.then(|| setting.tag()),
        config_key: setting.config_key(),
        replaces_instances: setting.replaces_instances(),
        description: setting.description,
    };
    match &setting.kind {
        Kind::Number { unit, range, .. } => {
            (description.kind, description.unit) = match unit {
                Unit::None => ("integer", ""),
                Unit::Milliseconds => ("duration", "ms"),
                Unit::Microseconds => ("duration", "us"),
                Unit::MicroVcpu => ("cpu", "micro-vCPU"),
                Unit::Bytes => ("size", "bytes"),
            };
            description.minimum = Some(*range.start());
            description.maximum = Some(*range.end()).filter(|end| *end != u64::MAX);
        }
        Kind::Flag(_) => description.kind = "boolean",
        Kind::Choice(choices) => {
            description.kind = "choice";
            description.choices = choices.iter().map(|(word, _)| *word).collect();
        }
        Kind::Cpus(_) => description.kind = "cpus",
        Kind::Services(_) => {
            description.kind = "services";
            description.choices = services::ALL.iter().map(|it| it.name).collect();
        }
    }
    match setting.default {
        Default::Value(value) => description.default = Some(value),
        Default::Derived(rule) => description.default_rule = Some(rule),
    }
    description
}

/// A choice of the scheduler's that a policy makes.
#[derive(Serialize)]
struct ChoiceDescription {
    name: &'static str,
    description: &'static str,
    default: &'static str,
    policies: Vec<&'static str>,
}

/// A language runtime.
#[derive(Serialize)]
struct RuntimeDescription {
    name: &'static str,
    /// What the API calls it where its version does not matter.
    identifier: &'static str,
    /// What must be installed for it; null if nothing, and then it has no interpreter.
    requirement: Option<&'static str>,
    /// What its instances can be started from.
    start_from: Vec<&'static str>,
    /// What its instances can share.
    share_state: Vec<&'static str>,
}

/// All settings as JSON text, those of functions first.
pub fn settings_json() -> String {
    let all = function::ALL.iter().chain(&platform::ALL);
    to_json(all.map(|setting| describe(setting)))
}

/// The choices that policies make, with the names of the policies, as JSON text.
pub fn policies_json() -> String {
    to_json(Policies::choices().into_iter().map(|choice| ChoiceDescription {
        name: choice.name,
        description: choice.description,
        default: choice.default,
        policies: choice.policies,
    }))
}

/// The language runtimes as JSON text.
pub fn runtimes_json() -> String {
    to_json(Runtime::all().iter().map(|runtime| RuntimeDescription {
        name: runtime.name(),
        identifier: runtime.identifier(),
        requirement: runtime.requirement(),
        start_from: super::words_for(*runtime, "start_from"),
        share_state: super::words_for(*runtime, "share_state"),
    }))
}

/// A runtime's client of the Runtime API, as JSON.
#[derive(Serialize)]
struct ClientDescription {
    runtime: &'static str,
    interpreter: &'static [&'static str],
    file: &'static str,
    text: &'static str,
}

/// The clients of the Runtime API that go into images: of all runtimes that have one.
pub fn clients_json() -> String {
    to_json(Runtime::all().iter().filter_map(|runtime| {
        let Client { interpreter, file: (file, text) } = runtime.definition().client()?;
        Some(ClientDescription { runtime: runtime.name(), interpreter, file, text })
    }))
}

/// A list as JSON text with a final newline.
fn to_json<T: Serialize>(items: impl Iterator<Item = T>) -> String {
    let items: Vec<T> = items.collect();
    let mut text = serde_json::to_string_pretty(&items).expect("plain data always serializes");
    text.push('\n');
    text
}
