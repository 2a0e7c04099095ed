//! `uncia-engine serve`: the embedded platform until SIGINT or SIGTERM.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use uncia_worker::access::Access;
use uncia_worker::cluster::{Agent, JoinError, JoinSettings};
use uncia_worker::config::Config;
use uncia_worker::listen::{Listen, Tls};
use uncia_worker::serve::{ServeError, Worker};
use uncia_worker::traces::Settings;

use crate::output::{BAD_INPUT, FAILED, Messages};
use crate::signals::Signals;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The address and port to listen on; port 0 takes a free one. Beyond loopback with TLS and
    /// credentials alone.
    #[arg(long, default_value = "127.0.0.1:9001", value_name = "ADDRESS:PORT", value_parser = address)]
    listen: SocketAddr,
    /// The folder for functions, log and root filesystems; made if it is not there.
    #[arg(long, value_name = "FOLDER")]
    state: PathBuf,
    /// The configuration as JSON; every key has a default.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A unix socket to listen on, too, which its owner alone can use; may be repeated.
    #[arg(long = "socket", value_name = "PATH")]
    sockets: Vec<PathBuf>,
    /// The certificate for TLS, in PEM, followed by those that it is signed by.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Answer whoever has these credentials alone: a file in the form of AWS's, with aws_access_key_id and
    /// aws_secret_access_key, or uncia_token.
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Run nothing here: workers join, which `--join` starts.
    #[arg(long, conflicts_with = "join")]
    controller: bool,
    /// Join the controller at this address, and run what it asks for, instead of listening.
    #[arg(long, value_name = "URL", conflicts_with_all = ["listen", "sockets", "tls_cert", "tls_key", "traces"])]
    join: Option<String>,
    /// What a worker that joins is called in rows; the machine's name unless it is given.
    #[arg(long, value_name = "NAME", requires = "join")]
    name: Option<String>,
    /// Send spans of invocations to the OpenTelemetry collector that the environment names, if it does.
    #[arg(long)]
    traces: bool,
    /// How errors and warnings are written to stderr.
    #[arg(long, value_enum, default_value_t = Messages::Json)]
    pub(crate) messages: Messages,
}

/// Reads an address and port; `localhost` is the loopback address of IPv4.
fn address(text: &str) -> Result<SocketAddr, String> {
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| "write an address and a port, such as 127.0.0.1:9001".to_owned())
}

/// Serves until told to stop.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let read = read(arguments).and_then(|config| Ok((listen(arguments)?, config)));
    let (listen, config) = match read {
        Ok(read) => read,
        Err(message) => return arguments.messages.fail(&message, BAD_INPUT),
    };
    match uncia_worker::runtime::runtime() {
        Ok(runtime) => match &arguments.join {
            Some(url) => runtime.block_on(join(arguments, url, config)),
            None => runtime.block_on(serve(arguments, listen, config)),
        },
        Err(error) => arguments.messages.fail(&format!("cannot start threads: {error}"), FAILED),
    }
}

fn read(arguments: &Arguments) -> Result<Config, String> {
    let mut config = match &arguments.config {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            Config::parse(&text).map_err(|error| {
                // Whoever passes an open file has no name for it that the user knows.
                let has_name = !path.starts_with("/dev/fd");
                if has_name { format!("{}: {error}", path.display()) } else { error.to_string() }
            })?
        }
        None => Config::default(),
    };
    if arguments.traces {
        config.traces = Settings::of_environment(|name| std::env::var(name).ok())?;
    }
    Ok(config)
}

/// Where to listen, and who is answered.
fn listen(arguments: &Arguments) -> Result<Listen, String> {
    let tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(Tls::read(certificate, key).map_err(|error| error.to_string())?)
        }
        _ => None,
    };
    let access = match &arguments.credentials {
        Some(path) => Access::of_file(path).map_err(|error| error.to_string())?,
        None => Access::of_environment(|name| std::env::var(name).ok()),
    };
    Ok(Listen {
        address: arguments.listen,
        sockets: arguments.sockets.clone(),
        tls,
        access,
        is_guarded: arguments.credentials.is_some(),
    })
}

async fn serve(arguments: &Arguments, listen: Listen, config: Config) -> ExitCode {
    // From now on, so that a signal during the start ends in a clean stop too.
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            return arguments.messages.fail(&format!("cannot listen for signals: {error}"), FAILED);
        }
    };
    let worker = match Worker::start(listen, &arguments.state, config, arguments.controller).await {
        Ok(worker) => worker,
        Err(error) => {
            let code = if matches!(error, ServeError::Listen(_)) { BAD_INPUT } else { FAILED };
            return arguments.messages.fail(&error.to_string(), code);
        }
    };
    let ready = json!({
        "event": "listening",
        "address": worker.address().to_string(),
        "url": worker.url(),
        "sockets": arguments.sockets,
        "pid": std::process::id(),
        "warnings": worker.warnings(),
    });
    // Whoever started it may not listen; then nobody needs to know.
    let _ = writeln!(std::io::stdout().lock(), "{ready}");
    let failure = tokio::select! {
        _ = signals.next() => None,
        message = worker.failed() => Some(message),
    };
    // A second signal waits for nobody.
    let hurry = async {
        signals.next().await;
    };
    worker.stop(hurry).await;
    failure.map_or(ExitCode::SUCCESS, |message| arguments.messages.fail(&message, FAILED))
}

/// Works for a controller until told to stop.
async fn join(arguments: &Arguments, url: &str, config: Config) -> ExitCode {
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            return arguments.messages.fail(&format!("cannot listen for signals: {error}"), FAILED);
        }
    };
    let settings = JoinSettings {
        url: url.to_owned(),
        name: arguments.name.clone().unwrap_or_else(host_name),
        state: arguments.state.clone(),
        credentials: arguments.credentials.clone(),
        config,
    };
    let name = settings.name.clone();
    let (agent, joined) = match Box::pin(Agent::start(settings)).await {
        Ok(started) => started,
        Err(error) => {
            let is_input = matches!(
                error,
                JoinError::Address(_)
                    | JoinError::Unprotected(_)
                    | JoinError::Name(_)
                    | JoinError::Credentials(_)
            );
            let code = if is_input { BAD_INPUT } else { FAILED };
            return arguments.messages.fail(&error.to_string(), code);
        }
    };
    let ready = json!({
        "event": "joined",
        "url": url,
        "name": name,
        "pid": std::process::id(),
        "warnings": agent.warnings(),
    });
    let tell = move || {
        // Whoever started it may not listen; then nobody needs to know.
        let _ = writeln!(std::io::stdout().lock(), "{ready}");
    };
    tell();
    let serving = tokio::spawn({
        let agent = agent.clone();
        async move { agent.serve(joined, tell).await }
    });
    let failure = tokio::select! {
        _ = signals.next() => None,
        message = agent.failed() => Some(message),
    };
    // A second signal waits for nobody.
    let hurry = async {
        signals.next().await;
    };
    agent.leave(hurry).await;
    let _ = serving.await;
    agent.close().await;
    failure.map_or(ExitCode::SUCCESS, |message| arguments.messages.fail(&message, FAILED))
}

/// What the machine is called, or `worker`.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "worker".to_owned() } else { name.to_owned() }
}
