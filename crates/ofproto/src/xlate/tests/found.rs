//! Regressions found by the simulator, as named cases.

use super::Rig;

/// Found by the simulator: a flow that rewrote SCTP packets also took packets of protocol 0, which were not rewritten.
#[test]
fn unreadable_headers_are_not_rewritten_and_masks_distinguish_them() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(a, "ip actions=mod_nw_tos:40,2");
    let whole = "in_port=1,udp,nw_src=10.0.0.1,nw_tos=0,nw_ttl=64";
    let zero = "in_port=1,ip,nw_src=10.0.0.1,nw_tos=0,nw_ttl=64";
    let unread = "in_port=1,ip";
    let t = rig.check(whole, "ipv4(tos=0x28/0xfc),2", "recirc_id=0,eth,udp,in_port=1,nw_tos=0,nw_frag=no");
    for without_protocol in [zero, unread] {
        let u = rig.acts(without_protocol, "2");
        let (flow, whole) = (Rig::flow(without_protocol), Rig::flow(whole));
        assert!(!flow.equal_under(&whole, &t.wc) && !whole.equal_under(&flow, &u.wc));
    }
}

/// Found by the simulator: replacing rules of another cookie, a learner went beyond its limit.
#[test]
fn rules_of_another_cookie_do_not_excuse_from_the_limit() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "table=1,priority=32768,dl_dst=02:00:00:00:00:05,actions=drop
         table=1,priority=32768,dl_dst=02:00:00:00:00:06,actions=drop
         actions=learn(table=1,limit=1,cookie=7,result_dst=reg0[0],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),resubmit(,2)
         table=2,reg0=1 actions=2
         table=2,reg0=0 actions=3",
    );
    rig.acts("in_port=1,arp,dl_src=02:00:00:00:00:05", "2");
    rig.acts("in_port=1,arp,dl_src=02:00:00:00:00:06", "3");
    rig.acts("in_port=1,arp,dl_src=02:00:00:00:00:05", "2");
}
