//! Functions in Bash: the handler `module.function` is a shell function in `module.sh`. It gets the
//! event as its argument, and what it prints is the answer.

use std::path::Path;

use super::{RuntimeDefinition, any_of, module};
use crate::sandbox::rootfs::{RootError, RootSpec, ask};

/// The client of the Runtime API, in nothing but Bash: a root has no other programs.
const CLIENT: &str = r#"
LC_ALL=C  # lengths in bytes
exec 3<>"/dev/tcp/${AWS_LAMBDA_RUNTIME_API%:*}/${AWS_LAMBDA_RUNTIME_API#*:}" || exit

# Sends a request: method, path, body. Leaves the response in `body`, and its request id in `id`.
exchange() {
  printf '%s /2018-06-01/runtime/%s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s' \
    "$1" "$2" "$AWS_LAMBDA_RUNTIME_API" "${#3}" "$3" >&3
  local line length=0
  id='' body=''
  while IFS= read -r line <&3 && [[ $line != $'\r' ]]; do
    line=${line%$'\r'}
    case ${line,,} in
      content-length:*) length=${line#*: } ;;
      lambda-runtime-aws-request-id:*) id=${line#*: } ;;
    esac
  done
  ((length == 0)) || IFS= read -r -N "$length" body <&3
}

module=${_HANDLER%.*}.sh function=${_HANDLER##*.}
if ! source "./$module" || ! declare -F "$function" >/dev/null; then
  exchange POST init/error '{"errorType": "Runtime.HandlerNotFound", "errorMessage": "'"$module defines no function $function"'"}'
  exit 1
fi
while exchange GET invocation/next '' && [[ $id ]]; do
  request=$id
  if answer=$("$function" "$body" 3>&-); then
    exchange POST "invocation/$request/response" "$answer"
  else
    exchange POST "invocation/$request/error" '{"errorType": "Runtime.ExitStatus", "errorMessage": "'"$function returned $?"'"}'
  fi
done
"#;

pub(super) struct Definition;

impl RuntimeDefinition for Definition {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn identifiers(&self) -> &'static str {
        "bash"
    }

    fn identifier(&self) -> &'static str {
        "bash"
    }

    fn serves(&self, identifier: &str) -> bool {
        identifier == "bash"
    }

    fn requirement(&self) -> Option<&'static str> {
        Some("Bash (bash)")
    }

    fn root(&self, interpreter: Option<&Path>) -> Result<Option<RootSpec>, RootError> {
        let program = interpreter.unwrap_or(Path::new("bash"));
        let question = "printf '%s\n%s' \"${BASH_VERSION%%(*}\" \"$BASH\"";
        let Some(output) = ask(program, &["-c", question])? else { return Ok(None) };
        let text = String::from_utf8_lossy(&output);
        let (version, path) = text.split_once('\n').unwrap_or_default();
        if version.is_empty() || !path.starts_with('/') {
            return Err(RootError::Ask(program.to_owned(), "it is no Bash".into()));
        }
        Ok(Some(RootSpec {
            version: version.into(),
            interpreter: Some(path.into()),
            copies: vec![(path.into(), "var/lang/bin/bash".into())],
            files: vec![("bootstrap.sh", CLIENT)],
            command: vec!["/var/lang/bin/bash".into(), "/var/runtime/bootstrap.sh".into()],
            ..RootSpec::default()
        }))
    }

    fn execution_environment(&self, _version: &str) -> String {
        "Uncia_bash".into()
    }

    fn check_package(
        &self,
        has: &dyn Fn(&str) -> bool,
        _identifier: &str,
        handler: &str,
    ) -> Result<(), String> {
        any_of(&[format!("{}.sh", module(handler))], has, handler)
    }
}
