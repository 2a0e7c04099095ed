//! The control groups that patterns name, as they come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use uncia_cgroup::{Mounts, Version};
use uncia_record::Text;

/// A mounted tree of control groups.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    version: Version,
    controllers: Vec<String>,
    mount: PathBuf,
}

/// A group, and its folders in the trees that it exists in.
#[derive(Debug)]
pub(crate) struct GroupPath<'a> {
    path: &'a str,
    trees: &'a [Tree],
}

impl GroupPath<'_> {
    /// Its folder in version 1's tree of a controller.
    pub(crate) fn classic(&self, controller: &str) -> Option<PathBuf> {
        let has = |tree: &&Tree| {
            tree.version == Version::V1 && tree.controllers.iter().any(|name| name == controller)
        };
        self.folder(self.trees.iter().find(has)?)
    }

    /// Its folder in the tree of version 2.
    pub(crate) fn unified(&self) -> Option<PathBuf> {
        self.folder(self.trees.iter().find(|tree| tree.version == Version::V2)?)
    }

    /// Its folders in all trees that have it.
    pub(crate) fn all(&self) -> Vec<PathBuf> {
        self.trees.iter().filter_map(|tree| self.folder(tree)).collect()
    }

    fn folder(&self, tree: &Tree) -> Option<PathBuf> {
        let folder = self.place(tree);
        folder.is_dir().then_some(folder)
    }

    fn folders(&self) -> Folders {
        let inode = |tree| Some(fs::metadata(self.place(tree)).ok()?.ino());
        self.trees.iter().map(inode).collect()
    }

    fn place(&self, tree: &Tree) -> PathBuf {
        tree.mount.join(self.path.trim_start_matches('/'))
    }
}

/// Groups that are watched, with what a monitor holds of each.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    patterns: Vec<String>,
    trees: Vec<Tree>,
    held: BTreeMap<String, Held<T>>,
    began: bool,
}

/// What a monitor holds of a group.
#[derive(Debug)]
struct Held<T> {
    name: Text,
    folders: Folders,
    value: T,
}

/// The inodes of a group's folders, tree by tree.
type Folders = Vec<Option<u64>>;

/// How a group that is watched has changed.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// A tree has it that had not: groups are made tree by tree.
    Grown,
    /// It was removed, and made again.
    Another,
}

fn change(before: &Folders, now: &Folders) -> Option<Change> {
    let pairs = || before.iter().zip(now);
    if pairs().any(|(before, now)| before.is_some() && now.is_some() && before != now) {
        return Some(Change::Another);
    }
    // One that some tree has lost is being removed; its last values are still to be had elsewhere.
    pairs().any(|(before, now)| before.is_none() && now.is_some()).then_some(Change::Grown)
}

impl<T> Watched<T> {
    /// Groups by these patterns, in the mounted trees. Fails with a sentence where there are none.
    pub(crate) fn new(patterns: &[String]) -> Result<Self, String> {
        let mounts = Mounts::read().map_err(|error| error.to_string())?;
        let trees = mounts.mounted().map(|(version, controllers, mount)| Tree {
            version,
            controllers: controllers.to_vec(),
            mount: mount.to_owned(),
        });
        let (trees, patterns) = (trees.collect(), patterns.to_vec());
        Ok(Self { patterns, trees, held: BTreeMap::new(), began: false })
    }

    /// Groups in a folder, which stands for a tree of version 2.
    #[cfg(test)]
    pub(crate) fn in_tree(mount: &Path, patterns: &[&str]) -> Self {
        let tree = Tree { version: Version::V2, controllers: vec![], mount: mount.to_owned() };
        let patterns = patterns.iter().map(|&it| it.to_owned()).collect();
        Self { patterns, trees: vec![tree], held: BTreeMap::new(), began: false }
    }

    /// Whether some tree is mounted.
    pub(crate) fn has_trees(&self) -> bool {
        !self.trees.is_empty()
    }

