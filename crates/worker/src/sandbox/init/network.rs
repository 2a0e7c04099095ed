//! The instance's network: a loopback interface of its own, and the listeners on it.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::{CONTROL, Doing, Failure};
use crate::sandbox::wire::{self, NetworkConfig, Report};

/// Brings the loopback interface up, and hands listeners on it to the worker: a socket keeps the
/// network namespace that it was made in, so the worker answers inside the instance's network
/// without any link between the two.
pub(super) fn build(config: &NetworkConfig) -> Result<(), Failure> {
    if !config.own_network {
        return Ok(());
    }
    raise_loopback().doing("bring the loopback interface up")?;
    let listeners = config
        .listen
        .iter()
        .map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)))
        .collect::<Result<Vec<_>, _>>()
        .doing("listen inside the instance")?;
    let fds: Vec<_> = listeners.iter().map(AsRawFd::as_raw_fd).collect();
    wire::send(CONTROL, &Report::Listening, &fds).doing("hand the listeners over")
}

/// Makes a socket for the worker to connect to the instance's server: it keeps the namespace that it was
/// made in, too.
pub(super) fn hand_socket_over() -> std::io::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket(AddressFamily::Inet, SockType::Stream, flags, None);
    let descriptors: Vec<_> = made.iter().map(AsRawFd::as_raw_fd).collect();
    wire::send(CONTROL, &Report::Socket, &descriptors)
}

fn raise_loopback() -> Result<(), Errno> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq with a name and flags, which outlives the call.
    Errno::result(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request)
    })
    .map(drop)
}
