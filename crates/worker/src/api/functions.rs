//! Creating, changing and describing functions.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use tokio::runtime::Handle;

use super::description::{describe, describe_as, describe_published};
use super::error::{Answer, ApiError, empty_answer, json_answer};
use super::forms::{
    self, CreateFunction, NO_CODE, NO_CONFIGURATION, UpdateCode, UpdateConfiguration, Zip,
    zip_bytes, zip_file,
};
use super::limits::{
    Settings, check_architectures, check_name, check_runtime, check_tags, settings,
};
use super::route::query_values;
use super::versions::{self, Reference, Target, find_version};
use super::{ARN_PREFIX, Api, images, invoke, layers, pages};
use crate::clock;
use crate::function::{Configuration, Function, ImageConfig, ImageUse, default_architecture};
use crate::ids;
use crate::instance::Runtime;
use crate::layer::Layers;
use crate::published::LATEST;
use crate::sandbox::SeenAt;
use crate::store::{Code, FetchedZip, Origin, check_handler};

/// How a function that was configured gets its requests.
const ARCHITECTURE_HEADER: &str = "x-uncia-architecture";
/// What whoever configures it should know.
const WARNING_HEADER: &str = "x-uncia-warning";

const DEFAULT_TIMEOUT_S: u64 = 3;
const DEFAULT_MEMORY_MB: u64 = 128;
const DEFAULT_EPHEMERAL_MB: u64 = 512;

/// How long CreateFunction waits for what instances start from, on however busy a machine.
const EXPECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The name of the function that a request is about as a whole, whatever version it may name otherwise.
pub(super) fn name_of(reference: &str) -> Result<String, ApiError> {
    let Reference { name, qualifier } = Reference::read(reference, "")?;
    match qualifier {
        Some(qualifier) if qualifier != LATEST => Err(ApiError::invalid(format!(
            "This operation is about the whole function {name}, not about {qualifier:?}: leave the \
             version or alias out"
        ))),
        _ => Ok(name),
    }
}

/// The function that a request names.
pub(super) fn find(api: &Api, reference: &str) -> Result<Arc<Function>, ApiError> {
    let name = name_of(reference)?;
    api.registry.get(&name).ok_or_else(|| missing(&name))
}

fn missing(name: &str) -> ApiError {
    ApiError::not_found(format!("Function not found: {ARN_PREFIX}{name}"))
}

/// Changes a function and makes the change known; `revision` must be the current one, if given.
pub(super) fn change(
    api: &Arc<Api>,
    reference: &str,
    revision: Option<&str>,
    edit: impl FnOnce(&mut Function) -> Result<(), ApiError>,
) -> Result<Arc<Function>, ApiError> {
    change_published(api, reference, revision, |function| {
        edit(function)?;
        touch(function);
        Ok(())
    })
}

/// Changes what is published of a function, which leaves the function itself as it is.
pub(super) fn change_published(
    api: &Arc<Api>,
    reference: &str,
    revision: Option<&str>,
    edit: impl FnOnce(&mut Function) -> Result<(), ApiError>,
) -> Result<Arc<Function>, ApiError> {
    let name = name_of(reference)?;
    let mut changes = api.registry.change();
    let old = changes.get(&name).ok_or_else(|| missing(&name))?;
    if revision.is_some_and(|revision| revision != old.configuration.revision) {
        return Err(ApiError::precondition(
            "The RevisionId provided does not match the latest RevisionId",
        ));
    }
    if old.unreadable {
        return Err(ApiError::broken(&old));
    }
    let mut function = (*old).clone();
    edit(&mut function)?;
    if old.refusal(&api.config).is_none() {
        check_capacity(api, &function)?;
    }
    let function = changes.put(function, |version| api.dispatcher.configure(version))?;
    Ok(function)
}

/// Refuses a function that is larger than the platform.
fn check_capacity(api: &Api, function: &Function) -> Result<(), ApiError> {
    function.refusal(&api.config).map_or(Ok(()), |refusal| Err(ApiError::invalid(refusal)))
}

/// Gives a changed function a new revision.
fn touch(function: &mut Function) {
    function.configuration.modified_unix_ms = clock::unix_ns() / 1_000_000;
    function.configuration.revision = ids::uuid();
}

