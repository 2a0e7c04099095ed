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

/// A group that was read, with the groups that count in it.
#[derive(Debug)]
pub(crate) struct Counted {
    pub folder: PathBuf,
    pub total: Reading,
    /// The kernel adds what these count to the files of a group with limits, and passes over those that it cannot
    /// read. None that went while it was read.
    pub below: BTreeMap<PathBuf, Option<Reading>>,
}

impl Counted {
    /// A group that counts alone.
    pub(crate) fn alone(folder: PathBuf, total: Reading) -> Self {
        Self { folder, total, below: BTreeMap::new() }
    }

    /// What stood in an event's file; none if it tells nothing.
    fn total(&self, key: &(usize, String)) -> Option<i64> {
        self.total.get(key).copied().flatten()
    }

    /// What stood in those of the groups below, each; none if one went meanwhile, so that nobody knows whether it
    /// was counted.
    fn below(&self, key: &(usize, String)) -> Option<Vec<(&Path, Option<i64>)>> {
        let below = self.below.iter().map(|(folder, reading)| {
            Some((folder.as_path(), reading.as_ref()?.get(key).copied().flatten()))
        });
        below.collect()
    }
}

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

    /// Reads the groups with limits, and those that count in them.
    pub(crate) fn counted(&self, features: &BTreeSet<String>) -> Vec<Counted> {
        let counted = self.limiting().into_iter().filter_map(|folder| {
            let below = self.counting(&folder);
            let total = self.reading(&folder, features)?;
            let read = |it: PathBuf| {
                let reading = self.reading(&it, features);
                (it, reading)
            };
            Some(Counted { total, below: below.into_iter().map(read).collect(), folder })
        });
        counted.collect()
    }
}

/// A domain and a group.
type Place = (String, PathBuf);

/// What stood at a moment.
#[derive(Debug, Default, Clone)]
struct Standing {
    at: i64,
    /// In each group.
    groups: HashMap<Place, i64>,
    /// In each group that counts in one of them: part of what that has; none of what tells nothing, which is no part.
    below: HashMap<Place, Option<i64>>,
}

impl Standing {
    /// By how much the groups have grown. None if something went back or is gone: what it had is gone from the group above it,
    /// and how much it had by then nobody knows. Likewise if something begins to tell what it has, or no longer does.
    fn grown(&self, now: &Self) -> Option<i64> {
        let fell =
            |(place, value): (&Place, &i64)| now.groups.get(place).is_none_or(|it| it < value);
        let changed = |(place, value): (&Place, &Option<i64>)| match (value, now.below.get(place)) {
            (Some(before), Some(Some(now))) => now < before,
            (None, Some(None) | None) => false,
            _ => true,
        };
        if self.groups.iter().any(fell) || self.below.iter().any(changed) {
            return None;
        }
        // A group that was not there stood at 0.
        Some(now.groups.values().sum::<i64>() - self.groups.values().sum::<i64>())
    }

    /// A group that counted in another was removed when it had what it has here.
    fn forget(&mut self, group: &Path, above: &Path) {
        for ((domain, place), value) in std::mem::take(&mut self.below) {
            if place != group {
                self.below.insert((domain, place), value);
            } else if let Some(it) = self.groups.get_mut(&(domain, above.to_owned())) {
                *it -= value.unwrap_or_default();
            }
        }
    }
}

/// Makes rows of what groups together use, from one reading to the next.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// What was read last, by event and domain.
    before: HashMap<(usize, String), Standing>,
    /// The same by event, when all domains could be read.
    sums: HashMap<usize, Standing>,
}

