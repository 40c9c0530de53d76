//! Speed of connection tracking in one forwarding core: `cargo run --release -p datapath --example ct_speed`.
//!
//! 64-byte packets of established connections, of both directions in random order: `ct(nat)`, recirculation, output. UDP, TCP (acknowledgements; data),
//! UDP over IPv6, and three of them in turn. Beside it the same two passes without tracking, and new connections: `ct(commit,nat)`, output.
//! All cases run in turn; each checks that
//! every packet was sent with the right addresses. `--seconds S`: time of a case; `--only TEXT`: cases of that name.

#![allow(clippy::disallowed_methods, reason = "an example measures time")]

use conntrack::{PacketInfo, Request};
use datapath::{DpShared, Pmd, PmdConfig, PmdIo, TxReport};
use dpif::actions::{CtAction, CtCommit, CtNat, NatAddresses, NatRange, Output, Recirc};
use dpif::{DpAction, DpifOp, FlowPut, OpResult, PmdId, PutMode, Upcall, UpcallSink};
use flow::extract::{Metadata, extract};
use flow::{DpPort, FlowKey, KeyMask, RecircId, Ufid, ct_state, shape};
use packet::{Packet, PacketBatch, PacketPool, checksum};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BURST: usize = 32;
const CHUNK: usize = 4096;
/// The shortest frame of IPv6 and UDP, padded for the others.
const FRAME_BYTES: usize = 64;
/// Data of a segment.
const DATA_BYTES: usize = 10;
/// Place of the sequence number in a frame of IPv4.
const SEQ_AT: usize = 38;
/// Time of the tracker at first. It goes on as the time that a case ran, so deadlines move as in a switch.
const NOW_US: u64 = 1_000_000_000;

#[derive(Default)]
struct Sink {
    sent: u64,
    translated: u64,
    upcalls: u64,
}

impl UpcallSink for Sink {
    fn upcall(&mut self, _: Box<Upcall>) -> Result<(), Box<Upcall>> {
        self.upcalls += 1;
        Ok(())
    }
}

