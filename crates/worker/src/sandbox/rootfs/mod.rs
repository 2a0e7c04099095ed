//! The root file systems: one for each runtime, shared by its instances, read-only in each.
//!
//! A root holds copies of what the runtime needs and nothing else of the host: the interpreter, its
//! standard library, the shared libraries that these load, the libraries that compiled packages may
//! count on (the manylinux set), the programs of shell scripts, certificates, and a few generated lines in `/etc`. The
//! layout is Lambda's: the runtime in `/var/lang`, its client in `/var/runtime`, the function in
//! `/var/task`.

mod cache;
mod image;
mod libraries;
mod sources;
mod tree;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub(super) use self::cache::Cache;
pub(super) use self::image::ImageRoots;
use self::sources::Sources;
use super::runtimes::Runtime;

/// The function's code.
pub(super) const TASK: &str = "/var/task";
/// The client of the Runtime API, and what else the platform has for a runtime.
pub(super) const RUNTIME: &str = "/var/runtime";
/// The function's layers.
pub(super) const LAYERS: &str = "/opt";
/// Where a package is shown to who compiles it.
pub(super) const SOURCES_TO_COMPILE: &str = "/var/runtime/sources";
pub(super) const ETC_PASSWD: &str = "/etc/passwd";
/// The user that functions run as, by Lambda's name.
pub(super) const USER: &str = "sbx_user1051";
/// The group of all functions: its number is in the shared `/etc/group`.
pub(crate) const GROUP_ID: u32 = 990;
/// The names of the loopback interface: Lambda's among them, to which extensions have telemetry sent.
const HOSTS: &str = "127.0.0.1 localhost sandbox.localdomain sandbox\n::1 localhost\n";
pub(super) const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

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
const LAYOUT: u32 = 7;

const SHELL: &str = "/bin/sh";
/// The same folder on most machines.
const PROGRAM_FOLDERS: [&str; 2] = ["/usr/bin", "/bin"];
/// What bootstraps, extensions and wrappers that are scripts begin with and call, as far as this machine has it: of
/// what is in Lambda's own images.
const PROGRAMS: [&str; 46] = [
    "awk",
    "base64",
    "basename",
    "bash",
    "cat",
    "chmod",
    "cp",
    "curl",
    "cut",
    "date",
    "dirname",
    "env",
    "expr",
    "false",
    "find",
    "grep",
    "gzip",
    "head",
    "id",
    "ls",
    "mkdir",
    "mktemp",
    "mv",
    "nproc",
    "printenv",
    "printf",
    "pwd",
    "readlink",
    "realpath",
    "rm",
    "sed",
    "seq",
    "sh",
    "sha256sum",
    "sleep",
    "sort",
    "stat",
    "tail",
    "tee",
    "touch",
    "tr",
    "true",
    "uname",
    "uniq",
    "wc",
    "xargs",
];

/// In a runtime's folder: its root, and what that was made of.
const ROOT: &str = "root";
const SOURCES: &str = "sources.json";

/// Longest error message of an interpreter that is passed on, in characters.
const MAX_COMPLAINT: usize = 200;

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

/// What a root holds besides what all roots do.
#[derive(Debug, Clone, Default)]
pub(crate) struct RootSpec {
    pub version: String,
    /// The interpreter's file on the host; none for functions that bring their own.
    pub interpreter: Option<PathBuf>,
    /// What to copy: from the host, to the root (relative).
    pub copies: Vec<(PathBuf, PathBuf)>,
    /// Links to make: (in the root, its target).
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Files of `/var/runtime`, such as the client of the Runtime API: names and texts.
    pub files: Vec<(&'static str, &'static str)>,
    /// The program and its first arguments, as seen in the root.
    pub command: Vec<String>,
}

/// A root file system that is ready.
#[derive(Debug, Clone)]
pub(super) struct Root {
    pub version: String,
    pub path: PathBuf,
    /// The program and its first arguments, as seen in the root.
    pub command: Vec<String>,
}

/// Finds a runtime on the host: at `interpreter`, or else on the PATH. `None`: not there.
pub(super) fn find(
    runtime: Runtime,
    interpreter: Option<&Path>,
) -> Result<Option<RootSpec>, RootError> {
    match (runtime.definition().root(interpreter)?, interpreter) {
        // One that was asked for must be there; one that was only looked for need not.
        (None, Some(path)) => Err(RootError::Missing(path.to_owned())),
        (spec, _) => Ok(spec),
    }
}

