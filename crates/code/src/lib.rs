//! What the platform and its WebAssembly host say to each other.
//!
//! The host, `uncia-wasm`, runs the code of functions without a process for each: it serves HTTP to the
//! platform alone. A request with the header [`ORDER`] is an [`Order`]; one with [`FUNCTION`] is an
//! invocation of that function, which gets the request without these headers. What the invocation used is
//! in the header [`REPORT`] of its answer or, if the answer has begun before its end, in the trailer of
//! that name.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The header that names an order: see [`Order`].
pub const ORDER: &str = "uncia-order";
/// The header that names the function of an invocation.
pub const FUNCTION: &str = "uncia-function";
/// The header that says how many milliseconds an invocation may take.
pub const TIMEOUT_MS: &str = "uncia-timeout-ms";
/// The header or trailer that holds a [`Report`].
pub const REPORT: &str = "uncia-report";
/// What the names of these headers begin with: no function sees or sets any.
pub const PREFIX: &str = "uncia-";

/// The most bytes of a report: those of trailers have 16 KiB of room, and heads hold more besides.
pub const REPORT_BYTES: usize = 12 * 1024;

/// The memory of the host, in which all that functions have at a time is, in bytes.
pub const HOST_BYTES: u64 = 4 << 30;

/// The file of a package that is run.
pub const COMPONENT: &str = "function.wasm";

/// What every WebAssembly file begins with.
const MAGIC: &[u8] = b"\0asm";
/// What follows: the version and the layer of a core module, which is no component.
const CORE: [u8; 4] = [1, 0, 0, 0];
/// The bytes of a file that [`check_header`] looks at.
pub const HEADER_BYTES: usize = MAGIC.len() + CORE.len();

/// Says what a file is that is no component, since parsers say at which byte they stopped. `beginning`: its
/// first [`HEADER_BYTES`], or more.
///
/// # Errors
/// It is no component, by how it begins.
pub fn check_header(beginning: &[u8]) -> Result<(), Failure> {
    let refusal = |sentence: &str| Err(Failure::new(Kind::Component, sentence));
    match beginning.get(MAGIC.len()..HEADER_BYTES) {
        _ if !beginning.starts_with(MAGIC) => refusal(
            "it is no WebAssembly file: those begin with the bytes 00 61 73 6d. It must be a component in \
             binary form",
        ),
        None => refusal(&format!("the file ends after {} bytes", beginning.len())),
        Some(version) if version == CORE => refusal(
            "it is a core module and no component: compile for wasm32-wasip2, or wrap it with `wasm-tools \
             component new`",
        ),
        Some(_) => Ok(()),
    }
}

/// What a host is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Answers a compiled component, of the one in the body.
    Compile,
    /// Makes a function ready: the body is [`Load`].
    Load,
    /// Forgets the function that the header [`FUNCTION`] names.
    Unload,
    /// Answers.
    Ping,
}

impl Order {
    const NAMES: [(Self, &str); 4] = [
        (Self::Compile, "compile"),
        (Self::Load, "load"),
        (Self::Unload, "unload"),
        (Self::Ping, "ping"),
    ];

    /// The header's value.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(order, _)| *order == self).map_or("", |(_, name)| name)
    }

    /// The order of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, it)| *it == name).map(|(order, _)| *order)
    }
}

/// How a function is to be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// By which invocations name it.
    pub function: String,
    /// The compiled component: a file in the folder of components.
    pub file: String,
    /// What an invocation may have, in bytes: the linear memories of its instance together.
    pub memory_bytes: u64,
    /// The CPU time that an invocation may use, in ms; none: as much as its time allows.
    pub cpu_ms: Option<u64>,
    /// Its environment variables.
    pub environment: BTreeMap<String, String>,
}

/// Why an invocation, or an order, has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure.
    pub kind: Kind,
    /// A sentence without its full stop.
    pub message: String,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The package holds no component that could be run.
    Component,
    /// There is no such function, or no such order.
    Unknown,
    /// The code ended by a trap.
    Trap,
    /// The time was up.
    Timeout,
    /// The CPU time was used up.
    CpuTime,
    /// More memory was wanted than is allowed.
    Memory,
    /// It ended without an answer, or answered with an error code.
    NoAnswer,
}

impl Kind {
    /// The `errorType` of Lambda's error object.
    pub fn error_type(self) -> &'static str {
        match self {
            Self::Component => "Wasm.InvalidComponent",
            Self::Unknown => "Wasm.Unknown",
            Self::Trap => "Wasm.Trap",
            Self::Timeout => "Wasm.Timeout",
            Self::CpuTime => "Wasm.CpuTimeExceeded",
            Self::Memory => "Wasm.OutOfMemory",
            Self::NoAnswer => "Wasm.NoAnswer",
        }
    }
}

