//! Java: the virtual machine of the host, with a client of the Runtime API that its own compiler makes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::{ByteCode, Product, RuntimeDefinition, digits, find, major_minor};
use crate::instance::{InstanceSpec, Network, ShareState};
use crate::sandbox::environment::BYTES_PER_MIB;
use crate::sandbox::rootfs::{LAYERS, RUNTIME, RootError, RootSpec, TASK, ask};
use crate::sandbox::shared_state::PLACE;

macro_rules! sources {
    ($($path:literal)*) => {
        &[$(($path, include_str!(concat!("../../../runtime/java/", $path)))),*]
    };
}

/// The client of the Runtime API, and the interfaces that handlers may implement without bringing them.
const SOURCES: &[(&str, &str)] = sources![
    "uncia/runtime/Api.java"
    "uncia/runtime/Archiver.java"
    "uncia/runtime/Beans.java"
    "uncia/runtime/Errors.java"
    "uncia/runtime/Handler.java"
    "uncia/runtime/Invocation.java"
    "uncia/runtime/Json.java"
    "uncia/runtime/Main.java"
    "uncia/runtime/Restored.java"
    "uncia/runtime/Sender.java"
    "uncia/runtime/Share.java"
    "com/amazonaws/services/lambda/runtime/Client.java"
    "com/amazonaws/services/lambda/runtime/ClientContext.java"
    "com/amazonaws/services/lambda/runtime/CognitoIdentity.java"
    "com/amazonaws/services/lambda/runtime/Context.java"
    "com/amazonaws/services/lambda/runtime/LambdaLogger.java"
    "com/amazonaws/services/lambda/runtime/RequestHandler.java"
    "com/amazonaws/services/lambda/runtime/RequestStreamHandler.java"
    "com/amazonaws/services/lambda/runtime/logging/LogLevel.java"
];

/// Jars of the root in which they are, by the folder of their classes.
const JARS: [(&str, &str); 2] = [("uncia", "client.jar"), ("com", "interfaces.jar")];

const MAIN: &str = "uncia.runtime.Main";
const ARCHIVER: &str = "uncia.runtime.Archiver::archive";

/// Where instances find what was made of their package, and the names of it there.
const CLASSES: &str = "/var/runtime/classes";
const TASK_JAR: &str = "task.jar";
const ARCHIVE: &str = "classes.jsa";
const PROFILE: &str = "profile.aot";

/// When all jars were made, since 1970. Java reads times up to zero as those of no file.
const JAR_TIME: Duration = Duration::from_secs(1);

/// The oldest Java whose language the client is written in.
const OLDEST: u32 = 17;

/// The oldest Java whose caches hold how often methods ran (JEP 515).
const OLDEST_WITH_PROFILES: u32 = 25;

/// The module that holds Java's compiler. Distributions' JREs have it; those that others cut down do not.
const COMPILER: &str = "jdk.compiler";

/// What of Java's library no function needs: sources, what compilers need to compile for older versions,
/// and archives for heaps without compressed pointers, which are larger than a function's memory.
const LEFT_OUT: [&str; 2] = ["src.zip", "ct.sym"];
const LEFT_OUT_PART: &str = "_nocoops";

/// Archives of classes where there are some.
const SHARES: &str = "-Xshare:auto";

/// The first compiler alone, which neither makes profiles nor reads them.
const QUICK_COMPILER: &str = "-XX:TieredStopAtLevel=1";

/// Options, unless the function's own `JAVA_TOOL_OPTIONS` have one of these words in them: the command
/// line's would hold. As on Lambda, with a compiler that starts quickly and a collector without threads
/// of its own.
const OPTIONS: [(&str, &[&str]); 4] = [
    (QUICK_COMPILER, &["TieredStopAtLevel", "TieredCompilation", "-Xint", "-Xcomp"]),
    ("-XX:+UseSerialGC", &["GC"]),
    (SHARES, &["-Xshare", OF_CACHES]),
    // A file in /tmp for whoever watches it from outside, which nobody can.
    ("-XX:-UsePerfData", &["UsePerfData"]),
];

