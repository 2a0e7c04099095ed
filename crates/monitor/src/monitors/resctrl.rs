//! How much of the last-level cache and of the memory's bandwidth the machine and each control group use, by the kernel's
//! resctrl; and limits of both for the control groups.
//!
//! Each control group has a group of resctrl's that counts, with its threads in it. The kernel puts what threads begin
//! where they are; threads that join a control group otherwise are moved at the next sample.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::Monitor;
use crate::config::Asked;
use crate::groups::Watched;
use crate::resctrl::{Counted, EVENTS, Limited, Made, Meter, Tree};
use crate::samples::Samples;

/// Files with the threads of a control group, of version 2 and of version 1.
const THREADS: [&str; 2] = ["cgroup.threads", "tasks"];

/// Reads resctrl's counters, and moves threads.
pub(super) struct Resctrl {
    /// Before those with limits, which are above them: fields are dropped in this order.
    groups: Watched<Group>,
    limits: Option<(Made, Limited)>,
    tree: Tree,
    features: BTreeSet<String>,
    machine: Meter,
    /// Which control groups are watched, and whether there ever was one.
    patterns: Vec<String>,
    has_seen: bool,
    /// Sentences that were told, each once.
    told: BTreeSet<String>,
    /// Sentences for the first sample.
    notes: Vec<String>,
}

/// What the monitor holds of a control group.
struct Group {
    /// Its folders in the trees of control groups.
    folders: Vec<PathBuf>,
    /// Its group of resctrl's; none where only limits hold, and while the processor has none left.
    counting: Option<Made>,
    meter: Meter,
}

impl Resctrl {
    pub(super) fn new(asked: &Asked, patterns: &[String]) -> Result<Self, String> {
        let tree = Tree::find(asked.root.as_deref())?;
        Self::with(tree, asked, Watched::new(patterns)?, patterns.to_vec())
    }

    fn with(
        tree: Tree,
        asked: &Asked,
        groups: Watched<Group>,
        patterns: Vec<String>,
    ) -> Result<Self, String> {
        let mut notes = Vec::new();
        for left in tree.left(true) {
            let folder = left.folder.display();
            notes.push(match left.removed {
                Some(Err(error)) => {
                    format!("{folder}, which an earlier run left, cannot be removed: {error}")
                }
                _ => format!("{folder}, which an earlier run left, was removed"),
            });
        }
        let features = tree.features();
        if features.is_empty() {
            let why = "the processor or kernel counts neither the cache nor the bandwidth (no CMT or MBM: no info/L3_MON)";
            if asked.limits.is_none() {
                return Err(why.to_owned());
            }
            notes.push(format!("there are rows of limits alone: {why}"));
        } else {
            let missing = EVENTS.iter().map(|it| it.0).filter(|it| !features.contains(*it));
            let missing: Vec<_> = missing.collect();
            if !missing.is_empty() {
                let missing = missing.join(" and ");
                notes.push(format!("the processor or kernel does not count {missing}"));
            }
        }
        let limits = match &asked.limits {
            Some(wanted) => {
                Some(tree.limit(wanted).map_err(|why| format!("limits cannot be set: {why}"))?)
            }
            None => None,
        };
        Ok(Self {
            groups,
            limits,
            tree,
            features,
            machine: Meter::default(),
            patterns,
            has_seen: false,
            told: BTreeSet::new(),
            notes,
        })
    }

    /// The group of resctrl's that groups which count are in.
    fn parent(&self) -> &Path {
        self.limits.as_ref().map_or(&self.tree.root, |(made, _)| &made.folder)
    }

