//! The bodies of the management requests, checked as Lambda checks them.

use std::collections::BTreeMap;
use std::fs;

use base64::Engine;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Api;
use super::error::ApiError;
use crate::ids;
use crate::remote::RemoteError;
use crate::remote::s3::Object;
use crate::store::{MAX_ZIPPED_BYTES, PackageError};

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

#[cfg(test)]
mod tests {
    use super::*;

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
