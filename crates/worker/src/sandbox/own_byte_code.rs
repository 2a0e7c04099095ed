//! Byte code that a package brings along: it never stands for a source that is there.
//!
//! Its author, or whoever has had the package in their hands, may have made it of anything, and Python would execute
//! it unseen (PEP 552: without a check, or with the hash of a source that it was not made of). Instances have what
//! was compiled of the package's own sources instead. Here it is found what is passed over for a reason that its
//! author wants to know; byte code of the source as it is, as far as its head says, is none.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::compiler::CACHE;

/// What byte code begins with: a magic number, flags, and what says which source it was made from.
const HEAD_BYTES: usize = 16;
/// Most files that are looked at.
const MAX_FILES: usize = 20_000;
/// The longest part of a path that is passed on.
const MAX_PATH_CHARS: usize = 200;

type Head = [u8; HEAD_BYTES];

/// Why byte code of a source is passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    Damaged,
    OtherVersion,
    OtherSource,
    /// There is nothing to compare it with.
    NotCompiled,
}

impl fmt::Display for Flaw {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Damaged => "damaged",
            Self::OtherVersion => "made by another version of the interpreter",
            Self::OtherSource => "made from another source",
            Self::NotCompiled => "of a source that was not compiled",
        })
    }
}

/// What is wrong with byte code that begins so, where `made` was made from the source, of `length` bytes.
fn flaw(packaged: Option<&Head>, made: Option<&Head>, length: u64) -> Option<Flaw> {
    const BY_TIME: u32 = 0;
    const BY_HASH: u32 = 0b01;
    const BY_CHECKED_HASH: u32 = 0b11;
    let Some(packaged) = packaged else { return Some(Flaw::Damaged) };
    let flags = u32::from_le_bytes([packaged[4], packaged[5], packaged[6], packaged[7]]);
    // By its time it is never of a source that was unpacked.
    let Some(made) = made else { return (flags != BY_TIME).then_some(Flaw::NotCompiled) };
    if packaged[..4] != made[..4] {
        // The last two are the same in all versions.
        return Some(if packaged[2..4] == made[2..4] { Flaw::OtherVersion } else { Flaw::Damaged });
    }
    let is_of_source = match flags {
        // Packages lose the times of their files when they are unpacked.
        BY_TIME => packaged[12..] == (length as u32).to_le_bytes(),
        BY_HASH | BY_CHECKED_HASH => packaged[8..] == made[8..],
        _ => return Some(Flaw::Damaged),
    };
    (!is_of_source).then_some(Flaw::OtherSource)
}

/// What of the byte code in `package` is passed over, as the end of a sentence; None if there is nothing to be said.
/// `made`: what was compiled of it, by the path of each source with a `c`. `version`: the interpreter's.
pub(super) fn passed_over(
    package: &Path,
    made: &Path,
    version: &str,
) -> io::Result<Option<String>> {
    let mut parts = version.split('.');
    let tag =
        format!("cpython-{}{}", parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let (mut count, mut looked_at) = (0_usize, 0);
    let mut first: Option<(PathBuf, Flaw)> = None;
    let mut folders = VecDeque::from([PathBuf::new()]);
    while let Some(folder) = folders.pop_front() {
        let is_cache = folder.file_name() == Some(OsStr::new(CACHE));
        let mut entries: Vec<_> =
            fs::read_dir(package.join(&folder))?.collect::<io::Result<_>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = folder.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push_back(path);
                continue;
            }
            if !is_cache || !kind.is_file() || looked_at == MAX_FILES {
                continue;
            }
            let Some(source) = source_of(&path, &tag) else { continue };
            looked_at += 1;
            // Without its source Python does not look at it.
            let Ok(source_is) = package.join(&source).symlink_metadata() else { continue };
            let mut compiled = made.join(source).into_os_string();
            compiled.push("c");
            let compiled = head(Path::new(&compiled)).ok().flatten();
            let packaged = head(&package.join(&path))?;
            if let Some(flaw) = flaw(packaged.as_ref(), compiled.as_ref(), source_is.len()) {
                count += 1;
                first.get_or_insert((path, flaw));
            }
        }
    }
    Ok(first.map(|(path, flaw)| {
        let shown: String =
            path.to_string_lossy().chars().filter(|it| !it.is_control()).take(MAX_PATH_CHARS).collect();
        let (files, are) = if count == 1 { ("one file", "is") } else { ("files", "are") };
        let many = if count == 1 { String::new() } else { format!("{count} ") };
        format!(
            "{many}{files} of byte code in its package {are} passed over, and the sources are executed: {shown} is {flaw}"
        )
    }))
}

