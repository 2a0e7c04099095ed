//! What makes two instances alike.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::instance::{InstanceSpec, Network, Runtime};

/// What something was made for that belongs to a function: with any of it changed, it is another function's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Terms {
    runtime: Runtime,
    arn: String,
    version: String,
    handler: String,
    pub(super) code: PathBuf,
    layers: Option<PathBuf>,
    mounts: Vec<(PathBuf, PathBuf)>,
    environment: BTreeMap<String, String>,
    memory_bytes: u64,
    pids_max: u64,
    ephemeral_bytes: u64,
    network: Network,
}

impl Terms {
    pub(super) fn of(spec: &InstanceSpec) -> Self {
        Self {
            runtime: spec.runtime,
            arn: spec.function_arn.clone(),
            version: spec.version.clone(),
            handler: spec.handler.clone(),
            code: spec.code.clone(),
            layers: spec.layers.clone(),
            mounts: spec.mounts.clone(),
            environment: spec.environment.clone(),
            memory_bytes: spec.memory_bytes,
            pids_max: spec.pids_max,
            ephemeral_bytes: spec.ephemeral_bytes,
            network: spec.network,
        }
    }
}
