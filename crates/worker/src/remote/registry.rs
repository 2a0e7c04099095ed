//! A source of images: a registry, by the API of the OCI distribution specification 1.1 (pulling).

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use serde::{Deserialize, Serialize};
use uncia_oci::document::{Descriptor, Index, REF_NAME};
use uncia_oci::{Digest, ImageError, Selector, Source};

use super::{Answer, Steady, send};

const PREFIX: &str = "/v2";
/// What it takes for a manifest: an image's, or a list of variants, of either family.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, \
                         application/vnd.oci.image.index.v1+json, \
                         application/vnd.docker.distribution.manifest.v2+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json";
/// What registries take for a manifest at most.
const MAX_MANIFEST_BYTES: u64 = 4 * 1024 * 1024;
const MAX_NAME_BYTES: usize = 255;
const HTTP_PORT: u16 = 80;

/// Where an image is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Repository {
    /// `HOST:PORT`
    pub registry: String,
    /// The repository's name, such as `uncia/hello`.
    pub name: String,
}

impl Repository {
    /// Whether it is a name by the specification: words of small letters and digits, with slashes between.
    pub(crate) fn is_name(text: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_word = |word: &str| {
            word.bytes().all(|byte| is_plain(byte) || b"._-".contains(&byte))
                && word.bytes().next().is_some_and(is_plain)
                && word.bytes().next_back().is_some_and(is_plain)
        };
        text.len() <= MAX_NAME_BYTES && text.split('/').all(is_word)
    }

    fn get(&self, path: &str) -> Result<Answer, ImageError> {
        let Self { registry, name } = self;
        let failed = |why: &dyn std::fmt::Display| {
            ImageError::Registry(format!("the registry {registry} does not give {path}: {why}"))
        };
        let (host, port) = registry.rsplit_once(':').unwrap_or((registry, ""));
        let port = port.parse().unwrap_or(HTTP_PORT);
        let request = Request::get(format!("{PREFIX}/{name}/{path}"))
            .header("host", registry)
            .header("accept", MANIFESTS)
            .body(Empty::<Bytes>::new())
            .map_err(|error| failed(&error))?;
        let answer =
            send(host.trim_matches(['[', ']']), port, request).map_err(|error| failed(&error))?;
        match answer.head.status {
            StatusCode::OK => Ok(answer),
            StatusCode::NOT_FOUND => Err(ImageError::Missing(format!("{registry}/{name}/{path}"))),
            StatusCode::UNAUTHORIZED => {
                Err(failed(&"it wants credentials, and only registries without are supported"))
            }
            status => Err(failed(&status)),
        }
    }
}

/// A registry that is asked for one image.
pub(crate) struct Registry {
    repository: Repository,
    selector: Selector,
    /// Manifests that were read, which are no blobs.
    manifests: Mutex<HashMap<Digest, Vec<u8>>>,
}

impl Registry {
    pub(crate) fn new(repository: Repository, selector: Selector) -> Self {
        Self { repository, selector, manifests: Mutex::default() }
    }

    /// A manifest by its tag or its digest, with the type that the registry says it is of.
    fn manifest(&self, reference: &str) -> Result<(Vec<u8>, String), ImageError> {
        let answer = self.repository.get(&format!("manifests/{reference}"))?;
        let media_type = answer.head.headers.get(http::header::CONTENT_TYPE);
        let media_type = media_type.and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
        let what = || format!("the manifest {reference}");
        let bytes = answer
            .text(MAX_MANIFEST_BYTES + 1)
            .map_err(|error| ImageError::Document(what(), error.to_string()))?;
        if bytes.len() as u64 > MAX_MANIFEST_BYTES {
            let problem = format!("it has more than {MAX_MANIFEST_BYTES} bytes");
            return Err(ImageError::Document(what(), problem));
        }
        Ok((bytes, media_type))
    }

    fn remember(&self, digest: Digest, bytes: Vec<u8>) {
        // Whole after every statement.
        let mut manifests = self.manifests.lock().unwrap_or_else(PoisonError::into_inner);
        manifests.insert(digest, bytes);
    }
}

impl Source for Registry {
    fn index(&self) -> Result<Index, ImageError> {
        let (reference, tag) = match &self.selector {
            Selector::Only => ("latest".to_owned(), Some("latest")),
            Selector::Tag(tag) => (tag.clone(), Some(tag.as_str())),
            Selector::Digest(digest) => (digest.to_string(), None),
        };
        let (bytes, media_type) = self.manifest(&reference)?;
        let digest = Digest::of(&bytes);
        let named = tag.map(|tag| (REF_NAME.to_owned(), tag.to_owned()));
        let descriptor = Descriptor {
            media_type,
            // What was asked for, so that what is something else is found out.
            digest: match &self.selector {
                Selector::Digest(wanted) => wanted.clone(),
                _ => digest,
            },
            size: bytes.len() as u64,
            platform: None,
            annotations: named.into_iter().collect(),
        };
        self.remember(descriptor.digest.clone(), bytes);
        Ok(Index { manifests: vec![descriptor] })
    }

    fn blob(&self, digest: &Digest) -> Result<Box<dyn Read + Send + '_>, ImageError> {
        let known = self.manifests.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get(digest).cloned();
        if let Some(bytes) = known {
            return Ok(Box::new(std::io::Cursor::new(bytes)));
        }
        match self.repository.get(&format!("blobs/{digest}")) {
            Ok(answer) => Ok(Box::new(Steady::new(answer))),
            Err(ImageError::Missing(what)) => {
                // A variant that an index names is a manifest.
                let (bytes, _) =
                    self.manifest(&digest.to_string()).map_err(|error| match error {
                        ImageError::Missing(_) => ImageError::Missing(what),
                        error => error,
                    })?;
                Ok(Box::new(std::io::Cursor::new(bytes)))
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_the_specification() {
        for name in ["hello", "uncia/hello", "a/b-c/d_e.f", "0"] {
            assert!(Repository::is_name(name), "{name}");
        }
        for name in ["", "/", "a/", "A", "a b", "../x", "a/../b", "-a", "a?x=1", &"a".repeat(256)] {
            assert!(!Repository::is_name(name), "{name}");
        }
    }
}
