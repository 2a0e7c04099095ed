//! What `bpftrace -f json` prints, as samples.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map as Object, Value};
use uncia_record::Text;

use super::program::{Key, Map, Program};
use crate::config::Format;
use crate::printed::Printed;
use crate::samples::Sample;

/// Endings of names that are units, which stand behind the number in a bin's name.
const UNITS: [&str; 6] = ["ns", "us", "ms", "s", "bytes", "pages"];
/// Longer parts of keys are cut.
const MOST_KEY_CHARACTERS: usize = 64;
/// Text that is printed without the end of a line; longer ones are no samples.
const MOST_TEXT_BYTES: usize = 64 * 1024;

/// Reads the lines of bpftrace.
pub(crate) struct Maps {
    program: Program,
    name: String,
    /// What is printed by the program itself.
    printed: Printed,
    text: String,
    /// When all maps were empty, in ns of the monotonic clock.
    began: i64,
    /// When a map came last, and what it held, by counter, group and CPU.
    came: HashMap<String, i64>,
    totals: HashMap<Place, f64>,
    groups: Groups,
    /// Whether something in a map that grows went back.
    has_fallen: bool,
}

/// Whose value it is: counter, group, CPU.
type Place = (Text, Option<Text>, Option<i64>);

/// A line of bpftrace.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    data: Value,
}

/// What a line was.
pub(crate) enum Read {
    Understood,
    /// Events that bpftrace lost, and samples that went back.
    Lost(u64),
    /// It is none of JSON: what bpftrace has to say.
    Message,
}

/// A reading of a map, or of what it holds for a key.
struct Reading<'a> {
    map: &'a Map,
    /// Before the name of the map: the parts of the key that have no columns.
    prefix: String,
    map_name: &'a str,
    group: Option<Text>,
    cpu: Option<i64>,
    at: i64,
    /// Since when it grew, in ns.
    interval: i64,
}

impl Maps {
    /// Of a program that was attached at a moment, and whose rows have this name.
    pub(crate) fn new(program: Program, name: &str, began: i64, tree: Option<PathBuf>) -> Self {
        Self {
            program,
            name: name.to_owned(),
            printed: Printed::new(Format::Json, name),
            text: String::new(),
            began,
            came: HashMap::new(),
            totals: HashMap::new(),
            groups: Groups { tree, known: HashMap::new() },
            has_fallen: false,
        }
    }

    /// Reads a line that came at a moment; the error says what is wrong with it.
    pub(crate) fn read(
        &mut self,
        line: &str,
        at: i64,
        rows: &mut Vec<Sample>,
    ) -> Result<Read, String> {
        if line.trim().is_empty() {
            return Ok(Read::Understood);
        }
        let Ok(line) = serde_json::from_str::<Line>(line) else { return Ok(Read::Message) };
        match (line.kind.as_str(), &line.data) {
            ("map" | "hist" | "stats", Value::Object(maps)) => {
                let mut lost = 0;
                for (name, value) in maps {
                    self.has_fallen = false;
                    self.map(name, value, at, rows);
                    lost += u64::from(self.has_fallen);
                }
                if lost > 0 {
                    return Ok(Read::Lost(lost));
                }
            }
            ("printf", Value::String(text)) => return self.printed(text, at, rows),
            ("lost_events", data) => {
                return Ok(Read::Lost(data.get("events").and_then(Value::as_u64).unwrap_or(1)));
            }
            _ => {}
        }
        Ok(Read::Understood)
    }

    /// Lines that are objects of JSON are samples; other text is for people.
    fn printed(&mut self, text: &str, at: i64, rows: &mut Vec<Sample>) -> Result<Read, String> {
        self.text.push_str(text);
        let mut result = Ok(Read::Understood);
        while let Some(end) = self.text.find('\n') {
            let line: String = self.text.drain(..=end).collect();
            if line.trim_start().starts_with('{')
                && let Err(why) = self.printed.read(&line, at, rows)
            {
                result = Err(why);
            }
        }
        if self.text.len() > MOST_TEXT_BYTES {
            self.text.clear();
        }
        result
    }

