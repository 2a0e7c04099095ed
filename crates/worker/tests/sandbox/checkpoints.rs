//! Instances that are restored from a checkpoint.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::Value;
use tokio::sync::Mutex;
use uncia_worker::instance::{Instance, InstanceSpec, Network, ShareState, StartFrom};

use crate::fixture::{
    Function, MIB, Needs, answer, control_groups, host, processes, request, state, test,
};
use crate::java::java_of;

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("java_is_restored_from_a_checkpoint", Needs::Criu, java),
        test("ruby_is_restored_from_a_checkpoint", Needs::Criu, ruby),
        test("a_warm_checkpoint_carries_what_invocations_left", Needs::Criu, warm),
        test("c_is_restored_from_a_warm_checkpoint_of_a_restored_one", Needs::Criu, warm_c),
        test("a_warm_checkpoint_that_does_not_go_on_is_refused", Needs::Criu, warm_refused),
        test("a_damaged_checkpoint_is_not_restored", Needs::Criu, damaged),
        test("a_function_that_cannot_have_a_checkpoint_says_why", Needs::Criu, refused),
    ]
}

const STATE: &str = r#"
package mine;

import java.util.*;

public class State {
    private static final String LOADED = UUID.randomUUID().toString();
    private static final double DRAWN = Math.random();
    private static int served;

    public Object handle(Object event) {
        Map<String, Object> known = new TreeMap<>();
        known.put("loaded", LOADED);
        known.put("served", ++served);
        known.put("random", List.of(
            UUID.randomUUID().toString(), Math.random(), new Random().nextLong(), new java.security.SecureRandom().nextLong(),
            java.util.concurrent.ThreadLocalRandom.current().nextLong()));
        known.put("stream", System.getenv("AWS_LAMBDA_LOG_STREAM_NAME"));
        known.put("type", System.getenv("AWS_LAMBDA_INITIALIZATION_TYPE"));
        known.put("secret", System.getenv("SECRET"));
        known.put("time", System.currentTimeMillis());
        known.put("temporary", new java.io.File("/tmp").list().length);
        System.out.println("printed");
        return known;
    }
}
"#;

const RUBY: &str = r#"
LOADED = Random.rand.to_s
ENV["SET"] ||= "by the function"
def handler(event:, context:)
  $served = ($served || 0) + 1
  puts "printed"
  { loaded: LOADED, served: $served, random: [rand, Random.rand, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13].shuffle],
    stream: ENV["AWS_LAMBDA_LOG_STREAM_NAME"], type: ENV["AWS_LAMBDA_INITIALIZATION_TYPE"], secret: ENV["SECRET"],
    set: ENV["SET"],
    time: Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond), temporary: Dir.children("/tmp").size }
end
"#;

fn named(function: Function, name: &str) -> Function {
    let name = name.to_owned();
    function.with(|spec| {
        spec.function = name;
        spec.start_from = StartFrom::Checkpoint;
        spec.environment.insert("SECRET".into(), "secret".into());
    })
}

/// Held by a test as long as it has checkpoints: some count all that the host has.
static CHECKPOINTS: Mutex<()> = Mutex::const_new(());

/// Starts an instance under a name of its own, from a checkpoint, and has it serve once.
async fn restored(function: &Function, index: u32) -> (Instance, Value) {
    let id = format!("{}-{index}", function.spec.id);
    let started = host().start(InstanceSpec { id, ..function.spec.clone() }).await;
    let names: Vec<_> = started.phases.iter().map(|phase| phase.name).collect();
    assert!(started.restored && names.contains(&"restore"), "{names:?} {:?}", host().refusals());
    let instance = started.result.expect("an instance");
    let reply = instance.invoke(request("{}")).await;
    assert_eq!(&*reply.log_tail, b"printed\n");
    assert!(reply.usage.cpu_user_ns.is_some());
    let answered = answer(&reply);
    (instance, answered)
}

