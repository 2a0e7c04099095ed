//! Tests of one thread alone on its CPU, whose tasks a plain loop can follow.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const SLICE: i64 = 5_000_000;

/// What a task of one thread takes under bandwidth control, from refill to refill and tick to tick,
/// if its CPU has `own` of an earlier slice and the pool is full.
fn plain(period: i64, tick: i64, quota: i64, start: i64, mut own: i64, mut work: i64) -> i64 {
    let (mut now, mut pool, mut uncharged) = (start, quota, 0);
    if own <= 0 {
        own = quota.min(SLICE);
        pool -= own;
    }
    loop {
        let refill = (now / period + 1) * period;
        let next_tick = (now / tick + 1) * tick;
        let event = refill.min(next_tick);
        if work <= event - now {
            return now + work - start;
        }
        work -= event - now;
        uncharged += event - now;
        now = event;
        if now == refill {
            pool = quota;
        }
        if now != next_tick {
            continue;
        }
        own -= uncharged;
        uncharged = 0;
        if own <= 0 {
            let taken = pool.min(SLICE - own);
            pool -= taken;
            own += taken;
        }
        while own <= 0 {
            now = (now / period + 1) * period;
            let paid = quota.min(1 - own);
            pool = quota - paid;
            own += paid;
        }
    }
}

/// Independent tasks that begin at these times; no idle time before them.
fn tasks(period: u64, hz: u32, quota: u64, starts: &[u64], cpu: &[u64], before: &[u64]) -> Setting {
    let work = Work::Task {
        cpu_ns: cpu.to_vec(),
        gap_ns: Some([0, 0]),
        sleeps_ns: vec![],
        sleeps_in_turn: false,
        before_ns: before.to_vec(),
        fresh: true,
        threshold_ns: 0,
    };
    Setting {
        hz,
        runs: starts.len() as u64,
        starts_ns: starts.to_vec(),
        ..Setting::new(period, Some(quota), work)
    }
}

fn durations(setting: &Setting) -> Vec<i64> {
    simulate(setting, 1).unwrap().seen.iter().map(|one| one.end - one.start).collect()
}

/// A period and a tick rate, a quota, and tasks: beginnings, CPU times before them, and their own.
type Drawn = ((u64, u32), u64, Vec<(u64, u64, u64)>);

/// Times are often on the grids.
fn any_tasks() -> impl Strategy<Value = Drawn> {
    let times = |most: u64| prop_oneof![0..most, (0..most / MS).prop_map(|ms| ms * MS)];
    let kernel = prop::sample::select(vec![(20 * MS, 250), (100 * MS, 1000), (10 * MS, 250)]);
    let one = (times(400 * MS), times(9 * MS), times(60 * MS));
    (kernel, 0..18 * MS, prop::collection::vec(one, 1..12)).prop_map(|(kernel, quota, drawn)| {
        // A quota below the period, on the grid of ticks now and then.
        let quota = if quota % 3 == 0 { quota / MS * MS } else { quota };
        (kernel, (quota / 2).max(MS / 2), drawn)
    })
}

