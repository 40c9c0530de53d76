//! Tests of the order of service and of what a handler does with an upcall.

use super::*;
use crate::ports::{
    BridgeId, Bundle, BundleId, Port, PortConfigBits, PortCounters, PortTable, PriorityTags, VlanMode,
};
use crate::rule::{Rule, RuleFlags, RuleStats};
use flow::extract::{Metadata, extract};
use flow::text::{FlowModCommand, NoPortNames, parse_flow_mod};
use flow::{DpPort, MacAddr, OfPort, TableId, Ufid};
use packet::Packet;
use std::collections::VecDeque;
use sync::Ordering;

/// A backer with one bridge of two ports and some rules, for tests of the slow path.
pub(crate) fn backer_with(rules: &str) -> (Backer, BridgeId) {
    let backer = Backer::new(1);
    let bridge = backer.add_bridge("a");
    let mut ports = PortTable::default();
    for n in 1..=2 {
        let port = Port {
            of_port: OfPort(n),
            dp_port: Some(DpPort(n)),
            name: format!("p{n}"),
            type_name: String::new(),
            mac: MacAddr::default(),
            bundle: BundleId(n),
            patch_peer: None,
            counters: Arc::new(PortCounters::default()),
            tunnel: None,
            config: PortConfigBits::default(),
            tree: None,
            link_down: false,
            speed_mbps: 0,
        };
        let bundle = Bundle {
            id: BundleId(n),
            name: port.name.clone(),
            members: vec![OfPort(n)],
            vlan_mode: VlanMode::Trunk,
            tag: 0,
            trunks: None,
            priority_tags: PriorityTags::Never,
            protected: false,
            floodable: true,
        };
        ports.ports.insert(OfPort(n), Arc::new(port));
        ports.bundles.insert(BundleId(n), Arc::new(bundle));
    }
    backer.set_ports(bridge, ports);
    rules.lines().for_each(|line| add_rule(&backer, bridge, line.trim()));
    (backer, bridge)
}

/// Adds a rule in the text syntax; its counters.
pub(crate) fn add_rule(backer: &Backer, bridge: BridgeId, line: &str) {
    let m = parse_flow_mod(line, FlowModCommand::Add, &NoPortNames).expect(line);
    let rule = Rule {
        table: m.table.unwrap_or(TableId(0)),
        matching: m.rule_match,
        priority: m.priority.into(),
        cookie: 0,
        idle_timeout_s: m.idle_timeout_s,
        hard_timeout_s: m.hard_timeout_s,
        importance: 0,
        flags: RuleFlags::default(),
        actions: m.actions.into(),
        created_ms: 0,
        modified_ms: 0,
        stats: Arc::new(RuleStats::default()),
    };
    backer.change_bridge(bridge, |b| b.tables.insert(Arc::new(rule)));
}

/// Packets of the rules of table 0, in all.
pub(crate) fn counted(backer: &Backer, bridge: BridgeId) -> u64 {
    let view = backer.view();
    let rules =
        view.bridge(bridge).expect("made by backer_with").tables.within(TableId(0), &flow::Match::catchall());
    rules.iter().map(|r| r.stats.counts().0).sum()
}

/// A miss of an Ethernet frame of that type on port 1.
pub(crate) fn miss_of(eth_type: u16, ufid: u128) -> Box<Upcall> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(eth_type.to_be_bytes());
    frame.extend([0; 46]);
    let mut key = FlowKey::default();
    extract(&frame, &Metadata { in_port: 1, ..Metadata::default() }, 1, &mut key);
    Box::new(Upcall {
        kind: UpcallKind::Miss,
        packet: Packet::from_slice(&frame),
        key,
        ufid: Ufid(ufid),
        pmd: PmdId::Core(0),
        rx_port: DpPort(1),
        ticket: Some(dpif::Ticket(9)),
        received_us: 0,
    })
}

#[test]
fn a_long_queue_does_not_keep_the_others_waiting() {
    let mut queues: Vec<VecDeque<u32>> =
        vec![(0..1000).collect(), (0..3).collect(), VecDeque::new(), (0..20).collect()];
    let mut drr = DeficitRoundRobin::default();
    (0..4).for_each(|i| drr.enter(i));
    let mut served = [0; 4];
    for _ in 0..2 {
        let taken = drr.take(32, |i| Some((*i, queues[*i].pop_front()?)), |_| None);
        assert_eq!(taken.len(), 32);
        taken.iter().for_each(|(i, _)| served[*i] += 1);
    }
    assert_eq!(served, [41, 3, 0, 20]);
    // Queues that were empty are not asked again.
    let mut asked = Vec::new();
    let mut ask = |i: &usize| {
        asked.push(*i);
        None::<u32>
    };
    assert!(drr.take(1, &mut ask, |_| None).is_empty() && drr.take(1, &mut ask, |_| None).is_empty());
    assert_eq!(asked, [0]);
}

