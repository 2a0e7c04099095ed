//! The journal: what is in it and not in the database, and files that are torn or gone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;
use crate::meterlog::{journal, tables};

pub(super) fn files(state: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(state.join("journal")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The files as they are now, in a folder of their own, as a kill would leave them. Nobody must write
/// to the database meanwhile.
pub(super) fn copy(state: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in ["meter.sqlite", "meter.sqlite-wal"] {
        fs::copy(state.join(name), copy.path().join(name)).unwrap();
    }
    fs::create_dir(copy.path().join("journal")).unwrap();
    for file in files(state) {
        let to = copy.path().join("journal").join(file.file_name().unwrap());
        let kind = file.symlink_metadata().unwrap().file_type();
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&file).unwrap(), to).unwrap();
        } else if kind.is_dir() {
            fs::create_dir(to).unwrap();
        } else {
            fs::copy(&file, to).unwrap();
        }
    }
    copy
}

/// What a kill at this moment would leave.
pub(super) fn kill(state: &Path) -> tempfile::TempDir {
    let _held = hold(state);
    copy(state)
}

/// What a kill leaves while so many rows are in the journal alone, each with all that a row can have.
pub(super) fn killed(rows: i64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let event = accept(&log, event("e"));
    barrier(&log);
    let held = hold(folder.path());
    log.instance(instance("i"));
    for number in 0..rows {
        let update = EventUpdate::Failed { id: event, attempt: number + 1, failures: 1 };
        let mut recorded = Recorded {
            spans: vec![span("a")],
            idle: Some(idle("i", 10 * number)),
            event: Some(update),
            ..invocation(&format!("x{number}"))
        };
        recorded.row.error = Some("äöü \" \\ \n \u{0} \u{1f600}".to_owned());
        record(&log, recorded).unwrap();
    }
    let copy = copy(folder.path());
    drop(held);
    copy
}

#[test]
fn what_is_in_the_journal_alone_is_in_the_log_after_a_kill() {
    let state = killed(1_000);
    // A start that is itself killed changes nothing.
    for state in [kill_at_start(state.path()).path(), state.path()] {
        let log = open(state);
        assert_eq!(names(state).len(), 1_000);
        let rows = reader(state).invocations(&Query::default()).unwrap().rows;
        assert!(rows.iter().enumerate().all(|(at, row)| row.invocation == format!("x{at}")));
        assert_eq!(rows[7].error.as_deref(), Some("äöü \" \\ \n \u{0} \u{1f600}"));
        assert_eq!(all(1_000, |query| reader(state).spans(query)).len(), 1_000);
        let instance = reader(state).instances(&Query::default()).unwrap().rows.remove(0);
        assert_eq!(instance.idle.unwrap().len(), 1_000);
        assert_eq!(instance.end_reason.as_deref(), Some("crash"));
        let left = log.left_events().unwrap();
        assert_eq!((left[0].attempt, left[0].failures), (1_000, 1));
        // It is empty now, and its numbers go on.
        let [file] = &files(state)[..] else { panic!("one file is enough") };
        assert_eq!(file.file_name().unwrap(), "00000000000000001002.records");
        record(&log, invocation("next")).unwrap();
        log.close();
        assert_eq!(names(state).len(), 1_001);
        assert!(files(state).is_empty(), "a clean end leaves nothing");
    }
}

/// A copy of a state folder whose journal is in the database, and still there.
fn kill_at_start(state: &Path) -> tempfile::TempDir {
    let again = copy(state);
    let mut connection = rusqlite::Connection::open(again.path().join("meter.sqlite")).unwrap();
    let (id, applied) = tables::applied(&connection).unwrap();
    let noted = tables::noted(&connection).unwrap();
    let left = journal::read(&again.path().join("journal"), &id, applied, &noted).unwrap();
    tables::insert_left(&mut connection, &left).unwrap();
    again
}

