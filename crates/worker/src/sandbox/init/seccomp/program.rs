//! Tables of system calls as programs for the kernel's classic packet filter.
//!
//! A program looks a call's number up by bisection. The kernel checks and translates a program each
//! time that it is installed, and tries it for every number: a comparison for each allowed call, as
//! `SeccompFilter` of the crate seccompiler would make it, costs ten times as much at each start of
//! an instance. The comparisons of arguments are seccompiler's.

use std::collections::BTreeMap;

use libc::{c_int, c_long};
use seccompiler::{
    BpfProgram, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule, sock_filter,
};

use super::table::{Answer, Group, Test};

/// The architecture that a call's number is of, as `linux/audit.h` writes it.
#[cfg(target_arch = "x86_64")]
pub(in crate::sandbox) const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
pub(in crate::sandbox) const ARCHITECTURE: u32 = 0xC000_00B7;

/// Offsets in `seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

/// The program for a table; calls in none of its groups get the error `otherwise`.
///
/// The numbers of x86-64's second calling convention (x32) are beyond all of a table's.
pub(super) fn compile(table: &[Group], otherwise: c_int) -> BpfProgram {
    let mut program = vec![
        load(ARCH),
        jump(libc::BPF_JEQ, ARCHITECTURE, 1, 0),
        // A program for another machine, whose numbers mean other calls.
        give(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
    ];
    program.extend(bisect(&ranges(table, Answer::Error(otherwise))));
    program
}

/// Numbers from which on calls are answered alike, in order, from 0.
fn ranges(table: &[Group], otherwise: Answer) -> Vec<(u32, Answer)> {
    let mut answers = BTreeMap::new();
    for group in table {
        answers.extend(group.calls().map(|call| (unsigned(call.number), group.answer)));
    }
    let mut ranges: Vec<(u32, Answer)> = Vec::new();
    let mut begin = |number, answer| {
        if ranges.last().is_none_or(|(_, last)| *last != answer) {
            ranges.push((number, answer));
        }
    };
    let mut next = 0;
    for (number, answer) in answers {
        if number > next {
            begin(next, otherwise);
        }
        begin(number, answer);
        next = number + 1;
    }
    begin(next, otherwise);
    ranges
}

fn bisect(ranges: &[(u32, Answer)]) -> BpfProgram {
    if let [(_, answer)] = ranges {
        return leaf(answer);
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let mut below = bisect(low);
    let mut program = match u8::try_from(below.len()) {
        Ok(length) => vec![jump(libc::BPF_JGE, high[0].0, length, 0)],
        // Only the jump without a condition goes that far.
        Err(_) => {
            let length = u32::try_from(below.len()).expect("a table is short");
            let far = instruction(libc::BPF_JMP | libc::BPF_JA, length, 0, 0);
            vec![jump(libc::BPF_JGE, high[0].0, 0, 1), far]
        }
    };
    program.append(&mut below);
    program.extend(bisect(high));
    program
}

/// What is done once the call is known.
fn leaf(answer: &Answer) -> BpfProgram {
    let (allow, refuse) = (give(libc::SECCOMP_RET_ALLOW), |errno: c_int| {
        give(libc::SECCOMP_RET_ERRNO | errno.unsigned_abs())
    });
    match *answer {
        Answer::Allow => vec![allow],
        Answer::Error(errno) => vec![refuse(errno)],
        Answer::AllowIf { any, otherwise, .. } => {
            let mut program = BpfProgram::new();
            for tests in any {
                let conditions = tests.iter().map(condition).collect();
                let rule = SeccompRule::new(conditions).expect("a rule has conditions");
                program.extend(BpfProgram::from(rule));
                program.push(allow.clone());
            }
            program.push(refuse(otherwise));
            program
        }
    }
}

fn condition(test: &Test) -> SeccompCondition {
    let operator = SeccompCmpOp::MaskedEq(test.mask.into());
    SeccompCondition::new(test.argument, SeccompCmpArgLen::Dword, operator, test.value.into())
        .expect("a call has six arguments")
}

fn unsigned(number: c_long) -> u32 {
    u32::try_from(number).expect("system calls have small numbers")
}

fn load(offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

fn give(result: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, result, 0, 0)
}

fn jump(test: u32, value: u32, yes: u8, no: u8) -> sock_filter {
    instruction(libc::BPF_JMP | test | libc::BPF_K, value, yes, no)
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    let code = u16::try_from(code).expect("instructions have 16 bits");
    sock_filter { code, jt, jf, k }
}
