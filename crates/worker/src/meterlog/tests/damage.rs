//! Whatever becomes of the journal's files: what is whole is read, once, and the log goes on.

use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::aside::{FOREIGN, segments};
use super::journal::copy;
use super::*;

#[derive(Debug, Clone)]
enum Damage {
    /// A byte is another.
    Flip(usize),
    Cut(usize),
    Append,
    Foreign,
    Folder,
    Link,
    Remove,
    /// The same under another name, too.
    Copy,
    /// One more file.
    More,
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        3 => any::<usize>().prop_map(Damage::Flip),
        2 => any::<usize>().prop_map(Damage::Cut),
        1 => Just(Damage::Append),
        1 => Just(Damage::Foreign),
        1 => Just(Damage::Folder),
        1 => Just(Damage::Link),
        1 => Just(Damage::Remove),
        1 => Just(Damage::Copy),
        1 => Just(Damage::More),
    ]
}

/// Damages a file; returns the first of its bytes that is not as it was.
fn harm(path: &Path, damage: &Damage, round: usize) -> usize {
    let whole = fs::read(path).unwrap();
    let instead = |make: &dyn Fn()| {
        fs::remove_file(path).unwrap();
        make();
        0
    };
    match damage {
        Damage::Flip(byte) if !whole.is_empty() => {
            let byte = byte % whole.len();
            let mut damaged = whole;
            damaged[byte] ^= 0x55;
            fs::write(path, damaged).unwrap();
            byte
        }
        Damage::Cut(length) if !whole.is_empty() => {
            let length = length % whole.len();
            fs::write(path, &whole[..length]).unwrap();
            length
        }
        Damage::Append => {
            fs::write(path, [&whole[..], b"appended by hand\n"].concat()).unwrap();
            usize::MAX
        }
        Damage::Copy => {
            fs::write(path.with_file_name(format!("copy-{round}.records")), whole).unwrap();
            usize::MAX
        }
        Damage::More => {
            fs::write(path.with_file_name(format!("more-{round}.records")), FOREIGN).unwrap();
            usize::MAX
        }
        Damage::Foreign => instead(&|| fs::write(path, FOREIGN).unwrap()),
        Damage::Folder => instead(&|| fs::create_dir(path).unwrap()),
        Damage::Link => instead(&|| symlink("nowhere", path).unwrap()),
        Damage::Flip(_) | Damage::Cut(_) | Damage::Remove => instead(&|| {}),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever becomes of the files, a row is lost only with the bytes that hold it, none is there twice, and
    /// the log goes on.
    #[test]
    fn only_what_is_damaged_is_lost(
        rounds in prop::collection::vec((0..12_usize, 0..8_usize, damage(), any::<usize>()), 1..8),
    ) {
        let mut folder = tempfile::tempdir().unwrap();
        for (round, (applied, written, damage, which)) in rounds.into_iter().enumerate() {
            let log = open_with_short_files(folder.path());
            let there = names(folder.path());
            let mut name = 0..;
            let mut write = |rows: usize| -> Vec<String> {
                let rows: Vec<_> =
                    name.by_ref().take(rows).map(|number| format!("r{round}-{number}-")).collect();
                for row in &rows {
                    record(&log, invocation(row)).unwrap();
                }
                rows
            };
            let in_database = [there, write(applied)].concat();
            barrier(&log);
            let held = hold(folder.path());
            let rows = write(written);
            let killed = copy(folder.path());
            drop(held);
            drop(log);
            let all = segments(killed.path());
            let path = &all[which % all.len()];
            let before = fs::read(path).unwrap();
            let first = harm(path, &damage, round);
            let log = open_with_short_files(killed.path());
            prop_assert!(log.warnings().len() <= 8);
            let now = names(killed.path());
            let mut unique = now.clone();
            unique.sort();
            unique.dedup();
            prop_assert_eq!(unique.len(), now.len(), "a row is there twice");
            prop_assert!(now.starts_with(&in_database), "{:?} {:?}", now, in_database);
            for (index, row) in rows.iter().enumerate() {
                // It ends before the next row begins.
                let position = |row: &String| {
                    before.windows(row.len()).position(|window| window == row.as_bytes())
                };
                let next = rows.get(index + 1).and_then(position).unwrap_or(before.len());
                let may_be_lost = position(row).is_some() && next > first;
                prop_assert!(may_be_lost || now.contains(row), "{} is lost by {:?}", row, damage);
                let new = &now[in_database.len()..];
                prop_assert!(new.iter().all(|it| rows.contains(it)));
            }
            drop(log);
            folder = killed;
        }
    }
}
