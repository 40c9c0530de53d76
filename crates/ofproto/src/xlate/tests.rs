//! Tables of translations: rules and a packet in, datapath actions and the mask of examined bits out.

mod bonds;
mod bundles;
mod clones;
mod conjunctions;
mod conntracks;
mod encap;
mod fin_timeout;
mod found;
mod fragments;
mod groups;
mod kinds;
mod labels;
mod learning;
mod lengths;
mod limits;
mod links;
mod mcast;
mod mirrors;
mod multipaths;
mod native;
mod patch;
mod ports;
mod rewrites;
mod samples;
mod states;
mod stories;
mod truncated;
mod tun_metadata;
mod tunnels;
mod vlans;
mod vteps;

use super::*;
use crate::backer::Backer;
use crate::ids::BundleId;
use crate::mac_table::Learned;
use crate::ports::{Bundle, Port, PortConfigBits, PortCounters, PortTable, PriorityTags, VlanMode, VlanSet};
use crate::rule::{Rule, RuleStats, RuleTimeouts};
use dpif::actions::{
    CheckPktLen, CloneAction, DropAction, Meter, Output, PopVlan, PushVlan, Recirc, Sample, Trunc, Userspace,
};
use dpif::{FlowStats, SetAction};
use flow::text::{NoPortNames, format_flow, format_megaflow, parse_exact_flow};
use flow::{DpPort, MacAddr, OfPort, TableId};
use ofp_actions::text::{FlowModCommand, parse_flow_mod};
use openflow::msg::flow_mod::FlowModFlags;

const PATCH: OfPort = OfPort(9);

/// VLAN configuration of a port, in the database's terms.
#[derive(Clone, Copy)]
enum Vlan {
    Trunk,
    TrunkOf(u16),
    Access(u16),
    NativeTagged(u16),
    NativeUntagged(u16),
    PriorityTags,
    Protected,
}

fn add_port(table: &mut PortTable, n: OfPort, dp: Option<u32>, peer: Option<BridgeId>, vlan: Vlan) {
    let port = Port {
        of_port: n,
        dp_port: dp.map(DpPort),
        name: format!("p{}", n.0),
        type_name: String::new(),
        mac: MacAddr::default(),
        bundle: BundleId(n.0),
        patch_peer: peer.map(|b| (b, PATCH)),
        counters: Arc::new(PortCounters::default()),
        tunnel: None,
        config: PortConfigBits::default(),
        link_down: false,
        links: Vec::new(),
        queue_dscp: Default::default(),
        features: Default::default(),
    };
    let (vlan_mode, tag) = match vlan {
        Vlan::Access(tag) => (VlanMode::Access, tag),
        Vlan::NativeTagged(tag) => (VlanMode::NativeTagged, tag),
        Vlan::NativeUntagged(tag) => (VlanMode::NativeUntagged, tag),
        _ => (VlanMode::Trunk, 0),
    };
    let bundle = Bundle {
        id: BundleId(n.0),
        name: port.name.clone(),
        members: vec![n],
        vlan_mode,
        tag,
        trunks: if let Vlan::TrunkOf(v) = vlan { Some(VlanSet::new([v])) } else { None },
        cvlans: None,
        qinq_tpid: 0x88a8,
        mcast_flood: false,
        mcast_flood_reports: false,
        priority_tags: match vlan {
            Vlan::PriorityTags => PriorityTags::IfNonzero,
            _ => PriorityTags::Never,
        },
        protected: matches!(vlan, Vlan::Protected),
        floodable: true,
        bond: None,
    };
    table.ports.insert(n, Arc::new(port));
    table.bundles.insert(bundle.id, Arc::new(bundle));
}

/// Bridge `a` with ports 1 to 4 (datapath ports of the same numbers) and bridge `b` with ports 1 and 2 (11 and 12); port 9
/// of each leads to the other.
/// Packets of no connection.
fn seen(packets: u64, bytes: u64, used_ms: u64) -> FlowStats {
    FlowStats { packets, bytes, used_ms, tcp_flags: 0 }
}

