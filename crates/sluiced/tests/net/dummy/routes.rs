//! Routes, neighbours and ports of tunnels in user space, by command.
//!
//! Answers are those of OVS 3.1 in dummy mode, except where 3.5 differs: errors of `ovs/route/add`, `src=`, several
//! addresses of a dummy, and their local routes.

use super::Lab;
use super::texts::session;
use crate::helpers::{appctl_output, spec, vsctl};
use serde_json::{Value, json};
use testkit::{Netns, require_netns, require_programs};

const OK: &str = "OK\n";
const INVALID: &str = "Invalid parameters";

/// Runs commands in order; an answer without a line's end is an error's.
fn check(lab: &Lab, table: &[(&str, &str)]) {
    for (line, expected) in table {
        let out = appctl_output(&lab.daemon, line);
        let answer = match out.status.code() {
            Some(0) => out.stdout,
            _ => out.stderr.lines().next().unwrap_or_default().to_string(),
        };
        assert_eq!(answer, *expected, "{line}");
    }
}

fn lab() -> Lab {
    let netns = Netns::new("dummy").unwrap();
    let daemon = spec(&netns).args(["--enable-dummy", "--disable-system-route"]).start().unwrap();
    let lab = Lab { _netns: netns, daemon };
    vsctl(
        &lab.daemon,
        "add-br br0 -- set Bridge br0 datapath_type=dummy other-config:hwaddr=aa:55:aa:55:00:00 \
         -- add-port br0 p0 -- set Interface p0 type=dummy",
    );
    lab
}

const ADDRESSES: &[(&str, &str)] = &[
    ("netdev-dummy/ip4addr br0 x", "x: invalid IP address"),
    (
        "netdev-dummy/ip4addr br0 1.1.2.89/40",
        "1.1.2.89/40: IPv4 network prefix bits not between 0 and 32, inclusive",
    ),
    ("netdev-dummy/ip4addr nope 1.1.2.89/24", "Unknown Dummy Interface"),
    ("netdev-dummy/ip6addr br0 x", "x: invalid IPv6 address"),
    ("netdev-dummy/ip6addr nope 2001:cafe::88", "Unknown Dummy Interface"),
    ("ovs/route/show", "Route Table:\n"),
    ("netdev-dummy/ip4addr br0 1.1.2.88/24", OK),
    ("netdev-dummy/ip4addr br0 1.1.2.89/24", OK),
    ("netdev-dummy/ip6addr br0 2001:cafe::88/64", OK),
];

