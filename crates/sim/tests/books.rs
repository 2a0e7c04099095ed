//! Whatever is simulated, the books balance to the last unit (`common::run` checks), and the same seed
//! gives the same rows.

mod common;

use common::{MS, Rows, SECOND, VCPU, busy, function, run, setting};
use proptest::prelude::*;
use uncia_policy::{FunctionSettings, Hint, Nanos, Policies, Qos, Resources, StopReason, sharing};
use uncia_sim::{Failed, Failure, Gone, Outcome, Phase, Setting, SettingError, Trace, simulate};

const MEMORY: u64 = 100;

/// The paper's batch function: nothing is reserved for it.
fn batch(cores: u64, memory: u64) -> FunctionSettings {
    FunctionSettings {
        spot_cpu: cores * VCPU,
        preemptible: true,
        qos: Qos::Batch,
        ..function(cores, memory)
    }
}

fn leopard(setting: &mut Setting) {
    setting.policies.admission = "leopard".into();
    setting.policies.placement = "leopard".into();
    setting.policies.eviction = "least-lost-revenue".into();
    setting.policies.order = "shortest-job-first".into();
}

/// Leopard, Figure 4, in time: four CPUs; F1 has cpu-cap 4 and one spot core, F2 has cpu-cap 3 and
/// two. F1 runs one thread until 20 ms and four from then on, F2 one until 10 ms and then three.
#[test]
fn the_worked_example_of_the_paper() {
    let f1 = FunctionSettings { spot_cpu: VCPU, ..function(4, 10) };
    let f2 = FunctionSettings { spot_cpu: 2 * VCPU, ..function(3, 10) };
    let mut setting = setting(&[(4, MEMORY)], &[f1, f2]);
    leopard(&mut setting);
    let phase = |threads: u64, duration| Phase { duration, cpu: threads * VCPU, memory: 10 };
    let mut trace = Trace::default();
    trace.push(0, 0, &[phase(1, 20 * MS), phase(4, 85 * MS / 4)]);
    trace.push(1, 0, &[phase(1, 10 * MS), phase(3, 15 * MS)]);
    let (summary, rows) = run(&setting, &trace);
    let meter = |invocation| {
        let served = rows.served.iter().find(|it| it.invocation == invocation).unwrap();
        (served.run.clone().unwrap().ended, served.run.as_ref().unwrap().meter)
    };
    let ms = |cores: u64, time: u64| u128::from(cores * VCPU) * u128::from(time * MS);
    let (f2_end, f2) = meter(1);
    // 45 ms of CPU: 30 on three cores by 20 ms, and the other 15 on its own core.
    assert_eq!(f2_end, 35 * MS);
    assert_eq!(f2.cpu_borrowed, ms(2, 10));
    assert_eq!((f2.cpu_lent, f2.memory_lent), (0, 0));
    let (f1_end, f1) = meter(0);
    // 85 ms of CPU from 20 ms on: 45 on three cores by 35 ms, the rest on four.
    assert_eq!(f1_end, 45 * MS);
    assert_eq!(f1.cpu_lent, ms(2, 10), "what F2 borrowed, all of F1's");
    assert_eq!((f1.cpu_own, f1.cpu_borrowed), (ms(1, 20) + ms(3, 25), ms(1, 10)));
    assert_eq!(summary.totals.cpu_borrowed, f1.cpu_borrowed + f2.cpu_borrowed);
}

/// Reserved memory is needed: first an idle instance goes, then the preemptible one that loses least,
/// and its request runs again.
#[test]
fn memory_that_is_needed_is_taken_from_preemptible_work() {
    let functions = [function(1, 60), batch(1, 30), batch(1, 20)];
    let mut setting = setting(&[(4, MEMORY)], &functions);
    leopard(&mut setting);
    let hold = |memory, duration| Phase { duration, cpu: VCPU, memory };
    let mut trace = Trace::default();
    // Idle from 1 ms on, with 20 bytes.
    trace.push(2, 0, &[hold(20, MS)]);
    trace.push(1, 2 * MS, &[hold(30, 100 * MS)]);
    trace.push(1, 3 * MS, &[hold(30, 100 * MS)]);
    // It needs 20 bytes at 4 ms, 60 from 14 ms on.
    trace.push(0, 4 * MS, &[hold(20, 10 * MS), hold(60, 10 * MS)]);
    let (summary, rows) = run(&setting, &trace);
    assert_eq!((summary.preempted, summary.served), (1, 4));
    let attempts: Vec<_> = rows
        .served
        .iter()
        .map(|it| (it.invocation, it.attempt, it.outcome, it.run.as_ref().unwrap().ended / MS))
        .collect();
    let expected = [
        (0, 1, Outcome::Ok, 1),
        // The one that began last has least to lose.
        (2, 1, Outcome::Preempted, 14),
        (3, 1, Outcome::Ok, 24),
        (1, 1, Outcome::Ok, 102),
        (2, 2, Outcome::Ok, 124),
    ];
    assert_eq!(attempts, expected);
    let gone: Vec<_> = rows.lives.iter().filter_map(|life| life.ended).collect();
    let expected = [
        (14 * MS, Gone::Stopped(StopReason::Evicted)),
        (14 * MS, Gone::Stopped(StopReason::Preempted)),
        // What the interactive function holds, idle, when the preempted request runs again.
        (24 * MS, Gone::Stopped(StopReason::Evicted)),
    ];
    assert_eq!(gone, expected);
}

