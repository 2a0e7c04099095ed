//! What a runtime finds in its environment.

use std::collections::BTreeMap;

use super::rootfs::{CERTIFICATES, LAYERS, TASK};
use super::wire::Extension;
use crate::instance::{Architecture, InstanceSpec, Network, Services};

/// Where a runtime finds its API, inside its own network.
pub(super) const RUNTIME_API_PORT: u16 = 9001;

/// Where a function with [`Network::Platform`] finds Invoke.
pub(super) const CHAIN_PORT: u16 = 9002;

/// What all have that no function changes. The C library and interpreters obey some of it when they
/// start.
pub(super) const COMMON: [(&str, &str); 4] = [
    ("PATH", "/var/lang/bin:/usr/local/bin:/usr/bin:/bin:/opt/bin"),
    // The root's own libraries first: they are asked for most.
    ("LD_LIBRARY_PATH", "/var/lang/lib:/lib64:/var/task:/var/task/lib:/opt/lib"),
    // Lambda says en_US; a root has no locale but the one that the C library has built in.
    ("LANG", "C.UTF-8"),
    ("TZ", ":UTC"),
];

/// Where an image's programs are unless it says otherwise: as Docker has it.
const IMAGE_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The region of an ARN that names none.
const DEFAULT_REGION: &str = "us-east-1";

pub(super) const BYTES_PER_MIB: u64 = 1024 * 1024;

/// The environment of an instance: Lambda's variables, the function's, and then those of Lambda's that
/// a function cannot change.
pub(super) fn build(
    spec: &InstanceSpec,
    version: &str,
    runtime_api: &str,
    services: &Services,
) -> BTreeMap<String, String> {
    let region = spec.function_arn.split(':').nth(3).filter(|it| !it.is_empty());
    let region = region.unwrap_or(DEFAULT_REGION);
    let mut environment = BTreeMap::new();
    let mut set = |name: &str, value: &str| {
        environment.insert(name.to_owned(), value.to_owned());
    };

    match &spec.image {
        None => COMMON.iter().for_each(|(name, value)| set(name, value)),
        Some(image) => {
            set("PATH", IMAGE_PATH);
            image.environment.iter().for_each(|(name, value)| set(name, value));
        }
    }
    // Clients want credentials to sign with; nobody checks them here.
    set("AWS_ACCESS_KEY_ID", "uncia");
    set("AWS_SECRET_ACCESS_KEY", "uncia");
    set("AWS_SESSION_TOKEN", "uncia");
    // An image has its own certificates, wherever they are.
    if spec.network == Network::Host && spec.image.is_none() {
        set("SSL_CERT_FILE", CERTIFICATES);
    }
    services.environment(spec.reach).for_each(|(name, value)| set(&name, &value));
    let libraries = spec.runtime.definition().library_paths(version);
    if let Some((name, value)) = libraries.filter(|_| spec.layers.is_some()) {
        set(name, &value);
    }

    for (name, value) in &spec.environment {
        set(name, value);
    }

    // Versions share the name of their function.
    let name = spec.function.split_once(':').map_or(&*spec.function, |(name, _)| name);
    set("_HANDLER", &spec.handler);
    set("LAMBDA_TASK_ROOT", TASK);
    set("LAMBDA_RUNTIME_DIR", "/var/runtime");
    set("AWS_REGION", region);
    set("AWS_DEFAULT_REGION", region);
    if spec.image.is_none() {
        set("AWS_EXECUTION_ENV", &spec.runtime.definition().execution_environment(version));
    }
    set("AWS_LAMBDA_RUNTIME_API", runtime_api);
    set("AWS_LAMBDA_FUNCTION_NAME", name);
    set("AWS_LAMBDA_FUNCTION_VERSION", &spec.version);
    set("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", &(spec.memory_bytes / BYTES_PER_MIB).to_string());
    // A client that finds this makes its connection anew once it is restored.
    let initialization = if spec.restorable { "snap-start" } else { "on-demand" };
    set("AWS_LAMBDA_INITIALIZATION_TYPE", initialization);
    set("AWS_LAMBDA_LOG_GROUP_NAME", &format!("/aws/lambda/{name}"));
    set("AWS_LAMBDA_LOG_STREAM_NAME", &format!("[{}]{}", spec.version, spec.id));
    if spec.records && !spec.restorable {
        // Gone before the function could see it.
        set("_UNCIA_RECORDS", spec.share_state.name());
    }
    if spec.network == Network::Platform {
        set("AWS_ENDPOINT_URL_LAMBDA", &format!("http://127.0.0.1:{CHAIN_PORT}"));
    }
    if spec.architecture == Architecture::Http {
        // What Cloud Run sets, beside PORT, which is known when the instance has its network.
        let names = ["K_SERVICE", "K_CONFIGURATION", "K_REVISION"];
        environment.extend(names.map(|name| (name.to_owned(), spec.function.clone())));
        environment.remove("AWS_LAMBDA_RUNTIME_API");
    }
    environment
}

