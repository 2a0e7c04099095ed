//! Functions in Java.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tempfile::TempDir;
use uncia_worker::instance::{Outcome, ShareState};

use crate::errors::init_error;
use crate::fixture::{Function, MIB, Needs, answer, error, host, request, test, with_context};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("java_handlers_of_all_forms", Needs::Java, handlers),
        test("java_objects_of_the_functions_own_classes", Needs::Java, objects),
        test("what_a_java_handler_knows", Needs::Java, context),
        test("java_handlers_that_cannot_be_loaded", Needs::Java, unloadable),
        test("java_errors_are_lambdas", Needs::Java, errors),
        test("java_without_memory_and_java_that_exits", Needs::Java, ends),
        test("java_beside_a_function_that_has_options", Needs::Java, options),
        test("java_of_a_function_that_brings_a_cache", Needs::JavaProfiles, cache),
    ]
}

/// Handlers of all forms, in one file.
const SOURCE: &str = r#"
package mine;

import com.amazonaws.services.lambda.runtime.Context;
import com.amazonaws.services.lambda.runtime.RequestHandler;
import com.amazonaws.services.lambda.runtime.RequestStreamHandler;
import java.io.*;
import java.util.*;

public class Handlers {
    public record Pair(int left, List<String> right, Inner inner) {}
    public enum Kind { SMALL, LARGE }
    public static class Inner {
        private Kind kind;
        public long size;
        public void setKind(Kind kind) { this.kind = kind; }
        public Kind getKind() { return kind; }
        public boolean isLarge() { return kind == Kind.LARGE; }
    }
    static class Implemented implements RequestHandler<Map<String, Object>, Object> {
        public Object handleRequest(Map<String, Object> event, Context context) { return event.get("value"); }
    }
    static class Streamed implements RequestStreamHandler {
        public void handleRequest(InputStream in, OutputStream out, Context context) throws IOException {
            out.write('['); in.transferTo(out); out.write(']');
        }
    }
    static class Broken { static { if (true) throw new IllegalStateException("no \u00fc"); } public void handle(Object event) {} }
    static class Private { private void handle(Object event) {} }
    static class Needs { Needs(int number) {} public void handle(Object event) {} }

    public static int twice(int event) { return 2 * event; }
    public String text(String event, Context context) { return event + context.getFunctionName(); }
    public String text(String event) { return "the shorter one"; }
    public Object same(Object event) { return event; }
    public void nothing(Map<String, Object> event) {}
    public void stream(InputStream in, OutputStream out) throws IOException { in.transferTo(out); }
    public Pair pair(Pair pair) { return new Pair(pair.left() + 1, pair.right(), pair.inner()); }
    public Map<String, Object> context(Object event, Context context) {
        context.getLogger().log("logged");
        System.out.println("printed");
        System.err.println("warned");
        Map<String, Object> known = new TreeMap<>();
        known.put("name", context.getFunctionName() + context.getMemoryLimitInMB() + context.getFunctionVersion());
        known.put("arn", context.getInvokedFunctionArn());
        known.put("left", context.getRemainingTimeInMillis() > 0 && context.getRemainingTimeInMillis() <= 60_000);
        known.put("custom", context.getClientContext() == null ? null : context.getClientContext().getCustom());
        known.put("where", new File(".").getAbsolutePath() + System.getProperty("user.name"));
        known.put("here", new File("mine/Handlers.class").isFile());
        known.put("processors", Runtime.getRuntime().availableProcessors() > 0);
        return known;
    }
    public long heap(Object event) { return Runtime.getRuntime().maxMemory() >> 20; }
    public Object fails(Object event) throws Exception {
        switch (String.valueOf(event)) {
            case "raises": throw new IOException("no \u00fc", new RuntimeException("because"));
            case "deep": return fails(event);
            case "loop": { List<Object> loop = new ArrayList<>(); loop.add(loop); return loop; }
            case "nan": return Double.NaN;
            case "thread": return new Thread();
            case "silent": throw new Exception() { public String getMessage() { throw new RuntimeException(); } };
            case "memory": { List<long[]> all = new ArrayList<>(); while (true) all.add(new long[1 << 17]); }
            case "exit": System.exit(3);
            default: return "fine";
        }
    }
}
"#;

