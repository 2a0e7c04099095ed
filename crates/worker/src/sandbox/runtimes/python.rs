//! Python: the interpreter and standard library of the host.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{
    ByteCode, Client, Product, RuntimeDefinition, any_of, ask_for, digits, is_read_at_start,
    major_minor, module,
};
use crate::instance::InstanceSpec;
use crate::sandbox::environment::BYTES_PER_MIB;
use crate::sandbox::rootfs::{LAYERS, RootError, RootSpec, TASK, ask};

/// The client of the Runtime API.
const CLIENT: &str = include_str!("../../../runtime/bootstrap.py");

/// The function that compiles packages.
const COMPILER: &str = include_str!("../../../runtime/compiler.py");

/// What the client becomes where instances are copies of it.
const ZYGOTE: &str = include_str!("../../../runtime/zygote.py");

/// What a zygote's copy goes on as.
const SUCCESSOR: &str = include_str!("../../../runtime/successor.py");

/// What the client becomes where instances are copies of it once it has run a function's imports.
const FUNCTION_ZYGOTE: &str = include_str!("../../../runtime/function_zygote.py");

/// Where the client looks for the byte code of a package, and of layers.
const BYTE_CODE: &str = "/var/runtime/bytecode";
const BYTE_CODE_OF_LAYERS: &str = "/var/runtime/layers-bytecode";

/// What an interpreter says of itself, whether it is the distribution's, built by hand, or a virtual
/// environment's.
const QUESTION: &str = "\
import json, os, sys
print(json.dumps({
    'version': '%d.%d.%d' % sys.version_info[:3],
    'short': '%d.%d' % sys.version_info[:2],
    'executable': os.path.realpath(getattr(sys, '_base_executable', None) or sys.executable),
    'stdlib': os.path.realpath(os.path.dirname(os.__file__)),
    'dynload': next((os.path.realpath(p) for p in sys.path if p.endswith('lib-dynload')), None),
    'platlibdir': getattr(sys, 'platlibdir', 'lib'),
}))";

/// Compiles the client, and the standard library if the host's is not, once for all instances: they
/// cannot write, so each of them would compile for itself. Arguments: the root, the library in it.
const COMPILE: &str = "\
import compileall, glob, os, py_compile, sys
root, library = sys.argv[1:]
client = os.path.join(root, 'var/runtime/bootstrap.py')
py_compile.compile(client, cfile=client + 'c', dfile='/var/runtime/bootstrap.py', doraise=True)
if not glob.glob(os.path.join(root, library, '__pycache__', 'os.*.pyc')):
    compileall.compile_dir(os.path.join(root, library), stripdir=root, prependdir='/', quiet=2)
";

#[derive(Deserialize)]
struct Interpreter {
    version: String,
    short: String,
    executable: PathBuf,
    stdlib: PathBuf,
    dynload: Option<PathBuf>,
    platlibdir: String,
}

pub(super) struct Definition;

