//! Random rules as text: matches whose prerequisites hold, and actions of every kind that both switches have.

use crate::{connections, special};
use sim::Rng;

/// Tables that rules are in.
pub(crate) const TABLES: u8 = 6;

/// Part of the version of OpenFlow in the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    /// 1.0: no instructions.
    Of10,
    /// 1.3.
    Of13,
    /// 1.5.
    Of15,
}

impl Wire {
    pub(crate) const ALL: [Wire; 3] = [Wire::Of10, Wire::Of13, Wire::Of15];

    /// As `ovs-ofctl -O` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Wire::Of10 => "OpenFlow10",
            Wire::Of13 => "OpenFlow13",
            Wire::Of15 => "OpenFlow15",
        }
    }
}

const MACS: [&str; 5] =
    ["50:54:00:00:00:01", "50:54:00:00:00:02", "52:54:00:00:00:01", "01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff"];
const VLANS: [u16; 4] = [0, 10, 20, 4095];
const IPS: [&str; 6] = ["10.0.0.1", "10.0.0.2", "10.0.1.1", "10.128.0.1", "192.168.0.1", "224.0.0.1"];
const IP6S: [&str; 5] = ["fd00::1", "fd00::2", "fd00:1::1", "fe80::1", "ff02::1"];
const PORTS: [u16; 5] = [0, 80, 81, 1024, 65535];
const KINDS: [&str; 18] = [
    "",
    "",
    "ip",
    "tcp",
    "udp",
    "icmp",
    "sctp",
    "arp",
    "rarp",
    "ipv6",
    "tcp6",
    "udp6",
    "icmp6",
    "dl_type=0x1234",
    "mpls",
    "mpls",
    "dl_type=0x894f",
    "icmp6,icmp_type=135,icmp_code=0",
];

/// One of the values that packets and rules share.
pub(crate) fn mac(rng: &mut Rng) -> &'static str {
    rng.pick::<&'static str>(&MACS)
}

/// Likewise.
pub(crate) fn vlan(rng: &mut Rng) -> u16 {
    *rng.pick(&VLANS)
}

/// Likewise.
pub(crate) fn ip(rng: &mut Rng) -> &'static str {
    rng.pick::<&'static str>(&IPS)
}

/// Likewise.
pub(crate) fn ip6(rng: &mut Rng) -> &'static str {
    rng.pick::<&'static str>(&IP6S)
}

/// Likewise.
pub(crate) fn l4_port(rng: &mut Rng) -> u16 {
    *rng.pick(&PORTS)
}

pub(crate) fn is_ipv4(kind: &str) -> bool {
    matches!(kind, "ip" | "tcp" | "udp" | "icmp" | "sctp")
}

pub(crate) fn is_ipv6(kind: &str) -> bool {
    kind.starts_with("icmp6") || matches!(kind, "ipv6" | "tcp6" | "udp6" | "icmp6")
}

fn has_ports(kind: &str) -> bool {
    matches!(kind, "tcp" | "udp" | "sctp" | "tcp6" | "udp6")
}

/// The fields of a match, and the kind of packets that it takes.
fn matching(rng: &mut Rng) -> (&'static str, Vec<String>) {
    let kind = *rng.pick(&KINDS);
    let mut fields: Vec<String> = Vec::new();
    if !kind.is_empty() {
        fields.push(kind.to_string());
    }
    for _ in 0..rng.below(4) {
        let field = match rng.below(3) {
            0 => Some(any_field(rng)),
            _ => kind_field(rng, kind),
        };
        let Some(field) = field else { continue };
        let name = field.split('=').next().unwrap_or_default().to_string();
        if fields.iter().all(|f| f.split('=').next() != Some(&name)) {
            fields.push(field);
        }
    }
    (kind, fields)
}