/// The classes of a source, compiled with the client's own interfaces.
fn compile(name: &str, source: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join(format!("{name}.java"));
    fs::write(&file, source).expect("a file");
    let interfaces = Path::new(env!("CARGO_MANIFEST_DIR")).join("runtime/java");
    let output = Command::new("java")
        .args(["-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none", "-implicit:none"])
        .args(["--release", "17", "-parameters"])
        .arg("-sourcepath")
        .arg(interfaces)
        .arg("-d")
        .arg(folder.path().join("classes"))
        .arg(&file)
        .output()
        .expect("a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

fn java(handler: &str) -> Function {
    // Compiled once. Statics are not dropped; what is left is in the folder for temporary files.
    static CLASSES: OnceLock<TempDir> = OnceLock::new();
    of_classes(CLASSES.get_or_init(|| compile("Handlers", SOURCE)), handler)
}

/// A function of a class of this name, and what it holds.
pub(crate) fn java_of(name: &str, source: &str, handler: &str) -> Function {
    of_classes(&compile(name, source), handler)
}

fn of_classes(compiled: &TempDir, handler: &str) -> Function {
    let function = Function::new("java", &[], handler).with(|spec| spec.memory_bytes = 512 * MIB);
    let from = compiled.path().join("classes");
    for path in files(&from) {
        let to = function.spec.code.join(path.strip_prefix(&from).expect("below"));
        fs::create_dir_all(to.parent().expect("a parent")).expect("a folder");
        fs::copy(&path, to).expect("a file");
    }
    function
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

async fn handlers() {
    let value =
        json!({"value": [1, -2.5, "\u{fc}\n\"", true, null, {"a": {}}, 12_345_678_901_234_i64]});
    for (handler, event, expected) in [
        ("mine.Handlers::twice", json!(21), json!(42)),
        ("mine.Handlers::text", json!("\u{fc}"), json!("\u{fc}test")),
        ("mine.Handlers::same", value.clone(), value.clone()),
        ("mine.Handlers::nothing", json!({}), Value::Null),
        ("mine.Handlers::stream", value.clone(), value.clone()),
        ("mine.Handlers$Implemented", value.clone(), value["value"].clone()),
        ("mine.Handlers$Implemented::handleRequest", json!({"value": 1}), json!(1)),
        ("mine.Handlers$Streamed", json!({"a": 1}), json!([{"a": 1}])),
    ] {
        let function = java(handler);
        let instance = function.start().await;
        for _ in 0..2 {
            let reply = instance.invoke(request(&event.to_string())).await;
            assert_eq!(answer(&reply), expected, "{handler}");
        }
        instance.stop(Duration::ZERO).await;
    }
    let large = format!("\"{}\"", "x".repeat(6 * 1024 * 1024 - 2));
    let function = java("mine.Handlers::same");
    let instance = function.start().await;
    let reply = instance.invoke(request(&large)).await;
    assert!(answer(&reply) == large[1..large.len() - 1]);
    instance.stop(Duration::ZERO).await;
}

async fn objects() {
    let function = java("mine.Handlers::pair");
    let instance = function.start().await;
    let event = json!({
        "left": 1, "right": ["a", "b"], "inner": {"kind": "LARGE", "size": 5, "more": 1}, "other": {}
    });
    let expected = json!({
        "left": 2, "right": ["a", "b"], "inner": {"kind": "LARGE", "size": 5, "large": true}
    });
    assert_eq!(answer(&instance.invoke(request(&event.to_string())).await), expected);
    let bare = json!({"left": 1, "right": null, "inner": null});
    assert_eq!(answer(&instance.invoke(request("{}")).await), bare);
    for (event, words) in [
        (json!({"left": 1.5}), "the event.left is 1.5, and no int"),
        (json!({"right": [1]}), "the event.right[0] is 1, and no java.lang.String"),
        (json!({"inner": {"kind": "TINY"}}), "the event.inner.kind is TINY"),
        (json!([1]), "the event is a list"),
    ] {
        let object = error(&instance.invoke(request(&event.to_string())).await);
        assert_eq!(object["errorType"], "java.lang.IllegalArgumentException", "{object}");
        assert!(object["errorMessage"].as_str().unwrap().contains(words), "{object}");
    }
    instance.stop(Duration::ZERO).await;
}

async fn context() {
    let function = java("mine.Handlers::context");
    let instance = function.start().await;
    let client = STANDARD.encode(r#"{"custom":{"k":"ü"}}"#);
    let reply = instance.invoke(with_context(client)).await;
    let expected = json!({
        "name": "test512$LATEST", "arn": "arn:aws:lambda:us-east-1:000000000000:function:test", "left": true,
        "custom": {"k": "ü"}, "where": "/var/task/.sbx_user1051", "here": true, "processors": true
    });
    assert_eq!(answer(&reply), expected);
    assert_eq!(String::from_utf8_lossy(&reply.log_tail), "logged\nprinted\nwarned\n");
    instance.stop(Duration::ZERO).await;
}

async fn unloadable() {
    for (handler, kind, words) in [
        ("mine.Absent::handle", "java.lang.ClassNotFoundException", "Class not found: mine.Absent"),
        (
            "mine.Handlers::absent",
            "java.lang.NoSuchMethodException",
            "No public method named absent",
        ),
        ("mine.Handlers$Private::handle", "java.lang.NoSuchMethodException", "handle"),
        ("mine.Handlers", "java.lang.IllegalArgumentException", "mine.Handlers::method"),
        ("mine.Handlers$Broken::handle", "java.lang.IllegalStateException", "no \u{fc}"),
        ("mine.Handlers$Needs::handle", "java.lang.NoSuchMethodException", "Needs.<init>()"),
        ("", "java.lang.ClassNotFoundException", "Class not found: "),
    ] {
        let (found, message) = init_error(&java(handler)).await;
        assert_eq!(found, kind, "{handler}: {message}");
        assert!(message.contains(words), "{handler}: {message}");
    }
}

async fn errors() {
    let function = java("mine.Handlers::fails");
    let instance = function.start().await;
    for (event, kind, message) in [
        ("raises", "java.io.IOException", "no \u{fc}"),
        ("deep", "java.lang.StackOverflowError", ""),
        ("loop", "uncia.runtime.Handler$Unwritable", "contains itself"),
        ("nan", "uncia.runtime.Handler$Unwritable", "NaN"),
        ("thread", "uncia.runtime.Handler$Unwritable", "java.lang.Thread has no form in JSON"),
        ("silent", "mine.Handlers$1", ""),
    ] {
        let object = error(&instance.invoke(request(&format!("\"{event}\""))).await);
        assert_eq!(object["errorType"], kind, "{object}");
        assert!(object["errorMessage"].as_str().unwrap_or("").contains(message), "{object}");
        let trace = object["stackTrace"].as_array().unwrap();
        let own = |it: &Value| it.as_str().is_none_or(|it| it.starts_with("uncia.runtime"));
        assert!(!trace.iter().any(own), "{object}");
        if event == "raises" {
            assert_eq!(object["cause"]["errorMessage"], "because");
            assert!(trace[0].as_str().unwrap().starts_with("mine.Handlers.fails(Handlers.java:"));
        }
    }
    assert_eq!(answer(&instance.invoke(request("1")).await), "fine");
    instance.stop(Duration::ZERO).await;
    let twice = java("mine.Handlers::twice");
    let instance = twice.start().await;
    for event in ["\"text\"", "null", "1.5", "{}", "99999999999"] {
        let object = error(&instance.invoke(request(event)).await);
        assert_eq!(object["errorType"], "java.lang.IllegalArgumentException", "{event}: {object}");
    }
    instance.stop(Duration::ZERO).await;
}

async fn ends() {
    let function = java("mine.Handlers::fails");
    let instance = function.start().await;
    let reply = instance.invoke(request("\"memory\"")).await;
    assert_eq!(error(&reply)["errorType"], "java.lang.OutOfMemoryError");
    assert_eq!(instance.exited().await, "exit status 1");
    let instance = function.start().await;
    let reply = instance.invoke(request("\"exit\"")).await;
    assert_eq!(reply.outcome, Outcome::Exited("exit status 3".into()));
}

async fn options() {
    let heap = |function: Function| async move { function.once("{}").await.as_u64().unwrap() };
    let usual = heap(java("mine.Handlers::heap")).await;
    assert!((400..=435).contains(&usual), "{usual}");
    let small = java("mine.Handlers::heap").with(|spec| spec.memory_bytes = 128 * MIB);
    let usual = heap(small).await;
    assert!((60..=80).contains(&usual), "{usual}");
    let own = java("mine.Handlers::heap").with(|spec| {
        spec.environment.insert("JAVA_TOOL_OPTIONS".into(), "-Xmx100m -XX:+UseParallelGC".into());
    });
    let own = heap(own).await;
    assert!((80..=100).contains(&own), "{own}");
}

/// Java takes options of archives beside those of caches from nobody.
async fn cache() {
    for share_state in [ShareState::None, ShareState::Classes, ShareState::Profile] {
        let function = java("mine.Handlers::twice").with(|spec| {
            spec.function = format!("cache-{}", share_state.name());
            spec.share_state = share_state;
            spec.environment.insert("JAVA_TOOL_OPTIONS".into(), "-XX:AOTMode=auto".into());
        });
        assert_eq!(function.once("21").await, 42, "{share_state:?}");
        host().forget(&function.spec.function);
    }
}
