//! Files of the journal that are damaged, foreign or another version's: kept, told, and done without.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use super::earlier::make_earlier;
use super::journal::{copy, files, kill, killed, killed_with_two_files};
use super::kills::SmallDisk;
use super::*;
use crate::meterlog::{journal, tables};

pub(super) const FOREIGN: &str =
    "something else that is long enough to hold a head of a journal's file";

/// Puts something where a file of the journal would be.
type Make<'a> = &'a dyn Fn(&Path);

/// The files that are set aside.
pub(super) fn set_aside(state: &Path) -> Vec<PathBuf> {
    let is_aside = |path: &PathBuf| path.to_string_lossy().contains(".set-aside");
    files(state).into_iter().filter(is_aside).collect()
}

/// The files of the journal as it goes on.
pub(super) fn segments(state: &Path) -> Vec<PathBuf> {
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|it| it == "records");
    files(state).into_iter().filter(is_segment).collect()
}

fn at(state: &Path, name: &str) -> PathBuf {
    state.join("journal").join(name)
}

/// The only warning.
fn warning(log: &MeterLog) -> &str {
    let [warning] = log.warnings() else { panic!("{:?}", log.warnings()) };
    warning
}

/// The log takes a row, and has it after the next kill.
fn goes_on(log: &MeterLog, state: &Path, name: &str) {
    record(log, invocation(name)).unwrap();
    let again = kill(state);
    let log = open(again.path());
    assert_eq!(names(again.path()).iter().filter(|it| *it == name).count(), 1);
    let [message] = log.warnings() else { panic!("{:?}", log.warnings()) };
    assert!(message.contains("set aside at an earlier start"), "{message}");
}

#[test]
fn what_is_around_damage_is_read_and_the_file_is_kept() {
    let state = killed(10);
    let [file] = &segments(state.path())[..] else { panic!("one file is enough") };
    let whole = fs::read(file).unwrap();
    // A length that is damaged in the last record may look like a torn end.
    let last = whole.len() - 300;
    for byte in (0..last).step_by(97).chain([whole.len() - 1]) {
        let state = copy(state.path());
        let file = at(state.path(), "00000000000000000001.records");
        let mut damaged = whole.clone();
        damaged[byte] ^= 1;
        fs::write(&file, &damaged).unwrap();
        let log = open(state.path());
        let message = log.warnings().first().unwrap();
        let known = message.contains("is damaged at byte")
            || message.contains("is not of this log's journal")
            || message.contains("written by another version");
        assert!(known && message.contains("00000000000000000001.records"), "{byte}: {message}");
        let aside = at(state.path(), "00000000000000000001.records.set-aside");
        assert!(message.contains(&format!("kept as {}", aside.display())), "{message}");
        assert_eq!(fs::read(aside).unwrap(), damaged);
        let names = names(state.path());
        let all = (0..10).map(|row| format!("x{row}")).filter(|row| names.contains(row));
        assert!(all.eq(names.iter().cloned()), "{byte}: {names:?}");
        let has_head = byte >= 44;
        assert!(names.len() >= if has_head { 9 } else { 0 }, "{byte}: {names:?}");
        goes_on(&log, state.path(), "next");
    }
}

#[test]
fn what_is_no_file_of_this_journal_is_set_aside_and_told() {
    let other = killed(2);
    let theirs = fs::read(&segments(other.path())[0]).unwrap();
    let mut later = theirs.clone();
    later[14] = 9;
    let cases: [(&str, Make<'_>); 8] = [
        ("is not of this log's journal", &|path| fs::write(path, &theirs).unwrap()),
        ("is not of this log's journal", &|path| fs::write(path, FOREIGN).unwrap()),
        ("is not of this log's journal", &|path| fs::write(path, "short").unwrap()),
        ("(its format is 9, this one knows 1)", &|path| fs::write(path, &later).unwrap()),
        ("is not a file", &|path| fs::create_dir_all(path.join("deep")).unwrap()),
        ("cannot be read (", &|path| symlink("nowhere", path).unwrap()),
        ("is not a file", &|path| symlink("/", path).unwrap()),
        ("is not of this log's journal", &|path| {
            fs::write(path, FOREIGN).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o400)).unwrap();
        }),
    ];
    for (what, make) in cases {
        // In place of a file, before the first, and where the next one would be.
        for (name, rows) in [
            ("00000000000000000001.records", 0),
            ("00000000000000000000.records", 3),
            ("00000000000000000005.records", 3),
            ("18446744073709551615.records", 3),
            ("notes.records", 3),
        ] {
            let state = killed(3);
            let path = at(state.path(), name);
            if rows == 0 {
                fs::remove_file(&path).unwrap();
            }
            make(&path);
            let kind = path.symlink_metadata().unwrap().file_type();
            let content = fs::read(&path).ok();
            let log = open(state.path());
            assert!(log.warnings()[0].contains(what), "{name}: {:?}", log.warnings());
            assert!(log.warnings()[0].contains(&format!("{name}.set-aside")));
            let [aside] = &set_aside(state.path())[..] else { panic!("one was set aside") };
            assert_eq!(aside.symlink_metadata().unwrap().file_type(), kind);
            assert_eq!(fs::read(aside).ok(), content);
            assert_eq!(names(state.path()).len(), rows);
            goes_on(&log, state.path(), "next");
        }
    }
}

