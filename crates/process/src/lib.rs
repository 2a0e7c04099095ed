//! What this process and its threads ask of the kernel: more open files, to run before others, and CPUs
//! that stay awake.
//!
//! | module | concern |
//! |---|---|
//! | [`descriptors`] | how many files the process may have open |
//! | [`idle`] | CPUs that do not sleep while nothing runs |
//! | [`thread`] | when the scheduler runs the calling thread, and how exact its timers are |

pub mod descriptors;
pub mod idle;
pub mod thread;
