//! Functions that cannot be loaded, raise, or answer nonsense.

use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::json;
use uncia_worker::instance::{Outcome, StartError};

use crate::fixture::{Function, Needs, answer, error, request, test};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("python_handlers_that_cannot_be_loaded", Needs::Sandbox, python_unloadable),
        test("python_errors_are_lambdas", Needs::Sandbox, python_errors),
        test("node_handlers_that_cannot_be_loaded", Needs::Node, node_unloadable),
        test("node_errors_are_lambdas", Needs::Node, node_errors),
        test("node_errors_that_nobody_catches", Needs::Node, node_uncaught),
        test("node_rejections_that_nobody_handles", Needs::Node, node_unhandled),
        test("an_answer_that_is_too_large", Needs::Sandbox, too_large),
        test("initialization_that_exits", Needs::Sandbox, exits_in_initialization),
        test("initialization_that_never_ends", Needs::Sandbox, endless_initialization),
        test("a_sandbox_that_cannot_be_built", Needs::Sandbox, unbuildable),
        test("one_request_at_a_time", Needs::Sandbox, one_at_a_time),
    ]
}

pub(crate) async fn init_error(function: &Function) -> (String, String) {
    match function.try_start().await.result {
        Err(StartError::Init { error_type, message, payload }) => {
            let object: serde_json::Value = serde_json::from_slice(&payload).unwrap();
            assert_eq!(object["errorType"], json!(error_type));
            (error_type, message)
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it started"),
    }
}

async fn python_unloadable() {
    let code = "value = 1\n";
    for (files, handler, kind, words) in [
        (
            vec![("main.py", code)],
            "main.absent",
            "Runtime.HandlerNotFound",
            "'absent' missing on module 'main'",
        ),
        (
            vec![("main.py", code)],
            "other.handler",
            "Runtime.ImportModuleError",
            "No module named 'other'",
        ),
        (
            vec![("main.py", "import nothing_like_it\n")],
            "main.handler",
            "Runtime.ImportModuleError",
            "nothing_like_it",
        ),
        (
            vec![("main.py", "def f(:\n")],
            "main.handler",
            "Runtime.UserCodeSyntaxError",
            "Syntax error in module 'main'",
        ),
        (vec![("main.py", "1 / 0\n")], "main.handler", "ZeroDivisionError", "division by zero"),
        (vec![("main.py", code)], "main", "Runtime.MalformedHandlerName", "Bad handler 'main'"),
        (vec![("main.py", code)], "sys.exit", "Runtime.ImportModuleError", "built-in module sys"),
    ] {
        let (found, message) = init_error(&Function::new("python", &files, handler)).await;
        assert_eq!(found, kind, "{handler}: {message}");
        assert!(message.contains(words), "{handler}: {message}");
    }
}

async fn python_errors() {
    let function = Function::python(
        "
        import socket
        class Own(Exception):
            pass
        def answer_raw(id):
            s = socket.create_connection(('127.0.0.1', 9001))
            path = '/2018-06-01/runtime/invocation/%s/response' % id
            s.sendall(('POST %s HTTP/1.1\\r\\nContent-Length: 3\\r\\n\\r\\nNaN' % path).encode())
            s.recv(1000)
        def deep():
            raise Own('it broke')
        def handler(event, context):
            if event == 'raise':
                deep()
            if event == 'set':
                return {1, 2}
            if event == 'loop':
                loop = []
                loop.append(loop)
                return loop
            if event in ('nan', 'inf'):
                return {'number': float(event)}
            if event == 'decimal':
                import decimal
                return decimal.Decimal('NaN')
            if event == 'bytes':
                return b'bytes'
            if event == 'raw':
                answer_raw(context.aws_request_id)
            if event == 'recursion':
                return handler(event, context)
            return 'fine'
        ",
    );
    let instance = function.start().await;
    let request_own = request(r#""raise""#);
    let id = request_own.request_id.clone();
    let reply = instance.invoke(request_own).await;
    let object = error(&reply);
    assert_eq!(object["errorType"], "Own");
    assert_eq!(object["errorMessage"], "it broke");
    assert_eq!(object["requestId"], json!(id));
    let trace = object["stackTrace"].as_array().unwrap();
    assert_eq!(trace.len(), 2);
    assert!(
        trace[1].as_str().unwrap().contains("/var/task/main.py\", line 10, in deep"),
        "{trace:?}"
    );
    assert!(String::from_utf8_lossy(&reply.log_tail).contains("[ERROR] Own: it broke"));

    for (event, kind) in [
        (r#""set""#, "Runtime.MarshalError"),
        (r#""loop""#, "Runtime.MarshalError"),
        (r#""nan""#, "Runtime.MarshalError"),
        (r#""inf""#, "Runtime.MarshalError"),
        (r#""decimal""#, "Runtime.MarshalError"),
        (r#""bytes""#, "Runtime.MarshalError"),
        (r#""recursion""#, "RecursionError"),
        ("{not json", "JSONDecodeError"),
    ] {
        assert_eq!(error(&instance.invoke(request(event)).await)["errorType"], kind, "{event}");
    }
    assert_eq!(answer(&instance.invoke(request("1")).await), "fine");
    // The function answers in place of its runtime, whose own answer is then one too many.
    let object = error(&instance.invoke(request(r#""raw""#)).await);
    assert_eq!(object["errorType"], "Runtime.MarshalError");
    instance.stop(Duration::ZERO).await;
}

async fn node_unloadable() {
    let code = "exports.value = 1;";
    for (text, handler, kind, words) in [
        (
            code,
            "index.absent",
            "Runtime.HandlerNotFound",
            "index.absent is undefined or not exported",
        ),
        (code, "index.value", "Runtime.HandlerNotFound", "not a function"),
        (code, "other.handler", "Runtime.ImportModuleError", "Cannot find module"),
        (
            "require('nothing-like-it');",
            "index.handler",
            "Runtime.ImportModuleError",
            "nothing-like-it",
        ),
        ("function (", "index.handler", "Runtime.UserCodeSyntaxError", "SyntaxError"),
        ("throw new RangeError('no');", "index.handler", "RangeError", "no"),
        (code, "index", "Runtime.MalformedHandlerName", "Bad handler"),
    ] {
        let function = Function::new("node", &[("index.js", text)], handler);
        let (found, message) = init_error(&function).await;
        assert_eq!(found, kind, "{handler}: {message}");
        assert!(message.contains(words), "{handler}: {message}");
    }
}

async fn node_errors() {
    let code = "
        exports.handler = (event, context, callback) => {
          if (event === 'sync') throw new RangeError('sync');
          if (event === 'async') return Promise.reject(new TypeError('async'));
          if (event === 'callback') return void callback(new Error('callback'));
          if (event === 'string') return Promise.reject('a string');
          if (event === 'loop') { const loop = {}; loop.loop = loop; return Promise.resolve(loop); }
          if (event === 'bigint') return Promise.resolve(1n);
          if (event === 'forever') return new Promise(() => {});
          return Promise.resolve('fine');
        };";
    let function = Function::new("node", &[("index.js", code)], "index.handler");
    let instance = function.start().await;
    for (event, kind, message) in [
        ("sync", "RangeError", "sync"),
        ("async", "TypeError", "async"),
        ("callback", "Error", "callback"),
        ("string", "string", "a string"),
        ("loop", "Runtime.MarshalError", "circular"),
        ("bigint", "Runtime.MarshalError", "BigInt"),
        ("forever", "Runtime.NodeJsExit", "neither resolved nor rejected"),
    ] {
        let object = error(&instance.invoke(request(&format!("\"{event}\""))).await);
        assert_eq!(object["errorType"], kind, "{object}");
        assert!(object["errorMessage"].as_str().unwrap().contains(message), "{object}");
    }
    assert_eq!(answer(&instance.invoke(request("1")).await), "fine");
    instance.stop(Duration::ZERO).await;
}

async fn node_uncaught() {
    let code = "
        exports.handler = (event, context, callback) => {
          setTimeout(() => { throw new RangeError('outside'); }, 1);
        };";
    let function = Function::new("node", &[("index.js", code)], "index.handler");
    let instance = function.start().await;
    let reply = instance.invoke(request("{}")).await;
    assert_eq!(error(&reply)["errorType"], "RangeError");
    assert_eq!(instance.exited().await, "exit status 129");
}

async fn node_unhandled() {
    let code = "
        exports.handler = async (event) => {
          if (event === 'string') Promise.reject('a string');
          if (event === 'error') Promise.reject(new RangeError('forgotten'));
          if (event === 'undefined') return undefined;
          return 'answered';
        };";
    let function = Function::new("node", &[("index.js", code)], "index.handler");
    for (event, message) in [("string", "a string"), ("error", "RangeError: forgotten")] {
        let instance = function.start().await;
        assert!(answer(&instance.invoke(request(r#""undefined""#)).await).is_null());
        let reply = instance.invoke(request(&format!("\"{event}\""))).await;
        let object = error(&reply);
        assert_eq!(object["errorType"], "Runtime.UnhandledPromiseRejection", "{object}");
        assert_eq!(object["errorMessage"], message);
        assert_eq!(instance.exited().await, "exit status 129");
    }
}

async fn too_large() {
    let function = Function::python("def handler(event, context):\n    return 'x' * event\n");
    let instance = function.start().await;
    let reply = instance.invoke(request("7000000")).await;
    assert_eq!(reply.outcome, Outcome::ResponseTooLarge(7_000_002));
    assert!(reply.outcome.instance_survives());
    assert_eq!(answer(&instance.invoke(request("1")).await), "x");
    instance.stop(Duration::ZERO).await;
}

async fn exits_in_initialization() {
    let function = Function::python("import os\nprint('going')\nos._exit(7)\n");
    let started = function.try_start().await;
    assert_eq!(started.log_tail, "going\n");
    match started.result {
        Err(StartError::Exited(how)) => assert_eq!(how, "exit status 7"),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it started"),
    }
}

async fn endless_initialization() {
    let function = Function::python("while True:\n    pass\n")
        .with(|spec| spec.init_timeout = Duration::from_millis(200));
    match function.try_start().await.result {
        Err(StartError::Timeout(after)) => assert_eq!(after.as_millis(), 200),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it started"),
    }
    assert!(crate::fixture::processes(&function.spec.id).is_empty());
    assert!(crate::fixture::control_groups(&function.spec.id).is_empty());
}

async fn unbuildable() {
    let code = "def handler(event, context):\n    pass\n";
    let absent = Function::python(code).with(|spec| spec.code = "/nonexistent".into());
    let named = Function::python(code).with(|spec| spec.id = "../escape".into());
    let period = Function::python(code).with(|spec| spec.period_us = 10);
    let large = Function::python(code).with(|spec| {
        spec.environment.insert("LARGE".into(), "x".repeat(1_000_000));
    });
    for (function, words) in [
        (absent, "/nonexistent is no folder that everybody may read"),
        (named, "is no name for an instance"),
        (period, "CPU period is 10 us"),
        (large, "environment is too large"),
    ] {
        match function.try_start().await.result {
            Err(StartError::Sandbox(message)) => assert!(message.contains(words), "{message}"),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("{words}"),
        }
        assert!(crate::fixture::control_groups(&function.spec.id).is_empty(), "{words}");
    }
}

async fn one_at_a_time() {
    let function = Function::python(
        "import time\ndef handler(event, context):\n    time.sleep(0.2)\n    return 'slept'\n",
    );
    let instance = function.start().await;
    let (first, second) =
        tokio::join!(instance.invoke(request("1")), instance.invoke(request("2")));
    assert_eq!(answer(&first), "slept");
    assert!(!second.delivered);
    assert_eq!(error(&second)["errorType"], "Uncia.Busy");
    instance.stop(Duration::ZERO).await;
}
