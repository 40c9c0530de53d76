//! Deliberate differences from `ovs-ofctl`, and input that it leaves to the switch.

use super::*;

#[test]
fn values_that_do_not_fit_are_refused_not_cut() {
    let table = "\
ip,ip_dscp=64\terror: 64: value does not fit into the 6 bits of ip_dscp
ip,nw_ecn=4\terror: 4: value does not fit into the 2 bits of nw_ecn
arp,arp_op=256\terror: 256: value does not fit into the 8 bits of arp_op
mpls,mpls_label=0x100000\terror: 0x100000: value does not fit into the 20 bits of mpls_label
dl_vlan_pcp=8\terror: 8: value does not fit into the 3 bits of dl_vlan_pcp
dl_vlan=8192\terror: 8192: value does not fit into the 12 bits of dl_vlan
ipv6,ipv6_label=0x100000\terror: 0x100000: value does not fit into the 20 bits of ipv6_label
ip,nw_src=300.1.1.1\terror: 300.1.1.1: invalid IP address
icmp,tp_src=256\terror: ICMP type and code must be below 256
reg0=\terror: field reg0 missing value
tcp=5\terror: unknown keyword tcp
dl_vlan=0x1005\tdl_vlan=5
ip,nw_tos=3\tip,nw_tos=0
vlan_vid=5\tvlan_tci=0x0005/0x1fff
packet_type=(2,5)\tpacket_type=(2,5)
skb_priority=5\tskb_priority=0x5
tun_tos=8,tun_ttl=4\ttun_tos=8,tun_ttl=4
tcp,tcp_flags=+[900]\ttcp,tcp_flags=+ns+[800]
";
    check(table, 18, matched);
}

#[test]
fn prerequisites_are_required() {
    let table = "\
nw_src=1.2.3.4\terror: prerequisites not met for setting nw_src: it needs ip
tp_dst=80\terror: prerequisites not met for setting tp_dst: it needs tcp or tcp6
ip,tp_dst=80\terror: prerequisites not met for setting tp_dst: it needs tcp or tcp6
tcp,icmp_type=8\terror: prerequisites not met for setting icmp_type: it needs icmp
ipv6,nw_src=1.2.3.4\terror: prerequisites not met for setting nw_src: it needs ip
udp,tcp_flags=syn\terror: prerequisites not met for setting tcp_flags: it needs tcp or tcp6
nd_target=::1\terror: prerequisites not met for setting nd_target: it needs icmp6 with icmp_type=135 or 136 and icmp_code=0
mpls_label=5\terror: prerequisites not met for setting mpls_label: it needs mpls or mplsm
packet_type=(1,0x800),dl_src=00:01:02:03:04:05\terror: prerequisites not met for setting dl_src: it needs an Ethernet packet
tp_dst=80,tcp\ttcp,tp_dst=80
tp_dst=*\t
udp,tcp_dst=80\tudp,tp_dst=80
ct_state=+trk+est,ct_nw_proto=6\tct_state=+est+trk,ct_nw_proto=6
ct_state=trk,ip,ct_nw_src=1.2.3.4\tct_state=trk,ct_nw_src=1.2.3.4,ip
ct_state=+trk+snat,ip,ct_nw_src=1.2.3.4\tct_state=+trk+snat,ct_nw_src=1.2.3.4,ip
ct_state=+trk+est,ip,ct_nw_proto=1,ct_tp_src=4\tct_state=+est+trk,ct_nw_proto=1,ct_tp_src=4,ip
ct_state=+trk+est,ct_nw_src=1.2.3.4\terror: prerequisites not met for setting ct_nw_src: it needs ip and ct_state=+trk with +new, +est, +rel or -inv
ct_state=+trk+inv,ip,ct_nw_src=1.2.3.4\terror: prerequisites not met for setting ct_nw_src: it needs ip and ct_state=+trk with +new, +est, +rel or -inv
ct_state=+trk-new,ip,ct_nw_proto=6\terror: prerequisites not met for setting ct_nw_proto: it needs ct_state=+trk with +new, +est, +rel or -inv
ct_state=+trk+est,ip,ct_tp_src=4\terror: prerequisites not met for setting ct_tp_src: it needs ct_nw_proto and ct_state=+trk with +new, +est, +rel or -inv
";
    check(table, 20, matched);
}

#[test]
fn normalizing_drops_excluded_fields() {
    let table = "\
nw_src=1.2.3.4\t
tp_dst=80\t
ip,tp_src=5\tip
nd_target=fe80::1\t
nw_proto=6\t
tcp,tp_dst=80\ttcp,tp_dst=80
packet_type=(1,0x800),dl_src=00:01:02:03:04:05\tpacket_type=(1,0x800)
";
    check(table, 7, |text| {
        format_match(&normalize(&parse_match_unchecked(text, &NoPortNames).unwrap()), None)
    });
}
