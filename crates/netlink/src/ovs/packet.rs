//! Family `ovs_packet`: upcalls, and execution of packets.

use super::{Ovs, begin, open_body};
use crate::error::Error;
use crate::message::split;
use crate::raw::{self, BATCH_MAX, Received};
use crate::socket::{Asked, NlRequest, Socket};
use dpif::cookie::{CookieError, CookieInfo, parse_cookie};
use flow::nlattr::{AttrError, Attrs};
use flow::nlkey::{Fitness, parse_key, parse_tunnel};
use flow::{FlowKey, Tunnel};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Executes actions on a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Execute<'a> {
    /// The frame.
    pub packet: &'a [u8],
    /// Its metadata as attributes: those of its upcall, or [`flow::nlkey::key_to_bytes`]; the kernel parses headers
    /// from the frame. Without an input port the packet has none.
    pub key: Vec<u8>,
    /// Actions as attributes ([`dpif::nlactions::actions_to_bytes`]).
    pub actions: Vec<u8>,
    /// Probe: the kernel does not log errors.
    pub probe: bool,
    /// Maximum fragment size of a reassembled packet, from its upcall.
    pub mru: Option<u16>,
    /// The packet's hash, from its upcall.
    pub hash: Option<u64>,
    /// Default socket for upcalls of these actions (Linux 6.12).
    pub upcall_pid: Option<u32>,
}

/// Reason of an upcall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpcallCmd {
    /// No flow matched (`OVS_PACKET_CMD_MISS`).
    Miss,
    /// A userspace action (`OVS_PACKET_CMD_ACTION`).
    Action,
}

/// An upcall, as validated views into its receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawUpcall<'a> {
    /// Its datapath.
    pub dp_ifindex: u32,
    /// The reason.
    pub cmd: UpcallCmd,
    /// The frame, at that point of its actions.
    pub packet: &'a [u8],
    /// Its key as attributes: use these as the key of its flow and of its execution.
    pub key: &'a [u8],
    /// Userdata of the userspace action.
    pub userdata: Option<&'a [u8]>,
    /// Actions of the flow, if requested by the userspace action.
    pub actions: Option<&'a [u8]>,
    /// Length of the frame before truncation, if truncated.
    pub len_bytes: Option<u32>,
    /// Maximum fragment size of a reassembled packet.
    pub mru: Option<u16>,
    /// The packet's hash.
    pub hash: Option<u64>,
    /// Key of the output tunnel, as attributes.
    pub egress_tunnel: Option<&'a [u8]>,
}

