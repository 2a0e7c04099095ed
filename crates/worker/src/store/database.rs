//! Opening SQLite databases in the state folder, with a sentence for whatever is wrong with one.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode};

/// What users other than the worker's may do with a database: nothing.
const PRIVATE_FILE: u32 = 0o600;

/// Why a database cannot be opened, read or written. Nothing was changed by the failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseError {
    #[error("{0} is not a database: move it away, or choose another state folder")]
    NotADatabase(PathBuf),
    #[error(
        "{path} is another program's database (it has no table {table}): move it away, or choose \
         another state folder"
    )]
    Foreign { path: PathBuf, table: &'static str },
    #[error(
        "{path} is damaged ({message}): restore it from a copy, or choose another state folder"
    )]
    Damaged { path: PathBuf, message: String },
    #[error(
        "{path} was written by a newer version of uncia (its tables are version {found}, this one \
         knows {known}): use that version, or choose another state folder"
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("{0} cannot be written: the disk is full; free some space")]
    DiskFull(PathBuf),
    #[error(
        "{path} cannot be written ({message}): make it a writable file, or choose another state \
         folder"
    )]
    NotWritable { path: PathBuf, message: String },
    #[error("{path}: {message}")]
    Other { path: PathBuf, message: String },
}

impl DatabaseError {
    /// What an error of SQLite's means for the database at `path`.
    pub fn of(path: &Path, error: &rusqlite::Error) -> Self {
        let (path, message) = (path.to_owned(), error.to_string());
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase(path),
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, message },
            Some(ErrorCode::DiskFull) => Self::DiskFull(path),
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Self::NotWritable { path, message }
            }
            _ => Self::Other { path, message },
        }
    }

    pub(crate) fn of_io(path: &Path, error: &io::Error) -> Self {
        if super::is_disk_full(error) {
            return Self::DiskFull(path.to_owned());
        }
        Self::NotWritable { path: path.to_owned(), message: error.to_string() }
    }
}

/// A database as this version of the program knows it.
pub(crate) struct Format {
    /// The tables' version, in `PRAGMA user_version`; 0 is an empty file.
    pub version: i64,
    /// A table that every version has.
    pub table: &'static str,
    /// `PRAGMA synchronous`: `FULL` keeps a commit through a power failure, `NORMAL` through the
    /// end of the process, however it comes.
    pub synchronous: &'static str,
}

/// Opens a database such that readers do not block the writer, and makes it if it is missing;
/// returns the version of its tables too. Nobody but its owner may read it, whatever the umask.
pub(crate) fn open(path: &Path, format: &Format) -> Result<(Connection, i64), DatabaseError> {
    let refused = |error: rusqlite::Error| DatabaseError::of(path, &error);
    let refused_io = |error: io::Error| DatabaseError::of_io(path, &error);
    make_if_missing(path).map_err(refused_io)?;
    let mut connection = Connection::open(path).map_err(refused)?;
    // Before anything is written or made private: it may be somebody else's.
    let version = check(&connection, path, format)?;
    make_private(path).map_err(refused_io)?;
    // It was opened before its owner might write to it.
    if connection.is_readonly("main").map_err(refused)? {
        connection = Connection::open(path).map_err(refused)?;
    }
    connection.pragma_update(None, "journal_mode", "WAL").map_err(refused)?;
    connection.pragma_update(None, "synchronous", format.synchronous).map_err(refused)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(refused)?;
    Ok((connection, version))
}

/// The version of the tables.
fn check(connection: &Connection, path: &Path, format: &Format) -> Result<i64, DatabaseError> {
    let number = |sql: &str| -> Result<i64, DatabaseError> {
        connection
            .query_row(sql, [], |row| row.get(0))
            .map_err(|error| DatabaseError::of(path, &error))
    };
    let version = number("PRAGMA user_version")?;
    let tables = number("SELECT COUNT(*) FROM sqlite_schema")?;
    let ours = number(&format!(
        "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = '{}'",
        format.table
    ))?;
    // SQLite takes what is left of a file's first page for an empty database.
    let cut_off = number("PRAGMA page_count")? == 0
        && fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0);
    match version {
        0 if cut_off => {
            let message = "it ends within its first page".to_owned();
            Err(DatabaseError::Damaged { path: path.to_owned(), message })
        }
        0 if tables == 0 => Ok(0),
        1.. if ours == 0 => {
            Err(DatabaseError::Foreign { path: path.to_owned(), table: format.table })
        }
        1.. if version > format.version => Err(DatabaseError::Newer {
            path: path.to_owned(),
            found: version,
            known: format.version,
        }),
        1.. => Ok(version),
        _ => Err(DatabaseError::Foreign { path: path.to_owned(), table: format.table }),
    }
}

