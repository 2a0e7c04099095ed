//! Which system calls are allowed, and why.
//!
//! [`FUNCTION`] holds for the runtime and all that it starts, [`FIRST_PROCESS`] for an instance's
//! first process. A call is in one group of a table or in none. `docs/reference/system-calls.md`
//! shows both tables; a test keeps it equal.

use libc::{c_int, c_long};

/// System calls that are answered alike for one reason.
pub(super) struct Group {
    pub(super) calls: &'static [Call],
    /// Calls that newer machines than x86-64 lack: each has a successor among `calls`.
    pub(super) older: &'static [Call],
    pub(super) answer: Answer,
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers, here and on the page"))]
    pub(super) reason: &'static str,
}

/// A system call of this machine.
pub(super) struct Call {
    /// As the C library's constant is named: `SYS_read`.
    pub(super) constant: &'static str,
    pub(super) number: c_long,
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Allow,
    /// The call does nothing and returns this error, or success if it is 0.
    Error(c_int),
    /// Allowed if all tests of one of these lists hold.
    AllowIf {
        any: &'static [&'static [Test]],
        /// The condition in words.
        when: &'static str,
        otherwise: c_int,
    },
}

/// Holds if the lower half of an argument, of which only the bits of `mask` count, is `value`.
///
/// Of every argument that is tested here, the kernel looks at no more than that half.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) argument: u8,
    pub(super) mask: u32,
    pub(super) value: u32,
}

impl Group {
    pub(super) fn calls(&self) -> impl Iterator<Item = &'static Call> {
        self.calls.iter().chain(self.older)
    }
}

const fn equals(argument: u8, value: c_int) -> Test {
    Test { argument, mask: u32::MAX, value: value.cast_unsigned() }
}

const fn without(argument: u8, bits: c_int) -> Test {
    Test { argument, mask: bits.cast_unsigned(), value: 0 }
}

/// The numbers, with those that the crate libc does not know.
#[cfg(target_arch = "x86_64")]
use libc as numbers;
#[cfg(target_arch = "aarch64")]
#[expect(non_upper_case_globals, reason = "named as in the C library")]
mod numbers {
    pub(super) use libc::*;

    pub(super) const SYS_renameat: c_long = 38;
    pub(super) const SYS_sync_file_range: c_long = 84;
    pub(super) const SYS_getrlimit: c_long = 163;
    pub(super) const SYS_setrlimit: c_long = 164;
    pub(super) const SYS_fchmodat2: c_long = 452;
}

