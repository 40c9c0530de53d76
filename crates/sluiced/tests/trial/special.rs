//! Random actions beyond output, rewrites and control of the pipeline: copies, hashes over members, truncation, MPLS, network
//! service headers, tunnel metadata, lengths, samples, meters. Connection tracking is in [`connections`].

use crate::connections;
use crate::rules::{TABLES, port};
use sim::Rng;

/// Mappings of tunnel metadata and meters of each bridge, by `ovs-ofctl`; the rules refer to them.
pub(crate) const SET_UP: [(&str, &str, &str); 3] = [
    ("OpenFlow10", "add-tlv-map", "{class=0xffff,type=0,len=4}->tun_metadata0"),
    ("OpenFlow10", "add-tlv-map", "{class=0xffff,type=1,len=8}->tun_metadata1"),
    ("OpenFlow13", "add-meter", "meter=1,kbps,band=type=drop,rate=1000"),
];

/// Fields that packets of these kinds have.
pub(crate) fn field(rng: &mut Rng, kind: &str) -> Option<String> {
    Some(match kind {
        "mpls" => match rng.below(4) {
            0 => format!("mpls_label={}", label(rng)),
            1 => format!("mpls_tc={}", rng.below(3)),
            2 => format!("mpls_bos={}", rng.below(2)),
            _ => format!("mpls_ttl={}", rng.pick(&[0, 1, 64])),
        },
        "dl_type=0x894f" => match rng.below(6) {
            0 => format!("nsh_flags={}", rng.below(2)),
            1 => format!("nsh_ttl={}", rng.pick(&[0, 1, 63])),
            2 => format!("nsh_mdtype={}", rng.range(1, 2)),
            3 => format!("nsh_spi=0x{:x}", rng.range(1, 3)),
            4 => format!("nsh_si={}", rng.pick(&[1, 255])),
            _ => format!(
                "nsh_c{}=0x{:x}/0x{:x}",
                rng.range(1, 4),
                rng.below(4),
                rng.pick(&[1, 3, 0xffff_ffffu64])
            ),
        },
        "icmp6,icmp_type=135,icmp_code=0" => match rng.below(4) {
            0 => format!("nd_target={}", crate::rules::ip6(rng)),
            1 => format!("nd_sll={}", crate::rules::mac(rng)),
            2 => format!("nd_reserved={}", rng.below(2)),
            _ => format!("nd_options_type={}", rng.below(3)),
        },
        _ => return None,
    })
}

/// A label.
pub(crate) fn label(rng: &mut Rng) -> u64 {
    *rng.pick(&[0, 5, 100, 0xf_ffff])
}

/// A tunnel field of any packet.
pub(crate) fn tunnel_field(rng: &mut Rng) -> String {
    match rng.below(4) {
        0 => format!("tun_id=0x{:x}/0x{:x}", rng.below(3), rng.pick(&[1, 3, u64::MAX])),
        1 => format!("tun_metadata0=0x{:x}/0x{:x}", rng.below(3), rng.pick(&[1, 3, 0xffff_ffffu64])),
        2 => "tun_metadata1".to_string(),
        _ => format!("tun_src=10.0.0.{}", rng.range(1, 2)),
    }
}

