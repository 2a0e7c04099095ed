//! System calls as data: what a process must do to itself, said in one place, whether this program does
//! it or a copy of a zygote.

use std::borrow::Cow;

use libc::c_long;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::Failure;

/// A system call that changes the calling process and no memory of it.
#[derive(Debug, Serialize, Deserialize)]
#[expect(
    clippy::unsafe_derive_deserialize,
    reason = "only a first process of this program sends them"
)]
pub(super) struct Call {
    /// What it is good for, for people: "change the user".
    pub(super) step: Cow<'static, str>,
    pub(super) number: c_long,
    pub(super) arguments: Vec<Argument>,
    /// Whether its failure is no failure of the whole.
    pub(super) optional: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Argument {
    Number(i64),
    /// A structure that the kernel reads.
    Bytes(Vec<u8>),
}

impl Call {
    pub(super) fn new(step: &'static str, number: c_long) -> Self {
        Self { step: step.into(), number, arguments: Vec::new(), optional: false }
    }

    pub(super) fn number(mut self, value: impl Into<i64>) -> Self {
        self.arguments.push(Argument::Number(value.into()));
        self
    }

    pub(super) fn bytes(mut self, bytes: Vec<u8>) -> Self {
        self.arguments.push(Argument::Bytes(bytes));
        self
    }

    pub(super) fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Makes it. Arguments that are not given are 0.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut words = [0; 6];
        for (word, argument) in words.iter_mut().zip(&self.arguments) {
            *word = match argument {
                Argument::Number(number) => *number as c_long,
                Argument::Bytes(bytes) => bytes.as_ptr() as c_long,
            };
        }
        // SAFETY: calls made here read at most the structures that they are given, which are as long as
        // the kernel takes them to be and outlive the call, and write to none.
        let result = unsafe {
            libc::syscall(self.number, words[0], words[1], words[2], words[3], words[4], words[5])
        };
        match Errno::result(result) {
            Err(_) if self.optional => Ok(()),
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::Call(self.step.to_string(), error)),
        }
    }
}
