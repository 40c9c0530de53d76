//! Tunnels of further kinds in user space. Expectations are those of `ofproto/trace` of OVS 3.1, except where noted.

use super::native::{Native, PLAIN, UDP, config};
use super::stories::story;
use crate::tunnel::{ErspanOptions, TunnelConfig, TunnelKey, TunnelKind};

const ETH: &str = "eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800)";
const ETH6: &str = "eth(dst=f8:bc:12:44:34:b7,src=aa:55:aa:55:00:00,dl_type=0x86dd)";

/// A push: size, type, protocol, and what follows the IP header; over IPv6 if the type is one of it.
fn push(port: u32, size: usize, kind: u32, proto: u8, rest: &str) -> String {
    let headers = match kind {
        108 => format!(
            "{ETH6},ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto={proto},tclass=0x0,hlimit=64)"
        ),
        _ => format!("{ETH},ipv4(src=1.1.2.88,dst=1.1.2.92,proto={proto},tos=0,ttl=64,frag=0x4000)"),
    };
    format!("tnl_push(tnl_port({port}),header(size={size},type={kind},{headers},{rest}),out_port(100)),11,12")
}

fn erspan(kind: TunnelKind, key: TunnelKey, options: ErspanOptions) -> TunnelConfig {
    let remote = if kind == TunnelKind::Erspan { "1.1.2.92" } else { "2001:cafe::92" };
    let mut config = config(kind, remote, key);
    config.of_kind.erspan = options;
    config
}

#[test]
fn erspan_headers_have_the_fields_of_options_or_of_rules() {
    let fixed = ErspanOptions { ver: Some(1), idx: Some(3), ..ErspanOptions::default() };
    let second = ErspanOptions { ver: Some(2), dir: Some(1), hwid: Some(7), ..ErspanOptions::default() };
    let of_rules = ErspanOptions { ver: None, idx: Some(9), dir: None, hwid: None };
    let key = TunnelKey::Value(1);
    let native = |actions: &str| {
        let tunnels = [
            (20, 30, erspan(TunnelKind::Erspan, key, fixed)),
            (21, 30, erspan(TunnelKind::Erspan, TunnelKey::Value(2), second)),
            (22, 30, erspan(TunnelKind::Erspan, TunnelKey::Flow, of_rules)),
            (23, 31, erspan(TunnelKind::Ip6erspan, key, second)),
            (24, 30, erspan(TunnelKind::Erspan, TunnelKey::Value(5), ErspanOptions::default())),
        ];
        Native::with(&tunnels).rules(&format!("actions={actions}"))
    };
    for (actions, expected) in [
        ("20", push(30, 50, 107, 47, "erspan(ver=1,sid=0x1,idx=0x3)")),
        ("21", push(30, 54, 107, 47, "erspan(ver=2,sid=0x2,dir=1,hwid=0x7)")),
        ("23", push(31, 74, 108, 47, "erspan(ver=2,sid=0x1,dir=1,hwid=0x7)")),
        (
            "set_field:5->tun_id,set_field:1->tun_erspan_ver,set_field:0x1234->tun_erspan_idx,22",
            push(30, 50, 107, 47, "erspan(ver=1,sid=0x5,idx=0x1234)"),
        ),
        (
            "set_field:0x3ff->tun_id,set_field:2->tun_erspan_ver,set_field:1->tun_erspan_dir,set_field:0x15->tun_erspan_hwid,22",
            push(30, 54, 107, 47, "erspan(ver=2,sid=0x3ff,dir=1,hwid=0x15)"),
        ),
        // A session id of 11 bits, another version, none at all.
        ("set_field:0x400->tun_id,set_field:1->tun_erspan_ver,22,2", "2".to_string()),
        ("set_field:5->tun_erspan_ver,22,2", "2".to_string()),
        ("24,2", "2".to_string()),
    ] {
        native(actions).check(UDP, &expected, PLAIN);
    }
    let told = story(&native("24").rig, UDP, false);
    assert_eq!(told.last().map(String::as_str), Some("     >> native tunnel header build failed"));
}
