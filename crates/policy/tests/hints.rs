//! What hints have kept and started, in virtual time.

mod driver;

use driver::{Doing, Driver, Instance};
use proptest::prelude::*;
use uncia_policy::{
    Decision, End, FunctionId, FunctionSettings, Hint, HintAnswer, InstanceId, Nanos, Parameters,
    PolicyNames, Resources, StopReason,
};

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;
const START: Nanos = 300 * MS;
const WORK: Nanos = 20 * MS;

fn hints() -> PolicyNames {
    PolicyNames { retention: "hints".into(), ..PolicyNames::default() }
}

fn driver(names: &PolicyNames, room: u32, budget: u32, keep_alive: Nanos) -> Driver {
    let mut driver = Driver::with_parameters(names, Parameters::default(), 1);
    driver.join(0, Resources::UNBOUNDED, room);
    let settings =
        FunctionSettings { keep_alive, hint_instances: budget, ..FunctionSettings::default() };
    for function in 0..3 {
        driver.configure(function, settings);
    }
    driver
}

fn hint(after: Nanos, count: u32) -> Hint {
    Hint { after, within: Some(50 * MS), count }
}

/// Starts take [`START`], requests [`WORK`] and ends no time; what is due by `until` happens.
fn run(driver: &mut Driver, due: &mut Vec<(Nanos, InstanceId)>, until: Nanos) {
    loop {
        for (id, instance) in &driver.instances {
            let takes = match instance.doing {
                Doing::Starting => START,
                Doing::Running if !instance.serving.is_empty() => WORK,
                Doing::Stopping => 0,
                _ => continue,
            };
            if due.iter().all(|(_, known)| known != id) {
                due.push((driver.now + takes, *id));
            }
        }
        due.sort_unstable();
        let wake = driver.wakes().unwrap_or(Nanos::MAX);
        match due.first().copied() {
            Some((at, id)) if at <= until && at <= wake => {
                due.remove(0);
                driver.pass(at.saturating_sub(driver.now));
                match driver.instances.get(&id).map(|instance| instance.doing) {
                    Some(Doing::Starting) => driver.ready(id),
                    Some(Doing::Running) if driver.instances[&id].is_active() => {
                        driver.end(id, 0, End::Survives);
                    }
                    Some(Doing::Stopping) => driver.gone(id),
                    _ => {}
                }
            }
            _ if wake <= until => driver.pass(wake.saturating_sub(driver.now).max(1)),
            _ => break,
        }
    }
    driver.pass(until - driver.now);
}

#[test]
fn what_is_said_to_come_finds_an_instance_that_is_there_for_a_moment() {
    let mut driver = driver(&hints(), 10, 4, 0);
    let mut due = Vec::new();
    driver.arrive(0, false);
    assert_eq!(driver.hint(0, hint(10 * SECOND, 3)), HintAnswer::Taken(3));
    run(&mut driver, &mut due, 2 * SECOND);
    assert_eq!((driver.instances.len(), driver.started), (0, 1), "nothing is kept until then");
    run(&mut driver, &mut due, 10 * SECOND - MS);
    assert_eq!(driver.nths(Instance::is_idle).len(), 3);
    run(&mut driver, &mut due, 10 * SECOND);
    for _ in 0..3 {
        driver.arrive(0, false);
    }
    assert_eq!(driver.nths(Instance::is_active).len(), 3, "at once");
    run(&mut driver, &mut due, 11 * SECOND);
    assert_eq!((driver.instances.len(), driver.started), (0, 4));
}

#[test]
fn an_instance_is_kept_where_stopping_it_would_take_as_long() {
    let mut driver = driver(&hints(), 10, 1, 50 * MS);
    let mut due = Vec::new();
    driver.arrive(0, false);
    let mut at = START + 2 * WORK;
    run(&mut driver, &mut due, at);
    for _ in 0..5 {
        driver.arrive(0, false);
        driver.hint(0, hint(250 * MS, 1));
        at += 250 * MS;
        run(&mut driver, &mut due, at);
    }
    assert_eq!(driver.started, 1);
    assert!(driver.log.iter().any(|decision| matches!(decision, Decision::Hold { .. })));
}

