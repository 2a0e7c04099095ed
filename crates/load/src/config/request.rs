//! What a stream's requests say.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Values that are drawn anew for each request, by name.
pub type Fields = BTreeMap<String, Field>;

/// A request's body.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Body {
    /// Sent as UTF-8.
    Text(String),
    /// Bytes, written in base64.
    Base64(String),
    /// Text with `{{name}}` in it.
    Template(String),
    /// So many bytes that no compression makes fewer; the same in all requests of the stream.
    RandomBytes(u64),
}

/// What a field's values are.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "snake_case")]
pub enum Field {
    /// Both bounds are among the values.
    Integer {
        /// The smallest value.
        min: i64,
        /// The largest value, at least `min`.
        max: i64,
    },
    /// Each with the same chance; one that is given twice has two.
    Choice {
        /// At least one.
        values: Vec<ChoiceValue>,
    },
    /// Letters and digits.
    Text {
        /// Characters in the text, 1 or more.
        length: u64,
    },
    /// Of version 4.
    Uuid {},
    /// Of each request its own, as recorded: the first is that of the request with number 0.
    Column {
        /// As many as the stream has requests.
        values: Column,
    },
}

/// Values by number, in one piece: a replay may have millions.
#[derive(Debug, Clone, Default)]
pub struct Column {
    text: String,
    /// Where each value ends in `text`.
    ends: Vec<usize>,
}

impl Column {
    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The value with this number; none: there are fewer.
    pub(crate) fn get(&self, number: usize) -> Option<&str> {
        let end = *self.ends.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|number| self.get(number))
    }
}

impl FromIterator<String> for Column {
    fn from_iter<I: IntoIterator<Item = String>>(values: I) -> Self {
        let mut column = Self::default();
        for value in values {
            column.text.push_str(&value);
            column.ends.push(column.text.len());
        }
        column
    }
}

impl<'de> Deserialize<'de> for Column {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values;

        impl<'de> Visitor<'de> for Values {
            type Value = Column;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of texts, numbers, true or false")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Column, A::Error> {
                let mut column = Column::default();
                while let Some(value) = values.next_element::<ChoiceValue>()? {
                    // Writing to a text does not fail.
                    let _ = write!(column.text, "{value}");
                    column.ends.push(column.text.len());
                }
                Ok(column)
            }
        }

        deserializer.deserialize_seq(Values)
    }
}

/// A value to choose: text, or something that is written as JSON writes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a choice must be text, a number, or true or false")]
pub enum ChoiceValue {
    /// Inserted as it is.
    Text(String),
    /// Inserted with the digits that JSON gives.
    Number(serde_json::Number),
    /// Inserted as `true` or `false`.
    Flag(bool),
}

impl fmt::Display for ChoiceValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
        }
    }
}

/// Which version of HTTP a stream's requests are sent by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
pub enum HttpVersion {
    /// HTTP/1.1.
    #[default]
    #[serde(rename = "1.1")]
    Http1,
    /// HTTP/2.
    #[serde(rename = "2")]
    Http2,
    /// What the server chooses in the TLS handshake; HTTP/1.1 without TLS.
    #[serde(rename = "auto")]
    Auto,
}

impl HttpVersion {
    /// Whether requests may go out by HTTP/2.
    pub(crate) fn may_be_2(self) -> bool {
        self != Self::Http1
    }
}

/// How requests are signed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Sign {
    /// As AWS services require.
    AwsSigv4(AwsSigv4),
}

/// AWS Signature Version 4, in the header `authorization`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwsSigv4 {
    /// The AWS region of the endpoint, such as `us-east-1`.
    pub region: String,
    /// The AWS service's name in signatures, such as `lambda`.
    pub service: String,
    /// Names the key; part of the signature in plain text.
    pub access_key_id: String,
    /// The key that signs.
    pub secret_access_key: Secret,
    /// The token of temporary credentials; none: the credentials are permanent.
    #[serde(default)]
    pub session_token: Option<Secret>,
}

/// Text that is in no message and no log.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for a request and nothing else.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The error at hand may show the value.
        String::deserialize(deserializer)
            .map(Self)
            .map_err(|_| D::Error::custom("a secret access key or session token must be text"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let json = r#"{"aws_sigv4": {"region": "r", "service": "s", "access_key_id": "a",
            "secret_access_key": "hush", "session_token": "silence"}}"#;
        let sign: Sign = serde_json::from_str(json).unwrap();
        let shown = format!("{sign:?} {sign:#?}");
        assert!(!shown.contains("hush") && !shown.contains("silence"), "{shown}");
        let error = serde_json::from_str::<Sign>(&json.replace("\"hush\"", "12345")).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("must be text") && !shown.contains("12345"), "{shown}");
    }

    #[test]
    fn unknown_keys_and_kinds_are_errors() {
        for json in [
            r#"{"kind": "uuid", "version": 4}"#,
            r#"{"kind": "integer", "min": 1, "max": 2, "step": 1}"#,
            r#"{"kind": "normal"}"#,
            r#"{"kind": "integer", "min": 1}"#,
            r#"{"kind": "integer", "min": 1, "max": 9223372036854775808}"#,
            r#"{"kind": "text", "length": -1}"#,
            r#"{"kind": "choice", "values": [null]}"#,
        ] {
            assert!(serde_json::from_str::<Field>(json).is_err(), "{json}");
        }
        assert!(serde_json::from_str::<Body>(r#"{"file": "x"}"#).is_err());
        assert!(serde_json::from_str::<HttpVersion>("\"3\"").is_err());
    }

    #[test]
    fn a_column_has_its_values_by_number() {
        let json = r#"{"kind": "column", "values": ["a b", "", 5, "ü", -1.5, true]}"#;
        let Field::Column { values } = serde_json::from_str(json).unwrap() else { panic!() };
        assert_eq!(values.iter().collect::<Vec<_>>(), ["a b", "", "5", "ü", "-1.5", "true"]);
        assert_eq!((values.len(), values.get(3), values.get(6)), (6, Some("ü"), None));
        for json in [
            r#"{"kind": "column", "values": [null]}"#,
            r#"{"kind": "column", "values": "a"}"#,
            r#"{"kind": "column"}"#,
        ] {
            assert!(serde_json::from_str::<Field>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn choices_are_written_as_in_json() {
        let json = r#"{"kind": "choice", "values": ["a b", 5, -1.5, true]}"#;
        let Field::Choice { values } = serde_json::from_str(json).unwrap() else { panic!() };
        let texts: Vec<_> = values.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["a b", "5", "-1.5", "true"]);
    }
}
