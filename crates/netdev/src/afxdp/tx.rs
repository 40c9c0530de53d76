//! Sending by the transmit ring; chunks return by the completion ring. A frame that another socket of the same umem has
//! received leaves from its chunk, others are copied into chunks of this side.
//!
//! A device has as many rings as the port has receive queues; transmit queues share them, each under a lock
//! held for one batch. Frames that the kernel has not taken by the end of a call stay in the ring, counted as
//! sent, and leave with the next call or poll(2).

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use packet::headers::{ETH_HEADER_BYTES, ETH_TYPE_VLAN, ETH_TYPE_VLAN_8021AD, VLAN_TAG_BYTES, be16};
use packet::{CHUNK_BYTES, Packet, PacketBatch, PacketPool};

use super::socket::TxRings;
use crate::finish_offloads::finish_offloads;
use crate::port::{TxDrop, TxQueue, TxReport};
use crate::raw;

/// Maximum system calls within one batch without progress, yielding the processor before each.
const IDLE_RETRIES: u32 = 8;
/// The kernel takes 32 frames per call; a batch of large segments split in software has some thousands.
const MAX_KICKS: u32 = 256;

/// A socket's sending side, as its transmit queues share it.
pub(super) struct TxSide {
    name: String,
    rings: TxRings,
    /// The device's MTU when last read.
    mtu: usize,
    use_need_wakeup: bool,
    /// The device was down or gone at the last call.
    down: bool,
}

impl TxSide {
    pub(super) fn new(name: &str, rings: TxRings, mtu: u32, use_need_wakeup: bool) -> TxSide {
        TxSide { name: name.to_owned(), rings, mtu: mtu as usize, use_need_wakeup, down: false }
    }

    /// Passes the written frames to the kernel. The device counts frames that it drops.
    fn hand_over(&mut self) {
        self.rings.transmit.publish();
        let mut idle = 0;
        for _ in 0..MAX_KICKS {
            let before = self.rings.transmit.pending();
            if before == 0 || self.use_need_wakeup && !self.rings.transmit.needs_wakeup() {
                break;
            }
            match self.rings.socket.kick_tx().map_err(|e| e.raw_os_error()) {
                Ok(()) => break,
                // EBUSY means one lost frame; the others wait.
                Err(Some(libc::EINTR | libc::EBUSY)) => {}
                Err(Some(libc::EAGAIN | libc::ENOBUFS)) => {
                    if self.rings.transmit.pending() < before {
                        idle = 0;
                        continue;
                    }
                    idle += 1;
                    if idle > IDLE_RETRIES {
                        break;
                    }
                    std::thread::yield_now();
                }
                Err(_) => {
                    self.down = true;
                    break;
                }
            }
        }
    }

    /// Whether the device is as down as it was.
    fn still_down(&mut self) -> bool {
        let error = self.rings.socket.kick_tx().err().and_then(|e| e.raw_os_error());
        let busy = matches!(error, Some(libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ENOBUFS));
        self.down = error.is_some() && !busy;
        self.down
    }

    /// Reason why a frame cannot be sent, if any. Rereads the MTU before rejecting a frame as too long, once
    /// per batch.
    fn refusal(&mut self, p: &Packet, asked: &mut bool) -> Option<TxDrop> {
        if p.len() < ETH_HEADER_BYTES {
            return Some(TxDrop::Refused);
        }
        let tagged = matches!(be16(p.data(), 12), Some(ETH_TYPE_VLAN | ETH_TYPE_VLAN_8021AD));
        let headers = ETH_HEADER_BYTES + if tagged { VLAN_TAG_BYTES } else { 0 };
        if p.len() > self.mtu + headers && !*asked {
            *asked = true;
            self.mtu = mtu(&self.name).map_or(self.mtu, |mtu| mtu as usize);
        }
        (p.len() > (self.mtu + headers).min(CHUNK_BYTES)).then_some(TxDrop::TooLarge)
    }

    /// Place of a frame in a chunk of this side: the chunk of the packet, if it is of this umem. `None`: no room.
    fn place(&mut self, p: &mut Packet, report: &mut TxReport) -> Option<(u32, usize)> {
        if self.rings.room() == 0 {
            return None;
        }
        let umem = self.rings.socket.umem;
        if p.chunk().is_some_and(|chunk| umem.has(chunk))
            && let Some((chunk, place)) = p.take_chunk()
        {
            report.in_place_packets += 1;
            return Some((umem.take_back(chunk), place.start));
        }
        let chunk = self.rings.free.pop()?;
        // SAFETY: a chunk out of `free` is ours.
        unsafe { umem.put(chunk, p.data()) };
        Some((chunk, 0))
    }

    fn send(&mut self, packets: &mut [Packet], report: &mut TxReport) {
        if self.down && self.still_down() {
            report.count_drops(TxDrop::PortDown, packets.len());
            return;
        }
        self.rings.reclaim();
        let (count, mut asked) = (packets.len(), false);
        for (i, p) in packets.iter_mut().enumerate() {
            if let Some(why) = self.refusal(p, &mut asked) {
                report.count_drops(why, 1);
                continue;
            }
            if self.rings.free.is_empty() || self.rings.room() == 0 {
                self.hand_over();
                self.rings.reclaim();
            }
            let bytes = p.len();
            let Some((chunk, at)) = self.place(p, report) else {
                let why = if self.down { TxDrop::PortDown } else { TxDrop::QueueFull };
                report.count_drops(why, count - i);
                break;
            };
            self.rings.write(chunk, at, bytes);
            report.count_sent(bytes);
        }
        self.hand_over();
    }
}

/// A transmit queue.
pub(super) struct XdpTx(pub(super) Arc<Mutex<TxSide>>);

impl TxQueue for XdpTx {
    fn send(&mut self, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        finish_offloads(batch, pool, &mut report);
        if !batch.is_empty() {
            let mut side = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            side.send(batch.packets_mut(), &mut report);
        }
        batch.free_into(pool);
        report
    }
}

/// A device's MTU.
pub(super) fn mtu(name: &str) -> io::Result<u32> {
    let mut req = raw::ifreq(name)?;
    let any = raw::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: SIOCGIFMTU takes an ifreq and fills ifru_mtu.
    let mtu = unsafe {
        raw::ioctl_ifreq(&any, libc::SIOCGIFMTU as libc::c_ulong, &mut req)?;
        req.ifr_ifru.ifru_mtu
    };
    Ok(mtu.max(0) as u32)
}
