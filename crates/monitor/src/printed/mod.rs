//! What programs print, as samples: JSON lines, and the output of `perf stat -I`, `pqos` and `blkparse`.

mod perf;

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};
use uncia_record::Text;

use crate::config::Format;
use crate::samples::Sample;

const NS_PER_S: f64 = 1e9;
const SECTOR_BYTES: u64 = 512;
/// What an object of JSON that is one sample may have.
const KEYS: [&str; 5] = ["counter", "value", "interval_s", "cgroup", "cpu"];
/// Requests to a device that wait for their end; those of which the end was not seen are forgotten.
const MOST_IN_FLIGHT: usize = 65_536;

/// Reads the lines of one program.
pub(crate) struct Printed {
    format: Format,
    name: String,
    /// `perf`: the time of the last interval's end, in s since it began, and of the one before.
    times: (f64, f64),
    /// `pqos`: the columns, as its last header names them, and when the samples before began to come.
    columns: Vec<String>,
    came: Option<i64>,
    interval: Option<i64>,
    first_core: Option<String>,
    /// `blkparse`: by device and counter, what has come together since it was passed on.
    totals: BTreeMap<(String, &'static str), f64>,
    issued: HashMap<(String, u64), f64>,
    flushed: Option<i64>,
}

impl Printed {
    pub(crate) fn new(format: Format, name: &str) -> Self {
        Self {
            format,
            name: name.to_owned(),
            times: (0.0, 0.0),
            columns: Vec::new(),
            came: None,
            interval: None,
            first_core: None,
            totals: BTreeMap::new(),
            issued: HashMap::new(),
            flushed: None,
        }
    }

    /// Reads a line that came at a moment; the error says what is wrong with it.
    pub(crate) fn read(
        &mut self,
        line: &str,
        at: i64,
        rows: &mut Vec<Sample>,
    ) -> Result<(), String> {
        if line.trim().is_empty() {
            return Ok(());
        }
        match self.format {
            Format::Json => self.json(line, at, rows),
            Format::Perf => self.perf(line, at, rows),
            Format::Pqos => self.pqos(line, at, rows),
            Format::Blkparse => self.blkparse(line),
        }
    }

    /// Passes on what has come together until now.
    pub(crate) fn flush(&mut self, now: i64, rows: &mut Vec<Sample>) {
        if self.format != Format::Blkparse {
            return;
        }
        // What came before the first look is of the time after it.
        let Some(before) = self.flushed.replace(now).filter(|before| *before < now) else { return };
        for ((device, counter), value) in std::mem::take(&mut self.totals) {
            let counter = self.counter(&format!("{device}.{counter}"));
            let interval = Some(now - before);
            rows.push(Sample { counter, group: None, cpu: None, interval, value, at: None });
        }
    }

    fn counter(&self, name: &str) -> Text {
        Text::from(format!("{}.{name}", self.name).as_str())
    }

