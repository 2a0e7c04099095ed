//! Byte code of packages, made once so that no cold start compiles the same sources again.
//!
//! A package may be hostile, so it is compiled where it would run: in an instance, as a user without
//! rights, with limits of memory and time. Nothing of the package runs there. The worker alone chooses
//! which files are made, and writes them; what cannot be compiled is left as it is.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tokio::time::Instant;

use super::archiver::Archiver;
use super::environment::BYTES_PER_MIB;
use super::host::Host;
use super::live::Instance;
use super::own_byte_code;
use super::rootfs::{LAYERS, RUNTIME, SOURCES_TO_COMPILE, TASK};
use super::runtimes::{ByteCode, Product};
use crate::ids;
use crate::instance::{InstanceSpec, Outcome, Request, Runtime, StartError};
use crate::runtime::in_proportion;

/// How long a package may take; what is not compiled by then is not.
const PACKAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a batch may take: a source that takes longer keeps only itself from being compiled.
const BATCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Sources of a batch: together they take a fraction of its time.
const BATCH_SOURCES: usize = 64;
const BATCH_BYTES: u64 = 512 * 1024;
/// The largest source that is compiled.
const MAX_SOURCE_BYTES: u64 = 4 * BYTES_PER_MIB;
/// Most sources that are looked at.
const MAX_SOURCES: usize = 20_000;
/// Most byte code of a package: as much as the package itself may be.
const MAX_BYTES: usize = 250 * 1024 * 1024;
const MEMORY_BYTES: u64 = 512 * BYTES_PER_MIB;
const PROCESSES: u64 = 8;
const CPU_MICRO: u64 = 1_000_000;
/// Of a digest, as many as tell the roots of one machine apart.
const RECIPE_DIGITS: usize = 16;
/// Interpreters' folders of this name hold byte code, and no sources.
pub(super) const CACHE: &str = "__pycache__";

/// A source: its path in the package, and its size.
type Source = (PathBuf, u64);

/// What came of compiling a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compiled {
    /// There is byte code.
    Some,
    /// None of its sources can be compiled.
    Nothing,
    /// There is no byte code, and another time there may be: not every source had an answer.
    Unknown,
}

/// Where instances see a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeenAt {
    /// As the function's code.
    Task,
    /// As its layers.
    Layers,
}

impl SeenAt {
    fn folder(self) -> &'static str {
        match self {
            Self::Task => TASK,
            Self::Layers => LAYERS,
        }
    }
}

impl Host {
    /// The name under which a runtime's byte code is kept: of this runtime in this version and, if files of the
    /// root are in it, of this root. `None` if its packages are not compiled.
    pub(crate) fn byte_code_name(&self, runtime: Runtime) -> Option<String> {
        let product = runtime.definition().byte_code()?.product;
        let name = format!("{}-{}", runtime.name(), self.roots.version(runtime)?);
        Some(match product {
            Product::EachSource { .. } => name,
            Product::Archive { .. } => {
                format!("{name}-{}", &self.roots.recipe(runtime)?[..RECIPE_DIGITS])
            }
        })
    }

    /// What of the byte code that the package `code` brings along is passed over, as the end of a sentence: see
    /// [`own_byte_code`]. `made`: what [`Self::compile`] has made of it.
    pub(crate) async fn passed_over(
        &self,
        runtime: Runtime,
        code: &Path,
        made: &Path,
    ) -> io::Result<Option<String>> {
        let product = runtime.definition().byte_code().map(|it| it.product);
        let (Some(Product::EachSource { .. }), Some(version)) =
            (product, self.roots.version(runtime).map(str::to_owned))
        else {
            return Ok(None);
        };
        let (code, made) = (code.to_owned(), made.to_owned());
        let look = move || own_byte_code::passed_over(&code, &made, &version);
        tokio::task::spawn_blocking(look).await.map_err(io::Error::other)?
    }

