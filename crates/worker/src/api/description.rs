//! A function as Lambda describes it.

use base64::Engine;
use serde_json::{Value, json};

use super::error::ApiError;
use super::{Api, images, layers, versions};
use crate::clock;
use crate::function::Function;
use crate::store::Code;

/// What CreateFunction and UpdateFunctionCode answer: the version that they published, or the function.
pub(super) fn describe_published(
    api: &Api,
    function: &Function,
    version: Option<u32>,
) -> Result<Value, ApiError> {
    match version {
        Some(number) => versions::describe_number(api, function, number),
        None => Ok(describe(api, function)),
    }
}

/// A function as Lambda describes it.
pub(super) fn describe(api: &Api, function: &Function) -> Value {
    describe_as(api, function, &function.arn)
}

/// A function by the ARN that was asked for.
pub(super) fn describe_as(api: &Api, function: &Function, arn: &str) -> Value {
    let configuration = &function.configuration;
    let version = api.host.runtime_version(function.runtime()).unwrap_or_default();
    let mut body = json!({
        "FunctionName": &*function.name,
        "FunctionArn": arn,
        "Runtime": configuration.runtime,
        "Role": configuration.role,
        "Handler": configuration.handler,
        "CodeSize": function.code.zip_bytes(),
        "Description": configuration.description,
        "Timeout": configuration.timeout_s,
        "MemorySize": configuration.memory_mb,
        "LastModified": clock::iso_8601(configuration.modified_unix_ms),
        "CodeSha256": code_sha256(&function.code),
        "Version": function.version_name(),
        "TracingConfig": {"Mode": "PassThrough"},
        "RevisionId": configuration.revision,
        "State": "Active",
        "LastUpdateStatus": "Successful",
        "PackageType": "Zip",
        "Architectures": [configuration.architecture],
        "EphemeralStorage": {"Size": configuration.ephemeral_mb},
        "SnapStart": {"ApplyOn": "None", "OptimizationStatus": "Off"},
        // What really runs: the host's interpreter, whatever minor version was asked for.
        "RuntimeVersionConfig": {
            "RuntimeVersionArn": format!("arn:aws:lambda:us-east-1::runtime:host-{version}"),
        },
        "LoggingConfig": {
            "LogFormat": "Text",
            "LogGroup": format!("/aws/lambda/{}", function.name),
        },
    });
    images::describe(&mut body, configuration);
    if let Some(reason) = &function.broken {
        body["State"] = json!("Failed");
        body["StateReason"] = json!(reason);
        body["StateReasonCode"] = match configuration.image {
            Some(_) => json!("InvalidImage"),
            None => json!("InvalidZipFileException"),
        };
    }
    if !configuration.layers.is_empty() {
        body["Layers"] = layers::describe_uses(function);
    }
    if !configuration.environment.is_empty() {
        body["Environment"] = json!({"Variables": configuration.environment});
    }
    body
}

/// `CodeSha256`, as Lambda writes it: of a zip file in base64, of an image in digits.
pub(super) fn code_sha256(code: &Code) -> String {
    if code.image().is_some() {
        return code.sha256().to_owned();
    }
    let bytes: Vec<u8> = code
        .sha256()
        .as_bytes()
        .chunks_exact(2)
        .filter_map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
        .collect();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
