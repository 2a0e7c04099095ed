//! What cannot be simulated, found before anything is.

use uncia_policy::{Resources, UnknownPolicy, sharing};

use crate::setting::{Setting, Trace};

/// Why something cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A policy or rule does not exist.
    #[error(transparent)]
    UnknownPolicy(#[from] UnknownPolicy),
    /// There is no worker.
    #[error("there is no worker")]
    NoWorker,
    /// There is no function.
    #[error("there is no function")]
    NoFunction,
    /// There is nothing to draw the duration of a start from.
    #[error("starts: there is no duration")]
    NoStart,
    /// An interval of no length.
    #[error("interval: must be longer than 0 ns")]
    NoInterval,
    /// A worker without CPU or memory.
    #[error("workers[{0}]: has no CPU or no memory")]
    EmptyWorker(usize),
    /// A worker with more CPU or memory than sums of are exact.
    #[error("workers[{0}]: has more than 2^40 micro-vCPU or 2^50 bytes")]
    HugeWorker(usize),
    /// A failure of a worker that there is not.
    #[error("failures[{0}]: there is no worker {1}")]
    NoSuchWorker(usize, usize),
    /// Times between failures, or until workers are back, of no length.
    #[error("failures: times between them and until a worker is back must be longer than 0 ns")]
    NoFailureTime,
    /// An instance that serves several requests at once.
    #[error(
        "functions[{0}] ({1}): concurrency {2}; a simulated instance serves one request at a time"
    )]
    Concurrency(usize, String, u32),
    /// A function that no worker can hold.
    #[error(
        "functions[{0}] ({1}): needs {cpu} vCPU and {memory}, and no worker has as much",
        cpu = vcpu(.2.cpu), memory = memory(.2.memory)
    )]
    TooLarge(usize, String, Resources),
    /// A function that never runs.
    #[error(
        "functions[{0}] ({1}): reserves no CPU, so that it never runs where cores are shared by the \
         rule {2:?}"
    )]
    NeverRuns(usize, String, String),
    /// An invocation of a function that there is not.
    #[error("invocation {0}: function {1}, and there are {2}")]
    UnknownFunction(usize, usize, usize),
    /// An invocation that comes before the one before it.
    #[error("invocation {0}: arrives before the one before it")]
    OutOfOrder(usize),
    /// An invocation that holds more memory than its function may.
    #[error(
        "invocation {0}: holds {held}, and its function {2} may hold {most}",
        held = memory(*.1), most = memory(*.3)
    )]
    TooMuchMemory(usize, u64, String, u64),
    /// Something is so large that sums of it are not exact.
    #[error("invocation {0}: ends 292 years after the start, or later")]
    TooLong(usize),
}

/// A part of a CPU in vCPU, as people write it: exact, since a setting has at most 2^40 micro-vCPU.
fn vcpu(micro: u64) -> f64 {
    micro as f64 / 1e6
}

/// Memory in MB of 2^20 bytes, to a thousandth; below one in bytes.
fn memory(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    match bytes {
        0..MIB => format!("{bytes} bytes"),
        _ if bytes.is_multiple_of(MIB) => format!("{} MB", bytes / MIB),
        _ => format!("{:.3} MB", bytes as f64 / MIB as f64),
    }
}

/// A time that is never reached, far from where sums overflow.
pub(crate) const LATEST: u64 = i64::MAX as u64;

pub(crate) fn check(setting: &Setting, trace: &Trace) -> Result<(), SettingError> {
    let rule = sharing::from_name(&setting.sharing)?;
    if setting.workers.is_empty() {
        return Err(SettingError::NoWorker);
    }
    if setting.functions.is_empty() {
        return Err(SettingError::NoFunction);
    }
    if setting.starts.is_empty() {
        return Err(SettingError::NoStart);
    }
    if setting.interval == Some(0) {
        return Err(SettingError::NoInterval);
    }
    if let Some(index) = setting.workers.iter().position(|it| it.cpu == 0 || it.memory == 0) {
        return Err(SettingError::EmptyWorker(index));
    }
    let is_huge = |it: &Resources| it.cpu > 1 << 40 || it.memory > 1 << 50;
    if let Some(index) = setting.workers.iter().position(is_huge) {
        return Err(SettingError::HugeWorker(index));
    }
    for (index, failure) in setting.failures.iter().enumerate() {
        if failure.worker >= setting.workers.len() {
            return Err(SettingError::NoSuchWorker(index, failure.worker));
        }
    }
    let mut times = setting.failures.iter().map(|failure| failure.lasts);
    if times.any(|lasts| lasts == 0)
        || setting.random_failures.is_some_and(|(works, lasts)| works == 0 || lasts == 0)
    {
        return Err(SettingError::NoFailureTime);
    }
    for (index, function) in setting.functions.iter().enumerate() {
        let (settings, name) = (&function.settings, || function.name.clone());
        if settings.concurrency > 1 {
            return Err(SettingError::Concurrency(index, name(), settings.concurrency));
        }
        if !setting.workers.iter().any(|worker| settings.allocation.fits(*worker)) {
            return Err(SettingError::TooLarge(index, name(), settings.allocation));
        }
        if settings.reservation().cpu == 0 && rule.is_exclusive() || settings.allocation.cpu == 0 {
            return Err(SettingError::NeverRuns(index, name(), setting.sharing.clone()));
        }
    }
    let mut last = 0;
    for (index, invocation) in trace.invocations.iter().enumerate() {
        let Some(function) = setting.functions.get(invocation.function as usize) else {
            let (function, functions) = (invocation.function as usize, setting.functions.len());
            return Err(SettingError::UnknownFunction(index, function, functions));
        };
        if invocation.arrival < last {
            return Err(SettingError::OutOfOrder(index));
        }
        last = invocation.arrival;
        let phases = trace.phases(invocation);
        let most = phases.iter().map(|phase| phase.memory).max().unwrap_or(0);
        let limit = function.settings.allocation.memory;
        if most > limit {
            let name = function.name.clone();
            return Err(SettingError::TooMuchMemory(index, most, name, limit));
        }
        let duration = phases.iter().try_fold(last, |sum, phase| sum.checked_add(phase.duration));
        if duration.is_none_or(|end| end > LATEST) {
            return Err(SettingError::TooLong(index));
        }
    }
    Ok(())
}