/// A field that every packet has.
fn any_field(rng: &mut Rng) -> String {
    match rng.below(12) {
        10 => special::tunnel_field(rng),
        11 => connections::field(rng),
        0 => format!("in_port={}", rng.range(1, 9)),
        1 => format!("dl_src={}", masked_mac(rng)),
        2 | 3 => format!("dl_dst={}", masked_mac(rng)),
        4 => format!("dl_vlan={}", vlan(rng)),
        5 => format!(
            "vlan_tci=0x{:04x}/0x{:04x}",
            rng.pick(&[0x1000, 0x100a, 0]),
            rng.pick(&[0x1000, 0x1fff, 0x100f])
        ),
        6 => format!("dl_vlan_pcp={}", rng.below(3)),
        7 => format!("metadata=0x{:x}/0x{:x}", rng.below(3), rng.pick(&[1, 3, 0xffff])),
        8 => format!("reg{}=0x{:x}/0x{:x}", rng.below(3), rng.below(4), rng.pick(&[1, 3, 0xffff_ffffu64])),
        _ => format!("reg{}={}", rng.below(3), rng.below(3)),
    }
}

fn masked_mac(rng: &mut Rng) -> String {
    match rng.below(4) {
        0 => "01:00:00:00:00:00/01:00:00:00:00:00".to_string(),
        1 => format!("{}/ff:00:00:00:00:ff", mac(rng)),
        _ => mac(rng).to_string(),
    }
}

fn masked_ip(rng: &mut Rng) -> String {
    match rng.below(4) {
        0 => ip(rng).to_string(),
        1 => format!("{}/255.0.0.255", ip(rng)),
        _ => format!("{}/{}", ip(rng), rng.pick(&[0, 1, 8, 9, 16, 24, 25, 31, 32])),
    }
}

fn masked_ip6(rng: &mut Rng) -> String {
    match rng.below(3) {
        0 => ip6(rng).to_string(),
        _ => format!("{}/{}", ip6(rng), rng.pick(&[1, 8, 16, 32, 33, 64, 127, 128])),
    }
}

fn masked_port(rng: &mut Rng) -> String {
    match rng.below(3) {
        0 => format!("0x{:04x}/0x{:04x}", l4_port(rng), rng.pick(&[0xfffe, 0xff00, 0x000f])),
        _ => l4_port(rng).to_string(),
    }
}

/// A field that packets of a kind have.
fn kind_field(rng: &mut Rng, kind: &str) -> Option<String> {
    if has_ports(kind) && rng.one_in(2) {
        let side = rng.pick(&["src", "dst"]);
        if kind.starts_with("tcp") && rng.one_in(4) {
            return Some(format!(
                "tcp_flags=0x{:x}/0x{:x}",
                rng.pick(&[2, 0x12, 0]),
                rng.pick(&[2, 0x12, 0x17])
            ));
        }
        return Some(format!("tp_{side}={}", masked_port(rng)));
    }
    if matches!(kind, "icmp" | "icmp6") && rng.one_in(2) {
        let name = if kind == "icmp" { "icmp" } else { "icmpv6" };
        return Some(match rng.below(2) {
            0 => format!("{name}_type={}", rng.pick(&[0, 3, 8, 128, 135, 136])),
            _ => format!("{name}_code={}", rng.below(3)),
        });
    }
    if let Some(field) = special::field(rng, kind) {
        return Some(field);
    }
    match kind {
        "arp" | "rarp" => Some(match rng.below(5) {
            0 => format!("arp_op={}", rng.below(4)),
            1 => format!("arp_spa={}", masked_ip(rng)),
            2 => format!("arp_tpa={}", masked_ip(rng)),
            3 => format!("arp_sha={}", mac(rng)),
            _ => format!("arp_tha={}", mac(rng)),
        }),
        _ if is_ipv4(kind) || is_ipv6(kind) => Some(match rng.below(10) {
            8 => connections::field(rng),
            9 => connections::original(rng, kind),
            0 => format!("nw_tos={}", rng.pick(&[0, 32, 252])),
            1 => format!("nw_ecn={}", rng.below(4)),
            2 => format!("nw_ttl={}", rng.pick(&[0, 1, 2, 64])),
            3 => format!("ip_frag={}", rng.pick(&["no", "yes", "first", "later", "not_later"])),
            4 if kind == "ip" || kind == "ipv6" => {
                format!("nw_proto={}", rng.pick(&[0, 1, 2, 6, 17, 58, 132, 47]))
            }
            5 if is_ipv6(kind) => format!("ipv6_label=0x{:x}", rng.pick(&[0, 1, 0xfffff])),
            n => {
                let side = if n % 2 == 0 { "src" } else { "dst" };
                match is_ipv4(kind) {
                    true => format!("nw_{side}={}", masked_ip(rng)),
                    false => format!("ipv6_{side}={}", masked_ip6(rng)),
                }
            }
        }),
        _ => None,
    }
}