impl<'a> RawUpcall<'a> {
    /// Parses one message, netlink header included.
    ///
    /// # Errors
    /// It is not an upcall, or lacks packet or key. Messages of another type: [`AttrError::Value`] of attribute 0.
    pub fn parse(message: &'a [u8]) -> Result<RawUpcall<'a>, AttrError> {
        let (answer, _) = split(message).ok_or(AttrError::Cut { at_bytes: 0 })?;
        RawUpcall::of_body(answer.body)
    }

    /// The key as a value with at most this many VLAN tags, and its fitness.
    ///
    /// # Errors
    /// The attributes are malformed.
    pub fn flow_key(&self, vlan_limit: u8) -> Result<(FlowKey, Fitness), AttrError> {
        parse_key(self.key, vlan_limit)
    }

    /// Outer headers of the tunnel by which the packet leaves. `None`: not requested, not reported, or malformed.
    pub fn tunnel_out(&self) -> Option<Tunnel> {
        let attrs = Attrs::parse(self.egress_tunnel?).ok()?;
        parse_tunnel(attrs).ok().map(|(outer, _)| outer.tunnel)
    }

    /// The cookie of a userspace action; `None` for a miss.
    ///
    /// # Errors
    /// Foreign userdata, or none.
    pub fn cookie(&self) -> Result<Option<CookieInfo>, CookieError> {
        match self.cmd {
            UpcallCmd::Miss => Ok(None),
            UpcallCmd::Action => parse_cookie(self.userdata.unwrap_or(&[])).map(Some),
        }
    }

    /// Parses the bytes after the netlink header.
    fn of_body(body: &'a [u8]) -> Result<RawUpcall<'a>, AttrError> {
        let (dp_ifindex, attrs) = open_body(body)?;
        let cmd = match body.first() {
            Some(&command::MISS) => UpcallCmd::Miss,
            Some(&command::ACTION) => UpcallCmd::Action,
            _ => return Err(AttrError::Value(0)),
        };
        let key = attrs.require(attr::KEY)?.nested()?.bytes();
        let packet = attrs.require(attr::PACKET)?.content;
        let mut upcall = RawUpcall {
            dp_ifindex,
            cmd,
            packet,
            key,
            userdata: None,
            actions: None,
            len_bytes: None,
            mru: None,
            hash: None,
            egress_tunnel: None,
        };
        for a in attrs {
            match a.kind {
                attr::USERDATA => upcall.userdata = Some(a.content),
                attr::ACTIONS => upcall.actions = Some(a.nested()?.bytes()),
                attr::EGRESS_TUN_KEY => upcall.egress_tunnel = Some(a.nested()?.bytes()),
                attr::MRU => upcall.mru = Some(a.u16()?),
                attr::LEN => upcall.len_bytes = Some(a.u32()?),
                attr::HASH => upcall.hash = Some(a.u64()?),
                _ => {}
            }
        }
        Ok(upcall)
    }
}

/// Error of reception.
#[derive(Debug, thiserror::Error)]
pub enum RecvError {
    /// The receive buffer was full: upcalls were lost. Only the datapath's `lost` counter has their number. Queued
    /// ones remain.
    #[error("upcalls were lost: the receive buffer of the socket was full")]
    Overrun,
    /// A message that is not an upcall, or too long for the buffer. It is discarded; the socket remains usable.
    #[error("a message is no upcall: {0}")]
    Malformed(AttrError),
    /// The socket fails.
    #[error("cannot receive upcalls: {0}")]
    Io(#[from] io::Error),
}

/// A reusable buffer for several upcalls. Untouched memory is free.
pub struct UpcallBuffer {
    bytes: Vec<u8>,
    got: Vec<Received>,
    /// Number of valid entries of `got`.
    filled: usize,
}

/// Bytes of a slot: the maximum packet of an attribute, and all data beside it.
const SLOT_BYTES: usize = 80 << 10;

impl UpcallBuffer {
    /// A buffer for this many upcalls (1 to 1024).
    pub fn new(slots: usize) -> UpcallBuffer {
        let slots = slots.clamp(1, BATCH_MAX);
        UpcallBuffer { bytes: vec![0; slots * SLOT_BYTES], got: vec![Received::NOTHING; slots], filled: 0 }
    }

    /// The upcalls last received by [`UpcallSocket::recv_batch`], in order. Malformed ones are errors.
    pub fn upcalls(&self) -> impl Iterator<Item = Result<RawUpcall<'_>, RecvError>> {
        let slots = self.bytes.chunks_exact(SLOT_BYTES);
        // Ignore senders other than the kernel.
        let filled = self.got[..self.filled].iter().zip(slots).filter(|(got, _)| got.by_kernel);
        filled.map(|(got, slot)| {
            if got.cut {
                return Err(RecvError::Malformed(AttrError::Cut { at_bytes: got.bytes }));
            }
            RawUpcall::parse(&slot[..got.bytes]).map_err(RecvError::Malformed)
        })
    }
}

/// A socket for upcalls. Non-blocking; `AsFd` for polling. It is closed on drop: assign other sockets in the kernel
/// first ([`Ovs::vport_set`], [`Ovs::dp_set`]), or upcalls are lost.
#[derive(Debug)]
pub struct UpcallSocket {
    socket: Socket,
}

impl UpcallSocket {
    /// Its port id, for the kernel.
    pub fn pid(&self) -> u32 {
        self.socket.pid()
    }

    /// Bytes of its receive buffer, by the kernel's accounting: may be less than requested.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.socket.receive_buffer_bytes()
    }

    /// Receives one upcall into the first slot of `buffer`; `None`: none waits.
    ///
    /// # Errors
    /// See [`RecvError`].
    pub fn recv<'b>(&self, buffer: &'b mut UpcallBuffer) -> Result<Option<RawUpcall<'b>>, RecvError> {
        // Ignore senders other than the kernel.
        while self.receive(buffer, 1)? > 0 && !buffer.got[0].by_kernel {}
        buffer.upcalls().next().transpose()
    }

    /// Receives waiting upcalls, up to the slots of `buffer`, by one system call; returns their number.
    /// [`UpcallBuffer::upcalls`] returns them.
    ///
    /// # Errors
    /// See [`RecvError`]; nothing was received then.
    pub fn recv_batch(&self, buffer: &mut UpcallBuffer) -> Result<usize, RecvError> {
        let slots = buffer.got.len();
        self.receive(buffer, slots)
    }

    fn receive(&self, buffer: &mut UpcallBuffer, slots: usize) -> Result<usize, RecvError> {
        buffer.filled = 0;
        match raw::receive_batch(&self.socket, &mut buffer.bytes, SLOT_BYTES, &mut buffer.got[..slots]) {
            Ok(count) => buffer.filled = count,
            Err(e) => match e.raw_os_error() {
                Some(libc::EAGAIN) => {}
                Some(libc::ENOBUFS) => return Err(RecvError::Overrun),
                _ => return Err(RecvError::Io(e)),
            },
        }
        Ok(buffer.filled)
    }
}

