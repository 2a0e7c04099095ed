//! Layers: publishing, describing and deleting their versions, and what functions have of them.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::description::code_sha256;
use super::error::{Answer, ApiError, empty_answer, json_answer};
use super::forms::{self, NO_CODE, PublishLayer, zip_bytes};
use super::limits::check_description;
use super::route::{decode, query_values};
use super::{Api, LAYER_ARN_PREFIX, pages};
use crate::clock;
use crate::function::{Configuration, Function};
use crate::layer::{LayerAbout, LayerUse, LayerVersion, Layers};
use crate::published::version_number;
use crate::store::{Code, MAX_UNZIPPED_BYTES};

/// Most layers of a function, as on Lambda.
const MAX_LAYERS: usize = 5;
const MAX_NAME: usize = 64;
const MAX_LICENSE: usize = 512;
const MAX_RUNTIMES: usize = 15;
const ARCHITECTURES: [&str; 2] = ["x86_64", "arm64"];

/// The name of a layer, which may be given as its ARN.
fn name_of(reference: &str) -> Result<String, ApiError> {
    let name = reference.split_once(":layer:").map_or(reference, |(_, name)| name);
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fine) {
        return Err(ApiError::invalid(format!(
            "LayerName must be 1 to {MAX_NAME} letters, digits, hyphens and underscores, not {name:?}"
        )));
    }
    Ok(name.to_owned())
}

/// Name and number of the version that an ARN means.
fn read_arn(arn: &str) -> Result<(String, u32), ApiError> {
    let parts = arn.strip_prefix("arn:").and_then(|rest| rest.split_once(":layer:"));
    let named = parts.and_then(|(_, name)| name.split_once(':'));
    let read =
        named.and_then(|(name, number)| Some((name_of(name).ok()?, version_number(number)?)));
    read.ok_or_else(|| {
        ApiError::invalid(format!(
            "{arn:?} is no ARN of a layer's version, such as {LAYER_ARN_PREFIX}tools:1"
        ))
    })
}

fn arn_of(version: &LayerVersion) -> String {
    format!("{LAYER_ARN_PREFIX}{}:{}", version.name, version.number)
}

fn missing(arn: &str) -> ApiError {
    ApiError::not_found(format!("Layer version {arn} does not exist."))
}

/// The version of a layer that a path names.
fn find(api: &Api, reference: &str, number: &str) -> Result<Arc<LayerVersion>, ApiError> {
    let name = name_of(reference)?;
    let number = read_number(number)?;
    let version = api.registry.layer_version(&name, number);
    version.ok_or_else(|| missing(&format!("{LAYER_ARN_PREFIX}{name}:{number}")))
}

fn read_number(text: &str) -> Result<u32, ApiError> {
    version_number(text).filter(|number| *number > 0).ok_or_else(|| {
        ApiError::invalid(format!(
            "VersionNumber must be a whole number of at least 1, not {text:?}"
        ))
    })
}

pub(super) fn publish(api: &Arc<Api>, reference: &str, body: &[u8]) -> Result<Answer, ApiError> {
    let name = name_of(reference)?;
    let form: PublishLayer = forms::read_with(body, &[], "Content", &NO_CODE)?;
    let about = LayerAbout {
        description: form.Description.unwrap_or_default(),
        license: form.LicenseInfo.unwrap_or_default(),
        runtimes: form.CompatibleRuntimes.unwrap_or_default(),
        architectures: form.CompatibleArchitectures.unwrap_or_default(),
        created_unix_ms: clock::unix_ns() / 1_000_000,
    };
    check_description(&about.description)?;
    if about.license.len() > MAX_LICENSE {
        return Err(ApiError::invalid(format!(
            "LicenseInfo must have at most {MAX_LICENSE} bytes"
        )));
    }
    if about.runtimes.len() > MAX_RUNTIMES {
        return Err(ApiError::invalid(format!(
            "At most {MAX_RUNTIMES} CompatibleRuntimes are allowed"
        )));
    }
    if let Some(other) = about.architectures.iter().find(|it| !ARCHITECTURES.contains(&it.as_str()))
    {
        return Err(ApiError::invalid(format!(
            "CompatibleArchitectures must be among {ARCHITECTURES:?}, not {other:?}"
        )));
    }
    let code = api.registry.packages().store(&zip_bytes(api, &form.Content)?, |_| Ok(()))?;
    let version = api.registry.change().publish_layer(&name, about, code)?;
    Ok(json_answer(StatusCode::CREATED, &describe_whole(api, &version)))
}

