//! Faults that the simulator found, as named cases.

use super::Rig;

/// Found by the simulator: a flow that rewrote SCTP packets also took packets of protocol 0, which were not rewritten.
#[test]
fn headers_that_could_not_be_read_are_not_rewritten_and_masks_tell_them_apart() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(a, "ip actions=mod_nw_tos:40,2");
    let whole = "in_port=1,udp,nw_src=10.0.0.1,nw_tos=0,nw_ttl=64";
    let zero = "in_port=1,ip,nw_src=10.0.0.1,nw_tos=0,nw_ttl=64";
    let unread = "in_port=1,ip";
    let t = rig.check(whole, "ipv4(tos=0x28/0xfc),2", "recirc_id=0,eth,udp,in_port=1,nw_tos=0,nw_frag=no");
    let z = rig.acts(zero, "ipv4(tos=0x28/0xfc),2");
    let u = rig.acts(unread, "2");
    let unread = Rig::flow(unread);
    assert!(!unread.equal_under(&Rig::flow(whole), &t.wc) && !unread.equal_under(&Rig::flow(zero), &z.wc));
    assert!(!Rig::flow(whole).equal_under(&unread, &u.wc) && !Rig::flow(zero).equal_under(&unread, &u.wc));
    // What is matched anyway is enough.
    let rig = Rig::new();
    let rig = rig.rules(a, "ip,nw_src=10.0.0.0/8 actions=mod_nw_tos:40,2");
    let t = rig.acts(whole, "ipv4(tos=0x28/0xfc),2");
    assert!(Rig::flow(zero).equal_under(&Rig::flow(whole), &t.wc));
    rig.acts(zero, "ipv4(tos=0x28/0xfc),2");
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
