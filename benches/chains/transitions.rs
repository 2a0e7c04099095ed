//! How many state transitions a second the interpreter of state machines makes on a core.
//!
//!     cargo run --release -p uncia-flow --example transitions

#![allow(clippy::print_stdout)]

use std::time::Instant;

use serde_json::json;
use uncia_flow::{Decision, Event, Execution, Settings, StateMachine};

const ROUNDS: usize = 20;
const REPEAT: usize = 5;

fn main() {
    let function = "arn:aws:lambda:us-east-1:000000000000:function:f";
    let passes = json!({"StartAt": "A", "States": {
        "A": {"Type": "Pass", "Next": "B"}, "B": {"Type": "Pass", "Next": "A"},
    }});
    let tasks = json!({"StartAt": "A", "States": {
        "A": {"Type": "Task", "Resource": function, "ResultPath": "$.a", "Next": "B"},
        "B": {"Type": "Choice", "Default": "A", "Choices": [
            {"Variable": "$.stop", "BooleanEquals": true, "Next": "C"}]},
        "C": {"Type": "Succeed"},
    }});
    for (name, definition) in [("Pass, Pass", passes), ("Task, Choice", tasks)] {
        let machine = StateMachine::parse(&definition.to_string()).expect("a definition");
        let mut rates: Vec<f64> = (0..REPEAT).map(|_| rate(&machine)).collect();
        rates.sort_by(f64::total_cmp);
        println!("{name}: {:.0} transitions/s (median of {REPEAT})", rates[REPEAT / 2]);
    }
}

/// Transitions a second of executions that go on until their history is full.
fn rate(machine: &StateMachine) -> f64 {
    let (mut transitions, start) = (0, Instant::now());
    for _ in 0..ROUNDS {
        let settings = Settings::new("arn:e", "e", "arn:m", "m");
        let mut execution = Execution::new(machine.clone(), settings);
        let mut events = vec![Event::Started { input: json!({"stop": false, "n": [1, 2, 3]}) }];
        while let Some(event) = events.pop() {
            let mut out = Vec::new();
            execution.on_event(0, event, &mut out);
            for decision in out {
                match decision {
                    Decision::Invoke { task, .. } => {
                        events.push(Event::Succeeded { task, output: json!({"b": "c"}) });
                    }
                    Decision::Record(event) if event.kind.ends_with("Exited") => transitions += 1,
                    _ => {}
                }
            }
        }
    }
    f64::from(transitions) / start.elapsed().as_secs_f64()
}
