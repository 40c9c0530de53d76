//! Prints and parses actions.

use super::key::label;
use super::key_parse::port;
use super::sets::{self, nothing_more};
use super::token::{Item, items};
use super::values::{masked, number};
use super::write::{Fields, hex};
use super::{PortNames, TextError, ct};
use crate::actions::{DpAction, EthSet, HashAlgorithm, Masked, SetAction};
use crate::drops::XlateDrop;
use crate::upcall::{ControllerCookie, UserCookie, slow_reason};
use flow::{DpPort, MacAddr, RecircId, VlanTag};
use packet::headers as h;

const SLOW: [(u16, &str); 4] = [
    (slow_reason::CONTROLLER, "controller"),
    (slow_reason::ACTION, "action"),
    (slow_reason::PROTOCOL, "protocol"),
    (slow_reason::MATCH, "match"),
];

/// Ways to reckon a hash, by their words.
const HASHES: [(HashAlgorithm, &str); 2] = [(HashAlgorithm::L4, "l4"), (HashAlgorithm::SymL4, "sym_l4")];

/// Actions nest at most so deep in text.
const DEPTH_MAX: usize = 10;

/// A list of actions as text; an empty one is `drop`.
pub fn format_actions(actions: &[DpAction], names: &dyn PortNames) -> String {
    if actions.is_empty() {
        return "drop".into();
    }
    let parts: Vec<String> = actions.iter().map(|a| format_one(a, names)).collect();
    parts.join(",")
}

fn format_one(action: &DpAction, names: &dyn PortNames) -> String {
    match action {
        DpAction::Output(port) => names.name(*port).unwrap_or_else(|| port.to_string()),
        DpAction::Userspace(cookie) => format!("userspace(pid=0,{})", format_cookie(cookie)),
        DpAction::Set(set) => format!("set({})", format_set(set)),
        DpAction::PushVlan { tpid, tci } => format_push_vlan(*tpid, VlanTag { tpid: *tpid, tci: *tci }),
        DpAction::PopVlan => "pop_vlan".into(),
        DpAction::Trunc(bytes) => format!("trunc({bytes})"),
        DpAction::Recirc(id) => format!("recirc({})", hex(id.0.into())),
        DpAction::Meter(id) => format!("meter({id})"),
        DpAction::Sample { probability, actions } => {
            let percent = 100.0 * f64::from(*probability) / f64::from(u32::MAX);
            format!("sample(sample={percent:.1}%,actions({}))", format_actions(actions, names))
        }
        DpAction::Clone(actions) => format!("clone({})", format_actions(actions, names)),
        DpAction::Drop(_) => "drop".into(),
        DpAction::Hash { algorithm, basis } => {
            let (_, name) = HASHES.iter().find(|(a, _)| a == algorithm).unwrap_or(&HASHES[0]);
            format!("hash({name}({basis}))")
        }
        DpAction::PushMpls { lse, ethertype } => {
            format!("push_mpls({},eth_type=0x{ethertype:x})", label(*lse, u32::MAX))
        }
        DpAction::PopMpls { ethertype } => format!("pop_mpls(eth_type=0x{ethertype:x})"),
        DpAction::Ct(action) => ct::format(action),
        DpAction::CtClear => "ct_clear".into(),
        DpAction::PushEth { src, dst } => format!("push_eth(src={},dst={})", MacAddr(*src), MacAddr(*dst)),
        DpAction::PopEth => "pop_eth".into(),
        DpAction::CheckPktLen { len, greater, less } => {
            let (greater, less) = (format_actions(greater, names), format_actions(less, names));
            format!("check_pkt_len(size={len},gt({greater}),le({less}))")
        }
        DpAction::DecTtl(actions) => format!("dec_ttl(le_1({}))", format_actions(actions, names)),
        DpAction::Foreign { kind, content } => format_foreign(*kind, content),
    }
}

/// An action by its number and bytes, as the stock tools print those that they do not know.
fn format_foreign(kind: u16, content: &[u8]) -> String {
    let bytes: Vec<String> = content.iter().map(|byte| format!("{byte:02x}")).collect();
    if bytes.is_empty() { format!("action{kind}") } else { format!("action{kind}({})", bytes.join(" ")) }
}

fn format_push_vlan(tpid: u16, tag: VlanTag) -> String {
    let tpid = if tpid == h::ETH_TYPE_VLAN { String::new() } else { format!("tpid=0x{tpid:04x},") };
    let cfi = if tag.is_present() { "" } else { ",cfi=0" };
    format!("push_vlan({tpid}vid={},pcp={}{cfi})", tag.vid(), tag.pcp())
}