    /// Compiles the package `code` into the new folder `into`: what the runtime's [`Product`] is, as far as
    /// it can be made, and no folder if there is nothing.
    pub(crate) async fn compile(
        self: &Arc<Self>,
        runtime: Runtime,
        code: &Path,
        seen_at: SeenAt,
        into: &Path,
    ) -> io::Result<Compiled> {
        let Some(byte_code) = runtime.definition().byte_code() else {
            return Ok(Compiled::Nothing);
        };
        let root = self.roots.get(runtime).await.map_err(io::Error::other)?;
        let suffix = match byte_code.product {
            Product::EachSource { suffix, .. } => suffix,
            // Of a package alone.
            Product::Archive { .. } if seen_at == SeenAt::Layers => return Ok(Compiled::Nothing),
            Product::Archive { name, stage } => {
                let _turn = self.compilers.acquire().await.map_err(io::Error::other)?;
                let spec = spec(runtime, &byte_code, code.to_owned());
                return Archiver { host: self, spec, code, into }.archive(name, stage).await;
            }
        };
        let folder = code.to_owned();
        let found = tokio::task::spawn_blocking(move || sources(&folder, suffix)).await;
        let sources = found.map_err(io::Error::other)??;
        if sources.is_empty() {
            return Ok(Compiled::Nothing);
        }
        // As many at a time as there are processors.
        let _turn = self.compilers.acquire().await.map_err(io::Error::other)?;
        let deadline = Instant::now() + PACKAGE_TIMEOUT;
        let mut spec = spec(runtime, &byte_code, root.path.join(&RUNTIME[1..]));
        spec.mounts.push((code.to_owned(), SOURCES_TO_COMPILE.into()));
        let compiler = Compiler { host: self, spec, seen_at, into };
        compiler.compile(sources, deadline).await
    }
}

/// Compiles one package.
struct Compiler<'a> {
    host: &'a Arc<Host>,
    spec: InstanceSpec,
    seen_at: SeenAt,
    into: &'a Path,
}

impl Compiler<'_> {
    async fn compile(&self, sources: Vec<Source>, deadline: Instant) -> io::Result<Compiled> {
        let (mut rest, mut compiled, mut bytes) = (sources.as_slice(), 0, 0);
        let mut unanswered = false;
        let mut instance = None;
        // After a batch that ended its instance, its sources are compiled one by one.
        let mut alone: usize = 0;
        while !rest.is_empty() && Instant::now() < deadline {
            let running = match instance.take() {
                Some(running) => running,
                None => match self.start().await {
                    Ok(running) => running,
                    // A part of it would be taken for all of it from then on.
                    Err(error) => return Err(io::Error::other(error.to_string())),
                },
            };
            let count = if alone > 0 { 1 } else { batch(rest) };
            let limit = BATCH_TIMEOUT.min(deadline - Instant::now());
            match self.run(&running, &rest[..count], limit).await {
                Some(answer) => {
                    let done = answer.len();
                    bytes += answer.iter().flatten().map(Vec::len).sum::<usize>();
                    let kept = match self.keep(&rest[..done], answer).await {
                        Ok(kept) if bytes <= MAX_BYTES => kept,
                        failed => {
                            running.stop(Duration::ZERO).await;
                            let too_much = || io::Error::other("it is too large");
                            return Err(failed.err().unwrap_or_else(too_much));
                        }
                    };
                    compiled += kept;
                    rest = &rest[done..];
                    alone = alone.saturating_sub(done);
                    instance = Some(running);
                }
                None => {
                    running.stop(Duration::ZERO).await;
                    if count == 1 {
                        unanswered = true;
                        rest = &rest[1..];
                        alone = alone.saturating_sub(1);
                    } else {
                        alone = count;
                    }
                }
            }
        }
        if let Some(running) = instance {
            running.stop(Duration::ZERO).await;
        }
        if !rest.is_empty() {
            tracing::warn!(
                "{} of {} sources have byte code after {} s; the others are compiled at each cold \
                 start",
                compiled,
                sources.len(),
                PACKAGE_TIMEOUT.as_secs()
            );
        }
        Ok(match compiled {
            0 if unanswered || !rest.is_empty() => Compiled::Unknown,
            0 => Compiled::Nothing,
            _ => Compiled::Some,
        })
    }

    async fn start(&self) -> Result<Instance, StartError> {
        let spec =
            InstanceSpec { id: format!("compiler-{}", ids::instance()), ..self.spec.clone() };
        self.host.start(spec).await.result
    }

    /// The byte code of the first of these sources, or nothing if the instance did not answer so.
    async fn run(
        &self,
        instance: &Instance,
        sources: &[Source],
        timeout: Duration,
    ) -> Option<Vec<Option<Vec<u8>>>> {
        let paths: Vec<_> = sources.iter().map(|(path, _)| path).collect();
        let event = serde_json::json!({ "paths": paths, "folder": self.seen_at.folder() });
        let request = Request {
            request_id: ids::uuid(),
            payload: Bytes::from(event.to_string()),
            timeout,
            ..Request::default()
        };
        let Outcome::Ok(answer) = instance.invoke(request).await.outcome else { return None };
        let bytes = answer.len();
        let most = sources.len();
        let take_apart = move || {
            let texts: Vec<Option<String>> = serde_json::from_slice(&answer).ok()?;
            let decode = |text: Option<String>| text.and_then(|text| STANDARD.decode(text).ok());
            (!texts.is_empty() && texts.len() <= most)
                .then(|| texts.into_iter().map(decode).collect())
        };
        in_proportion(bytes, take_apart).await
    }

    /// Writes byte code beside each other as the sources are; returns of how many.
    async fn keep(&self, sources: &[Source], code: Vec<Option<Vec<u8>>>) -> io::Result<usize> {
        let files: Vec<_> = sources
            .iter()
            .zip(code)
            .filter_map(|((path, _), code)| {
                let mut path = self.into.join(path).into_os_string();
                path.push("c");
                Some((PathBuf::from(path), code?))
            })
            .collect();
        let into = self.into.to_owned();
        let written = tokio::task::spawn_blocking(move || {
            files.iter().try_for_each(|(path, code)| write(&into, path, code)).map(|()| files.len())
        });
        written.await.map_err(io::Error::other)?
    }
}