#[test]
fn files_before_and_after_a_damaged_one_are_read_once() {
    let state = killed_with_two_files();
    let all = segments(state.path());
    let first = fs::read(&all[0]).unwrap();
    let emptied = "is empty, and files after it are not";
    for (damage, wanted) in [
        (&first[..first.len() / 2], "is damaged at byte"),
        (b"", emptied),
        (&[0; 5_000], emptied),
        (FOREIGN.as_bytes(), "not of this log's journal"),
    ] {
        let state = copy(state.path());
        let path = at(state.path(), all[0].file_name().unwrap().to_str().unwrap());
        fs::write(&path, damage).unwrap();
        let log = open(state.path());
        assert!(log.warnings()[0].contains(wanted), "{:?}", log.warnings());
        // Thirty are in the database; of fifty more some are in the second file.
        let rows = names(state.path()).len();
        assert!(rows > 30 && rows < 80, "{rows}");
        assert_eq!(fs::read(&set_aside(state.path())[0]).unwrap(), damage);
        goes_on(&log, state.path(), "next");
    }
    // The same records twice are read once; others under the same numbers are not these.
    for (damaged, wanted) in [(false, 80), (true, 80)] {
        let state = copy(state.path());
        let mut again = fs::read(&all[1]).unwrap();
        if damaged {
            again = other_records(state.path(), &all[1]);
        }
        fs::write(at(state.path(), "copy.records"), again).unwrap();
        let log = open(state.path());
        assert_eq!(names(state.path()).len(), wanted);
        assert_eq!(set_aside(state.path()).len(), usize::from(damaged));
        if damaged {
            let message = warning(&log);
            assert!(
                message.contains("copy.records has other records than an earlier file"),
                "{message}"
            );
            goes_on(&log, state.path(), "next");
        } else {
            assert_eq!(log.warnings(), &[] as &[String]);
        }
    }
}

/// A file like `path` of the same log, in which a worker has written other rows from there on.
pub(super) fn other_records(state: &Path, path: &Path) -> Vec<u8> {
    let fork = copy(state);
    for file in segments(fork.path()) {
        fs::remove_file(file).unwrap();
    }
    let database = rusqlite::Connection::open(fork.path().join("meter.sqlite")).unwrap();
    let name: i64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let sql = "UPDATE journal SET applied = ?1, written = 0, file = NULL, spare = NULL";
    database.execute(sql, [name + 5]).unwrap();
    drop(database);
    let log = open(fork.path());
    let _held = hold(fork.path());
    record(&log, invocation("other")).unwrap();
    fs::read(&segments(fork.path())[0]).unwrap()
}

