//! A function as it is configured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uncia_policy::{FunctionId, FunctionSettings, Resources};

use crate::config::{Config, KeepAliveCpu, check_period};
use crate::instance::{Enforcement, InstanceSpec, Network, Runtime};
use crate::store::Code;

/// Memory that comes with one vCPU on Lambda, in MB.
const MB_PER_VCPU: u64 = 1_769;
const MICRO_VCPU: u64 = 1_000_000;
const MIB: u64 = 1024 * 1024;
const NS_PER_MS: u64 = 1_000_000;

/// What CreateFunction and UpdateFunctionConfiguration set, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    pub runtime: String,
    pub handler: String,
    pub role: String,
    pub description: String,
    pub timeout_s: u64,
    pub memory_mb: u64,
    pub ephemeral_mb: u64,
    pub environment: BTreeMap<String, String>,
    pub architecture: String,
    pub modified_unix_ms: i64,
    pub revision: String,
    /// Given when the function was created, and no other's, not even of one that has its name later.
    /// Empty for functions of earlier versions.
    #[serde(default)]
    pub key: String,
    pub reserved_concurrency: Option<u32>,
}

impl Configuration {
    /// Stands for a configuration that was stored and cannot be read.
    pub fn unreadable() -> Self {
        Self {
            runtime: "provided.al2023".to_owned(),
            handler: "unknown".to_owned(),
            role: String::new(),
            description: String::new(),
            timeout_s: 3,
            memory_mb: 128,
            ephemeral_mb: 512,
            environment: BTreeMap::new(),
            architecture: if cfg!(target_arch = "aarch64") { "arm64" } else { "x86_64" }.to_owned(),
            modified_unix_ms: 0,
            revision: String::new(),
            key: String::new(),
            reserved_concurrency: None,
        }
    }
}

/// A function's URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlConfig {
    pub id: String,
    pub created_unix_ms: i64,
    pub modified_unix_ms: i64,
}

/// A function at one moment; a change makes a new value.
#[derive(Debug, Clone)]
pub struct Function {
    /// Stays the same for the life of the function, but not across restarts.
    pub id: FunctionId,
    pub name: Arc<str>,
    pub arn: String,
    pub configuration: Configuration,
    pub tags: BTreeMap<String, String>,
    pub overrides: Overrides,
    pub url: Option<UrlConfig>,
    pub code: Arc<Code>,
    /// Why it cannot run, if its package or its configuration was lost.
    pub broken: Option<String>,
    /// Whether it is the configuration that was lost, so that it can only be deleted.
    pub unreadable: bool,
}

impl Function {
    pub fn runtime(&self) -> Runtime {
        Runtime::serving(&self.configuration.runtime)
            .expect("the runtime was checked before the function was stored")
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.configuration.timeout_s)
    }

    pub fn memory_bytes(&self) -> u64 {
        self.configuration.memory_mb * MIB
    }

    /// The CPU allocated in micro-vCPU: in proportion to the memory, unless set.
    pub fn cpu_micro(&self) -> u64 {
        self.overrides.cpu_micro.unwrap_or_else(|| {
            let exact = self.configuration.memory_mb * MICRO_VCPU;
            (exact + MB_PER_VCPU / 2) / MB_PER_VCPU
        })
    }

    pub fn ephemeral_bytes(&self) -> u64 {
        self.configuration.ephemeral_mb * MIB
    }

    /// What the policies know of it.
    pub fn settings(&self, config: &Config) -> FunctionSettings {
        let ms = |value: u64| value.saturating_mul(NS_PER_MS);
        let limits = [self.overrides.max_instances, self.configuration.reserved_concurrency];
        FunctionSettings {
            keep_alive: ms(self.overrides.keep_alive_ms.unwrap_or(config.keep_alive_ms)),
            pause_after: ms(self.overrides.pause_after_ms.unwrap_or(config.pause_after_ms)),
            pause: self.overrides.keep_alive_cpu.unwrap_or(config.keep_alive_cpu).pause(),
            max_in_flight: limits.into_iter().flatten().min().unwrap_or(config.max_instances),
            allocation: Resources { cpu: self.cpu_micro(), memory: self.memory_bytes() },
            ..FunctionSettings::default()
        }
    }

    /// What an instance of it needs to start.
    pub fn instance_spec(&self, id: &str, config: &Config) -> InstanceSpec {
        let overrides = &self.overrides;
        InstanceSpec {
            id: id.to_owned(),
            function: self.name.to_string(),
            function_arn: self.arn.clone(),
            version: "$LATEST".to_owned(),
            runtime: self.runtime(),
            handler: self.configuration.handler.clone(),
            code: self.code.folder(),
            environment: self.configuration.environment.clone(),
            memory_bytes: self.memory_bytes(),
            cpu_micro: self.cpu_micro(),
            period_us: overrides.period_us.unwrap_or(config.period_us),
            ephemeral_bytes: self.ephemeral_bytes(),
            pids_max: config.pids_max,
            network: overrides.network.unwrap_or(config.default_network.into()),
            enforcement: overrides.enforcement.unwrap_or(config.enforcement),
            init_throttled: overrides.init_throttled.unwrap_or(config.init_throttled),
            init_timeout: Duration::from_millis(config.init_timeout_ms),
        }
    }

    /// Whether instances of `other` can serve this one.
    pub fn same_instances(&self, other: &Self) -> bool {
        let of = |function: &Self| {
            let overrides = &function.overrides;
            (
                (overrides.network, overrides.init_throttled),
                (overrides.period_us, overrides.enforcement),
                (function.cpu_micro(), function.code.sha256().to_owned()),
            )
        };
        let (mine, theirs) = (&self.configuration, &other.configuration);
        of(self) == of(other)
            && mine.runtime == theirs.runtime
            && mine.handler == theirs.handler
            && mine.memory_mb == theirs.memory_mb
            && mine.ephemeral_mb == theirs.ephemeral_mb
            && mine.environment == theirs.environment
    }
}