/// Of an instance of which an archive is made: it notes which classes it loads, lets the client ask for the archive,
/// and prints nothing about it.
const RECORDS: [&str; 5] = [
    "-XX:+RecordDynamicDumpInfo",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    APPENDS,
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
];

/// The same of a cache with profiles: Java writes down what that is made of once the client asks for it.
const RECORDS_PROFILE: [&str; 6] = [
    "-XX:AOTMode=record",
    "-XX:AOTConfiguration=/tmp/.profile.conf",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-DisplayVMOutput",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
];

/// Lets the client make the class path longer. Archives and caches are of jars alone, so that what they are made of has
/// no folder on the path that it is started with: the client appends the package's, and what comes behind it.
const APPENDS: &str = "--add-opens=java.base/jdk.internal.loader=ALL-UNNAMED";

/// Options of archives, which Java takes beside no cache.
const OF_ARCHIVES: [&str; 4] = ["-Xshare", "SharedArchive", "ArchiveClassesAtExit", "ClassList"];

/// What all options of caches have in their names: `AOTMode`, `AOTConfiguration`, `AOTCache`, `AOTCacheOutput`.
const OF_CACHES: &str = "AOT";

/// Of an instance of which a checkpoint may be made.
const RESTORABLE: [&str; 2] =
    ["--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED"];

/// For instances in a network of their own, which has no addresses of the other kind.
const IPV4: &str = "-Djava.net.preferIPv4Stack=true";

/// Of the memory of an instance, what the heap may use, in percent, as on Lambda; and what it leaves at
/// least to all else: classes, code, threads.
const HEAP_PERCENT: u64 = 85;
const LEAST_BESIDE_HEAP: u64 = 48 * BYTES_PER_MIB;

pub(super) struct Definition;