/// A rule for the table, as `ovs-ofctl` takes it. Rules that overlap must differ in priority: OVS does not say which one counts.
fn rule(rng: &mut Rng, wire: Wire, table: u8, n: u64) -> String {
    let (kind, fields) = matching(rng);
    let priority = 16 * *rng.pick(&[1, 10, 100, 2048]) + n;
    let mut text = format!("table={table},priority={priority}");
    for field in &fields {
        text.push(',');
        text += field;
    }
    if rng.one_in(40) {
        return format!("{text},actions=drop");
    }
    let mut actions: Vec<String> = (0..rng.range(1, 4)).map(|_| action(rng, wire, kind, table)).collect();
    // Mostly last, since many change the packet's type, which a further rewrite would contradict.
    if rng.one_in(2) {
        let at = if rng.one_in(3) { rng.below(actions.len() as u64) as usize } else { actions.len() };
        let plain = |rng: &mut Rng, kind: &str, table| action(rng, Wire::Of10, kind, table);
        actions.insert(at, special::action(rng, kind, table, plain));
    }
    if wire != Wire::Of10 {
        if rng.one_in(12) {
            actions.insert(0, "meter:1".to_string());
        }
        if rng.one_in(8) {
            actions.push("clear_actions".to_string());
        }
        if rng.one_in(5) {
            let set: Vec<String> = (0..rng.range(1, 3)).map(|_| set_member(rng, kind)).collect();
            actions.push(format!("write_actions({})", set.join(",")));
        }
        if rng.one_in(6) {
            actions.push(format!("write_metadata:0x{:x}/0x{:x}", rng.below(4), rng.pick(&[1, 3, 0xff])));
        }
        if table + 1 < TABLES && rng.one_in(3) {
            actions.push(format!("goto_table:{}", rng.range(u64::from(table) + 1, u64::from(TABLES) - 1)));
        }
    }
    format!("{text},actions={}", actions.join(","))
}

/// A port.
pub(crate) fn port(rng: &mut Rng) -> u64 {
    // One that is not there, and the port between the bridges more often than others.
    *rng.pick(&[1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 50])
}

fn set_member(rng: &mut Rng, kind: &str) -> String {
    match rng.below(7) {
        4 => format!("group:{}", rng.range(1, GROUPS)),
        0 => "pop_vlan".to_string(),
        1 => "push_vlan:0x8100".to_string(),
        2 => rewrite(rng, kind),
        3 if is_ipv4(kind) || is_ipv6(kind) => "dec_ttl".to_string(),
        _ => format!("output:{}", port(rng)),
    }
}

