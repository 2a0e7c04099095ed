//! What data and histories may be at most.

use super::*;

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
fn whoevers_data_grows_in_a_full_room_fails() {
    let definition = json!({"StartAt": "P", "States": {
        "P": {"Type": "Pass", "Result": "x".repeat(200), "Next": "W"},
        "W": {"Type": "Wait", "Seconds": 9, "End": true},
    }});
    for (most, has_ended) in [(100, true), (300, false)] {
        let mut driver = Driver::new(&definition);
        let room = Room::new(most);
        driver.execution.settings.room = room.clone();
        driver.deliver(Event::Started { input: json!({}) });
        let Some(status) = driver.execution.status().cloned() else {
            assert!(!has_ended && room.used() > 200);
            continue;
        };
        let (error, cause) = failure(status);
        assert_eq!(error, names::RUNTIME);
        assert!(cause.contains("there is room for 100"), "{cause}");
        assert!(has_ended && room.used() == 0);
    }
}
