//! `Flow_Table.prefixes`: address bits that a lookup adds to a megaflow.

use super::Lab;
use crate::helpers::vsctl;
use testkit::{require_netns, require_programs};

const RULES: [&str; 5] = [
    "priority=10,ipv6,ipv6_dst=2001:db8::/32,actions=drop",
    "priority=9,ipv6,ipv6_dst=2001:db9:1::1,actions=drop",
    "priority=8,ip,nw_dst=10.1.0.0/16,actions=drop",
    "priority=7,ip,nw_src=10.2.3.4,actions=drop",
    "priority=0,actions=drop",
];

const IPV4: &str = "in_port=1,tcp,nw_dst=192.168.0.1,nw_src=11.0.0.1";
const IPV6: &str = "in_port=1,tcp6,ipv6_dst=3001::2,ipv6_src=fe80::1";

/// The megaflow in `ofproto/trace` without the fields common to all packets.
fn looked_at(lab: &Lab, packet: &str) -> String {
    let story = lab.appctl(&format!("ofproto/trace br0 {packet}"));
    let line = story.lines().find_map(|line| line.strip_prefix("Megaflow: recirc_id=0,eth,"));
    let line = line.unwrap_or_else(|| panic!("no megaflow in\n{story}"));
    line.replace("ipv6,in_port=1,", "").replace("ip,in_port=1,", "").replace(",nw_frag=no", "")
}

#[test]
fn megaflows_follow_the_prefixes_of_a_table() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    RULES.iter().for_each(|rule| drop(lab.ofctl(&["add-flow", "br0", rule])));
    // As in Open vSwitch 3.1 with the same prefixes; with all four, as in 3.5 by default.
    let by_default = ("nw_src=11.0.0.0/8,nw_dst=128.0.0.0/1", "ipv6_dst=3000::/4");
    let check = |(of_ipv4, of_ipv6): (&str, &str), what: &str| {
        assert_eq!((&*looked_at(&lab, IPV4), &*looked_at(&lab, IPV6)), (of_ipv4, of_ipv6), "{what}");
    };
    check(by_default, "no row");
    for (prefixes, expected) in [
        ("ip_dst,ip_src", ("nw_src=11.0.0.0/8,nw_dst=128.0.0.0/1", "ipv6_dst=3001::2")),
        ("ip_dst,ip_src,ipv6_dst", by_default),
        ("ipv6_dst", ("nw_src=11.0.0.1,nw_dst=192.168.0.0/16", "ipv6_dst=3000::/4")),
        ("none", ("nw_src=11.0.0.1,nw_dst=192.168.0.0/16", "ipv6_dst=3001::2")),
        ("nw_src", ("nw_src=11.0.0.0/8,nw_dst=192.168.0.0/16", "ipv6_dst=3001::2")),
        ("bogus", by_default),
    ] {
        let row = "-- --id=@t create Flow_Table prefixes";
        vsctl(&lab.daemon, &format!("set Bridge br0 flow_tables:0=@t {row}={prefixes}"));
        check(expected, prefixes);
    }
    let status = vsctl(&lab.daemon, "get Bridge br0 status:notice");
    assert_eq!(status, "\"'prefixes' with unknown field: bogus\"");
    vsctl(&lab.daemon, "clear Bridge br0 flow_tables");
    check(by_default, "no row again");
    assert_eq!(vsctl(&lab.daemon, "--if-exists get Bridge br0 status:notice"), "");
}
