//! The filter of system calls that the runtime and all it starts run under.
//!
//! It refuses by a list ([`RULES`]) and allows everything else: what leads out of the instance's
//! namespaces or into new ones, and sockets of families that know no network namespace. The filter
//! is a program for the kernel's classic packet filter, which reads a call's number and arguments.

use nix::errno::Errno;

use super::{Doing, Failure};

/// The architecture that a call's number is of, as `linux/audit.h` writes it.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Numbers from here on are those of x86-64's second calling convention (x32), which would pass the
/// list; kernels without it answer ENOSYS.
const X32_CALLS: u32 = 0x4000_0000;

/// All namespaces but that of clocks, whose flag `clone` uses for the child's signal.
const NEW_NAMESPACE: u32 = (libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS) as u32;

/// What a function may open sockets of.
const FAMILIES: &[u32] = &[
    libc::AF_UNIX as u32,
    libc::AF_INET as u32,
    libc::AF_INET6 as u32,
    // The C library lists network interfaces with it.
    libc::AF_NETLINK as u32,
];

/// When a system call is refused. Only the first argument's lower half can be asked for.
enum When {
    Always,
    /// The first argument has one of these bits.
    AnyBit(u32),
    /// The first argument is none of these.
    NoneOf(&'static [u32]),
}

/// System call, when it is refused, and with which error.
const RULES: &[(libc::c_long, When, i32)] = &[
    (libc::SYS_unshare, When::AnyBit(NEW_NAMESPACE), libc::EPERM),
    (libc::SYS_clone, When::AnyBit(NEW_NAMESPACE), libc::EPERM),
    // Its flags lie in memory, where no filter reads; C libraries then use `clone`.
    (libc::SYS_clone3, When::Always, libc::ENOSYS),
    (libc::SYS_setns, When::Always, libc::EPERM),
    (libc::SYS_socket, When::NoneOf(FAMILIES), libc::EAFNOSUPPORT),
    (libc::SYS_socketpair, When::NoneOf(FAMILIES), libc::EAFNOSUPPORT),
    // It makes sockets past this filter.
    (libc::SYS_io_uring_setup, When::Always, libc::ENOSYS),
];

/// Offsets in `seccomp_data`, on little-endian machines.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

/// Puts this process and all that come of it under the filter. It must be unable to gain
/// privileges.
pub(super) fn install() -> Result<(), Failure> {
    let mut filter = program();
    let length = u16::try_from(filter.len()).expect("the table is short");
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    let apply = |flags: libc::c_ulong| {
        // SAFETY: the program is a live structure that the call only reads, as is its filter.
        Errno::result(unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            )
        })
    };
    // Kernels before 5.16 slow filtered processes down, unless told not to; before 4.17 they could
    // not be told.
    apply(libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW)
        .or_else(|_| apply(0))
        .map(drop)
        .doing("filter system calls (the kernel needs CONFIG_SECCOMP_FILTER)")
}

fn program() -> Vec<libc::sock_filter> {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W};
    let load = |offset| statement(BPF_LD | BPF_W | BPF_ABS, offset);
    let give = |result| statement(BPF_RET | BPF_K, result);
    let refuse = |errno: i32| give(libc::SECCOMP_RET_ERRNO | errno.unsigned_abs());
    let jump = |test, value, yes, no| libc::sock_filter {
        jt: yes,
        jf: no,
        ..statement(BPF_JMP | test | BPF_K, value)
    };
    let mut program = vec![
        load(ARCH),
        jump(BPF_JEQ, ARCHITECTURE, 1, 0),
        // A program for another machine, whose numbers mean other calls.
        give(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
        jump(BPF_JGE, X32_CALLS, 0, 1),
        refuse(libc::ENOSYS),
    ];
    for (number, when, errno) in RULES {
        let mut body = Vec::new();
        match when {
            When::Always => {}
            When::AnyBit(bits) => {
                body.extend([load(FIRST_ARGUMENT), jump(BPF_JSET, *bits, 1, 0)]);
                body.push(give(libc::SECCOMP_RET_ALLOW));
            }
            When::NoneOf(values) => {
                body.push(load(FIRST_ARGUMENT));
                for value in *values {
                    body.push(jump(BPF_JEQ, *value, 0, 1));
                    body.push(give(libc::SECCOMP_RET_ALLOW));
                }
            }
        }
        body.push(refuse(*errno));
        let number = u32::try_from(*number).expect("system calls have small numbers");
        let length = u8::try_from(body.len()).expect("a rule is short");
        // The number is still loaded after a rule that did not match.
        program.push(jump(BPF_JEQ, number, 0, length));
        program.extend(body);
    }
    program.push(give(libc::SECCOMP_RET_ALLOW));
    program
}

