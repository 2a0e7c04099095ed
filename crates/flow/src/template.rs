//! Parameters and selectors: data with paths in it, under keys that end in `.$`.

use serde_json::{Map, Value};

use crate::error::{Failure, names};
use crate::path::Path;
use crate::size::size;

/// Data in which some values come from paths.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Template {
    Value(Value),
    Path(Path),
    Object(Vec<(String, Self)>),
    Array(Vec<Self>),
}

impl Template {
    /// Parses data: of a key that ends in `.$` the value is a path.
    ///
    /// # Errors
    /// Which key is wrong, and why.
    pub(crate) fn parse(value: &Value) -> Result<Self, (String, String)> {
        match value {
            Value::Object(object) => {
                let mut entries = Vec::with_capacity(object.len());
                for (key, value) in object {
                    let entry = match key.strip_suffix(".$") {
                        None => (key.clone(), Self::parse(value)?),
                        Some(name) => {
                            let refused = |problem: String| (key.clone(), problem);
                            let text = value
                                .as_str()
                                .ok_or_else(|| refused("is no path: it is no text".to_owned()))?;
                            if text.starts_with("States.") {
                                return Err(refused(
                                    "is an intrinsic function, of which none is supported"
                                        .to_owned(),
                                ));
                            }
                            (name.to_owned(), Self::Path(Path::parse(text).map_err(refused)?))
                        }
                    };
                    if entries.iter().any(|(name, _)| *name == entry.0) {
                        return Err((key.clone(), "is there with and without .$".to_owned()));
                    }
                    entries.push(entry);
                }
                if entries.iter().all(|(_, entry)| matches!(entry, Self::Value(_))) {
                    return Ok(Self::Value(value.clone()));
                }
                Ok(Self::Object(entries))
            }
            Value::Array(array) => {
                let items = array.iter().map(Self::parse).collect::<Result<Vec<_>, _>>()?;
                if items.iter().all(|item| matches!(item, Self::Value(_))) {
                    return Ok(Self::Value(value.clone()));
                }
                Ok(Self::Array(items))
            }
            _ => Ok(Self::Value(value.clone())),
        }
    }

    /// The data, with what the paths find, of which there may be `limit` bytes of JSON: a template can
    /// name the whole input any number of times.
    ///
    /// # Errors
    /// A path finds nothing, or all of them too much.
    pub(crate) fn fill(
        &self,
        input: &Value,
        context: &Value,
        limit: usize,
    ) -> Result<Value, Failure> {
        let mut filling = Filling { input, context, limit, left: limit };
        filling.fill(self)
    }
}

/// A template that is being filled.
struct Filling<'a> {
    input: &'a Value,
    context: &'a Value,
    limit: usize,
    /// Bytes that may still be found.
    left: usize,
}

impl Filling<'_> {
    fn fill(&mut self, template: &Template) -> Result<Value, Failure> {
        match template {
            Template::Value(value) => Ok(value.clone()),
            Template::Path(path) => self.find(path),
            Template::Object(entries) => {
                let mut object = Map::new();
                for (name, entry) in entries {
                    object.insert(name.clone(), self.fill(entry)?);
                }
                Ok(Value::Object(object))
            }
            Template::Array(items) => {
                items.iter().map(|item| self.fill(item)).collect::<Result<_, _>>().map(Value::Array)
            }
        }
    }

    fn find(&mut self, path: &Path) -> Result<Value, Failure> {
        let found = path.find(self.input, self.context).ok_or_else(|| {
            let cause = format!("{} finds nothing in the input", path.text());
            Failure::new(names::PARAMETER_PATH, cause)
        })?;
        self.left = self.left.checked_sub(size(&found)).ok_or_else(|| {
            let limit = self.limit;
            let cause =
                format!("what the paths find has more bytes as JSON than the limit, {limit}");
            Failure::new(names::DATA_LIMIT, cause)
        })?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_filled_and_the_rest_stays() {
        let template = Template::parse(&json!({
            "a": 1, "b.$": "$.x", "c": {"d.$": "$$.k", "e": [{"f.$": "$"}, "$.x"]}
        }))
        .unwrap();
        let filled = template.fill(&json!({"x": [2]}), &json!({"k": 3}), 100).unwrap();
        let expected = json!({"a": 1, "b": [2], "c": {"d": 3, "e": [{"f": {"x": [2]}}, "$.x"]}});
        assert_eq!(filled, expected);
        let failure = template.fill(&json!({}), &json!({"k": 3}), 100).unwrap_err();
        assert_eq!(failure.error, names::PARAMETER_PATH);
    }

    #[test]
    fn what_the_paths_find_is_bounded_as_a_whole() {
        let template = Template::parse(&json!([{"a.$": "$"}, {"a.$": "$"}])).unwrap();
        assert!(template.fill(&json!("12345678"), &Value::Null, 20).is_ok());
        let failure = template.fill(&json!("12345678"), &Value::Null, 19).unwrap_err();
        assert_eq!(failure.error, names::DATA_LIMIT);
    }

    #[test]
    fn what_cannot_be_filled_is_refused_by_key() {
        for (value, key) in [
            (json!({"a.$": 1}), "a.$"),
            (json!({"a": {"b.$": "x"}}), "b.$"),
            (json!({"a.$": "States.UUID()"}), "a.$"),
            (json!({"a": 1, "a.$": "$"}), "a.$"),
        ] {
            assert_eq!(Template::parse(&value).unwrap_err().0, key);
        }
    }
}
