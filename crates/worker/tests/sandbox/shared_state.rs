//! What instances of a function share: made of one, used by later ones, and by nobody else.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use serde_json::{Value, json};
use uncia_worker::instance::{Instance, ShareState};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::fixture::{Function, Needs, answer, host, patience, request, state, test};
use crate::java::java_of;

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("classes_that_one_instance_has_loaded_are_shared", Needs::Java, classes),
        test("classes_and_profiles_of_methods_are_shared", Needs::JavaProfiles, profile),
        test("a_java_that_is_too_old_for_profiles_runs_without", Needs::OldJava, too_old),
        test("what_v8_has_compiled_is_shared", Needs::Node, code),
        test("a_function_that_has_nothing_to_share_says_so", Needs::Node, nothing),
        test(
            "an_instance_is_not_frozen_while_something_is_made_of_it",
            Needs::FreezerAndNode,
            unfrozen,
        ),
        test("instances_that_end_while_something_is_made_of_them", Needs::Node, lost),
    ]
}

const AFTER: u32 = 3;

/// Says where its classes come from, and what it sees of what instances share.
const LOADED: &str = r#"
package mine;

import java.nio.file.*;
import java.util.*;

public class Loaded {
    public Object handle(Object event) throws Exception {
        new java.util.zip.Adler32().update(1);
        Runnable made = () -> System.out.println("made");
        made.run();
        Path log = Path.of("/tmp/classes.txt");
        List<String> lines = Files.exists(log) ? Files.readAllLines(log) : List.of();
        List<String> found = new ArrayList<>();
        for (String name : new String[] {"mine.Loaded ", "java.util.zip.Adler32 "}) {
            for (String line : lines) {
                if (line.contains(name) && line.contains("shared objects file (top)")) found.add(name.trim());
            }
        }
        String[] shared = new java.io.File("/var/runtime/shared").list();
        return Map.of("found", found, "shared", List.of(shared));
    }
}
"#;

/// Starts an instance, has it serve, and returns what it answered last.
async fn serve(function: &Function, times: u32) -> (Instance, Value) {
    let instance = function.start().await;
    let mut last = Value::Null;
    for _ in 0..times {
        last = answer(&instance.invoke(request("{}")).await);
    }
    (instance, last)
}

async fn once(function: &Function) -> Value {
    let (instance, answer) = serve(function, 1).await;
    instance.stop(Duration::ZERO).await;
    answer
}

fn sharing(function: Function, name: &str, share_state: ShareState) -> Function {
    let name = name.to_owned();
    function.with(|spec| {
        spec.function = name;
        spec.share_state = share_state;
        spec.share_after = AFTER;
    })
}

/// As a package's classes are when it was stored: in a jar beside it.
fn with_jar(function: Function) -> (Function, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), open).expect("a folder for all");
    let jar = fs::File::create(folder.path().join("task.jar")).expect("a file");
    let mut jar = ZipWriter::new(jar);
    jar.start_file("mine/Loaded.class", SimpleFileOptions::default()).expect("an entry");
    let class = fs::read(function.spec.code.join("mine/Loaded.class")).expect("a class");
    jar.write_all(&class).expect("a class");
    jar.finish().expect("a jar");
    let place = folder.path().to_owned();
    let function = function.with(|spec| {
        spec.mounts.push((place, "/var/runtime/classes".into()));
        let log = "-Xlog:class+load:file=/tmp/classes.txt";
        spec.environment.insert("JAVA_TOOL_OPTIONS".into(), log.into());
    });
    (function, folder)
}

/// The files of what is shared, wherever they are.
fn files(name: &str) -> Vec<PathBuf> {
    let folders = fs::read_dir(state().join("shared")).expect("a folder");
    let files = folders.map(|folder| folder.expect("an entry").path().join(name));
    files.filter(|file| file.exists()).collect()
}

