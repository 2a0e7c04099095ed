//! Provisioned concurrency: instances of a version or an alias that are kept ready.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::error::{Answer, ApiError, empty_answer, json_answer};
use super::forms::{self, ProvisionedForm};
use super::functions::{change_published, find};
use super::versions::Reference;
use super::{Api, pages};
use crate::clock;
use crate::dispatch::Readiness;
use crate::function::Function;
use crate::published::{LATEST, Provisioned, Published, Version};

pub(super) fn put(
    api: &Arc<Api>,
    reference: &str,
    query: &str,
    body: &[u8],
) -> Result<Answer, ApiError> {
    let form: ProvisionedForm = forms::read(body, &[])?;
    let (name, qualifier) = qualified(reference, query)?;
    let instances = form.ProvisionedConcurrentExecutions;
    if instances == 0 {
        return Err(ApiError::invalid("ProvisionedConcurrentExecutions must be at least 1, not 0"));
    }
    let function = change_published(api, &name, None, |function| {
        check_target(function, &qualifier)?;
        check_limits(api, function, &qualifier, instances)?;
        let modified_unix_ms = clock::unix_ns() / 1_000_000;
        let provisioned = Provisioned { instances, modified_unix_ms };
        Arc::make_mut(&mut function.published).provisioned.insert(qualifier.clone(), provisioned);
        Ok(())
    })?;
    // Its instances have not been ordered yet.
    let body = describe(&function.published, &qualifier, &Readiness::default())?;
    Ok(json_answer(StatusCode::ACCEPTED, &body))
}

pub(super) async fn get(api: &Api, reference: &str, query: &str) -> Result<Answer, ApiError> {
    let (name, qualifier) = qualified(reference, query)?;
    let function = find(api, &name)?;
    let readiness = readiness(api, &function, &qualifier).await;
    let body = describe(&function.published, &qualifier, &readiness)?;
    Ok(json_answer(StatusCode::OK, &body))
}

pub(super) async fn list(api: &Api, reference: &str, query: &str) -> Result<Answer, ApiError> {
    let function = find(api, reference)?;
    let mut rows = BTreeMap::new();
    for qualifier in function.published.provisioned.keys() {
        let readiness = readiness(api, &function, qualifier).await;
        let mut row = describe(&function.published, qualifier, &readiness)?;
        row["FunctionArn"] = json!(format!("{}:{qualifier}", function.arn));
        rows.insert(qualifier.clone(), row);
    }
    pages::answer("ProvisionedConcurrencyConfigs", rows.into_iter(), query)
}

/// Takes the provision of a version or alias away; what has none is no error, as on Lambda.
pub(super) fn delete(api: &Arc<Api>, reference: &str, query: &str) -> Result<Answer, ApiError> {
    let (name, qualifier) = qualified(reference, query)?;
    change_published(api, &name, None, |function| {
        check_target(function, &qualifier)?;
        if function.published.provisioned.contains_key(&qualifier) {
            Arc::make_mut(&mut function.published).provisioned.remove(&qualifier);
        }
        Ok(())
    })?;
    Ok(empty_answer(StatusCode::NO_CONTENT))
}

/// The function's name and the version or alias.
fn qualified(reference: &str, query: &str) -> Result<(String, String), ApiError> {
    let Reference { name, qualifier } = Reference::read(reference, query)?;
    match qualifier {
        None => Err(ApiError::invalid("Qualifier must name a version or an alias")),
        Some(latest) if latest == LATEST => Err(ApiError::invalid(
            "Provisioned Concurrency Configs cannot be applied to unpublished function version.",
        )),
        Some(qualifier) => Ok((name, qualifier)),
    }
}

/// The version that a qualifier means first.
fn target(published: &Published, qualifier: &str) -> Option<Version> {
    // No draw is below a weight, so that it is never the second version.
    published.resolve(qualifier, 1.0)
}

/// Instances can be kept of a published version only, and through one name.
fn check_target(function: &Function, qualifier: &str) -> Result<(), ApiError> {
    let published = &function.published;
    let missing =
        || ApiError::not_found(format!("Function not found: {}:{qualifier}", function.arn));
    let version = target(published, qualifier).ok_or_else(missing)?;
    if version == Version::Latest {
        return Err(ApiError::invalid(
            "Provisioned Concurrency Configs cannot be applied to unpublished function version.",
        ));
    }
    let is_alias = published.aliases.contains_key(qualifier);
    let mut others = published.provisioned.keys().filter(|other| *other != qualifier);
    if others.any(|other| target(published, other) == Some(version)) {
        return Err(ApiError::conflict(if is_alias {
            "Alias can't be used for Provisioned Concurrency configuration on an already \
             Provisioned version"
        } else {
            "Version is pointed by a Provisioned Concurrency alias"
        }));
    }
    Ok(())
}

/// What may be kept ready is bounded by the function's reserved concurrency, and by what the platform
/// keeps of all functions together.
fn check_limits(
    api: &Api,
    function: &Function,
    qualifier: &str,
    instances: u32,
) -> Result<(), ApiError> {
    let own = &function.published;
    let before = own.provisioned.get(qualifier).map_or(0, |it| u64::from(it.instances));
    let of_function = own.provisioned_instances() - before + u64::from(instances);
    let reserved = function.configuration.reserved_concurrency;
    if reserved.is_some_and(|reserved| of_function > u64::from(reserved)) {
        return Err(ApiError::invalid(
            "Requested Provisioned Concurrency should not be greater than the \
             reservedConcurrentExecution for function",
        ));
    }
    let all = api.registry.all();
    let kept = all.iter().map(|other| {
        let by_tag = u64::from(other.settings(&api.config).min_instances);
        by_tag + other.published.provisioned_instances()
    });
    let total = kept.sum::<u64>() - before + u64::from(instances);
    let limit = u64::from(api.config.max_instances);
    let most = uncia_policy::most_kept(limit);
    if total > most {
        return Err(ApiError::invalid(format!(
            "Specified ConcurrentExecutions for function decreases account's \
             UnreservedConcurrentExecution below its minimum value of [{}]: {total} of {limit} \
             instances would be kept ready, and at most {most} may be",
            limit - most
        )));
    }
    Ok(())
}

async fn readiness(api: &Api, function: &Function, qualifier: &str) -> Readiness {
    let version = match target(&function.published, qualifier) {
        Some(Version::Number(number)) => function.published.versions.get(&number),
        _ => None,
    };
    match version {
        Some(version) => api.dispatcher.readiness(version.id).await,
        None => Readiness::default(),
    }
}

fn describe(
    published: &Published,
    qualifier: &str,
    readiness: &Readiness,
) -> Result<Value, ApiError> {
    let provisioned = published.provisioned.get(qualifier).ok_or_else(ApiError::not_provisioned)?;
    let ready = readiness.instances.min(provisioned.instances as usize);
    let mut body = json!({
        "RequestedProvisionedConcurrentExecutions": provisioned.instances,
        "AvailableProvisionedConcurrentExecutions": ready,
        "AllocatedProvisionedConcurrentExecutions": ready,
        "LastModified": clock::iso_8601(provisioned.modified_unix_ms),
        "Status": "IN_PROGRESS",
    });
    if ready == provisioned.instances as usize {
        body["Status"] = json!("READY");
    } else if let Some(reason) = &readiness.start_error {
        body["Status"] = json!("FAILED");
        body["StatusReason"] = json!(reason);
    }
    Ok(body)
}
