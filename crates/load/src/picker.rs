//! The members of a long JSON object that matter, picked out as it comes.

/// The key whose value is a function's report: kept up to 8 MiB, which is more than any answer of
/// AWS Lambda or the embedded platform has (6 MiB).
const REPORT: &str = "uncia";
pub(crate) const MAX_REPORT_BYTES: usize = 8 << 20;
/// The keys that explain an error; what is longer explains nothing.
const EXPLANATIONS: [&str; 5] = ["errorType", "errorMessage", "message", "Message", "error"];
const MAX_EXPLANATION_BYTES: usize = 16 << 10;
/// No key that matters is longer.
const LONGEST_KEY: usize = 12;

/// Takes an object piece by piece, and keeps those members of its top level as an object.
///
/// What is passed over is only looked at for where it ends, so that a mistake in it is not seen; an
/// object that does not end leaves one that does not end.
#[derive(Debug, Default)]
pub(crate) struct Picker {
    /// How many brackets are open.
    depth: usize,
    in_string: bool,
    /// The last byte of a string was a backslash that was not escaped itself.
    escaped: bool,
    /// At the top level, the value of a member has begun.
    in_value: bool,
    key: Vec<u8>,
    member: Option<Member>,
    picked: Vec<u8>,
    too_long: bool,
}

/// A member that is being kept.
#[derive(Debug)]
struct Member {
    start: usize,
    limit: usize,
}

impl Picker {
    /// The object of what was kept; `None` if the report is longer than [`MAX_REPORT_BYTES`].
    pub(crate) fn picked(&self) -> Option<&[u8]> {
        (!self.too_long).then_some(&self.picked)
    }

