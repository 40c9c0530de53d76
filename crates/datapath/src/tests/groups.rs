//! Packet-wise execution is the oracle of groups: both send, upcall, drop and count the same, in the same order,
//! over bursts of several megaflows whose actions rewrite, copy, sample, meter, truncate and recirculate.

use super::frames::{arp, ipv4, ipv6, l4, tcp, udp};
use super::keys::rewrite;
use super::*;
use dpif::actions::{
    CheckPktLen, CloneAction, DropAction, HashAction, HashAlgorithm, Meter, Psample, Recirc, Sample, TnlPop,
    Trunc, Userspace,
};
use flow::RecircId;
use proptest::prelude::*;

/// Frames of ten megaflows, some alike.
fn universe() -> Vec<Vec<u8>> {
    let mut all = vec![arp(), ipv6(17, &l4(17, 5, 6, true)), ipv6(58, &l4(58, 5, 6, true))];
    all.push(ipv4(1, frames::SRC, frames::DST, 0, &l4(1, 5, 6, false)));
    for port in 0..4 {
        all.push(tcp(port, 80 + port % 2));
        all.push(udp(port, 80 + port % 2));
    }
    let mut tagged = udp(9, 9);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    all.push(tagged);
    all.extend(super::tunnels::pops().into_iter().take(1).map(|(_, frame, ..)| frame));
    all.push(frames::eth(0x8847, &[0, 0, 0x10, 64, 0, 0, 0x21, 9, 0x45, 0, 0, 20]));
    all
}

fn mask() -> KeyMask {
    let mut mask = least_mask();
    mask.base.nw_proto = 0xff;
    mask.base.tp_dst = 1;
    mask.base.vlan_tci = 0x1000;
    mask
}

fn hash(symmetric: bool, basis: u32) -> DpAction {
    let algorithm = if symmetric { HashAlgorithm::SymL4 } else { HashAlgorithm::L4 };
    HashAction { algorithm, basis }.into()
}

/// Output ports 2 to 4, and an unknown one.
fn action() -> impl Strategy<Value = DpAction> {
    let leaf = prop_oneof![
        4 => rewrite(),
        6 => (2..6u32).prop_map(out),
        1 => Just(DpAction::Userspace(Userspace(UserCookie::SlowPath { reasons: 3 }))),
        2 => (1..4u32).prop_map(|id| DpAction::Recirc(Recirc(RecircId(id)))),
        2 => (10..70u32).prop_map(|a| DpAction::Trunc(Trunc(a))),
        2 => (any::<bool>(), 0..3u32).prop_map(|(symmetric, basis)| hash(symmetric, basis)),
        2 => (1..4u32).prop_map(|a| DpAction::Meter(Meter(a))),
        2 => (0..4u32).prop_map(|group| DpAction::Psample(Psample { group, cookie: Box::new([7]) })),
        2 => (0..super::tunnels::PUSHES.len()).prop_map(super::tunnels::push),
        2 => (10..14u32).prop_map(|port| DpAction::TnlPop(TnlPop(DpPort(port)))),
        1 => Just(DpAction::Drop(DropAction(XlateDrop::Ok))),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        let list = prop::collection::vec(inner, 0..3);
        let probability = prop_oneof![Just(0), Just(u32::MAX), any::<u32>()];
        prop_oneof![
            list.clone().prop_map(|a| DpAction::Clone(CloneAction(a))),
            (50..80u16, list.clone(), list.clone()).prop_map(|(len, greater, less)| {
                DpAction::CheckPktLen(CheckPktLen { len, greater, less })
            }),
            (probability, list)
                .prop_map(|(probability, actions)| DpAction::Sample(Sample { probability, actions })),
        ]
    })
}

#[derive(Clone, Debug)]
enum Step {
    /// Frames on a port.
    Receive(u32, Vec<usize>),
    /// Whether the slow path accepts upcalls.
    Full(bool),
    /// Answers all upcalls; the megaflows made from them have these actions.
    Answer(Vec<DpAction>),
    Pass(u64),
}

