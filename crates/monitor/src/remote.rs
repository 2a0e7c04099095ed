//! Monitors that another machine starts, over a connection such as ssh's.
//!
//! Standard input has an object of JSON in each line, standard output the rows as an Arrow IPC stream, standard
//! error the events. [`Line::Clock`] asks for the time, and is answered at once, before the monitors watch and
//! while they do; so the other side knows how far the clocks are apart. [`Line::Offset`] tells the result, which
//! becomes rows. [`Line::Watch`] starts the monitors. They end when standard input does, and when it was silent for
//! [`SILENCE`]: a connection may be lost without a word.

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Deserialize;
use uncia_clock::{Moment, monotonic_ns};

use crate::MonitorError;
use crate::config::Config;
use crate::watch::{self, Event, Request};

/// For how long the other side may say nothing: six times as long as it waits between two questions for the time.
pub const SILENCE: Duration = Duration::from_secs(30);
/// What a pipe that can be written to takes without delay, in bytes.
const CHUNK: usize = 4096;
/// How often a stream that is held up looks whether its reader is gone.
const LOOK_MS: u16 = 500;
/// How long the other side may take to read the last rows once it has asked for the end: longer than programs that
/// monitors have started may take to end.
const LAST_ROWS: Duration = Duration::from_secs(70);

/// A line of standard input.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    /// What time is it?
    Clock {
        /// Names the question in its answer.
        clock: u64,
    },
    /// What is known of this machine's clock, in ns.
    Offset {
        /// By how much it is ahead.
        offset_ns: i64,
        /// By how much that may be wrong.
        error_ns: i64,
    },
    /// The configuration, which is read as a whole: watch.
    Watch(serde::de::IgnoredAny),
}

/// Serves whoever is at the other end of the standard streams, until it is gone.
///
/// `requests` are those of signals, say; what is asked for over the connection is sent to it, too.
///
/// # Errors
/// As [`crate::run`].
pub fn serve(
    version: &str,
    (asking, requests): (Sender<Request>, &Receiver<Request>),
    on_event: fn(&Event),
) -> Result<(), MonitorError> {
    // Rows and answers have one clock: times differ as those of the monotonic clock do, even if the other is set.
    let moment = Moment::exact();
    let is_over = Arc::new(AtomicBool::new(false));
    let (configuring, configured) = mpsc::channel();
    let listener =
        Listener { moment, on_event, asking, configuring, is_over: Arc::clone(&is_over) };
    std::thread::Builder::new().name("uncia-listen".into()).spawn(move || listener.listen())?;
    on_event(&ready(version));
    // Nobody asked for anything.
    let Ok(text) = configured.recv() else { return Ok(()) };
    let config = Config::from_json(&text)?;
    let (rows, file) = io::pipe()?;
    let pump = std::thread::Builder::new()
        .name("uncia-rows".into())
        .spawn(move || pump(rows, io::stdout().as_fd(), &is_over))?;
    let file = (File::from(OwnedFd::from(file)), Path::new("standard output"));
    let result = watch::run_into(&config, file, moment, requests, &mut |event| on_event(event));
    // It ends with the file, or with the connection.
    let _ = pump.join();
    result
}

fn ready(version: &str) -> Event {
    let line = |path| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    Event::Ready {
        version: version.to_owned(),
        hostname: line("/proc/sys/kernel/hostname"),
        kernel: line("/proc/sys/kernel/osrelease"),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// Takes the lines of standard input.
struct Listener {
    moment: Moment,
    on_event: fn(&Event),
    asking: Sender<Request>,
    configuring: Sender<String>,
    /// Nobody reads rows any more.
    is_over: Arc<AtomicBool>,
}

impl Listener {
    fn listen(self) {
        let stdin = io::stdin();
        let (mut text, mut chunk) = (Vec::new(), [0; CHUNK]);
        let is_silent = loop {
            match is_ready(stdin.as_fd(), PollFlags::POLLIN, SILENCE) {
                Ok(true) => {}
                Ok(false) => break true,
                Err(_) => break false,
            }
            // Not by `Stdin`, whose buffer `poll` cannot see.
            let length = match nix::unistd::read(stdin.as_fd(), &mut chunk) {
                Err(Errno::EINTR) => continue,
                Ok(0) | Err(_) => break false,
                Ok(length) => length,
            };
            let received = monotonic_ns();
            text.extend_from_slice(&chunk[..length]);
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = text.drain(..=end).collect();
                self.take(&line, received);
            }
        };
        // Who stopped already needs no asking.
        let _ = self.asking.send(Request::Stop);
        drop((self.asking, self.configuring));
        if !is_silent {
            std::thread::sleep(LAST_ROWS);
        }
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn take(&self, line: &[u8], received: i64) {
        let unix = |monotonic| self.moment.at(monotonic).unix();
        match serde_json::from_slice(line) {
            Ok(Line::Clock { clock: id }) => (self.on_event)(&Event::Clock {
                id,
                received_unix_ns: unix(received),
                sent_unix_ns: unix(monotonic_ns()),
            }),
            Ok(Line::Offset { offset_ns, error_ns }) => {
                let _ = self.asking.send(Request::Clock { offset_ns, error_ns });
            }
            // What is no configuration, or a second one, is told or left by whoever takes it.
            Ok(Line::Watch(_)) | Err(_) => {
                let _ = self.configuring.send(String::from_utf8_lossy(line).into_owned());
            }
        }
    }
}

/// Copies rows to the other side. One that does not read them holds the monitors up, but not their end.
fn pump(mut rows: PipeReader, out: BorrowedFd<'_>, is_over: &AtomicBool) {
    let mut chunk = [0; CHUNK];
    while let Ok(length @ 1..) = rows.read(&mut chunk) {
        let mut rest = &chunk[..length];
        while !rest.is_empty() {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            match is_ready(out, PollFlags::POLLOUT, Duration::from_millis(LOOK_MS.into())) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(_) => return,
            }
            match nix::unistd::write(out, rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(_) => return,
            }
        }
    }
}

/// Whether a file becomes ready within a time; it is, too, when its other end is gone.
fn is_ready(file: BorrowedFd<'_>, events: PollFlags, within: Duration) -> nix::Result<bool> {
    let timeout = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
    loop {
        match poll(&mut [PollFd::new(file, events)], timeout) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}
