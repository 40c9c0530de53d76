//! Headers that a dummy datapath leaves to the slow path.

use super::{FROM_5_TO_7, Lab};
use testkit::{require_netns, require_programs};

/// Rules, packets, and actions: with OVS 3.5 such flows have the same ones.
#[test]
fn headers_of_arp_nd_and_icmp_are_set_in_the_slow_path() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let nd = "eth_type(0x86dd),ipv6(proto=58,hlimit=255,frag=no),icmpv6(type=135,code=0),nd(target=fe80::1)";
    for (rule, set, packet) in [
        (
            "arp,actions=load:2->NXM_OF_ARP_OP[],2",
            "set(arp(op=2))",
            "eth_type(0x0806),arp(sip=1.1.1.1,tip=2.2.2.2,op=1)",
        ),
        (
            "icmp,actions=load:1->NXM_OF_ICMP_TYPE[],2",
            "set(icmp(type=1,code=0))",
            "eth_type(0x0800),ipv4(proto=1,frag=no),icmp(type=8,code=0)",
        ),
        (
            "icmp6,icmp_type=135,actions=load:2->NXM_NX_ND_TARGET[0..63],2",
            "set(nd(target=::2/::ffff:ffff:ffff:ffff))",
            nd,
        ),
    ] {
        lab.ofctl(&["del-flows", "br0"]);
        lab.ofctl(&["add-flow", "br0", rule]);
        lab.appctl("dpctl/del-flows");
        let packet = format!("in_port(1),{FROM_5_TO_7},{packet}");
        let trace = lab.appctl(&format!("ofproto/trace ovs-dummy {packet}"));
        assert!(trace.contains(&format!("Datapath actions: {set},2\n")), "{trace}");
        assert!(trace.contains("\n  - Uses action(s) not supported by datapath."), "{trace}");
        (0..3).for_each(|_| lab.receive("p1", &packet));
        let flows = lab.appctl("dpctl/dump-flows");
        assert!(
            flows.contains("packets:2,") && flows.contains("userspace(pid=0,slow_path(action))"),
            "{flows}"
        );
    }
    // Each packet leaves, those of the slow path too.
    assert!(lab.appctl("dpctl/show -s").contains("TX packets:9 "));
}
