//! An OCI bundle: what an instance is, as its first process would build it, in the words of the specification.
//!
//! Source: <https://github.com/opencontainers/runtime-spec/blob/main/config.md> and `config-linux.md`, version 1.0.2.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::sandbox::init::{self, seccomp};
use crate::sandbox::rootfs::{ETC_PASSWD, LAYERS, TASK};
use crate::sandbox::wire::{Container, InitConfig};

const VERSION: &str = "1.0.2";

const CONFIG: &str = "config.json";
/// The user's line of `/etc/passwd`.
const USER: &str = "passwd";

/// Variables may be secrets.
const PRIVATE_FOLDER: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Functions read it.
const READABLE_FILE: u32 = 0o644;

/// What every mount has that a function could use to more than it may.
const RESTRICTED: [&str; 2] = ["nosuid", "nodev"];

/// The control group, in every tree, of a runtime that makes one: below those of the worker of this name.
pub(super) fn group_path(name: &str, id: &str) -> PathBuf {
    Path::new(name).join(format!("oci-{id}"))
}

/// Writes a container's bundle, into a folder that is not there yet. `name`: the worker's.
pub(super) fn write(config: &InitConfig, container: &Container, name: &str) -> io::Result<()> {
    let folder = &container.folder;
    DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(container.state())?;
    DirBuilder::new().mode(PRIVATE_FOLDER).create(container.temporary())?;
    let create = |file: &str, mode: u32, text: &[u8]| {
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).open(folder.join(file))?;
        // Of the file that is open, so that the umask does not matter.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(text)
    };
    create(USER, READABLE_FILE, init::user_line(config).as_bytes())?;
    create(CONFIG, PRIVATE_FILE, &serde_json::to_vec(&document(config, container, name))?)
}

fn document(config: &InitConfig, container: &Container, name: &str) -> Value {
    let runtime = config.runtime();
    let environment = runtime.environment.iter().map(|(name, value)| format!("{name}={value}"));
    let none: [&str; 0] = [];
    let mut document = json!({
        "ociVersion": VERSION,
        "root": {"path": config.root, "readonly": config.image.is_none()},
        "hostname": config.hostname,
        "process": {
            "terminal": false,
            "user": {"uid": config.uid, "gid": config.gid},
            "args": runtime.arguments,
            "env": environment.collect::<Vec<_>>(),
            "cwd": config.working_directory,
            "noNewPrivileges": true,
            "oomScoreAdj": init::OUT_OF_MEMORY.1.parse::<i32>().ok(),
            "capabilities": {
                "bounding": none, "effective": none, "inheritable": none, "permitted": none, "ambient": none,
            },
            "rlimits": limits(config),
        },
        "mounts": mounts(config, container),
        "linux": {
            // The network is that of the process that makes the container.
            "namespaces": (["pid", "mount", "ipc", "uts", "cgroup"].map(|kind| json!({"type": kind}))),
            "cgroupsPath": Path::new("/").join(group_path(name, &container.id)),
        },
    });
    if config.filter {
        document["linux"]["seccomp"] = seccomp::profile();
    }
    document
}

fn limits(config: &InitConfig) -> Value {
    let limit = |name: &str, value: u64| json!({"type": name, "soft": value, "hard": value});
    let mut limits = vec![
        limit("RLIMIT_NOFILE", init::OPEN_FILES),
        limit("RLIMIT_CORE", 0),
        limit("RLIMIT_RTPRIO", 0),
        limit("RLIMIT_NICE", 0),
    ];
    limits.extend(config.max_processes.map(|most| limit("RLIMIT_NPROC", most)));
    limits.into()
}

fn mounts(config: &InitConfig, container: &Container) -> Vec<Value> {
    let mount = |kind: &str, from: &Path, to: &Path, options: &[&str]| {
        let options: Vec<_> = RESTRICTED.iter().chain(options).copied().collect();
        json!({"type": kind, "source": from, "destination": to, "options": options})
    };
    let bind = |from: &Path, to: &Path, options: &[&str]| mount("bind", from, to, options);
    let dev = format!("size={}", init::DEV_BYTES);
    let mut mounts = vec![
        mount("proc", Path::new("proc"), Path::new("/proc"), &["noexec", "hidepid=2"]),
        json!({
            "type": "tmpfs", "source": "tmpfs", "destination": "/dev",
            "options": ["nosuid", "noexec", "mode=755", dev],
        }),
    ];
    if config.image.is_none() {
        let user = container.folder.join(USER);
        mounts.push(bind(&user, Path::new(ETC_PASSWD), &["bind", "ro", "noexec"]));
        mounts.push(bind(&config.code, Path::new(TASK), &["bind", "ro"]));
    }
    // The first process mounts it: some runtimes give what they mount there the rights of the folder below.
    let temporary = config.image.as_ref().map_or_else(|| container.temporary(), init::temporary);
    mounts.push(bind(&temporary, Path::new("/tmp"), &["bind"]));
    let layers =
        config.layers.iter().map(|layers| bind(layers, Path::new(LAYERS), &["bind", "ro"]));
    mounts.extend(layers);
    let others = config.mounts.iter();
    mounts.extend(others.map(|(from, to)| bind(from, to, &["bind", "ro", "noexec"])));
    mounts
}
