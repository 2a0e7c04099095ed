//! How much of the last-level cache and of the memory's bandwidth the machine and each control group use, by the kernel's
//! resctrl; and limits of both for the control groups.
//!
//! Each control group has a group of resctrl's that counts, with its threads in it. The kernel puts what threads begin
//! where they are; threads that join a control group otherwise are moved at the next sample.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::Monitor;
use crate::config::Asked;
use crate::groups::Watched;
use crate::resctrl::{Limited, Made, Meter, Tree};
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
    has_patterns: bool,
    /// Sentences that were told, each once.
    told: BTreeSet<String>,
    /// Sentences for the first sample.
    notes: Vec<String>,
}

/// What the monitor holds of a control group.
struct Group {
    /// Its folders in the trees of control groups.
    folders: Vec<PathBuf>,
    /// Its group of resctrl's; none where only limits hold.
    counting: Option<Made>,
    meter: Meter,
}

impl Resctrl {
    pub(super) fn new(asked: &Asked, patterns: &[String]) -> Result<Self, String> {
        let tree = Tree::find(asked.root.as_deref())?;
        Self::with(tree, asked, Watched::new(patterns)?, !patterns.is_empty())
    }

    fn with(
        tree: Tree,
        asked: &Asked,
        groups: Watched<Group>,
        has_patterns: bool,
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
            has_patterns,
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
        let tree = &self.tree;
        let parent = self.limits.as_ref().map_or(&tree.root, |(made, _)| &made.folder);
        let (features, mut refused) = (&self.features, Vec::new());
        let gone = self.groups.look(|group, _| {
            let folders = group.all();
            if features.is_empty() {
                return Some(Group { folders, counting: None, meter: Meter::default() });
            }
            match tree.make_counting(parent) {
                // It is read in this sample, too, when it stands at 0.
                Ok(made) => Some(Group { folders, counting: Some(made), meter: Meter::default() }),
                Err(why) => {
                    refused.push(why);
                    None
                }
            }
        });
        samples.lost += refused.len() as u64;
        samples.warnings.extend(gone);
        for why in refused {
            self.tell(format!("control groups are not counted: {why}"), samples);
        }
    }

    fn tell(&mut self, sentence: String, samples: &mut Samples) {
        if self.told.insert(sentence.clone()) {
            samples.warnings.push(sentence);
        }
    }

    /// Moves the threads of each control group into its group, and what left it out again.
    fn move_threads(&mut self, samples: &mut Samples) {
        let parent = self.parent().to_owned();
        let foreign = self.tree.foreign();
        let watched: BTreeSet<PathBuf> =
            self.groups.iter_mut().flat_map(|(_, group)| group.folders.clone()).collect();
        let (mut sentences, mut all) = (Vec::new(), BTreeSet::new());
        for (name, group) in self.groups.iter_mut() {
            let mut threads = BTreeSet::new();
            for folder in &group.folders {
                collect(folder, &watched, &mut threads);
            }
            let others = threads.intersection(&foreign).count();
            if others > 0 {
                samples.lost += 1;
                sentences.push(format!(
                    "threads of {name} are in groups of resctrl that others have made, and stay there: they are not counted here"
                ));
            }
            let target = group.counting.as_ref().map_or(&parent, |made| &made.folder);
            let there = self.tree.tasks(target);
            for thread in threads.iter().filter(|it| !foreign.contains(it) && !there.contains(it)) {
                // A group that counts takes tasks of the group that it is in alone.
                let moved = match &self.limits {
                    Some((made, _)) if group.counting.is_some() => {
                        self.tree.put(*thread, &made.folder)
                    }
                    _ => Ok(true),
                };
                if let Err(why) = moved.and_then(|is_there| {
                    if is_there { self.tree.put(*thread, target) } else { Ok(false) }
                }) {
                    samples.lost += 1;
                    sentences.push(format!("threads of {name} cannot be moved: {why}"));
                    break;
                }
            }
            all.extend(threads);
        }
        // What belongs to no control group that is watched goes back to the root.
        let mut ours: Vec<_> = self
            .groups
            .iter_mut()
            .filter_map(|(_, group)| group.counting.as_ref().map(|made| made.folder.clone()))
            .collect();
        ours.extend(self.limits.as_ref().map(|(made, _)| made.folder.clone()));
        for folder in ours {
            for task in self.tree.tasks(&folder).difference(&all) {
                if let Err(why) = self.tree.put(*task, &self.tree.root) {
                    sentences.push(format!(
                        "threads that left their control group cannot be moved: {why}"
                    ));
                    break;
                }
            }
        }
        for sentence in sentences {
            self.tell(sentence, samples);
        }
    }

    fn read(&mut self, samples: &mut Samples) {
        let reading = |folder: PathBuf, tree: &Tree, features| {
            let reading = tree.reading(&folder, features)?;
            Some((folder, reading))
        };
        let folders = self.tree.limiting().into_iter();
        let readings: Vec<_> =
            folders.filter_map(|it| reading(it, &self.tree, &self.features)).collect();
        self.machine.add(None, &readings, samples);
        let (tree, features) = (&self.tree, &self.features);
        for (name, group) in self.groups.iter_mut() {
            let Some(made) = &group.counting else { continue };
            match reading(made.folder.clone(), tree, features) {
                Some(read) => group.meter.add(Some(name), &[read], samples),
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
        if self.has_patterns {
            self.look(samples);
            self.move_threads(samples);
        }
        self.read(samples);
    }

    fn finish(&mut self, samples: &mut Samples) {
        samples.warnings.append(&mut self.notes);
        self.read(samples);
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