const ROUTES: &[(&str, &str)] = &[
    ("ovs/route/add", "\"ovs/route/add\" command requires at least 2 arguments"),
    ("ovs/route/add 1 br0", "Invalid 'ip/plen' parameter"),
    ("ovs/route/add 1.1.1.1/33 br0", "Invalid 'ip/plen' parameter"),
    ("ovs/route/add 1.1.1.1/24x br0", "Invalid 'ip/plen' parameter"),
    ("ovs/route/add 1.1.2.92/255.0.255.0 br0", "Invalid 'ip/plen' parameter"),
    ("ovs/route/add 1.1.1.1 br0", "Error while inserting route."),
    ("ovs/route/add 1.1.2.92/24 br0 1.1.2.1x", "Invalid pkt_mark, IP gateway or src_ip"),
    ("ovs/route/add 1.1.2.92/24 br0 pkt_mark=", "Invalid pkt_mark, IP gateway or src_ip"),
    ("ovs/route/add 2001:db9::/32 br0 1.1.2.1", "Invalid pkt_mark, IP gateway or src_ip"),
    ("ovs/route/add 1.1.2.92/24 br0", OK),
    ("ovs/route/add 1.1.2.92/255.255.255.0 br0", OK),
    ("ovs/route/add 1.1.2.92/24 br0 pkt_mark=0x10", OK),
    ("ovs/route/add 1.1.2.92/24 br0 pkt_mark=-1", OK),
    ("ovs/route/add 1.1.2.92/24 br0 pkt_mark=12junk", OK),
    ("ovs/route/add 9.9.9.0/24 br0 1.1.2.1", OK),
    ("ovs/route/add 9.9.8.0/24 br0 9.9.9.1", "Error while inserting route."),
    ("ovs/route/add 9.9.7.0/24 br0 src=1.1.2.89", "Error while inserting route."),
    ("ovs/route/add 9.9.7.0/24 br0 1.1.2.1 src=1.1.2.89", OK),
    ("ovs/route/add 9.9.6.0/24 br0 1.1.2.1 src=1.1.2.99", "Error while inserting route."),
    ("ovs/route/add 9.9.9.0/24 br0 0.0.0.0", "Error while inserting route."),
    ("ovs/route/add 9.9.5.0/24 nodev 1.1.2.1", "Error while inserting route."),
    ("ovs/route/add 1.1.2.0/24 p0", "Error while inserting route."),
    ("ovs/route/add 2001:db8::/32 br0 2001:cafe::1", OK),
    ("ovs/route/add 2001:db7::/32 br0 fe80::1", "Error while inserting route."),
    ("ovs/route/add 2001:cafe::92/64 br0", OK),
    ("ovs/route/add 5.5.5.5/0 br0 1.1.2.1", OK),
    ("ovs/route/add ::ffff:1.1.2.0/121 br0", OK),
    (
        "ovs/route/show",
        "Route Table:\n\
         Cached: 1.1.2.0/24 dev br0 SRC 1.1.2.89 local\n\
         Cached: 2001:cafe::/64 dev br0 SRC 2001:cafe::88 local\n\
         User: 0.0.0.0/0 dev br0 GW 1.1.2.1 SRC 1.1.2.88\n\
         User: 1.1.2.0/24 dev br0 SRC 1.1.2.88\n\
         User: 1.1.2.0/25 dev br0 SRC 1.1.2.88\n\
         User: 9.9.7.0/24 dev br0 GW 1.1.2.1 SRC 1.1.2.89\n\
         User: 9.9.9.0/24 dev br0 GW 1.1.2.1 SRC 1.1.2.88\n\
         User: 2001:db8::/32 dev br0 GW 2001:cafe::1 SRC 2001:cafe::88\n\
         User: 2001:cafe::/64 dev br0 SRC 2001:cafe::88\n\
         User: 1.1.2.0/24 MARK 12 dev br0 SRC 1.1.2.88\n\
         User: 1.1.2.0/24 MARK 16 dev br0 SRC 1.1.2.88\n\
         User: 1.1.2.0/24 MARK 4294967295 dev br0 SRC 1.1.2.88\n",
    ),
    ("ovs/route/show table=77", "Table 'table=77' not found"),
    ("ovs/route/show x", "Invalid table format"),
    ("ovs/route/lookup", "\"ovs/route/lookup\" command requires at least 1 arguments"),
    ("ovs/route/lookup x", INVALID),
    ("ovs/route/lookup 1.1.2.92/24", INVALID),
    ("ovs/route/lookup 1.1.2.92 foo", "Invalid pkt_mark"),
    ("ovs/route/lookup 1.1.2.92 pkt_mark=16", "src 1.1.2.88\ngateway ::\ndev br0\n"),
    ("ovs/route/lookup 1.1.2.92 pkt_mark=8", "Not found"),
    ("ovs/route/lookup 9.9.9.5", "src 1.1.2.88\ngateway 1.1.2.1\ndev br0\n"),
    ("ovs/route/lookup 9.9.7.5", "src 1.1.2.89\ngateway 1.1.2.1\ndev br0\n"),
    ("ovs/route/lookup 8.8.8.8/32", "src 1.1.2.88\ngateway 1.1.2.1\ndev br0\n"),
    ("ovs/route/lookup 2001:cafe::5", "src 2001:cafe::88\ngateway ::\ndev br0\n"),
    ("ovs/route/lookup 2001:db8::1", "src 2001:cafe::88\ngateway 2001:cafe::1\ndev br0\n"),
    ("ovs/route/lookup fe80::1", "Not found"),
    ("ovs/route/del x", INVALID),
    ("ovs/route/del 1.1.2.92/24 foo", "Invalid pkt_mark"),
    ("ovs/route/del 1.1.2.92/24", OK),
    ("ovs/route/del 1.1.2.92/24", "Not found"),
    ("ovs/route/del 1.1.2.1/24 pkt_mark=16", OK),
    ("ovs/route/del 2001:cafe::/64", OK),
];

#[test]
fn routes_are_added_found_and_removed() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = lab();
    check(&lab, ADDRESSES);
    check(&lab, ROUTES);
    // Routes by command outlive their device; the local ones end with it.
    vsctl(&lab.daemon, "del-br br0");
    check(
        &lab,
        &[
            ("ovs/route/lookup 9.9.9.5", "src 1.1.2.88\ngateway 1.1.2.1\ndev br0\n"),
            ("ovs/route/lookup 2001:cafe::5", "Not found"),
        ],
    );
}