#[test]
fn nothing_is_started_where_what_serves_is_done_by_then() {
    let mut driver = driver(&hints(), 10, 4, 50 * MS);
    let mut due = Vec::new();
    driver.arrive(0, false);
    let mut at = START + 2 * WORK;
    run(&mut driver, &mut due, at);
    for _ in 0..20 {
        driver.arrive(0, false);
        // It is open at once, while the only instance serves.
        driver.hint(0, hint(100 * MS, 1));
        at += 100 * MS;
        run(&mut driver, &mut due, at);
    }
    assert_eq!(driver.started, 1);
}

#[test]
fn lies_cost_the_budget_and_no_more() {
    let mut driver = driver(&hints(), 100, 2, 0);
    let mut due = Vec::new();
    assert_eq!(driver.hint(0, hint(0, 1_000_000)), HintAnswer::Taken(2));
    for _ in 0..50 {
        driver.hint(0, hint(SECOND, 7));
    }
    run(&mut driver, &mut due, SECOND);
    assert_eq!(driver.nths(|_| true).len(), 2);
    run(&mut driver, &mut due, 5 * SECOND);
    assert_eq!(driver.instances.len(), 0, "they end with the last of the hints");
}

#[test]
fn whoever_wakes_late_starts_no_more_than_the_budget() {
    let mut driver = driver(&hints(), 100, 2, 0);
    driver.clock = 10 * SECOND;
    for nth in 0..4 {
        driver.hint(nth % 2, hint((2 + nth) * SECOND, 2));
    }
    assert_eq!(driver.started, 0);
    driver.pass(10 * SECOND);
    assert_eq!(driver.started, 0, "all of them are over");
    driver.clock = 5 * SECOND;
    for nth in 0..4 {
        // Until 15.05 s and later.
        driver.hint(nth % 2, hint(5 * SECOND + nth * 10 * MS, 2));
    }
    driver.pass(5 * SECOND);
    // The driver has checked the budget.
    assert_eq!(driver.started, 4, "two of each function");
}

#[test]
fn what_is_kept_ready_is_no_more_on_the_account_of_hints() {
    let mut driver = driver(&hints(), 10, 2, 0);
    let mut due = Vec::new();
    let long = Hint { after: 0, within: Some(60 * SECOND), count: 2 };
    driver.hint(0, long);
    run(&mut driver, &mut due, SECOND);
    assert_eq!(driver.nths(|instance| instance.held).len(), 2);
    let settings = FunctionSettings { min_instances: 1, ..driver.settings[&FunctionId(0)] };
    driver.configure(0, settings);
    assert_eq!(driver.nths(|instance| instance.held).len(), 1);
    let kept = driver.nths(|instance| !instance.held);
    driver.gone(kept[0]);
    assert_eq!(driver.nths(|instance| instance.held).len(), 0, "the other takes its place");
}

#[test]
fn hints_that_cannot_be_meant_are_refused_with_the_reason() {
    let mut known = driver(&hints(), 10, 1, 0);
    let far = known.hint(0, hint(366 * 24 * 3_600 * SECOND, 1));
    assert_eq!(far, HintAnswer::TooFar(24 * 3_600 * SECOND));
    assert_eq!(known.hint(9, hint(0, 1)), HintAnswer::NoFunction);
    let endless = Hint { after: SECOND, within: Some(Nanos::MAX), count: 1 };
    assert!(known.hint(0, endless).is_taken());
    let answers: Vec<HintAnswer> = (0..1_001).map(|_| known.hint(1, hint(SECOND, 1))).collect();
    assert_eq!(answers[1_000], HintAnswer::TooMany(1_000));
    let mut without = driver(&hints(), 10, 0, 0);
    assert_eq!(without.hint(0, hint(0, 1)), HintAnswer::NoBudget);
    let mut fixed = driver(&PolicyNames::default(), 10, 1, 0);
    assert_eq!(fixed.hint(0, hint(0, 1)), HintAnswer::NotRead);
    let short = HintAnswer::TooFar(50 * MS).to_string();
    assert!(short.contains("more than 0.05 s ahead"), "{short}");
    for answer in [far, HintAnswer::NoBudget, HintAnswer::NotRead, answers[1_000]] {
        assert!(!answer.is_taken() && answer.to_string().contains(": "), "{answer}");
    }
}

