//! In-band control: its hidden rules, and DHCP replies to the bridge's device. Expectations are those of OVS 3.1.

use super::*;
use ofproto::xlate::{Request, Start, translate};
use std::net::SocketAddrV4;

fn remotes(addresses: &[&str]) -> InBandConfig {
    let remotes = addresses.iter().map(|a| a.parse::<SocketAddrV4>().unwrap()).collect();
    InBandConfig { remotes, ..InBandConfig::default() }
}

fn set(s: &mut Switch, config: InBandConfig) {
    s.with(|m, ctx, now| m.set_in_band(config, ctx, now));
}

/// The rules without their statistics.
fn rules(s: &Switch) -> Vec<String> {
    let bare = |r: String| r.replace("table=0 cookie=0x0 ", "").replace(" n=0", "");
    s.rules().into_iter().map(bare).collect()
}

const LOCAL: &str = "aa:55:aa:55:00:fe";

#[test]
fn hidden_rules_keep_the_path_to_remotes_whatever_changes() {
    let mut s = Switch::new();
    set(&mut s, InBandConfig { queue: Some(3), ..remotes(&["10.0.0.9:6653", "10.0.0.9:7000"]) });
    let expected = [
        format!("priority=180000,udp,in_port=LOCAL,dl_src={LOCAL},tp_src=68,tp_dst=67 set_queue:3,NORMAL"),
        format!("priority=180001,arp,dl_dst={LOCAL},arp_op=2 set_queue:3,NORMAL"),
        format!("priority=180002,arp,dl_src={LOCAL},arp_op=1 set_queue:3,NORMAL"),
        "priority=180005,arp,arp_tpa=10.0.0.9,arp_op=2 set_queue:3,NORMAL".to_string(),
        "priority=180006,arp,arp_spa=10.0.0.9,arp_op=1 set_queue:3,NORMAL".to_string(),
        "priority=180007,tcp,nw_dst=10.0.0.9,tp_dst=6653 set_queue:3,NORMAL".to_string(),
        "priority=180007,tcp,nw_dst=10.0.0.9,tp_dst=7000 set_queue:3,NORMAL".to_string(),
        "priority=180008,tcp,nw_src=10.0.0.9,tp_src=6653 set_queue:3,NORMAL".to_string(),
        "priority=180008,tcp,nw_src=10.0.0.9,tp_src=7000 set_queue:3,NORMAL".to_string(),
    ];
    assert_eq!(rules(&s), expected);
    // Controllers neither see nor remove them.
    let mut c = s.controller(Version::V13);
    let dump = Message::FlowStatsRequest(all_flows(Format::Standard));
    assert!(matches!(c.one(&mut s, &dump), Message::FlowStatsReply(m) if m.entries.is_empty()));
    let tables = c.one(&mut s, &Message::TableStatsRequest);
    assert!(matches!(tables, Message::TableStatsReply(m) if m.entries[0].active_count == 0));
    c.flow(&mut s, TextCommand::Delete, "");
    assert_eq!(rules(&s), expected);
    // Fail-open removes all other rules.
    let config = RemoteConfig { has_controllers: true, max_probe_interval_ms: 0, ..RemoteConfig::default() };
    let id = c.id;
    s.with(|m, ctx, now| m.close(id, ctx, now));
    s.with(|m, ctx, now| m.configure(config, ctx, now));
    s.pass(1000);
    assert!(s.manager.is_fail_open());
    assert_eq!(rules(&s).len(), expected.len() + 1);
    // Next hops, then the end.
    let hop = MacAddr([2, 0, 0, 0, 0, 7]);
    set(&mut s, InBandConfig { next_hops: [hop].into(), ..remotes(&["10.0.0.9:6653"]) });
    let hops: Vec<String> = rules(&s).into_iter().filter(|r| r.contains("02:00:00:00:00:07")).collect();
    assert_eq!(
        hops,
        [
            "priority=180003,arp,dl_dst=02:00:00:00:00:07,arp_op=1 NORMAL",
            "priority=180004,arp,dl_src=02:00:00:00:00:07,arp_op=2 NORMAL"
        ]
    );
    set(&mut s, InBandConfig::default());
    assert_eq!(rules(&s), ["priority=15790320 NORMAL"]);
}

#[test]
fn the_rules_follow_the_address_of_the_device() {
    let mut s = Switch::new();
    set(&mut s, remotes(&["10.0.0.9:6653"]));
    let mut table = PortTable::clone(&s.backer.view().bridge(s.bridge).unwrap().ports);
    let local = table.ports.get_mut(&OfPort::LOCAL).unwrap();
    Arc::make_mut(local).mac = MacAddr([2, 0, 0, 0, 0, 1]);
    s.backer.set_ports(s.bridge, table.clone());
    s.pass(0);
    assert_eq!(rules(&s).iter().filter(|r| r.contains("02:00:00:00:00:01")).count(), 3);
    assert!(!rules(&s).iter().any(|r| r.contains(LOCAL)));
    table.ports.remove(&OfPort::LOCAL);
    s.backer.set_ports(s.bridge, table);
    s.pass(0);
    assert_eq!(rules(&s), [""; 0]);
}

/// Datapath actions and megaflow of an IP packet.
fn trace(s: &Switch, text: &str) -> (String, String) {
    let flow = flow::text::parse_exact_flow(text, &NoPortNames).unwrap();
    let view = s.backer.view();
    let request = Request { view: &view, bridge: s.bridge, flow: &flow, start: Start::Tables, trace: false };
    let t = translate(&request, &mut s.backer.xlate_host(false, s.now_ms));
    let actions = dpif::text::format_actions(&t.actions, &dpif::text::NumbersOnly);
    (actions, flow::text::format_match(&flow::Match::new(&flow, &t.wc), None))
}

#[test]
fn dhcp_replies_reach_the_device_whatever_the_rules() {
    let mut s = Switch::new();
    let mut c = s.controller(Version::V13);
    c.add(&mut s, "priority=5,ip,actions=2");
    let reply = "in_port=1,udp,udp_src=67,udp_dst=68";
    assert_eq!(trace(&s, reply).0, "2");
    set(&mut s, remotes(&["10.0.0.9:6653"]));
    let (actions, megaflow) = trace(&s, reply);
    assert_eq!(actions, "2,0");
    assert!(megaflow.contains("tp_src=67,tp_dst=68"), "{megaflow}");
    // Unlike in OVS 3.1, another packet's flow never covers a reply.
    for (packet, part) in [
        ("in_port=1,udp,udp_src=67,udp_dst=69", "tp_src=67,tp_dst=69"),
        ("in_port=1,udp,udp_src=5000,udp_dst=68", "tp_src=0x1000/0x1000"),
    ] {
        let (actions, megaflow) = trace(&s, packet);
        assert_eq!(actions, "2");
        assert!(megaflow.contains(part), "{packet}: {megaflow}");
    }
    c.add(&mut s, "priority=6,udp,actions=LOCAL,2");
    assert_eq!(trace(&s, reply).0, "0,2");
    c.add(&mut s, "priority=6,udp,actions=drop");
    assert_eq!(trace(&s, reply).0, "0");
    c.add(&mut s, "priority=6,udp,actions=mod_tp_src:67,mod_tp_dst:68,2");
    assert_eq!(trace(&s, "in_port=1,udp,udp_src=1,udp_dst=2").0, "set(udp(src=67,dst=68)),2,0");
}