#[test]
fn a_start_takes_its_time_and_is_kept_for_the_next() {
    let mut setting = setting(&[(1, MEMORY)], &[function(1, 10)]);
    setting.starts = vec![150 * MS];
    setting.interval = Some(100 * MS);
    let mut trace = Trace::default();
    trace.push(0, 0, &[busy(10 * MS)]);
    trace.push(0, SECOND, &[busy(10 * MS)]);
    let (_, rows) = run(&setting, &trace);
    let run = |n: usize| rows.served[n].run.clone().unwrap();
    assert_eq!((run(0).initialization, run(0).ended), (Some(150 * MS), 160 * MS));
    assert_eq!((run(1).initialization, run(1).started), (None, SECOND));
    assert_eq!(rows.lives[0].idle, [(160 * MS, SECOND)]);
    // 1,010 ms are ten whole intervals and a tenth of one.
    assert_eq!(rows.intervals.len(), 11);
}

/// Both workers have one: the second, started for a hint, is kept ready once the first is gone.
#[test]
fn what_is_kept_ready_is_no_more_on_the_account_of_hints() {
    let known =
        FunctionSettings { min_instances: 1, hint_instances: 2, keep_alive: 0, ..function(1, 10) };
    let mut setting = setting(&[(1, 10), (1, 10)], &[known]);
    setting.policies.retention = "hints".into();
    setting.failures = vec![Failure { worker: 0, at: 400 * MS, lasts: SECOND }];
    let mut trace = Trace::default();
    trace.push(0, 0, &[busy(10 * MS)]);
    trace.push(0, 100 * MS, &[busy(10 * MS)]);
    trace.push(0, 10 * SECOND, &[busy(10 * MS)]);
    trace.hints.insert(1, Hint { after: 100 * MS, within: Some(60 * SECOND), count: 2 });
    let (summary, rows) = run(&setting, &trace);
    assert_eq!((summary.starts, summary.hints_taken), (2, 1));
    let times: Vec<_> = rows.lives.iter().map(|life| (life.worker, life.hint_idle)).collect();
    assert_eq!(times, [(0, 0), (1, 300 * MS)]);
}

/// A phase that is longer than a worker ever works.
#[test]
fn a_request_that_is_always_cut_short_is_a_sentence() {
    let mut setting = setting(&[(1, MEMORY)], &[function(1, 10)]);
    setting.random_failures = Some((10 * MS, MS));
    let mut trace = Trace::default();
    trace.push(0, 0, &[busy(3_600 * SECOND)]);
    let error = simulate(&setting, &trace, &mut Rows::default()).expect_err("it never ends");
    assert!(matches!(error, Failed::NeverEnds { request: 0, attempts: 10_000, .. }), "{error}");
    assert!(error.to_string().contains("of the function f0"), "{error}");
}

/// What waits for a worker that is gone for longer than all patience is served when it is back.
#[test]
fn a_long_outage_is_no_standstill() {
    const DAY: Nanos = 24 * 3_600 * SECOND;
    let mut setting = setting(&[(1, MEMORY)], &[function(1, 10)]);
    setting.interval = Some(3_600 * SECOND);
    setting.failures = vec![Failure { worker: 0, at: SECOND, lasts: 3 * DAY }];
    let mut trace = Trace::default();
    trace.push(0, 0, &[busy(2 * SECOND)]);
    trace.push(0, SECOND, &[busy(SECOND)]);
    let (summary, _) = run(&setting, &trace);
    assert_eq!((summary.served, summary.lost), (2, 1));
    assert_eq!(summary.end, 3 * DAY + 4 * SECOND);
}