impl Meter {
    /// Adds what the groups used. An event of a domain that one of them does not tell is a lost sample.
    pub(crate) fn add(&mut self, group: Option<&Text>, counted: &[Counted], samples: &mut Samples) {
        let keys: BTreeSet<_> = counted.iter().flat_map(|it| it.total.keys().cloned()).collect();
        for (event, (_, counter, is_level)) in EVENTS.iter().enumerate() {
            let domains: Vec<_> = keys.iter().filter(|key| key.0 == event).collect();
            let standing: Vec<_> = domains
                .iter()
                .map(|key| Some((*key, standing(key, *is_level, counted, samples.now)?)))
                .collect();
            samples.lost += standing.iter().filter(|it| it.is_none()).count() as u64;
            let mut rows = Vec::new();
            let mut sum = Standing { at: samples.now, ..Standing::default() };
            let mut has_fallen = false;
            for (key, now) in standing.iter().flatten() {
                sum.groups.extend(now.groups.clone());
                sum.below.extend(now.below.clone());
                let value = if *is_level {
                    Some((None, now.groups.values().sum::<i64>() as f64))
                } else {
                    let before = self.before.insert((*key).clone(), now.clone());
                    let grown = grown(before.as_ref(), now);
                    has_fallen |= grown.is_err();
                    samples.lost += u64::from(grown.is_err());
                    grown.ok().flatten().map(|it| (Some(it.interval), it.value))
                };
                rows.extend(value.map(|value| (&key.1, value)));
            }
            if has_fallen {
                // What it stood at before has what is gone now.
                self.sums.remove(&event);
            }
            if domains.len() > 1 {
                for (domain, value) in rows {
                    push(group, &format!("resctrl.l3_{domain}.{counter}"), value, samples);
                }
            }
            if domains.is_empty() || standing.iter().any(Option::is_none) {
                continue;
            }
            let name = format!("resctrl.{counter}");
            if *is_level {
                let value = sum.groups.values().sum::<i64>() as f64;
                push(group, &name, (None, value), samples);
                continue;
            }
            let before = self.sums.insert(event, sum.clone());
            match grown(before.as_ref(), &sum) {
                Ok(Some(it)) => push(group, &name, (Some(it.interval), it.value), samples),
                Ok(None) => {}
                // A domain is gone.
                Err(Fallen) => samples.lost += 1,
            }
        }
    }

    /// A group that counted in another was removed after it was read at a moment, and had nothing to count since: that
    /// takes from the other what it had. Where it was not read then, the next sample is lost.
    pub(crate) fn forget(&mut self, group: &Path, above: &Path, at: i64) {
        let standing = self.before.values_mut().chain(self.sums.values_mut());
        for it in standing.filter(|it| it.at == at) {
            it.forget(group, above);
        }
    }
}

/// What stands in an event of a domain; none if a group does not tell it. Of a level nothing else matters.
fn standing(
    key: &(usize, String),
    is_level: bool,
    counted: &[Counted],
    at: i64,
) -> Option<Standing> {
    let mut standing = Standing { at, ..Standing::default() };
    for it in counted.iter().filter(|it| it.total.contains_key(key)) {
        let place = |folder: &Path| (key.1.clone(), folder.to_owned());
        standing.groups.insert(place(&it.folder), it.total(key)?);
        let below = if is_level { Vec::new() } else { it.below(key)? };
        standing.below.extend(below.into_iter().map(|(folder, value)| (place(folder), value)));
    }
    Some(standing)
}

/// Something that only grows went back.
struct Fallen;

/// None the first time.
fn grown(before: Option<&Standing>, now: &Standing) -> Result<Option<Grown>, Fallen> {
    let Some(before) = before.filter(|it| now.at > it.at) else { return Ok(None) };
    let value = before.grown(now).ok_or(Fallen)? as f64;
    Ok(Some(Grown { value, interval: now.at - before.at }))
}

fn push(
    group: Option<&Text>,
    name: &str,
    (interval, value): (Option<i64>, f64),
    samples: &mut Samples,
) {
    match interval {
        Some(interval) => samples.growth(group, name, Some(Grown { value, interval })),
        None => samples.level(group, name, Some(value)),
    }
}
