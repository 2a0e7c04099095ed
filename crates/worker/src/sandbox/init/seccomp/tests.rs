use std::collections::{BTreeMap, BTreeSet};

use libc::c_long;

use super::program::{ARCHITECTURE, compile};
use super::table::{Answer, FIRST_PROCESS, FUNCTION, Group, Test};
use super::*;

/// Beyond the numbers of all calls that there are.
const MOST: c_long = 1024;

/// The bit that marks calls of x86-64's second convention.
const X32: u32 = 0x4000_0000;

/// uretprobe and uprobe of x86-64, which newer kernels do not show to filters: only the code that the
/// kernel puts into a probed program may make them, anybody else ends by SIGILL.
const UNFILTERED: [c_long; 2] = [335, 336];

const I386: u32 = 0x4000_0003;

/// What the program says of a call: runs it as the kernel does.
fn verdict(program: &BpfProgram, architecture: u32, number: u32, arguments: [u32; 6]) -> u32 {
    let (mut at, mut loaded) = (0, 0);
    loop {
        let step = &program[at];
        at += 1;
        let (code, value) = (u32::from(step.code), step.k);
        let holds = match (code & 0x07, code & 0xf0) {
            (libc::BPF_RET, _) => return value,
            (libc::BPF_LD, _) => {
                loaded = match value {
                    0 => number,
                    4 => architecture,
                    16.. => arguments[(value as usize - 16) / 8],
                    _ => panic!("{value}"),
                };
                continue;
            }
            (libc::BPF_ALU, libc::BPF_AND) => {
                loaded &= value;
                continue;
            }
            (libc::BPF_JMP, libc::BPF_JA) => {
                at += value as usize;
                continue;
            }
            (libc::BPF_JMP, libc::BPF_JEQ) => loaded == value,
            (libc::BPF_JMP, libc::BPF_JGE) => loaded >= value,
            other => panic!("{other:?}"),
        };
        at += usize::from(if holds { step.jt } else { step.jf });
    }
}

fn error(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno.unsigned_abs()
}

fn answers(table: &[Group]) -> BTreeMap<c_long, Answer> {
    let calls = table.iter().flat_map(|group| group.calls().map(|call| (call, group.answer)));
    calls.map(|(call, answer)| (call.number, answer)).collect()
}

/// Arguments for which all tests hold.
fn satisfying(tests: &[Test]) -> [u32; 6] {
    let mut arguments = [0; 6];
    for test in tests {
        arguments[usize::from(test.argument)] = test.value;
    }
    arguments
}

#[test]
fn every_call_is_in_one_group() {
    for table in [FUNCTION, FIRST_PROCESS] {
        let mut numbers = BTreeSet::new();
        for call in table.iter().flat_map(Group::calls) {
            assert!(numbers.insert(call.number), "{} is listed twice", call.constant);
        }
    }
}

/// Numbers that no call has, or whose call is newer than the table.
#[test]
fn no_call_is_forgotten() {
    let listed = answers(FUNCTION);
    let unlisted: Vec<_> = (0..463).filter(|number| !listed.contains_key(number)).collect();
    // create_module, get_kernel_syms, query_module; io_pgetevents; numbers of no call.
    #[cfg(target_arch = "x86_64")]
    let older = [174, 177, 178, 333].into_iter().chain(335..424);
    #[cfg(target_arch = "aarch64")]
    let older = (244..260).chain([292]).chain(295..424);
    // Of kernels since 6.5.
    let newer = [451].into_iter().chain(453..462);
    assert_eq!(unlisted, older.chain(newer).collect::<Vec<_>>());
}

