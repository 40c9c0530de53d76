//! Refusals for each missing feature, as by Open vSwitch 3.1 after `dpif/set-dp-features FEATURE false`.

use super::*;
use flow::text::NoPortNames;
use ofp_actions::text::{FlowModCommand, parse_flow_mod};

/// All features, with the names of a kernel's timeout policies.
pub(crate) const ALL: CtCapabilities =
    CtCapabilities { timeout_names: dpif::TimeoutNames::ByProtocol, ..CtCapabilities::ALL };

/// The error of a rule.
fn error(line: &str, can: &Capabilities) -> Option<ErrorKind> {
    let rule = parse_flow_mod(line, FlowModCommand::Add, &NoPortNames).expect(line);
    check_match(&rule.rule_match, can).and_then(|()| check_actions(&rule.actions, can)).err()
}

fn check(without: CtCapabilities, of_match: &[&str], of_actions: &[&str], accepted: &[&str]) {
    let rows = [
        (of_match, Some(ErrorKind::NxbmcCtDatapathSupport)),
        (of_actions, Some(ErrorKind::NxbacCtDatapathSupport)),
        (accepted, None),
    ];
    for (lines, expected) in rows {
        for line in lines {
            let with = |ct| Capabilities { ct, ..Capabilities::ENOUGH };
            assert_eq!(error(line, &with(ALL)), None, "{line}");
            assert_eq!(error(line, &with(without)), expected, "{line}");
        }
    }
}

#[test]
fn each_feature_is_needed_by_its_matches_and_actions() {
    let mark = "ip,actions=ct(commit,exec(set_field:1->ct_mark))";
    let label = "ip,actions=ct(commit,exec(move:reg0->ct_label[0..31]))";
    check(
        CtCapabilities { state: false, ..ALL },
        &["ct_state=+trk,actions=2", "ip,ct_state=+trk+new,actions=resubmit(,1,ct)"],
        &[
            "ip,actions=ct",
            "ip,actions=ct(nat)",
            mark,
            // Unlike in OVS, wherever the action is.
            "ip,actions=clone(ct)",
            "ip,actions=write_actions(ct(commit))",
        ],
        &["ct_zone=1,actions=2", "ip,actions=ct_clear", "actions=move:ct_mark->reg0"],
    );
    check(
        CtCapabilities { zone: false, ..ALL },
        &["ct_zone=1,actions=2"],
        &["ip,actions=ct(zone=5)", "ip,actions=ct(zone=reg0[0..15])"],
        &["ip,actions=ct"],
    );
    check(
        CtCapabilities { helpers: false, ..ALL },
        &[],
        &["tcp,actions=ct(commit,alg=ftp)", "udp,actions=ct(commit,alg=tftp)"],
        &["tcp,actions=ct(commit)"],
    );
    check(CtCapabilities { mark: false, ..ALL }, &["ct_mark=1,actions=2"], &[mark], &[label]);
    check(CtCapabilities { label: false, ..ALL }, &["ct_label=1,actions=2"], &[label], &[mark]);
    check(
        CtCapabilities { state_nat: false, ..ALL },
        &["ct_state=+trk+snat,actions=2"],
        &["ip,actions=ct(nat)"],
        &["ct_state=+trk,actions=2"],
    );
    check(
        CtCapabilities { orig_tuple: false, ..ALL },
        &["ip,ct_state=+trk+new,ct_nw_src=1.1.1.1,actions=2"],
        &["ip,actions=ct(commit,force)", "ip,ct_state=+trk+new,actions=resubmit(,1,ct)"],
        &["ip,ct_state=+trk+new,ct_nw_proto=6,actions=2"],
    );
    check(
        CtCapabilities { orig_tuple6: false, ..ALL },
        &["ipv6,ct_state=+trk+new,ct_ipv6_src=::1,actions=2"],
        &[],
        &["ip,ct_state=+trk+new,ct_nw_proto=6,actions=2"],
    );
    let none = CtCapabilities { orig_tuple: false, orig_tuple6: false, ..ALL };
    check(none, &["ip,ct_state=+trk+new,ct_nw_proto=6,actions=2"], &[], &[]);
}

#[test]
fn without_extensions_of_neighbour_discovery_their_fields_are_refused() {
    let nd = "icmp6,icmp_type=135,icmp_code=0";
    for (rest, expected) in [
        (",nd_reserved=0,actions=2", Some(ErrorKind::BmcBadField)),
        (",nd_options_type=1,actions=2", Some(ErrorKind::BmcBadField)),
        (",actions=set_field:1->nd_reserved", Some(ErrorKind::BacBadSetType)),
        (",actions=clone(load:1->nd_options_type[])", Some(ErrorKind::BacBadSetType)),
        (",actions=move:nd_reserved->reg0", Some(ErrorKind::BacBadSetType)),
        (",nd_target=::1,actions=set_field:::2->nd_target,move:nd_sll[0..31]->reg0", None),
    ] {
        let line = format!("{nd}{rest}");
        assert_eq!(error(&line, &Capabilities::ENOUGH), None, "{line}");
        assert_eq!(error(&line, &Capabilities { nd_ext: false, ..Capabilities::ENOUGH }), expected, "{line}");
    }
    let tcp = "tcp6,tcp_flags=syn,actions=2";
    assert_eq!(error(tcp, &Capabilities { nd_ext: false, ..Capabilities::ENOUGH }), None, "{tcp}");
}
