//! Requests that are sent when others are answered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use serde_json::{Value, json};
use uncia_load::{Signal, Stop};

use crate::support::{MS, Request, Rows, Run, SECOND, Server, at_once, burst, constant};
use crate::tls_server;

/// An answer of JSON.
fn answer(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A stage that is sent to the path of its name.
fn stage(server: &Server, name: &str, pacing: Value, template: &str) -> Value {
    let url = format!("{}{name}", server.url());
    let mut stream = json!({
        "function": name, "stage": name, "targets": [{"function": name, "url": url}],
        "body": {"template": template}, "invocation_header": "x-uncia-invocation",
    });
    stream.as_object_mut().unwrap().extend(pacing.as_object().unwrap().clone());
    stream
}

fn after(streams: &[usize]) -> Value {
    json!({"after": {"streams": streams}})
}

fn chain(streams: Vec<Value>) -> Run {
    Run::new("http://127.0.0.1:1/", Value::Null).with("streams", streams)
}

/// A column by the stage and the number of the request.
fn by_stage(rows: &Rows, column: Vec<Option<String>>) -> BTreeMap<(String, u64), Option<String>> {
    let keys = rows.texts("stage").into_iter().zip(rows.texts("invocation"));
    let number = |id: String| id.rsplit('-').next().unwrap().parse().unwrap();
    let keys = keys.map(|(stage, id)| (stage.unwrap(), number(id.unwrap())));
    keys.zip(column).collect()
}

/// How many rows each stage has.
fn counts(rows: &Rows) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for stage in rows.texts("stage").into_iter().flatten() {
        *counts.entry(stage).or_default() += 1;
    }
    counts
}

fn expected(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    counts.iter().map(|(stage, count)| ((*stage).to_owned(), *count)).collect()
}

fn echo(request: &Request) -> Vec<u8> {
    let body = String::from_utf8_lossy(&request.body);
    answer(&format!("{{\"of\": \"{}\", \"was\": {body}}}", request.path))
}

#[test]
fn a_sequence_carries_answers_on_and_its_rows_say_so() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let server = {
        let seen = seen.clone();
        Server::answering(move |request| {
            seen.lock().unwrap().push(String::from_utf8(request.body.clone()).unwrap());
            echo(request)
        })
    };
    let rows = chain(vec![
        stage(&server, "one", json!({"arrivals": constant(50, SECOND / 5)}), "{{number}}"),
        stage(
            &server,
            "two",
            json!({"after": {"streams": [0], "think_ns": 20 * MS}}),
            "{{answer}}",
        ),
        stage(
            &server,
            "three",
            after(&[1]),
            "[{{answer.was.was}}, {{answers.one.was}}, \"{{answer.of}}\", {{json answer.was.of}}]",
        ),
    ])
    .run();
    rows.all("ok");
    assert_eq!(counts(&rows), expected(&[("one", 10), ("two", 10), ("three", 10)]));
    assert_eq!((rows.done.scheduled, rows.done.unsent), (30, 0));
    let seen = seen.lock().unwrap();
    for number in 0..10 {
        let last = format!("[{number}, {number}, \"/two\", \"/one\"]");
        assert!(seen.contains(&last), "{last} not in {seen:?}");
    }
    let open = rows.flags("open_loop").into_iter().map(|flag| flag.map(|flag| flag.to_string()));
    let open = by_stage(&rows, open.collect());
    let parents = by_stage(&rows, rows.texts("parent"));
    let ids = by_stage(&rows, rows.texts("invocation"));
    let time = |column| {
        let values = rows.numbers(column).into_iter().map(|time| time.map(|t| t.to_string()));
        by_stage(&rows, values.collect())
    };
    let (scheduled, sent, received) = (time("scheduled"), time("sent"), time("received"));
    let number = |text: &Option<String>| text.as_ref().unwrap().parse::<i64>().unwrap();
    for k in 0..10 {
        let key = |stage: &str| (stage.to_owned(), k);
        assert_eq!(open[&key("one")].as_deref(), Some("true"));
        assert_eq!(number(&scheduled[&key("one")]), k as i64 * 20 * MS, "as intended");
        assert_eq!(parents[&key("one")], None);
        for (stage, before, think) in [("two", "one", 20 * MS), ("three", "two", 0)] {
            assert_eq!(open[&key(stage)].as_deref(), Some("false"));
            assert_eq!(scheduled[&key(stage)], None);
            assert_eq!(parents[&key(stage)], ids[&key(before)]);
            let between = number(&sent[&key(stage)]) - number(&received[&key(before)]);
            assert!(between >= think, "{between}");
        }
    }
}