/// Whether the policies know of a request yet is nothing to what was asked.
#[test]
fn what_is_on_its_way_at_the_end_was_offered() {
    let mut setting = setting(&[(1, MEMORY)], &[function(1, 10)]);
    setting.latency = 5 * MS;
    setting.until = Some(100 * MS);
    let mut trace = Trace::default();
    trace.push(0, 0, &[busy(10 * MS)]);
    trace.push(0, 98 * MS, &[busy(20 * MS), busy(10 * MS)]);
    trace.push(0, 101 * MS, &[busy(40 * MS)]);
    let (summary, _) = run(&setting, &trace);
    assert_eq!((summary.arrived, summary.unfinished), (2, 1));
    assert_eq!(summary.cpu_offered, u128::from(VCPU) * u128::from(40 * MS));
}

#[test]
fn what_cannot_be_simulated_is_a_sentence() {
    let simple = setting(&[(1, MEMORY)], &[function(1, 10)]);
    let refused = |change: &dyn Fn(&mut Setting, &mut Trace)| {
        let (mut setting, mut trace) = (simple.clone(), Trace::default());
        trace.push(0, 5, &[busy(1)]);
        change(&mut setting, &mut trace);
        simulate(&setting, &trace, &mut Rows::default()).expect_err("it is refused").to_string()
    };
    let error = refused(&|setting, _| setting.sharing = "lottery".into());
    assert!(error.contains("lottery") && error.contains("resv-cpuset"), "{error}");
    let error = refused(&|setting, _| setting.functions[0].settings.allocation.cpu = 2 * VCPU);
    assert!(error.contains("no worker has as much"), "{error}");
    let error = refused(&|setting, _| {
        setting.sharing = "pinned".into();
        setting.functions[0].settings.spot_cpu = VCPU;
    });
    assert!(error.contains("never runs"), "{error}");
    let error = refused(&|_, trace| trace.push(0, 4, &[]));
    assert_eq!(error, "invocation 1: arrives before the one before it");
    let error = refused(&|_, trace| trace.push(3, 5, &[]));
    assert_eq!(error, "invocation 1: function 3, and there are 1");
    let error = refused(&|_, trace| trace.push(0, 5, &[Phase { memory: 11, ..busy(1) }]));
    assert_eq!(error, "invocation 1: holds 11 bytes, and its function f0 may hold 10 bytes");
    let long = Phase { duration: u64::MAX / 2, ..busy(1) };
    let error = refused(&|_, trace| trace.push(0, 5, &[long, long]));
    assert!(error.contains("292 years"), "{error}");
    let error = refused(&|setting, _| setting.workers[0].memory = u64::MAX);
    assert!(error.starts_with("workers[0]: has more than"), "{error}");
    let error = refused(&|setting, _| {
        setting.failures.push(Failure { worker: 1, at: 0, lasts: 1 });
    });
    assert_eq!(error, "failures[0]: there is no worker 1");
    let error = refused(&|setting, _| setting.random_failures = Some((0, 1)));
    assert!(error.contains("longer than 0 ns"), "{error}");
    let error = refused(&|setting, _| setting.workers.clear());
    assert_eq!(error, "there is no worker");
}

#[test]
fn a_simulation_that_ends_early_says_what_is_unfinished() {
    let mut setting = setting(&[(1, MEMORY)], &[function(1, 10)]);
    setting.until = Some(15 * MS);
    let mut trace = Trace::default();
    trace.push(0, 0, &[busy(10 * MS)]);
    trace.push(0, MS, &[busy(10 * MS)]);
    let (summary, rows) = run(&setting, &trace);
    assert_eq!((summary.end, summary.served, summary.unfinished), (15 * MS, 1, 1));
    assert_eq!(summary.totals.cpu_own, u128::from(VCPU * 15 * MS));
    assert_eq!((rows.served.len(), rows.lives.len()), (1, 1));
}

/// Functions of all kinds: cores, spot cores, memory, preemptible or not, interactive or batch.
fn functions() -> impl Strategy<Value = Vec<FunctionSettings>> {
    let one = (1..5_u64, 0..=2_u64, 1..=MEMORY, any::<bool>(), any::<bool>(), 0..40_u64);
    prop::collection::vec(one, 1..5).prop_map(|kinds| {
        let function = |(cores, spot, memory, preemptible, batch, keep)| FunctionSettings {
            spot_cpu: cores * spot * VCPU / 2,
            preemptible,
            qos: if batch { Qos::Batch } else { Qos::Interactive },
            keep_alive: keep * MS,
            ..function(cores, memory)
        };
        kinds.into_iter().map(function).collect()
    })
}

