//! Rules that sample packets and do nothing else, without collectors of samples.

use super::{FROM_5_TO_7, Lab};
use crate::helpers::vsctl;
use testkit::{require_netns, require_programs};

/// As in OVS without collectors, the drop is explicit, whether `explicit-sampled-drops` asks for it or not.
#[test]
fn a_packet_that_is_only_sampled_is_dropped_explicitly() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let sample = "sample(probability=12345,collector_set_id=1,obs_domain_id=1,obs_point_id=2)";
    lab.ofctl(&["add-flow", "br0", &format!("in_port=1,actions={sample}")]);
    lab.ofctl(&["add-flow", "br0", &format!("in_port=2,actions={sample},resubmit(,1)")]);
    let dropped =
        || lab.appctl("coverage/read-counter drop_action_of_pipeline").trim().parse::<u64>().unwrap();
    for setting in ["true", "false"] {
        vsctl(&lab.daemon, &format!("set Open_vSwitch . other_config:explicit-sampled-drops={setting}"));
        for port in 1..=2 {
            let trace = lab.appctl(&format!("ofproto/trace br0 in_port={port}"));
            assert!(trace.ends_with("Datapath actions: drop\n"), "{trace}");
        }
        let before = dropped();
        let frame = format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)");
        (0..3).for_each(|_| lab.receive("p1", &frame));
        assert_eq!(dropped() - before, 3);
    }
    let flows = lab.appctl("dpctl/dump-flows");
    assert!(flows.contains("eth_type(0x1234)") && flows.contains("actions:drop"), "{flows}");
    assert!(!lab.daemon.log().contains("explicit-sampled-drops"), "{}", lab.daemon.log());
}
