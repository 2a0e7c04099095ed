//! How the worker behaves: the configuration file of `uncia-engine serve`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value as Json;
use uncia_policy::{Parameters, Policies, PolicyNames, Resources, UnknownPolicy};

use crate::instance::{Located, Runtime, Services};
use crate::json::UniqueKeys;
use crate::meterlog::Keeping;
use crate::settings::{Overrides, Target, function, platform};
use crate::traces;

/// The configuration, every key optional; an unknown key is an error, and so is one that is there twice.
///
/// What is a number, a word or true or false is a [setting](crate::settings), declared there with its
/// range, its default and what it means.
#[derive(Debug, Clone)]
pub struct Config {
    /// Defaults of functions' settings.
    pub function_defaults: Overrides,
    /// Instances, and requests in flight, on the whole platform; 1 or more.
    pub max_instances: u32,
    /// What instances may be allocated together.
    pub capacity: Resources,
    /// Processes and threads in an instance; 2 or more.
    pub pids_max: u64,
    /// How long an initialization may take, in ms; above zero.
    pub init_timeout_ms: u64,
    /// From SIGTERM to SIGKILL when an instance is stopped, in ms.
    pub stop_grace_ms: u64,
    /// How long requests in flight may take when the platform is stopped, in ms.
    pub shutdown_grace_ms: u64,
    /// The wait before the second attempt of an asynchronous invocation, in ms.
    pub event_retry_ms: u64,
    /// Asynchronous invocations that may wait; 1 or more.
    pub event_queue: usize,
    /// Rows that each table of the platform's log keeps; 1 or more.
    pub log_rows: u64,
    /// When that log is written.
    pub log: Keeping,
    /// Started runtimes that wait for functions that want one, of each kind.
    pub pool: u32,
    /// How long after an answer the machine's CPUs do not sleep, in ms; 0: they may at once.
    pub stay_awake_ms: u64,
    /// Whether the thread that answers goes first while it takes little, and functions that use all the CPU
    /// they may let others go first.
    pub precedence: bool,
    /// Whether the configuration says so itself: then it is told where that has no effect.
    pub asks_precedence: bool,
    /// Whether functions may name the CPUs that they run on.
    pub cpusets: bool,
    /// The most bytes of data that a state of a state machine may get or give; 1 or more.
    pub data_limit: usize,
    /// Bytes of fetched packages that are kept for later instances.
    pub code_cache_bytes: u64,
    /// Bytes of checkpoints that are kept, and as many of what functions share.
    pub checkpoint_cache_bytes: u64,
    /// Seeds the policies' random choices.
    pub seed: u64,
    /// Names in the Host header that are accepted besides those of the loopback interface.
    pub allowed_hosts: Vec<String>,
    /// Folders below which clients may name images of functions; none without them.
    pub images: Vec<PathBuf>,
    /// Registries, `HOST:PORT` each, of which clients may name images of functions; none without them.
    pub registries: Vec<String>,
    /// Services beside functions.
    pub services: Services,
    /// Memory with which a function that sets no CPU gets one vCPU, in bytes.
    pub memory_per_vcpu_bytes: u64,
    /// Interpreters that are not taken from the PATH.
    pub runtimes: Runtimes,
    /// A folder in which platforms of one user keep copies of runtimes for each other.
    pub runtimes_cache: Option<PathBuf>,
    /// Which policy makes which choice, by name; Lambda's unless they are named.
    pub policies: PolicyNames,
    /// What the policies read beside the functions' settings.
    pub parameters: Parameters,
    /// By which costs of its invocations are shown, where whoever started the platform says so; it bills nothing
    /// itself.
    pub tariff: Option<String>,
    /// Where spans of invocations are sent, if at all; no part of the file.
    pub traces: Option<traces::Settings>,
}

impl Default for Config {
    fn default() -> Self {
        let mut config = Self {
            function_defaults: Overrides::default(),
            max_instances: 0,
            capacity: Resources::UNBOUNDED,
            pids_max: 0,
            init_timeout_ms: 0,
            stop_grace_ms: 0,
            shutdown_grace_ms: 0,
            event_retry_ms: 0,
            event_queue: 0,
            log_rows: 0,
            log: Keeping::Durable,
            pool: 0,
            stay_awake_ms: 0,
            precedence: true,
            asks_precedence: false,
            cpusets: false,
            data_limit: 0,
            code_cache_bytes: 0,
            checkpoint_cache_bytes: 0,
            seed: 0,
            memory_per_vcpu_bytes: 0,
            allowed_hosts: Vec::new(),
            images: Vec::new(),
            registries: Vec::new(),
            services: Services::default(),
            runtimes: Runtimes::default(),
            runtimes_cache: None,
            policies: PolicyNames::default(),
            parameters: Parameters::default(),
            tariff: None,
            traces: None,
        };
        for setting in platform::ALL {
            setting.set_default(&mut Target::of_config(&mut config));
        }
        config
    }
}

