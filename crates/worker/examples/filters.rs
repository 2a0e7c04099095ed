//! What a filter of system calls costs, measured in a process of its own for each figure.
//!
//! Run it with `cargo run --release -p uncia-worker --example filters`.

use std::time::Instant;

use libc::c_long;
use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use uncia_worker::instance::SystemCallFilter;

const CALLS: u32 = 1_000_000;
const ROUNDS: usize = 9;

/// About as many as the table allows.
const LISTED: i64 = 290;

/// A figure, measured in the process that calls it.
type Measure = fn() -> f64;

#[expect(clippy::print_stdout, reason = "its purpose")]
fn main() {
    println!("nanoseconds a call, median of {ROUNDS} processes of {CALLS} calls each");
    let calls: [(&str, Measure); 3] = [
        ("getppid, allowed whatever its arguments", || each(libc::SYS_getppid, 0)),
        ("personality(-1), allowed by its argument", || each(libc::SYS_personality, -1)),
        ("mount, refused", || each(libc::SYS_mount, -1)),
    ];
    for (name, measure) in calls {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            without.push(child(measure));
            with.push(child(|| {
                SystemCallFilter::for_functions().install().expect("a filter");
                measure()
            }));
        }
        println!("{name}: {:.0} without, {:.0} with", median(without), median(with));
    }
    println!("microseconds to make and install a filter, median of {ROUNDS} processes");
    let installs: [(&str, Measure); 2] = [
        ("this one", || timed(|| SystemCallFilter::for_functions().install().expect("a filter"))),
        ("a comparison for each of 290 calls (SeccompFilter)", || timed(list)),
    ];
    for (name, measure) in installs {
        println!("{name}: {:.0}", median((0..ROUNDS).map(|_| child(measure)).collect()));
    }
}

fn each(number: c_long, argument: c_long) -> f64 {
    let began = Instant::now();
    for _ in 0..CALLS {
        // SAFETY: none of these calls writes to memory.
        let _ = Errno::result(unsafe { libc::syscall(number, argument, 0, 0, 0, 0) });
    }
    began.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

fn timed(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_nanos() as f64 / 1000.0
}

fn list() {
    let rules = (0..LISTED).map(|number| (number, vec![])).collect();
    let machine = std::env::consts::ARCH.try_into().expect("a known machine");
    let refused = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, machine);
    let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a program");
    apply_filter(&program).expect("a filter");
}

/// Measures in a child, which the filter stays with.
fn child(measure: impl FnOnce() -> f64) -> f64 {
    let (read, write) = nix::unistd::pipe().expect("a pipe");
    // SAFETY: this process has one thread, so the child may do whatever its parent could.
    let pid = match unsafe { libc::fork() } {
        0 => {
            let figure = measure().to_ne_bytes();
            let sent = nix::unistd::write(&write, &figure);
            // SAFETY: ends the child without running what belongs to its parent.
            unsafe { libc::_exit(i32::from(sent != Ok(figure.len()))) }
        }
        pid => Pid::from_raw(pid),
    };
    let mut figure = [0; size_of::<f64>()];
    nix::unistd::read(&read, &mut figure).expect("a figure");
    assert!(matches!(waitpid(pid, None), Ok(WaitStatus::Exited(_, 0))));
    f64::from_ne_bytes(figure)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