#[test]
fn programs_say_what_their_tables_say() {
    for (table, otherwise) in [(FUNCTION, libc::ENOSYS), (FIRST_PROCESS, libc::EPERM)] {
        let (program, answers) = (compile(table, otherwise), answers(table));
        for number in 0..MOST {
            let of = |arguments| verdict(&program, ARCHITECTURE, number as u32, arguments);
            match answers.get(&number) {
                None => assert_eq!(of([0; 6]), error(otherwise), "{number}"),
                Some(Answer::Error(errno)) => assert_eq!(of([0; 6]), error(*errno), "{number}"),
                Some(Answer::Allow) => assert_eq!(of([0; 6]), libc::SECCOMP_RET_ALLOW, "{number}"),
                Some(Answer::AllowIf { any, otherwise, .. }) => {
                    for tests in *any {
                        let arguments = satisfying(tests);
                        assert_eq!(of(arguments), libc::SECCOMP_RET_ALLOW, "{number}");
                        for test in *tests {
                            let mut arguments = arguments;
                            // One bit that counts is wrong.
                            for bit in (0..32).map(|bit| 1 << bit).filter(|bit| test.mask & bit > 0)
                            {
                                arguments[usize::from(test.argument)] = test.value ^ bit;
                                let allowed = any.iter().any(|tests| {
                                    tests.iter().all(|it| {
                                        let argument = arguments[usize::from(it.argument)];
                                        argument & it.mask == it.value
                                    })
                                });
                                let expected = if allowed {
                                    libc::SECCOMP_RET_ALLOW
                                } else {
                                    error(*otherwise)
                                };
                                assert_eq!(of(arguments), expected, "{number} {bit:x}");
                            }
                        }
                    }
                }
            }
            let i386 = verdict(&program, I386, number as u32, [0; 6]);
            assert_eq!(i386, libc::SECCOMP_RET_KILL_PROCESS);
            let x32 = verdict(&program, ARCHITECTURE, number as u32 | X32, [0; 6]);
            assert_eq!(x32, error(otherwise));
        }
    }
}

/// What is easy to get wrong in a table, by its arguments.
#[test]
fn arguments_that_matter() {
    let program = SystemCallFilter::for_functions().program;
    let of3 = |number: c_long, arguments: [i32; 3]| {
        let [first, second, third] = arguments.map(i32::cast_unsigned);
        let arguments = [first, second, third, 0, 0, 0];
        verdict(&program, ARCHITECTURE, u32::try_from(number).unwrap(), arguments)
    };
    let of = |number, first, third| of3(number, [first, libc::SOCK_STREAM, third]);
    let allowed = libc::SECCOMP_RET_ALLOW;
    let threads = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_SETTLS;
    assert_eq!(of(libc::SYS_clone, threads, 0), allowed);
    // The bit of CLONE_NEWTIME is part of the signal here.
    assert_eq!(of(libc::SYS_clone, libc::CLONE_NEWTIME, 0), allowed);
    assert_eq!(of(libc::SYS_clone, threads | libc::CLONE_NEWUSER, 0), error(libc::EPERM));
    assert_eq!(of(libc::SYS_unshare, libc::CLONE_FILES, 0), allowed);
    assert_eq!(of(libc::SYS_unshare, libc::CLONE_NEWTIME, 0), error(libc::EPERM));
    assert_eq!(of(libc::SYS_socket, libc::AF_NETLINK, libc::NETLINK_ROUTE), allowed);
    let audit = of(libc::SYS_socket, libc::AF_NETLINK, libc::NETLINK_AUDIT);
    assert_eq!(audit, error(libc::EAFNOSUPPORT));
    assert_eq!(of(libc::SYS_socket, libc::AF_INET, libc::IPPROTO_TCP), allowed);
    assert_eq!(of(libc::SYS_socket, libc::AF_INET6, libc::IPPROTO_UDP), allowed);
    for protocol in [libc::IPPROTO_SCTP, libc::IPPROTO_MPTCP, 115, 256] {
        for family in [libc::AF_INET, libc::AF_INET6] {
            assert_eq!(of(libc::SYS_socket, family, protocol), error(libc::EAFNOSUPPORT));
        }
    }
    let fcntl = |command| of3(libc::SYS_fcntl, [3, command, 0]);
    for command in [libc::F_SETLEASE, 1026] {
        assert_eq!(fcntl(command), error(libc::EINVAL), "{command}");
    }
    for command in (0..20).chain([1025]).chain(1030..=1038) {
        assert_eq!(fcntl(command), allowed, "{command}");
    }
    let core_scheduling = 62;
    for option in (0..=80).chain([libc::PR_SET_PTRACER, libc::PR_SET_VMA]) {
        let answer = if option == core_scheduling { error(libc::EINVAL) } else { allowed };
        assert_eq!(of3(libc::SYS_prctl, [option, 0, 0]), answer, "{option}");
    }
    assert_eq!(of(libc::SYS_socket, libc::AF_VSOCK, 0), error(libc::EAFNOSUPPORT));
    assert_eq!(of(libc::SYS_socketpair, libc::AF_INET, 0), error(libc::EAFNOSUPPORT));
    let datagrams = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    assert_eq!(of3(libc::SYS_socket, [libc::AF_INET6, datagrams, 0]), allowed);
    // SOCK_PACKET, another name of AF_PACKET, which the crate libc advises against.
    let packet = 0b1010 | libc::SOCK_CLOEXEC;
    let packet = of3(libc::SYS_socket, [libc::AF_INET, packet, 0]);
    assert_eq!(packet, error(libc::EAFNOSUPPORT));
    let no_random_addresses = 0x4_0000;
    assert_eq!(of(libc::SYS_personality, no_random_addresses, 0), error(libc::EPERM));
    let program = SystemCallFilter::for_first_process().program;
    let kill = |signal: i32| {
        let arguments = [2, signal.cast_unsigned(), 0, 0, 0, 0];
        verdict(&program, ARCHITECTURE, u32::try_from(libc::SYS_kill).unwrap(), arguments)
    };
    assert_eq!(kill(libc::SIGTERM), allowed);
    assert_eq!(kill(libc::SIGKILL), error(libc::EPERM));
}