#[test]
fn a_torn_end_loses_the_record_that_was_being_written() {
    for cut in [1, 15, 200] {
        let state = killed(10);
        let [file] = &files(state.path())[..] else { panic!("one file is enough") };
        let whole = fs::read(file).unwrap();
        fs::write(file, &whole[..whole.len() - cut]).unwrap();
        let log = open(state.path());
        assert_eq!(names(state.path()).len(), 9, "{cut}");
        let [warning] = log.warnings() else { panic!("{:?}", log.warnings()) };
        assert!(warning.contains("of a record that was being written"), "{warning}");
        log.close();
        assert_eq!(open(state.path()).warnings(), &[] as &[String]);
    }
}

#[test]
fn zeros_at_the_end_are_no_damage() {
    let state = killed(3);
    let [file] = &files(state.path())[..] else { panic!("one file is enough") };
    let whole = fs::read(file).unwrap();
    fs::write(file, [&whole[..], &[0; 5_000]].concat()).unwrap();
    drop(open(state.path()));
    assert_eq!(names(state.path()).len(), 3);
}

#[test]
fn a_file_without_its_head_holds_nothing() {
    for length in [0, 5, 14, 40] {
        let state = killed(3);
        let [file] = &files(state.path())[..] else { panic!("one file is enough") };
        let whole = fs::read(file).unwrap();
        fs::write(file.with_file_name("00000000000000000005.records"), &whole[..length]).unwrap();
        drop(open(state.path()));
        assert_eq!(names(state.path()).len(), 3, "{length}");
    }
}

/// Writes rows that take so many times 100 KB.
fn record_large(log: &MeterLog, rows: usize) {
    for _ in 0..rows {
        let mut large = invocation("x");
        large.row.error = Some("e".repeat(100_000));
        record(log, large).unwrap();
    }
}

/// What a kill leaves of 80 rows, of which the database has 30, while a second file is written to.
pub(super) fn killed_with_two_files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    record_large(&log, 30);
    until_next_file(&log, folder.path());
    let held = hold(folder.path());
    record_large(&log, 50);
    let copy = copy(folder.path());
    assert_eq!(files(copy.path()).len(), 2);
    drop(held);
    copy
}

/// Waits until all rows are in the database, and another file is ready.
fn until_next_file(log: &MeterLog, state: &Path) {
    barrier(log);
    assert_eq!(files(state).len(), 2);
}

#[test]
fn the_next_file_is_made_before_a_request_needs_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let held = hold(folder.path());
    // Whoever writes a row makes no file, however many bytes there are.
    record_large(&log, 100);
    assert_eq!(files(folder.path()).len(), 1);
    drop(held);
    until_next_file(&log, folder.path());
    let held = hold(folder.path());
    let before = files(folder.path());
    assert_eq!(before[1].metadata().unwrap().len(), 0);
    record_large(&log, 1);
    assert_eq!(files(folder.path()), before);
    assert!(before[1].metadata().unwrap().len() > 100_000);
    let killed = copy(folder.path());
    drop(held);
    let log = open(killed.path());
    assert_eq!(log.warnings(), &[] as &[String]);
    assert_eq!(names(killed.path()).len(), 101);
}

#[test]
fn one_file_follows_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let log = open_with_short_files(folder.path());
    let mut written = 0;
    let mut write = |rows: usize| {
        for _ in 0..rows {
            record(&log, invocation(&format!("x{written}"))).unwrap();
            written += 1;
        }
    };
    let mut seen = Vec::new();
    while seen.len() < 5 {
        write(1);
        barrier(&log);
        seen.extend(files(folder.path()));
        seen.sort();
        seen.dedup();
    }
    // What is in the database is in no file any more.
    assert!(files(folder.path()).len() <= 2 && !seen[0].exists());
    let held = hold(folder.path());
    write(20);
    let killed = copy(folder.path());
    drop(held);
    let log = open_with_short_files(killed.path());
    assert_eq!(log.warnings(), &[] as &[String]);
    let expected: Vec<_> = (0..written).map(|number| format!("x{number}")).collect();
    assert_eq!(names(killed.path()), expected);
}