impl RuntimeDefinition for Definition {
    fn name(&self) -> &'static str {
        "python"
    }

    fn identifiers(&self) -> &'static str {
        "python3.N"
    }

    fn identifier(&self) -> &'static str {
        "python3.12"
    }

    fn serves(&self, identifier: &str) -> bool {
        identifier.strip_prefix("python3.").is_some_and(digits)
    }

    fn requirement(&self) -> Option<&'static str> {
        Some("Python 3 (python3)")
    }

    fn root(&self, interpreter: Option<&Path>) -> Result<Option<RootSpec>, RootError> {
        let program = interpreter.unwrap_or(Path::new("python3"));
        let asked = ask_for::<Interpreter>(program, &["-I", "-c", QUESTION])?;
        let Some(interpreter) = asked else { return Ok(None) };
        let name = format!("python{}", interpreter.short);
        let binary = Path::new("var/lang/bin").join(&name);
        // Python finds its library relative to its binary, wherever they were before.
        let library = Path::new("var/lang").join(&interpreter.platlibdir).join(&name);
        let mut copies = vec![
            (interpreter.executable.clone(), binary.clone()),
            (interpreter.stdlib, library.clone()),
        ];
        copies.extend(interpreter.dynload.map(|folder| (folder, library.join("lib-dynload"))));
        Ok(Some(RootSpec {
            version: interpreter.version,
            interpreter: Some(interpreter.executable),
            copies,
            links: vec![("var/lang/bin/python3".into(), name.into())],
            files: vec![
                ("bootstrap.py", CLIENT),
                ("compiler.py", COMPILER),
                ("zygote.py", ZYGOTE),
                ("successor.py", SUCCESSOR),
                ("function_zygote.py", FUNCTION_ZYGOTE),
            ],
            // -S: there are no site packages; looking for them takes longer than all else.
            // -u: what a function prints before it is killed is not lost.
            command: vec![
                Path::new("/").join(binary).display().to_string(),
                "-S".into(),
                "-u".into(),
                "/var/runtime/bootstrap.pyc".into(),
            ],
        }))
    }

    fn finish(&self, spec: &RootSpec, folder: &Path) -> Result<(), RootError> {
        let (Some(interpreter), Some((_, library))) = (&spec.interpreter, spec.copies.get(1))
        else {
            return Ok(());
        };
        for place in [BYTE_CODE, BYTE_CODE_OF_LAYERS] {
            let byte_code = folder.join(&place[1..]);
            fs::create_dir(&byte_code).map_err(|error| RootError::Make(byte_code, error))?;
        }
        let error = |text: &str| RootError::Ask(interpreter.clone(), text.to_owned());
        let folder = folder.to_str().ok_or_else(|| error("the state folder's name is no text"))?;
        let library = library.to_str().ok_or_else(|| error("its library's name is no text"))?;
        ask(interpreter, &["-I", "-c", COMPILE, folder, library]).map(drop)
    }

    fn byte_code(&self) -> Option<ByteCode> {
        Some(ByteCode {
            handler: "compiler.handler",
            place: BYTE_CODE,
            product: Product::EachSource { suffix: ".py", layers_place: BYTE_CODE_OF_LAYERS },
        })
    }

    fn has_zygote(&self) -> bool {
        true
    }

    fn serves_http(&self) -> bool {
        true
    }

    fn is_server(&self, handler: &str) -> bool {
        [".py"].iter().any(|ending| handler.ends_with(ending))
    }

    fn server(&self, command: &[String], spec: &InstanceSpec) -> Vec<String> {
        // Instead of the client, which is the last word.
        let interpreter = &command[..command.len().saturating_sub(1)];
        [interpreter, &[format!("{TASK}/{}", spec.handler)]].concat()
    }

    fn place_in_layers(&self, path: &str) -> Option<String> {
        Some(format!("python/{path}"))
    }

    fn library_paths(&self, version: &str) -> Option<(&'static str, String)> {
        let (major, minor) = major_minor(version);
        let site = format!("{LAYERS}/python/lib/python{major}.{minor}/site-packages");
        Some(("PYTHONPATH", format!("{site}:{LAYERS}/python")))
    }

    fn waiting_bytes(&self) -> Option<u64> {
        Some(8 * BYTES_PER_MIB)
    }

    fn reads_at_start(&self, variable: &str) -> bool {
        is_read_at_start(variable, &["PYTHON"])
    }

    fn client(&self) -> Option<Client> {
        Some(Client { interpreter: &["python3", "-u"], file: ("bootstrap.py", CLIENT) })
    }

    fn execution_environment(&self, version: &str) -> String {
        let (major, minor) = major_minor(version);
        format!("AWS_Lambda_python{major}.{minor}")
    }

    fn check_package(
        &self,
        has: &dyn Fn(&str) -> bool,
        _identifier: &str,
        handler: &str,
    ) -> Result<(), String> {
        let path = module(handler).replace('.', "/");
        let endings = [".py", "/__init__.py", ".pyc"];
        any_of(&endings.map(|ending| format!("{path}{ending}")), has, handler)
    }
}
