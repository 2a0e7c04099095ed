//! Finds runtimes of languages and of containers, services and settings by their place: every file of their folders is one.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let runtimes = modules("src/sandbox/runtimes");
    let table: String =
        runtimes.names.iter().map(|name| format!("Runtime(&{name}::Definition), ")).collect();
    let code = format!("{}static ALL: &[Runtime] = &[{table}];\n", runtimes.declarations);
    write("runtimes.rs", &code);

    let services = modules("src/services");
    let count = services.names.len();
    let table: String = services.names.iter().map(|name| format!("&{name}::SERVICE, ")).collect();
    let code = format!(
        "{}/// All of them, in the order of their names.\n\
         pub(crate) static ALL: [&super::Service; {count}] = [{table}];\n",
        services.declarations
    );
    write("services.rs", &code);

    let containers = modules("src/sandbox/containers/runtimes");
    let table: String =
        containers.names.iter().map(|name| format!("OciRuntime(&{name}::Definition), ")).collect();
    let code = format!("{}static ALL: &[OciRuntime] = &[{table}];\n", containers.declarations);
    write("oci_runtimes.rs", &code);
    let words = ["process"].into_iter().chain(containers.names.iter().map(String::as_str));
    let choices: String =
        words.map(|it| format!("({it:?}, |to| to.sandbox(Sandbox::named({it:?}))), ")).collect();
    write("sandbox_choices.rs", &format!("&[{choices}]"));

    for folder in ["function", "platform"] {
        let settings = modules(&format!("src/settings/{folder}"));
        let count = settings.names.len();
        let table: String =
            settings.names.iter().map(|name| format!("&{name}::SETTING, ")).collect();
        let code = format!(
            "{}/// All of them, in the order of their names.\n\
             pub(crate) static ALL: [&super::Setting; {count}] = [{table}];\n",
            settings.declarations
        );
        write(&format!("{folder}_settings.rs"), &code);
    }
}

/// The modules in a folder.
struct Modules {
    /// In order.
    names: Vec<String>,
    /// The code that makes them modules.
    declarations: String,
}

fn modules(folder: &str) -> Modules {
    let source = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let folder = Path::new(&source).join(folder);
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut names: Vec<String> = fs::read_dir(&folder)
        .expect("the folder is part of the crate")
        .filter_map(|entry| {
            let name = entry.expect("an entry").file_name().into_string().ok()?;
            name.strip_suffix(".rs").filter(|name| *name != "mod").map(str::to_owned)
        })
        .collect();
    names.sort();
    let mut declarations = String::new();
    for name in &names {
        let path = folder.join(format!("{name}.rs"));
        writeln!(declarations, "#[path = {path:?}]\nmod {name};").expect("memory");
    }
    Modules { names, declarations }
}

fn write(name: &str, code: &str) {
    let target = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(target.join(name), code).expect("the output folder");
}
