//! Language runtimes: one file each, found by its place in this folder.
//!
//! A file defines a unit struct `Definition` and implements [`RuntimeDefinition`] for it; its name is
//! the file's. Nothing else knows a runtime by name: what the API calls it, what its root holds, how
//! it is started and what a package for it must contain are all in its file.

use std::env;
use std::fmt;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::rootfs::{RootError, RootSpec, TASK, ask};
use crate::instance::{InstanceSpec, ShareState};

include!(concat!(env!("OUT_DIR"), "/runtimes.rs"));

/// Names a program that is started in place of the runtime, with the runtime's command as its
/// arguments.
pub(in crate::sandbox) const WRAPPER: &str = "AWS_LAMBDA_EXEC_WRAPPER";

/// Whether a program reads this variable only when it starts: its C library does, or its name begins
/// with one of these.
pub(in crate::sandbox) fn is_read_at_start(name: &str, beginnings: &[&str]) -> bool {
    const LIBRARY: [&str; 4] = ["LD_", "LC_", "MALLOC_", "GLIBC_"];
    name == "LANG"
        || name == "LANGUAGE"
        || name == WRAPPER
        || LIBRARY.iter().chain(beginnings).any(|beginning| name.starts_with(beginning))
}

/// Where the host of code finds compiled components.
pub(in crate::sandbox) const COMPONENTS: &str = TASK;

/// How packages are compiled for a runtime.
pub(crate) struct ByteCode {
    /// The handler that compiles.
    pub handler: &'static str,
    /// Where instances look for the byte code, as seen in the root.
    pub place: &'static str,
    pub product: Product,
}

impl ByteCode {
    /// Where instances look for what is made of their layers; None if nothing is.
    pub(crate) fn layers_place(&self) -> Option<&'static str> {
        match self.product {
            Product::EachSource { layers_place, .. } => Some(layers_place),
            Product::Archive { .. } => None,
        }
    }
}

/// What is made of a package.
pub(crate) enum Product {
    /// For each source a file of its path and name with a `c` at the end.
    ///
    /// The handler lies in `/var/runtime`. It is given `{"paths": [...], "folder": ...}`, sources relative to the
    /// package at `/var/runtime/sources`, which instances see in that folder, and answers a list of byte code in base64 or null for each of the first of them, at least
    /// one.
    EachSource {
        /// The end of the names of sources.
        suffix: &'static str,
        /// Where instances look for what is compiled of their layers, as [`ByteCode::place`].
        layers_place: &'static str,
    },
    /// One file, of all of the package.
    ///
    /// The package is where it always is, and at [`ByteCode::place`] is what `stage` has put there. The handler
    /// is given `{"offset": ...}`, and answers the bytes of the file from there on, as many as it likes, in
    /// base64; null at the end.
    Archive {
        /// The file's name.
        name: &'static str,
        /// Puts into a folder what else is made of a package, without running anything; false if there is
        /// nothing to be made of it.
        stage: fn(package: &Path, into: &Path) -> io::Result<bool>,
    },
}

/// What a root that a function brings gets besides a runtime's interpreter, which it has.
pub(crate) struct Client {
    /// The interpreter, by its name on the root's PATH, and its options.
    pub interpreter: &'static [&'static str],
    /// The client of the Runtime API, in `/var/runtime`: its name and text.
    pub file: (&'static str, &'static str),
}

/// What sets one runtime apart from others.
pub(crate) trait RuntimeDefinition: Sync {
    /// Its name, such as in the configuration's `runtimes`.
    fn name(&self) -> &'static str;

    /// The form of its identifiers in Lambda's API, for people: `python3.N`.
    fn identifiers(&self) -> &'static str;

    /// The identifier by which it is asked for where only its name is given.
    fn identifier(&self) -> &'static str;

    /// Whether an identifier of Lambda's API means this runtime.
    fn serves(&self, identifier: &str) -> bool;

    /// What must be installed for it, for people; `None` if nothing, and then it has no interpreter.
    fn requirement(&self) -> Option<&'static str>;