struct Rig {
    backer: Backer,
    a: BridgeId,
    b: BridgeId,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(&[])
    }

    fn with(vlans: &[(u32, Vlan)]) -> Rig {
        let backer = Backer::new(1);
        let (a, b) = (backer.add_bridge("a"), backer.add_bridge("b"));
        let mode = |n: u32| vlans.iter().find(|(p, _)| *p == n).map_or(Vlan::Trunk, |(_, v)| *v);
        let (mut of_a, mut of_b) = (PortTable::default(), PortTable::default());
        (1..=4).for_each(|n| add_port(&mut of_a, OfPort(n), Some(n), None, mode(n)));
        (1..=2).for_each(|n| add_port(&mut of_b, OfPort(n), Some(10 + n), None, Vlan::Trunk));
        add_port(&mut of_a, PATCH, None, Some(b), mode(9));
        add_port(&mut of_b, PATCH, None, Some(a), Vlan::Trunk);
        backer.set_ports(a, of_a);
        backer.set_ports(b, of_b);
        Rig { backer, a, b }
    }

    fn rules(self, bridge: BridgeId, lines: &str) -> Rig {
        let tlv = self.backer.view().bridge(bridge).expect("made above").tables.tlv().clone();
        for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
            let m = parse_flow_mod(line, FlowModCommand::Add, &*tlv).expect(line);
            let rule = Rule {
                table: m.table.unwrap_or(TableId(0)),
                matching: flow::PackedMatch::from(&m.rule_match).of_rule(),
                priority: m.priority.into(),
                cookie: m.new_cookie.unwrap_or(0),
                timeouts: RuleTimeouts::new(m.idle_timeout_s, m.hard_timeout_s, &m.actions),
                importance: 0,
                flags: FlowModFlags::empty(),
                actions: m.actions.into(),
                created_ms: 0,
                modified_ms: 0,
                stats: Arc::new(RuleStats::default()),
            };
            self.backer.change_bridge(bridge, |b| b.tables.insert(Arc::new(rule)));
        }
        self
    }

    fn flow(text: &str) -> Flow {
        parse_exact_flow(text, &NoPortNames).expect(text)
    }

    fn translate(&self, flow: &Flow, effects: bool) -> Translation {
        let view = self.backer.view();
        let request = Request { view: &view, bridge: self.a, flow, start: Start::Tables, trace: false };
        translate(&request, &mut self.backer.xlate_host(effects, 1000))
    }

    /// Datapath actions and megaflow of a packet received on bridge `a`.
    fn check(&self, packet: &str, actions: &str, megaflow: &str) -> Translation {
        let flow = Rig::flow(packet);
        let t = self.translate(&flow, true);
        let shown = (show(&t.actions), format_megaflow(&flow, &t.wc));
        assert_eq!((shown.0.as_str(), shown.1.as_str()), (actions, megaflow), "{packet}");
        t
    }

    /// Only the actions.
    fn acts(&self, packet: &str, actions: &str) -> Translation {
        let t = self.translate(&Rig::flow(packet), true);
        assert_eq!(show(&t.actions), actions, "{packet}");
        t
    }

    /// The translation of the packet recirculated by `t`, resumed by its id.
    fn thaw(&self, packet: &str, t: &Translation, actions: &str) -> Translation {
        let Some(id) = t.recircs.first() else { panic!("nothing froze") };
        let flow = Flow { recirc_id: id.0, ..Rig::flow(packet) };
        let t = self.translate(&flow, true);
        assert_eq!(show(&t.actions), actions, "{packet} thawed");
        t
    }

    fn learn(&self, vlan: u16, mac: &str, port: u32) -> Learned {
        let view = self.backer.view();
        let mac = MacAddr::parse(mac).expect(mac);
        sync::lock(&view.bridge(self.a).expect("made above").macs).learn(vlan, mac, BundleId(port), 1000)
    }
}

