//! runsc, of gVisor, which is a kernel in user space: <https://gvisor.dev/docs/user_guide/quick_start/oci/>.

use crate::sandbox::containers::OciRuntimeDefinition;

pub(super) struct Definition;

impl OciRuntimeDefinition for Definition {
    fn name(&self) -> &'static str {
        "runsc"
    }

    fn installation(&self) -> &'static str {
        "gVisor's packages, see https://gvisor.dev/docs/user_guide/install, or CGO_ENABLED=0 go install \
         gvisor.dev/gvisor/runsc@latest"
    }

    fn options(&self) -> &'static [&'static str] {
        // The network is that of the instance's first process, and not one of gVisor's own: the Runtime API listens
        // there. The instance has its own control groups. Filters of system calls hold only if it is told so, which it
        // is not (--oci-seccomp): what is refused would fail with EPERM, where glibc makes threads in another way only
        // after ENOSYS. Functions call its kernel, and never the host's.
        &["--network=host", "--ignore-cgroups"]
    }
}
