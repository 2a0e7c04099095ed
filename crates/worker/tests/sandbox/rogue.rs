//! Runtimes that misuse the Runtime API, or end at a bad moment: this very program plays them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::Trial;
use uncia_worker::instance::{Instance, Outcome};

use crate::fixture::{Function, Needs, host, request, short_request, test};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("an_answer_before_the_exit_counts", Needs::Sandbox, answers_and_exits),
        test("an_event_is_handed_over_once", Needs::Sandbox, resets_at_the_event),
        test("a_runtime_that_does_not_wait_for_events", Needs::Sandbox, resets_at_once),
        test("own_runtimes_may_answer_any_bytes", Needs::Sandbox, answers_text),
    ]
}

const NEXT: &str = "GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\n\r\n";

/// Plays the part that the handler names.
#[expect(clippy::print_stdout, reason = "the function's log, which the test reads")]
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let api = std::env::var("AWS_LAMBDA_RUNTIME_API").ok()?;
    let handler = std::env::var("_HANDLER").ok()?;
    let part = handler.strip_prefix("rogue.")?;
    let connect = || TcpStream::connect(&api).expect("the Runtime API");
    let response = |id: &str, body: &str| {
        let path = format!("/2018-06-01/runtime/invocation/{id}/response");
        format!("POST {path} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    match part {
        "answers-and-exits" | "answers-anew-and-exits" => {
            let mut stream = connect();
            let id = event(&mut stream);
            if part == "answers-anew-and-exits" {
                stream = connect();
            }
            stream.write_all(response(&id, "\"answered\"").as_bytes()).expect("sent");
            #[expect(clippy::exit, reason = "a program that ends at once is what is tested")]
            std::process::exit(0)
        }
        "resets-at-the-event" => loop {
            let mut stream = connect();
            reset_on_close(&stream);
            stream.write_all(NEXT.as_bytes()).expect("sent");
            let mut first = [0; 12];
            stream.read_exact(&mut first).expect("an answer");
            println!("{}", String::from_utf8_lossy(&first[9..]));
            if &first[9..] != b"200" {
                std::thread::sleep(Duration::from_millis(20));
            }
        },
        "resets-at-once" => loop {
            let mut stream = connect();
            reset_on_close(&stream);
            stream.write_all(NEXT.as_bytes()).expect("sent");
            std::thread::sleep(Duration::from_millis(5));
        },
        "answers-text" => {
            let mut stream = connect();
            loop {
                let id = event(&mut stream);
                stream.write_all(response(&id, "no JSON: {").as_bytes()).expect("sent");
                let _ = stream.read(&mut [0; 1000]).expect("an answer");
            }
        }
        other => panic!("{other} is no part"),
    }
}

/// Asks for an event; returns its id.
fn event(stream: &mut TcpStream) -> String {
    stream.write_all(NEXT.as_bytes()).expect("sent");
    let mut text = vec![0; 64 * 1024];
    let count = stream.read(&mut text).expect("an event");
    let text = String::from_utf8_lossy(&text[..count]);
    let id = text.lines().find_map(|line| line.strip_prefix("Lambda-Runtime-Aws-Request-Id: "));
    id.expect("an id").to_owned()
}

fn reset_on_close(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    nix::sys::socket::setsockopt(stream, nix::sys::socket::sockopt::Linger, &linger)
        .expect("an option");
}

fn function(part: &str) -> Function {
    let function = Function::new("provided", &[], &format!("rogue.{part}"));
    let bootstrap = function.spec.code.join("bootstrap");
    std::fs::copy(std::env::current_exe().unwrap(), bootstrap).unwrap();
    function
}

async fn start(part: &str) -> (Function, Instance) {
    let function = function(part);
    let instance = function.start().await;
    (function, instance)
}

async fn answers_and_exits() {
    for part in ["answers-and-exits", "answers-anew-and-exits"] {
        let function = function(part);
        for count in 0..100 {
            let mut spec = function.spec.clone();
            spec.id = format!("{}-{count}", spec.id);
            let instance = host().start(spec).await.result.unwrap();
            let reply = instance.invoke(request("{}")).await;
            assert_eq!(reply.outcome, Outcome::Ok("\"answered\"".into()), "{part}, {count}");
            assert_eq!(instance.exited().await, "exit status 0");
        }
    }
}

async fn resets_at_the_event() {
    let (_function, instance) = start("resets-at-the-event").await;
    let reply = instance.invoke(short_request("{}")).await;
    assert_eq!((reply.outcome, reply.delivered), (Outcome::Timeout, true));
    let printed = String::from_utf8_lossy(&reply.log_tail).into_owned();
    assert_eq!(printed.matches("200").count(), 1, "{printed}");
}

async fn resets_at_once() {
    let (function, instance) = start("resets-at-once").await;
    let reply = instance.invoke(short_request("{}")).await;
    // Whether it still waited when it was handed the event, is chance.
    match (&reply.outcome, reply.delivered) {
        (Outcome::Exited(how), false) => assert!(how.contains("closed the connection"), "{how}"),
        (Outcome::Timeout, true) => {}
        other => panic!("{other:?}"),
    }
    assert!(crate::fixture::processes(&function.spec.id).is_empty());
}

async fn answers_text() {
    let (_function, instance) = start("answers-text").await;
    for _ in 0..2 {
        let reply = instance.invoke(request("{}")).await;
        assert_eq!(reply.outcome, Outcome::Ok("no JSON: {".into()));
    }
    instance.stop(Duration::ZERO).await;
}
