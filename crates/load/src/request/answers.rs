//! What requests of later stages take from earlier answers.
//!
//! Between the braces of a template in a body, a URL or its query:
//!
//! * `answer`: the answer of the stage before, if there is one such stage; `answers.STAGE`: that of
//!   any stage before
//! * `answer.KEY`, `answer.KEY.0.KEY`: a value in it, which is JSON then: members of objects by name,
//!   items of arrays by number from 0
//! * `json ...`: the same as JSON, text with its quotes
//! * `text ...`: the same as text within the quotes of JSON, whatever it is
//!
//! Without a word before it an answer is inserted as it came, and of a value in it text is inserted
//! without its quotes (escaped as JSON does) and everything else as JSON. Digits stay as they are. In a
//! URL text is inserted as it is, to be percent-encoded, with or without the word `text`.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::answer::{MAX_ANSWER_BYTES, Whole};

const ONLY: &str = "answer";
const NAMED: &str = "answers.";

/// A stage whose answers a stream may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ancestor<'a> {
    pub stage: &'a str,
    /// Index of its stream.
    pub stream: usize,
    /// Whether the stream waits for it, and not only for one that does.
    pub is_direct: bool,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Json,
    Text,
    /// As [`Form::Plain`], but text is not escaped.
    InUrl,
}

/// The longest value in a URL; servers take no much longer ones.
const MAX_IN_URL: usize = 8 << 10;

/// An answer, or a value in one, that a request has in its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Index of the stream whose answer it is.
    pub stream: usize,
    stage: String,
    path: Vec<String>,
    form: Form,
    is_in_url: bool,
}

/// Whether what stands between braces is about an answer.
pub(super) fn is_reference(text: &str) -> bool {
    let (_, name) = form(text);
    name == ONLY || name.starts_with("answer.") || name.starts_with(NAMED)
}

fn form(text: &str) -> (Form, &str) {
    match text.split_once(char::is_whitespace) {
        Some(("json", rest)) => (Form::Json, rest.trim_start()),
        Some(("text", rest)) => (Form::Text, rest.trim_start()),
        _ => (Form::Plain, text),
    }
}

impl Reference {
    /// Reads what stands between braces; the error says what is wrong.
    pub(super) fn parse(text: &str, ancestors: &[Ancestor]) -> Result<Self, String> {
        let (form, name) = form(text);
        let stages = || ancestors.iter().map(|one| one.stage).collect::<Vec<_>>().join(", ");
        if ancestors.is_empty() {
            return Err(format!("{name:?}: no stage comes before this one"));
        }
        let (ancestor, path) = if let Some(rest) = name.strip_prefix(NAMED) {
            let (stage, path) = rest.split_once('.').map_or((rest, None), |(s, p)| (s, Some(p)));
            let found = ancestors.iter().find(|one| one.stage == stage);
            let missing = || format!("{name:?}: the stages before this one are {}", stages());
            (found.ok_or_else(missing)?, path)
        } else {
            let mut direct = ancestors.iter().filter(|one| one.is_direct);
            let (Some(found), None) = (direct.next(), direct.next()) else {
                return Err(format!(
                    "{name:?} could be of several stages: write answers.STAGE, of {}",
                    stages()
                ));
            };
            (found, name.strip_prefix("answer."))
        };
        let path: Vec<String> =
            path.map_or_else(Vec::new, |path| path.split('.').map(str::to_owned).collect());
        if path.iter().any(String::is_empty) {
            return Err(format!("{name:?} has an empty key"));
        }
        let stage = ancestor.stage.to_owned();
        Ok(Self { stream: ancestor.stream, stage, path, form, is_in_url: false })
    }

    /// The same in a URL.
    pub(super) fn in_url(self) -> Self {
        let form = if self.form == Form::Json { Form::Json } else { Form::InUrl };
        Self { form, is_in_url: true, ..self }
    }

    /// Why it has no value if the stage failed.
    pub(crate) fn unanswered(&self) -> String {
        format!("stage {:?} failed, so that there is no answer to take a value from", self.stage)
    }

