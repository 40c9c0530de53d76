//! Random connection tracking: `ct` with each of its arguments, `ct_clear`, fields of connections in matches and packets, and
//! the states that `--ct-next` gives to tracked packets.

use crate::rules::{TABLES, ip, ip6, is_ipv4, is_ipv6, l4_port};
use sim::Rng;

const ZONES: [u64; 4] = [0, 1, 2, 65535];

/// A field of connections that any packet has.
pub(crate) fn field(rng: &mut Rng) -> String {
    match rng.below(6) {
        0..=2 => format!(
            "ct_state={}",
            rng.pick(&[
                "+trk",
                "-trk",
                "+trk+new",
                "+trk+est",
                "+trk-rpl",
                "+new-inv+trk",
                "+rel+trk",
                "+snat+trk",
                "-dnat",
                "0/0x1",
                "0x21/0x21",
            ])
        ),
        3 => format!("ct_mark=0x{:x}/0x{:x}", rng.below(3), rng.pick(&[1, 3, 0xffff_ffffu64])),
        4 => format!("ct_label=0x{:x}/0x{:x}", rng.below(3), rng.pick(&[1, 3, u64::MAX])),
        _ => format!("ct_zone={}", rng.pick(&ZONES)),
    }
}

/// A field of the original direction of a connection, with its prerequisite, for packets of IP of the kind.
pub(crate) fn original(rng: &mut Rng, kind: &str) -> String {
    let side = *rng.pick(&["src", "dst"]);
    let address = match (is_ipv4(kind), rng.below(3)) {
        (true, 0) => format!("ct_nw_{side}={}/255.0.0.0", ip(rng)),
        (true, _) => format!("ct_nw_{side}={}", ip(rng)),
        (false, 0) => format!("ct_ipv6_{side}={}/64", ip6(rng)),
        (false, _) => format!("ct_ipv6_{side}={}", ip6(rng)),
    };
    let state = rng.pick(&["+trk", "+trk", "+trk+est", "+trk-inv"]);
    match rng.below(4) {
        0 => format!("ct_state={state},ct_nw_proto={}", rng.pick(&[1, 6, 17, 58])),
        1 => format!("ct_state={state},ct_nw_proto={},ct_tp_{side}={}", rng.pick(&[6, 17]), l4_port(rng)),
        _ => format!("ct_state={state},{address}"),
    }
}

/// Fields of a tracked packet, as `ofproto/trace` takes them; `kind` as in the flow.
pub(crate) fn tracked(rng: &mut Rng, kind: &str) -> String {
    let mut text = format!(
        "ct_state={}",
        rng.pick(&[
            "trk",
            "new|trk",
            "est|trk",
            "est|rpl|trk",
            "inv|trk",
            "new|rel|trk",
            "est|trk|snat",
            "est|trk|dnat"
        ])
    );
    if rng.one_in(2) {
        text += &format!(",ct_zone={}", rng.pick(&ZONES));
    }
    if rng.one_in(2) {
        text += &format!(",ct_mark=0x{:x}", rng.below(4));
    }
    if rng.one_in(3) {
        text += &format!(",ct_label=0x{:x}", rng.below(4));
    }
    if rng.one_in(2) && is_ipv4(kind) {
        text +=
            &format!(",ct_nw_src={},ct_nw_dst={},ct_nw_proto={}", ip(rng), ip(rng), rng.pick(&[1, 6, 17]));
        text += &format!(",ct_tp_src={},ct_tp_dst={}", l4_port(rng), l4_port(rng));
    } else if rng.one_in(2) && is_ipv6(kind) {
        text += &format!(",ct_ipv6_src={},ct_ipv6_dst={}", ip6(rng), ip6(rng));
        text += &format!(",ct_nw_proto={},ct_tp_src={},ct_tp_dst=0", rng.pick(&[6, 17, 58]), l4_port(rng));
    }
    text
}

/// Options of `ofproto/trace` for the states after the first passes of the tracker.
pub(crate) fn next_states(rng: &mut Rng) -> Vec<String> {
    let states = [
        "trk,new",
        "trk,est",
        "trk,est,rpl",
        "trk,inv",
        "trk",
        "trk,new,rel",
        "trk,est,dnat",
        "trk,est,rpl,snat",
    ];
    (0..rng.range(1, 3)).flat_map(|_| ["--ct-next".to_string(), rng.pick(&states).to_string()]).collect()
}

