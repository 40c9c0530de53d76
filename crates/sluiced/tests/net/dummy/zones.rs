//! Connection tracking zones and capabilities in the database. Keys as Open vSwitch 3.1 writes them, with `psample` of
//! 3.5.

use super::*;
use crate::helpers::LIMIT;

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
fn zones_of_the_database_have_limits_and_timeouts() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovsdb-client");
    let lab = Lab::new();
    vsctl(&lab.daemon, "--id=@d create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:dummy=@d");
    vsctl(&lab.daemon, "add-zone-tp dummy zone=7 udp_first=3");
    assert_eq!(vsctl(&lab.daemon, "get Bridge br0 status").trim(), "{}");
    // Stock tools of 3.1 do not know the column.
    let set = r#"["Open_vSwitch",{"op":"update","table":"CT_Zone","where":[],"row":{"limit":9}}]"#;
    let database = format!("unix:{}", lab.daemon.rundir().join("db.sock").display());
    let done = lab.daemon.tool("ovsdb-client").args(["transact", &database, set]).output().unwrap();
    assert!(done.stdout.contains("count"), "{}{}", done.stdout, done.stderr);
    wait_for(LIMIT, "the limit", || {
        appctl(&lab.daemon, "dpctl/ct-get-limits zone=7").contains("zone=7,limit=9,count=0")
    })
    .unwrap();
    vsctl(&lab.daemon, "del-zone-tp dummy zone=7");
    assert!(!appctl(&lab.daemon, "dpctl/ct-get-limits").contains("zone=7"));
}
