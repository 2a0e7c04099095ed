//! The shared libraries that a root needs.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::sources::Sources;
use super::{RootError, tree};

/// Libraries that compiled packages may expect on every machine (PEP 600's manylinux set as far as it
/// concerns programs without a display), and what the C library loads at run time.
const EXPECTED: [&str; 13] = [
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
    "libresolv.so.2",
    "libnss_files.so.2",
    "libnss_dns.so.2",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libz.so.1",
    "libexpat.so.1",
];

const LOADER_CACHE: &str = "/etc/ld.so.cache";

const ELF_MAGIC: &[u8; 4] = b"\x7fELF";

/// The kind of program header that names the loader.
const PT_INTERP: u32 = 3;

/// Longest path of a loader that is believed.
const MAX_PATH: u64 = 4096;

/// Copies into `root/usr/lib` the loader that `program` names and every library that it or a program
/// or module among `copied` needs. All are asked about where they are on the host, because they may
/// say relative to themselves where their libraries are.
pub(super) fn copy<'a>(
    root: &Path,
    program: &Path,
    copied: impl Iterator<Item = &'a Path>,
    sources: &mut Sources,
) -> Result<(), RootError> {
    let error = |cause: io::Error| RootError::Libraries(program.to_owned(), cause.to_string());
    // A static program needs nothing.
    let Some(loader) = loader(program).map_err(error)? else { return Ok(()) };
    let mut needed = BTreeMap::new();
    // The loader must lie where programs name it; its folder is a link to usr/lib.
    if let Some(name) = loader.file_name() {
        needed.insert(name.to_string_lossy().into_owned(), loader.clone());
    }
    list(&loader, program, &[], &mut needed)?;
    let folders: Vec<PathBuf> =
        needed.values().filter_map(|path| path.parent().map(Path::to_owned)).collect();
    for name in EXPECTED {
        if needed.contains_key(name) {
            continue;
        }
        if let Some(path) = find(name, &folders) {
            needed.insert(name.to_owned(), path.clone());
            list(&loader, &path, &[], &mut needed)?;
        }
    }
    // Says which library a name means: it changes when one is installed.
    sources.add(Path::new(LOADER_CACHE));
    let copied: Vec<_> = copied.collect();
    let mut inside = Vec::new();
    for source in &copied {
        binaries(source, &mut inside).map_err(error)?;
    }
    // A library that nothing on the path holds is loaded already when others ask for it, as libjvm.so is:
    // without it the loader would name none of what they need.
    let folders: BTreeSet<&Path> = inside.iter().filter_map(|binary| binary.parent()).collect();
    let folders: Vec<&Path> = folders.into_iter().collect();
    for binary in &inside {
        list(&loader, binary, &folders, &mut needed)?;
    }
    for (name, path) in needed {
        // Those who need it have found it there, relative to themselves, and will again.
        let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        if copied.iter().any(|source| real.starts_with(source)) {
            continue;
        }
        tree::copy(&path, &root.join("usr/lib").join(name), sources)?;
    }
    Ok(())
}

/// Finds a library in the folders of others, or where distributions keep them.
fn find(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
    let usual = [
        Path::new("/lib").join(&machine),
        Path::new("/usr/lib").join(&machine),
        "/lib64".into(),
        "/usr/lib64".into(),
        "/lib".into(),
        "/usr/lib".into(),
    ];
    folders.iter().chain(&usual).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Asks the loader what it would load for `binary`, as `ldd` does, looking in `folders` too.
fn list(
    loader: &Path,
    binary: &Path,
    folders: &[&Path],
    needed: &mut BTreeMap<String, PathBuf>,
) -> Result<(), RootError> {
    let output = Command::new(loader)
        .arg("--list")
        .arg(binary)
        .env_remove("LD_PRELOAD")
        .env("LD_LIBRARY_PATH", env::join_paths(folders).unwrap_or_default())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| RootError::Libraries(binary.to_owned(), error.to_string()))?;
    // A static binary, or one with a missing library: the latter cannot be loaded on the host
    // either.
    for (name, path) in parse_list(&String::from_utf8_lossy(&output.stdout)) {
        needed.entry(name).or_insert(path);
    }
    Ok(())
}

/// Lines of the form "name => path (address)".
fn parse_list(text: &str) -> impl Iterator<Item = (String, PathBuf)> + '_ {
    text.lines().filter_map(|line| {
        let (name, rest) = line.trim().split_once(" => ")?;
        let path = rest.rsplit_once(" (")?.0;
        let name = Path::new(name).file_name()?.to_string_lossy().into_owned();
        path.starts_with('/').then(|| (name, PathBuf::from(path)))
    })
}

/// The programs and modules that are copied of `source`, a file or a folder.
fn binaries(source: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    if source.is_dir() {
        for entry in fs::read_dir(source)? {
            let entry = entry?;
            if !tree::left_out(&entry.file_name(), entry.path().is_dir()) {
                binaries(&entry.path(), found)?;
            }
        }
    } else if source.is_file() {
        let mut magic = [0; 4];
        if File::open(source)?.read_exact(&mut magic).is_ok() && magic == *ELF_MAGIC {
            found.push(source.to_owned());
        }
    }
    Ok(())
}

/// The loader that a 64-bit program names in its headers; none for a static one.
fn loader(program: &Path) -> io::Result<Option<PathBuf>> {
    let mut file = File::open(program)?;
    let mut header = [0; 64];
    file.read_exact(&mut header)?;
    let bad = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    if !header.starts_with(ELF_MAGIC) {
        return bad("it is no program, but perhaps a script that starts one");
    }
    if header[4] != 2 || header[5] != 1 {
        return bad("it is no 64-bit little-endian program");
    }
    let number =
        |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    let (offset, size, count) =
        (number(&header[32..40]), number(&header[54..56]), number(&header[56..58]));
    for index in 0..count {
        let mut entry = [0; 56];
        file.seek(SeekFrom::Start(offset + index * size))?;
        file.read_exact(&mut entry)?;
        if number(&entry[0..4]) == u64::from(PT_INTERP) {
            let length = number(&entry[32..40]);
            if length > MAX_PATH {
                return bad("it names no loader");
            }
            file.seek(SeekFrom::Start(number(&entry[8..16])))?;
            let mut path = String::new();
            file.take(length).read_to_string(&mut path)?;
            return Ok(Some(PathBuf::from(path.trim_end_matches('\0'))));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_libraries() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f)\n\
                    \tlibgone.so => not found\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let list: Vec<_> = parse_list(text).collect();
        assert_eq!(list, [("libm.so.6".into(), "/lib/x86_64-linux-gnu/libm.so.6".into())]);
    }

    #[test]
    fn the_loader_of_this_test() {
        let own = std::env::current_exe().unwrap();
        let loader = loader(&own).unwrap();
        assert_eq!(loader.is_some(), !cfg!(target_feature = "crt-static"));
        assert!(loader.is_none_or(|path| path.is_file()));
    }

    #[test]
    fn a_script_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("python3");
        fs::write(&script, format!("#!/bin/sh\n{}", " ".repeat(100))).unwrap();
        assert!(loader(&script).unwrap_err().to_string().contains("script"));
    }
}
