//! A function as it is configured.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uncia_oci::document::Execution;
use uncia_policy::{FunctionId, FunctionSettings, Resources};
use uncia_record::Invocation;

use crate::config::Config;
use crate::instance::{
    Architecture, Enforcement, ImageSpec, InstanceSpec, Network, Package, Reach, Runtime, Sandbox,
    ShareState, StartFrom,
};
use crate::layer::{LayerUse, Layers};
use crate::published::{LATEST, Published};
use crate::sandbox::allowed_cpus;
pub(crate) use crate::settings::Overrides;
use crate::settings::Target;
use crate::store::{Code, FetchedZip, StoredImage};

/// Requests that an HTTP server gets at a time if nothing is said: as on Cloud Run.
const SERVER_CONCURRENCY: u32 = 80;
/// Requests for which code is run at a time: as many as its host has room for.
const CODE_CONCURRENCY: u32 = 1_000;
const MICRO_VCPU: u64 = 1_000_000;
const MIB: u64 = 1024 * 1024;

/// What CreateFunction and UpdateFunctionConfiguration set, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Configuration {
    pub runtime: String,
    pub handler: String,
    pub role: String,
    pub description: String,
    pub timeout_s: u64,
    pub memory_mb: u64,
    pub ephemeral_mb: u64,
    pub environment: BTreeMap<String, String>,
    pub architecture: String,
    pub modified_unix_ms: i64,
    pub revision: String,
    /// Given when the function was created, and no other's, not even of one that has its name later.
    /// Empty for functions of earlier versions.
    #[serde(default)]
    pub key: String,
    pub reserved_concurrency: Option<u32>,
    /// Set if its package is an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageUse>,
    /// Set if its package is a zip file that is not kept here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched: Option<FetchedZip>,
    /// The lowest first.
    #[serde(default)]
    pub layers: Vec<LayerUse>,
}

/// How a function uses an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImageUse {
    /// As it was asked for.
    pub uri: String,
    /// The same with the digest of what it meant then.
    pub resolved_uri: String,
    /// What overrides the image's own configuration.
    #[serde(flatten)]
    pub overrides: ImageConfig,
}

/// What of an image's configuration a function overrides: `ImageConfig` in Lambda's API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImageConfig {
    pub entry_point: Option<Vec<String>>,
    pub command: Option<Vec<String>>,
    pub working_directory: Option<String>,
}

impl ImageConfig {
    /// The program of an image with its arguments; empty if neither names one.
    pub(crate) fn command_of(&self, image: &Execution) -> Vec<String> {
        let entry_point = self.entry_point.as_ref().or(image.entrypoint.as_ref());
        let command = self.command.as_ref().or(image.cmd.as_ref());
        entry_point.into_iter().chain(command).flatten().cloned().collect()
    }

    fn working_directory_of(&self, image: &Execution) -> PathBuf {
        let folder = self.working_directory.as_ref().or(image.working_dir.as_ref());
        Path::new("/").join(folder.map_or("", String::as_str))
    }

    /// What image and function call the handler: the first argument behind the entry point.
    pub(crate) fn handler_of(&self, image: &Execution) -> String {
        let command = self.command.as_ref().or(image.cmd.as_ref());
        command.and_then(|command| command.first()).cloned().unwrap_or_default()
    }
}

/// How instances get their requests on this platform unless their function says so itself: one whose handler
/// names a server's file as the platform's configuration says, and any other by polling. None for an image.
pub(crate) fn default_architecture(
    config: &Config,
    runtime: Runtime,
    handler: Option<&str>,
) -> Architecture {
    if runtime.definition().is_code() {
        // It knows nothing else.
        return Architecture::Code;
    }
    let is_server = handler.is_some_and(|handler| runtime.definition().is_server(handler));
    let platforms = config.function_defaults.serving().architecture;
    // What is no code polls where the platform's is.
    platforms.filter(|it| is_server && *it != Architecture::Code).unwrap_or_default()
}