fn format_cookie(cookie: &UserCookie) -> String {
    match cookie {
        UserCookie::SlowPath { reasons } => {
            let named = SLOW.iter().filter(|(bit, _)| reasons & bit != 0).map(|(_, name)| *name);
            let named: Vec<&str> = named.collect();
            if named.is_empty() { "slow_path(0)".into() } else { format!("slow_path({})", named.join(",")) }
        }
        UserCookie::Controller(c) => format!(
            "controller(reason={},dont_send=0,continuation=0,recirc_id={},rule_cookie={},controller_id={},max_len={})",
            c.reason,
            c.recirc_id.0,
            hex(c.rule_cookie.into()),
            c.controller_id,
            c.max_len_bytes
        ),
    }
}

fn format_set(set: &SetAction) -> String {
    let mut f = Fields::new(false);
    let name = match set {
        SetAction::Eth(m) => {
            sets::put_eth(&mut f, m);
            "eth"
        }
        SetAction::Ipv4(m) => {
            sets::put_ipv4(&mut f, m, None);
            "ipv4"
        }
        SetAction::Ipv6(m) => {
            sets::put_ipv6(&mut f, m, None);
            "ipv6"
        }
        SetAction::Arp(m) => {
            sets::put_arp(&mut f, m, 0xffff);
            "arp"
        }
        SetAction::Nd(m) => {
            sets::put_nd(&mut f, m);
            "nd"
        }
        SetAction::Tcp(m) => {
            sets::put_ports(&mut f, m, ["src", "dst"], 0xffff);
            "tcp"
        }
        SetAction::Udp(m) => {
            sets::put_ports(&mut f, m, ["src", "dst"], 0xffff);
            "udp"
        }
        SetAction::Sctp(m) => {
            sets::put_ports(&mut f, m, ["src", "dst"], 0xffff);
            "sctp"
        }
        SetAction::Icmp(m) => {
            sets::put_ports(&mut f, m, ["type", "code"], 0xff);
            "icmp"
        }
        SetAction::Icmpv6(m) => {
            sets::put_ports(&mut f, m, ["type", "code"], 0xff);
            "icmpv6"
        }
        SetAction::SkbMark(Masked { value, mask: u32::MAX }) => {
            return format!("skb_mark({})", hex((*value).into()));
        }
        SetAction::SkbMark(m) => return format!("skb_mark({}/{})", hex(m.value.into()), hex(m.mask.into())),
        SetAction::Tunnel(t) => {
            sets::put_tunnel(&mut f, t, None);
            "tunnel"
        }
        SetAction::SkbPriority(n) => return format!("skb_priority({})", hex((*n).into())),
        SetAction::Mpls(m) => return format!("mpls({})", label(m.value, m.mask)),
    };
    f.finish(name)
}

/// A list of actions from text.
///
/// # Errors
/// Unknown actions or fields, values that do not fit, unbalanced parentheses.
pub fn parse_actions(text: &str, names: &dyn PortNames) -> Result<Vec<DpAction>, TextError> {
    parse_list(&items(text)?, names, 0)
}

