//! Why programs cannot run here, a sentence each.

use std::error::Error;
use std::path::Path;

use aya::Btf;

/// Where the kernel shows its types.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The kernel's types.
pub(crate) fn types() -> Result<Btf, String> {
    if !Path::new(TYPES).exists() {
        return Err(format!(
            "the kernel does not show its types ({TYPES}): it was built without BTF \
             (CONFIG_DEBUG_INFO_BTF), or /sys is not mounted"
        ));
    }
    Btf::from_sys_fs().map_err(|error| format!("{TYPES} cannot be read: {}", chain(&error)))
}

/// What the kernel, or the loader in its stead, has refused.
pub(crate) fn refused(what: &str, error: &(dyn Error + 'static)) -> String {
    let text = chain(error);
    match code(error) {
        Some(libc::EPERM | libc::EACCES) if !is_explained(&text) => "the kernel lets this user \
             load no programs: run as root, or with CAP_BPF and CAP_PERFMON"
            .to_owned(),
        Some(libc::ENOSYS) => "the kernel was built without BPF (CONFIG_BPF_SYSCALL)".to_owned(),
        _ => format!("the kernel refuses {what}: {text}"),
    }
}

/// Whether the kernel's verifier has said why.
fn is_explained(text: &str) -> bool {
    text.contains("processed ")
}

/// The number of the system's error at the end of a chain.
fn code(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return io.raw_os_error();
        }
        next = error.source();
    }
    None
}

/// An error and its causes, on one line. Of the verifier's log, the lines that say what is wrong.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [first, .., said, processed] if processed.starts_with("processed ") => {
            format!("{first} {said} ({processed})")
        }
        _ => lines.join(" "),
    }
}
