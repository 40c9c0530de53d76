//! Operations: put, delete, get, dump, flush, and the harmlessness of stale ids.

use super::frames::{tcp, udp};
use super::*;
use dpif::FLOW_ACTIONS_MAX;
use dpif::actions::{CloneAction, DecTtl, Foreign, PopVlan, PushVlan, Rewrite, Sample, Userspace};

fn port_mask() -> KeyMask {
    let mut mask = least_mask();
    mask.base.tp_dst = 0xffff;
    mask.base.nw_proto = 0xff;
    mask
}

#[test]
fn a_put_looks_the_packet_up_again() {
    let mut rig = Rig::new();
    let first = rig.flow(1, &tcp(1, 80), port_mask(), vec![out(2)]);
    let (_, again) = rig.put(key_of(1, &tcp(7, 80)), port_mask(), vec![out(3)]);
    assert!(matches!(again, OpResult::Failed(DpifError::Exists(u)) if u == first));
    let (_, other_port) = rig.put(key_of(2, &tcp(7, 80)), port_mask(), vec![out(3)]);
    assert!(matches!(other_port, OpResult::Done));
}

#[test]
fn puts_are_validated_and_bounded() {
    let mut rig = Rig::with(|c| c.flow_limit_hard = 2);
    let key = key_of(1, &tcp(1, 80));
    let loosen: [fn(&mut KeyMask); 4] = [
        |m| m.base.in_port = 0xff,
        |m| m.base.recirc_id = 0,
        |m| m.base.dl_type = 0xff00,
        |m| m.base.shape = 1,
    ];
    for change in loosen {
        let mut mask = least_mask();
        change(&mut mask);
        let (_, result) = rig.put(key, mask, vec![]);
        assert!(matches!(result, OpResult::Failed(DpifError::Unsupported(_))), "{result:?}");
    }
    let nest = |depth| (0..depth).fold(vec![out(2)], |inner, _| vec![DpAction::Clone(CloneAction(inner))]);
    let (_, deep) = rig.put(key, least_mask(), nest(ACTION_NESTING_MAX + 1));
    assert!(matches!(deep, OpResult::Failed(DpifError::Unsupported(_))));
    let (_, long) = rig.put(key, least_mask(), vec![out(2); FLOW_ACTIONS_MAX + 1]);
    assert!(matches!(long, OpResult::Failed(DpifError::Unsupported(_))));
    rig.flow(1, &tcp(1, 80), port_mask(), nest(ACTION_NESTING_MAX));
    rig.flow(1, &tcp(1, 81), port_mask(), vec![]);
    let (_, full) = rig.put(key_of(1, &tcp(1, 82)), port_mask(), vec![]);
    assert!(matches!(full, OpResult::Failed(DpifError::Full("flow table"))));
    rig.receive(1, &[tcp(1, 80)]);
    assert_eq!(rig.sent().len(), 1, "through eight clones");
}

/// Actions only for flows of other programs, or of the kernel's datapath.
fn actions_of_others() -> Vec<(&'static str, DpAction)> {
    let list = || vec![out(2)];
    vec![
        ("dec_ttl", DpAction::DecTtl(DecTtl(list()))),
        ("set(tunnel)", DpAction::Set(SetAction::Tunnel(Box::default()))),
        ("(unknown)", DpAction::Foreign(Foreign { kind: 99, content: [].into() })),
    ]
}

