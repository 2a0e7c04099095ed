//! Each marginal distribution of a trace is the one that its settings ask for.
//!
//! Bounds are those of five standard errors, or of a Kolmogorov-Smirnov test at the level 10^-6.

use std::collections::HashMap;

use uncia_arrivals::CountPlacement;
use uncia_bb::{
    Given, InputSize, NS_PER_MIN, Parallelism, Phase, Possible, Profile, Profiles, Qos, Quantiles,
    Settings, Sizes, Source, Trace, TraceError, Utilization,
};

const MIB: i64 = 1 << 20;

fn profile(name: &str, qos: Possible, mean: f64, max: u32) -> Profile {
    let at = |part: f64| Parallelism {
        mean: mean * part,
        max: (f64::from(max) * part).ceil().max(1.0) as u32,
    };
    let sizes = Sizes { small: at(0.5), medium: at(1.0), large: at(1.5) };
    Profile { name: name.to_owned(), qos, urgent: name == "get", phases: 5, sizes }
}

fn suite() -> Vec<Profile> {
    vec![
        profile("get", Possible::Interactive, 0.3, 1),
        profile("compile", Possible::Interactive, 2.2, 4),
        profile("query", Possible::Both, 7.4, 16),
        profile("svc", Possible::Batch, 12.0, 30),
    ]
}

fn functions(count: usize, per_minute: u32, minutes: u32) -> Vec<Given> {
    (0..count)
        .map(|index| Given {
            name: format!("f{index}"),
            counts: vec![per_minute; minutes as usize],
            durations: Quantiles::new(vec![(0.0, 1_000), (0.5, 2_000), (1.0, 9_000_001)]),
            memory: Quantiles::new(vec![(0.25, 100 * MIB), (0.75, 300 * MIB), (1.0, 400 * MIB)]),
        })
        .collect()
}

fn settings(functions: Vec<Given>) -> Settings {
    Settings {
        seed: 11,
        start_minute: 0,
        minutes: functions[0].counts.len() as u32,
        source: Source::Given(functions),
        profiles: Profiles::Given(suite()),
        size: InputSize::Medium,
        placement: CountPlacement::Uniform,
        utilization: None,
        batch_share: None,
        load: 1.0,
    }
}

/// An invocation with what it borrows from the trace.
struct Row {
    function: usize,
    scheduled: i64,
    phases: Vec<Phase>,
}

fn rows(trace: &Trace) -> Vec<Row> {
    let mut invocations = trace.invocations();
    let mut rows = Vec::new();
    while let Some(invocation) = invocations.advance() {
        assert_eq!(invocation.number, rows.len() as u64);
        let (function, scheduled) = (invocation.function, invocation.scheduled);
        rows.push(Row { function, scheduled, phases: invocation.phases.to_vec() });
    }
    rows
}

fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

fn assert_mean(values: &[f64], expected: f64, what: &str) {
    let (mean, error) = mean_and_error(values);
    assert!((mean - expected).abs() <= 5.0 * error + 1e-12, "{what}: {mean}, not {expected}");
}

/// The largest distance to a distribution, of which the jumps are where values repeat.
fn assert_distribution(mut values: Vec<f64>, expected: impl Fn(f64) -> f64, what: &str) {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let mut statistic: f64 = 0.0;
    for (index, value) in values.iter().enumerate() {
        // Of equal values, the last says how many are no greater.
        if values.get(index + 1) != Some(value) {
            statistic = statistic.max((expected(*value) - (index as f64 + 1.0) / n).abs());
        }
    }
    assert!(statistic < 2.7 / n.sqrt(), "{what}: {statistic}");
}

#[test]
fn invocations_are_in_order_and_as_many_as_counted() {
    for placement in
        [CountPlacement::Equidistant, CountPlacement::Uniform, CountPlacement::Exponential]
    {
        let mut given = functions(7, 0, 4);
        for (index, function) in given.iter_mut().enumerate() {
            function.counts = vec![index as u32, 0, 3, 2 * index as u32];
        }
        let trace = Trace::new(Settings { placement, ..settings(given.clone()) }).unwrap();
        let rows = rows(&trace);
        assert!(rows.is_sorted_by_key(|row| row.scheduled));
        let mut counts = vec![vec![0; 4]; 7];
        for row in &rows {
            counts[row.function][(row.scheduled / NS_PER_MIN) as usize] += 1;
        }
        assert!(given.iter().map(|function| &function.counts).eq(&counts), "{placement:?}");
    }
}