proptest! {
    #[test]
    fn a_task_is_followed_from_event_to_event(
        (kernel, quota, drawn) in any_tasks(), has in prop::sample::select(vec![0, 1, 700_000, MS])
    ) {
        let (period, hz) = kernel;
        let starts: Vec<_> = drawn.iter().map(|one| one.0).collect();
        let before: Vec<_> = drawn.iter().map(|one| one.1).collect();
        let cpu: Vec<_> = drawn.iter().map(|one| one.2 + 1).collect();
        let setting =
            Setting { remaining_ns: has, ..tasks(period, hz, quota, &starts, &cpu, &before) };
        let tick = signed(setting.tick());
        let exact = |start: u64, work: u64| {
            plain(signed(period), tick, signed(quota), signed(start), signed(has), signed(work))
        };
        // A task that begins where one of another kind ends, on the same CPU, goes on as if it was
        // one: the kernel sees no difference.
        let expected: Vec<_> = drawn
            .iter()
            .map(|&(start, first, cpu)| {
                let until = if first > 0 { exact(start, first) } else { 0 };
                exact(start, first + cpu + 1) - until
            })
            .collect();
        prop_assert_eq!(durations(&setting), expected);
    }

    #[test]
    fn where_nothing_is_kept_a_task_finds_what_debts_leave(
        (kernel, quota, drawn) in any_tasks(), first in 0..400 * MS
    ) {
        // Sleeps long enough for every debt to be paid and for the pool to be full.
        let (period, hz) = kernel;
        let cpu: Vec<_> = drawn.iter().map(|one| one.2 + 1).collect();
        let mut chain = tasks(period, hz, quota, &[first], &cpu, &[]);
        chain.runs = drawn.len() as u64;
        (chain.kept_ns, chain.remaining_ns) = (1, 1);
        if let Work::Task { sleeps_ns, sleeps_in_turn, fresh, .. } = &mut chain.work {
            *sleeps_ns = drawn.iter().map(|one| 12 * period + one.0).collect();
            (*sleeps_in_turn, *fresh) = (true, false);
        }
        let seen = simulate(&chain, 1).unwrap().seen;
        let starts: Vec<_> = seen.iter().map(|one| one.start.unsigned_abs()).collect();
        let mut alone = tasks(period, hz, quota, &starts, &cpu, &[]);
        alone.remaining_ns = 1;
        let took: Vec<_> = seen.iter().map(|one| one.end - one.start).collect();
        prop_assert_eq!(took, durations(&alone));
        // The sleeps are those that were given, in their order.
        let mut end = signed(first);
        for (one, (extra, ..)) in seen.iter().zip(&drawn) {
            prop_assert_eq!(one.start - end, signed(12 * period + extra));
            end = one.end;
        }
    }
}

#[test]
fn a_cpu_keeps_a_millisecond_of_its_slice() {
    // 0.3 ms of a slice of 5 are used; 1 ms is kept beside the quota, which is then full again.
    let (quota, need) = (6 * MS, [300_000, 40 * MS]);
    let mut chain = tasks(20 * MS, 1000, quota, &[3 * MS], &need, &[]);
    chain.runs = 2;
    if let Work::Task { sleeps_ns, fresh, .. } = &mut chain.work {
        (*sleeps_ns, *fresh) = (vec![100 * MS + 200_000], false);
    }
    let seen = simulate(&chain, 1).unwrap().seen;
    let start = seen[1].start.unsigned_abs();
    let with = |has| {
        let one = tasks(20 * MS, 1000, quota, &[start], &need[1..], &[]);
        durations(&Setting { remaining_ns: has, ..one })[0]
    };
    assert_eq!(seen[1].end - seen[1].start, with(MS));
    assert_ne!(with(MS), with(1));
    chain.kept_ns = 1;
    let seen = simulate(&chain, 1).unwrap().seen;
    assert_eq!(seen[1].end - seen[1].start, with(1));
}

#[test]
fn runs_begin_where_they_are_told_to_in_turn() {
    let work = Work::Probe { duration_ns: 500 * MS, threshold_ns: 0, threads: 1 };
    let starts = [7 * MS + 3, 1_700_000_000_000 * MS];
    let setting = Setting {
        runs: 3,
        starts_ns: starts.to_vec(),
        wake_delay_ns: 30_000,
        ..Setting::new(20 * MS, Some(5 * MS), work)
    };
    let seen = simulate(&setting, 1).unwrap().seen;
    let begun: Vec<_> = seen.iter().map(|one| one.start).collect();
    assert_eq!(begun, [starts[0], starts[1], starts[0]].map(signed));
    assert_eq!(seen[0].gaps, seen[2].gaps);
    // Throttles begin at ticks, and end at refills but for the delay.
    for (from, to) in &seen[1].gaps[1..] {
        assert_eq!((from % 4_000_000, to % 20_000_000), (0, 30_000));
    }
}

#[test]
fn a_step_that_leads_to_another_is_not_charged() {
    let gaps = |steps| {
        let work = Work::Pattern { duration_ns: 900 * MS, threads: vec![steps], threshold_ns: 0 };
        let setting = Setting { starts_ns: vec![0], ..Setting::new(20 * MS, Some(3 * MS), work) };
        simulate(&setting, 1).unwrap().seen[0].gaps.clone()
    };
    let whole = gaps(vec![Step::RunNs(70 * MS)]);
    assert!(whole.len() > 20);
    assert_eq!(gaps(vec![Step::RunNs(700_000), Step::KernelNs(300_000)]), whole);
}