#[test]
fn a_file_that_is_gone_is_missed() {
    let missing =
        "00000000000000000001.records is missing, or was emptied, since the platform wrote";
    // It is as much a loss of power as somebody's hand, so what is left is served.
    for emptied in [true, false] {
        let state = killed(10);
        let [file] = &files(state.path())[..] else { panic!("one file is enough") };
        if emptied {
            fs::write(file, "").unwrap();
        } else {
            fs::remove_file(file).unwrap();
        }
        let log = open(state.path());
        let [warning] = log.warnings() else { panic!("{:?}", log.warnings()) };
        assert!(warning.contains(missing), "{warning}");
        let lost = "the rows of records from 1 on are lost, if there were any";
        assert!(warning.ends_with(lost), "{warning}");
        assert!(names(state.path()).is_empty());
        record(&log, invocation("next")).unwrap();
        log.close();
        assert_eq!(names(state.path()), ["next"]);
        // It is told once, and what the platform itself removes is not missed.
        let log = open(state.path());
        assert_eq!(log.warnings(), &[] as &[String]);
        log.close();
    }

    let state = killed_with_two_files();
    let all = files(state.path());
    fs::remove_file(&all[1]).unwrap();
    let log = open(state.path());
    let [warning] = log.warnings() else { panic!("{:?}", log.warnings()) };
    let name = all[1].file_name().unwrap().to_str().unwrap();
    assert!(warning.contains(&format!("{name} is missing")), "{warning}");
}

#[test]
fn records_that_were_there_are_missed() {
    let state = killed(10);
    let database = rusqlite::Connection::open(state.path().join("meter.sqlite")).unwrap();
    database.execute_batch("UPDATE journal SET written = 15").unwrap();
    drop(database);
    let log = open(state.path());
    let [warning] = log.warnings() else { panic!("{:?}", log.warnings()) };
    let lost = "was cut off, since the platform wrote to it: the rows of records 12 to 15 are lost";
    assert!(warning.contains(lost), "{warning}");
    assert_eq!(names(state.path()).len(), 10);
    // Their numbers are not used again.
    let [file] = &files(state.path())[..] else { panic!("one file is enough") };
    assert_eq!(file.file_name().unwrap(), "00000000000000000016.records");
}

#[test]
fn a_database_that_is_locked_holds_nobody_up_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let held = hold(folder.path());
    for number in 0..5_000 {
        record(&log, invocation(&format!("x{number}"))).unwrap();
    }
    // SQLite itself waits for some seconds; then it is known, however many rows there are.
    let began = std::time::Instant::now();
    assert_eq!(block_on(log.barrier()), Ok(5_000));
    log.close();
    assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
    drop(held);
    drop(open(folder.path()));
    assert_eq!(names(folder.path()).len(), 5_000);
}

#[test]
fn a_database_that_is_older_than_its_journal_is_served() {
    let (state, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(open(state.path()));
    fs::copy(state.path().join("meter.sqlite"), old.path().join("meter.sqlite")).unwrap();
    let log = open(state.path());
    record(&log, invocation("lost")).unwrap();
    log.close();
    let log = open(state.path());
    record(&log, invocation("kept")).unwrap();
    let later = kill(state.path());
    fs::remove_file(later.path().join("meter.sqlite-wal")).unwrap();
    fs::copy(old.path().join("meter.sqlite"), later.path().join("meter.sqlite")).unwrap();
    let log = open(later.path());
    assert_eq!(names(later.path()), ["kept"]);
    record(&log, invocation("next")).unwrap();
    let again = kill(later.path());
    drop(open(again.path()));
    assert_eq!(names(again.path()), ["kept", "next"]);
}

#[test]
fn files_that_the_database_has_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    record_large(&log, 30);
    until_next_file(&log, folder.path());
    let held = hold(folder.path());
    record_large(&log, 170);
    assert_eq!(files(folder.path()).len(), 2);
    let folder_mode = folder.path().join("journal").metadata().unwrap().permissions().mode();
    assert_eq!(folder_mode & 0o777, 0o700);
    let modes = files(folder.path()).into_iter().map(|it| it.metadata().unwrap().permissions());
    assert!(modes.into_iter().all(|mode| mode.mode() & 0o777 == 0o600));
    let killed = copy(folder.path());
    drop(open(killed.path()));
    assert_eq!(names(killed.path()).len(), 200);
    drop(held);
    let first = files(folder.path()).remove(0);
    barrier(&log);
    assert!(!first.exists());
    log.close();
    assert!(files(folder.path()).is_empty());
    assert_eq!(names(folder.path()).len(), 200);
}