    fn map(&mut self, name: &str, value: &Value, at: i64, rows: &mut Vec<Sample>) {
        let map = self.program.map(name);
        if map.is_scratch {
            return;
        }
        let since = self.came.insert(name.to_owned(), at).unwrap_or(self.began);
        let name = name.trim_start_matches('@');
        let whole = Reading {
            map: &map,
            prefix: String::new(),
            map_name: if name.is_empty() { "map" } else { name },
            group: None,
            cpu: None,
            at,
            interval: at - since,
        };
        match value {
            Value::Object(keys) if !is_stats(keys) => {
                for (key, value) in keys {
                    let reading = self.keyed(&whole, key);
                    self.value(&reading, value, rows);
                }
            }
            value => self.value(&whole, value, rows),
        }
    }

    /// The reading of a key.
    fn keyed<'a>(&mut self, whole: &Reading<'a>, key: &str) -> Reading<'a> {
        let mut parts: Vec<&str> = key.split(',').collect();
        let (mut group, mut cpu) = (None, None);
        // Texts may have commas; then nobody knows which part is what.
        if parts.len() == whole.map.keys.len() {
            parts = Vec::new();
            for (part, kind) in key.split(',').zip(&whole.map.keys) {
                match kind {
                    Key::Cpu => cpu = part.trim().parse().ok(),
                    Key::Cgroup => match self.groups.path(part.trim()) {
                        Some(path) => group = Some(path),
                        None => parts.push(part),
                    },
                    Key::Other => parts.push(part),
                }
            }
        }
        let parts = parts.into_iter().map(|part| format!("{}.", in_name(part)));
        Reading { prefix: parts.collect(), group, cpu, ..*whole }
    }

    fn value(&mut self, reading: &Reading<'_>, value: &Value, rows: &mut Vec<Sample>) {
        let name = reading.map_name;
        let (stem, unit) = split_unit(name);
        match value {
            Value::Array(bins) => self.histogram(reading, bins, rows),
            Value::Object(stats) => {
                let number = |key: &str| stats.get(key).and_then(Value::as_f64);
                self.push(reading, &with_count(stem), number("count"), rows);
                self.push(reading, name, number("total"), rows);
            }
            value if reading.map.counts && unit.is_empty() => {
                self.push(reading, &with_count(name), value.as_f64(), rows);
            }
            // Text has no rows.
            value => self.push(reading, name, value.as_f64(), rows),
        }
    }

    /// `[{"max": -1, "count": 3}, {"min": 0, "max": 0, "count": 1}, {"min": 1000, "count": 2}]`: bins without rows
    /// did not grow.
    fn histogram(&mut self, reading: &Reading<'_>, bins: &[Value], rows: &mut Vec<Sample>) {
        let (stem, unit) = split_unit(reading.map_name);
        let mut total = 0.0;
        for bin in bins {
            let bound = |key: &str| bin.get(key).and_then(Value::as_i64);
            let Some(count) = bin.get("count").and_then(Value::as_f64) else { continue };
            total += count;
            let bin = match (bound("min"), bound("max")) {
                (_, Some(max)) => format!("{stem}_within_{max}{unit}_count"),
                (Some(min), None) => format!("{stem}_from_{min}{unit}_count"),
                (None, None) => continue,
            };
            let before = rows.len();
            self.push(reading, &bin, Some(count), rows);
            let is_empty = rows.get(before).is_some_and(|it| it.value == 0.0);
            rows.truncate(rows.len() - usize::from(is_empty));
        }
        self.push(reading, &with_count(stem), Some(total), rows);
    }

    fn push(
        &mut self,
        reading: &Reading<'_>,
        counter: &str,
        value: Option<f64>,
        rows: &mut Vec<Sample>,
    ) {
        let Some(value) = value else { return };
        let counter = Text::from(format!("{}.{}{counter}", self.name, reading.prefix).as_str());
        let (group, cpu) = (reading.group.clone(), reading.cpu);
        let mut sample =
            Sample { counter, group, cpu, interval: None, value, at: Some(reading.at) };
        if reading.map.grows {
            if reading.interval <= 0 {
                return;
            }
            sample.interval = Some(reading.interval);
            // What the program clears is of the time since it came last.
            if !(self.program.prints && reading.map.is_cleared) {
                let place = (sample.counter.clone(), sample.group.clone(), sample.cpu);
                sample.value -= self.totals.insert(place, value).unwrap_or_default();
            }
            if sample.value < 0.0 {
                self.has_fallen = true;
                return;
            }
        }
        rows.push(sample);
    }
}

