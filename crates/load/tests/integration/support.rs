//! Small servers that behave in a certain way, and the rows of runs against them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_select::concat::concat_batches;
use serde_json::{Value, json};
use uncia_load::event::Done;
use uncia_load::{Config, LoadError, Stop};

pub(crate) const MS: i64 = 1_000_000;
pub(crate) const SECOND: i64 = 1_000 * MS;

/// A request as a server saw it.
pub(crate) struct Request {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Reads a request; none at the end of the connection.
pub(crate) fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_lowercase(), value.trim().to_owned())),
            None => break,
        }
    }
    let mut request = Request { method, path, headers, body: Vec::new() };
    let length = request.header("content-length").map_or(0, |value| value.parse().unwrap());
    request.body.resize(length, 0);
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}

/// A server on a free port; its threads end with the test process.
pub(crate) struct Server {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
}

impl Server {
    /// Every connection gets a thread that runs `serve`.
    pub(crate) fn raw(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (counter, serve) = (connections.clone(), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counter.fetch_add(1, Ordering::SeqCst);
                stream.set_nodelay(true).unwrap();
                let serve = serve.clone();
                std::thread::spawn(move || serve(stream));
            }
        });
        Self { address, connections }
    }

    /// Every request is answered with the bytes that `answer` gives; the connection stays open.
    pub(crate) fn answering(answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::raw(move |stream| {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while let Some(request) = read_request(&mut reader) {
                if (&stream).write_all(&answer(&request)).is_err() {
                    return;
                }
            }
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// A server that notes how many requests it has at once, at the most. It keeps each for `hold`, and
/// the first ones until it has seen `wanted`, however late they come on a busy machine.
pub(crate) fn at_once(
    wanted: usize,
    hold: Duration,
    answer: impl Fn() -> Vec<u8> + Send + Sync + 'static,
) -> (Server, Arc<AtomicUsize>) {
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let server = Server::answering(move |_| {
        seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let began = Instant::now();
        std::thread::sleep(hold);
        while seen.load(Ordering::SeqCst) < wanted && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        now.fetch_sub(1, Ordering::SeqCst);
        answer()
    });
    (server, most)
}

pub(crate) fn hello() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello".to_vec()
}

pub(crate) fn constant(rate_per_s: u32, duration_ns: i64) -> Value {
    json!({"kind": "constant", "rate_per_s": rate_per_s.to_string(), "duration_ns": duration_ns})
}

pub(crate) fn burst(size: u32) -> Value {
    json!({"kind": "burst", "sizes": [size], "interval_ns": 0, "bursts": 1})
}

/// A run of one stream against `url`, in a folder of its own.
pub(crate) struct Run {
    pub folder: tempfile::TempDir,
    pub config: Value,
}

/// The rows of a run that is over.
pub(crate) struct Rows {
    pub batch: RecordBatch,
    pub done: Done,
}

impl Run {
    pub(crate) fn new(url: &str, arrivals: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = json!({
            "run": "test", "experiment": "load", "platform": "local", "seed": 7,
            "out": folder.path().join("invocations.arrows"),
            "streams": [{
                "function": "hello", "targets": [{"function": "hello-0", "url": url}],
                "arrivals": arrivals, "invocation_header": "x-uncia-invocation",
            }],
        });
        Self { folder, config }
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.config[key] = value.into();
        self
    }

    pub(crate) fn stream(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.config["streams"][0][key] = value.into();
        self
    }

    pub(crate) fn run(self) -> Rows {
        self.run_until(&Stop::new().unwrap())
    }

    pub(crate) fn run_until(self, stop: &Stop) -> Rows {
        let config: Config = serde_json::from_value(self.config).unwrap();
        let done = uncia_load::run(&config, stop, &mut |_| {}).unwrap();
        let batch = read(&self.folder.path().join("invocations.arrows"));
        assert_eq!(done.rows, batch.num_rows() as u64);
        assert_eq!(done.sent, done.rows);
        assert_eq!(done.scheduled, done.sent + done.unsent);
        assert_eq!(done.rows, done.ok + done.failed.values().sum::<u64>());
        Rows { batch, done }
    }

    pub(crate) fn fail(self) -> LoadError {
        let config: Config = serde_json::from_value(self.config).unwrap();
        let result = uncia_load::run(&config, &Stop::new().unwrap(), &mut |_| {});
        result.expect_err("the run can't succeed")
    }
}

pub(crate) fn read(path: &Path) -> RecordBatch {
    let mut batches = Vec::new();
    let (schema, whole) = uncia_record::read_stream(path, |batch| {
        batches.push(batch);
        Ok(())
    })
    .unwrap();
    assert!(whole);
    concat_batches(&schema, &batches).unwrap()
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.batch.num_rows()
    }

    pub(crate) fn numbers(&self, column: &str) -> Vec<Option<i64>> {
        let column = self.batch.column_by_name(column).unwrap();
        column.as_primitive::<Int64Type>().iter().collect()
    }

    pub(crate) fn flags(&self, column: &str) -> Vec<Option<bool>> {
        self.batch.column_by_name(column).unwrap().as_boolean().iter().collect()
    }

    pub(crate) fn texts(&self, column: &str) -> Vec<Option<String>> {
        let column = self.batch.column_by_name(column).unwrap();
        let owned = |text: Option<&str>| text.map(str::to_owned);
        if let Some(plain) = column.as_string_opt::<i32>() {
            return plain.iter().map(owned).collect();
        }
        let dictionary = column.as_dictionary::<Int32Type>();
        let words = dictionary.values().as_string::<i32>();
        let word = |key: Option<usize>| key.map(|key| words.value(key).to_owned());
        dictionary.keys_iter().map(word).collect()
    }

    /// That all rows have this outcome, and what they say about it.
    pub(crate) fn all(&self, outcome: &str) -> Vec<String> {
        for (found, error) in self.texts("outcome").iter().zip(self.texts("error")) {
            assert_eq!(found.as_deref(), Some(outcome), "{error:?}");
        }
        self.texts("error").into_iter().flatten().collect()
    }

    /// `later - earlier` of the rows that have both.
    pub(crate) fn differences(&self, later: &str, earlier: &str) -> Vec<i64> {
        let pairs = self.numbers(later).into_iter().zip(self.numbers(earlier));
        pairs.filter_map(|(later, earlier)| Some(later? - earlier?)).collect()
    }
}