#[test]
fn service_goes_on_where_it_stopped_and_is_in_order() {
    let mut queues: Vec<VecDeque<u32>> = vec![(0..100).collect(), (0..100).collect(), (0..100).collect()];
    let mut drr = DeficitRoundRobin::default();
    assert!(drr.take(5, |_: &usize| Some(1), |_| None).is_empty());
    (0..3).for_each(|i| drr.enter(i));
    let mut order: Vec<(usize, u32)> = Vec::new();
    for _ in 0..10 {
        order.extend(drr.take(5, |i| Some((*i, queues[*i].pop_front()?)), |_| None));
    }
    for queue in 0..3 {
        let own: Vec<u32> = order.iter().filter(|(i, _)| *i == queue).map(|(_, n)| *n).collect();
        assert!((16..=18).contains(&own.len()) && own.windows(2).all(|w| w[0] + 1 == w[1]), "{own:?}");
    }
}

#[test]
fn who_asks_for_little_comes_first_once_a_round() {
    let mut drr = DeficitRoundRobin::default();
    let flooding = 0..10;
    flooding.clone().for_each(|i| drr.enter(i));
    let all = drr.take(10 * QUANTUM, |i| Some(*i), |_| None);
    assert_eq!(all.len(), 10 * QUANTUM);
    // A queue with one upcall: the next one that is served.
    let one = std::cell::Cell::new(true);
    let mut pop = |i: &i32| if *i == 99 { one.replace(false).then_some(99) } else { Some(*i) };
    drr.enter(99);
    assert_eq!(drr.take(2, &mut pop, |_| None), [99, 0]);
    assert_eq!(drr.ahead(), 1);
    // One more: it did not leave, so it waits for its turn, and all others have theirs before.
    one.set(true);
    let round = drr.take(10 * QUANTUM, &mut pop, |_| None);
    assert_eq!((round.last(), drr.ahead()), (Some(&99), 0));
    for i in flooding {
        assert_eq!(round.iter().filter(|n| **n == i).count(), QUANTUM - usize::from(i == 0), "{i}");
    }
}

#[test]
fn a_queue_that_fills_while_it_is_found_empty_stays() {
    let mut drr = DeficitRoundRobin::default();
    drr.enter(7);
    let filled = std::cell::Cell::new(false);
    let pop = |q: &u32| filled.get().then_some(*q);
    // Found empty, it is filled at that moment.
    let taken = drr.take(2, pop, |q| {
        filled.set(true);
        Some(q)
    });
    assert_eq!(taken, [7, 7]);
}

#[test]
fn a_miss_is_put_executed_and_credited() {
    let (backer, bridge) = backer_with("actions=2");
    let ops = handle(&backer, vec![miss_of(0x88cc, 1)], 5);
    let [DpifOp::FlowPut(put), DpifOp::Execute(execute)] = &ops[&PmdId::Core(0)][..] else {
        panic!("{ops:?}")
    };
    assert_eq!((put.ufid, put.mode, execute.ticket), (Ufid(1), PutMode::Create, Some(dpif::Ticket(9))));
    assert_eq!(
        (&put.actions[..], &execute.actions[..]),
        (&[DpAction::Output(DpPort(2))][..], &put.actions[..])
    );
    assert_eq!((backer.ukeys.len(), counted(&backer, bridge)), (1, 1));
    put_done(&backer, PmdId::Core(0), Ufid(1), false);
    assert!(backer.ukeys.is_empty());
}

#[test]
fn above_the_flow_limit_packets_are_executed_only() {
    let (backer, _) = backer_with("actions=debug_recirc,2");
    backer.limits.set_flow_limit(1);
    handle(&backer, vec![miss_of(0x88cc, 1)], 5);
    let ops = handle(&backer, vec![miss_of(0x88cd, 2)], 5);
    assert!(matches!(ops[&PmdId::Core(0)][..], [DpifOp::Execute(_)]));
    // The packet may be on its way round: its state stays for two turns of the revalidator.
    put_done(&backer, PmdId::Core(0), Ufid(1), false);
    backer.recirc_release(&backer.ukeys.take_deferred());
    assert_eq!(backer.recirc_count(), 1);
    backer.recirc_release(&backer.ukeys.take_deferred());
    assert_eq!(backer.recirc_count(), 0);
}

/// One port's flows fill what is not kept for others, and no more.
#[test]
fn a_port_that_makes_many_flows_leaves_others_their_share() {
    let (backer, _) = backer_with("ip,actions=2");
    backer.limits.set_flow_limit(120);
    let ports = backer.view().dp_ports.len() as u64 + 1;
    let share = crate::ukey::port_share(120, ports);
    assert!(share > 3, "{share}");
    let put = |port: u32, ufid: u128| {
        let mut upcall = miss_of(0x800, ufid);
        upcall.key.base.in_port = port;
        let ops = handle(&backer, vec![upcall], 1000);
        ops.values().flatten().any(|op| matches!(op, DpifOp::FlowPut(_)))
    };
    let many = (0..200).filter(|n| put(1, *n)).count() as u64;
    assert_eq!(many, 120 - share * (ports - 1));
    let few = (200..400).filter(|n| put(2, *n)).count() as u64;
    assert_eq!((few, backer.ukeys.port_len(flow::DpPort(2))), (share, share));
    // What ends makes room again.
    backer.ukeys.sweep(crate::ukey::Walk::default(), |_, _, k| k.flow.in_port() == flow::DpPort(1));
    assert_eq!(backer.ukeys.port_len(flow::DpPort(1)), 0);
    assert!(put(2, 500));
}