#[test]
fn actions_that_are_not_there_are_refused_by_name() {
    let mut rig = Rig::new();
    let frame = tcp(1, 80);
    let key = key_of(1, &frame);
    for (name, action) in actions_of_others() {
        let nested = DpAction::Clone(CloneAction(vec![DpAction::Sample(Sample {
            probability: 1,
            actions: vec![action.clone()],
        })]));
        for action in [action, nested] {
            let actions = vec![out(3), action];
            let (_, put) = rig.put(key, least_mask(), actions.clone());
            let execute = Execute {
                packet: Packet::from_slice(&frame),
                key,
                actions: actions.into(),
                ticket: None,
                upcall: 0,
                went_on: false,
            };
            let executed = rig.apply(DpifOp::Execute(Box::new(execute)));
            for result in [put, executed] {
                let OpResult::Failed(DpifError::Unsupported(why)) = result else { panic!("{result:?}") };
                assert_eq!(why, format!("the userspace datapath lacks the action {name}"));
            }
        }
    }
    assert!(rig.sent().is_empty());
    // Nor has one any effect that was installed all the same.
    let ufid = rig.flow(1, &frame, port_mask(), vec![]);
    let dropped = rig.drops(DropReason::BadAction);
    for (n, (_, action)) in actions_of_others().into_iter().enumerate() {
        let flow = rig.pmd.table.by_ufid(ufid).unwrap();
        let list: Arc<[DpAction]> = [action, out(2)].into();
        rig.pmd.table.slab().set_actions(flow, list.clone(), list);
        rig.receive(1, std::slice::from_ref(&frame));
        assert_eq!(rig.drops(DropReason::BadAction), dropped + n as u64 + 1);
    }
    assert!(rig.sent().is_empty());
}

#[test]
fn modify_exchanges_actions_by_name() {
    let mut rig = Rig::new();
    let frame = tcp(1, 80);
    let ufid = rig.flow(1, &frame, port_mask(), vec![out(2)]);
    let put = |ufid, actions: Vec<DpAction>| {
        let (key, mask) = (key_of(1, &frame), port_mask());
        DpifOp::FlowPut(Box::new(FlowPut { ufid, key, mask, actions: actions.into(), mode: PutMode::Modify }))
    };
    rig.receive(1, std::slice::from_ref(&frame));
    assert!(matches!(rig.apply(put(ufid, vec![out(3), out(4)])), OpResult::Done));
    rig.receive(1, std::slice::from_ref(&frame));
    assert_eq!(rig.sent().iter().map(|s| s.0).collect::<Vec<_>>().len(), 3);
    let OpResult::Flow(flow) = rig.apply(DpifOp::FlowGet(ufid)) else { panic!() };
    assert_eq!((flow.stats.packets, flow.actions.len()), (2, 2));
    assert!(matches!(rig.apply(put(Ufid(999), vec![])), OpResult::Failed(DpifError::NotFound("flow"))));
}

#[test]
fn a_deleted_flow_is_gone_from_the_cache_too_and_its_slot_can_be_reused() {
    let mut rig = Rig::new();
    let (a, b) = (tcp(1, 80), tcp(1, 81));
    let ufid = rig.flow(1, &a, port_mask(), vec![out(2)]);
    rig.receive(1, &[a.clone(), a.clone()]);
    rig.receive(1, std::slice::from_ref(&a));
    assert!(rig.pmd.stats().cache_hits > 0);
    assert!(matches!(rig.apply(DpifOp::FlowDel(ufid)), OpResult::Flow(_)));
    assert!(matches!(rig.apply(DpifOp::FlowDel(ufid)), OpResult::Failed(DpifError::NotFound("flow"))));
    rig.sent();
    // The new flow takes the slot that the cache still refers to for `a`.
    let hits = rig.pmd.stats().cache_hits;
    rig.flow(1, &b, port_mask(), vec![out(3)]);
    rig.receive(1, std::slice::from_ref(&a));
    assert!(rig.sent().is_empty());
    assert_eq!(rig.io.upcalls.len(), 1, "the stale hint leads nowhere");
    assert_eq!(rig.pmd.stats().cache_hits, hits);
    rig.receive(1, std::slice::from_ref(&b));
    assert_eq!(rig.sent(), vec![(3, b)]);
}