pub(super) fn create(api: &Arc<Api>, body: &[u8]) -> Result<Answer, ApiError> {
    let form: CreateFunction = forms::read(body, &NO_CONFIGURATION)?;
    let name = name_of(&form.FunctionName)?;
    check_name(&name)?;
    let is_image = images::is_image(form.PackageType.as_deref())?;
    images::check_kind(is_image, &form.Code)?;
    let (identifier, handler) = if is_image {
        images::check_no_handler(&[form.Runtime.as_ref(), form.Handler.as_ref()])?;
        (images::RUNTIME.to_owned(), None)
    } else {
        let required =
            |key: &str| ApiError::invalid(format!("{key} is required for a zip package"));
        let identifier = form.Runtime.ok_or_else(|| required("Runtime"))?;
        (identifier, Some(form.Handler.ok_or_else(|| required("Handler"))?))
    };
    let runtime = check_runtime(&identifier, &api.host)?;
    let tags = form.Tags.unwrap_or_default();
    check_tags(&tags)?;
    let default = default_architecture(&api.config, runtime, handler.as_deref());
    let overrides = settings(api, &tags, runtime, is_image, default)?;
    let mut configuration = Configuration {
        runtime: identifier,
        handler: String::new(),
        role: form.Role.ok_or_else(|| ApiError::invalid("Role is required"))?,
        description: String::new(),
        timeout_s: DEFAULT_TIMEOUT_S,
        memory_mb: DEFAULT_MEMORY_MB,
        ephemeral_mb: DEFAULT_EPHEMERAL_MB,
        environment: BTreeMap::new(),
        architecture: check_architectures(form.Architectures.as_deref())?,
        modified_unix_ms: clock::unix_ns() / 1_000_000,
        revision: ids::uuid(),
        key: ids::uuid(),
        reserved_concurrency: None,
        image: None,
        fetched: None,
        layers: layers::choose(api, form.Layers.as_deref().unwrap_or_default(), &[])?,
    };
    Settings {
        handler: handler.as_deref(),
        role: None,
        description: form.Description.as_deref(),
        timeout: form.Timeout,
        memory: form.MemorySize,
        ephemeral: form.EphemeralStorage.map(|storage| storage.Size),
        environment: form.Environment.as_ref().map(|environment| &environment.Variables),
    }
    .apply(&mut configuration)?;
    let image_config = images::config(form.ImageConfig)?;
    if !is_image && image_config != ImageConfig::default() {
        return Err(ApiError::invalid(
            "Please don't provide ImageConfig when the PackageType is Zip",
        ));
    }
    let exists = || ApiError::conflict(format!("Function already exist: {name}"));
    if api.registry.get(&name).is_some() {
        return Err(exists());
    }
    let layers = layers::lay(api, &configuration)?;
    let code = if is_image {
        layers::check_none(&layers)?;
        let (code, used) = images::load(api, &form.Code, image_config)?;
        configuration.image = Some(used);
        code
    } else {
        let code =
            store_code(api, &form.Code, overrides.is_fetched(), runtime, &configuration, &layers)?;
        configuration.fetched = fetched(&code);
        compile(api, &code, &layers, runtime);
        code
    };
    let mut changes = api.registry.change();
    if changes.get(&name).is_some() {
        return Err(exists());
    }
    let mut function = api.registry.new_function(&name, configuration, tags, overrides, code);
    function.layers = layers;
    check_capacity(api, &function)?;
    let version = form.Publish.unwrap_or_default().then(|| versions::add(api, &mut function, None));
    let version = version.transpose()?;
    let function = changes.put(function, |function| api.dispatcher.configure(function))?;
    drop(changes);
    expect(api, &function);
    let body = describe_published(api, &function, version)?;
    Ok(with_architecture(api, &function, json_answer(StatusCode::CREATED, &body)))
}

pub(super) fn update_code(
    api: &Arc<Api>,
    reference: &str,
    body: &[u8],
) -> Result<Answer, ApiError> {
    let mut form: UpdateCode = forms::read(body, &NO_CODE)?;
    let old = find(api, reference)?;
    if old.unreadable {
        return Err(ApiError::broken(&old));
    }
    check_architectures(form.Architectures.as_deref())?;
    let settings = &old.configuration;
    let place = form.take_code();
    images::check_kind(settings.image.is_some(), &place)?;
    let (code, image) = if let Some(used) = &settings.image {
        let (code, used) = images::load(api, &place, used.overrides.clone())?;
        (code, Some(used))
    } else {
        let is_fetched = old.overrides.is_fetched();
        (store_code(api, &place, is_fetched, old.runtime(), settings, &old.layers)?, None)
    };
    if form.DryRun == Some(true) {
        return Ok(json_answer(StatusCode::OK, &describe(api, &old)));
    }
    if image.is_none() {
        compile(api, &code, &old.layers, old.runtime());
    }
    let mut version = None;
    let function = change_published(api, reference, form.RevisionId.as_deref(), |function| {
        if function.configuration.image.is_some() != image.is_some() {
            return Err(ApiError::conflict("The function was replaced meanwhile: try again"));
        }
        if let (Some(old), Some(new)) = (&mut function.configuration.image, image) {
            // What overrides it may have been changed meanwhile.
            *old = ImageUse { overrides: old.overrides.clone(), ..new };
        }
        // They may have been changed meanwhile.
        layers::check_size(&code, &function.layers)?;
        function.configuration.fetched = fetched(&code);
        function.code = code;
        function.layers = layers::lay(api, &function.configuration)?;
        function.broken = None;
        touch(function);
        if form.Publish == Some(true) {
            version = Some(versions::add(api, function, None)?);
        }
        Ok(())
    })?;
    Ok(json_answer(StatusCode::OK, &describe_published(api, &function, version)?))
}

