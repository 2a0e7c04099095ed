//! Whole executions, with functions that are closures.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;

mod bounds;
mod children;
mod properties;

const SECOND: Nanos = 1_000_000_000;

type Function<'a> = dyn FnMut(&str, &Value) -> Result<Value, Failure> + 'a;

/// Carries out an execution: functions answer at once, timers come in the order of their times.
struct Driver {
    execution: Execution,
    now: Nanos,
    timers: BTreeSet<(Nanos, TimerId)>,
    history: Vec<History>,
    invoked: Vec<(String, Value)>,
    /// Every event, for repeating them.
    events: Vec<(Nanos, Event)>,
    decisions: Vec<Decision>,
    /// The most that one event led to.
    most_decisions: usize,
}

impl Driver {
    fn new(definition: &Value) -> Self {
        let machine = StateMachine::parse(&definition.to_string()).unwrap();
        let settings = Settings::new("arn:e", "e", "arn:m", "m");
        Self {
            execution: Execution::new(machine, settings),
            now: 1_767_225_600 * SECOND,
            timers: BTreeSet::new(),
            history: Vec::new(),
            invoked: Vec::new(),
            events: Vec::new(),
            decisions: Vec::new(),
            most_decisions: 0,
        }
    }

    /// Delivers an event, and lets the execution go on; returns the functions to invoke.
    fn deliver(&mut self, event: Event) -> Vec<(TaskId, String, Value)> {
        let mut invocations = Vec::new();
        let mut next = Some(event);
        while let Some(event) = next.take() {
            self.events.push((self.now, event.clone()));
            let mut out = Vec::new();
            self.execution.on_event(self.now, event, &mut out);
            for decision in &out {
                match decision.clone() {
                    Decision::Invoke { task, function, payload, .. } => {
                        self.invoked.push((function.clone(), payload.clone()));
                        invocations.push((task, function, payload));
                    }
                    Decision::SetTimer { timer, at } => {
                        self.timers.insert((at, timer));
                    }
                    Decision::CancelTimer { timer } => self.timers.retain(|(_, it)| *it != timer),
                    Decision::Record(event) => self.history.push(event),
                    Decision::Continue => next = Some(Event::Continued),
                    Decision::Cancel { .. } | Decision::Ended(_) => {}
                }
            }
            self.most_decisions = self.most_decisions.max(out.len());
            self.decisions.extend(out);
        }
        invocations
    }

    fn run(&mut self, input: Value, function: &mut Function<'_>) -> Status {
        let mut waiting = VecDeque::from(self.deliver(Event::Started { input }));
        loop {
            if let Some(status) = self.execution.status() {
                assert!(self.timers.is_empty(), "timers are left: {:?}", self.timers);
                assert!(self.execution.tasks.is_empty());
                assert!(self.execution.branches.is_empty());
                return status.clone();
            }
            let event = if let Some((task, name, payload)) = waiting.pop_front() {
                match function(&name, &payload) {
                    Ok(output) => Event::Succeeded { task, output },
                    Err(failure) => Event::Failed { task, failure },
                }
            } else {
                let (at, timer) = self.timers.pop_first().expect("it waits for something");
                self.now = self.now.max(at);
                Event::Due { timer }
            };
            waiting.extend(self.deliver(event));
        }
    }

    fn kinds(&self) -> Vec<&str> {
        self.history.iter().map(|event| event.kind).collect()
    }
}

fn run(definition: &Value, input: Value) -> Status {
    Driver::new(definition).run(input, &mut |_, payload| Ok(payload.clone()))
}

fn output(status: Status) -> Value {
    match status {
        Status::Succeeded(output) => (*output).clone(),
        other => panic!("it did not succeed: {other:?}"),
    }
}

fn failure(status: Status) -> (String, String) {
    match status {
        Status::Failed(failure) | Status::TimedOut(failure) => (failure.error, failure.cause),
        other => panic!("it did not fail: {other:?}"),
    }
}

fn task(name: &str) -> Value {
    json!({"Type": "Task", "Resource": arn(name), "End": true})
}

fn arn(name: &str) -> String {
    format!("arn:aws:lambda:us-east-1:000000000000:function:{name}")
}

fn single(state: Value) -> Value {
    json!({"StartAt": "S", "States": {"S": state}})
}

fn with(mut state: Value, more: Value) -> Value {
    let (Value::Object(state_map), Value::Object(more)) = (&mut state, more) else { panic!() };
    state_map.extend(more);
    state
}