#[test]
fn a_kill_at_any_moment_of_setting_aside_changes_nothing() {
    let state = killed_with_two_files();
    let all = segments(state.path());
    let mut damaged = fs::read(&all[1]).unwrap();
    let length = damaged.len();
    damaged[length - length / 4] ^= 1;
    fs::write(&all[1], &damaged).unwrap();
    fs::write(at(state.path(), "notes.records"), FOREIGN).unwrap();
    let whole = copy(state.path());
    let log = open(whole.path());
    let expected = names(whole.path());
    assert!(expected.len() > 30 && expected.len() < 80, "{}", expected.len());
    drop(log);
    for moment in 0..4 {
        let state = copy(state.path());
        let path = state.path().join("meter.sqlite");
        let mut connection = rusqlite::Connection::open(&path).unwrap();
        let (id, applied) = tables::applied(&connection).unwrap();
        let noted = tables::noted(&connection).unwrap();
        let folder = state.path().join("journal");
        let mut left = journal::read(&folder, &id, applied, &noted).unwrap();
        assert!(set_aside(state.path()).is_empty());
        if moment > 0 {
            tables::insert_left(&mut connection, &left).unwrap();
        }
        match moment {
            // One of two.
            2 => {
                let [_, second, ..] = &segments(state.path())[..] else {
                    panic!("there are three")
                };
                fs::rename(second, second.with_extension("records.set-aside")).unwrap();
            }
            3 => left.set_aside(),
            _ => {}
        }
        drop(connection);
        let log = open(state.path());
        assert_eq!(names(state.path()), expected, "{moment}");
        let aside = set_aside(state.path());
        // Once the rows are in the database, the undamaged file may be one that somebody has moved there.
        let count = if moment == 0 { 2 } else { 3 };
        assert_eq!(aside.len(), count, "{moment}: {aside:?}");
        assert!(aside.iter().any(|path| fs::read(path).unwrap() == damaged));
        assert!(!log.warnings().is_empty());
        goes_on(&log, state.path(), "next");
    }
}

#[test]
fn many_restarts_with_foreign_files_leave_it_as_it_is() {
    let mut state = killed(3);
    let name = "00000000000000000004.records";
    for round in 0..60 {
        for path in [at(state.path(), name), at(state.path(), "notes.records")] {
            if round % 2 == 0 {
                fs::write(&path, format!("{FOREIGN} {round}")).unwrap();
            } else {
                fs::create_dir(&path).unwrap();
            }
        }
        // More than are told of one by one.
        for number in 0..20 {
            fs::write(at(state.path(), &format!("more-{number}.records")), FOREIGN).unwrap();
        }
        let log = open(state.path());
        assert!(log.warnings().len() <= 8, "{:?}", log.warnings());
        let text: usize = log.warnings().iter().map(String::len).sum();
        assert!(text < 8_000, "{text}");
        record(&log, invocation(&format!("round-{round}"))).unwrap();
        let again = kill(state.path());
        drop(log);
        state = again;
    }
    let log = open(state.path());
    let names = names(state.path());
    assert_eq!(names.len(), 63);
    assert!((0..60).all(|round| names[3 + round] == format!("round-{round}")));
    let aside = set_aside(state.path());
    let text = |number: usize| format!("{FOREIGN} {}", 2 * number);
    let texts = aside.iter().filter(|it| it.is_file() && it.to_string_lossy().contains(name));
    let mut texts: Vec<_> = texts.map(|it| fs::read_to_string(it).unwrap()).collect();
    texts.sort();
    let mut expected: Vec<_> = (0..30).map(text).collect();
    expected.sort();
    assert_eq!(texts, expected);
    assert!(warning(&log).contains("more files were set aside at an earlier start"));
    // The sequence has not run away.
    let newest = segments(state.path()).pop().unwrap();
    let newest: u64 = newest.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    assert!(newest < 200, "{newest}");
    for path in aside {
        fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).unwrap();
    }
    log.close();
    drop(log);
    assert_eq!(open(state.path()).warnings(), &[] as &[String]);
}

#[test]
fn a_full_disk_refuses_and_keeps_everything() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: a small file system takes the right to mount");
        return;
    };
    let state = disk.0.path();
    let killed = killed(3);
    for name in ["meter.sqlite", "meter.sqlite-wal"] {
        fs::copy(killed.path().join(name), state.join(name)).unwrap();
    }
    fs::create_dir(state.join("journal")).unwrap();
    let [file] = &files(killed.path())[..] else { panic!("one file is enough") };
    fs::copy(file, at(state, file.file_name().unwrap().to_str().unwrap())).unwrap();
    fs::write(at(state, "notes.records"), FOREIGN).unwrap();
    let filler = state.join("filler");
    let mut full = fs::File::create(&filler).unwrap();
    while full.write_all(&[0; 4096]).is_ok() {}
    drop(full);
    for _ in 0..3 {
        let refused = MeterLog::open(state, Retention::default(), Keeping::Durable).map(drop);
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("disk"), "{message}");
    }
    fs::remove_file(&filler).unwrap();
    let log = open(state);
    assert_eq!(names(state), ["x0", "x1", "x2"]);
    let [aside] = &set_aside(state)[..] else { panic!("one was set aside") };
    assert_eq!(fs::read_to_string(aside).unwrap(), FOREIGN);
    assert!(warning(&log).contains("set aside") || warning(&log).contains("kept as"));
}

