//! The simulator against queues of which the answer is known.

mod common;

use common::{MS, Rows, VCPU, busy, function, poisson, run, setting};
use uncia_policy::{FunctionSettings, Nanos};
use uncia_sim::Trace;

const LOADS: [f64; 3] = [0.5, 0.8, 0.95];
const SERVICE: f64 = 10.0 * MS as f64;

/// Long enough for means that say something, where they vary most, too.
fn requests(load: f64) -> usize {
    if load > 0.9 { 60_000 } else { 20_000 }
}

/// When each request ends, in the order of the trace.
fn ends(rows: &Rows) -> Vec<Nanos> {
    let mut ends = vec![0; rows.served.len()];
    for served in &rows.served {
        ends[served.invocation] = served.run.as_ref().expect("all are served").ended;
    }
    ends
}

/// A queue of one line and `servers` servers, first come, first served (Kiefer and Wolfowitz).
fn first_come(trace: &Trace, servers: usize) -> Vec<Nanos> {
    let mut free = vec![0; servers];
    let serve = |invocation: &uncia_sim::Invocation| {
        let next = free.iter_mut().min().expect("a server");
        *next = invocation.arrival.max(*next) + trace.phases(invocation)[0].duration;
        *next
    };
    trace.invocations.iter().map(serve).collect()
}

/// One server that works on all that are there at the same time, each getting the same share; in
/// floating point and without an event queue, so that nothing is shared with the simulator.
fn processor_sharing(trace: &Trace) -> Vec<f64> {
    let mut ends = vec![0.0; trace.invocations.len()];
    let mut there: Vec<(f64, usize)> = Vec::new();
    let mut now = 0.0;
    let mut work = |until: f64, there: &mut Vec<(f64, usize)>| {
        while let Some(least) = there.iter().map(|one| one.0).reduce(f64::min) {
            let end = now + least * there.len() as f64;
            if end > until {
                let done = (until - now) / there.len() as f64;
                for one in there.iter_mut() {
                    one.0 -= done;
                }
                break;
            }
            now = end;
            for one in there.iter_mut() {
                one.0 -= least;
            }
            there.retain(|one| {
                let goes = one.0 <= 1e-3;
                if goes {
                    ends[one.1] = end;
                }
                !goes
            });
        }
        now = until;
    };
    for (index, invocation) in trace.invocations.iter().enumerate() {
        work(invocation.arrival as f64, &mut there);
        there.push((trace.phases(invocation)[0].duration as f64, index));
    }
    work(f64::INFINITY, &mut there);
    ends
}

/// The mean time in the system over that of a service, and the standard error of it by the means of
/// 20 stretches of the trace.
fn mean_time(trace: &Trace, ends: &[Nanos]) -> (f64, f64) {
    const STRETCHES: usize = 20;
    let times: Vec<f64> = ends
        .iter()
        .zip(&trace.invocations)
        .map(|(end, invocation)| (end - invocation.arrival) as f64 / SERVICE)
        .collect();
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let all = mean(&times);
    let means = times.chunks_exact(times.len() / STRETCHES).map(mean);
    let squares: f64 = means.map(|one| (one - all) * (one - all)).sum();
    let stretches = STRETCHES as f64;
    (all, (squares / (stretches - 1.0) / stretches).sqrt())
}

/// Within four standard errors, and those small enough to mean something. Of so few requests the mean
/// says little where the load is high; what each of them does is compared exactly.
fn assert_agrees(what: &str, load: f64, (mean, error): (f64, f64), theory: f64) {
    assert!((mean - theory).abs() < 4.0 * error, "{what} at {load}: {mean} +- {error}, {theory}");
    assert!(error < 0.5 * theory, "{what} at {load}: {error} says little of {theory}");
}

