//! Databases as earlier versions of the log made them.

use rusqlite::Connection;

/// What undoes each version's change of the tables, the newest first.
const CHANGES: [(i64, &str); 15] = [
    (18, "ALTER TABLE journal DROP COLUMN begun;"),
    (17, "ALTER TABLE triggers DROP COLUMN digest;"),
    (16, "ALTER TABLE triggers DROP COLUMN feed;"),
    (15, "ALTER TABLE instances DROP COLUMN start;"),
    (14, "ALTER TABLE instances DROP COLUMN hint_idle;"),
    (
        13,
        "ALTER TABLE invocations DROP COLUMN cpu_wait;
         ALTER TABLE invocations DROP COLUMN page_faults;
         ALTER TABLE invocations DROP COLUMN context_switches;
         ALTER TABLE invocations DROP COLUMN cycles;
         ALTER TABLE invocations DROP COLUMN instructions;
         ALTER TABLE invocations DROP COLUMN branch_misses;
         ALTER TABLE invocations DROP COLUMN llc_misses;
         ALTER TABLE instances DROP COLUMN cgroup;",
    ),
    (12, "DROP TABLE triggers;"),
    (11, "ALTER TABLE invocations DROP COLUMN services;"),
    (
        10,
        "ALTER TABLE invocations DROP COLUMN reserved_cpu_time;
         ALTER TABLE invocations DROP COLUMN borrowed_cpu_time;
         ALTER TABLE invocations DROP COLUMN lent_cpu_time;
         ALTER TABLE invocations DROP COLUMN lent_memory_avg;",
    ),
    (
        9,
        "ALTER TABLE invocations DROP COLUMN worker;
         ALTER TABLE instances DROP COLUMN worker;",
    ),
    (
        8,
        "ALTER TABLE invocations DROP COLUMN stage;
         ALTER TABLE events DROP COLUMN stage;",
    ),
    (7, "ALTER TABLE invocations DROP COLUMN shared;"),
    (
        6,
        "ALTER TABLE journal DROP COLUMN file;
         ALTER TABLE journal DROP COLUMN written;
         ALTER TABLE journal DROP COLUMN spare;",
    ),
    (5, "DROP TABLE journal;"),
    (
        4,
        "ALTER TABLE invocations DROP COLUMN reserved_cpu;
         ALTER TABLE invocations DROP COLUMN spot_cpu;
         ALTER TABLE invocations DROP COLUMN preemptible;
         ALTER TABLE invocations DROP COLUMN qos;",
    ),
];

/// Makes the database one of `version`, 3 or later: its rows stay, without what came after.
pub(super) fn make_earlier(database: &Connection, version: i64) {
    for (_, change) in CHANGES.iter().filter(|(since, _)| *since > version) {
        database.execute_batch(change).unwrap();
    }
    database.pragma_update(None, "user_version", version).unwrap();
}