#[test]
fn a_dump_sees_every_flow_that_stays_once() {
    let mut rig = Rig::new();
    let stay: Vec<Ufid> = (0..1000).map(|n| rig.flow(1, &tcp(1, n), port_mask(), vec![out(2)])).collect();
    let go: Vec<Ufid> = (0..500).map(|n| rig.flow(1, &udp(1, n), port_mask(), vec![])).collect();
    let (mut seen, mut cursor, mut step) = (Vec::new(), 0, 0u16);
    loop {
        let OpResult::Dump(flows, next) = rig.apply(DpifOp::FlowDump { cursor, max_flows: 37 }) else {
            panic!()
        };
        assert!(flows.len() <= 37);
        seen.extend(flows.iter().map(|f| f.ufid));
        rig.apply(DpifOp::FlowDel(go[usize::from(step) * 7]));
        rig.flow(2, &tcp(2, step), port_mask(), vec![]);
        step += 1;
        match next {
            Some(c) => cursor = c,
            None => break,
        }
    }
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), count, "none twice");
    assert!(stay.iter().all(|u| seen.binary_search(u).is_ok()), "none missed");
}

#[test]
fn flush_empties_the_table() {
    let mut rig = Rig::new();
    for n in 0..10 {
        rig.flow(1, &tcp(1, n), port_mask(), vec![out(2)]);
    }
    assert!(matches!(rig.apply(DpifOp::FlowFlush), OpResult::Done));
    assert_eq!((rig.pmd.stats().flows, rig.pmd.stats().masks), (0, 0));
    rig.receive(1, &[tcp(1, 1)]);
    assert_eq!(rig.io.upcalls.len(), 1);
    let OpResult::Stats(stats) = rig.apply(DpifOp::Stats) else { panic!() };
    assert_eq!((stats.received, stats.upcalls), (1, 1));
    rig.apply(DpifOp::ClearStats);
    assert_eq!((rig.pmd.stats().received, rig.pmd.ledger().received), (0, 1));
}

/// More megaflows, of TCP and UDP, than a burst is compared with first.
fn many_flows(rig: &mut Rig) {
    for src in 0..16 {
        let mut mask = least_mask();
        (mask.base.nw_proto, mask.base.tp_src) = (u8::MAX, 15);
        rig.flow(1, &of_either(src, 1), mask, vec![out(2)]);
    }
}

fn of_either(src: u16, dst: u16) -> Vec<u8> {
    if src.is_multiple_of(2) { tcp(src, dst) } else { udp(src, dst) }
}

#[test]
fn the_cache_grows_under_evictions_and_shrinks_when_idle() {
    let mut rig = Rig::new();
    let small = rig.pmd.cache_stats().entries;
    many_flows(&mut rig);
    for round in 0..4 {
        for n in 0..600u16 {
            let frames: Vec<Vec<u8>> = (0..32).map(|m| of_either(n * 32 + m, round)).collect();
            rig.receive(1, &frames);
            rig.sent();
            rig.io.packets.clear();
        }
    }
    let grown = rig.pmd.cache_stats();
    assert!(grown.entries >= 4 * small && grown.evictions > 0, "{grown:?}");
    for second in 0..200 {
        rig.pmd.tick(second * 1_000_000);
    }
    assert_eq!(rig.pmd.cache_stats().entries, small);
}

#[test]
fn the_cache_grows_for_all_flows_when_one_hit_of_many_is_remembered() {
    let mut rig = Rig::with(|c| c.tuning.cache_insert_inv_prob = 100);
    let small = rig.pmd.cache_stats().entries;
    many_flows(&mut rig);
    let bursts: Vec<Vec<Vec<u8>>> =
        (0..200).map(|n| (0..32).map(|m| of_either(n * 32 + m, 1)).collect()).collect();
    for _ in 0..150 {
        for frames in &bursts {
            rig.receive(1, frames);
            rig.sent();
            rig.io.packets.clear();
        }
    }
    let grown = rig.pmd.cache_stats().entries;
    assert!(grown > small, "{grown} entries for 6,400 flows");
}

#[test]
fn a_core_can_be_given_to_a_thread() {
    fn send<T: Send>(_: &T) {}
    let mut rig = Rig::new();
    send(&rig.pmd);
    let _ = rig.pmd.pool();
    assert_eq!(rig.pmd.id(), PmdId::Core(0));
}