#[test]
fn times_within_the_minute_are_uniform() {
    let rows = rows(&Trace::new(settings(functions(20, 100, 3))).unwrap());
    let within = |row: &Row| (row.scheduled % NS_PER_MIN) as f64 / NS_PER_MIN as f64;
    assert_distribution(rows.iter().map(within).collect(), |x| x, "scheduled");
}

#[test]
fn durations_are_the_functions_and_phases_divide_them_equally() {
    let trace = Trace::new(settings(functions(4, 1_000, 2))).unwrap();
    let rows = rows(&trace);
    let quantiles = |x: f64| {
        if x < 2_000.0 {
            0.5 * (x - 999.0) / 1_000.0
        } else {
            0.5 + 0.5 * (x - 2_000.0) / 8_998_001.0
        }
    };
    let execution = |row: &Row| row.phases.iter().map(|it| it.duration).sum::<i64>();
    assert_distribution(
        rows.iter().map(|it| execution(it) as f64).collect(),
        quantiles,
        "execution",
    );
    for row in &rows {
        assert_eq!(row.phases.len(), 5);
        let part = execution(row) / 5;
        assert!(row.phases.iter().all(|phase| (part..=part + 1).contains(&phase.duration)));
    }
}

#[test]
fn durations_that_a_trace_rounds_to_zero_last_a_nanosecond_a_phase() {
    let mut given = functions(1, 50, 1);
    given[0].durations = Quantiles::new(vec![(0.0, 0), (1.0, 0)]);
    for row in rows(&Trace::new(settings(given)).unwrap()) {
        assert!(row.phases.iter().all(|phase| phase.duration == 1));
    }
}

#[test]
fn memory_of_a_phase_is_the_functions_and_independent() {
    let rows = rows(&Trace::new(settings(functions(4, 1_000, 1))).unwrap());
    let expected = |x: f64| {
        let mib = x / MIB as f64;
        if mib < 300.0 {
            0.25 + 0.5 * (mib - 100.0) / 200.0
        } else {
            0.75 + 0.25 * (mib - 300.0) / 100.0
        }
    };
    let memory = |phase: &Phase| phase.memory as f64;
    let all = rows.iter().flat_map(|row| row.phases.iter().map(memory)).collect();
    assert_distribution(all, expected, "memory");
    let pairs: Vec<(f64, f64)> =
        rows.iter().map(|row| (memory(&row.phases[0]), memory(&row.phases[1]))).collect();
    assert!(correlation(&pairs).abs() < 5.0 / (pairs.len() as f64).sqrt());
}

fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let n = pairs.len() as f64;
    let mean = |pick: fn(&(f64, f64)) -> f64| pairs.iter().map(pick).sum::<f64>() / n;
    let (a, b) = (mean(|it| it.0), mean(|it| it.1));
    let sum = |term: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(term).sum::<f64>();
    let covariance = sum(&|it| (it.0 - a) * (it.1 - b));
    covariance / (sum(&|it| (it.0 - a).powi(2)) * sum(&|it| (it.1 - b).powi(2))).sqrt()
}

#[test]
fn threads_have_the_mean_and_the_maximum_of_the_profile() {
    let trace = Trace::new(settings(functions(40, 300, 1))).unwrap();
    let mut means: HashMap<usize, Vec<f64>> = HashMap::new();
    let mut by_position: HashMap<(usize, usize), Vec<f64>> = HashMap::new();
    let mut seen_max: HashMap<usize, i64> = HashMap::new();
    for row in rows(&trace) {
        let function = &trace.functions()[row.function];
        let threads: Vec<i64> = row.phases.iter().map(|phase| phase.threads).collect();
        let sum: i64 = threads.iter().sum();
        let most = i64::from(function.parallelism.max);
        assert!(threads.iter().all(|it| (0..=most).contains(it)));
        let exact = function.parallelism.mean * 5.0;
        assert!(sum == exact.floor() as i64 || sum == exact.floor() as i64 + 1);
        means.entry(function.profile).or_default().push(sum as f64 / 5.0);
        for (position, count) in threads.iter().enumerate() {
            by_position.entry((function.profile, position)).or_default().push(*count as f64);
        }
        let seen = seen_max.entry(function.profile).or_default();
        *seen = (*seen).max(*threads.iter().max().unwrap());
    }
    assert_eq!(means.len(), 4, "every profile is drawn");
    for (index, profile) in suite().iter().enumerate() {
        assert_mean(&means[&index], profile.sizes.medium.mean, &profile.name);
        assert_eq!(seen_max[&index], i64::from(profile.sizes.medium.max));
        // No phase is favoured.
        for position in 0..5 {
            let what = format!("{} in phase {position}", profile.name);
            assert_mean(&by_position[&(index, position)], profile.sizes.medium.mean, &what);
        }
    }
}

