//! CRIU: which program it is, and whether it works here.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::privileged;

/// Names the folder in which CRIU's packages are unpacked, with its own libraries, if it is not installed.
const VARIABLE: &str = "UNCIA_CRIU";

/// The oldest version that works on the kernels of today: 3.17, Debian 12's, does not know their layout.
const OLDEST: (u32, u32) = (4, 2);

/// Where libraries are, by how distributions build them.
const LIBRARIES: [&str; 4] =
    ["usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib"];
const LOADERS: [&str; 2] = ["ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];
const PROGRAMS: [&str; 3] = ["usr/sbin/criu", "usr/bin/criu", "usr/local/sbin/criu"];

/// What CRIU knows of a kernel, which takes it 50 ms to find out. It writes that to nothing but memory.
const CACHE: &str = "criu.kdat";
const MEMORY: &str = "/dev/shm";

/// The user as whom it finds that out: one without a name.
const NOBODY: u32 = 65_534;

/// A CRIU that works here.
#[derive(Debug, Clone)]
pub(in crate::sandbox) struct Criu {
    pub loader: PathBuf,
    pub libraries: PathBuf,
    pub program: PathBuf,
    /// The folder with what it knows of the kernel.
    pub cache: PathBuf,
}

impl Criu {
    /// Finds it, and tries whether it works; the error says why there is none: what follows a colon.
    pub(in crate::sandbox) fn find(cache: &Path) -> Result<Self, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("only root may look into instances and put processes into them".into());
        }
        let folder = env::var_os(VARIABLE).map(PathBuf::from);
        let top = folder.as_deref().unwrap_or(Path::new("/"));
        let program = PROGRAMS.iter().map(|name| top.join(name)).find(|path| path.is_file());
        let Some(program) = program else {
            return Err(match &folder {
                Some(folder) => {
                    format!("there is no CRIU in {}, which {VARIABLE} names", folder.display())
                }
                None => format!(
                    "CRIU is not installed: install version {}.{} or newer, or unpack its packages and those of its \
                     libraries, and name the folder in {VARIABLE}",
                    OLDEST.0, OLDEST.1
                ),
            });
        };
        let libraries = LIBRARIES.iter().map(|name| top.join(name));
        let found =
            libraries.flat_map(|folder| LOADERS.map(|name| (folder.join(name), folder.clone())));
        let (loader, libraries) =
            found.clone().find(|(loader, _)| loader.is_file()).ok_or_else(|| {
                format!("there is no loader of programs in {}/usr/lib", top.display())
            })?;
        let criu = Self { loader, libraries, program, cache: cache.to_owned() };
        let version = criu.version()?;
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < OLDEST {
            return Err(format!(
                "{} is version {version}, and it takes {}.{} or newer: unpack that apart, and name the folder in \
                 {VARIABLE}",
                criu.program.display(),
                OLDEST.0,
                OLDEST.1
            ));
        }
        criu.check()?;
        Ok(criu)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.loader);
        command.arg("--library-path").arg(&self.libraries).arg(&self.program);
        command.env_clear().stdin(Stdio::null());
        command
    }

    fn version(&self) -> Result<String, String> {
        let output = self.command().arg("--version").output();
        let output = output.map_err(|error| format!("{}: {error}", self.program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().find_map(|line| line.strip_prefix("Version: "));
        version.map(|version| version.trim().to_owned()).ok_or_else(|| {
            format!(
                "{} does not say its version: {}",
                self.program.display(),
                last_line(&output.stderr)
            )
        })
    }

    /// Has it try what it needs of the kernel, and keeps what it has found.
    fn check(&self) -> Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        let memory = Path::new(MEMORY).join(format!("uncia-criu-{}", std::process::id()));
        let _ = fs::create_dir(&memory);
        let _ = fs::set_permissions(&memory, Permissions::from_mode(0o777));
        let mut command = self.command();
        command.args(["check", "--unprivileged"]).env("XDG_RUNTIME_DIR", &memory);
        // SAFETY: system calls and nothing else.
        unsafe { command.pre_exec(|| privileged::become_user(NOBODY, NOBODY)) };
        let output = command.output().map_err(text);
        let found = fs::read(memory.join(CACHE));
        let _ = fs::remove_dir_all(&memory);
        let output = output?;
        if !output.status.success() {
            let all = [output.stdout, output.stderr].concat();
            return Err(format!("CRIU does not work here: {}", last_line(&all)));
        }
        fs::create_dir_all(&self.cache).map_err(text)?;
        fs::set_permissions(&self.cache, Permissions::from_mode(0o755)).map_err(text)?;
        if let Ok(found) = found {
            // Without it, it finds out each time.
            fs::write(self.cache.join(CACHE), found).map_err(text)?;
        }
        Ok(())
    }
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.trim().lines().next_back().unwrap_or("it says nothing").trim().to_owned()
}

/// What a log of CRIU's says went wrong: its first error that is not one of those that it goes on after.
pub(in crate::sandbox) fn complaint(log: &str) -> String {
    const HARMLESS: [&str; 3] =
        ["tun: Unable to create tun", "Can't setup RLIMIT_NOFILE", "empty-image"];
    let errors = log.lines().filter_map(|line| line.split_once("Error (").map(|(_, rest)| rest));
    let mut errors = errors.filter(|it| !HARMLESS.iter().any(|harmless| it.contains(harmless)));
    let error = errors.next().and_then(|it| it.split_once("): ").map(|(_, text)| text.trim()));
    error.unwrap_or("it does not say why").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_says_what_went_wrong() {
        let log = "(00.002) Error (criu/tun.c:85): tun: Unable to create tun: No such file\n\
                   (00.101) Error (criu/cr-dump.c:389): Can't get rlimit 0: Operation not permitted\n\
                   (00.104) Error (criu/cr-dump.c:1975): Dumping FAILED.\n";
        assert_eq!(complaint(log), "Can't get rlimit 0: Operation not permitted");
        assert_eq!(complaint(""), "it does not say why");
    }
}
