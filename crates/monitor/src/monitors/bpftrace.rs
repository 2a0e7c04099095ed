//! What a program of bpftrace counts in the kernel: its maps, and what it prints.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use uncia_cgroup::{Mounts, Version};
use uncia_clock::monotonic_ns;

use super::printing::Printing;
use super::programs::Running;
use super::{Monitor, UNSUPPORTED};
use crate::bpftrace::{Maps, Program, Read};
use crate::config::{Asked, MOST_PROGRAM_BYTES};
use crate::samples::Samples;

const PROGRAM: &str = "bpftrace";
/// With this it says when all probes are attached, for tests of its own.
const NOTIFY: &str = "__BPFTRACE_NOTIFY_PROBES_ATTACHED";
/// How long it may take to compile the program and attach its probes: thousands take seconds.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Without the notice: it lives so long after it has begun to attach, so it has.
const ATTACH_TIME: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);
/// It wants more locked memory than it may have, and needs none on today's kernels.
const HARMLESS: &str = "couldn't set RLIMIT_MEMLOCK";
/// It answers 100 ms after it was asked; asked again before that, it begins to wait anew.
const SHORTEST_NS: i64 = 200_000_000;
/// An answer that has not come after this is not to be had.
const ANSWER_NS: i64 = 2_000_000_000;
/// Lines of its own words that are shown.
const MOST_SHOWN: u32 = 5;
/// They are cut after so many characters.
const SHOWN_CHARACTERS: usize = 400;

/// Runs bpftrace, and asks it for its maps.
pub(super) struct Bpftrace {
    printing: Printing,
    maps: Maps,
    /// Lines that came before it was attached.
    early: Vec<(i64, String)>,
    /// How long it took to attach, for the first sample.
    attached: Option<i64>,
    /// Whether it is asked for its maps: the program does not print them itself.
    is_asked: bool,
    /// When it was asked for what has not come yet.
    waiting: Option<i64>,
    file: String,
    name: String,
    shown: u32,
}

impl Bpftrace {
    pub(super) fn new(asked: &Asked) -> Result<Self, String> {
        let text = asked.program.as_deref().unwrap_or_default();
        let file = asked.file.clone().unwrap_or_else(|| PROGRAM.to_owned());
        let started = monotonic_ns();
        let mut printing = start(text)?;
        let early = await_attached(&mut printing, &file)?;
        let attached = monotonic_ns();
        let program = Program::read(text);
        let is_asked = !program.prints;
        let mounts = Mounts::read().map_err(|error| error.to_string())?;
        let mut mounted = mounts.mounted();
        let tree =
            mounted.find(|(version, ..)| *version == Version::V2).map(|(.., it)| it.to_owned());
        Ok(Self {
            printing,
            maps: Maps::new(program, asked.name(), attached, tree),
            early,
            attached: Some(attached - started),
            is_asked,
            waiting: None,
            file,
            name: asked.name().to_owned(),
            shown: 0,
        })
    }

    fn read(&mut self, samples: &mut Samples) {
        if let Some(attached) = self.attached.take() {
            samples.level(None, &format!("{}.attach_ns", self.name), Some(attached as f64));
        }
        let early = std::mem::take(&mut self.early);
        for (at, line) in early.into_iter().chain(self.printing.lines()) {
            self.waiting = None;
            match self.maps.read(&line, at, &mut samples.rows) {
                Ok(Read::Understood) => continue,
                Ok(Read::Lost(events)) => {
                    samples.lost += events;
                    continue;
                }
                Ok(Read::Message) if is_noise(&line) => continue,
                Ok(Read::Message) => {}
                Err(why) => {
                    samples.lost += 1;
                    samples.warnings.push(format!("what it printed was not understood: {why}"));
                }
            }
            self.shown += 1;
            if self.shown <= MOST_SHOWN {
                samples.warnings.push(in_its_words(&line, &self.file));
            }
        }
        samples.lost += self.printing.take_lost();
    }
}

impl Monitor for Bpftrace {
    fn sample(&mut self, samples: &mut Samples) {
        self.read(samples);
        self.printing.look_after(samples);
        let is_waited_for = self.waiting.is_some_and(|asked| samples.now - asked < ANSWER_NS);
        if self.is_asked && !self.printing.has_ended && !is_waited_for {
            self.printing.running.ask_for_more();
            self.waiting = Some(samples.now);
        }
    }

    fn shortest_ns(&self) -> i64 {
        SHORTEST_NS
    }

    fn finish(&mut self, samples: &mut Samples) {
        samples.programs_cpu += self.printing.end();
        self.read(samples);
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        self.printing.end();
    }
}

fn start(text: &str) -> Result<Printing, String> {
    let mut command = Command::new(PROGRAM);
    command.args(["-f", "json", "-"]).env(NOTIFY, "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running =
        Running::start(&mut command).map_err(|why| format!("{UNSUPPORTED}: {why}; install it"))?;
    let stdin = running.child.stdin.take();
    let printing = Printing::start(running);
    debug_assert!(text.len() <= MOST_PROGRAM_BYTES, "a pipe takes it without being read");
    // If it has ended already, it says why.
    let _ = stdin.map(|mut stdin| stdin.write_all(text.as_bytes()));
    Ok(printing)
}

/// Waits until all probes are attached; gives the lines that came until then. The error has bpftrace's words.
fn await_attached(printing: &mut Printing, file: &str) -> Result<Vec<(i64, String)>, String> {
    let (mut lines, mut began) = (Vec::new(), None);
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        // Looked at before the lines, so that none of its last is missed.
        let has_ended = printing.running.has_ended();
        if has_ended {
            printing.end();
        }
        while let Some((at, line)) = printing.line(if has_ended { Duration::ZERO } else { POLL }) {
            if line.contains(NOTIFY) {
                return Ok(lines);
            }
            if line.contains("\"attached_probes\"") {
                began = Some(Instant::now());
            }
            lines.push((at, line));
        }
        if has_ended {
            return Err(failure(&lines, file));
        }
        if began.is_some_and(|began| began.elapsed() >= ATTACH_TIME) {
            return Ok(lines);
        }
        if Instant::now() >= deadline {
            let seconds = START_TIMEOUT.as_secs();
            return Err(format!(
                "{PROGRAM} did not attach the probes of {file} within {seconds} s"
            ));
        }
    }
}

/// Why it ended, in its own words.
fn failure(lines: &[(i64, String)], file: &str) -> String {
    let words = lines.iter().map(|(_, line)| line.as_str());
    let words: Vec<_> = words
        .filter(|line| !line.starts_with('{') && !is_noise(line))
        .map(|line| in_its_words(line, file))
        .collect();
    if words.is_empty() {
        return format!("{PROGRAM} ended before it had attached the probes of {file}");
    }
    format!("{PROGRAM} does not run {file}: {}", words.join("\n"))
}

fn is_noise(line: &str) -> bool {
    line.trim().is_empty() || line.contains(HARMLESS) || line.contains(NOTIFY)
}

/// The program comes over standard input, and its lines are the file's.
fn in_its_words(line: &str, file: &str) -> String {
    let cut = |text: &str| text.chars().take(SHOWN_CHARACTERS).collect::<String>();
    line.strip_prefix("stdin:").map_or_else(|| cut(line), |rest| format!("{file}:{}", cut(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_files_and_cut() {
        assert_eq!(in_its_words("stdin:1:2: ERROR: a", "mine.bt"), "mine.bt:1:2: ERROR: a");
        assert_eq!(in_its_words(&"é".repeat(60_000), "mine.bt"), "é".repeat(SHOWN_CHARACTERS));
    }
}
