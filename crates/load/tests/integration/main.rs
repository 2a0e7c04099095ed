//! The load generator against real servers on this machine.

mod answers;
mod open_loop;
mod support;