    /// Its value in an answer; the error says why there is none.
    pub(crate) fn resolve(&self, answer: &Whole) -> Result<Vec<u8>, String> {
        let value = self.find(answer)?;
        if self.is_in_url && value.len() > MAX_IN_URL {
            return Err(format!(
                "a value in the answer of stage {:?} is longer than {MAX_IN_URL} bytes: send it in \
                 the body",
                self.stage
            ));
        }
        Ok(value)
    }

    fn find(&self, answer: &Whole) -> Result<Vec<u8>, String> {
        let stage = &self.stage;
        let bytes = match answer {
            Whole::Kept(bytes) => bytes,
            Whole::TooLong => {
                return Err(format!(
                    "the answer of stage {stage:?} is longer than {MAX_ANSWER_BYTES} bytes"
                ));
            }
        };
        if self.path.is_empty() && self.form != Form::Json {
            return match self.form {
                Form::Plain | Form::InUrl => Ok(bytes.clone()),
                _ => std::str::from_utf8(bytes)
                    .map(|text| escape(text).into())
                    .map_err(|_| format!("the answer of stage {stage:?} is not UTF-8 text")),
            };
        }
        let whole: &RawValue = serde_json::from_slice(bytes).map_err(|error| {
            if bytes.trim_ascii().is_empty() {
                return format!("the answer of stage {stage:?} is empty");
            }
            format!("the answer of stage {stage:?} is not JSON: {error}")
        })?;
        let mut value = whole.get();
        for (depth, key) in self.path.iter().enumerate() {
            value = member(value, key).ok_or_else(|| {
                let path = self.path[..=depth].join(".");
                format!("the answer of stage {stage:?} has no {path}")
            })?;
        }
        let inside = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        Ok(match (self.form, inside) {
            (Form::Json, _) | (Form::Plain | Form::InUrl, None) => value.as_bytes().to_vec(),
            (Form::InUrl, Some(_)) => {
                let text: Result<String, _> = serde_json::from_str(value);
                text.map_err(|_| format!("a text in the answer of stage {stage:?} is no text"))?
                    .into_bytes()
            }
            (_, Some(inside)) => inside.as_bytes().to_vec(),
            (Form::Text, None) => escape(value).into(),
        })
    }
}

/// A member of an object, or an item of an array, as JSON.
fn member<'a>(value: &'a str, key: &str) -> Option<&'a str> {
    if value.starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(value).ok()?;
        return items.get(key.parse::<usize>().ok()?).map(|item| item.get());
    }
    let members: HashMap<String, &RawValue> = serde_json::from_str(value).ok()?;
    members.get(key).map(|member| member.get())
}