/// A diamond whose stages fail where the number of the chain says so.
fn diamond(server: &Server) -> Run {
    chain(vec![
        stage(server, "a", json!({"arrivals": constant(100, SECOND / 10)}), "{{number}}"),
        stage(server, "b", after(&[0]), "{{answer.n}}"),
        stage(server, "c", after(&[0]), "{{answer.n}}"),
        stage(server, "d", after(&[1, 2]), "{{answers.b.n}}"),
        stage(server, "e", after(&[3]), "{{answer.n}}"),
    ])
}

#[test]
fn a_failure_in_any_stage_ends_its_branch_and_is_a_row() {
    for (failing, rest) in [
        ("a", &[("a", 10), ("b", 9), ("c", 9), ("d", 9), ("e", 9)]),
        ("b", &[("a", 10), ("b", 10), ("c", 10), ("d", 9), ("e", 9)]),
        ("c", &[("a", 10), ("b", 10), ("c", 10), ("d", 9), ("e", 9)]),
        ("d", &[("a", 10), ("b", 10), ("c", 10), ("d", 10), ("e", 9)]),
        ("e", &[("a", 10), ("b", 10), ("c", 10), ("d", 10), ("e", 10)]),
    ] {
        let server = Server::answering(move |request| {
            let body = String::from_utf8(request.body.clone()).unwrap();
            if request.path == format!("/{failing}") && body == "3" {
                return b"HTTP/1.1 500 No\r\ncontent-length: 9\r\n\r\n{\"n\": 99}".to_vec();
            }
            answer(&format!("{{\"n\": {body}}}"))
        });
        let rows = diamond(&server).run();
        assert_eq!(counts(&rows), expected(rest), "{failing}");
        let outcomes = by_stage(&rows, rows.texts("outcome"));
        let failed: Vec<_> =
            outcomes.iter().filter(|(_, outcome)| outcome.as_deref() != Some("ok")).collect();
        let outcome = Some("function_error".to_owned());
        assert_eq!(failed, [(&(failing.to_owned(), 3), &outcome)]);
    }
}

#[test]
fn a_stage_that_follows_failures_is_sent_whatever_became_of_those_before() {
    let server = Server::answering(|request| match request.path.as_str() {
        "/b" => b"HTTP/1.1 500 No\r\ncontent-length: 9\r\n\r\n{\"n\": 99}".to_vec(),
        _ => answer("{\"n\": 1}"),
    });
    let whatever = |stream: usize| json!({"after": {"streams": [stream], "after_failures": true}});
    let rows = chain(vec![
        stage(&server, "a", json!({"arrivals": burst(2)}), ""),
        stage(&server, "b", after(&[0]), ""),
        stage(&server, "c", whatever(1), "{{answers.a.n}}"),
        stage(&server, "d", whatever(2), "{{answers.b.n}}"),
        stage(&server, "e", whatever(3), "{{answers.a.n}}"),
        stage(&server, "f", after(&[3]), ""),
    ])
    .run();
    assert_eq!(counts(&rows), expected(&[("a", 2), ("b", 2), ("c", 2), ("d", 2), ("e", 2)]));
    let outcomes = by_stage(&rows, rows.texts("outcome"));
    let errors = by_stage(&rows, rows.texts("error"));
    for (stage, outcome) in [("c", "ok"), ("d", "transport_error"), ("e", "ok")] {
        assert_eq!(outcomes[&(stage.to_owned(), 0)].as_deref(), Some(outcome), "{stage}");
    }
    let error = errors[&("d".to_owned(), 0)].as_deref().unwrap();
    assert!(error.starts_with("not sent: stage \"b\" failed"), "{error}");
}

