//! Tests of the order of service and of upcall handling.

use super::*;
use crate::ids::{BridgeId, BundleId};
use crate::ports::{Bundle, Port, PortConfigBits, PortCounters, PortTable, PriorityTags, VlanMode};
use crate::rule::{Rule, RuleStats, RuleTimeouts};
use dpif::actions::{DropAction, Output, Userspace};
use flow::extract::{Metadata, extract};
use flow::text::NoPortNames;
use flow::{DpPort, MacAddr, OfPort, TableId, Ufid};
use ofp_actions::text::{FlowModCommand, parse_flow_mod};
use openflow::msg::flow_mod::FlowModFlags;
use packet::Packet;
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
            link_down: false,
            links: Vec::new(),
            queue_dscp: Default::default(),
            features: Default::default(),
        };
        let bundle = Bundle {
            id: BundleId(n),
            name: port.name.clone(),
            members: vec![OfPort(n)],
            vlan_mode: VlanMode::Trunk,
            tag: 0,
            trunks: None,
            cvlans: None,
            qinq_tpid: 0x88a8,
            mcast_flood: false,
            mcast_flood_reports: false,
            priority_tags: PriorityTags::Never,
            protected: false,
            floodable: true,
            bond: None,
        };
        ports.ports.insert(OfPort(n), Arc::new(port));
        ports.bundles.insert(BundleId(n), Arc::new(bundle));
    }
    backer.set_ports(bridge, ports);
    rules.lines().for_each(|line| add_rule(&backer, bridge, line.trim()));
    (backer, bridge)
}

/// A rule in the text syntax.
fn rule_of(line: &str) -> Arc<Rule> {
    let m = parse_flow_mod(line, FlowModCommand::Add, &NoPortNames).expect(line);
    Arc::new(Rule {
        table: m.table.unwrap_or(TableId(0)),
        matching: m.rule_match.into(),
        priority: m.priority.into(),
        cookie: 0,
        timeouts: RuleTimeouts::new(m.idle_timeout_s, m.hard_timeout_s, &m.actions),
        importance: 0,
        flags: FlowModFlags::empty(),
        actions: m.actions.into(),
        created_ms: 0,
        modified_ms: 0,
        stats: Arc::new(RuleStats::default()),
    })
}

/// Adds a rule, and has all flows checked again.
pub(crate) fn add_rule(backer: &Backer, bridge: BridgeId, line: &str) {
    backer.change_bridge(bridge, |b| b.tables.insert(rule_of(line)));
}

/// Adds a rule as a flow-mod does.
pub(crate) fn add_by_flow_mod(backer: &Backer, bridge: BridgeId, line: &str) {
    let added = backer.change_tables(bridge, |tables| drop(tables.insert(rule_of(line))));
    added.expect("no open transaction");
}

/// Total packets of the rules of table 0.
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
        tunnel_out: None,
    })
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
        (&[DpAction::Output(Output(DpPort(2)))][..], &put.actions[..])
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
    // The packet may be recirculating: its state stays for two turns of the revalidator.
    put_done(&backer, PmdId::Core(0), Ufid(1), false);
    backer.recirc_release(&backer.ukeys.take_deferred());
    assert_eq!(backer.recirc_count(), 1);
    backer.recirc_release(&backer.ukeys.take_deferred());
    assert_eq!(backer.recirc_count(), 0);
}

/// As of a packet-out from `CONTROLLER` through `ct(table=1)`.
#[test]
fn a_recirculated_packet_without_a_known_port_is_of_its_frozen_bridge() {
    let (backer, bridge) = backer_with("");
    for in_port in [OfPort::CONTROLLER, OfPort::LOCAL, OfPort::NONE] {
        add_rule(&backer, bridge, &format!("table=1,in_port={},actions=2", in_port.0));
        let actions = ofp_actions::text::parse_actions("ct(table=1)", &NoPortNames).expect("actions");
        let mut upcall = miss_of(0x800, 1);
        upcall.key.base.in_port = DpPort::NONE.0;
        let flow = upcall.key.to_flow(in_port);
        let start = Start::Actions(&actions);
        let view = backer.view();
        let request = Request { view: &view, bridge, flow: &flow, start, trace: false };
        let t = translate(&request, &mut backer.xlate_host(true, 5));
        upcall.key.base.recirc_id = t.recircs[0].0;
        let ops = handle(&backer, vec![upcall], 5);
        let Some(DpifOp::Execute(execute)) = ops[&PmdId::Core(0)].last() else { panic!("{ops:?}") };
        assert_eq!(execute.actions[..], [DpAction::Output(Output(DpPort(2)))], "{in_port}");
        put_done(&backer, PmdId::Core(0), Ufid(1), false);
    }
}

