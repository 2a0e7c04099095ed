//! What a group gets of the CPU: quota, weight, and which CPUs.

use std::path::Path;

use super::Group;
use crate::bandwidth::NS_PER_US;
use crate::files::{write, write_if_present};
use crate::{Bandwidth, Controller, Error, Limits};

impl Group {
    /// Sets the CPU quota, or that there is none, effective at once; without the controller, there is none.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_quota(&self, limits: &Limits) -> Result<(), Error> {
        let Some(folder) = self.folder(Controller::Cpu) else { return Ok(()) };
        if limits.cpu_micro == Limits::NO_QUOTA {
            // A quota above those of the groups above, as any large one may be, is refused on version 1.
            return self.interface().write_no_quota(folder);
        }
        let Bandwidth { period, quota, .. } = limits.bandwidth();
        self.interface().write_quota(folder, quota / NS_PER_US, period / NS_PER_US)
    }

    /// Sets quota, period and burst, which must be what the group gets in fact.
    ///
    /// # Errors
    /// The kernel would refuse it or give less, or has no such limit.
    pub fn set_bandwidth(&self, bandwidth: &Bandwidth) -> Result<(), Error> {
        bandwidth.check()?;
        let folder = self.folder(Controller::Cpu).ok_or(Error::NotMounted("cpu"))?;
        let interface = self.interface();
        let quota_file = folder.join(interface.quota_file());
        if !quota_file.exists() {
            return Err(Error::NoBandwidthControl(quota_file));
        }
        let [period, quota, burst] =
            [bandwidth.period, bandwidth.quota, bandwidth.burst].map(|ns| ns / NS_PER_US);
        let burst_file = folder.join(interface.burst_file());
        if burst > 0 && !burst_file.exists() {
            return Err(Error::NoBurst(burst_file));
        }
        self.check_above(folder, quota, period)?;
        interface.write_quota(folder, quota, period)?;
        if burst > 0 { write(&burst_file, &burst.to_string()) } else { Ok(()) }
    }

    /// Gives it one of `parts` equal parts of what a [`CpuShare`] gets when there is not enough CPU time
    /// for all. A share has the greatest weight that there is, so that it has thousands of parts.
    /// Without the controller, nothing is divided.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_cpu_part(&self, parts: u64) -> Result<(), Error> {
        let Some(folder) = self.folder(Controller::Cpu) else { return Ok(()) };
        let (file, weights) = self.interface().weights();
        let weight = (weights.end() / parts.max(1)).max(*weights.start());
        write_if_present(&folder.join(file), &weight.to_string())
    }

    /// Gives it this weight among the groups beside it, in shares of version 1, of which a group has 1024 at
    /// first: at least the least that there is. Without the controller, nothing is divided.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_shares(&self, shares: u64) -> Result<(), Error> {
        const DEFAULT: u64 = 1_024;
        let Some(folder) = self.folder(Controller::Cpu) else { return Ok(()) };
        let (file, weights) = self.interface().weights();
        let weight = shares.saturating_mul(self.interface().default_weight()) / DEFAULT;
        write_if_present(
            &folder.join(file),
            &weight.clamp(*weights.start(), *weights.end()).to_string(),
        )
    }

    /// Gives it this weight among the groups beside it, in micro-vCPU: at least the least that there is.
    /// Without the controller, nothing is divided.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_weight(&self, micro: u64) -> Result<(), Error> {
        let Some(folder) = self.folder(Controller::Cpu) else { return Ok(()) };
        let (file, weights) = self.interface().weights();
        // What a whole CPU has, as the kernel's documentation has it.
        let whole = self.interface().default_weight();
        let weight = micro.saturating_mul(whole) / 1_000_000;
        let weight = weight.clamp(*weights.start(), *weights.end());
        write(&folder.join(file), &weight.to_string())
    }

    /// Has it run only where nobody else wants to (`cpu.idle`, which Linux has since 5.15), or not any
    /// more; where the kernel has no such class, it has the least weight.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_idle(&self, idle: bool) -> Result<(), Error> {
        let Some(folder) = self.folder(Controller::Cpu) else { return Ok(()) };
        let file = folder.join("cpu.idle");
        if file.exists() {
            return write(&file, if idle { "1" } else { "0" });
        }
        if idle { self.set_weight(0) } else { Ok(()) }
    }

    /// Has it run on these CPUs alone.
    ///
    /// # Errors
    /// There is no controller for it, or the kernel refuses them.
    pub fn set_cpus(&self, cpus: &[usize]) -> Result<(), Error> {
        let folder = self.folder(Controller::CpuSet).ok_or(Error::NotMounted("cpuset"))?;
        let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
        write(&folder.join("cpuset.cpus"), &list.join(","))
    }

    /// Checks that no group above has less. Version 1 would refuse such a quota, with the EINVAL of
    /// every other mistake; version 2 would take it, and give what the group above has.
    fn check_above(&self, folder: &Path, quota_us: u64, period_us: u64) -> Result<(), Error> {
        for parent in folder.ancestors().skip(1) {
            let Some((quota, period)) = self.interface().quota(parent) else { continue };
            let wanted = u128::from(quota_us) * u128::from(period);
            if wanted > u128::from(quota) * u128::from(period_us) {
                return Err(Error::AboveParent {
                    quota_us,
                    period_us,
                    parent: parent.to_owned(),
                    limit: format!("{quota} us in {period} us"),
                });
            }
        }
        Ok(())
    }

    /// Whether there is a CPU quota to set.
    #[must_use]
    pub fn has_quota(&self) -> bool {
        self.folder(Controller::Cpu).is_some()
    }
}
