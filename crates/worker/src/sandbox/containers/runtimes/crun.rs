//! crun, in C: <https://github.com/containers/crun>.

use crate::sandbox::containers::OciRuntimeDefinition;

pub(super) struct Definition;

impl OciRuntimeDefinition for Definition {
    fn name(&self) -> &'static str {
        "crun"
    }

    fn installation(&self) -> &'static str {
        "Debian's and Fedora's package crun"
    }

    fn options(&self) -> &'static [&'static str] {
        // The instance has its own, which the container's processes are put into.
        &["--cgroup-manager=disabled"]
    }
}