/// Interpreters by the name of their runtime; those not named are found on the PATH.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "UniqueKeys<PathBuf>")]
pub struct Runtimes(pub BTreeMap<String, PathBuf>);

impl TryFrom<UniqueKeys<PathBuf>> for Runtimes {
    type Error = String;

    fn try_from(UniqueKeys(paths): UniqueKeys<PathBuf>) -> Result<Self, String> {
        let known = || Runtime::all().iter().filter(|it| it.requirement().is_some());
        match paths.keys().find(|name| known().all(|it| it.name() != **name)) {
            Some(name) => {
                let known: Vec<_> = known().map(|it| format!("`{}`", it.name())).collect();
                Err(format!("unknown runtime `{name}`, expected one of {}", known.join(", ")))
            }
            None => Ok(Self(paths)),
        }
    }
}

/// The configuration as it is written.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Form {
    #[serde(default)]
    allowed_hosts: Vec<String>,
    #[serde(default)]
    images: Vec<PathBuf>,
    #[serde(default)]
    registries: Vec<String>,
    #[serde(default)]
    services: UniqueKeys<Located>,
    #[serde(default)]
    runtimes: Runtimes,
    runtimes_cache: Option<PathBuf>,
    #[serde(default)]
    policies: UniqueKeys<String>,
    tariff: Option<String>,
    #[serde(flatten)]
    settings: UniqueKeys<Json>,
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum ConfigError {
    #[error("the configuration is not valid: {0}")]
    Form(#[from] serde_json::Error),
    #[error("the configuration is not valid: `{key}` must be {rule}, not {found}")]
    Setting { key: String, rule: String, found: Json },
    #[error("the configuration is not valid: unknown key `{key}`, expected one of {}", known.join(", "))]
    UnknownKey { key: String, known: Vec<String> },
    #[error("the configuration is not valid: no policy decides `{choice}`, expected one of {}", known.join(", "))]
    UnknownChoice { choice: String, known: Vec<String> },
    #[error("the configuration is not valid: folders of `{key}` must be absolute, not {folder}")]
    RelativeFolder { key: &'static str, folder: PathBuf },
    #[error("the configuration is not valid: `registries` must be HOST:PORT each, not {0:?}")]
    Registry(String),
    #[error("the configuration is not valid: {0}")]
    Service(String),
    #[error("the configuration is not valid: {0}")]
    UnknownPolicy(#[from] UnknownPolicy),
    #[error(
        "the configuration is not valid: `{setting}` and `policies.{choice}` are the same choice, so only one of them may be given"
    )]
    ChoiceTwice { setting: &'static str, choice: &'static str },
}

/// Keys whose values have parts; those of [`Form`].
const STRUCTURED: [&str; 8] = [
    "allowed_hosts",
    "images",
    "registries",
    "services",
    "runtimes",
    "runtimes_cache",
    "policies",
    "tariff",
];

/// Settings that choose a policy, each with what it chooses.
const CHOICES_THAT_ARE_SETTINGS: [(&str, &str); 2] =
    [("binding", "binding"), ("cpu_sharing", "cpu")];

/// The setting that is on unless told otherwise, and is asked for where somebody names it.
const PRECEDENCE: &str = "precedence";

impl Config {
    /// Reads a configuration from JSON text.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let form: Form = serde_json::from_str(text)?;
        let folders = form.images.iter().map(|folder| ("images", folder));
        let mut folders =
            folders.chain(form.runtimes_cache.iter().map(|it| ("runtimes_cache", it)));
        if let Some((key, relative)) = folders.find(|(_, folder)| !folder.is_absolute()) {
            return Err(ConfigError::RelativeFolder { key, folder: relative.clone() });
        }
        let is_address = |text: &String| {
            text.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            })
        };
        if let Some(other) = form.registries.iter().find(|it| !is_address(it)) {
            return Err(ConfigError::Registry(other.clone()));
        }
        let mut config = Self {
            allowed_hosts: form.allowed_hosts,
            images: form.images,
            registries: form.registries,
            services: Services::new(form.services.0).map_err(ConfigError::Service)?,
            runtimes: form.runtimes,
            runtimes_cache: form.runtimes_cache,
            tariff: form.tariff,
            ..Self::default()
        };
        let UniqueKeys(settings) = form.settings;
        let UniqueKeys(policies) = form.policies;
        for (setting, choice) in CHOICES_THAT_ARE_SETTINGS {
            if settings.contains_key(setting) && policies.contains_key(choice) {
                return Err(ConfigError::ChoiceTwice { setting, choice });
            }
        }
        let names_precedence = settings.contains_key(PRECEDENCE);
        for (key, value) in settings {
            config.set(key, value)?;
        }
        config.asks_precedence = names_precedence && config.precedence;
        for (choice, name) in policies {
            match config.policies.get_mut(&choice) {
                Some(policy) => *policy = name,
                None => {
                    let known = Policies::choices().into_iter();
                    let known = known.map(|choice| format!("`{}`", choice.name)).collect();
                    return Err(ConfigError::UnknownChoice { choice, known });
                }
            }
        }
        config.policies()?;
        Ok(config)
    }

    /// Sets a setting of the platform, or the default of one of functions.
    fn set(&mut self, key: String, json: Json) -> Result<(), ConfigError> {
        let has_key = |config_key: Option<String>| config_key.as_deref() == Some(&key);
        let of_platform = platform::ALL.iter().find(|it| has_key(it.config_key()));
        let of_function = function::ALL.iter().position(|it| has_key(it.config_key()));
        let kind = match (of_platform, of_function) {
            (Some(setting), _) => &setting.kind,
            (None, Some(index)) => &function::ALL[index].kind,
            (None, None) => return Err(ConfigError::UnknownKey { key, known: known_keys() }),
        };
        let value = match kind.parse_json(&json) {
            Ok(value) => value,
            Err(rule) => return Err(ConfigError::Setting { key, rule, found: json }),
        };
        match of_function {
            Some(index) => self.function_defaults.set(index, value),
            None => kind.set(&mut Target::of_config(self), value),
        }
        Ok(())
    }

    /// The policies that it names.
    pub fn policies(&self) -> Result<Policies, UnknownPolicy> {
        Policies::from_names(&self.policies)
    }

    /// Whether what instances reserve is counted, and said in their rows.
    pub(crate) fn counts_reservations(&self) -> bool {
        self.capacity != Resources::UNBOUNDED
    }

    /// The memory that there is for instances, in bytes, where that is counted.
    pub(crate) fn capacity_memory(&self) -> Option<u64> {
        Some(self.capacity.memory).filter(|memory| *memory != u64::MAX)
    }

    /// Whether a policy decides whose the CPUs are.
    pub(crate) fn shares_cpus(&self) -> bool {
        self.policies.cpu != PolicyNames::default().cpu
    }

    /// Why the CPUs cannot be shared as it says, on a machine with so many, if they cannot: a sentence.
    pub(crate) fn cpu_refusal(&self, cpus: usize) -> Option<String> {
        let needs_cores = matches!(self.policies.cpu.as_str(), "pinned" | "by-reservation");
        let most = cpus as u64 * 1_000_000;
        if !needs_cores || self.capacity.cpu <= most {
            return None;
        }
        let capacity = match self.capacity.cpu {
            u64::MAX => "none".to_owned(),
            micro => format!("{} vCPU", micro as f64 / 1e6),
        };
        Some(format!(
            "cpu_sharing pinned and idle reserve cores, so they need a capacity_cpu of at most the {cpus} that this \
             process may run on: it is {capacity}"
        ))
    }

    pub(crate) fn stop_grace(&self) -> Duration {
        Duration::from_millis(self.stop_grace_ms)
    }

    pub(crate) fn shutdown_grace(&self) -> Duration {
        Duration::from_millis(self.shutdown_grace_ms)
    }

    pub(crate) fn stay_awake(&self) -> Duration {
        Duration::from_millis(self.stay_awake_ms)
    }
}