#[test]
fn data_goes_through_the_fields_in_their_order() {
    let state = with(
        task("f"),
        json!({
            "InputPath": "$.in",
            "Parameters": {"x.$": "$.a", "name.$": "$$.State.Name"},
            "ResultSelector": {"y.$": "$.x"},
            "ResultPath": "$.result",
            "OutputPath": "$.result"
        }),
    );
    let mut driver = Driver::new(&single(state));
    let status =
        driver.run(json!({"in": {"a": 1}, "out": 2}), &mut |_, payload| Ok(payload.clone()));
    assert_eq!(driver.invoked, [(arn("f"), json!({"x": 1, "name": "S"}))]);
    assert_eq!(output(status), json!({"y": 1}));
    let discarded = with(task("f"), json!({"ResultPath": null, "InputPath": null}));
    let mut driver = Driver::new(&single(discarded));
    let status = driver.run(json!({"a": 1}), &mut |_, payload| Ok(payload.clone()));
    assert_eq!(driver.invoked[0].1, json!({}));
    assert_eq!(output(status), json!({"a": 1}));
}

#[test]
fn a_sequence_has_the_history_of_step_functions() {
    let definition = json!({"StartAt": "A", "States": {
        "A": {"Type": "Pass", "Result": {"n": 1}, "Next": "B"},
        "B": with(task("f"), json!({})),
    }});
    let mut driver = Driver::new(&definition);
    let status = driver.run(json!({}), &mut |_, _| Ok(json!("done")));
    assert_eq!(output(status), json!("done"));
    assert_eq!(
        driver.kinds(),
        [
            "ExecutionStarted",
            "PassStateEntered",
            "PassStateExited",
            "TaskStateEntered",
            "LambdaFunctionScheduled",
            "LambdaFunctionSucceeded",
            "TaskStateExited",
            "ExecutionSucceeded",
        ]
    );
    let ids: Vec<_> = driver.history.iter().map(|event| (event.id, event.previous)).collect();
    assert_eq!(ids, (1..=8).map(|id| (id, id - 1)).collect::<Vec<_>>());
}

#[test]
fn invoke_takes_the_function_from_the_parameters() {
    let state = json!({
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName.$": "$.which", "Payload": {"n.$": "$.n"}},
        "End": true
    });
    let mut driver = Driver::new(&single(state));
    let status = driver.run(json!({"which": "g", "n": 5}), &mut |_, payload| Ok(payload.clone()));
    assert_eq!(driver.invoked, [("g".to_owned(), json!({"n": 5}))]);
    assert_eq!(output(status)["Payload"], json!({"n": 5}));
}

#[test]
fn choices_lead_to_the_first_rule_that_holds() {
    let definition = |default: Value| {
        let choice = json!({"Type": "Choice", "Choices": [
            {"Variable": "$.n", "NumericLessThan": 0, "Next": "Negative"},
            {"Variable": "$.n", "NumericLessThan": 10, "Next": "Small"}
        ]});
        json!({"StartAt": "C", "States": {
            "C": with(choice, default),
            "Negative": {"Type": "Pass", "Result": "negative", "End": true},
            "Small": {"Type": "Pass", "Result": "small", "End": true},
        }})
    };
    let choices = definition(json!({"Default": "Small"}));
    assert_eq!(output(run(&choices, json!({"n": -1}))), json!("negative"));
    assert_eq!(output(run(&choices, json!({"n": 5}))), json!("small"));
    assert_eq!(output(run(&choices, json!({"n": 50}))), json!("small"));
    let strict = definition(json!({}));
    assert_eq!(failure(run(&strict, json!({"n": 50}))).0, names::NO_CHOICE);
    assert_eq!(failure(run(&strict, json!({}))).0, names::RUNTIME);
}

#[test]
fn waits_end_at_their_time() {
    let seconds =
        single(json!({"Type": "Wait", "SecondsPath": "$.s", "OutputPath": "$.s", "End": true}));
    let mut driver = Driver::new(&seconds);
    let start = driver.now;
    assert_eq!(output(driver.run(json!({"s": 90}), &mut |_, _| unreachable!())), json!(90));
    assert_eq!(driver.now - start, 90 * SECOND);
    let moment = single(json!({"Type": "Wait", "Timestamp": "2026-01-01T00:01:00Z", "End": true}));
    let mut driver = Driver::new(&moment);
    driver.run(json!({}), &mut |_, _| unreachable!());
    assert_eq!(driver.now - start, 60 * SECOND);
    let past = single(json!({"Type": "Wait", "TimestampPath": "$.at", "End": true}));
    let mut driver = Driver::new(&past);
    driver.run(json!({"at": "2025-01-01T00:00:00+02:00"}), &mut |_, _| unreachable!());
    assert_eq!(driver.now, start);
    for wrong in [json!({"s": -1}), json!({"s": "1"}), json!({})] {
        assert_eq!(failure(run(&seconds, wrong)).0, names::RUNTIME);
    }
}

