//! Node.js: the binary of the host.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{
    Client, RuntimeDefinition, any_of, ask_for, digits, is_read_at_start, major_minor, module,
};
use crate::instance::{InstanceSpec, ShareState};
use crate::sandbox::environment::BYTES_PER_MIB;
use crate::sandbox::rootfs::{LAYERS, RootError, RootSpec, TASK};

/// The client of the Runtime API.
const CLIENT: &str = include_str!("../../../runtime/bootstrap.js");

/// Its part that waits for an instance.
const WAIT: &str = include_str!("../../../runtime/wait.js");

/// Its part for what instances share.
const SHARE: &str = include_str!("../../../runtime/share.js");

/// Beginnings of the names of variables that Node, or a library in it, reads when it starts. Of those
/// with the first, all but `NODE_ENV`, which is between a function and its packages.
const READ_AT_START: [&str; 4] = ["NODE_", "UV_", "ICU_", "OPENSSL_"];

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

/// Of the memory of an instance, what V8 may use for its old space, in percent: as on Lambda. Without
/// a limit it would take the machine's memory for the function's, and be killed before it collects.
const V8_HEAP_PERCENT: u64 = 90;

#[derive(Deserialize)]
struct Interpreter {
    version: String,
    executable: PathBuf,
    files: Vec<PathBuf>,
}

pub(super) struct Definition;

impl RuntimeDefinition for Definition {
    fn name(&self) -> &'static str {
        "node"
    }

    fn identifiers(&self) -> &'static str {
        "nodejsN.x"
    }

    fn identifier(&self) -> &'static str {
        "nodejs20.x"
    }

    fn serves(&self, identifier: &str) -> bool {
        let version = identifier.strip_prefix("nodejs").and_then(|rest| rest.strip_suffix(".x"));
        version.is_some_and(digits)
    }

    fn requirement(&self) -> Option<&'static str> {
        Some("Node.js (node)")
    }

    fn root(&self, interpreter: Option<&Path>) -> Result<Option<RootSpec>, RootError> {
        let program = interpreter.unwrap_or(Path::new("node"));
        let asked = ask_for::<Interpreter>(program, &["-e", QUESTION])?;
        let Some(interpreter) = asked else { return Ok(None) };
        let binary = PathBuf::from("var/lang/bin/node");
        let mut copies = vec![(interpreter.executable.clone(), binary.clone())];
        for file in interpreter.files {
            if let Ok(to) = file.strip_prefix("/") {
                copies.push((file.clone(), to.to_owned()));
            }
        }
        Ok(Some(RootSpec {
            version: interpreter.version,
            interpreter: Some(interpreter.executable),
            copies,
            files: vec![("bootstrap.js", CLIENT), ("wait.js", WAIT), ("share.js", SHARE)],
            command: vec![Path::new("/").join(binary).display().to_string()],
            ..RootSpec::default()
        }))
    }

    fn arguments(&self, spec: &InstanceSpec) -> Vec<String> {
        let mut arguments = heap_limit(spec);
        arguments.push("/var/runtime/bootstrap.js".into());
        arguments
    }

    fn serves_http(&self) -> bool {
        true
    }

    fn is_server(&self, handler: &str) -> bool {
        [".js", ".mjs", ".cjs"].iter().any(|ending| handler.ends_with(ending))
    }

    fn server(&self, command: &[String], spec: &InstanceSpec) -> Vec<String> {
        [command, &heap_limit(spec), &[format!("{TASK}/{}", spec.handler)]].concat()
    }

    fn library_paths(&self, version: &str) -> Option<(&'static str, String)> {
        let modules = format!("{LAYERS}/nodejs/node{}/node_modules", major_minor(version).0);
        Some(("NODE_PATH", format!("{modules}:{LAYERS}/nodejs/node_modules")))
    }

    fn shared_file(&self, share_state: ShareState) -> Option<&'static str> {
        (share_state == ShareState::Code).then_some("code.bin")
    }

    fn waiting_bytes(&self) -> Option<u64> {
        Some(48 * BYTES_PER_MIB)
    }

    fn reads_at_start(&self, variable: &str) -> bool {
        variable != "NODE_ENV" && is_read_at_start(variable, &READ_AT_START)
    }

    fn client(&self) -> Option<Client> {
        Some(Client { interpreter: &["node"], file: ("bootstrap.js", CLIENT) })
    }

    fn execution_environment(&self, version: &str) -> String {
        format!("AWS_Lambda_nodejs{}.x", major_minor(version).0)
    }

    fn check_package(
        &self,
        has: &dyn Fn(&str) -> bool,
        _identifier: &str,
        handler: &str,
    ) -> Result<(), String> {
        let path = module(handler);
        any_of(&[".js", ".mjs", ".cjs"].map(|ending| format!("{path}{ending}")), has, handler)
    }
}

/// Has V8 collect before the instance runs out of memory, unless the function says when.
fn heap_limit(spec: &InstanceSpec) -> Vec<String> {
    let options = spec.environment.get("NODE_OPTIONS").map_or("", String::as_str);
    if options.contains("max-old-space-size") || options.contains("max_old_space_size") {
        return Vec::new();
    }
    let heap = spec.memory_bytes / BYTES_PER_MIB * V8_HEAP_PERCENT / 100;
    vec![format!("--max-old-space-size={heap}")]
}
