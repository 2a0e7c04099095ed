//! The Node.js on the host.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Found, RootError, ask};

/// The client of the Runtime API.
const CLIENT: &str = include_str!("../../../runtime/bootstrap.js");

/// Distributions may keep some of Node's own modules as files, whose places are in its configuration.
const QUESTION: &str = "\
const fs = require('fs');
const files = new Set();
(function walk(value) {
  if (typeof value === 'string' && /^\\/.*\\.(js|mjs|wasm)$/.test(value) && fs.existsSync(value)) {
    files.add(value);
  } else if (value && typeof value === 'object') {
    Object.values(value).forEach(walk);
  }
})(process.config.variables);
console.log(JSON.stringify({
  version: process.versions.node,
  executable: fs.realpathSync(process.execPath),
  files: [...files],
}));";

#[derive(Deserialize)]
struct Answer {
    version: String,
    executable: PathBuf,
    files: Vec<PathBuf>,
}

pub fn find(interpreter: Option<&Path>) -> Result<Option<Found>, RootError> {
    let program = interpreter.unwrap_or(Path::new("node"));
    let Some(output) = ask(program, &["-e", QUESTION])? else { return Ok(None) };
    let answer: Answer = serde_json::from_slice(&output)
        .map_err(|error| RootError::Ask(program.to_owned(), error.to_string()))?;
    let binary = PathBuf::from("var/lang/bin/node");
    let mut copies = vec![(answer.executable.clone(), binary.clone())];
    for file in answer.files {
        if let Ok(to) = file.strip_prefix("/") {
            copies.push((file.clone(), to.to_owned()));
        }
    }
    Ok(Some(Found {
        name: "node",
        version: answer.version,
        interpreter: Some(answer.executable),
        copies,
        links: Vec::new(),
        client: Some(("bootstrap.js", CLIENT)),
        finish: |_, _| Ok(()),
        command: vec![Path::new("/").join(binary).display().to_string()],
    }))
}
