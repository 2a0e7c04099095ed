//! What this machine offers to sandboxes, found by trying.

use std::collections::BTreeMap;

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use serde::Serialize;

use super::cgroup::{Controller, Layout, Obstacle, Version, discover};
use super::init::seccomp;

/// What the embedded platform can do here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Whether this process runs as root.
    pub root: bool,
    /// What control groups offer.
    pub cgroup: CgroupCapabilities,
    /// The namespaces that this process may make.
    pub namespaces: Namespaces,
    /// The limits that hold.
    pub enforced: Enforced,
    /// Where usage is read from.
    pub metering: Metering,
    /// Whether idle instances can be frozen by the kernel.
    pub freezer: bool,
    /// Whether the system calls of instances are filtered.
    pub seccomp: bool,
    /// What does not hold here, and what follows, a sentence each.
    pub warnings: Vec<String>,
}

/// What control groups offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CgroupCapabilities {
    /// 1 or 2; none without control groups.
    pub version: Option<u8>,
    /// Each controller that the platform uses, by its name.
    pub controllers: BTreeMap<&'static str, ControllerCapability>,
}

/// What one controller of control groups allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ControllerCapability {
    /// The machine has it.
    pub available: bool,
    /// This process may make groups with it.
    pub writable: bool,
}

/// Which namespaces this process may make, alone or inside a user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Namespaces {
    /// File systems of its own.
    pub mount: bool,
    /// Process IDs of its own.
    pub pid: bool,
    /// A network of its own.
    pub net: bool,
    /// System V IPC and message queues of its own.
    pub ipc: bool,
    /// A host name of its own.
    pub uts: bool,
    /// Users and capabilities of its own.
    pub user: bool,
}

/// Which limits hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Enforced {
    /// The memory limit.
    pub memory: bool,
    /// The CPU quota.
    pub cpu: bool,
    /// The limit of processes and threads.
    pub pids: bool,
}

/// Where usage is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metering {
    /// Control groups, version 1.
    CgroupV1,
    /// Control groups, version 2.
    CgroupV2,
    /// CPU time of the runtime's process alone, without memory and without its children.
    Proc,
}

impl Capabilities {
    /// Tries everything and leaves nothing behind.
    pub fn probe() -> Self {
        let layout = discover(&uncia_cgroup::own_name(), false);
        if let Some(layout) = &layout {
            // It is empty and was made just now.
            let _ = layout.remove();
        }
        Self::new(layout.as_ref())
    }

    /// What can be done with these control groups.
    pub fn new(layout: Option<&Layout>) -> Self {
        let root = nix::unistd::geteuid().is_root();
        let has = |controller| layout.is_some_and(|layout| layout.has(controller));
        let controllers = Controller::ALL
            .into_iter()
            .map(|it| {
                let available = layout.is_some_and(|layout| layout.available.contains(&it));
                (it.name(), ControllerCapability { available, writable: has(it) })
            })
            .collect();
        let version = layout.filter(|layout| !layout.available.is_empty()).map(|it| it.version);
        let metering = match version {
            Some(version) if has(Controller::CpuAccounting) => match version {
                Version::V1 => Metering::CgroupV1,
                Version::V2 => Metering::CgroupV2,
            },
            _ => Metering::Proc,
        };
        let filtered = seccomp::probe();
        let mut capabilities = Self {
            root,
            cgroup: CgroupCapabilities {
                version: version.map(|version| match version {
                    Version::V1 => 1,
                    Version::V2 => 2,
                }),
                controllers,
            },
            namespaces: Namespaces::probe(root),
            enforced: Enforced {
                memory: has(Controller::Memory),
                cpu: has(Controller::Cpu),
                pids: has(Controller::Pids) || !root && counts_processes_by_namespace(),
            },
            metering,
            freezer: has(Controller::Freezer),
            seccomp: filtered.is_ok(),
            warnings: Vec::new(),
        };
        let obstacle = layout.and_then(|layout| layout.obstacle.as_ref());
        capabilities.warnings = capabilities.shortcomings(obstacle);
        capabilities.warnings.extend(filtered.err().map(unfiltered));
        capabilities
    }