pub(super) fn get(api: &Api, reference: &str, number: &str) -> Result<Answer, ApiError> {
    let version = find(api, reference, number)?;
    if let Some(reason) = &version.broken {
        let message =
            format!("{} cannot be used: {reason}; publish the layer again", arn_of(&version));
        return Err(ApiError::unready(message));
    }
    Ok(json_answer(StatusCode::OK, &describe_whole(api, &version)))
}

/// Lists layers, or finds one version by its ARN: the path is the same.
pub(super) fn list(api: &Api, query: &str) -> Result<Answer, ApiError> {
    if let Some(find) = query_values(query, "find").first() {
        let arns = query_values(query, "Arn");
        let (Some(arn), "LayerVersion") = (arns.first(), find.as_str()) else {
            return Err(ApiError::invalid("find must be LayerVersion, with an Arn"));
        };
        let (name, number) = read_arn(arn)?;
        return get(api, &name, &number.to_string());
    }
    let layers = api.registry.layers();
    let rows = layers.iter().filter_map(|(name, layer)| {
        let newest = layer.versions.values().rev().find(|version| is_asked_for(version, query))?;
        let row = json!({
            "LayerName": name,
            "LayerArn": format!("{LAYER_ARN_PREFIX}{name}"),
            "LatestMatchingVersion": describe(newest),
        });
        Some((name.clone(), row))
    });
    pages::answer("Layers", rows, query)
}

pub(super) fn list_versions(api: &Api, reference: &str, query: &str) -> Result<Answer, ApiError> {
    let layer = api.registry.layer(&name_of(reference)?).unwrap_or_default();
    let versions = layer.versions.values().rev().filter(|version| is_asked_for(version, query));
    // The newest first; markers must sort so too.
    let rows = versions.map(|it| (format!("{:010}", u32::MAX - it.number), describe(it)));
    pages::answer("LayerVersions", rows, query)
}

/// Whether a version is among those that a list is to hold.
fn is_asked_for(version: &LayerVersion, query: &str) -> bool {
    let matches = |key: &str, given: &[String]| {
        query_values(query, key).first().is_none_or(|asked| given.contains(asked))
    };
    matches("CompatibleRuntime", &version.about.runtimes)
        && matches("CompatibleArchitecture", &version.about.architectures)
}

pub(super) fn delete(api: &Api, reference: &str, number: &str) -> Result<Answer, ApiError> {
    let (name, number) = (name_of(reference)?, read_number(number)?);
    // One that is gone is no error, as on Lambda.
    api.registry.change().delete_layer(&name, number)?;
    Ok(empty_answer(StatusCode::NO_CONTENT))
}

fn describe(version: &LayerVersion) -> Value {
    let about = &version.about;
    let mut body = json!({
        "LayerVersionArn": arn_of(version),
        "Version": version.number,
        "Description": about.description,
        "CreatedDate": clock::iso_8601(about.created_unix_ms),
    });
    for (key, values) in
        [("CompatibleRuntimes", &about.runtimes), ("CompatibleArchitectures", &about.architectures)]
    {
        if !values.is_empty() {
            body[key] = json!(values);
        }
    }
    if !about.license.is_empty() {
        body["LicenseInfo"] = json!(about.license);
    }
    body
}

fn describe_whole(api: &Api, version: &LayerVersion) -> Value {
    let mut body = describe(version);
    body["LayerArn"] = json!(format!("{LAYER_ARN_PREFIX}{}", version.name));
    body["Content"] = json!({
        "Location": format!("{}/uncia/v1/code/{}", api.base_url, version.code.sha256()),
        "CodeSha256": code_sha256(&version.code),
        "CodeSize": version.code.zip_bytes(),
    });
    body
}

