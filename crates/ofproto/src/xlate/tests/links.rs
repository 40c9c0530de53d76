//! Link protocols of ports, by the example of BFD. Expectations are those of `ofproto/trace` and `dpctl/dump-flows` of OVS 3.1.

use super::*;
use crate::link_sender::LinkSender;
use crate::links::{LinkInbox, LinkSession, PortLink};
use dpif::{DpifOp, SlowReason};
use l2proto::bfd::{Config, build};
use l2proto::protocol::{LinkState, Transmission};
use l2proto::{LinkSettings, Protocol};
use std::collections::BTreeMap;

const BFD: &str = "in_port=1,udp,dl_src=02:00:00:00:00:01,dl_dst=00:23:20:00:00:01,nw_src=169.254.1.1,\
    nw_dst=169.254.1.0,nw_tos=192,nw_ttl=255,tp_src=49152,tp_dst=3784";
const DATA: &str = "in_port=1,udp,dl_src=02:00:00:00:00:01,dl_dst=00:23:20:00:00:01,nw_src=169.254.1.1,\
    nw_dst=169.254.1.0,nw_tos=192,nw_ttl=255,tp_src=49152,tp_dst=3785";

/// Nobody runs the sessions.
struct Nobody;

impl LinkInbox for Nobody {
    fn ready(&self, _: &Arc<LinkSession>) {}
}

/// A session with these settings.
fn session(settings: &[(&str, &str)]) -> PortLink {
    let map: BTreeMap<String, String> =
        settings.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let (config, warnings) = Config::parse(&map);
    assert!(warnings.is_empty(), "{warnings:?}");
    let settings = LinkSettings::Bfd(config);
    PortLink {
        claim: settings.claim(),
        counts_rx: settings.rx_use().by_flows,
        gates_traffic: false,
        session: Arc::new(LinkSession::new("p", Protocol::Bfd, Arc::new(Nobody))),
    }
}

fn give(rig: &Rig, bridge: BridgeId, port: OfPort, bfd: &PortLink) {
    let view = rig.backer.view();
    let mut ports = view.bridge(bridge).expect("made by the rig").ports.as_ref().clone();
    let port =
        Port { links: vec![bfd.clone()], ..ports.port(port).expect("made by the rig").as_ref().clone() };
    ports.ports.insert(port.of_port, Arc::new(port));
    rig.backer.set_ports(bridge, ports);
}

#[test]
fn a_session_takes_its_packets() {
    for (settings, packet, taken, megaflow) in [
        (&[][..], BFD, true, "eth,udp,in_port=1,nw_frag=no,tp_dst=3784"),
        (&[], DATA, false, "eth,udp,in_port=1,nw_frag=no,tp_dst=0x1/0x1"),
        (&[], "in_port=1,tcp", false, "eth,tcp,in_port=1,nw_frag=no"),
        (&[], "in_port=1,arp", false, "eth,arp,in_port=1"),
        (
            &[("bfd_remote_dst_mac", "00:23:20:00:00:02")],
            BFD,
            false,
            "eth,ip,in_port=1,dl_dst=00:23:20:00:00:01,nw_frag=no",
        ),
        (
            &[("bfd_src_ip", "169.254.1.0")],
            BFD,
            true,
            "eth,udp,in_port=1,nw_dst=169.254.1.0,nw_frag=no,tp_dst=3784",
        ),
    ] {
        let (rig, bfd) = (Rig::new(), session(settings));
        give(&rig, rig.a, OfPort(1), &bfd);
        let a = rig.a;
        let rig = rig.rules(a, "actions=2");
        let t = rig.check(packet, if taken { "drop" } else { "2" }, &format!("recirc_id=0,{megaflow}"));
        assert_eq!(t.claimed.len(), usize::from(taken), "{packet}");
        assert_eq!(t.slow_reasons, if taken { SlowReason::Link(Protocol::Bfd).bit() } else { 0 });
        if taken {
            assert_eq!(show(&t.actions_to_put()), format!("slow({})", SlowReason::Link(Protocol::Bfd).bit()));
            assert_eq!(t.claimed[0].ttl, 255);
        }
    }
}

#[test]
fn under_check_tnl_key_routed_sessions_reach_the_rules() {
    let (rig, bfd) = (Rig::new(), session(&[("check_tnl_key", "true")]));
    give(&rig, rig.a, OfPort(1), &bfd);
    let a = rig.a;
    let rig = rig.rules(a, "actions=2");
    assert_eq!(rig.acts(&format!("{BFD},tun_src=1.1.1.1,tun_dst=1.1.1.2"), "drop").claimed.len(), 1);
    let routed = rig.acts(&format!("{BFD},tun_src=1.1.1.1,tun_dst=1.1.1.2,tun_id=5"), "2");
    assert!(routed.claimed.is_empty() && routed.wc.0.tun_id == u64::MAX);
}

