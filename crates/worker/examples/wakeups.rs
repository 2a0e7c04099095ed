//! What the machine itself takes to wake four processes in turn: the least that any platform adds to
//! a request which goes to a worker, to a runtime and back.
//!
//!     cargo run --release -p uncia-worker --example wakeups
//!
//! Three processes pass 128 bytes along sockets and do nothing else: one after the other, and with a
//! pause before each, as at 1,000 and at 100 requests a second.

#![expect(clippy::print_stdout, reason = "its output")]

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

type Message = [u8; 128];

/// A process with this part of the chain, at the other end of the socket.
fn spawn(part: &str) -> std::io::Result<(Child, UnixStream)> {
    let (near, far) = UnixStream::pair()?;
    let child =
        Command::new(std::env::current_exe()?).arg(part).stdin(OwnedFd::from(far)).spawn()?;
    Ok((child, near))
}

/// Passes on what comes from the standard input's socket until that is closed: to the next process and
/// back if there is one.
fn pass_on(next: Option<UnixStream>) -> std::io::Result<()> {
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut next = next;
    let mut message: Message = [0; 128];
    while socket.read_exact(&mut message).is_ok() {
        if let Some(next) = &mut next {
            next.write_all(&message)?;
            next.read_exact(&mut message)?;
        }
        socket.write_all(&message)?;
    }
    Ok(())
}

/// The median and the 99th percentile of so many passes, in us.
fn measure(socket: &mut UnixStream, pause: Duration, count: usize) -> std::io::Result<(f64, f64)> {
    let mut message: Message = [0; 128];
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        std::thread::sleep(pause);
        let began = Instant::now();
        socket.write_all(&message)?;
        socket.read_exact(&mut message)?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[count / 2], times[count * 99 / 100]))
}

fn main() -> std::io::Result<()> {
    let part = std::env::args().nth(1);
    match part.as_deref() {
        Some("echo") => return pass_on(None),
        Some("relay") => {
            let (mut echo, socket) = spawn("echo")?;
            pass_on(Some(socket))?;
            return echo.wait().map(drop);
        }
        _ => {}
    }
    let (mut relay, mut socket) = spawn("relay")?;
    for (pause, count) in [(0, 5_000), (1, 2_000), (10, 500)] {
        let (median, p99) = measure(&mut socket, Duration::from_millis(pause), count)?;
        println!("{pause:2} ms between: p50 {median:.0} us, p99 {p99:.0} us");
    }
    drop(socket);
    relay.wait().map(drop)
}
