//! Settings: one file each, found by its place in `function` or `platform`.
//!
//! A file defines `SETTING`: its name (the file's), what it means, which values it takes, its default,
//! and what it sets. Nothing else knows a setting by name. Tags `uncia:<key>`, keys of the platform's
//! configuration and their error sentences come from the files; so does [`settings_json`], from which
//! Python makes its forms, options and the reference pages.

mod kind;
mod schema;

pub(crate) mod function {
    //! Settings of a function; of some the platform's configuration sets the default.
    include!(concat!(env!("OUT_DIR"), "/function_settings.rs"));
}

pub(crate) mod platform {
    //! Settings of the platform as a whole.
    include!(concat!(env!("OUT_DIR"), "/platform_settings.rs"));
}

use std::collections::BTreeMap;

use uncia_policy::FunctionSettings;
use uncia_record::Invocation;

pub(crate) use kind::{Kind, Unit, Value};
pub use schema::{clients_json, policies_json, runtimes_json, settings_json};

use crate::config::Config;
use crate::cpu_list::CpuList;
use crate::instance::{Architecture, InstanceSpec, Runtime, Sandbox, ShareState, StartFrom};
use crate::services::Reach;

/// Prefix of the tags that are settings.
const TAG_PREFIX: &str = "uncia:";
const NS_PER_MS: u64 = 1_000_000;

/// A setting as it is declared.
pub(crate) struct Setting {
    pub name: &'static str,
    /// A sentence or two for people, without markup.
    pub description: &'static str,
    pub kind: Kind,
    pub default: Default,
    pub scope: Scope,
}

/// What holds if nobody sets it.
#[derive(PartialEq, Eq)]
pub(crate) enum Default {
    Value(Value),
    /// What follows from something else, in words; the setting then sets nothing.
    Derived(&'static str),
}

/// What a setting is set for.
pub(crate) enum Scope {
    Function {
        /// The key of the platform's configuration that sets the default for all functions.
        platform_key: Option<&'static str>,
        /// Whether instances that were started before a change cannot serve after it.
        replaces_instances: bool,
    },
    Platform,
}

/// Where settings go; each sets what is given of this.
#[derive(Default)]
pub(crate) struct Target<'a> {
    policy: Option<&'a mut FunctionSettings>,
    instance: Option<&'a mut InstanceSpec>,
    row: Option<&'a mut Invocation>,
    config: Option<&'a mut Config>,
    start_from: Option<&'a mut StartFrom>,
    share_state: Option<&'a mut ShareState>,
    sandbox: Option<&'a mut Sandbox>,
    serving: Option<&'a mut Serving>,
    reach: Option<&'a mut Reach>,
    fetched: Option<&'a mut bool>,
}

/// How an instance serves, as far as that is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Serving {
    pub architecture: Option<Architecture>,
    /// Whether the CPU time of a request is limited.
    pub limits_cpu_time: bool,
    /// Requests at a time.
    pub concurrency: Option<u32>,
}

impl<'a> Target<'a> {
    /// Sets what the policies know of a function.
    pub(crate) fn policy(&mut self, set: impl FnOnce(&mut FunctionSettings)) {
        self.policy.as_deref_mut().map(set);
    }

    /// Sets what an instance starts with.
    pub(crate) fn instance(&mut self, set: impl FnOnce(&mut InstanceSpec)) {
        self.instance.as_deref_mut().map(set);
    }

    /// Sets what an invocation's row says of its function. Only what the function itself sets is in
    /// its rows.
    pub(crate) fn row(&mut self, set: impl FnOnce(&mut Invocation)) {
        self.row.as_deref_mut().map(set);
    }

    /// Sets what an instance is started from.
    pub(crate) fn start_from(&mut self, value: StartFrom) {
        self.instance(|spec| spec.start_from = value);
        if let Some(start_from) = self.start_from.as_deref_mut() {
            *start_from = value;
        }
    }

    /// Sets what instances share.
    pub(crate) fn share_state(&mut self, value: ShareState) {
        self.instance(|spec| spec.share_state = value);
        if let Some(share_state) = self.share_state.as_deref_mut() {
            *share_state = value;
        }
    }

    /// Sets which services an instance reaches.
    pub(crate) fn reach(&mut self, value: Reach) {
        self.instance(|spec| spec.reach = value);
        if let Some(reach) = self.reach.as_deref_mut() {
            *reach = value;
        }
    }

    /// Sets whether a zip file is fetched when an instance starts.
    pub(crate) fn fetched(&mut self, value: bool) {
        if let Some(fetched) = self.fetched.as_deref_mut() {
            *fetched = value;
        }
    }

    /// Sets what an instance's processes are in.
    pub(crate) fn sandbox(&mut self, value: Sandbox) {
        self.instance(|spec| spec.sandbox = value);
        if let Some(sandbox) = self.sandbox.as_deref_mut() {
            *sandbox = value;
        }
    }

