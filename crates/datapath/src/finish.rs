//! The last stage of a burst: actions, outputs, upcalls.
//!
//! Most bursts go to one port and are queued there at once. Otherwise packets whose megaflows have the same actions
//! form groups that execute them together. Then packets and their copies go to their destinations in order of
//! arrival, so that each port and the slow path see them in the order of packet-wise execution. A burst that
//! recirculates as a whole stays in place.

use crate::actions::{Fate, PacketCtx, RECIRC_DEPTH_MAX};
use crate::burst::LaneMask;
use crate::megaflow::ActionList;
use crate::pmd::Pmd;
use crate::ports::PmdIo;
use crate::process::OnMiss;
use flow::DpPort;
use packet::BATCH_MAX_PACKETS;

/// End of a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Round {
    /// All packets have left.
    Done,
    /// All packets recirculate, in place.
    Again,
}

impl Pmd {
    #[inline(never)]
    pub(crate) fn finish(&mut self, on_miss: OnMiss, io: &mut dyn PmdIo) -> Round {
        let received = self.burst.received.take();
        if self.finish_alike(io) {
            return Round::Done;
        }
        if let Some(first) = received {
            self.burst.write_origins(first);
        }
        if self.config.tuning.group {
            self.run_groups();
            self.dispatch(on_miss, io)
        } else {
            self.run_packets(on_miss, io);
            Round::Done
        }
    }

    /// Sends the whole burst at once if every packet goes to the same port and nowhere else; returns whether it did.
    fn finish_alike(&mut self, io: &mut dyn PmdIo) -> bool {
        let burst = &mut self.burst;
        let n = burst.arrays.packets.len().min(BATCH_MAX_PACKETS);
        let list = burst.lists[0];
        let others = burst.lists[..n].iter().fold(0, |d, other| d | (other ^ list));
        let output = self.table.lists().get(list).and_then(|l| l.output);
        match output {
            Some(port) if n != 0 && others == 0 => {
                self.exec.ports.output_all(DpPort(port), &mut burst.arrays.packets, io)
            }
            _ => false,
        }
    }

    /// Packet-wise execution: the oracle of groups.
    fn run_packets(&mut self, on_miss: OnMiss, io: &mut dyn PmdIo) {
        let mut packets = std::mem::take(&mut self.burst.arrays.packets);
        for (i, packet) in packets.drain(..).enumerate() {
            let (id, origin) = (self.burst.lists[i], self.burst.arrays.origins[i]);
            let Some(list) = self.table.lists().get(id) else {
                self.miss(packet, i, origin, on_miss, io);
                continue;
            };
            let headers = self.burst.arrays.headers(i, self.exec.vlan_limit);
            let mut view = PacketCtx::new(headers, origin);
            self.exec.run(packet, &mut view, &list.run, io);
        }
        self.burst.arrays.packets = packets;
    }

    /// The fates of all packets.
    fn run_groups(&mut self) {
        let Pmd { burst, work, exec, table, .. } = self;
        work.reset();
        let mut left = LaneMask::first(burst.arrays.packets.len());
        let (mut ordered, mut in_order) = (LaneMask::NONE, 0);
        while let Some(lane) = left.lowest() {
            let id = burst.lists[lane];
            let group = LaneMask(simd::equal_u32(&burst.lists, id)).and(left);
            left = left.without(group);
            match table.lists().get(id) {
                None => work.all(group, Fate::Miss),
                Some(ActionList { output: Some(port), .. }) => work.all(group, Fate::Output(DpPort(*port))),
                Some(list) if list.in_order != 0 => {
                    ordered.add(group);
                    in_order += list.in_order;
                }
                Some(list) => exec.run_group(&mut burst.arrays, work, group, &list.run),
            }
        }
        let several = in_order > 1;
        while let Some(lane) = ordered.lowest() {
            let group = if several { LaneMask::one(lane) } else { ordered };
            ordered = ordered.without(group);
            if let Some(list) = table.lists().get(burst.lists[lane]) {
                exec.run_group(&mut burst.arrays, work, group, &list.run);
            }
        }
    }

    /// Sends packets and copies to the destinations set by their actions, in order of arrival.
    fn dispatch(&mut self, on_miss: OnMiss, io: &mut dyn PmdIo) -> Round {
        if self.work.has_no_copies()
            && let Some(round) = self.dispatch_alike(on_miss, io)
        {
            return round;
        }
        let mut packets = std::mem::take(&mut self.burst.arrays.packets);
        for (lane, packet) in packets.drain(..).enumerate() {
            let Pmd { work, exec, burst, .. } = self;
            let mut at = work.first_copy(lane);
            while let Some(copied) = at.and_then(|n| work.take_copy(n)) {
                at = copied.next;
                exec.send_copied(copied, io);
            }
            let (origin, rx_port) = (burst.arrays.origins[lane], burst.arrays.origins[lane].rx_port);
            match work.fates[lane] {
                Fate::Miss => self.miss(packet, lane, origin, on_miss, io),
                Fate::Output(port) => exec.ports.output(port, packet, rx_port, io),
                Fate::Userspace(cookie) => {
                    exec.userspace(packet, burst.arrays.parsed(lane), rx_port, work.cookie(cookie), io);
                }
                Fate::Recirc(id) => exec.recirculate(packet, burst.arrays.parsed(lane), origin, id),
                Fate::Drop(reason) => {
                    exec.ports.drop_keyed(packet, reason, rx_port, &burst.arrays.keys[lane])
                }
                Fate::Wanted(why) => exec.ports.drop_wanted(packet, why, rx_port, &burst.arrays.keys[lane]),
                Fate::Consumed => exec.ports.consume(packet),
                // The packet itself waits.
                Fate::Held => drop(packet),
            }
        }
        self.burst.arrays.packets = packets;
        Round::Done
    }

    /// Runs the whole burst at once if all packets have the same destination, or all are sent; `None`, without effect, if not
    /// or impossible.
    fn dispatch_alike(&mut self, on_miss: OnMiss, io: &mut dyn PmdIo) -> Option<Round> {
        let Pmd { work, exec, burst, .. } = self;
        let arrays = &mut *burst.arrays;
        let n = arrays.packets.len();
        let fate = work.fates[0];
        if n == 0 {
            return None;
        }
        if work.fates[1..n].iter().any(|f| *f != fate) {
            let mut to = [DpPort::NONE; BATCH_MAX_PACKETS];
            for (to, fate) in to.iter_mut().zip(&work.fates[..n]) {
                let Fate::Output(port) = fate else { return None };
                *to = *port;
            }
            let all = exec.ports.output_each(to.get(..n)?, &mut arrays.packets);
            return all.then_some(Round::Done);
        }
        match fate {
            Fate::Output(port) => exec.ports.output_all(port, &mut arrays.packets, io).then_some(Round::Done),
            // Resumed packets follow those resumed with them.
            Fate::Recirc(id) if on_miss == OnMiss::Park && exec.recirculated.is_empty() => {
                if arrays.origins[..n].iter().any(|o| o.depth > RECIRC_DEPTH_MAX) {
                    return None;
                }
                arrays.keys[..n].iter_mut().for_each(|key| key.base.recirc_id = id);
                exec.ports.stats.recirculated += n as u64;
                Some(Round::Again)
            }
            Fate::Miss
            | Fate::Userspace(_)
            | Fate::Recirc(_)
            | Fate::Drop(_)
            | Fate::Wanted(_)
            | Fate::Consumed
            | Fate::Held => None,
        }
    }
}
