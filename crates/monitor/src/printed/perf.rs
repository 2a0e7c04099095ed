//! What `perf stat -I` prints.

use serde_json::{Map, Value};

/// By which keys objects say which part of the machine, or which thread, they are of.
const PARTS: [&str; 7] = ["socket", "die", "cluster", "cache", "core", "node", "thread"];

/// A line of an interval.
pub(super) struct Line {
    pub(super) time: f64,
    pub(super) cpu: Option<i64>,
    /// The socket, die, core or node that it is of, with several CPUs; or a control group's path.
    pub(super) of: Option<String>,
    pub(super) value: Option<f64>,
    pub(super) unit: String,
    pub(super) event: String,
    /// The control group of `-G`, by its path from the root of the tree, without a slash before it.
    group: Option<String>,
}

impl Line {
    /// Reads one, of objects of JSON, of values between commas, or of what is printed for people.
    pub(super) fn read(line: &str) -> Result<Self, String> {
        let read = if line.starts_with('{') { object(line) } else { text(line) };
        read.ok_or("it is no line of perf stat -I")?.with_group()
    }

    /// A row is of one thing, and what is of two cannot be told from others of the same.
    fn with_group(self) -> Result<Self, String> {
        match (self.group, self.of) {
            (Some(group), Some(part)) => Err(format!(
                "it is of {part} and of the control group {group}: count by one of the two"
            )),
            (group, part) => {
                let of = group.map(|it| format!("/{}", it.trim_start_matches('/'))).or(part);
                Ok(Self { group: None, of, ..self })
            }
        }
    }
}

/// A number as it is printed; `None` where it was not counted.
#[expect(clippy::option_option, reason = "one is taken apart at once by each caller")]
fn count(text: &str) -> Option<Option<f64>> {
    if text.starts_with('<') {
        return Some(None);
    }
    text.replace(',', "").parse().ok().map(Some)
}

/// `CPU3` of `-A`.
fn cpu_of(text: &str) -> Option<i64> {
    text.strip_prefix("CPU")?.parse().ok()
}

/// Whether it is `S0`, `S0-D0`, `S0-D0-C1`, `S0-D0-L3-ID0` or `N0`: a part of the machine with several CPUs.
fn is_part(text: &str) -> bool {
    text.strip_prefix(['S', 'N']).is_some_and(|it| it.starts_with(|it: char| it.is_ascii_digit()))
}

fn object(line: &str) -> Option<Line> {
    let object: Map<String, Value> = serde_json::from_str(line).ok()?;
    let of = |key: &str| object.get(key).and_then(Value::as_str);
    Some(Line {
        time: object.get("interval")?.as_f64()?,
        cpu: of("cpu").and_then(|it| it.trim_start_matches("CPU").parse().ok()),
        of: PARTS.iter().find_map(|key| of(key)).map(str::to_owned),
        value: count(of("counter-value")?)?,
        unit: of("unit").unwrap_or_default().to_owned(),
        event: of("event")?.to_owned(),
        group: of("cgroup").filter(|it| !it.is_empty()).map(str::to_owned),
    })
}

fn text(line: &str) -> Option<Line> {
    // `0.100105484,1036,,page-faults,…`: a number, not a thousand's comma, before the first comma.
    let is_csv = line.split_once(',').is_some_and(|(time, _)| {
        time.contains('.') && time.bytes().all(|it| it.is_ascii_digit() || it == b'.')
    });
    let fields: Vec<&str> = if is_csv {
        line.split(',').collect()
    } else {
        // What comes after # is for people.
        line.split('#').next()?.split_whitespace().collect()
    };
    let time = fields.first()?.parse().ok()?;
    let mut rest = &fields[1..];
    let cpu = rest.first().and_then(|it| cpu_of(it));
    let part = rest.first().filter(|it| is_part(it)).map(|it| (*it).to_owned());
    if cpu.is_some() || part.is_some() {
        rest = &rest[1..];
    }
    // How many CPUs are counted comes before the value, but for events that are `percore` with `-A`.
    if let (Some(_), [_, value, ..]) = (&part, rest)
        && count(value).is_some()
    {
        rest = &rest[1..];
    }
    if is_csv {
        let [value, unit, event, rest @ ..] = rest else { return None };
        let (unit, event) = ((*unit).to_owned(), (*event).to_owned());
        // Else how long it was counted stands there.
        let group = rest.first().filter(|it| it.parse::<f64>().is_err() && !it.is_empty());
        let group = group.map(|it| (*it).to_owned());
        return Some(Line { time, cpu, of: part, value: count(value)?, unit, event, group });
    }
    // "<not counted>" is two words.
    let (value, rest) = match rest {
        [first, second, rest @ ..] if first.starts_with('<') && second.ends_with('>') => {
            (None, rest)
        }
        [value, rest @ ..] => (count(value)?, rest),
        [] => return None,
    };
    let (unit, event, rest) = match rest {
        [unit @ ("msec" | "Joules" | "MiB"), event, rest @ ..] => (*unit, event, rest),
        [event, rest @ ..] => ("", event, rest),
        [] => return None,
    };
    // In brackets is which share of the time it was counted.
    let group = rest.first().filter(|it| !it.starts_with('(')).map(|it| (*it).to_owned());
    let (unit, event) = (unit.to_owned(), (*event).to_owned());
    Some(Line { time, cpu, of: part, value, unit, event, group })
}