/// What a compiler starts with.
fn spec(runtime: Runtime, byte_code: &ByteCode, code: PathBuf) -> InstanceSpec {
    InstanceSpec {
        memory_bytes: MEMORY_BYTES,
        cpu_micro: CPU_MICRO,
        pids_max: PROCESSES,
        init_timeout: PACKAGE_TIMEOUT,
        // Of no function: its share of the CPU is its own.
        ..InstanceSpec::new(String::new(), "uncia:compiler", runtime, byte_code.handler, code)
    }
}

/// How many of the sources make a batch.
fn batch(sources: &[Source]) -> usize {
    let mut bytes = 0;
    let fits = |(_, size): &&Source| {
        bytes += size;
        bytes <= BATCH_BYTES
    };
    sources.iter().take(BATCH_SOURCES).take_while(fits).count().max(1)
}

/// The sources below `package`, those nearest to its top first. Links lead nowhere.
fn sources(package: &Path, suffix: &str) -> io::Result<Vec<Source>> {
    let mut found = Vec::new();
    let mut folders = std::collections::VecDeque::from([PathBuf::new()]);
    while let Some(folder) = folders.pop_front() {
        let mut entries: Vec<_> =
            fs::read_dir(package.join(&folder))?.collect::<io::Result<_>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (name, kind) = (entry.file_name(), entry.file_type()?);
            // Packages hold no other names.
            let Some(text) = name.to_str() else { continue };
            if kind.is_dir() && text != CACHE {
                folders.push_back(folder.join(text));
            } else if kind.is_file() && text.ends_with(suffix) {
                let size = entry.metadata()?.len();
                if size <= MAX_SOURCE_BYTES {
                    found.push((folder.join(text), size));
                }
            }
            if found.len() == MAX_SOURCES {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Writes a file below `top` that everybody may read, with the folders above it.
fn write(top: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    let above: Vec<_> =
        path.ancestors().skip(1).take_while(|folder| folder.starts_with(top)).collect();
    for folder in above.into_iter().rev() {
        match fs::create_dir(folder) {
            Ok(()) => fs::set_permissions(folder, Permissions::from_mode(0o755))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if cannot_be(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    let mut file = match File::create_new(path) {
        Ok(file) => file,
        Err(error) if cannot_be(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.write_all(content)
}

/// Whether there cannot be a file of that name: it is one byte longer than the source's, or a folder of
/// the package is called as the byte code of a source is.
fn cannot_be(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, InvalidFilename, NotADirectory};
    matches!(error.kind(), AlreadyExists | InvalidFilename | NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn sources_are_files_of_the_package_and_no_links() {
        let package = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let at = |name: &str| package.path().join(name);
        fs::write(outside.path().join("secret.py"), "x = 1").unwrap();
        fs::create_dir_all(at("deep/__pycache__")).unwrap();
        for name in ["z.py", "deep/a.py", "data.txt", "deep/__pycache__/a.py"] {
            fs::write(at(name), "x = 1").unwrap();
        }
        symlink(outside.path(), at("folder")).unwrap();
        symlink(outside.path().join("secret.py"), at("link.py")).unwrap();
        symlink(".", at("loop")).unwrap();
        fs::write(at("large.py"), vec![b'#'; MAX_SOURCE_BYTES as usize + 1]).unwrap();
        let found = sources(package.path(), ".py").unwrap();
        assert_eq!(found, [("z.py".into(), 5), ("deep/a.py".into(), 5)]);
    }

    #[test]
    fn batches_are_small() {
        let sources = |sizes: &[u64]| sizes.iter().map(|size| (PathBuf::new(), *size)).collect();
        let (many, large): (Vec<_>, Vec<_>) = (sources(&[1; 1000]), sources(&[BATCH_BYTES * 2, 1]));
        assert_eq!((batch(&many), batch(&large), batch(&large[1..])), (BATCH_SOURCES, 1, 1));
    }
}
