//! Masks of `multipath` actions. Expectations are those of `ofproto/trace` of OVS 3.1.

use super::*;

const TCP4: &str = "in_port=1,tcp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,nw_src=1.1.1.1,nw_dst=2.2.2.2,tp_src=1,tp_dst=2";
const UDP6: &str = "in_port=1,udp6";
const FIRST: &str = "in_port=1,ip,nw_frag=first,nw_proto=6";

#[test]
fn megaflows_match_the_hashed_fields() {
    let macs = "dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02";
    let no_macs = "dl_src=00:00:00:00:00:00,dl_dst=00:00:00:00:00:00";
    let ips = "nw_src=1.1.1.1,nw_dst=2.2.2.2";
    for (fields, packet, megaflow) in [
        ("eth_src", TCP4, "eth,ip,in_port=1,dl_src=02:00:00:00:00:01,nw_frag=no".to_string()),
        ("symmetric_l4", TCP4, format!("eth,tcp,in_port=1,{macs},{ips},nw_frag=no,tp_src=1,tp_dst=2")),
        ("symmetric_l4", UDP6, format!("eth,udp6,in_port=1,{no_macs},ipv6_src=::,ipv6_dst=::,nw_frag=no")),
        ("symmetric_l3l4", TCP4, format!("eth,tcp,in_port=1,{ips},nw_frag=no,tp_src=1,tp_dst=2")),
        ("symmetric_l3l4", UDP6, "eth,udp6,in_port=1,ipv6_src=::,ipv6_dst=::,nw_frag=no".to_string()),
        (
            "symmetric_l3l4",
            FIRST,
            "eth,tcp,in_port=1,nw_src=0.0.0.0,nw_dst=0.0.0.0,nw_frag=first".to_string(),
        ),
        ("symmetric_l3l4", "in_port=1,arp", "eth,arp,in_port=1".to_string()),
        (
            "symmetric_l3l4+udp",
            UDP6,
            "eth,udp6,in_port=1,ipv6_src=::,ipv6_dst=::,nw_frag=no,tp_src=0,tp_dst=0".to_string(),
        ),
        ("nw_src", TCP4, "eth,ip,in_port=1,nw_src=1.1.1.1,nw_frag=no".to_string()),
        ("nw_dst", UDP6, "eth,ipv6,in_port=1,ipv6_dst=::,nw_frag=no".to_string()),
        ("symmetric_l3", TCP4, format!("eth,ip,in_port=1,{ips},nw_frag=no")),
    ] {
        let rig = Rig::new();
        let a = rig.a;
        let rules = format!("actions=multipath({fields},50,modulo_n,1,0,NXM_NX_REG0[0..1]),2");
        rig.rules(a, &rules).check(packet, "2", &format!("recirc_id=0,{megaflow}"));
    }
}
