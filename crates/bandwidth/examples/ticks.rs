//! How many ticks a second the simulator handles: `cargo run --release -p uncia-bandwidth --example ticks`.
//!
//! A probe under a quota of half a CPU, one under nearly a whole one, and four threads on two CPUs.

#![expect(clippy::print_stdout, reason = "its output")]

use std::time::Instant;

use uncia_bandwidth::sim::{self, Setting, Work};

const MS: u64 = 1_000_000;

fn main() -> Result<(), sim::SettingError> {
    for (name, quota, hz, cpus, threads) in [
        ("half a CPU, 250 Hz", 10 * MS, 250, 1, 1),
        ("half a CPU, 1000 Hz", 10 * MS, 1000, 1, 1),
        ("0.95 of a CPU, 1000 Hz", 19 * MS, 1000, 1, 1),
        ("4 threads on 2 CPUs, 250 Hz", 20 * MS, 250, 2, 4),
    ] {
        let work =
            Work::Probe { duration_ns: 20_000_000 * MS, threshold_ns: u64::MAX / 4, threads };
        let setting = Setting { hz, cpus, ..Setting::new(20 * MS, Some(quota), work) };
        let mut rates: Vec<f64> = Vec::new();
        let mut ticks = 0;
        for seed in 0..5 {
            let begun = Instant::now();
            ticks = sim::simulate(&setting, seed)?.ticks;
            rates.push(ticks as f64 / begun.elapsed().as_secs_f64() / 1e6);
        }
        rates.sort_by(f64::total_cmp);
        println!(
            "{name}: {:.1} million ticks/s (median of 5, {:.1} to {:.1}; {ticks} ticks)",
            rates[2], rates[0], rates[4]
        );
    }
    Ok(())
}