fn show(actions: &[DpAction]) -> String {
    let one = |a: &DpAction| match a {
        DpAction::Output(Output(p)) => p.0.to_string(),
        DpAction::PushVlan(PushVlan { tpid, tci }) => {
            format!("push_vlan({tpid:#x},vid={},pcp={})", tci & 0xfff, tci >> 13)
        }
        DpAction::PopVlan(PopVlan) => "pop_vlan".to_string(),
        DpAction::Recirc(Recirc(id)) => format!("recirc({})", id.0),
        DpAction::Meter(Meter(id)) => format!("meter({id})"),
        DpAction::Sample(Sample { probability: u32::MAX, actions }) => format!("sample({})", show(actions)),
        DpAction::Drop(DropAction(XlateDrop::Ok)) => "drop".to_string(),
        DpAction::Drop(DropAction(why)) => format!("drop:{why:?}"),
        DpAction::Set(SetAction::Tunnel(t)) => {
            let dst = std::net::Ipv4Addr::from(t.tunnel.dst);
            format!(
                "tunnel(id={},dst={dst},flags={},tp_dst={})",
                t.tunnel.id, t.tunnel.flags, t.tunnel.tp_dst
            )
        }
        DpAction::Trunc(Trunc(bytes)) => format!("trunc({bytes})"),
        DpAction::Clone(CloneAction(actions)) => format!("clone({})", show(actions)),
        DpAction::CheckPktLen(CheckPktLen { len, greater, less }) => {
            let case = |list: &[DpAction]| if list.is_empty() { "drop".to_string() } else { show(list) };
            format!("check_pkt_len(size={len},gt({}),le({}))", case(greater), case(less))
        }
        DpAction::Set(SetAction::SkbPriority(n)) => format!("priority({n:#x})"),
        DpAction::Set(SetAction::SkbMark(m)) => format!("mark({})", m.value),
        DpAction::Set(SetAction::Ipv4(m)) => {
            let ip = |v: u32| std::net::Ipv4Addr::from(v);
            let mut parts = Vec::new();
            parts.extend((m.mask.src != 0).then(|| format!("src={}/{}", ip(m.value.src), ip(m.mask.src))));
            parts.extend((m.mask.dst != 0).then(|| format!("dst={}/{}", ip(m.value.dst), ip(m.mask.dst))));
            parts.extend((m.mask.tos != 0).then(|| format!("tos={:#x}/{:#x}", m.value.tos, m.mask.tos)));
            parts.extend((m.mask.ttl != 0).then(|| format!("ttl={}", m.value.ttl)));
            format!("ipv4({})", parts.join(","))
        }
        DpAction::Set(SetAction::Eth(m)) => {
            let mac = |v: [u8; 6]| MacAddr(v).to_string();
            let mut parts = Vec::new();
            parts.extend((m.mask.src != [0; 6]).then(|| format!("src={}", mac(m.value.src))));
            parts.extend((m.mask.dst != [0; 6]).then(|| format!("dst={}", mac(m.value.dst))));
            format!("eth({})", parts.join(","))
        }
        DpAction::Set(SetAction::Tcp(m)) => format!("tcp(dst={}/{:#x})", m.value.dst, m.mask.dst),
        DpAction::Userspace(Userspace(UserCookie::SlowPath { reasons })) => format!("slow({reasons})"),
        DpAction::Userspace(Userspace(UserCookie::Controller(c))) => {
            format!("controller(reason={},id={})", c.reason, c.controller_id)
        }
        other => format!("{other:?}"),
    };
    actions.iter().map(one).collect::<Vec<_>>().join(",")
}

const TCP: &str = "in_port=1,tcp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,\
    nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,tp_src=1,tp_dst=80";

/// [`TCP`] with additional fields.
fn tcp(more: &str) -> String {
    format!("{TCP},{more}")
}

