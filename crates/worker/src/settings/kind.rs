//! The values that a setting takes, how they are written, and what each sets.

use std::ops::RangeInclusive;

use serde_json::Value as Json;

use super::Target;
use crate::cpu_list::CpuList;
use crate::services::{self, Reach};

/// A setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// In the setting's unit.
    Number(u64),
    Flag(bool),
    Word(&'static str),
    Services(Reach),
    Cpus(CpuList),
}

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    None,
    Milliseconds,
    Microseconds,
    MicroVcpu,
    Bytes,
}

/// A word, and what sets it.
type Choice = (&'static str, fn(&mut Target<'_>));

/// Which values a setting takes, with what sets them.
pub(crate) enum Kind {
    Number {
        unit: Unit,
        range: RangeInclusive<u64>,
        set: fn(&mut Target<'_>, u64),
    },
    Flag(fn(&mut Target<'_>, bool)),
    /// One of these words.
    Choice(&'static [Choice]),
    /// Names of services, separated by blanks.
    Services(fn(&mut Target<'_>, Reach)),
    /// Numbers of CPUs, as Linux writes them.
    Cpus(fn(&mut Target<'_>, CpuList)),
}

impl Kind {
    /// The unit at the end of tags and keys.
    pub(crate) fn suffix(&self) -> &'static str {
        match self {
            Self::Number { unit: Unit::Milliseconds, .. } => "ms",
            Self::Number { unit: Unit::Microseconds, .. } => "us",
            Self::Number { unit: Unit::MicroVcpu, .. } => "micro",
            Self::Number { unit: Unit::Bytes, .. } => "bytes",
            _ => "",
        }
    }

    /// Reads a value from text; the error is the rule in words.
    pub(crate) fn parse(&self, text: &str) -> Result<Value, String> {
        match self {
            Self::Number { range, .. } => {
                let number = text.parse().map_err(|_| "a whole number".to_owned())?;
                check(range, number).map(Value::Number)
            }
            Self::Flag(_) => match text {
                "true" => Ok(Value::Flag(true)),
                "false" => Ok(Value::Flag(false)),
                _ => Err("true or false".to_owned()),
            },
            Self::Choice(choices) => choices
                .iter()
                .find(|(word, _)| *word == text)
                .map(|(word, _)| Value::Word(word))
                .ok_or_else(|| one_of(choices.iter().map(|(word, _)| *word))),
            Self::Services(_) => {
                let names: Vec<_> = text.split_ascii_whitespace().collect();
                Reach::named(&names).map(Value::Services).ok_or_else(|| {
                    let known = one_of(services::ALL.iter().map(|it| it.name));
                    format!("names of services with blanks between ({known})")
                })
            }
            Self::Cpus(_) => CpuList::parse(text)
                .map(Value::Cpus)
                .ok_or_else(|| "numbers of CPUs, such as 0,2-3".to_owned()),
        }
    }

    /// Reads a value from JSON; the error is the rule in words.
    pub(crate) fn parse_json(&self, json: &Json) -> Result<Value, String> {
        match (self, json) {
            (Self::Number { .. }, Json::Number(number)) => self.parse(&number.to_string()),
            (Self::Flag(_), Json::Bool(flag)) => Ok(Value::Flag(*flag)),
            (Self::Choice(_) | Self::Services(_) | Self::Cpus(_), Json::String(text)) => {
                self.parse(text)
            }
            // Of another type: no text of it is a value.
            _ => Err(self.parse("\0").expect_err("it is no value of any kind")),
        }
    }

    /// Sets a value that it has read, or its default.
    pub(crate) fn set(&self, to: &mut Target<'_>, value: Value) {
        match (self, value) {
            (Self::Number { set, .. }, Value::Number(number)) => set(to, number),
            (Self::Flag(set), Value::Flag(flag)) => set(to, flag),
            (Self::Services(set), Value::Services(reach)) => set(to, reach),
            (Self::Cpus(set), Value::Cpus(cpus)) => set(to, cpus),
            (Self::Choice(choices), Value::Word(word)) => {
                if let Some((_, set)) = choices.iter().find(|(choice, _)| *choice == word) {
                    set(to);
                }
            }
            _ => debug_assert!(false, "{value:?} is of another kind"),
        }
    }
}

fn check(range: &RangeInclusive<u64>, number: u64) -> Result<u64, String> {
    if range.contains(&number) {
        return Ok(number);
    }
    Err(match (*range.start(), *range.end()) {
        (least, u64::MAX) => format!("at least {least}"),
        (0, most) => format!("at most {most}"),
        (least, most) => format!("between {least} and {most}"),
    })
}

/// `a, b or c`
fn one_of(words: impl Iterator<Item = &'static str>) -> String {
    let words: Vec<_> = words.collect();
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => words.concat(),
    }
}
