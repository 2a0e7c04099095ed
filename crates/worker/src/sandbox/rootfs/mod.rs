//! The root file systems: one for each runtime, shared by its instances, read-only in each.
//!
//! A root holds copies of what the runtime needs and nothing else of the host: the interpreter, its
//! standard library, the shared libraries that these load, the libraries that compiled packages may
//! count on (the manylinux set), a shell, certificates, and a few generated lines in `/etc`. The
//! layout is Lambda's: the runtime in `/var/lang`, its client in `/var/runtime`, the function in
//! `/var/task`.

mod libraries;
mod node;
mod python;
mod tree;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use crate::instance::Runtime;

/// The function's code.
pub const TASK: &str = "/var/task";
pub const ETC_PASSWD: &str = "/etc/passwd";
/// The user that functions run as, by Lambda's name.
pub const USER: &str = "sbx_user1051";
/// The group of all functions: its number is in the shared `/etc/group`.
pub const GROUP_ID: u32 = 990;
pub const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Where distributions keep the certificates of authorities.
const HOST_CERTIFICATES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Where OpenSSL looks for certificates, by how distributions build it.
const OPENSSL_CERTIFICATES: [&str; 3] =
    ["usr/lib/ssl/cert.pem", "etc/pki/tls/cert.pem", "etc/ssl/cert.pem"];

/// Changes whenever the layout of a root does, so that older ones are built anew.
const LAYOUT: u32 = 1;

/// Longest error message of an interpreter that is passed on, in characters.
const MAX_COMPLAINT: usize = 200;

/// Hexadecimal digits of a key that tell builds of the same version apart.
const KEY_DIGITS: usize = 12;

#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error("cannot copy {from} into the runtime's root: {source}")]
    Copy { from: PathBuf, source: io::Error },
    #[error("cannot make {0}: {1}")]
    Make(PathBuf, #[source] io::Error),
    #[error("cannot ask {0} about itself: {1}")]
    Ask(PathBuf, String),
    #[error("there is no program {0}")]
    Missing(PathBuf),
    #[error("cannot find the libraries of {0}: {1}")]
    Libraries(PathBuf, String),
}

/// A runtime that is on the host.
#[derive(Debug, Clone)]
struct Found {
    name: &'static str,
    version: String,
    /// The interpreter's file on the host; none for functions that bring their own.
    interpreter: Option<PathBuf>,
    /// What to copy: from the host, to the root (relative).
    copies: Vec<(PathBuf, PathBuf)>,
    /// Links to make: (in the root, its target).
    links: Vec<(PathBuf, PathBuf)>,
    /// The client of the Runtime API: file name and text.
    client: Option<(&'static str, &'static str)>,
    /// Completes the root at this place.
    finish: fn(&Self, &Path) -> Result<(), RootError>,
    /// The program and its first arguments, as seen in the root.
    command: Vec<String>,
}

/// A root file system that is ready.
#[derive(Debug, Clone)]
pub struct Root {
    pub version: String,
    pub path: PathBuf,
    /// The program and its first arguments, as seen in the root.
    pub command: Vec<String>,
}

/// Finds a runtime and builds its root below `folder` unless it is there. `None`: not on the host.
pub fn prepare(
    folder: &Path,
    runtime: Runtime,
    interpreter: Option<&Path>,
) -> Result<Option<Root>, RootError> {
    let found = match runtime {
        Runtime::Python => python::find(interpreter)?,
        Runtime::Node => node::find(interpreter)?,
        Runtime::Provided => Some(provided()),
    };
    let Some(found) = found else {
        // One that was asked for must be there; one that was only looked for need not.
        return interpreter.map_or(Ok(None), |path| Err(RootError::Missing(path.to_owned())));
    };
    let path = folder.join(key(&found));
    if path.is_dir() {
        // Read by the worker, so that no function is charged for the runtime's pages in the cache.
        tree::warm(&path);
    } else {
        // Built beside its place and renamed when complete: a root that is there is whole.
        let building = folder.join(format!(".building-{}", key(&found)));
        tree::clear(&building).map_err(|error| RootError::Make(building.clone(), error))?;
        let result = build(&building, &found).and_then(|()| {
            fs::rename(&building, &path).map_err(|error| RootError::Make(path.clone(), error))
        });
        if let Err(error) = result {
            // The first error is the one to tell.
            let _ = tree::clear(&building);
            return Err(error);
        }
    }
    Ok(Some(Root { version: found.version, path, command: found.command }))
}

/// Removes the roots of runtimes that are no longer there, and what a crash left half-built.
pub fn remove_others(folder: &Path, keep: &[&Root]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if keep.iter().all(|root| root.path != path) {
            tree::clear(&path)?;
        }
    }
    Ok(())
}

fn provided() -> Found {
    Found {
        name: "provided",
        version: "provided".into(),
        interpreter: None,
        copies: Vec::new(),
        links: Vec::new(),
        client: None,
        finish: |_, _| Ok(()),
        command: vec![format!("{TASK}/bootstrap")],
    }
}

/// Name, version, and a digest of all else that makes two roots differ.
fn key(found: &Found) -> String {
    let mut digest = Sha256::new();
    digest.update(LAYOUT.to_le_bytes());
    let mut add = |text: &[u8]| {
        digest.update(text.len().to_le_bytes());
        digest.update(text);
    };
    for (from, to) in &found.copies {
        add(from.as_os_str().as_encoded_bytes());
        add(to.as_os_str().as_encoded_bytes());
    }
    if let Some(interpreter) = &found.interpreter
        && let Ok(metadata) = fs::metadata(interpreter)
    {
        let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        add(&since.as_nanos().to_le_bytes());
        add(&metadata.size().to_le_bytes());
    }
    add(found.client.map_or("", |(_, text)| text).as_bytes());
    let digest = digest.finalize();
    let digits: String =
        digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()[..KEY_DIGITS].into();
    format!("{}-{}-{digits}", found.name, found.version)
}

