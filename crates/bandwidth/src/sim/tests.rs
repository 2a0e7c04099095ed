use proptest::prelude::*;

use super::*;
use crate::{Control, closed_form};

const MS: u64 = 1_000_000;

fn probe(period: u64, quota: u64, seconds: u64) -> Setting {
    let duration_ns = seconds * 1000 * MS;
    let work = Work::Probe { duration_ns, threshold_ns: 500_000, threads: 1 };
    Setting::new(period, Some(quota), work)
}

fn tasks(period: u64, quota: u64, cpu: u64, runs: u64) -> Setting {
    let work = Work::Task {
        cpu_ns: vec![cpu],
        gap_ns: None,
        sleeps_ns: vec![],
        sleeps_in_turn: false,
        before_ns: vec![],
        fresh: true,
        threshold_ns: 0,
    };
    Setting { runs, ..Setting::new(period, Some(quota), work) }
}

fn seen(setting: &Setting) -> Vec<Seen> {
    simulate(setting, 7).unwrap().seen
}

fn gaps(seen: &[Seen]) -> Vec<i64> {
    seen.iter().flat_map(|seen| &seen.gaps).map(|(from, to)| to - from).collect()
}

#[test]
fn the_smallest_lambda_runs_for_4_ms_and_waits_for_36_or_56() {
    // Section 4.2 of the cost paper: 1.45 ms in 20 ms at 250 Hz.
    let found = gaps(&seen(&probe(20 * MS, 1_447_000, 10)));
    let count = |ms: i64| found.iter().filter(|&&gap| gap == ms * 1_000_000).count();
    let (short, long) = (count(36), count(56));
    assert!(short + long >= found.len() - 1, "{found:?}");
    // In the long run 4 ms in 4 / 1.447 periods: 2 periods for short ones, 3 for long ones.
    let periods = (2 * short + 3 * long) as f64 / (short + long) as f64;
    assert!((periods - 4.0 / 1.447).abs() < 0.02, "{periods}");
}

#[test]
fn with_ticks_as_fine_as_time_it_is_the_closed_form() {
    // A tick every 100 us and slices of 1 us leave at most a tick of overrun.
    for cpu in [3, 10, 17, 35] {
        let mut setting = tasks(20 * MS, 6 * MS, cpu * MS, 400);
        setting.hz = 10_000;
        setting.slice_ns = 1_000;
        let seen = seen(&setting);
        let mean = seen.iter().map(|one| (one.end - one.start) as f64).sum::<f64>() / 400.0;
        let (sum, phases) =
            closed_form::mean_duration(Control::new(20 * MS, 6 * MS).unwrap(), cpu * MS);
        let exact = sum as f64 / phases as f64;
        assert!((mean - exact).abs() < 0.7e6, "{cpu} ms: {mean} against {exact}");
    }
}

#[test]
fn the_kernels_that_throttle_threads_let_them_finish_in_the_kernel() {
    let work = |step| Work::Pattern {
        duration_ns: 2_000 * MS,
        threads: vec![vec![step, Step::RunNs(1_000_000)]],
        threshold_ns: 500_000,
    };
    let longest = |throttling, step| {
        let setting = Setting { throttling, ..Setting::new(100 * MS, Some(5 * MS), work(step)) };
        let seen = seen(&setting);
        let gaps: Vec<_> = seen[0].gaps.clone();
        gaps.windows(2).map(|pair| pair[1].0 - pair[0].1).max().unwrap()
    };
    let long = 30 * MS;
    let kernel = Step::KernelNs(long);
    assert!(longest(Throttling::Task, kernel) >= 30_000_000);
    assert!(longest(Throttling::Group, kernel) <= 12_000_000);
    assert!(longest(Throttling::Task, Step::RunNs(long)) <= 12_000_000);
}

#[test]
fn two_threads_on_two_cpus_use_up_the_quota_twice_as_fast() {
    let mut setting = probe(100 * MS, 50 * MS, 4);
    setting.cpus = 2;
    setting.work = Work::Probe { duration_ns: 4_000 * MS, threshold_ns: 500_000, threads: 2 };
    let seen = seen(&setting);
    assert_eq!(seen.len(), 2);
    let used: i64 = seen.iter().map(|one| one.cpu).sum();
    assert!((1_950_000_000..2_100_000_000).contains(&used), "{used}");
    let run = gaps(&seen).iter().filter(|&&gap| (68_000_000..80_000_000).contains(&gap)).count();
    assert!(run > 60, "each runs for about 25 ms of 100: {run}");
}

