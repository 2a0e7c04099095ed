//! Unix sockets: files that their owner alone can connect to.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, flock, statat, unlinkat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::UnixListener;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Others that make a socket in the same folder hold it for some microseconds.
const FOLDER_TIMEOUT: Duration = Duration::from_secs(5);
const FOLDER_POLL: Duration = Duration::from_millis(5);

/// Why there can be no socket.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum SocketError {
    #[error("{0} is no path of a socket: name a file in a folder that exists")]
    NoName(PathBuf),
    #[error("the folder of the socket {path} cannot be used: {source}")]
    Folder { path: PathBuf, source: io::Error },
    #[error("{0} is there already and no socket: remove it, or choose another path")]
    NoSocket(PathBuf),
    #[error("another process listens on {0}: stop it, or choose another path")]
    InUse(PathBuf),
    #[error("cannot listen on {path}: {source}")]
    Listen { path: PathBuf, source: io::Error },
}

/// The file of a socket, which goes with this.
#[derive(Debug)]
pub(crate) struct SocketFile {
    folder: File,
    name: OsString,
    /// The file's device and inode: another one of this name is somebody else's.
    identity: (u64, u64),
}

impl SocketFile {
    /// Listens on a path that only its owner can connect to. A socket on which nobody listens any more is
    /// replaced: its process was killed.
    ///
    /// # Errors
    /// There is something else on the path, a process that listens, or no folder.
    pub(crate) fn listen(path: &Path) -> Result<(UnixListener, Self), SocketError> {
        let failed =
            |error: Errno| SocketError::Listen { path: path.to_owned(), source: error.into() };
        let (folder, name) = open(path)?;
        // By way of the folder, since an address has room for 107 bytes.
        let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(&name);
        let address = SocketAddrUnix::new(&short).map_err(failed)?;
        hold(&folder).map_err(|source| SocketError::Folder { path: path.to_owned(), source })?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            || rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let listener = socket().map_err(failed)?;
        // The file gets the mode that the socket has when it is bound, so that nobody is faster.
        rustix::fs::fchmod(&listener, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        match rustix::net::bind(&listener, &address) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => {
                check_dead(path, &folder, &name, socket().map_err(failed)?, &address)?;
                unlinkat(&folder, &name, AtFlags::empty()).map_err(failed)?;
                rustix::net::bind(&listener, &address).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        let about = statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        let identity = (about.st_dev, about.st_ino);
        let file = Self { folder, name, identity };
        rustix::net::listen(&listener, BACKLOG).map_err(failed)?;
        // As long as the folder was held, nobody could take a socket that does not listen yet for a dead
        // one.
        let _ = flock(&file.folder, FlockOperation::Unlock);
        let listener = UnixListener::from_std(StdListener::from(listener))
            .map_err(|source| SocketError::Listen { path: path.to_owned(), source })?;
        Ok((listener, file))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let about = statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if about.is_ok_and(|it| (it.st_dev, it.st_ino) == self.identity) {
            // What cannot be removed, the next platform takes over.
            let _ = unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// The folder of a path, and the file's name in it.
fn open(path: &Path) -> Result<(File, OsString), SocketError> {
    let name = path.file_name().ok_or_else(|| SocketError::NoName(path.to_owned()))?;
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = File::open(folder)
        .map_err(|source| SocketError::Folder { path: path.to_owned(), source })?;
    Ok((folder, name.to_owned()))
}

/// Keeps others from making a socket in a folder, until it is closed or unlocked.
fn hold(folder: &File) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match flock(folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if began.elapsed() < FOLDER_TIMEOUT => {
                thread::sleep(FOLDER_POLL);
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another process holds its lock (flock)"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Checks that what is on a path is a socket on which nobody listens.
fn check_dead(
    path: &Path,
    folder: &File,
    name: &OsString,
    probe: impl AsFd,
    address: &SocketAddrUnix,
) -> Result<(), SocketError> {
    let failed = |error: Errno| SocketError::Listen { path: path.to_owned(), source: error.into() };
    let about = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    if FileType::from_raw_mode(about.st_mode) != FileType::Socket {
        return Err(SocketError::NoSocket(path.to_owned()));
    }
    match rustix::net::connect(probe, address) {
        Err(Errno::CONNREFUSED) => Ok(()),
        // It may have as many connections as it takes at the moment.
        Ok(()) | Err(Errno::AGAIN) => Err(SocketError::InUse(path.to_owned())),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn refused(path: &Path) -> String {
        SocketFile::listen(path).map(|_| ()).unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_socket_is_its_owners_and_goes_with_its_listener() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("x".repeat(100)).join("y".repeat(100));
        fs::create_dir_all(&deep).unwrap();
        let path = deep.join("s");
        let (listener, file) = SocketFile::listen(&path).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(refused(&path).contains("another process listens on"));
        drop(file);
        assert!(!path.exists());
        drop(listener);
    }

    #[tokio::test]
    async fn a_dead_processs_socket_is_taken_over_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        // Closing it leaves the file, as a kill does.
        drop(StdListener::bind(&path).unwrap());
        let (_listener, file) = SocketFile::listen(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let others = StdListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists(), "it is another's by now");
        drop(others);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "text").unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        assert!(refused(&path).contains("is there already and no socket"));
        let link = folder.path().join("link");
        symlink(folder.path().join("none"), &link).unwrap();
        assert!(refused(&link).contains("is there already and no socket"));
        assert_eq!(fs::metadata(&path).unwrap().ino(), before);
        assert!(refused(&folder.path().join("none/s")).contains("No such file"));
        assert!(refused(Path::new("/")).contains("is no path of a socket"));
        assert!(refused(&folder.path().join("n".repeat(200))).contains("cannot listen on"));
    }
}
