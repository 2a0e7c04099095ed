//! Admission, eviction and placement by what is reserved, used and lent.

mod driver;

use driver::{Driver, Instance};
use uncia_policy::{
    End, Event, FunctionSettings, InstanceId, Parameters, PolicyNames, Qos, Resources, WorkerId,
};

const VCPU: u64 = 1_000_000;
const ROOM: Resources = Resources { cpu: 4 * VCPU, memory: 100 };

fn reserved(cores: u64, memory: u64) -> FunctionSettings {
    FunctionSettings {
        allocation: Resources { cpu: cores * VCPU, memory },
        ..FunctionSettings::default()
    }
}

fn batch(cores: u64, memory: u64) -> FunctionSettings {
    FunctionSettings {
        spot_cpu: cores * VCPU,
        preemptible: true,
        qos: Qos::Batch,
        ..reserved(cores, memory)
    }
}

fn driver(
    admission: &str,
    placement: &str,
    workers: u32,
    functions: &[FunctionSettings],
) -> Driver {
    driver_with(admission, placement, workers, functions, Parameters::default())
}

fn driver_with(
    admission: &str,
    placement: &str,
    workers: u32,
    functions: &[FunctionSettings],
    parameters: Parameters,
) -> Driver {
    let names = PolicyNames {
        admission: admission.into(),
        placement: placement.into(),
        eviction: "least-lost-revenue".into(),
        ..PolicyNames::default()
    };
    let mut driver = Driver::with_parameters(&names, parameters, 1);
    for worker in 0..workers {
        driver.join(worker, ROOM, 100);
    }
    for (function, settings) in (0..).zip(functions) {
        driver.configure(function, *settings);
    }
    driver
}

/// Has a request arrive, and its instance be ready if one is started for it.
fn serve(driver: &mut Driver, function: u64) -> Option<InstanceId> {
    let before = driver.starts.len();
    driver.arrive(function, true);
    let started = driver.starts.get(before).copied();
    if let Some(instance) = started {
        driver.ready(instance);
    }
    started
}

fn sample(driver: &mut Driver, instance: InstanceId, cpu: u64, memory: u64) {
    driver.send(Event::Sampled { instance, cpu, memory });
}

fn waiting(driver: &Driver) -> usize {
    driver.scheduler.counts().backlog
}

#[test]
fn reservations_fit_in_the_order_of_arrivals() {
    let functions = [reserved(3, 10), reserved(2, 10), reserved(1, 10)];
    let mut driver = driver("reservations", "first-fit", 1, &functions);
    let first = serve(&mut driver, 0).unwrap();
    assert_eq!(serve(&mut driver, 1), None, "one core is left");
    assert_eq!(serve(&mut driver, 2), None, "it would fit, and does not overtake");
    driver.end(first, 0, End::Survives);
    assert_eq!(waiting(&driver), 0);
    let functions: Vec<u64> =
        driver.instances.values().filter(|it| !it.is_idle()).map(|it| it.function.0).collect();
    assert!(functions.contains(&1) && functions.contains(&2), "{functions:?}");
}

#[test]
fn batch_work_uses_what_reservations_leave_idle() {
    let functions = [reserved(4, 100), batch(1, 30)];
    let mut leopard = driver("leopard", "leopard", 1, &functions);
    let lender = serve(&mut leopard, 0).unwrap();
    // It is expected to use all until it was seen to use less.
    assert_eq!((serve(&mut leopard, 1), waiting(&leopard)), (None, 1));
    sample(&mut leopard, lender, VCPU, 20);
    // Memory of 100 + 30 is expected, by the prior: too much to be sure of.
    assert_eq!(waiting(&leopard), 1);
    leopard.end(lender, 0, End::Survives);
    assert_eq!(waiting(&leopard), 0, "what idles is evicted if need be");
    // The lender's past says now that it uses 1 of 100 bytes; the same would be refused by
    // reservations alone.
    assert_eq!(serve(&mut leopard, 0), None, "its idle instance serves");
    sample(&mut leopard, lender, VCPU, 20);
    assert!(serve(&mut leopard, 1).is_some());
    let mut simple = driver("reservations", "leopard", 1, &functions);
    serve(&mut simple, 0).unwrap();
    assert_eq!(serve(&mut simple, 1), None);
}

