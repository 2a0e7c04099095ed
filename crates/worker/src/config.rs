//! How the worker behaves: the configuration file of `uncia-engine serve`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use uncia_policy::{Pause, Policies, PolicyNames, UnknownPolicy};

use crate::instance::{Enforcement, Network, Runtime};

/// Shortest and longest period that the kernel's CPU bandwidth control takes.
const PERIOD_US: std::ops::RangeInclusive<u64> = 1_000..=1_000_000;

/// The configuration, every key optional; an unknown key is an error.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Period of the CPU quota, in microseconds; 20 ms as measured on Lambda.
    pub period_us: u64,
    /// Who sees to it that instances get no more than their CPU quota.
    pub enforcement: Enforcement,
    /// An instance that idles this long is removed.
    pub keep_alive_ms: u64,
    /// An instance that idles this long is paused, as `keep_alive_cpu` says.
    pub pause_after_ms: u64,
    /// What an instance may do while it is kept alive.
    pub keep_alive_cpu: KeepAliveCpu,
    /// Requests in flight at once, and instances; more are turned away with 429.
    pub max_instances: u32,
    /// Whether the CPU quota holds during initialization too.
    pub init_throttled: bool,
    /// Whether a request for which an instance is being started may be served by another that is
    /// free before.
    pub binding: BindingName,
    /// What instances can reach unless their function says otherwise.
    pub default_network: NetworkName,
    /// Names in the Host header that are accepted besides those of the loopback interface.
    pub allowed_hosts: Vec<String>,
    pub runtimes: Runtimes,
    /// Processes and threads in an instance.
    pub pids_max: u64,
    /// An initialization that takes longer has failed; 10 s as on Lambda.
    pub init_timeout_ms: u64,
    /// From SIGTERM to SIGKILL when an instance is stopped; 300 ms as on Lambda.
    pub stop_grace_ms: u64,
    /// Requests in flight may take this long to end when the worker is told to stop.
    pub shutdown_grace_ms: u64,
    /// Wait before a failed asynchronous invocation is tried again; twice that before the third
    /// attempt. 1 min as on Lambda.
    pub event_retry_ms: u64,
    /// Which policy makes which choice, by name; Lambda's unless they are named.
    #[serde(deserialize_with = "policy_names")]
    pub policies: PolicyNames,
    /// Of whatever the policies choose at random.
    pub seed: u64,
    /// Asynchronous invocations that may wait; more are turned away with 429.
    pub event_queue: usize,
    /// Rows of each table that the platform's own log keeps; older ones are removed.
    pub log_rows: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            period_us: 20_000,
            enforcement: Enforcement::Kernel,
            keep_alive_ms: 300_000,
            pause_after_ms: 50,
            keep_alive_cpu: KeepAliveCpu::Freeze,
            max_instances: 100,
            init_throttled: false,
            binding: BindingName::Early,
            default_network: NetworkName::None,
            allowed_hosts: Vec::new(),
            runtimes: Runtimes::default(),
            pids_max: 256,
            init_timeout_ms: 10_000,
            stop_grace_ms: 300,
            shutdown_grace_ms: 5_000,
            event_retry_ms: 60_000,
            policies: PolicyNames::default(),
            seed: 0,
            event_queue: 10_000,
            log_rows: 10_000_000,
        }
    }
}

/// Interpreters by the name of their runtime; those not named are found on the PATH.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "BTreeMap<String, PathBuf>")]
pub struct Runtimes(pub BTreeMap<String, PathBuf>);

impl TryFrom<BTreeMap<String, PathBuf>> for Runtimes {
    type Error = String;

    fn try_from(paths: BTreeMap<String, PathBuf>) -> Result<Self, String> {
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

/// What an idle instance may do from `pause_after_ms` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeepAliveCpu {
    /// Nothing, as on Lambda.
    Freeze,
    /// It has 0.01 vCPU.
    ScaleDown,
    /// What it always may.
    Run,
}

impl KeepAliveCpu {
    /// As the policies know it.
    pub fn pause(self) -> Option<Pause> {
        match self {
            Self::Freeze => Some(Pause::Freeze),
            Self::ScaleDown => Some(Pause::ScaleDown),
            Self::Run => None,
        }
    }
}

/// When a request is tied to the instance that serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BindingName {
    Early,
    Late,
}