/// The folder below `folder` that has the root of a runtime in this version.
pub(super) fn place(folder: &Path, runtime: Runtime, spec: &RootSpec) -> PathBuf {
    folder.join(format!("{}-{}", runtime.name(), spec.version))
}

/// Builds a runtime's root below `folder` unless one is there, or in the cache, that was made of the same files.
pub(super) fn prepare(
    folder: &Path,
    cache: Option<&Cache>,
    runtime: Runtime,
    spec: &RootSpec,
) -> Result<Root, RootError> {
    let place = place(folder, runtime, spec);
    let path = place.join(ROOT);
    let recipe = recipe(spec);
    if Sources::read(&place.join(SOURCES)).is_some_and(|sources| sources.are_current(&recipe)) {
        // Read by the worker, so that no function is charged for the runtime's pages in the cache.
        tree::warm(&path);
    } else {
        // Built beside its place and renamed when complete: a root that is there is whole.
        let building = folder.join(format!(".building-{}-{}", runtime.name(), spec.version));
        let in_place = |error| RootError::Make(place.clone(), error);
        tree::clear(&building).map_err(|error| RootError::Make(building.clone(), error))?;
        let is_taken = cache.is_some_and(|it| it.take(&place, &building, &recipe));
        let built = if is_taken {
            Ok(())
        } else {
            tree::clear(&building)
                .map_err(|error| RootError::Make(building.clone(), error))
                .and_then(|()| build(&building, runtime, spec, recipe.clone()))
        };
        let result = built.and_then(|()| {
            tree::clear(&place).map_err(in_place)?;
            fs::rename(&building, &place).map_err(in_place)
        });
        if let Err(error) = result {
            // The first error is the one to report.
            let _ = tree::clear(&building);
            return Err(error);
        }
        if is_taken {
            tree::warm(&path);
        }
        match cache {
            Some(cache) if is_taken => cache.tidy(),
            Some(cache) => cache.keep(&place, &recipe),
            None => {}
        }
    }
    Ok(Root { version: spec.version.clone(), path, command: spec.command.clone() })
}

/// Removes the roots of runtimes that are no longer there, and what a crash left half-built: all but
/// the folders `keep`.
pub(super) fn remove_others(folder: &Path, keep: &[PathBuf]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !keep.contains(&path) {
            tree::clear(&path)?;
        }
    }
    Ok(())
}

/// A digest of all that makes two roots differ besides the files that they are made of.
pub(super) fn recipe(spec: &RootSpec) -> String {
    hex::encode(Sha256::digest(format!("{LAYOUT} {PROGRAM_FOLDERS:?} {PROGRAMS:?} {spec:?}")))
}

/// Builds a root in the new folder `place`, with the list of what it was made of.
fn build(place: &Path, runtime: Runtime, spec: &RootSpec, recipe: String) -> Result<(), RootError> {
    let root = &place.join(ROOT);
    let mut sources = Sources::new(recipe);
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
        "var/runtime/shared",
        "var/runtime/sources",
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
    for (from, to) in &spec.copies {
        tree::copy(from, &root.join(to), &mut sources)?;
    }
    for (name, target) in &spec.links {
        link(root, name, target)?;
    }
    for (name, text) in &spec.files {
        write(root, &format!("var/runtime/{name}"), text)?;
    }
    certificates(root, &mut sources)?;
    let mut programs = Vec::new();
    for name in PROGRAMS {
        // Where it is missing is noted, too: it may be installed later.
        let candidates = PROGRAM_FOLDERS.map(|folder| Path::new(folder).join(name));
        for candidate in &candidates {
            sources.add(candidate);
        }
        if let Some(program) = candidates.into_iter().find(|path| path.is_file()) {
            tree::copy(&program, &root.join("usr/bin").join(name), &mut sources)?;
            programs.push(program);
        }
    }
    let shell = Path::new(SHELL);
    let copied = spec.copies.iter().map(|(from, _)| from.as_path());
    let copied = copied.chain(programs.iter().map(PathBuf::as_path));
    libraries::copy(root, spec.interpreter.as_deref().unwrap_or(shell), copied, &mut sources)?;
    runtime.definition().finish(spec, root)?;
    let failed = |error| RootError::Make(place.to_owned(), error);
    tree::open_to_all(place).map_err(failed)?;
    sources.write(&place.join(SOURCES)).map_err(failed)
}

