//! Truncated outputs. Expectations are those of `ofproto/trace` of OVS 3.1.

use super::*;

#[test]
fn only_ports_with_a_device_get_truncated_packets() {
    for (rules, actions) in [
        ("actions=output(port=2,max_len=64)", "trunc(64),2"),
        ("actions=output(port=2,max_len=64),3", "trunc(64),2,3"),
        // The input port, a patch port, a port that does not exist.
        ("actions=output(port=1,max_len=64)", "drop"),
        ("actions=output(port=in_port,max_len=64)", "drop"),
        ("actions=output(port=9,max_len=64),2", "2"),
        ("actions=output(port=7,max_len=64),2", "2"),
    ] {
        let rig = Rig::new();
        let a = rig.a;
        rig.rules(a, rules).check(TCP, actions, "recirc_id=0,eth,ip,in_port=1,nw_frag=no");
    }
}

#[test]
fn a_truncation_without_output_does_not_reach_the_next_output() {
    let rig = Rig::new();
    let (a, view) = (rig.a, rig.backer.view());
    let mut ports = view.bridge(a).expect("made by the rig").ports.as_ref().clone();
    let silent = PortConfigBits { no_fwd: true, ..PortConfigBits::default() };
    let port = Port { config: silent, ..ports.port(OfPort(2)).expect("made by the rig").as_ref().clone() };
    ports.ports.insert(OfPort(2), Arc::new(port));
    rig.backer.set_ports(a, ports);
    // OVS 3.1 truncates the packet of port 3 here.
    rig.rules(a, "actions=output(port=2,max_len=64),3").acts(TCP, "3");
}

#[test]
fn a_truncation_in_a_peer_is_on_a_clone() {
    let rig = Rig::new();
    let (a, b) = (rig.a, rig.b);
    rig.rules(a, "actions=9,2")
        .rules(b, "actions=output(port=1,max_len=64)")
        .acts(TCP, "clone(trunc(64),11),2");
}
