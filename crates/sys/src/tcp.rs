//! TCP connections whose packets carry a DSCP, the first one included.

use rustix::net::sockopt::{set_ip_tos, set_ipv6_tclass, set_tcp_nodelay, socket_domain};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect as start, socket_with};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

/// Starts to connect a non-blocking socket; `dscp` from 0 to 63.
///
/// # Errors
/// Those of `socket(2)`, `setsockopt(2)` and `connect(2)`; not the result of the attempt.
pub fn connect(address: SocketAddr, dscp: u8) -> io::Result<TcpStream> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    set_dscp(&socket, dscp)?;
    // Only latency depends on it.
    let _ = set_tcp_nodelay(&socket, true);
    match start(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket.into()),
        Err(e) => Err(e.into()),
    }
}

/// Sets the DSCP of a socket's later packets, from 0 to 63; a listening socket passes it on to accepted connections.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_dscp(socket: impl AsFd, dscp: u8) -> io::Result<()> {
    let tos = (dscp & 63) << 2;
    if socket_domain(&socket)? == AddressFamily::INET6 {
        set_ipv6_tclass(&socket, tos.into())?;
    }
    // Sockets of IPv6 also serve clients of IPv4.
    Ok(set_ip_tos(&socket, tos)?)
}
