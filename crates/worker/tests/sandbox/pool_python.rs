//! Python instances that are made of interpreters which were started ahead.

use std::collections::BTreeSet;
use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::json;
use uncia_worker::instance::{Network, Outcome, StartFrom};

use crate::fixture::{Function, MIB, Needs, answer, processes, request, test};
use crate::pool::{restored, starts_fresh_with};
use crate::zygotes::{forget_ids, look};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        // One test, since what waits is not any instance's, and others would use it meanwhile.
        test("started_pythons", Needs::Sandbox, || async {
            are_what_a_fresh_instance_is().await;
            share_nothing().await;
            fail_as_fresh_ones_do().await;
        }),
        test("started_pythons_keep_the_memory_limit", Needs::Memory, keep_the_memory_limit),
        test("what_a_started_python_has_missed", Needs::Sandbox, starts_fresh),
    ]
}

fn pool(code: &str) -> Function {
    Function::python(code).with(|spec| spec.start_from = StartFrom::Pool)
}

async fn are_what_a_fresh_instance_is() {
    for network in [Network::None, Network::Platform] {
        let function = |start_from, secret: &str| look(start_from, network, secret);
        let mut expected = function(StartFrom::Fresh, "fresh").once("{}").await;
        forget_ids(&mut expected);
        for turn in 0..6 {
            let secret = format!("secret {turn}");
            let function = function(StartFrom::Pool, &secret);
            let instance = restored(&function).await;
            let reply = instance.invoke(request("{}")).await;
            let mut answer = answer(&reply);
            let text = answer.to_string();
            assert_eq!(text.matches("secret").count(), 1, "{text}");
            answer["environment"]["SECRET"] = json!("fresh");
            forget_ids(&mut answer);
            for (key, value) in expected.as_object().unwrap() {
                assert_eq!(answer[key], *value, "{key}");
            }
            assert_eq!(&*reply.log_tail, b"printed\nby name");
            // It goes by the instance's name, and is nobody else's.
            assert_eq!(processes(&function.spec.id).len(), 2);
            instance.stop(Duration::ZERO).await;
            assert!(processes(&function.spec.id).is_empty());
        }
    }
}

async fn share_nothing() {
    let code = "
        import os, random, secrets, uuid
        def handler(event, context):
            own = [str(random.random()), secrets.token_hex(), str(uuid.uuid4()), str(hash('x')), hex(id(object()))]
            return [own, os.listdir('/var/task')]
        ";
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        let function = pool(code);
        let instance = restored(&function).await;
        let found = answer(&instance.invoke(request("{}")).await);
        for number in found[0].as_array().unwrap() {
            assert!(seen.insert(number.to_string()), "{number} twice");
        }
        assert_eq!(found[1], json!(["main.py"]));
        instance.stop(Duration::ZERO).await;
    }
}

async fn fail_as_fresh_ones_do() {
    for code in ["import missing", "raise ValueError('on purpose')", "other = 1", "x = ("] {
        let fresh = Function::python(code).try_start().await;
        let started = loop {
            let started = pool(code).try_start().await;
            if started.restored {
                break started;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let errors = [fresh.result, started.result].map(|it| it.err().unwrap().to_string());
        assert_eq!(errors[0], errors[1], "{code}");
        assert_eq!(fresh.log_tail, started.log_tail, "{code}");
    }
}

async fn keep_the_memory_limit() {
    let code = "
        def handler(event, context):
            return len(bytearray(event * 1024 * 1024))
        ";
    // Not what others take.
    let function = pool(code).with(|spec| spec.memory_bytes = 80 * MIB);
    let instance = restored(&function).await;
    let reply = instance.invoke(request("40")).await;
    assert_eq!(answer(&reply), 40 * 1024 * 1024);
    let fresh = Function::python(code).with(|spec| spec.memory_bytes = 80 * MIB).start().await;
    let expected = fresh.invoke(request("40")).await.usage.memory_peak.unwrap();
    let peak = reply.usage.memory_peak.unwrap();
    assert!((peak - expected).abs() < 2 << 20, "{peak} and {expected} bytes at most");
    assert_eq!(instance.invoke(request("160")).await.outcome, Outcome::OutOfMemory);
    fresh.stop(Duration::ZERO).await;
    instance.stop(Duration::ZERO).await;
}

async fn starts_fresh() {
    let code = "
        import os
        def handler(name, context):
            return os.environ[name]
        ";
    let variables = [
        ("PYTHONOPTIMIZE", "2", false),
        ("LD_LIBRARY_PATH", "/opt", false),
        ("LC_ALL", "C", false),
        ("HOME", "/tmp", true),
    ];
    starts_fresh_with(|| pool(code), &variables).await;
}