#[test]
fn what_cannot_be_made_of_an_answer_is_a_row_that_says_why() {
    for (body, expected) in [
        ("", "the answer of stage \"one\" is empty"),
        ("hello", "the answer of stage \"one\" is not JSON"),
        ("{\"n\": ", "the answer of stage \"one\" is not JSON"),
        ("{\"m\": 1}", "the answer of stage \"one\" has no n"),
        ("[1, 2]", "the answer of stage \"one\" has no n"),
    ] {
        let server = Server::answering(move |_| answer(body));
        let rows = chain(vec![
            stage(&server, "one", json!({"arrivals": burst(2)}), ""),
            stage(&server, "two", after(&[0]), "{{answer.n}}"),
            stage(&server, "three", after(&[1]), "{{answer}}"),
        ]);
        let rows = rows.run();
        let outcomes = by_stage(&rows, rows.texts("outcome"));
        let errors = by_stage(&rows, rows.texts("error"));
        assert_eq!(rows.len(), 4, "{body:?}: nothing follows");
        for number in [0, 1] {
            assert_eq!(outcomes[&("one".to_owned(), number)].as_deref(), Some("ok"));
            let two = ("two".to_owned(), number);
            assert_eq!(outcomes[&two].as_deref(), Some("transport_error"));
            let error = errors[&two].as_deref().unwrap();
            assert!(error.starts_with("not sent: ") && error.contains(expected), "{error}");
        }
        let sizes = rows.numbers("request_bytes").into_iter().flatten().count();
        assert_eq!(sizes, 2, "nothing of the others went out");
    }
}

#[test]
fn answers_can_be_in_paths_and_queries() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let paths = seen.clone();
    let server = Server::answering(move |request| {
        paths.lock().unwrap().push((request.method.clone(), request.path.clone()));
        answer("{\"id\": \"a/b \\u00fc\", \"n\": [7]}")
    });
    let mut last = stage(&server, "two", after(&[0]), "");
    last["targets"][0]["url"] =
        format!("{}items/{{{{answer.id}}}}?n={{{{answer.n.0}}}}", server.url()).into();
    last["query"] = json!({"all": "{{json answer.n}}"});
    last["method"] = "GET".into();
    let head = stage(&server, "one", json!({"arrivals": burst(1)}), "");
    chain(vec![head, last]).run().all("ok");
    let expected = ("GET".to_owned(), "/items/a%2Fb%20%C3%BC?n=7&all=%5B7%5D".to_owned());
    assert_eq!(seen.lock().unwrap()[1], expected);
}

/// Each value is short enough, and all of them, percent-encoded, are not.
#[test]
fn a_url_that_answers_make_too_long_is_a_row_that_says_so() {
    let http1 = Server::answering(|_| answer(""));
    let http2 = tls_server::http2(None);
    for (version, url) in [("1.1", http1.url()), ("2", http2.url())] {
        for (letters, times, outcome) in
            [(400, 3, "ok"), (4_000, 2, "transport_error"), (4_000, 3, "transport_error")]
        {
            let first = Server::answering(move |_| answer(&"\u{fc}".repeat(letters)));
            let mut last = stage(&first, "two", after(&[0]), "");
            last["targets"][0]["url"] =
                format!("{url}{}?q={}", "{{answer}}", "{{answer}}".repeat(times - 1)).into();
            last["http_version"] = version.into();
            let head = stage(&first, "one", json!({"arrivals": burst(2)}), "");
            let rows = chain(vec![head, last]).run();
            let outcomes = by_stage(&rows, rows.texts("outcome"));
            let errors = by_stage(&rows, rows.texts("error"));
            for number in [0, 1] {
                let two = ("two".to_owned(), number);
                assert_eq!(outcomes[&two].as_deref(), Some(outcome), "{version}, {times}");
                let error = errors[&two].as_deref().unwrap_or_default();
                let says = error.starts_with("not sent: the path and query have ");
                assert_eq!(says, outcome != "ok", "{error}");
            }
        }
    }
}

