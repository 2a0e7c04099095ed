//! CPU time by whose CPUs it was on.

use std::path::PathBuf;
use std::sync::{Arc, Once, OnceLock};

use crate::sandbox::cgroup::{PerCpu, Version};

/// That it is said once.
static REFUSED: Once = Once::new();

/// What is reserved for an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::sandbox) enum Reserved {
    /// It cannot be told apart from what others have.
    #[default]
    Unknown,
    /// Nothing: all that it uses is borrowed.
    Nothing,
    /// These CPUs, which nobody else has.
    Cpus(Vec<usize>),
}

/// The account by CPU of an instance and of all together.
pub(in crate::sandbox) struct ByCpu {
    version: Version,
    folder: PathBuf,
    cpus: Vec<usize>,
    /// Opened once CPUs are the instance's own, which most never have: it may take a descriptor for each CPU. None
    /// where it cannot be.
    group: OnceLock<Option<PerCpu>>,
    all: Arc<PerCpu>,
}

/// Where both accounts stand.
type Reading = (Vec<i64>, Vec<i64>);

impl ByCpu {
    /// The account of the group in this folder, whose processes run on these CPUs, beside that of all.
    pub(in crate::sandbox) fn new(
        (version, all): (Version, Arc<PerCpu>),
        folder: PathBuf,
        cpus: Vec<usize>,
    ) -> Self {
        Self { version, folder, cpus, group: OnceLock::new(), all }
    }

    /// Counts from now on, if it does not yet.
    pub(super) fn open(&self) {
        self.group.get_or_init(|| {
            let group = PerCpu::open(self.version, &self.folder, &self.cpus);
            if group.is_none() {
                REFUSED.call_once(|| {
                    tracing::warn!(
                        "the CPU time of an instance cannot be counted by CPU, so that rows do not say what is \
                         borrowed and lent: look at the limit of open files"
                    );
                });
            }
            group
        });
    }

    fn read(&self) -> Option<Reading> {
        Some((self.group.get()?.as_ref()?.read()?, self.all.read()?))
    }
}

/// An invocation's part of the accounts.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub reserved: Reserved,
    before: Option<Reading>,
    /// Where they stood at the instance's end.
    last: Option<Reading>,
}

impl Account {
    fn is_read(&self) -> bool {
        matches!(self.reserved, Reserved::Cpus(_))
    }

    pub(super) fn begin(&mut self, by_cpu: Option<&ByCpu>) {
        self.before = by_cpu.filter(|_| self.is_read()).and_then(ByCpu::read);
    }

    /// The instance's processes have ended, and its groups are about to be removed.
    pub(super) fn finish(&mut self, by_cpu: Option<&ByCpu>) {
        self.last = by_cpu.filter(|_| self.is_read()).and_then(ByCpu::read);
    }

    /// CPU time in ns that was borrowed and lent since [`Self::begin`], for an invocation that used so much
    /// in all.
    pub(super) fn end(
        &mut self,
        by_cpu: Option<&ByCpu>,
        total: Option<i64>,
    ) -> (Option<i64>, Option<i64>) {
        let cpus = match &self.reserved {
            Reserved::Unknown => return (None, None),
            Reserved::Nothing => return (total, total.map(|_| 0)),
            Reserved::Cpus(cpus) => cpus,
        };
        let after = match &self.last {
            Some(last) => Some(last.clone()),
            None => by_cpu.and_then(ByCpu::read),
        };
        self.before.take().zip(after).map_or((None, None), |(before, after)| {
            let (borrowed, lent) = divide(cpus, &before, &after);
            (Some(borrowed), Some(lent))
        })
    }
}

/// What an instance used beside its CPUs, and what others used on them.
fn divide(cpus: &[usize], before: &Reading, after: &Reading) -> (i64, i64) {
    let passed = |before: &[i64], after: &[i64], cpu: usize| {
        let stood = |account: &[i64]| account.get(cpu).copied().unwrap_or_default();
        (stood(after) - stood(before)).max(0)
    };
    let (mut borrowed, mut lent) = (0, 0);
    for cpu in 0..after.0.len() {
        let used = passed(&before.0, &after.0, cpu);
        if cpus.contains(&cpu) {
            // The two accounts are not read at the same moment.
            lent += (passed(&before.1, &after.1, cpu) - used).max(0);
        } else {
            borrowed += used;
        }
    }
    (borrowed, lent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_beside_the_own_cpus_is_borrowed_and_what_others_use_there_lent() {
        let before = (vec![10, 20, 30], vec![100, 200, 300]);
        let after = (vec![15, 27, 31], vec![109, 210, 400]);
        assert_eq!(divide(&[0], &before, &after), (7 + 1, 9 - 5));
        assert_eq!(divide(&[0, 1], &before, &after), (1, 4 + 3));
        assert_eq!(divide(&[2], &before, &before), (0, 0));
    }

    #[test]
    fn without_a_reservation_all_is_borrowed() {
        let mut account = Account::default();
        assert_eq!(account.end(None, Some(5)), (None, None));
        account.reserved = Reserved::Nothing;
        assert_eq!(account.end(None, Some(5)), (Some(5), Some(0)));
        assert_eq!(account.end(None, None), (None, None));
        account.reserved = Reserved::Cpus(vec![0]);
        account.begin(None);
        assert_eq!(account.end(None, Some(5)), (None, None), "nobody counts by CPU");
    }
}