    /// Only these trees are searched for groups.
    pub(crate) fn search_only(&mut self, version: Option<Version>, controllers: &[&str]) {
        self.trees.retain(|tree| {
            version.is_none_or(|it| it == tree.version)
                && (tree.version == Version::V2
                    || tree.controllers.iter().any(|name| controllers.contains(&name.as_str())))
        });
    }

    /// Only the tree is searched whose groups the kernel counts events of: version 1's perf_event,
    /// where that is mounted, else that of version 2.
    pub(crate) fn search_for_events(&mut self) {
        let has_events = |tree: &Tree| tree.controllers.iter().any(|name| name == "perf_event");
        let is_classic = self.trees.iter().any(has_events);
        self.trees.retain(
            |tree| {
                if is_classic { has_events(tree) } else { tree.version == Version::V2 }
            },
        );
    }

    /// Looks which groups there are; `open` is called for each new one, with whether it came
    /// after the first look, and again, as for one that did not, when more trees have it. Calls that
    /// give `None` are repeated the next time.
    ///
    /// Gives a sentence for each group without wildcards in its name that is gone.
    pub(crate) fn look(
        &mut self,
        mut open: impl FnMut(&GroupPath, bool) -> Option<T>,
    ) -> Vec<String> {
        let mut there = BTreeSet::new();
        for pattern in &self.patterns {
            let parts: Vec<_> = split(pattern).collect();
            for tree in &self.trees {
                walk(&tree.mount, "", &parts, &mut |path| {
                    there.insert(path);
                });
            }
        }
        let gone: Vec<_> =
            self.held.keys().filter(|path| !there.contains(*path)).cloned().collect();
        let mut sentences = Vec::new();
        for path in gone {
            if self.patterns.contains(&path) {
                sentences.push(format!("the control group {path} is gone; its rows end here"));
            }
            self.held.remove(&path);
        }
        for path in there {
            let group = GroupPath { path: &path, trees: &self.trees };
            let folders = group.folders();
            let is_new = match self.held.get(&path).map(|held| change(&held.folders, &folders)) {
                Some(None) => continue,
                // What it used so far is counted.
                Some(Some(Change::Grown)) => false,
                Some(Some(Change::Another)) | None => self.began,
            };
            let value = open(&group, is_new);
            self.held.remove(&path);
            if let Some(value) = value {
                let name = path.as_str().into();
                self.held.insert(path, Held { name, folders, value });
            }
        }
        self.began = true;
        sentences
    }

    /// Whether a group of this path, which need not be there any more, is one that patterns name.
    pub(crate) fn has_named(&self, path: &str) -> bool {
        let parts = |path| split(path).collect::<Vec<_>>();
        let names = parts(path);
        self.patterns.iter().any(|pattern| fits(&parts(pattern), &names))
    }

    /// The groups, with what is held of each.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Text, &mut T)> {
        self.held.values_mut().map(|held| (&held.name, &mut held.value))
    }
}

/// The names in a path or pattern.
fn split(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// Calls `visit` with the path of each group at or below `folder` that the parts of a pattern match:
/// `*` and `?` within a name, `**` for any number of names.
fn walk(folder: &Path, path: &str, parts: &[&str], visit: &mut impl FnMut(String)) {
    let Some((part, rest)) = parts.split_first() else {
        if folder.is_dir() {
            visit(if path.is_empty() { "/".to_owned() } else { path.to_owned() });
        }
        return;
    };
    let is_deep = *part == "**";
    if is_deep {
        walk(folder, path, rest, visit);
    } else if !part.contains(['*', '?']) {
        let below = folder.join(part);
        if below.is_dir() {
            walk(&below, &format!("{path}/{part}"), rest, visit);
        }
        return;
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let Ok(name) = entry.file_name().into_string() else { continue };
        if is_folder && (is_deep || matches(part.as_bytes(), name.as_bytes())) {
            let rest = if is_deep { parts } else { rest };
            walk(&entry.path(), &format!("{path}/{name}"), rest, visit);
        }
    }
}

/// Whether the names of a path are such as `walk` finds by the parts of a pattern.
fn fits(parts: &[&str], names: &[&str]) -> bool {
    let Some((part, rest)) = parts.split_first() else { return names.is_empty() };
    let below = names.split_first();
    if *part == "**" {
        return fits(rest, names) || below.is_some_and(|(_, below)| fits(parts, below));
    }
    below
        .is_some_and(|(name, below)| matches(part.as_bytes(), name.as_bytes()) && fits(rest, below))
}

/// Whether a name fits a pattern of characters, `?` and `*`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            matches(rest, name)
                || name.split_first().is_some_and(|(_, after)| matches(pattern, after))
        }
        (Some((b'?', rest)), Some((_, after))) => matches(rest, after),
        (Some((byte, rest)), Some((first, after))) => byte == first && matches(rest, after),
        _ => false,
    }
}

