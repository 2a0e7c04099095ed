//! What the requests of a stream say of those to come, as a header of its own for each.

use uncia_arrivals::{Hints, RandomStream};

use crate::config::{Field, Stream};
use crate::error::LoadError;

/// The header that the embedded platform reads.
const HEADER: &str = "x-uncia-next";
/// The field whose value it is.
const FIELD: &str = "uncia-next";

/// The stream with the header in its requests.
pub(super) fn add(
    stream: &Stream,
    hints: &Hints,
    label: &str,
    seed: u64,
) -> Result<Stream, LoadError> {
    let wrong = |reason: String| LoadError::Hints { stream: stream.function.clone(), reason };
    hints.validate().map_err(wrong)?;
    let Some(process) = &stream.arrivals else {
        let reason =
            "only of arrivals is it known when the next come, not of what waits for answers";
        return Err(wrong(reason.to_owned()));
    };
    if stream.targets.len() > 1 {
        let reason = "it has several targets, and each would be told what comes to another";
        return Err(wrong(reason.to_owned()));
    }
    if stream.headers.keys().any(|name| name.eq_ignore_ascii_case(HEADER))
        || stream.fields.contains_key(FIELD)
    {
        return Err(wrong(format!("the header {HEADER} and the field {FIELD} are theirs")));
    }
    let random = RandomStream::new(seed, label);
    let times: Vec<i64> = process.arrivals(random.clone()).map(|it| it.offset).collect();
    let given = hints.say(&times, RandomStream::new(seed, &format!("{label}/hints")));
    // Who knows of nothing to come says so with an empty value.
    let values = given.into_iter().map(|hint| hint.map(|it| it.to_string()).unwrap_or_default());
    let mut changed = stream.clone();
    changed.fields.insert(FIELD.to_owned(), Field::Column { values: values.collect() });
    changed.headers.insert(HEADER.to_owned(), format!("{{{{{FIELD}}}}}"));
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stream(change: impl FnOnce(&mut Value)) -> Stream {
        let mut json = json!({"function": "f", "arrivals":
            {"kind": "burst", "sizes": [2], "interval_ns": 5_000_000_000_u64, "bursts": 2},
            "targets": [{"function": "f", "url": "http://127.0.0.1:1/"}]});
        change(&mut json);
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn each_request_has_a_value_of_its_own() {
        let hints = Hints::Perfect { within_ns: None };
        let changed = add(&stream(|_| ()), &hints, "f", 7).unwrap();
        assert_eq!(changed.headers[HEADER], "{{uncia-next}}");
        let Field::Column { values } = &changed.fields[FIELD] else { panic!("a column") };
        assert_eq!(values.iter().collect::<Vec<_>>(), ["in=5000000000ns, count=2", "", "", ""]);
    }

    #[test]
    fn hints_that_nobody_can_give_are_refused() {
        let hints = Hints::Perfect { within_ns: None };
        for (expected, stream) in [
            (
                "answers",
                stream(|it| {
                    it.as_object_mut().unwrap().remove("arrivals");
                    it["closed"] = json!({"clients": 1, "duration_ns": 1});
                }),
            ),
            (
                "several targets",
                stream(|it| {
                    let target = it["targets"][0].clone();
                    it["targets"].as_array_mut().unwrap().push(target);
                }),
            ),
            ("theirs", stream(|it| it["headers"] = json!({"X-Uncia-Next": "in=1s"}))),
        ] {
            let error = add(&stream, &hints, "f", 7).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let wild = Hints::Noisy { error: 7.0, missing: 0.0, within_ns: None };
        assert!(
            add(&stream(|_| ()), &wild, "f", 7).unwrap_err().to_string().contains("error is 7")
        );
    }
}
