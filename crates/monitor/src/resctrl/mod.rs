//! The kernel's file system resctrl: how much of the last-level cache and of the memory's bandwidth groups of tasks use,
//! and limits of both.
//!
//! As its documentation says (Documentation/arch/x86/resctrl.rst, newer: Documentation/filesystems/resctrl.rst). A folder
//! of its root is a group for which limits hold, a folder of such a group's `mon_groups` counts alone. What is made here
//! has names that tell whether their maker lives, and is removed with it; all else is left as it is.
//!
//! | module | concern |
//! |---|---|
//! | `kernel` | reading, writing, making and removing groups: the kernel, or in tests what stands for it |
//! | `tree` | the file system: what it can do, which groups there are, whose they are |
//! | `limits` | from what is asked for to lines of a `schemata` file |
//! | `meter` | from readings to rows |

mod kernel;
mod limits;
#[cfg(test)]
pub(crate) mod made;
mod meter;
mod tree;

pub use tree::{Left, leftovers};

use kernel::Mounted;
pub(crate) use limits::Limited;
pub use limits::Wanted;
pub(crate) use meter::{Counted, EVENTS, Meter};
pub(crate) use tree::{Made, Tree};
