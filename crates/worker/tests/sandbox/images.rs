//! Functions that bring their own root: the host's Python with a layer or two above it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::Trial;
use nix::sys::stat::{Mode, SFlag, mknod};
use serde_json::json;
use tempfile::TempDir;
use uncia_worker::instance::{Architecture, ImageSpec, Sandbox, StartError, StartFrom};

use crate::fixture::{Function, MIB, Needs, host, mounts, sandbox, state, test};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("an_image_is_the_root", Needs::Sandbox, root),
        test("what_an_instance_writes_is_its_own_and_bounded", Needs::Sandbox, writes),
        test("layers_hide_and_replace_what_is_below", Needs::Users, layers),
        test("links_in_an_image_lead_nowhere_else", Needs::Users, links),
        test("an_image_without_its_program", Needs::Sandbox, no_program),
        test("an_image_that_is_gone", Needs::Sandbox, gone),
    ]
}

/// The root of the host's Python, which the host has built by now.
fn python() -> (PathBuf, String) {
    let _ = host();
    let runtimes = fs::read_dir(state().join("runtimes")).expect("the roots");
    let root = runtimes
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.file_name().is_some_and(|it| it.to_string_lossy().starts_with("python-")))
        .expect("Python's root")
        .join("root");
    let programs = fs::read_dir(root.join("var/lang/bin")).expect("its programs");
    let names: BTreeSet<_> = programs
        .map(|it| it.expect("a program").file_name().into_string().expect("text"))
        .collect();
    let name = names.into_iter().find(|it| it.starts_with("python3.")).expect("the interpreter");
    (root, name)
}

struct Layer(TempDir);

impl Layer {
    /// A layer that everybody may read, and of the group of functions where there is one.
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open).expect("a folder for all");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// A function whose handler is `code`, in an image of the host's Python and these layers, the lowest first.
fn function(code: &str, layers: &[&Layer]) -> (Function, Layer) {
    let own = Layer::new(&[("var/task/main.py", code)]);
    let (root, interpreter) = python();
    let mut folders = vec![root];
    folders.extend(layers.iter().map(|layer| layer.path().to_owned()));
    folders.push(own.path().to_owned());
    // Found on the PATH.
    let command =
        [&interpreter, "-S", "-u", "/var/runtime/bootstrap.pyc"].map(str::to_owned).into();
    let image = ImageSpec {
        layers: folders,
        command,
        working_directory: "/var/task".into(),
        environment: vec![("PATH".into(), "/nowhere:/var/lang/bin".into())],
    };
    let function = Function::new("provided", &[], "main.handler").with(|spec| {
        spec.code = PathBuf::new();
        spec.image = Some(Arc::new(image));
    });
    (function, own)
}

pub(crate) async fn root() {
    let code = "
import os, pwd, shutil
def handler(event, context):
    return {
        'files': sorted(os.listdir('/')), 'name': pwd.getpwuid(os.getuid()).pw_name, 'root': pwd.getpwnam('root').pw_dir,
        'folder': os.getcwd(), 'devices': sorted(os.listdir('/dev')), 'hosts': open('/etc/hosts').read(),
        'mode': oct(os.stat('/tmp').st_mode), 'event': event,
    }
";
    let users = Layer::new(&[("etc/passwd", "root:x:0:0::/root:/bin/sh"), ("etc/hosts", "wrong")]);
    let before = mounts();
    for start_from in [StartFrom::Fresh, StartFrom::Prepared] {
        let (function, _own) = function(code, &[&users, &users]);
        let function = function.with(|spec| spec.start_from = start_from);
        let seen = function.once("3").await;
        assert_eq!(seen["event"], 3);
        assert_eq!((&seen["name"], &seen["root"]), (&json!("sbx_user1051"), &json!("/root")));
        assert_eq!((&seen["folder"], &seen["mode"]), (&json!("/var/task"), &json!("0o41777")));
        assert!(seen["hosts"].as_str().unwrap().starts_with("127.0.0.1"), "{seen}");
        let has = |key: &str, name: &str| seen[key].as_array().unwrap().contains(&json!(name));
        assert!(
            has("devices", "urandom") && has("files", "opt") && !has("files", "upper"),
            "{seen}"
        );
    }
    assert_eq!(mounts(), before);
    assert_eq!(fs::read_dir(state().join("mounts/scratch")).unwrap().count(), 0);
}

async fn writes() {
    let code = "
import errno, os
def fill(path):
    try:
        with open(path, 'wb') as file:
            for _ in range(64):
                file.write(bytes(1 << 20))
    except OSError as error:
        return errno.errorcode[error.errno]
    finally:
        os.unlink(path)
def handler(event, context):
    before = [os.path.exists(path) for path in ('/new', '/etc/new', '/var/task/folder')]
    filled = [fill('/tmp/large'), fill('/var/task/large')]
    for path in ('/new', '/etc/new'):
        open(path, 'w').close()
    os.mkdir('/var/task/folder')
    with open('/var/task/main.py', 'a') as file:
        file.write('changed')
    return [before, filled, open('/var/task/main.py').read()[-7:]]
";
    let (function, own) = function(code, &[]);
    if nix::unistd::geteuid().is_root() {
        give(own.path());
    }
    let function = function.with(|spec| spec.ephemeral_bytes = 32 * MIB);
    for _ in 0..2 {
        let nothing = json!([false, false, false]);
        let seen = function.once("0").await;
        assert_eq!(seen, json!([nothing, ["ENOSPC", "ENOSPC"], "changed"]));
    }
    let text = fs::read_to_string(own.path().join("var/task/main.py")).unwrap();
    assert_eq!(text, code);
    assert!(!own.path().join("var/task/folder").exists());
}