impl AsFd for UpcallSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Ovs {
    /// A socket for upcalls, with a receive buffer of this many bytes, up to the permitted maximum. 4 MiB is ample.
    ///
    /// # Errors
    /// No socket is available.
    pub fn upcall_socket(&self, receive_buffer_bytes: usize) -> Result<UpcallSocket, Error> {
        Ok(UpcallSocket { socket: self.pool.make(receive_buffer_bytes)? })
    }

    pub(super) fn execute_message(&self, dp_ifindex: u32, execute: &Execute<'_>) -> Result<NlRequest, Error> {
        let asked = Asked::once("execute actions on a packet", ATTRIBUTES);
        let mut request = begin(&self.families.packet, command::EXECUTE, 0, dp_ifindex, asked);
        let out = &mut request.attrs;
        out.put(attr::PACKET, execute.packet);
        out.nested_bytes(attr::KEY, &execute.key);
        out.nested_bytes(attr::ACTIONS, &execute.actions);
        if execute.probe {
            out.flag(attr::PROBE);
        }
        if let Some(mru) = execute.mru {
            out.u16(attr::MRU, mru);
        }
        if let Some(hash) = execute.hash {
            out.u64(attr::HASH, hash);
        }
        if let Some(pid) = execute.upcall_pid {
            out.u32(attr::UPCALL_PID, pid);
        }
        request.finish()
    }
}

/// `OVS_PACKET_CMD_*`.
mod command {
    pub(super) const MISS: u8 = 1;
    pub(super) const ACTION: u8 = 2;
    pub(super) const EXECUTE: u8 = 3;
}

/// `OVS_PACKET_ATTR_*`.
mod attr {
    pub(super) const PACKET: u16 = 1;
    pub(super) const KEY: u16 = 2;
    pub(super) const ACTIONS: u16 = 3;
    pub(super) const USERDATA: u16 = 4;
    pub(super) const EGRESS_TUN_KEY: u16 = 5;
    pub(super) const PROBE: u16 = 8;
    pub(super) const MRU: u16 = 9;
    pub(super) const LEN: u16 = 10;
    pub(super) const HASH: u16 = 11;
    pub(super) const UPCALL_PID: u16 = 12;
}

/// Names of `OVS_PACKET_ATTR_*`, by number.
const ATTRIBUTES: &[&str] = &[
    "OVS_PACKET_ATTR_UNSPEC",
    "OVS_PACKET_ATTR_PACKET",
    "OVS_PACKET_ATTR_KEY",
    "OVS_PACKET_ATTR_ACTIONS",
    "OVS_PACKET_ATTR_USERDATA",
    "OVS_PACKET_ATTR_EGRESS_TUN_KEY",
    "OVS_PACKET_ATTR_UNUSED1",
    "OVS_PACKET_ATTR_UNUSED2",
    "OVS_PACKET_ATTR_PROBE",
    "OVS_PACKET_ATTR_MRU",
    "OVS_PACKET_ATTR_LEN",
    "OVS_PACKET_ATTR_HASH",
    "OVS_PACKET_ATTR_UPCALL_PID",
];