    /// Sets how an instance gets its requests.
    pub(crate) fn architecture(&mut self, value: Architecture) {
        self.instance(|spec| spec.architecture = value);
        if let Some(serving) = self.serving.as_deref_mut() {
            serving.architecture = Some(value);
        }
    }

    /// Sets how many requests an instance serves at a time.
    pub(crate) fn concurrency(&mut self, value: u32) {
        self.policy(|settings| settings.concurrency = value);
        if let Some(serving) = self.serving.as_deref_mut() {
            serving.concurrency = Some(value);
        }
    }

    /// Sets how much CPU time a request may use.
    pub(crate) fn cpu_time(&mut self, value: std::time::Duration) {
        self.instance(|spec| spec.cpu_time = Some(value));
        if let Some(serving) = self.serving.as_deref_mut() {
            serving.limits_cpu_time = true;
        }
    }

    /// Sets what holds for the platform.
    pub(crate) fn config(&mut self, set: impl FnOnce(&mut Config)) {
        self.config.as_deref_mut().map(set);
    }

    pub(crate) fn of_policy(settings: &'a mut FunctionSettings) -> Self {
        Self { policy: Some(settings), ..Self::default() }
    }

    pub(crate) fn of_instance(spec: &'a mut InstanceSpec) -> Self {
        Self { instance: Some(spec), ..Self::default() }
    }

    pub(crate) fn of_row(row: &'a mut Invocation) -> Self {
        Self { row: Some(row), ..Self::default() }
    }

    pub(crate) fn of_config(config: &'a mut Config) -> Self {
        Self { config: Some(config), ..Self::default() }
    }
}

impl Setting {
    /// Its name with its unit, as in the configuration: `keep_alive_ms`.
    pub(crate) fn key(&self) -> String {
        match self.kind.suffix() {
            "" => self.name.to_owned(),
            suffix => format!("{}_{suffix}", self.name),
        }
    }

    /// The tag that sets it for a function: `uncia:keep-alive-ms`.
    pub(crate) fn tag(&self) -> String {
        format!("{TAG_PREFIX}{}", self.key().replace('_', "-"))
    }

    /// The key that sets it, or its default, in the platform's configuration.
    pub(crate) fn config_key(&self) -> Option<String> {
        match self.scope {
            Scope::Function { platform_key, .. } => platform_key.map(str::to_owned),
            Scope::Platform => Some(self.key()),
        }
    }

    fn replaces_instances(&self) -> bool {
        matches!(self.scope, Scope::Function { replaces_instances: true, .. })
    }

    /// Sets its default.
    pub(crate) fn set_default(&self, to: &mut Target<'_>) {
        if let Default::Value(value) = self.default {
            self.kind.set(to, value);
        }
    }
}

impl Serving {
    /// Why a function of this runtime cannot be served so, if it cannot: a sentence. `default`: how it is
    /// served unless it says so itself.
    fn refusal(
        self,
        runtime: Runtime,
        start_from: StartFrom,
        default: Architecture,
    ) -> Option<String> {
        let (name, tag) = (runtime.name(), format!("{TAG_PREFIX}architecture"));
        let architecture = self.architecture.unwrap_or(default);
        if self.limits_cpu_time && architecture != Architecture::Code {
            return Some(format!(
                "The tag {TAG_PREFIX}cpu-time-ms is for functions whose code is run for each request \
                 alone ({}), not for one in {name}.",
                Runtime::names_of(|it| it.is_code())
            ));
        }
        let is_code = runtime.definition().is_code();
        match architecture {
            Architecture::Polling | Architecture::Http if is_code => Some(format!(
                "The tag {tag} must be code for a function in {name}, whose packages hold no program."
            )),
            Architecture::Code if !is_code => Some(format!(
                "The tag {tag} cannot be code for a function in {name}: it can for one in {}.",
                Runtime::names_of(|it| it.is_code())
            )),
            Architecture::Code if start_from.needs_polling() => Some(format!(
                "The tag {TAG_PREFIX}start-from must be fresh or prepared for a function in {name}: \
                 what others start from polls."
            )),
            Architecture::Polling if self.concurrency.is_some_and(|count| count > 1) => {
                Some(format!(
                    "The tag {TAG_PREFIX}concurrency must be 1 without the tag {tag} set to http: a \
                     runtime that polls serves one request at a time."
                ))
            }
            Architecture::Http if !runtime.definition().serves_http() => Some(format!(
                "The tag {tag} cannot be http for a function in {name}: it can for one in {}.",
                Runtime::names_of(|it| it.serves_http())
            )),
            Architecture::Http if start_from.needs_polling() => Some(format!(
                "The tag {TAG_PREFIX}start-from must be fresh or prepared with the tag {tag} set to \
                 http: what others start from polls."
            )),
            _ => None,
        }
    }
}