macro_rules! calls {
    ($($constant:ident)*) => {
        &[$(Call { constant: stringify!($constant), number: numbers::$constant }),*]
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! older {
    ($($constant:ident)*) => { calls![$($constant)*] };
}
#[cfg(not(target_arch = "x86_64"))]
macro_rules! older {
    ($($constant:ident)*) => {
        &[]
    };
}

/// Flags of `clone` for namespaces. That of clocks has no flag there: its bit is part of the signal.
const NAMESPACES: c_int = libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS;

/// Bits of a socket's type that SOCK_STREAM, SOCK_DGRAM and SOCK_RAW lack. Without capabilities the
/// kernel refuses the last; among the others is SOCK_PACKET, which makes IPv4 another name of
/// AF_PACKET.
const OTHER_TYPES: c_int = 0b1100;

/// `personality`'s argument that only asks.
const PERSONALITY_QUERY: c_int = -1;

/// For the runtime and all that it starts. Calls in no group are new or unknown.
pub(super) const FUNCTION: &[Group] = &[
    Group {
        calls: calls![
            SYS_openat SYS_openat2 SYS_close SYS_close_range SYS_read SYS_write SYS_readv SYS_writev
            SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2 SYS_pwritev2 SYS_lseek
            SYS_sendfile SYS_copy_file_range SYS_splice SYS_tee SYS_vmsplice SYS_dup SYS_dup3
            SYS_flock SYS_ioctl SYS_pipe2 SYS_truncate SYS_ftruncate SYS_fallocate
            SYS_fadvise64 SYS_readahead SYS_fsync SYS_fdatasync SYS_sync_file_range
        ],
        older: older![SYS_open SYS_creat SYS_dup2 SYS_pipe],
        answer: Answer::Allow,
        reason: "Open, read and write files and pipes.",
    },
    Group {
        calls: calls![SYS_fcntl],
        older: older![],
        answer: Answer::AllowIf {
            // Below 1024 are those of POSIX; among those above, these two are refused.
            any: &[
                &[without(1, libc::F_SETLEASE)],
                &[equals(1, libc::F_GETLEASE)],
                &[equals(1, libc::F_DUPFD_CLOEXEC)],
                &[equals(1, libc::F_SETPIPE_SZ)],
                &[equals(1, libc::F_GETPIPE_SZ)],
                &[equals(1, libc::F_ADD_SEALS)],
                &[equals(1, libc::F_GET_SEALS)],
                // Hints of how long what is written lives, which the crate libc does not know.
                &[equals(1, 1035)],
                &[equals(1, 1036)],
                &[equals(1, 1037)],
                &[equals(1, 1038)],
            ],
            when: "all but `F_SETLEASE` and `F_NOTIFY`",
            otherwise: libc::EINVAL,
        },
        reason: "Without root the owner of the interpreters' files is every function's user, and a \
                 lease on one holds up all others who open it.",
    },
    Group {
        calls: calls![
            SYS_newfstatat SYS_fstat SYS_statx SYS_statfs SYS_fstatfs SYS_faccessat SYS_faccessat2
            SYS_readlinkat SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir SYS_mkdirat SYS_unlinkat
            SYS_renameat SYS_renameat2 SYS_linkat SYS_symlinkat SYS_mknodat SYS_fchmod SYS_fchmodat
            SYS_fchmodat2 SYS_fchown SYS_fchownat SYS_umask SYS_utimensat SYS_getxattr SYS_lgetxattr
            SYS_fgetxattr SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_setxattr SYS_lsetxattr
            SYS_fsetxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr SYS_inotify_init1
            SYS_inotify_add_watch SYS_inotify_rm_watch
        ],
        older: older![
            SYS_stat SYS_lstat SYS_access SYS_readlink SYS_getdents SYS_mkdir SYS_rmdir SYS_unlink
            SYS_rename SYS_link SYS_symlink SYS_mknod SYS_chmod SYS_chown SYS_lchown SYS_utime
            SYS_utimes SYS_futimesat SYS_inotify_init
        ],
        answer: Answer::Allow,
        reason: "Names, attributes and folders of the few files that an instance sees. Without \
                 capabilities, `mknod` makes pipes but no devices.",
    },
    Group {
        calls: calls![
            SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_msync SYS_mincore SYS_brk
            SYS_mlock SYS_mlock2 SYS_munlock SYS_mlockall SYS_munlockall SYS_mseal
            SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_memfd_create SYS_membarrier
        ],
        older: older![],
        answer: Answer::Allow,
        reason: "Memory of its own; compilers at run time (Node.js, the JVM) make it executable.",
    },
    Group {
        calls: calls![
            SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_kill SYS_tkill
            SYS_tgkill SYS_pidfd_open SYS_pidfd_send_signal SYS_getpid SYS_getppid SYS_gettid
            SYS_getpgid SYS_setpgid SYS_getsid SYS_setsid SYS_set_tid_address SYS_restart_syscall
        ],
        older: older![SYS_fork SYS_vfork SYS_getpgrp],
        answer: Answer::Allow,
        reason: "Processes of its own: it sees and signals no others.",
    },
    Group {
        calls: calls![SYS_clone],
        older: older![],
        answer: Answer::AllowIf {
            any: &[&[without(0, NAMESPACES)]],
            when: "without flags for new namespaces",
            otherwise: libc::EPERM,
        },
        reason: "Processes and threads. In a user namespace of its own a function would have rights \
                 over what it makes there, and with them would reach much more of the kernel.",
    },
    Group {
        calls: calls![SYS_unshare],
        older: older![],
        answer: Answer::AllowIf {
            any: &[&[without(0, NAMESPACES | libc::CLONE_NEWTIME)]],
            when: "without flags for new namespaces",
            otherwise: libc::EPERM,
        },
        reason: "As `clone`.",
    },
    Group {
        calls: calls![
            SYS_futex SYS_futex_waitv SYS_set_robust_list SYS_get_robust_list SYS_rseq
            SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigpending SYS_rt_sigsuspend
            SYS_rt_sigtimedwait SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_rt_sigreturn
            SYS_sigaltstack SYS_signalfd4
        ],
        older: older![SYS_signalfd SYS_pause],
        answer: Answer::Allow,
        reason: "Threads and signals.",
    },
    Group {
        calls: calls![
            SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2
            SYS_eventfd2 SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime SYS_timer_create
            SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete SYS_getitimer
            SYS_setitimer SYS_nanosleep SYS_clock_nanosleep SYS_clock_gettime SYS_clock_getres
            SYS_gettimeofday SYS_times
        ],
        older: older![
            SYS_poll SYS_select SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_alarm SYS_time
        ],
        answer: Answer::Allow,
        reason: "Wait, and read the time.",
    },
    Group {
        calls: calls![SYS_socket],
        older: older![],
        answer: Answer::AllowIf {
            any: &[
                &[equals(0, libc::AF_UNIX)],
                &[equals(0, libc::AF_INET), without(1, OTHER_TYPES), equals(2, 0)],
                &[equals(0, libc::AF_INET), without(1, OTHER_TYPES), equals(2, libc::IPPROTO_TCP)],
                &[equals(0, libc::AF_INET), without(1, OTHER_TYPES), equals(2, libc::IPPROTO_UDP)],
                &[equals(0, libc::AF_INET), without(1, OTHER_TYPES), equals(2, libc::IPPROTO_ICMP)],
                &[equals(0, libc::AF_INET6), without(1, OTHER_TYPES), equals(2, 0)],
                &[equals(0, libc::AF_INET6), without(1, OTHER_TYPES), equals(2, libc::IPPROTO_TCP)],
                &[equals(0, libc::AF_INET6), without(1, OTHER_TYPES), equals(2, libc::IPPROTO_UDP)],
                &[
                    equals(0, libc::AF_INET6),
                    without(1, OTHER_TYPES),
                    equals(2, libc::IPPROTO_ICMPV6),
                ],
                &[equals(0, libc::AF_NETLINK), equals(2, libc::NETLINK_ROUTE)],
            ],
            when: "unix; IPv4 and IPv6 of the types stream, datagram and raw, with TCP, UDP and \
                   ICMP; netlink for routes",
            otherwise: libc::EAFNOSUPPORT,
        },
        reason: "`AF_VSOCK` knows no network namespace, `AF_PACKET` reads others' traffic, and \
                 `AF_ALG`, other families and other protocols (SCTP, L2TP) are large and little \
                 tested. C libraries list network \
                 interfaces by netlink. Raw sockets, those of ICMP among them, pass the filter, and the \
                 kernel answers `EPERM`: they take `CAP_NET_RAW`, which no function has.",
    },
    Group {
        calls: calls![SYS_socketpair],
        older: older![],
        answer: Answer::AllowIf {
            any: &[&[equals(0, libc::AF_UNIX)]],
            when: "unix",
            otherwise: libc::EAFNOSUPPORT,
        },
        reason: "As `socket`.",
    },
    Group {
        calls: calls![
            SYS_bind SYS_connect SYS_listen SYS_accept SYS_accept4 SYS_shutdown SYS_getsockname
            SYS_getpeername SYS_getsockopt SYS_setsockopt SYS_sendto SYS_recvfrom SYS_sendmsg
            SYS_recvmsg SYS_sendmmsg SYS_recvmmsg
        ],
        older: older![],
        answer: Answer::Allow,
        reason: "Use the sockets that `socket` makes.",
    },
    Group {
        calls: calls![
            SYS_shmget SYS_shmat SYS_shmdt SYS_shmctl SYS_semget SYS_semop SYS_semtimedop SYS_semctl
            SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl SYS_mq_open SYS_mq_unlink SYS_mq_timedsend
            SYS_mq_timedreceive SYS_mq_notify SYS_mq_getsetattr
        ],
        older: older![],
        answer: Answer::Allow,
        reason: "Shared memory, semaphores and queues, in the instance's own ipc namespace.",
    },
    Group {
        calls: calls![
            SYS_sched_yield SYS_sched_getaffinity SYS_sched_setaffinity SYS_sched_getparam
            SYS_sched_setparam SYS_sched_getscheduler SYS_sched_setscheduler SYS_sched_getattr
            SYS_sched_setattr SYS_sched_get_priority_max SYS_sched_get_priority_min
            SYS_sched_rr_get_interval SYS_getpriority SYS_setpriority SYS_ioprio_get SYS_ioprio_set
            SYS_getcpu SYS_getrusage SYS_getrlimit SYS_setrlimit SYS_prlimit64
        ],
        older: older![],
        answer: Answer::Allow,
        reason: "Limits and priorities of its own, which it may only lower.",
    },
    Group {
        calls: calls![
            SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups
            SYS_capget SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid
            SYS_setfsuid SYS_setfsgid SYS_setgroups SYS_capset SYS_seccomp
            SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self
        ],
        older: older![SYS_arch_prctl],
        answer: Answer::Allow,
        reason: "Who it is, and giving up rights. It has none to give up, and programs that try \
                 find that out from the kernel.",
    },
    Group {
        calls: calls![SYS_prctl],
        older: older![],
        answer: Answer::AllowIf {
            // One bit or another is not that of 62.
            any: &[
                &[Test { argument: 0, mask: 1, value: 1 }],
                &[without(0, 0b00_0010)],
                &[without(0, 0b00_0100)],
                &[without(0, 0b00_1000)],
                &[without(0, 0b01_0000)],
                &[without(0, 0b10_0000)],
            ],
            when: "all but `PR_SCHED_CORE`",
            otherwise: libc::EINVAL,
        },
        reason: "Names, limits and signals of its own. With a cookie of its own the other threads of \
                 the processor's cores would stand still for everybody else.",
    },
    Group {
        calls: calls![SYS_uname SYS_sysinfo SYS_getrandom],
        older: older![],
        answer: Answer::Allow,
        reason: "Facts about the machine, and random numbers.",
    },
    Group {
        calls: calls![SYS_personality],
        older: older![],
        answer: Answer::AllowIf {
            any: &[&[equals(0, 0)], &[equals(0, PERSONALITY_QUERY)]],
            when: "0 (Linux) and 0xffffffff (which asks)",
            otherwise: libc::EPERM,
        },
        reason: "Other values imitate old systems or turn randomised addresses off.",
    },
    Group {
        calls: calls![SYS_sync SYS_syncfs],
        older: older![],
        answer: Answer::Error(0),
        reason: "They would write all of the host's files to its disk, and make everybody wait. \
                 What a function writes is in memory anyway.",
    },
    Group {
        calls: calls![SYS_clone3],
        older: older![],
        answer: Answer::Error(libc::ENOSYS),
        reason: "Its flags lie in memory, where no filter reads. C libraries then use `clone`.",
    },
    Group {
        calls: calls![SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register],
        older: older![],
        answer: Answer::Error(libc::ENOSYS),
        reason: "Makes calls past the filter. Programs then use `epoll`.",
    },
    Group {
        calls: calls![SYS_io_setup SYS_io_destroy SYS_io_submit SYS_io_cancel SYS_io_getevents],
        older: older![],
        answer: Answer::Error(libc::ENOSYS),
        reason: "Asynchronous access to disks, of which an instance has none; kernels can be built \
                 without.",
    },
    Group {
        calls: calls![
            SYS_mbind SYS_set_mempolicy SYS_get_mempolicy SYS_set_mempolicy_home_node
            SYS_migrate_pages SYS_move_pages
        ],
        older: older![],
        answer: Answer::Error(libc::ENOSYS),
        reason: "Places memory on nodes of the machine, which it shares with others. Programs then \
                 see a machine with one node.",
    },
    Group {
        calls: calls![SYS_setns SYS_chroot SYS_sethostname SYS_setdomainname],
        older: older![],
        answer: Answer::Error(libc::EPERM),
        reason: "Leaves the instance's namespaces or changes them.",
    },
    Group {
        calls: calls![
            SYS_mount SYS_umount2 SYS_pivot_root SYS_open_tree SYS_move_mount SYS_fsopen
            SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr SYS_swapon SYS_swapoff
            SYS_quotactl SYS_quotactl_fd
        ],
        older: older![],
        answer: Answer::Error(libc::EPERM),
        reason: "Changes what file systems there are, and what is seen of them.",
    },
    Group {
        calls: calls![SYS_name_to_handle_at SYS_open_by_handle_at SYS_fanotify_init SYS_fanotify_mark],
        older: older![],
        answer: Answer::Error(libc::EPERM),
        reason: "Reaches files by other ways than their names below the root.",
    },
    Group {
        calls: calls![
            SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise
            SYS_process_mrelease SYS_pidfd_getfd SYS_kcmp
        ],
        older: older![],
        answer: Answer::Error(libc::EPERM),
        reason: "Looks into other processes or changes them: for debuggers, and a way past filters \
                 in old kernels.",
    },
    Group {
        calls: calls![SYS_bpf SYS_perf_event_open SYS_userfaultfd],
        older: older![],
        answer: Answer::Error(libc::EPERM),
        reason: "Large parts of the kernel that many attacks began with.",
    },
    Group {
        calls: calls![SYS_add_key SYS_request_key SYS_keyctl],
        older: older![],
        answer: Answer::Error(libc::EPERM),
        reason: "The kernel's keyrings know no namespace but that of users.",
    },
    Group {
        calls: calls![
            SYS_settimeofday SYS_clock_settime SYS_adjtimex SYS_clock_adjtime SYS_reboot
            SYS_kexec_load SYS_kexec_file_load SYS_init_module SYS_finit_module SYS_delete_module
            SYS_syslog SYS_acct SYS_vhangup
        ],
        older: older![SYS_iopl SYS_ioperm],
        answer: Answer::Error(libc::EPERM),
        reason: "The whole machine's clock, kernel, log and devices.",
    },
    Group {
        calls: calls![SYS_memfd_secret SYS_remap_file_pages SYS_lookup_dcookie SYS_nfsservctl],
        older: older![
            SYS_modify_ldt SYS_set_thread_area SYS_get_thread_area SYS_uselib SYS_ustat SYS_sysfs
            SYS__sysctl SYS_epoll_ctl_old SYS_epoll_wait_old SYS_getpmsg SYS_putpmsg
            SYS_afs_syscall SYS_tuxcall SYS_security SYS_vserver
        ],
        answer: Answer::Error(libc::ENOSYS),
        reason: "Not in every kernel, or in none any more; nothing of today needs them.",
    },
];

/// For an instance's first process, once the runtime runs. Every other call is refused with EPERM.
pub(super) const FIRST_PROCESS: &[Group] = &[
    Group {
        calls: calls![SYS_ppoll SYS_read SYS_wait4 SYS_waitid SYS_recvmsg SYS_restart_syscall],
        older: older![SYS_poll],
        answer: Answer::Allow,
        reason: "Wait for the worker's orders and for the ends of processes.",
    },
    Group {
        calls: calls![SYS_sendmsg SYS_write SYS_close],
        older: older![],
        answer: Answer::Allow,
        reason: "Report how the runtime ended; thaw the instance if the worker is gone. It can open \
                 nothing.",
    },
    Group {
        calls: calls![SYS_fcntl],
        older: older![],
        answer: Answer::AllowIf {
            any: &[&[equals(1, libc::F_GETFD)]],
            when: "`F_GETFD`",
            otherwise: libc::EPERM,
        },
        reason: "Rust's library looks whether a descriptor is open before it closes it.",
    },
    Group {
        calls: calls![SYS_socket],
        older: older![],
        answer: Answer::AllowIf {
            any: &[&[
                equals(0, libc::AF_INET),
                equals(1, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK),
            ]],
            when: "`AF_INET` and `SOCK_STREAM`",
            otherwise: libc::EPERM,
        },
        reason: "Make the sockets in the instance's network by which the worker reaches its HTTP \
                 server. It can connect none itself.",
    },
    Group {
        calls: calls![SYS_kill],
        older: older![],
        answer: Answer::AllowIf {
            any: &[&[equals(1, libc::SIGTERM)]],
            when: "`SIGTERM`",
            otherwise: libc::EPERM,
        },
        reason: "Pass it on to the runtime.",
    },
    Group {
        calls: calls![SYS_prctl],
        older: older![],
        answer: Answer::AllowIf {
            any: &[&[equals(0, libc::PR_SET_PDEATHSIG)]],
            when: "`PR_SET_PDEATHSIG`",
            otherwise: libc::EPERM,
        },
        reason: "Outlive the worker for as long as thawing takes.",
    },
    Group {
        calls: calls![SYS_brk SYS_munmap SYS_mremap SYS_madvise],
        older: older![],
        answer: Answer::Allow,
        reason: "Memory.",
    },
    Group {
        calls: calls![SYS_mmap SYS_mprotect],
        older: older![],
        answer: Answer::AllowIf {
            any: &[&[without(2, libc::PROT_EXEC)]],
            when: "without `PROT_EXEC`",
            otherwise: libc::EPERM,
        },
        reason: "Memory that is not executed.",
    },
    Group {
        calls: calls![
            SYS_exit SYS_exit_group SYS_futex SYS_sigaltstack SYS_rt_sigaction SYS_rt_sigprocmask
            SYS_rt_sigreturn SYS_getpid SYS_gettid SYS_clock_gettime
        ],
        older: older![],
        answer: Answer::Allow,
        reason: "End, by itself or by a panic.",
    },
    Group {
        calls: calls![SYS_tgkill],
        older: older![],
        answer: Answer::AllowIf {
            any: &[&[equals(2, libc::SIGABRT)]],
            when: "`SIGABRT`",
            otherwise: libc::EPERM,
        },
        reason: "`abort` sends it to itself.",
    },
];
