//! Speed of tunnels in one forwarding core: `cargo run --release -p datapath --example tunnel_speed`.
//!
//! 64-byte UDP packets of 1,000 flows: forwarded as they are; outer headers pushed; outer headers popped, then output after
//! recirculation. VXLAN, Geneve with an option, and VXLAN over IPv6, whose UDP has a checksum. All cases run in turn; each
//! checks that every packet was sent. `--seconds S`: time of a case; `--only TEXT`: cases of that name.

#![allow(clippy::disallowed_methods, reason = "an example measures time")]

use datapath::{DpShared, Pmd, PmdConfig, PmdIo, TxReport};
use dpif::actions::tnl_header::{
    Encap, OuterFields, OuterIp, OuterUdp, TnlHeader, UDP_CSUM_COMPUTED, VXLAN_HAS_VNI,
};
use dpif::actions::{Output, TnlPop, TnlPush};
use dpif::{
    DpAction, DpifOp, Execute, FlowPut, OpResult, PmdId, PutMode, TunnelKind, TunnelPort, Upcall, UpcallSink,
};
use flow::extract::{Metadata, extract};
use flow::{DpPort, FlowKey, KeyMask, TunnelOptions, Ufid};
use packet::{PacketBatch, PacketPool, checksum};
use std::sync::Arc;
use std::time::{Duration, Instant};

const BURST: usize = 32;
const FLOWS: u16 = 1000;
const FRAME_BYTES: usize = 64;
/// Vxlan, Geneve.
const TUNNELS: [u32; 2] = [10, 11];

/// Keeps the packets of one batch, counts the others.
#[derive(Default)]
struct Sink {
    sent: u64,
    upcalls: Vec<Upcall>,
    kept: Vec<Vec<u8>>,
    keeps: bool,
}

impl UpcallSink for Sink {
    fn upcall(&mut self, upcall: Box<Upcall>) -> Result<(), Box<Upcall>> {
        self.upcalls.push(*upcall);
        Ok(())
    }
}

impl PmdIo for Sink {
    fn transmit(&mut self, _: DpPort, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let packets = batch.len() as u64;
        if self.keeps {
            self.kept.extend(batch.packets().iter().map(|p| p.data().to_vec()));
        }
        self.sent += packets;
        batch.free_into(pool);
        TxReport { sent_packets: packets, ..TxReport::default() }
    }
}

