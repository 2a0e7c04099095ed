//! The functions of a trace: which of the suite each is, and how its user would set it up.

use uncia_arrivals::RandomStream;

use crate::error::TraceError;
use crate::profiles::{Parallelism, Possible, Profile};
use crate::quantiles::Quantiles;
use crate::{Given, InputSize, Settings, Source, Utilization};

const MICRO_PER_VCPU: u64 = 1_000_000;

/// Normal numbers are drawn until one is within the room as long as that is more than this part of
/// their deviation.
const NARROW: f64 = 100.0;

/// A function of the trace.
#[derive(Debug, Clone)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The index of its profile.
    pub profile: usize,
    /// The input that it is given, never mixed.
    pub size: InputSize,
    /// What callers expect of it.
    pub qos: Qos,
    /// How its user has set it up.
    pub knobs: Knobs,
    /// The phases of each invocation.
    pub phases: u32,
    /// Threads that run: on average, and at most.
    pub parallelism: Parallelism,
    /// Invocations in each minute.
    pub counts: Vec<u32>,
    pub(crate) durations: Quantiles,
    pub(crate) memory: Quantiles,
}

/// What callers expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qos {
    /// An answer soon.
    Interactive,
    /// Much work for little money.
    Batch,
}

/// How a user sets a function up (section 5.1.2, *Knob Tuning*).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knobs {
    /// The most CPU that it uses, in micro-vCPU.
    pub cpu: u64,
    /// How much of that is spot, in micro-vCPU.
    pub spot_cpu: u64,
    /// The most memory that it uses, in bytes.
    pub memory: u64,
    /// Whether it may be stopped for its memory.
    pub preemptible: bool,
}

impl Function {
    /// Invocations in all.
    pub fn invocations(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }
}

impl Knobs {
    /// By the paper's rules: limits are maxima; what is batch is preemptible, and all of its CPU spot;
    /// of what is interactive the difference between a large and a medium input is, unless it is
    /// urgent (inference, clients of databases).
    ///
    /// The paper's sentence on spot cores names interactive functions twice; that batch functions
    /// reserve nothing is in its sections 3.3 and 4.3.3.
    fn tuned(profile: &Profile, threads: u32, qos: Qos, memory: u64) -> Self {
        let vcpu = |threads: u32| u64::from(threads) * MICRO_PER_VCPU;
        let cpu = vcpu(threads);
        let spot_cpu = match qos {
            Qos::Batch => cpu,
            Qos::Interactive if profile.urgent => 0,
            Qos::Interactive => {
                let sizes = &profile.sizes;
                cpu.min(vcpu(sizes.large.max.saturating_sub(sizes.medium.max)))
            }
        };
        Self { cpu, spot_cpu, memory, preemptible: qos == Qos::Batch }
    }
}

/// What is drawn for a function, whatever the settings, so that they change nothing else.
struct Draws {
    order: f64,
    profile: f64,
    qos: f64,
    size: f64,
    stream: RandomStream,
}

impl Draws {
    fn new(seed: u64, name: &str) -> Self {
        let mut stream = RandomStream::new(seed, &format!("bb/function/{name}"));
        let [order, profile, qos, size] = std::array::from_fn(|_| stream.uniform());
        Self { order, profile, qos, size, stream }
    }
}

/// Makes the provider's functions those of the trace.
pub(crate) fn assign(
    settings: Settings,
    profiles: &[Profile],
) -> Result<Vec<Function>, TraceError> {
    let Settings { seed, load, size, utilization, batch_share, .. } = settings;
    let minutes = (settings.start_minute, settings.minutes);
    let given = match settings.source {
        Source::Synthetic { functions, population } => {
            population.draw(seed, functions, minutes, load)
        }
        Source::Given(functions) => {
            functions.into_iter().map(|function| scaled(function, load, seed)).collect()
        }
    };
    let mut draws: Vec<Draws> =
        given.iter().map(|function| Draws::new(seed, &function.name)).collect();
    let qos = match batch_share {
        Some(share) => {
            check_possible(profiles, share)?;
            by_share(&given, &draws, share).into_iter().map(Some).collect()
        }
        None => vec![None; given.len()],
    };
    let functions = given.into_iter().zip(&mut draws).zip(qos);
    let functions = functions.map(|((given, draws), qos)| {
        let candidates: Vec<usize> = (0..profiles.len())
            .filter(|&index| qos.is_none_or(|qos| may_be(&profiles[index], qos)))
            .collect();
        let profile = candidates[below(draws.profile, candidates.len())];
        let chosen = &profiles[profile];
        let qos = qos.unwrap_or(match chosen.qos {
            Possible::Interactive => Qos::Interactive,
            Possible::Batch => Qos::Batch,
            Possible::Both if draws.qos < 0.5 => Qos::Interactive,
            Possible::Both => Qos::Batch,
        });
        let sizes = [InputSize::Small, InputSize::Medium, InputSize::Large];
        let size = if size == InputSize::Mixed { sizes[below(draws.size, 3)] } else { size };
        let mut parallelism = match size {
            InputSize::Small => chosen.sizes.small,
            InputSize::Medium | InputSize::Mixed => chosen.sizes.medium,
            InputSize::Large => chosen.sizes.large,
        };
        if let Some(utilization) = utilization {
            parallelism.mean = utilization.draw(&mut draws.stream) * f64::from(parallelism.max);
        }
        let memory = given.memory.maximum().max(1) as u64;
        Function {
            name: given.name,
            profile,
            size,
            qos,
            knobs: Knobs::tuned(chosen, parallelism.max, qos, memory),
            phases: chosen.phases,
            parallelism,
            counts: given.counts,
            durations: given.durations,
            memory: given.memory,
        }
    });
    Ok(functions.collect())
}

