//! Connection tracking, against recorded traces of Open vSwitch; and our own decisions.

use super::*;
use crate::xlate::{PARTS_MAX, Recirculations, render_trace};
use dpif::CtCapabilities;
use flow::text::ct_state_flag;
use std::fmt::Write as _;

/// Features of the recorded switch: all but event masks and timeouts.
pub(super) const ALL: CtCapabilities =
    CtCapabilities { event_mask: false, timeout: false, ..crate::ct_support::tests::ALL };

const V4: &str = "tcp,in_port=1,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1,tp_dst=2";
const V6: &str = "tcp6,in_port=1,ipv6_src=2001:db8::1,ipv6_dst=2001:db8::2,tp_src=1,tp_dst=2";

/// Datapath actions in the form of `dump-flows`.
fn text(actions: &[DpAction]) -> String {
    dpif::text::format_actions(actions, &dpif::text::NumbersOnly)
}

/// The trace of a packet with its tracked copies, in the form of the record.
fn traced(rules: &str, options: &str) -> String {
    let mut rig = Rig::new();
    rig.backer.capabilities.ct = ALL;
    let a = rig.a;
    let rig = rig.rules(a, &rules.replace('|', "\n"));
    let states = options.split("--ct-next ").skip(1).map(|names| {
        names.trim().split(',').map(|name| ct_state_flag(name).expect(name)).fold(0, |all, bit| all | bit)
    });
    let mut copies = Recirculations::new(states.collect());
    let is_v6 = rules.starts_with("ipv6") || rules.starts_with("tcp6");
    let mut flow = Rig::flow(if is_v6 { V6 } else { V4 });
    let mut out = String::new();
    loop {
        let (view, mut host) = (rig.backer.view(), rig.backer.xlate_host(false, 1000));
        let request = Request { view: &view, bridge: a, flow: &flow, start: Start::Tables, trace: true };
        let mut t = translate(&request, &mut host);
        copies.add(std::mem::take(&mut t.forks));
        let mut mask = t.wc;
        mask.0.vlans = Default::default();
        out += &render_trace(&t.trace, false);
        let (megaflow, actions) = (format_megaflow(&flow, &mask), text(&t.actions));
        let _ = write!(out, "Megaflow: {megaflow}\nDatapath actions: {actions}\n");
        let (next, heading) = copies.next_part();
        out += &heading;
        match next {
            Some(next) => flow = next,
            None => return plain(&out),
        }
    }
}

/// Without bridges, rules between parts and blank lines; recirculation ids numbered from 1.
fn plain(text: &str) -> String {
    let is_rule = |line: &str| line.chars().all(|c| c == '-') || line.chars().all(|c| c == '=');
    let kept = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with("bridge(\"") && !is_rule(line)
    };
    let mut ids = Vec::new();
    let mut out = String::new();
    for line in text.lines().filter(kept) {
        let mut rest = line.trim_end();
        while let Some((at, mark)) =
            ["recirc(0x", "recirc_id=0x"].iter().filter_map(|m| Some((rest.find(m)?, *m))).min()
        {
            let begin = at + mark.len();
            let end = rest[begin..].find(|c: char| !c.is_ascii_hexdigit()).map_or(rest.len(), |n| begin + n);
            let id = &rest[begin..end];
            let number = ids.iter().position(|known| *known == id).unwrap_or_else(|| {
                ids.push(id);
                ids.len() - 1
            });
            let _ = write!(out, "{}#{}", &rest[..begin - 2], number + 1);
            rest = &rest[end..];
        }
        out += rest;
        out.push('\n');
    }
    out
}