const TITLE: &str = "IP                                            MAC                 Bridge\n\
    ==========================================================================\n";

#[test]
fn neighbours_are_set_shown_and_expire() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = lab();
    let one = format!("{TITLE}1.1.2.92                                      f8:bc:12:44:34:b6   br0\n");
    let all = format!(
        "{TITLE}\
         1.1.2.92                                      f8:bc:12:44:34:b6   br0\n\
         1.1.2.92                                      00:01:02:03:04:05   nope\n\
         1.2.3.4                                       f8:bc:12:44:34:b9   averyveryverylo\n\
         2001:cafe:1111:2222:3333:4444:5555:6666       f8:bc:12:44:34:b8   br0\n"
    );
    for family in ["arp", "neigh"] {
        let table: &[(&str, &str)] = &[
            ("show", TITLE),
            ("show x", "\"NAME\" command takes at most 0 arguments"),
            ("set", "\"NAME\" command requires at least 3 arguments"),
            ("set br0 x y", "bad IP address"),
            ("set br0 1.1.2 f8:bc:12:44:34:b9", "bad IP address"),
            ("set br0 localhost f8:bc:12:44:34:b9", "bad IP address"),
            ("set br0 1.1.2.92 y", "bad MAC address"),
            ("set br0 1.1.2.92 f8:bc:12:44:34:b6x", "bad MAC address"),
            ("set br0 1.1.2.92 f8-bc-12-44-34-b6", "bad MAC address"),
            ("set br0 1.1.2.92 f8:bc:12:44:34:b6", OK),
            ("set nope 1.1.2.92 0:1:2:3:4:5", OK),
            ("set br0 2001:cafe:1111:2222:3333:4444:5555:6666 f8:bc:12:44:34:b8", OK),
            ("set averyveryverylongname 1.2.3.4 f8:bc:12:44:34:b9", OK),
            ("aging 0", "bad aging value"),
            ("aging 3601", "bad aging value"),
            ("aging x", "bad aging value"),
            ("aging -5", "bad aging value"),
            ("aging 3600", OK),
            ("aging 10x", OK),
            ("aging", "10\n"),
            ("show", &all),
            ("flush x", "\"NAME\" command takes at most 0 arguments"),
            ("flush", OK),
        ];
        for (line, expected) in table {
            let name = format!("tnl/{family}/{line}");
            let command = name.split(' ').next().unwrap();
            check(&lab, &[(&name, &expected.replace("NAME", command))]);
        }
    }
    // Output of OVS 4.0.
    check(
        &lab,
        &[
            ("tnl/neigh/retrans_time", "1000\n"),
            ("tnl/neigh/retrans_time 50", OK),
            ("tnl/neigh/retrans_time", "50\n"),
            ("tnl/neigh/retrans_time 0", "0: not a time of 1 to 3600000 milliseconds"),
            ("tnl/neigh/retrans_time 5x", "5x: not a time of 1 to 3600000 milliseconds"),
            ("tnl/neigh/retrans_time 1000", OK),
        ],
    );
    check(
        &lab,
        &[
            ("time/stop", ""),
            ("tnl/arp/set br0 1.1.2.92 f8:bc:12:44:34:b6", OK),
            ("time/warp 9999 9999", "warped\n"),
            ("tnl/neigh/show", &one),
            ("time/warp 1 1", "warped\n"),
            ("tnl/neigh/show", TITLE),
        ],
    );
}

#[test]
fn ports_of_tunnels_are_shown_and_set() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = lab();
    check(
        &lab,
        &[
            ("tnl/ports/show", "Listening ports:\n"),
            ("tnl/ports/show -V", "Listening ports:\n"),
            ("tnl/ports/show x", "Listening ports:\n"),
            ("tnl/ports/show -v y", "\"tnl/ports/show\" command takes at most 1 arguments"),
            ("tnl/egress_port_range", "Tunnel UDP source port range: 32768-61000\n"),
            ("tnl/egress_port_range 1", "Tunnel UDP source port range: 32768-61000\n"),
            ("tnl/egress_port_range 2 1", OK),
            ("tnl/egress_port_range", "Tunnel UDP source port range: 1-2\n"),
            ("tnl/egress_port_range 0 1", "Invalid min.\n"),
            ("tnl/egress_port_range x 5", "Invalid min.\n"),
            ("tnl/egress_port_range 65536 9", "Invalid min.\n"),
            ("tnl/egress_port_range 1 65536", "Invalid max.\n"),
            ("tnl/egress_port_range 3 9x", OK),
            ("tnl/egress_port_range", "Tunnel UDP source port range: 3-9\n"),
        ],
    );
}