/// What a function's tags set, or what the platform's configuration sets for all functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overrides([Option<Value>; function::ALL.len()]);

impl std::default::Default for Overrides {
    fn default() -> Self {
        Self([None; function::ALL.len()])
    }
}

impl Overrides {
    /// Reads the settings among the tags, where `_` is as good as `-`; the error is a sentence.
    pub fn parse(tags: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut overrides = Self::default();
        for (tag, value) in tags {
            let Some(key) = tag.strip_prefix(TAG_PREFIX) else { continue };
            let key = key.replace('-', "_");
            let index =
                function::ALL.iter().position(|setting| setting.key() == key).ok_or_else(|| {
                    let known: Vec<_> = function::ALL.iter().map(|it| it.tag()).collect();
                    format!(
                        "No setting has the tag {tag}; those that have one: {}.",
                        known.join(", ")
                    )
                })?;
            let parsed = function::ALL[index].kind.parse(value);
            let value =
                parsed.map_err(|rule| format!("The tag {tag} must be {rule}, not \"{value}\"."))?;
            overrides.0[index] = Some(value);
        }
        Ok(overrides)
    }

    /// Why a function of this runtime cannot have these settings, if it cannot: a sentence. `default`: how
    /// it is served unless it says so itself.
    pub(crate) fn refusal(&self, runtime: Runtime, default: Architecture) -> Option<String> {
        let start_from = self.start_from();
        if let Some(refusal) = self.serving().refusal(runtime, start_from, default) {
            return Some(refusal);
        }
        if let Some(refusal) = self.refusal_of_container(runtime, start_from) {
            return Some(refusal);
        }
        if let Some(refusal) = self.refusal_of_sharing(runtime, default) {
            return Some(refusal);
        }
        let reason = start_from.refusal(runtime)?;
        let runtime = runtime.name();
        Some(format!(
            "The tag {TAG_PREFIX}start-from does not fit a function in {runtime}: {reason}."
        ))
    }

    fn share_state(&self) -> ShareState {
        let mut share_state = ShareState::None;
        self.apply(&mut Target { share_state: Some(&mut share_state), ..Target::default() });
        share_state
    }

    /// Why the runtime is too old for these settings, if it is: a sentence. `version`: that on this machine.
    pub(crate) fn refusal_of_version(&self, runtime: Runtime, version: &str) -> Option<String> {
        let share_state = self.share_state();
        let reason = runtime.definition().refuse_version(version, share_state)?;
        let name = share_state.name();
        Some(format!("The tag {TAG_PREFIX}share-state cannot be {name} here: {reason}."))
    }

    /// Why instances cannot share what they are to, if they cannot: a sentence.
    fn refusal_of_sharing(&self, runtime: Runtime, default: Architecture) -> Option<String> {
        let share_state = self.share_state();
        if share_state == ShareState::None {
            return None;
        }
        let (name, tag) = (share_state.name(), format!("{TAG_PREFIX}share-state"));
        let can =
            |it: &dyn crate::sandbox::RuntimeDefinition| crate::sandbox::shares(it, share_state);
        if !can(runtime.definition()) {
            return Some(format!(
                "The tag {tag} cannot be {name} for a function in {}: it can for one in {}.",
                runtime.name(),
                Runtime::names_of(can)
            ));
        }
        let architecture = self.serving().architecture.unwrap_or(default);
        (architecture != Architecture::Polling).then(|| {
            format!(
                "The tag {tag} must be none for a function that does not poll: only the platform's own client of \
                 the Runtime API can be asked for what instances share."
            )
        })
    }

    /// Why a function that is an image cannot have these settings, if it cannot: a sentence.
    pub(crate) fn refusal_of_image(&self) -> Option<String> {
        self.start_from().needs_polling().then(|| {
            format!(
                "The tag {TAG_PREFIX}start-from must be fresh or prepared for a function that is an image: \
                 the others start from a runtime of the platform's, and an image brings its own."
            )
        })
    }

    /// Why an instance cannot be a container with these settings, or on this machine, if it is to be one.
    fn refusal_of_container(&self, of: Runtime, start_from: StartFrom) -> Option<String> {
        let mut sandbox = Sandbox::default();
        self.apply(&mut Target { sandbox: Some(&mut sandbox), ..Target::default() });
        let runtime = sandbox.runtime()?;
        let (name, tag) = (runtime.name(), format!("{TAG_PREFIX}sandbox"));
        if of.definition().is_code() {
            return Some(format!(
                "The tag {tag} cannot be {name} for a function in {}, which has no process of its own.",
                of.name()
            ));
        }
        if start_from.needs_polling() {
            return Some(format!(
                "The tag {TAG_PREFIX}start-from must be fresh or prepared with the tag {tag} set to {name}: \
                 what others start from is no container."
            ));
        }
        runtime
            .obstacle()
            .map(|obstacle| format!("The tag {tag} cannot be {name} here: {obstacle}."))
    }

