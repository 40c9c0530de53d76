//! Syslog daemons as destinations: the local one, or one that `--syslog-method` names, and a second one of
//! `--syslog-target`, which gets lines of RFC 5424.
//!
//! Nothing waits: a datagram that cannot be sent at once is lost, as the log must not hold up its program.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;

/// The socket of the local syslog daemon.
const LOCAL: &str = "/dev/log";
/// Facilities by name and number (RFC 5424 §6.2.1).
const FACILITIES: [(&str, u8); 23] = [
    ("kern", 0),
    ("user", 1),
    ("mail", 2),
    ("daemon", 3),
    ("auth", 4),
    ("syslog", 5),
    ("lpr", 6),
    ("news", 7),
    ("uucp", 8),
    ("clock", 9),
    ("ftp", 11),
    ("ntp", 12),
    ("audit", 13),
    ("alert", 14),
    ("clock2", 15),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];
/// Facilities without another choice: of lines for the daemon, and for the target.
pub(crate) const DAEMON: u8 = 3;
pub(crate) const LOCAL0: u8 = 16;

/// A facility's number.
pub(crate) fn facility(name: &str) -> Option<u8> {
    FACILITIES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, number)| *number)
}

/// Facility and severity of a level (RFC 5424 §6.2.1).
pub(crate) fn priority(facility: u8, level: &str) -> u8 {
    facility * 8
        + match level {
            "ERR" => 3,
            "WARN" => 4,
            "INFO" => 6,
            _ => 7,
        }
}

/// A connection to a daemon.
pub(crate) enum Syslog {
    /// None: lines are discarded.
    Null,
    /// The local daemon, which expects the program's name.
    Local(UnixDatagram),
    /// Another socket, which gets lines alone.
    Unix(UnixDatagram),
    /// A port.
    Udp(UdpSocket),
}

impl Syslog {
    /// The local daemon, if one listens.
    pub(crate) fn local() -> Syslog {
        unix(LOCAL).map_or(Syslog::Null, Syslog::Local)
    }

    /// `libc`, `null`, `unix:FILE` or `udp:IP:PORT`. Without a daemon there lines are discarded.
    ///
    /// # Errors
    /// Another method, or no address of IP.
    pub(crate) fn parse(method: &str) -> Result<Syslog, String> {
        match method.split_once(':') {
            None if method == "libc" => Ok(Syslog::local()),
            None if method == "null" => Ok(Syslog::Null),
            Some(("unix", path)) => Ok(unix(path).map_or(Syslog::Null, Syslog::Unix)),
            Some(("udp", address)) => {
                let why = || format!("syslog method '{method}': give udp:IP:PORT, with an address of digits");
                udp(address).ok_or_else(why)
            }
            _ => Err(format!(
                "unsupported syslog method '{method}': there are libc, null, unix:FILE and udp:IP:PORT"
            )),
        }
    }

    /// `IP:PORT`.
    ///
    /// # Errors
    /// It is no such address.
    pub(crate) fn target(address: &str) -> Result<Syslog, String> {
        udp(address)
            .ok_or_else(|| format!("syslog target '{address}': give IP:PORT, with an address of digits"))
    }

    /// Sends a line. `head` is what the local daemon expects in front of it.
    pub(crate) fn send(&self, priority: u8, head: &str, line: &str) {
        // A daemon that is gone loses lines, as a full one does.
        let _lost = match self {
            Syslog::Null => Ok(0),
            Syslog::Local(socket) => socket.send(format!("<{priority}>{head}{line}").as_bytes()),
            Syslog::Unix(socket) => socket.send(format!("<{priority}>{line}").as_bytes()),
            Syslog::Udp(socket) => socket.send(format!("<{priority}>{line}").as_bytes()),
        };
    }
}

fn unix(path: &str) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect(path).ok().map(|()| socket)
}

fn udp(address: &str) -> Option<Syslog> {
    let to: SocketAddr = address.parse().ok()?;
    let any = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0_u16; 8]) };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect(to).ok()?;
    Some(Syslog::Udp(socket))
}
