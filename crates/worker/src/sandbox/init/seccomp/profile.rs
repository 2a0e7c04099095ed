//! The filter of functions in the words of the OCI specification, for runtimes that install it themselves.
//!
//! Source: <https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#seccomp>

use libc::c_int;
use serde_json::{Value, json};

use super::table::{Answer, FUNCTION, Group, Test};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &str = "SCMP_ARCH_X86_64";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &str = "SCMP_ARCH_AARCH64";

const ALLOW: &str = "SCMP_ACT_ALLOW";
const ERROR: &str = "SCMP_ACT_ERRNO";

/// The filter. It allows what [`FUNCTION`] does and refuses the rest. Of a call that depends on its arguments it
/// gives the error that the table does where one list of tests says what is allowed; else ENOSYS, since a
/// profile cannot say "all others".
pub(in crate::sandbox) fn profile() -> Value {
    json!({
        "defaultAction": ERROR,
        "defaultErrnoRet": libc::ENOSYS,
        "architectures": [ARCHITECTURE],
        "syscalls": FUNCTION.iter().flat_map(rules).collect::<Vec<_>>(),
    })
}

fn rules(group: &Group) -> Vec<Value> {
    let names: Vec<_> =
        group.calls().map(|call| call.constant.trim_start_matches("SYS_")).collect();
    let allow = |arguments: &[Value]| json!({"names": names, "action": ALLOW, "args": arguments});
    let refuse = |errno: c_int, arguments: &[Value]| json!({"names": names, "action": ERROR, "errnoRet": errno, "args": arguments});
    match group.answer {
        Answer::Allow => vec![allow(&[])],
        Answer::Error(errno) => vec![refuse(errno, &[])],
        Answer::AllowIf { any, otherwise, .. } => {
            let mut rules: Vec<_> = any
                .iter()
                .map(|tests| allow(&tests.iter().map(condition).collect::<Vec<_>>()))
                .collect();
            if let [tests] = any {
                let opposites = tests.iter().flat_map(opposites);
                rules.extend(opposites.map(|opposite| refuse(otherwise, &[condition(&opposite)])));
            }
            rules
        }
    }
}

fn condition(test: &Test) -> Value {
    json!({
        "index": test.argument, "op": "SCMP_CMP_MASKED_EQ", "value": test.mask, "valueTwo": test.value,
    })
}

/// Tests of which one holds if this one does not: of each bit by itself.
fn opposites(test: &Test) -> impl Iterator<Item = Test> + use<> {
    let Test { argument, mask, value } = *test;
    let bits = (0..u32::BITS).map(|bit| 1 << bit).filter(move |bit| mask & bit != 0);
    bits.map(move |bit| Test { argument, mask: bit, value: !value & bit })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(rule: &Value, name: &str, arguments: [u64; 3]) -> bool {
        let holds = |it: &Value| {
            let number = |key: &str| it[key].as_u64().unwrap();
            let argument = arguments[usize::try_from(number("index")).unwrap()];
            argument & number("value") == number("valueTwo")
        };
        rule["names"].as_array().unwrap().contains(&json!(name))
            && rule["args"].as_array().unwrap().iter().all(holds)
    }

    /// What a profile says of a call.
    fn answer(name: &str, arguments: [u64; 3]) -> Option<i64> {
        let profile = profile();
        let rules = profile["syscalls"].as_array().unwrap();
        let answers: Vec<_> = rules
            .iter()
            .filter(|rule| matches(rule, name, arguments))
            .map(|rule| rule["errnoRet"].as_i64().filter(|_| rule["action"] == ERROR))
            .collect();
        // Which of two rules counts, the specification does not say.
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{name}: {answers:?}");
        answers.first().copied().unwrap_or_else(|| profile["defaultErrnoRet"].as_i64())
    }

    #[test]
    fn calls_are_answered_as_by_the_own_filter() {
        let flags = |flags: c_int| [u64::from(flags.cast_unsigned()), 0, 0];
        for (name, arguments, wanted) in [
            ("read", [0; 3], None),
            ("mount", [0; 3], Some(libc::EPERM)),
            ("a_call_of_tomorrow", [0; 3], Some(libc::ENOSYS)),
            ("sync", [0; 3], Some(0)),
            ("clone", flags(libc::SIGCHLD), None),
            ("clone", flags(libc::CLONE_NEWUSER), Some(libc::EPERM)),
            ("clone", flags(libc::CLONE_NEWNET | libc::SIGCHLD), Some(libc::EPERM)),
            ("clone3", [0; 3], Some(libc::ENOSYS)),
            ("socketpair", flags(libc::AF_UNIX), None),
            ("socketpair", flags(libc::AF_INET), Some(libc::EAFNOSUPPORT)),
            ("socket", [2, 1, 6], None),
            ("socket", flags(libc::AF_VSOCK), Some(libc::ENOSYS)),
            ("fcntl", [0, 1, 0], None),
        ] {
            assert_eq!(answer(name, arguments), wanted.map(i64::from), "{name} {arguments:?}");
        }
    }

    #[test]
    fn no_rule_tests_an_argument_twice() {
        // Some runtimes then take one test or the other for enough.
        let profile = profile();
        for rule in profile["syscalls"].as_array().unwrap() {
            let mut tested: Vec<_> =
                rule["args"].as_array().unwrap().iter().map(|it| it["index"].as_u64()).collect();
            tested.dedup();
            assert_eq!(tested.len(), rule["args"].as_array().unwrap().len(), "{rule}");
        }
    }
}
