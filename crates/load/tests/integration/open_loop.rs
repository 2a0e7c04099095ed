//! No answer delays a request, and every request has its row however the run ends.

use std::io::{BufReader, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::support::{MS, Run, SECOND, Server, at_once, burst, constant, hello, read_request};
use socket2::{Domain, Socket, Type};
use uncia_load::{LoadError, Signal, Stop};

#[test]
fn a_stall_delays_no_request_and_is_in_the_latencies() {
    const STALL: Duration = Duration::from_secs(2);
    // It begins with the first request, however long the run takes to begin.
    let first = OnceLock::new();
    let server = Server::answering(move |_| {
        let start: &Instant = first.get_or_init(Instant::now);
        std::thread::sleep(STALL.saturating_sub(start.elapsed()));
        hello()
    });
    let rows = Run::new(&server.url(), constant(100, 3 * SECOND)).run();
    assert_eq!(rows.len(), 300);
    rows.all("ok");
    let lag = rows.differences("sent", "scheduled");
    // Behind a stall they would be as late as it is long; where others have the CPUs, some are late.
    let late = lag.iter().filter(|lag| **lag > SECOND / 2).count();
    assert!(late < 100, "{late} requests were late, by up to {:?}", lag.iter().max());
    // The first request was due at 0: one that was due within the stall waited for the rest of it.
    let waited =
        |(scheduled, latency): (Option<i64>, i64)| latency >= 2 * SECOND - scheduled.unwrap();
    let latencies = rows.differences("received", "scheduled");
    assert!(rows.numbers("scheduled").into_iter().zip(latencies).all(waited));
}

#[test]
fn slow_answers_do_not_slow_the_next_requests() {
    let server = Server::answering(|_| {
        std::thread::sleep(Duration::from_millis(500));
        hello()
    });
    // 100 in flight at any time; a closed loop would take 100 times as long, and be as late.
    let rows = Run::new(&server.url(), constant(200, SECOND)).run();
    rows.all("ok");
    assert_eq!(rows.len(), 200);
    let lag = rows.differences("sent", "scheduled");
    assert!(lag.iter().all(|lag| *lag < 20 * SECOND), "{:?}", lag.iter().max());
}

#[test]
fn no_answer_in_time_is_a_timeout() {
    let server = Server::raw(|stream| {
        std::thread::sleep(Duration::from_secs(20));
        drop(stream);
    });
    let rows = Run::new(&server.url(), burst(3)).with("total_timeout_ns", 100 * MS).run();
    assert_eq!(rows.all("timeout"), ["no complete answer within 100 ms"; 3]);
    assert_eq!(rows.differences("connected", "sent").len(), 3);
    assert_eq!(rows.numbers("received"), vec![None; 3]);
}

#[test]
fn no_connection_in_time_is_a_timeout() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    // Nobody accepts: once the queue is full, further connections get no answer.
    let patience = Duration::from_millis(300);
    let fill = || std::net::TcpStream::connect_timeout(&address, patience);
    let queued: Vec<_> = std::iter::from_fn(|| fill().ok()).take(64).collect();
    assert!(queued.len() < 64, "the queue does not fill");
    let rows = Run::new(&format!("http://{address}/"), burst(3))
        .with("connect_timeout_ns", 100 * MS)
        .run();
    assert_eq!(rows.all("timeout"), ["no connection within 100 ms"; 3]);
    assert_eq!(rows.numbers("connected"), vec![None; 3]);
    assert_eq!(rows.numbers("request_bytes"), vec![None; 3]);
}

#[test]
fn a_limit_of_connections_holds_requests_back_visibly() {
    let (server, most) = at_once(2, Duration::from_millis(20), hello);
    let rows = Run::new(&server.url(), burst(20)).with("max_connections", 2).run();
    rows.all("ok");
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
    // Ten rounds of 20 ms: the last pair waited for nine of them, and the rows say so.
    let lag = rows.differences("sent", "scheduled");
    assert!(lag.iter().max() >= Some(&(150 * MS)), "{lag:?}");
}

#[test]
fn connections_go_from_host_to_host_under_a_limit() {
    let servers = [Server::answering(|_| hello()), Server::answering(|_| hello())];
    let mut run = Run::new(&servers[0].url(), constant(100, SECOND / 2)).with("max_connections", 1);
    run.config["streams"][0]["targets"] = serde_json::json!([
        {"function": "a", "url": servers[0].url()}, {"function": "b", "url": servers[1].url()}]);
    let rows = run.run();
    rows.all("ok");
    assert_eq!(rows.len(), 50);
}

/// A server that notes that it has a request, and then takes its time.
fn slow(delay: Duration) -> (Server, Arc<AtomicBool>) {
    let reached = Arc::new(AtomicBool::new(false));
    let flag = reached.clone();
    let server = Server::raw(move |stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while read_request(&mut reader).is_some() {
            flag.store(true, Ordering::SeqCst);
            std::thread::sleep(delay);
            if (&stream).write_all(&hello()).is_err() {
                return;
            }
        }
    });
    (server, reached)
}

fn when(reached: &AtomicBool, act: impl FnOnce()) {
    let start = Instant::now();
    while !reached.load(Ordering::SeqCst) {
        assert!(start.elapsed() < Duration::from_secs(20), "no request came");
        std::thread::sleep(Duration::from_millis(1));
    }
    act();
}

