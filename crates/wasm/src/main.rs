//! `uncia-wasm`: runs functions as WebAssembly components that answer HTTP requests (`wasi:http/proxy`).
//!
//! A component is compiled to machine code once, ahead of time. Each request gets an instance of its own,
//! from a pool: what one leaves behind, the next does not see. Nothing is started for it, neither a
//! process nor a thread.
//!
//! | module | concern |
//! |---|---|
//! | [`engine`] | how components are compiled and run |
//! | [`component`] | from a file to a component that can be run |
//! | [`isolate`] | one request in an instance of its own |
//! | [`room`] | how many requests run at a time |
//! | [`exchange`] | the answer to a request |
//! | [`usage`] | CPU time, memory and output of an invocation |
//! | [`ticker`] | the clock by which running code is interrupted |
//! | [`server`] | orders of the platform, and invocations |
//! | [`assemble`] | from a module in text format to a component |

mod assemble;
mod component;
mod engine;
mod exchange;
mod hooks;
mod isolate;
mod output;
mod room;
mod server;
mod ticker;
mod usage;

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use uncia_code::Load;

use server::Server;

#[derive(Parser)]
#[command(name = "uncia-wasm", version, about = "Runs functions as WebAssembly components")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a component over HTTP, or those of a folder as the platform orders.
    Serve {
        /// The component, in binary form; or a folder of compiled ones.
        path: PathBuf,
        /// The port on 127.0.0.1; 0: one that is free.
        #[arg(long, env = "PORT", default_value_t = 8080)]
        port: u16,
        /// What an invocation may have, in MB; for a single component.
        #[arg(long, default_value_t = 128)]
        memory: u64,
        /// The CPU time that an invocation may use, in ms; for a single component.
        #[arg(long)]
        cpu_ms: Option<u64>,
    },
    /// Compile a component to machine code, or say what is wrong with it.
    Compile {
        /// The component, in binary form.
        component: PathBuf,
        /// Where the machine code is written; without it, it is only tried.
        output: Option<PathBuf>,
    },
    /// Print what decides whether machine code can be run: of this version, on this processor.
    CodeVersion,
    /// Make a component of a core module in text format that imports what wit/handler.wit says.
    Assemble {
        /// The module in text format.
        module: PathBuf,
        /// Where the component is written.
        output: PathBuf,
    },
}

fn main() -> ExitCode {
    match carry_out(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("Error: {sentence}.");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(command: Command) -> Result<(), String> {
    match command {
        Command::Serve { path, port, memory, cpu_ms } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            runtime.map_err(|error| error.to_string())?.block_on(serve(&path, port, memory, cpu_ms))
        }
        Command::Compile { component, output } => {
            let binary = read(&component)?;
            let server = Server::new(PathBuf::new())?;
            let compiled = component::compile(server.engine(), server.linker(), &binary)
                .map_err(|failure| format!("{}: {failure}", component.display()))?;
            output.map_or(Ok(()), |output| write(&output, &compiled))
        }
        Command::CodeVersion => {
            println!("{}", engine::code_version().map_err(|error| component::one_line(&error))?);
            Ok(())
        }
        Command::Assemble { module, output } => {
            let text = String::from_utf8(read(&module)?)
                .map_err(|_| format!("{} is no text", module.display()))?;
            let component = assemble::assemble(&text)
                .map_err(|error| format!("{}: {error}", module.display()))?;
            write(&output, &component)
        }
    }
}

/// Serves until SIGINT or SIGTERM.
async fn serve(path: &Path, port: u16, memory: u64, cpu_ms: Option<u64>) -> Result<(), String> {
    let server =
        if path.is_dir() { Server::new(path.to_owned())? } else { single(path, memory, cpu_ms)? };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(|error| format!("port {port} of 127.0.0.1 cannot be used: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    println!("Serving at http://{address}");
    let ends = |kind| signal(kind).map_err(|error| error.to_string());
    let (mut interrupt, mut terminate) =
        (ends(SignalKind::interrupt())?, ends(SignalKind::terminate())?);
    tokio::select! {
        () = Arc::new(server).serve(listener) => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// A server of one component, which is compiled now.
fn single(path: &Path, memory: u64, cpu_ms: Option<u64>) -> Result<Server, String> {
    let binary = read(path)?;
    // The machine code is read from a file, which is gone when it is loaded.
    let folder = std::env::temp_dir().join(format!("uncia-wasm-{}", std::process::id()));
    let server = Server::new(folder.clone())?;
    let compiled = component::compile(server.engine(), server.linker(), &binary)
        .map_err(|failure| format!("{}: {failure}", path.display()))?;
    let load = Load {
        function: String::new(),
        file: "component".to_owned(),
        memory_bytes: memory * 1024 * 1024,
        cpu_ms,
        environment: BTreeMap::new(),
    };
    // One of this name that is there is another's.
    fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let written = write(&folder.join(&load.file), &compiled);
    let only = written.and_then(|()| server.only(&load).map_err(|failure| failure.to_string()));
    let _ = fs::remove_dir_all(&folder);
    only
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    fs::write(path, content)
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))
}
