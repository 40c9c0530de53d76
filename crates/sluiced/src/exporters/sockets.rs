//! Sockets to collectors. A datagram goes to each of them; none waits.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The collectors of an exporter.
pub(super) struct Collectors {
    sockets: Vec<UdpSocket>,
    /// Datagrams sent.
    pub(super) sent: u64,
    /// Datagrams not sent.
    pub(super) failed: u64,
}

/// Any address of the family of another one.
pub(super) fn unspecified(target: &SocketAddr) -> SocketAddr {
    match target {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

fn open(target: &SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind(unspecified(target))?;
    socket.set_nonblocking(true)?;
    socket.connect(target)?;
    Ok(socket)
}

impl Collectors {
    /// Opens their sockets; one that cannot be opened is logged and gets nothing.
    pub(super) fn open(targets: &[SocketAddr]) -> Collectors {
        let opened = targets.iter().filter_map(|target| match open(target) {
            Ok(socket) => Some(socket),
            Err(e) => {
                log::warn!(target: "collectors", "couldn't open connection to collector {target} ({e})");
                None
            }
        });
        Collectors { sockets: opened.collect(), sent: 0, failed: 0 }
    }

    /// Sends the datagrams to each collector, and empties the list.
    pub(super) fn send(&mut self, datagrams: &mut Vec<Vec<u8>>) {
        for datagram in datagrams.drain(..) {
            for socket in &self.sockets {
                let mut sent = socket.send(&datagram);
                // An earlier datagram was refused: this one has not been sent yet.
                if sent.as_ref().is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused) {
                    sent = socket.send(&datagram);
                }
                match sent {
                    Ok(_) => self.sent += 1,
                    Err(_) => self.failed += 1,
                }
            }
        }
    }
}
