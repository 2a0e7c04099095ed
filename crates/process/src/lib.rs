//! What this process and its threads ask of the kernel: more open files, and to run before others.
//!
//! | module | concern |
//! |---|---|
//! | [`descriptors`] | how many files the process may have open |
//! | [`thread`] | when the scheduler runs the calling thread, and how exact its timers are |

pub mod descriptors;
pub mod thread;
