//! A made-up file system in a temporary folder that does what the kernel does: for tests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::kernel::{Kernel, Mounted};
use super::{Tree, limits};

/// A machine with two domains of 11 ways of 1 MiB.
#[derive(Debug)]
pub(crate) struct MadeUp {
    folder: tempfile::TempDir,
    /// Nothing more may be written to `schemata`.
    pub refuses_schemata: AtomicBool,
    /// What is written to `schemata` has another effect.
    pub ignores_schemata: AtomicBool,
    /// A task that begins once tasks of a group that counts were read: in that group, and in a control group by its file.
    pub begins: Mutex<Option<(i32, PathBuf)>>,
}

const MASK: u64 = 0x7ff;
/// What a group that was just made has in the two domains.
const EVENTS: [(&str, [&str; 2]); 3] = [
    ("llc_occupancy", ["1000\n", "2000\n"]),
    ("mbm_total_bytes", ["0\n", "0\n"]),
    ("mbm_local_bytes", ["0\n", "0\n"]),
];

impl MadeUp {
    pub(crate) fn new() -> Arc<Self> {
        let folder = tempfile::tempdir().unwrap();
        let made = Self {
            folder,
            refuses_schemata: false.into(),
            ignores_schemata: false.into(),
            begins: Mutex::default(),
        };
        let texts = [
            ("info/L3/cbm_mask", "7ff\n"),
            ("info/L3/min_cbm_bits", "2\n"),
            ("info/L3/num_closids", "4\n"),
            ("info/L3/bit_usage", "0=SSSSSSSSSSS;1=SSSSSSSSSSS\n"),
            ("info/MB/min_bandwidth", "10\n"),
            ("info/MB/bandwidth_gran", "10\n"),
            ("info/MB/num_closids", "3\n"),
            ("info/L3_MON/num_rmids", "8\n"),
            ("info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n"),
            ("info/last_cmd_status", "ok\n"),
        ];
        for (path, text) in texts {
            made.set(path, text);
        }
        made.fill(&made.root());
        made.set("tasks", "1\n");
        Arc::new(made)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub(crate) fn tree(self: &Arc<Self>) -> Tree {
        Tree { kernel: Arc::<Self>::clone(self), root: self.root() }
    }

    /// Sets a file, as the hardware or another program does.
    pub(crate) fn set(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.folder.path().join(path)).unwrap()
    }

    /// Sets an event of a group in both domains.
    pub(crate) fn count(&self, group: &str, event: &str, values: [&str; 2]) {
        for (domain, value) in values.iter().enumerate() {
            let path = Path::new(group).join(format!("mon_data/mon_L3_0{domain}/{event}"));
            self.set(path.to_str().unwrap(), &format!("{value}\n"));
        }
    }

    /// The folders in one, without those that every group has.
    pub(crate) fn groups(&self, path: &str) -> Vec<String> {
        let names = self.folders(&self.folder.path().join(path)).unwrap();
        names
            .into_iter()
            .filter(|it| !["info", "mon_groups", "mon_data"].contains(&it.as_str()))
            .collect()
    }

    /// Makes a group as another program does, whatever the machine has left.
    pub(crate) fn fill_group(&self, path: &str) {
        let group = self.folder.path().join(path);
        fs::create_dir_all(&group).unwrap();
        self.fill(&group);
    }

    fn fill(&self, group: &Path) {
        let path = group.strip_prefix(self.folder.path()).unwrap().to_str().unwrap();
        let at =
            |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        self.set(&at("tasks"), "");
        for (event, values) in EVENTS {
            let data =
                if path.is_empty() { "mon_data".to_owned() } else { format!("{path}/mon_data") };
            for (domain, value) in values.iter().enumerate() {
                self.set(&format!("{data}/mon_L3_0{domain}/{event}"), value);
            }
        }
        if self.is_limiting(group) {
            fs::create_dir(group.join("mon_groups")).unwrap();
            self.set(&at("schemata"), "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n");
            self.set(&at("size"), "    MB:0=100;1=100\n    L3:0=11534336;1=11534336\n");
            self.set(&at("mode"), "shareable\n");
        }
    }

    fn is_limiting(&self, group: &Path) -> bool {
        group == self.folder.path() || group.parent() == Some(self.folder.path())
    }

    fn refuse(&self, errno: i32, why: &str) -> io::Error {
        self.set("info/last_cmd_status", &format!("{why}\n"));
        io::Error::from_raw_os_error(errno)
    }

    /// Every group, those with limits before those that count in them.
    fn all(&self) -> Vec<PathBuf> {
        let mut all = self.as_files().limiting();
        for group in all.clone() {
            let below = group.join("mon_groups");
            all.extend(
                self.folders(&below).unwrap_or_default().iter().map(|name| below.join(name)),
            );
        }
        all
    }

    /// The same folder, as it is.
    fn as_files(&self) -> Tree {
        Tree { kernel: Arc::new(Mounted), root: self.root() }
    }

