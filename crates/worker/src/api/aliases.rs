//! Aliases: names for versions, and how requests are divided between two of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::error::{Answer, ApiError, empty_answer, json_answer};
use super::forms::{self, AliasForm, RoutingConfig};
use super::functions::{change_published, find};
use super::limits::check_description;
use super::route::query_values;
use super::{Api, pages};
use crate::function::Function;
use crate::ids;
use crate::published::{Alias, LATEST, version_number};

/// Lambda's limit.
const MAX_NAME: usize = 128;

pub(super) fn create(api: &Arc<Api>, reference: &str, body: &[u8]) -> Result<Answer, ApiError> {
    let form: AliasForm = forms::read(body, &[])?;
    let name = form.Name.as_deref().unwrap_or_default();
    check_name(name)?;
    let version = form.FunctionVersion.as_deref();
    let version = version.ok_or_else(|| ApiError::invalid("FunctionVersion is required"))?;
    let function = change_published(api, reference, None, |function| {
        if function.published.aliases.contains_key(name) {
            return Err(ApiError::conflict(format!(
                "Alias already exists: {}",
                arn(function, name)
            )));
        }
        let mut alias = Alias {
            version: version_of(function, version)?,
            description: String::new(),
            revision: String::new(),
            additional: None,
        };
        edit(&mut alias, &form, function)?;
        Arc::make_mut(&mut function.published).aliases.insert(name.to_owned(), alias);
        Ok(())
    })?;
    Ok(json_answer(StatusCode::CREATED, &describe(&function, name)?))
}

pub(super) fn update(
    api: &Arc<Api>,
    reference: &str,
    name: &str,
    body: &[u8],
) -> Result<Answer, ApiError> {
    let form: AliasForm = forms::read(body, &[])?;
    let function = change_published(api, reference, None, |function| {
        let mut alias = get_alias(function, name)?.clone();
        if form.RevisionId.as_ref().is_some_and(|revision| *revision != alias.revision) {
            return Err(ApiError::precondition(
                "The Revision Id provided does not match the latest Revision Id. Call the \
                 GetAlias API to retrieve the latest Revision Id",
            ));
        }
        if let Some(version) = &form.FunctionVersion {
            alias.version = version_of(function, version)?;
        }
        edit(&mut alias, &form, function)?;
        Arc::make_mut(&mut function.published).aliases.insert(name.to_owned(), alias);
        Ok(())
    })?;
    Ok(json_answer(StatusCode::OK, &describe(&function, name)?))
}

pub(super) fn get(api: &Api, reference: &str, name: &str) -> Result<Answer, ApiError> {
    Ok(json_answer(StatusCode::OK, &describe(&*find(api, reference)?, name)?))
}

pub(super) fn list(api: &Api, reference: &str, query: &str) -> Result<Answer, ApiError> {
    let function = find(api, reference)?;
    let wanted = query_values(query, "FunctionVersion").into_iter().next();
    let mut rows = BTreeMap::new();
    for (name, alias) in &function.published.aliases {
        let version = version_name(alias.version);
        if wanted.as_ref().is_none_or(|wanted| *wanted == version) {
            rows.insert(name.clone(), describe(&function, name)?);
        }
    }
    pages::answer("Aliases", rows.into_iter(), query)
}

/// Deletes an alias; one that is gone is no error, as on Lambda.
pub(super) fn delete(api: &Arc<Api>, reference: &str, name: &str) -> Result<Answer, ApiError> {
    change_published(api, reference, None, |function| {
        if function.published.aliases.contains_key(name) {
            let published = Arc::make_mut(&mut function.published);
            published.aliases.remove(name);
            published.provisioned.remove(name);
            published.policies.remove(name);
        }
        Ok(())
    })?;
    Ok(empty_answer(StatusCode::NO_CONTENT))
}

/// Sets what the request gives besides the version.
fn edit(alias: &mut Alias, form: &AliasForm, function: &Function) -> Result<(), ApiError> {
    if let Some(description) = &form.Description {
        check_description(description)?;
        alias.description.clone_from(description);
    }
    if let Some(routing) = &form.RoutingConfig {
        alias.additional = additional(routing, function)?;
    }
    if let Some((other, _)) = alias.additional {
        match alias.version {
            None => {
                return Err(ApiError::invalid(
                    "$LATEST is not supported for an alias pointing to more than 1 version",
                ));
            }
            Some(version) if version == other => {
                return Err(ApiError::invalid(format!(
                    "Invalid function version {other}. Function version {other} is already \
                     included in routing configuration."
                )));
            }
            Some(_) => {}
        }
    }
    alias.revision = ids::uuid();
    Ok(())
}

/// The other version and its part of the requests; Lambda allows one.
fn additional(
    routing: &RoutingConfig,
    function: &Function,
) -> Result<Option<(u32, f64)>, ApiError> {
    let weights = routing.AdditionalVersionWeights.iter().flatten();
    let weights: Vec<_> = weights.collect();
    let (version, weight) = match weights.as_slice() {
        [] => return Ok(None),
        [(version, weight)] => (version.as_str(), **weight),
        _ => {
            return Err(ApiError::invalid(
                "Number of items in AdditionalVersionWeights cannot be greater than 1",
            ));
        }
    };
    if !(0.0..=1.0).contains(&weight) {
        return Err(ApiError::invalid(format!(
            "The weight of version {version} must be between 0 and 1, not {weight}"
        )));
    }
    match version_of(function, version)? {
        Some(number) => Ok(Some((number, weight))),
        None => Err(ApiError::invalid(
            "$LATEST is not supported for an alias pointing to more than 1 version",
        )),
    }
}

/// The version that an alias may name; None is `$LATEST`.
fn version_of(function: &Function, version: &str) -> Result<Option<u32>, ApiError> {
    if version == LATEST {
        return Ok(None);
    }
    let number = version_number(version);
    match number.filter(|number| function.published.versions.contains_key(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(ApiError::not_found(format!("Function not found: {}:{version}", function.arn))),
    }
}

/// Lambda's rule: no name that could be a version's number.
fn check_name(name: &str) -> Result<(), ApiError> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let number = name.bytes().all(|byte| byte.is_ascii_digit());
    if number || name.len() > MAX_NAME || !name.bytes().all(fine) {
        return Err(ApiError::invalid(format!(
            "Name must be 1 to {MAX_NAME} letters, digits, hyphens and underscores, and not digits \
             alone: {name:?}"
        )));
    }
    Ok(())
}

pub(super) fn get_alias<'a>(function: &'a Function, name: &str) -> Result<&'a Alias, ApiError> {
    let missing = || ApiError::not_found(format!("Cannot find alias arn: {}", arn(function, name)));
    function.published.aliases.get(name).ok_or_else(missing)
}

fn arn(function: &Function, name: &str) -> String {
    format!("{}:{name}", function.arn)
}

fn version_name(version: Option<u32>) -> String {
    version.map_or_else(|| LATEST.to_owned(), |number| number.to_string())
}

fn describe(function: &Function, name: &str) -> Result<Value, ApiError> {
    let alias = get_alias(function, name)?;
    let mut body = json!({
        "AliasArn": arn(function, name),
        "Name": name,
        "FunctionVersion": version_name(alias.version),
        "Description": alias.description,
        "RevisionId": alias.revision,
    });
    if let Some((version, weight)) = alias.additional {
        body["RoutingConfig"] =
            json!({"AdditionalVersionWeights": {(version.to_string()): weight}});
    }
    Ok(body)
}
