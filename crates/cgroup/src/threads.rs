//! Which threads of a group run, and on which CPUs.

use std::fs::{self, File};

use crate::Counters;
use crate::files::pread;

/// The threads of a group that run or wait for a CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Running {
    /// How many there are.
    pub threads: u32,
    /// Where they are, each once.
    pub cpus: Vec<usize>,
}

/// A thread's open files.
#[derive(Debug)]
pub struct Thread {
    stat: File,
    /// Names the function of the kernel in which a thread sleeps, in 1.5 us instead of the 2.7 of
    /// `stat`; not to everybody, and not in every kernel.
    wchan: Option<File>,
}

impl Thread {
    /// `None` if there is no such thread.
    #[must_use]
    pub fn open(id: libc::pid_t) -> Option<Self> {
        // Not `/proc/<id>/stat`, for which the kernel sums over all threads of the process.
        let open = |file| File::open(format!("/proc/{id}/task/{id}/{file}"));
        Some(Self { stat: open("stat").ok()?, wchan: open("wchan").ok() })
    }

    /// Whether it sleeps for certain, with one access; one that does may go unnoticed where its place in
    /// the kernel is not for everybody to know.
    #[must_use]
    pub fn sleeps(&self) -> bool {
        self.wchan.as_ref().and_then(|wchan| pread(wchan, names_a_function)) == Some(true)
    }

    /// The CPU on which it runs or for which it waits, with one access; `None` if it sleeps or has ended.
    #[must_use]
    pub fn running_on(&self) -> Option<usize> {
        pread(&self.stat, |text| Some(running_on(text)))?
    }

    /// `None` if it has ended; within, `None` if it sleeps.
    #[expect(clippy::option_option, reason = "one is taken apart at once by each caller")]
    fn look(&self) -> Option<Option<usize>> {
        if self.sleeps() {
            return Some(None);
        }
        pread(&self.stat, |text| Some(running_on(text)))
    }
}

/// The threads of a group, kept open as long as their number is the same.
#[derive(Debug, Default)]
pub struct Threads {
    list: Vec<Thread>,
    count: Option<i64>,
}

impl Threads {
    /// `None` if one of them has ended.
    fn running(&self) -> Option<Running> {
        let mut running = Running::default();
        for thread in &self.list {
            let Some(cpu) = thread.look()? else { continue };
            running.threads += 1;
            if !running.cpus.contains(&cpu) {
                running.cpus.push(cpu);
            }
        }
        Some(running)
    }
}

impl Counters {
    /// Finds out which threads run now.
    pub fn running(&self, threads: &mut Threads) -> Running {
        let count = self.threads();
        if count.is_none() || count != threads.count || threads.list.is_empty() {
            self.list(threads, count);
        }
        threads.running().unwrap_or_else(|| {
            // One of them has ended, and maybe another has begun.
            self.list(threads, count);
            threads.running().unwrap_or_default()
        })
    }

    fn list(&self, threads: &mut Threads, count: Option<i64>) {
        let list = self.thread_list.as_ref().and_then(|path| fs::read_to_string(path).ok());
        let open = |id: &str| Thread::open(id.parse().ok()?);
        threads.list = list.as_deref().unwrap_or_default().lines().filter_map(open).collect();
        threads.count = count;
    }
}

/// Whether this is the function of the kernel in which a thread sleeps. "0": it runs or waits for a CPU, or
/// its place is not for everybody to know.
#[expect(clippy::unnecessary_wraps, reason = "it parses what is read")]
fn names_a_function(wchan: &str) -> Option<bool> {
    Some(!wchan.is_empty() && wchan != "0")
}

/// The CPU of a thread that runs, from its `stat`: the third field says whether it does, the 39th
/// where. The name in parentheses may hold spaces.
fn running_on(stat: &str) -> Option<usize> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if fields.next()? != "R" {
        return None;
    }
    fields.nth(35)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;

    #[test]
    fn who_runs_and_where() {
        let rest = (4..=52).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(running_on(&format!("71 (a ) b) R {rest}")), Some(39));
        assert_eq!(running_on(&format!("71 (name) S {rest}")), None);
        assert_eq!(running_on(""), None);
        // This thread does.
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tasks"), format!("{}\n", nix::unistd::gettid())).unwrap();
        let counters = Counters::open(Version::V1, |_| Some(folder.path()));
        let mut threads = Threads::default();
        for _ in 0..2 {
            let running = counters.running(&mut threads);
            assert_eq!((running.threads, running.cpus.len()), (1, 1));
        }
        // One that has ended since, and as many as before.
        let (started, start) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            started.send(nix::unistd::gettid()).unwrap();
            ends.recv()
        });
        threads.list[0] = Thread::open(start.recv().unwrap().as_raw()).unwrap();
        drop(end);
        assert!(other.join().unwrap().is_err());
        assert_eq!(counters.running(&mut threads).threads, 1);
    }
}