/// Arrivals of these functions within a tenth of a second, with phases that their memory allows.
fn trace(functions: &[FunctionSettings]) -> impl Strategy<Value = Trace> + use<> {
    let functions = functions.to_vec();
    let phase = (0..20 * MS, 0..6 * VCPU, 0..=100_u64);
    let one = (any::<prop::sample::Index>(), 0..100 * MS, prop::collection::vec(phase, 0..5));
    prop::collection::vec(one, 1..40).prop_map(move |mut requests| {
        requests.sort_by_key(|(_, arrival, _)| *arrival);
        let mut trace = Trace::default();
        for (function, arrival, phases) in requests {
            let function = function.index(functions.len());
            let most = functions[function].allocation.memory;
            let phase = |(duration, cpu, percent)| Phase {
                duration,
                // A thread in three runs; others sleep.
                cpu: if cpu % 3 == 0 { 0 } else { cpu },
                memory: most * percent / 100,
            };
            trace.push(function, arrival, &phases.into_iter().map(phase).collect::<Vec<_>>());
        }
        trace
    })
}

fn case() -> impl Strategy<Value = (Setting, Trace)> {
    let rule = prop::sample::select(sharing::names());
    let policies = prop::collection::vec(any::<prop::sample::Index>(), Policies::choices().len());
    let workers = prop::collection::vec(4..9_u64, 1..4);
    let starts = prop::collection::vec(0..30 * MS, 1..3);
    (functions(), rule, policies, workers, starts, 1..50 * MS).prop_flat_map(
        |(functions, rule, policies, workers, starts, interval): (_, _, _, Vec<u64>, _, Nanos)| {
            let workers: Vec<_> = workers.into_iter().map(|cores| (cores, MEMORY)).collect();
            let mut setting = setting(&workers, &functions);
            for (choice, index) in Policies::choices().into_iter().zip(policies) {
                let policy = choice.policies[index.index(choice.policies.len())];
                *setting.policies.get_mut(choice.name).unwrap() = policy.to_owned();
            }
            if rule == "pinned" {
                setting.functions.iter_mut().for_each(|it| it.settings.spot_cpu = 0);
            }
            (setting.sharing, setting.starts) = (rule.to_owned(), starts);
            setting.interval = Some(interval);
            if interval % 3 == 0 {
                // Now and then a worker fails, for about as long.
                setting.random_failures = Some((40 * MS, 2 * interval));
                setting.latency = interval / 10;
            }
            (Just(setting), trace(&functions))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_books_balance_under_all_policies((setting, trace) in case(), part in 0.0..1.0) {
        let first = run(&setting, &trace);
        prop_assert!(run(&setting, &trace) == first, "the same seed gives the same rows");
        prop_assert_eq!(first.0.unfinished, 0);
        // And wherever it is broken off.
        let until = Some((first.0.end as f64 * part) as Nanos);
        run(&Setting { until, ..setting }, &trace);
        // Memory never runs out on any worker at any time: `simulate` fails if it does.
    }
}

/// A phase of two days is no reason to give up, while workers give account every hour.
#[test]
fn what_runs_for_days_is_not_stuck() {
    let mut setting = setting(&[(1, MEMORY)], &[function(1, 10)]);
    setting.interval = Some(3_600 * SECOND);
    let day = 24 * 3_600 * SECOND;
    let mut trace = Trace::default();
    trace.push(0, 0, &[busy(2 * day)]);
    trace.push(0, 0, &[busy(2 * day)]);
    let (summary, _) = run(&setting, &trace);
    assert_eq!((summary.served, summary.end), (2, 4 * day));
}

/// What would take longer than time can be counted is an error, not an endless loop.
#[test]
fn what_never_ends_is_an_error() {
    let mut slow = function(1, 10);
    slow.allocation.cpu = 1;
    let mut setting = setting(&[(1, MEMORY)], &[slow]);
    let mut trace = Trace::default();
    trace.push(0, 0, &[Phase { duration: 200 * 24 * 3_600 * SECOND, cpu: VCPU, memory: 1 }]);
    setting.interval = Some(3_600 * 24 * 365 * SECOND);
    let error = simulate(&setting, &trace, &mut Rows::default());
    assert!(
        matches!(error, Err(Failed::Endless { requests: 1 } | Failed::Stuck { .. })),
        "{error:?}"
    );
}

/// Batch work that no small worker can hold runs on the large one, however little it reserves.
#[test]
fn preemptible_work_goes_where_its_memory_fits() {
    let mut setting = setting(&[(4, 50), (4, MEMORY)], &[batch(1, 80)]);
    leopard(&mut setting);
    let hold = |memory| Phase { duration: 10 * MS, cpu: VCPU, memory };
    let mut trace = Trace::default();
    // A past of little memory, so that much is not expected.
    for at in 0..20 {
        trace.push(0, at * SECOND, &[hold(1)]);
    }
    for at in 20..40 {
        trace.push(0, at * SECOND, &[hold(1), hold(80)]);
    }
    let (summary, rows) = run(&setting, &trace);
    assert_eq!((summary.served, summary.preempted), (40, 0));
    assert!(rows.served.iter().all(|served| served.run.as_ref().unwrap().worker == 1));
}

/// A worker fails with what it serves, which begins again on the other, or once it is back.
#[test]
fn what_a_failed_worker_served_begins_again() {
    let mut setting = setting(&[(1, MEMORY), (1, MEMORY)], &[function(1, 10)]);
    setting.failures = vec![
        Failure { worker: 0, at: 5 * MS, lasts: 100 * MS },
        Failure { worker: 1, at: 15 * MS, lasts: 10 * MS },
        // It is gone already, for as long as that was to last.
        Failure { worker: 0, at: 50 * MS, lasts: SECOND },
    ];
    let mut trace = Trace::default();
    trace.push(0, 0, &[busy(10 * MS)]);
    let (summary, rows) = run(&setting, &trace);
    let attempts: Vec<_> = rows
        .served
        .iter()
        .map(|it| (it.attempt, it.outcome, it.arrived, it.run.as_ref().unwrap()))
        .map(|(attempt, outcome, since, run)| (attempt, outcome, since, run.worker, run.ended))
        .collect();
    let expected = [
        (1, Outcome::Lost, 0, 0, 5 * MS),
        // The other worker takes it at once, and fails as it ends: what was planned first comes first.
        (2, Outcome::Lost, 5 * MS, 1, 15 * MS),
        (3, Outcome::Ok, 15 * MS, 1, 35 * MS),
    ];
    assert_eq!(attempts, expected);
    assert_eq!((summary.lost, summary.failures), (2, 2));
    let gone: Vec<_> = rows.lives.iter().map(|life| life.ended).collect();
    let failed = |at| Some((at, Gone::WorkerFailed));
    assert_eq!(gone, [failed(5 * MS), failed(15 * MS), None]);
    // One worker was there for 5 ms, the other for all but 10.
    assert_eq!(summary.totals.cpu_capacity, u128::from(VCPU * (5 + 25) * MS));
}

/// Each request takes its time until the policies know of it.
#[test]
fn the_control_plane_takes_its_time() {
    let mut setting = setting(&[(1, MEMORY)], &[function(1, 10)]);
    setting.latency = 3 * MS;
    let mut trace = Trace::default();
    trace.push(0, 0, &[busy(10 * MS)]);
    trace.push(0, MS, &[busy(10 * MS)]);
    let (_, rows) = run(&setting, &trace);
    let times: Vec<_> = rows
        .served
        .iter()
        .map(|it| (it.arrived, it.run.as_ref().unwrap().started, it.run.as_ref().unwrap().ended))
        .collect();
    assert_eq!(times, [(0, 3 * MS, 13 * MS), (MS, 13 * MS, 23 * MS)]);
    setting.until = Some(2 * MS);
    let (summary, _) = run(&setting, &trace);
    assert_eq!(
        (summary.arrived, summary.unfinished, summary.in_system),
        (2, 2, u128::from(3 * MS))
    );
}

#[test]
fn errors_are_told_apart() {
    let empty = setting(&[(1, 1)], &[]);
    let error = simulate(&empty, &Trace::default(), &mut Rows::default());
    assert!(matches!(error, Err(Failed::Setting(SettingError::NoFunction))));
    let none = Resources { cpu: 0, memory: 1 };
    let mut broken = setting(&[(1, 1)], &[function(1, 1)]);
    broken.workers[0] = none;
    let error = simulate(&broken, &Trace::default(), &mut Rows::default());
    assert!(matches!(error, Err(Failed::Setting(SettingError::EmptyWorker(0)))));
}