async fn classes() {
    let (function, _jar) = with_jar(java_of("Loaded", LOADED, "mine.Loaded::handle"));
    let function = sharing(function, "classes", ShareState::Classes);
    let nothing = json!({"found": [], "shared": []});
    let (first, answered) = serve(&function, AFTER + 1).await;
    assert_eq!(answered, nothing);
    first.stop(Duration::ZERO).await;
    let whole = json!({
        "found": ["mine.Loaded", "java.util.zip.Adler32"],
        "shared": ["classes.jsa"],
    });
    assert_eq!(once(&function).await, whole);

    // Another function with the same code, and this one with another variable, have nothing of it.
    let other = sharing(function, "classes-of-another", ShareState::Classes);
    assert_eq!(once(&other).await, nothing);
    let changed = sharing(other, "classes", ShareState::Classes)
        .with(|spec| drop(spec.environment.insert("A".into(), "b".into())));
    assert_eq!(once(&changed).await, nothing);
    let function = changed.with(|spec| drop(spec.environment.remove("A")));
    assert_eq!(once(&function).await["shared"], json!([]), "it is made anew");
    let (first, _) = serve(&function, AFTER + 1).await;
    first.stop(Duration::ZERO).await;
    assert_eq!(once(&function).await, whole);

    for file in files("classes.jsa") {
        damage(&file);
    }
    assert_eq!(once(&function).await["shared"], json!([]));
    let refusals = host().refusals();
    assert!(
        refusals.iter().any(|it| it.contains("classes share no classes: what the platform")),
        "{refusals:?}"
    );
    host().forget("classes");
    host().forget("classes-of-another");
    assert!(files("classes.jsa").is_empty());
    assert!(!host().refusals().iter().any(|it| it.contains("classes")));
}