fn build(root: &Path, found: &Found) -> Result<(), RootError> {
    let make = |path: &str| {
        let path = root.join(path);
        tree::make_folder(&path).map_err(|error| RootError::Make(path, error))
    };
    for path in [
        "dev",
        "etc/pki/tls",
        "etc/ssl/certs",
        "opt",
        "proc",
        "tmp",
        "usr/bin",
        "usr/lib/ssl",
        "var/lang/bin",
        "var/runtime",
        "var/task",
    ] {
        make(path)?;
    }
    // One folder for all libraries, which every loader finds by one of these names.
    for (name, target) in
        [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib"), ("usr/lib64", "lib")]
    {
        link(root, Path::new(name), Path::new(target))?;
    }
    generate(root)?;
    for (from, to) in &found.copies {
        tree::copy(from, &root.join(to))?;
    }
    for (name, target) in &found.links {
        link(root, name, target)?;
    }
    if let Some((name, text)) = found.client {
        write(root, &format!("var/runtime/{name}"), text)?;
    }
    certificates(root)?;
    let shell = Path::new("/bin/sh");
    if shell.exists() {
        tree::copy(shell, &root.join("usr/bin/sh"))?;
    }
    let sources = found.copies.iter().map(|(from, _)| from.as_path()).chain([shell]);
    libraries::copy(root, found.interpreter.as_deref().unwrap_or(shell), sources)?;
    (found.finish)(found, root)
}

/// What the C library reads.
fn generate(root: &Path) -> Result<(), RootError> {
    // Each instance has its own passwd mounted here.
    write(root, "etc/passwd", "")?;
    write(root, "etc/group", &format!("{USER}:x:{GROUP_ID}:\n"))?;
    write(root, "etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")?;
    // The host's is mounted here for functions with the host's network.
    write(root, "etc/resolv.conf", "")?;
    write(root, "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
}

fn certificates(root: &Path) -> Result<(), RootError> {
    let Some(host) = HOST_CERTIFICATES.iter().map(Path::new).find(|path| path.is_file()) else {
        return Ok(());
    };
    tree::copy(host, &root.join(&CERTIFICATES[1..]))?;
    for place in OPENSSL_CERTIFICATES {
        link(root, Path::new(place), Path::new(CERTIFICATES))?;
    }
    Ok(())
}

fn link(root: &Path, name: &Path, target: &Path) -> Result<(), RootError> {
    let path = root.join(name);
    symlink(target, &path).map_err(|error| RootError::Make(path, error))
}

fn write(root: &Path, name: &str, text: &str) -> Result<(), RootError> {
    let path = root.join(name);
    tree::write(&path, text).map_err(|error| RootError::Make(path, error))
}

/// Runs an interpreter to learn about it; `None` if there is no such program.
fn ask(program: &Path, arguments: &[&str]) -> Result<Option<Vec<u8>>, RootError> {
    let error = |text: String| RootError::Ask(program.to_owned(), text);
    // Whatever the user has set for the worker's own Python is not the functions'.
    let quiet = ["PYTHONHOME", "PYTHONPATH", "NODE_OPTIONS", "LD_PRELOAD"].map(OsString::from);
    let mut command = std::process::Command::new(program);
    for name in &quiet {
        command.env_remove(name);
    }
    let output = match command.args(arguments).stdin(std::process::Stdio::null()).output() {
        Ok(output) => output,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(error(cause.to_string())),
    };
    if output.status.success() {
        Ok(Some(output.stdout))
    } else {
        // What went wrong is said last; it may quote all that it was asked.
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.trim().lines().next_back().unwrap_or("it says nothing");
        Err(error(last.chars().take(MAX_COMPLAINT).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_what_differs() {
        let one = provided();
        assert!(key(&one).starts_with("provided-provided-"));
        assert_eq!(key(&one), key(&one.clone()));
        let other = Found { client: Some(("a", "b")), ..one.clone() };
        assert_ne!(key(&one), key(&other));
        let other = Found { copies: vec![("/a".into(), "b".into())], ..one.clone() };
        assert_ne!(key(&one), key(&other));
    }

    #[test]
    fn a_root_is_whole_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".building-x")).unwrap();
        fs::create_dir(folder.path().join("python-3.1-old")).unwrap();
        let root = prepare(folder.path(), Runtime::Provided, None).unwrap().unwrap();
        for place in ["dev", "proc", "tmp", "var/task", "etc/passwd", "lib64", "usr/bin/sh"] {
            assert!(root.path.join(place).exists(), "{place}");
        }
        assert!(root.path.join("usr/lib/libc.so.6").exists() || cfg!(target_env = "musl"));
        remove_others(folder.path(), &[&root]).unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
        let again = prepare(folder.path(), Runtime::Provided, None).unwrap().unwrap();
        assert_eq!(again.path, root.path);
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_only_if_asked_for() {
        assert!(ask(Path::new("/nonexistent/python3"), &[]).unwrap().is_none());
        let missing = Some(Path::new("/nonexistent/python3"));
        let folder = tempfile::tempdir().unwrap();
        let error = prepare(folder.path(), Runtime::Python, missing).unwrap_err();
        assert_eq!(error.to_string(), "there is no program /nonexistent/python3");
        let error = ask(Path::new("/bin/sh"), &["-c", "echo no >&2; exit 3"]).unwrap_err();
        assert_eq!(error.to_string(), "cannot ask /bin/sh about itself: no");
    }
}