    /// What to do where that is missing.
    fn remedy(&self) -> &'static str {
        "install it"
    }

    /// What its root holds, by looking at the host: at `interpreter`, or else at the one on the
    /// PATH. `None` if there is none.
    fn root(&self, interpreter: Option<&Path>) -> Result<Option<RootSpec>, RootError>;

    /// Whether its root is built when a function first wants it: a large one, which most platforms never
    /// need. Others are built when the platform starts.
    fn is_built_on_demand(&self) -> bool {
        false
    }

    /// Its client of the Runtime API for a root that a function brings; `None` if none is needed, or there
    /// is none.
    fn client(&self) -> Option<Client> {
        None
    }

    /// Completes its root, which has been built at `folder`.
    fn finish(&self, _spec: &RootSpec, _folder: &Path) -> Result<(), RootError> {
        Ok(())
    }

    /// How its packages are compiled; `None` if they are not.
    fn byte_code(&self) -> Option<ByteCode> {
        None
    }

    /// The file in which its instances share what this means; None if they cannot. Its client makes it, when the
    /// platform orders that, of an instance whose [`InstanceSpec::records`] is set; later ones find it in
    /// `/var/runtime/shared`.
    fn shared_file(&self, _share_state: ShareState) -> Option<&'static str> {
        None
    }

    /// Why its instances cannot share this where it is of this version, if they cannot: what follows a colon.
    fn refuse_version(&self, _version: &str, _share_state: ShareState) -> Option<String> {
        None
    }

    /// Whether a checkpoint of a process of it can go on: its client notices that its connection is another instance's
    /// and makes one anew, by which it learns its environment.
    fn can_be_restored(&self) -> bool {
        false
    }

    /// The variable that tells it where the libraries of layers are, and its value. `version`: that which
    /// [`RootSpec::version`] names.
    fn library_paths(&self, _version: &str) -> Option<(&'static str, String)> {
        None
    }

    /// Where in the layers' folder it looks for a file that the package lacks.
    fn place_in_layers(&self, _path: &str) -> Option<String> {
        None
    }

    /// Whether its instances can be copies of one that has started. Its program is told by what it has
    /// for standard input: a socket, on which it gets the packets of `init/zygote.rs`, and whose end is
    /// its own.
    fn has_zygote(&self) -> bool {
        false
    }

    /// Arguments that depend on the instance, after those of the root's command.
    fn arguments(&self, _spec: &InstanceSpec) -> Vec<String> {
        Vec::new()
    }

    /// Whether its packages are code that a host runs for all functions, and no program.
    fn is_code(&self) -> bool {
        false
    }

    /// Whether its packages may hold a server: see [`Self::server`].
    fn serves_http(&self) -> bool {
        false
    }

    /// Whether a handler is that of a server: the name of its file, with its ending. Where it does not say,
    /// since programs and classes are named alike, it is not.
    fn is_server(&self, _handler: &str) -> bool {
        false
    }

    /// The command that starts a server which the package holds: the interpreter, its options, and the
    /// handler as a file of the package. `command` is the root's. The package's own program by default.
    fn server(&self, command: &[String], _spec: &InstanceSpec) -> Vec<String> {
        command.to_vec()
    }

    /// About how many bytes of memory one takes that is started before its instance is known, and waits:
    /// see `init::waiting`. None if it cannot.
    fn waiting_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether it looks at a variable only when it starts, so that one which has started has missed it.
    fn reads_at_start(&self, _variable: &str) -> bool {
        false
    }

    /// `AWS_EXECUTION_ENV` for the version that [`RootSpec::version`] names.
    fn execution_environment(&self, version: &str) -> String;

    /// Whether a package holds what it will look for; the error is a sentence. `has` says whether the
    /// package has a file of that name, or a folder if a slash ends it.
    fn check_package(
        &self,
        has: &dyn Fn(&str) -> bool,
        identifier: &str,
        handler: &str,
    ) -> Result<(), String>;

    /// Whether the files in a package's folder are what they must be, as far as that is quickly seen; the error
    /// is a sentence.
    ///
    /// # Errors
    /// One of them is not.
    fn check_files(&self, _code: &Path) -> Result<(), String> {
        Ok(())
    }

    /// Whether the program that starts is the function's own, so that its failing to start is the
    /// function's fault and not the platform's.
    fn starts_functions_program(&self) -> bool {
        false
    }
}

/// A runtime, as a handle that is cheap to copy.
#[derive(Clone, Copy)]
pub struct Runtime(&'static dyn RuntimeDefinition);

impl Runtime {
    /// All of them, in the order of their names.
    pub fn all() -> &'static [Self] {
        ALL
    }

    /// The runtime of this name.
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().copied().find(|it| it.name() == name)
    }

    /// The runtime that an identifier of Lambda's API means.
    pub fn serving(identifier: &str) -> Option<Self> {
        ALL.iter().copied().find(|it| it.0.serves(identifier))
    }

    /// `python`, `node`, `provided`, ...
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// The form of its identifiers in Lambda's API, for people: `python3.N`.
    pub fn identifiers(self) -> &'static str {
        self.0.identifiers()
    }

    /// The identifier by which it is asked for where only its name is given.
    pub fn identifier(self) -> &'static str {
        self.0.identifier()
    }

    /// The program that must be installed for it, for people; `None` if none is, and then no
    /// interpreter can be configured.
    pub fn requirement(self) -> Option<&'static str> {
        self.0.requirement()
    }

    /// What to do where [`Self::requirement`] is missing.
    pub(crate) fn remedy(self) -> &'static str {
        self.0.remedy()
    }

    /// The names of those that have something, for people: `node, python or ruby`.
    pub(crate) fn names_of(has: impl Fn(&dyn RuntimeDefinition) -> bool) -> String {
        let all = ALL.iter().filter(|it| has(it.0)).map(|it| it.name());
        let mut names: Vec<_> = all.collect();
        let last = names.pop().unwrap_or("none");
        if names.is_empty() { last.to_owned() } else { format!("{} or {last}", names.join(", ")) }
    }

    pub(crate) fn definition(self) -> &'static dyn RuntimeDefinition {
        self.0
    }
}

