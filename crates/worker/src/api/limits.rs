//! What functions' settings may be, as Lambda checks them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::Api;
use super::error::ApiError;
use crate::function::{Configuration, Overrides};
use crate::instance::{Architecture, Host, Runtime};

const MEMORY_MB: RangeInclusive<u64> = 128..=10_240;
const TIMEOUT_S: RangeInclusive<u64> = 1..=900;
const EPHEMERAL_MB: RangeInclusive<u64> = 512..=10_240;
const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 256;
const MAX_HANDLER: usize = 128;
/// Lambda's limit for all environment variables together.
const MAX_ENVIRONMENT_BYTES: usize = 4 * 1024;
const MAX_TAGS: usize = 50;
/// Variables that the platform sets itself.
const RESERVED: [&str; 16] = [
    "_HANDLER",
    "_X_AMZN_TRACE_ID",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_EXECUTION_ENV",
    "AWS_LAMBDA_FUNCTION_NAME",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    "AWS_LAMBDA_FUNCTION_VERSION",
    "AWS_LAMBDA_INITIALIZATION_TYPE",
    "AWS_LAMBDA_LOG_GROUP_NAME",
    "AWS_LAMBDA_LOG_STREAM_NAME",
    "AWS_LAMBDA_RUNTIME_API",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "LAMBDA_TASK_ROOT",
    "LAMBDA_RUNTIME_DIR",
];

pub(super) fn check_name(name: &str) -> Result<(), ApiError> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fine) {
        return Err(ApiError::invalid(format!(
            "FunctionName must be 1 to {MAX_NAME} letters, digits, hyphens and underscores, not {name:?}"
        )));
    }
    Ok(())
}

fn in_range(key: &str, value: u64, range: &RangeInclusive<u64>) -> Result<u64, ApiError> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(ApiError::invalid(format!(
        "{key} must be between {} and {}, not {value}",
        range.start(),
        range.end()
    )))
}

/// The runtime, which must exist on this host.
pub(super) fn check_runtime(identifier: &str, host: &Host) -> Result<Runtime, ApiError> {
    let runtime = Runtime::serving(identifier).ok_or_else(|| {
        let mut known: Vec<_> = Runtime::all().iter().map(|it| it.identifiers()).collect();
        let last = known.pop().unwrap_or_default();
        let known = known.join(", ");
        ApiError::invalid(format!(
            "Runtime {identifier:?} is not supported; {known} and {last} are"
        ))
    })?;
    if host.runtime_version(runtime).is_none() {
        let missing = runtime.requirement().unwrap_or("what custom runtimes need");
        return Err(ApiError::invalid(format!(
            "Runtime {identifier:?} needs {missing} on this machine, which has none: {}, \
             or name it under runtimes in the configuration",
            runtime.remedy()
        )));
    }
    Ok(runtime)
}

pub(super) fn check_tags(tags: &BTreeMap<String, String>) -> Result<(), ApiError> {
    if tags.len() > MAX_TAGS {
        return Err(ApiError::invalid(format!("At most {MAX_TAGS} tags are allowed")));
    }
    match tags.keys().find(|key| key.is_empty() || key.len() > 128) {
        Some(key) => Err(ApiError::invalid(format!("A tag's key has 1 to 128 bytes: {key:?}"))),
        None => Ok(()),
    }
}

/// Reads the settings among the tags, which must fit the runtime, or the image if there is one. `default`:
/// how the function is served unless they say so.
pub(super) fn settings(
    api: &Api,
    tags: &BTreeMap<String, String>,
    runtime: Runtime,
    is_image: bool,
    default: Architecture,
) -> Result<Overrides, ApiError> {
    let overrides = Overrides::parse(tags).map_err(ApiError::invalid)?;
    if let Some(refusal) = api.config.services.refusal(overrides.reach()) {
        return Err(ApiError::invalid(refusal));
    }
    let refusal = if is_image {
        overrides.refusal_of_image()
    } else if overrides.is_fetched() {
        overrides.refusal_of_fetched(runtime)
    } else {
        None
    };
    if let Some(refusal) = refusal {
        return Err(ApiError::invalid(refusal));
    }
    let version = api.host.runtime_version(runtime).unwrap_or_default();
    let refusal = overrides.refusal(runtime, default);
    let refusal = refusal.or_else(|| overrides.refusal_of_version(runtime, &version));
    refusal.map_or(Ok(overrides), |refusal| Err(ApiError::invalid(refusal)))
}

/// What this machine is, by Lambda's name for it.
pub(super) const ARCHITECTURE: &str =
    if cfg!(target_arch = "aarch64") { "arm64" } else { "x86_64" };

