//! Layers over each other: the files of several packages in one folder.

use std::collections::HashMap;
use std::fs::{self, FileType};
use std::io;
use std::path::{Path, PathBuf};

use super::{folders, links};

/// Lays the packages in `folders` over each other in the new folder `into`: what a later one has replaces what an
/// earlier one has under the same name, and folders are united. Files are not copied but linked to, so
/// that all functions share them, in the kernel's cache as well.
///
/// Links that stay within each package may lead out of the folder once they pass those of another. The platform follows
/// links in it, with rights that functions do not have: such a folder is an error.
pub(super) fn merge(folders: &[impl AsRef<Path>], into: &Path) -> io::Result<()> {
    folders::make(into, folders::READABLE)?;
    folders.iter().try_for_each(|folder| lay(folder.as_ref(), into))?;
    let mut targets = HashMap::new();
    find_links(into, Path::new(""), &mut targets)?;
    match targets.keys().find(|link| links::escapes(link, &targets)) {
        None => Ok(()),
        Some(link) => Err(io::Error::other(format!(
            "the symbolic link {link:?} of one, through links of others, leads out of them or in a circle"
        ))),
    }
}

/// Finds all links below a folder, with where they lead.
fn find_links(
    top: &Path,
    folder: &Path,
    targets: &mut HashMap<PathBuf, PathBuf>,
) -> io::Result<()> {
    for entry in fs::read_dir(top.join(folder))? {
        let entry = entry?;
        let (kind, path) = (entry.file_type()?, folder.join(entry.file_name()));
        if kind.is_dir() {
            find_links(top, &path, targets)?;
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path())?;
            targets.insert(path, target);
        }
    }
    Ok(())
}

fn lay(from: &Path, onto: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), onto.join(entry.file_name()));
        let (kind, below) = (entry.file_type()?, kind_of(&target)?);
        match below {
            Some(below) if below.is_dir() && kind.is_dir() => {}
            Some(below) if below.is_dir() => fs::remove_dir_all(&target)?,
            Some(_) => fs::remove_file(&target)?,
            None => {}
        }
        if kind.is_dir() {
            folders::make(&target, folders::READABLE)?;
            lay(&source, &target)?;
        } else {
            // Of a link the link itself.
            fs::hard_link(&source, &target)?;
        }
    }
    Ok(())
}

/// What there is of that name, without following links.
fn kind_of(path: &Path) -> io::Result<Option<FileType>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata.file_type())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Bytes of all files below a folder.
pub(super) fn bytes_below(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += match metadata.file_type() {
            kind if kind.is_dir() => bytes_below(&entry.path())?,
            kind if kind.is_file() => metadata.len(),
            _ => 0,
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn later_layers_are_over_earlier_ones() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, text) in [
            ("1/both/a", "a1"),
            ("1/both/b", "b1"),
            ("1/folder/x", "x1"),
            ("1/file", "f1"),
            ("1/real", "r1"),
            ("2/both/b", "b2"),
            ("2/folder", "now a file"),
            ("2/file/y", "now a folder"),
            ("2/link/z", "no link any more"),
        ] {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), text).unwrap();
        }
        symlink("both", at("1/link")).unwrap();
        symlink("both/a", at("2/real")).unwrap();
        merge(&[at("1"), at("2")], &at("merged")).unwrap();
        for (name, text) in [
            ("both/a", "a1"),
            ("both/b", "b2"),
            ("folder", "now a file"),
            ("file/y", "now a folder"),
            ("link/z", "no link any more"),
            ("real", "a1"),
        ] {
            assert_eq!(fs::read_to_string(at("merged").join(name)).unwrap(), text, "{name}");
        }
        assert!(fs::symlink_metadata(at("merged/real")).unwrap().is_symlink());
        assert!(!at("1/both/z").exists() && fs::read_to_string(at("1/both/b")).unwrap() == "b1");
        let inode = |name: &str| fs::metadata(at(name)).unwrap().ino();
        assert_eq!(inode("merged/both/a"), inode("1/both/a"));
        assert_eq!(bytes_below(&at("2")).unwrap(), 2 + 10 + 12 + 16);
    }

    #[test]
    fn links_that_lead_out_through_each_other_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("outside")).unwrap();
        // By itself, "a/b" is a folder, and what leads there and back stays.
        fs::create_dir_all(at("1/a/b")).unwrap();
        symlink("a/b/../../a", at("1/extensions")).unwrap();
        fs::create_dir_all(at("2/a")).unwrap();
        symlink(".", at("2/a/b")).unwrap();
        merge(&[at("1")], &at("alone")).unwrap();
        let error = merge(&[at("1"), at("2")], &at("both")).unwrap_err();
        assert!(error.to_string().contains("\"extensions\" of one"), "{error}");
        symlink("d", at("1/c")).unwrap();
        fs::create_dir_all(at("3")).unwrap();
        symlink("c", at("3/d")).unwrap();
        let error = merge(&[at("1"), at("3")], &at("circle")).unwrap_err();
        assert!(error.to_string().contains("in a circle"), "{error}");
    }
}