#[test]
fn outputs() {
    for (actions, expected) in [
        ("2", "2"),
        ("2,3,2", "2,3,2"),
        ("1", "drop"),
        ("in_port", "1"),
        ("all", "2,3,4,11,12"),
        ("77,2", "2"),
        ("drop", "drop"),
        ("load:3->NXM_NX_REG0[],output:NXM_NX_REG0[]", "3"),
        // Ports are 16 bits wide there, whatever the subfield's width.
        ("load:0xfff8->NXM_NX_REG0[],output:NXM_NX_REG0[]", "1"),
        ("load:0xfff8->NXM_NX_REG0[],output:NXM_NX_REG0[0..16]", "1"),
        ("load:0xfffffff8->NXM_NX_REG0[],output:NXM_NX_REG0[0..15]", "1"),
        ("load:0x10003->NXM_NX_REG0[],output:NXM_NX_REG0[0..15]", "3"),
        ("load:0xfffffff8->NXM_NX_REG0[],output:NXM_NX_REG0[]", "drop"),
        ("load:0xfff8->NXM_NX_REG0[],load:1->NXM_NX_REG0[16],output:NXM_NX_REG0[0..16]", "drop"),
        ("load:0x10003->NXM_NX_REG0[],output:NXM_NX_REG0[]", "drop"),
        (
            "push:NXM_OF_TCP_DST[],load:0->NXM_NX_REG0[],pop:NXM_NX_REG0[0..15],output:NXM_NX_REG0[0..2]",
            "drop",
        ),
    ] {
        let rig = Rig::new();
        let b = rig.b;
        let rig = rig.rules(b, "actions=all");
        let a = rig.a;
        let rig = rig.rules(a, &format!("tcp,actions={actions}"));
        rig.acts(TCP, expected);
    }
}

#[test]
fn masks_have_the_examined_bits() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "priority=10,tcp,nw_dst=10.0.0.0/24,tp_dst=80 actions=resubmit(,1)
         priority=5 actions=3
         table=1,dl_dst=02:00:00:00:00:02 actions=2",
    );
    rig.check(
        TCP,
        "2",
        "recirc_id=0,eth,tcp,in_port=1,dl_dst=02:00:00:00:00:02,nw_dst=10.0.0.0/24,nw_frag=no,tp_dst=80",
    );
    rig.acts("in_port=1,arp,dl_dst=02:00:00:00:00:02", "3");
}

#[test]
fn set_fields_become_set_actions_of_the_bits_that_differ() {
    for (actions, expected) in [
        ("mod_nw_dst:10.0.0.9,2", "ipv4(dst=10.0.0.9/255.255.255.255),2"),
        ("mod_nw_dst:10.0.0.2,2", "2"),
        ("set_field:0.0.0.7/0.0.0.255->nw_src,2", "ipv4(src=0.0.0.7/0.0.0.255),2"),
        (
            "mod_dl_dst:02:00:00:00:00:09,2,mod_dl_dst:02:00:00:00:00:02,3",
            "eth(dst=02:00:00:00:00:09),2,eth(dst=02:00:00:00:00:02),3",
        ),
        ("mod_tp_dst:81,2", "tcp(dst=81/0xffff),2"),
        ("mod_tp_dst:81", "drop"),
        ("move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],2", "eth(dst=02:00:00:00:00:01),2"),
    ] {
        let rig = Rig::new();
        let a = rig.a;
        rig.rules(a, &format!("tcp,actions={actions}")).acts(TCP, expected);
    }
}