fn actions() -> impl Strategy<Value = Vec<DpAction>> {
    prop::collection::vec(action(), 0..5)
}

fn step() -> impl Strategy<Value = Step> {
    let frames = prop::collection::vec(0..universe().len(), 1..70);
    prop_oneof![
        6 => (1..3u32, frames).prop_map(|(port, frames)| Step::Receive(port, frames)),
        1 => any::<bool>().prop_map(Step::Full),
        4 => actions().prop_map(Step::Answer),
        1 => (0..400_000u64).prop_map(Step::Pass),
    ]
}

/// Observable state of a core.
#[derive(PartialEq, Debug)]
struct Seen {
    sent: Vec<(u32, Vec<u8>)>,
    upcalls: Vec<(UpcallKind, Vec<u8>, FlowKey, Ufid, DpPort, Option<Ticket>)>,
    ledger: Ledger,
    drops: (Drops, Drops),
    counted: [u64; 6],
    flows: Vec<(Ufid, FlowStats)>,
    meters: Vec<MeterStats>,
    samples: (Vec<SampledPacket>, u64),
}

/// Samples in an order that is the same for groups and for single packets. Beyond the bound only their number is.
fn sorted((mut samples, lost): (Vec<SampledPacket>, u64)) -> (Vec<SampledPacket>, u64) {
    if lost > 0 {
        return (Vec::new(), samples.len() as u64 + lost);
    }
    samples.sort_by(|a, b| {
        let key = |s: &SampledPacket| (s.packet.clone(), s.in_port, s.group, s.probability, s.bytes);
        key(a).cmp(&key(b))
    });
    (samples, lost)
}

struct Side {
    rig: Rig,
    shared: Arc<DpShared>,
    waiting: Vec<Upcall>,
}

impl Side {
    fn new(group: bool) -> Side {
        let mut rig = Rig::with(|c| c.tuning.group = group);
        rig.pmd.sample_locally(Some(40));
        let shared = rig.pmd.exec.shared.clone();
        for id in 1..4 {
            let band = MeterBand { rate: 20 * id, burst: 7 };
            shared.meter_set(id, &MeterConfig { per_packet: id != 3, bands: vec![band] }).unwrap();
        }
        rig.settle();
        Side { rig, shared, waiting: Vec::new() }
    }