/// How a child ends that does `body` under the filter. It must make only system calls.
fn child(filter: &SystemCallFilter, body: impl FnOnce() -> i32) -> WaitStatus {
    // SAFETY: the child makes only system calls.
    let pid = unsafe {
        match libc::fork() {
            0 => {
                let code = if filter.install().is_ok() { body() } else { 254 };
                libc::_exit(code)
            }
            pid => Pid::from_raw(pid),
        }
    };
    waitpid(pid, None).unwrap()
}

fn call(number: c_long, it: [c_long; 6]) -> Result<c_long, Errno> {
    // SAFETY: who calls this passes no pointers that the kernel would write to.
    Errno::result(unsafe { libc::syscall(number, it[0], it[1], it[2], it[3], it[4], it[5]) })
}

/// With arguments that no call accepts, should one get through.
#[test]
fn the_kernel_refuses_each_call_by_its_number() {
    if probe().is_err() {
        return;
    }
    let answers = answers(FUNCTION);
    let expected: Vec<_> = (0..MOST)
        .filter(|number| !UNFILTERED.contains(number))
        .filter_map(|number| match answers.get(&number) {
            None => Some((number, libc::ENOSYS)),
            Some(Answer::Error(errno)) => Some((number, *errno)),
            Some(_) => None,
        })
        .collect();
    assert!(expected.len() > 600);
    let mut wrong = [0; 2];
    let (read, write) = nix::unistd::pipe().unwrap();
    let status = child(&SystemCallFilter::for_functions(), || {
        for &(number, errno) in &expected {
            let result = match call(number, [-1; 6]) {
                Ok(result) => i32::from(result != 0),
                Err(error) => error as i32,
            };
            if result != errno {
                let _ = nix::unistd::write(&write, &[number as u8, (number >> 8) as u8]);
                return 1;
            }
        }
        0
    });
    drop(write);
    let _ = nix::unistd::read(&read, &mut wrong);
    let number = u16::from_le_bytes(wrong);
    assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}, number {number}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn other_conventions_are_refused_by_the_kernel() {
    if probe().is_err() {
        return;
    }
    let filter = SystemCallFilter::for_functions();
    let x32 = child(&filter, || {
        let number = libc::SYS_getpid | c_long::from(X32);
        i32::from(call(number, [0; 6]) != Err(Errno::ENOSYS))
    });
    assert!(matches!(x32, WaitStatus::Exited(_, 0)), "{x32:?}");
    let i386 = child(&filter, || {
        let mut result: i64 = 20;
        // SAFETY: getpid of the 32-bit convention, which touches no memory.
        unsafe {
            std::arch::asm!(
                "int 0x80", inout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _
            );
        }
        // A kernel without that convention says so.
        i32::from(result != -i64::from(libc::ENOSYS))
    });
    let refused = matches!(
        i386,
        WaitStatus::Signaled(
            _,
            nix::sys::signal::Signal::SIGSYS | nix::sys::signal::Signal::SIGSEGV,
            _
        )
    );
    assert!(refused || matches!(i386, WaitStatus::Exited(_, 0)), "{i386:?}");
}