fn parse_list(items: &[Item<'_>], names: &dyn PortNames, depth: usize) -> Result<Vec<DpAction>, TextError> {
    if depth > DEPTH_MAX {
        return Err(TextError(format!("actions nest deeper than {DEPTH_MAX}")));
    }
    items.iter().map(|item| parse_one(item, names, depth)).collect()
}

fn parse_one(item: &Item<'_>, names: &dyn PortNames, depth: usize) -> Result<DpAction, TextError> {
    if item.args.is_none() && item.value.is_none() {
        return match item.name {
            "pop_vlan" => Ok(DpAction::PopVlan),
            "drop" => Ok(DpAction::Drop(XlateDrop::Ok)),
            "ct" => Ok(DpAction::Ct(Box::default())),
            "ct_clear" => Ok(DpAction::CtClear),
            "pop_eth" => Ok(DpAction::PopEth),
            name => port(name, names).map(|n| DpAction::Output(DpPort(n))),
        };
    }
    let number32 = || number(item.word()?, u32::MAX.into()).map(|n| n as u32);
    match item.name {
        "userspace" => parse_userspace(item),
        "set" => match item.args()? {
            [one] => parse_set(one).map(DpAction::Set),
            _ => Err(TextError("set: exactly one header expected".into())),
        },
        "push_vlan" => parse_push_vlan(item),
        "trunc" => number32().map(DpAction::Trunc),
        "recirc" => number32().map(|n| DpAction::Recirc(RecircId(n))),
        "meter" => number32().map(DpAction::Meter),
        "sample" => parse_sample(item, names, depth),
        "clone" => parse_list(item.args()?, names, depth + 1).map(DpAction::Clone),
        "hash" => parse_hash(item),
        "push_mpls" => parse_push_mpls(item),
        "pop_mpls" => match item.args()? {
            [field] if field.name == "eth_type" => {
                Ok(DpAction::PopMpls { ethertype: number(field.value()?, 0xffff)? as u16 })
            }
            _ => Err(TextError("pop_mpls: eth_type=TYPE expected".into())),
        },
        "ct" => ct::parse(item).map(|ct| DpAction::Ct(Box::new(ct))),
        "push_eth" => match sets::eth(item)? {
            Masked { value, mask } if mask == (EthSet { src: [0xff; 6], dst: [0xff; 6] }) => {
                Ok(DpAction::PushEth { src: value.src, dst: value.dst })
            }
            _ => Err(TextError("push_eth: src=ADDRESS and dst=ADDRESS expected".into())),
        },
        "check_pkt_len" => parse_check_pkt_len(item, names, depth),
        "dec_ttl" => match item.args()? {
            [field] if field.name == "le_1" => {
                parse_list(field.args()?, names, depth + 1).map(DpAction::DecTtl)
            }
            _ => Err(TextError("dec_ttl: le_1(…) expected".into())),
        },
        _ => Err(item.unknown("actions")),
    }
}

fn parse_push_vlan(item: &Item<'_>) -> Result<DpAction, TextError> {
    let (mut tpid, mut tci) = (h::ETH_TYPE_VLAN, VlanTag::PRESENT);
    for field in item.args()? {
        let text = field.value()?;
        match field.name {
            "tpid" => tpid = number(text, 0xffff)? as u16,
            "vid" => tci = tci & !0xfff | number(text, 0xfff)? as u16,
            "pcp" => tci = tci & 0x1fff | (number(text, 7)? as u16) << 13,
            "cfi" => tci = tci & !VlanTag::PRESENT | (number(text, 1)? as u16) << 12,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(DpAction::PushVlan { tpid, tci })
}

fn parse_hash(item: &Item<'_>) -> Result<DpAction, TextError> {
    let [one] = item.args()? else { return Err(TextError("hash: exactly one algorithm expected".into())) };
    let (algorithm, _) =
        HASHES.iter().find(|(_, name)| *name == one.name).ok_or_else(|| one.unknown("hash"))?;
    Ok(DpAction::Hash { algorithm: *algorithm, basis: number(one.word()?, u32::MAX.into())? as u32 })
}

fn parse_push_mpls(item: &Item<'_>) -> Result<DpAction, TextError> {
    let (mut lse, mut ethertype) = (0, h::ETH_TYPE_MPLS);
    for field in item.args()? {
        let text = field.value()?;
        match sets::mpls_part(field.name) {
            Some((shift, full)) => {
                lse = lse & !(full << shift) | (number(text, full.into())? as u32) << shift
            }
            None if field.name == "eth_type" => ethertype = number(text, 0xffff)? as u16,
            None => return Err(field.unknown(item.name)),
        }
    }
    Ok(DpAction::PushMpls { lse, ethertype })
}

fn parse_check_pkt_len(item: &Item<'_>, names: &dyn PortNames, depth: usize) -> Result<DpAction, TextError> {
    let (mut len, mut greater, mut less) = (None, None, None);
    for field in item.args()? {
        match field.name {
            "size" => len = Some(number(field.value()?, 0xffff)? as u16),
            "gt" => greater = Some(parse_list(field.args()?, names, depth + 1)?),
            "le" => less = Some(parse_list(field.args()?, names, depth + 1)?),
            _ => return Err(field.unknown(item.name)),
        }
    }
    match (len, greater, less) {
        (Some(len), Some(greater), Some(less)) => Ok(DpAction::CheckPktLen { len, greater, less }),
        _ => Err(TextError("check_pkt_len: size=BYTES, gt(…) and le(…) expected".into())),
    }
}

fn parse_sample(item: &Item<'_>, names: &dyn PortNames, depth: usize) -> Result<DpAction, TextError> {
    let (mut probability, mut actions) = (None, Vec::new());
    for field in item.args()? {
        match field.name {
            "sample" => {
                let text = field.value()?;
                let percent = text.strip_suffix('%').and_then(|t| t.parse::<f64>().ok());
                let percent = percent.filter(|p| (0.0..=100.0).contains(p));
                let percent =
                    percent.ok_or_else(|| TextError(format!("sample: {text:?} is not 0% to 100%")))?;
                probability = Some((percent / 100.0 * f64::from(u32::MAX)).round() as u32);
            }
            "actions" => actions = parse_list(field.args()?, names, depth + 1)?,
            _ => return Err(field.unknown(item.name)),
        }
    }
    let probability = probability.ok_or_else(|| TextError("sample: sample=PERCENT% is missing".into()))?;
    Ok(DpAction::Sample { probability, actions })
}

fn parse_userspace(item: &Item<'_>) -> Result<DpAction, TextError> {
    let mut cookie = None;
    for field in item.args()? {
        match field.name {
            "pid" => {
                number(field.value()?, u32::MAX.into())?;
            }
            "slow_path" => {
                let mut reasons = 0;
                for name in field.args()?.iter().flat_map(|i| i.name.split('|')).filter(|n| *n != "0") {
                    let known = SLOW.iter().find(|(_, n)| *n == name);
                    reasons |= known.ok_or_else(|| TextError(format!("slow_path: no reason {name:?}")))?.0;
                }
                cookie = Some(UserCookie::SlowPath { reasons });
            }
            "controller" => cookie = Some(UserCookie::Controller(parse_controller(field)?)),
            _ => return Err(field.unknown(item.name)),
        }
    }
    let cookie =
        cookie.ok_or_else(|| TextError("userspace: slow_path(…) or controller(…) expected".into()))?;
    Ok(DpAction::Userspace(cookie))
}

fn parse_controller(item: &Item<'_>) -> Result<ControllerCookie, TextError> {
    let mut c = ControllerCookie {
        recirc_id: RecircId(0),
        rule_cookie: 0,
        reason: 0,
        controller_id: 0,
        max_len_bytes: u16::MAX,
    };
    for field in item.args()? {
        let text = field.value()?;
        match field.name {
            "reason" => c.reason = number(text, 0xff)? as u8,
            "dont_send" | "continuation" => {
                number(text, 1)?;
            }
            "recirc_id" => c.recirc_id = RecircId(number(text, u32::MAX.into())? as u32),
            "rule_cookie" => c.rule_cookie = number(text, u64::MAX.into())? as u64,
            "controller_id" => c.controller_id = number(text, 0xffff)? as u16,
            "max_len" => c.max_len_bytes = number(text, 0xffff)? as u16,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(c)
}

fn parse_set(item: &Item<'_>) -> Result<SetAction, TextError> {
    Ok(match item.name {
        "eth" => SetAction::Eth(sets::eth(item)?),
        "ipv4" => SetAction::Ipv4(sets::ipv4_header(item, &mut nothing_more)?),
        "ipv6" => SetAction::Ipv6(sets::ipv6_header(item, &mut nothing_more)?),
        "arp" => SetAction::Arp(sets::arp(item)?),
        "nd" => SetAction::Nd(sets::nd(item)?),
        "tcp" => SetAction::Tcp(sets::ports(item, ["src", "dst"], 0xffff)?),
        "udp" => SetAction::Udp(sets::ports(item, ["src", "dst"], 0xffff)?),
        "sctp" => SetAction::Sctp(sets::ports(item, ["src", "dst"], 0xffff)?),
        "icmp" => SetAction::Icmp(sets::ports(item, ["type", "code"], 0xff)?),
        "icmpv6" => SetAction::Icmpv6(sets::ports(item, ["type", "code"], 0xff)?),
        "skb_mark" => {
            let (value, mask) = masked(item.word()?, u32::MAX.into())?;
            SetAction::SkbMark(Masked { value: value as u32, mask: mask as u32 })
        }
        "tunnel" => SetAction::Tunnel(sets::tunnel(item)?.value),
        "skb_priority" => SetAction::SkbPriority(number(item.word()?, u32::MAX.into())? as u32),
        "mpls" => SetAction::Mpls(sets::mpls(item)?),
        _ => return Err(item.unknown("set")),
    })
}
