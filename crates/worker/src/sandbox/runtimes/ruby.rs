//! Ruby: the interpreter and standard library of the host.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Client, RuntimeDefinition, any_of, ask_for, digits, is_read_at_start, major_minor};
use crate::instance::InstanceSpec;
use crate::sandbox::environment::BYTES_PER_MIB;
use crate::sandbox::rootfs::{LAYERS, RootError, RootSpec, TASK};

/// The client of the Runtime API.
const CLIENT: &str = include_str!("../../../runtime/bootstrap.rb");

/// Without gems, which take four times as long to load as the rest; the client loads them for packages
/// that have some.
const OPTIONS: &str = "--disable=gems,did_you_mean,error_highlight";

/// Ruby finds its library where it was configured to be, so that it is at the same place in a root. The
/// distribution's RubyGems may lie beside it.
const QUESTION: &str = "\
require 'rbconfig'
require 'json'
it = RbConfig::CONFIG
folders = it.values_at('rubylibdir', 'rubyarchdir', 'vendordir').compact
folders << File.join(it['rubylibprefix'].to_s, 'gems', it['ruby_version'].to_s, 'specifications')
puts JSON.generate(version: RUBY_VERSION, executable: File.realpath('/proc/self/exe'),
                   folders: folders.select { |folder| File.directory?(folder) }.uniq)";

#[derive(Deserialize)]
struct Interpreter {
    version: String,
    executable: PathBuf,
    folders: Vec<PathBuf>,
}

pub(super) struct Definition;

impl RuntimeDefinition for Definition {
    fn name(&self) -> &'static str {
        "ruby"
    }

    fn identifiers(&self) -> &'static str {
        "rubyN.M"
    }

    fn identifier(&self) -> &'static str {
        "ruby3.3"
    }

    fn serves(&self, identifier: &str) -> bool {
        let version = identifier.strip_prefix("ruby").and_then(|rest| rest.split_once('.'));
        version.is_some_and(|(major, minor)| digits(major) && digits(minor))
    }

    fn requirement(&self) -> Option<&'static str> {
        Some("Ruby (ruby)")
    }

    fn root(&self, interpreter: Option<&Path>) -> Result<Option<RootSpec>, RootError> {
        let program = interpreter.unwrap_or(Path::new("ruby"));
        let asked = ask_for::<Interpreter>(program, &["--disable=gems,rubyopt", "-e", QUESTION])?;
        let Some(interpreter) = asked else { return Ok(None) };
        let binary = PathBuf::from("var/lang/bin/ruby");
        let mut copies = vec![(interpreter.executable.clone(), binary.clone())];
        // In the order of their names: one that is in another is copied with that.
        let mut folders = interpreter.folders;
        folders.sort();
        folders.dedup_by(|inner, outer| inner.starts_with(outer));
        for folder in folders {
            if let Ok(to) = folder.strip_prefix("/") {
                copies.push((folder.clone(), to.to_owned()));
            }
        }
        Ok(Some(RootSpec {
            version: interpreter.version,
            interpreter: Some(interpreter.executable),
            copies,
            files: vec![("bootstrap.rb", CLIENT)],
            command: vec![
                Path::new("/").join(binary).display().to_string(),
                OPTIONS.into(),
                "/var/runtime/bootstrap.rb".into(),
            ],
            ..RootSpec::default()
        }))
    }

    fn is_built_on_demand(&self) -> bool {
        true
    }

    fn can_be_restored(&self) -> bool {
        true
    }

    fn serves_http(&self) -> bool {
        true
    }

    fn is_server(&self, handler: &str) -> bool {
        [".rb"].iter().any(|ending| handler.ends_with(ending))
    }

    fn server(&self, command: &[String], spec: &InstanceSpec) -> Vec<String> {
        // Instead of the client, and with gems: a server has time.
        let interpreter = &command[..1];
        [interpreter, &[format!("{TASK}/{}", spec.handler)]].concat()
    }

    fn library_paths(&self, _version: &str) -> Option<(&'static str, String)> {
        Some(("RUBYLIB", format!("{LAYERS}/ruby/lib")))
    }

    fn waiting_bytes(&self) -> Option<u64> {
        Some(16 * BYTES_PER_MIB)
    }

    fn reads_at_start(&self, variable: &str) -> bool {
        is_read_at_start(variable, &["RUBY"])
    }

    fn client(&self) -> Option<Client> {
        Some(Client { interpreter: &["ruby"], file: ("bootstrap.rb", CLIENT) })
    }

    fn execution_environment(&self, version: &str) -> String {
        let (major, minor) = major_minor(version);
        format!("AWS_Lambda_ruby{major}.{minor}")
    }

    fn check_package(
        &self,
        has: &dyn Fn(&str) -> bool,
        _identifier: &str,
        handler: &str,
    ) -> Result<(), String> {
        // file.method or file.Module::Class.method
        let file = handler.split('.').next().unwrap_or_default();
        any_of(&[format!("{file}.rb")], has, handler)
    }
}
