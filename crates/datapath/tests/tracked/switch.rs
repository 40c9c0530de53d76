//! A forwarding core with flows that are added as packets miss them, and frames for it.

use conntrack::lookups_of_thread;
use datapath::{DpShared, Pmd, PmdConfig, PmdIo, TxReport};
use dpif::actions::parse_actions;
use dpif::text::NumbersOnly;
use dpif::{DpAction, DpifError, DpifOp, Execute, FlowPut, OpResult, PmdId, PutMode, Upcall, UpcallSink};
use flow::{DpPort, KeyMask, Ufid, ct_state};
use packet::checksum::{checksum, fold, pseudo, sum};
use packet::{Packet, PacketBatch, PacketPool};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use sys::counting::Counting;

/// Packets of a burst.
pub(crate) const BURST: usize = 32;
pub(crate) const SYN: u8 = 2;
pub(crate) const ACK: u8 = 16;
pub(crate) const UDP: u8 = 17;
pub(crate) const TCP: u8 = 6;
pub(crate) const ICMP: u8 = 1;

/// Takes packets and upcalls, into memory of its own.
struct Io {
    sent: Vec<(DpPort, Packet)>,
    upcalls: Vec<Upcall>,
}

impl UpcallSink for Io {
    fn upcall(&mut self, upcall: Box<Upcall>) -> Result<(), Box<Upcall>> {
        self.upcalls.push(*upcall);
        Ok(())
    }
}

impl PmdIo for Io {
    fn transmit(&mut self, port: DpPort, batch: &mut PacketBatch, _: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        for packet in batch.drain() {
            report.sent_packets += 1;
            report.sent_bytes += packet.len() as u64;
            self.sent.push((port, packet));
        }
        report
    }
}

/// A core whose flows are added as packets miss them: by input port and pass.
pub(crate) struct Switch {
    pmd: Pmd,
    io: Io,
    /// Actions by input port and recirculation id.
    lists: HashMap<(u32, u32), Arc<[DpAction]>>,
    pub(crate) now_us: u64,
    flows: u128,
    /// Shared with other cores: connections, fragments.
    pub(crate) shared: Arc<DpShared>,
    /// Where packets go that are not established after their first pass, if not by their list.
    pub(crate) others: Option<Arc<[DpAction]>>,
}

/// Allocations and lookups.
pub(crate) type Costs = (u64, u64);

impl Switch {
    /// `lists`: actions by input port and recirculation id; `{n}` stands for the prefix of the addresses.
    pub(crate) fn new(lists: &[(u32, u32, &str)], is_v6: bool, group: bool) -> Switch {
        let mut config = PmdConfig::new(PmdId::Core(0), 7);
        config.tuning.group = group;
        let shared = Arc::new(DpShared::new(7));
        let mut pmd = Pmd::new(config, shared.clone());
        for port in 1..=4 {
            pmd.port_add(DpPort(port)).unwrap();
        }
        let io = Io { sent: Vec::with_capacity(4 * BURST), upcalls: Vec::new() };
        let parsed = |text: &str| {
            let text = text.replace("{n}", if is_v6 { "fd00::" } else { "10.0.0." });
            parse_actions(&text, &NumbersOnly).expect(&text).into()
        };
        let lists = lists.iter().map(|(port, id, list)| ((*port, *id), parsed(list))).collect();
        Switch { pmd, io, lists, now_us: 1_000_000, flows: 0, shared, others: None }
    }

    /// Receives frames.
    pub(crate) fn receive(&mut self, port: u32, frames: &[Vec<u8>]) -> Costs {
        let mut batch: PacketBatch = frames.iter().map(|f| Packet::from_slice(f)).collect();
        self.io.sent.clear();
        let before = (Counting::allocations(), lookups_of_thread());
        self.pmd.process_batch(DpPort(port), &mut batch, self.now_us, &mut self.io);
        self.pmd.flush_output(&mut self.io);
        (Counting::allocations() - before.0, lookups_of_thread() - before.1)
    }

    /// Receives a frame, which must leave. Adds a flow for each miss.
    pub(crate) fn pass(&mut self, port: u32, frame: &[u8]) {
        self.receive(port, &[frame.to_vec()]);
        self.resolve();
        assert_eq!(self.io.sent.len(), 1, "{:?}", self.lists);
    }