/// What is set by tags `uncia:<key>`, because Lambda's API has no word for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overrides {
    pub keep_alive_ms: Option<u64>,
    pub pause_after_ms: Option<u64>,
    pub keep_alive_cpu: Option<KeepAliveCpu>,
    pub network: Option<Network>,
    pub max_instances: Option<u32>,
    pub init_throttled: Option<bool>,
    pub cpu_micro: Option<u64>,
    pub period_us: Option<u64>,
    pub enforcement: Option<Enforcement>,
}

/// Prefix of the tags that are settings.
pub const TAG_PREFIX: &str = "uncia:";

const TAGS: [&str; 9] = [
    "keep-alive-ms",
    "pause-after-ms",
    "keep-alive-cpu",
    "network",
    "max-instances",
    "init-throttled",
    "cpu-micro",
    "period-us",
    "enforcement",
];

impl Overrides {
    /// Reads the settings among the tags, where `_` is as good as `-`; the error is a sentence.
    pub fn parse(tags: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut overrides = Self::default();
        for (tag, value) in tags {
            let Some(key) = tag.strip_prefix(TAG_PREFIX) else { continue };
            overrides
                .set(&key.replace('_', "-"), value)
                .map_err(|rule| format!("The tag {tag} must be {rule}, not \"{value}\"."))?;
        }
        Ok(overrides)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "keep-alive-ms" => self.keep_alive_ms = Some(number(value)?),
            "pause-after-ms" => self.pause_after_ms = Some(number(value)?),
            "keep-alive-cpu" => {
                self.keep_alive_cpu = Some(word(value, "freeze, scale-down or run")?);
            }
            "max-instances" => {
                let limit = u32::try_from(number(value)?).unwrap_or(u32::MAX);
                self.max_instances = Some(limit);
            }
            "cpu-micro" => match number(value)? {
                0 => return Err("at least 1".to_owned()),
                micro => self.cpu_micro = Some(micro),
            },
            "period-us" => {
                let period = number(value)?;
                check_period(period)?;
                self.period_us = Some(period);
            }
            "enforcement" => self.enforcement = Some(word(value, "kernel or event-driven")?),
            "init-throttled" => {
                self.init_throttled = Some(match value {
                    "true" => true,
                    "false" => false,
                    _ => return Err("true or false".to_owned()),
                });
            }
            "network" => {
                self.network = Some(match value {
                    "none" => Network::None,
                    "platform" => Network::Platform,
                    "host" => Network::Host,
                    _ => return Err("none, platform or host".to_owned()),
                });
            }
            _ => return Err(format!("one of {}", TAGS.map(|t| format!("uncia:{t}")).join(", "))),
        }
        Ok(())
    }
}

/// A word of an enumeration, written as in the configuration.
fn word<T: DeserializeOwned>(text: &str, known: &str) -> Result<T, String> {
    serde_json::from_value(text.into()).map_err(|_| known.to_owned())
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a whole number".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(tag: &str, value: &str) -> Result<Overrides, String> {
        Overrides::parse(&BTreeMap::from([(tag.to_owned(), value.to_owned())]))
    }

    #[test]
    fn settings_come_from_tags() {
        assert_eq!(parse("uncia:keep-alive-ms", "250").unwrap().keep_alive_ms, Some(250));
        assert_eq!(parse("uncia:network", "host").unwrap().network, Some(Network::Host));
        assert_eq!(parse("uncia:init-throttled", "true").unwrap().init_throttled, Some(true));
        let run = Some(KeepAliveCpu::Run);
        assert_eq!(parse("uncia:keep-alive-cpu", "run").unwrap().keep_alive_cpu, run);
        assert_eq!(parse("uncia:keep_alive_cpu", "run").unwrap().keep_alive_cpu, run);
        let enforcement = parse("uncia:enforcement", "event-driven").unwrap().enforcement;
        assert_eq!(enforcement, Some(Enforcement::EventDriven));
        assert_eq!(parse("team", "blue").unwrap(), Overrides::default());
    }

    #[test]
    fn wrong_settings_are_sentences() {
        for (tag, value, word) in [
            ("uncia:keep-alive", "1", "uncia:keep-alive-ms"),
            ("uncia:keep-alive-ms", "1s", "whole number"),
            ("uncia:period-us", "5", "1000"),
            ("uncia:network", "internet", "platform"),
            ("uncia:cpu-micro", "0", "at least 1"),
            ("uncia:enforcement", "none", "event-driven"),
            ("uncia:keep_alive_cpu", "stop", "scale-down"),
        ] {
            let message = parse(tag, value).unwrap_err();
            assert!(message.contains(word) && message.contains(tag), "{message}");
        }
    }
}