/// Makes files what they are in a layer that was unpacked.
fn give(path: &Path) {
    std::os::unix::fs::chown(path, None, Some(990)).unwrap();
    let mode = fs::metadata(path).unwrap().permissions().mode() & 0o700;
    fs::set_permissions(path, fs::Permissions::from_mode(mode | mode >> 3 | 0o5)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path());
        }
    }
}

async fn layers() {
    let code = "
import os
def handler(event, context):
    return [open('/a/x').read(), sorted(os.listdir('/a')), sorted(os.listdir('/b'))]
";
    let low = Layer::new(&[("a/x", "low"), ("a/y", ""), ("a/gone", ""), ("b/hidden", "")]);
    let high = Layer::new(&[("a/x", "high"), ("b/seen", "")]);
    mknod(&high.path().join("a/gone"), SFlag::S_IFCHR, Mode::empty(), 0).unwrap();
    rustix::fs::setxattr(
        high.path().join("b"),
        "trusted.overlay.opaque",
        b"y",
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    let (function, _own) = function(code, &[&low, &high]);
    assert_eq!(function.once("0").await, json!(["high", ["x", "y"], ["seen"]]));
}

async fn links() {
    let code = "
import os
def handler(event, context):
    return [open('/etc/passwd').read(), os.listdir('/tmp'), os.path.islink('/dev'), os.path.islink('/proc')]
";
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("passwd"), "secret").unwrap();
    let hostile = Layer::new(&[]);
    for name in ["dev", "proc", "tmp", "opt"] {
        symlink(secret.path(), hostile.path().join(name)).unwrap();
    }
    fs::create_dir(hostile.path().join("etc")).unwrap();
    symlink(secret.path().join("passwd"), hostile.path().join("etc/passwd")).unwrap();
    symlink("../../../../../../etc/hostname", hostile.path().join("etc/hosts")).unwrap();
    let (function, _own) = function(code, &[&hostile]);
    let seen = function.once("0").await;
    let users = seen[0].as_str().unwrap();
    assert!(users.starts_with("sbx_user1051:") && users.lines().count() == 1, "{seen}");
    assert_eq!((&seen[1], &seen[2], &seen[3]), (&json!([]), &json!(false), &json!(false)));
    let names = fs::read_dir(secret.path()).unwrap().map(|it| it.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["passwd"]);
    // All of it a link: the platform's own folder is there all the same.
    let hostile = Layer::new(&[]);
    symlink(secret.path(), hostile.path().join("etc")).unwrap();
    let (function, _own) = self::function(code, &[&hostile]);
    assert!(function.once("0").await[0].as_str().unwrap().starts_with("sbx_user1051:"));
    assert_eq!(fs::read_to_string(secret.path().join("passwd")).unwrap(), "secret");
}

pub(crate) async fn no_program() {
    let attempt = async |change: fn(&mut ImageSpec)| {
        let (function, _own) = function("", &[]);
        let mut image = (**function.spec.image.as_ref().unwrap()).clone();
        change(&mut image);
        let function = function.with(|spec| spec.image = Some(Arc::new(image)));
        match function.try_start().await.result {
            Err(StartError::Init { error_type, message, .. }) => {
                assert_eq!(error_type, "Runtime.InvalidEntrypoint");
                message
            }
            other => panic!("{:?}", other.err()),
        }
    };
    let message = attempt(|image| image.command[0] = "/bin/nothing".into()).await;
    assert!(message.contains("cannot run /bin/nothing"), "{message}");
    let message = attempt(|image| image.command[0] = "nothing".into()).await;
    if sandbox() != Sandbox::Process {
        // The rest is as the runtime says it.
        return assert!(message.contains("cannot run nothing: "), "{message}");
    }
    assert!(message.contains("on the PATH /nowhere:/var/lang/bin"), "{message}");
    let message = attempt(|image| image.working_directory = "/nowhere".into()).await;
    assert!(message.contains("cannot enter /nowhere"), "{message}");
}

async fn gone() {
    let (function, own) = function("", &[]);
    let path = own.path().display().to_string();
    drop(own);
    for architecture in [Architecture::Polling, Architecture::Http] {
        let mut spec = function.spec.clone();
        spec.architecture = architecture;
        match host().start(spec).await.result {
            Err(StartError::Sandbox(message)) => assert!(message.contains(&path), "{message}"),
            other => panic!("{:?}", other.err()),
        }
    }
}