/// [`Network`] as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkName {
    None,
    Platform,
    Host,
}

impl From<NetworkName> for Network {
    fn from(name: NetworkName) -> Self {
        match name {
            NetworkName::None => Self::None,
            NetworkName::Platform => Self::Platform,
            NetworkName::Host => Self::Host,
        }
    }
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("the configuration is not valid: {0}")]
    Form(#[from] serde_json::Error),
    #[error("the configuration is not valid: `{key}` must be {rule}, not {found}")]
    Range { key: &'static str, rule: String, found: u64 },
}

impl Config {
    /// Reads a configuration from JSON text.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = serde_json::from_str(text)?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        check_period(self.period_us).map_err(|rule| ConfigError::Range {
            key: "period_us",
            rule,
            found: self.period_us,
        })?;
        let at_least = |key, found: u64, least: u64| {
            if found < least {
                return Err(ConfigError::Range { key, rule: format!("at least {least}"), found });
            }
            Ok(())
        };
        at_least("max_instances", self.max_instances.into(), 1)?;
        // The first process of an instance, and the runtime's own threads.
        at_least("pids_max", self.pids_max, 2)?;
        at_least("init_timeout_ms", self.init_timeout_ms, 1)?;
        at_least("event_queue", self.event_queue as u64, 1)?;
        at_least("log_rows", self.log_rows, 1)
    }

    /// The policies that it names.
    pub fn policies(&self) -> Result<Policies, UnknownPolicy> {
        let mut names = self.policies.clone();
        if self.binding == BindingName::Late {
            names.binding = "late".to_owned();
        }
        Policies::from_names(&names)
    }

    pub fn stop_grace(&self) -> Duration {
        Duration::from_millis(self.stop_grace_ms)
    }

    pub fn shutdown_grace(&self) -> Duration {
        Duration::from_millis(self.shutdown_grace_ms)
    }
}

/// Reads policies by kind and name: `{"placement": "least-loaded"}`.
fn policy_names<'de, D: serde::Deserializer<'de>>(input: D) -> Result<PolicyNames, D::Error> {
    let mut names = PolicyNames::default();
    for (kind, name) in BTreeMap::<String, String>::deserialize(input)? {
        *names.get_mut(&kind).ok_or_else(|| {
            let known: Vec<_> = Policies::known().into_iter().map(|(kind, _)| kind).collect();
            let known = known.join(", ");
            serde::de::Error::custom(format!("no policy decides `{kind}`; there are: {known}"))
        })? = name;
    }
    Policies::from_names(&names).map_err(serde::de::Error::custom)?;
    Ok(names)
}

/// Whether the kernel takes the period; the error is the rule in words.
pub fn check_period(period_us: u64) -> Result<(), String> {
    if PERIOD_US.contains(&period_us) {
        return Ok(());
    }
    Err(format!("between {} and {}", PERIOD_US.start(), PERIOD_US.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_object_is_the_default() {
        let config = Config::parse("{}").unwrap();
        assert_eq!(config.max_instances, 100);
        assert_eq!(config.period_us, 20_000);
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
        assert!(error.contains("`scale-down`"), "{error}");
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
    fn enforcement_by_name() {
        let config = Config::parse(r#"{"enforcement": "event-driven"}"#).unwrap();
        assert_eq!(config.enforcement, Enforcement::EventDriven);
        assert_eq!(Config::default().enforcement, Enforcement::Kernel);
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
    fn keep_alive_by_name() {
        let pause = |name: &str| {
            let text = format!(r#"{{"keep_alive_cpu": "{name}"}}"#);
            Config::parse(&text).unwrap().keep_alive_cpu.pause()
        };
        assert_eq!(pause("freeze"), Some(Pause::Freeze));
        assert_eq!(pause("scale-down"), Some(Pause::ScaleDown));
        assert_eq!(pause("run"), None);
        assert_eq!(Config::default().keep_alive_cpu, KeepAliveCpu::Freeze);
    }
}