#[test]
fn answers_that_are_no_json_can_be_sent_on_whole() {
    for body in ["", "hello \"world\"\n", "{\"n\": 1}"] {
        let server = Server::answering(move |request| match request.path.as_str() {
            "/two" => answer(&format!("{}", request.body == body.as_bytes())),
            _ => answer(body),
        });
        let rows = chain(vec![
            stage(&server, "one", json!({"arrivals": burst(1)}), ""),
            stage(&server, "two", after(&[0]), "{{answer}}"),
            stage(&server, "three", after(&[1]), "{{answers.two}}{{answers.one}}"),
        ])
        .run();
        rows.all("ok");
        let sizes = by_stage(
            &rows,
            rows.numbers("request_bytes").iter().map(|n| n.map(|n| n.to_string())).collect(),
        );
        let expected = (4 + body.len()).to_string();
        assert_eq!(sizes[&("three".to_owned(), 0)].as_deref(), Some(expected.as_str()));
    }
}

#[test]
fn a_stage_that_times_out_ends_its_branch() {
    let server = Server::answering(|request| {
        if request.path == "/slow" {
            std::thread::sleep(Duration::from_secs(30));
        }
        answer("{}")
    });
    let rows = chain(vec![
        stage(&server, "one", json!({"arrivals": burst(3)}), ""),
        stage(&server, "slow", after(&[0]), ""),
        stage(&server, "quick", after(&[0]), ""),
        stage(&server, "both", after(&[1, 2]), ""),
        stage(&server, "next", after(&[2]), ""),
    ])
    // Far longer than the others take, on a busy machine too.
    .with("total_timeout_ns", 3 * SECOND)
    .run();
    assert_eq!(counts(&rows), expected(&[("one", 3), ("slow", 3), ("quick", 3), ("next", 3)]));
    let outcomes = by_stage(&rows, rows.texts("outcome"));
    for ((stage, _), outcome) in outcomes {
        let expected = if stage == "slow" { "timeout" } else { "ok" };
        assert_eq!(outcome.as_deref(), Some(expected), "{stage}");
    }
}

#[test]
fn an_interrupted_run_has_the_rows_of_every_request_and_sends_no_more() {
    let asked = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(Stop::new().unwrap());
    let server = {
        let (asked, stop, once) = (asked.clone(), stop.clone(), Once::new());
        Server::answering(move |request| {
            asked.fetch_add(1, Ordering::SeqCst);
            if request.path == "/two" {
                // A second signal would end the run without its answers.
                once.call_once(|| stop.signal(Signal::Interrupt));
                // Longer than a busy machine takes to notice the signal.
                std::thread::sleep(Duration::from_secs(3));
            }
            answer("{}")
        })
    };
    let rows = chain(vec![
        stage(&server, "one", json!({"arrivals": constant(20, 60 * SECOND)}), ""),
        stage(
            &server,
            "two",
            json!({"after": {"streams": [0], "think_ns": 150 * MS, "think_max_ns": 200 * MS}}),
            "",
        ),
        stage(&server, "three", after(&[1]), ""),
    ])
    .run_until(&stop);
    let counts = counts(&rows);
    assert!((1..=counts["one"]).contains(&counts["two"]), "{counts:?}");
    assert!(!counts.contains_key("three") && counts["one"] < 1_200, "{counts:?}");
    assert_eq!(asked.load(Ordering::SeqCst), rows.len());
    assert_eq!(rows.done.interrupted, Some("SIGINT"));
    assert_eq!(rows.done.unsent, 1_200 - counts["one"] as u64);
    rows.all("ok");
}

