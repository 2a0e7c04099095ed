//! From a file to a component that can be run.

use std::path::Path;

use uncia_code::{Failure, Kind, check_header};
use wasmtime::Engine;
use wasmtime::component::{Component, Linker};
use wasmtime_wasi_http::p2::bindings::ProxyPre;

use crate::isolate::State;

/// Compiles a component to machine code.
///
/// # Errors
/// It is none, or cannot answer HTTP requests, in a sentence.
pub(crate) fn compile(
    engine: &Engine,
    linker: &Linker<State>,
    binary: &[u8],
) -> Result<Vec<u8>, Failure> {
    check_header(binary)?;
    let component = Component::from_binary(engine, binary)
        .map_err(|error| refusal(format!("the component is not valid: {}", one_line(&error))))?;
    prepare(linker, &component)?;
    component.serialize().map_err(|error| refusal(one_line(&error)))
}

/// Loads a component that [`compile`] has made.
///
/// # Errors
/// The file cannot be read, or another version has made it.
///
/// # Safety
/// The file must come from [`compile`], and nobody may have changed it: what is in it is run.
pub(crate) unsafe fn load(
    engine: &Engine,
    linker: &Linker<State>,
    path: &Path,
) -> Result<ProxyPre<State>, Failure> {
    // SAFETY: the caller knows where the file comes from.
    let component = unsafe { Component::deserialize_file(engine, path) };
    let component = component.map_err(|error| {
        refusal(format!("{} cannot be loaded: {}", path.display(), one_line(&error)))
    })?;
    prepare(linker, &component)
}

/// Resolves what the component imports, and finds what it exports.
fn prepare(linker: &Linker<State>, component: &Component) -> Result<ProxyPre<State>, Failure> {
    let resolved = linker.instantiate_pre(component).map_err(|error| {
        refusal(format!("the component imports what is not offered here: {}", one_line(&error)))
    })?;
    ProxyPre::new(resolved).map_err(|error| {
        refusal(format!(
            "the component does not export wasi:http/incoming-handler, of which the function handle is \
             called for each request: {}",
            one_line(&error)
        ))
    })
}

fn refusal(sentence: impl std::fmt::Display) -> Failure {
    Failure::new(Kind::Component, sentence)
}

/// An error with its causes, in a line.
pub(crate) fn one_line(error: &wasmtime::Error) -> String {
    let causes: Vec<_> = error.chain().map(ToString::to_string).collect();
    causes.join(": ").replace('\n', " ")
}