/// Text as it stands between the quotes of JSON.
fn escape(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const STAGES: [Ancestor; 2] = [
        Ancestor { stage: "split", stream: 3, is_direct: false },
        Ancestor { stage: "work", stream: 4, is_direct: true },
    ];

    fn value(reference: &str, answer: &str) -> Result<String, String> {
        let found = Reference::parse(reference, &STAGES)?.resolve(&Whole::Kept(answer.into()))?;
        Ok(String::from_utf8(found).unwrap())
    }

    #[test]
    fn values_are_inserted_as_the_words_say() {
        let answer = r#" {"n": 12345678901234567890123, "t": "a \"b\"", "l": [1, {"x": null}]} "#;
        for (reference, expected) in [
            ("answer", answer),
            ("answer.n", "12345678901234567890123"),
            ("answer.t", "a \\\"b\\\""),
            ("json answer.t", "\"a \\\"b\\\"\""),
            ("text  answer.t", "a \\\"b\\\""),
            ("answer.l.1", "{\"x\": null}"),
            ("text answer.l.1", "{\\\"x\\\": null}"),
            ("answers.work.l.0", "1"),
            ("json answer", answer.trim()),
        ] {
            assert_eq!(value(reference, answer).as_deref(), Ok(expected), "{reference}");
        }
        assert_eq!(value("answer", "hello"), Ok("hello".to_owned()));
        assert_eq!(value("text answer", "a\n"), Ok("a\\n".to_owned()));
        assert_eq!(Reference::parse("answers.split.a", &STAGES).unwrap().stream, 3);
    }

    #[test]
    fn in_urls_text_is_as_it_is_and_not_too_long() {
        let value = |reference: &str, answer: &str| {
            let reference = Reference::parse(reference, &STAGES).unwrap().in_url();
            reference.resolve(&Whole::Kept(answer.into())).map(|v| String::from_utf8(v).unwrap())
        };
        let answer = "{\"t\": \"a \\\"b\\\" \\u00fc\", \"n\": [1.50]}";
        assert_eq!(value("answer.t", answer).unwrap(), "a \"b\" ü");
        assert_eq!(value("text answer.t", answer).unwrap(), "a \"b\" ü");
        assert_eq!(value("json answer.n", answer).unwrap(), "[1.50]");
        assert_eq!(value("answer", "hello ü").unwrap(), "hello ü");
        let long = value("answer", &"x".repeat(MAX_IN_URL + 1)).unwrap_err();
        assert!(long.contains("send it in the body"), "{long}");
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (reference, answer, expected) in [
            ("answer.a.b", "{\"a\": {}}", "stage \"work\" has no a.b"),
            ("answer.a", "[1]", "has no a"),
            ("answer.1", "[1]", "has no 1"),
            ("answer.a", "5", "has no a"),
            ("answer.a", "hello", "is not JSON"),
            ("json answer", "hello", "is not JSON"),
            ("answer.a", " ", "is empty"),
            ("answers.walk.a", "", "the stages before this one are split, work"),
            ("answer..a", "", "empty key"),
            ("answer.", "", "empty key"),
        ] {
            let error = value(reference, answer).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let two = STAGES.map(|one| Ancestor { is_direct: true, ..one });
        let error = Reference::parse("answer.a", &two).unwrap_err();
        assert!(error.contains("could be of several stages"), "{error}");
        assert!(Reference::parse("answer", &[]).is_err());
        let long = Reference::parse("answer", &STAGES).unwrap().resolve(&Whole::TooLong);
        assert!(long.unwrap_err().contains("longer than"));
        let bytes = Whole::Kept(vec![0xFF]);
        assert!(Reference::parse("text answer", &STAGES).unwrap().resolve(&bytes).is_err());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
            "\\PC{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[a-c]", inner), 0..4).prop_map(|members| {
                    Value::from(members.into_iter().collect::<serde_json::Map<_, _>>())
                }),
            ]
        })
    }

    proptest! {
        /// As `serde_json` finds it, and still a document where a document is made of it.
        #[test]
        fn any_value_by_any_path(
            answer in any_json(), path in prop::collection::vec("[a-c0-2]", 1..4), pretty: bool,
        ) {
            let text = if pretty {
                serde_json::to_string_pretty(&answer).unwrap()
            } else {
                answer.to_string()
            };
            let expected = answer.pointer(&format!("/{}", path.join("/")));
            let name = format!("answer.{}", path.join("."));
            let found = value(&format!("json {name}"), &text).ok();
            let read = found.map(|text| serde_json::from_str::<Value>(&text).unwrap());
            prop_assert_eq!(read.as_ref(), expected);
            let within = value(&format!("text {name}"), &text).ok().map(|t| format!("\"{t}\""));
            let read = within.map(|text| serde_json::from_str::<String>(&text).unwrap());
            let as_text = |value: &Value| value.as_str().map_or_else(
                || serde_json::from_str::<Value>(read.as_deref().unwrap()).unwrap() == *value,
                |text| read.as_deref() == Some(text),
            );
            prop_assert!(expected.is_none_or(as_text));
        }

        #[test]
        fn any_reference_to_any_answer_has_a_value_or_an_error(
            reference in "(json |text |)answers?[.a-z0-9]{0,12}", answer in "[\\[\\]{}:,a\"1 ]{0,20}",
        ) {
            let _ = (is_reference(&reference), value(&reference, &answer), json!(null));
        }
    }
}
