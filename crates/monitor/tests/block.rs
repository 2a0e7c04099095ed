//! The monitor of disks, against direct writes of a known size. Needs root, groups, and a disk below the
//! folder of temporary files.

mod common;

use common::{Group, child, sum, watching};

const WRITES: f64 = 50.0;
const BLOCK_BYTES: f64 = 65_536.0;

#[test]
fn direct_writes_of_a_group_are_counted_to_the_byte_and_timed() {
    let Some(group) = Group::make("block") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    // Memory that is aligned, as direct writes want it. Without a disk there, it says so.
    let program = format!(
        "import mmap, os, sys\n\
         try: f = os.open({:?}, os.O_WRONLY | os.O_CREAT | getattr(os, 'O_DIRECT', 0))\n\
         except OSError: sys.exit(0)\n\
         block = mmap.mmap(-1, {BLOCK_BYTES})\n\
         for n in range({WRITES}): os.pwrite(f, block, n * {BLOCK_BYTES})\n\
         print('written')\n",
        file.display().to_string()
    );
    let (rows, events, _) = watching(&["block"], &group.pattern(), || child(&group, &program));
    let length = std::fs::metadata(&file).map(|it| it.len()).unwrap_or_default();
    if length == 0 {
        return; // temporary files are on no disk
    }
    let of = |suffix: &str| {
        let mine = rows.iter().filter(|it| it.cgroup.as_deref() == Some(&group.path));
        mine.filter(|it| it.counter.ends_with(suffix)).map(|it| it.value).sum::<f64>()
    };
    if of(".write_bytes") == 0.0 {
        return; // there is neither blkio nor io
    }
    assert_eq!(of(".write_bytes"), WRITES * BLOCK_BYTES);
    assert!(of(".write_count") >= WRITES);
    assert!(sum(&rows, "monitor.lost_count", None) == 0.0);
    if events.iter().any(|event| event.contains("latencies of requests are not supported")) {
        return;
    }
    let is_bin = |it: &&common::Row| it.counter.contains(".write_within_");
    let bins = rows.iter().filter(|it| it.cgroup.as_deref() == Some(&group.path)).filter(is_bin);
    assert!(bins.map(|it| it.value).sum::<f64>() >= WRITES);
}
