//! How long the retention policies keep instances, and which the eviction policies take, in virtual time.

mod driver;

use driver::{Doing, Driver, Instance};
use uncia_policy::{
    Decision, End, FunctionSettings, InstanceId, Nanos, Parameters, PolicyNames, Resources,
};

const SECOND: Nanos = 1_000_000_000;
const MINUTE: Nanos = 60 * SECOND;

fn driver(names: &PolicyNames, parameters: Parameters, room: u32) -> Driver {
    let mut driver = Driver::with_parameters(names, parameters, 1);
    driver.join(0, Resources::UNBOUNDED, room);
    driver
}

fn retention(name: &str) -> PolicyNames {
    PolicyNames { retention: name.into(), ..PolicyNames::default() }
}

/// An instance of the function serves a request; whether it was started for it.
fn serve(driver: &mut Driver, function: u64) -> bool {
    driver.arrive(function, false);
    let starting = driver.nth(0, |instance| instance.doing == Doing::Starting);
    if let Some(id) = starting {
        driver.ready(id);
    }
    let active = driver.nth(0, Instance::is_active).expect("one that serves");
    driver.end(active, 0, End::Survives);
    starting.is_some()
}

/// Lets time pass until an instance is stopped, and reports it gone; how long that was.
fn until_stopped(driver: &mut Driver) -> Nanos {
    let from = driver.now;
    loop {
        if let Some(id) = driver.nth(0, |instance| instance.doing == Doing::Stopping) {
            driver.gone(id);
            return driver.now - from;
        }
        let wake = driver.wake_at.expect("somebody is woken to stop it");
        driver.pass(wake - driver.now);
    }
}

#[test]
fn uniform_keep_alive_is_uniform_between_its_bounds() {
    const DRAWS: usize = 4_000;
    let (least, most) = (120 * SECOND, 360 * SECOND);
    let parameters = Parameters { keep_alive_min: least, ..Parameters::default() };
    let mut driver = driver(&retention("uniform"), parameters, 10);
    driver.configure(0, FunctionSettings { keep_alive: most, ..FunctionSettings::default() });
    let mut kept: Vec<Nanos> = (0..DRAWS)
        .map(|_| {
            assert!(serve(&mut driver, 0));
            until_stopped(&mut driver)
        })
        .collect();
    kept.sort_unstable();
    assert!(least <= kept[0] && kept[DRAWS - 1] <= most);
    // Kolmogorov and Smirnov at one in a thousand; the seed is fixed.
    let distance = kept.iter().enumerate().map(|(index, kept)| {
        let expected = (kept - least) as f64 / (most - least) as f64;
        (expected - index as f64 / DRAWS as f64).abs()
    });
    assert!(distance.fold(0.0, f64::max) < 1.95 / (DRAWS as f64).sqrt());
}

#[test]
fn a_least_keep_alive_above_the_keep_alive_is_the_keep_alive() {
    let parameters = Parameters { keep_alive_min: 500 * SECOND, ..Parameters::default() };
    for name in ["uniform", "opportunistic"] {
        let mut driver = driver(&retention(name), parameters, 10);
        let keep_alive = 7 * SECOND;
        driver.configure(0, FunctionSettings { keep_alive, ..FunctionSettings::default() });
        serve(&mut driver, 0);
        assert_eq!(until_stopped(&mut driver), keep_alive, "{name}");
    }
}

#[test]
fn opportunistic_keep_alive_shrinks_with_the_room() {
    let (least, most) = (120 * SECOND, 360 * SECOND);
    let parameters = Parameters { keep_alive_min: least, ..Parameters::default() };
    for others in 0..10 {
        let mut driver = driver(&retention("opportunistic"), parameters, 10);
        let settings = FunctionSettings { keep_alive: most, ..FunctionSettings::default() };
        // The others serve for as long as it takes.
        driver.configure(1, settings);
        for _ in 0..others {
            driver.arrive(1, false);
            let starting = driver.nth(0, |instance| instance.doing == Doing::Starting).unwrap();
            driver.ready(starting);
        }
        driver.configure(0, settings);
        driver.arrive(0, false);
        let starting = driver.nth(0, |instance| instance.doing == Doing::Starting).unwrap();
        driver.ready(starting);
        driver.end(starting, 0, End::Survives);
        let free = 9 - others;
        assert_eq!(until_stopped(&mut driver), least + (most - least) * free / 10);
    }
}

/// A function whose requests come every twenty minutes has learned after ten that it does.
fn every_twenty_minutes() -> Driver {
    let mut driver = driver(&retention("histogram"), Parameters::default(), 10);
    let keep_alive = 5 * MINUTE;
    driver.configure(0, FunctionSettings { keep_alive, ..FunctionSettings::default() });
    for _ in 0..10 {
        assert!(serve(&mut driver, 0), "it was removed after its keep-alive");
        assert_eq!(until_stopped(&mut driver), keep_alive);
        driver.pass(15 * MINUTE);
    }
    assert!(serve(&mut driver, 0));
    driver
}

/// The next wake-ups, until an instance starts ahead, which is ready at once.
fn until_prewarmed(driver: &mut Driver) -> (Nanos, InstanceId) {
    let from = driver.now;
    let started = driver.started;
    while driver.started == started {
        let wake = driver.wake_at.expect("somebody is woken to start it");
        driver.pass(wake - driver.now);
    }
    let id = *driver.starts.last().expect("a start");
    driver.ready(id);
    (driver.now - from, id)
}

