//! The deployment package brings its own executable, `bootstrap`, which speaks the Runtime API.

use std::path::Path;

use super::RuntimeDefinition;
use crate::sandbox::rootfs::{RootError, RootSpec, TASK};

pub(super) struct Definition;

impl RuntimeDefinition for Definition {
    fn name(&self) -> &'static str {
        "provided"
    }

    fn identifiers(&self) -> &'static str {
        "provided.al2023"
    }

    fn identifier(&self) -> &'static str {
        "provided.al2023"
    }

    fn serves(&self, identifier: &str) -> bool {
        matches!(identifier, "provided" | "provided.al2" | "provided.al2023")
    }

    fn requirement(&self) -> Option<&'static str> {
        None
    }

    fn root(&self, _interpreter: Option<&Path>) -> Result<Option<RootSpec>, RootError> {
        Ok(Some(RootSpec {
            version: "provided".into(),
            command: vec![format!("{TASK}/bootstrap")],
            ..RootSpec::default()
        }))
    }

    fn execution_environment(&self, _version: &str) -> String {
        "AWS_Lambda_provided".into()
    }

    fn check_package(
        &self,
        has: &dyn Fn(&str) -> bool,
        identifier: &str,
        _handler: &str,
    ) -> Result<(), String> {
        if has("bootstrap") {
            return Ok(());
        }
        Err(format!(
            "The package holds no executable file \"bootstrap\" at its root, which the runtime \
             {identifier} starts"
        ))
    }

    fn place_in_layers(&self, path: &str) -> Option<String> {
        Some(path.to_owned())
    }

    fn can_be_restored(&self) -> bool {
        true
    }

    fn serves_http(&self) -> bool {
        true
    }

    fn starts_functions_program(&self) -> bool {
        true
    }
}
