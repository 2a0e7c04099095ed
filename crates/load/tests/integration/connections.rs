//! Which connection a request goes out on, and what is below HTTP.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use serde_json::json;
use uncia_load::{Event, LoadError, Stop};

use crate::support::{MS, Run, SECOND, Server, burst, constant, hello, read_request};
use crate::tls_server::{self, TlsServer};

#[test]
fn a_fresh_connection_for_each_request() {
    let closes = Arc::new(AtomicUsize::new(0));
    let seen = closes.clone();
    let server = Server::answering(move |request| {
        if request.header("connection") == Some("close") {
            seen.fetch_add(1, Ordering::SeqCst);
        }
        hello()
    });
    let rows =
        Run::new(&server.url(), constant(100, SECOND / 4)).with("connections", "fresh").run();
    rows.all("ok");
    assert_eq!(rows.len(), 25);
    assert_eq!(server.connections.load(Ordering::SeqCst), 25);
    assert_eq!(closes.load(Ordering::SeqCst), 25, "the server is told");
    assert_eq!(rows.flags("connection_reused"), vec![Some(false); 25]);
    assert_eq!(rows.differences("connected", "sent").len(), 25);
}

#[test]
fn a_pool_stands_before_the_first_request() {
    // Nobody is answered before all have asked, so no connection is there a second time.
    let all_asked = Barrier::new(100);
    let server = Server::answering(move |_| {
        all_asked.wait();
        hello()
    });
    let rows = Run::new(&server.url(), burst(100)).with("connections", json!({"pool": 100})).run();
    rows.all("ok");
    assert_eq!(server.connections.load(Ordering::SeqCst), 100);
    assert_eq!(rows.numbers("connected"), vec![None; 100], "none was opened for a request");
    assert_eq!(rows.flags("connection_reused"), vec![Some(false); 100], "none had carried one");
}

#[test]
fn a_pool_that_can_t_be_opened_is_an_error_before_the_run() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let run =
        Run::new(&format!("http://{free}/"), burst(3)).with("connections", json!({"pool": 3}));
    let folder = run.folder.path().to_owned();
    let error = run.fail();
    assert!(matches!(error, LoadError::Pool { opened: 0, wanted: 3, .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(!folder.join("invocations.arrows").exists());
}

#[test]
fn a_unix_socket_instead_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while matches!((&stream).read(&mut bytes), Ok(1..)) {
                    assert!(String::from_utf8_lossy(&bytes).contains("host: any.name\r\n"));
                    (&stream).write_all(&hello()).unwrap();
                }
            });
        }
    });
    let mut run = Run::new("http://any.name/path", constant(100, SECOND / 10));
    run.config["streams"][0]["targets"][0]["unix_socket"] = path.to_str().into();
    let rows = run.run();
    rows.all("ok");
    assert_eq!(rows.len(), 10);
    let mut run = Run::new("http://any.name/path", burst(1));
    run.config["streams"][0]["targets"][0]["unix_socket"] = "/nowhere/at/all.sock".into();
    let said = run.run().all("transport_error");
    assert!(said[0].contains("No such file"), "{said:?}");
}

#[test]
fn a_head_that_does_not_come_in_time_is_a_timeout_of_its_own() {
    let server = Server::raw(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_request(&mut reader);
        std::thread::sleep(Duration::from_secs(20));
    });
    let rows = Run::new(&server.url(), burst(3)).with("first_byte_timeout_ns", 100 * MS).run();
    assert_eq!(rows.all("timeout"), ["no first byte of an answer within 100 ms"; 3]);
    // With the head in time, only the total counts.
    let server = Server::raw(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_request(&mut reader);
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(2_500));
        (&stream).write_all(b"hello").unwrap();
        std::thread::sleep(Duration::from_secs(1));
    });
    let rows = Run::new(&server.url(), burst(3)).with("first_byte_timeout_ns", 2 * SECOND).run();
    rows.all("ok");
}

#[test]
fn round_trips_are_measured_before_and_after() {
    let server = Server::answering(|_| hello());
    let run = Run::new(&server.url(), burst(2)).with("rtt_probes", 4);
    let config = serde_json::from_value(run.config).unwrap();
    let mut events = Vec::new();
    let stop = Stop::new().unwrap();
    let done = uncia_load::run(&config, &stop, &mut |event| {
        if let Event::Rtt(rtt) = event {
            events.push(rtt.clone());
        }
    });
    let done = done.unwrap();
    assert_eq!(done.rtt, events);
    let whens: Vec<_> = events.iter().map(|rtt| json!(rtt.when)).collect();
    assert_eq!(whens, ["before", "after"]);
    for rtt in events {
        assert_eq!(rtt.endpoint, server.address.to_string());
        assert_eq!(rtt.samples_ns.len(), 4);
        assert!(rtt.samples_ns.iter().all(|ns| (1..60 * SECOND).contains(ns)), "{rtt:?}");
    }
}

#[test]
fn tls_with_a_certificate_that_is_trusted() {
    let server = TlsServer::start(&[b"http/1.1"]);
    let run = Run::new(&server.url(), constant(100, SECOND / 5))
        .with("tls", json!({"ca_file": server.ca_file()}))
        // On a slow machine every request would find the connections before it busy.
        .with("max_connections", 1)
        .stream("body", json!({"text": "x".repeat(200_000)}));
    let rows = run.run();
    rows.all("ok");
    assert_eq!(rows.len(), 20);
    // What comes back is as long as what was sent, so all of it arrived.
    assert_eq!(rows.numbers("response_bytes"), vec![Some(200_000); 20]);
    assert_eq!(rows.flags("connection_reused")[1..], [Some(true); 19]);
}

