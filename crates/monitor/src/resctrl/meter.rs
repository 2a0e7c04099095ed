//! From readings of groups to rows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use uncia_record::Text;

use super::Tree;
use crate::samples::{Grown, Samples};

/// An event, as its file is called, the counter in rows, and whether it is a level.
pub(crate) const EVENTS: [(&str, &str, bool); 3] = [
    ("llc_occupancy", "llc_occupancy_bytes", true),
    ("mbm_total_bytes", "mbm_total_bytes", false),
    ("mbm_local_bytes", "mbm_local_bytes", false),
];
const DOMAIN: &str = "mon_L3_";

/// What the files of one group held: by event and domain; none that could not be read.
pub(crate) type Reading = BTreeMap<(usize, String), Option<i64>>;

impl Tree {
    /// Reads a group; `None` of one that is gone.
    pub(crate) fn reading(&self, group: &Path, features: &BTreeSet<String>) -> Option<Reading> {
        let data = group.join("mon_data");
        let names = self.kernel.folders(&data).ok()?;
        let mut reading = Reading::new();
        for name in names {
            let Some(domain) = name.strip_prefix(DOMAIN) else { continue };
            for (event, (file, ..)) in
                EVENTS.iter().enumerate().filter(|(_, it)| features.contains(it.0))
            {
                let text = self.kernel.read(&data.join(&name).join(file));
                // "Unavailable", "Error", "Unassigned": none is a number.
                let value = text.ok().and_then(|it| it.trim().parse().ok()).filter(|it| *it >= 0);
                reading.insert((event, domain.to_owned()), value);
            }
        }
        // It went while it was read.
        (reading.values().any(Option::is_some) || self.kernel.folders(group).is_ok())
            .then_some(reading)
    }
}

/// Makes rows of what groups together use, from one reading to the next.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// By event and domain: when it was read last, and what stood in each group then.
    before: HashMap<(usize, String), (i64, HashMap<PathBuf, i64>)>,
}

impl Meter {
    /// Adds what the groups used. An event of a domain that one of them does not tell is a lost sample.
    pub(crate) fn add(
        &mut self,
        group: Option<&Text>,
        readings: &[(PathBuf, Reading)],
        samples: &mut Samples,
    ) {
        let keys: BTreeSet<_> = readings.iter().flat_map(|(_, it)| it.keys().cloned()).collect();
        for (event, (_, counter, is_level)) in EVENTS.iter().enumerate() {
            let domains: Vec<_> = keys.iter().filter(|key| key.0 == event).collect();
            let mut known = Vec::new();
            for key in &domains {
                let values: Option<HashMap<PathBuf, i64>> = readings
                    .iter()
                    .filter(|(_, reading)| reading.contains_key(*key))
                    .map(|(path, reading)| Some((path.clone(), reading[*key]?)))
                    .collect();
                let Some(values) = values else {
                    samples.lost += 1;
                    continue;
                };
                let value = if *is_level {
                    Some((None, values.values().sum::<i64>() as f64))
                } else {
                    self.grown(key, values, samples.now).map(|it| (Some(it.interval), it.value))
                };
                known.extend(value.map(|value| (&key.1, value)));
            }
            push(group, counter, &known, domains.len(), samples);
        }
    }

    fn grown(
        &mut self,
        key: &(usize, String),
        values: HashMap<PathBuf, i64>,
        now: i64,
    ) -> Option<Grown> {
        let (at, before) = self.before.insert(key.clone(), (now, values.clone()))?;
        // A group that was not there stood at 0, and so did one that was made again.
        let growth = values.iter().map(|(path, value)| {
            let before = before.get(path).copied().unwrap_or_default();
            if *value >= before { value - before } else { *value }
        });
        (now > at).then(|| Grown { value: growth.sum::<i64>() as f64, interval: now - at })
    }
}

/// Adds the rows of a counter: of all domains together where all are known of the same time, and of each if there are
/// several.
fn push(
    group: Option<&Text>,
    counter: &str,
    known: &[(&String, (Option<i64>, f64))],
    domains: usize,
    samples: &mut Samples,
) {
    let mut row = |name: &str, (interval, value): (Option<i64>, f64)| match interval {
        Some(interval) => samples.growth(group, name, Some(Grown { value, interval })),
        None => samples.level(group, name, Some(value)),
    };
    if domains > 1 {
        for (domain, value) in known {
            row(&format!("resctrl.l3_{domain}.{counter}"), *value);
        }
    }
    let Some((_, (interval, _))) = known.first() else { return };
    if known.len() == domains && known.iter().all(|(_, it)| it.0 == *interval) {
        let sum = known.iter().map(|(_, it)| it.1).sum();
        row(&format!("resctrl.{counter}"), (*interval, sum));
    }
}
