//! The roots that functions bring: what all of them need of the host.
//!
//! Overlayfs shows an image's layers below what an instance writes. Above the image's own layers lies one
//! more, the same for all: the folders and files that the platform mounts something on. So they are what they
//! should be, whatever an image has by these names, such as a link that leads out of it.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::{GROUP_ID, HOSTS, RootError, tree};
use crate::instance::ImageSpec;
use crate::sandbox::wire::ImageMounts;

/// Folders on which something is mounted, or in which the platform writes.
const FOLDERS: [&str; 5] = ["dev", "etc", "opt", "proc", "tmp"];

/// Files on which the host's are mounted for functions with its network.
const FILES: [(&str, &str); 2] = [("etc/hosts", HOSTS), ("etc/resolv.conf", "")];

/// Where the roots of images are mounted: in each instance's own mount namespace, so that all have the
/// same names for them, and the host sees nothing.
pub(in crate::sandbox) struct ImageRoots {
    /// The layer above all images'.
    base: PathBuf,
    scratch: PathBuf,
    pub root: PathBuf,
}

impl ImageRoots {
    /// Makes what is missing of it in the state folder.
    pub(in crate::sandbox) fn prepare(state: &Path, is_root: bool) -> Result<Self, RootError> {
        let folder = state.join("mounts");
        let roots = Self {
            base: folder.join("base"),
            scratch: folder.join("scratch"),
            root: folder.join("root"),
        };
        roots.make(is_root).map_err(|error| RootError::Make(folder, error))?;
        Ok(roots)
    }

    fn make(&self, is_root: bool) -> io::Result<()> {
        for folder in [&self.scratch, &self.root] {
            tree::make_folder(folder)?;
        }
        for name in FOLDERS {
            let folder = self.base.join(name);
            tree::make_folder(&folder)?;
            // As in the layers: the function's group may what root may, in its own copy.
            if is_root {
                chown(&folder, None, Some(GROUP_ID))?;
                fs::set_permissions(&folder, Permissions::from_mode(0o775))?;
            }
        }
        for (name, text) in FILES {
            tree::write(&self.base.join(name), text)?;
        }
        Ok(())
    }

    /// What an image's root is made of.
    pub(in crate::sandbox) fn mounts(&self, image: &ImageSpec) -> ImageMounts {
        let mut layers = vec![self.base.clone()];
        for layer in image.layers.iter().rev() {
            // Of a layer that is there twice, the lower one adds nothing, and overlayfs refuses it.
            if !layers.contains(layer) {
                layers.push(layer.clone());
            }
        }
        ImageMounts { layers, scratch: self.scratch.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_stacked_once_each_and_the_platforms_own_on_top() {
        let state = tempfile::tempdir().unwrap();
        let is_root = nix::unistd::geteuid().is_root();
        let roots = ImageRoots::prepare(state.path(), is_root).unwrap();
        let image = ImageSpec {
            layers: ["/a", "/empty", "/b", "/empty"].map(PathBuf::from).into(),
            command: Vec::new(),
            working_directory: "/".into(),
            environment: Vec::new(),
        };
        let layers = roots.mounts(&image).layers;
        let base = state.path().join("mounts/base");
        assert_eq!(layers, [&*base, Path::new("/empty"), Path::new("/b"), Path::new("/a")]);
        assert!(base.join("etc/resolv.conf").is_file() && base.join("proc").is_dir());
        ImageRoots::prepare(state.path(), is_root).unwrap();
    }
}