#[test]
fn a_start_that_is_given_up_and_fails_leaves_nothing() {
    let mut driver = driver(&hints(), 1, 1, SECOND);
    driver.hint(0, hint(0, 1));
    let given_up = driver.starts[0];
    driver.arrive(1, false);
    let stopped = Decision::Stop { instance: given_up, reason: StopReason::Evicted };
    assert!(driver.log.contains(&stopped), "even while it starts");
    assert_eq!(driver.started, 2);
    driver.fail(given_up);
    driver.ready(driver.starts[1]);
    assert_eq!(driver.nths(Instance::is_active).len(), 1);
}

/// A request of a function other than 0, or a hint for that one, after so long.
type Act = (Nanos, Option<u64>, Nanos, u32);

fn acts() -> impl Strategy<Value = Vec<Act>> {
    prop::collection::vec((0..400 * MS, prop::option::of(1..3u64), 0..3 * SECOND, 1..6u32), 1..60)
}

/// When each request was given to an instance.
fn assigned(acts: &[Act], room: u32, keep_alive: Nanos, with_hints: bool) -> Vec<(u64, Nanos)> {
    let mut driver = driver(&hints(), room, 3, keep_alive);
    let (mut due, mut at, mut seen, mut times) = (Vec::new(), 0, 0, Vec::new());
    let end = acts.iter().map(|act| act.0).sum::<Nanos>() + 60 * SECOND;
    let mut note = |driver: &Driver| {
        for decision in &driver.log[seen..] {
            if let Decision::Assign { request, .. } = decision {
                times.push((request.0, driver.now));
            }
        }
        seen = driver.log.len();
    };
    for (gap, function, after, count) in acts {
        at += gap;
        while driver.now < at {
            // Step by step, so that times are noted as they are.
            let next = (driver.now + MS).min(at);
            run(&mut driver, &mut due, next);
            note(&driver);
        }
        match function {
            Some(function) => drop(driver.arrive(*function, true)),
            None if with_hints => drop(driver.hint(0, hint(*after, *count))),
            None => {}
        }
        note(&driver);
    }
    while driver.now < end && !driver.waiting.is_empty() {
        let next = driver.now + MS;
        run(&mut driver, &mut due, next);
        note(&driver);
    }
    times.sort_unstable();
    times
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever hints for one function say, requests of the others are served at the same moments.
    #[test]
    fn a_hint_delays_no_other_function(
        acts in acts(),
        room in 1..5u32,
        keep_alive in prop_oneof![Just(0), Just(300 * MS), Just(5 * SECOND)],
    ) {
        let without = assigned(&acts, room, keep_alive, false);
        prop_assert_eq!(assigned(&acts, room, keep_alive, true), without);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever is said and comes, and however late the scheduler is woken, no more instances are there on
    /// hints' account than the function's budget has, and who carries its decisions out counts the same (the
    /// driver checks that after every event); and nothing stays when all hints have ended.
    #[test]
    fn the_budget_holds_and_ends(
        acts in prop::collection::vec(
            (
                prop_oneof![0..20 * MS, 0..2 * SECOND],
                0..2u64,
                0..9 * SECOND,
                0..9u32,
                0..4u32,
            ),
            1..25,
        ),
        within in prop_oneof![Just(50 * MS), Just(2 * SECOND)],
        budget in 0..4u32,
        room in 1..9u32,
        clock in prop_oneof![Just(1), Just(90 * MS), Just(3 * SECOND)],
    ) {
        let mut driver = driver(&hints(), room, budget, 0);
        driver.clock = clock;
        let (mut due, mut at) = (Vec::new(), 0);
        let keep = |driver: &mut Driver, function, min_instances| {
            let settings = driver.settings[&FunctionId(function)];
            driver.configure(function, FunctionSettings { min_instances, ..settings });
        };
        for (gap, function, after, count, kept) in acts {
            at += gap;
            run(&mut driver, &mut due, at);
            match kept {
                0 => drop(driver.arrive(function, true)),
                1 | 2 => keep(&mut driver, function, kept - 1),
                _ => {}
            }
            if count > 0 {
                driver.hint(function, Hint { after, within: Some(within), count });
            }
        }
        for function in 0..3 {
            keep(&mut driver, function, 0);
        }
        run(&mut driver, &mut due, at + 120 * SECOND);
        prop_assert!(driver.instances.is_empty(), "{:?}", driver.instances);
        for function in 0..3 {
            let view = driver.scheduler.view();
            let known = view.function(FunctionId(function));
            prop_assert_eq!(known.map_or(0, |known| known.on_hint()), 0);
        }
    }
}