#[test]
fn hashes_spread_and_depend_on_the_seed() {
    use crate::hash::KeyHasher;
    let (one, other) = (KeyHasher::new(1), KeyHasher::new(2));
    let mut key = key_of(1, &tcp(1, 1));
    let (mut seen, mut lines) = (std::collections::HashSet::new(), vec![0u32; 256]);
    for n in 0..65536u32 {
        key.base.nw_src = n << 8;
        assert!(seen.insert(one.key(&key)), "two keys of one hash");
        assert_ne!(one.key(&key), other.key(&key));
        lines[one.key(&key) as usize % 256] += 1;
    }
    assert!(lines.iter().all(|n| (160..360).contains(n)), "256 in each line on average: {lines:?}");
}

/// A rewrite alone has the same effect as on the way to an upcall.
#[test]
fn a_rewrite_alone_is_as_in_a_list() {
    let all = Masked {
        value: Ipv4Set { src: 0x0a00_0009, tos: 4, ..Default::default() },
        mask: Ipv4Set { src: u32::MAX, tos: 0xfc, ..Default::default() },
    };
    let eth = Masked {
        value: EthSet { src: [2; 6], ..Default::default() },
        mask: EthSet { src: [255; 6], ..Default::default() },
    };
    let rewrites = [
        DpAction::Set(SetAction::Ipv4(all)),
        DpAction::PushVlan(PushVlan { tpid: 0x8100, tci: 0x1005 }),
        DpAction::Set(SetAction::SkbMark(Masked { value: 7, mask: u32::MAX })),
        DpAction::Set(SetAction::Eth(eth)),
        DpAction::PopVlan(PopVlan),
        DpAction::Set(SetAction::Udp(Masked {
            value: PortsSet { src: 0, dst: 99 },
            mask: PortsSet { src: 0, dst: u16::MAX },
        })),
    ];
    let frame = udp(1, 53);
    let (mut packet, mut key) = (Packet::from_slice(&frame), key_of(1, &frame));
    for (n, action) in rewrites.iter().enumerate() {
        let change = action.as_rewrite().expect("each is a rewrite");
        assert!(rewrite(&mut packet, &mut key, change, 1), "{action:?}");
        let mut rig = Rig::new();
        let mut actions = rewrites[..=n].to_vec();
        actions.push(DpAction::Userspace(Userspace(UserCookie::SlowPath { reasons: 1 })));
        rig.execute(Packet::from_slice(&frame), key_of(1, &frame), actions, None);
        let upcall = rig.io.upcalls.pop().expect("an upcall");
        assert_eq!((upcall.packet.data(), upcall.key), (packet.data(), key), "{action:?}");
    }
    // Reasons for a core to drop the packet.
    let tcp_ports = SetAction::Tcp(Masked { value: PortsSet::default(), mask: PortsSet::default() });
    assert!(!rewrite(&mut packet, &mut key, Rewrite::Set(&tcp_ports), 1));
    assert!(!rewrite(&mut packet, &mut key, Rewrite::PopVlan, 1));
    assert!(out(2).as_rewrite().is_none());
}

/// A packet whose copies went to controllers before is not dropped by a list without outputs.
#[test]
fn a_packet_that_went_on_is_not_dropped() {
    for went_on in [false, true] {
        let mut rig = Rig::new();
        let (packet, key) = (Packet::from_slice(&udp(1, 53)), key_of(1, &udp(1, 53)));
        let execute = Execute { packet, key, actions: Vec::new().into(), ticket: None, upcall: 0, went_on };
        rig.apply(DpifOp::Execute(Box::new(execute)));
        let ledger = rig.pmd.ledger();
        assert_eq!((ledger.dropped, ledger.consumed), (u64::from(!went_on), u64::from(went_on)));
        assert_eq!(rig.drops(DropReason::Explicit), u64::from(!went_on));
    }
}