/// One or more actions for packets of the kind; `plain` makes actions for lists within.
pub(crate) fn action(
    rng: &mut Rng,
    kind: &str,
    table: u8,
    plain: fn(&mut Rng, &str, u8) -> String,
) -> String {
    match rng.below(24) {
        0 | 1 => {
            let list: Vec<String> = (0..rng.range(1, 3)).map(|_| plain(rng, kind, table)).collect();
            format!("clone({})", list.join(","))
        }
        2 | 3 => hashed(rng),
        4 | 5 => format!("output(port={},max_len={})", port(rng), rng.pick(&[14, 64, 100, 65535])),
        6 => format!(
            "check_pkt_larger({})->NXM_NX_REG{}[{}]",
            rng.pick(&[60, 100, 1500]),
            rng.below(3),
            rng.below(32)
        ),
        7 => rng.pick(&["delete_field:tun_metadata0", "delete_field:tun_metadata1"]).to_string(),
        8 => rng
            .pick(&[
                "set_field:0x5->tun_metadata0",
                "set_field:0x3/0x7->tun_metadata1",
                "move:NXM_NX_TUN_METADATA0[0..7]->NXM_NX_REG1[0..7]",
                "set_tunnel:5",
                "set_tunnel64:0x100000005",
                "set_field:10.0.0.1->tun_dst",
            ])
            .to_string(),
        9..=12 => mpls(rng, kind),
        13..=15 => nsh(rng, kind),
        16 => format!(
            "sample(probability={},collector_set_id=1,obs_domain_id=2,obs_point_id=3{})",
            rng.pick(&[1, 32768, 65535]),
            rng.pick(&["", ",sampling_port=2", ",egress"])
        ),
        17 => format!("enqueue:{}:{}", port(rng), rng.below(3)),
        18 => rng
            .pick(&[
                "pop_queue",
                "dec_ttl(1,2)",
                "controller(userdata=01.02)",
                "controller(pause)",
                "controller(pause,userdata=01.02,id=3)",
                "controller(meter_id=1)",
                "exit",
            ])
            .to_string(),
        20..=22 => connections::action(rng, kind, table),
        19 => neighbour(rng, kind),
        _ => format!("clone(resubmit(,{}))", rng.below(u64::from(TABLES))),
    }
}

const FIELDS: [&str; 7] =
    ["eth_src", "symmetric_l4", "symmetric_l3l4", "symmetric_l3l4+udp", "symmetric_l3", "nw_src", "nw_dst"];

/// `multipath`, `bundle` and `bundle_load` with every hash and algorithm. Hashes of the switches differ on purpose. So a result
/// that rules read has one possible value. Any other is overwritten at once, or goes to register 9, which no rule reads; there
/// [`crate::intended`] accepts each possible value.
fn hashed(rng: &mut Rng) -> String {
    let fields = rng.pick(&FIELDS);
    let basis = *rng.pick(&[0, 1, 50]);
    match rng.below(3) {
        0 => {
            let algorithm = rng.pick(&["modulo_n", "hash_threshold", "hrw", "iter_hash"]);
            let start = rng.below(20);
            let bits = format!("[{start}..{}]", start + 7);
            let of = |links: u64, dest: &str| {
                format!("multipath({fields},{basis},{algorithm},{links},0,{dest}{bits})")
            };
            let links = rng.range(1, 8);
            match rng.below(3) {
                0 => of(1, &format!("NXM_NX_REG{}", rng.below(3))),
                1 => {
                    let dest = format!("NXM_NX_REG{}", rng.below(3));
                    format!("{},load:{}->{dest}{bits}", of(links, &dest), rng.below(links))
                }
                _ => format!("multipath({fields},{basis},{algorithm},{links},0,NXM_NX_REG9[0..15])"),
            }
        }
        1 => {
            let algorithm = rng.pick(&["hrw", "active_backup"]);
            let members = if *algorithm == "hrw" { one_alive(rng) } else { any_members(rng) };
            format!("bundle({fields},{basis},{algorithm},ofport,members:{members})")
        }
        _ => match rng.below(3) {
            0 => format!(
                "bundle_load({fields},{basis},hrw,ofport,NXM_NX_REG1[0..15],members:{})",
                one_alive(rng)
            ),
            1 => format!(
                "bundle_load({fields},{basis},active_backup,ofport,NXM_NX_REG1[0..15],members:{})",
                any_members(rng)
            ),
            _ => format!(
                "bundle_load({fields},{basis},hrw,ofport,NXM_NX_REG9[16..31],members:{})",
                any_members(rng)
            ),
        },
    }
}

fn any_members(rng: &mut Rng) -> String {
    let ports: Vec<String> = (0..rng.range(1, 4)).map(|_| port(rng).to_string()).collect();
    ports.join(",")
}