    /// Looks which control groups there are, and makes groups for them.
    fn look(&mut self, samples: &mut Samples) {
        let gone = self.groups.look(|group, _| {
            Some(Group { folders: group.all(), counting: None, meter: Meter::default() })
        });
        samples.warnings.extend(gone);
        if self.features.is_empty() {
            return;
        }
        let parent = self.parent().to_owned();
        let (tree, features, mut refused) = (&self.tree, &self.features, Vec::new());
        for (name, group) in self.groups.iter_mut().filter(|(_, it)| it.counting.is_none()) {
            let made = match tree.make_counting(&parent) {
                Ok(made) => made,
                // It may be possible later; limits hold meanwhile.
                Err(why) => {
                    refused.push(why);
                    continue;
                }
            };
            // It stands at 0 now.
            if let Some(reading) = tree.reading(&made.folder, features) {
                let counted = Counted::alone(made.folder.clone(), reading);
                group.meter.add(Some(name), &[counted], samples);
            }
            group.counting = Some(made);
        }
        samples.lost += refused.len() as u64;
        for why in refused {
            self.tell(format!("control groups are not counted: {why}"), samples);
        }
    }

    /// Folders of the groups that count for a control group.
    fn counting(&mut self) -> BTreeSet<PathBuf> {
        let counting = self.groups.iter_mut().filter_map(|(_, it)| it.counting.as_ref());
        counting.map(|made| made.folder.clone()).collect()
    }

    fn tell(&mut self, sentence: String, samples: &mut Samples) {
        if self.told.insert(sentence.clone()) {
            samples.warnings.push(sentence);
        }
    }

    /// Moves the threads of each control group into its group, and what left it out again.
    fn move_threads(&mut self, samples: &mut Samples) {
        let parent = self.parent().to_owned();
        let counting = self.counting();
        // Before the threads are collected: what begins after that, where its parent is, has not left.
        let ours = counting.iter().chain(self.limits.iter().map(|(made, _)| &made.folder));
        let before: Vec<_> = ours.map(|folder| self.tree.tasks(folder)).collect();
        let foreign = self.tree.foreign();
        let watched: BTreeSet<PathBuf> =
            self.groups.iter_mut().flat_map(|(_, group)| group.folders.clone()).collect();
        let (mut sentences, mut all) = (Vec::new(), BTreeSet::new());
        for (name, group) in self.groups.iter_mut() {
            let mut threads = BTreeSet::new();
            for folder in &group.folders {
                collect(folder, &watched, &mut threads);
            }
            if !threads.is_disjoint(&foreign) {
                samples.lost += 1;
                let missing = if self.limits.is_some() {
                    "neither counted nor limited"
                } else {
                    "not counted"
                };
                sentences.push(format!(
                    "threads of {name} are in groups of resctrl that others have made, and stay there: they are {missing} here"
                ));
            }
            let made = group.counting.as_ref();
            let target = made.map_or(&parent, |made| &made.folder);
            let mut there = self.tree.tasks(target);
            if made.is_none() {
                // A group with limits has the tasks of those that count in it, too.
                for folder in &counting {
                    there = &there - &self.tree.tasks(folder);
                }
            }
            let mut refused = BTreeSet::new();
            for thread in threads.iter().filter(|it| !foreign.contains(it) && !there.contains(it)) {
                // A group that counts takes tasks of the group that it is in alone.
                let moved = match &self.limits {
                    Some((limits, _)) if made.is_some() => self.tree.put(*thread, &limits.folder),
                    _ => Ok(true),
                };
                let moved = moved.and_then(|is_there| {
                    if is_there { self.tree.put(*thread, target) } else { Ok(false) }
                });
                // One that cannot be moved keeps no other from it.
                refused.extend(moved.err());
            }
            samples.lost += u64::from(!refused.is_empty());
            sentences.extend(
                refused.iter().map(|why| format!("threads of {name} cannot be moved: {why}")),
            );
            all.extend(threads);
        }
        // What belongs to no control group that is watched goes back to the root.
        let left: BTreeSet<_> = before.iter().flatten().filter(|it| !all.contains(it)).collect();
        for task in left {
            if let Err(why) = self.tree.put(*task, &self.tree.root) {
                sentences
                    .push(format!("threads that left their control group cannot be moved: {why}"));
            }
        }
        for sentence in sentences {
            self.tell(sentence, samples);
        }
    }