#[test]
fn a_slow_flow_is_put_as_such_and_its_packets_do_not_count_again() {
    let (backer, bridge) = backer_with("actions=debug_slow,2");
    let ops = handle(&backer, vec![miss_of(0x88cc, 1)], 5);
    let [DpifOp::FlowPut(put), DpifOp::Execute(execute)] = &ops[&PmdId::Core(0)][..] else {
        panic!("{ops:?}")
    };
    let cookie = UserCookie::SlowPath { reasons: dpif::slow_reason::ACTION };
    assert_eq!(
        (&put.actions[..], &execute.actions[..]),
        (&[DpAction::Userspace(cookie)][..], &[DpAction::Output(DpPort(2))][..])
    );
    let upcall = Box::new(Upcall { kind: UpcallKind::Action(cookie), ticket: None, ..*miss_of(0x88cc, 2) });
    let ops = handle(&backer, vec![upcall], 6);
    assert!(matches!(&ops[&PmdId::Core(0)][..], [DpifOp::Execute(e)] if e.actions == execute.actions));
    assert_eq!(counted(&backer, bridge), 1);
}

/// What the datapath cannot do the slow path does, packet by packet.
#[test]
fn an_action_that_the_datapath_lacks_makes_the_flow_slow() {
    let (mut backer, _) = backer_with("arp,actions=load:2->NXM_OF_ARP_OP[],2");
    let put_of = |backer: &Backer, ufid: u128| {
        let mut upcall = miss_of(0x806, ufid);
        let mut frame = upcall.packet.data().to_vec();
        frame[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
        extract(&frame, &Metadata { in_port: 1, ..Metadata::default() }, 1, &mut upcall.key);
        let ops = handle(backer, vec![upcall], 5);
        let [DpifOp::FlowPut(put), DpifOp::Execute(execute)] = &ops[&PmdId::Core(0)][..] else {
            panic!("{ops:?}")
        };
        assert!(matches!(execute.actions[..], [DpAction::Set(_), DpAction::Output(_)]), "{execute:?}");
        put.actions.to_vec()
    };
    assert!(matches!(put_of(&backer, 1)[..], [DpAction::Set(_), DpAction::Output(_)]));
    backer.capabilities.set_arp_nd_icmp = false;
    let slow = UserCookie::SlowPath { reasons: dpif::slow_reason::ACTION };
    assert_eq!(put_of(&backer, 2), [DpAction::Userspace(slow)]);
}

#[test]
fn packets_for_controllers_are_queued_or_counted_as_lost() {
    let (backer, _) = backer_with("actions=controller");
    let ops = handle(&backer, vec![miss_of(0x88cc, 1)], 5);
    let Some(DpifOp::FlowPut(put)) = ops[&PmdId::Core(0)].first() else { panic!("{ops:?}") };
    let [DpAction::Userspace(cookie)] = put.actions[..] else { panic!("{put:?}") };
    let told = || {
        let mut lengths = Vec::new();
        backer.route_packet_ins(usize::MAX, |event| lengths.push(event.cookie.max_len_bytes));
        lengths
    };
    assert_eq!(told(), [65535], "of the first packet");
    let up = |n| Box::new(Upcall { kind: UpcallKind::Action(cookie), ticket: None, ..*miss_of(0x88cc, n) });
    assert!(handle(&backer, vec![up(2)], 6).is_empty());
    assert_eq!(told(), [65535]);
    // Its flow ended so long ago that the state is gone.
    put_done(&backer, PmdId::Core(0), Ufid(1), false);
    (0..2).for_each(|_| backer.recirc_release(&backer.ukeys.take_deferred()));
    handle(&backer, vec![up(3)], 7);
    assert_eq!((backer.packet_ins_waiting(), backer.packet_ins_lost.load(Ordering::Relaxed)), (0, 1));
}

#[test]
fn a_port_of_no_bridge_drops() {
    let (backer, bridge) = backer_with("actions=2");
    backer.remove_bridge(bridge);
    let ops = handle(&backer, vec![miss_of(0x88cc, 1)], 5);
    let Some(DpifOp::FlowPut(put)) = ops[&PmdId::Core(0)].first() else { panic!("{ops:?}") };
    assert_eq!(put.actions[..], [DpAction::Drop(XlateDrop::BridgeNotFound)]);
}

#[test]
fn what_a_translation_stumbles_over_is_told_with_its_packet() {
    let (backer, _) = backer_with("actions=resubmit(,0)");
    let many: dpif::Upcalls = (1..100).map(|n| miss_of(0x88cc, n)).collect();
    handle(&backer, many, 5);
    let told: Vec<String> = std::iter::from_fn(|| backer.faults.pop()).collect();
    let expected = "over max translation depth 64 on bridge a while processing in_port=1,vlan_tci=0x0000,\
        dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,dl_type=0x88cc";
    assert_eq!((told.len(), told.first().map(String::as_str)), (16, Some(expected)));
}