/// What the C library reads.
fn generate(root: &Path) -> Result<(), RootError> {
    // Each instance has its own passwd mounted here.
    write(root, "etc/passwd", "")?;
    write(root, "etc/group", &format!("{USER}:x:{GROUP_ID}:\n"))?;
    write(root, "etc/hosts", HOSTS)?;
    // The host's is mounted here for functions with the host's network.
    write(root, "etc/resolv.conf", "")?;
    write(root, "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
}

fn certificates(root: &Path, sources: &mut Sources) -> Result<(), RootError> {
    for path in HOST_CERTIFICATES {
        sources.add(Path::new(path));
    }
    let Some(host) = HOST_CERTIFICATES.iter().map(Path::new).find(|path| path.is_file()) else {
        return Ok(());
    };
    tree::copy(host, &root.join(&CERTIFICATES[1..]), sources)?;
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
pub(super) fn ask(program: &Path, arguments: &[&str]) -> Result<Option<Vec<u8>>, RootError> {
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

    /// A runtime without an interpreter, and its root in a folder.
    fn provided(folder: &Path) -> (RootSpec, Root) {
        let runtime = Runtime::named("provided").unwrap();
        let spec = find(runtime, None).unwrap().unwrap();
        let root = prepare(folder, None, runtime, &spec).unwrap();
        (spec, root)
    }

    #[test]
    fn a_recipe_tells_what_differs() {
        let one = RootSpec::default();
        assert_eq!(recipe(&one), recipe(&one.clone()));
        let other = RootSpec { files: vec![("a", "b")], ..one.clone() };
        assert_ne!(recipe(&one), recipe(&other));
        let other = RootSpec { copies: vec![("/a".into(), "b".into())], ..one.clone() };
        assert_ne!(recipe(&one), recipe(&other));
    }

    #[test]
    fn a_root_is_whole_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".building-x")).unwrap();
        fs::create_dir(folder.path().join("python-3.1-old")).unwrap();
        let (spec, root) = provided(folder.path());
        for place in ["dev", "proc", "tmp", "var/task", "etc/passwd", "lib64", "usr/bin/sh"] {
            assert!(root.path.join(place).exists(), "{place}");
        }
        assert!(root.path.join("usr/lib/libc.so.6").exists() || cfg!(target_env = "musl"));
        let runtime = Runtime::named("provided").unwrap();
        remove_others(folder.path(), &[place(folder.path(), runtime, &spec)]).unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
        let (_, again) = provided(folder.path());
        assert_eq!(again.path, root.path);
    }

    #[test]
    fn a_root_is_made_anew_when_a_library_in_it_was_patched() {
        let folder = tempfile::tempdir().unwrap();
        let (_, root) = provided(folder.path());
        let record = root.path.parent().unwrap().join(SOURCES);
        let text = fs::read_to_string(&record).unwrap();
        assert!(text.contains("libc.so.6") || cfg!(target_env = "musl"), "{text}");
        let mark = root.path.join("mark");
        fs::write(&mark, "").unwrap();
        provided(folder.path());
        assert!(mark.exists(), "nothing has changed");
        // As if the file had had another inode when the root was made.
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let files = value["files"].as_object_mut().unwrap();
        let library = files.iter_mut().find(|(path, _)| path.contains("/libc.so"));
        let Some((_, stamp)) = library else { return };
        stamp["inode"] = 1.into();
        fs::write(&record, value.to_string()).unwrap();
        provided(folder.path());
        assert!(!mark.exists(), "it is a new root");
        assert_eq!(fs::read_to_string(&record).unwrap(), text);
        fs::write(&record, "torn").unwrap();
        provided(folder.path());
        assert_eq!(fs::read_to_string(&record).unwrap(), text);
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_only_if_asked_for() {
        assert!(ask(Path::new("/nonexistent/python3"), &[]).unwrap().is_none());
        let missing = Some(Path::new("/nonexistent/python3"));
        let error = find(Runtime::named("python").unwrap(), missing).unwrap_err();
        assert_eq!(error.to_string(), "there is no program /nonexistent/python3");
        let error = ask(Path::new("/bin/sh"), &["-c", "echo no >&2; exit 3"]).unwrap_err();
        assert_eq!(error.to_string(), "cannot ask /bin/sh about itself: no");
    }
}
