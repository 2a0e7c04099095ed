//! Finds the runtimes by their place: every file of `src/sandbox/runtimes` but `mod.rs` is one.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() {
    let source = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let folder = Path::new(&source).join("src/sandbox/runtimes");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut names: Vec<String> = fs::read_dir(&folder)
        .expect("the runtimes' folder")
        .filter_map(|entry| {
            let name = entry.expect("an entry").file_name().into_string().ok()?;
            name.strip_suffix(".rs").filter(|name| *name != "mod").map(str::to_owned)
        })
        .collect();
    names.sort();

    let mut code = String::new();
    let mut table = String::new();
    for name in names {
        let path = folder.join(format!("{name}.rs"));
        writeln!(code, "#[path = {:?}]\nmod {name};", path.display().to_string()).expect("memory");
        write!(table, "Runtime(&{name}::Definition), ").expect("memory");
    }
    writeln!(code, "static ALL: &[Runtime] = &[{table}];").expect("memory");
    let target = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&target).join("runtimes.rs"), code).expect("the output folder");
}
