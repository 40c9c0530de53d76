//! MTUs of internal devices follow those of the other ports of their bridge. The table is that of OVS 3.5.

use super::Lab;
use crate::helpers::{vsctl, wait_until};
use testkit::{require_netns, require_programs};

/// Changes of the database, and the MTUs of devices after them.
const STEPS: [(&str, &str); 13] = [
    ("set Interface p1 mtu_request=1400", "br0=1400 p1=1400 i0=1400"),
    ("add-port br0 i1 -- set Interface i1 type=internal", "br0=1400 i0=1400 i1=1400"),
    (
        "add-port br0 p2 -- set Interface p2 type=dummy mtu_request=1300",
        "br0=1300 p1=1400 p2=1300 i0=1300 i1=1300",
    ),
    ("set Interface p2 mtu_request=9000", "br0=1400 p1=1400 p2=9000 i0=1400 i1=1400"),
    ("set Interface i0 mtu_request=2000", "br0=1400 i0=2000 i1=1400"),
    ("set Interface p1 mtu_request=1200", "br0=1200 i0=2000 i1=1200"),
    ("clear Interface i0 mtu_request", "br0=1200 i0=1200 i1=1200"),
    ("clear Interface p1 mtu_request", "br0=1200 p1=1200 i0=1200"),
    ("set Interface p1 mtu_request=8000", "br0=8000 p1=8000 i0=8000"),
    ("del-port p1", "br0=9000 p2=9000 i0=9000"),
    ("del-port p2", "br0=1500 i0=1500 i1=1500"),
    ("set Interface br0 mtu_request=1100", "br0=1100 i0=1100 i1=1100"),
    ("add-port br0 p1 -- set Interface p1 type=dummy mtu_request=1000", "br0=1100 p1=1000 i0=1000 i1=1000"),
];

#[test]
fn internal_ports_follow_the_least_mtu() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let lab = Lab::empty();
    vsctl(
        &lab.daemon,
        "add-br br0 -- set Bridge br0 datapath_type=dummy -- add-port br0 p1 -- set Interface p1 type=dummy \
         -- add-port br0 i0 -- set Interface i0 type=internal",
    );
    for (change, mtus) in STEPS {
        vsctl(&lab.daemon, change);
        for (name, mtu) in mtus.split(' ').filter_map(|pair| pair.split_once('=')) {
            wait_until(&lab.daemon, &format!("Interface {name} mtu={mtu}"));
        }
    }
}