#[cfg(test)]
mod tests {
    use super::super::Printed;
    use crate::config::Format;
    use crate::samples::Sample;

    #[test]
    fn parts_of_the_machine_are_told_apart_and_how_many_cpus_they_have_is_no_value() {
        let rows_of = |text: &str| {
            let (mut printed, mut rows) = (Printed::new(Format::Perf, "x"), Vec::new());
            for line in text.lines() {
                printed.read(line, 1, &mut rows).unwrap();
            }
            let row = |it: Sample| {
                (it.counter.to_string(), it.group.map(|it| it.to_string()), it.cpu, it.value)
            };
            rows.into_iter().map(row).collect::<Vec<_>>()
        };
        let row = |part: &str, value| {
            ("x.page_faults_count".to_owned(), Some(part.to_owned()), None, value)
        };
        for part in ["S0", "S1-D0", "S0-D0-C1", "S0-D0-CLS2", "S0-D0-L3-ID0", "N1"] {
            let expected = [row(part, 1036.0)];
            let people = format!(
                "     0.100146131 {part}      2       1,036      page-faults   # 1 K/sec\n"
            );
            let counted = format!("     0.1 {part}  2  <not counted>   page-faults\n");
            assert_eq!(rows_of(&(people + &counted)), expected);
            let csv = format!("0.3,{part},2,1036,,page-faults,100,100.00,,\n");
            let counted = format!("0.3,{part},2,<not counted>,,page-faults,0,100.00,,\n");
            assert_eq!(rows_of(&(csv + &counted)), expected);
        }
        let clock = [("x.cpu_clock_ms".to_owned(), Some("S0".to_owned()), None, 200.25)];
        assert_eq!(rows_of("0.2 S0  2  200.25 msec cpu-clock  # 2.0 CPUs utilized"), clock);
        assert_eq!(rows_of("0.2,S0,2,200.25,msec,cpu-clock,100,100.00,2.0,CPUs utilized"), clock);
        // Of a core as a whole, with -A: not how many CPUs it has.
        assert_eq!(rows_of("0.1 S0-D0-C0   1,036   page-faults"), [row("S0-D0-C0", 1036.0)]);
        assert_eq!(rows_of("0.1,S0-D0-C0,1036,,page-faults,9,100"), [row("S0-D0-C0", 1036.0)]);
        let json = "{\"interval\" : 0.1, \"node\" : \"N0\", \"aggregate-number\" : 2, \
                    \"counter-value\" : \"1036.000000\", \"unit\" : \"\", \"event\" : \"page-faults\"}";
        assert_eq!(rows_of(json), [row("N0", 1036.0)]);
    }

    #[test]
    fn control_groups_of_perf_are_told_apart() {
        let people = "     0.1     1,036      page-faults               aa/b     #  1 K/sec   (50.00%)\n\
                      \x20    0.1     200.25 msec cpu-clock                 bb\n\
                      \x20    0.1     3      page-faults  (50.00%)\n";
        let csv = "0.1,1036,,page-faults,aa/b,9,100.00,,\n0.1,200.25,msec,cpu-clock,bb,9,100.00,,\n\
                   0.1,3,,page-faults,9,50.00,,\n";
        let json = "{\"interval\": 0.1, \"counter-value\": \"1036\", \"unit\": \"\", \"event\": \"page-faults\", \"cgroup\": \"aa/b\"}\n\
                    {\"interval\": 0.1, \"counter-value\": \"200.25\", \"unit\": \"msec\", \"event\": \"cpu-clock\", \"cgroup\": \"bb\"}\n\
                    {\"interval\": 0.1, \"counter-value\": \"3\", \"unit\": \"\", \"event\": \"page-faults\"}\n";
        for text in [people, csv, json] {
            let (mut printed, mut rows) = (Printed::new(Format::Perf, "x"), Vec::new());
            for line in text.lines() {
                printed.read(line, 1, &mut rows).unwrap();
            }
            let groups: Vec<_> = rows.iter().map(|it| (it.group.as_deref(), it.value)).collect();
            assert_eq!(groups, [(Some("/aa/b"), 1036.0), (Some("/bb"), 200.25), (None, 3.0)]);
        }
        let both = "0.1,S0,2,1036,,page-faults,aa,9,100.00,,";
        let refused = Printed::new(Format::Perf, "x").read(both, 1, &mut Vec::new());
        assert!(refused.unwrap_err().contains("of S0 and of the control group aa"));
    }
}