/// Makes the file if it is missing, readable by its owner alone.
fn make_if_missing(path: &Path) -> io::Result<()> {
    match File::options().write(true).create_new(true).mode(PRIVATE_FILE).open(path) {
        Ok(file) => file.set_permissions(Permissions::from_mode(PRIVATE_FILE)),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Err(_) if path.is_file() => Ok(()),
        Err(_) => Err(io::Error::other("it is something else than a file")),
    }
}

/// Lets nobody but the owner read the database. SQLite gives new journals the permissions of the
/// database.
fn make_private(path: &Path) -> io::Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match fs::set_permissions(&name, Permissions::from_mode(PRIVATE_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Format = Format { version: 3, table: "rows", synchronous: "NORMAL" };

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn it_is_private_and_stays_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sqlite");
        let (connection, version) = open(&path, &FORMAT).unwrap();
        assert_eq!(version, 0);
        connection.execute_batch("CREATE TABLE rows (a); PRAGMA user_version = 2").unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(&folder.path().join("a.sqlite-wal")), 0o600);
        drop(connection);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(open(&path, &FORMAT).unwrap().1, 2);
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn its_owner_may_write_to_it_again() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("not run: only root can be another user");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sqlite");
        let (connection, _) = open(&path, &FORMAT).unwrap();
        connection.execute_batch("CREATE TABLE rows (a); PRAGMA user_version = 3").unwrap();
        drop(connection);
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        for owned in [folder.path(), &path] {
            std::os::unix::fs::chown(owned, Some(65_534), Some(65_534)).unwrap();
        }
        // Of the thread alone; root may write whatever the mode is.
        let thread = std::thread::spawn(move || {
            nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
            let (connection, _) = open(&path, &FORMAT).unwrap();
            connection.execute_batch("INSERT INTO rows VALUES (1)").unwrap();
        });
        thread.join().unwrap();
    }

    #[test]
    fn whatever_is_wrong_is_a_sentence_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        fs::write(&text, "hello ".repeat(1_000)).unwrap();
        let foreign = folder.path().join("foreign");
        Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE songs (a)").unwrap();
        let newer = folder.path().join("newer");
        let sql = "CREATE TABLE rows (a); PRAGMA user_version = 4";
        Connection::open(&newer).unwrap().execute_batch(sql).unwrap();
        let torn = folder.path().join("torn");
        let (connection, _) = open(&torn, &FORMAT).unwrap();
        let sql = "CREATE TABLE rows (a); PRAGMA user_version = 3;
                   INSERT INTO rows VALUES (randomblob(100000))";
        connection.execute_batch(sql).unwrap();
        drop(connection);
        let whole = fs::read(&torn).unwrap();
        fs::write(&torn, &whole[..whole.len() / 2]).unwrap();
        let cut = folder.path().join("cut");
        fs::write(&cut, &whole[..2_048]).unwrap();
        let directory = folder.path().join("directory");
        fs::create_dir(&directory).unwrap();
        for (path, wanted) in [
            (&text, "is not a database"),
            (&foreign, "another program's database"),
            (&newer, "newer version of uncia (its tables are version 4, this one knows 3)"),
            (&torn, "is damaged"),
            (&cut, "is damaged"),
            (&directory, "make it a writable file"),
        ] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
            let before = fs::read(path).ok();
            let message = open(path, &FORMAT).unwrap_err().to_string();
            assert!(message.contains(wanted), "{message}");
            assert!(message.contains(&path.display().to_string()), "{message}");
            assert_eq!(fs::read(path).ok(), before, "{}", path.display());
            assert_eq!(mode(path), 0o755, "{}", path.display());
        }
    }
}
