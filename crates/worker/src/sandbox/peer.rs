//! Who is at the other end of a loopback connection: the kernel knows the user of each socket.
//!
//! Functions with the host's network reach everything on its loopback interface, and so the control
//! API and others' Runtime APIs. What tells them apart from the host's own programs is their user.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// Message types and flags of `linux/netlink.h` and `linux/sock_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;

/// `struct nlmsghdr`, and with it `struct inet_diag_req_v2`.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;

/// "Any cookie": the addresses are enough.
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// Offsets of the user and the inode in an answer: a header and `struct inet_diag_msg`.
const USER: usize = HEADER_BYTES + 64;
const INODE: usize = HEADER_BYTES + 68;
const ANSWER_BYTES: usize = HEADER_BYTES + 72;

/// The user whose process on this machine has the other end of a connection; `None` if nobody has it
/// any more, or the kernel does not say.
///
/// Takes some microseconds, whatever the number of connections.
pub(super) fn peer_user(stream: &tokio::net::TcpStream) -> Option<u32> {
    let (peer, own) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
    // The other end's socket, so the other end's address is the source.
    user_of(peer, own).ok().flatten()
}

/// The user whose process serves a connection that was made to it, or will: who has accepted it, or who
/// listens there; `None` if nobody does any more, or the kernel does not say.
pub(super) fn server_user(stream: &tokio::net::TcpStream) -> Option<u32> {
    serving(stream.peer_addr().ok()?, stream.local_addr().ok()?)
}

fn serving(server: SocketAddr, client: SocketAddr) -> Option<u32> {
    // Until it is accepted a connection is nobody's: it has no inode.
    let accepted = user_of(server, client).ok().flatten();
    accepted.or_else(|| user_of(server, nobody(server)).ok().flatten())
}

/// A peer that no connection has, so that what is found is the socket that listens.
fn nobody(like: SocketAddr) -> SocketAddr {
    let unspecified = match like {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    (unspecified, 0).into()
}

/// Whether the kernel says who connects, found by trying.
pub(super) fn is_known() -> bool {
    let attempt = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let client = TcpStream::connect(address)?;
        user_of(client.local_addr()?, address)
    };
    attempt().is_ok_and(|user| user == Some(nix::unistd::geteuid().as_raw()))
}

thread_local! {
    /// Where this thread asks: making a socket for each question takes longer than the question.
    static KERNEL: RefCell<Option<OwnedFd>> = const { RefCell::new(None) };
}

/// The user of the TCP socket with these addresses of its own and of its peer.
fn user_of(source: SocketAddr, destination: SocketAddr) -> io::Result<Option<u32>> {
    let mut answer = [0; 512];
    let length = KERNEL.with_borrow_mut(|kernel| {
        // After an error it is made anew: no answer is taken for that to another question.
        let netlink = match kernel.take() {
            Some(netlink) => netlink,
            None => socket(
                AddressFamily::Netlink,
                SockType::Datagram,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::NetlinkSockDiag,
            )?,
        };
        send(netlink.as_raw_fd(), &question(source, destination), MsgFlags::empty())?;
        // The kernel answers within `send`, so there is nothing to wait for.
        let length = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
        *kernel = Some(netlink);
        io::Result::Ok(length)
    })?;
    let answer = &answer[..length];
    let is_error = answer.get(4..6) == Some(&NLMSG_ERROR.to_ne_bytes()[..]);
    if is_error || length < ANSWER_BYTES {
        return Ok(None);
    }
    let word = |at: usize| answer[at..at + 4].try_into().map(u32::from_ne_bytes).unwrap_or(0);
    // A socket that its process has closed has no inode, and counts as root's.
    Ok((word(INODE) != 0).then_some(word(USER)))
}

fn question(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let family = if source.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut question = Vec::with_capacity(REQUEST_BYTES);
    // nlmsghdr: length, type, flags, sequence number, port (the kernel's).
    question.extend((REQUEST_BYTES as u32).to_ne_bytes());
    question.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    question.extend(NLM_F_REQUEST.to_ne_bytes());
    question.extend([0; 8]);
    // inet_diag_req_v2: family, protocol, no extensions, padding, all states.
    question.extend([family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    question.extend(u32::MAX.to_ne_bytes());
    // inet_diag_sockid: ports and addresses as on the wire, interface, cookie.
    question.extend(source.port().to_be_bytes());
    question.extend(destination.port().to_be_bytes());
    question.extend(address(source.ip()));
    question.extend(address(destination.ip()));
    question.extend([0; 4]);
    question.extend(NO_COOKIE);
    question
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection's client, and the server's end of it.
    fn connection(address: &str) -> io::Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind(address)?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        Ok((client, listener.accept()?.0))
    }

    fn user_behind(server: &TcpStream) -> Option<u32> {
        user_of(server.peer_addr().unwrap(), server.local_addr().unwrap()).unwrap()
    }

    #[test]
    fn the_user_of_the_other_end() {
        assert!(is_known());
        let own = Some(nix::unistd::geteuid().as_raw());
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine may have no IPv6.
            let Ok((client, server)) = connection(address) else { continue };
            assert_eq!(user_behind(&server), own, "{address}");
            if own == Some(0) {
                // The socket's inode is what the kernel asks.
                nix::unistd::fchown(&client, Some(1_900_000_001.into()), None).unwrap();
                assert_eq!(user_behind(&server), Some(1_900_000_001), "{address}");
            }
        }
    }

    #[test]
    fn a_connection_that_nobody_has_accepted_is_the_listeners() {
        let worker = Some(nix::unistd::geteuid().as_raw());
        // A server of IPv6 has the port of IPv4, too.
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            let user = || serving(client.peer_addr().unwrap(), client.local_addr().unwrap());
            assert_eq!(user(), worker, "{address}");
            let others = 1_900_000_001;
            let is_given = nix::unistd::fchown(&listener, Some(others.into()), None).is_ok();
            assert_eq!(user(), if is_given { Some(others) } else { worker }, "{address}");
            // Whoever accepts it has it, whoever listens.
            let (server, _) = listener.accept().unwrap();
            assert_eq!(user(), worker, "{address}");
            drop((server, listener));
            assert_eq!(user(), None, "{address}");
        }
    }

    #[test]
    fn a_socket_that_was_closed_is_nobodys() {
        let (client, server) = connection("127.0.0.1:0").unwrap();
        drop(client);
        assert_eq!(user_behind(&server), None);
    }
}
