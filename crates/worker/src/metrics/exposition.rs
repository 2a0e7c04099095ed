//! Prometheus' text format, version 0.0.4.

use std::fmt::{self, Display, Write};

/// What a scraper is told that the text is.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const NS_PER_S: u128 = 1_000_000_000;

/// What a family's values do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only grows, from 0 at the start.
    Counter,
    /// Goes up and down.
    Gauge,
    Histogram,
}

/// Nanoseconds, written as seconds, exactly.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seconds(pub u128);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / NS_PER_S, self.0 % NS_PER_S);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{rest:09}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// A text with families of samples, one after the other.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
    /// Of the family at hand.
    name: &'static str,
}

impl Exposition {
    /// Begins a family; `help` is one line.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.name = name;
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// A sample of the family at hand.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.suffixed("", labels, value);
    }

    /// A sample of a part of the family at hand, such as `_bucket`.
    pub(super) fn suffixed(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (index, (name, text)) in labels.iter().enumerate() {
            let opening = if index == 0 { '{' } else { ',' };
            self.put(format_args!("{opening}{name}=\""));
            for character in text.chars() {
                match character {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    other => self.text.push(other),
                }
            }
            self.text.push('"');
        }
        let closing = if labels.is_empty() { "" } else { "}" };
        self.put(format_args!("{closing} {value}\n"));
    }

    /// The whole text.
    pub(super) fn finish(self) -> String {
        self.text
    }

    fn put(&mut self, text: fmt::Arguments<'_>) {
        // A String takes whatever is written to it.
        let _ = self.text.write_fmt(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stand_under_their_family() {
        let mut text = Exposition::default();
        text.family("a_total", Kind::Counter, "All a.");
        text.sample(&[], 3);
        text.sample(&[("name", "q\"b\\n\nx"), ("kind", "")], Seconds(1_500_000_000));
        text.suffixed("_sum", &[], Seconds(7));
        let expected = "# HELP a_total All a.\n# TYPE a_total counter\na_total 3\n\
            a_total{name=\"q\\\"b\\\\n\\nx\",kind=\"\"} 1.5\na_total_sum 0.000000007\n";
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn seconds_are_exact() {
        let large = u128::from(u64::MAX) * NS_PER_S + 1;
        for (ns, text) in [(0, "0"), (2 * NS_PER_S, "2"), (large, "18446744073709551615.000000001")]
        {
            assert_eq!(Seconds(ns).to_string(), text);
        }
    }
}
