//! Connection tracking zones and capabilities in the database. Keys as Open vSwitch 3.1 writes them, with `psample` of
//! 3.5.

use super::*;

const KEYS: [&str; 28] = [
    "add_mpls",
    "check_pkt_len",
    "clone",
    "ct_clear",
    "ct_eventmask",
    "ct_flush",
    "ct_label",
    "ct_mark",
    "ct_orig_tuple",
    "ct_orig_tuple6",
    "ct_state",
    "ct_state_nat",
    "ct_timeout",
    "ct_zero_snat",
    "ct_zone",
    "explicit_drop_action",
    "lb_output_action",
    "masked_set_action",
    "max_hash_alg",
    "max_mpls_depth",
    "max_vlan_headers",
    "nd_ext",
    "psample",
    "recirc",
    "sample_nesting",
    "tnl_push_pop",
    "trunc",
    "ufid",
];

/// The capabilities of the only row of `Datapath`.
fn capabilities(lab: &Lab) -> Vec<(String, String)> {
    let text = vsctl(&lab.daemon, "--columns=capabilities --bare list Datapath");
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_string(), value.trim_matches('"').to_string())).collect()
}

#[test]
fn capabilities_are_those_of_the_datapath() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = Lab::new();
    vsctl(&lab.daemon, "--id=@d create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:dummy=@d");
    wait_until(&lab.daemon, "Datapath . capabilities:recirc=true");
    let found = capabilities(&lab);
    assert_eq!(found.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), KEYS);
    let value = |key: &str| found.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str());
    assert_eq!((value("sample_nesting"), value("max_mpls_depth")), (Some("true"), Some("3")));
    // The command of features shows the same.
    let features = lab.appctl("dpif/show-dp-features br0");
    for (key, title) in [("ct_state", "CT state"), ("ct_timeout", "Conntrack timeout policy")] {
        let shown = if value(key) == Some("true") { "Yes" } else { "No" };
        assert!(features.contains(&format!("{title}: {shown}\n")), "{key}: {features}");
    }
    // Without bridges there is no datapath.
    vsctl(&lab.daemon, "del-br br0");
    wait_until(&lab.daemon, "Datapath . capabilities={}");
}

#[test]
fn a_datapath_without_a_tracker_refuses_settings_of_zones_in_the_status_of_its_bridges() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = Lab::new();
    vsctl(&lab.daemon, "--id=@d create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:dummy=@d");
    vsctl(&lab.daemon, "add-zone-tp dummy zone=7 udp_first=3");
    let why =
        "dummy@ovs-dummy tracks no connections: limits and timeouts of its zones (datapaths) have no effect";
    assert_eq!(vsctl(&lab.daemon, "get Bridge br0 status:notice").trim(), format!("{why:?}"));
    // A bridge added later shows it too, and none once the zone is gone.
    vsctl(&lab.daemon, "add-br br1 -- set Bridge br1 datapath_type=dummy");
    assert_eq!(vsctl(&lab.daemon, "get Bridge br1 status:notice").trim(), format!("{why:?}"));
    vsctl(&lab.daemon, "del-zone-tp dummy zone=7");
    for bridge in ["br0", "br1"] {
        assert_eq!(vsctl(&lab.daemon, &format!("get Bridge {bridge} status")).trim(), "{}");
    }
}