#[test]
fn an_empty_worker_takes_what_needs_all_of_it_whatever_the_overcommitment() {
    let functions = [batch(4, 30), batch(1, 30)];
    for (percent, beside) in [(50, false), (100, false), (126, true)] {
        let parameters = Parameters { cpu_overcommit: percent, ..Parameters::default() };
        let mut driver = driver_with("leopard", "leopard", 1, &functions, parameters);
        let all = serve(&mut driver, 0).unwrap();
        sample(&mut driver, all, VCPU, 20);
        assert_eq!(serve(&mut driver, 1).is_some(), beside, "{percent}");
        driver.end(all, 0, End::Survives);
        assert_eq!(waiting(&driver), 0);
    }
}

#[test]
fn nobody_gets_another_s_reservation() {
    let functions = [reserved(3, 60), reserved(1, 30), reserved(1, 20)];
    let mut driver = driver("leopard", "leopard", 1, &functions);
    for (function, is_served) in [(0, true), (1, true), (2, false)] {
        let served = serve(&mut driver, function).is_some();
        assert_eq!(served, is_served, "{function}");
    }
    let worker = driver.scheduler.view().worker(WorkerId(0)).unwrap();
    assert_eq!(worker.reserved(), Resources { cpu: 4 * VCPU, memory: 90 });
}

#[test]
fn under_pressure_the_least_revenue_is_lost() {
    let functions = [reserved(1, 50), batch(1, 10)];
    let mut driver = driver("leopard", "leopard", 1, &functions);
    let interactive = serve(&mut driver, 0).unwrap();
    let first = serve(&mut driver, 1).unwrap();
    driver.end(first, 0, End::Survives);
    let mut begin = |cpu| {
        driver.pass(100);
        // None that is new: the idle one serves.
        let instance = serve(&mut driver, 1).unwrap_or(first);
        sample(&mut driver, instance, cpu, 10);
        instance
    };
    let (busy, long, short) = (begin(VCPU), begin(VCPU / 10), begin(VCPU / 10));
    assert!(busy == first && long != first && short != first);
    // What it has used is as much as before.
    sample(&mut driver, busy, 1, 1);
    sample(&mut driver, interactive, VCPU, 50);
    driver.pass(100);
    let preempted =
        |driver: &Driver, id: InstanceId| driver.instances[&id].doing == driver::Doing::Preempting;
    driver.send(Event::MemoryPressure { worker: WorkerId(0), bytes: 10 });
    assert!(preempted(&driver, short) && !preempted(&driver, long), "what began last");
    driver.send(Event::MemoryPressure { worker: WorkerId(0), bytes: 11 });
    assert!(preempted(&driver, long) && !preempted(&driver, busy), "what has used less");
    driver.send(Event::MemoryPressure { worker: WorkerId(0), bytes: 1_000 });
    assert!(preempted(&driver, busy) && !preempted(&driver, interactive), "never what is reserved");
}

#[test]
fn what_an_instance_used_before_is_not_lost_with_what_it_serves() {
    let mut driver = driver("leopard", "leopard", 1, &[batch(1, 10)]);
    let first = serve(&mut driver, 0).unwrap();
    sample(&mut driver, first, VCPU, 10);
    driver.pass(60_000);
    // As the simulator does: the last sample of one invocation is at the time at which the next begins.
    sample(&mut driver, first, VCPU, 10);
    driver.end(first, 0, End::Survives);
    assert_eq!(serve(&mut driver, 0), None, "the idle one serves");
    let began = driver.scheduler.view().now();
    driver.pass(100);
    let view = driver.scheduler.view();
    let instance = view.instance(first).unwrap();
    assert_eq!(instance.since(), began);
    assert_eq!(instance.volume().cpu, u128::from(VCPU) * u128::from(view.now() - began));
}