/// One port's flows fill only the unreserved part.
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
    // A removed flow frees its place.
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
    let cookie = UserCookie::SlowPath { reasons: dpif::SlowReason::Action.bit() };
    assert_eq!(
        (&put.actions[..], &execute.actions[..]),
        (&[DpAction::Userspace(Userspace(cookie))][..], &[DpAction::Output(Output(DpPort(2)))][..])
    );
    let upcall = Box::new(Upcall { kind: UpcallKind::Action(cookie), ticket: None, ..*miss_of(0x88cc, 2) });
    let ops = handle(&backer, vec![upcall], 6);
    assert!(matches!(&ops[&PmdId::Core(0)][..], [DpifOp::Execute(e)] if e.actions == execute.actions));
    assert_eq!(counted(&backer, bridge), 1);
}

/// The slow path executes unsupported actions, packet by packet.
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
    let slow = UserCookie::SlowPath { reasons: dpif::SlowReason::Action.bit() };
    assert_eq!(put_of(&backer, 2), [DpAction::Userspace(Userspace(slow))]);
}

#[test]
fn packets_for_controllers_are_queued_or_counted_as_lost() {
    let (backer, _) = backer_with("actions=controller");
    let ops = handle(&backer, vec![miss_of(0x88cc, 1)], 5);
    let Some(DpifOp::FlowPut(put)) = ops[&PmdId::Core(0)].first() else { panic!("{ops:?}") };
    let [DpAction::Userspace(Userspace(cookie))] = put.actions[..] else { panic!("{put:?}") };
    let told = || {
        let mut lengths = Vec::new();
        backer.route_packet_ins(usize::MAX, |event| lengths.push(event.cookie.max_len_bytes));
        lengths
    };
    assert_eq!(told(), [65535], "of the first packet");
    let up = |n| Box::new(Upcall { kind: UpcallKind::Action(cookie), ticket: None, ..*miss_of(0x88cc, n) });
    assert!(handle(&backer, vec![up(2)], 6).is_empty());
    assert_eq!(told(), [65535]);
    // Its flow was removed so long ago that the state is released.
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
    assert_eq!(put.actions[..], [DpAction::Drop(DropAction(XlateDrop::BridgeNotFound))]);
}

#[test]
fn translation_errors_are_reported_with_their_packet() {
    let (backer, _) = backer_with("actions=resubmit(,0)");
    let many: dpif::Upcalls = (1..100).map(|n| miss_of(0x88cc, n)).collect();
    handle(&backer, many, 5);
    let told: Vec<String> = std::iter::from_fn(|| backer.failures.next_error()).collect();
    let expected = "over max translation depth 64 on bridge a while processing in_port=1,vlan_tci=0x0000,\
        dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,dl_type=0x88cc";
    assert_eq!((told.len(), told.first().map(String::as_str)), (16, Some(expected)));
    // One of them with its trace, and none within the next second.
    let traced = |at_ms| {
        handle(&backer, vec![miss_of(0x88cc, 7)], at_ms);
        backer.failures.next_trace().map(|failed| failed.translation.trace.len())
    };
    assert_eq!((backer.failures.next_trace().is_some(), traced(1004), traced(1005)), (true, None, Some(1)));
    let (backer, _) = backer_with("actions=group:7");
    handle(&backer, vec![miss_of(0x88cc, 1)], 5);
    assert!(backer.failures.next_trace().is_none());
}