#[test]
fn the_first_process_can_begin_nothing() {
    if probe().is_err() {
        return;
    }
    let status = child(&SystemCallFilter::for_first_process(), || {
        let exec = c_long::from(libc::PROT_READ | libc::PROT_EXEC);
        let data = c_long::from(libc::PROT_READ | libc::PROT_WRITE);
        let private = c_long::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let refused = [
            (libc::SYS_openat, [-100, 0, 0, 0, 0, 0]),
            (libc::SYS_socket, [1, 1, 0, 0, 0, 0]),
            (libc::SYS_socket, [2, 2, 0, 0, 0, 0]),
            (libc::SYS_socket, [2, 3, 0, 0, 0, 0]),
            (libc::SYS_clone, [17, 0, 0, 0, 0, 0]),
            (libc::SYS_execve, [0; 6]),
            (libc::SYS_ptrace, [0; 6]),
            (libc::SYS_setuid, [0; 6]),
            (libc::SYS_kill, [c_long::from(i32::MAX), c_long::from(libc::SIGKILL), 0, 0, 0, 0]),
            (libc::SYS_prctl, [c_long::from(libc::PR_SET_DUMPABLE), 1, 0, 0, 0, 0]),
            (libc::SYS_mmap, [0, 4096, exec, private, -1, 0]),
        ];
        for (number, arguments) in refused {
            if call(number, arguments) != Err(Errno::EPERM) {
                return 1;
            }
        }
        let allowed = [
            (libc::SYS_mmap, [0, 4096, data, private, -1, 0]),
            (libc::SYS_prctl, [c_long::from(libc::PR_SET_PDEATHSIG), 0, 0, 0, 0, 0]),
        ];
        i32::from(allowed.into_iter().any(|(number, arguments)| call(number, arguments).is_err()))
    });
    assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
}

/// The table as Markdown.
fn markdown(table: &[Group]) -> String {
    let mut text = "| system calls | answer | reason |\n|---|---|---|\n".to_owned();
    for group in table {
        let calls: Vec<_> =
            group.calls().map(|it| it.constant.strip_prefix("SYS_").unwrap()).collect();
        let errno = |errno| match errno {
            0 => "success, and does nothing".to_owned(),
            errno => format!("`{:?}`", Errno::from_raw(errno)),
        };
        let answer = match group.answer {
            Answer::Allow => "allowed".to_owned(),
            Answer::Error(number) => errno(number),
            Answer::AllowIf { when, otherwise, .. } => {
                format!("allowed: {when}; otherwise {}", errno(otherwise))
            }
        };
        text += &format!("| `{}` | {answer} | {} |\n", calls.join("` `"), group.reason);
    }
    text
}

/// The page lists the calls of x86-64, which has all that other machines have.
#[cfg_attr(not(target_arch = "x86_64"), ignore = "other machines lack some calls of the page")]
#[test]
fn the_page_shows_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/system-calls.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut expected = page.clone();
    for (name, table) in [("functions", FUNCTION), ("first process", FIRST_PROCESS)] {
        let (begin, end) = (format!("<!-- table: {name} -->\n"), "<!-- end of table -->");
        let (before, rest) = expected.split_once(&begin).expect("the table's place in the page");
        let (_, after) = rest.split_once(end).expect("the end of the table");
        expected = format!("{before}{begin}{}{end}{after}", markdown(table));
    }
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(path, &expected).unwrap();
    } else {
        assert!(
            page == expected,
            "write it anew: UPDATE_PAGES=1 cargo test -p uncia-worker --lib the_page"
        );
    }
}
