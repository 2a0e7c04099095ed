//! The rules of a choice.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::path::Path;

/// A rule: when it holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Rule {
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Test { variable: Path, test: Test },
}

/// What is tested of a variable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Test {
    Compare { kind: Kind, order: Order, with: Operand },
    Matches(String),
    Is(Type, bool),
}

/// How two values are compared; values of another type are unequal and unordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    String,
    Numeric,
    Boolean,
    Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Equals,
    LessThan,
    GreaterThan,
    LessThanEquals,
    GreaterThanEquals,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    Value(Value),
    Path(Path),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Null,
    Present,
    Numeric,
    String,
    Boolean,
    Timestamp,
}

const KINDS: [(&str, Kind); 4] = [
    ("String", Kind::String),
    ("Numeric", Kind::Numeric),
    ("Boolean", Kind::Boolean),
    ("Timestamp", Kind::Timestamp),
];

// Longer names first: each is looked for as a whole.
const ORDERS: [(&str, Order); 5] = [
    ("Equals", Order::Equals),
    ("LessThan", Order::LessThan),
    ("GreaterThan", Order::GreaterThan),
    ("LessThanEquals", Order::LessThanEquals),
    ("GreaterThanEquals", Order::GreaterThanEquals),
];

const TYPES: [(&str, Type); 6] = [
    ("IsNull", Type::Null),
    ("IsPresent", Type::Present),
    ("IsNumeric", Type::Numeric),
    ("IsString", Type::String),
    ("IsBoolean", Type::Boolean),
    ("IsTimestamp", Type::Timestamp),
];

/// Why a rule is refused: the key, and what is wrong with it; `None` if the key is not supported.
pub(crate) type Refusal = (String, Option<String>);

impl Rule {
    /// Parses a rule, without the keys `Next` and `Comment`.
    pub(crate) fn parse(object: &Map<String, Value>) -> Result<Self, Refusal> {
        let wrong = |key: &str, problem: &str| (key.to_owned(), Some(problem.to_owned()));
        let mut variable = None;
        let mut rule = None;
        for (key, value) in object {
            if key == "Next" || key == "Comment" {
                continue;
            }
            if key == "Variable" {
                let text = value.as_str().ok_or_else(|| wrong(key, "is no text"))?;
                variable = Some(Path::parse(text).map_err(|problem| (key.clone(), Some(problem)))?);
                continue;
            }
            if rule.is_some() {
                return Err(wrong(key, "is a second comparison; combine them with And or Or"));
            }
            rule = Some((key, value));
        }
        let Some((key, value)) = rule else {
            return Err(wrong("Choices", "has a rule without a comparison"));
        };
        let nested = |value: &Value| match value {
            Value::Object(object) => Self::parse(object),
            _ => Err(wrong(key, "holds something that is no rule")),
        };
        let all = || -> Result<Vec<Self>, Refusal> {
            let array = value.as_array().filter(|array| !array.is_empty());
            let array = array.ok_or_else(|| wrong(key, "is no list of rules"))?;
            array.iter().map(nested).collect()
        };
        match key.as_str() {
            "And" => return Ok(Self::And(all()?)),
            "Or" => return Ok(Self::Or(all()?)),
            "Not" => return Ok(Self::Not(Box::new(nested(value)?))),
            _ => {}
        }
        let test = test(key, value)?;
        let variable = variable.ok_or_else(|| wrong(key, "has no Variable beside it"))?;
        Ok(Self::Test { variable, test })
    }