/// Whether an object is what `stats()` gives, and not what a map holds by its keys.
fn is_stats(object: &Object<String, Value>) -> bool {
    object.len() == 3
        && ["count", "average", "total"]
            .iter()
            .all(|key| object.get(*key).is_some_and(Value::is_number))
}

/// `wait_ns` as `wait` and `ns`; without a unit, that is empty.
fn split_unit(name: &str) -> (&str, &str) {
    name.rsplit_once('_').filter(|(_, unit)| UNITS.contains(unit)).unwrap_or((name, ""))
}

fn with_count(name: &str) -> String {
    if name.ends_with("_count") { name.to_owned() } else { format!("{name}_count") }
}

/// A part of a key as it stands in a counter's name, whose parts are separated by points.
fn in_name(part: &str) -> String {
    let fine = |it: char| if it.is_whitespace() || it.is_control() || it == '.' { '_' } else { it };
    part.trim().chars().map(fine).take(MOST_KEY_CHARACTERS).collect()
}

/// Paths of control groups by their numbers, which are their folders' in the tree of version 2.
struct Groups {
    tree: Option<PathBuf>,
    known: HashMap<u64, Option<Text>>,
}

impl Groups {
    fn path(&mut self, number: &str) -> Option<Text> {
        let (number, tree) = (number.parse().ok()?, self.tree.as_ref()?);
        if !self.known.contains_key(&number) {
            // All that are there now, and that this one was looked for.
            walk(tree, "", &mut self.known);
            self.known.entry(number).or_default();
        }
        self.known.get(&number)?.clone()
    }
}