    fn read(&mut self, samples: &mut Samples) {
        if self.features.is_empty() {
            return;
        }
        let counted = self.tree.counted(&self.features);
        self.machine.add(None, &counted, samples);
        let read: BTreeMap<_, _> = counted.into_iter().flat_map(|it| it.below).collect();
        for (name, group) in self.groups.iter_mut() {
            let Some(made) = &group.counting else { continue };
            match read.get(&made.folder).cloned().flatten() {
                Some(reading) => {
                    let counted = Counted::alone(made.folder.clone(), reading);
                    group.meter.add(Some(name), &[counted], samples);
                }
                None => samples.lost += 1,
            }
        }
    }

    /// What the limits are, once.
    fn tell_limits(&self, samples: &mut Samples) {
        let Some((_, limited)) = &self.limits else { return };
        let of_domain =
            limited.masks.iter().filter_map(|(id, (_, bytes))| Some((id, (*bytes)? as f64)));
        let of_domain: Vec<_> = of_domain.collect();
        if of_domain.len() > 1 {
            for (id, bytes) in &of_domain {
                samples.level(None, &format!("resctrl.l3_{id:0>2}.llc_limit_bytes"), Some(*bytes));
            }
        }
        if !of_domain.is_empty() && of_domain.len() == limited.masks.len() {
            let sum = of_domain.iter().map(|(_, bytes)| bytes).sum();
            samples.level(None, "resctrl.llc_limit_bytes", Some(sum));
        }
        let percent = limited.bandwidth_percent.map(f64::from);
        samples.level(None, "resctrl.bandwidth_limit_percent", percent);
    }
}

impl Monitor for Resctrl {
    fn sample(&mut self, samples: &mut Samples) {
        samples.warnings.append(&mut self.notes);
        if samples.before.is_none() {
            self.tell_limits(samples);
        }
        // Before groups are removed: the kernel takes from the group above what they have counted.
        self.read(samples);
        if self.patterns.is_empty() {
            return;
        }
        let before = self.counting();
        self.look(samples);
        let above = self.parent().to_owned();
        let there = self.tree.counting(&above);
        let gone = &before - &self.counting();
        for group in gone.iter().filter(|it| !there.contains(it)) {
            self.machine.forget(group, &above, samples.now);
        }
        self.has_seen |= self.groups.iter_mut().next().is_some();
        self.move_threads(samples);
    }

    fn finish(&mut self, samples: &mut Samples) {
        samples.warnings.append(&mut self.notes);
        self.read(samples);
        if !self.patterns.is_empty() && !self.has_seen {
            let missed = match (&self.limits, self.features.is_empty()) {
                (None, _) => "counted",
                (Some(_), true) => "limited",
                (Some(_), false) => "counted or limited",
            };
            let patterns = self.patterns.join(" or ");
            samples
                .warnings
                .push(format!("no control group is named {patterns}: nothing was {missed}"));
        }
        // Those below before the one with limits, though that would take them along.
        let counting = self.groups.iter_mut().filter_map(|(_, group)| group.counting.take());
        let limiting = self.limits.take().map(|(made, _)| made);
        for made in counting.collect::<Vec<_>>().into_iter().chain(limiting) {
            let folder = made.folder.display().to_string();
            if let Err(error) = made.remove() {
                samples.warnings.push(format!("{folder} cannot be removed: {error}"));
            }
        }
    }
}

/// Adds the threads of a control group and of those within it, but for those that are watched themselves.
fn collect(folder: &Path, watched: &BTreeSet<PathBuf>, threads: &mut BTreeSet<i32>) {
    for file in THREADS {
        let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
        threads.extend(text.split_ascii_whitespace().filter_map(|it| it.parse::<i32>().ok()));
        // Those of other namespaces are 0, which to resctrl is whoever writes it.
        threads.remove(&0);
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let below = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !watched.contains(&below) {
            collect(&below, watched, threads);
        }
    }
}

#[cfg(test)]
mod tests;
