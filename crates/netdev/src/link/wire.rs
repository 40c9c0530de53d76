//! rtnetlink messages (netlink(7), rtnetlink(7)): building requests, parsing attributes and links.
//!
//! Numbers are in host byte order, attributes aligned to 4 bytes. All reads are bounds-checked: a truncated
//! attribute ends the message.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

use super::{LinkInfo, LinkStats, OperState};
use crate::raw;

/// Requests sent by this process.
static SENT: AtomicU64 = AtomicU64::new(0);
static RECEIVED: AtomicU64 = AtomicU64::new(0);

const HEADER_BYTES: usize = 16;
const IFINFO_BYTES: usize = 16;
/// The kernel's maximum message (32 KB for dumps) is below this, so one read receives one whole datagram.
pub(crate) const ANSWER_BYTES: usize = 65536;
const ANSWER_TIMEOUT_S: libc::time_t = 5;
const IFF_LOWER_UP: u32 = 1 << 16;

/// Requests that this process sent to the kernel, by way of this crate.
pub(crate) fn messages_sent() -> u64 {
    SENT.load(Ordering::Relaxed)
}

/// Datagrams that it received from the kernel.
pub(crate) fn messages_received() -> u64 {
    RECEIVED.load(Ordering::Relaxed)
}

/// Counters of links (`linux/rtnetlink.h`): an answer, and a request.
const RTM_NEWSTATS: u16 = 92;
const RTM_GETSTATS: u16 = 94;
/// Bytes of `struct if_stats_msg`: family, padding, ifindex, filter.
const STATS_HEADER_BYTES: usize = 12;
/// Attribute of the answer with `rtnl_link_stats64`, and its bit in the filter (`linux/if_link.h`).
const STATS_LINK_64: u16 = 1;
const STATS_FILTER_LINK_64: u32 = 1 << (STATS_LINK_64 - 1);

/// Attribute numbers of `linux/if_link.h`.
pub(crate) mod attribute {
    pub(crate) const ADDRESS: u16 = 1;
    pub(crate) const IFNAME: u16 = 3;
    pub(crate) const MTU: u16 = 4;
    pub(crate) const LINK: u16 = 5;
    pub(crate) const MASTER: u16 = 10;
    pub(crate) const OPERSTATE: u16 = 16;
    pub(crate) const LINKINFO: u16 = 18;
    pub(crate) const STATS64: u16 = 23;
    pub(crate) const GROUP: u16 = 27;
    pub(crate) const CARRIER_CHANGES: u16 = 35;
    pub(crate) const CARRIER_UP_COUNT: u16 = 47;
    pub(crate) const CARRIER_DOWN_COUNT: u16 = 48;
    /// Within LINKINFO.
    pub(crate) const INFO_KIND: u16 = 1;
    /// Attributes of an address: `IFA_ADDRESS`, `IFA_LOCAL`, `IFA_BROADCAST`.
    pub(crate) const IFA: [u16; 3] = [1, 2, 4];
    /// Attributes of a route: `RTA_OIF`, `RTA_GATEWAY`.
    pub(crate) const RTA: [u16; 2] = [4, 5];
}

/// One netlink message.
pub(crate) struct Message {
    pub(crate) kind: u16,
    /// Flags (`NLM_F_*`).
    pub(crate) flags: u16,
    /// Number of the request that it answers.
    pub(crate) seq: u32,
    /// The bytes behind the header.
    pub(crate) body: Vec<u8>,
}