    /// Whether instances can be made at all.
    pub fn can_sandbox(&self) -> bool {
        let it = &self.namespaces;
        it.mount && it.pid && it.ipc && it.uts && it.net && (self.root || it.user)
    }

    fn shortcomings(&self, obstacle: Option<&Obstacle>) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |text: &str| warnings.push(text.to_owned());
        if !self.can_sandbox() {
            warn(
                "This process may not make namespaces, so no instance can start. Run as root, or \
                 allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, or \
                 kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu).",
            );
        }
        if !self.root {
            warn(
                "Not running as root: all functions run as the same user of the host, in user \
                 namespaces. Those with the host's network (network: host) can manage the platform \
                 as this user can.",
            );
        }
        let mut unenforced = |holds: bool, controller, what: &str, cost: &str| {
            if !holds {
                let advice = self.advice(controller, obstacle);
                warnings.push(format!("{what} is not enforced: {advice}. {cost}"));
            }
        };
        unenforced(
            self.enforced.memory,
            Controller::Memory,
            "The memory limit",
            "A function may use all of the machine's memory, and none of it is measured.",
        );
        unenforced(
            self.enforced.cpu,
            Controller::Cpu,
            "The CPU quota",
            "Every function runs at full speed whatever its memory size, and throttling is not measured.",
        );
        unenforced(
            self.enforced.pids,
            Controller::Pids,
            "The limit of processes",
            "A function that forks without end can take the machine down.",
        );
        if !self.freezer {
            let advice = self.advice(Controller::Freezer, obstacle);
            warnings.push(format!(
                "Idle instances are not frozen: {advice}. A function's background threads go on \
                 between invocations."
            ));
        }
        if self.metering == Metering::Proc {
            let advice = self.advice(Controller::CpuAccounting, obstacle);
            warnings.push(format!(
                "CPU time is that of the runtime's process alone, without its children: {advice}."
            ));
        }
        warnings
    }

    /// What to do about a controller that cannot be used.
    fn advice(&self, controller: Controller, obstacle: Option<&Obstacle>) -> String {
        let available =
            self.cgroup.controllers.get(controller.name()).is_some_and(|it| it.available);
        // On version 2 one thing keeps all of them away.
        if let (Some(2), Some(obstacle)) = (self.cgroup.version, obstacle) {
            return obstacle.to_string();
        }
        let advice = match (self.root, self.cgroup.version, available) {
            (false, ..) => {
                "run as root, or in a delegated control group (systemd-run --user --scope -p \
                 Delegate=yes)"
            }
            (true, None, _) => {
                "no control groups are mounted, so mount them (mount -t cgroup2 none \
                 /sys/fs/cgroup), or run outside of this container"
            }
            (true, Some(1), true) => {
                "/sys/fs/cgroup may not be written, so run outside of this container, or start it \
                 with --privileged"
            }
            (true, Some(1), false) => {
                "its tree is not mounted (mount -t cgroup -o CONTROLLER ...), or the kernel lacks it"
            }
            (true, ..) => "the kernel lacks its controller",
        };
        advice.to_owned()
    }
}

/// What follows from a kernel that takes no filter of system calls.
fn unfiltered(error: Errno) -> String {
    let cause = match error {
        Errno::ENOSYS | Errno::EINVAL => {
            "this kernel has no filters of them (CONFIG_SECCOMP_FILTER), or what this process runs \
             in allows none"
                .to_owned()
        }
        error => format!("the kernel refuses the filter ({})", error.desc()),
    };
    format!(
        "The system calls of functions are not filtered: {cause}. A function can use all that the \
         kernel offers to an ordinary user, namespaces of its own and sockets of every family among it."
    )
}