/// The environment of a function's code: its own variables, and those that say which function it is.
pub(super) fn of_code(spec: &InstanceSpec) -> BTreeMap<String, String> {
    const KEPT: [&str; 6] = [
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_EXECUTION_ENV",
        "AWS_LAMBDA_FUNCTION_NAME",
        "AWS_LAMBDA_FUNCTION_VERSION",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    ];
    let mut environment = build(spec, "", "", &Services::default());
    let variables = &spec.environment;
    environment.retain(|name, _| variables.contains_key(name) || KEPT.contains(&&**name));
    environment
}

/// Variables of the runtime's that extensions do not have, as on Lambda.
const HIDDEN_FROM_EXTENSIONS: [&str; 7] = [
    "_HANDLER",
    "AWS_EXECUTION_ENV",
    "AWS_LAMBDA_EXEC_WRAPPER",
    "AWS_LAMBDA_LOG_GROUP_NAME",
    "AWS_LAMBDA_LOG_STREAM_NAME",
    "LAMBDA_RUNTIME_DIR",
    "LAMBDA_TASK_ROOT",
];

/// The programs that run beside an instance's runtime. A server asks for no events, and has none.
pub(super) fn extensions(spec: &InstanceSpec) -> Vec<Extension> {
    let extension = |name: &String| Extension {
        name: name.clone(),
        path: format!("{LAYERS}/extensions/{name}").into(),
        hidden: HIDDEN_FROM_EXTENSIONS.map(str::to_owned).into(),
    };
    let names = spec.extensions.iter().filter(|_| spec.architecture == Architecture::Polling);
    names.map(extension).collect()
}

#[cfg(test)]
pub(in crate::sandbox) mod tests {
    use super::*;
    use crate::instance::Runtime;

    pub(in crate::sandbox) fn spec(runtime: &str, environment: &[(&str, &str)]) -> InstanceSpec {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        InstanceSpec {
            function_arn: "arn:aws:lambda:eu-west-1:000000000000:function:hello".into(),
            version: "$LATEST".into(),
            environment: environment.iter().map(owned).collect(),
            network: Network::Platform,
            ..InstanceSpec::new(
                "abc".into(),
                "hello",
                Runtime::named(runtime).unwrap(),
                "handler.handler",
                "/code".into(),
            )
        }
    }

    #[test]
    fn a_function_adds_but_does_not_pretend() {
        let spec = spec("python", &[("LEVEL", "3"), ("_HANDLER", "x"), ("TZ", "CET")]);
        let environment = build(&spec, "3.11.7", "127.0.0.1:9001", &Services::default());
        assert_eq!(environment["LEVEL"], "3");
        assert_eq!(environment["TZ"], "CET");
        assert_eq!(environment["_HANDLER"], "handler.handler");
        assert_eq!(environment["AWS_REGION"], "eu-west-1");
        assert_eq!(environment["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"], "256");
        assert_eq!(environment["AWS_EXECUTION_ENV"], "AWS_Lambda_python3.11");
        assert_eq!(environment["AWS_ENDPOINT_URL_LAMBDA"], "http://127.0.0.1:9002");
        assert!(!environment.contains_key("HOME"));
    }

    #[test]
    fn an_images_variables_are_overridden_by_the_functions_and_lambdas() {
        let image = crate::instance::ImageSpec {
            layers: Vec::new(),
            command: vec!["/bin/x".into()],
            working_directory: "/".into(),
            environment: [("PATH", "/x"), ("LEVEL", "1"), ("TZ", "CET"), ("AWS_REGION", "moon")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        };
        let image = Some(std::sync::Arc::new(image));
        let spec = InstanceSpec { image, ..spec("provided", &[("LEVEL", "3")]) };
        let environment = build(&spec, "provided", "127.0.0.1:9001", &Services::default());
        let value = |name: &str| environment.get(name).map(String::as_str);
        assert_eq!(
            (value("PATH"), value("LEVEL"), value("TZ")),
            (Some("/x"), Some("3"), Some("CET"))
        );
        assert_eq!((value("AWS_REGION"), value("LD_LIBRARY_PATH")), (Some("eu-west-1"), None));
        assert_eq!(value("AWS_LAMBDA_RUNTIME_API"), Some("127.0.0.1:9001"));
    }

    #[test]
    fn nodes_heap_fits_its_memory_unless_the_function_says_otherwise() {
        let arguments = |options: &[(&str, &str)]| {
            let spec = spec("node", options);
            spec.runtime.definition().arguments(&spec)
        };
        assert_eq!(arguments(&[])[0], "--max-old-space-size=230");
        let command = arguments(&[("NODE_OPTIONS", "--max-old-space-size=100")]);
        assert_eq!(command, ["/var/runtime/bootstrap.js"]);
        assert_eq!(
            build(&spec("node", &[]), "20.1.0", "", &Services::default())["AWS_EXECUTION_ENV"],
            "AWS_Lambda_nodejs20.x"
        );
    }
}
