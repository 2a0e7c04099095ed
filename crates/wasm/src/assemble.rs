//! From a module in text format to a component: what a compiler's linker does otherwise.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// What a module may import and has to export.
const INTERFACES: &str = include_str!("../wit/handler.wit");
const WORLD: &str = "handler";

/// Makes a component of a core module in text format that imports and exports what `wit/handler.wit`
/// says.
///
/// # Errors
/// The text is no module, or not for these interfaces: a sentence.
pub(crate) fn assemble(text: &str) -> Result<Vec<u8>, String> {
    let mut module = wat::parse_str(text).map_err(|error| error.to_string())?;
    let mut resolve = Resolve::default();
    let world = resolve
        .push_str("handler.wit", INTERFACES)
        .and_then(|package| resolve.select_world(&[package], Some(WORLD)))
        .map_err(|error| format!("{error:#}"))?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .map_err(|error| format!("{error:#}"))?;
    ComponentEncoder::default()
        .module(&module)
        .and_then(|encoder| encoder.validate(true).encode())
        .map_err(|error| format!("{error:#}"))
}