/// What the instance of a checkpoint is, and that it is another one each time.
async fn two_of(function: Function) {
    let _alone = CHECKPOINTS.lock().await;
    host().expect(&function.spec).await;
    let (first, one) = restored(&function, 1).await;
    let (second, other) = restored(&function, 2).await;
    assert_eq!(one["loaded"], other["loaded"], "of one checkpoint");
    let mut users = BTreeSet::new();
    for (index, answered) in [(1, &one), (2, &other)] {
        let id = format!("{}-{index}", function.spec.id);
        assert_eq!(answered["served"], 1, "it was made before the first event");
        assert_eq!(answered["stream"], format!("[$LATEST]{id}"));
        assert_eq!(answered["type"], "on-demand");
        assert_eq!(answered["secret"], "secret");
        assert_eq!(answered["temporary"], 0);
        let [_, runtime] = processes(&id)[..] else { panic!("{:?}", processes(&id)) };
        let status = fs::read_to_string(format!("/proc/{runtime}/status")).expect("a status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.expect("a field").split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(users.insert(field("Uid:")), "two instances have one user");
        assert_eq!(field("CapEff:"), ["0000000000000000"]);
        assert_eq!(field("NoNewPrivs:"), ["1"]);
        assert_eq!(field("Seccomp:"), ["2"]);
        let groups = control_groups(&id);
        let tasks = |folder: &std::path::PathBuf| fs::read_to_string(folder.join("cgroup.procs"));
        assert!(
            groups.iter().all(|it| tasks(it).unwrap_or_default().trim() == runtime.to_string())
        );
    }
    let numbers = |answered: &Value| answered["random"].as_array().expect("numbers").clone();
    for (one, other) in numbers(&one).iter().zip(numbers(&other)) {
        assert_ne!(*one, other);
    }
    assert!(other["time"].as_i64() >= one["time"].as_i64());
    for instance in [first, second] {
        instance.stop(Duration::ZERO).await;
        assert!(processes(instance.id()).is_empty() && control_groups(instance.id()).is_empty());
    }
    assert_eq!(left("checkpoints"), 1, "nothing but the images");
    host().forget(&function.spec.function);
    assert_eq!(left("checkpoints"), 0);
}

/// Folders of checkpoints that are there.
fn left(folder: &str) -> usize {
    let entries = fs::read_dir(state().join(folder)).expect("a folder");
    entries.filter(|it| it.as_ref().expect("an entry").file_name() != ".criu").count()
}

async fn java() {
    let function = java_of("State", STATE, "mine.State::handle");
    two_of(named(function, "restored-java").with(|spec| spec.network = Network::Platform)).await;
}

async fn ruby() {
    let function = Function::new("ruby", &[("main.rb", RUBY)], "main.handler");
    two_of(named(function, "restored-ruby").with(|spec| spec.memory_bytes = 128 * MIB)).await;
}

async fn warm() {
    let function = Function::new("ruby", &[("main.rb", RUBY)], "main.handler");
    let function = named(function, "warm").with(|spec| {
        spec.start_from = StartFrom::Prepared;
        spec.share_state = ShareState::Warm;
        spec.share_after = 3;
    });
    let first = function.start().await;
    for served in 1..=5 {
        let answered = answer(&first.invoke(request("{}")).await);
        assert_eq!(answered["served"], served, "it goes on after its checkpoint");
    }
    let (second, answered) = restored(&function, 1).await;
    assert_eq!(answered["served"], 4, "three were before");
    assert_eq!(answered["set"], "by the function", "what it sets while it loads outlives that");
    assert_eq!(answered["stream"], format!("[$LATEST]{}", second.id()));
    for instance in [first, second] {
        instance.stop(Duration::ZERO).await;
    }
    host().forget("warm");
}

const C: &str = r#"
#define _GNU_SOURCE
#include "uncia_runtime.h"

static int served;

static bool answer(const Invocation *invocation, Text *to)
{
    puts("printed");
    fflush(stdout);
    add(to, "{\"served\": %d, \"stream\": \"%s\", \"type\": \"%s\", \"traced\": %s, \"uncia\": {", ++served,
        getenv("AWS_LAMBDA_LOG_STREAM_NAME"), getenv("AWS_LAMBDA_INITIALIZATION_TYPE"),
        getenv("_X_AMZN_TRACE_ID") != NULL ? "true" : "false");
    add_envelope(to, invocation, true);
    return true;
}

int main(void)
{
    serve(answer);
}
"#;

async fn warm_c() {
    let _alone = CHECKPOINTS.lock().await;
    let function = Function::new("provided", &[("bootstrap.c", C)], "any");
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions/_shared/provided");
    let code = &function.spec.code;
    let compiled = Command::new("cc")
        .args(["-std=c11", "-static", "-o"])
        .arg(code.join("bootstrap"))
        .arg(code.join("bootstrap.c"))
        .arg("-I")
        .arg(shared)
        .status();
    assert!(compiled.expect("a compiler").success());
    let function = named(function, "warm-c").with(|spec| {
        spec.share_state = ShareState::Warm;
        spec.share_after = 3;
    });
    host().expect(&function.spec).await;
    // The one of which it is made is restored itself, before its first event.
    let (first, answered) = restored(&function, 0).await;
    assert_eq!((&answered["served"], &answered["type"]), (&1.into(), &"snap-start".into()));
    for served in 2..=4 {
        let answered = answer(&first.invoke(request("{}")).await);
        assert_eq!(answered["served"], served, "it goes on after its checkpoint");
    }
    for index in [1, 2] {
        let (instance, answered) = restored(&function, index).await;
        assert_eq!(answered["served"], 4, "three were before");
        assert_eq!(answered["type"], "on-demand");
        assert_eq!(answered["traced"], true);
        assert_eq!(answered["uncia"]["fresh"], true);
        assert_eq!(answered["stream"], format!("[$LATEST]{}", instance.id()));
        instance.stop(Duration::ZERO).await;
    }
    first.stop(Duration::ZERO).await;
    host().forget("warm-c");
}

/// Its client cannot know any more that it was restored.
async fn warm_refused() {
    let code = RUBY.replace("  puts", "  ENV.delete('AWS_LAMBDA_INITIALIZATION_TYPE')\n  puts");
    let function = Function::new("ruby", &[("main.rb", &code)], "main.handler");
    let function = named(function, "spoilt").with(|spec| {
        spec.start_from = StartFrom::Prepared;
        spec.share_state = ShareState::Warm;
        spec.share_after = 1;
    });
    let first = function.start().await;
    for served in 1..=2 {
        assert_eq!(answer(&first.invoke(request("{}")).await)["served"], served);
    }
    for index in 1..=2 {
        let id = format!("{}-{index}", function.spec.id);
        let started = host().start(InstanceSpec { id, ..function.spec.clone() }).await;
        let names: Vec<_> = started.phases.iter().map(|phase| phase.name).collect();
        assert!(!started.restored && !names.contains(&"restore"), "{names:?}");
        let instance = started.result.expect("one that was started as the first was");
        assert_eq!(answer(&instance.invoke(request("{}")).await)["served"], 1);
        instance.stop(Duration::ZERO).await;
        let says = |it: &String| {
            it.contains("spoilt has no warm checkpoint") && it.contains("it does not go on")
        };
        assert!(host().refusals().iter().any(says), "{:?}", host().refusals());
    }
    first.stop(Duration::ZERO).await;
    host().forget("spoilt");
}

async fn damaged() {
    let _alone = CHECKPOINTS.lock().await;
    let function = Function::new("ruby", &[("main.rb", RUBY)], "main.handler");
    let function = named(function, "damaged");
    for truncated in [true, false] {
        host().expect(&function.spec).await;
        let (instance, _) = restored(&function, u32::from(truncated)).await;
        instance.stop(Duration::ZERO).await;
        for entry in fs::read_dir(state().join("checkpoints")).expect("a folder") {
            let file = entry.expect("an entry").path().join("pages-1.img");
            let Ok(mut bytes) = fs::read(&file) else { continue };
            if truncated {
                bytes.truncate(bytes.len() / 2);
            } else {
                bytes[4096] ^= 1;
            }
            fs::write(file, bytes).expect("a file");
        }
        let started = function.try_start().await;
        assert!(!started.restored);
        started.result.expect("one that was started").stop(Duration::ZERO).await;
        let says = |it: &String| it.contains("damaged has no checkpoint") && it.contains("changed");
        assert!(host().refusals().iter().any(says), "{:?}", host().refusals());
        host().forget("damaged");
    }
}

async fn refused() {
    let _alone = CHECKPOINTS.lock().await;
    let code = format!("File.write('/tmp/left', 'x')\n{RUBY}");
    for (name, code, network, reason) in [
        ("leaves-files", code.as_str(), Network::None, "it has files in /tmp"),
        ("on-the-host", RUBY, Network::Host, "with network: host"),
    ] {
        let function = Function::new("ruby", &[("main.rb", code)], "main.handler");
        let function = named(function, name).with(|spec| spec.network = network);
        host().expect(&function.spec).await;
        let started = function.try_start().await;
        assert!(!started.restored);
        started.result.expect("one that was started").stop(Duration::ZERO).await;
        let says = |it: &String| it.contains(name) && it.contains(reason);
        assert!(host().refusals().iter().any(says), "{:?}", host().refusals());
        host().forget(name);
    }
}