    /// Whether the rule holds.
    ///
    /// # Errors
    /// A variable is not there, or a path to compare with; a sentence.
    pub(crate) fn holds(&self, input: &Value, context: &Value) -> Result<bool, String> {
        match self {
            Self::And(rules) => {
                for rule in rules {
                    if !rule.holds(input, context)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Or(rules) => {
                for rule in rules {
                    if rule.holds(input, context)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Not(rule) => rule.holds(input, context).map(|holds| !holds),
            Self::Test { variable, test } => {
                let value = variable.find(input, context);
                if let Test::Is(Type::Present, expected) = test {
                    return Ok(value.is_some() == *expected);
                }
                let missing = |path: &Path| format!("{} finds nothing to compare", path.text());
                let value = value.ok_or_else(|| missing(variable))?;
                Ok(match test {
                    Test::Is(kind, expected) => is_of(*kind, &value) == *expected,
                    Test::Matches(pattern) => {
                        value.as_str().is_some_and(|text| matches_pattern(pattern, text))
                    }
                    Test::Compare { kind, order, with: Operand::Value(other) } => {
                        compare(*kind, *order, &value, other)
                    }
                    Test::Compare { kind, order, with: Operand::Path(path) } => {
                        let other = path.find(input, context).ok_or_else(|| missing(path))?;
                        compare(*kind, *order, &value, &other)
                    }
                })
            }
        }
    }
}

fn test(key: &str, value: &Value) -> Result<Test, Refusal> {
    let wrong = |problem: &str| (key.to_owned(), Some(problem.to_owned()));
    if let Some((_, kind)) = TYPES.iter().find(|(name, _)| *name == key) {
        let expected = value.as_bool().ok_or_else(|| wrong("is neither true nor false"))?;
        return Ok(Test::Is(*kind, expected));
    }
    if key == "StringMatches" {
        let pattern = value.as_str().ok_or_else(|| wrong("is no text"))?;
        return Ok(Test::Matches(pattern.to_owned()));
    }
    let (name, is_path) = match key.strip_suffix("Path") {
        Some(name) => (name, true),
        None => (key, false),
    };
    for (prefix, kind) in KINDS {
        let Some(rest) = name.strip_prefix(prefix) else { continue };
        let Some((_, order)) = ORDERS.iter().find(|(suffix, _)| *suffix == rest) else { continue };
        if kind == Kind::Boolean && *order != Order::Equals {
            continue;
        }
        let with = if is_path {
            let text = value.as_str().ok_or_else(|| wrong("is no path: it is no text"))?;
            Operand::Path(Path::parse(text).map_err(|problem| (key.to_owned(), Some(problem)))?)
        } else if is_comparable(kind, value) {
            Operand::Value(value.clone())
        } else {
            return Err(wrong("is compared with a value of another type"));
        };
        return Ok(Test::Compare { kind, order: *order, with });
    }
    Err((key.to_owned(), None))
}

fn is_comparable(kind: Kind, value: &Value) -> bool {
    match kind {
        Kind::String => value.is_string(),
        Kind::Numeric => value.is_number(),
        Kind::Boolean => value.is_boolean(),
        Kind::Timestamp => timestamp(value).is_some(),
    }
}

/// A text in the form of RFC 3339, with `T` and either `Z` or an offset.
pub(crate) fn timestamp(value: &Value) -> Option<Timestamp> {
    let text = value.as_str()?;
    (text.as_bytes().get(10) == Some(&b'T')).then(|| text.parse().ok())?
}

fn is_of(kind: Type, value: &Value) -> bool {
    match kind {
        Type::Null => value.is_null(),
        Type::Present => true,
        Type::Numeric => value.is_number(),
        Type::String => value.is_string(),
        Type::Boolean => value.is_boolean(),
        Type::Timestamp => timestamp(value).is_some(),
    }
}

fn compare(kind: Kind, order: Order, left: &Value, right: &Value) -> bool {
    use std::cmp::Ordering;
    let ordering = match kind {
        Kind::String => left.as_str().zip(right.as_str()).map(|(left, right)| left.cmp(right)),
        Kind::Numeric => number_order(left, right),
        Kind::Boolean => left.as_bool().zip(right.as_bool()).map(|(left, right)| left.cmp(&right)),
        Kind::Timestamp => {
            timestamp(left).zip(timestamp(right)).map(|(left, right)| left.cmp(&right))
        }
    };
    ordering.is_some_and(|ordering| match order {
        Order::Equals => ordering == Ordering::Equal,
        Order::LessThan => ordering == Ordering::Less,
        Order::GreaterThan => ordering == Ordering::Greater,
        Order::LessThanEquals => ordering != Ordering::Greater,
        Order::GreaterThanEquals => ordering != Ordering::Less,
    })
}

/// Whole numbers are compared as such: as doubles, some that differ are equal.
fn number_order(left: &Value, right: &Value) -> Option<std::cmp::Ordering> {
    let whole =
        |value: &Value| value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

/// Whether a text matches a pattern in which `*` stands for any characters; `\*` is an asterisk, and
/// `\\` a backslash.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    // Pieces between asterisks: the first and the last are anchored, the others come in order.
    let mut pieces = vec![String::new()];
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        let last = pieces.last_mut().expect("there is one at least");
        match character {
            '\\' => last.push(characters.next().unwrap_or('\\')),
            '*' => pieces.push(String::new()),
            other => last.push(other),
        }
    }
    let (first, rest) = pieces.split_first().expect("there is one at least");
    let Some((end, between)) = rest.split_last() else { return text == first };
    let Some(mut text) =
        text.strip_prefix(first.as_str()).and_then(|it| it.strip_suffix(end.as_str()))
    else {
        return false;
    };
    for piece in between {
        let Some(at) = text.find(piece.as_str()) else { return false };
        text = &text[at + piece.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(rule: Value, input: Value) -> Result<bool, String> {
        let Value::Object(rule) = rule else { panic!("a rule is an object") };
        Rule::parse(&rule).unwrap().holds(&input, &Value::Null)
    }

    #[test]
    fn values_of_one_type_are_compared() {
        let test = |key: &str, value: Value, with: Value| {
            holds(json!({"Variable": "$.a", key: with}), json!({"a": value})).unwrap()
        };
        assert!(test("NumericEquals", json!(1), json!(1.0)));
        assert!(!test(
            "NumericEquals",
            json!(9_007_199_254_740_993_u64),
            json!(9_007_199_254_740_992_u64)
        ));
        assert!(test("NumericLessThan", json!(-1), json!(0)));
        assert!(!test("NumericLessThan", json!("-1"), json!(0)));
        assert!(test("NumericGreaterThanEquals", json!(2), json!(2)));
        assert!(test("StringLessThanEquals", json!("a"), json!("b")));
        assert!(test("BooleanEquals", json!(false), json!(false)));
        assert!(test(
            "TimestampEquals",
            json!("2026-01-01T01:00:00+01:00"),
            json!("2026-01-01T00:00:00Z")
        ));
        assert!(test(
            "TimestampGreaterThan",
            json!("2026-01-02T00:00:00Z"),
            json!("2026-01-01T00:00:00Z")
        ));
        assert!(!test("TimestampGreaterThan", json!("tomorrow"), json!("2026-01-01T00:00:00Z")));
    }

    #[test]
    fn types_and_presence() {
        let test = |key: &str, input: Value| holds(json!({"Variable": "$.a", key: true}), input);
        assert_eq!(test("IsPresent", json!({})), Ok(false));
        assert_eq!(test("IsPresent", json!({"a": null})), Ok(true));
        assert_eq!(test("IsNull", json!({"a": null})), Ok(true));
        assert_eq!(test("IsTimestamp", json!({"a": "2026-01-01T00:00:00Z"})), Ok(true));
        assert_eq!(test("IsTimestamp", json!({"a": "2026-01-01 00:00:00Z"})), Ok(false));
        assert_eq!(test("IsString", json!({"a": 1})), Ok(false));
        assert!(test("IsNull", json!({})).is_err());
    }

    #[test]
    fn rules_are_combined() {
        let rule = json!({
            "And": [
                {"Not": {"Variable": "$.a", "StringEquals": "x"}},
                {"Or": [
                    {"Variable": "$.b", "NumericEqualsPath": "$.c"},
                    {"Variable": "$.b", "NumericGreaterThan": 10}
                ]}
            ]
        });
        assert_eq!(holds(rule.clone(), json!({"a": "y", "b": 2, "c": 2})), Ok(true));
        assert_eq!(holds(rule.clone(), json!({"a": "y", "b": 20, "c": 2})), Ok(true));
        assert_eq!(holds(rule.clone(), json!({"a": "x", "b": 2, "c": 2})), Ok(false));
        assert!(holds(rule, json!({"a": "y", "b": 2})).is_err());
    }

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("log-*.txt", "log-1.txt", true),
            ("log-*.txt", "log-.txt", true),
            ("log-*.txt", "log.txt", false),
            ("*", "", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "a1b2b3c", true),
            ("a*bb*c", "abc", false),
            ("a*a", "a", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a\\\\*", "a\\b", true),
            ("plain", "plain", true),
            ("*ü*", "übel", true),
        ] {
            assert_eq!(matches_pattern(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused_by_key() {
        for (rule, key) in [
            (json!({"Variable": "$.a"}), "Choices"),
            (json!({"Variable": "$.a", "StringContains": "x"}), "StringContains"),
            (json!({"Variable": "$.a", "BooleanLessThan": true}), "BooleanLessThan"),
            (json!({"Variable": "$.a", "NumericEquals": "1"}), "NumericEquals"),
            (json!({"Variable": "a", "NumericEquals": 1}), "Variable"),
            (json!({"NumericEquals": 1}), "NumericEquals"),
            (json!({"Variable": "$.a", "IsNull": 1}), "IsNull"),
            (json!({"And": []}), "And"),
            (json!({"And": [1]}), "And"),
            (json!({"Variable": "$.a", "IsNull": true, "IsString": true}), "IsString"),
        ] {
            let Value::Object(rule) = rule else { unreachable!() };
            assert_eq!(Rule::parse(&rule).unwrap_err().0, key);
        }
    }
}
