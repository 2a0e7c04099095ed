//! What tests of rows need.

use crate::plan::Plan;

/// A plan of so many streams; stream k is of `function-k`, has three targets, and sends bodies of
/// k bytes.
pub(super) fn plan(streams: usize, named: bool) -> Plan {
    let target = |replica| serde_json::json!({"function": format!("f-{replica}"), "url": "http://127.0.0.1:1/"});
    let streams: Vec<_> = (0..streams)
        .map(|stream| {
            serde_json::json!({
                "function": format!("function-{stream}"), "body": {"text": "b".repeat(stream)},
                "execution": (stream > 1).then_some("response"),
                "allocated_memory": (stream > 0).then_some(stream << 20),
                "targets": [target(0), target(1), target(2)],
                "arrivals": {"kind": "burst", "sizes": [2], "interval_ns": 0, "bursts": 1}})
        })
        .collect();
    let mut config =
        serde_json::json!({"out": "/nonexistent/x.arrows", "seed": 7, "streams": streams});
    if named {
        config["run"] = "run".into();
        config["experiment"] = "warm".into();
        config["platform"] = "local".into();
    }
    let config = serde_json::from_value(config).expect("the configuration has the right form");
    Plan::new(&config).expect("the configuration is good")
}
