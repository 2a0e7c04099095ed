//! Files that were set aside, and that somebody moves back: no row in them is lost for it.

use std::fs;
use std::os::unix::fs::symlink;

use super::aside::{segments, set_aside};
use super::journal::{files, killed, killed_with_two_files};
use super::*;

/// Stops the platform orderly after some more rows.
fn stop(log: MeterLog, rows: usize) {
    for row in 0..rows {
        record(&log, invocation(&format!("later-{row}"))).unwrap();
    }
    log.close();
}

#[test]
fn what_is_moved_back_is_set_aside_again() {
    // Another version's, which this version reads some day, with few and with many rows after it.
    for (state, later) in [
        (killed(10), 0),
        (killed(10), 3),
        (killed(10), 60),
        (killed_with_two_files(), 3),
        (killed_with_two_files(), 200),
    ] {
        let all = segments(state.path());
        let whole: Vec<_> = all.iter().map(|path| fs::read(path).unwrap()).collect();
        for (path, whole) in all.iter().zip(&whole) {
            let mut other = whole.clone();
            if other.is_empty() {
                continue;
            }
            other[14] = 9;
            fs::write(path, other).unwrap();
        }
        stop(open(state.path()), later);
        let rows = names(state.path());
        for path in set_aside(state.path()) {
            fs::remove_file(path).unwrap();
        }
        assert!(files(state.path()).is_empty());
        for round in 0..2 {
            for (path, whole) in all.iter().zip(&whole) {
                fs::write(path, whole).unwrap();
            }
            let log = open(state.path());
            let message = log.warnings().join("\n");
            assert!(message.contains("it was moved there since"), "{message}");
            stop(log, 0);
            assert_eq!(names(state.path()), rows);
            let kept = whole.iter().filter(|whole| !whole.is_empty());
            let aside = set_aside(state.path());
            for whole in kept {
                let copies = aside.iter().filter(|path| fs::read(path).unwrap() == *whole);
                assert_eq!(copies.count(), round + 1);
            }
        }
    }
}

#[test]
fn a_conflict_that_is_moved_back_is_kept_even_if_the_start_was_killed() {
    let state = killed_with_two_files();
    let all = segments(state.path());
    let copied = all[0].with_file_name("copy.records");
    let other = super::aside::other_records(state.path(), &all[1]);
    fs::write(&copied, &other).unwrap();
    stop(open(state.path()), 2);
    let [aside] = &set_aside(state.path())[..] else { panic!("one was set aside") };
    fs::rename(aside, &copied).unwrap();
    let log = open(state.path());
    assert!(log.warnings()[0].contains("do not move it back"), "{:?}", log.warnings());
    let [aside] = &set_aside(state.path())[..] else { panic!("it was set aside again") };
    assert_eq!(fs::read(aside).unwrap(), other);
}

#[test]
fn no_sentence_advises_to_move_a_file_back() {
    let state = killed(3);
    let path = &segments(state.path())[0];
    let mut damaged = fs::read(path).unwrap();
    damaged[100] ^= 1;
    fs::write(path, damaged).unwrap();
    for message in [open(state.path()), open(state.path())].map(|log| log.warnings().join(" ")) {
        assert!(
            message.contains("do not move it back") && !message.contains("as it was before"),
            "{message}"
        );
        assert!(message.contains("not in the log"), "{message}");
    }
}

#[test]
fn a_file_that_cannot_be_read_now_refuses_the_start_and_stays() {
    let state = killed(3);
    let path = state.path().join("journal").join("00000000000000000009.records");
    // Reading it fails with EIO, as on a disk that is failing.
    symlink("/proc/self/mem", &path).unwrap();
    for _ in 0..2 {
        let refused = MeterLog::open(state.path(), Retention::default(), Keeping::Durable);
        let message = refused.map(drop).unwrap_err().to_string();
        assert!(message.contains("cannot be read"), "{message}");
        assert_eq!(segments(state.path()).len(), 2);
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(open(state.path()).warnings(), &[] as &[String]);
    assert_eq!(names(state.path()), ["x0", "x1", "x2"]);
}