impl PmdIo for Sink {
    fn transmit(&mut self, _: DpPort, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let packets = batch.len() as u64;
        // Own packets have a source of the pool, replies the source of the connection as destination.
        let translated = |p: &&Packet| (p.data()[26] == 192) | (p.data()[30] == 10);
        self.translated += batch.packets().iter().filter(translated).count() as u64;
        self.sent += packets;
        batch.free_into(pool);
        TxReport { sent_packets: packets, ..TxReport::default() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Udp,
    /// An acknowledgement, repeated.
    Tcp,
    /// Data that move the windows.
    TcpData,
    UdpV6,
    Mixed,
}

impl Kind {
    /// The kind of connection `n`.
    fn of(self, n: u32) -> Kind {
        match (self, n % 3) {
            (Kind::Mixed, 0) => Kind::Udp,
            (Kind::Mixed, 1) => Kind::Tcp,
            (Kind::Mixed, _) => Kind::UdpV6,
            (kind, _) => kind,
        }
    }

    /// Kinds of packets that need a flow.
    fn all(self) -> Vec<Kind> {
        if self == Kind::Mixed { (0..3).map(|n| self.of(n)).collect() } else { vec![self] }
    }

    /// A frame with right checksums: full for UDP, of TCP an acknowledgement.
    fn frame(self, src: u32, dst: u32, sport: u16, dport: u16) -> Vec<u8> {
        let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let mut l4 = [sport, dport].map(u16::to_be_bytes).concat();
        let (proto, sum_at) = if matches!(self, Kind::Tcp | Kind::TcpData) {
            l4.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
            l4.resize(if self == Kind::TcpData { 20 + DATA_BYTES } else { 20 }, 0);
            (6, 16)
        } else {
            let bytes = FRAME_BYTES - if self == Kind::UdpV6 { 54 } else { 34 };
            l4.extend([0, bytes as u8, 0, 0]);
            l4.resize(bytes, 0);
            (17, 6)
        };
        let addresses = if self == Kind::UdpV6 {
            f.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, l4.len() as u8, proto, 64]);
            let wide = |a: u32| (0x2001_0db8 << 96 | u128::from(a)).to_be_bytes();
            [wide(src), wide(dst)].concat()
        } else {
            f.extend([8, 0, 0x45, 0, 0, 20 + l4.len() as u8, 0, 0, 0, 0, 64, proto, 0, 0]);
            [src, dst].map(u32::to_be_bytes).concat()
        };
        f.extend(&addresses);
        if self != Kind::UdpV6 {
            let sum = checksum::checksum(&f[14..34]);
            f[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let (src, dst) = addresses.split_at(addresses.len() / 2);
        let sum = !checksum::fold(checksum::sum(&l4, checksum::pseudo(src, dst, proto, l4.len())));
        l4[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
        f.extend(l4);
        f.resize(FRAME_BYTES, 0);
        f
    }
}

/// Connection `n`: many sources and destinations, so that translated ports last.
fn tuple(n: u32) -> (u32, u32, u16, u16) {
    (0x0a00_0000 | n >> 12, 0x1400_0000 | (n % 4093), 1024 + (n & 0xfff) as u16, 53)
}

fn snat() -> CtNat {
    let addresses = NatAddresses::V4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 20));
    CtNat::New(NatRange {
        is_dst: false,
        addresses: Some(addresses),
        ports: None,
        persistent: false,
        hash: false,
        random: false,
    })
}

#[derive(Clone, Copy)]
struct Spec {
    kind: Kind,
    connections: u32,
    tracked: bool,
    translated: bool,
    /// Each packet once.
    once: bool,
}

fn name(spec: Spec) -> String {
    let Spec { kind, connections, tracked, translated, once } = spec;
    let kind = match kind {
        Kind::Udp => "UDP",
        Kind::Tcp => "TCP",
        Kind::TcpData => "TCP data",
        Kind::UdpV6 => "UDP over IPv6",
        Kind::Mixed => "mixed",
    };
    let what = match (once, tracked, translated) {
        (true, _, false) => "new",
        (true, _, true) => "new, SNAT",
        (_, false, _) => "two passes without tracking",
        (_, _, false) => "established",
        (_, _, true) => "established, SNAT",
    };
    format!("{what}, {connections} connections, {kind}")
}

struct Case {
    name: String,
    pmd: Pmd,
    frames: Vec<u8>,
    at: usize,
    sink: Sink,
    ns: Vec<f64>,
    translated: bool,
    once: bool,
    now_us: u64,
    /// Data move the windows; the number of the last ones.
    moves: bool,
    seq: u32,
}

fn put(pmd: &mut Pmd, key: FlowKey, number: u128, actions: Vec<DpAction>) {
    let mut mask = KeyMask::default();
    mask.base.shape = u16::MAX;
    mask.base.in_port = u32::MAX;
    mask.base.recirc_id = u32::MAX;
    mask.base.dl_type = u16::MAX;
    mask.base.nw_proto = u8::MAX;
    // Packets of both directions match.
    mask.base.ct_state = ct_state::EST | ct_state::TRK;
    let put = FlowPut { ufid: Ufid(number), key, mask, actions: actions.into(), mode: PutMode::Create };
    let done = pmd.apply(vec![DpifOp::FlowPut(Box::new(put))], 0, &mut Sink::default()).remove(0);
    assert!(matches!(done, OpResult::Done), "{done:?}");
}

fn ct(commit: CtCommit, nat: CtNat) -> DpAction {
    DpAction::Ct(Box::new(CtAction { commit, nat, ..CtAction::default() }))
}

impl Case {
    fn new(spec: Spec) -> Case {
        let Spec { kind, connections, tracked, translated, once } = spec;
        let shared = Arc::new(DpShared::new(7));
        let mut pmd = Pmd::new(PmdConfig::new(PmdId::Core(0), 0x5eed), shared.clone());
        for port in 1..=2 {
            pmd.port_add(DpPort(port)).expect("a port");
        }
        let read = |frame: &[u8]| {
            let packet = Packet::from_slice(frame);
            let mut key = FlowKey::default();
            let layout = extract(packet.data(), &Metadata { in_port: 1, ..Metadata::default() }, 1, &mut key);
            (PacketInfo::read(&packet, &key, layout, 0), key)
        };
        let (mut frames, mut replies, mut state) = (Vec::new(), Vec::new(), 1u64);
        let frame_of = |n: u32| {
            let (src, dst, sport, dport) = tuple(n);
            kind.of(n).frame(src, dst, sport, dport)
        };
        let output = DpAction::Output(Output(DpPort(2)));
        if once {
            let nat = if translated { snat() } else { CtNat::No };
            put(&mut pmd, read(&frame_of(0)).1, 1, vec![ct(CtCommit::Yes, nat), output]);
            (0..connections).for_each(|n| frames.extend(frame_of(n)));
        } else {
            let first = if tracked { vec![ct(CtCommit::No, CtNat::Known)] } else { Vec::new() };
            let recirc = DpAction::Recirc(Recirc(RecircId(1)));
            for (n, of) in kind.all().into_iter().enumerate() {
                let (_, mut key) = read(&of.frame(1, 2, 3, 4));
                put(&mut pmd, key, 2 * n as u128, [first.clone(), vec![recirc.clone()]].concat());
                key.base.recirc_id = 1;
                if tracked {
                    key.base.ct_state = ct_state::EST | ct_state::TRK;
                    key.ct.nw_proto = key.base.nw_proto;
                    key.base.shape |= shape::CT;
                }
                put(&mut pmd, key, 2 * n as u128 + 1, vec![output.clone()]);
            }
            for n in (0..connections).filter(|_| tracked) {
                let nat = if translated { snat() } else { CtNat::No };
                let (info, mut key) = read(&frame_of(n));
                let commit = Request { commit: true, nat, ..Request::default() };
                let to = shared.tracker().track(info.as_ref(), &commit, &mut key, 1, NOW_US / 1000);
                let (src, dst, sport, dport) = tuple(n);
                let reply = match to {
                    Some(conntrack::Translation::Tuple(to)) => {
                        let [std::net::IpAddr::V4(src), _] = to.addresses() else { panic!("{to:?}") };
                        kind.of(n).frame(dst, src.into(), dport, to.rest().src)
                    }
                    _ => kind.of(n).frame(dst, src, dport, sport),
                };
                let (info, mut key) = read(&reply);
                replies.push(reply);
                shared.tracker().track(info.as_ref(), &Request::default(), &mut key, 1, NOW_US / 1000);
                assert_eq!(
                    key.base.ct_state,
                    ct_state::EST | ct_state::RPL | ct_state::TRK,
                    "connection {n}"
                );
            }
            for _ in 0..connections.max(1 << 16) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let n = (state >> 33) as u32 % connections;
                match replies.get(n as usize) {
                    Some(reply) if state >> 63 != 0 => frames.extend(reply),
                    _ => frames.extend(frame_of(n)),
                }
            }
        }
        let name = name(spec);
        let (sink, ns) = (Sink::default(), Vec::new());
        let moves = kind == Kind::TcpData;
        Case { name, pmd, frames, at: 0, sink, ns, translated, once, now_us: NOW_US, moves, seq: 0 }
    }

