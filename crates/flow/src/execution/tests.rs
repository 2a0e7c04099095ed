//! Whole executions, with functions that are closures.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;

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
                    Decision::Invoke { task, function, payload } => {
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
fn branches_run_at_once_and_their_results_are_in_order() {
    let branch = |name: &str| json!({"StartAt": name, "States": {name: task(name)}});
    let parallel = json!({
        "Type": "Parallel",
        "Branches": [branch("one"), branch("two"), branch("three")],
        "ResultPath": "$.all",
        "End": true
    });
    let mut driver = Driver::new(&single(parallel));
    let mut invoked = driver.deliver(Event::Started { input: json!({"n": 1}) });
    assert_eq!(invoked.len(), 3);
    // The last answers first.
    while let Some((task, function, payload)) = invoked.pop() {
        assert_eq!(payload, json!({"n": 1}));
        let name = function.rsplit(':').next().unwrap().to_owned();
        driver.deliver(Event::Succeeded { task, output: json!(name) });
    }
    let expected = json!({"n": 1, "all": ["one", "two", "three"]});
    assert_eq!(output(driver.execution.status().unwrap().clone()), expected);
}

#[test]
fn a_branch_that_fails_ends_the_others() {
    let branch = |name: &str, state: Value| json!({"StartAt": name, "States": {name: state}});
    let wait = json!({"Type": "Wait", "Seconds": 1000, "End": true});
    let inner =
        json!({"Type": "Parallel", "End": true, "Branches": [branch("slow", task("slow"))]});
    let parallel = json!({
        "Type": "Parallel",
        "Branches": [branch("W", wait), branch("I", inner), branch("bad", task("bad"))],
        "Catch": [{"ErrorEquals": ["Oops"], "Next": "Caught"}],
        "End": true
    });
    let definition =
        json!({"StartAt": "P", "States": {"P": parallel, "Caught": {"Type": "Succeed"}}});
    let mut driver = Driver::new(&definition);
    let invoked = driver.deliver(Event::Started { input: json!({}) });
    let find = |name: &str| invoked.iter().find(|it| it.1.ends_with(name)).unwrap().0;
    driver.deliver(Event::Failed { task: find("bad"), failure: Failure::new("Oops", "it broke") });
    assert!(driver.decisions.contains(&Decision::Cancel { task: find("slow") }));
    assert!(driver.timers.is_empty());
    let expected = json!({"Error": "Oops", "Cause": "it broke"});
    assert_eq!(output(driver.execution.status().unwrap().clone()), expected);
    assert_eq!(driver.kinds().iter().filter(|kind| **kind == "ParallelStateFailed").count(), 1);
}

#[test]
fn items_are_worked_on_so_many_at_a_time() {
    let map = json!({
        "Type": "Map",
        "ItemsPath": "$.items",
        "ItemSelector": {"i.$": "$$.Map.Item.Index", "v.$": "$$.Map.Item.Value", "n.$": "$.n"},
        "MaxConcurrency": 2,
        "ItemProcessor": {"ProcessorConfig": {"Mode": "INLINE"}, "StartAt": "f", "States": {"f": task("f")}},
        "End": true
    });
    let mut driver = Driver::new(&single(map));
    let mut running =
        driver.deliver(Event::Started { input: json!({"items": ["a", "b", "c"], "n": 9}) });
    assert_eq!(running.len(), 2);
    let (task, _, payload) = running.remove(1);
    assert_eq!(payload, json!({"i": 1, "v": "b", "n": 9}));
    running.extend(driver.deliver(Event::Succeeded { task, output: json!(payload["v"]) }));
    assert_eq!(running.len(), 2);
    for (task, _, payload) in running {
        driver.deliver(Event::Succeeded { task, output: json!(payload["v"]) });
    }
    assert_eq!(output(driver.execution.status().unwrap().clone()), json!(["a", "b", "c"]));
}

#[test]
fn a_map_of_nothing_and_of_no_list() {
    let map = json!({
        "Type": "Map",
        "Iterator": {"StartAt": "p", "States": {"p": {"Type": "Pass", "End": true}}},
        "End": true
    });
    assert_eq!(output(run(&single(map.clone()), json!([]))), json!([]));
    assert_eq!(output(run(&single(map.clone()), json!([1, [2]]))), json!([1, [2]]));
    assert_eq!(failure(run(&single(map), json!({}))).0, names::RUNTIME);
}

#[test]
fn data_is_bounded_wherever_it_passes() {
    let large = json!("x".repeat(262_144));
    assert_eq!(failure(run(&single(task("f")), large.clone())).0, names::DATA_LIMIT);
    let caught_by_all = json!({"Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Caught"}]});
    let definition = json!({"StartAt": "S", "States": {
        "S": with(task("f"), caught_by_all), "Caught": {"Type": "Succeed"},
    }});
    let mut driver = Driver::new(&definition);
    assert_eq!(failure(driver.run(json!({}), &mut |_, _| Ok(large.clone()))).0, names::DATA_LIMIT);
    // Exactly the limit is allowed: the quotes count.
    let most = json!("x".repeat(262_142));
    assert_eq!(output(run(&single(task("f")), most.clone())), most);
}

