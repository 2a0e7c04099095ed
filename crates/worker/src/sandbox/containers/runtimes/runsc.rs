//! runsc, of gVisor, which is a kernel in user space: <https://gvisor.dev/docs/user_guide/quick_start/oci/>.

use crate::sandbox::containers::OciRuntimeDefinition;

pub(super) struct Definition;

impl OciRuntimeDefinition for Definition {
    fn name(&self) -> &'static str {
        "runsc"
    }

    fn installation(&self) -> &'static str {
        "gVisor's packages, see https://gvisor.dev/docs/user_guide/install"
    }

    fn options(&self) -> &'static [&'static str] {
        // The network is that of the instance's first process, and not one of gVisor's own: the Runtime API listens
        // there. The instance has its own control groups.
        &["--network=host", "--ignore-cgroups"]
    }
}