/// As OVS 4.0.
#[test]
fn routes_and_rules_have_json() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = lab();
    check(
        &lab,
        &[
            ("netdev-dummy/ip4addr br0 1.1.2.88/24", OK),
            ("netdev-dummy/ip6addr br0 2001:cafe::88/64", OK),
            ("ovs/route/add 9.9.9.0/24 br0 1.1.2.1 pkt_mark=16", OK),
            (
                "ovs/route/rule/show",
                "Cached: 0: from all lookup local\nCached: 32766: from all lookup main\n\
                 Cached: 32767: from all lookup default\n",
            ),
            (
                "ovs/route/rule/show -6",
                "Cached: 0: from all lookup local\nCached: 32766: from all lookup main\n",
            ),
            ("ovs/route/rule/show x", "x: unknown option; use -6 or none"),
        ],
    );
    let as_json = |name: &str, args: &[&str]| -> Value {
        session(&lab, &[("set-options", &["--format", "json"]), (name, args)]).pop().unwrap().unwrap()
    };
    let local = |dst: &str, prefix: u8, prefsrc: &str| {
        json!({ "dst": dst, "prefix": prefix, "local": true, "nexthops": [{ "dev": "br0" }], "prefsrc": prefsrc,
            "table": 255, "user": false })
    };
    let user = json!({ "dst": "9.9.9.0", "prefix": 24, "local": false, "mark": 16, "prefsrc": "1.1.2.88",
        "nexthops": [{ "dev": "br0", "gateway": "1.1.2.1" }], "table": 254, "user": true });
    let locals = [local("1.1.2.0", 24, "1.1.2.88"), local("2001:cafe::", 64, "2001:cafe::88")];
    assert_eq!(as_json("ovs/route/show", &[]), json!([locals[0], locals[1], user]));
    assert_eq!(as_json("ovs/route/show", &["table=254"]), json!([user]));
    let rule = |priority: u32, lookup: u32, ipv4: bool| {
        json!({ "priority": priority, "user": false, "invert": false, "ipv4": ipv4, "src-prefix": 0, "from": "all",
            "lookup": lookup })
    };
    let rules = json!([rule(0, 255, true), rule(32766, 254, true), rule(32767, 253, true)]);
    assert_eq!(as_json("ovs/route/rule/show", &[]), rules);
    assert_eq!(
        as_json("ovs/route/rule/show", &["-6"]),
        json!([rule(0, 255, false), rule(32766, 254, false)])
    );
}

/// A thread prints long lists, in parts.
#[test]
fn long_lists_of_routes_are_whole_as_text_and_as_json() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = lab();
    check(&lab, &[("netdev-dummy/ip4addr br0 1.1.2.88/24", OK)]);
    let networks: Vec<String> = (0..2000).map(|n| format!("9.{}.{}.0/24", n / 250, n % 250)).collect();
    let args: Vec<[&str; 3]> = networks.iter().map(|network| [network, "br0", "1.1.2.1"]).collect();
    let adds: Vec<(&str, &[&str])> = args.iter().map(|args| ("ovs/route/add", &args[..])).collect();
    assert!(session(&lab, &adds).iter().all(|answer| *answer == Ok(json!(OK))));
    let answers = session(
        &lab,
        &[
            ("ovs/route/show", &["table=254"]),
            ("set-options", &["--format", "json"]),
            ("ovs/route/show", &["table=254"]),
            // The connection goes on.
            ("version", &[]),
        ],
    );
    let text = answers[0].as_ref().unwrap().as_str().unwrap();
    let lines = text.lines().skip(1).filter_map(|line| line.split(' ').nth(1)).map(String::from);
    let listed = answers[2].as_ref().unwrap().as_array().unwrap();
    let objects =
        listed.iter().map(|route| format!("{}/{}", route["dst"].as_str().unwrap(), route["prefix"]));
    assert_eq!(lines.collect::<Vec<_>>(), networks);
    assert_eq!(objects.collect::<Vec<_>>(), networks);
    assert_eq!(answers[3].as_ref().unwrap()["reply-format"], "plain");
}