/// All keys, for people.
fn known_keys() -> Vec<String> {
    let settings = function::ALL.iter().chain(&platform::ALL);
    let keys = settings.filter_map(|setting| setting.config_key());
    let mut keys: Vec<_> = keys.chain(STRUCTURED.map(str::to_owned)).collect();
    keys.sort();
    keys.iter().map(|key| format!("`{key}`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Kind, Value};

    #[test]
    fn an_empty_object_is_the_default() {
        let config = Config::parse("{}").unwrap();
        assert_eq!(config.max_instances, 100);
        assert_eq!(config.function_defaults, Overrides::default());
        assert_eq!((config.pids_max, config.event_queue), (256, 10_000));
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = Config::parse(r#"{"keep_alive": 3}"#).unwrap_err().to_string();
        assert!(error.contains("`keep_alive`") && error.contains("`keep_alive_ms`"), "{error}");
    }

    #[test]
    fn a_value_out_of_range_is_named() {
        let error = Config::parse(r#"{"period_us": 10}"#).unwrap_err().to_string();
        assert!(error.contains("`period_us`") && error.contains("1000"), "{error}");
        assert!(Config::parse(r#"{"max_instances": 0}"#).is_err());
        assert!(Config::parse(r#"{"default_network": "internet"}"#).is_err());
        let error = Config::parse(r#"{"keep_alive_cpu": "stop"}"#).unwrap_err().to_string();
        assert!(error.contains("freeze, scale-down or run, not \"stop\""), "{error}");
        let error = Config::parse(r#"{"keep_alive_ms": "5"}"#).unwrap_err().to_string();
        assert!(error.contains("`keep_alive_ms` must be a whole number, not \"5\""), "{error}");
        assert!(Config::parse(r#"{"init_throttled": 1}"#).is_err());
    }

    #[test]
    fn interpreters_by_name() {
        let config = Config::parse(r#"{"runtimes": {"node": "/opt/node"}}"#).unwrap();
        assert_eq!(config.runtimes.0["node"], PathBuf::from("/opt/node"));
        for unknown in ["perl", "provided"] {
            let text = format!(r#"{{"runtimes": {{"{unknown}": "/x"}}}}"#);
            let error = Config::parse(&text).unwrap_err().to_string();
            assert!(error.contains(unknown) && error.contains("`python`"), "{error}");
        }
    }

    #[test]
    fn policies_by_name() {
        let config = Config::parse(r#"{"policies": {"order": "shortest-job-first"}}"#).unwrap();
        assert_eq!(config.policies.order, "shortest-job-first");
        let error = Config::parse(r#"{"policies": {"order": "x"}}"#).unwrap_err().to_string();
        assert!(error.contains("first-come"), "{error}");
        let error = Config::parse(r#"{"policies": {"luck": "x"}}"#).unwrap_err().to_string();
        assert!(error.contains("placement"), "{error}");
    }

    #[test]
    fn the_binding_is_given_once() {
        for text in [r#"{"binding": "late"}"#, r#"{"policies": {"binding": "late"}}"#] {
            assert_eq!(Config::parse(text).unwrap().policies.binding, "late");
        }
        let text = r#"{"binding": "late", "policies": {"binding": "early"}}"#;
        let error = Config::parse(text).unwrap_err().to_string();
        assert!(error.contains("`binding` and `policies.binding`"), "{error}");
    }

    #[test]
    fn precedence_is_asked_for_by_whoever_names_it() {
        for (text, is_on, asks) in [
            ("{}", true, false),
            (r#"{"precedence": true}"#, true, true),
            (r#"{"precedence": false}"#, false, false),
        ] {
            let config = Config::parse(text).unwrap();
            assert_eq!((config.precedence, config.asks_precedence), (is_on, asks), "{text}");
        }
    }

    #[test]
    fn a_key_twice_is_named() {
        for (text, key) in [
            (r#"{"seed": 1, "log_rows": 2, "seed": 1}"#, "seed"),
            (r#"{"allowed_hosts": [], "allowed_hosts": []}"#, "allowed_hosts"),
            (r#"{"policies": {}, "policies": {}}"#, "policies"),
            (r#"{"policies": {"order": "first-come", "order": "first-come"}}"#, "order"),
            (r#"{"runtimes": {"node": "/a", "node": "/b"}}"#, "node"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains("duplicate") && error.contains(key), "{error}");
        }
    }

    #[test]
    fn values_of_another_form_are_refused() {
        for text in ["[]", "3", r#"{"policies": null}"#, r#"{"runtimes": []}"#, r#"{"seed": null}"#]
        {
            assert!(Config::parse(text).is_err(), "{text}");
        }
        let error = Config::parse("[]").unwrap_err().to_string();
        assert!(error.contains("expected an object"), "{error}");
    }

    #[test]
    fn every_setting_of_the_platform_sets_something() {
        for setting in platform::ALL {
            let config = || Config::parse(r#"{"binding": "late"}"#).unwrap();
            let values = match &setting.kind {
                Kind::Number { range, .. } => vec![Value::Number(range.start() + 7)],
                Kind::Flag(_) => vec![Value::Flag(false), Value::Flag(true)],
                Kind::Choice(choices) => choices.iter().map(|it| Value::Word(it.0)).collect(),
                Kind::Services(_) => vec![Value::Services(crate::services::Reach(1))],
                Kind::Cpus(_) => vec![setting.kind.parse("0").unwrap()],
            };
            let sets = |value| {
                let mut config = config();
                setting.kind.set(&mut Target::of_config(&mut config), value);
                format!("{config:?}")
            };
            let before = format!("{:?}", config());
            assert!(values.into_iter().any(|value| sets(value) != before), "{}", setting.name);
        }
    }
}