/// As in OVS, table 0 is looked up: its rule is shown, counts, and adds to the mask.
#[test]
fn the_rule_that_is_not_executed_counts() {
    let rig = Rig::new();
    let a = rig.a;
    give(&rig, a, OfPort(1), &session(&[]));
    let rig = rig.rules(a, "udp,nw_src=169.254.0.0/16,tp_src=49152,actions=2");
    let t = rig.check(
        BFD,
        "drop",
        "recirc_id=0,eth,udp,in_port=1,nw_src=169.254.0.0/16,nw_frag=no,tp_src=49152,tp_dst=3784",
    );
    assert!(t.cache.effects().iter().any(|e| matches!(e, XlateEffect::Rule(_))));
    let lines = stories::story(&rig, BFD, false);
    assert_eq!(lines, [" 0. udp,nw_src=169.254.0.0/16,tp_src=49152, priority 32768"]);
}

#[test]
fn patch_ports_have_sessions_too() {
    let (rig, bfd) = (Rig::new(), session(&[("forwarding_if_rx", "true")]));
    let (a, b) = (rig.a, rig.b);
    give(&rig, b, PATCH, &bfd);
    let rig = rig.rules(a, "actions=9,2").rules(b, "actions=1");
    let t = rig.acts(BFD, "2");
    assert_eq!((t.claimed.len(), t.slow_reasons), (1, SlowReason::Link(Protocol::Bfd).bit()));
    let t = rig.acts(DATA, "11,2");
    t.cache.replay(&seen(3, 300, 1), &mut rig.backer.effect_host());
    assert_eq!(bfd.session.take(), (3, Vec::new()));
}

#[test]
fn a_packet_out_comes_from_its_input_port() {
    let rig = Rig::new();
    give(&rig, rig.a, OfPort(1), &session(&[]));
    let view = rig.backer.view();
    let actions = [Action::Output(ofp_actions::Output { port: OfPort(2), max_len_bytes: 0 })];
    for (packet, sent) in [(BFD, "drop"), (DATA, "2")] {
        let (flow, start) = (Rig::flow(packet), Start::Actions(&actions));
        let request = Request { view: &view, bridge: rig.a, flow: &flow, start, trace: false };
        let t = translate(&request, &mut rig.backer.xlate_host(true, 1000));
        assert_eq!(show(&t.actions), sent);
    }
}

#[test]
fn liveness_follows_the_session_and_affects_its_flows_only() {
    for actions in ["bundle(eth_src,0,active_backup,ofport,members:2,3)", "group:1"] {
        let (rig, bfd) = (Rig::new(), session(&[]));
        let a = rig.a;
        give(&rig, a, OfPort(2), &bfd);
        let group = "group_id=1,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3";
        let rig = rig.groups(&[group]).rules(a, &format!("udp,actions={actions}\n arp,actions=2"));
        let (plain, before) = (rig.acts("in_port=1,arp", "2"), rig.acts(DATA, "3"));
        let epoch = rig.backer.epoch();
        assert!(!bfd.session.set_state(LinkState::UP).is_live);
        rig.backer.port_toggled(a, OfPort(2));
        rig.acts(DATA, "2");
        let changes = rig.backer.latest_changes();
        let key = |text: &str| {
            let key = flow::FlowKey::from_flow(&Rig::flow(text), DpPort(1));
            flow::PackedFlow::new(&key, &flow::FlowKey::from_mask(&Mask::none(), &key))
        };
        assert!(changes.affect(epoch, &before.lookups, &key(DATA)), "{actions}");
        assert!(!changes.affect(epoch, &plain.lookups, &key("in_port=1,arp")), "{actions}");
    }
}

#[test]
fn control_packets_leave_by_their_port() {
    let (rig, bfd) = (Rig::new(), session(&[]));
    give(&rig, rig.b, PATCH, &bfd);
    let addresses = l2proto::bfd::Addresses {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: l2proto::bfd::DEFAULT_DST_MAC,
        src_ip: l2proto::bfd::DEFAULT_SRC_IP,
        dst_ip: l2proto::bfd::DEFAULT_DST_IP,
        src_port: 49152,
    };
    let message = l2proto::bfd::Message {
        diagnostic: l2proto::bfd::Diagnostic::NONE,
        state: l2proto::bfd::State::Down,
        flags: l2proto::bfd::Flags::NONE,
        multiplier: 3,
        my_discriminator: 1,
        your_discriminator: 0,
        min_tx_us: 1_000_000,
        min_rx_us: 1_000_000,
        min_echo_rx_us: 0,
    };
    let sent =
        Transmission::from(l2proto::bfd::Transmission { frame: build(&addresses, &message), oam: false });
    let (mut sender, counted) = (LinkSender::default(), Transmission { oam: true, ..sent.clone() });
    // The second one needs no translation.
    for sent in [&sent, &sent, &counted] {
        let op = sender.send(&rig.backer, (rig.a, OfPort(2)), sent, 1000);
        let Some(DpifOp::Execute(execute)) = op else { panic!("{op:?}") };
        assert_eq!((show(&execute.actions), execute.packet.data()), ("2".to_string(), &sent.frame[..]));
    }
    rig.backer.change_bridge(rig.a, |b| {
        let port = Arc::make_mut(&mut b.ports).ports.get_mut(&OfPort(2)).unwrap();
        Arc::make_mut(port).config.no_fwd = true;
    });
    assert!(sender.send(&rig.backer, (rig.a, OfPort(2)), &counted, 1000).is_none());
    // Through a patch port to the session at its other end.
    assert!(sender.send(&rig.backer, (rig.a, PATCH), &sent, 1000).is_none());
    let (_, packets) = bfd.session.take();
    assert_eq!(packets[0].payload.as_deref(), Some(&message.to_bytes()[..]));
}

