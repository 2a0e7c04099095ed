//! Functions that behave.

use std::time::Duration;

use base64::Engine;
use libtest_mimic::Trial;
use serde_json::json;
use uncia_worker::instance::{Network, Runtime};

use crate::fixture::{Function, MIB, Needs, answer, host, request, test, with_context};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("python_serves_many_requests", Needs::Sandbox, python_serves_many_requests),
        test("python_context", Needs::Sandbox, python_context),
        test("python_packages_and_environment", Needs::Sandbox, python_packages_and_environment),
        test("python_standard_library", Needs::Sandbox, python_standard_library),
        test("python_json_forms", Needs::Sandbox, python_json_forms),
        test("python_logging", Needs::Sandbox, python_logging),
        test("node_serves_many_requests", Needs::Node, node_serves_many_requests),
        test("node_callbacks", Needs::Node, node_callbacks),
        test("node_modules_of_both_kinds", Needs::Node, node_modules_of_both_kinds),
        test("node_context", Needs::Node, node_context),
        test("large_payloads_go_both_ways", Needs::Sandbox, large_payloads_go_both_ways),
        test("phases_cover_the_start", Needs::Sandbox, phases_cover_the_start),
        test("a_platform_endpoint_for_chains", Needs::Sandbox, a_platform_endpoint_for_chains),
        test("output_belongs_to_its_invocation", Needs::Sandbox, output_belongs_to_its_invocation),
    ]
}

