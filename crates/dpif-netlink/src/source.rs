//! Upcall sockets of the kernel as [`Source`]s: messages in, [`Upcall`]s out.

use super::dispatch::{READ_LEAST, Read, Source};
use dpif::{PmdId, Upcall, UpcallKind};
use flow::nlkey::Fitness;
use flow::{FlowKey, Ufid};
use netlink::ovs::{RawUpcall, RecvError, UpcallBuffer, UpcallCmd};
use netlink::{Ovs, UpcallSocket};
use packet::Packet;
use packet::headers::{ETH_TYPE_IP, IPPROTO_IGMP};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use sync::{AtomicU32, AtomicU64, Mutex, Ordering, lock};

/// Receive buffer of a socket, in bytes: a limit, not allocated memory.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// Messages of one system call.
const SLOTS: usize = READ_LEAST;

/// Allocates unique ufids.
pub(super) struct Names {
    high: u64,
    low: AtomicU64,
}

impl Names {
    /// From random numbers, so they differ from another process's.
    pub(super) fn new() -> std::io::Result<Names> {
        Ok(Names { high: sys::random::u64()?, low: AtomicU64::new(sys::random::u64()?) })
    }

    fn next(&self) -> Ufid {
        let low = self.low.fetch_add(1, Ordering::Relaxed);
        Ufid(u128::from(self.high) << 64 | u128::from(low))
    }
}

/// State shared by all sockets.
pub(super) struct Shared {
    pub(super) names: Names,
    /// Malformed messages, or messages for another datapath.
    pub(super) malformed: AtomicU64,
    /// VLAN tags in keys.
    vlan_limit: AtomicU32,
    /// Buffers that no socket reads into at the moment.
    buffers: Mutex<Vec<UpcallBuffer>>,
}

impl Shared {
    pub(super) fn new() -> std::io::Result<Shared> {
        Ok(Shared {
            names: Names::new()?,
            malformed: AtomicU64::new(0),
            vlan_limit: AtomicU32::new(1),
            buffers: Mutex::default(),
        })
    }

    /// Number of VLAN tags in keys.
    pub(super) fn vlan_limit(&self) -> u8 {
        self.vlan_limit.load(Ordering::Relaxed) as u8
    }

    /// Sets it.
    pub(super) fn set_vlan_limit(&self, tags: u8) {
        self.vlan_limit.store(tags.into(), Ordering::Relaxed);
    }
}

/// A socket of the kernel.
pub(super) struct KernelSource {
    socket: UpcallSocket,
    shared: Arc<Shared>,
}

impl KernelSource {
    /// Opens one.
    ///
    /// # Errors
    /// If no descriptor is available.
    pub(super) fn open(ovs: &Ovs, shared: &Arc<Shared>) -> Result<KernelSource, netlink::Error> {
        Ok(KernelSource { socket: ovs.upcall_socket(RECEIVE_BUFFER_BYTES)?, shared: shared.clone() })
    }

    fn upcall(&self, raw: &RawUpcall<'_>, received_us: u64) -> Option<Box<Upcall>> {
        let vlan_limit = self.shared.vlan_limit();
        let (reported, fitness) = raw.flow_key(vlan_limit).ok()?;
        let cookie = raw.cookie().ok()?;
        let kind = match (raw.cmd, cookie) {
            (UpcallCmd::Miss, _) => UpcallKind::Miss,
            (UpcallCmd::Action, info) => UpcallKind::Action(info?.cookie),
        };
        let key = match fitness {
            // The kernel's key has no type of an IGMP message.
            Fitness::Perfect if is_igmp(&reported) => {
                let mut key = reported;
                datapath::re_extract(&mut key, raw.packet, vlan_limit);
                key
            }
            Fitness::Perfect => reported,
            // Headers missing from the kernel's key are parsed from the packet.
            Fitness::TooMuch | Fitness::TooLittle => {
                let what = if fitness == Fitness::TooMuch {
                    "present but not expected"
                } else {
                    "expected but not present"
                };
                log::debug!(target: "odp_util", "{what}: {}", dpif::text::format_key(&reported));
                let mut key = reported;
                datapath::re_extract(&mut key, raw.packet, vlan_limit);
                key
            }
        };
        Some(Box::new(Upcall {
            kind,
            packet: Packet::from_slice(raw.packet),
            rx_port: key.in_port(),
            key,
            ufid: self.shared.names.next(),
            pmd: PmdId::None,
            ticket: None,
            received_us,
            tunnel_out: raw.tunnel_out().map(Box::new),
        }))
    }
}

fn is_igmp(key: &FlowKey) -> bool {
    (key.base.dl_type, key.base.nw_proto) == (ETH_TYPE_IP, IPPROTO_IGMP)
}

impl Source for KernelSource {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn pid(&self) -> u32 {
        self.socket.pid()
    }

    fn read(&self, max: usize) -> Read {
        let mut buffer = lock(&self.shared.buffers).pop().unwrap_or_else(|| UpcallBuffer::new(SLOTS));
        let mut read = Read::default();
        while read.upcalls.len() + SLOTS <= max {
            match self.socket.recv_batch(&mut buffer) {
                Ok(count) => {
                    let now_us = sys::clock::machine_us();
                    for raw in buffer.upcalls() {
                        match raw.ok().and_then(|raw| self.upcall(&raw, now_us)) {
                            Some(upcall) => read.upcalls.push(upcall),
                            None => {
                                self.shared.malformed.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                    if count < SLOTS {
                        read.emptied = true;
                        break;
                    }
                }
                Err(RecvError::Overrun) => read.overruns += 1,
                Err(RecvError::Malformed(_)) => {
                    self.shared.malformed.fetch_add(1, Ordering::Relaxed);
                }
                Err(RecvError::Io(_)) => {
                    // If it recovers, it becomes readable again.
                    read.emptied = true;
                    break;
                }
            }
        }
        lock(&self.shared.buffers).push(buffer);
        read
    }
}
