//! Exact integrals of what a worker has and what becomes of it.

use std::ops::{Add, Sub};

/// Micro-vCPU x ns, or bytes x ns.
pub type Integral = u128;

/// Integrals over time, of one worker or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Totals {
    /// CPU that there was.
    pub cpu_capacity: Integral,
    /// CPU that was reserved for what ran.
    pub cpu_reserved: Integral,
    /// CPU that was used by whom it was reserved for.
    pub cpu_own: Integral,
    /// CPU that was used beyond reservations.
    pub cpu_borrowed: Integral,
    /// Of that, CPU that was reserved for others.
    pub cpu_lent: Integral,
    /// Memory that there was.
    pub memory_capacity: Integral,
    /// Memory that was reserved for what ran.
    pub memory_reserved: Integral,
    /// Memory that invocations used.
    pub memory_used: Integral,
    /// Memory that idle instances held.
    pub memory_idle: Integral,
    /// Memory that was reserved for some and used by others.
    pub memory_lent: Integral,
}

macro_rules! each {
    ($a:expr, $b:expr, $op:tt) => {
        Totals {
            cpu_capacity: $a.cpu_capacity $op $b.cpu_capacity,
            cpu_reserved: $a.cpu_reserved $op $b.cpu_reserved,
            cpu_own: $a.cpu_own $op $b.cpu_own,
            cpu_borrowed: $a.cpu_borrowed $op $b.cpu_borrowed,
            cpu_lent: $a.cpu_lent $op $b.cpu_lent,
            memory_capacity: $a.memory_capacity $op $b.memory_capacity,
            memory_reserved: $a.memory_reserved $op $b.memory_reserved,
            memory_used: $a.memory_used $op $b.memory_used,
            memory_idle: $a.memory_idle $op $b.memory_idle,
            memory_lent: $a.memory_lent $op $b.memory_lent,
        }
    };
}

impl Totals {
    /// CPU that was used.
    pub fn cpu_used(&self) -> Integral {
        self.cpu_own + self.cpu_borrowed
    }
}

impl Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        each!(self, other, +)
    }
}

/// What was added since.
impl Sub for Totals {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        each!(self, other, -)
    }
}