pub(super) fn update_configuration(
    api: &Arc<Api>,
    reference: &str,
    body: &[u8],
) -> Result<Answer, ApiError> {
    let form: UpdateConfiguration = forms::read(body, &NO_CONFIGURATION)?;
    let old = find(api, reference)?;
    let layers = form.Layers.as_ref().map(|arns| {
        let chosen = layers::choose(api, arns, &old.configuration.layers)?;
        let laid = api.registry.lay(&chosen).map_err(ApiError::service)?;
        Ok::<_, ApiError>((chosen, laid))
    });
    let layers = layers.transpose()?;
    if old.configuration.image.is_some() {
        images::check_no_handler(&[form.Runtime.as_ref(), form.Handler.as_ref()])?;
        layers.iter().try_for_each(|(_, laid)| layers::check_none(laid))?;
    } else if form.Runtime.is_some() || layers.is_some() {
        let identifier = form.Runtime.as_ref().unwrap_or(&old.configuration.runtime);
        let laid = layers.as_ref().map_or(&old.layers, |(_, laid)| laid);
        compile(api, &old.code, laid, check_runtime(identifier, &api.host)?);
    }
    let image_config = form.ImageConfig.map(|config| images::config(Some(config))).transpose()?;
    let function = change(api, reference, form.RevisionId.as_deref(), |function| {
        if let Some(config) = image_config {
            images::change_config(function, config)?;
        }
        let configuration = &mut function.configuration;
        if let Some(identifier) = &form.Runtime {
            check_runtime(identifier, &api.host)?;
            configuration.runtime.clone_from(identifier);
        }
        Settings {
            handler: form.Handler.as_deref(),
            role: form.Role.as_deref(),
            description: form.Description.as_deref(),
            timeout: form.Timeout,
            memory: form.MemorySize,
            ephemeral: form.EphemeralStorage.as_ref().map(|storage| storage.Size),
            environment: form.Environment.as_ref().map(|environment| &environment.Variables),
        }
        .apply(configuration)?;
        let is_other = form.Handler.is_some() || form.Runtime.is_some() || layers.is_some();
        if let Some((chosen, laid)) = layers {
            layers::check_size(&function.code, &laid)?;
            (function.configuration.layers, function.layers) = (chosen, laid);
        }
        if is_other {
            let runtime = function.runtime();
            let configuration = &function.configuration;
            let (identifier, handler) = (&configuration.runtime, &configuration.handler);
            let layers = function.layers.folder();
            let code = function.code.folder();
            check_handler(&code, layers.as_deref(), runtime, identifier, handler)?;
            // Not every runtime can be started in every way.
            let default = function.default_architecture(&api.config);
            settings(api, &function.tags, runtime, false, default)?;
        }
        Ok(())
    })?;
    Ok(with_architecture(api, &function, json_answer(StatusCode::OK, &describe(api, &function))))
}

/// The answer to who has configured a function, which says how it is served, with a warning if that is
/// otherwise than the platform's functions are.
fn with_architecture(api: &Api, function: &Function, mut answer: Answer) -> Answer {
    let architecture = function.architecture(&api.config).name();
    invoke::put(answer.headers_mut(), ARCHITECTURE_HEADER, architecture);
    if let Some(why) = function.why_it_polls(&api.config) {
        tracing::warn!(function = &*function.name, "{why}");
        invoke::put(answer.headers_mut(), WARNING_HEADER, &why);
    }
    answer
}

pub(super) fn get(api: &Api, reference: &str, query: &str) -> Result<Answer, ApiError> {
    let Target { version, qualified_arn } = find_version(api, reference, query)?;
    let code = match &version.configuration.image {
        Some(used) => json!({
            "RepositoryType": "ECR",
            "ImageUri": used.uri,
            "ResolvedImageUri": used.resolved_uri,
        }),
        None => {
            let sha256 = version.code.sha256();
            let location = format!("{}/uncia/v1/code/{sha256}", api.base_url);
            json!({"RepositoryType": "S3", "Location": location})
        }
    };
    // Tags and concurrency are the function's, not a version's.
    let function = find(api, &version.name)?;
    let mut body = json!({
        "Configuration": describe_as(api, &version, qualified_arn.as_ref().unwrap_or(&version.arn)),
        "Code": code,
        "Tags": function.tags,
    });
    if let Some(reserved) = function.configuration.reserved_concurrency {
        body["Concurrency"] = json!({"ReservedConcurrentExecutions": reserved});
    }
    Ok(json_answer(StatusCode::OK, &body))
}