    fn edit(group: &Path, change: impl FnOnce(&mut Vec<String>)) {
        let file = group.join("tasks");
        let mut tasks: Vec<_> =
            fs::read_to_string(&file).unwrap_or_default().lines().map(str::to_owned).collect();
        change(&mut tasks);
        fs::write(file, tasks.iter().map(|it| format!("{it}\n")).collect::<String>()).unwrap();
    }

    /// Moves a task: one that is in a group that counts is in that with limits, too.
    fn put(&self, task: &str, group: &Path) -> io::Result<()> {
        if task == "666" {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // A number of misfortune, and that of whoever writes it.
        if ["0", "13"].contains(&task) {
            return Err(self.refuse(libc::EACCES, ""));
        }
        let above = group.parent().and_then(Path::parent).filter(|_| !self.is_limiting(group));
        let has = |group: &Path| {
            fs::read_to_string(group.join("tasks")).unwrap_or_default().lines().any(|it| it == task)
        };
        // What no group with limits has is the root's.
        let is_roots = self.as_files().limiting().iter().skip(1).all(|it| !has(it));
        let is_there = |above| if above == self.folder.path() { is_roots } else { has(above) };
        if above.is_some_and(|above| !is_there(above)) {
            return Err(self.refuse(libc::EINVAL, "Can't move task to different control group"));
        }
        for other in self.all() {
            if Some(other.as_path()) != above {
                Self::edit(&other, |tasks| tasks.retain(|it| it != task));
            }
        }
        Self::edit(group, |tasks| tasks.push(task.to_owned()));
        Ok(())
    }

    fn put_schemata(&self, file: &Path, text: &str) -> io::Result<()> {
        if self.refuses_schemata.load(Ordering::Relaxed) {
            return Err(self.refuse(libc::EINVAL, "overlaps with exclusive group"));
        }
        for line in text.lines() {
            let (resource, _) = line.split_once(':').unwrap();
            for (_, value) in limits::values(text, resource).unwrap() {
                let is_fine = match resource {
                    "L3" => limits::hexadecimal(value).is_some_and(|it| it & !MASK == 0),
                    "MB" => value.parse::<u32>().is_ok_and(|it| (10..=100).contains(&it)),
                    _ => false,
                };
                if !is_fine {
                    return Err(self.refuse(libc::EINVAL, "mask out of range"));
                }
            }
        }
        if !self.ignores_schemata.load(Ordering::Relaxed) {
            let kept = fs::read_to_string(file)?;
            let is_new = |line: &&str| {
                let name = line.trim().split(':').next();
                text.lines().all(|it| it.split(':').next() != name)
            };
            let kept: String = kept.lines().filter(is_new).map(|it| format!("{it}\n")).collect();
            fs::write(file, format!("{kept}{text}"))?;
        }
        Ok(())
    }
}

impl Kernel for MadeUp {
    /// What a group with limits counts is its own and that of the groups in it; those that tell no number are passed over.
    fn read(&self, path: &Path) -> io::Result<String> {
        let text = fs::read_to_string(path)?;
        let relative = path.strip_prefix(self.folder.path()).unwrap();
        let is_of_group =
            relative.ends_with("tasks") && relative.iter().any(|it| it == "mon_groups");
        if is_of_group && let Some((task, threads)) = self.begins.lock().unwrap().take() {
            for file in [path, &threads] {
                fs::write(file, format!("{}{task}\n", fs::read_to_string(file)?))?;
            }
        }
        let of_data = path.ancestors().nth(2).filter(|it| it.ends_with("mon_data"));
        let Some(group) = of_data.and_then(Path::parent).filter(|it| self.is_limiting(it)) else {
            return Ok(text);
        };
        let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<i64>().ok();
        let file = path.strip_prefix(group).unwrap();
        let below = group.join("mon_groups");
        let names = self.folders(&below).unwrap_or_default();
        let counted = names.iter().filter_map(|name| number(&below.join(name).join(file)));
        let numbers: Vec<_> = number(path).into_iter().chain(counted).collect();
        // The group's own file may say something on purpose, where nothing else does.
        if numbers.is_empty() || number(path).is_none() {
            return Ok(text);
        }
        Ok(format!("{}\n", numbers.iter().sum::<i64>()))
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        self.set("info/last_cmd_status", "ok\n");
        fs::metadata(path)?;
        match path.file_name().and_then(|it| it.to_str()) {
            Some("tasks") => self.put(text.trim(), path.parent().unwrap()),
            Some("schemata") => self.put_schemata(path, text),
            _ => Err(io::Error::from_raw_os_error(libc::EACCES)),
        }
    }

    fn make(&self, path: &Path) -> io::Result<()> {
        let limiting = self.as_files().limiting().len();
        if self.is_limiting(path) && limiting >= 3 {
            return Err(self.refuse(libc::ENOSPC, "Out of CLOSIDs"));
        }
        if self.all().len() >= 8 {
            return Err(self.refuse(libc::ENOSPC, "Out of RMIDs"));
        }
        fs::create_dir(path)?;
        self.fill(path);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::metadata(path.join("tasks"))?;
        fs::remove_dir_all(path)
    }
}