#[test]
fn neighbours_take_their_share_and_the_threads_of_a_group_share_theirs() {
    for scheduler in [Class::Cfs, Class::Eevdf] {
        let busy = vec![Step::RunNs(1_000 * MS)];
        let setting = Setting {
            scheduler,
            neighbours: vec![busy],
            ..Setting::new(
                100 * MS,
                None,
                Work::Probe { duration_ns: 4_000 * MS, threshold_ns: 500_000, threads: 2 },
            )
        };
        let seen = seen(&setting);
        for one in &seen {
            assert!((900_000_000..1_120_000_000).contains(&one.cpu), "{scheduler:?} {}", one.cpu);
        }
    }
}

#[test]
fn an_idle_cpu_takes_a_thread_that_waits() {
    let setting = Setting {
        cpus: 2,
        ..Setting::new(
            100 * MS,
            None,
            Work::Pattern {
                duration_ns: 1_000 * MS,
                threads: vec![
                    vec![Step::SleepNs(100 * MS), Step::RunNs(400 * MS)],
                    vec![Step::RunNs(10 * MS)],
                    vec![Step::RunNs(10 * MS)],
                ],
                threshold_ns: 500_000,
            },
        )
    };
    let used: i64 = seen(&setting).iter().map(|one| one.cpu).sum();
    assert!(used > 1_990_000_000, "both CPUs are busy all the time: {used}");
}

#[test]
fn an_io_bound_thread_is_throttled_less() {
    let pattern = |sleep| {
        let steps = vec![Step::RunNs(MS), Step::SleepNs(sleep)];
        let work =
            Work::Pattern { duration_ns: 10_000 * MS, threads: vec![steps], threshold_ns: 500_000 };
        seen(&Setting::new(20 * MS, Some(5 * MS), work))[0].throttled_periods
    };
    assert_eq!(pattern(10 * MS), 0, "1 ms of 11 is below the quota");
    assert!(pattern(MS) > 300);
}

#[test]
fn burst_lets_a_task_go_on() {
    let setting = Setting { burst_ns: 10 * MS, ..tasks(20 * MS, 10 * MS, 19 * MS, 50) };
    let mean =
        |setting: &Setting| seen(setting).iter().map(|one| one.end - one.start).sum::<i64>() / 50;
    // A new group begins with its quota alone, as in the kernel: its first refill adds the burst.
    assert!(mean(&setting) <= mean(&tasks(20 * MS, 10 * MS, 19 * MS, 50)));
    let same = Work::Task {
        cpu_ns: vec![19 * MS],
        gap_ns: None,
        sleeps_ns: vec![],
        sleeps_in_turn: false,
        before_ns: vec![],
        fresh: false,
        threshold_ns: 0,
    };
    let reused = Setting { work: same, ..setting };
    assert!(mean(&reused) < 21_000_000, "{}", mean(&reused));
}

#[test]
fn what_is_used_before_a_task_is_missing_to_it() {
    // 6 ms of 8 are gone in 100: of 3 ms of work after that, 1 to 2 wait for the next period.
    let setting = |before_ns| Setting {
        runs: 200,
        hz: 10_000,
        slice_ns: 1_000,
        ..Setting::new(
            100 * MS,
            Some(8 * MS),
            Work::Task {
                cpu_ns: vec![3 * MS],
                gap_ns: None,
                sleeps_ns: vec![350 * MS, 333 * MS, 317 * MS],
                sleeps_in_turn: false,
                before_ns,
                fresh: true,
                threshold_ns: 0,
            },
        )
    };
    let waited = |seen: &[Seen]| seen.iter().filter(|one| one.end - one.start > 4_000_000).count();
    let (without, with) = (seen(&setting(vec![])), seen(&setting(vec![6 * MS])));
    assert!(with.iter().all(|one| one.cpu == 3_000_000), "what comes before is not counted");
    assert!(waited(&without) < 10 && waited(&with) > 150, "{} {}", waited(&without), waited(&with));
}

