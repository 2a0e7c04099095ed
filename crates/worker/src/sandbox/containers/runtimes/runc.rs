//! runc, in Go: <https://github.com/opencontainers/runc>.

use crate::sandbox::containers::OciRuntimeDefinition;

pub(super) struct Definition;

impl OciRuntimeDefinition for Definition {
    fn name(&self) -> &'static str {
        "runc"
    }

    fn installation(&self) -> &'static str {
        "Debian's and Fedora's package runc"
    }

    fn makes_groups(&self) -> bool {
        true
    }
}
