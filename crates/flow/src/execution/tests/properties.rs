//! Executions of made-up definitions.

use proptest::prelude::*;

use super::*;

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
    let single = machine.boxed();
    let nested = parallel(single.clone());
    prop_oneof![single, nested.clone(), parallel(nested)]
        .prop_map(|definition| renamed(definition, &mut 0))
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
        prop_assert_eq!(driver.execution.settings.room.used(), 0);
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
