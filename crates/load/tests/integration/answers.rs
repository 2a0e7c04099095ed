//! Answers of every kind become the right rows.

use std::collections::BTreeSet;
use std::io::{BufReader, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{MS, Run, SECOND, Server, burst, constant, hello, read_request};
use serde_json::json;

#[test]
fn each_request_is_a_complete_row() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let server = Server::answering(move |request| {
        let id = request.header("x-uncia-invocation").unwrap().to_owned();
        log.lock().unwrap().push((id, request.method.clone(), request.body.clone()));
        assert_eq!(request.path, "/f?x=1");
        assert_eq!(request.header("x-extra"), Some("1"));
        hello()
    });
    let rows = Run::new(&format!("{}f?x=1", server.url()), constant(200, SECOND))
        .stream("headers", json!({"X-Extra": "1"}))
        .stream("body", json!({"text": "{}"}))
        .run();
    rows.all("ok");
    assert_eq!(rows.len(), 200);
    for (later, earlier) in
        [("sent", "scheduled"), ("first_byte", "sent"), ("received", "first_byte")]
    {
        let differences = rows.differences(later, earlier);
        assert_eq!(differences.len(), 200);
        assert!(differences.iter().all(|difference| *difference >= 0), "{later} - {earlier}");
    }
    let mut scheduled: Vec<i64> = rows.numbers("scheduled").into_iter().flatten().collect();
    scheduled.sort_unstable();
    assert_eq!(scheduled, (0..200).map(|k| k * 5 * MS).collect::<Vec<_>>());
    // A connection is made for a request, or was there before it.
    for (reused, connected) in rows.flags("connection_reused").iter().zip(rows.numbers("connected"))
    {
        assert_eq!(*reused, Some(connected.is_none()));
    }
    // However many are busy at a time on a slow machine, some are used again.
    let connections = server.connections.load(Ordering::SeqCst);
    assert!(connections < 200, "{connections} connections for 200 requests");
    let ids: BTreeSet<_> = rows.texts("invocation").into_iter().flatten().collect();
    let seen = seen.lock().unwrap();
    let seen_ids: BTreeSet<_> = seen.iter().map(|(id, _, _)| id.clone()).collect();
    assert_eq!(ids, seen_ids);
    assert_eq!(ids.len(), 200);
    assert!(seen.iter().all(|(_, method, body)| method == "POST" && body == b"{}"));
    assert_eq!(rows.numbers("request_bytes"), vec![Some(2); 200]);
    assert_eq!(rows.numbers("response_bytes"), vec![Some(5); 200]);
    assert_eq!(rows.numbers("status"), vec![Some(200); 200]);
    assert_eq!(rows.texts("experiment")[0].as_deref(), Some("load"));
    assert_eq!(rows.flags("open_loop"), vec![Some(true); 200]);
}

#[test]
fn replicas_take_turns_and_streams_keep_apart() {
    let server = Server::answering(|request| {
        let body = json!({"uncia": {"instance": request.path, "fresh": false}}).to_string();
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    });
    let target = |name: &str| json!({"function": name, "url": format!("{}{name}", server.url())});
    let mut run = Run::new(&server.url(), burst(6));
    run.config["streams"][0]["targets"] = json!([target("a"), target("b"), target("c")]);
    let mut second = run.config["streams"][0].clone();
    second["function"] = "other".into();
    second["targets"] = json!([target("d")]);
    second["arrivals"] =
        json!({"kind": "burst", "sizes": [1, 2], "interval_ns": 20 * MS, "bursts": 2});
    run.config["streams"].as_array_mut().unwrap().push(second);
    let rows = run.run();
    rows.all("ok");
    let mut found: Vec<_> = rows
        .texts("invocation")
        .into_iter()
        .zip(rows.texts("function"))
        .zip(rows.texts("instance"))
        .zip(rows.numbers("burst"))
        .map(|(((id, function), instance), burst)| {
            let words = [id, function, instance].map(Option::unwrap);
            format!("{} {}", words.join(" "), burst.unwrap())
        })
        .collect();
    found.sort();
    let expected = [
        "test:load-0-0 hello /a 0",
        "test:load-0-1 hello /b 0",
        "test:load-0-2 hello /c 0",
        "test:load-0-3 hello /a 0",
        "test:load-0-4 hello /b 0",
        "test:load-0-5 hello /c 0",
        "test:load-1-0 other /d 0",
        "test:load-1-1 other /d 1",
        "test:load-1-2 other /d 1",
    ];
    assert_eq!(found, expected);
}

