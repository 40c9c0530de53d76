//! `bundle` and `bundle_load`. Expectations are those of `ofproto/trace` of OVS 3.1.

use super::*;

const UDP: &str = "in_port=1,udp";

/// A rig whose ports in `down` have no link.
fn rig(down: &[u32]) -> Rig {
    let rig = Rig::new();
    let view = rig.backer.view();
    let mut ports = view.bridge(rig.a).expect("made by the rig").ports.as_ref().clone();
    for n in down.iter().copied().map(OfPort) {
        let port = Port { link_down: true, ..ports.port(n).expect("made by the rig").as_ref().clone() };
        ports.ports.insert(n, Arc::new(port));
    }
    rig.backer.set_ports(rig.a, ports);
    rig
}

#[test]
fn packets_go_to_a_live_member() {
    let plain = "eth,ip,in_port=1,nw_frag=no";
    let hashed = "eth,udp,in_port=1,nw_src=0.0.0.0,nw_dst=0.0.0.0,nw_frag=no";
    for (down, rules, actions, megaflow) in [
        (&[][..], "bundle(symmetric_l3l4,60,active_backup,ofport,members:7,2,3)", "2", plain),
        (&[2], "bundle(symmetric_l3l4,60,active_backup,ofport,members:7,2,3)", "3", plain),
        (&[2, 3], "bundle(symmetric_l3l4,60,active_backup,ofport,members:2,3)", "drop", plain),
        (&[2], "bundle(symmetric_l3l4,60,active_backup,ofport,members:2,IN_PORT,3)", "1", plain),
        // The input port, and no port at all.
        (&[], "bundle(symmetric_l3l4,60,active_backup,ofport,members:1,2)", "drop", plain),
        (&[], "bundle(symmetric_l3l4,60,active_backup,ofport,members:ANY,2)", "drop", plain),
        (&[], "bundle(symmetric_l3l4,60,active_backup,ofport,members:)", "drop", plain),
        (&[2, 3], "bundle(symmetric_l3l4,60,hrw,ofport,members:2,3,4)", "4", hashed),
        // Nothing is chosen.
        (&[], "bundle(symmetric_l3l4,60,hrw,ofport,members:2)", "2", plain),
        (&[2, 3, 4], "bundle(symmetric_l3l4,60,hrw,ofport,members:2,3,4)", "drop", hashed),
        (&[2], "bundle_load(eth_src,0,active_backup,ofport,reg0[],members:2,3),output:reg0[]", "3", plain),
        (
            &[2],
            "bundle_load(eth_src,0,active_backup,ofport,NXM_NX_REG0[3..20],members:2,4),output:NXM_NX_REG0[3..20]",
            "4",
            plain,
        ),
    ] {
        let rig = rig(down);
        let a = rig.a;
        rig.rules(a, &format!("actions={rules}")).check(UDP, actions, &format!("recirc_id=0,{megaflow}"));
    }
}

#[test]
fn a_loaded_port_is_traced() {
    let rig = rig(&[2, 3]);
    let a = rig.a;
    let bundle = "bundle_load(eth_src,0,hrw,ofport,NXM_NX_REG0[16..31],members:2,3)";
    let rig = rig.rules(a, &format!("actions={bundle}"));
    assert_eq!(rig.acts(UDP, "drop").final_flow.regs[0], 0xffff_0000);
    let lines = stories::story(&rig, UDP, false);
    assert_eq!(lines[1..3], [format!("    {bundle}"), "     -> NXM_NX_REG0[16..31] is now 0xffff".into()]);
}
