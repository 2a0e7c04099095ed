//! How long the threads of a group have waited for a CPU.

use std::collections::HashMap;
use std::fs::{self, File};

use crate::Counters;
use crate::files::pread;

/// More threads than this are not read one by one.
pub const MOST_THREADS: i64 = 64;

/// What a thread has done since it began, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wait {
    /// It ran.
    pub ran: i64,
    /// It could have run, and waited for a CPU, or for its group's quota.
    pub waited: i64,
}

impl Wait {
    /// What was added since an earlier reading.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self { ran: self.ran - before.ran, waited: self.waited - before.waited }
    }

    /// Reads the text of `schedstat`: ns on a CPU, ns in its queue, and how often it ran.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
        Some(Self { ran: fields.next()??, waited: fields.next()?? })
    }
}

/// The threads of a group, whose files stay open as long as their number is the same.
#[derive(Debug, Default)]
pub struct Waits {
    files: HashMap<i32, File>,
    count: Option<i64>,
}

impl Waits {
    /// What each thread has done so far, without looking for new ones; of all if none is known. `None` where
    /// there are too many.
    pub fn known(&mut self, counters: &Counters) -> Option<HashMap<i32, Wait>> {
        if self.files.is_empty() {
            self.list(counters)?;
        }
        Some(self.read())
    }

    /// The same of all threads that there are now.
    pub fn all(&mut self, counters: &Counters) -> Option<HashMap<i32, Wait>> {
        let count = counters.threads();
        let is_known = count.is_some() && count == self.count;
        let waits = if is_known { self.read() } else { HashMap::new() };
        if is_known && waits.len() == self.files.len() {
            return Some(waits);
        }
        self.list(counters)?;
        Some(self.read())
    }

    /// Those that have ended are left out.
    fn read(&self) -> HashMap<i32, Wait> {
        let read = |(id, file): (&i32, &File)| Some((*id, pread(file, Wait::parse)?));
        self.files.iter().filter_map(read).collect()
    }

    fn list(&mut self, counters: &Counters) -> Option<()> {
        let count = counters.threads();
        if count.is_some_and(|count| count > MOST_THREADS) {
            return None;
        }
        let list = fs::read_to_string(counters.thread_list.as_ref()?).ok()?;
        let ids: Vec<i32> = list.lines().filter_map(|id| id.parse().ok()).collect();
        self.files.retain(|id, file| ids.contains(id) && pread(file, Wait::parse).is_some());
        for id in ids {
            // Not `/proc/<id>/schedstat`, which another process of that number may have by then.
            let path = format!("/proc/{id}/task/{id}/schedstat");
            if let (false, Ok(file)) = (self.files.contains_key(&id), File::open(path)) {
                self.files.insert(id, file);
            }
        }
        self.count = count;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::Version;

    #[test]
    fn schedstat_is_read_as_the_kernel_writes_it() {
        let wait = Wait { ran: 7_000, waited: 90 };
        assert_eq!(Wait::parse("7000 90 3\n"), Some(wait));
        assert_eq!(Wait::parse("7000\n"), None);
        let since = wait.since(Wait { ran: 1_000, waited: 40 });
        assert_eq!(since, Wait { ran: 6_000, waited: 50 });
    }

    #[test]
    fn threads_are_found_as_they_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let thread_id = nix::unistd::gettid().as_raw();
        let write = |ids: &[i32]| {
            let list: String = ids.iter().map(|id| format!("{id}\n")).collect();
            fs::write(folder.path().join("tasks"), list).unwrap();
            fs::write(folder.path().join("pids.current"), format!("{}\n", ids.len())).unwrap();
        };
        write(&[thread_id]);
        let counters = Counters::open(Version::V1, |_| Some(Path::new(folder.path())));
        let mut waits = Waits::default();
        let before = waits.known(&counters).unwrap();
        assert_eq!(before.keys().collect::<Vec<_>>(), [&thread_id]);

        let (started, start) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(20) {}
            started.send(nix::unistd::gettid().as_raw()).unwrap();
            ends.recv()
        });
        let id = start.recv().unwrap();
        write(&[thread_id, id]);
        assert_eq!(waits.known(&counters).unwrap().len(), 1);
        let after = waits.all(&counters).unwrap();
        assert!(after[&id].ran > 0 && after[&thread_id].ran >= before[&thread_id].ran);
        drop(end);
        assert!(other.join().unwrap().is_err());
        write(&[thread_id]);
        assert_eq!(waits.all(&counters).unwrap().len(), 1);
    }
}