#[test]
fn tls_that_can_t_be_trusted_is_an_error_of_each_request() {
    let server = TlsServer::start(&[b"http/1.1"]);
    let other = TlsServer::start(&[b"http/1.1"]);
    let run = Run::new(&server.url(), burst(3)).with("tls", json!({"ca_file": other.ca_file()}));
    for said in run.run().all("transport_error") {
        assert!(said.contains("TLS failed: invalid peer certificate"), "{said}");
    }
    let run = Run::new(&server.url(), burst(3)).with("tls", json!({"insecure": true}));
    run.run().all("ok");
    // A server without TLS.
    let plain = Server::answering(|_| hello());
    let url = format!("https://{}/", plain.address);
    let run = Run::new(&url, burst(2)).with("tls", json!({"insecure": true}));
    for said in run.run().all("transport_error") {
        assert!(said.contains("TLS failed"), "{said}");
    }
    let silent = Server::raw(drop);
    let url = format!("https://{}/", silent.address);
    let run = Run::new(&url, burst(2)).with("tls", json!({"insecure": true}));
    run.run().all("transport_error");
}

#[test]
fn certificates_that_can_t_be_read_are_an_error_before_the_run() {
    let run =
        Run::new("https://127.0.0.1:1/", burst(1)).with("tls", json!({"ca_file": "/none.pem"}));
    let error = run.fail().to_string();
    assert!(error.contains("/none.pem"), "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let run = Run::new("https://127.0.0.1:1/", burst(1))
        .with("tls", json!({"ca_file": file.path().to_str()}));
    let error = run.fail().to_string();
    assert!(error.contains("no certificate in it"), "{error}");
}

#[test]
fn many_requests_at_a_time_on_one_http2_connection() {
    let server = tls_server::http2(None);
    let rows =
        Run::new(&server.url(), constant(2_000, SECOND / 2)).stream("http_version", "2").run();
    rows.all("ok");
    assert_eq!(rows.len(), 1_000);
    assert!(server.connections.load(Ordering::SeqCst) < 20, "{:?}", server.connections);
    assert_eq!(rows.numbers("response_bytes"), vec![Some(5); 1_000]);
    assert_eq!(rows.differences("first_byte", "sent").len(), 1_000);
}

#[test]
fn alpn_finds_out_what_the_server_speaks() {
    for (offered, version) in [(&[b"h2".as_slice()][..], "auto"), (&[b"h2"], "2")] {
        let server = TlsServer::start(offered);
        let rows = Run::new(&server.url(), constant(200, SECOND / 5))
            .with("tls", json!({"ca_file": server.ca_file()}))
            .stream("http_version", version)
            .stream("body", json!({"text": "x".repeat(100_000)}))
            .run();
        rows.all("ok");
        assert_eq!(rows.numbers("response_bytes"), vec![Some(100_000); 40]);
    }
    let server = TlsServer::start(&[b"http/1.1"]);
    let run = Run::new(&server.url(), burst(2)).with("tls", json!({"insecure": true}));
    run.stream("http_version", "auto").run().all("ok");
    let run = Run::new(&server.url(), burst(2)).with("tls", json!({"insecure": true}));
    run.stream("http_version", "2").run().all("transport_error");
    // Prior knowledge that is wrong.
    let server = Server::answering(|_| hello());
    let said = Run::new(&server.url(), burst(2)).stream("http_version", "2").run();
    said.all("transport_error");
}

#[test]
fn an_http2_request_that_takes_too_long_ends_alone() {
    let server = tls_server::http2(Some(Duration::from_millis(300)));
    let rows = Run::new(&server.url(), constant(100, SECOND / 2))
        .stream("http_version", "2")
        .with("total_timeout_ns", 100 * MS)
        .run();
    assert_eq!(rows.len(), 50);
    rows.all("timeout");
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

/// That of a burst each request was sent only after the one before was answered.
fn one_after_another(run: Run) {
    let rows = run.run();
    rows.all("ok");
    let mut times: Vec<_> =
        rows.numbers("sent").into_iter().zip(rows.numbers("received")).collect();
    times.sort_unstable();
    assert_eq!(times.len(), 4);
    assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{times:?}");
}

#[test]
fn http2_keeps_to_the_greatest_number_of_connections() {
    let servers = [(); 2].map(|()| tls_server::http2(Some(Duration::from_millis(50))));
    let run = || {
        Run::new(&servers[0].url(), burst(4)).stream("http_version", "2").with("max_connections", 1)
    };
    let targets = json!([
        {"function": "a", "url": servers[0].url()}, {"function": "b", "url": servers[1].url()}]);
    one_after_another(run().stream("targets", targets));
    one_after_another(run().with("connections", "fresh"));
}

#[test]
fn a_pool_above_the_greatest_number_of_connections_is_an_error() {
    let server = Server::answering(|_| hello());
    let error = Run::new(&server.url(), burst(1))
        .with("connections", json!({"pool": 3}))
        .with("max_connections", 2)
        .fail();
    assert!(error.is_bad_input());
    assert!(error.to_string().contains("max_connections is 2"), "{error}");
}