/// The byte code of a package and of layers: where it is, and where instances see it.
pub(crate) fn byte_code_mounts(
    code: &Code,
    layers: &Layers,
    runtime: Runtime,
) -> Vec<(PathBuf, PathBuf)> {
    let Some(places) = runtime.definition().byte_code() else { return Vec::new() };
    let code = code.byte_code(runtime).map(|folder| (folder, places.place.into()));
    let opt = layers.opt().and_then(|opt| opt.byte_code(runtime));
    let opt = opt.zip(places.layers_place().map(PathBuf::from));
    code.into_iter().chain(opt).collect()
}

impl Configuration {
    /// Stands for a configuration that was stored and cannot be read.
    pub(crate) fn unreadable() -> Self {
        Self {
            runtime: "provided.al2023".to_owned(),
            handler: "unknown".to_owned(),
            role: String::new(),
            description: String::new(),
            timeout_s: 3,
            memory_mb: 128,
            ephemeral_mb: 512,
            environment: BTreeMap::new(),
            architecture: if cfg!(target_arch = "aarch64") { "arm64" } else { "x86_64" }.to_owned(),
            modified_unix_ms: 0,
            revision: String::new(),
            key: String::new(),
            reserved_concurrency: None,
            image: None,
            fetched: None,
            layers: Vec::new(),
        }
    }
}

/// How a function's URL answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum InvokeMode {
    /// When all of the answer is there.
    #[default]
    Buffered,
    /// As the function answers.
    ResponseStream,
}

impl InvokeMode {
    /// The mode that Lambda calls so.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Buffered, Self::ResponseStream].into_iter().find(|mode| mode.name() == name)
    }

    /// What Lambda calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Buffered => "BUFFERED",
            Self::ResponseStream => "RESPONSE_STREAM",
        }
    }
}

/// A function's URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UrlConfig {
    pub id: String,
    pub created_unix_ms: i64,
    pub modified_unix_ms: i64,
    /// Whether requests must be signed with the platform's credentials.
    #[serde(default)]
    pub signed: bool,
    /// Those of earlier versions were all buffered.
    #[serde(default)]
    pub invoke_mode: InvokeMode,
}

/// A function at one moment; a change makes a new value.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    /// Stays the same for the life of the function, but not across restarts.
    pub id: FunctionId,
    pub name: Arc<str>,
    /// The number of a published version, which never changes; None is `$LATEST`.
    pub version: Option<u32>,
    /// The name, with the number of a published version behind a colon: what tells versions apart.
    pub qualified_name: Arc<str>,
    /// With the version, as [`Self::qualified_name`].
    pub arn: String,
    pub configuration: Configuration,
    /// Memory with which it gets one vCPU, in bytes; of the platform.
    pub memory_per_vcpu: u64,
    pub tags: BTreeMap<String, String>,
    pub overrides: Overrides,
    pub url: Option<UrlConfig>,
    pub code: Arc<Code>,
    /// What [`Configuration::layers`] names.
    pub layers: Layers,
    /// Why it cannot run, if its package or its configuration was lost.
    pub broken: Option<String>,
    /// Whether it is the configuration that was lost, so that it can only be deleted.
    pub unreadable: bool,
    /// Its versions and aliases; a version has none.
    pub published: Arc<Published>,
    /// Instances of a version that provisioned concurrency keeps ready.
    pub provisioned: u32,
}

impl Function {
    /// The version as Lambda names it.
    pub(crate) fn version_name(&self) -> String {
        self.version.map_or_else(|| LATEST.to_owned(), |number| number.to_string())
    }

    /// The function and its versions.
    pub(crate) fn versions(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::once(self).chain(self.published.versions.values())
    }