    fn start_from(&self) -> StartFrom {
        let mut start_from = StartFrom::default();
        self.apply(&mut Target { start_from: Some(&mut start_from), ..Target::default() });
        start_from
    }

    /// Whether its zip file is fetched when an instance starts.
    pub(crate) fn is_fetched(&self) -> bool {
        let mut fetched = false;
        self.apply(&mut Target { fetched: Some(&mut fetched), ..Target::default() });
        fetched
    }

    /// Why a function whose package is fetched cannot have these settings, if it cannot: a sentence.
    pub(crate) fn refusal_of_fetched(&self, runtime: Runtime) -> Option<String> {
        let name = runtime.name();
        if runtime.definition().is_code() {
            return Some(format!(
                "The tag {TAG_PREFIX}code must be kept for a function in {name}, whose code is compiled before it \
                 is run."
            ));
        }
        (self.start_from() == StartFrom::FunctionZygote).then(|| {
            format!(
                "The tag {TAG_PREFIX}start-from cannot be function_zygote with the tag {TAG_PREFIX}code set to \
                 fetched: what has run the function's imports has its package."
            )
        })
    }

    /// Which services an instance reaches.
    pub(crate) fn reach(&self) -> Reach {
        let mut reach = Reach::default();
        self.apply(&mut Target { reach: Some(&mut reach), ..Target::default() });
        reach
    }

    /// The CPUs that an instance runs on, and the function's shares, where they are set here.
    pub(crate) fn cpus(&self) -> (Option<CpuList>, Option<u64>) {
        let value = |name: &str| {
            let index = function::ALL.iter().position(|setting| setting.name == name);
            index.and_then(|index| self.0[index])
        };
        let cpus = match value("cpus") {
            Some(Value::Cpus(cpus)) => Some(cpus),
            _ => None,
        };
        let shares = match value("cpu_shares") {
            Some(Value::Number(shares)) => Some(shares),
            _ => None,
        };
        (cpus, shares)
    }

    /// How an instance serves, as far as that is set here.
    pub(crate) fn serving(&self) -> Serving {
        let mut serving = Serving::default();
        self.apply(&mut Target { serving: Some(&mut serving), ..Target::default() });
        serving
    }

    /// Sets the default of the setting with this index among [`function::ALL`].
    pub(crate) fn set(&mut self, index: usize, value: Value) {
        self.0[index] = Some(value);
    }

    /// Sets what is set here, else in `defaults`, else by the settings themselves.
    pub(crate) fn apply_with(&self, defaults: &Self, to: &mut Target<'_>) {
        for (index, setting) in function::ALL.iter().enumerate() {
            match self.0[index].or(defaults.0[index]) {
                Some(value) => setting.kind.set(to, value),
                None => setting.set_default(to),
            }
        }
    }

    /// Sets only what is set here.
    pub(crate) fn apply(&self, to: &mut Target<'_>) {
        for (setting, value) in function::ALL.iter().zip(&self.0) {
            if let Some(value) = value {
                setting.kind.set(to, *value);
            }
        }
    }

    /// Whether instances started with `other` can serve with these.
    pub(crate) fn same_instances(&self, other: &Self) -> bool {
        let values = self.0.iter().zip(&other.0);
        function::ALL
            .iter()
            .zip(values)
            .all(|(setting, (mine, theirs))| mine == theirs || !setting.replaces_instances())
    }
}

/// What an instance can be started from.
pub(crate) fn start_choices() -> Vec<&'static str> {
    choices("start_from")
}

/// The words of a function's setting that is a choice.
fn choices(name: &str) -> Vec<&'static str> {
    let setting = function::ALL.iter().find(|setting| setting.name == name);
    match setting.map(|setting| &setting.kind) {
        Some(Kind::Choice(choices)) => choices.iter().map(|(word, _)| *word).collect(),
        _ => Vec::new(),
    }
}

/// Which of these words functions of a runtime can have.
fn words_for(runtime: Runtime, name: &str) -> Vec<&'static str> {
    let fits = |word: &&'static str| {
        let tag = (format!("{TAG_PREFIX}{name}"), (*word).to_owned());
        let set = Overrides::parse(&BTreeMap::from([tag]));
        set.is_ok_and(|overrides| overrides.refusal(runtime, Architecture::Polling).is_none())
    };
    choices(name).into_iter().filter(fits).collect()
}

/// Milliseconds as nanoseconds.
fn nanoseconds(ms: u64) -> u64 {
    ms.saturating_mul(NS_PER_MS)
}

/// A number as one of 32 bits, or the greatest of those.
fn to_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
