//! Functions that are images: which may be named, and how they are used.
//!
//! A client names a layout on this machine, `oci:/path[:tag]`. The platform reads it with its own rights,
//! which may be root's, so only what lies below the folders that its configuration names is read, and no link
//! on the way leads out of them.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use uncia_oci::layout::Layout;
use uncia_oci::{Digest, Image, ImageError, Selector};

use super::Api;
use super::error::ApiError;
use super::forms::{Code as CodeForm, ImageConfigForm};
use crate::function::{Configuration, Function, ImageConfig, ImageUse};
use crate::remote::registry::{Registry, Repository};
use crate::store::{Code, PackageError};

/// What an image is run as: it brings its own runtime.
pub(super) const RUNTIME: &str = "provided.al2023";

const SCHEME: &str = "oci:";
/// Longest tag that a registry takes.
const MAX_TAG_BYTES: usize = 128;
/// Lambda's limits for `ImageConfig`.
const MAX_ARGUMENTS: usize = 1_500;
const MAX_FOLDER_BYTES: usize = 1_000;

/// Where an image is, and which of those there.
#[derive(Debug, PartialEq, Eq)]
struct Reference {
    source: ImageSource,
    selector: Selector,
}

/// Where images are.
#[derive(Debug, PartialEq, Eq)]
enum ImageSource {
    /// A layout on this machine.
    Layout(PathBuf),
    Registry(Repository),
}

impl Reference {
    fn parse(uri: &str) -> Result<Self, ApiError> {
        let invalid = |why: &str| {
            ApiError::invalid(format!(
                "ImageUri {uri:?} is not supported: {why}. Name an OCI image layout on this machine, a \
                 folder or a tar file, as oci:/path, oci:/path:tag or oci:/path@sha256:digest; or an image in a \
                 registry as HOST:PORT/name:tag or HOST:PORT/name@sha256:digest"
            ))
        };
        let layout = uri.strip_prefix(SCHEME);
        let rest = layout.unwrap_or(uri);
        if layout.is_some() && (rest.contains('\0') || !rest.starts_with('/')) {
            return Err(invalid("the path must be absolute"));
        }
        let name = rest.rfind('/').map_or(0, |index| index + 1);
        let (path, selector) = if let Some((path, digest)) = rest.rsplit_once('@') {
            let digest = Digest::parse(digest).map_err(|error| invalid(&error.to_string()))?;
            (path, Selector::Digest(digest))
        } else if let Some(colon) = rest[name..].rfind(':') {
            let tag = &rest[name + colon + 1..];
            let fine =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
            if tag.is_empty() || tag.len() > MAX_TAG_BYTES || !tag.bytes().all(fine) {
                return Err(invalid(&format!("{tag:?} is no tag")));
            }
            (&rest[..name + colon], Selector::Tag(tag.to_owned()))
        } else {
            (rest, Selector::Only)
        };
        let source = match layout {
            Some(_) => ImageSource::Layout(path.into()),
            None => ImageSource::Registry(repository(path).map_err(invalid)?),
        };
        Ok(Self { source, selector })
    }

    /// The same with the digest of what it means now.
    fn resolved(&self, digest: &Digest) -> String {
        match &self.source {
            ImageSource::Layout(path) => format!("{SCHEME}{}@{digest}", path.display()),
            ImageSource::Registry(Repository { registry, name }) => {
                format!("{registry}/{name}@{digest}")
            }
        }
    }
}

/// The repository that the beginning of a reference names; the error says what is wrong with it.
fn repository(text: &str) -> Result<Repository, &'static str> {
    let (registry, name) = text.split_once('/').unwrap_or((text, ""));
    let port = registry.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(1..))) {
        return Err("it begins with no address of a registry");
    }
    if !Repository::is_name(name) {
        return Err("it names no repository, in small letters and digits");
    }
    Ok(Repository { registry: registry.to_owned(), name: name.to_owned() })
}

