//! The headers of an answer that say something of the invocation.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use uncia_record::{Epoch, Invocation, Text};

use super::{OUTCOMES, STARTS, text};

/// No header that says something here has a longer name.
const LONGEST_NAME: usize = 32;

/// Headers that do not go straight into a column.
#[derive(Debug, Default)]
pub(super) struct Headers {
    pub function_error: Option<String>,
    pub outcome: Option<&'static str>,
    /// The function's error as JSON, as Lambda's Invoke has it in the body.
    pub error: Option<Vec<u8>>,
    /// The end of what the function wrote.
    pub output: Option<Vec<u8>>,
}

impl Headers {
    pub(super) fn see(&mut self, row: &mut Invocation, name: &str, value: &[u8], epoch: Epoch) {
        let Ok(value) = std::str::from_utf8(value) else {
            return;
        };
        let mut buffer = [0; LONGEST_NAME];
        let Some(name) = lowercase(name, &mut buffer) else {
            return;
        };
        // What is no number was not measured.
        let number = || value.parse::<i64>().ok();
        let time = || number().and_then(|unix| unix.checked_sub(epoch.unix_ns()));
        let Some(key) = name.strip_prefix("x-uncia-") else {
            match name {
                "x-amzn-requestid" | "x-openwhisk-activation-id" => {
                    row.request_id = Some(value.to_owned());
                }
                "x-amz-function-error" => self.function_error = Some(value.to_owned()),
                "x-amz-log-result" => self.output = STANDARD.decode(value).ok(),
                _ => {}
            }
            return;
        };
        match key {
            "outcome" => self.outcome = OUTCOMES.into_iter().find(|outcome| *outcome == value),
            "start" => {
                row.start = STARTS.into_iter().find(|start| *start == value).map(text);
            }
            "instance" => row.instance = (!value.is_empty()).then(|| Text::from(value)),
            "queued-ns" => row.queued = number(),
            "initialization-ns" => row.initialization = number(),
            "execution-ns" => row.execution = number(),
            "billed-ns" => row.billed = number(),
            "error" => self.error = STANDARD.decode(value).ok(),
            "log-tail" => self.output = STANDARD.decode(value).ok(),
            "cpu-user-ns" => row.cpu_user = number(),
            "cpu-system-ns" => row.cpu_system = number(),
            "allocated-cpu" => row.allocated_cpu = number().or(row.allocated_cpu),
            "allocated-memory" => row.allocated_memory = number().or(row.allocated_memory),
            "memory-avg" => row.memory_avg = number(),
            "memory-peak" => row.memory_peak = number(),
            "throttled-count" => row.throttled_count = number(),
            "throttled-ns" => row.throttled_time = number(),
            "started-unix-ns" => row.started = time(),
            "ended-unix-ns" => row.ended = time(),
            _ => {}
        }
    }
}

/// The name in lower case, unless it is longer than every name that matters.
fn lowercase<'a>(name: &str, buffer: &'a mut [u8; LONGEST_NAME]) -> Option<&'a str> {
    let buffer = buffer.get_mut(..name.len())?;
    buffer.copy_from_slice(name.as_bytes());
    buffer.make_ascii_lowercase();
    std::str::from_utf8(buffer).ok()
}