/// A change of a field that packets of the kind have.
fn rewrite(rng: &mut Rng, kind: &str) -> String {
    if has_ports(kind) && rng.one_in(3) {
        return format!("mod_tp_{}:{}", rng.pick(&["src", "dst"]), l4_port(rng));
    }
    match kind {
        _ if is_ipv4(kind) && rng.one_in(2) => match rng.below(5) {
            4 => format!("mod_nw_ecn:{}", rng.below(4)),
            0 => format!("mod_nw_tos:{}", rng.pick(&[0, 32, 252])),
            1 => format!("mod_nw_ttl:{}", rng.pick(&[0, 1, 64])),
            _ => format!("mod_nw_{}:{}", rng.pick(&["src", "dst"]), ip(rng)),
        },
        _ if is_ipv6(kind) && rng.one_in(2) => match rng.below(6) {
            0 => format!("mod_nw_tos:{}", rng.pick(&[0, 32, 252])),
            1 => format!("mod_nw_ttl:{}", rng.pick(&[0, 1, 64])),
            2 => format!("mod_nw_ecn:{}", rng.below(4)),
            _ => format!("set_field:{}->ipv6_{}", ip6(rng), rng.pick(&["src", "dst"])),
        },
        "arp" if rng.one_in(2) => match rng.below(3) {
            0 => format!("set_field:{}->arp_op", rng.range(1, 2)),
            1 => format!("set_field:{}->arp_{}", ip(rng), rng.pick(&["spa", "tpa"])),
            _ => format!("set_field:{}->arp_{}", mac(rng), rng.pick(&["sha", "tha"])),
        },
        _ => match rng.below(8) {
            0 => format!("mod_dl_{}:{}", rng.pick(&["src", "dst"]), mac(rng)),
            1 => {
                let mac = mac(rng);
                format!("set_field:{}:00:00:00:00:0{}/ff:00:00:00:00:0f->eth_dst", &mac[..2], &mac[16..])
            }
            2 => format!("mod_vlan_vid:{}", vlan(rng)),
            3 => format!("mod_vlan_pcp:{}", rng.below(8)),
            4 => format!("load:0x{:x}->NXM_NX_REG{}[0..{}]", rng.below(2), rng.below(3), rng.below(32)),
            5 => format!("set_field:0x{:x}/0x3->metadata", rng.below(4)),
            6 => format!("load:0x{:x}->OXM_OF_METADATA[0..15]", rng.below(3)),
            _ => format!("set_field:{}->reg{}", rng.below(4), rng.below(3)),
        },
    }
}

fn moved(rng: &mut Rng, kind: &str) -> String {
    let (source, dest) = match rng.below(8) {
        0 => ("NXM_OF_ETH_SRC[]", "NXM_OF_ETH_DST[]"),
        1 => ("NXM_OF_IN_PORT[]", "NXM_NX_REG0[0..15]"),
        2 => ("NXM_OF_VLAN_TCI[0..11]", "NXM_NX_REG1[4..15]"),
        3 => ("NXM_NX_REG1[0..11]", "NXM_OF_VLAN_TCI[0..11]"),
        4 if is_ipv4(kind) => ("NXM_OF_IP_SRC[]", "NXM_OF_IP_DST[]"),
        5 if is_ipv4(kind) => ("NXM_OF_IP_DST[0..7]", "NXM_NX_REG2[0..7]"),
        6 if matches!(kind, "tcp" | "tcp6") => ("NXM_OF_TCP_SRC[]", "NXM_OF_TCP_DST[]"),
        6 if matches!(kind, "udp" | "udp6") => ("NXM_OF_UDP_SRC[]", "NXM_NX_REG0[0..15]"),
        7 if is_ipv6(kind) => ("NXM_NX_IPV6_SRC[0..31]", "NXM_NX_REG2[]"),
        _ => ("NXM_NX_REG0[0..15]", "NXM_NX_REG1[16..31]"),
    };
    format!("move:{source}->{dest}")
}