impl PartialEq for Runtime {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Runtime {}

impl Hash for Runtime {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What an interpreter says of itself, in JSON; `None` if there is none.
fn ask_for<T: DeserializeOwned>(
    program: &Path,
    arguments: &[&str],
) -> Result<Option<T>, RootError> {
    let Some(output) = ask(program, arguments)? else { return Ok(None) };
    let answer = serde_json::from_slice(&output)
        .map_err(|error| RootError::Ask(program.to_owned(), error.to_string()))?;
    Ok(Some(answer))
}

/// The program itself, behind all links; a name alone is looked for on the PATH.
fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return fs::canonicalize(program).ok();
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).find_map(|folder| {
        let path = fs::canonicalize(folder.join(program)).ok()?;
        path.is_file().then_some(path)
    })
}

/// Whether a text is a number without sign.
fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Major and minor version.
fn major_minor(version: &str) -> (&str, &str) {
    let mut parts = version.split('.');
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// The file that a handler such as `folder/module.function` means, without its ending.
fn module(handler: &str) -> &str {
    handler.rsplit_once('.').map_or(handler, |(module, _)| module)
}

/// Checks that a package has one of the files that a handler may lie in.
fn any_of(candidates: &[String], has: &dyn Fn(&str) -> bool, handler: &str) -> Result<(), String> {
    if candidates.iter().any(|path| has(path)) {
        return Ok(());
    }
    Err(format!(
        "The package holds no handler: \"{handler}\" wants one of {} at the root of the zip file",
        candidates.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_by_identifier_and_by_name() {
        for (identifier, name) in [
            ("python3.12", "python"),
            ("nodejs20.x", "node"),
            ("provided", "provided"),
            ("provided.al2023", "provided"),
            ("ruby3.3", "ruby"),
            ("java21", "java"),
            ("java8.al2", "java"),
            ("wasm", "wasm"),
        ] {
            assert_eq!(Runtime::serving(identifier), Runtime::named(name), "{identifier}");
        }
        for unknown in [
            "python2.7",
            "python3.",
            "nodejs.x",
            "nodejs20",
            "go1.x",
            "ruby2",
            "ruby3.x",
            "java",
            "java.al2",
            "",
        ] {
            assert_eq!(Runtime::serving(unknown), None, "{unknown}");
        }
        for runtime in Runtime::all() {
            assert_eq!(Runtime::serving(runtime.identifier()), Some(*runtime));
        }
        let names: Vec<_> = Runtime::all().iter().map(|it| it.name()).collect();
        assert!(names.is_sorted(), "{names:?}");
        assert!(names.iter().all(|name| Runtime::named(name).is_some()));
    }

    #[test]
    fn lists_for_people() {
        assert_eq!(Runtime::names_of(|it| it.has_zygote()), "python");
        assert_eq!(Runtime::names_of(|it| it.waiting_bytes().is_some()), "node, python or ruby");
        assert_eq!(Runtime::names_of(|_| false), "none");
    }

    #[test]
    fn packages_must_hold_what_is_started() {
        let check = |name: &str, files: &[&str], handler| {
            let has = |path: &str| files.contains(&path);
            Runtime::named(name).unwrap().definition().check_package(&has, "identifier", handler)
        };
        assert_eq!(check("python", &["a/b.py"], "a.b.handler"), Ok(()));
        assert_eq!(check("python", &["a/b/__init__.py"], "a/b.handler"), Ok(()));
        assert!(check("python", &["b.py"], "a.handler").unwrap_err().contains("a.py"));
        assert_eq!(check("node", &["index.mjs"], "index.handler"), Ok(()));
        assert!(check("node", &["index.py"], "index.handler").unwrap_err().contains("index.js"));
        assert_eq!(check("ruby", &["a/b.rb"], "a/b.LambdaFunctions::Handler.process"), Ok(()));
        assert!(check("ruby", &["b.rb"], "a.handler").unwrap_err().contains("a.rb"));
        assert_eq!(check("java", &["a/B.class"], "a.B::handle"), Ok(()));
        assert_eq!(check("java", &["a/B.class"], "a.B"), Ok(()));
        assert_eq!(check("java", &["lib/"], "a.B"), Ok(()));
        assert!(check("java", &["B.class"], "a.B::c").unwrap_err().contains("a/B.class"));
        assert_eq!(check("provided", &["bootstrap"], "any"), Ok(()));
        assert!(check("provided", &["main"], "any").unwrap_err().contains("identifier"));
    }
}
