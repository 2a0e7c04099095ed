//! Parallel and map states.

use super::*;

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
    for caught in ["Oops", "States.TaskFailed", "States.BranchFailed", "States.ALL"] {
        fail_a_branch(caught);
    }
}

fn fail_a_branch(caught: &str) {
    let branch = |name: &str, state: Value| json!({"StartAt": name, "States": {name: state}});
    let wait = json!({"Type": "Wait", "Seconds": 1000, "End": true});
    let inner =
        json!({"Type": "Parallel", "End": true, "Branches": [branch("slow", task("slow"))]});
    let parallel = json!({
        "Type": "Parallel",
        "Branches": [branch("W", wait), branch("I", inner), branch("bad", task("bad"))],
        "Catch": [{"ErrorEquals": [caught], "Next": "Caught"}],
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