fn learn(rng: &mut Rng, kind: &str) -> String {
    let mut parts = vec![format!("table={}", rng.range(1, u64::from(TABLES) - 1))];
    let shape = rng.below(4);
    parts.push(format!("priority={}", 20_000 + shape));
    if rng.one_in(3) {
        let which = *rng.pick(&["fin_idle_timeout", "fin_hard_timeout"]);
        parts.push(format!("{which}={}", rng.range(1, 90)));
    }
    match shape {
        0 => parts.push("NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]".to_string()),
        1 => parts.push("NXM_OF_VLAN_TCI[0..11]".to_string()),
        2 => parts.push("reg0=3".to_string()),
        _ if is_ipv4(kind) => {
            parts.extend(["eth_type=0x800".to_string(), "NXM_OF_IP_DST[]=NXM_OF_IP_SRC[]".to_string()])
        }
        _ => {}
    }
    match rng.below(3) {
        0 => parts.push("output:NXM_OF_IN_PORT[]".to_string()),
        1 => parts.push("load:NXM_OF_IN_PORT[]->NXM_NX_REG1[0..15]".to_string()),
        _ => parts.push("load:0x3->NXM_NX_REG2[0..3]".to_string()),
    }
    format!("learn({})", parts.join(","))
}

fn action(rng: &mut Rng, wire: Wire, kind: &str, table: u8) -> String {
    match rng.below(34) {
        0..=5 => format!("output:{}", port(rng)),
        6..=10 if table + 1 < TABLES && !rng.one_in(30) => {
            format!("resubmit(,{})", rng.range(u64::from(table) + 1, u64::from(TABLES)))
        }
        6 => format!("resubmit(,{})", rng.below(u64::from(TABLES))),
        11 => format!("resubmit({},{})", rng.range(1, 9), rng.range(u64::from(table), u64::from(TABLES) - 1)),
        12 => "NORMAL".to_string(),
        13 => rng.pick(&["FLOOD", "ALL", "IN_PORT", "LOCAL"]).to_string(),
        14 => rng
            .pick(&["CONTROLLER", "controller(max_len=128)", "controller(reason=no_match,id=3)"])
            .to_string(),
        15 => if wire == Wire::Of10 { "strip_vlan" } else { "pop_vlan" }.to_string(),
        16 if wire != Wire::Of10 => format!("push_vlan:{}", rng.pick(&["0x8100", "0x88a8"])),
        17 => format!(
            "push:{}",
            rng.pick(&["NXM_NX_REG0[]", "NXM_OF_ETH_SRC[]", "NXM_NX_REG1[3..9]", "NXM_OF_VLAN_TCI[0..11]"])
        ),
        18 => format!("pop:{}", rng.pick(&["NXM_NX_REG0[]", "NXM_OF_ETH_DST[]", "NXM_NX_REG2[0..6]"])),
        19 => learn(rng, kind),
        20 => match rng.below(3) {
            0 => "exit".to_string(),
            1 => "note:01.02".to_string(),
            _ => "debug_recirc".to_string(),
        },
        21 => "output:NXM_NX_REG0[0..15]".to_string(),
        22 => "output:NXM_NX_REG1[]".to_string(),
        23 | 24 => moved(rng, kind),
        25 if is_ipv4(kind) || is_ipv6(kind) => "dec_ttl".to_string(),
        26 if wire == Wire::Of10 || kind.starts_with("tcp") => {
            let idle = format!("idle_timeout={}", rng.range(1, 90));
            let hard = format!("hard_timeout={}", rng.range(1, 90));
            match rng.below(3) {
                0 => format!("fin_timeout({idle})"),
                1 => format!("fin_timeout({hard})"),
                _ => format!("fin_timeout({idle},{hard})"),
            }
        }
        27 => format!("set_queue:{}", rng.below(3)),
        28 => format!("load:0x{:x}->OXM_OF_IN_PORT[0..15]", rng.range(1, 9)),
        29 | 30 => format!("group:{}", rng.range(1, GROUPS)),
        _ => rewrite(rng, kind),
    }
}

/// Groups of a bridge; their numbers begin at 1.
const GROUPS: u64 = 6;

