//! What the first process of an instance builds, and what it runs in it.

use std::fs;
use std::path::PathBuf;

use crate::instance::{Architecture, InstanceSpec, Network, Sandbox};
use crate::sandbox::cgroup::{Controller, Group};
use crate::sandbox::environment;
use crate::sandbox::host::Host;
use crate::sandbox::rootfs::{GROUP_ID, LAYERS, Root, TASK};
use crate::sandbox::runtimes::WRAPPER;
use crate::sandbox::sweep;
use crate::sandbox::wire::InitConfig;

/// `/tmp` takes at most this part of the memory, because what is in it counts as the function's
/// memory: a full `/tmp` must be an error that the function sees, not the end of it.
const TMP_NUMERATOR: u64 = 3;
const TMP_DENOMINATOR: u64 = 4;

impl Host {
    pub(in crate::sandbox) fn config(
        &self,
        spec: &InstanceSpec,
        root: &Root,
        group: Option<&Group>,
        api: &str,
        user: u32,
    ) -> InitConfig {
        let own_network = spec.network != Network::Host;
        let definition = spec.runtime.definition();
        let image = spec.image.as_deref();
        let mut arguments = match (image, spec.architecture) {
            (Some(image), _) => image.command.clone(),
            (None, Architecture::Polling | Architecture::Code) => {
                [root.command.clone(), definition.arguments(spec)].concat()
            }
            (None, Architecture::Http) => definition.server(&root.command, spec),
        };
        if image.is_some() {
            // It says itself what is started.
        } else if definition.starts_functions_program() {
            arguments[0] = own_program(spec, &arguments[0]);
        } else if let Some(wrapper) = wrapper(spec) {
            arguments.insert(0, wrapper.to_owned());
        }
        let program = PathBuf::from(&arguments[0]);
        let mut mounts = spec.mounts.clone();
        if !own_network {
            for file in ["/etc/resolv.conf", "/etc/hosts"] {
                if let Ok(path) = fs::canonicalize(file) {
                    mounts.push((path, PathBuf::from(file)));
                }
            }
        }
        let mut join = group.map(Group::join_files).unwrap_or_default();
        if spec.sandbox != Sandbox::Process {
            // Processes are put there from outside, whole, with threads that they may have by then.
            for file in &mut join {
                file.set_file_name("cgroup.procs");
            }
        }
        let most = spec.memory_bytes / TMP_DENOMINATOR * TMP_NUMERATOR;
        InitConfig {
            waits: false,
            label: sweep::label(&self.name, &spec.id),
            hostname: "localhost".into(),
            root: image.map_or(&root.path, |_| &self.image_roots.root).clone(),
            image: image.map(|image| self.image_roots.mounts(image)),
            code: spec.code.clone(),
            working_directory: image
                .map_or_else(|| PathBuf::from(TASK), |image| image.working_directory.clone()),
            layers: spec.layers.clone(),
            tmp_bytes: spec.ephemeral_bytes.min(most),
            uid: user,
            gid: GROUP_ID,
            user_namespace: !self.capabilities.root,
            filter: self.capabilities.seccomp,
            max_processes: self.max_processes(spec),
            mounts,
            join,
            begin_in: group.and_then(Group::folder_to_begin_in),
            thaw: group.and_then(Group::thaw_file),
            program,
            arguments,
            environment: environment::build(spec, &root.version, api, self.services.located())
                .into_iter()
                .collect(),
            extensions: environment::extensions(spec),
            restore: None,
            restorable: spec.restorable,
            container: None,
        }
    }

    /// The limit of processes where no control group holds it.
    fn max_processes(&self, spec: &InstanceSpec) -> Option<u64> {
        let grouped = self.layout.as_ref().is_some_and(|it| it.has(Controller::Pids));
        (!grouped && self.capabilities.enforced.pids).then_some(spec.pids_max)
    }
}

/// What is started in place of the runtime.
pub(in crate::sandbox) fn wrapper(spec: &InstanceSpec) -> Option<&str> {
    let wrapper = spec.environment.get(WRAPPER).filter(|path| !path.is_empty());
    wrapper.filter(|_| spec.architecture == Architecture::Polling).map(String::as_str)
}

/// The function's own program, which its package has at this path, or its layers.
fn own_program(spec: &InstanceSpec, path: &str) -> String {
    let name = path.strip_prefix(TASK).map(|name| name.trim_start_matches('/'));
    let in_layers = name.filter(|name| {
        let layers = spec.layers.as_ref();
        !spec.code.join(name).exists() && layers.is_some_and(|it| it.join(name).exists())
    });
    in_layers.map_or_else(|| path.to_owned(), |name| format!("{LAYERS}/{name}"))
}
