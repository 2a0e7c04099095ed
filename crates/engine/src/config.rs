//! Configurations: JSON in a file or on standard input.

use std::io::Read;
use std::path::Path;

/// The text of a file, or of standard input (`-`).
///
/// # Errors
/// A sentence: it cannot be read.
pub fn read(path: &Path) -> Result<String, String> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|error| format!("cannot read the configuration {}: {error}", path.display()))
}
