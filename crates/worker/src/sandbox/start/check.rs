//! Whether what the platform asks for can be built.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::sandbox;
use crate::instance::{Architecture, InstanceSpec, Network, Services, StartError};
use crate::sandbox::cgroup::{CgroupError, PERIODS_US};

/// Checks it before anything is made for it.
pub(super) fn check(spec: &InstanceSpec, services: &Services) -> Result<(), StartError> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if spec.id.is_empty() || !spec.id.bytes().all(fine) {
        return Err(StartError::Sandbox(format!("{:?} is no name for an instance", spec.id)));
    }
    if !PERIODS_US.contains(&spec.period_us) {
        return Err(StartError::Sandbox(CgroupError::Period(spec.period_us).to_string()));
    }
    if let Some(refusal) = services.refusal(spec.reach) {
        return Err(StartError::Sandbox(refusal));
    }
    if spec.network == Network::Host && !spec.reach.is_empty() {
        let refusal = "a function on the host's network reaches every address: remove `reach`, or give \
                       it another network";
        return Err(StartError::Sandbox(refusal.into()));
    }
    check_container(spec)?;
    if spec.image.is_some() {
        return Ok(());
    }
    for folder in std::iter::once(&spec.code).chain(&spec.layers) {
        let readable = fs::metadata(folder)
            .is_ok_and(|it| it.is_dir() && it.permissions().mode() & 0o005 == 0o005);
        if !readable {
            let folder = folder.display();
            let message = format!("{folder} is no folder that everybody may read");
            return Err(StartError::Sandbox(message));
        }
    }
    Ok(())
}

/// Whether it can be a container, if it is to be one.
fn check_container(spec: &InstanceSpec) -> Result<(), StartError> {
    let Some(runtime) = spec.sandbox.runtime() else { return Ok(()) };
    if let Some(obstacle) = runtime.obstacle() {
        return Err(sandbox(obstacle));
    }
    let name = runtime.name();
    if spec.start_from.needs_polling() {
        return Err(sandbox(format!(
            "start_from must be fresh or prepared with sandbox set to {name}: what others start from is no \
             container"
        )));
    }
    if spec.extensions.is_empty() || spec.architecture != Architecture::Polling {
        return Ok(());
    }
    Err(sandbox(format!(
        "a container of {name} has one program, and the function's layers have extensions besides: set \
         sandbox to process"
    )))
}
