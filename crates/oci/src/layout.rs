//! A source of images: an OCI image layout, as a folder or as a tar file of one.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use serde::Deserialize;

use crate::document::Index;
use crate::source::Source;
use crate::{Digest, ImageError};

const MARKER: &str = "oci-layout";
const INDEX: &str = "index.json";
/// What `docker save` has written at all times, and before version 25 without an index.
const DOCKER_MANIFEST: &str = "manifest.json";

/// Largest marker or index that is read.
const MAX_TEXT_BYTES: u64 = 4 * 1024 * 1024;
/// Most members of a tar file that are looked at.
const MAX_MEMBERS: usize = 100_000;

/// An OCI image layout that is open.
pub struct Layout {
    name: String,
    form: Form,
}

enum Form {
    Folder(OwnedFd),
    Archive { file: File, members: HashMap<String, Member> },
}

/// Where a member's bytes are in an archive.
#[derive(Clone, Copy)]
struct Member {
    offset: u64,
    bytes: u64,
}

#[derive(Deserialize)]
struct Marker {
    #[serde(rename = "imageLayoutVersion")]
    version: String,
}

impl Layout {
    /// Opens the layout in a folder or file that is open, so that whoever opens that decides which paths
    /// are allowed; nothing outside of it is read. `name` is for messages.
    pub fn open(handle: OwnedFd, name: &str) -> Result<Self, ImageError> {
        let file = File::from(handle);
        let metadata = file.metadata()?;
        let refused = |why: String| ImageError::NotALayout(name.to_owned(), why);
        let form = if metadata.is_dir() {
            Form::Folder(file.into())
        } else if metadata.is_file() {
            let members = members(&file).map_err(|error| {
                refused(format!(
                    "it is neither a folder nor a tar file without compression ({error})"
                ))
            })?;
            Form::Archive { file, members }
        } else {
            return Err(refused("it is neither a folder nor a file".to_owned()));
        };
        let layout = Self { name: name.to_owned(), form };
        let marker = layout.text(MARKER)?;
        let marker: Marker = serde_json::from_slice(&marker)
            .map_err(|error| refused(format!("its file {MARKER} is not valid: {error}")))?;
        if !marker.version.starts_with("1.") {
            return Err(refused(format!("it is of version {:?}, and not 1", marker.version)));
        }
        Ok(layout)
    }

    fn open_part(&self, path: &str) -> io::Result<Box<dyn Read + Send + '_>> {
        match &self.form {
            Form::Folder(folder) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                let file = File::from(openat2(folder, path, flags, Mode::empty(), resolve)?);
                if !file.metadata()?.is_file() {
                    return Err(io::Error::other("it is no file"));
                }
                Ok(Box::new(file))
            }
            Form::Archive { file, members } => {
                let member = members.get(path).ok_or(Errno::NOENT)?;
                Ok(Box::new(Part { file, offset: member.offset, left: member.bytes }))
            }
        }
    }

    /// A small file of the layout.
    fn text(&self, path: &str) -> Result<Vec<u8>, ImageError> {
        let refused = |why: String| ImageError::NotALayout(self.name.clone(), why);
        let part = self.open_part(path).map_err(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                return refused(format!("its file {path} cannot be read: {error}"));
            }
            if self.open_part(DOCKER_MANIFEST).is_ok() {
                return refused(format!(
                    "it has a {DOCKER_MANIFEST} and no {path}, as docker save wrote it before version \
                     25; save it with a later one, or copy it with `skopeo copy docker-archive:FILE \
                     oci:FOLDER`"
                ));
            }
            refused(format!("it has no file {path}"))
        })?;
        let mut bytes = Vec::new();
        part.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_TEXT_BYTES {
            return Err(refused(format!("its file {path} has more than {MAX_TEXT_BYTES} bytes")));
        }
        Ok(bytes)
    }
}

impl Source for Layout {
    fn index(&self) -> Result<Index, ImageError> {
        serde_json::from_slice(&self.text(INDEX)?).map_err(|error| {
            ImageError::NotALayout(
                self.name.clone(),
                format!("its file {INDEX} is not valid: {error}"),
            )
        })
    }

    fn blob(&self, digest: &Digest) -> Result<Box<dyn Read + Send + '_>, ImageError> {
        self.open_part(&format!("blobs/sha256/{}", digest.hex())).map_err(|error| {
            match error.kind() {
                io::ErrorKind::NotFound => ImageError::Missing(digest.to_string()),
                _ => ImageError::Document(digest.to_string(), error.to_string()),
            }
        })
    }
}

/// A part of a file.
struct Part<'a> {
    file: &'a File,
    offset: u64,
    left: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read_at(&mut buffer[..most], self.offset)?;
        self.offset += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

/// The files in a tar file, by name. All names of a layout are short, so that no extension of the format is
/// needed to read them.
fn members(file: &File) -> io::Result<HashMap<String, Member>> {
    let mut archive = tar::Archive::new(BufReader::new(file));
    let mut members = HashMap::new();
    for entry in archive.entries_with_seek()?.raw(true) {
        let entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let member = Member { offset: entry.raw_file_position(), bytes: entry.size() };
        members.insert(name.trim_start_matches("./").to_owned(), member);
        if members.len() > MAX_MEMBERS {
            return Err(io::Error::other(format!("it has more than {MAX_MEMBERS} files")));
        }
    }
    Ok(members)
}
