use super::*;

fn parse(tag: &str, value: &str) -> Result<Overrides, String> {
    Overrides::parse(&BTreeMap::from([(tag.to_owned(), value.to_owned())]))
}

fn all() -> impl Iterator<Item = &'static Setting> {
    function::ALL.iter().chain(&platform::ALL).copied()
}

#[test]
fn every_setting_keeps_to_the_form() {
    for setting in all() {
        let name = setting.name;
        assert!(setting.description.ends_with('.'), "{name}: a description is a sentence");
        match setting.default {
            Default::Value(Value::Number(number)) => {
                assert_eq!(setting.kind.parse(&number.to_string()), Ok(Value::Number(number)));
            }
            Default::Value(Value::Flag(flag)) => {
                assert_eq!(setting.kind.parse(&flag.to_string()), Ok(Value::Flag(flag)));
            }
            Default::Value(Value::Word(word)) => {
                assert_eq!(setting.kind.parse(word), Ok(Value::Word(word)), "{name}");
            }
            Default::Value(Value::Services(reach)) => {
                assert_eq!(setting.kind.parse(""), Ok(Value::Services(reach)), "{name}");
            }
            Default::Value(Value::Cpus(cpus)) => {
                assert_eq!(setting.kind.parse(&cpus.to_string()), Ok(Value::Cpus(cpus)), "{name}");
            }
            Default::Derived(rule) => assert!(!rule.is_empty(), "{name}"),
        }
    }
    let names = |settings: &[&Setting]| settings.iter().map(|it| it.name).collect::<Vec<_>>();
    let (functions, platforms) = (names(&function::ALL), names(&platform::ALL));
    assert!(functions.is_sorted() && platforms.is_sorted(), "a file is named after its setting");
    assert!(function::ALL.iter().all(|it| matches!(it.scope, Scope::Function { .. })));
    assert!(platform::ALL.iter().all(|it| matches!(it.scope, Scope::Platform)));
    let mut keys: Vec<_> = all().filter_map(Setting::config_key).collect();
    let count = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), count, "two settings have one key");
}

#[test]
fn settings_come_from_tags() {
    let policy = |tag: &str, value: &str| {
        let mut settings = FunctionSettings::default();
        parse(tag, value).unwrap().apply(&mut Target::of_policy(&mut settings));
        settings
    };
    assert_eq!(policy("uncia:keep-alive-ms", "250").keep_alive, 250_000_000);
    assert_eq!(policy("uncia:keep-alive-ms", &u64::MAX.to_string()).keep_alive, u64::MAX);
    let scale_down = Some(uncia_policy::Pause::ScaleDown);
    assert_eq!(policy("uncia:keep-alive-cpu", "scale-down").pause, scale_down);
    assert_eq!(policy("uncia:keep_alive_cpu", "scale-down").pause, scale_down);
    assert_eq!(policy("uncia:max-instances", "9").max_in_flight, 9);
    assert_eq!(policy("uncia:min-instances", "2").min_instances, 2);
    assert_eq!(policy("uncia:cpu-micro", "500000").allocation.cpu, 500_000);
    assert_eq!(policy("uncia:qos", "batch").qos, uncia_policy::Qos::Batch);
    assert_eq!(parse("team", "blue").unwrap(), Overrides::default());
}

#[test]
fn wrong_settings_are_sentences() {
    for (tag, value, word) in [
        ("uncia:keep-alive", "1", "uncia:keep-alive-ms"),
        ("uncia:keep-alive-ms", "1s", "whole number"),
        ("uncia:keep-alive-ms", "-1", "whole number"),
        ("uncia:period-us", "5", "between 1000 and 1000000"),
        ("uncia:network", "internet", "none, platform or host"),
        ("uncia:cpu-micro", "0", "at least 1"),
        ("uncia:enforcement", "some", "event-driven"),
        ("uncia:keep_alive_cpu", "stop", "scale-down"),
        ("uncia:init-throttled", "yes", "true or false"),
    ] {
        let message = parse(tag, value).unwrap_err();
        assert!(message.contains(word) && message.contains(tag), "{message}");
    }
    let message = parse("uncia:nonsense", "blue").unwrap_err();
    let known = "No setting has the tag uncia:nonsense; those that have one: ";
    assert!(message.starts_with(known) && message.contains(" uncia:qos,"), "{message}");
    assert!(!message.contains("blue"), "{message}");
}

#[test]
fn a_function_s_tag_goes_before_the_platform_s_default_and_that_before_the_setting_s() {
    let keep_alive = |text: &str, tags: Overrides| {
        let mut settings = FunctionSettings::default();
        let defaults = Config::parse(text).unwrap().function_defaults;
        tags.apply_with(&defaults, &mut Target::of_policy(&mut settings));
        settings.keep_alive / NS_PER_MS
    };
    let platform = r#"{"keep_alive_ms": 7}"#;
    assert_eq!(keep_alive("{}", Overrides::default()), 300_000);
    assert_eq!(keep_alive(platform, Overrides::default()), 7);
    assert_eq!(keep_alive(platform, parse("uncia:keep-alive-ms", "3").unwrap()), 3);
}