/// Whether the kernel's own limit of processes counts those of one user namespace alone, as Linux
/// does since 5.14: without root, each instance has its own.
fn counts_processes_by_namespace() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map(|it| it.parse::<u32>().unwrap_or_default());
    (numbers.next(), numbers.next()) >= (Some(5), Some(14))
}

impl Namespaces {
    fn probe(root: bool) -> Self {
        let user = libc::CLONE_NEWUSER;
        let base = if root { 0 } else { user };
        Self {
            mount: can_unshare(base | libc::CLONE_NEWNS),
            pid: can_unshare(base | libc::CLONE_NEWPID),
            net: can_unshare(base | libc::CLONE_NEWNET),
            ipc: can_unshare(base | libc::CLONE_NEWIPC),
            uts: can_unshare(base | libc::CLONE_NEWUTS),
            user: can_unshare(user),
        }
    }
}

/// Tries in a child, so that this process stays where it is.
fn can_unshare(flags: libc::c_int) -> bool {
    // SAFETY: the child makes two system calls and no other, which is allowed after a fork of a
    // process with several threads.
    let child = unsafe {
        match libc::fork() {
            0 => libc::_exit(i32::from(libc::unshare(flags) != 0)),
            pid => pid,
        }
    };
    child > 0
        && matches!(waitpid(nix::unistd::Pid::from_raw(child), None), Ok(WaitStatus::Exited(_, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_control_groups_every_missing_limit_is_told() {
        let capabilities = Capabilities::new(None);
        assert_eq!(capabilities.cgroup.version, None);
        assert_eq!(capabilities.metering, Metering::Proc);
        for word in ["memory limit", "CPU quota", "limit of processes", "not frozen", "children"] {
            assert!(capabilities.warnings.iter().any(|it| it.contains(word)), "{word}");
        }
    }

    #[test]
    fn what_to_do_depends_on_what_is_missing() {
        let layout = |version, available: &[Controller], obstacle| Layout {
            version,
            parents: BTreeMap::new(),
            unified: None,
            available: available.to_vec(),
            obstacle,
        };
        let advice = |root, layout: Option<&Layout>| {
            let obstacle = layout.and_then(|layout| layout.obstacle.as_ref());
            Capabilities { root, ..Capabilities::new(layout) }.advice(Controller::Cpu, obstacle)
        };
        assert!(advice(true, None).contains("mount -t cgroup2"));
        assert!(advice(false, None).contains("Delegate=yes"));
        let both = [Controller::Cpu, Controller::Freezer];
        let classic = |available| layout(Version::V1, available, None);
        assert!(advice(true, Some(&classic(&both))).contains("--privileged"));
        assert!(advice(true, Some(&classic(&both[1..]))).contains("not mounted"));
        let occupied = Obstacle::Occupied("/sys/fs/cgroup/x".into());
        let unified = layout(Version::V2, &both, Some(occupied));
        assert!(advice(true, Some(&unified)).starts_with("/sys/fs/cgroup/x has processes"));
        let warnings = Capabilities::new(Some(&unified)).warnings;
        assert!(warnings.iter().any(|it| it.starts_with("The CPU quota is not enforced: ")));
    }

    #[test]
    fn a_kernel_without_filters_is_told() {
        let missing = unfiltered(Errno::ENOSYS);
        assert!(missing.contains("not filtered") && missing.contains("CONFIG_SECCOMP_FILTER"));
        assert!(unfiltered(Errno::ENOMEM).contains("refuses the filter (Out of memory)"));
    }

    #[test]
    fn the_form_that_others_read() {
        let json = serde_json::to_value(Capabilities::new(None)).unwrap();
        assert_eq!(json["metering"], "proc");
        assert_eq!(json["cgroup"]["controllers"]["cpu"]["writable"], false);
        assert!(json["namespaces"]["mount"].is_boolean());
        assert!(json["seccomp"].is_boolean());
    }
}