    /// Takes the next piece.
    pub(crate) fn take(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let length = if self.in_string { self.string(data) } else { self.plain(data) };
            data = &data[length..];
        }
    }

    /// Goes on in a string; returns how much of it was taken.
    fn string(&mut self, data: &[u8]) -> usize {
        let special = |byte: &u8| matches!(byte, b'"' | b'\\');
        let found = if self.escaped { Some(0) } else { data.iter().position(special) };
        let length = found.map_or(data.len(), |index| index + 1);
        if std::mem::take(&mut self.escaped) {
            // Whatever it is, it is part of the string.
        } else if let Some(index) = found {
            self.escaped = data[index] == b'\\';
            self.in_string = self.escaped;
        }
        if self.depth == 1 && !self.in_value {
            let text = if self.in_string { &data[..length] } else { &data[..length - 1] };
            let room = (LONGEST_KEY + 1).saturating_sub(self.key.len());
            self.key.extend_from_slice(&text[..room.min(text.len())]);
        } else {
            self.keep(&data[..length]);
        }
        length
    }

    /// Goes on outside of strings; returns how much was taken.
    fn plain(&mut self, data: &[u8]) -> usize {
        let special = |byte: &u8| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']' | b',' | b':');
        let index = data.iter().position(special).unwrap_or(data.len());
        if index > 0 {
            self.keep(&data[..index]);
            return index;
        }
        let top = self.depth == 1;
        match data[0] {
            b'"' => {
                self.in_string = true;
                if top && !self.in_value {
                    self.key.clear();
                    return 1;
                }
            }
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == 1 {
                    self.picked.push(b'{');
                    return 1;
                }
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if top {
                    self.end_member();
                    self.picked.push(b'}');
                }
            }
            b',' if top => self.end_member(),
            b':' if top && !self.in_value => {
                self.begin_member();
                return 1;
            }
            _ => {}
        }
        self.keep(&data[..1]);
        1
    }

    fn begin_member(&mut self) {
        self.in_value = true;
        let key = std::str::from_utf8(&self.key).unwrap_or_default();
        let limit = match key {
            REPORT => MAX_REPORT_BYTES,
            _ if EXPLANATIONS.contains(&key) => MAX_EXPLANATION_BYTES,
            _ => return,
        };
        let start = self.picked.len();
        let comma = if start > 1 { "," } else { "" };
        self.picked.extend_from_slice(format!("{comma}\"{key}\":").as_bytes());
        self.member = Some(Member { start, limit });
    }

    fn end_member(&mut self) {
        self.in_value = false;
        self.member = None;
    }

    fn keep(&mut self, text: &[u8]) {
        let Some(member) = &self.member else { return };
        if self.picked.len() - member.start + text.len() > member.limit {
            self.too_long |= member.limit == MAX_REPORT_BYTES;
            self.picked.truncate(member.start);
            self.member = None;
        } else {
            self.picked.extend_from_slice(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    fn picked(pieces: &[&[u8]]) -> Option<Vec<u8>> {
        let mut picker = Picker::default();
        for piece in pieces {
            picker.take(piece);
        }
        picker.picked().map(<[u8]>::to_owned)
    }

    fn parsed(text: &str) -> Value {
        serde_json::from_slice(&picked(&[text.as_bytes()]).unwrap()).unwrap()
    }

    #[test]
    fn members_of_the_top_level_are_picked() {
        let text = r#" {"data": [[1, 2], {"uncia": 3}], "a\"uncia": "}", "uncia" : {"fresh": true,
            "spans": [["a,b:\\", 1, 2]]}, "nan": null, "message": "no {\"uncia\": 5}", "z": {}} "#;
        let expected = json!({
            "uncia": {"fresh": true, "spans": [["a,b:\\", 1, 2]]}, "message": "no {\"uncia\": 5}",
        });
        assert_eq!(parsed(text), expected);
        assert_eq!(parsed("{}"), json!({}));
        assert_eq!(parsed(r#"{"unciab": 1, "unci": 2, "errorMessages": 3}"#), json!({}));
        assert_eq!(
            parsed(r#"{"errorMessage": "m", "errorType": "t"}"#).as_object().unwrap().len(),
            2
        );
    }

    #[test]
    fn what_is_no_object_becomes_none() {
        for text in [r#"{"uncia": {"fresh": true}"#, r#"{"uncia": }"#, r#"{"uncia": 1} {}"#] {
            let found = picked(&[text.as_bytes()]).unwrap();
            assert!(serde_json::from_slice::<Value>(&found).is_err(), "{text}");
        }
    }

    #[test]
    fn a_long_explanation_is_left_out_and_a_long_report_is_told() {
        let long = "x".repeat(MAX_EXPLANATION_BYTES);
        let text = format!(r#"{{"message": "{long}", "uncia": {{"instance": "{long}"}}}}"#);
        assert_eq!(parsed(&text), json!({"uncia": {"instance": long}}));
        let piece = "x".repeat(MAX_REPORT_BYTES / 4);
        let mut picker = Picker::default();
        picker.take(br#"{"uncia": {"instance": ""#);
        for _ in 0..3 {
            picker.take(piece.as_bytes());
        }
        assert!(picker.picked().is_some());
        picker.take(piece.as_bytes());
        picker.take(b"\"}}");
        assert_eq!(picker.picked(), None);
    }

    fn value() -> impl Strategy<Value = Value> {
        let text = proptest::string::string_regex(r#"[a-z"\\{}\[\],: é]{0,8}"#).unwrap();
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let keys = prop_oneof![Just("uncia".to_owned()), "[a-z\"\\\\:]{0,4}"];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((keys, inner), 0..4)
                    .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_object_in_any_pieces(
            members in prop::collection::vec(
                (prop_oneof![
                    Just("uncia".to_owned()), Just("message".to_owned()), "[a-zA-Z\"\\\\]{0,14}",
                ], value()),
                0..5,
            ),
            cut in 1_usize..40,
            pretty: bool,
        ) {
            let object: Map<String, Value> = members.into_iter().collect();
            let text = if pretty {
                serde_json::to_string_pretty(&object).unwrap()
            } else {
                serde_json::to_string(&object).unwrap()
            };
            let pieces: Vec<_> = text.as_bytes().chunks(cut).collect();
            let found: Value = serde_json::from_slice(&picked(&pieces).unwrap()).unwrap();
            let matters = |key: &str| key == REPORT || EXPLANATIONS.contains(&key);
            let expected: Map<_, _> =
                object.into_iter().filter(|(key, _)| matters(key)).collect();
            prop_assert_eq!(found, Value::from(expected));
        }
    }
}