#[test]
fn vlan_actions() {
    // Results of Debian's switch for a packet without a tag and one with VLAN 7, priority 3; and the mask of the
    // latter's tag.
    for (actions, untagged, tagged, mask) in [
        (
            "mod_vlan_vid:5,2",
            "push_vlan(0x8100,vid=5,pcp=0),2",
            "pop_vlan,push_vlan(0x8100,vid=5,pcp=3),2",
            0xffff,
        ),
        (
            "mod_vlan_pcp:1,2",
            "push_vlan(0x8100,vid=0,pcp=1),2",
            "pop_vlan,push_vlan(0x8100,vid=7,pcp=1),2",
            0xffff,
        ),
        ("mod_vlan_vid:5", "drop", "drop", 0x1fff),
        ("mod_vlan_pcp:1", "drop", "drop", 0xf000),
        ("strip_vlan", "drop", "drop", 0),
        ("strip_vlan,2", "2", "pop_vlan,2", 0xffff),
        (
            "strip_vlan,2,mod_vlan_vid:7,3",
            "2,push_vlan(0x8100,vid=7,pcp=0),3",
            "pop_vlan,2,push_vlan(0x8100,vid=7,pcp=0),3",
            0xffff,
        ),
        ("push_vlan:0x88a8,2", "push_vlan(0x88a8,vid=0,pcp=0),2", "push_vlan(0x88a8,vid=0,pcp=0),2", 0xffff),
    ] {
        let rig = Rig::new();
        let a = rig.a;
        let rig = rig.rules(a, &format!("actions={actions}"));
        rig.acts(TCP, untagged);
        let t = rig.acts(&tcp("dl_vlan=7,dl_vlan_pcp=3"), tagged);
        assert_eq!(t.wc.0.vlans[0].tci, mask, "{actions}");
    }
}

#[test]
fn normal_learns_floods_and_forwards() {
    let rig = Rig::new();
    let (a, b) = (rig.a, rig.b);
    let rig = rig.rules(a, "actions=normal").rules(b, "actions=drop");
    let t = rig.check(
        TCP,
        "2,3,4",
        "recirc_id=0,eth,ip,in_port=1,vlan_tci=0x0000/0x1fff,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,nw_frag=no",
    );
    t.cache.replay(&seen(1, 100, 1000), &mut rig.backer.effect_host());
    let back = "in_port=3,arp,dl_src=02:00:00:00:00:02,dl_dst=02:00:00:00:00:01";
    rig.acts(back, "1").cache.replay(&seen(1, 100, 1001), &mut rig.backer.effect_host());
    rig.acts(TCP, "3");
    // Packets to an address learned on the input port are dropped; reserved addresses are not forwarded.
    rig.acts("in_port=1,arp,dl_src=02:00:00:00:00:05,dl_dst=02:00:00:00:00:01", "drop");
    rig.acts("in_port=1,arp,dl_src=02:00:00:00:00:05,dl_dst=01:80:c2:00:00:03", "drop");
}

#[test]
fn normal_and_vlan_modes() {
    let modes = [
        (1, Vlan::Access(5)),
        (2, Vlan::NativeTagged(5)),
        (3, Vlan::NativeUntagged(5)),
        (4, Vlan::TrunkOf(5)),
    ];
    let rig = Rig::with(&modes);
    let (a, b) = (rig.a, rig.b);
    let rig = rig.rules(a, "actions=normal").rules(b, "actions=drop");
    let from = |port: u32, tag: &str| {
        format!("in_port={port},arp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02{tag}")
    };
    let push = "push_vlan(0x8100,vid=5,pcp=0)";
    rig.acts(&from(1, ""), &format!("{push},2,pop_vlan,3,{push},4"));
    rig.acts(&from(1, ",dl_vlan=5"), "drop:VlanNotAllowed");
    rig.acts(&from(2, ",dl_vlan=5"), &format!("pop_vlan,1,3,{push},4"));
    rig.acts(&from(3, ""), &format!("1,{push},2,4"));
    rig.acts(&from(4, ",dl_vlan=6"), "drop:VlanNotAllowed");
    rig.acts(&from(2, ",dl_vlan=6"), "3");
    // Priority-tagged frames belong to the access VLAN.
    rig.acts(
        &from(1, ",dl_vlan=0,dl_vlan_pcp=3"),
        "pop_vlan,push_vlan(0x8100,vid=5,pcp=3),2,pop_vlan,3,push_vlan(0x8100,vid=5,pcp=3),4",
    );
    // A frame that ends within its tag.
    rig.acts("in_port=2,dl_type=0x8100,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02", "drop");
    // An access port accepts no inner VLAN.
    let tag = "push_vlan:0x8100,mod_vlan_vid:5";
    let rig = rig.rules(a, &format!("priority=40000,actions={tag},{tag},normal"));
    rig.acts(&from(4, ""), &format!("{push},{push},2,pop_vlan,3"));
}