#[test]
fn chunks_in_pieces_after_an_informational_answer() {
    let server = Server::raw(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while read_request(&mut reader).is_some() {
            for piece in [
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 2",
                "00 OK\r\nTransfer-Encoding: chunked\r\n\r\n1",
                "0\r\n0123456789abcdef\r\n5;x=y\r\nhel",
                "lo\r\n0\r\nTrailer: 1\r\n\r",
                "\n",
            ] {
                (&stream).write_all(piece.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    });
    let rows = Run::new(&server.url(), constant(50, SECOND / 2)).run();
    rows.all("ok");
    assert_eq!(rows.numbers("response_bytes"), vec![Some(21); 25]);
    assert!(rows.flags("connection_reused").contains(&Some(true)));
    assert!(rows.differences("received", "first_byte").iter().all(|difference| *difference >= 0));
}

#[test]
fn a_server_that_closes_each_connection_gets_a_new_one_each_time() {
    let server = Server::raw(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_request(&mut reader).unwrap();
        let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello";
        (&stream).write_all(answer.as_bytes()).unwrap();
    });
    let rows = Run::new(&server.url(), constant(50, SECOND / 2)).run();
    rows.all("ok");
    assert_eq!(rows.flags("connection_reused"), vec![Some(false); 25]);
    assert_eq!(rows.differences("first_byte", "connected").len(), 25);
    assert_eq!(server.connections.load(Ordering::SeqCst), 25);
}

#[test]
fn an_idle_connection_that_the_server_has_closed_is_not_used() {
    let server = Server::raw(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_request(&mut reader).unwrap();
        (&stream).write_all(&hello()).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    });
    // Far apart: on a busy machine the server may be late to close.
    let rows = Run::new(
        &server.url(),
        json!({"kind": "burst", "sizes": [1], "interval_ns": 2 * SECOND, "bursts": 3}),
    )
    .run();
    rows.all("ok");
    assert_eq!(rows.flags("connection_reused"), vec![Some(false); 3]);
}

#[test]
fn many_idle_connections_may_close_at_once() {
    let server = Server::raw(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_request(&mut reader).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        (&stream).write_all(&hello()).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    });
    let bursts = json!({"kind": "burst", "sizes": [60], "interval_ns": SECOND, "bursts": 3});
    let rows = Run::new(&server.url(), bursts).run();
    rows.all("ok");
    assert_eq!(rows.len(), 180);
}

#[test]
fn a_body_that_ends_with_the_connection_is_complete() {
    let server = Server::raw(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_request(&mut reader).unwrap();
        (&stream).write_all(b"HTTP/1.0 200 OK\r\n\r\nuntil the end").unwrap();
    });
    let rows = Run::new(&server.url(), burst(3)).run();
    rows.all("ok");
    assert_eq!(rows.numbers("response_bytes"), vec![Some(13); 3]);
}

#[test]
fn half_an_answer_is_a_transport_error_with_what_is_known() {
    let server = Server::raw(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_request(&mut reader).unwrap();
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").unwrap();
    });
    let rows = Run::new(&server.url(), burst(3)).run();
    for error in rows.all("transport_error") {
        assert_eq!(error, "the server closed the connection after 4 of 10 bytes of its answer");
    }
    assert_eq!(rows.numbers("status"), vec![Some(200); 3]);
    assert_eq!(rows.numbers("response_bytes"), vec![Some(4); 3]);
    assert_eq!(rows.differences("first_byte", "sent").len(), 3);
    assert_eq!(rows.numbers("received"), vec![None; 3]);
}

#[test]
fn no_answer_garbage_and_a_reset_are_transport_errors() {
    let cases: [(&str, &'static [u8]); 3] = [
        ("closed the connection before it answered", b""),
        ("within the head", b"HTTP/1.1 200 O"),
        ("not HTTP/1", b"220 smtp.example.com ESMTP\r\n"),
    ];
    for (expected, answer) in cases {
        let server = Server::raw(move |stream| {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            read_request(&mut reader).unwrap();
            (&stream).write_all(answer).unwrap();
        });
        for error in Run::new(&server.url(), burst(2)).run().all("transport_error") {
            assert!(error.contains(expected), "{error}");
        }
    }
    let server = Server::raw(|stream| {
        let mut byte = [0];
        (&stream).read_exact(&mut byte).unwrap();
        // Closing with unread input resets the connection.
    });
    for error in Run::new(&server.url(), burst(2)).run().all("transport_error") {
        assert!(error.contains("reset"), "{error}");
    }
}

#[test]
fn refused_connections_are_rows_that_say_so() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let rows = Run::new(&format!("http://127.0.0.1:{port}/"), constant(50, SECOND / 5)).run();
    assert_eq!(rows.len(), 10);
    for error in rows.all("transport_error") {
        assert!(error.contains("cannot connect") && error.contains("refused"), "{error}");
    }
    assert_eq!(rows.differences("sent", "scheduled").len(), 10);
    for column in ["connected", "first_byte", "received", "status", "request_bytes"] {
        assert_eq!(rows.numbers(column), vec![None; 10], "{column}");
    }
    assert_eq!(rows.flags("connection_reused"), vec![None; 10]);
}