impl Failure {
    /// A failure with its sentence.
    pub fn new(kind: Kind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// What an invocation used, and whether it failed. Its own, whatever ran beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// CPU time in user mode of the threads that ran it while they did, in ns.
    pub cpu_user_ns: i64,
    /// The same in the kernel.
    pub cpu_system_ns: i64,
    /// Its linear memories on average over its time, in bytes.
    pub memory_avg: i64,
    /// The same at most.
    pub memory_peak: i64,
    /// The last of what it printed; what is no UTF-8 is replaced.
    pub printed: String,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

impl Report {
    /// The value of the header [`REPORT`], of at most [`REPORT_BYTES`]: of what was printed the end, of a message
    /// the beginning, as far as there is room.
    pub fn into_header(mut self) -> Vec<u8> {
        if let Some(failure) = &mut self.failure {
            let end = fitting(failure.message.chars(), REPORT_BYTES / 3);
            failure.message.truncate(end);
        }
        let printed = std::mem::take(&mut self.printed);
        let room = REPORT_BYTES.saturating_sub(to_header(&self).len());
        let bytes = fitting(printed.chars().rev(), room);
        printed[printed.len() - bytes..].clone_into(&mut self.printed);
        to_header(&self)
    }
}

/// How many bytes the first of some characters have that take no more than `room` in JSON.
fn fitting(characters: impl Iterator<Item = char>, mut room: usize) -> usize {
    let mut bytes = 0;
    for character in characters {
        let encoded = match character {
            '"' | '\\' | '\n' | '\r' | '\t' | '\x08' | '\x0c' => 2,
            '\0'..' ' => 6,
            other => other.len_utf8(),
        };
        if encoded > room {
            break;
        }
        room -= encoded;
        bytes += character.len_utf8();
    }
    bytes
}

/// The value of a header: JSON without what a header must not hold.
pub fn to_header(value: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    // Of the control characters, the one that JSON leaves as it is.
    text.iter_mut().filter(|byte| **byte == 0x7f).for_each(|byte| *byte = b'?');
    text
}

/// Reads the value of a header; None if it is none of this kind.
pub fn from_header<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_printed_fits_into_a_header() {
        let all: String = (0..=0x2ff).filter_map(char::from_u32).collect();
        let report = Report { printed: all.clone(), ..Report::default() };
        let header = to_header(&report);
        assert!(header.iter().all(|byte| *byte >= 0x20 && *byte != 0x7f));
        let read: Report = from_header(&header).unwrap();
        assert_eq!(read.printed, all.replace('\x7f', "?"));
    }

    #[test]
    fn reports_keep_the_end_of_what_was_printed_as_far_as_there_is_room() {
        for text in ["\x01", "\u{fffd}", "\"", "a", "\u{1f600}", "\n\x02é"] {
            let long = format!("{}the end", text.repeat(10_000));
            let failure = Failure::new(Kind::Trap, &long);
            let report = Report { printed: long, failure: Some(failure), ..Report::default() };
            let header = report.into_header();
            assert!(header.len() <= REPORT_BYTES, "{text:?}: {}", header.len());
            assert!(header.len() > REPORT_BYTES - 10, "{text:?}: {}", header.len());
            let read: Report = from_header(&header).unwrap();
            assert!(read.printed.ends_with("the end"));
            assert!(read.failure.unwrap().message.starts_with(text));
        }
        let short = Report { printed: "all of it".into(), ..Report::default() };
        let read: Report = from_header(&short.clone().into_header()).unwrap();
        assert_eq!(read, short);
    }

    #[test]
    fn what_begins_otherwise_is_no_component() {
        let message = |beginning: &[u8]| check_header(beginning).unwrap_err().message;
        assert!(message(b"").contains("no WebAssembly file"));
        assert!(message(b"\x7fELF\x01\0\0\0").contains("no WebAssembly file"));
        assert_eq!(message(b"\0asm\x0d\0"), "the file ends after 6 bytes");
        assert!(message(b"\0asm\x01\0\0\0").contains("core module"));
        check_header(b"\0asm\x0d\0\x01\0").unwrap();
    }

    #[test]
    fn orders_are_read_as_they_are_written() {
        for (order, name) in Order::NAMES {
            assert_eq!((order.name(), Order::named(name)), (name, Some(order)));
        }
        assert_eq!(Order::named("sing"), None);
    }
}