#[test]
fn the_first_signal_waits_for_answers() {
    let (server, reached) = slow(Duration::from_millis(300));
    let stop = Stop::new().unwrap();
    let rows = std::thread::scope(|scope| {
        scope.spawn(|| when(&reached, || stop.signal(Signal::Interrupt)));
        Run::new(&server.url(), constant(20, 60 * SECOND)).run_until(&stop)
    });
    rows.all("ok");
    assert!(rows.done.unsent > 1_000);
    assert_eq!(rows.done.interrupted, Some("SIGINT"));
    assert_eq!(stop.first_signal(), Some(Signal::Interrupt));
}

#[test]
fn a_drain_timeout_bounds_the_wait() {
    let (server, reached) = slow(Duration::from_secs(20));
    let stop = Stop::new().unwrap();
    let rows = std::thread::scope(|scope| {
        scope.spawn(|| when(&reached, || stop.signal(Signal::Terminate)));
        Run::new(&server.url(), constant(20, 60 * SECOND))
            .with("drain_timeout_ns", 50 * MS)
            .run_until(&stop)
    });
    assert!(rows.len() >= 1);
    for error in rows.all("transport_error") {
        assert!(error.starts_with("interrupted"), "{error}");
    }
    assert_eq!(rows.done.interrupted, Some("SIGTERM"));
}

#[test]
fn the_second_signal_ends_at_once() {
    let (server, reached) = slow(Duration::from_secs(20));
    let stop = Stop::new().unwrap();
    let start = Instant::now();
    let rows = std::thread::scope(|scope| {
        scope.spawn(|| {
            when(&reached, || {
                stop.signal(Signal::Interrupt);
                stop.signal(Signal::Terminate);
            });
        });
        Run::new(&server.url(), constant(20, 60 * SECOND)).run_until(&stop)
    });
    assert!(start.elapsed() < Duration::from_secs(15));
    rows.all("transport_error");
    assert_eq!(rows.done.interrupted, Some("SIGINT"));
}

#[test]
fn a_common_start_time_is_kept_and_a_passed_one_refused() {
    let server = Server::answering(|_| hello());
    let unix_now = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        i64::try_from(now.unwrap().as_nanos()).unwrap()
    };
    // Long enough to get ready on a busy machine.
    let start = unix_now() + 3 * SECOND;
    let rows = Run::new(&server.url(), burst(1))
        .with("epoch_unix_ns", start - 5 * SECOND)
        .with("start_unix_ns", start)
        .run();
    assert!(unix_now() >= start);
    assert_eq!(rows.numbers("scheduled"), [Some(5 * SECOND)]);
    assert!(rows.differences("sent", "scheduled")[0] >= 0);
    let error = Run::new(&server.url(), burst(1)).with("start_unix_ns", start).fail();
    assert!(matches!(error, LoadError::StartPassed { .. }), "{error}");
}

#[test]
fn tables_are_never_overwritten() {
    let server = Server::answering(|_| hello());
    let run = Run::new(&server.url(), burst(5));
    let config = serde_json::from_value(run.config).unwrap();
    let stop = Stop::new().unwrap();
    let done = uncia_load::run(&config, &stop, &mut |_| {}).unwrap();
    assert_eq!(done.out, config.out);
    assert_eq!(crate::support::read(&done.out).num_rows(), 5);
    let error = uncia_load::run(&config, &stop, &mut |_| {}).unwrap_err();
    assert!(matches!(error, LoadError::OutExists { .. }) && error.is_bad_input(), "{error}");
}

#[test]
fn a_folder_that_does_not_exist_is_an_error_before_the_run() {
    let server = Server::answering(|_| hello());
    for key in ["out", "spans_out"] {
        let run = Run::new(&server.url(), burst(1)).with(key, "/nonexistent/x.arrows");
        let folder = run.folder.path().to_owned();
        let config = serde_json::from_value(run.config).unwrap();
        let error = uncia_load::run(&config, &Stop::new().unwrap(), &mut |_| {}).unwrap_err();
        assert!(matches!(error, LoadError::Create(_)) && error.is_bad_input(), "{error}");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
}

#[test]
fn a_dry_run_sends_nothing_and_writes_the_schedule() {
    let server = Server::answering(|_| hello());
    let schedule = || {
        let run = Run::new(&server.url(), constant(4, 2 * SECOND)).with("dry_run", true);
        let config = serde_json::from_value(run.config).unwrap();
        let done = uncia_load::run(&config, &Stop::new().unwrap(), &mut |_| {}).unwrap();
        assert_eq!((done.rows, done.sent, done.scheduled), (8, 0, 8));
        crate::support::Rows { batch: crate::support::read(&config.out), done }
    };
    let rows = schedule();
    let expected: Vec<_> = (0..8).map(|k| Some(k * SECOND / 4)).collect();
    assert_eq!(rows.numbers("scheduled"), expected);
    assert_eq!(rows.texts("target")[0].as_deref(), Some("hello-0"));
    assert_eq!(rows.texts("invocation")[7].as_deref(), Some("test:load-0-7"));
    assert_eq!(rows.batch.columns(), schedule().batch.columns());
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
}