#[test]
fn profiles_and_qualities_are_equally_likely() {
    const N: usize = 8_000;
    let trace = Trace::new(settings(functions(N, 1, 1))).unwrap();
    let share = |is: &dyn Fn(&uncia_bb::Function) -> bool| {
        trace.functions().iter().filter(|function| is(function)).count() as f64 / N as f64
    };
    let error = |p: f64| 5.0 * (p * (1.0 - p) / N as f64).sqrt();
    for index in 0..4 {
        assert!((share(&|it| it.profile == index) - 0.25).abs() < error(0.25));
    }
    // Interactive: two of four, and half of the one that may be both.
    assert!((share(&|it| it.qos == Qos::Interactive) - 0.625).abs() < error(0.625));
    let both = share(&|it| it.profile == 2 && it.qos == Qos::Batch);
    assert!((both - 0.125).abs() < error(0.125));
    for function in trace.functions() {
        let (profile, batch) = (&trace.profiles()[function.profile], function.qos == Qos::Batch);
        assert_ne!(profile.qos, if batch { Possible::Interactive } else { Possible::Batch });
    }
}

#[test]
fn sizes_are_as_asked_for_or_equally_likely() {
    const N: usize = 6_000;
    let of = |size| Trace::new(Settings { size, ..settings(functions(N, 1, 1)) }).unwrap();
    for size in [InputSize::Small, InputSize::Medium, InputSize::Large] {
        assert!(of(size).functions().iter().all(|function| function.size == size));
    }
    let mixed = of(InputSize::Mixed);
    for size in [InputSize::Small, InputSize::Medium, InputSize::Large] {
        let share = mixed.functions().iter().filter(|it| it.size == size).count() as f64 / N as f64;
        assert!((share - 1.0 / 3.0).abs() < 5.0 * (2.0 / 9.0 / N as f64).sqrt(), "{size:?}");
    }
    for function in mixed.functions() {
        let sizes = suite()[function.profile].sizes;
        let expected = match function.size {
            InputSize::Small => sizes.small,
            InputSize::Large => sizes.large,
            _ => sizes.medium,
        };
        assert_eq!(function.parallelism, expected);
    }
}

#[test]
fn knobs_follow_the_papers_rules() {
    let vcpu = 1_000_000;
    for (size, compile) in [(InputSize::Small, 2), (InputSize::Medium, 4), (InputSize::Large, 6)] {
        let trace = Trace::new(Settings { size, ..settings(functions(60, 1, 1)) }).unwrap();
        for function in trace.functions() {
            let knobs = function.knobs;
            assert_eq!(knobs.cpu, u64::from(function.parallelism.max) * vcpu);
            assert_eq!(knobs.memory, 400 * MIB as u64);
            assert_eq!(knobs.preemptible, function.qos == Qos::Batch);
            let spot = match (function.qos, trace.profiles()[function.profile].name.as_str()) {
                (Qos::Batch, _) => knobs.cpu,
                (Qos::Interactive, "get") => 0,
                // Large less medium; never more than there is.
                (Qos::Interactive, "compile") => 2 * vcpu,
                (Qos::Interactive, _) => 8 * vcpu,
            };
            assert_eq!(knobs.spot_cpu, spot);
            if function.profile == 1 {
                assert_eq!(knobs.cpu, compile * vcpu);
            }
        }
    }
}

#[test]
fn utilization_has_its_mean_over_functions_and_in_their_threads() {
    for mean in [0.1, 0.5, 0.9] {
        let utilization = Some(Utilization { mean, deviation: 0.1 });
        let settings = Settings { utilization, ..settings(functions(400, 20, 1)) };
        let trace = Trace::new(settings).unwrap();
        let asked: Vec<f64> = trace
            .functions()
            .iter()
            .map(|it| it.parallelism.mean / f64::from(it.parallelism.max))
            .collect();
        assert_mean(&asked, mean, "of functions");
        assert!(asked.iter().all(|part| (0.0..=1.0).contains(part)));
        let (_, error) = mean_and_error(&asked);
        assert!(error > 0.02 / 20.0, "functions differ");
        let mut used = vec![(0.0, 0.0); 400];
        for row in rows(&trace) {
            let most = f64::from(trace.functions()[row.function].parallelism.max);
            let sum: i64 = row.phases.iter().map(|phase| phase.threads).sum();
            used[row.function].0 += sum as f64 / 5.0 / most;
            used[row.function].1 += 1.0;
        }
        let off: Vec<f64> =
            used.iter().zip(&asked).map(|((sum, n), asked)| sum / n - asked).collect();
        assert_mean(&off, 0.0, "of threads");
    }
}