/// The probability that a request waits in M/M/c (Erlang's C formula).
fn erlang_c(servers: u32, load: f64) -> f64 {
    let offered = load * f64::from(servers);
    // Erlang's B, by its recursion.
    let blocked = (1..=servers).fold(1.0, |b, n| offered * b / (f64::from(n) + offered * b));
    blocked / (1.0 - load * (1.0 - blocked))
}

fn exponential(stream: &mut uncia_arrivals::RandomStream) -> Nanos {
    (stream.exponential() * SERVICE) as Nanos + 1
}

#[test]
fn m_m_c_is_first_come_first_served_to_the_nanosecond() {
    for load in LOADS {
        for servers in [1, 8] {
            let gap = SERVICE / load / f64::from(servers);
            let trace = poisson(11, requests(load) / 2, gap, exponential);
            let setting = setting(&[(u64::from(servers), 1 << 30)], &[function(1, 1)]);
            let (_, rows) = run(&setting, &trace);
            let ends = ends(&rows);
            assert_eq!(ends, first_come(&trace, servers as usize), "M/M/{servers} at {load}");
            let theory = 1.0 + erlang_c(servers, load) / (f64::from(servers) * (1.0 - load));
            assert_agrees("M/M/c", load, mean_time(&trace, &ends), theory);
        }
    }
}

#[test]
fn m_d_1_is_as_pollaczek_and_khinchine_say() {
    for load in LOADS {
        let trace = poisson(12, requests(load), SERVICE / load, |_| SERVICE as Nanos);
        let (_, rows) = run(&setting(&[(1, 1 << 30)], &[function(1, 1)]), &trace);
        let ends = ends(&rows);
        assert_eq!(ends, first_come(&trace, 1));
        let theory = 1.0 + load / 2.0 / (1.0 - load);
        assert_agrees("M/D/1", load, mean_time(&trace, &ends), theory);
    }
}

/// Spot work on one core shares it equally: the time in the system depends on the mean of the
/// services alone.
#[test]
fn m_g_1_ps_depends_on_the_mean_service_alone() {
    let spot = FunctionSettings { spot_cpu: VCPU, ..function(1, 1) };
    let mut setting = setting(&[(1, 1 << 30)], &[spot]);
    setting.policies.admission = "leopard".into();
    // One in ten takes 5.5 times the mean, the others half of it.
    let uneven = |stream: &mut uncia_arrivals::RandomStream| {
        let factor = if stream.whole_below(10, 1) == 0 { 5.5 } else { 0.5 };
        (SERVICE * factor) as Nanos
    };
    for load in LOADS {
        let gap = SERVICE / load;
        for trace in [
            poisson(13, requests(load) / 2, gap, exponential),
            poisson(13, requests(load) / 2, gap, uneven),
        ] {
            let (_, rows) = run(&setting, &trace);
            let ends = ends(&rows);
            let known = processor_sharing(&trace);
            for (index, (end, known)) in ends.iter().zip(known).enumerate() {
                // Shares are whole micro-vCPU, so that of 30 some run faster by 3 parts in 100,000;
                // ends are whole nanoseconds, so that each takes a few from all that come after it.
                let time = *end as f64 - trace.invocations[index].arrival as f64;
                let rounding = 1_000.0 + 5.0 * index as f64 + 1e-4 * time;
                assert!((*end as f64 - known).abs() < rounding, "{index}: {end} {known}");
            }
            assert_agrees("M/G/1-PS", load, mean_time(&trace, &ends), 1.0 / (1.0 - load));
        }
    }
}

#[test]
fn a_machine_that_nobody_uses_ends_at_once() {
    let setting = setting(&[(1, 1)], &[function(1, 1)]);
    let (summary, rows) = run(&setting, &Trace::default());
    assert_eq!((summary.end, rows.served.len()), (0, 0));
    let mut trace = Trace::default();
    trace.push(0, 5, &[]);
    trace.push(0, 5, &[busy(0), busy(0)]);
    let (summary, rows) = run(&setting, &trace);
    assert_eq!((summary.end, summary.served, rows.served.len()), (5, 2, 2));
}