#[test]
fn a_client_of_a_closed_loop_waits_for_the_whole_chain() {
    let (server, most) = at_once(2, Duration::from_millis(5), || answer("{}"));
    let closed = json!({"closed": {"clients": 2, "duration_ns": 120 * SECOND, "requests": 9}});
    let rows = chain(vec![
        stage(&server, "one", closed, ""),
        stage(&server, "two", after(&[0]), "{{answer}}"),
    ])
    .run();
    rows.all("ok");
    assert_eq!(counts(&rows), expected(&[("one", 9), ("two", 9)]));
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(rows.flags("open_loop"), vec![Some(false); 18]);
    let heads = rows.numbers("scheduled").into_iter().flatten().count();
    assert_eq!(heads, 9);
}

#[test]
fn a_chain_is_planned_before_anything_is_sent() {
    let server = Server::answering(echo);
    let head = || stage(&server, "one", json!({"arrivals": burst(2)}), "");
    for (second, expected) in [
        (stage(&server, "two", after(&[1]), ""), "it waits for stream 1"),
        (stage(&server, "one", after(&[0]), ""), "two stages \"one\""),
        (
            stage(&server, "two", after(&[0]), "{{answers.zero}}"),
            "the stages before this one are one",
        ),
        (
            stage(&server, "two", json!({"arrivals": burst(1)}), "{{answer}}"),
            "no stage comes before",
        ),
        (stage(&server, "two", json!({}), ""), "exactly one of arrivals, closed and after"),
    ] {
        let error = chain(vec![head(), second]).fail().to_string();
        assert!(error.contains(expected), "{expected:?} not in {error:?}");
    }
    let mut header = stage(&server, "two", after(&[0]), "");
    header["headers"] = json!({"n": "{{answer.n}}"});
    let error = chain(vec![head(), header]).fail().to_string();
    assert!(error.contains("answers can be in bodies, URLs and queries"), "{error}");
    let run = chain(vec![head(), stage(&server, "two", after(&[0]), "")]).with("dry_run", true);
    let config = serde_json::from_value(run.config).unwrap();
    let done = uncia_load::run(&config, &Stop::new().unwrap(), &mut |_| {}).unwrap();
    assert_eq!((done.rows, done.scheduled), (2, 2), "of later stages no times are known");
}

#[test]
fn answers_are_carried_on_over_http2() {
    // It answers with `hello`.
    let server = tls_server::http2(None);
    let url = server.url();
    let stream = |name: &str, pacing: Value, template: &str| {
        let mut stream = json!({
            "function": name, "stage": name, "targets": [{"function": name, "url": url}],
            "http_version": "2", "body": {"template": template},
        });
        stream.as_object_mut().unwrap().extend(pacing.as_object().unwrap().clone());
        stream
    };
    let rows = chain(vec![
        stream("one", json!({"arrivals": burst(20)}), ""),
        stream("two", after(&[0]), "{{answer}}, {{answer}}"),
        stream("three", after(&[1]), "{{answer.n}}"),
    ])
    .run();
    assert_eq!(counts(&rows), expected(&[("one", 20), ("two", 20), ("three", 20)]));
    let sizes = rows.numbers("request_bytes").into_iter().flatten().filter(|size| *size == 12);
    assert_eq!(sizes.count(), 20);
    assert_eq!((rows.done.ok, rows.done.failed["transport_error"]), (40, 20));
}

/// As many requests at a time as a server may get, over connections that are used again.
#[test]
fn many_chains_at_once() {
    let server = Server::answering(echo);
    let mut streams = vec![stage(&server, "head", json!({"arrivals": burst(100)}), "{{number}}")];
    for index in 0..8 {
        streams.push(stage(&server, &format!("s{index}"), after(&[0]), "{{json answer.was}}"));
    }
    let all: Vec<usize> = (1..9).collect();
    streams.push(stage(&server, "join", after(&all), "[{{answers.s0.was}}, {{answers.s7.was}}]"));
    let rows = chain(streams).with("max_connections", 16).run();
    rows.all("ok");
    assert_eq!(rows.len(), 1_000);
    assert!(server.connections.load(Ordering::SeqCst) <= 16);
}