#[test]
fn functions_are_sent_home_and_spill_over() {
    let functions = vec![reserved(2, 10); 30];
    let mut driver = driver("reservations", "consistent-hashing", 4, &functions);
    let home = |driver: &Driver, id: InstanceId| driver.instances[&id].worker;
    let first = serve(&mut driver, 0).unwrap();
    let second = serve(&mut driver, 0).unwrap();
    assert_eq!(home(&driver, first), home(&driver, second));
    let third = serve(&mut driver, 0).unwrap();
    assert_ne!(home(&driver, first), home(&driver, third), "four cores hold two of them");
    for instance in [first, second, third] {
        driver.end(instance, 0, End::Survives);
    }
    let mut homes = std::collections::BTreeSet::new();
    for function in 1..30 {
        let instance = serve(&mut driver, function).unwrap();
        homes.insert(home(&driver, instance));
        driver.end(instance, 0, End::Survives);
    }
    assert_eq!(homes.len(), 4, "functions are spread");
}

#[test]
fn a_high_load_is_spread_and_a_low_one_packed() {
    let mut driver = driver("reservations", "hermod", 4, &[reserved(1, 10)]);
    let mut on = [0; 4];
    for _ in 0..16 {
        let instance = serve(&mut driver, 0).unwrap();
        on[driver.instances[&instance].worker.0 as usize] += 1;
        if on.iter().sum::<u32>() == 8 {
            assert_eq!(on, [4, 4, 0, 0]);
        }
    }
    assert_eq!(on, [4; 4]);
    assert!(driver.instances.values().all(Instance::is_active));
}

#[test]
fn batch_work_without_a_reservation_does_not_wait_for_interactive_requests() {
    let keeps = FunctionSettings { spot_cpu: 0, ..batch(1, 10) };
    let functions = [reserved(3, 30), reserved(2, 30), batch(1, 10), keeps];
    let mut driver = driver("leopard", "leopard", 1, &functions);
    let lender = serve(&mut driver, 0).unwrap();
    sample(&mut driver, lender, VCPU, 20);
    assert_eq!(serve(&mut driver, 1), None, "one core is not reserved");
    assert!(serve(&mut driver, 2).is_some(), "what it uses is in nobody's way");
    assert_eq!(serve(&mut driver, 3), None, "its core is what another waits for");
}

/// Has one invocation of each function end, the n-th after n x 20 ns, and then one more of each wait for a
/// worker that is full; the order in which these are served.
fn order_of(order: &str, functions: &[FunctionSettings]) -> Vec<u64> {
    let names = PolicyNames {
        admission: "reservations".into(),
        order: order.into(),
        ..PolicyNames::default()
    };
    let mut driver = Driver::new(&names, 1);
    driver.join(0, ROOM, 100);
    for (function, settings) in (0..).zip(functions) {
        driver.configure(function, *settings);
        let instance = serve(&mut driver, function).unwrap();
        driver.end(instance, 0, End::Survives);
    }
    let all = functions.len() as u64;
    driver.configure(all, reserved(4, 100));
    let full = serve(&mut driver, all).unwrap();
    for function in (0..all).rev() {
        assert_eq!(serve(&mut driver, function), None, "the worker is full");
    }
    let mut next = driver.starts.len();
    driver.end(full, 0, End::Survives);
    let mut served = Vec::new();
    while let Some(instance) = driver.starts.get(next).copied() {
        next += 1;
        served.push(driver.instances[&instance].function.0);
        driver.ready(instance);
        driver.end(instance, 0, End::Survives);
    }
    served
}

#[test]
fn what_keeps_least_of_a_worker_for_the_least_time_is_first() {
    // 20 ns of a whole worker; 40 ns of a quarter, or 10; 60 ns of 30 % of the memory, or 18.
    let functions = [reserved(4, 10), reserved(1, 10), reserved(1, 30)];
    assert_eq!(order_of("shortest-job-first", &functions), [0, 1, 2]);
    assert_eq!(order_of("smallest-volume-first", &functions), [1, 2, 0]);
    assert_eq!(order_of("first-come", &functions), [2, 1, 0]);
}