#[test]
fn priority_tags_depend_on_the_priority() {
    let rig = Rig::with(&[(2, Vlan::PriorityTags)]);
    let a = rig.a;
    let rig = rig.rules(a, "actions=normal");
    rig.learn(0, "02:00:00:00:00:02", 2);
    rig.acts(&tcp("dl_vlan=0,dl_vlan_pcp=3"), "2");
    let t = rig.acts(&tcp("dl_vlan=0,dl_vlan_pcp=0"), "pop_vlan,2");
    assert_eq!(t.wc.0.vlans[0].tci & 0xe000, 0xe000);
    rig.acts(TCP, "2");
}

#[test]
fn patch_ports_join_bridges_and_leave_the_packet_as_it_was() {
    let rig = Rig::new();
    let (a, b) = (rig.a, rig.b);
    let rig = rig
        .rules(a, "ip,actions=load:7->NXM_NX_REG0[],output:9,mod_nw_tos:40,2,output:NXM_NX_REG0[0..1],write_actions(output:3)")
        .rules(b, "in_port=9,reg0=0 actions=mod_dl_dst:02:00:00:00:00:09,1");
    let t =
        rig.acts(TCP, "eth(dst=02:00:00:00:00:09),11,eth(dst=02:00:00:00:00:02),ipv4(tos=0x28/0xfc),2,3,3");
    t.cache.replay(&seen(2, 200, 0), &mut rig.backer.effect_host());
    let view = rig.backer.view();
    let rx = |bridge| {
        let port = view.bridge(bridge).and_then(|b| b.ports.port(PATCH)).expect("made by the rig");
        port.counters.rx[0].load(sync::Ordering::Relaxed)
    };
    assert_eq!((rx(a), rx(b)), (0, 2));
}

#[test]
fn frozen_translations_resume_in_place() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "actions=load:3->NXM_NX_REG0[],resubmit(,1),4
         table=1 actions=2,debug_recirc,mod_nw_tos:40,output:NXM_NX_REG0[]",
    );
    let t = rig.acts(TCP, "2,recirc(1)");
    rig.thaw(TCP, &t, "ipv4(tos=0x28/0xfc),3,4");
    // Equal states share an id; the last holder ends it.
    let again = rig.acts(TCP, "2,recirc(1)");
    rig.backer.recirc_release(&t.recircs);
    assert_eq!(rig.backer.recirc_count(), 1);
    rig.backer.recirc_release(&again.recircs);
    assert_eq!(rig.backer.recirc_count(), 0);
    rig.thaw(TCP, &t, "drop:NoRecirculationContext");
}

#[test]
fn translations_frozen_behind_a_patch_port_resume_there() {
    let rig = Rig::new();
    let (a, b) = (rig.a, rig.b);
    let rig = rig.rules(a, "actions=output:9,3").rules(b, "in_port=9 actions=debug_recirc,1,in_port");
    let t = rig.acts(TCP, "recirc(1),3");
    // Back through the patch port the packet hits the first bridge's rule again, which cannot send it to its input
    // port.
    rig.thaw(TCP, &t, "11,3");
}

#[test]
fn dec_ttl_at_its_end_leaves_its_own_list_only() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "actions=resubmit(,1),3
         table=1,ip actions=dec_ttl,2
         table=1,priority=1 actions=2",
    );
    rig.acts(TCP, "ipv4(ttl=63),2,3");
    rig.acts(&TCP.replace("nw_ttl=64", "nw_ttl=1"), "controller(reason=2,id=0),3");
    rig.acts("in_port=1,arp", "2,3");
}

