//! Reads the keys of an object, and notices those that nobody has read.

use serde_json::{Map, Value};

use crate::error::DefinitionError;
use crate::path::Path;
use crate::template::Template;

/// An object of a definition, and where it stands.
pub(super) struct Reader<'a> {
    at: String,
    object: &'a Map<String, Value>,
    used: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(at: String, value: &'a Value) -> Result<Self, DefinitionError> {
        match value {
            Value::Object(object) => Ok(Self { at, object, used: Vec::new() }),
            _ => Err(DefinitionError::Invalid {
                key: "it".to_owned(),
                problem: "is no object".to_owned(),
                at,
            }),
        }
    }

    pub(super) fn at(&self) -> &str {
        &self.at
    }

    /// The object itself, whose keys are all read by somebody else.
    pub(super) fn whole(self) -> &'a Map<String, Value> {
        self.object
    }

    pub(super) fn take(&mut self, key: &str) -> Option<&'a Value> {
        let (key, value) = self.object.get_key_value(key)?;
        self.used.push(key);
        Some(value)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.object.contains_key(key)
    }

    /// Keys that say nothing to the interpreter.
    pub(super) fn ignore(&mut self, keys: &[&str]) {
        for key in keys {
            self.take(key);
        }
    }

    /// Takes the language of queries, of which there is one.
    pub(super) fn language(&mut self) -> Result<(), DefinitionError> {
        match self.take("QueryLanguage") {
            None => Ok(()),
            Some(language) if language == "JSONPath" => Ok(()),
            Some(_) => Err(self.invalid("QueryLanguage", "is not JSONPath")),
        }
    }

    /// Refuses the first key that nobody has read.
    pub(super) fn finish(self) -> Result<(), DefinitionError> {
        match self.object.keys().find(|key| !self.used.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(DefinitionError::Unsupported { at: self.at, key: key.clone() }),
        }
    }

    pub(super) fn missing(&self, key: &str) -> DefinitionError {
        DefinitionError::Missing { at: self.at.clone(), key: key.to_owned() }
    }

    pub(super) fn unsupported(&self, key: &str) -> DefinitionError {
        DefinitionError::Unsupported { at: self.at.clone(), key: key.to_owned() }
    }

    pub(super) fn invalid(&self, key: &str, problem: impl Into<String>) -> DefinitionError {
        DefinitionError::Invalid {
            at: self.at.clone(),
            key: key.to_owned(),
            problem: problem.into(),
        }
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<&'a str>, DefinitionError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.invalid(key, "is no text"))
    }

    pub(super) fn object(
        &mut self,
        key: &str,
    ) -> Result<Option<&'a Map<String, Value>>, DefinitionError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.as_object().map(Some).ok_or_else(|| self.invalid(key, "is no object"))
    }

    pub(super) fn array(&mut self, key: &str) -> Result<Option<&'a [Value]>, DefinitionError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let array = value.as_array().map(Vec::as_slice);
        array.map(Some).ok_or_else(|| self.invalid(key, "is no list"))
    }

    pub(super) fn flag(&mut self, key: &str) -> Result<Option<bool>, DefinitionError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.invalid(key, "is neither true nor false"))
    }

    pub(super) fn whole_number(&mut self, key: &str) -> Result<Option<u64>, DefinitionError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.as_u64().map(Some).ok_or_else(|| self.invalid(key, "is no whole number from 0"))
    }

    pub(super) fn number(&mut self, key: &str) -> Result<Option<f64>, DefinitionError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| self.invalid(key, "is no number"))
    }

    /// A path; null is none, and a key that is not there is `$`.
    pub(super) fn path(&mut self, key: &str) -> Result<Option<Path>, DefinitionError> {
        self.path_by(key, Path::parse)
    }

    /// A path that names one place; as [`Self::path`] else.
    pub(super) fn reference(&mut self, key: &str) -> Result<Option<Path>, DefinitionError> {
        self.path_by(key, Path::parse_reference)
    }

    fn path_by(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<Path, String>,
    ) -> Result<Option<Path>, DefinitionError> {
        let text = match self.take(key) {
            None => "$",
            Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text,
            Some(_) => return Err(self.invalid(key, "is neither a path nor null")),
        };
        parse(text).map(Some).map_err(|problem| self.invalid(key, problem))
    }

    /// A path that is there.
    pub(super) fn given_path(&mut self, key: &str) -> Result<Option<Path>, DefinitionError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        Path::parse(text).map(Some).map_err(|problem| self.invalid(key, problem))
    }

    pub(super) fn template(&mut self, key: &str) -> Result<Option<Template>, DefinitionError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let refused =
            |(inner, problem): (String, String)| self.invalid(&format!("{key}, {inner}"), problem);
        Template::parse(value).map(Some).map_err(refused)
    }
}