/// A datagram of flow `n`.
fn frame(n: u16) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    f.extend([0x45, 0, 0, (FRAME_BYTES - 14) as u8, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = checksum::checksum(&f[14..34]);
    f[24..26].copy_from_slice(&sum.to_be_bytes());
    f.extend((1024 + n).to_be_bytes());
    f.extend([0, 53, 0, (FRAME_BYTES - 34) as u8, 0, 0]);
    f.resize(FRAME_BYTES, 0);
    f
}

fn header(kind: TunnelKind, v6: bool) -> TnlHeader {
    let udp = OuterUdp {
        src: 0,
        dst: kind.usual_port().unwrap_or(0),
        csum: if v6 { UDP_CSUM_COMPUTED } else { 0 },
    };
    let mut options = TunnelOptions::default();
    assert!(options.push(0x102, 0x80, &[0, 0, 0, 7]));
    let encap = match kind {
        TunnelKind::Geneve => {
            Encap::Geneve { udp, oam: false, critical: true, vni: 7, options: Box::new(options) }
        }
        TunnelKind::Vxlan
        | TunnelKind::Gre
        | TunnelKind::Ip6gre
        | TunnelKind::Erspan
        | TunnelKind::Ip6erspan
        | TunnelKind::Gtpu
        | TunnelKind::Srv6 => Encap::Vxlan { udp, flags: VXLAN_HAS_VNI, vni: 7 },
    };
    let ip = match v6 {
        true => OuterIp::V6 { src: [1; 16], dst: [2; 16], label: 0, tclass: 0, hlimit: 64 },
        false => OuterIp::V4 { src: 1, dst: 2, tos: 0, ttl: 64, frag: 0x4000 },
    };
    TnlHeader::new(OuterFields { eth_dst: [2; 6], eth_src: [4; 6], ip, encap })
}

struct Case {
    name: &'static str,
    pmd: Pmd,
    frames: Vec<Vec<u8>>,
    at: usize,
    sink: Sink,
    ns: Vec<f64>,
}

impl Case {
    fn new(name: &'static str, frames: Vec<Vec<u8>>, actions: Vec<DpAction>) -> Case {
        let shared = Arc::new(DpShared::new(7));
        for (port, kind) in TUNNELS.into_iter().zip(TunnelKind::ALL) {
            let dst_port = kind.usual_port().unwrap_or(0);
            shared.set_tunnel(DpPort(port), Some(TunnelPort { kind, dst_port, gbp: false, l3: false }));
        }
        let mut pmd = Pmd::new(PmdConfig::new(PmdId::Core(0), 0x5eed), shared);
        for port in 1..=2 {
            pmd.port_add(DpPort(port)).expect("a port");
        }
        let mut key = FlowKey::default();
        extract(&frames[0], &Metadata { in_port: 1, ..Metadata::default() }, 1, &mut key);
        put(&mut pmd, 1, key, actions);
        let mut case = Case { name, pmd, frames, at: 0, sink: Sink::default(), ns: Vec::new() };
        // A popped packet misses once.
        case.burst();
        let actions: Arc<[DpAction]> = [Output(DpPort(2)).into()].into();
        let upcalls = std::mem::take(&mut case.sink.upcalls);
        if let Some(first) = upcalls.first() {
            put(&mut case.pmd, 2, first.key, actions.to_vec());
        }
        for Upcall { packet, key, ticket, .. } in upcalls {
            let execute =
                Execute { packet, key, actions: actions.clone(), ticket, upcall: 0, went_on: false };
            case.pmd.apply(vec![DpifOp::Execute(Box::new(execute))], 0, &mut case.sink);
        }
        case.pmd.flush_output(&mut case.sink);
        case
    }

    fn burst(&mut self) {
        let mut batch = PacketBatch::new();
        self.pmd.pool().alloc_burst(&mut batch, BURST);
        for packet in batch.packets_mut() {
            packet.set_frame(&self.frames[self.at]);
            self.at = (self.at + 1) % self.frames.len();
        }
        self.pmd.process_batch(DpPort(1), &mut batch, 1_000_000, &mut self.sink);
        self.pmd.flush_output(&mut self.sink);
    }

    fn measure(&mut self, time: Duration) {
        let (began, mut packets) = (Instant::now(), 0);
        let before = self.sink.sent;
        while began.elapsed() < time {
            for _ in 0..64 {
                self.burst();
            }
            packets += 64 * BURST as u64;
        }
        let took = began.elapsed();
        assert_eq!(self.sink.sent - before, packets, "{}", self.name);
        assert!(self.sink.upcalls.is_empty(), "{}", self.name);
        self.ns.push(took.as_nanos() as f64 / packets as f64);
    }
}

/// A flow of all packets of that shape and port.
fn put(pmd: &mut Pmd, n: u128, key: FlowKey, actions: Vec<DpAction>) {
    let mut mask = KeyMask::default();
    (mask.base.shape, mask.base.in_port, mask.base.recirc_id) = (u16::MAX, u32::MAX, u32::MAX);
    mask.base.dl_type = u16::MAX;
    mask.tunnel.id = if key.tunnel.is_some() { u64::MAX } else { 0 };
    let put = FlowPut { ufid: Ufid(n), key, mask, actions: actions.into(), mode: PutMode::Create };
    let done = pmd.apply(vec![DpifOp::FlowPut(Box::new(put))], 0, &mut Sink::default()).remove(0);
    assert!(matches!(done, OpResult::Done), "{done:?}");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let after = |name: &str| args.iter().position(|a| a == name).and_then(|at| args.get(at + 1));
    let only = after("--only").cloned().unwrap_or_default();
    let seconds: f64 = after("--seconds").map_or(0.5, |s| s.parse().expect("seconds"));
    let inner: Vec<Vec<u8>> = (0..FLOWS).map(frame).collect();
    let push = |kind, v6| {
        let header = Arc::new(header(kind, v6));
        let push = TnlPush { tnl_port: DpPort(TUNNELS[0]), out_port: DpPort(2), header };
        vec![push.into(), Output(DpPort(2)).into()]
    };
    let mut cases = vec![Case::new("plain", inner.clone(), vec![Output(DpPort(2)).into()])];
    let kinds = [
        ("VXLAN push", "VXLAN pop", TunnelKind::Vxlan, false),
        ("Geneve push", "Geneve pop", TunnelKind::Geneve, false),
        ("VXLAN over IPv6 push", "VXLAN over IPv6 pop", TunnelKind::Vxlan, true),
    ];
    for (of_push, of_pop, kind, v6) in kinds {
        let mut case = Case::new(of_push, inner.clone(), push(kind, v6));
        case.sink.keeps = true;
        case.at = 0;
        (0..inner.len().div_ceil(BURST)).for_each(|_| case.burst());
        let outer = std::mem::take(&mut case.sink.kept);
        case.sink.keeps = false;
        let tunnel = TUNNELS[usize::from(kind == TunnelKind::Geneve)];
        cases.push(case);
        cases.push(Case::new(of_pop, outer, vec![TnlPop(DpPort(tunnel)).into()]));
    }
    cases.retain(|case| case.name.contains(&only));
    for _ in 0..5 {
        for case in &mut cases {
            case.measure(Duration::from_secs_f64(seconds / 5.0));
        }
    }
    println!("{:28}{:>8}{:>8}{:>10}", "", "ns", "Mpps", "of plain");
    let mut plain = 0.0;
    for case in &mut cases {
        case.ns.sort_by(f64::total_cmp);
        let ns = case.ns[case.ns.len() / 2];
        plain = if plain == 0.0 { ns } else { plain };
        println!("{:28}{ns:8.1}{:8.2}{:10.2}", case.name, 1000.0 / ns, ns / plain);
    }
}
