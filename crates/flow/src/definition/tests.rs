use serde_json::{Value, json};

use super::*;

const FUNCTION: &str = "arn:aws:lambda:us-east-1:000000000000:function:f";

fn refusal(states: Value) -> String {
    let definition = json!({"StartAt": "S", "States": states});
    StateMachine::parse(&definition.to_string()).unwrap_err().to_string()
}

/// The refusal of a state with these keys over those of a task.
fn of_task(more: Value) -> String {
    let mut state = json!({"Type": "Task", "Resource": FUNCTION, "End": true});
    let (Value::Object(keys), Value::Object(more)) = (&mut state, more) else { panic!() };
    keys.extend(more);
    keys.retain(|_, value| *value != json!("absent"));
    refusal(json!({"S": state}))
}

#[test]
fn what_is_not_supported_is_refused_by_state_and_key() {
    for (more, message) in [
        (json!({"HeartbeatSeconds": 3}), "state S: HeartbeatSeconds is not supported"),
        (
            json!({"Resource": "arn:aws:states:::sns:publish"}),
            "state S: Resource arn:aws:states:::sns:publish is not supported",
        ),
        (json!({"Assign": {}}), "state S: Assign is not supported"),
        (json!({"QueryLanguage": "JSONata"}), "state S: QueryLanguage is not JSONPath"),
        (json!({"Type": "Sleep"}), "state S: Type Sleep is not supported"),
        (
            json!({"Parameters": {"a.$": "States.UUID()"}}),
            "state S: Parameters, a.$ is an intrinsic function, of which none is supported",
        ),
        (
            json!({"Retry": [{"ErrorEquals": ["E"], "JitterStrategy": "FULL"}]}),
            "state S, Retry: JitterStrategy is not NONE",
        ),
        (
            json!({"Retry": [{"ErrorEquals": ["E"], "Often": 1}]}),
            "state S, Retry: Often is not supported",
        ),
        (
            json!({"Resource": "arn:aws:states:::lambda:invoke", "Parameters": {"FunctionName": "f", "InvocationType": "Event"}}),
            "state S: Parameters, InvocationType is not supported",
        ),
    ] {
        assert_eq!(of_task(more), message);
    }
}

