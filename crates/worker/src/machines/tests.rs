//! Executions whose functions, database or clients do what they should not.

use super::*;

const WAITS: &str =
    r#"{"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 1000, "End": true}}}"#;
const ASKS: &str = r#"{"StartAt": "T", "States": {"T": {"Type": "Task", "End": true,
    "Resource": "arn:aws:lambda:us-east-1:000000000000:function:f"}}}"#;

/// Machines with one of this definition, and its ARN.
fn with(state: &Path, definition: &str, invoke: Invoke) -> (Arc<Machines>, String) {
    let machines = Arc::new(Machines::open(state, 1 << 20, invoke).unwrap());
    let made = Machine {
        name: "m".to_owned(),
        definition: definition.to_owned(),
        role: "r".to_owned(),
        kind: Kind::Standard,
        created: 1,
    };
    machines.create(made).unwrap();
    (machines, format!("{MACHINE_ARN}m"))
}

fn start(machine: &str, input: String) -> Start {
    Start { machine: machine.to_owned(), name: None, input, invocation: None, generation: 0 }
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_execution_that_panics_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let at_once: Invoke = Arc::new(|_, _, _| panic!("it is broken"));
    let later: Invoke = Arc::new(|_, _, _| Box::pin(async { panic!("it is broken") }));
    for (panics, words) in [(at_once, "at this execution"), (later, "at this invocation")] {
        let (machines, machine) = with(folder.path(), ASKS, panics);
        let (arn, _) = machines.start(start(&machine, "{}".to_owned())).await.unwrap();
        until(|| machines.room.available_permits() == MAX_RUNNING).await;
        let ended = machines.describe(&arn).unwrap().ended.unwrap();
        assert_eq!((&*ended.status, ended.error.as_deref()), ("FAILED", Some(names::RUNTIME)));
        let cause = ended.cause.unwrap();
        assert!(cause.contains(words), "{cause}");
        assert!(machines.lock().is_empty());
        assert_eq!(machines.data.used(), 0);
    }
}

#[tokio::test]
async fn an_end_that_the_disk_does_not_take_is_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let never: Invoke = Arc::new(|_, _, _| Box::pin(std::future::pending()));
    let (machines, machine) = with(folder.path(), WAITS, never);
    let (arn, _) = machines.start(start(&machine, "{}".to_owned())).await.unwrap();
    machines.store.rename("executions", "taken").unwrap();
    machines.lock()[&arn].stop(Failure { error: "E".to_owned(), cause: String::new() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    machines.store.rename("taken", "executions").unwrap();
    assert_eq!(machines.describe(&arn).unwrap().ended, None);
    assert_eq!(machines.running(), 1, "so that it can be asked for, and is not begun again");
    until(|| machines.running() == 0).await;
    let ended = machines.describe(&arn).unwrap().ended.unwrap();
    assert_eq!((&*ended.status, ended.error.as_deref(), ended.cause), ("ABORTED", Some("E"), None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_just_accepted_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let never: Invoke = Arc::new(|_, _, _| Box::pin(std::future::pending()));
    let (machines, machine) = with(folder.path(), WAITS, never);
    for index in 0..20 {
        let request = Start { name: Some(format!("e{index}")), ..start(&machine, "{}".to_owned()) };
        let arn = format!("{EXECUTION_ARN}{}:e{index}", machine.rsplit(':').next().unwrap());
        let stopper = machines.clone();
        let stopped = tokio::task::spawn_blocking(move || {
            let failure = Failure { error: String::new(), cause: String::new() };
            while stopper.stop(&arn, failure.clone()).is_err() {}
        });
        machines.start(request).await.unwrap();
        stopped.await.unwrap();
        let all_ended =
            tokio::time::timeout(Duration::from_secs(10), until(|| machines.running() == 0));
        all_ended.await.expect("it is stopped");
    }
}

#[tokio::test]
async fn data_of_executions_that_wait_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let never: Invoke = Arc::new(|_, _, _| Box::pin(std::future::pending()));
    let (mut machines, machine) = with(folder.path(), WAITS, never);
    Arc::get_mut(&mut machines).unwrap().data = Room::new(1 << 20);
    let numbers = format!("[{}1]", "1,".repeat(200_000));
    let (first, _) = machines.start(start(&machine, numbers.clone())).await.unwrap();
    let (second, _) = machines.start(start(&machine, numbers.clone())).await.unwrap();
    until(|| machines.data.used() >= 2 * numbers.len()).await;
    assert_eq!(machines.data.used(), 2 * numbers.len(), "a text each, not their values");
    let refused = machines.start(start(&machine, numbers.clone())).await.unwrap_err();
    assert!(refused.to_string().contains("wait for some to end"), "{refused}");
    let stop = Failure { error: String::new(), cause: String::new() };
    machines.stop(&first, stop.clone()).unwrap();
    until(|| machines.data.used() == numbers.len()).await;
    let (third, _) = machines.start(start(&machine, numbers)).await.unwrap();
    for arn in [&second, &third] {
        machines.stop(arn, stop.clone()).unwrap();
    }
    until(|| machines.lock().is_empty()).await;
    assert_eq!(machines.data.used(), 0);
}