/// Members of which each bridge has at most one: any port at a random place among ports that do not exist.
fn one_alive(rng: &mut Rng) -> String {
    let mut ports: Vec<u64> = (0..rng.below(4)).map(|n| 50 + n).collect();
    let at = rng.below(ports.len() as u64 + 1) as usize;
    ports.insert(at, port(rng));
    ports.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

fn mpls(rng: &mut Rng, kind: &str) -> String {
    let change = |rng: &mut Rng| match rng.below(5) {
        0 => format!("set_mpls_label:{}", label(rng)),
        1 => format!("set_mpls_tc:{}", rng.below(8)),
        2 => format!("set_mpls_ttl:{}", rng.pick(&[0, 1, 64])),
        3 => format!("set_field:{}->mpls_label", label(rng)),
        _ => "dec_mpls_ttl".to_string(),
    };
    if kind == "mpls" {
        return match rng.below(5) {
            0 => format!("pop_mpls:{}", rng.pick(&["0x0800", "0x8847", "0x86dd", "0x1234"])),
            1 => "push_mpls:0x8847".to_string(),
            2 => format!("move:OXM_OF_MPLS_LABEL[0..15]->NXM_NX_REG{}[0..15]", rng.below(3)),
            _ => change(rng),
        };
    }
    let mut parts = vec![format!("push_mpls:{}", rng.pick(&["0x8847", "0x8848"]))];
    for _ in 0..rng.below(3) {
        parts.push(if rng.one_in(4) { "push_mpls:0x8847".to_string() } else { change(rng) });
    }
    match rng.below(3) {
        0 => parts.push(format!("output:{}", port(rng))),
        1 => parts.push(format!("output:{},pop_mpls:0x0800", port(rng))),
        _ => {}
    }
    parts.join(",")
}

fn nsh(rng: &mut Rng, kind: &str) -> String {
    let change = |rng: &mut Rng| match rng.below(5) {
        0 => format!("set_field:0x{:x}->nsh_spi", rng.range(1, 3)),
        1 => format!("set_field:{}->nsh_si", rng.pick(&[1, 255])),
        2 => format!("set_field:{}->nsh_ttl", rng.pick(&[1, 63])),
        3 => format!("set_field:0x{:x}->nsh_c{}", rng.below(4), rng.range(1, 4)),
        _ => "dec_nsh_ttl".to_string(),
    };
    if kind == "dl_type=0x894f" {
        return match rng.below(4) {
            0 => "decap(),decap()".to_string(),
            1 => format!("decap(),decap(),output:{}", port(rng)),
            _ => change(rng),
        };
    }
    let md = rng.pick(&["", "nsh(md_type=1)", "nsh(md_type=2)", "nsh(md_type=2,tlv(0x1000,10,0x12345678))"]);
    let mut parts = vec![format!("encap({})", if md.is_empty() { "nsh" } else { md })];
    for _ in 0..rng.below(3) {
        parts.push(change(rng));
    }
    if !rng.one_in(4) {
        parts.push("encap(ethernet)".to_string());
        parts.push(format!("set_field:{}->eth_dst", crate::rules::mac(rng)));
    }
    parts.push(format!("output:{}", port(rng)));
    if rng.one_in(3) {
        parts.push("decap()".to_string());
    }
    parts.join(",")
}

fn neighbour(rng: &mut Rng, kind: &str) -> String {
    match kind {
        "icmp6,icmp_type=135,icmp_code=0" => match rng.below(5) {
            0 => format!("set_field:{}->nd_reserved", rng.below(2)),
            1 => format!("set_field:{}->nd_options_type", rng.below(3)),
            2 => format!("set_field:{}->nd_target", crate::rules::ip6(rng)),
            3 => "move:ERICOXM_OF_ICMPV6_ND_RESERVED[]->NXM_NX_REG0[]".to_string(),
            _ => format!("set_field:{}->nd_sll", crate::rules::mac(rng)),
        },
        _ => format!("write_metadata:{}", rng.below(4)),
    }
}