#[test]
fn the_batch_share_is_that_of_invocations() {
    let mut given = functions(500, 1, 2);
    for (index, function) in given.iter_mut().enumerate() {
        // Heavy-tailed, as functions are.
        function.counts = vec![(100_000.0 / (index as f64 + 2.0)) as u32, 1];
    }
    for share in [0.0, 0.1, 0.3, 0.6, 1.0] {
        for seed in 0..10 {
            let settings = Settings { seed, batch_share: Some(share), ..settings(given.clone()) };
            let trace = Trace::new(settings).unwrap();
            let total: u64 = trace.functions().iter().map(uncia_bb::Function::invocations).sum();
            let batch = trace.functions().iter().filter(|it| it.qos == Qos::Batch);
            let batch: u64 = batch.map(uncia_bb::Function::invocations).sum();
            let part = batch as f64 / total as f64;
            assert!((part - share).abs() < 0.001, "{share}: {part}");
        }
    }
}

#[test]
fn load_multiplies_the_counts() {
    for load in [0.25, 1.5, 3.0] {
        let trace = Trace::new(Settings { load, ..settings(functions(50, 7, 60)) }).unwrap();
        let counts: Vec<f64> = trace
            .functions()
            .iter()
            .flat_map(|it| it.counts.iter().map(|c| f64::from(*c)))
            .collect();
        assert_mean(&counts, 7.0 * load, "counts");
        let exact = 7.0 * load;
        assert!(counts.iter().all(|count| (count - exact).abs() < 1.0));
    }
}

#[test]
fn the_same_seed_is_the_same_trace_and_another_is_none() {
    let of = |seed| {
        let trace = Trace::new(Settings { seed, ..settings(functions(9, 20, 2)) }).unwrap();
        rows(&trace).into_iter().map(|row| (row.function, row.scheduled, row.phases)).collect()
    };
    let [once, again, other]: [Vec<_>; 3] = [of(1), of(1), of(2)];
    assert_eq!(once, again);
    assert_ne!(once, other);
}

/// Other functions, or fewer, leave those alone that stay.
#[test]
fn a_function_does_not_depend_on_others() {
    let of = |given: Vec<Given>| {
        let trace = Trace::new(settings(given)).unwrap();
        let name = |row: &Row| trace.functions()[row.function].name.clone();
        let rows = rows(&trace).into_iter().filter(|row| name(row) == "f3");
        rows.map(|row| (row.scheduled, row.phases)).collect::<Vec<_>>()
    };
    let all = functions(9, 20, 2);
    assert_eq!(of(all.clone()), of(all.into_iter().skip(3).take(2).collect()));
}

#[test]
fn what_cannot_be_is_a_sentence() {
    let error = |settings: Settings| Trace::new(settings).unwrap_err().to_string();
    let good = || settings(functions(3, 1, 2));
    assert_eq!(
        error(Settings { batch_share: Some(1.2), ..good() }),
        "batch_share is 1.2, and must be from 0 to 1"
    );
    let utilization = Some(Utilization { mean: 0.0, deviation: 0.1 });
    assert!(error(Settings { utilization, ..good() }).starts_with("utilization.mean is 0"));
    assert!(error(Settings { load: f64::NAN, ..good() }).starts_with("load is NaN"));
    assert!(error(Settings { minutes: 3, ..good() }).ends_with("has 2 counts for 3 minutes"));
    let mut twice = functions(2, 1, 1);
    twice[1].name = "f0".to_owned();
    assert_eq!(error(settings(twice)), "the function \"f0\" is there twice");
    let mut negative = functions(1, 1, 1);
    negative[0].durations = Quantiles::new(vec![(0.0, -5)]);
    assert_eq!(
        error(settings(negative)),
        "the durations of the function \"f0\": a value is below 0"
    );
    assert_eq!(Trace::new(settings(functions(2, 0, 2))).unwrap_err(), TraceError::NothingInvoked);
    let only_batch = Profiles::Given(vec![profile("svc", Possible::Batch, 2.0, 3)]);
    let mixed = Settings { profiles: only_batch, batch_share: Some(0.5), ..good() };
    assert_eq!(error(mixed), "no profile can be interactive, which a batch share of 0.5 needs");
}