/// A whole number from 0 to `choices - 1`, for a number in [0, 1).
fn below(uniform: f64, choices: usize) -> usize {
    ((uniform * choices as f64) as usize).min(choices - 1)
}

/// The function with its counts times the load; what is no whole number is rounded up or down at
/// random, so that the mean is right.
fn scaled(mut function: Given, load: f64, seed: u64) -> Given {
    if load != 1.0 {
        let mut stream = RandomStream::new(seed, &format!("bb/load/{}", function.name));
        for count in &mut function.counts {
            *count = libm::floor(f64::from(*count) * load + stream.uniform()) as u32;
        }
    }
    function
}

fn may_be(profile: &Profile, qos: Qos) -> bool {
    match profile.qos {
        Possible::Both => true,
        Possible::Interactive => qos == Qos::Interactive,
        Possible::Batch => qos == Qos::Batch,
    }
}

fn check_possible(profiles: &[Profile], share: f64) -> Result<(), TraceError> {
    for (qos, name, part) in
        [(Qos::Batch, "batch", share), (Qos::Interactive, "interactive", 1.0 - share)]
    {
        if part > 0.0 && !profiles.iter().any(|profile| may_be(profile, qos)) {
            return Err(TraceError::NoSuchQos { qos: name, share });
        }
    }
    Ok(())
}

/// Makes functions batch, in a random order, as long as their invocations fit the share; those that
/// are never invoked with the probability of the share.
fn by_share(functions: &[Given], draws: &[Draws], share: f64) -> Vec<Qos> {
    let invocations = |index: usize| functions[index].counts.iter().map(|it| u64::from(*it)).sum();
    let total: u64 = (0..functions.len()).map(invocations).sum();
    let mut room = libm::rint(total as f64 * share) as u64;
    let mut order: Vec<usize> = (0..functions.len()).collect();
    order.sort_by(|a, b| draws[*a].order.total_cmp(&draws[*b].order));
    let mut qos = vec![Qos::Interactive; functions.len()];
    for index in order {
        let mine: u64 = invocations(index);
        let fits = if mine == 0 { draws[index].qos < share } else { mine <= room };
        if fits {
            room -= mine;
            qos[index] = Qos::Batch;
        }
    }
    qos
}

impl Utilization {
    fn draw(&self, stream: &mut RandomStream) -> f64 {
        let room = self.mean.min(1.0 - self.mean);
        if room <= 0.0 || self.deviation == 0.0 {
            return self.mean;
        }
        // With so little room that a normal number hardly ever falls into it, one within it is drawn
        // and kept with the probability that the density has: more than nine in ten are.
        let is_narrow = room * NARROW < self.deviation;
        loop {
            let off = if is_narrow {
                let off = room * (2.0 * stream.uniform() - 1.0);
                let z = off / self.deviation;
                if stream.uniform() >= libm::exp(-0.5 * z * z) {
                    continue;
                }
                off
            } else {
                self.deviation * stream.normal()
            };
            if libm::fabs(off) < room {
                return self.mean + off;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On either side of where the way to draw changes, and where rejection alone would never end.
    #[test]
    fn a_utilization_with_hardly_any_room_is_drawn() {
        const N: usize = 5_000;
        for room in [1.01e-3, 0.99e-3, 1e-6, 1e-15] {
            let utilization = Utilization { mean: 1.0 - room, deviation: 0.1 };
            let room = 1.0 - utilization.mean;
            let mut stream = RandomStream::new(3, "utilization");
            let mut sum = 0.0;
            for _ in 0..N {
                let off = (utilization.draw(&mut stream) - utilization.mean) / room;
                // A sum with so little room is rounded to half of it or less.
                assert!(off.abs() <= 1.0, "{room}: {off}");
                sum += off;
            }
            // As good as uniform, of variance 1/3: five standard errors, and what is rounded.
            let error = (1.0 / 3.0 / N as f64).sqrt();
            assert!((sum / N as f64).abs() < 5.0 * error + 0.1 * f64::from(room < 1e-9), "{room}");
        }
    }
}
