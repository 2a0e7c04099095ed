//! What is left of containers whose first process was killed, or whose worker was.
//!
//! None of their processes is: they are in the first process's pid namespace. But the runtime remembers
//! them, and some runtimes have made control groups.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

use super::OciRuntime;
use super::bundle::group_path;
use crate::sandbox::cgroup::{clear_tree, everywhere};
use crate::sandbox::wire::Container;

/// In the state folder: a folder for each runtime, with one for each container.
const FOLDER: &str = "containers";

impl OciRuntime {
    /// Where and how it makes a container of this name.
    pub(in crate::sandbox) fn container(
        self,
        state: &Path,
        id: &str,
        program: PathBuf,
    ) -> Container {
        Container {
            id: id.to_owned(),
            program,
            options: self.0.options().iter().map(|option| (*option).to_owned()).collect(),
            folder: state.join(FOLDER).join(self.name()).join(id),
            makes_groups: self.0.makes_groups(),
        }
    }
}

/// Removes a container's folder, once its first process has ended; the runtime forgets it before. `name`: the
/// worker's.
pub(super) fn remove(container: &Container, name: &str) -> io::Result<()> {
    if !is_empty(&container.state()) {
        // What it cannot delete, it does not know, or it is gone itself: the folder goes all the same.
        let _ = run_apart(container.deletion());
    }
    if container.makes_groups {
        for folder in everywhere(&group_path(name, &container.id))? {
            clear_tree(&folder)?;
        }
    }
    match fs::remove_dir_all(&container.folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Deletes all containers of an earlier worker, whose processes have ended.
pub(in crate::sandbox) fn sweep(state: &Path, name: &str) -> io::Result<()> {
    for runtime in OciRuntime::all() {
        let Ok(entries) = fs::read_dir(state.join(FOLDER).join(runtime.name())) else { continue };
        for entry in entries {
            let id = entry?.file_name();
            let Some(id) = id.to_str() else { continue };
            // One that was uninstalled meanwhile cannot be run, and need not.
            let program = runtime.program().unwrap_or_else(|| runtime.name().into());
            remove(&runtime.container(state, id, program), name)?;
        }
    }
    sweep_groups(name)
}

/// Removes the control groups above those that runtimes have made.
pub(in crate::sandbox) fn sweep_groups(name: &str) -> io::Result<()> {
    for folder in everywhere(Path::new(name))? {
        clear_tree(&folder)?;
    }
    Ok(())
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none())
}

/// Runs a command in a pid namespace of its own, where none of the numbers of processes that it may remember
/// is anybody's.
fn run_apart(mut command: Command) -> io::Result<()> {
    let apart = || {
        // SAFETY: calls that a child of a process with several threads may make, with numbers and literals.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS))?;
            let nothing = ptr::null();
            let flags = libc::MS_REC | libc::MS_PRIVATE;
            check(libc::mount(nothing, c"/".as_ptr(), nothing, flags, ptr::null()))?;
            let child = libc::fork();
            check(child)?;
            if child > 0 {
                let mut status = 0;
                libc::waitpid(child, &raw mut status, 0);
                libc::_exit(status >> 8);
            }
            let (name, folder) = (c"proc".as_ptr(), c"/proc".as_ptr());
            check(libc::mount(name, folder, name, 0, ptr::null()))
        }
    };
    // SAFETY: `apart` allocates nothing, and takes no lock.
    let command = unsafe { command.pre_exec(apart) };
    command.status().map(drop)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_sees_no_process_but_itself() {
        if !nix::unistd::geteuid().is_root() {
            return eprintln!("not run: only root may make namespaces");
        }
        let folder = tempfile::tempdir().unwrap();
        let seen = folder.path().join("seen");
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("echo $$ /proc/[0-9]* > {}", seen.display()));
        run_apart(command).unwrap();
        assert_eq!(fs::read_to_string(seen).unwrap(), "1 /proc/1\n");
    }
}