/// A group. A select group has one bucket, or the datapath chooses: hashes differ between the switches. Groups refer to later
/// ones alone.
fn group(rng: &mut Rng, wire: Wire, id: u64) -> String {
    let ty = *rng.pick(&["all", "all", "indirect", "ff", "select", "select"]);
    let (method, most) = match rng.below(3) {
        _ if ty == "indirect" => ("", 1),
        0 if ty == "select" && wire == Wire::Of10 => {
            (",selection_method=hash,fields(eth_dst,ip_src=255.255.0.0)", 1)
        }
        1 if ty == "select" => ("", 0),
        _ => ("", 3),
    };
    let mut text = format!("group_id={id},type={ty}{method}");
    for _ in 0..rng.range(u64::from(most > 0), most) {
        let watch = format!("watch_port:{},", rng.pick(&[1, 2, 3, 8, 50]));
        let actions: Vec<String> = (0..rng.range(1, 3)).map(|_| bucket_action(rng, wire, id)).collect();
        text += &format!(",bucket={}actions={}", if ty == "ff" { &watch } else { "" }, actions.join(","));
    }
    text
}

fn bucket_action(rng: &mut Rng, wire: Wire, id: u64) -> String {
    match rng.below(9) {
        0..=3 => format!("output:{}", port(rng)),
        4 => format!("group:{}", rng.range(id + 1, GROUPS + 1)),
        5 => format!("resubmit(,{})", u64::from(TABLES) - 1),
        6 => rng.pick(&["NORMAL", "CONTROLLER", "IN_PORT", "ALL"]).to_string(),
        7 => if wire == Wire::Of10 { "strip_vlan" } else { "pop_vlan" }.to_string(),
        _ => rewrite(rng, "ip"),
    }
}

/// A conjunction of two clauses, and the rule that it leads to. Its priority is its own: OVS leaves open which of several
/// complete ones counts.
fn conjunction(rng: &mut Rng, wire: Wire, table: u8) -> Vec<String> {
    let (id, priority) = (rng.range(1, 3), 16 * rng.pick(&[5, 50, 500]) + 9);
    let first = [format!("ip,nw_src={}", masked_ip(rng)), format!("dl_src={}", mac(rng)), "ip".to_string()];
    let second =
        [format!("tcp,tp_dst={}", l4_port(rng)), "udp".to_string(), format!("ip,nw_dst={}", ip(rng))];
    let clause = |k: usize, fields: &[String]| {
        let line =
            |f: &String| format!("table={table},priority={priority},{f},actions=conjunction({id},{k}/2)");
        fields.iter().map(line).collect::<Vec<_>>()
    };
    let mut rules = clause(1, &first[..rng.range(1, 3) as usize]);
    rules.extend(clause(2, &second[..rng.range(1, 3) as usize]));
    if !rng.one_in(4) {
        let action = action(rng, wire, "ip", table);
        let priority = rng.pick(&[3, 20_000]);
        rules.push(format!("table={table},priority={priority},conj_id={id},ip,actions={action}"));
    }
    rules
}

/// The groups and rules of a bridge: for each table some, the first with one for what nothing else takes.
pub(crate) fn rules(rng: &mut Rng, wire: Wire) -> Vec<String> {
    let mut rules: Vec<String> = (1..=GROUPS).map(|id| group(rng, wire, id)).collect();
    for table in 0..TABLES {
        for n in 0..rng.range(1, 6) {
            rules.push(rule(rng, wire, table, n));
        }
        if rng.one_in(3) {
            rules.extend(conjunction(rng, wire, table));
        }
        if table == 0 || rng.one_in(2) {
            let last = match rng.below(4) {
                0 => "NORMAL".to_string(),
                1 => format!("output:{}", port(rng)),
                _ => format!("resubmit(,{})", rng.range(1, u64::from(TABLES) - 1)),
            };
            rules.push(format!("table={table},priority=0,actions={last}"));
        }
    }
    rules
}