fn statement(code: u32, value: u32) -> libc::sock_filter {
    let code = u16::try_from(code).expect("instructions have 16 bits");
    libc::sock_filter { code, jt: 0, jf: 0, k: value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says of a call: runs its program as the kernel does.
    fn verdict(architecture: u32, number: u32, first: u32) -> u32 {
        let (program, mut at, mut loaded) = (program(), 0, 0);
        loop {
            let step = program[at];
            at += 1;
            let (code, value) = (u32::from(step.code), step.k);
            let holds = match code & 0xf0 {
                _ if code & 0x07 == libc::BPF_RET => return value,
                _ if code & 0x07 == libc::BPF_LD => {
                    loaded = match value {
                        NUMBER => number,
                        ARCH => architecture,
                        FIRST_ARGUMENT => first,
                        _ => panic!("{value}"),
                    };
                    continue;
                }
                libc::BPF_JEQ => loaded == value,
                libc::BPF_JGE => loaded >= value,
                libc::BPF_JSET => loaded & value != 0,
                other => panic!("{other}"),
            };
            at += usize::from(if holds { step.jt } else { step.jf });
        }
    }

    fn of(number: libc::c_long, first: i32) -> u32 {
        verdict(ARCHITECTURE, u32::try_from(number).unwrap(), first.cast_unsigned())
    }

    fn error(errno: i32) -> u32 {
        libc::SECCOMP_RET_ERRNO | errno.unsigned_abs()
    }

    #[test]
    fn what_is_refused_and_what_is_not() {
        assert_eq!(of(libc::SYS_clone, libc::CLONE_NEWUSER | libc::SIGCHLD), error(libc::EPERM));
        assert_eq!(of(libc::SYS_clone, libc::CLONE_VM), libc::SECCOMP_RET_ALLOW);
        assert_eq!(of(libc::SYS_clone3, 0), error(libc::ENOSYS));
        assert_eq!(of(libc::SYS_unshare, libc::CLONE_NEWNET), error(libc::EPERM));
        assert_eq!(of(libc::SYS_unshare, libc::CLONE_FILES), libc::SECCOMP_RET_ALLOW);
        assert_eq!(of(libc::SYS_setns, 3), error(libc::EPERM));
        assert_eq!(of(libc::SYS_socket, libc::AF_VSOCK), error(libc::EAFNOSUPPORT));
        assert_eq!(of(libc::SYS_socket, libc::AF_NETLINK), libc::SECCOMP_RET_ALLOW);
        assert_eq!(of(libc::SYS_io_uring_setup, 1), error(libc::ENOSYS));
        assert_eq!(of(libc::SYS_read, libc::CLONE_NEWUSER), libc::SECCOMP_RET_ALLOW);
    }

    #[test]
    fn other_calling_conventions_do_not_pass_the_list() {
        let number = u32::try_from(libc::SYS_unshare).unwrap();
        let flags = libc::CLONE_NEWUSER.cast_unsigned();
        assert_eq!(verdict(ARCHITECTURE, number | X32_CALLS, flags), error(libc::ENOSYS));
        let i386 = 0x4000_0003;
        assert_eq!(verdict(i386, number, flags), libc::SECCOMP_RET_KILL_PROCESS);
    }
}
