//! Finds the policies: every file of a choice's folder is one, named after the file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Each choice's folder and trait.
const CHOICES: [(&str, &str); 11] = [
    ("admission", "Admission"),
    ("order", "Order"),
    ("scaling", "Scaling"),
    ("connection", "Connection"),
    ("binding", "Binding"),
    ("placement", "Placement"),
    ("reuse", "Reuse"),
    ("retention", "Retention"),
    ("eviction", "Eviction"),
    ("cpu", "Cpu"),
    ("sharing", "Sharing"),
];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let variable = |name| PathBuf::from(env::var_os(name).expect("set by cargo"));
    let (manifest, out) = (variable("CARGO_MANIFEST_DIR"), variable("OUT_DIR"));
    for (folder, choice) in CHOICES {
        println!("cargo:rerun-if-changed=src/{folder}");
        let code = table(&manifest.join("src").join(folder), choice)?;
        fs::write(out.join(format!("{folder}.rs")), code)?;
    }
    Ok(())
}

/// A module for each policy in the folder, and the table of their names, both in order of name.
fn table(folder: &Path, choice: &str) -> io::Result<String> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.retain(|file| {
        file.extension().is_some_and(|ext| ext == "rs") && !file.ends_with("mod.rs")
    });
    files.sort();
    let (mut modules, mut names) = (String::new(), String::new());
    for file in &files {
        let module = file.file_stem().and_then(|stem| stem.to_str()).expect("a file name in UTF-8");
        let name = module.replace('_', "-");
        writeln!(modules, "#[path = {file:?}]\npub mod {module};").expect("writing to a string");
        writeln!(names, "    ({name:?}, {module}::policy),").expect("writing to a string");
    }
    Ok(format!(
        "{modules}\n/// The policies by name.\npub(crate) const POLICIES: \
         crate::policies::Table<dyn {choice}> = &[\n{names}];\n"
    ))
}