/// A session that gates the traffic of its port, in this state.
fn gate(may_forward: bool, may_learn: bool) -> PortLink {
    let link = PortLink { gates_traffic: true, ..session(&[]) };
    link.session.set_state(LinkState { may_forward, may_learn, ..LinkState::UP });
    link
}

/// The drop of a packet from a port that does not forward.
const STOPPED: &str = "drop:ForwardingDisabled";

/// As with the spanning trees of OVS: a blocking port takes and sends nothing, a learning one has its packets translated
/// without effect on them.
#[test]
fn a_gate_stops_what_its_port_receives_and_sends() {
    for (may_forward, may_learn, received) in
        [(true, true, "2"), (false, true, STOPPED), (false, false, STOPPED)]
    {
        let (rig, link) = (Rig::new(), gate(may_forward, may_learn));
        let a = rig.a;
        give(&rig, a, OfPort(1), &link);
        let rig = rig.rules(a, "actions=2");
        let t = rig.acts(DATA, received);
        assert_eq!(t.cache.effects().iter().any(|e| matches!(e, XlateEffect::Rule(_))), may_learn);
        let back = "in_port=2,arp";
        let rig = rig.rules(a, "priority=40000,in_port=2,actions=1,3");
        rig.acts(back, if may_forward { "1,3" } else { "3" });
        let lines = stories::story(&rig, back, false);
        let skipped = " >> BFD not in forwarding state, skipping output";
        assert_eq!(lines.iter().any(|line| line.ends_with(skipped)), !may_forward, "{lines:?}");
    }
}

/// A tracked copy of a port that only learns goes nowhere, and the packet of the first bridge goes on.
#[test]
fn a_gate_at_a_patch_port_stops_the_peer_alone() {
    let (rig, link) = (Rig::new(), gate(false, true));
    let (a, b) = (rig.a, rig.b);
    give(&rig, b, PATCH, &link);
    let rig = rig.rules(a, "actions=9,2").rules(b, "udp,actions=ct(table=1),1");
    let t = rig.acts(DATA, "2");
    let epoch = rig.backer.epoch();
    link.session.set_state(LinkState::UP);
    rig.backer.port_toggled(b, PATCH);
    let changes = rig.backer.latest_changes();
    let key = flow::FlowKey::from_flow(&Rig::flow(DATA), DpPort(1));
    let packed = flow::PackedFlow::new(&key, &flow::FlowKey::from_mask(&Mask::none(), &key));
    assert!(changes.affect(epoch, &t.lookups, &packed));
    assert_ne!(show(&rig.translate(&Rig::flow(DATA), true).actions), "2");
}

/// As in OVS, BPDUs leave by all ports but the blocking ones of STP; the trace names the tree that stops a packet.
#[test]
fn bpdus_pass_a_tree_that_stops_data() {
    use crate::links::{TreePhase as Phase, TreeState};
    let bpdu = "in_port=2,dl_type=0x5ff,dl_dst=01:80:c2:00:00:00";
    let data = "in_port=2,arp";
    for (is_rapid, phase, of_bpdu, of_data, why) in [
        (false, Phase::Blocking, "3", "3", "STP not in listening state, skipping bpdu output"),
        (false, Phase::Listening, "1,3", "3", "STP not in forwarding state, skipping output"),
        (false, Phase::Learning, "1,3", "3", "STP not in forwarding state, skipping output"),
        (false, Phase::Forwarding, "1,3", "1,3", ""),
        (true, Phase::Disabled, "1,3", "3", "RSTP not in forwarding state, skipping output"),
        (true, Phase::Listening, "1,3", "3", "RSTP not in forwarding state, skipping output"),
        (true, Phase::Forwarding, "1,3", "1,3", ""),
    ] {
        let (rig, link) = (Rig::new(), gate(true, true));
        link.session.set_state(LinkState::of_tree(TreeState { is_rapid, phase }));
        let a = rig.a;
        give(&rig, a, OfPort(1), &link);
        let rig = rig.rules(a, "priority=40000,in_port=2,actions=1,3");
        rig.acts(bpdu, of_bpdu);
        rig.acts(data, of_data);
        let packet = if phase == Phase::Blocking { bpdu } else { data };
        let lines = stories::story(&rig, packet, false);
        assert!(why.is_empty() || lines.iter().any(|line| line.ends_with(why)), "{phase:?}: {lines:?}");
    }
}
