//! Functions that bring their own runtime: here, this very program.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::json;
use uncia_worker::instance::{Outcome, StartError};

use crate::fixture::{Function, Needs, answer, error, request, test};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("a_function_brings_its_own_runtime", Needs::Sandbox, own_runtime),
        test("a_function_without_its_runtime", Needs::Sandbox, missing),
        test("functions_in_bash", Needs::Bash, bash),
    ]
}

/// Plays a runtime of the plainest kind: a connection for each request, which the server closes, and
/// a body in chunks.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let api = std::env::var("AWS_LAMBDA_RUNTIME_API").ok()?;
    let ask = |request: String| {
        let mut stream = TcpStream::connect(&api).expect("the Runtime API");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    };
    let prefix = "/2018-06-01/runtime/invocation";
    loop {
        let event = ask(format!("GET {prefix}/next HTTP/1.1\r\nConnection: close\r\n\r\n"));
        let (head, body) = event.split_once("\r\n\r\n").expect("a head");
        let id = head
            .lines()
            .find_map(|line| line.strip_prefix("Lambda-Runtime-Aws-Request-Id: "))
            .expect("an id");
        let half = body.len() / 2;
        ask(format!(
            "POST {prefix}/{id}/response HTTP/1.1\r\nConnection: close\r\n\
             Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
            half,
            &body[..half],
            body.len() - half,
            &body[half..],
        ));
    }
}

async fn own_runtime() {
    let function = Function::new("provided", &[], "anything");
    let own = std::env::current_exe().unwrap();
    std::fs::copy(own, function.spec.code.join("bootstrap")).unwrap();
    let instance = function.start().await;
    for _ in 0..3 {
        let reply = instance.invoke(request(r#"{"key": "value"}"#)).await;
        assert_eq!(answer(&reply), json!({"key": "value"}));
    }
    instance.stop(Duration::ZERO).await;
    assert_eq!(
        instance.invoke(request("{}")).await.outcome,
        Outcome::Exited("signal: killed".into())
    );
}

async fn bash() {
    let code = "echo starting >&2
        handle() {
            if [[ $1 == null ]]; then echo refused >&2; return 3; fi
            printf '[%s, %s]' \"$1\" \"$1\"
        }";
    let function = Function::new("bash", &[("main.sh", code)], "main.handle");
    let instance = function.start().await;
    for event in [json!("é"), json!({"key": "x".repeat(100_000)})] {
        let reply = instance.invoke(request(&event.to_string())).await;
        assert_eq!(answer(&reply), json!([event, event]));
    }
    let reply = instance.invoke(request("null")).await;
    assert_eq!(error(&reply)["errorMessage"], "handle returned 3");
    assert_eq!(&reply.log_tail[..], b"refused\n");
    assert_eq!(answer(&instance.invoke(request("1")).await), json!([1, 1]));
    instance.stop(Duration::ZERO).await;

    let function = Function::new("bash", &[("main.sh", "")], "main.handle");
    match function.try_start().await.result {
        Err(StartError::Init { error_type, .. }) => {
            assert_eq!(error_type, "Runtime.HandlerNotFound");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it started"),
    }
}

async fn missing() {
    let function = Function::new("provided", &[], "anything");
    match function.try_start().await.result {
        Err(StartError::Init { error_type, message, .. }) => {
            assert_eq!(error_type, "Runtime.InvalidEntrypoint");
            assert!(message.contains("/var/task/bootstrap"), "{message}");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it started"),
    }
}