    /// What of the byte code that its packages bring along is passed over: a sentence, if there is anything to be said.
    pub(crate) fn passed_over(self: &Arc<Self>) -> Option<String> {
        let codes = self.versions().flat_map(|it| {
            [Some(&it.code), it.layers.opt()].into_iter().flatten().map(move |code| (it, code))
        });
        let sentence = |(version, code): (&Arc<Self>, &Arc<Code>)| {
            Some(format!("The function {}: {}.", version.qualified_name, code.passed_over()?))
        };
        codes.into_iter().find_map(sentence)
    }

    /// Every package that there must be for it: of its code and of its layers.
    pub(crate) fn packages(&self) -> impl Iterator<Item = &Arc<Code>> {
        std::iter::once(&self.code).chain(self.layers.packages())
    }

    pub(crate) fn runtime(&self) -> Runtime {
        Runtime::serving(&self.configuration.runtime)
            .expect("the runtime was checked before the function was stored")
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.configuration.timeout_s)
    }

    /// How its instances get their requests.
    pub(crate) fn architecture(&self, config: &Config) -> Architecture {
        let setting = self.overrides.serving().architecture;
        setting.unwrap_or_else(|| self.default_architecture(config))
    }

    /// How they get them unless the function says so itself.
    pub(crate) fn default_architecture(&self, config: &Config) -> Architecture {
        let handler = &self.configuration.handler;
        let handler = self.configuration.image.is_none().then_some(handler.as_str());
        default_architecture(config, self.runtime(), handler)
    }

    /// Why it polls where the platform's functions are servers, if it does and has not said so itself: a
    /// sentence without its name.
    pub(crate) fn why_it_polls(&self, config: &Config) -> Option<String> {
        let platforms = config.function_defaults.serving().architecture;
        let says = self.overrides.serving().architecture.is_some();
        if platforms != Some(Architecture::Http)
            || says
            || self.architecture(config) != Architecture::Polling
        {
            return None;
        }
        let what = match &self.configuration.image {
            Some(_) => "an image does not say whether it is an HTTP server".to_owned(),
            None => format!("its handler \"{}\" names no HTTP server", self.configuration.handler),
        };
        Some(format!(
            "it polls, and an instance of it serves one request at a time: {what}. If it is one, give it \
             the setting architecture: http; or polling, if it is to poll"
        ))
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.configuration.memory_mb * MIB
    }

    /// The CPU allocated in micro-vCPU.
    pub(crate) fn cpu_micro(&self) -> u64 {
        let mut settings = self.base_settings(Architecture::Polling);
        self.overrides.apply(&mut Target::of_policy(&mut settings));
        settings.allocation.cpu
    }

    /// Why no instance of it can ever start here, if none can: a sentence.
    pub(crate) fn refusal(&self, config: &Config) -> Option<String> {
        self.refusal_of_cpus(config).or_else(|| self.refusal_of_size(config))
    }

    /// Why the platform does not divide its CPUs as the function asks, if it does not: a sentence.
    fn refusal_of_cpus(&self, config: &Config) -> Option<String> {
        let (cpus, cpu_shares) = self.overrides.cpus();
        let tag = if cpus.is_some() { "cpus" } else { "cpu-shares" };
        if (cpus.is_some() || cpu_shares.is_some())
            && self.architecture(config) == Architecture::Code
        {
            return Some(format!(
                "The tag uncia:{tag} is not for code, which runs in one process with others': leave it out."
            ));
        }
        let sharing = &config.policies.cpu;
        if cpu_shares.is_some() && config.shares_cpus() {
            return Some(format!(
                "The tag uncia:cpu-shares says how the kernel divides CPUs, and this platform has a policy for that \
                 ({sharing}): leave the tag out, or cpu_sharing."
            ));
        }
        let cpus = cpus?;
        if config.shares_cpus() {
            return Some(format!(
                "The tag uncia:cpus keeps instances to CPUs, and this platform has a policy for that ({sharing}): \
                 leave the tag out, or cpu_sharing."
            ));
        }
        if !config.cpusets {
            return Some(
                "The tag uncia:cpus needs a platform that was started with cpusets: `uncia serve --cpusets`, \
                 or `cpusets` in its configuration."
                    .to_owned(),
            );
        }
        cpus.refusal(&allowed_cpus())
    }

    /// Why an instance is larger than the platform, if it is: a sentence.
    fn refusal_of_size(&self, config: &Config) -> Option<String> {
        let Resources { cpu, memory } = config.capacity;
        let (own_cpu, own_memory) = match config.capacity {
            Resources::UNBOUNDED => return None,
            _ => (self.cpu_micro(), self.memory_bytes()),
        };
        let less = |key: &str| format!("give it less ({key}), or the platform more");
        if own_memory > memory {
            return Some(format!(
                "An instance of {} has {} MB of memory, and the platform {} MB (capacity_memory): {}",
                self.name,
                own_memory / MIB,
                memory / MIB,
                less("MemorySize")
            ));
        }
        (own_cpu > cpu).then(|| {
            format!(
                "An instance of {} has {} vCPU, and the platform {} vCPU (capacity_cpu): {}",
                self.name,
                own_cpu as f64 / MICRO_VCPU as f64,
                cpu as f64 / MICRO_VCPU as f64,
                less("MemorySize, or the tag uncia:cpu-micro")
            )
        })
    }

    pub(crate) fn ephemeral_bytes(&self) -> u64 {
        self.configuration.ephemeral_mb * MIB
    }

    /// What the policies know of it.
    pub(crate) fn settings(&self, config: &Config) -> FunctionSettings {
        let architecture = self.architecture(config);
        let mut settings = self.base_settings(architecture);
        self.overrides.apply_with(&config.function_defaults, &mut Target::of_policy(&mut settings));
        if architecture == Architecture::Polling {
            // What the platform's configuration says is for servers.
            settings.concurrency = 1;
            if settings.max_in_flight == u32::MAX {
                settings.max_in_flight = config.max_instances;
            }
        } else {
            // The limit is one of instances, and each serves several; reserved concurrency counts
            // requests.
            settings.max_in_flight = u32::MAX;
            self.overrides
                .apply_with(&config.function_defaults, &mut Target::of_policy(&mut settings));
            let instances = settings.max_in_flight.min(config.max_instances);
            settings.max_instances = instances;
            let reserved = self.configuration.reserved_concurrency.unwrap_or(u32::MAX);
            settings.max_in_flight = instances.saturating_mul(settings.concurrency).min(reserved);
        }
        if self.version.is_some() {
            // The tag keeps instances of `$LATEST` ready; each version would keep as many more.
            settings.min_instances = self.provisioned;
        }
        settings
    }

    /// What Lambda's own words set: CPU in proportion to memory, and reserved concurrency.
    fn base_settings(&self, architecture: Architecture) -> FunctionSettings {
        let whole = self.memory_per_vcpu;
        let cpu = u128::from(self.memory_bytes()) * u128::from(MICRO_VCPU) + u128::from(whole / 2);
        let cpu = u64::try_from(cpu / u128::from(whole)).unwrap_or(u64::MAX).max(1);
        FunctionSettings {
            max_in_flight: self.configuration.reserved_concurrency.unwrap_or(u32::MAX),
            allocation: Resources { cpu, memory: self.memory_bytes() },
            concurrency: match architecture {
                Architecture::Polling => 1,
                Architecture::Http => SERVER_CONCURRENCY,
                Architecture::Code => CODE_CONCURRENCY,
            },
            ..FunctionSettings::default()
        }
    }

    /// Whether something that carries this key is meant for it, and not for an earlier function of
    /// the same name.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        let own = &self.configuration.key;
        key.is_empty() || own.is_empty() || key == own
    }

    /// Writes the settings that it has into a row of it.
    pub(crate) fn describe(&self, row: &mut Invocation) {
        self.overrides.apply(&mut Target::of_row(row));
    }

    /// What an instance of it needs to start.
    pub(crate) fn instance_spec(&self, id: &str, config: &Config) -> InstanceSpec {
        let mut spec = InstanceSpec {
            id: id.to_owned(),
            function: self.qualified_name.to_string(),
            function_arn: self.arn.clone(),
            version: self.version_name(),
            runtime: self.runtime(),
            handler: self.handler(),
            code: self.code.folder(),
            package: self.code.origin().map(|_| self.code.clone() as Arc<dyn Package>),
            image: self.image_spec().map(Arc::new),
            layers: self.layers.folder(),
            extensions: self.layers.extensions().to_vec(),
            mounts: byte_code_mounts(&self.code, &self.layers, self.runtime()),
            environment: self.configuration.environment.clone(),
            memory_bytes: self.memory_bytes(),
            cpu_micro: self.cpu_micro(),
            cpu_time: None,
            cpus: None,
            cpu_shares: None,
            ephemeral_bytes: self.ephemeral_bytes(),
            pids_max: config.pids_max,
            init_timeout: Duration::from_millis(config.init_timeout_ms),
            // These are settings, which all have defaults.
            period_us: 0,
            network: Network::default(),
            reach: Reach::default(),
            enforcement: Enforcement::default(),
            sandbox: Sandbox::default(),
            start_from: StartFrom::default(),
            share_state: ShareState::default(),
            share_after: 0,
            records: false,
            restorable: false,
            architecture: Architecture::default(),
            reclaim_memory: false,
            init_throttled: false,
            preemptible: false,
            counters: false,
            metering: true,
        };
        self.overrides.apply_with(&config.function_defaults, &mut Target::of_instance(&mut spec));
        spec.architecture = self.architecture(config);
        let is_alone =
            spec.architecture != Architecture::Polling || spec.sandbox != Sandbox::Process;
        if is_alone && spec.start_from.needs_polling() {
            // What the platform's configuration says for functions that poll, or are no containers.
            spec.start_from = StartFrom::Prepared;
        }
        spec
    }

    /// What its runtime calls.
    fn handler(&self) -> String {
        match (&self.configuration.image, self.code.image()) {
            (Some(used), Some(stored)) => used.overrides.handler_of(&stored.image.execution),
            _ => self.configuration.handler.clone(),
        }
    }

    /// The root that it brings, if it does.
    fn image_spec(&self) -> Option<ImageSpec> {
        let StoredImage { image, .. } = self.code.image()?;
        let overrides = self.configuration.image.as_ref().map(|image| &image.overrides)?;
        let variables = image.execution.env.iter().flatten();
        let variables = variables.filter_map(|variable| variable.split_once('='));
        Some(ImageSpec {
            layers: self.code.layers(),
            command: overrides.command_of(&image.execution),
            working_directory: overrides.working_directory_of(&image.execution),
            environment: variables
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        })
    }

    /// Whether publishing both would make the same version.
    pub(crate) fn same_version(&self, other: &Self) -> bool {
        // What is not a version's own: when and how it was described, and what all versions share.
        let shared = |configuration: &Configuration| Configuration {
            description: String::new(),
            modified_unix_ms: 0,
            revision: String::new(),
            reserved_concurrency: None,
            ..configuration.clone()
        };
        self.code.is_same(&other.code)
            && shared(&self.configuration) == shared(&other.configuration)
            && self.overrides == other.overrides
    }

    /// Whether instances of `other` can serve this one.
    pub(crate) fn same_instances(&self, other: &Self) -> bool {
        let (mine, theirs) = (&self.configuration, &other.configuration);
        self.overrides.same_instances(&other.overrides)
            && self.code.is_same(&other.code)
            && mine.runtime == theirs.runtime
            && mine.handler == theirs.handler
            && mine.image == theirs.image
            && mine.memory_mb == theirs.memory_mb
            && mine.ephemeral_mb == theirs.ephemeral_mb
            && mine.environment == theirs.environment
            && mine.layers == theirs.layers
    }
}