#[test]
fn a_task_is_tried_again_and_then_caught() {
    let definition = json!({"StartAt": "S", "States": {
        "S": with(task("f"), json!({
            "Retry": [
                {"ErrorEquals": ["Busy"], "IntervalSeconds": 2, "BackoffRate": 3, "MaxAttempts": 2},
                {"ErrorEquals": ["States.ALL"], "MaxAttempts": 0}
            ],
            "Catch": [{"ErrorEquals": ["Busy"], "ResultPath": "$.error", "Next": "Caught"}]
        })),
        "Caught": {"Type": "Succeed"},
    }});
    let mut driver = Driver::new(&definition);
    let start = driver.now;
    let mut tries = 0;
    let status = driver.run(json!({"a": 1}), &mut |_, _| {
        tries += 1;
        Err(Failure::new("Busy", format!("try {tries}")))
    });
    assert_eq!(output(status), json!({"a": 1, "error": {"Error": "Busy", "Cause": "try 3"}}));
    assert_eq!(driver.now - start, (2 + 6) * SECOND);
    let mut other = Driver::new(&definition);
    let status = other.run(json!({}), &mut |_, _| Err(Failure::new("Broken", "for good")));
    assert_eq!(failure(status), ("Broken".to_owned(), "for good".to_owned()));
    assert_eq!(other.invoked.len(), 1);
}

#[test]
fn a_task_times_out_and_its_late_answer_changes_nothing() {
    let mut driver = Driver::new(&single(with(task("f"), json!({"TimeoutSeconds": 5}))));
    let invoked = driver.deliver(Event::Started { input: json!({}) });
    let (at, timer) = driver.timers.pop_first().unwrap();
    assert_eq!(at - driver.now, 5 * SECOND);
    driver.deliver(Event::Due { timer });
    assert!(driver.decisions.contains(&Decision::Cancel { task: invoked[0].0 }));
    assert_eq!(failure(driver.execution.status().unwrap().clone()).0, names::TIMEOUT);
    let before = driver.decisions.len();
    driver.deliver(Event::Succeeded { task: invoked[0].0, output: json!(1) });
    assert_eq!(driver.decisions.len(), before);
}

#[test]
fn the_whole_has_a_time_limit_too_and_can_be_stopped() {
    let mut definition = single(task("f"));
    definition["TimeoutSeconds"] = json!(7);
    let mut driver = Driver::new(&definition);
    let task = driver.deliver(Event::Started { input: json!({}) })[0].0;
    let (_, timer) = driver.timers.pop_first().unwrap();
    driver.deliver(Event::Due { timer });
    assert!(driver.decisions.contains(&Decision::Cancel { task }));
    assert!(matches!(driver.execution.status(), Some(Status::TimedOut(_))));
    let mut driver = Driver::new(&definition);
    driver.deliver(Event::Started { input: json!({}) });
    driver.deliver(Event::Stopped { failure: Failure::new("Own", "enough") });
    assert!(matches!(driver.execution.status(), Some(Status::Aborted(_))));
    assert!(driver.timers.is_empty());
}

#[test]
fn numbers_stay_what_they_are() {
    let input = r#"{"a":0.9452706955539223,"b":[1e-7,18446744073709551615],"c":0.1}"#;
    let definition = json!({"StartAt": "A", "States": {
        "A": {"Type": "Pass", "Next": "B"}, "B": {"Type": "Pass", "End": true}}});
    let status = run(&definition, serde_json::from_str(input).unwrap());
    assert_eq!(output(status).to_string(), input);
}

#[test]
fn fail_states_say_why() {
    let state = json!({"Type": "Fail", "ErrorPath": "$.e", "Cause": "as asked"});
    let (error, cause) = failure(run(&single(state), json!({"e": "Own"})));
    assert_eq!((error.as_str(), cause.as_str()), ("Own", "as asked"));
}

#[test]
fn results_that_fit_nowhere_fail() {
    let state = with(task("f"), json!({"ResultPath": "$.a.b"}));
    assert_eq!(failure(run(&single(state), json!({"a": 1}))).0, names::RESULT_PATH);
}
