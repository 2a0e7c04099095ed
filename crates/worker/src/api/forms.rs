//! The bodies of the management requests, checked as Lambda checks them.

use std::collections::BTreeMap;
use std::fs;

use base64::Engine;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Api;
use super::error::ApiError;
use crate::function::{Configuration, Overrides};
use crate::ids;
use crate::instance::{Architecture, Host, Runtime, Services};
use crate::remote::RemoteError;
use crate::remote::s3::Object;
use crate::store::{MAX_ZIPPED_BYTES, PackageError};

const MEMORY_MB: std::ops::RangeInclusive<u64> = 128..=10_240;
const TIMEOUT_S: std::ops::RangeInclusive<u64> = 1..=900;
const EPHEMERAL_MB: std::ops::RangeInclusive<u64> = 512..=10_240;
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

/// What a configuration can ask of Lambda and not of this platform; refused unless it asks for
/// nothing.
pub(super) const NO_CONFIGURATION: [&str; 8] = [
    "VpcConfig",
    "DeadLetterConfig",
    "KMSKeyArn",
    "TracingConfig",
    "FileSystemConfigs",
    "CodeSigningConfigArn",
    "SnapStart",
    "LoggingConfig",
];
/// Where Lambda can find code, and this platform can't.
pub(super) const NO_CODE: [&str; 1] = ["SourceKMSKeyArn"];

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct CreateFunction {
    pub FunctionName: String,
    pub Runtime: Option<String>,
    pub Role: Option<String>,
    pub Handler: Option<String>,
    pub Code: Code,
    pub Description: Option<String>,
    pub Timeout: Option<u64>,
    pub MemorySize: Option<u64>,
    pub Publish: Option<bool>,
    pub PackageType: Option<String>,
    pub ImageConfig: Option<ImageConfigForm>,
    pub Environment: Option<Environment>,
    pub Tags: Option<BTreeMap<String, String>>,
    pub Architectures: Option<Vec<String>>,
    pub EphemeralStorage: Option<EphemeralStorage>,
    pub Layers: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct PublishLayer {
    pub Content: Code,
    pub Description: Option<String>,
    pub LicenseInfo: Option<String>,
    pub CompatibleRuntimes: Option<Vec<String>>,
    pub CompatibleArchitectures: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct Code {
    pub ZipFile: Option<String>,
    pub S3Bucket: Option<String>,
    pub S3Key: Option<String>,
    pub S3ObjectVersion: Option<String>,
    pub ImageUri: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct ImageConfigForm {
    pub EntryPoint: Option<Vec<String>>,
    pub Command: Option<Vec<String>>,
    pub WorkingDirectory: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct UpdateCode {
    pub ZipFile: Option<String>,
    pub S3Bucket: Option<String>,
    pub S3Key: Option<String>,
    pub S3ObjectVersion: Option<String>,
    pub ImageUri: Option<String>,
    pub Publish: Option<bool>,
    pub DryRun: Option<bool>,
    pub RevisionId: Option<String>,
    pub Architectures: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct UpdateConfiguration {
    pub Runtime: Option<String>,
    pub Role: Option<String>,
    pub Handler: Option<String>,
    pub Description: Option<String>,
    pub Timeout: Option<u64>,
    pub MemorySize: Option<u64>,
    pub Environment: Option<Environment>,
    pub RevisionId: Option<String>,
    pub EphemeralStorage: Option<EphemeralStorage>,
    pub ImageConfig: Option<ImageConfigForm>,
    pub Layers: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct PublishVersion {
    pub CodeSha256: Option<String>,
    pub Description: Option<String>,
    pub RevisionId: Option<String>,
}

/// Of CreateAlias and UpdateAlias.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct AliasForm {
    pub Name: Option<String>,
    pub FunctionVersion: Option<String>,
    pub Description: Option<String>,
    pub RoutingConfig: Option<RoutingConfig>,
    pub RevisionId: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct RoutingConfig {
    pub AdditionalVersionWeights: Option<BTreeMap<String, f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct ProvisionedForm {
    pub ProvisionedConcurrentExecutions: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct Environment {
    pub Variables: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct EphemeralStorage {
    pub Size: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct UrlForm {
    pub AuthType: Option<String>,
    pub InvokeMode: Option<String>,
}

/// Of AddPermission.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct PermissionForm {
    pub StatementId: String,
    pub Action: String,
    pub Principal: String,
    pub SourceArn: Option<String>,
    pub SourceAccount: Option<String>,
    pub FunctionUrlAuthType: Option<String>,
    pub InvokedViaFunctionUrl: Option<bool>,
    pub RevisionId: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct TagForm {
    pub Tags: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct ConcurrencyForm {
    pub ReservedConcurrentExecutions: u32,
}

impl UpdateCode {
    /// Where the package is, taken out of the form.
    pub(super) fn take_code(&mut self) -> Code {
        Code {
            ZipFile: self.ZipFile.take(),
            S3Bucket: self.S3Bucket.take(),
            S3Key: self.S3Key.take(),
            S3ObjectVersion: self.S3ObjectVersion.take(),
            ImageUri: self.ImageUri.take(),
        }
    }
}

/// Reads a request's JSON body; an unknown key is an error that names it, and so is one of
/// `unsupported` that asks for something.
pub(super) fn read<T: DeserializeOwned>(body: &[u8], unsupported: &[&str]) -> Result<T, ApiError> {
    read_with(body, unsupported, "Code", &NO_CODE)
}

/// The same; none of `unsupported_within` may ask for something in the object `key`.
pub(super) fn read_with<T: DeserializeOwned>(
    body: &[u8],
    unsupported: &[&str],
    key: &str,
    unsupported_within: &[&str],
) -> Result<T, ApiError> {
    let body = if body.is_empty() { b"{}" } else { body };
    let mut value: Value = serde_json::from_slice(body).map_err(|error| {
        ApiError::content(format!("Could not parse request body into json: {error}"))
    })?;
    refuse(&mut value, unsupported)?;
    if let Some(code) = value.get_mut(key) {
        refuse(code, unsupported_within)?;
    }
    serde_json::from_value(value)
        .map_err(|error| ApiError::invalid(format!("The request is not valid: {error}")))
}

/// Takes the unsupported keys out of an object, and refuses those that ask for something.
fn refuse(value: &mut Value, unsupported: &[&str]) -> Result<(), ApiError> {
    let Some(object) = value.as_object_mut() else { return Ok(()) };
    for key in unsupported {
        if object.remove(*key).is_some_and(|value| asks_for_something(&value)) {
            return Err(ApiError::invalid(format!(
                "{key} is not supported by this platform; leave it out"
            )));
        }
    }
    Ok(())
}

fn asks_for_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        // The values that mean "as it is anyway".
        Value::String(text) => !matches!(text.as_str(), "" | "None" | "PassThrough" | "Text"),
        Value::Array(items) => items.iter().any(asks_for_something),
        Value::Object(items) => items.values().any(asks_for_something),
        Value::Bool(flag) => *flag,
        Value::Number(_) => true,
    }
}

/// Where a zip file is.
pub(super) enum Zip {
    Given(Vec<u8>),
    InStore(Object),
}

/// The zip file that a form gives or names.
pub(super) fn zip_file(code: &Code) -> Result<Zip, ApiError> {
    let object = (code.S3Bucket.as_deref(), code.S3Key.as_deref());
    match (code.ZipFile.as_deref(), object) {
        (Some(text), (None, None)) => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map(Zip::Given)
            .map_err(|error| ApiError::invalid(format!("ZipFile is not valid base64: {error}"))),
        (None, (Some(bucket), Some(key))) => Ok(Zip::InStore(Object {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            version: code.S3ObjectVersion.clone(),
        })),
        (None, (None, None)) => Err(ApiError::invalid(
            "Please provide the package as ZipFile, or as S3Bucket and S3Key",
        )),
        _ => {
            Err(ApiError::invalid("Please provide either ZipFile, or S3Bucket and S3Key together"))
        }
    }
}

/// The bytes of a zip file, which are fetched if they are in a store. Only for threads that may wait.
pub(super) fn zip_bytes(api: &Api, code: &Code) -> Result<Vec<u8>, ApiError> {
    let object = match zip_file(code)? {
        Zip::Given(bytes) => return Ok(bytes),
        Zip::InStore(object) => object,
    };
    let packages = api.registry.packages();
    let file = packages.staging().join(ids::staging());
    let fetched = packages.objects()?.fetch(&object, &file, MAX_ZIPPED_BYTES as u64);
    let bytes = match fetched {
        Ok(_) => fs::read(&file).map_err(PackageError::from),
        Err(RemoteError::TooLarge(bytes)) => {
            Err(PackageError::Zipped(usize::try_from(bytes).unwrap_or(usize::MAX)))
        }
        Err(RemoteError::Refused(sentence)) => Err(PackageError::Remote(sentence)),
    };
    // What was not made is not there.
    let _ = fs::remove_file(&file);
    Ok(bytes?)
}

pub(super) fn check_name(name: &str) -> Result<(), ApiError> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fine) {
        return Err(ApiError::invalid(format!(
            "FunctionName must be 1 to {MAX_NAME} letters, digits, hyphens and underscores, not {name:?}"
        )));
    }
    Ok(())
}

fn in_range(key: &str, value: u64, range: &std::ops::RangeInclusive<u64>) -> Result<u64, ApiError> {
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
    tags: &BTreeMap<String, String>,
    runtime: Runtime,
    is_image: bool,
    default: Architecture,
    services: &Services,
) -> Result<Overrides, ApiError> {
    let overrides = Overrides::parse(tags).map_err(ApiError::invalid)?;
    if let Some(refusal) = services.refusal(overrides.reach()) {
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
    let refusal = overrides.refusal(runtime, default);
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

    #[test]
    fn what_asks_for_nothing_is_taken() {
        let read = |body: &[u8]| read::<CreateFunction>(body, &NO_CONFIGURATION);
        assert!(read(br#"{"VpcConfig": {"SubnetIds": [], "SecurityGroupIds": []}}"#).is_ok());
        for body in [r#"{"KMSKeyArn": "arn:aws:x"}"#, r#"{"Code": {"SourceKMSKeyArn": "arn:x"}}"#] {
            let error = read(body.as_bytes()).unwrap_err();
            assert!(error.message.contains("not supported"), "{error}");
        }
    }

    #[test]
    fn unknown_keys_are_named() {
        let error = read::<CreateFunction>(br#"{"FunctionNaem": "x"}"#, &[]).unwrap_err();
        assert!(error.message.contains("FunctionNaem"), "{error}");
        assert_eq!(
            read::<CreateFunction>(b"{", &[]).unwrap_err().kind,
            "InvalidRequestContentException"
        );
    }
}