/// A request under construction.
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    fn new(kind: u16, flags: c_int, ifindex: u32, if_flags: u32, if_change: u32) -> Request {
        let mut bytes = vec![0; HEADER_BYTES + IFINFO_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&((flags | libc::NLM_F_REQUEST) as u16).to_ne_bytes());
        bytes[8..12].copy_from_slice(&1u32.to_ne_bytes());
        let ifinfo = &mut bytes[HEADER_BYTES..];
        ifinfo[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        ifinfo[8..12].copy_from_slice(&if_flags.to_ne_bytes());
        ifinfo[12..16].copy_from_slice(&if_change.to_ne_bytes());
        Request { bytes }
    }

    /// A change of an object that is no link: its message begins with `header`.
    pub(crate) fn change(kind: u16, flags: c_int, header: &[u8]) -> Request {
        let mut request = Request::new(kind, flags | libc::NLM_F_ACK, 0, 0, 0);
        request.bytes.splice(HEADER_BYTES.., header.iter().copied());
        request
    }

    /// A request for all objects of a kind, whose messages begin with `header`.
    pub(crate) fn dump(kind: u16, header: &[u8]) -> Request {
        let mut request = Request::new(kind, libc::NLM_F_DUMP, 0, 0, 0);
        request.bytes.splice(HEADER_BYTES.., header.iter().copied());
        request
    }

    pub(crate) fn dump_links() -> Request {
        Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, 0, 0, 0)
    }

    /// A request for the counters of all links.
    pub(crate) fn dump_counters() -> Request {
        let mut header = [0; STATS_HEADER_BYTES];
        header[8..].copy_from_slice(&STATS_FILTER_LINK_64.to_ne_bytes());
        Request::dump(RTM_GETSTATS, &header)
    }

    pub(crate) fn get_link() -> Request {
        Request::new(libc::RTM_GETLINK, 0, 0, 0, 0)
    }

    pub(crate) fn change_link(ifindex: u32, flags: u32, change: u32) -> Request {
        Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, ifindex, flags, change)
    }

    pub(crate) fn delete_link(ifindex: u32) -> Request {
        Request::new(libc::RTM_DELLINK, libc::NLM_F_ACK, ifindex, 0, 0)
    }

    /// With a number of its own among the messages of a datagram; the others have 1.
    pub(crate) fn numbered(mut self, seq: u32) -> Request {
        self.bytes[8..12].copy_from_slice(&seq.to_ne_bytes());
        self
    }

    /// Answered only if it fails.
    pub(crate) fn unacknowledged(mut self) -> Request {
        let flags = self.flags() & !libc::NLM_F_ACK;
        self.bytes[6..8].copy_from_slice(&(flags as u16).to_ne_bytes());
        self
    }

    /// Appends an attribute.
    pub(crate) fn add(&mut self, kind: u16, value: &[u8]) {
        self.bytes.extend(((value.len() + 4) as u16).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The message as sent.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let total = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&total.to_ne_bytes());
        self.bytes
    }

    /// Sends the request, without waiting for a reply.
    pub(crate) fn send(self, fd: &impl AsFd) -> io::Result<()> {
        send(fd, &self.finish())
    }

    /// Sends the request and collects the replies up to the last. An error reply is an error.
    pub(crate) fn call(self) -> io::Result<Vec<Message>> {
        self.call_on(&open_asking()?)
    }

    /// As `call`, by a socket of [`open_asking`], for several requests in turn.
    pub(crate) fn call_on(self, fd: &OwnedFd) -> io::Result<Vec<Message>> {
        let several = self.flags() & libc::NLM_F_DUMP == libc::NLM_F_DUMP;
        let acknowledged = self.flags() & libc::NLM_F_ACK != 0;
        self.send(fd)?;
        let mut answers = Vec::new();
        let mut buf = vec![0; ANSWER_BYTES];
        loop {
            let got = receive(fd, &mut buf, 0)?;
            for m in messages(&buf[..got]).filter(|m| m.seq == 1) {
                match c_int::from(m.kind) {
                    libc::NLMSG_DONE => return Ok(answers),
                    libc::NLMSG_ERROR => {
                        let code = i32::from_ne_bytes(field(&m.body, 0).unwrap_or([0xff; 4]));
                        return if code == 0 {
                            Ok(answers)
                        } else {
                            Err(io::Error::from_raw_os_error(-code))
                        };
                    }
                    _ => answers.push(m),
                }
                if !several && !acknowledged {
                    return Ok(answers);
                }
            }
        }
    }

    fn flags(&self) -> c_int {
        c_int::from(u16::from_ne_bytes([self.bytes[6], self.bytes[7]]))
    }
}

/// Sends a datagram of requests.
pub(crate) fn send(fd: &impl AsFd, requests: &[u8]) -> io::Result<()> {
    SENT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the pointer and length are those of `requests`.
    let sent = unsafe { libc::send(fd.as_fd().as_raw_fd(), requests.as_ptr().cast(), requests.len(), 0) };
    raw::check_len(sent).map(drop)
}

/// A route netlink socket for requests; replies come within a few seconds, or an error.
pub(crate) fn open_asking() -> io::Result<OwnedFd> {
    let fd = open(0, false)?;
    let timeout = libc::timeval { tv_sec: ANSWER_TIMEOUT_S, tv_usec: 0 };
    raw::set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, timeout)?;
    Ok(fd)
}

/// A route netlink socket subscribed to the multicast `groups`.
pub(crate) fn open(groups: u32, nonblocking: bool) -> io::Result<OwnedFd> {
    let fd = raw::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    if !nonblocking {
        // SAFETY: no pointers are involved.
        raw::check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, 0) })?;
    }
    // SAFETY: sockaddr_nl is plain data for which all zeros are valid.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = groups;
    raw::bind(&fd, &address)?;
    Ok(fd)
}

/// Receives one datagram of the kernel; ignores those of other processes.
pub(crate) fn receive(fd: &impl AsFd, buf: &mut [u8], flags: c_int) -> io::Result<usize> {
    loop {
        // SAFETY: sockaddr_nl is plain data for which all zeros are valid.
        let mut from: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        let mut from_bytes = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: buffer and address are alive, each with its length.
        let got = unsafe {
            libc::recvfrom(
                fd.as_fd().as_raw_fd(),
                buf.as_mut_ptr().cast(),
                buf.len(),
                flags,
                (&raw mut from).cast::<libc::sockaddr>(),
                &mut from_bytes,
            )
        };
        match raw::check_len(got) {
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
            Ok(_) if from.nl_pid != 0 => {}
            Ok(bytes) => {
                RECEIVED.fetch_add(1, Ordering::Relaxed);
                return Ok(bytes);
            }
            Err(e) => return Err(e),
        }
    }
}

