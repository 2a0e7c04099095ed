//! The recorder against clients that pipeline, split and wait.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

struct Wire {
    child: Child,
    output: BufReader<ChildStdout>,
    address: String,
    log: PathBuf,
}

/// An arrival as the log has it: by the kernel, as read, and on which connection.
#[derive(Debug)]
struct Row {
    kernel: i64,
    read: i64,
    connection: u64,
}

impl Wire {
    fn start(mode: &str, folder: &Path, arguments: &[&str]) -> Self {
        let log = folder.join("arrivals.csv");
        let mut child = Command::new(env!("CARGO_BIN_EXE_wire"))
            .arg(mode)
            .arg("--out")
            .arg(&log)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut url = String::new();
        output.read_line(&mut url).expect("it prints its address");
        let address = url.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
        Self { child, output, address, log }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a valid timeout");
        stream
    }

    fn end(self) -> (String, Vec<Row>) {
        let id = i32::try_from(self.child.id()).expect("process numbers are small");
        kill(Pid::from_raw(id), Signal::SIGTERM).expect("it still runs");
        self.ended()
    }

    /// Waits for its end; returns the summary and the log.
    fn ended(mut self) -> (String, Vec<Row>) {
        let mut summary = String::new();
        self.output.read_line(&mut summary).expect("it prints its figures");
        assert!(self.child.wait().expect("it is our child").success());
        let text = std::fs::read_to_string(&self.log).expect("it wrote its log");
        let rows = text.lines().skip(1).map(|line| {
            let mut numbers = line.split(',').map(|field| field.parse().expect("a number"));
            let mut next = || numbers.next().expect("three fields");
            let (kernel, read) = (next(), next());
            Row { kernel, read, connection: next().try_into().expect("not negative") }
        });
        (summary, rows.collect())
    }
}

fn read_answers(stream: &mut TcpStream, count: usize) {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while text.windows(5).filter(|window| window == b"hello").count() < count {
        let read = stream.read(&mut buffer).expect("an answer comes");
        assert!(read > 0, "the connection was closed after {}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buffer[..read]);
    }
}

fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    now.as_nanos().try_into().expect("before 2262")
}

#[test]
fn pipelined_and_split_requests_are_answered_and_logged() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let wire = Wire::start("record", folder.path(), &[]);
    let (mut first, mut second) = (wire.connect(), wire.connect());
    first.write_all(&[GET, GET, GET].concat()).expect("it reads");
    read_answers(&mut first, 3);
    let post = b"POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nbody";
    for piece in [&post[..9], &post[9..38], &post[38..]] {
        second.write_all(piece).expect("it reads");
        sleep(Duration::from_millis(20));
    }
    read_answers(&mut second, 1);
    let (summary, rows) = wire.end();
    assert!(summary.contains("\"requests\": 4, \"kernel_timestamps\": 4"), "{summary}");
    assert!(summary.contains("\"connections\": 2, \"malformed\": 0"), "{summary}");
    let connections: Vec<u64> = rows.iter().map(|row| row.connection).collect();
    assert_eq!(connections[..3], [connections[0]; 3]);
    assert_ne!(connections[0], connections[3]);
}

#[test]
fn the_kernel_says_when_the_client_wrote() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let wire = Wire::start("record", folder.path(), &["--requests", "10"]);
    let mut stream = wire.connect();
    let mut written = Vec::new();
    for _ in 0..10 {
        let before = now_ns();
        stream.write_all(GET).expect("it reads");
        written.push((before, now_ns()));
        read_answers(&mut stream, 1);
    }
    let (_, rows) = wire.ended();
    assert_eq!(rows.len(), 10);
    for (row, (before, after)) in rows.iter().zip(written) {
        assert!((before..=after).contains(&row.kernel), "{row:?}, written {before} to {after}");
        assert!(row.read >= row.kernel, "{row:?}");
    }
}

#[test]
fn a_stall_withholds_answers_and_still_logs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let wire = Wire::start("stall", folder.path(), &["--after", "0.2", "--for", "0.6"]);
    let mut streams: Vec<TcpStream> = (0..3).map(|_| wire.connect()).collect();
    let start = Instant::now();
    streams[0].write_all(GET).expect("it reads");
    read_answers(&mut streams[0], 1);
    sleep(Duration::from_millis(300).saturating_sub(start.elapsed()));
    for stream in &mut streams {
        stream.write_all(GET).expect("it reads");
    }
    for stream in &mut streams {
        read_answers(stream, 1);
    }
    assert!(start.elapsed() >= Duration::from_millis(800), "{:?}", start.elapsed());
    let (_, rows) = wire.end();
    assert_eq!(rows.len(), 4);
}

#[test]
fn the_end_when_nothing_comes_any_more() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let wire = Wire::start("record", folder.path(), &["--idle", "0.3"]);
    let mut stream = wire.connect();
    stream.write_all(GET).expect("it reads");
    read_answers(&mut stream, 1);
    let (_, rows) = wire.ended();
    assert_eq!(rows.len(), 1);
}

#[test]
fn what_is_not_http_is_counted_and_closed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let wire = Wire::start("record", folder.path(), &[]);
    let mut stream = wire.connect();
    stream.write_all(b"\x16\x03\x01\x02\x00").expect("it reads");
    assert_eq!(stream.read(&mut [0; 16]).expect("closed, not reset"), 0);
    let (summary, rows) = wire.end();
    assert!(summary.contains("\"malformed\": 1"), "{summary}");
    assert!(rows.is_empty());
}