#[test]
fn an_execution_without_end_ends_with_its_history() {
    let definition = json!({"StartAt": "A", "States": {
        "A": {"Type": "Pass", "Next": "B"},
        "B": {"Type": "Pass", "Next": "A"},
    }});
    let mut driver = Driver::new(&definition);
    let (error, cause) = failure(driver.run(json!({}), &mut |_, _| unreachable!()));
    assert_eq!(error, names::RUNTIME);
    assert!(cause.contains("25000"), "{cause}");
    assert_eq!(driver.history.len(), 25_001);
    // Others have their turn in between, and memory need not hold all of it.
    assert!(driver.most_decisions < 50, "{}", driver.most_decisions);
}

#[test]
fn what_is_multiplied_is_bounded_before_it_is_made() {
    let large = json!("x".repeat(10_000));
    let copies: serde_json::Map<_, _> =
        (0..1_000).map(|number| (format!("{number}.$"), json!("$"))).collect();
    let pass = json!({"Type": "Pass", "Parameters": copies, "End": true});
    assert_eq!(failure(run(&single(pass), large)).0, names::DATA_LIMIT);
    let result = json!("x".repeat(100_000));
    let map = json!({
        "Type": "Map",
        "ItemProcessor": {
            "StartAt": "P", "States": {"P": {"Type": "Pass", "Result": result, "End": true}},
        },
        "MaxConcurrency": 1,
        "End": true,
    });
    let mut driver = Driver::new(&single(map));
    let status = driver.run(json!(vec![0; 1_000]), &mut |_, _| unreachable!());
    assert_eq!(failure(status).0, names::DATA_LIMIT);
    let done = driver.kinds().iter().filter(|kind| **kind == "MapIterationSucceeded").count();
    assert_eq!(done, 3, "it ends with the first that is too much");
}

#[test]
fn an_item_without_its_data_fails_the_map_and_ends_the_others() {
    let map = json!({
        "Type": "Map",
        "ItemSelector": {"n.$": "$$.Map.Item.Value.n"},
        "ItemProcessor": {"StartAt": "T", "States": {"T": task("f")}},
        "MaxConcurrency": 2,
        "Catch": [{"ErrorEquals": ["States.ParameterPathFailure"], "Next": "Caught"}],
        "End": true,
    });
    let definition = json!({"StartAt": "M", "States": {"M": map, "Caught": {"Type": "Succeed"}}});
    for items in [json!([{"n": 1}, {}]), json!([{"n": 1}, {"n": 2}, {}])] {
        let status = run(&definition, items);
        assert_eq!(output(status)["Error"], names::PARAMETER_PATH);
    }
    // What an item gets is made when it begins, not before.
    let mut one_by_one = definition;
    one_by_one["States"]["M"]["MaxConcurrency"] = json!(1);
    let mut driver = Driver::new(&one_by_one);
    driver.run(json!([{"n": 1}, {}]), &mut |_, payload| Ok(payload.clone()));
    assert_eq!(driver.invoked, [(arn("f"), json!({"n": 1}))]);
}

#[test]
fn data_is_no_deeper_than_what_can_be_read() {
    let path = format!("${}", ".a".repeat(128));
    let deep = single(json!({"Type": "Pass", "ResultPath": path, "End": true}));
    assert_eq!(failure(run(&deep, json!({}))).0, names::DATA_LIMIT);
    // A little deeper each time.
    let definition = json!({"StartAt": "A", "States": {
        "A": {"Type": "Pass", "Parameters": {"a.$": "$"}, "Next": "B"},
        "B": {"Type": "Pass", "Next": "A"},
    }});
    assert_eq!(failure(run(&definition, json!({}))).0, names::DATA_LIMIT);
    let path = format!("${}", ".a".repeat(129));
    let deeper = single(json!({"Type": "Pass", "ResultPath": path, "End": true}));
    let error = StateMachine::parse(&deeper.to_string()).unwrap_err().to_string();
    assert!(error.contains("state S: ResultPath has more than 128 steps"), "{error}");
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

/// Definitions of a few states that lead to each other, with errors, retries and branches.
fn definitions() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"Type": "Pass"})),
        Just(json!({"Type": "Wait", "Seconds": 3})),
        Just(with(
            json!({"Type": "Task", "Resource": arn("f")}),
            json!({
                "TimeoutSeconds": 4,
                "Retry": [{"ErrorEquals": ["E1", "States.Timeout"], "MaxAttempts": 2}],
            })
        )),
    ];
    let machine = proptest::collection::vec(leaf, 1..4).prop_map(|states| chain(&states));
    let parallel = |inner: BoxedStrategy<Value>| {
        let parallel = (proptest::collection::vec(inner.clone(), 1..4), any::<bool>()).prop_map(
            |(branches, is_map)| {
                if is_map {
                    json!({"Type": "Map", "ItemsPath": "$$.Execution.Input.items", "MaxConcurrency": 2,
                           "ItemProcessor": branches[0], "ResultPath": null})
                } else {
                    json!({"Type": "Parallel", "Branches": branches, "ResultPath": null})
                }
            },
        );
        proptest::collection::vec(parallel, 1..3).prop_map(|states| chain(&states)).boxed()
    };
    let one = machine.boxed();
    let two = parallel(one.clone());
    prop_oneof![one, two.clone(), parallel(two)].prop_map(|definition| renamed(definition, &mut 0))
}

