//! Marks of devices: hints that never change a result.

use super::frames::udp;
use super::*;
use dpif::actions::Recirc;
use flow::RecircId;

fn ports_mask() -> KeyMask {
    let mut mask = least_mask();
    (mask.base.tp_src, mask.base.nw_proto) = (0xffff, 0xff);
    mask
}

fn marked(frame: &[u8], mark: u32) -> Packet {
    let mut packet = Packet::from_slice(frame);
    packet.set_mark(mark);
    packet
}

/// Hits by marks; by cache and table; upcalls.
fn hits(rig: &Rig) -> [u64; 3] {
    let stats = rig.pmd.stats();
    assert_eq!(stats.passes(), stats.received + stats.recirculated);
    [stats.mark_hits, stats.cache_hits + stats.megaflow_hits, stats.upcalls]
}

#[test]
fn a_mark_finds_the_flow_and_a_wrong_one_nothing() {
    for cache in [true, false] {
        let mut rig = Rig::with(|c| c.cache_entries_max = if cache { 1024 } else { 0 });
        let ufid = rig.flow(1, &udp(1, 9), ports_mask(), vec![out(2)]);
        rig.flow(1, &udp(2, 9), ports_mask(), vec![out(3)]);
        rig.pmd.mark(ufid, 7);
        rig.pmd.mark(Ufid(99), 8);
        let marks = [(1, 7), (1, 0), (2, 7), (2, 8), (1, 7)];
        let packets = marks.map(|(port, mark)| marked(&udp(port, 9), mark));
        rig.receive_packets(1, packets.into());
        let mut ports: Vec<u32> = rig.sent().iter().map(|(port, _)| *port).collect();
        ports.sort_unstable();
        assert_eq!(ports, [2, 2, 2, 3, 3]);
        assert_eq!(hits(&rig), [2, 3, 0]);
        let OpResult::Flow(flow) = rig.apply(DpifOp::FlowGet(ufid)) else { panic!("no flow") };
        assert_eq!(flow.stats.packets, 3);
        // The slot may belong to another flow by now.
        rig.apply(DpifOp::FlowDel(ufid));
        rig.flow(1, &udp(5, 9), ports_mask(), vec![out(4)]);
        rig.receive_packets(1, vec![marked(&udp(1, 9), 7), marked(&udp(5, 9), 7)]);
        assert_eq!(rig.sent(), [(4, udp(5, 9))]);
        assert_eq!(hits(&rig), [3, 3, 1], "an old mark is a hint like any other");
        rig.pmd.unmark(7);
        rig.receive_packets(1, vec![marked(&udp(5, 9), 7)]);
        assert_eq!(hits(&rig), [3, 4, 1]);
    }
}

#[test]
fn a_mark_ends_with_recirculation() {
    let mut rig = Rig::new();
    let recirc = DpAction::Recirc(Recirc(RecircId(1)));
    let first = rig.flow(1, &udp(1, 9), least_mask(), vec![recirc]);
    let mut key = key_of(1, &udp(1, 9));
    key.base.recirc_id = 1;
    let (second, _) = rig.put(key, least_mask(), vec![out(2)]);
    rig.pmd.mark(first, 7);
    rig.pmd.mark(second, 8);
    rig.receive_packets(1, vec![marked(&udp(1, 9), 7), marked(&udp(1, 9), 8)]);
    assert_eq!((hits(&rig), rig.sent().len()), ([1, 3, 0], 2));
    rig.pmd.unmark_all();
    rig.receive_packets(1, vec![marked(&udp(1, 9), 7)]);
    assert_eq!(hits(&rig), [1, 5, 0]);
}