impl RuntimeDefinition for Definition {
    fn name(&self) -> &'static str {
        "java"
    }

    fn identifiers(&self) -> &'static str {
        "javaN"
    }

    fn identifier(&self) -> &'static str {
        "java21"
    }

    fn serves(&self, identifier: &str) -> bool {
        let version = identifier.strip_prefix("java");
        version.is_some_and(|version| digits(version.strip_suffix(".al2").unwrap_or(version)))
    }

    fn requirement(&self) -> Option<&'static str> {
        Some("Java (java)")
    }

    fn root(&self, interpreter: Option<&Path>) -> Result<Option<RootSpec>, RootError> {
        let Some(program) = find(interpreter.unwrap_or(Path::new("java"))) else { return Ok(None) };
        let error = |text: String| RootError::Ask(program.clone(), text);
        // Asking the program itself would start it.
        let home = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let release = fs::read_to_string(home.join("release"))
            .map_err(|_| error(format!("there is no file {}/release", home.display())))?;
        let version = value(&release, "JAVA_VERSION")
            .ok_or_else(|| error(format!("{}/release does not say its version", home.display())))?;
        if major(version).is_none_or(|major| major < OLDEST) {
            return Err(error(format!(
                "it is Java {version}, and functions need {OLDEST} or newer"
            )));
        }
        let modules = value(&release, "MODULES").unwrap_or_default();
        if !modules.split(' ').any(|module| module == COMPILER) {
            return Err(error(format!(
                "it has no compiler (the module {COMPILER}) for the client of the Runtime API: install a \
                 JDK, or Debian's openjdk-{OLDEST}-jre-headless"
            )));
        }
        let lang = Path::new("var/lang");
        let mut copies = vec![(program.clone(), lang.join("bin/java"))];
        for name in ["conf", "release"] {
            copies.push((home.join(name), lang.join(name)));
        }
        for folder in ["lib", "lib/server"] {
            let entries = entries(&home.join(folder));
            for path in entries.map_err(|cause| error(cause.to_string()))? {
                let name = path.file_name().map(|it| it.to_string_lossy()).unwrap_or_default();
                let left_out = LEFT_OUT.contains(&&*name) || name.contains(LEFT_OUT_PART);
                if !left_out && name != "server" {
                    copies.push((path.clone(), lang.join(folder).join(&*name)));
                }
            }
        }
        Ok(Some(RootSpec {
            version: version.to_owned(),
            interpreter: Some(program),
            copies,
            files: SOURCES.iter().map(|(path, text)| (file_name(path), *text)).collect(),
            command: vec!["/var/lang/bin/java".into()],
            ..RootSpec::default()
        }))
    }

    fn is_built_on_demand(&self) -> bool {
        true
    }

    fn finish(&self, spec: &RootSpec, folder: &Path) -> Result<(), RootError> {
        let Some(java) = &spec.interpreter else { return Ok(()) };
        let runtime = folder.join(&RUNTIME[1..]);
        let made = folder.join("tmp/client");
        let failed = |path: &Path, error| RootError::Make(path.to_owned(), error);
        let sources: Vec<PathBuf> =
            SOURCES.iter().map(|(path, _)| runtime.join(file_name(path))).collect();
        let classes = made.to_str().map(str::to_owned).ok_or_else(|| {
            RootError::Ask(java.clone(), "the state folder's name is no text".into())
        })?;
        let mut arguments: Vec<&str> = OPTIONS.iter().map(|(option, _)| *option).collect();
        arguments.extend([
            "-m",
            "jdk.compiler/com.sun.tools.javac.Main",
            "-proc:none",
            "-g:source,lines",
        ]);
        // Texts are put together without what Java makes for that when it first runs.
        arguments.extend(["-XDstringConcat=inline", "-encoding", "UTF-8", "-d", &classes]);
        arguments.extend(sources.iter().filter_map(|path| path.to_str()));
        ask(java, &arguments)?;
        for (part, name) in JARS {
            let jar = runtime.join(name);
            pack(&made, Path::new(part), &jar).map_err(|error| failed(&jar, error))?;
        }
        fs::remove_dir_all(&made).map_err(|error| failed(&made, error))?;
        for path in sources {
            fs::remove_file(&path).map_err(|error| failed(&path, error))?;
        }
        let classes = folder.join(&CLASSES[1..]);
        fs::create_dir(&classes).map_err(|error| failed(&classes, error))
    }

    fn byte_code(&self) -> Option<ByteCode> {
        Some(ByteCode {
            handler: ARCHIVER,
            place: CLASSES,
            product: Product::Archive { name: ARCHIVE, stage },
        })
    }

    fn arguments(&self, spec: &InstanceSpec) -> Vec<String> {
        let mut arguments = options(spec);
        let records = spec.records && !spec.restorable;
        let records_classes =
            records && spec.share_state == ShareState::Classes && !has_cache(spec);
        let ClassPath { archive, path, appended } =
            class_path(spec, records_classes || has_profile(spec));
        if spec.handler == ARCHIVER {
            arguments.push(format!("-Duncia.classpath={path}"));
            let class_path = JARS.map(|(_, name)| format!("{RUNTIME}/{name}")).join(":");
            arguments.extend(["-cp".into(), class_path, MAIN.into()]);
            return arguments;
        }
        if spec.restorable {
            // The environment, and the seeds of what is random, are made anew.
            arguments.extend(RESTORABLE.map(str::to_owned));
        }
        if records {
            // Of what an archive has already, Java makes no other.
            let options: &[&str] = if records_classes {
                &RECORDS
            } else if has_profile(spec) {
                &RECORDS_PROFILE
            } else {
                &[]
            };
            arguments.extend(options.iter().map(|&it| it.to_owned()));
        } else {
            let archive = archive.filter(|_| !has_profile(spec));
            let archive = archive.map(|file| format!("-XX:SharedArchiveFile={file}"));
            arguments.extend(shared_archive(spec).or(archive));
        }
        if has_profile(spec) {
            // Java takes a cache if it is started with the same.
            arguments.push(APPENDS.to_owned());
        }
        if !appended.is_empty() {
            arguments.push(format!("-Duncia.appended={appended}"));
        }
        arguments.extend(["-cp".into(), path, MAIN.into()]);
        arguments
    }

    fn shared_file(&self, share_state: ShareState) -> Option<&'static str> {
        match share_state {
            ShareState::Classes => Some(ARCHIVE),
            ShareState::Profile => Some(PROFILE),
            _ => None,
        }
    }

    fn refuse_version(&self, version: &str, share_state: ShareState) -> Option<String> {
        let is_old = major(version).is_none_or(|major| major < OLDEST_WITH_PROFILES);
        (share_state == ShareState::Profile && is_old).then(|| {
            format!(
                "it takes Java {OLDEST_WITH_PROFILES} or newer, and the platform's is {version}: name another under \
                 runtimes, or share classes"
            )
        })
    }

    fn can_be_restored(&self) -> bool {
        true
    }

    fn serves_http(&self) -> bool {
        true
    }

    fn server(&self, command: &[String], spec: &InstanceSpec) -> Vec<String> {
        let ClassPath { archive, path, .. } = class_path(spec, false);
        let archive: Vec<_> =
            archive.map(|file| format!("-XX:SharedArchiveFile={file}")).into_iter().collect();
        let class = ["-cp".into(), path, spec.handler.clone()];
        [command, &options(spec), &archive, &class].concat()
    }

    fn execution_environment(&self, version: &str) -> String {
        format!("AWS_Lambda_java{}", major_minor(version).0)
    }

    fn check_package(
        &self,
        has: &dyn Fn(&str) -> bool,
        _identifier: &str,
        handler: &str,
    ) -> Result<(), String> {
        let class = handler.split("::").next().unwrap_or_default().replace('.', "/");
        // What is in jars is found out when the class is loaded.
        if has(&format!("{class}.class")) || has("lib/") {
            return Ok(());
        }
        Err(format!(
            "The package holds no handler: \"{handler}\" wants {class}.class at the root of the zip file, \
             or a jar in lib/"
        ))
    }
}