    /// Adds a flow for each miss.
    pub(crate) fn resolve(&mut self) {
        while let Some(Upcall { packet, key, ticket, .. }) = self.io.upcalls.pop() {
            let mut mask = KeyMask::default();
            let mut actions = self.lists[&(key.base.in_port, key.base.recirc_id)].clone();
            if let Some(others) = self.others.as_ref().filter(|_| key.base.recirc_id != 0) {
                mask.base.ct_state = u32::MAX;
                if key.base.ct_state & ct_state::EST == 0 {
                    actions = others.clone();
                }
            }
            (mask.base.in_port, mask.base.recirc_id) = (u32::MAX, u32::MAX);
            (mask.base.dl_type, mask.base.shape) = (u16::MAX, u16::MAX);
            self.flows += 1;
            let ufid = Ufid(self.flows);
            let put = FlowPut { ufid, key, mask, actions: actions.clone(), mode: PutMode::Create };
            self.apply(DpifOp::FlowPut(Box::new(put)));
            let execute = Execute { packet, key, actions, ticket, upcall: 0, went_on: false };
            self.apply(DpifOp::Execute(Box::new(execute)));
            self.pmd.flush_output(&mut self.io);
        }
    }

    /// Number of packets that left each of ports 1 to 4 since the last were received, and of misses.
    pub(crate) fn left(&self) -> ([usize; 4], usize) {
        let of = |port: u32| self.io.sent.iter().filter(|(to, _)| to.0 == port).count();
        ([1, 2, 3, 4].map(of), self.io.upcalls.len())
    }

    fn apply(&mut self, op: DpifOp) {
        let results = self.pmd.apply(vec![op], self.now_us, &mut self.io);
        // Two packets of a burst may miss the same flow.
        let fails = |r: &OpResult| matches!(r, OpResult::Failed(e) if !matches!(e, DpifError::Exists(_)));
        assert!(!results.iter().any(fails), "{results:?}");
    }

    /// Costs of a burst, once buffers are there.
    pub(crate) fn costs(&mut self, port: u32, frames: &[Vec<u8>]) -> Costs {
        for _ in 0..2 {
            self.receive(port, &vec![frames[0].clone(); BURST]);
        }
        self.now_us += 1000;
        let costs = self.receive(port, frames);
        assert_eq!((self.io.sent.len(), self.io.upcalls.len()), (BURST, 0), "{:?}", self.lists);
        costs
    }
}

/// One end of a connection: address and port, or identifier.
pub(crate) type End = (IpAddr, u16);

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// A packet with right checksums. `flags`, `seq`, `ack`: of TCP.
pub(crate) fn frame(
    proto: u8,
    from: End,
    to: End,
    is_reply: bool,
    flags: u8,
    seq: u32,
    ack: u32,
    body: &[u8],
) -> Vec<u8> {
    let is_v4 = from.0.is_ipv4();
    let (src, dst) = (octets(from.0), octets(to.0));
    let ports = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    let (number, mut l4, at) = match proto {
        UDP => (UDP, [ports, vec![0, 8 + body.len() as u8, 0, 0]].concat(), 6),
        TCP => {
            let numbers = [seq.to_be_bytes(), ack.to_be_bytes()].concat();
            (TCP, [ports, numbers, vec![0x50, flags, 0x40, 0, 0, 0, 0, 0]].concat(), 16)
        }
        _ => {
            let kind = match (is_v4, is_reply) {
                (true, false) => 8,
                (true, true) => 0,
                (false, false) => 128,
                (false, true) => 129,
            };
            let id = from.1.to_be_bytes();
            (if is_v4 { 1 } else { 58 }, vec![kind, 0, 0, 0, id[0], id[1], 0, 1], 2)
        }
    };
    l4.extend(body);
    let sum = match number {
        1 => checksum(&l4),
        _ => !fold(sum(&l4, pseudo(&src, &dst, number, l4.len()))),
    };
    l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    let mut ip = match is_v4 {
        true => vec![0x45, 0, 0, 20 + l4.len() as u8, 0, 1, 0, 0, 64, number, 0, 0],
        false => vec![0x60, 0, 0, 0, 0, l4.len() as u8, number, 64],
    };
    ip.extend([src, dst].concat());
    if is_v4 {
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let dl_type: u16 = if is_v4 { 0x0800 } else { 0x86dd };
    [vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], dl_type.to_be_bytes().to_vec(), ip, l4].concat()
}