#[test]
fn traces_are_those_of_open_vswitch() {
    let mut wrong = String::new();
    let mut cases = 0;
    let record = include_str!("conntrack.txt");
    let first = record.find("###").expect("cases");
    for case in record[first..].split("### ").filter(|case| !case.trim().is_empty()) {
        let (head, expected) = case.split_once('\n').expect("a head");
        let (rules, options) = head.split_once('\t').unwrap_or((head, ""));
        cases += 1;
        let got = traced(rules, options);
        if got != expected {
            let _ = write!(wrong, "\n### {head}\n--- Open vSwitch\n{expected}--- here\n{got}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(cases >= 60, "only {cases} cases");
}

/// Rules of a datapath with all features.
fn rig(rules: &str) -> Rig {
    let mut rig = Rig::new();
    rig.backer.capabilities.ct = ALL;
    let a = rig.a;
    rig.rules(a, rules)
}

/// OVS 3.1 loses the mark from the mask, so packets with other marks get the label of the first.
#[test]
fn a_mark_that_an_action_reads_is_in_the_mask() {
    let copy = "exec(move:NXM_NX_CT_MARK[0..7]->NXM_NX_CT_LABEL[0..7])";
    let rig = rig(&format!("ip,actions=ct(table=1)\ntable=1,ip,actions=ct(commit,{copy}),2"));
    let t = rig.translate(&Rig::flow(V4), false);
    let [id] = t.recircs[..] else { panic!("one recirculation") };
    let marked = flow::Flow { recirc_id: id.0, ct_mark: 0x1234, ..Rig::flow(V4) };
    let t = rig.translate(&marked, false);
    assert_eq!(text(&t.actions), "ct(commit,mark=0x34/0xff,label=0x34/0xff),2");
    assert_eq!(t.wc.0.ct_mark, 0xff);
}

#[test]
fn a_peer_bridge_sees_no_connection_and_leaves_the_packets_own() {
    let rig = rig("ip,actions=ct(table=1)\ntable=1,ip,ct_state=+trk,actions=9,ct_clear,2");
    let b = rig.b;
    let rig = rig.rules(b, "ip,ct_state=-trk,actions=ct(commit,zone=9),1\nip,ct_state=+trk,actions=2");
    let t = rig.translate(&Rig::flow(V4), false);
    let [id] = t.recircs[..] else { panic!("one recirculation") };
    let tracked = flow::Flow { recirc_id: id.0, ct_state: flow::ct_state::TRK, ..Rig::flow(V4) };
    let t = rig.translate(&tracked, false);
    assert_eq!(text(&t.actions), "clone(ct(commit,zone=9),11),ct_clear,2");
}

/// As OVS 3.5: once, and only for a packet that is tracked when it is received.
#[test]
fn a_tracked_packet_from_a_port_is_cleared_once() {
    let rig = rig("actions=ct_clear,ct_clear,2");
    for (ct_state, cleared) in [(0, "2"), (flow::ct_state::TRK | flow::ct_state::EST, "ct_clear,2")] {
        let t = rig.translate(&flow::Flow { ct_state, ..Rig::flow(V4) }, false);
        assert_eq!(text(&t.actions), cleared);
    }
}

#[test]
fn only_capable_datapaths_get_events_and_clearing() {
    let rules = "ip,actions=ct(commit,table=1)\ntable=1,actions=ct_clear,2";
    for (can, mask, cleared) in [
        (CtCapabilities { event_mask: true, ..ALL }, Some(0x487), "ct_clear,2"),
        (CtCapabilities { clear: false, ..ALL }, None, "2"),
    ] {
        let mut rig = Rig::new();
        rig.backer.capabilities.ct = can;
        let a = rig.a;
        let rig = rig.rules(a, rules);
        let t = rig.translate(&Rig::flow(V4), false);
        let Some(DpAction::Ct(ct)) = t.actions.first() else { panic!("{:?}", t.actions) };
        assert_eq!(ct.event_mask, mask);
        let thawed = flow::Flow { recirc_id: t.recircs[0].0, ..Rig::flow(V4) };
        assert_eq!(text(&rig.translate(&thawed, false).actions), cleared);
    }
}

/// Each row: zone of the policy, names, packet, actions and whether the mask has the protocol. As the stock switch: a
/// policy is named for commits only, and a name that depends on the protocol examines it.
#[test]
fn a_commit_names_the_timeout_policy_of_its_zone() {
    use dpif::{TimeoutId, TimeoutNames};
    let id = TimeoutId(3.try_into().unwrap());
    let (udp, sctp) = (V4.replace("tcp", "udp"), V4.replace("tcp", "sctp"));
    let icmp = "icmp,in_port=1,nw_src=10.0.0.1,nw_dst=10.0.0.2";
    for (zone, names, packet, named, examined) in [
        (7, TimeoutNames::Number, V4, "timeout=3", false),
        (7, TimeoutNames::Number, &*sctp, "timeout=3", false),
        (7, TimeoutNames::ByProtocol, V4, "timeout=ovs_tp_3_tcp4", true),
        (7, TimeoutNames::ByProtocol, V6, "timeout=ovs_tp_3_tcp6", true),
        (7, TimeoutNames::ByProtocol, &*udp, "timeout=ovs_tp_3_udp4", true),
        (7, TimeoutNames::ByProtocol, icmp, "timeout=ovs_tp_3_icmp4", true),
        (7, TimeoutNames::ByProtocol, &*sctp, "", true),
        (8, TimeoutNames::ByProtocol, V4, "", false),
    ] {
        let mut rig = Rig::new();
        rig.backer.capabilities.ct = CtCapabilities { timeout: true, timeout_names: names, ..ALL };
        let a = rig.a;
        let rig = rig.rules(
            a,
            &["ip", "ipv6"].map(|ip| format!("{ip},actions=ct(zone=7),ct(commit,zone=7),2")).join("\n"),
        );
        let before = rig.backer.epoch();
        rig.backer.set_zone_timeouts([(zone, id)].into());
        assert!(rig.backer.epoch() > before);
        let t = rig.translate(&Rig::flow(packet), false);
        let named = if named.is_empty() { String::new() } else { format!(",{named}") };
        assert_eq!(text(&t.actions), format!("ct(zone=7),ct(commit,zone=7{named}),2"), "{packet}");
        assert_eq!(t.wc.0.nw_proto, if examined { 0xff } else { 0 }, "{packet}");
        rig.backer.set_zone_timeouts(Default::default());
        assert_eq!(text(&rig.translate(&Rig::flow(packet), false).actions), "ct(zone=7),ct(commit,zone=7),2");
        // Without the feature (`dpif/set-dp-features`) there are no names.
        rig.backer.set_zone_timeouts([(7, id)].into());
        let mut fewer = rig.backer.features();
        fewer.ct.timeout = false;
        rig.backer.set_features(fewer);
        assert_eq!(text(&rig.translate(&Rig::flow(packet), false).actions), "ct(zone=7),ct(commit,zone=7),2");
    }
}

/// A rule that recirculates to itself ends its trace at the bound; that of OVS 3.1 does not end.
#[test]
fn a_trace_has_a_bounded_number_of_parts() {
    let rig = rig("ip,actions=ct(table=0),ct(table=0,zone=1)");
    let (view, flow) = (rig.backer.view(), Rig::flow(V4));
    let request = Request { view: &view, bridge: rig.a, flow: &flow, start: Start::Tables, trace: true };
    let forks = translate(&request, &mut rig.backer.xlate_host(false, 1000)).forks;
    assert_eq!(forks.len(), 2);
    let mut copies = Recirculations::default();
    copies.add(forks.clone());
    let mut parts = 0;
    let end = loop {
        match copies.next_part() {
            (None, end) => break end,
            // Each copy makes two again.
            (Some(_), _) => copies.add(forks.clone()),
        }
        parts += 1;
    };
    assert_eq!(parts, PARTS_MAX);
    assert!(end.contains("Trace reached the recirculation limit.  Sopping the trace here."), "{end}");
    assert!(end.contains("Queued but not processed: 4098 recirculations."), "{end}");
}

#[test]
fn a_helper_without_a_name_is_a_fault_of_the_rule() {
    let rig = rig("actions=drop");
    let ct = ofp_actions::Ct { alg: 22, ..ofp_actions::Ct::default() };
    let (view, flow) = (rig.backer.view(), Rig::flow(V4));
    let actions = [ofp_actions::Action::Ct(Box::new(ct))];
    let start = Start::Actions(&actions);
    let request = Request { view: &view, bridge: rig.a, flow: &flow, start, trace: true };
    let t = translate(&request, &mut rig.backer.xlate_host(false, 1000));
    assert!(render_trace(&t.trace, false).contains(">>>> cannot serialize ct_helper 22 <<<<"));
    assert_eq!(text(&t.actions), "ct");
}