#[test]
fn an_instance_is_ready_before_the_request_that_is_foreseen() {
    let mut driver = every_twenty_minutes();
    for _ in 0..3 {
        assert_eq!(until_stopped(&mut driver), 0, "it is not kept meanwhile");
        let (after, _) = until_prewarmed(&mut driver);
        assert_eq!(after, 18 * MINUTE);
        driver.pass(2 * MINUTE);
        assert!(!serve(&mut driver, 0), "warm");
    }
}

#[test]
fn requests_that_come_while_others_are_served_have_no_idle_time() {
    let mut driver = every_twenty_minutes();
    for _ in 0..10 {
        driver.pass(20 * MINUTE);
        let requests = [0, 30 * MINUTE].map(|later| {
            driver.pass(later);
            driver.arrive(0, false)
        });
        while requests.iter().any(|request| !driver.answered.contains(request)) {
            for id in driver.nths(|instance| instance.doing == Doing::Starting) {
                driver.ready(id);
            }
            let active = driver.nth(0, Instance::is_active).expect("one that serves");
            driver.end(active, 0, End::Survives);
        }
    }
    for id in driver.nths(|instance| instance.doing == Doing::Stopping) {
        driver.gone(id);
    }
    // The instance that was free while the other one served is kept through the idle time that is
    // foreseen, and none is started beside it.
    let started = driver.started;
    assert_eq!(until_stopped(&mut driver), 21 * MINUTE * 11 / 10);
    assert_eq!(driver.started, started);
}

#[test]
fn an_instance_that_was_started_in_vain_is_removed_and_nothing_is_planned_any_more() {
    let mut driver = every_twenty_minutes();
    until_stopped(&mut driver);
    until_prewarmed(&mut driver);
    // Until 1.1 times 21 minutes after the last request.
    assert_eq!(until_stopped(&mut driver), 21 * MINUTE * 11 / 10 - 18 * MINUTE);
    let started = driver.started;
    driver.pass(600 * MINUTE);
    assert_eq!((driver.started, driver.wake_at), (started, None));
}

#[test]
fn an_early_request_or_a_deletion_undoes_the_plan() {
    let mut driver = every_twenty_minutes();
    until_stopped(&mut driver);
    driver.pass(MINUTE);
    driver.arrive(0, false);
    let starting = driver.nth(0, |instance| instance.doing == Doing::Starting).unwrap();
    driver.ready(starting);
    // It is still served when the instance would have been started.
    let started = driver.started;
    driver.pass(30 * MINUTE);
    assert_eq!(driver.started, started);
    driver.end(starting, 0, End::Survives);
    let function = uncia_policy::FunctionId(0);
    driver.settings.clear();
    driver.send(uncia_policy::Event::FunctionDeleted { function });
    driver.pass(600 * MINUTE);
    assert_eq!(driver.started, started);
}

/// Functions of these sizes on a worker with room for two; each start of a function takes 10 ns.
fn greedy(memory: [u64; 3]) -> Driver {
    let names = PolicyNames { eviction: "greedy-dual".into(), ..PolicyNames::default() };
    let mut driver = driver(&names, Parameters::default(), 2);
    for (function, memory) in memory.into_iter().enumerate() {
        let allocation = Resources { cpu: 0, memory };
        let settings = FunctionSettings { allocation, ..FunctionSettings::default() };
        driver.configure(function as u64, settings);
    }
    driver
}

/// A request of the function, which evicts another's instance; the function of that.
fn evicted_by(driver: &mut Driver, function: u64) -> u64 {
    let before = driver.log.len();
    driver.arrive(function, false);
    let stopped = driver.log[before..].iter().find_map(|decision| match decision {
        Decision::Stop { instance, .. } => Some(*instance),
        _ => None,
    });
    let victim = stopped.expect("one is evicted");
    let evicted = driver.instances[&victim].function.0;
    driver.gone(victim);
    let starting = driver.nth(0, |instance| instance.doing == Doing::Starting).unwrap();
    driver.ready(starting);
    driver.end(starting, 0, End::Survives);
    evicted
}

#[test]
fn what_is_used_often_stays_though_it_was_used_before() {
    let mut driver = greedy([1, 1, 1]);
    for _ in 0..5 {
        serve(&mut driver, 0);
    }
    serve(&mut driver, 1);
    assert_eq!(evicted_by(&mut driver, 2), 1);
}

#[test]
fn what_is_large_goes_first() {
    let mut driver = greedy([1, 8, 1]);
    serve(&mut driver, 0);
    serve(&mut driver, 1);
    assert_eq!(evicted_by(&mut driver, 2), 1);
}

#[test]
fn what_is_not_used_any_more_ages() {
    let mut driver = greedy([1, 1, 1]);
    for _ in 0..5 {
        serve(&mut driver, 0);
    }
    serve(&mut driver, 1);
    // The others take turns; each eviction makes the clock go on, until it is as late as the five uses.
    for n in 0..4 {
        assert_eq!(evicted_by(&mut driver, [2, 1][n % 2]), [1, 2][n % 2]);
    }
    assert_eq!(evicted_by(&mut driver, 2), 0);
}