pub(super) fn get_configuration(
    api: &Api,
    reference: &str,
    query: &str,
) -> Result<Answer, ApiError> {
    let Target { version, qualified_arn } = find_version(api, reference, query)?;
    let body = describe_as(api, &version, qualified_arn.as_ref().unwrap_or(&version.arn));
    Ok(json_answer(StatusCode::OK, &body))
}

pub(super) fn list(api: &Api, query: &str) -> Result<Answer, ApiError> {
    let with_versions = match query_values(query, "FunctionVersion").first().map(String::as_str) {
        None => false,
        Some("ALL") => true,
        Some(other) => {
            return Err(ApiError::invalid(format!("FunctionVersion must be ALL, not {other:?}")));
        }
    };
    let mut rows = BTreeMap::new();
    for function in api.registry.all() {
        let versions = if with_versions { usize::MAX } else { 1 };
        for version in function.versions().take(versions) {
            // So that versions sort by number.
            let number = version.version.map(|number| format!(":{number:010}"));
            let marker = format!("{}{}", version.name, number.unwrap_or_default());
            rows.insert(marker, version.clone());
        }
    }
    let rows = rows.into_iter().map(|(marker, version)| (marker, describe(api, &version)));
    pages::answer("Functions", rows, query)
}

pub(super) fn delete(api: &Arc<Api>, reference: &str, query: &str) -> Result<Answer, ApiError> {
    let reference = Reference::read(reference, query)?;
    if reference.qualifier.is_some() {
        return versions::delete(api, &reference);
    }
    let mut changes = api.registry.change();
    let function = changes.get(&reference.name).ok_or_else(|| missing(&reference.name))?;
    changes.remove(&function)?;
    for version in function.versions() {
        api.dispatcher.delete(version);
    }
    Ok(empty_answer(StatusCode::NO_CONTENT))
}

pub(super) fn code_signing(api: &Api, reference: &str) -> Result<Answer, ApiError> {
    let function = find(api, reference)?;
    Ok(json_answer(StatusCode::OK, &json!({"FunctionName": &*function.name})))
}

/// Waits until what a function's instances start from is there, so that its first start is as all others.
/// Only for threads that may wait; nothing is locked meanwhile.
fn expect(api: &Arc<Api>, function: &Function) {
    let spec = function.instance_spec("", &api.config);
    // On a machine so busy that it is not there yet, the function is created all the same.
    let _ = Handle::current()
        .block_on(async { tokio::time::timeout(EXPECT_TIMEOUT, api.host.expect(&spec)).await });
}

/// Stores a package that fits the function's other settings. Only for threads that may wait.
fn store_code(
    api: &Api,
    form: &forms::Code,
    is_fetched: bool,
    runtime: Runtime,
    configuration: &Configuration,
    layers: &Layers,
) -> Result<Arc<Code>, ApiError> {
    let (identifier, handler) = (&configuration.runtime, &configuration.handler);
    let folder = layers.folder();
    let check = |code: &Path| check_handler(code, folder.as_deref(), runtime, identifier, handler);
    let packages = api.registry.packages();
    let code = if is_fetched {
        let Zip::InStore(object) = zip_file(form)? else {
            return Err(ApiError::invalid(
                "A function with the tag uncia:code set to fetched has its package in the store: please provide \
                 S3Bucket and S3Key, not ZipFile",
            ));
        };
        packages.store_fetched(object, check)?
    } else {
        packages.store(&zip_bytes(api, form)?, check)?
    };
    layers::check_size(&code, layers)?;
    Ok(code)
}

/// Where a package is fetched from, if it is a zip file that is not kept here.
fn fetched(code: &Code) -> Option<FetchedZip> {
    match code.origin() {
        Some(Origin::Store(zip)) => Some(zip.clone()),
        _ => None,
    }
}

/// Waits until a package and layers are compiled, so that all cold starts of a function are alike. Only
/// for threads that may wait; nothing is locked meanwhile.
fn compile(api: &Arc<Api>, code: &Arc<Code>, layers: &Layers, runtime: Runtime) {
    Handle::current().block_on(async {
        // Nothing of what is fetched is kept, and neither is its byte code.
        if code.origin().is_none() {
            code.compile(&api.host, runtime, SeenAt::Task).await;
        }
        if let Some(opt) = layers.opt() {
            opt.compile(&api.host, runtime, SeenAt::Layers).await;
        }
    });
}
