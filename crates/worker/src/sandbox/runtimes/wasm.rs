//! Functions as WebAssembly components that answer HTTP requests: code for a host that runs it, not a
//! program. The host is `uncia-wasm`, in a crate of its own.

use std::env;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use uncia_code::{COMPONENT, HEADER_BYTES, check_header};

use super::{COMPONENTS, RuntimeDefinition, find};
use crate::instance::InstanceSpec;
use crate::sandbox::rootfs::{RootError, RootSpec, ask};

const PROGRAM: &str = "uncia-wasm";

pub(super) struct Definition;

impl RuntimeDefinition for Definition {
    fn name(&self) -> &'static str {
        "wasm"
    }

    fn identifiers(&self) -> &'static str {
        "wasm"
    }

    fn identifier(&self) -> &'static str {
        "wasm"
    }

    fn serves(&self, identifier: &str) -> bool {
        identifier == "wasm"
    }

    fn requirement(&self) -> Option<&'static str> {
        Some("WebAssembly host (uncia-wasm)")
    }

    fn remedy(&self) -> &'static str {
        "build it with \"make wasm\" in a checkout of Uncia"
    }

    fn root(&self, interpreter: Option<&Path>) -> Result<Option<RootSpec>, RootError> {
        let program = interpreter.map_or_else(beside_this, Path::to_owned);
        let Some(program) = find(&program) else { return Ok(None) };
        // With what decides whether machine code can be run.
        let Some(output) = ask(&program, &["code-version"])? else { return Ok(None) };
        let version = String::from_utf8_lossy(&output).trim().to_owned();
        let odd = |it: char| it == '/' || it.is_whitespace();
        if version.is_empty() || version.contains(odd) {
            return Err(RootError::Ask(program, "it is another program".into()));
        }
        Ok(Some(RootSpec {
            version,
            interpreter: Some(program.clone()),
            copies: vec![(program, "var/lang/bin/uncia-wasm".into())],
            command: vec!["/var/lang/bin/uncia-wasm".into(), "serve".into(), COMPONENTS.into()],
            ..RootSpec::default()
        }))
    }

    fn is_built_on_demand(&self) -> bool {
        true
    }

    fn is_code(&self) -> bool {
        true
    }

    fn server(&self, command: &[String], _spec: &InstanceSpec) -> Vec<String> {
        command.to_vec()
    }

    fn execution_environment(&self, _version: &str) -> String {
        "Uncia_wasm".into()
    }

    fn check_package(
        &self,
        has: &dyn Fn(&str) -> bool,
        _identifier: &str,
        _handler: &str,
    ) -> Result<(), String> {
        if has(COMPONENT) {
            return Ok(());
        }
        Err(format!("The package holds no component \"{COMPONENT}\" at the root of the zip file"))
    }

    fn check_files(&self, code: &Path) -> Result<(), String> {
        let mut beginning = Vec::new();
        let read = File::open(code.join(COMPONENT))
            .and_then(|file| file.take(HEADER_BYTES as u64).read_to_end(&mut beginning));
        read.map_err(|error| format!("{COMPONENT} of the package cannot be read: {error}"))?;
        check_header(&beginning)
            .map_err(|failure| format!("{COMPONENT} of the package cannot be run: {failure}"))
    }
}

/// The program in the folder of this one, or else the one on the PATH.
fn beside_this() -> PathBuf {
    let program = env::current_exe().ok().and_then(|path| Some(path.parent()?.join(PROGRAM)));
    program.filter(|path| path.is_file()).unwrap_or_else(|| PROGRAM.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn packages_hold_what_begins_as_a_component() {
        let folder = tempfile::tempdir().unwrap();
        let check = || Definition.check_files(folder.path());
        assert!(check().unwrap_err().contains("cannot be read"));
        fs::write(folder.path().join(COMPONENT), b"\0asm\x01\0\0\0").unwrap();
        assert!(check().unwrap_err().contains("core module"));
        fs::write(folder.path().join(COMPONENT), b"\0asm\x0d\0\x01\0and more").unwrap();
        check().unwrap();
    }
}