#[test]
fn what_an_instance_starts_with_cannot_change_under_it() {
    let same =
        |tag: &str, value: &str| parse(tag, value).unwrap().same_instances(&Overrides::default());
    assert!(same("uncia:keep-alive-ms", "1") && same("uncia:max-instances", "1"));
    assert!(!same("uncia:network", "host") && !same("uncia:cpu-micro", "1"));
    assert!(!same("uncia:spot-cpu-micro", "1"));
}

#[test]
fn rows_hold_what_the_function_sets() {
    let row = |tags: &[(&str, &str)]| {
        let tags = tags.iter().map(|(tag, value)| ((*tag).to_owned(), (*value).to_owned()));
        let mut row = Invocation { allocated_cpu: Some(1_000_000), ..Invocation::default() };
        Overrides::parse(&tags.collect()).unwrap().apply(&mut Target::of_row(&mut row));
        (row.reserved_cpu, row.spot_cpu, row.preemptible, row.qos)
    };
    assert_eq!(row(&[]), (None, None, None, None));
    assert_eq!(
        row(&[("uncia:spot-cpu-micro", "300000"), ("uncia:preemptible", "false")]),
        (Some(700_000), Some(300_000), Some(false), None)
    );
    let (reserved, spot, _, qos) =
        row(&[("uncia:spot-cpu-micro", "3000000"), ("uncia:qos", "batch")]);
    assert_eq!((reserved, spot, qos.as_deref()), (Some(0), Some(1_000_000), Some("batch")));
}

/// A row says what held for its instance when that was started.
#[test]
fn what_is_in_rows_replaces_instances() {
    for setting in function::ALL {
        let value = match &setting.kind {
            Kind::Number { range, .. } => Value::Number(*range.start()),
            Kind::Flag(_) => Value::Flag(true),
            Kind::Choice(choices) => Value::Word(choices[0].0),
            Kind::Services(_) => Value::Services(Reach(1)),
            Kind::Cpus(_) => setting.kind.parse("0").unwrap(),
        };
        let before = Invocation { allocated_cpu: Some(1), ..Invocation::default() };
        let mut row = before.clone();
        setting.kind.set(&mut Target::of_row(&mut row), value);
        let is_in_rows = format!("{row:?}") != format!("{before:?}");
        assert!(!is_in_rows || setting.replaces_instances(), "{}", setting.name);
    }
}

#[test]
fn the_copies_for_python_are_current() {
    for (copy, current, name) in [
        (
            include_str!("../../../../python/uncia/settings/settings.json"),
            settings_json(),
            "settings",
        ),
        (
            include_str!("../../../../python/uncia/settings/policies.json"),
            policies_json(),
            "policies",
        ),
        (
            include_str!("../../../../python/uncia/settings/runtimes.json"),
            runtimes_json(),
            "runtimes",
        ),
    ] {
        assert!(copy == current, "{name}.json is not current; run: make settings");
    }
}

#[test]
fn what_instances_share_fits_the_runtime() {
    let refusal = |value: &str, runtime: &str| {
        let runtime = Runtime::named(runtime).unwrap();
        parse("uncia:share-state", value).unwrap().refusal(runtime, Architecture::Polling)
    };
    for (value, runtime) in [
        ("none", "python"),
        ("classes", "java"),
        ("code", "node"),
        ("warm", "java"),
        ("warm", "ruby"),
        ("warm", "provided"),
    ] {
        assert_eq!(refusal(value, runtime), None, "{value} {runtime}");
    }
    let sentence = refusal("classes", "python").unwrap();
    assert!(sentence.ends_with("a function in python: it can for one in java."), "{sentence}");
    assert!(refusal("code", "java").is_some() && refusal("warm", "node").is_some());
    let profile = parse("uncia:share-state", "profile").unwrap();
    let refusal_of = |version| profile.refusal_of_version(Runtime::named("java").unwrap(), version);
    assert_eq!(refusal("profile", "java").or(refusal_of("25.0.1")), None);
    // The setting's description, which clients in other languages have, names the same version.
    let sentence = refusal_of("17.0.17").unwrap();
    let (_, rest) = sentence.split_once("it takes ").unwrap();
    let (oldest, _) = rest.split_once(',').unwrap();
    let setting =
        function::ALL.iter().find(|it| it.description.contains("how often its methods ran"));
    let described = setting.unwrap().description;
    assert!(described.contains(&format!("how often its methods ran ({oldest})")), "{oldest}");
    let server = parse("uncia:share-state", "classes").unwrap();
    let java = Runtime::named("java").unwrap();
    assert!(server.refusal(java, Architecture::Http).unwrap().contains("does not poll"));
}