#[test]
fn what_is_wrong_is_refused_by_state_and_key() {
    for (more, message) in [
        (json!({"Resource": "absent"}), "state S: Resource is missing"),
        (json!({"End": "absent"}), "state S: Next or End is missing"),
        (json!({"End": "yes"}), "state S: End is neither true nor false"),
        (json!({"Next": "S"}), "state S: Next is there beside End"),
        (json!({"End": false, "Next": "T"}), "state S: there is no state T, which Next names"),
        (json!({"InputPath": "a"}), "state S: InputPath \"a\" does not begin with $"),
        (
            json!({"ResultPath": "$.a[*]"}),
            "state S: ResultPath \"$.a[*]\" does not name one place in the state's input",
        ),
        (json!({"TimeoutSeconds": 0}), "state S: TimeoutSeconds is 0"),
        (json!({"TimeoutSeconds": 1.5}), "state S: TimeoutSeconds is no whole number from 0"),
        (json!({"Retry": [{}]}), "state S, Retry: ErrorEquals is missing"),
        (
            json!({"Retry": [{"ErrorEquals": ["E"], "BackoffRate": 0.5}]}),
            "state S, Retry: BackoffRate is below 1",
        ),
        // A state that fails at once would be tried again without end, and without a pause.
        (
            json!({"Retry": [{"ErrorEquals": ["E"], "IntervalSeconds": 0}]}),
            "state S, Retry: IntervalSeconds is 0",
        ),
        (
            json!({"Retry": [{"ErrorEquals": ["E"], "MaxDelaySeconds": 0}]}),
            "state S, Retry: MaxDelaySeconds is 0",
        ),
        (
            json!({"Catch": [{"ErrorEquals": ["E"], "Next": "T"}]}),
            "state S, Catch: there is no state T, which Next names",
        ),
        (
            json!({"Retry": [{"ErrorEquals": ["States.ALL", "E"]}]}),
            "state S, Retry: ErrorEquals has other names beside States.ALL",
        ),
        (
            json!({"Retry": [{"ErrorEquals": ["States.ALL"]}, {"ErrorEquals": ["E"]}]}),
            "state S, Retry: ErrorEquals is States.ALL, and others come after it",
        ),
        (
            json!({"Catch": [
                {"ErrorEquals": ["States.ALL"], "Next": "S"}, {"ErrorEquals": ["E"], "Next": "S"},
            ]}),
            "state S, Catch: ErrorEquals is States.ALL, and others come after it",
        ),
        (
            json!({"Resource": "arn:aws:states:::lambda:invoke"}),
            "state S: Parameters, FunctionName is missing",
        ),
    ] {
        assert_eq!(of_task(more), message);
    }
    for (states, message) in [
        (json!({"S": 1}), "state S: it is no object"),
        (
            json!({"T": {"Type": "Succeed"}}),
            "the definition: there is no state S, which StartAt names",
        ),
        (
            json!({"S": {"Type": "Succeed"}, "T": {"Type": "Succeed"}}),
            "state T: no state leads to it",
        ),
        (
            json!({"S": {"Type": "Wait", "End": true}}),
            "state S: Seconds, SecondsPath, Timestamp or TimestampPath is missing",
        ),
        (
            json!({"S": {"Type": "Wait", "Seconds": 1, "SecondsPath": "$", "End": true}}),
            "state S: Seconds is there beside another time",
        ),
        (
            json!({"S": {"Type": "Wait", "Timestamp": "soon", "End": true}}),
            "state S: Timestamp is no time such as 2026-01-01T00:00:00Z",
        ),
        (json!({"S": {"Type": "Choice", "Choices": []}}), "state S: Choices is missing"),
        (
            json!({"S": {"Type": "Choice", "Choices": [{"Variable": "$.a", "StringHas": "b", "Next": "S"}]}}),
            "state S, Choices: StringHas is not supported",
        ),
        (
            json!({"S": {"Type": "Parallel", "Branches": [], "End": true}}),
            "state S: Branches is missing",
        ),
        (json!({"S": {"Type": "Map", "End": true}}), "state S: ItemProcessor is missing"),
        (
            json!({"S": {"Type": "Map", "End": true, "ItemProcessor": {
            "ProcessorConfig": {"Mode": "DISTRIBUTED"}, "StartAt": "I", "States": {"I": {"Type": "Succeed"}}}}}),
            "state S, ItemProcessor, ProcessorConfig: Mode is not INLINE",
        ),
        (
            json!({"S": {"Type": "Parallel", "End": true, "Branches": [
            {"StartAt": "S", "States": {"S": {"Type": "Succeed"}}}]}}),
            "state S: another state has that name, too; names are unique in the whole definition",
        ),
        (
            json!({"S": {"Type": "Parallel", "End": true, "Branches": [
            {"StartAt": "B", "States": {"B": {"Type": "Pass", "Next": "S"}}}]}}),
            "state B: there is no state S, which Next names",
        ),
        (
            json!({"S": {"Type": "Fail", "Error": "E", "ErrorPath": "$"}}),
            "state S: ErrorPath is there beside Error",
        ),
        (json!({"S": {"Type": "Fail", "InputPath": "$"}}), "state S: InputPath is not supported"),
    ] {
        assert_eq!(refusal(states), message);
    }
    let error = StateMachine::parse("{").unwrap_err().to_string();
    assert!(error.starts_with("the definition is no JSON: "), "{error}");
    let error = StateMachine::parse(r#"{"StartAt": "S"}"#).unwrap_err().to_string();
    assert_eq!(error, "the definition: States is missing");
    let error = StateMachine::parse(r#"{"TimeoutSeconds": 0}"#).unwrap_err().to_string();
    assert_eq!(error, "the definition: TimeoutSeconds is 0");
}

#[test]
fn functions_are_listed_once() {
    let task = json!({"Type": "Task", "Resource": FUNCTION, "Next": "B"});
    let invoke = |name: &str| {
        json!({"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "End": true,
               "Parameters": {"FunctionName": name, "Payload.$": "$"}})
    };
    let parallel = json!({"Type": "Parallel", "End": true, "Branches": [
        {"StartAt": "C", "States": {"C": invoke("g")}},
        {"StartAt": "D", "States": {"D": invoke(FUNCTION)}},
    ]});
    let definition = json!({"StartAt": "A", "States": {"A": task, "B": parallel}});
    let machine = StateMachine::parse(&definition.to_string()).unwrap();
    let mut functions = machine.functions();
    functions.sort_unstable();
    assert_eq!(functions, [FUNCTION, "g"]);
}

proptest::proptest! {
    /// No text makes the parser panic.
    #[test]
    fn any_json_is_parsed_or_refused(text in "[{}\\[\\]:,\"$A-Za-z0-9. ]{0,200}") {
        let _ = StateMachine::parse(&text);
    }
}
