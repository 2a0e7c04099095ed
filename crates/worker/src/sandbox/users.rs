//! The users that instances run as.

use std::collections::HashSet;
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::{FcntlArg, fcntl};

/// Numbers that no account has, each instance another, so that what the kernel counts for each user
/// (pending signals, pipe buffers, keys, watches) is nobody else's.
const OWN: Range<u32> = 1_900_000_000..1_900_065_536;

/// The user of all functions where a container allows no such numbers: Lambda's.
const SHARED: u32 = 993;

/// The file of which a byte is locked for each user of an instance of any worker on the machine.
const LOCKS: &str = "/run/uncia-users.lock";

/// Hands out users.
#[derive(Debug)]
pub(super) struct Users {
    /// Those that instances have; none where all share one.
    taken: Option<Arc<Mutex<Taken>>>,
}

#[derive(Debug)]
struct Taken {
    users: HashSet<u32>,
    next: u32,
    /// What tells other workers; none where it cannot be made.
    locks: Option<File>,
}

/// The user of an instance: no other's until this is dropped.
#[derive(Debug)]
pub(super) struct User {
    pub number: u32,
    taken: Option<Arc<Mutex<Taken>>>,
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(taken) = &self.taken {
            let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
            taken.users.remove(&self.number);
            // It is nobody else's to unlock.
            taken.lock(self.number, libc::F_UNLCK);
        }
    }
}

impl Users {
    /// `root`: whether this process may become any user.
    pub(super) fn new(root: bool) -> Self {
        let unique = root && all_exist();
        Self { taken: unique.then(|| Arc::new(Mutex::new(Taken::new(open_locks())))) }
    }

    /// The user of a new instance; none if all are taken.
    pub(super) fn take(&self) -> Option<User> {
        let Some(shared) = &self.taken else { return Some(User { number: SHARED, taken: None }) };
        let mut taken = shared.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in OWN {
            let number = taken.next();
            if !taken.users.contains(&number) && taken.lock(number, libc::F_WRLCK) {
                taken.users.insert(number);
                return Some(User { number, taken: Some(shared.clone()) });
            }
        }
        None
    }

    /// Whether instances run as this user.
    pub(super) fn is_instance(&self, user: u32) -> bool {
        if self.taken.is_some() { OWN.contains(&user) } else { user == SHARED }
    }
}

impl Taken {
    fn new(locks: Option<File>) -> Self {
        // Not where other workers begin, those that see other files included.
        let mut random = [0; 4];
        let next = getrandom::fill(&mut random)
            .map_or(std::process::id(), |()| u32::from_ne_bytes(random));
        Self { users: HashSet::new(), next, locks }
    }

    /// The number that is looked at next: one that was given back is not taken again at once.
    fn next(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        OWN.start + self.next % (OWN.end - OWN.start)
    }

    /// Locks or unlocks a user for all workers; says whether it is no other worker's.
    fn lock(&self, user: u32, kind: libc::c_int) -> bool {
        let Some(locks) = &self.locks else { return true };
        let region = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: (user - OWN.start).into(),
            l_len: 1,
            l_pid: 0,
        };
        fcntl(locks.as_fd(), FcntlArg::F_OFD_SETLK(&region)).is_ok()
    }
}

/// Without it, workers do not know of each other's users.
fn open_locks() -> Option<File> {
    File::options()
        .write(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(LOCKS)
        .ok()
}

/// Whether every user number is one here, as outside of containers with user namespaces.
fn all_exist() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unique(locks: Option<&std::path::Path>) -> Users {
        let open = |path| File::options().write(true).create(true).truncate(false).open(path);
        let locks = locks.map(|path| open(path).unwrap());
        Users { taken: Some(Arc::new(Mutex::new(Taken::new(locks)))) }
    }

    #[test]
    fn no_two_living_instances_have_the_same_user() {
        let users = unique(None);
        let all: Vec<_> = OWN.map(|_| users.take().unwrap()).collect();
        let numbers: HashSet<_> = all.iter().map(|user| user.number).collect();
        assert_eq!(numbers.len(), all.len());
        assert!(numbers.iter().all(|number| users.is_instance(*number)));
        assert!(!users.is_instance(0) && !users.is_instance(SHARED) && !users.is_instance(OWN.end));
        assert!(users.take().is_none());
        drop(all);
        assert!(users.take().is_some());
    }

    #[test]
    fn no_two_workers_give_the_same_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks");
        let workers = [unique(Some(&path)), unique(Some(&path))];
        let mut numbers = HashSet::new();
        let taken: Vec<_> = (0..20).map(|turn| workers[turn % 2].take().unwrap()).collect();
        assert!(taken.iter().all(|user| numbers.insert(user.number)));
        // What one gives back the other can have.
        let [_, other] = &workers;
        let number = taken[0].number;
        drop(taken);
        other.taken.as_ref().unwrap().lock().unwrap().next = (number - OWN.start).wrapping_sub(1);
        assert_eq!(other.take().map(|user| user.number), Some(number));
    }

    #[test]
    fn without_root_all_have_one() {
        let users = Users::new(false);
        let [first, second] = [users.take().unwrap(), users.take().unwrap()];
        assert_eq!((first.number, second.number), (SHARED, SHARED));
        assert!(users.is_instance(SHARED) && !users.is_instance(OWN.start));
    }
}
