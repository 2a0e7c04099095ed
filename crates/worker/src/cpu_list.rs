//! Which CPUs of a machine, as Linux writes it: `0,2-3`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Words of bits.
const WORDS: usize = 16;
/// CPUs beyond this number cannot be named.
const MOST: usize = WORDS * 64;

/// Some CPUs, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CpuList([u64; WORDS]);

impl CpuList {
    /// Reads a list; None if it names none, or is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = [0; WORDS];
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let [first, last] = [first, last].map(|it| it.trim().parse::<usize>().ok());
            let (first, last) = (first?, last?);
            if first > last || last >= MOST {
                return None;
            }
            for cpu in first..=last {
                words[cpu / 64] |= 1 << (cpu % 64);
            }
        }
        Some(Self(words))
    }

    /// Their numbers, in order.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        (0..MOST).filter(|cpu| self.0[cpu / 64] >> (cpu % 64) & 1 == 1).collect()
    }

    /// Why they cannot be had where a process may run on `allowed`, if they cannot: a sentence.
    pub(crate) fn refusal(&self, allowed: &[usize]) -> Option<String> {
        let missing = self.numbers().into_iter().find(|cpu| !allowed.contains(cpu))?;
        let there: Vec<String> = allowed.iter().map(usize::to_string).collect();
        Some(format!(
            "There is no CPU {missing} that this platform may run on, as the tag uncia:cpus ({self}) has it: there are \
             {}.",
            there.join(", ")
        ))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = self.numbers();
        let mut separator = "";
        for run in numbers.chunk_by(|one, next| one + 1 == *next) {
            match run {
                [one] => write!(f, "{separator}{one}")?,
                _ => write!(f, "{separator}{}-{}", run[0], run[run.len() - 1])?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for (text, written) in [("0", "0"), ("3,0-1", "0-1,3"), ("5-7,6", "5-7"), ("1023", "1023")]
        {
            assert_eq!(CpuList::parse(text).unwrap().to_string(), written);
        }
        for odd in ["", "a", "1-", "-1", "3-1", "1024", "0,,1", "0-1-2"] {
            assert_eq!(CpuList::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn cpus_that_are_not_there_are_named() {
        let list = CpuList::parse("0,7").unwrap();
        assert_eq!(list.refusal(&[0, 7]), None);
        assert!(list.refusal(&[0, 1]).unwrap().starts_with("There is no CPU 7"));
    }
}