/// States one after the other.
fn chain(states: &[Value]) -> Value {
    let mut object = serde_json::Map::new();
    for (position, state) in states.iter().enumerate() {
        let next = if position + 1 == states.len() {
            json!({"End": true})
        } else {
            json!({"Next": format!("s{}", position + 1)})
        };
        object.insert(format!("s{position}"), with(state.clone(), next));
    }
    json!({"StartAt": "s0", "States": object})
}

/// The same with names that are unique in the whole.
fn renamed(machine: Value, count: &mut usize) -> Value {
    *count += 1;
    let prefix = format!("m{count}");
    let mut states = serde_json::Map::new();
    for (name, mut state) in machine["States"].as_object().unwrap().clone() {
        if let Some(next) = state["Next"].as_str() {
            state["Next"] = json!(format!("{prefix}{next}"));
        }
        if let Some(branches) = state["Branches"].as_array() {
            state["Branches"] = branches.iter().map(|it| renamed(it.clone(), count)).collect();
        }
        if state["ItemProcessor"].is_object() {
            state["ItemProcessor"] = renamed(state["ItemProcessor"].clone(), count);
        }
        if let Value::Object(object) = &mut state {
            object.retain(|_, value| !value.is_null() || *value == Value::Null);
        }
        states.insert(format!("{prefix}{name}"), cleaned(state));
    }
    json!({"StartAt": format!("{prefix}s0"), "States": states})
}

/// Without the keys that indexing has made.
fn cleaned(state: Value) -> Value {
    let Value::Object(object) = state else { return state };
    let keep = |key: &str, value: &Value| !value.is_null() || key == "ResultPath";
    Value::Object(object.into_iter().filter(|(key, value)| keep(key, value)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever answers, fails or comes too late, in whatever order: every execution ends, nothing is
    /// left, and the same events give the same decisions.
    #[test]
    fn executions_end_and_can_be_repeated(
        definition in definitions(),
        choices in proptest::collection::vec(any::<u8>(), 200),
    ) {
        let mut driver = Driver::new(&definition);
        let mut waiting = driver.deliver(Event::Started { input: json!({"items": [1, 2, 3]}) });
        let mut choices = choices.into_iter().cycle();
        let mut rounds = 0;
        while driver.execution.status().is_none() {
            rounds += 1;
            prop_assert!(rounds < 100_000, "it does not end");
            let choice = choices.next().unwrap();
            let event = if !waiting.is_empty() && choice % 4 != 0 {
                let (task, _, _) = waiting.swap_remove(usize::from(choice) % waiting.len());
                match choice % 16 {
                    1 => Event::Failed { task, failure: Failure::new("E1", "again") },
                    2 if rounds > 20 => Event::Failed { task, failure: Failure::new("E2", "no") },
                    _ => Event::Succeeded { task, output: json!(choice) },
                }
            } else if let Some((at, timer)) = driver.timers.pop_first() {
                driver.now = driver.now.max(at);
                Event::Due { timer }
            } else {
                continue;
            };
            waiting.extend(driver.deliver(event));
        }
        prop_assert!(driver.timers.is_empty());
        let ended = driver.decisions.iter().filter(|it| matches!(it, Decision::Ended(_))).count();
        prop_assert_eq!(ended, 1);
        prop_assert!(matches!(driver.decisions.last(), Some(Decision::Ended(_))));
        // Each state that was left had been entered, and each event names an earlier one.
        let entered = driver.kinds().iter().filter(|kind| kind.ends_with("StateEntered")).count();
        let exited = driver.kinds().iter().filter(|kind| kind.ends_with("StateExited")).count();
        prop_assert!(exited <= entered);
        for (position, event) in driver.history.iter().enumerate() {
            prop_assert_eq!(event.id, position as u64 + 1);
            prop_assert!(event.previous < event.id);
        }
        let mut again = Driver::new(&definition);
        for (now, event) in driver.events.clone() {
            again.now = now;
            again.deliver(event);
        }
        prop_assert_eq!(&again.decisions, &driver.decisions);
    }
}