#[test]
fn every_address_of_a_host_is_tried() {
    let server = Server::answering(|_| hello());
    // `localhost` may mean ::1 first, where nobody listens.
    let url = format!("http://localhost:{}/", server.address.port());
    let rows = Run::new(&url, constant(20, SECOND / 4)).run();
    rows.all("ok");
}

#[test]
fn throttled_and_failed_invocations_are_told_apart() {
    let server = Server::answering(|request| match request.path.as_str() {
        "/429" => b"HTTP/1.1 429 Too Many\r\ncontent-length: 0\r\n\r\n".to_vec(),
        "/fe" => {
            b"HTTP/1.1 200 OK\r\nX-Amz-Function-Error: Unhandled\r\ncontent-length: 28\r\n\r\n\
                   {\"errorType\": \"ZeroDivision\"}"
                .to_vec()
        }
        _ => b"HTTP/1.1 500 No\r\ncontent-length: 4\r\n\r\noops".to_vec(),
    });
    let run = |path: &str| Run::new(&format!("{}{path}", server.url()), burst(2)).run();
    assert_eq!(run("429").all("throttled"), ["HTTP 429", "HTTP 429"]);
    assert_eq!(run("500").all("function_error"), ["HTTP 500: oops", "HTTP 500: oops"]);
    let failed = run("fe");
    assert_eq!(failed.done.failed["function_error"], 2);
}

#[test]
fn a_large_body_is_sent_whole_and_a_large_answer_counted_whole() {
    const REQUEST: usize = 3 << 20;
    const ANSWER: usize = 5 << 20;
    let server = Server::answering(|request| {
        assert_eq!(request.body.len(), REQUEST);
        assert!(request.body.iter().all(|byte| *byte == b'x'));
        let mut answer =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {ANSWER}\r\n\r\n").into_bytes();
        answer.resize(answer.len() + ANSWER, b'{');
        answer
    });
    let rows = Run::new(&server.url(), burst(3))
        .stream("body", json!({"text": "x".repeat(REQUEST)}))
        .run();
    rows.all("ok");
    assert_eq!(rows.numbers("request_bytes"), vec![Some(REQUEST as i64); 3]);
    assert_eq!(rows.numbers("response_bytes"), vec![Some(ANSWER as i64); 3]);
}

#[test]
fn an_answer_that_comes_before_the_body_was_taken_counts() {
    let server = Server::raw(|stream| {
        let answer = "HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n";
        (&stream).write_all(answer.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = std::io::copy(&mut &stream, &mut std::io::sink());
    });
    let rows = Run::new(&server.url(), burst(2))
        .stream("body", json!({"text": "x".repeat(64 << 20)}))
        .run();
    for error in rows.all("transport_error") {
        assert_eq!(error, "HTTP 413");
    }
}

#[test]
fn a_function_s_report_becomes_columns_and_a_span() {
    let server = Server::answering(|_| {
        let body = r#"{"uncia": {"fresh": true, "instance": "i-1", "handler_start_ns": 1000000005,
            "handler_end_ns": 1000000009, "cpu_ns": 3, "valid": true}}"#;
        format!(
            "HTTP/1.1 200 OK\r\nx-amzn-requestid: r-1\r\nx-uncia-billed-ns: 1000000\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    });
    let run = Run::new(&server.url(), burst(1)).with("epoch_unix_ns", SECOND);
    let spans = run.folder.path().join("spans.arrows");
    let run = run.with("spans_out", spans.to_str().unwrap());
    let config = serde_json::from_value(run.config).unwrap();
    let stop = uncia_load::Stop::new().unwrap();
    let done = uncia_load::run(&config, &stop, &mut |_| {}).unwrap();
    let rows = crate::support::Rows { batch: crate::support::read(&config.out), done };
    assert_eq!(rows.texts("start"), [Some("cold".to_owned())]);
    assert_eq!(rows.texts("instance"), [Some("i-1".to_owned())]);
    assert_eq!(rows.texts("request_id"), [Some("r-1".to_owned())]);
    assert_eq!(rows.numbers("billed"), [Some(MS)]);
    let spans =
        crate::support::Rows { batch: crate::support::read(&spans), done: rows.done.clone() };
    assert_eq!(spans.texts("invocation"), [Some("test:load-0-0".to_owned())]);
    assert_eq!((spans.numbers("start"), spans.numbers("end")), (vec![Some(5)], vec![Some(9)]));
}