/// Shows a group in these trees: version, controller and where it is mounted.
#[cfg(test)]
pub(crate) fn group_in<T>(
    trees: &[(Version, &str, &Path)],
    path: &str,
    look: impl FnOnce(&GroupPath<'_>) -> T,
) -> T {
    let tree = |&(version, controller, mount): &(Version, &str, &Path)| Tree {
        version,
        controllers: vec![controller.to_owned()],
        mount: mount.to_owned(),
    };
    let trees: Vec<_> = trees.iter().map(tree).collect();
    look(&GroupPath { path, trees: &trees })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(pattern: &str) -> Vec<String> {
        let top = tempfile::tempdir().unwrap();
        for path in ["docker/abc", "docker/abd/inner", "system/x"] {
            std::fs::create_dir_all(top.path().join(path)).unwrap();
        }
        std::fs::write(top.path().join("docker/file"), "").unwrap();
        let parts: Vec<_> = split(pattern).collect();
        let mut paths = Vec::new();
        walk(top.path(), "", &parts, &mut |path| paths.push(path));
        paths.sort();
        // A path alone says the same.
        let watched: Watched<()> = Watched::in_tree(top.path(), &[pattern]);
        for path in ["/", "/docker", "/docker/abc", "/docker/abd", "/docker/abd/inner", "/system"] {
            assert_eq!(watched.has_named(path), paths.iter().any(|it| it == path), "{path}");
        }
        paths
    }

    #[test]
    fn groups_are_opened_again_when_they_grow_or_are_others() {
        let top = tempfile::tempdir().unwrap();
        let place = |path: &str| top.path().join(path);
        let tree = |name: &str| {
            std::fs::create_dir(place(name)).unwrap();
            Tree { version: Version::V1, controllers: vec![name.to_owned()], mount: place(name) }
        };
        let trees = vec![tree("cpu"), tree("memory")];
        let patterns = vec!["/*".to_owned()];
        let mut watched = Watched { patterns, trees, held: BTreeMap::new(), began: false };
        let mut opened = || {
            let mut all = Vec::new();
            watched.look(|group, is_new| {
                all.push((group.classic("memory").is_some(), is_new));
                Some(())
            });
            all
        };
        assert_eq!(opened(), []);
        std::fs::create_dir(place("cpu/g")).unwrap();
        assert_eq!(opened(), [(false, true)]);
        assert_eq!(opened(), []);
        std::fs::create_dir(place("memory/g")).unwrap();
        assert_eq!(opened(), [(true, false)]);
        // An inode of its own: some file systems use one again at once.
        std::fs::create_dir(place("memory-of-another")).unwrap();
        std::fs::rename(place("memory-of-another"), place("memory/g")).unwrap();
        assert_eq!(opened(), [(true, true)]);
        std::fs::remove_dir(place("cpu/g")).unwrap();
        assert_eq!(opened(), []);
    }

    #[test]
    fn patterns_name_groups() {
        assert_eq!(matching("/"), ["/"]);
        assert_eq!(matching("/docker"), ["/docker"]);
        assert_eq!(matching("/docker/*"), ["/docker/abc", "/docker/abd"]);
        assert_eq!(matching("/d*r/ab?"), ["/docker/abc", "/docker/abd"]);
        assert_eq!(matching("/**/inner"), ["/docker/abd/inner"]);
        assert_eq!(matching("/docker/**").len(), 4);
        assert!(matching("/absent/*").is_empty() && matching("/docker/file").is_empty());
    }
}
