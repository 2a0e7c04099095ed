//! Programs whose lines a monitor reads.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use uncia_clock::monotonic_ns;

use super::programs::{GRACE, Running, wait_until};
use crate::samples::Samples;

/// Lines that wait to be read; a program that prints more of them between two samples loses the rest.
const MOST_LINES: usize = 10_000;
/// Longer lines are lost.
const MOST_LINE_BYTES: u64 = 64 * 1024;

/// The program whose lines are read.
pub(super) struct Printing {
    pub running: Running,
    lines: Receiver<(i64, String)>,
    lost: Arc<AtomicU64>,
    readers: Vec<JoinHandle<()>>,
    /// Whether it has ended unasked.
    pub has_ended: bool,
}

impl Printing {
    /// Reads what a program prints that was started with pipes.
    pub(super) fn start(mut running: Running) -> Self {
        let (sender, lines) = sync_channel(MOST_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        // perf writes its counts to standard error.
        let stdout = running.child.stdout.take().map(|it| Box::new(it) as Box<dyn Read + Send>);
        let stderr = running.child.stderr.take().map(|it| Box::new(it) as Box<dyn Read + Send>);
        let readers = [stdout, stderr].into_iter().flatten().map(|stream| {
            let (sender, lost) = (sender.clone(), lost.clone());
            thread::spawn(move || pass_on(stream, &sender, &lost))
        });
        Self { readers: readers.collect(), running, lines, lost, has_ended: false }
    }

    /// The lines that have come, with when they did; no more than may wait, as a flood would have no end.
    pub(super) fn lines(&self) -> impl Iterator<Item = (i64, String)> {
        self.lines.try_iter().take(MOST_LINES)
    }

    /// The next line, if it comes within a time.
    pub(super) fn line(&self, within: Duration) -> Option<(i64, String)> {
        self.lines.recv_timeout(within).ok()
    }

    /// How many lines were lost since this was asked last.
    pub(super) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Adds what the program used, and says if it has ended.
    pub(super) fn look_after(&mut self, samples: &mut Samples) {
        samples.programs_cpu += self.running.cpu();
        if !self.has_ended && self.running.has_ended() {
            self.has_ended = true;
            let name = &self.running.name;
            samples.warnings.push(format!("{name} has ended early; rows after that are missing"));
        }
    }

    /// Ends the program, and reads what it prints until then; gives the CPU time that was not reported yet.
    pub(super) fn end(&mut self) -> i64 {
        let ended = self.running.end();
        for reader in self.readers.drain(..) {
            // It ends with the pipe, which a process that left the group may hold open.
            if reader.is_finished() || wait_until(GRACE, || reader.is_finished()) {
                let _ = reader.join();
            }
        }
        ended
    }
}

/// Passes lines on with when they came, until there are no more.
fn pass_on(stream: impl Read, sender: &SyncSender<(i64, String)>, lost: &AtomicU64) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        match stream.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if line.len() as u64 == MOST_LINE_BYTES && line.last() != Some(&b'\n') {
            // A part of it means something else, or nothing.
            lost.fetch_add(1, Ordering::Relaxed);
            while line.last().is_some_and(|it| *it != b'\n') {
                line.clear();
                if stream.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', &mut line).is_err() {
                    return;
                }
            }
            continue;
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        match sender.try_send((monotonic_ns(), line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => drop(lost.fetch_add(1, Ordering::Relaxed)),
            Err(TrySendError::Disconnected(_)) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_too_long_are_lost_and_no_others() {
        let most = MOST_LINE_BYTES as usize;
        let long = |bytes: usize| "x".repeat(bytes);
        let text = format!("a\n{}\n{}\nb\n{}\n", long(most - 1), long(most), long(3 * most + 7));
        for text in [text.clone(), format!("{text}{}", long(2 * most))] {
            let (sender, lines) = sync_channel(MOST_LINES);
            let lost = AtomicU64::new(0);
            pass_on(text.as_bytes(), &sender, &lost);
            let lengths: Vec<_> = lines.try_iter().map(|(_, line)| line.len()).collect();
            assert_eq!(lengths, [1, most - 1, 1]);
            assert_eq!(lost.into_inner(), if text.ends_with('\n') { 2 } else { 3 });
        }
    }
}