/// The layers that a request gives a function. `before`: those that the function has, which may have
/// been deleted since.
pub(super) fn choose(
    api: &Api,
    arns: &[String],
    before: &[LayerUse],
) -> Result<Vec<LayerUse>, ApiError> {
    if arns.len() > MAX_LAYERS {
        return Err(ApiError::invalid(format!(
            "A function can have at most {MAX_LAYERS} layers, not {}",
            arns.len()
        )));
    }
    let mut chosen: Vec<LayerUse> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for arn in arns {
        let (name, number) = read_arn(&decode(arn))?;
        if names.contains(&name) {
            return Err(ApiError::invalid(format!(
                "Two different versions of the same layer are not allowed to be referenced in the same \
                 function: {name}"
            )));
        }
        let own = format!("{LAYER_ARN_PREFIX}{name}:{number}");
        let version = api.registry.layer_version(&name, number);
        chosen.push(match version {
            Some(version) if version.broken.is_some() => return get_broken(&version),
            Some(version) => LayerUse {
                arn: own,
                sha256: version.code.sha256().to_owned(),
                bytes: version.code.zip_bytes(),
            },
            None => {
                before.iter().find(|it| it.arn == own).cloned().ok_or_else(|| {
                    ApiError::invalid(format!("Layer version {own} does not exist."))
                })?
            }
        });
        names.push(name);
    }
    Ok(chosen)
}

fn get_broken<T>(version: &LayerVersion) -> Result<T, ApiError> {
    let reason = version.broken.as_deref().unwrap_or_default();
    Err(ApiError::invalid(format!(
        "{} cannot be used: {reason}; publish the layer again, and name the new version",
        arn_of(version)
    )))
}

/// Makes the layers of a configuration ready for instances. Only for threads that may wait.
pub(super) fn lay(api: &Api, configuration: &Configuration) -> Result<Layers, ApiError> {
    api.registry
        .lay(&configuration.layers)
        .map_err(|reason| ApiError::service(capitalized(&reason)))
}

fn capitalized(sentence: &str) -> String {
    let mut characters = sentence.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}

/// Checks that a function which brings an image has no layers.
pub(super) fn check_none(layers: &Layers) -> Result<(), ApiError> {
    match layers.opt() {
        None => Ok(()),
        Some(_) => Err(ApiError::invalid(
            "Layers are not supported for functions of PackageType Image: make them part of the image",
        )),
    }
}

/// Checks that code and layers together are no larger than Lambda allows.
pub(super) fn check_size(code: &Code, layers: &Layers) -> Result<(), ApiError> {
    let Some(opt) = layers.opt() else { return Ok(()) };
    let parts = if opt.parts().is_empty() { std::slice::from_ref(opt) } else { opt.parts() };
    let mut bytes = code.unzipped_bytes();
    for part in parts {
        bytes = bytes.and_then(|bytes| Ok(bytes + part.unzipped_bytes()?));
    }
    let bytes =
        bytes.map_err(|error| ApiError::service(format!("A package cannot be read: {error}")))?;
    if bytes > MAX_UNZIPPED_BYTES {
        return Err(ApiError::invalid(format!(
            "Function code combined with layers exceeds the maximum allowed size of {MAX_UNZIPPED_BYTES} \
             bytes. The actual size is {bytes} bytes."
        )));
    }
    Ok(())
}

/// A function's layers as Lambda describes them.
pub(super) fn describe_uses(function: &Function) -> Value {
    let uses = function.configuration.layers.iter();
    uses.map(|it| json!({"Arn": it.arn, "CodeSize": it.bytes})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_go_by_name_or_arn_and_versions_by_arn_alone() {
        assert_eq!(name_of("tools").unwrap(), "tools");
        assert_eq!(name_of("arn:aws:lambda:eu-north-1:123456789012:layer:tools").unwrap(), "tools");
        for bad in ["", "a/b", "../x", "a:1", &"x".repeat(65)] {
            assert!(name_of(bad).is_err(), "{bad}");
        }
        let arn = "arn:aws:lambda:us-east-1:000000000000:layer:tools:12";
        assert_eq!(read_arn(arn).unwrap(), ("tools".to_owned(), 12));
        for bad in
            ["tools:1", "arn:aws:x", "arn:a:layer:tools", "arn:a:layer:tools:x", "arn:a:layer::1"]
        {
            assert!(read_arn(bad).unwrap_err().message.contains("layer's version"), "{bad}");
        }
    }
}