fn any_setting() -> impl Strategy<Value = Setting> {
    let kernel = (
        prop::sample::select(vec![Class::Cfs, Class::Eevdf]),
        prop::sample::select(vec![Throttling::Group, Throttling::Task]),
        prop::sample::select(vec![Timer::Absolute, Timer::Random]),
        prop::sample::select(vec![100, 250, 300, 1000]),
        1_usize..4,
    );
    let step = prop_oneof![
        (1_u64..20_000_000).prop_map(Step::RunNs),
        (1_u64..20_000_000).prop_map(Step::KernelNs),
        (1_u64..20_000_000).prop_map(Step::SleepNs),
    ];
    let threads = prop::collection::vec(prop::collection::vec(step, 1..4), 1..5);
    let neighbours = prop::collection::vec(
        prop::collection::vec((1_u64..9_000_000).prop_map(Step::RunNs), 1..2),
        0..2,
    );
    (kernel, threads, neighbours, 1_u64..100, 1_u64..100, 0_u64..100).prop_map(
        |(kernel, threads, neighbours, period, share, burst)| {
            let (scheduler, throttling, timer, hz, cpus) = kernel;
            let period = period * MS;
            let quota = (period * share / 50).max(1_000);
            let work = Work::Pattern { duration_ns: 300 * MS, threads, threshold_ns: 0 };
            Setting {
                scheduler,
                throttling,
                timer,
                hz,
                cpus,
                neighbours,
                burst_ns: quota * burst / 100,
                ..Setting::new(period, Some(quota), work)
            }
        },
    )
}

/// Threads that never enter the kernel, where task-based throttling cannot stop them.
fn in_user_mode(mut setting: Setting) -> Setting {
    if let Work::Pattern { threads, .. } = &mut setting.work {
        for step in threads.iter_mut().flatten() {
            if let Step::KernelNs(time) = *step {
                *step = Step::RunNs(time);
            }
        }
    }
    setting
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_nanosecond_of_a_thread_is_run_waited_or_slept(setting in any_setting(), seed: u64) {
        let outcome = simulate(&setting, seed).unwrap();
        let Work::Pattern { threads, duration_ns, .. } = &setting.work else { unreachable!() };
        prop_assert_eq!(outcome.seen.len(), threads.len());
        for (steps, one) in threads.iter().zip(&outcome.seen) {
            let waited: i64 = one.gaps.iter().map(|(from, to)| to - from).sum();
            let wall = one.end - one.start;
            prop_assert!(wall >= signed(*duration_ns));
            prop_assert!(one.gaps.iter().all(|(from, to)| from < to && *to <= one.end));
            prop_assert!(one.gaps.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            prop_assert!(one.cpu + waited <= wall);
            if steps.iter().all(|step| !matches!(step, Step::SleepNs(_))) {
                prop_assert_eq!(one.cpu + waited, wall);
            }
        }
    }

    #[test]
    fn nobody_gets_more_than_the_quota_and_a_bounded_overrun(setting in any_setting(), seed: u64) {
        let setting = in_user_mode(setting);
        let outcome = simulate(&setting, seed).unwrap();
        let used: i64 = outcome.seen.iter().map(|one| one.cpu).sum();
        let begun = outcome.seen.iter().map(|one| one.start).min().unwrap();
        let ended = outcome.seen.iter().map(|one| one.end).max().unwrap();
        let periods = (ended - begun) / signed(setting.period_ns) + 2;
        let quota = signed(setting.quota_ns.unwrap());
        let overrun = setting.cpus as i64 * (signed(setting.tick()) + 1_000_000);
        prop_assert!(
            used <= periods * quota + signed(setting.burst_ns) + overrun,
            "{} in {} periods of {}", used, periods, quota
        );
    }

    #[test]
    fn the_same_seed_is_the_same_outcome(setting in any_setting(), seed: u64) {
        prop_assert_eq!(simulate(&setting, seed).unwrap(), simulate(&setting, seed).unwrap());
    }
}