async fn python_serves_many_requests() {
    let function = Function::python(
        "
        count = 0
        def handler(event, context):
            global count
            count += 1
            return {'got': event, 'id': context.aws_request_id, 'count': count}
        ",
    );
    let instance = function.start().await;
    for count in 1..=5 {
        let request = request(r#"{"a": [1, 2.5, "ä", null, true]}"#);
        let id = request.request_id.clone();
        let reply = instance.invoke(request).await;
        let event = json!({"a": [1, 2.5, "ä", null, true]});
        assert_eq!(answer(&reply), json!({"got": event, "id": id, "count": count}));
        assert!(reply.delivered && reply.ended.since(reply.started) >= 0);
    }
    instance.stop(Duration::from_secs(5)).await;
    assert_eq!(instance.exited().await, "signal: terminated");
}

async fn python_context() {
    let function = Function::python(
        "
        def handler(event, context):
            left = context.get_remaining_time_in_millis()
            return [context.function_name, context.function_version, context.memory_limit_in_mb,
                    context.invoked_function_arn, 0 < left <= 60000, context.identity.cognito_identity_id,
                    context.client_context.custom, context.client_context.client.app_title,
                    context.log_group_name]
        ",
    );
    let instance = function.start().await;
    let context = r#"{"custom": {"k": "ü"}, "client": {"app_title": "t"}}"#;
    let context = base64::engine::general_purpose::STANDARD.encode(context);
    let reply = instance.invoke(with_context(context)).await;
    assert_eq!(
        answer(&reply),
        json!([
            "test", "$LATEST", "256", "arn:aws:lambda:us-east-1:000000000000:function:test", true,
            null, {"k": "ü"}, "t", "/aws/lambda/test"
        ])
    );
    instance.stop(Duration::ZERO).await;
}

async fn python_packages_and_environment() {
    let main = "import os\nfrom .helper import double\n\
                def run(event, context):\n    return [double(event), os.environ['LEVEL'], os.getcwd(), 'HOME' in os.environ]\n";
    let helper = "def double(value):\n    return 2 * value\n";
    let function = Function::new(
        "python",
        &[("app/__init__.py", ""), ("app/entry.py", main), ("app/helper.py", helper)],
        "app.entry.run",
    )
    .with(|spec| {
        spec.environment.insert("LEVEL".into(), "three".into());
    });
    assert_eq!(function.once("21").await, json!([42, "three", "/var/task", false]));
}

/// The modules that need files or libraries beside the interpreter.
async fn python_standard_library() {
    let function = Function::python(
        "
        def handler(event, context):
            import ctypes, decimal, hashlib, json, lzma, bz2, os, pwd, sqlite3, ssl, subprocess, tempfile
            import xml.etree.ElementTree, zlib, multiprocessing, asyncio, urllib.request, uuid
            with tempfile.NamedTemporaryFile() as file:
                file.write(b'x')
            ctypes.CDLL('libstdc++.so.6')
            shell = subprocess.run('echo $((6*7))', shell=True, capture_output=True, text=True)
            return [hashlib.sha256(b'').hexdigest()[:8], shell.stdout, pwd.getpwuid(os.getuid()).pw_name,
                    sqlite3.connect(':memory:').execute('select 1').fetchone()[0],
                    os.path.exists('/dev/urandom'), asyncio.run(asyncio.sleep(0, 'slept'))]
        ",
    );
    let expected = json!(["e3b0c442", "42\n", "sbx_user1051", 1, true, "slept"]);
    assert_eq!(function.once("{}").await, expected);
}

async fn python_json_forms() {
    let function = Function::python(
        "
        import decimal
        def handler(event, context):
            return [event, decimal.Decimal('3'), decimal.Decimal('0.5'), {1: 'a', None: 'b'}, '\\ud83d\\ude00']
        ",
    );
    let instance = function.start().await;
    for (event, value) in [
        (r#""text""#, json!("text")),
        ("  {\"blank\": 1}\n", json!({"blank": 1})),
        ("-1234567890123456789", json!(-1_234_567_890_123_456_789_i64)),
        ("null", json!(null)),
    ] {
        let reply = instance.invoke(request(event)).await;
        assert_eq!(answer(&reply), json!([value, 3, 0.5, {"1": "a", "null": "b"}, "😀"]));
    }
    instance.stop(Duration::ZERO).await;
}

async fn python_logging() {
    let function = Function::python(
        "
        import logging
        logging.getLogger().setLevel(logging.INFO)
        def handler(event, context):
            logging.info('seen %d', 7)
        ",
    );
    let instance = function.start().await;
    let request = request("{}");
    let id = request.request_id.clone();
    let reply = instance.invoke(request).await;
    let log = String::from_utf8(reply.log_tail.to_vec()).unwrap();
    assert!(log.starts_with("[INFO]\t20") && log.ends_with(&format!("Z\t{id}\tseen 7\n")), "{log}");
    instance.stop(Duration::ZERO).await;
}

async fn node_serves_many_requests() {
    let code = "let count = 0;\nexports.handler = async (event, context) => ({got: event, id: context.awsRequestId, count: ++count});";
    let function = Function::new("node", &[("index.js", code)], "index.handler");
    let instance = function.start().await;
    for count in 1..=5 {
        let request = request(r#"{"a": [1, 2.5, "ä", null, true]}"#);
        let id = request.request_id.clone();
        let reply = instance.invoke(request).await;
        let event = json!({"a": [1, 2.5, "ä", null, true]});
        assert_eq!(answer(&reply), json!({"got": event, "id": id, "count": count}));
    }
    instance.stop(Duration::from_secs(5)).await;
    assert_eq!(instance.exited().await, "signal: terminated");
}

async fn node_callbacks() {
    let code = "
        exports.handler = (event, context, callback) => {
          if (event === 'later') setTimeout(() => callback(null, 'called'), 20);
          else if (event === 'never') return;
          else if (event === 'nowait') {
            context.callbackWaitsForEmptyEventLoop = false;
            setInterval(() => {}, 1000);
            callback(null, 'at once');
          } else if (event === 'wait') {
            let done = false;
            setTimeout(() => { done = true; }, 30);
            const result = {get done() { return done; }};
            callback(null, result);
          } else context.succeed(['succeeded', event]);
        };";
    let function = Function::new("node", &[("index.js", code)], "index.handler");
    let instance = function.start().await;
    for (event, value) in [
        (r#""later""#, json!("called")),
        (r#""never""#, json!(null)),
        (r#""wait""#, json!({"done": true})),
        ("5", json!(["succeeded", 5])),
        (r#""nowait""#, json!("at once")),
    ] {
        assert_eq!(answer(&instance.invoke(request(event)).await), value, "{event}");
    }
    instance.stop(Duration::ZERO).await;
}

async fn node_modules_of_both_kinds() {
    let module = "import {double} from './double.mjs';\nexport const handler = async (event) => double(event);";
    let double = "export const double = (value) => 2 * value;";
    for (files, handler) in [
        (vec![("index.mjs", module), ("double.mjs", double)], "index.handler"),
        (
            vec![
                ("src/index.js", module),
                ("src/double.mjs", double),
                ("package.json", r#"{"type": "module"}"#),
            ],
            "src/index.handler",
        ),
        (
            vec![("index.cjs", "exports.deep = {handler: async (event) => 2 * event};")],
            "index.deep.handler",
        ),
    ] {
        let function = Function::new("node", &files, handler);
        assert_eq!(function.once("21").await, json!(42), "{handler}");
    }
}

pub(crate) async fn node_context() {
    let code = "
        exports.handler = async (event, context) => {
          const left = context.getRemainingTimeInMillis();
          return [context.functionName, context.memoryLimitInMB, context.invokedFunctionArn,
                  0 < left && left <= 60000, context.clientContext, process.cwd(),
                  require('os').userInfo().username, require('crypto').createHash('md5').update('').digest('hex').slice(0, 4)];
        };";
    let function = Function::new("node", &[("index.js", code)], "index.handler");
    let instance = function.start().await;
    let context = base64::engine::general_purpose::STANDARD.encode(r#"{"custom":{"k":"ü"}}"#);
    let reply = instance.invoke(with_context(context)).await;
    assert_eq!(
        answer(&reply),
        json!([
            "test", "256", "arn:aws:lambda:us-east-1:000000000000:function:test", true,
            {"custom": {"k": "ü"}}, "/var/task", "sbx_user1051", "d41d"
        ])
    );
    instance.stop(Duration::ZERO).await;
}

pub(crate) async fn large_payloads_go_both_ways() {
    let python = Function::python("def handler(event, context):\n    return event\n");
    let node = Function::new(
        "node",
        &[("index.js", "exports.handler = async (event) => event;")],
        "index.handler",
    )
    // V8 may use most of the memory before it collects: on a busy machine 256 MiB were too few.
    .with(|spec| spec.memory_bytes = 512 << 20);
    let payload = format!("\"{}\"", "x".repeat(6 * 1024 * 1024 - 2));
    let mut functions = vec![python];
    if host().runtime_version(Runtime::named("node").expect("a runtime")).is_some() {
        functions.push(node);
    }
    for function in functions {
        let instance = function.start().await;
        for _ in 0..2 {
            let reply = instance.invoke(request(&payload)).await;
            assert!(answer(&reply) == payload[1..payload.len() - 1]);
        }
        instance.stop(Duration::ZERO).await;
    }
}

async fn phases_cover_the_start() {
    let function = Function::python("def handler(event, context):\n    pass\n");
    let started = function.try_start().await;
    let names: Vec<_> = started.phases.iter().map(|phase| phase.name).collect();
    let expected = ["cgroup", "spawn", "network", "mounts", "exec", "runtime", "handler"];
    assert_eq!(names, expected);
    for pair in started.phases.windows(2) {
        let (duration, gap) = (pair[0].end.since(pair[0].start), pair[1].start.since(pair[0].end));
        assert!(duration >= 0 && gap >= 0, "{pair:?}");
    }
    let covered: i64 = started.phases.iter().map(|phase| phase.end.since(phase.start)).sum();
    assert!(covered <= started.initialization_ns);
    started.result.unwrap().stop(Duration::ZERO).await;
}

pub(crate) async fn a_platform_endpoint_for_chains() {
    let code = "
        import os, urllib.request
        def handler(event, context):
            url = os.environ.get('AWS_ENDPOINT_URL_LAMBDA')
            if url is None:
                url = 'http://127.0.0.1:9002'
            try:
                return urllib.request.urlopen(url + '/invoke/me').read().decode()
            except OSError as error:
                return 'refused'
        ";
    let chained = Function::python(code).with(|spec| spec.network = Network::Platform);
    assert_eq!(chained.once("{}").await, json!("GET /invoke/me"));
    assert_eq!(Function::python(code).once("{}").await, json!("refused"));
}

pub(crate) async fn output_belongs_to_its_invocation() {
    let function = Function::python(
        "
        import sys
        print('at import')
        def handler(event, context):
            print('out', event)
            print('err', event, file=sys.stderr)
        ",
    )
    .with(|spec| spec.memory_bytes = 128 * MIB);
    let started = function.try_start().await;
    assert_eq!(started.log_tail, "at import\n");
    let instance = started.result.unwrap();
    for event in ["1", "2"] {
        let reply = instance.invoke(request(event)).await;
        assert_eq!(reply.log_tail, format!("out {event}\nerr {event}\n"));
    }
    instance.stop(Duration::ZERO).await;
}