fn walk(folder: &Path, path: &str, known: &mut HashMap<u64, Option<Text>>) {
    let Ok(metadata) = fs::metadata(folder) else { return };
    known.insert(metadata.ino(), Some(if path.is_empty() { "/".into() } else { path.into() }));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            walk(&entry.path(), &format!("{path}/{name}"), known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// Counter, group, CPU, interval in ms, value.
    type Row = (String, Option<String>, Option<i64>, Option<i64>, f64);

    fn maps(program: &str, tree: Option<&Path>) -> Maps {
        Maps::new(Program::read(program), "x", 0, tree.map(Path::to_owned))
    }

    /// What comes of lines, a second apart.
    fn read(maps: &mut Maps, lines: &[&str]) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut at = maps.came.values().max().copied().unwrap_or_default();
        for line in lines {
            at += SECOND;
            assert!(maps.read(line, at, &mut rows).is_ok(), "{line}");
        }
        let text = |it: Text| it.to_string();
        let ms = |ns| ns / 1_000_000;
        let row = |it: Sample| {
            (text(it.counter), it.group.map(text), it.cpu, it.interval.map(ms), it.value)
        };
        rows.into_iter().map(row).collect()
    }

    fn plain(counter: &str, interval: Option<i64>, value: f64) -> Row {
        (counter.to_owned(), None, None, interval, value)
    }

    #[test]
    fn maps_that_grow_are_differences_and_others_levels() {
        let mut maps =
            maps("@calls = count(); @read_bytes = sum(1); @last_ns = nsecs; @name = comm;", None);
        let line = |calls, bytes| {
            [
                format!("{{\"type\": \"map\", \"data\": {{\"@calls\": {calls}}}}}"),
                format!("{{\"type\": \"map\", \"data\": {{\"@read_bytes\": {bytes}}}}}"),
                "{\"type\": \"map\", \"data\": {\"@last_ns\": 77}}".to_owned(),
                "{\"type\": \"map\", \"data\": {\"@name\": \"cat\"}}".to_owned(),
            ]
        };
        let first = line(5, 100);
        let first: Vec<_> = first.iter().map(String::as_str).collect();
        assert_eq!(
            read(&mut maps, &first),
            [
                plain("x.calls_count", Some(1_000), 5.0),
                plain("x.read_bytes", Some(2_000), 100.0),
                plain("x.last_ns", None, 77.0),
            ]
        );
        let second = line(7, 100);
        let second: Vec<_> = second.iter().map(String::as_str).collect();
        assert_eq!(
            read(&mut maps, &second)[..2],
            [plain("x.calls_count", Some(4_000), 2.0), plain("x.read_bytes", Some(4_000), 0.0)]
        );
        // It went back: it was not only added to.
        let lost = maps.read(first[0], 9 * SECOND, &mut Vec::new());
        assert!(matches!(lost, Ok(Read::Lost(1))));
        assert_eq!(read(&mut maps, &[first[0]]), [plain("x.calls_count", Some(1_000), 0.0)]);
    }

    #[test]
    fn keys_are_columns_where_there_are_some_and_else_parts_of_names() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("a/b")).unwrap();
        let number = fs::metadata(tree.path().join("a/b")).unwrap().ino();
        let mut maps =
            maps("@n[comm, cpu, cgroup] = count(); @k[comm] = count();", Some(tree.path()));
        let line = format!(
            "{{\"type\": \"map\", \"data\": {{\"@n\": {{\"kworker/1:0 x,1,{number}\": 3, \"a.b,0,1\": 2}}}}}}"
        );
        let rows =
            read(&mut maps, &[&line, "{\"type\": \"map\", \"data\": {\"@k\": {\"a,b\": 1}}}"]);
        assert_eq!(rows.len(), 3);
        assert!(rows.contains(&(
            "x.kworker/1:0_x.n_count".into(),
            Some("/a/b".into()),
            Some(1),
            Some(1_000),
            3.0
        )));
        assert!(rows.contains(&("x.a_b.1.n_count".into(), None, Some(0), Some(1_000), 2.0)));
        assert!(rows.contains(&plain("x.a.b.k_count", Some(2_000), 1.0)));
    }

    #[test]
    fn histograms_are_bins_that_grew_and_their_sum() {
        let mut maps = maps("@wait_us = lhist(1, 0, 20, 10); @h[cpu] = hist(1);", None);
        let line = "{\"type\": \"hist\", \"data\": {\"@wait_us\": [{\"max\": -1, \"count\": 1}, {\"min\": 0, \"max\": \
                    9, \"count\": 0}, {\"min\": 20, \"count\": 4}]}}";
        let rows = read(&mut maps, &[line, line]);
        assert_eq!(
            rows,
            [
                plain("x.wait_within_-1us_count", Some(1_000), 1.0),
                plain("x.wait_from_20us_count", Some(1_000), 4.0),
                plain("x.wait_count", Some(1_000), 5.0),
                plain("x.wait_count", Some(1_000), 0.0),
            ]
        );
        let keyed = "{\"type\": \"hist\", \"data\": {\"@h\": {\"1\": [{\"min\": 2, \"max\": 3, \"count\": 2}]}}}";
        let rows = read(&mut maps, &[keyed]);
        assert_eq!(rows[0], ("x.h_within_3_count".into(), None, Some(1), Some(3_000), 2.0));
        assert_eq!(rows[1].0, "x.h_count");
    }

    #[test]
    fn statistics_are_a_count_and_a_sum() {
        let mut maps = maps("@read_bytes = stats(1); @s[comm] = stats(1); @a = avg(2)", None);
        let stats = "{\"count\": 7, \"average\": 5, \"total\": 35}";
        let one = format!("{{\"type\": \"stats\", \"data\": {{\"@read_bytes\": {stats}}}}}");
        let keyed = format!("{{\"type\": \"stats\", \"data\": {{\"@s\": {{\"sh\": {stats}}}}}}}");
        let rows = read(&mut maps, &[&one, &keyed, "{\"type\": \"stats\", \"data\": {\"@a\": 5}}"]);
        let names: Vec<_> = rows.iter().map(|row| (row.0.as_str(), row.4)).collect();
        let expected = [
            ("x.read_count", 7.0),
            ("x.read_bytes", 35.0),
            ("x.sh.s_count", 7.0),
            ("x.sh.s", 35.0),
            ("x.a", 5.0),
        ];
        assert_eq!(names, expected);
        assert_eq!(rows[4].3, None);
    }

    #[test]
    fn what_is_printed_and_cleared_is_of_the_time_since() {
        let mut maps =
            maps("interval:s:1 { print(@a); clear(@a); } kprobe:b { @a = count(); }", None);
        let line = |value| format!("{{\"type\": \"map\", \"data\": {{\"@a\": {value}}}}}");
        let rows = read(&mut maps, &[&line(5), &line(3), &line(4)]);
        assert_eq!(rows.iter().map(|it| it.4).collect::<Vec<_>>(), [5.0, 3.0, 4.0]);
        assert!(rows.iter().all(|it| it.3 == Some(1_000)));
    }

    #[test]
    fn what_is_cleared_at_the_end_or_counts_both_ways_is_no_growth_since_the_last_print() {
        let line = |value| format!("{{\"type\": \"map\", \"data\": {{\"@a\": {value}}}}}");
        let values = |program: &str| {
            let mut maps = maps(program, None);
            let rows = read(&mut maps, &[&line(5), &line(8), &line(8)]);
            rows.iter().map(|it| (it.3, it.4)).collect::<Vec<_>>()
        };
        let at_the_end =
            "interval:s:1 { print(@a); } kprobe:b { @a = count(); } END { clear(@a); }";
        let second = Some(1_000);
        assert_eq!(values(at_the_end), [(second, 5.0), (second, 3.0), (second, 0.0)]);
        let both_ways = "kprobe:b { @a++; } kretprobe:b { @a--; }";
        assert_eq!(values(both_ways), [(None, 5.0), (None, 8.0), (None, 8.0)]);
    }

    #[test]
    fn objects_that_are_printed_are_samples_and_other_text_is_not() {
        let mut maps = maps("@start[tid] = 1; delete(@start[tid]);", None);
        let print =
            |text: &str| format!("{{\"type\": \"printf\", \"data\": {}}}", Value::from(text));
        let lines = ["{\"a_count\": ", "3}\nTracing... Ctrl-C ends\n", "{\"b_ns\": 4}"].map(print);
        let mut lines: Vec<_> = lines.iter().map(String::as_str).collect();
        lines.push("{\"type\": \"map\", \"data\": {\"@start\": {\"7\": 1}}}");
        lines.push("{\"type\": \"time\", \"data\": \"12:00\"}");
        assert_eq!(read(&mut maps, &lines), [plain("x.a_count", None, 3.0)]);
        let mut rows = Vec::new();
        // The object before has ended with the line.
        assert!(maps.read(&print("\n{\"a\": \"text\"}\n"), 1, &mut rows).is_err());
        assert_eq!(rows.len(), 1);
        let lost = "{\"type\": \"lost_events\", \"data\": {\"events\": 12}}";
        assert!(matches!(maps.read(lost, 1, &mut rows), Ok(Read::Lost(12))));
        assert!(matches!(maps.read("WARNING: a", 1, &mut rows), Ok(Read::Message)));
        for line in [
            "{\"type\": \"hist\", \"data\": {\"@h\": [{}, 5, {\"count\": 1}]}}",
            "{\"type\": \"map\"}",
            "{}",
        ] {
            let _ = maps.read(line, 2, &mut rows);
        }
    }
}
