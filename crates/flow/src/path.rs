//! Paths into data: `$`, `$.a.b`, `$['a b'][0]`, `$.a[*].b`.

use serde_json::{Map, Value};

/// Most steps of a path. Data deeper than [`crate::size::MAX_DEPTH`] is refused anyway; but what a path
/// makes it makes before.
const MAX_STEPS: usize = 128;

/// A step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Name(String),
    /// From the end if it is negative.
    Index(i64),
    /// Every element or value.
    Every,
}

/// A path into a state's input, or into the context object (`$$`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    text: String,
    is_context: bool,
    steps: Vec<Step>,
}

impl Path {
    /// Parses a path.
    ///
    /// # Errors
    /// What is wrong with it, to be read after its name.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let rest =
            text.strip_prefix('$').ok_or_else(|| format!("{text:?} does not begin with $"))?;
        let (is_context, mut rest) = match rest.strip_prefix('$') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = next(rest).ok_or_else(|| {
                format!("{text:?} is no path of names, indexes and [*]: see {rest:?}")
            })?;
            if steps.len() == MAX_STEPS {
                return Err(format!("has more than {MAX_STEPS} steps"));
            }
            steps.push(step);
            rest = after;
        }
        Ok(Self { text: text.to_owned(), is_context, steps })
    }

    /// Parses a path that names one place: no wildcard, and not of the context object.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(crate) fn parse_reference(text: &str) -> Result<Self, String> {
        let path = Self::parse(text)?;
        let is_reference = path.steps.iter().all(|step| match step {
            Step::Name(_) => true,
            Step::Index(index) => *index >= 0,
            Step::Every => false,
        });
        if path.is_context || !is_reference {
            return Err(format!("{text:?} does not name one place in the state's input"));
        }
        Ok(path)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The value at this path; of a path with a wildcard, an array of all of them, which is missing only
    /// if what comes before the first wildcard is.
    pub(crate) fn find(&self, input: &Value, context: &Value) -> Option<Value> {
        let root = if self.is_context { context } else { input };
        let first = self.steps.iter().position(|step| *step == Step::Every);
        let (before, after) = self.steps.split_at(first.unwrap_or(self.steps.len()));
        let value = before.iter().try_fold(root, |value, step| below(value, step).next())?;
        if first.is_none() {
            return Some(value.clone());
        }
        let mut values = vec![value];
        for step in after {
            values = values.into_iter().flat_map(|value| below(value, step)).collect();
        }
        Some(Value::Array(values.into_iter().cloned().collect()))
    }

    /// Puts a value at this path, which is a reference; objects on the way are made.
    ///
    /// # Errors
    /// Something on the way is no object, or an array without that index; a sentence.
    pub(crate) fn put(&self, target: &mut Value, value: Value) -> Result<(), String> {
        let mut place = target;
        for step in &self.steps {
            place = match step {
                Step::Name(name) => {
                    if place.is_null() {
                        *place = Value::Object(Map::new());
                    }
                    let Value::Object(object) = place else { return Err(self.misfit(place)) };
                    object.entry(name.clone()).or_insert(Value::Null)
                }
                Step::Index(index) => {
                    let position = usize::try_from(*index).unwrap_or(usize::MAX);
                    if place.get(position).is_none() || !place.is_array() {
                        return Err(self.misfit(place));
                    }
                    &mut place[position]
                }
                Step::Every => return Err(self.misfit(place)),
            };
        }
        *place = value;
        Ok(())
    }

    fn misfit(&self, value: &Value) -> String {
        format!("{} cannot be put into {}", self.text, short(value))
    }
}

/// A step and what follows it; None if there is none.
fn next(text: &str) -> Option<(Step, &str)> {
    if let Some(rest) = text.strip_prefix('.') {
        if let Some(rest) = rest.strip_prefix('*') {
            return Some((Step::Every, rest));
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let name = &rest[..end];
        let is_name = name.chars().all(|it| it.is_alphanumeric() || it == '_' || it == '-');
        return (!name.is_empty() && is_name).then(|| (Step::Name(name.to_owned()), &rest[end..]));
    }
    let rest = text.strip_prefix('[')?;
    for quote in ['\'', '"'] {
        if let Some(rest) = rest.strip_prefix(quote) {
            let (name, after) = quoted(rest, quote)?;
            return Some((Step::Name(name), after.strip_prefix(']')?));
        }
    }
    let (inside, after) = rest.split_once(']')?;
    let step = if inside == "*" { Step::Every } else { Step::Index(inside.parse().ok()?) };
    Some((step, after))
}

/// A name up to its closing quote, with escapes as JSON has them, and what follows the quote.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut json = String::from("\"");
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => match characters.next()?.1 {
                '\'' => json.push('\''),
                escaped => json.extend(['\\', escaped]),
            },
            _ if character == quote => {
                json.push('"');
                return Some((serde_json::from_str(&json).ok()?, &text[at + 1..]));
            }
            '"' => json.push_str("\\\""),
            '\0'..' ' => json.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => json.push(character),
        }
    }
    None
}