/// `ct`, alone or in a clone, or `ct_clear`.
pub(crate) fn action(rng: &mut Rng, kind: &str, table: u8) -> String {
    if !(is_ipv4(kind) || is_ipv6(kind)) || rng.one_in(6) {
        return "ct_clear".to_string();
    }
    match rng.below(10) {
        8 => format!("move:{}", rng.pick(&READS)),
        9 => format!(
            "push:{},pop:NXM_NX_REG2[]",
            rng.pick(&["NXM_NX_CT_MARK[]", "NXM_NX_CT_STATE[]", "NXM_NX_CT_LABEL[32..63]"])
        ),
        0 => format!("clone({})", track(rng, kind, table)),
        1 => format!("clone(ct_clear,{})", track(rng, kind, table)),
        2 => format!("{},{}", track(rng, kind, table), track(rng, kind, table)),
        3 => format!("resubmit(,{},ct)", rng.range(u64::from(table), u64::from(TABLES))),
        _ => track(rng, kind, table),
    }
}

fn track(rng: &mut Rng, kind: &str, table: u8) -> String {
    let mut parts = Vec::new();
    let commits = rng.one_in(2);
    if commits {
        parts.push(rng.pick(&["commit", "commit", "force,commit"]).to_string());
    } else if rng.one_in(40) {
        parts.push("force".to_string());
    }
    if rng.one_in(2) {
        parts.push(match rng.below(3) {
            0 | 1 => format!("zone={}", rng.pick(&ZONES)),
            _ => format!(
                "zone={}",
                rng.pick(&[
                    "NXM_NX_REG0[0..15]",
                    "NXM_NX_REG1[16..31]",
                    "NXM_NX_CT_ZONE[]",
                    "NXM_OF_ETH_SRC[0..15]"
                ])
            ),
        });
    }
    if rng.one_in(2) {
        let lowest = if rng.one_in(12) { 0 } else { u64::from(table) + 1 };
        parts.push(format!("table={}", rng.range(lowest, u64::from(TABLES))));
    }
    if (commits && rng.one_in(3)) || rng.one_in(60) {
        let set: Vec<&str> = (0..rng.range(1, 2)).map(|_| *rng.pick::<&'static str>(&SETS)).collect();
        parts.push(format!("exec({})", set.join(",")));
    }
    if rng.one_in(2) {
        let may_have_range = commits || rng.one_in(40);
        parts.push(nat(rng, is_ipv4(kind), may_have_range));
    }
    if (commits && rng.one_in(5)) || rng.one_in(60) {
        parts.push(rng.pick(&["alg=ftp", "alg=tftp"]).to_string());
    }
    format!("ct({})", parts.join(","))
}

/// Sources and destinations of `move`.
const READS: [&str; 9] = [
    "NXM_NX_CT_STATE[]->NXM_NX_REG0[]",
    "NXM_NX_CT_ZONE[]->NXM_NX_REG1[0..15]",
    "NXM_NX_CT_MARK[]->NXM_NX_REG2[]",
    "NXM_NX_CT_LABEL[0..31]->NXM_NX_REG0[]",
    "NXM_NX_CT_LABEL[]->NXM_NX_XXREG1[]",
    "NXM_NX_CT_NW_PROTO[]->NXM_NX_REG1[0..7]",
    "NXM_NX_CT_NW_SRC[]->NXM_NX_REG2[]",
    "NXM_NX_CT_IPV6_DST[96..127]->NXM_NX_REG2[]",
    "NXM_NX_CT_TP_SRC[]->NXM_NX_REG0[0..15]",
];

/// Actions of `exec`.
const SETS: [&str; 7] = [
    "set_field:0x1->ct_mark",
    "set_field:0x2/0x3->ct_mark",
    "set_field:0x1/0x3->ct_label",
    "set_field:0x123456789abcdef0123456789->ct_label",
    "load:0x1->NXM_NX_CT_LABEL[100..107]",
    "move:NXM_NX_REG1[]->NXM_NX_CT_MARK[]",
    "move:NXM_OF_ETH_SRC[0..31]->NXM_NX_CT_LABEL[32..63]",
];

/// `nat` without arguments, or of one side with addresses, ports and flags.
fn nat(rng: &mut Rng, is_ipv4: bool, may_have_range: bool) -> String {
    if !may_have_range || rng.one_in(4) {
        return "nat".to_string();
    }
    let side = rng.pick(&["src", "dst"]);
    let address = match (is_ipv4, rng.below(2)) {
        (true, 0) => "10.0.0.9".to_string(),
        (true, _) => "10.0.0.7-10.0.0.9".to_string(),
        (false, 0) => "fc00::9".to_string(),
        (false, _) => "fc00::7-fc00::9".to_string(),
    };
    let ports = rng.pick(&["", "", ":80", ":80-90", ":1024-65535"]);
    let flags =
        rng.pick(&["", "", ",random", ",hash", ",persistent", ",persistent,hash", ",random,persistent"]);
    match rng.below(8) {
        0 => format!("nat({side})"),
        _ if is_ipv4 || ports.is_empty() => format!("nat({side}={address}{ports}{flags})"),
        _ => format!("nat({side}=[{}]{ports}{flags})", address.replace('-', "]-[")),
    }
}
