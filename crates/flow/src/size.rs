//! How large data is, and how deep.

use std::io;

use serde_json::Value;

/// Lists and objects within each other that data may have: as many as can be read from text.
pub(crate) const MAX_DEPTH: usize = 127;

/// Counts what is written.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes of a value as JSON without spaces.
pub(crate) fn size(value: &Value) -> usize {
    let mut count = Count(0);
    // Neither the value nor the counter fails.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Whether more than `most` lists and objects are within each other. What is too deep is not descended
/// into: whoever writes or drops it needs as much stack as it is deep.
pub(crate) fn is_deeper(value: &Value, most: usize) -> bool {
    let Some(below) = most.checked_sub(1) else { return value.is_array() || value.is_object() };
    match value {
        Value::Array(array) => array.iter().any(|value| is_deeper(value, below)),
        Value::Object(object) => object.values().any(|value| is_deeper(value, below)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sizes_are_those_of_the_text() {
        for value in [json!(null), json!({"a": [1, 2.5, "é\n"], "b": {}}), json!("x".repeat(1000))]
        {
            assert_eq!(size(&value), value.to_string().len());
        }
    }

    #[test]
    fn depth_is_that_of_what_can_be_read() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let value: Value = serde_json::from_str(&nested(MAX_DEPTH)).unwrap();
        assert!(!is_deeper(&value, MAX_DEPTH) && is_deeper(&value, MAX_DEPTH - 1));
        assert!(is_deeper(&json!({"a": value}), MAX_DEPTH));
        assert!(serde_json::from_str::<Value>(&nested(MAX_DEPTH + 1)).is_err());
        assert!(!is_deeper(&json!(1), 0) && is_deeper(&json!([]), 0));
    }
}
