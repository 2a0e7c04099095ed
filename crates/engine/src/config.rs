//! Configurations: JSON in a file or on standard input.

use std::io::Read;
use std::path::Path;

use serde::de::DeserializeOwned;

/// The text of a file, or of standard input (`-`).
///
/// # Errors
/// A sentence: it cannot be read.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|error| format!("cannot read the configuration {}: {error}", path.display()))
}

/// A configuration: JSON in a file, or on standard input (`-`).
///
/// # Errors
/// A sentence: it cannot be read, or is none of this kind.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    serde_json::from_str(&read(path)?)
        .map_err(|error| format!("the configuration is wrong: {error}"))
}