/// Whether a function is to be an image.
pub(super) fn is_image(package_type: Option<&str>) -> Result<bool, ApiError> {
    match package_type {
        None | Some("Zip") => Ok(false),
        Some("Image") => Ok(true),
        Some(other) => {
            Err(ApiError::invalid(format!("PackageType must be Zip or Image, not {other:?}")))
        }
    }
}

/// Refuses what does not go with the kind of package that a function has.
pub(super) fn check_kind(is_image: bool, code: &CodeForm) -> Result<(), ApiError> {
    if is_image && (code.ZipFile.is_some() || code.S3Bucket.is_some() || code.S3Key.is_some()) {
        return Err(ApiError::invalid(
            "Please don't provide ZipFile, S3Bucket or S3Key when the PackageType is Image",
        ));
    }
    if !is_image && code.ImageUri.is_some() {
        return Err(ApiError::invalid("Please don't provide ImageUri when the PackageType is Zip"));
    }
    Ok(())
}

/// Refuses what only zip packages have.
pub(super) fn check_no_handler(given: &[Option<&String>]) -> Result<(), ApiError> {
    if given.iter().any(Option::is_some) {
        return Err(ApiError::invalid(
            "Please don't provide Handler or Runtime when the PackageType is Image: the image says what \
             is started, or ImageConfig does",
        ));
    }
    Ok(())
}

/// Finds and stores the image that a form names. Only for threads that may wait.
pub(super) fn load(
    api: &Api,
    code: &CodeForm,
    overrides: ImageConfig,
) -> Result<(Arc<Code>, ImageUse), ApiError> {
    let uri = code.ImageUri.as_deref().ok_or_else(|| {
        ApiError::invalid("Please provide the image as ImageUri, for example oci:/path:tag")
    })?;
    let reference = Reference::parse(uri)?;
    let refused = |error: ImageError| ApiError::from(PackageError::from(error));
    let used = |image: &Image| {
        check_program(image, &overrides)?;
        let resolved_uri = reference.resolved(&image.digest);
        let overrides = overrides.clone();
        Ok::<_, ApiError>(ImageUse { uri: uri.to_owned(), resolved_uri, overrides })
    };
    let packages = api.registry.packages();
    match &reference.source {
        ImageSource::Layout(path) => {
            let handle = open_allowed(&api.config.images, path)?;
            let layout = Layout::open(handle, &path.display().to_string()).map_err(refused)?;
            let image = Image::read(&layout, &reference.selector).map_err(refused)?;
            let used = used(&image)?;
            Ok((packages.store_image(&layout, image)?, used))
        }
        ImageSource::Registry(repository) => {
            check_registry(&api.config.registries, &repository.registry)?;
            let registry = Registry::new(repository.clone(), reference.selector.clone());
            let image = Image::read(&registry, &reference.selector).map_err(refused)?;
            let used = used(&image)?;
            Ok((packages.store_remote(repository.clone(), image)?, used))
        }
    }
}

/// Refuses a registry that the platform's configuration does not name.
fn check_registry(allowed: &[String], registry: &String) -> Result<(), ApiError> {
    if allowed.contains(registry) {
        return Ok(());
    }
    let known = match allowed {
        [] => {
            "it takes images from none: start it with --registry and the address of one".to_owned()
        }
        _ => format!("it takes images from {}", allowed.join(", ")),
    };
    Err(ApiError::invalid(format!("This platform takes no images from {registry}; {known}")))
}

