//! Being another user and keeping all rights: the kernel tells limits of a process to who is the same user, or has a
//! right (CAP_SYS_RESOURCE) that even root lacks in many containers.

use std::io;

use nix::errno::Errno;

/// `capset`'s header for two 32-bit words a set.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// As `linux/capability.h` has them.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Makes this process another user, with the capabilities that it has, and that what it executes has them, too.
/// Makes system calls and nothing else, so that the child of a process with several threads may call it.
pub(super) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    let header = [CAPABILITY_VERSION_3, 0];
    let mut sets = [Sets::default(); 2];
    // SAFETY: numbers, and pointers to what lives here and is as large as the kernel expects.
    unsafe {
        check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0).into())?;
        check(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()))?;
        check(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        check(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
        check(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()))?;
        for set in &mut sets {
            set.effective = set.permitted;
            set.inheritable = set.permitted;
        }
        check(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()))?;
        for number in 0..64_u32 {
            if sets[number as usize / 32].permitted >> (number % 32) & 1 == 1 {
                check(
                    libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, number, 0, 0)
                        .into(),
                )?;
            }
        }
    }
    Ok(())
}

fn check(result: i64) -> io::Result<()> {
    Errno::result(result).map(drop).map_err(io::Error::from)
}
