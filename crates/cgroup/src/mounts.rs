//! Which trees of control groups are mounted, and in which groups this process is.

use std::path::{Path, PathBuf};

use crate::files::read;
use crate::{Error, Version};

/// Where the kernel lists what is mounted.
const MOUNTINFO: &str = "/proc/self/mountinfo";
/// Where it lists the groups of this process.
const OWN: &str = "/proc/self/cgroup";

/// What the kernel says about control groups and this process, at one look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounts {
    pub(crate) trees: Vec<Tree>,
    own: String,
    /// Whether this process may write everywhere, so that write access does not tell whose a group
    /// is.
    pub(crate) root: bool,
}

impl Mounts {
    /// Looks at this machine.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn read() -> Result<Self, Error> {
        let (mountinfo, own) = (read(Path::new(MOUNTINFO))?, read(Path::new(OWN))?);
        Ok(Self::parse(&mountinfo, own, nix::unistd::geteuid().is_root()))
    }

    /// Takes the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`, and whether this process
    /// is root's.
    #[must_use]
    pub fn parse(mountinfo: &str, own: impl Into<String>, root: bool) -> Self {
        let trees = mountinfo.lines().filter_map(Tree::parse).collect();
        Self { trees, own: own.into(), root }
    }

    /// The mounted trees: their version, the names of their controllers (version 1), and where they are.
    pub fn mounted(&self) -> impl Iterator<Item = (Version, &[String], &Path)> {
        self.trees.iter().map(|tree| (tree.version, &tree.controllers[..], &*tree.mount))
    }

    /// The folder of the group that this process is in; `None` if it is not below what is mounted.
    pub(crate) fn own_folder(&self, tree: &Tree) -> Option<PathBuf> {
        let path = self.own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let here = match tree.version {
                Version::V1 => {
                    controllers.split(',').any(|name| !name.is_empty() && tree.has(name))
                }
                Version::V2 => controllers.is_empty(),
            };
            here.then(|| Path::new(path))
        })?;
        let below = path.strip_prefix(&tree.root).ok()?;
        // Without the slash that joining nothing would leave at the end.
        let folder: PathBuf = tree.mount.join(below).components().collect();
        folder.is_dir().then_some(folder)
    }

    /// The path of a group's folder below where its tree is mounted, such as `/docker/abc`.
    pub(crate) fn path_of(&self, folder: &Path) -> Option<String> {
        let below = self.trees.iter().find_map(|tree| folder.strip_prefix(&tree.mount).ok())?;
        Some(format!("/{}", below.to_str()?))
    }
}

/// The groups of this path in all trees that are mounted, of those that exist.
///
/// # Errors
/// `/proc` cannot be read.
pub fn everywhere(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let folders = Mounts::read()?.trees.into_iter().map(|tree| tree.mount.join(path));
    Ok(folders.filter(|folder| folder.is_dir()).collect())
}

/// A mounted tree of control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree {
    pub version: Version,
    /// Version 1: its controllers, among the mount's other options.
    controllers: Vec<String>,
    /// The group that is at the mount point; not "/" inside a container without a namespace.
    root: PathBuf,
    pub mount: PathBuf,
}

impl Tree {
    /// Parses a line of `mountinfo`: "id parent dev root mountpoint options [tags] - type source
    /// super". `None` if it is of another file system.
    fn parse(line: &str) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let version = match kind.next()? {
            "cgroup" => Version::V1,
            "cgroup2" => Version::V2,
            _ => return None,
        };
        let controllers = kind.nth(1)?.split(',').map(str::to_owned).collect();
        let mut fields = mount.split(' ').skip(3).map(unescape);
        let (root, mount) = (fields.next()?, fields.next()?);
        Some(Self { version, controllers, root: root.into(), mount: mount.into() })
    }

    /// Whether it is of version 1 and has the controller.
    pub(crate) fn has(&self, controller: &str) -> bool {
        self.version == Version::V1 && self.controllers.iter().any(|name| name == controller)
    }
}

/// Undoes the kernel's escapes of spaces, tabs, newlines and backslashes: `\040` and so on.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte.filter(u8::is_ascii) {
            Some(byte) => {
                text.push(char::from(byte));
                text.push_str(&part[3..]);
            }
            None => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
22 1 0:20 / /proc rw,relatime - proc proc rw
30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
31 25 0:27 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
33 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
";

    #[test]
    fn mounts_are_read() {
        let trees = Mounts::parse(TEXT, "", true).trees;
        assert_eq!(trees.len(), 4);
        assert!(trees[0].has("cpu") && trees[0].has("cpuacct") && !trees[0].has("memory"));
        assert_eq!(trees[1].root, Path::new("/docker/abc"));
        assert_eq!(trees[3].version, Version::V2);
        assert!(!trees[3].has("rw"), "version 2 has options, but no controllers here");
    }

    #[test]
    fn the_own_group_is_relative_to_what_is_mounted() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        fs::create_dir_all(top.join("inner")).unwrap();
        let own = |kind: &str, own: &str| {
            let line = format!("1 0 0:1 /docker/abc {} rw - {kind}\n", top.display());
            let mounts = Mounts::parse(&line, own, true);
            mounts.own_folder(&mounts.trees[0])
        };
        let classic = "cgroup cgroup rw,memory";
        let text = "5:cpu:/elsewhere\n4:memory:/docker/abc/inner\n0::/\n";
        assert_eq!(own(classic, text), Some(top.join("inner")));
        assert_eq!(own(classic, "4:memory:/docker/abc\n"), Some(top.to_owned()));
        assert_eq!(own(classic, "4:memory:/other\n"), None);
        assert_eq!(own(classic, "4:memory:/docker/abc/gone\n"), None);
        let unified = "cgroup2 cgroup2 rw";
        assert_eq!(own(unified, "0::/docker/abc/inner\n"), Some(top.join("inner")));
        assert_eq!(own(unified, "0::/../elsewhere\n"), None);
    }

    proptest! {
        #[test]
        fn any_path_is_found_again(path in "(/[^/\0]{1,8}){1,4}", tags in "( [a-z]+:[0-9]+){0,2}") {
            let escape = |byte: char| match byte {
                ' ' | '\t' | '\n' | '\\' => format!("\\{:03o}", u32::from(byte)),
                other => other.to_string(),
            };
            // The kernel escapes nothing else; these would end the line as Rust sees it.
            prop_assume!(!path.contains('\r'));
            let escaped: String = path.chars().map(escape).collect();
            let line = format!("9 8 0:7 / {escaped} rw,nosuid{tags} - cgroup2 cgroup rw");
            let tree = Mounts::parse(&line, "", true).trees.remove(0);
            prop_assert_eq!((tree.version, tree.mount), (Version::V2, PathBuf::from(path)));
        }

        #[test]
        fn no_text_breaks_the_parsers(mountinfo in "(?s).{0,200}", own in "(?s).{0,100}") {
            let line = format!("1 0 0:1 / / rw - cgroup2 cgroup rw\n{mountinfo}");
            let mounts = Mounts::parse(&line, own, true);
            let _ = mounts.own_folder(&mounts.trees[0]);
        }
    }
}