    /// Megaflows for all frames of both ports, before and after recirculations, with these actions in rotation.
    fn install(&mut self, lists: &[Vec<DpAction>]) {
        let mut lists = lists.iter().cycle();
        for (port, recirc_id) in [1, 2, 10, 11].into_iter().flat_map(|port| (0..4).map(move |id| (port, id)))
        {
            for frame in universe() {
                let mut key = key_of(port, &frame);
                key.base.recirc_id = recirc_id;
                self.rig.put(key, mask(), lists.next().expect("a list").clone());
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let frames = universe();
        match step {
            Step::Receive(port, which) => {
                let frames: Vec<Vec<u8>> = which.iter().map(|n| frames[*n].clone()).collect();
                self.rig.receive(*port, &frames);
            }
            Step::Full(full) => self.rig.io.full = *full,
            Step::Pass(us) => self.rig.now_us += us,
            Step::Answer(actions) => {
                for upcall in std::mem::take(&mut self.waiting) {
                    if upcall.kind == UpcallKind::Miss {
                        self.rig.put(upcall.key, mask(), actions.clone());
                    }
                    self.rig.execute(upcall.packet, upcall.key, actions.clone(), upcall.ticket);
                }
            }
        }
    }

    fn seen(&mut self) -> Seen {
        let upcalls = std::mem::take(&mut self.rig.io.upcalls);
        let of = |u: &Upcall| (u.kind, u.packet.data().to_vec(), u.key, u.ufid, u.rx_port, u.ticket);
        let told = upcalls.iter().map(of).collect();
        self.waiting.extend(upcalls);
        let OpResult::Dump(flows, _) = self.rig.apply(DpifOp::FlowDump { cursor: 0, max_flows: 1000 }) else {
            panic!("a dump")
        };
        let sent = self.rig.sent();
        self.rig.io.packets.clear();
        let stats = self.rig.pmd.stats();
        Seen {
            sent,
            upcalls: told,
            ledger: self.rig.pmd.ledger(),
            drops: (stats.drops, self.rig.pmd.drops_by_ports()),
            counted: [
                stats.recirculated,
                stats.cache_hits,
                stats.megaflow_hits,
                stats.upcalls,
                stats.parked_lost,
                stats.sent_batches,
            ],
            flows: flows.iter().map(|f| (f.ufid, f.stats)).collect(),
            meters: (1..4).map(|id| self.shared.meter_stats(id).unwrap()).collect(),
            samples: sorted(self.rig.pmd.take_samples()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn groups_equal_packet_wise_execution(
        lists in prop::collection::vec(actions(), 1..20),
        steps in prop::collection::vec(step(), 1..8),
    ) {
        let (mut groups, mut packets) = (Side::new(true), Side::new(false));
        groups.install(&lists);
        packets.install(&lists);
        for step in &steps {
            groups.step(step);
            packets.step(step);
            prop_assert_eq!(groups.seen(), packets.seen());
        }
    }
}

#[test]
fn a_clone_leaves_the_headers_of_its_packet_as_dirty_as_they_were() {
    let frame = ipv6(58, &l4(58, 5, 6, true));
    let kind = Masked { value: PortsSet { src: 1, dst: 0 }, mask: PortsSet { src: 0xff, dst: 0 } };
    let all = |hlimit| Ipv6Set { src: [0; 16], dst: [0; 16], label: 0, tclass: 0, hlimit };
    let hlimit = DpAction::Set(SetAction::Ipv6(Masked { value: all(7), mask: all(0xff) }));
    let actions = vec![
        DpAction::Set(SetAction::Icmpv6(kind)),
        DpAction::Clone(CloneAction(vec![hlimit, out(2)])),
        DpAction::Recirc(Recirc(RecircId(1))),
    ];
    for group in [true, false] {
        let mut rig = Rig::with(|c| c.tuning.group = group);
        rig.flow(1, &frame, least_mask(), actions.clone());
        rig.receive(1, std::slice::from_ref(&frame));
        assert_eq!(rig.sent()[0].1[21], 7);
        let upcall = rig.io.upcalls.pop().unwrap();
        let mut wanted = key_of(1, upcall.packet.data());
        wanted.base.recirc_id = 1;
        assert_eq!((upcall.key, upcall.key.base.nw_ttl), (wanted, 64));
        assert_eq!(upcall.key.ipv6.nd_target, [0; 16], "no neighbour discovery any more");
    }
}

#[test]
fn copies_beyond_a_burst_wait_in_order_and_are_bounded() {
    let burst: Vec<Vec<u8>> = (0..32).map(|n| udp(n, 80)).collect();
    for group in [true, false] {
        for (copies, sent) in [(1, 32), (3, 96), (32, 1024), (40, 1024)] {
            let mut rig = Rig::with(|c| c.tuning.group = group);
            rig.flow(1, &burst[0], least_mask(), vec![DpAction::Recirc(Recirc(RecircId(1))); copies]);
            let mut key = key_of(1, &burst[0]);
            key.base.recirc_id = 1;
            rig.put(key, least_mask(), vec![out(2)]);
            rig.receive(1, &burst);
            let each = |frame: &Vec<u8>| vec![(2, frame.clone()); copies];
            let wanted: Vec<(u32, Vec<u8>)> = burst.iter().flat_map(each).take(sent).collect();
            assert!(rig.sent() == wanted, "{copies} copies, groups {group}");
            let lost = (32 * copies - sent) as u64;
            assert_eq!(rig.drops(DropReason::RecirculationLimit), lost, "{copies} copies");
            assert_eq!(crate::burst::RECIRCULATED_MAX, 1024);
        }
    }
}