/// The values that a step leads to.
fn below<'a>(value: &'a Value, step: &Step) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
    match (step, value) {
        (Step::Name(name), Value::Object(object)) => Box::new(object.get(name).into_iter()),
        (Step::Index(index), Value::Array(array)) => {
            let position = if *index < 0 {
                array.len().checked_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX))
            } else {
                usize::try_from(*index).ok()
            };
            Box::new(position.and_then(|position| array.get(position)).into_iter())
        }
        (Step::Every, Value::Array(array)) => Box::new(array.iter()),
        (Step::Every, Value::Object(object)) => Box::new(object.values()),
        _ => Box::new(std::iter::empty()),
    }
}

/// The beginning of a value's text, for messages.
pub(crate) fn short(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string();
    if text.chars().count() <= MOST {
        return text;
    }
    text.chars().take(MOST).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn find(path: &str, input: &Value) -> Option<Value> {
        Path::parse(path).unwrap().find(input, &json!({"Execution": {"Name": "e"}}))
    }

    #[test]
    fn values_are_found() {
        let input = json!({"a": {"b c": [1, {"d": 2}, 3]}, "é": true, "n": null});
        assert_eq!(find("$", &input), Some(input.clone()));
        assert_eq!(find("$.a['b c'][1].d", &input), Some(json!(2)));
        assert_eq!(find("$.a[\"b c\"][-1]", &input), Some(json!(3)));
        assert_eq!(find("$.é", &input), Some(json!(true)));
        assert_eq!(find("$.n", &input), Some(Value::Null));
        assert_eq!(find("$$.Execution.Name", &input), Some(json!("e")));
        for missing in ["$.b", "$.a.b", "$.a['b c'][3]", "$.a['b c'][-4]", "$.é.x", "$[0]"] {
            assert_eq!(find(missing, &input), None, "{missing}");
        }
        assert_eq!(find("$.a['b c'][*]", &input), Some(json!([1, {"d": 2}, 3])));
        assert_eq!(find("$.a['b c'][*].d", &input), Some(json!([2])));
        assert_eq!(find("$.a['b c'][*].none", &input), Some(json!([])));
        assert_eq!(find("$.a[*][*].none", &input), Some(json!([])));
        for missing in ["$.none[*]", "$.a.none[*].b", "$.a['b c'][7].*"] {
            assert_eq!(find(missing, &input), None, "{missing}");
        }
    }

    #[test]
    fn names_in_quotes_have_escapes() {
        let name = "a'\"\\b\té]";
        let input = json!({ name: 1 });
        for path in [
            r#"$['a\'"\\b\té]']"#.to_owned(),
            r#"$["a'\"\\b\t\u00e9]"]"#.to_owned(),
            "$[\"a'\\\"\\\\b\té]\"]".to_owned(),
        ] {
            assert_eq!(find(&path, &input), Some(json!(1)), "{path}");
        }
        for path in ["$['a\\']", "$['a\\", r"$['\ud800']", r"$['\q']"] {
            assert!(Path::parse(path).is_err(), "{path}");
        }
    }

    #[test]
    fn values_are_put_and_objects_made() {
        let put = |path: &str, mut target: Value| {
            Path::parse_reference(path).unwrap().put(&mut target, json!(7)).map(|()| target)
        };
        assert_eq!(put("$", json!({"a": 1})), Ok(json!(7)));
        assert_eq!(put("$.a.b", json!({"a": {"c": 1}})), Ok(json!({"a": {"c": 1, "b": 7}})));
        assert_eq!(put("$.x.y", json!({})), Ok(json!({"x": {"y": 7}})));
        assert_eq!(put("$.a[1]", json!({"a": [1, 2]})), Ok(json!({"a": [1, 7]})));
        assert!(put("$.a[2]", json!({"a": [1, 2]})).is_err());
        assert!(put("$.a.b", json!({"a": 1})).is_err());
        assert!(put("$.a", json!([1])).is_err());
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in
            ["", "a", "$a", "$.", "$.a..b", "$[", "$[a]", "$['a", "$[?(@.a)]", "$.a[1:2]", "$.f()"]
        {
            assert!(Path::parse(text).is_err(), "{text}");
        }
        for text in ["$.a[*]", "$$.a", "$.*", "$[-1]"] {
            assert!(Path::parse(text).is_ok(), "{text}");
            assert!(Path::parse_reference(text).is_err(), "{text}");
        }
    }
}