#[test]
fn action_sets_are_carried_out_last_and_in_order() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "actions=2,write_actions(output:3,mod_nw_tos:40),goto_table:1
         table=1,tp_dst=80,tcp actions=write_actions(output:4)
         table=1,priority=1 actions=clear_actions",
    );
    rig.acts(TCP, "2,ipv4(tos=0x28/0xfc),4");
    rig.acts(&TCP.replace("tp_dst=80", "tp_dst=81"), "2");
}

#[test]
fn slow_flows_keep_their_packets_actions_apart() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(a, "actions=debug_slow,2");
    let t = rig.acts(TCP, "2");
    assert_eq!(show(&t.actions_to_put()), "slow(2)");
}

/// As in OVS, whose flows have 64 KiB of actions.
#[test]
fn packets_of_longer_lists_than_flows_have_take_the_slow_path() {
    let one_rule = |rules: &str| {
        let rig = Rig::new();
        let a = rig.a;
        rig.rules(a, rules)
    };
    let outputs = |n: usize| vec!["2"; n].join(",");
    for (n, is_slow) in [(dpif::FLOW_ACTIONS_MAX, false), (dpif::FLOW_ACTIONS_MAX + 1, true)] {
        let t = one_rule(&format!("actions={}", outputs(n))).translate(&Rig::flow(TCP), false);
        assert_eq!((t.actions.len(), t.slow_reasons != 0, t.error), (n, is_slow, None));
        let nested = format!("tcp,actions=clone(ct(commit),{}),3", outputs(n - 3));
        let t = one_rule(&nested).translate(&Rig::flow(TCP), false);
        assert_eq!((t.actions.len(), t.slow_reasons != 0, t.error), (2, is_slow, None));
    }
    let many = vec!["resubmit(,1)"; 33].join(",");
    one_rule(&format!("actions={many}\ntable=1,actions={}", outputs(4000))).acts(TCP, "drop:TooManyOutputs");
}

#[test]
fn the_port_of_a_resubmit_is_for_the_lookup_only() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "in_port=1 actions=resubmit(3,0),4
         in_port=3 actions=in_port,2",
    );
    rig.acts(TCP, "1,2,4");
}

#[test]
fn normal_floods_packets_that_came_in_by_no_port() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(a, "actions=normal");
    rig.acts("in_port=controller,dl_src=02:00:00:00:00:01", "1,2,3,4");
    assert!(sync::lock(&rig.backer.view().bridge(a).unwrap().macs).is_empty());
    rig.acts("in_port=77,dl_src=02:00:00:00:00:01", "drop");
    // Nothing is learned from it, so a packet to its own source does not learn either.
    rig.acts("in_port=controller,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:01", "1,2,3,4");
}

#[test]
fn normal_learns_before_it_looks() {
    let own = "dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:01";
    // Location of the address, the rule, results for a packet on port 1 with and without effects, as in Open vSwitch
    // 3.1.
    enum Known {
        No,
        On(u32),
        Static(u32),
    }
    let moved = "eth(dst=02:00:00:00:00:01),";
    for (known, packet, with, without) in [
        (Known::No, own, "drop", "2,3,4"),
        (Known::On(1), own, "drop", "drop"),
        (Known::On(2), own, "drop", "2"),
        (Known::Static(2), own, "2", "2"),
        (Known::Static(1), own, "drop", "drop"),
        (Known::No, "dl_type=0x1234,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:07", "drop", "eth,2,3,4"),
        (Known::On(2), "dl_type=0x1234,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:07", "drop", "eth,2"),
    ] {
        let rig = Rig::new();
        let a = rig.a;
        let rig = rig.rules(
            a,
            "priority=0 actions=normal
             priority=5,dl_type=0x1234 actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],normal",
        );
        match known {
            Known::No => {}
            Known::On(port) => drop(rig.learn(0, "02:00:00:00:00:01", port)),
            Known::Static(port) => {
                let view = rig.backer.view();
                let mut macs = sync::lock(&view.bridge(a).expect("made above").macs);
                macs.add_static(0, MacAddr([2, 0, 0, 0, 0, 1]), BundleId(port));
            }
        }
        for (effects, expected) in [(true, with), (false, without)] {
            let t = rig.translate(&Rig::flow(&format!("in_port=1,{packet}")), effects);
            assert_eq!(show(&t.actions), expected.replace("eth,", moved), "{packet}, effects: {effects}");
        }
    }
}