/// A value of the file `release`: `NAME="value"`.
fn value<'a>(release: &'a str, name: &str) -> Option<&'a str> {
    let line = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(line.trim().trim_matches('"'))
}

fn major(version: &str) -> Option<u32> {
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn file_name(path: &'static str) -> &'static str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The paths in a folder, in order.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<_> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.sort();
    Ok(paths)
}

/// What the virtual machine is told, but for where classes are.
fn options(spec: &InstanceSpec) -> Vec<String> {
    let given = given_options(spec);
    let chosen = |words: &[&str]| words.iter().any(|word| given.contains(word));
    let mut options: Vec<String> = OPTIONS
        .iter()
        .filter(|(_, words)| !chosen(words))
        .map(|(option, _)| (*option).to_owned())
        .filter(|option| !has_profile(spec) || ![QUICK_COMPILER, SHARES].contains(&&**option))
        .collect();
    if spec.network != Network::Host && !chosen(&["preferIPv4Stack"]) {
        options.push(IPV4.to_owned());
    }
    if !chosen(&["-Xmx", "MaxHeapSize", "MaxRAM"]) {
        let percent = spec.memory_bytes / 100 * HEAP_PERCENT;
        let heap = percent.min(spec.memory_bytes.saturating_sub(LEAST_BESIDE_HEAP));
        options.push(format!("-Xmx{}m", (heap / BYTES_PER_MIB).max(1)));
    }
    options
}

/// Where the classes of an instance are.
struct ClassPath {
    /// The archive of them if there is one. It is of the first of these places, and holds only if they are the same.
    archive: Option<String>,
    /// What Java is started with.
    path: String,
    /// What the client appends to it; empty if nothing.
    appended: String,
}

/// Where they are. With `appends`, the package's folder and what is behind it are left to the client.
fn class_path(spec: &InstanceSpec, appends: bool) -> ClassPath {
    let made = spec.mounts.iter().find(|(_, place)| place == Path::new(CLASSES));
    let mut path = vec![format!("{RUNTIME}/{}", JARS[0].1)];
    let task_jar = made.is_some_and(|(folder, _)| folder.join(TASK_JAR).is_file());
    path.push(if task_jar { format!("{CLASSES}/{TASK_JAR}") } else { TASK.to_owned() });
    path.extend(jars(&spec.code.join("lib"), &format!("{TASK}/lib")));
    path.push(format!("{RUNTIME}/{}", JARS[1].1));
    let mut behind = Vec::new();
    if task_jar && spec.handler != ARCHIVER {
        // What is no class.
        behind.push(TASK.to_owned());
    }
    // Behind all that the archive is of, and all that the package has.
    let layers = spec.layers.as_ref().map(|it| it.join("java/lib"));
    behind.extend(layers.iter().flat_map(|it| jars(it, &format!("{LAYERS}/java/lib"))));
    let appended = if appends {
        behind
    } else {
        path.append(&mut behind);
        behind
    };
    let archive = made.filter(|(folder, _)| folder.join(ARCHIVE).is_file() && !has_cache(spec));
    ClassPath {
        archive: archive.map(|_| format!("{CLASSES}/{ARCHIVE}")),
        path: path.join(":"),
        appended: appended.join(":"),
    }
}

/// Whether an instance makes a cache with profiles or starts with one, as far as its function lets it.
fn has_profile(spec: &InstanceSpec) -> bool {
    let is_chosen = spec.share_state == ShareState::Profile && spec.handler != ARCHIVER;
    is_chosen && !has_cache(spec) && !OF_ARCHIVES.iter().any(|it| given_options(spec).contains(it))
}

/// Whether its function has options of caches, beside which Java takes those of archives from nobody.
fn has_cache(spec: &InstanceSpec) -> bool {
    given_options(spec).contains(OF_CACHES)
}

/// The options that the function brings.
fn given_options(spec: &InstanceSpec) -> &str {
    spec.environment.get("JAVA_TOOL_OPTIONS").map_or("", String::as_str)
}

/// The option for what was made of an instance of the function.
fn shared_archive(spec: &InstanceSpec) -> Option<String> {
    let shared = spec.mounts.iter().any(|(_, place)| place == Path::new(PLACE));
    (shared && !has_cache(spec)).then(|| match spec.share_state {
        ShareState::Profile => format!("-XX:AOTCache={PLACE}/{PROFILE}"),
        _ => format!("-XX:SharedArchiveFile={PLACE}/{ARCHIVE}"),
    })
}

/// The jars in a folder that instances see at `seen_at`: in the order of their names, as on Lambda.
fn jars(folder: &Path, seen_at: &str) -> Vec<String> {
    let jars = entries(folder).unwrap_or_default();
    let names = jars.iter().filter_map(|jar| jar.file_name()?.to_str());
    let names = names.filter(|name| name.strip_suffix(".jar").is_some_and(|it| !it.contains(':')));
    names.map(|name| format!("{seen_at}/{name}")).collect()
}

/// Puts the classes of a package into a jar, since archives are of jars alone. False if it has neither
/// classes nor jars.
fn stage(package: &Path, into: &Path) -> io::Result<bool> {
    let classes = pack(package, Path::new(""), &into.join(TASK_JAR))?;
    Ok(classes > 0 || package.join("lib").is_dir())
}

/// Packs the classes below `top/part` into a jar, under their paths below `top`; returns how many. Links
/// lead nowhere. Of the same classes it is always the same, its time included, by which Java tells whether an archive
/// is of it.
fn pack(top: &Path, part: &Path, jar: &Path) -> io::Result<usize> {
    let mut writer = ZipWriter::new(File::create_new(jar)?);
    // Times and compression make a jar neither better nor faster to read.
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(zip::DateTime::default());
    let (mut folders, mut count) = (vec![part.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for path in entries(&top.join(&folder))? {
            let kind = fs::symlink_metadata(&path)?.file_type();
            let Some(name) = path.strip_prefix(top).ok().and_then(Path::to_str) else { continue };
            if kind.is_dir() && name != "META-INF" {
                folders.push(PathBuf::from(name));
            } else if kind.is_file() && name.strip_suffix(".class").is_some() {
                writer.start_file(name, options).map_err(io::Error::other)?;
                writer.write_all(&fs::read(&path)?)?;
                count += 1;
            }
        }
    }
    writer.finish().map_err(io::Error::other)?.set_modified(SystemTime::UNIX_EPOCH + JAR_TIME)?;
    Ok(count)
}