/// The messages of a datagram.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message> + '_ {
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(field(bytes, 0)?) as usize;
        let kind = u16::from_ne_bytes(field(bytes, 4)?);
        let flags = u16::from_ne_bytes(field(bytes, 6)?);
        let seq = u32::from_ne_bytes(field(bytes, 8)?);
        let body = bytes.get(HEADER_BYTES..len)?.to_vec();
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Message { kind, flags, seq, body })
    })
}

/// The bytes of a field, if all are there.
pub(crate) fn field<const N: usize>(b: &[u8], at: usize) -> Option<[u8; N]> {
    b.get(at..at + N)?.try_into().ok()
}

/// The attributes of a message's body: type without flag bits, value.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(field(bytes, 0)?));
        let kind = u16::from_ne_bytes(field(bytes, 2)?) & 0x3fff;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// The link in a new-link or delete-link message, with its counters. Messages of a bridge about its ports
/// (family AF_BRIDGE) have none.
pub(crate) fn link_of(m: &Message) -> Option<(LinkInfo, Option<LinkStats>)> {
    if (m.kind != libc::RTM_NEWLINK && m.kind != libc::RTM_DELLINK) || *m.body.first()? != 0 {
        return None;
    }
    let flags = u32::from_ne_bytes(field(&m.body, 8)?);
    let mut info = LinkInfo {
        ifindex: u32::from_ne_bytes(field(&m.body, 4)?),
        admin_up: flags & libc::IFF_UP as u32 != 0,
        lower_up: flags & IFF_LOWER_UP != 0,
        loopback: flags & libc::IFF_LOOPBACK as u32 != 0,
        ..LinkInfo::default()
    };
    let mut stats = None;
    for (kind, value) in attributes(m.body.get(IFINFO_BYTES..)?) {
        let int = || field(value, 0).map(u32::from_ne_bytes).unwrap_or(0);
        match kind {
            attribute::ADDRESS => info.mac = value.try_into().ok(),
            attribute::IFNAME => info.name = text(value),
            attribute::MTU => info.mtu = int(),
            attribute::LINK => info.link = int(),
            attribute::MASTER => info.master = int(),
            attribute::OPERSTATE => info.oper_state = OperState::from_wire(*value.first().unwrap_or(&0)),
            attribute::CARRIER_CHANGES => info.carrier_changes = int(),
            attribute::CARRIER_UP_COUNT => info.carrier_up_count = int(),
            attribute::CARRIER_DOWN_COUNT => info.carrier_down_count = int(),
            attribute::LINKINFO => {
                let kind = attributes(value).find(|(k, _)| *k == attribute::INFO_KIND);
                info.kind = kind.map(|(_, v)| text(v)).unwrap_or_default();
            }
            attribute::STATS64 => stats = Some(stats_of(value)),
            _ => {}
        }
    }
    Some((info, stats))
}

/// Index and counters in an answer to [`Request::dump_counters`].
pub(crate) fn link_counters(m: &Message) -> Option<(u32, LinkStats)> {
    if m.kind != RTM_NEWSTATS {
        return None;
    }
    let ifindex = u32::from_ne_bytes(field(&m.body, 4)?);
    let mut all = attributes(m.body.get(STATS_HEADER_BYTES..)?);
    all.find(|(kind, _)| *kind == STATS_LINK_64).map(|(_, value)| (ifindex, stats_of(value)))
}

/// An attribute of a link in an answer.
pub(crate) fn link_attribute(m: &Message, wanted: u16) -> Option<&[u8]> {
    attributes(m.body.get(IFINFO_BYTES..)?).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// A text up to its first zero byte.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// A name in the form of an attribute.
pub(crate) fn c_string(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

fn stats_of(value: &[u8]) -> LinkStats {
    let n = |i: usize| field(value, i * 8).map(u64::from_ne_bytes).unwrap_or(0);
    LinkStats {
        rx_packets: n(0),
        tx_packets: n(1),
        rx_bytes: n(2),
        tx_bytes: n(3),
        rx_errors: n(4),
        tx_errors: n(5),
        rx_dropped: n(6),
        tx_dropped: n(7),
        multicast: n(8),
        collisions: n(9),
        rx_length_errors: n(10),
        rx_over_errors: n(11),
        rx_crc_errors: n(12),
        rx_frame_errors: n(13),
        rx_fifo_errors: n(14),
        rx_missed_errors: n(15),
        tx_aborted_errors: n(16),
        tx_carrier_errors: n(17),
    }
}