/// Opens a layout below one of the allowed folders.
fn open_allowed(allowed: &[PathBuf], path: &Path) -> Result<OwnedFd, ApiError> {
    if allowed.is_empty() {
        return Err(ApiError::invalid(
            "This platform takes no images: start it with --images and the folder that they lie in",
        ));
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    // As it is written, or as it is without links: who may set those may not choose where they lead.
    let real = fs::canonicalize(path).ok();
    for path in [Some(path), real.as_deref()].into_iter().flatten() {
        for folder in allowed {
            let forms = [Some(folder.clone()), fs::canonicalize(folder).ok()];
            let Some((folder, below)) = forms
                .iter()
                .flatten()
                .find_map(|folder| path.strip_prefix(folder).ok().map(|below| (folder, below)))
            else {
                continue;
            };
            let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            let nonblocking = flags | OFlags::NONBLOCK;
            let opened = open(folder, flags | OFlags::DIRECTORY, Mode::empty())
                .and_then(|folder| openat2(folder, below, nonblocking, Mode::empty(), resolve));
            match opened {
                Ok(handle) => return Ok(handle),
                // It leads out of the folder, or, without links, lies in another.
                Err(rustix::io::Errno::XDEV) => {}
                Err(error) => {
                    return Err(ApiError::invalid(format!(
                        "The image {} cannot be opened: {error}",
                        path.display()
                    )));
                }
            }
        }
    }
    let folders: Vec<_> = allowed.iter().map(|folder| folder.display().to_string()).collect();
    Err(ApiError::invalid(format!(
        "The image {} is in none of the folders that this platform takes images from: {}",
        path.display(),
        folders.join(", ")
    )))
}

fn check_program(image: &Image, overrides: &ImageConfig) -> Result<(), ApiError> {
    if overrides.command_of(&image.execution).first().is_none_or(String::is_empty) {
        return Err(ApiError::invalid(
            "The image names no program: set ImageConfig with an EntryPoint or a Command",
        ));
    }
    Ok(())
}

/// `ImageConfig`, checked; an empty list is as good as none, as Lambda has it.
pub(super) fn config(form: Option<ImageConfigForm>) -> Result<ImageConfig, ApiError> {
    let ImageConfigForm { EntryPoint, Command, WorkingDirectory } = form.unwrap_or_default();
    for (key, list) in [("EntryPoint", &EntryPoint), ("Command", &Command)] {
        let list = list.as_deref().unwrap_or_default();
        if list.len() > MAX_ARGUMENTS || list.iter().any(|text| text.contains('\0')) {
            return Err(ApiError::invalid(format!(
                "ImageConfig.{key} must be at most {MAX_ARGUMENTS} texts without NUL"
            )));
        }
    }
    let folder = WorkingDirectory.as_deref().unwrap_or("/");
    if folder.len() > MAX_FOLDER_BYTES || folder.contains('\0') {
        return Err(ApiError::invalid(format!(
            "ImageConfig.WorkingDirectory must have at most {MAX_FOLDER_BYTES} bytes and no NUL"
        )));
    }
    let given = |list: Option<Vec<String>>| list.filter(|list| !list.is_empty());
    Ok(ImageConfig {
        entry_point: given(EntryPoint),
        command: given(Command),
        working_directory: WorkingDirectory.filter(|folder| !folder.is_empty()),
    })
}

/// Changes `ImageConfig` of a function.
pub(super) fn change_config(function: &mut Function, config: ImageConfig) -> Result<(), ApiError> {
    let Some(used) = &mut function.configuration.image else {
        return Err(ApiError::invalid(
            "Please don't provide ImageConfig when the PackageType is Zip",
        ));
    };
    if let Some(stored) = function.code.image() {
        check_program(&stored.image, &config)?;
    }
    used.overrides = config;
    Ok(())
}

/// What descriptions of a function have otherwise if it is an image.
pub(super) fn describe(body: &mut serde_json::Value, configuration: &Configuration) {
    let Some(used) = &configuration.image else { return };
    if let Some(body) = body.as_object_mut() {
        for key in ["Runtime", "Handler", "RuntimeVersionConfig", "SnapStart"] {
            body.remove(key);
        }
    }
    body["PackageType"] = "Image".into();
    let ImageConfig { entry_point, command, working_directory } = &used.overrides;
    let mut config = serde_json::Map::new();
    for (key, list) in [("EntryPoint", entry_point), ("Command", command)] {
        config.extend(list.as_ref().map(|list| (key.to_owned(), list.clone().into())));
    }
    let folder = working_directory.as_ref();
    config.extend(folder.map(|folder| ("WorkingDirectory".to_owned(), folder.clone().into())));
    if !config.is_empty() {
        body["ImageConfigResponse"] = serde_json::json!({ "ImageConfig": config });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn references_by_tag_and_by_digest() {
        let parse = |uri: &str| Reference::parse(uri).unwrap();
        assert_eq!(parse("oci:/a/b").selector, Selector::Only);
        let tagged = parse("oci:/a:b/c.tar:v1.2");
        assert_eq!(
            (tagged.source, tagged.selector),
            (ImageSource::Layout("/a:b/c.tar".into()), Selector::Tag("v1.2".into()))
        );
        assert_eq!(parse("oci:/a:b/c").source, ImageSource::Layout("/a:b/c".into()));
        let digest = Digest::of(b"");
        let pinned = parse(&format!("oci:/a@{digest}"));
        assert_eq!(pinned.selector, Selector::Digest(digest.clone()));
        assert_eq!(pinned.resolved(&digest), format!("oci:/a@{digest}"));
        let remote = parse("localhost:5000/uncia/hello:v1");
        let repository =
            Repository { registry: "localhost:5000".into(), name: "uncia/hello".into() };
        assert_eq!(remote.source, ImageSource::Registry(repository));
        assert_eq!(remote.selector, Selector::Tag("v1".into()));
        assert_eq!(remote.resolved(&digest), format!("localhost:5000/uncia/hello@{digest}"));
        let message = check_registry(&[], &"localhost:5000".to_owned()).unwrap_err().message;
        assert!(message.contains("--registry"), "{message}");
        for (uri, wanted) in [
            ("123.dkr.ecr.us-east-1.amazonaws.com/x:latest", "no address of a registry"),
            ("docker://x", "no address of a registry"),
            ("localhost:0/x", "no address of a registry"),
            ("localhost:5000", "no address of a registry"),
            ("localhost:5000/X", "no repository"),
            ("localhost:5000/../x", "no repository"),
            ("oci:relative", "must be absolute"),
            ("oci:/a:", "is no tag"),
            ("oci:/a:b c", "is no tag"),
            ("oci:/a@sha256:12", "no digest"),
        ] {
            let message = Reference::parse(uri).unwrap_err().message;
            assert!(message.contains(wanted) && message.contains("oci:/path:tag"), "{message}");
        }
    }

    #[test]
    fn only_what_is_allowed_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("allowed/inner")).unwrap();
        fs::create_dir(path("secret")).unwrap();
        symlink(path("secret"), path("allowed/way-out")).unwrap();
        symlink("inner", path("allowed/way-in")).unwrap();
        symlink(path("allowed"), path("other-name")).unwrap();
        let attempt = |allowed: &str, name: &str| open_allowed(&[path(allowed)], &path(name));
        for fine in ["allowed", "allowed/inner", "allowed/way-in", "other-name/inner"] {
            assert!(attempt("allowed", fine).is_ok(), "{fine}");
            assert!(attempt("other-name", fine).is_ok(), "{fine}");
        }
        for outside in ["secret", "allowed/way-out", "allowed/../secret", "allowed-not/x"] {
            let message = attempt("allowed", outside).unwrap_err().message;
            assert!(message.contains("in none of the folders"), "{outside}: {message}");
        }
        let message = attempt("allowed", "allowed/missing").unwrap_err().message;
        assert!(message.contains("cannot be opened"), "{message}");
        let message = open_allowed(&[], &path("allowed")).unwrap_err().message;
        assert!(message.contains("--images"), "{message}");
    }
}
