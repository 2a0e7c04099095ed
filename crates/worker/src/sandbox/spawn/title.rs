//! What `ps` shows of a process, and `/proc/PID/cmdline` holds.

use std::fs;
use std::io;
use std::ptr;

/// Room for a first process's arguments: its program's name, the hidden subcommand and its label.
const ROOM: usize = 256;

/// What a process shows itself by in `/proc/PID/comm`.
const NAME: &std::ffi::CStr = c"uncia-instance";

/// An argument that leaves room for others in its place.
pub(super) fn room() -> String {
    "-".repeat(ROOM)
}

/// The memory of this process from which the kernel reads its arguments.
#[derive(Debug, Clone, Copy)]
pub(in crate::sandbox) struct Title {
    start: usize,
    bytes: usize,
}

impl Title {
    /// Finds it; the process must not have changed its arguments.
    pub(super) fn find() -> io::Result<Self> {
        let unknown = || io::Error::other("the kernel does not say where the arguments are");
        let stat = fs::read_to_string("/proc/self/stat")?;
        // The second field, the program's name, may hold anything; the third follows its bracket.
        let fields = stat.rsplit_once(')').ok_or_else(unknown)?.1;
        let mut fields = fields.split_ascii_whitespace().skip(48 - 3);
        let mut number = || fields.next()?.parse::<usize>().ok().filter(|number| *number > 0);
        let (start, end) = (number().ok_or_else(unknown)?, number().ok_or_else(unknown)?);
        let bytes = end.checked_sub(start).filter(|bytes| *bytes > ROOM).ok_or_else(unknown)?;
        Ok(Self { start, bytes })
    }

    /// Shows these arguments after the program's name, as far as there is room.
    pub(in crate::sandbox) fn set(self, arguments: &[&str]) {
        let mut text = NAME.to_bytes_with_nul().to_vec();
        for argument in arguments {
            text.extend_from_slice(argument.as_bytes());
            text.push(0);
        }
        // The last byte stays zero: otherwise the kernel would read on into the environment.
        text.resize(self.bytes - 1, 0);
        text.push(0);
        // SAFETY: the kernel has put this process's arguments there, in memory that it may write to and
        // that nobody else has a reference to: the standard library has copied what it was asked for.
        unsafe { ptr::copy_nonoverlapping(text.as_ptr(), self.start as *mut u8, self.bytes) };
        // Only for people.
        let _ = nix::sys::prctl::set_name(NAME);
    }
}
