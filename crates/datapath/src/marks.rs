//! [`Marks`]: marks of devices as hints for megaflows.
//!
//! A device marks received packets that match one of its rules ([`packet::Packet::set_mark`]). The flow of a mark handles
//! the packet if it matches; any other packet, and any wrong or old mark, goes on to the cache.

use crate::pmd::Pmd;
use crate::stages::MISS;
use flow::Ufid;
use std::collections::BTreeMap;

/// Slots of flows, by mark; at most one mark for each flow.
#[derive(Default)]
pub(crate) struct Marks(BTreeMap<u32, u32>);

impl Marks {
    /// Whether no flow has a mark.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Pmd {
    /// Gives a flow a mark; a flow of the same mark loses it.
    pub fn mark(&mut self, ufid: Ufid, mark: u32) {
        if let Some(id) = self.table.by_ufid(ufid) {
            self.marks.0.insert(mark, id);
        }
    }

    /// Removes a mark.
    pub fn unmark(&mut self, mark: u32) {
        self.marks.0.remove(&mark);
    }

    /// Removes all marks.
    pub fn unmark_all(&mut self) {
        self.marks.0.clear();
    }

    /// Finds the flows of marked packets of the burst, and counts them there.
    #[inline(never)]
    pub(crate) fn find_marked(&mut self) {
        let (burst, now_ms) = (&mut self.burst, self.exec.now_us / 1000);
        for (i, packet) in burst.arrays.packets.iter_mut().enumerate() {
            // It holds for the received packet only, not after recirculation.
            let mark = packet.take_mark();
            if burst.results[i] != MISS {
                continue;
            }
            let Some(id) = self.marks.0.get(&mark) else { continue };
            let bytes = packet.len() as u64;
            if let Some(list) = self.table.hit(*id, &burst.arrays.keys[i], bytes, now_ms) {
                burst.results[i] = *id;
                burst.lists[i] = list;
                self.exec.ports.stats.mark_hits += 1;
            }
        }
    }
}