pub(super) fn check_architectures(given: Option<&[String]>) -> Result<String, ApiError> {
    match given {
        None => Ok(ARCHITECTURE.to_owned()),
        Some([one]) if one == ARCHITECTURE => Ok(ARCHITECTURE.to_owned()),
        Some(other) => Err(ApiError::invalid(format!(
            "Architectures must be [\"{ARCHITECTURE}\"], which this machine is, not {other:?}"
        ))),
    }
}

/// Settings common to creating and updating; what is left out stays as it is.
#[derive(Default)]
pub(super) struct Settings<'a> {
    pub handler: Option<&'a str>,
    pub role: Option<&'a str>,
    pub description: Option<&'a str>,
    pub timeout: Option<u64>,
    pub memory: Option<u64>,
    pub ephemeral: Option<u64>,
    pub environment: Option<&'a BTreeMap<String, String>>,
}

impl Settings<'_> {
    /// Puts the settings into a configuration, or says which is wrong.
    pub(super) fn apply(&self, configuration: &mut Configuration) -> Result<(), ApiError> {
        if let Some(handler) = self.handler {
            let fine = !handler.is_empty()
                && handler.len() <= MAX_HANDLER
                && !handler.bytes().any(|byte| byte.is_ascii_whitespace());
            if !fine {
                return Err(ApiError::invalid(format!(
                    "Handler must be 1 to {MAX_HANDLER} characters without spaces, not {handler:?}"
                )));
            }
            handler.clone_into(&mut configuration.handler);
        }
        if let Some(role) = self.role {
            role.clone_into(&mut configuration.role);
        }
        if let Some(description) = self.description {
            check_description(description)?;
            description.clone_into(&mut configuration.description);
        }
        if let Some(timeout) = self.timeout {
            configuration.timeout_s = in_range("Timeout", timeout, &TIMEOUT_S)?;
        }
        if let Some(memory) = self.memory {
            configuration.memory_mb = in_range("MemorySize", memory, &MEMORY_MB)?;
        }
        if let Some(size) = self.ephemeral {
            configuration.ephemeral_mb = in_range("EphemeralStorage.Size", size, &EPHEMERAL_MB)?;
        }
        if let Some(environment) = self.environment {
            check_environment(environment)?;
            configuration.environment.clone_from(environment);
        }
        Ok(())
    }
}

pub(super) fn check_description(description: &str) -> Result<(), ApiError> {
    if description.len() > MAX_DESCRIPTION {
        return Err(ApiError::invalid(format!(
            "Description must have at most {MAX_DESCRIPTION} bytes"
        )));
    }
    Ok(())
}

fn check_environment(environment: &BTreeMap<String, String>) -> Result<(), ApiError> {
    for (key, value) in environment {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let first = key.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
        if RESERVED.contains(&key.as_str()) {
            return Err(ApiError::invalid(format!(
                "The environment variable {key} is reserved: the platform sets it"
            )));
        }
        if !first || key.len() < 2 || !key.bytes().all(fine) || value.contains('\0') {
            return Err(ApiError::invalid(format!(
                "{key:?} is no name of an environment variable, or its value holds a NUL"
            )));
        }
    }
    let bytes: usize = environment.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_ENVIRONMENT_BYTES {
        return Err(ApiError::invalid(format!(
            "The environment variables have {bytes} bytes; at most {MAX_ENVIRONMENT_BYTES} are allowed"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration() -> Configuration {
        serde_json::from_value(serde_json::json!({
            "runtime": "python3.11", "handler": "a.b", "role": "", "description": "",
            "timeout_s": 3, "memory_mb": 128, "ephemeral_mb": 512, "environment": {},
            "architecture": "x86_64", "modified_unix_ms": 0, "revision": "",
            "reserved_concurrency": null,
        }))
        .unwrap()
    }

    #[test]
    fn limits_are_lambdas() {
        let mut to = configuration();
        let set = |settings: Settings<'_>, to: &mut Configuration| settings.apply(to).is_ok();
        assert!(set(Settings { memory: Some(10_240), ..Settings::default() }, &mut to));
        assert!(!set(Settings { memory: Some(127), ..Settings::default() }, &mut to));
        assert!(!set(Settings { timeout: Some(901), ..Settings::default() }, &mut to));
        assert!(!set(Settings { handler: Some("a b"), ..Settings::default() }, &mut to));
        assert_eq!(to.memory_mb, 10_240);
    }

    #[test]
    fn reserved_and_long_environments_are_refused() {
        let refuse = |key: &str, value: &str| {
            check_environment(&BTreeMap::from([(key.to_owned(), value.to_owned())])).unwrap_err()
        };
        assert!(refuse("AWS_REGION", "x").message.contains("AWS_REGION"));
        assert!(refuse("BIG", &"x".repeat(5_000)).message.contains("4096"));
        assert!(refuse("1A", "x").message.contains("1A"));
    }
}