/// The source that the interpreter with this tag takes a file in a [`CACHE`] for.
fn source_of(path: &Path, tag: &str) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?.strip_suffix(".pyc")?;
    let name = ["", ".opt-1", ".opt-2"].iter().find_map(|level| {
        let name = name.strip_suffix(level)?;
        name.strip_suffix(tag)?.strip_suffix('.')
    })?;
    Some(path.parent()?.parent()?.join(format!("{name}.py")))
}

/// How a file begins; None if it is shorter.
fn head(path: &Path) -> io::Result<Option<Head>> {
    let mut head = [0; HEAD_BYTES];
    match File::open(path)?.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        read => read.map(|()| Some(head)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: [u8; 4] = [0xa7, 0x0d, 0x0d, 0x0a];

    fn begins(magic: [u8; 4], flags: u32, rest: [u8; 8]) -> Head {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&magic);
        head[4..8].copy_from_slice(&flags.to_le_bytes());
        head[8..].copy_from_slice(&rest);
        head
    }

    #[test]
    fn byte_code_is_of_its_source_or_has_a_flaw() {
        let made = begins(MAGIC, 0b11, [1; 8]);
        let by_time = |size: u8| begins(MAGIC, 0, [9, 9, 9, 9, size, 0, 0, 0]);
        let older = begins([0x61, 0x0d, 0x0d, 0x0a], 0b11, [1; 8]);
        for (packaged, wanted) in [
            (made, None),
            (begins(MAGIC, 0b01, [1; 8]), None),
            (by_time(5), None),
            (by_time(6), Some(Flaw::OtherSource)),
            (begins(MAGIC, 0b11, [2; 8]), Some(Flaw::OtherSource)),
            (begins(MAGIC, 0b01, [2; 8]), Some(Flaw::OtherSource)),
            (begins(MAGIC, 0b10, [1; 8]), Some(Flaw::Damaged)),
            (begins(*b"text", 0, [0; 8]), Some(Flaw::Damaged)),
            (older, Some(Flaw::OtherVersion)),
        ] {
            assert_eq!(flaw(Some(&packaged), Some(&made), 5), wanted, "{packaged:?}");
        }
        assert_eq!(flaw(None, Some(&made), 5), Some(Flaw::Damaged));
        assert_eq!(flaw(Some(&made), None, 5), Some(Flaw::NotCompiled));
        assert_eq!(flaw(Some(&by_time(5)), None, 5), None);
    }

    #[test]
    fn one_sentence_says_how_many_and_names_the_first() {
        let (package, made) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |top: &Path, path: &str, content: &[u8]| {
            fs::create_dir_all(top.join(path).parent().unwrap()).unwrap();
            fs::write(top.join(path), content).unwrap();
        };
        let good = begins(MAGIC, 0b11, [1; 8]);
        let sentences = || passed_over(package.path(), made.path(), "3.11.7").unwrap();
        for name in ["handler", "deep/inner"] {
            write(package.path(), &format!("{name}.py"), b"x = 1");
            write(made.path(), &format!("{name}.pyc"), &good);
        }
        write(package.path(), "__pycache__/handler.cpython-311.pyc", &good);
        // No interpreter looks at these: no source, another tag, and another place.
        write(package.path(), "__pycache__/gone.cpython-311.pyc", b"");
        write(package.path(), "__pycache__/handler.cpython-39.pyc", b"");
        write(package.path(), "handler.cpython-311.pyc", b"");
        assert_eq!(sentences(), None);
        write(package.path(), "__pycache__/handler.cpython-311.opt-1.pyc", b"");
        let sentence = sentences().unwrap();
        let wanted = "one file of byte code in its package is passed over, and the sources are executed: \
                      __pycache__/handler.cpython-311.opt-1.pyc is damaged";
        assert_eq!(sentence, wanted);
        write(package.path(), "deep/__pycache__/inner.cpython-311.pyc", &[7; 40]);
        assert!(sentences().unwrap().starts_with("2 files of byte code"), "{:?}", sentences());
        let long = format!("{}/{0}/m", "d".repeat(200));
        write(package.path(), &format!("{long}.py"), b"");
        for number in 0..2_000 {
            let path = format!("{}/{0}/__pycache__/m{number}.cpython-311.pyc", "d".repeat(200));
            write(package.path(), &path, b"");
            write(package.path(), &format!("{}/{0}/m{number}.py", "d".repeat(200)), b"");
        }
        let sentence = sentences().unwrap();
        assert!(sentence.starts_with("2002 files") && sentence.len() < 500, "{sentence}");
    }
}