async fn profile() {
    // What is of a cache made ahead of time is in no archive on top of Java's.
    let source = LOADED.replace(" (top)", "").replace(r#", "java.util.zip.Adler32 ""#, "");
    let (function, _jar) = with_jar(java_of("Loaded", &source, "mine.Loaded::handle"));
    let function = sharing(function, "profile", ShareState::Profile);
    let nothing = json!({"found": [], "shared": []});
    let (first, answered) = serve(&function, AFTER + 1).await;
    assert_eq!(answered, nothing);
    first.stop(Duration::ZERO).await;
    let whole = json!({"found": ["mine.Loaded"], "shared": ["profile.aot"]});
    assert_eq!(once(&function).await, whole, "{:?}", host().refusals());
    let other = sharing(function, "profile-of-another", ShareState::Profile);
    assert_eq!(once(&other).await, nothing);
    let function = sharing(other, "profile", ShareState::Profile);
    for file in files("profile.aot") {
        damage(&file);
    }
    assert_eq!(once(&function).await, nothing);
    let refusals = host().refusals();
    let says = |it: &String| it.contains("profile share no profile: what the platform");
    assert!(refusals.iter().any(says), "{refusals:?}");
    host().forget("profile");
    host().forget("profile-of-another");
    assert!(files("profile.aot").is_empty());
}

async fn too_old() {
    let (function, _jar) = with_jar(java_of("Loaded", LOADED, "mine.Loaded::handle"));
    let function = sharing(function, "old", ShareState::Profile);
    let (instance, answered) = serve(&function, AFTER + 1).await;
    instance.stop(Duration::ZERO).await;
    assert_eq!(answered["shared"], json!([]));
    let refusals = host().refusals();
    let says = |it: &String| it.contains("old share no profile: it takes Java 25 or newer");
    assert!(refusals.iter().any(says), "{refusals:?}");
    host().forget("old");
}

/// Changes a byte, as whoever may write it could.
fn damage(file: &Path) {
    let mut bytes = fs::read(file).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(file, bytes).expect("a file");
}

async fn code() {
    let main = "
const part = require('./parts/part');
module.exports.handler = async () => ({
  answer: part.twice(21), resolved: require.resolve('./parts/part'), main: require.main === module, self: module.parent !== null,
  loaded: (await import('./module.mjs')).default, line: part.where(),
  shared: require('fs').readdirSync('/var/runtime/shared'), records: process.env._UNCIA_RECORDS,
  children: module.children.map((it) => it.id), cached: Object.keys(require.cache), strict: (function () { return this === undefined; })(),
});";
    let part = "#!/usr/bin/env node\n'use strict';\nexports.twice = (x) => 2 * x;\nexports.where = () => new Error().stack.split('\\n')[1].trim();\n";
    let module = "export default 'a module';";
    let files_of = [("main.js", main), ("parts/part.js", part), ("module.mjs", module)];
    let plain = Function::new("node", &files_of, "main.handler");
    let mut expected = once(&plain).await;
    assert_eq!(expected["answer"], 42);
    let function = sharing(plain, "code", ShareState::Code);
    let (first, answered) = serve(&function, AFTER + 1).await;
    assert_eq!(answered, expected);
    first.stop(Duration::ZERO).await;
    let second = once(&function).await;
    expected["shared"] = json!(["code.bin"]);
    assert_eq!(second, expected);

    let other = sharing(function, "code-of-another", ShareState::Code);
    assert_eq!(once(&other).await["shared"], json!([]));
    let function = sharing(other, "code", ShareState::Code);
    for file in files("code.bin") {
        let length = fs::metadata(&file).expect("a file").len();
        let file = fs::File::options().write(true).open(file).expect("a file");
        file.set_len(length / 2).expect("a file");
    }
    expected["shared"] = json!([]);
    assert_eq!(once(&function).await, expected);
    host().forget("code");
    host().forget("code-of-another");
}

async fn nothing() {
    let files = [("main.mjs", "export const handler = async () => 'a module';")];
    let function =
        sharing(Function::new("node", &files, "main.handler"), "modules", ShareState::Code);
    let (first, _) = serve(&function, AFTER + 1).await;
    first.stop(Duration::ZERO).await;
    assert_eq!(once(&function).await, "a module");
    let refusals = host().refusals();
    let says =
        |it: &String| it.contains("modules share no code") && it.contains("no CommonJS module");
    assert!(refusals.iter().any(says), "{refusals:?}");
    host().forget("modules");
}

/// A function that shares its code, and whose client, after an event that says so, does not answer what the platform
/// wants of it before its package has a file `go`.
fn busy(name: &str) -> Function {
    let main = "
const { existsSync, readdirSync } = require('fs');
const { Script } = require('vm');
module.exports.handler = async (event) => {
  const wait = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
  if (event.busy) Script.prototype.createCachedData = () => {
    while (!existsSync('/var/task/go')) wait();
    throw new Error('it went on');
  };
  return readdirSync('/var/runtime/shared');
};";
    let function = Function::new("node", &[("main.js", main)], "main.handler");
    sharing(function, name, ShareState::Code).with(|spec| spec.share_after = 1)
}

/// Starts an instance and returns while something is made of it.
async fn being_shared(function: &Function) -> Instance {
    let instance = function.start().await;
    let answered = answer(&instance.invoke(request("{\"busy\": true}")).await);
    assert_eq!(answered, json!([]));
    instance
}

async fn unfrozen() {
    let function = busy("busy");
    let instance = being_shared(&function).await;
    let freeze = instance.freeze().await;
    for refused in [freeze, instance.scale_down()] {
        let refused = refused.expect_err("a client that still works");
        assert!(refused.to_string().contains("being made"), "{refused}");
        assert_eq!(refused.kind(), std::io::ErrorKind::ResourceBusy);
    }
    fs::write(function.spec.code.join("go"), "").expect("a file");
    instance.free().await;
    instance.freeze().await.expect("nothing is made of it any more");
    let says = |it: &String| it.contains("busy share no code") && it.contains("it went on");
    assert!(host().refusals().iter().any(says), "{:?}", host().refusals());
    instance.stop(Duration::ZERO).await;
    host().forget("busy");
}

async fn lost() {
    let function = busy("lost");
    let why = || host().refusals().into_iter().find(|it| it.contains("lost share no code"));
    let deadline = Instant::now() + patience();
    being_shared(&function).await.stop(Duration::ZERO).await;
    // Another one does better, once it is known.
    loop {
        let (instance, answered) = serve(&function, 2).await;
        instance.stop(Duration::ZERO).await;
        if answered == json!(["code.bin"]) {
            break;
        }
        assert!(Instant::now() < deadline && why().is_none(), "{:?}", why());
    }
    host().forget("lost");
    for started in 1.. {
        being_shared(&function).await.stop(Duration::ZERO).await;
        if let Some(why) = why() {
            let says = why.contains("3 instances have ended") && why.contains("signal: killed");
            assert!(started >= 3 && says, "{started}: {why}");
            break;
        }
        assert!(Instant::now() < deadline);
    }
    assert_eq!(once(&function).await, json!([]));
    host().forget("lost");
}