    fn chunk(&mut self) -> bool {
        if self.once && self.at + CHUNK * FRAME_BYTES > self.frames.len() {
            return false;
        }
        let (before, mut packets) = (self.sink.sent, 0);
        let translated = self.sink.translated;
        let mut batch = PacketBatch::new();
        let started = Instant::now();
        while packets < CHUNK {
            self.pmd.pool().alloc_burst(&mut batch, BURST);
            for packet in batch.packets_mut() {
                packet.set_frame(&self.frames[self.at..self.at + FRAME_BYTES]);
                if self.moves {
                    // As the next data of each connection; a device has verified the checksum.
                    self.seq += DATA_BYTES as u32;
                    packet.data_mut()[SEQ_AT..SEQ_AT + 4].copy_from_slice(&self.seq.to_be_bytes());
                    packet.offload.csum_valid = true;
                }
                self.at = (self.at + FRAME_BYTES) % self.frames.len();
            }
            self.pmd.process_batch(DpPort(1), &mut batch, self.now_us, &mut self.sink);
            self.pmd.flush_output(&mut self.sink);
            packets += BURST;
        }
        let elapsed = started.elapsed();
        self.now_us += elapsed.as_micros() as u64;
        self.ns.push(elapsed.as_nanos() as f64 / packets as f64);
        assert_eq!((self.sink.sent - before, self.sink.upcalls), (packets as u64, 0), "{}", self.name);
        if self.translated {
            assert_eq!(self.sink.translated - translated, packets as u64, "{}", self.name);
        }
        true
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let seconds =
        args.iter().position(|a| a == "--seconds").map_or(1.0, |at| args[at + 1].parse().expect("seconds"));
    let only = args.iter().position(|a| a == "--only").map_or("", |at| args[at + 1].as_str());
    let plain = Spec { kind: Kind::Udp, connections: 1000, tracked: true, translated: false, once: false };
    let mut all = vec![Spec { tracked: false, ..plain }];
    for connections in [1000, 100_000, 1_000_000] {
        all.extend([false, true].map(|translated| Spec { connections, translated, ..plain }));
    }
    for kind in [Kind::Tcp, Kind::TcpData, Kind::UdpV6, Kind::Mixed] {
        all.extend([1000, 100_000].map(|connections| Spec { kind, connections, ..plain }));
    }
    let new = Spec { connections: 1_000_000, once: true, ..plain };
    all.extend([new, Spec { translated: true, ..new }]);
    let chosen = all.into_iter().filter(|spec| name(*spec).contains(only));
    let mut cases: Vec<Case> = chosen.map(Case::new).collect();
    for _ in 0..5 {
        for case in &mut cases {
            let started = Instant::now();
            while started.elapsed() < Duration::from_secs_f64(seconds / 5.0) && case.chunk() {}
        }
    }
    println!("{:<48} {:>8} {:>8} {:>8}", "64-byte packets, one core", "ns p10", "ns p50", "Mpps");
    for case in &mut cases {
        // The first chunks warm up.
        let ns = &mut case.ns[2..];
        ns.sort_by(f64::total_cmp);
        let at = |part: usize| ns[(ns.len() - 1) * part / 100];
        println!("{:<48} {:>8.1} {:>8.1} {:>8.2}", case.name, at(10), at(50), 1000.0 / at(50));
    }
}