#[test]
fn what_cannot_be_renamed_stays_where_it_is() {
    let state = killed(3);
    // Where the next file would be.
    let path = at(state.path(), "00000000000000000005.records");
    fs::create_dir(&path).unwrap();
    let kind = Some("tmpfs");
    let flags = nix::mount::MsFlags::empty();
    if nix::mount::mount(kind, &path, kind, flags, None::<&str>).is_err() {
        eprintln!("skipped: what cannot be renamed takes the right to mount");
        return;
    }
    let log = open(state.path());
    let message = warning(&log).to_owned();
    record(&log, invocation("next")).unwrap();
    log.close();
    drop(log);
    let again = open(state.path());
    let rows = names(state.path());
    let second = warning(&again).to_owned();
    nix::mount::umount2(&path, nix::mount::MntFlags::MNT_DETACH).unwrap();
    assert!(message.contains("though it cannot be renamed"), "{message}");
    assert!(second.contains("though it cannot be renamed"), "{second}");
    assert_eq!(rows, ["x0", "x1", "x2", "next"]);
}

#[test]
fn a_database_of_a_newer_version_is_refused_and_its_journal_stays() {
    let state = killed(2);
    let database = rusqlite::Connection::open(state.path().join("meter.sqlite")).unwrap();
    let version: i64 = database.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    database.pragma_update(None, "user_version", version + 1).unwrap();
    drop(database);
    fs::write(at(state.path(), "notes.records"), FOREIGN).unwrap();
    let before: Vec<_> =
        files(state.path()).into_iter().map(|it| (fs::read(&it).unwrap(), it)).collect();
    let refused = MeterLog::open(state.path(), Retention::default(), Keeping::Durable).map(drop);
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("newer version of uncia"), "{message}");
    let after: Vec<_> =
        files(state.path()).into_iter().map(|it| (fs::read(&it).unwrap(), it)).collect();
    assert_eq!(before, after);
}

#[test]
fn a_journal_beside_a_database_of_an_earlier_version_is_set_aside() {
    let (state, old) = (killed(2), tempfile::tempdir().unwrap());
    let log = open(old.path());
    log.close();
    let database = rusqlite::Connection::open(old.path().join("meter.sqlite")).unwrap();
    make_earlier(&database, 4);
    drop(database);
    let restored = fs::read(old.path().join("meter.sqlite")).unwrap();
    fs::remove_file(state.path().join("meter.sqlite-wal")).unwrap();
    fs::write(state.path().join("meter.sqlite"), &restored).unwrap();
    let log = open(state.path());
    assert!(warning(&log).contains("not of this log's journal"), "{:?}", log.warnings());
    assert_eq!(set_aside(state.path()).len(), 1);
    goes_on(&log, state.path(), "next");
}

#[test]
fn a_journal_of_version_5_is_read_as_far_as_it_can_be() {
    for is_damaged in [false, true] {
        let state = killed(3);
        let connection = rusqlite::Connection::open(state.path().join("meter.sqlite")).unwrap();
        make_earlier(&connection, 5);
        drop(connection);
        let file = &segments(state.path())[0];
        let whole = fs::read(file).unwrap();
        if is_damaged {
            fs::write(file, [&whole[..], b"appended by hand"].concat()).unwrap();
        }
        let log = open(state.path());
        assert_eq!(names(state.path()), ["x0", "x1", "x2"]);
        assert_eq!(log.warnings().len(), usize::from(is_damaged), "{:?}", log.warnings());
        assert_eq!(set_aside(state.path()).len(), usize::from(is_damaged));
    }
}

#[test]
fn a_file_in_place_of_the_folder_is_set_aside() {
    let state = killed(3);
    fs::remove_dir_all(state.path().join("journal")).unwrap();
    fs::write(state.path().join("journal"), FOREIGN).unwrap();
    let log = open(state.path());
    assert!(log.warnings()[0].contains("is not a folder"), "{:?}", log.warnings());
    assert_eq!(fs::read_to_string(state.path().join("journal.set-aside")).unwrap(), FOREIGN);
    record(&log, invocation("next")).unwrap();
    log.close();
    assert_eq!(names(state.path()), ["next"]);
}
