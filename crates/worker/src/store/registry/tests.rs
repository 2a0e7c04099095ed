//! The registry through restarts, losses and damage.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use rusqlite::Connection;

use super::*;

fn zip(text: &str) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    archive.start_file("deep/bootstrap", zip::write::SimpleFileOptions::default()).unwrap();
    archive.write_all(text.as_bytes()).unwrap();
    archive.finish().unwrap().into_inner()
}

/// Stores a function whose package holds its name.
fn put(registry: &Registry, name: &str) -> Arc<Function> {
    let code = registry.packages().store(&zip(name), |_| Ok(())).unwrap();
    let configuration = Configuration { memory_mb: 512, ..Configuration::unreadable() };
    let function =
        registry.new_function(name, configuration, BTreeMap::new(), Overrides::default(), code);
    registry.change().put(function, |_| {}).unwrap()
}

fn open(state: &Path) -> Registry {
    Registry::open(state, "arn:", 1_769 << 20).unwrap()
}

#[test]
fn a_lost_package_breaks_its_function_alone_until_its_code_is_updated() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(folder.path());
    let (lost, damaged) = (put(&registry, "lost"), put(&registry, "damaged"));
    put(&registry, "fine");
    fs::remove_file(lost.code.zip()).unwrap();
    fs::write(damaged.code.zip(), "PK").unwrap();
    fs::remove_dir_all(damaged.code.folder()).unwrap();
    let zips = [lost.code.zip(), damaged.code.zip()];
    drop((registry, lost, damaged));
    for _ in 0..2 {
        let registry = open(folder.path());
        for (name, zip) in [("lost", &zips[0]), ("damaged", &zips[1])] {
            let function = registry.get(name).unwrap();
            let reason = function.broken.clone().unwrap();
            assert!(reason.contains(&zip.display().to_string()), "{reason}");
            assert!(reason.contains("update the function's code"), "{reason}");
            assert_eq!((function.configuration.memory_mb, function.unreadable), (512, false));
        }
        assert_eq!(registry.get("fine").unwrap().broken, None);
    }
    assert_eq!(fs::read(&zips[1]).unwrap(), b"PK", "nothing is removed");
    let registry = open(folder.path());
    for name in ["lost", "damaged"] {
        let code = registry.packages().store(&zip(name), |_| Ok(())).unwrap();
        let mut function = (*registry.get(name).unwrap()).clone();
        (function.code, function.broken) = (code, None);
        registry.change().put(function, |_| {}).unwrap();
    }
    drop(registry);
    let registry = open(folder.path());
    for function in registry.all() {
        assert_eq!(function.broken, None);
        let file = function.code.folder().join("deep/bootstrap");
        assert_eq!(fs::read_to_string(file).unwrap(), *function.name);
    }
}

#[test]
fn a_damaged_row_breaks_its_function_alone() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(folder.path());
    for name in ["fine", "json", "text", "later"] {
        put(&registry, name);
    }
    drop(registry);
    let database = Connection::open(folder.path().join("registry.sqlite")).unwrap();
    database
        .execute_batch(
            "UPDATE functions SET configuration = '{' WHERE name = 'json';
             UPDATE functions SET configuration = CAST(x'ff00' AS TEXT) WHERE name = 'text';
             UPDATE functions SET configuration =
                 json_set(configuration, '$.runtime', 'cobol85') WHERE name = 'later';",
        )
        .unwrap();
    drop(database);
    let registry = open(folder.path());
    for name in ["json", "text", "later"] {
        let function = registry.get(name).unwrap();
        assert!(function.unreadable);
        let reason = function.broken.clone().unwrap();
        assert!(reason.contains("delete the function and create it again"), "{reason}");
        registry.change().remove(&function).unwrap();
    }
    assert_eq!(registry.get("fine").unwrap().broken, None);
    drop(registry);
    assert_eq!(open(folder.path()).all().len(), 1);
}

#[test]
fn packages_outlive_a_registry_that_was_emptied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("registry.sqlite");
    let zip = put(&open(folder.path()), "f").code.zip();
    let saved = fs::read(&path).unwrap();
    for emptied in [true, false] {
        if emptied {
            fs::write(&path, "").unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        let error = Registry::open(folder.path(), "arn:", 1_769 << 20).err().unwrap();
        assert!(matches!(error, StoreError::Emptied { .. }), "{error}");
        assert!(zip.is_file());
    }
    fs::write(&path, saved).unwrap();
    assert_eq!(open(folder.path()).all().len(), 1);
}

#[test]
fn a_torn_registry_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(folder.path());
    for number in 0..40 {
        put(&registry, &format!("f{number}"));
    }
    drop(registry);
    let path = folder.path().join("registry.sqlite");
    let whole = fs::read(&path).unwrap();
    assert!(whole.len() > 20_000);
    for cut in [100, 4_096, whole.len() / 2, whole.len() - 4_096] {
        fs::write(&path, &whole[..cut]).unwrap();
        let error = Registry::open(folder.path(), "arn:", 1_769 << 20).err().unwrap().to_string();
        assert!(error.contains("registry.sqlite is"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), whole[..cut], "it is left as it was");
    }
    let mut scratched = whole.clone();
    scratched[8_192..12_288].fill(0xa5);
    fs::write(&path, &scratched).unwrap();
    let error = Registry::open(folder.path(), "arn:", 1_769 << 20).err().unwrap().to_string();
    assert!(error.contains("is damaged"), "{error}");
    fs::write(&path, &whole).unwrap();
    assert_eq!(open(folder.path()).all().len(), 40);
}

#[test]
fn the_umask_does_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    // Of the whole process; the other tests do not look at it.
    let before = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    crate::store::StateLock::take(&state).unwrap();
    let function = put(&open(&state), "f");
    nix::sys::stat::umask(before);
    let code = function.code.folder();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&state), mode(&state.join("code"))), (0o711, 0o711));
    assert_eq!((mode(&state.join("packages")), mode(&state.join("staging"))), (0o700, 0o700));
    assert_eq!((mode(&state.join("lock")), mode(&function.code.zip())), (0o600, 0o600));
    assert_eq!(mode(&state.join("registry.sqlite")), 0o600);
    assert_eq!((mode(&code), mode(&code.join("deep"))), (0o755, 0o755));
    assert_eq!(mode(&code.join("deep/bootstrap")), 0o644);
    // What an earlier version unpacked under that umask is unpacked again.
    fs::set_permissions(code.join("deep"), Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(&code, Permissions::from_mode(0o700)).unwrap();
    drop(function);
    let function = open(&state).get("f").unwrap();
    assert_eq!(
        (function.broken.clone(), mode(&code), mode(&code.join("deep"))),
        (None, 0o755, 0o755)
    );
}