    /// `{"counter": "reads_count", "value": 3, "interval_s": 0.1, "cgroup": "/a", "cpu": 0}`, or numbers by their
    /// counters: `{"reads_count": 3}`.
    fn json(&self, line: &str, at: i64, rows: &mut Vec<Sample>) -> Result<(), String> {
        let object: Map<String, Value> =
            serde_json::from_str(line).map_err(|_| "it is no object of JSON".to_owned())?;
        if !object.contains_key("counter") {
            let numbers: Option<Vec<_>> =
                object.iter().map(|(name, value)| Some((name, value.as_f64()?))).collect();
            let numbers = numbers.ok_or("a value is no number")?;
            rows.extend(numbers.into_iter().map(|(name, value)| Sample {
                counter: self.counter(name),
                group: None,
                cpu: None,
                interval: None,
                value,
                at: Some(at),
            }));
            return Ok(());
        }
        if let Some(key) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("{key} is no key of a sample"));
        }
        let text =
            |key: &str| object.get(key).map(|it| it.as_str().ok_or(format!("{key} is no text")));
        let number =
            |key: &str| object.get(key).map(|it| it.as_f64().ok_or(format!("{key} is no number")));
        rows.push(Sample {
            counter: self.counter(text("counter").transpose()?.unwrap_or_default()),
            group: text("cgroup").transpose()?.map(Text::from),
            cpu: object.get("cpu").map(|it| it.as_i64().ok_or("cpu is no number")).transpose()?,
            interval: number("interval_s").transpose()?.map(|s| (s * NS_PER_S) as i64),
            value: number("value").transpose()?.ok_or("there is no value")?,
            at: Some(at),
        });
        Ok(())
    }

    /// Times are the ends of intervals, in s since perf began.
    fn perf(&mut self, line: &str, at: i64, rows: &mut Vec<Sample>) -> Result<(), String> {
        let line = line.trim();
        if line.starts_with('#') {
            return Ok(());
        }
        let read = perf::Line::read(line)?;
        if read.time > self.times.0 {
            self.times = (read.time, self.times.0);
        }
        // "<not counted>", "<not supported>": no rows, and no mistake.
        let Some(value) = read.value else { return Ok(()) };
        let event = read.event.replace('-', "_").replace([':', '/', '.'], "_");
        let unit = match read.unit.as_str() {
            "" => "count",
            "msec" => "ms",
            "Joules" => "joules",
            "MiB" => "mebibytes",
            other => other,
        };
        rows.push(Sample {
            counter: self.counter(&format!("{}_{unit}", event.trim_matches('_').to_lowercase())),
            // As of several cores of pqos.
            group: read.of.as_deref().map(Text::from),
            cpu: read.cpu,
            interval: Some(((self.times.0 - self.times.1) * NS_PER_S) as i64),
            value,
            at: Some(at),
        });
        Ok(())
    }

    /// Its times are whole seconds, so samples are of when they come.
    fn pqos(&mut self, line: &str, at: i64, rows: &mut Vec<Sample>) -> Result<(), String> {
        let is_csv = line.contains(',');
        let fields: Vec<String> = if is_csv {
            line.split(',').map(|it| it.trim().trim_matches('"').to_owned()).collect()
        } else {
            line.split_whitespace().map(str::to_owned).collect()
        };
        let is_header = fields.iter().any(|it| it.eq_ignore_ascii_case("IPC"));
        let begins = if is_csv { is_header } else { fields[0] == "TIME" };
        if is_header {
            // "LLC Misses" of CSV is "MISSES" of the other.
            self.columns = fields.iter().map(|it| it.to_uppercase()).collect();
        }
        let is_first_core = is_csv && !is_header && self.is_first_core(&fields);
        if begins && !is_csv || is_first_core {
            self.interval = self.came.map(|before| at - before);
            self.came = Some(at);
        }
        if is_header || begins {
            return Ok(());
        }
        if self.columns.is_empty() || fields.len() != self.columns.len() {
            // What it says of itself before it begins to monitor.
            return if self.columns.is_empty() {
                Ok(())
            } else {
                Err("it is no row of pqos".into())
            };
        }
        let columns = self.columns.clone();
        let core = columns.iter().position(|it| it == "CORE").map(|index| &fields[index]);
        let cpu = core.and_then(|it| it.parse().ok());
        for (column, field) in columns.iter().zip(&fields) {
            let Some((counter, factor, is_growth)) = pqos_counter(column) else { continue };
            let (digits, thousand) = match field.strip_suffix('k') {
                Some(digits) => (digits, 1_000.0),
                None => (field.as_str(), 1.0),
            };
            let value: f64 = digits.parse().map_err(|_| format!("{field} is no number"))?;
            // Since when the first counts is not known.
            if is_growth && self.interval.is_none() {
                continue;
            }
            rows.push(Sample {
                counter: self.counter(counter),
                group: core.filter(|_| cpu.is_none()).map(|it| it.as_str().into()),
                cpu,
                interval: self.interval.filter(|_| is_growth),
                value: value * factor * thousand,
                at: Some(at),
            });
        }
        Ok(())
    }

    /// Whether a row of CSV is of the core that comes first each time.
    fn is_first_core(&mut self, fields: &[String]) -> bool {
        let core = self.columns.iter().position(|it| it == "CORE");
        let Some(core) = core.and_then(|index| fields.get(index)) else { return false };
        self.first_core.get_or_insert_with(|| core.clone()) == core
    }

    /// `  8,0    3       11     0.009507758   697  C   W 223490 + 8 [0]`: device, CPU, number, s, process, action,
    /// kind, sector, sectors.
    fn blkparse(&mut self, line: &str) -> Result<(), String> {
        let fields: Vec<_> = line.split_whitespace().collect();
        let device = fields[0].split_once(',').filter(|(major, minor)| {
            let number =
                |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
            number(major) && number(minor)
        });
        // Its totals at the end are of the same.
        let Some((major, minor)) = device else { return Ok(()) };
        let wrong = || "it is no line of blkparse".to_owned();
        let time: f64 = fields.get(3).and_then(|it| it.parse().ok()).ok_or_else(wrong)?;
        let (action, kind) = (fields.get(5), fields.get(6));
        let (Some(action), Some(kind)) = (action, kind) else { return Err(wrong()) };
        let (Some(sector), Some(&"+"), Some(sectors)) =
            (fields.get(7), fields.get(8), fields.get(9))
        else {
            // Other actions have other fields.
            return Ok(());
        };
        let sector: u64 = sector.parse().map_err(|_| wrong())?;
        let sectors: u64 = sectors.parse().map_err(|_| wrong())?;
        let device = format!("{major}_{minor}");
        match *action {
            "D" => {
                if self.issued.len() >= MOST_IN_FLIGHT {
                    self.issued.clear();
                }
                self.issued.insert((device, sector), time);
            }
            "C" => {
                let counters = match kind.bytes().find(|it| matches!(it, b'R' | b'W' | b'D')) {
                    Some(b'R') => {
                        ["read_count", "read_bytes", "read_wait_ns", "read_measured_count"]
                    }
                    Some(b'W') => {
                        ["write_count", "write_bytes", "write_wait_ns", "write_measured_count"]
                    }
                    Some(_) => [
                        "discard_count",
                        "discard_bytes",
                        "discard_wait_ns",
                        "discard_measured_count",
                    ],
                    None => return Ok(()),
                };
                let mut add = |counter, value| {
                    *self.totals.entry((device.clone(), counter)).or_default() += value;
                };
                add(counters[0], 1.0);
                add(counters[1], (sectors * SECTOR_BYTES) as f64);
                if let Some(began) = self.issued.remove(&(device.clone(), sector)) {
                    add(counters[2], (time - began).max(0.0) * NS_PER_S);
                    add(counters[3], 1.0);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The counter of a column of pqos, by how much its values are multiplied, and whether they are of an interval.
fn pqos_counter(column: &str) -> Option<(&'static str, f64, bool)> {
    const KIB: f64 = 1024.0;
    Some(match column {
        "IPC" => ("instructions_per_cycle", 1.0, false),
        "MISSES" | "LLC MISSES" => ("llc_misses_count", 1.0, true),
        "LLC[KB]" => ("llc_bytes", KIB, false),
        "MBL[MB/S]" => ("memory_local_bytes_per_s", KIB * KIB, false),
        "MBR[MB/S]" => ("memory_remote_bytes_per_s", KIB * KIB, false),
        "MBT[MB/S]" => ("memory_bytes_per_s", KIB * KIB, false),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counter, CPU, interval in ms, value.
    type Row = (String, Option<i64>, Option<i64>, f64);

    /// What comes of lines, a second apart, and how many were not read.
    fn read(format: Format, text: &str) -> (Vec<Row>, usize) {
        let mut printed = Printed::new(format, "x");
        let (mut rows, mut wrong) = (Vec::new(), 0);
        printed.flush(0, &mut rows);
        for (number, line) in text.lines().enumerate() {
            let at = (number as i64 + 1) * 1_000_000_000;
            wrong += usize::from(printed.read(line, at, &mut rows).is_err());
        }
        printed.flush(10_000_000_000, &mut rows);
        let row = |it: Sample| {
            (it.counter.to_string(), it.cpu, it.interval.map(|ns| ns / 1_000_000), it.value)
        };
        (rows.into_iter().map(row).collect(), wrong)
    }

    #[test]
    fn objects_of_json_are_samples() {
        let text = "{\"a_count\": 3, \"b_bytes\": 1.5}\n\
                    {\"counter\": \"c_ns\", \"value\": 7, \"interval_s\": 0.25, \"cpu\": 1}\n\
                    {\"counter\": \"c_ns\", \"valu\": 7}\n{\"counter\": \"c_ns\"}\n[1]\n\u{1}garbage\n{\"a\": \"b\"}\n";
        let (rows, wrong) = read(Format::Json, text);
        assert_eq!(
            rows,
            [
                ("x.a_count".into(), None, None, 3.0),
                ("x.b_bytes".into(), None, None, 1.5),
                ("x.c_ns".into(), Some(1), Some(250), 7.0),
            ]
        );
        assert_eq!(wrong, 5);
    }

    #[test]
    fn intervals_of_perf_are_read_in_its_three_forms() {
        let people = "#           time             counts unit events\n\
             \x20    0.100146131              1,036      page-faults                      #  1.2 K/sec\n\
             \x20    0.100146131      <not supported>      branch-misses\n\
             \x20    0.200300000             200.25 msec cpu-clock                #    2.0 CPUs utilized\n";
        let rows = [
            ("x.page_faults_count".to_owned(), None, Some(100), 1036.0),
            ("x.cpu_clock_ms".to_owned(), None, Some(100), 200.25),
        ];
        assert_eq!(read(Format::Perf, people), (rows.to_vec(), 0));
        let csv = "0.100146131,1036,,page-faults,100,100.00,,\n0.100146131,<not counted>,,cycles,0,100.00,,\n\
                   0.200300000,CPU1,200.25,msec,cpu-clock,100,100.00,,\n";
        let mut by_cpu = rows.clone();
        by_cpu[1].1 = Some(1);
        assert_eq!(read(Format::Perf, csv), (by_cpu.to_vec(), 0));
        let json = "{\"interval\" : 0.100146131, \"counter-value\" : \"1036.000000\", \"unit\" : \"\", \
                    \"event\" : \"page-faults\"}\n{\"interval\" : 0.2003, \"counter-value\" : \"200.25\", \
                    \"unit\" : \"msec\", \"event\" : \"cpu-clock\"}\n";
        assert_eq!(read(Format::Perf, json), (rows.to_vec(), 0));
        assert_eq!(read(Format::Perf, "Error: no access\n"), (vec![], 1));
    }

    #[test]
    fn tables_of_pqos_are_read_core_by_core() {
        let people = "NOTE:  Mixed use of MSR and kernel interfaces\nTIME 2026-01-01 12:00:00\n\
                      CORE   IPC   MISSES     LLC[KB]   MBL[MB/s]\n0  0.73      14k       224.0         1.5\n\
                      TIME 2026-01-01 12:00:00\nCORE   IPC   MISSES     LLC[KB]   MBL[MB/s]\n\
                      0  0.50      2k       1.0         0.0\n";
        let (rows, wrong) = read(Format::Pqos, people);
        assert_eq!(wrong, 0);
        let expected = |ipc, kb, mb| {
            [
                ("x.instructions_per_cycle".to_owned(), Some(0), None, ipc),
                ("x.llc_bytes".to_owned(), Some(0), None, kb * 1024.0),
                ("x.memory_local_bytes_per_s".to_owned(), Some(0), None, mb * 1_048_576.0),
            ]
        };
        let misses = ("x.llc_misses_count".to_owned(), Some(0), Some(3_000), 2_000.0);
        let mut second = expected(0.5, 1.0, 0.0).to_vec();
        second.insert(1, misses);
        assert_eq!(rows, [expected(0.73, 224.0, 1.5).to_vec(), second].concat());
        let csv = "Time,Core,IPC,LLC Misses,LLC[KB],MBL[MB/s]\n2026-01-01 12:00:00,\"0\",0.73,14k,224.0,1.5\n\
                   2026-01-01 12:00:00,\"1\",0.1,x,1,1\n2026-01-01 12:00:01,\"0\",0.50,2k,1.0,0.0\n";
        let (rows, wrong) = read(Format::Pqos, csv);
        assert_eq!((rows[rows.len() - 3].2, wrong), (Some(2_000), 1));
        assert_eq!(rows.iter().filter(|it| it.0 == "x.llc_misses_count").count(), 1);
    }

    #[test]
    fn requests_whose_end_is_not_seen_do_not_keep_others_from_being_measured() {
        let issued = |sector: usize| format!("8,0 3 1 0.001 697 D WS {sector} + 8 [k]\n");
        let mut text: String = (0..MOST_IN_FLIGHT).map(|sector| issued(8 * sector)).collect();
        text += &issued(8 * MOST_IN_FLIGHT);
        text += &format!("8,0 3 3 0.0035 0 C WS {} + 8 [0]\n", 8 * MOST_IN_FLIGHT);
        let (rows, wrong) = read(Format::Blkparse, &text);
        assert!(rows.iter().any(|it| it.0 == "x.8_0.write_wait_ns"));
        assert_eq!(wrong, 0);
    }

    #[test]
    fn requests_of_blkparse_are_added_up_by_device() {
        let text = "  8,0    3        1     0.000000000   697  Q  WS 223490 + 8 [kjournald]\n\
                    \x20 8,0    3        2     0.001000000   697  D  WS 223490 + 8 [kjournald]\n\
                    \x20 8,0    3        3     0.003500000     0  C  WS 223490 + 8 [0]\n\
                    \x20 8,0    1        4     0.004000000     0  C   R 100 + 16 [0]\n\
                    CPU0 (8,0):\n Reads Queued: 1\n  8,0 x y\n";
        let (rows, wrong) = read(Format::Blkparse, text);
        let value = |counter: &str| rows.iter().find(|it| it.0 == counter).unwrap().3;
        assert_eq!(value("x.8_0.write_bytes"), 4096.0);
        assert_eq!((value("x.8_0.write_wait_ns") / 1e3).round(), 2_500.0);
        assert_eq!((value("x.8_0.read_count"), value("x.8_0.read_bytes")), (1.0, 8192.0));
        assert!(rows.iter().all(|it| it.2 == Some(10_000) && it.0 != "x.8_0.read_wait_ns"));
        assert_eq!(wrong, 1);
    }
}