#[test]
fn resubmits_are_bounded() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(a, "actions=resubmit(,0)");
    let t = rig.acts(TCP, "drop:RecursionTooDeep");
    assert_eq!(t.fault.as_deref(), Some("over max translation depth 64"));
    let (view, flow) = (rig.backer.view(), Rig::flow(TCP));
    let request = Request { view: &view, bridge: rig.a, flow: &flow, start: Start::Tables, trace: true };
    let story = render_trace(&translate(&request, &mut rig.backer.xlate_host(false, 1000)).trace, false);
    let level = " 0. priority 32768\n    resubmit(,0)\n";
    let deepest = "    resubmit(,0)\n     >>>> over max translation depth 64 <<<<\n";
    assert_eq!(story.matches(level).count(), 65, "{story}");
    assert!(story.ends_with(deepest), "{story}");

    let rig = Rig::new();
    let lines: String =
        (0..14).map(|n| format!("table={n} actions=resubmit(,{}),resubmit(,{})\n", n + 1, n + 1)).collect();
    rig.rules(a, &lines).acts(TCP, "drop:TooManyResubmits");
}

/// As in OVS: all resubmits may nest. The table is passed again with the next smaller TTL.
#[test]
fn long_pipelines_pass() {
    let nested = |ttl: u8, resubmit: &str, trace: bool| {
        let rig = Rig::new();
        let a = rig.a;
        let to = |n: u32| format!("table={n},actions={}\n", resubmit.replace('N', &(n + 1).to_string()));
        let again =
            "table=201,priority=40000,ip,nw_ttl=1,actions=2\n table=201,ip,actions=dec_ttl,resubmit(,0)";
        let rig = rig.rules(a, &((0..=200).map(to).collect::<String>() + again));
        let (view, flow) = (rig.backer.view(), Rig::flow(&TCP.replace("ttl=64", &format!("ttl={ttl}"))));
        let request = Request { view: &view, bridge: rig.a, flow: &flow, start: Start::Tables, trace };
        let t = translate(&request, &mut rig.backer.xlate_host(false, 1000));
        (show(&t.actions), render_trace(&t.trace, false).lines().filter(|l| l.ends_with("output:2")).count())
    };
    let run = move || {
        assert_eq!(nested(1, "resubmit(,N)", false).0, "2");
        assert_eq!(nested(64, "resubmit(,N),2", false).0, "drop:TooManyResubmits");
        for (trace, outputs) in [(false, 0), (true, 1)] {
            // Each pass makes 202 resubmits.
            assert_eq!(nested(20, "resubmit(,N)", trace), ("ipv4(ttl=1),2".to_string(), outputs));
            assert_eq!(nested(21, "resubmit(,N)", trace), ("drop:TooManyResubmits".to_string(), 0));
        }
        // Neither is the last action of its table.
        assert_eq!(nested(20, "resubmit(,N),resubmit(,250)", false).0, "drop:TooManyResubmits");
        assert_eq!(nested(2, "clone(resubmit(,N)),note:00", false).0, "ipv4(ttl=1),2");
        assert_eq!(nested(3, "clone(resubmit(,N)),note:00", false).0, "drop:RecursionTooDeep");
    };
    std::thread::Builder::new().stack_size(THREAD_STACK_BYTES).spawn(run).unwrap().join().unwrap();
}
