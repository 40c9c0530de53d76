//! Tunnels whose outer addresses are on internal ports of the underlay bridges, access ports of a VLAN: between two
//! switches, whose bridges have no address themselves.

use testkit::{Daemon, Netns, RunDir, Topology, wait_for};

use crate::helpers::{LIMIT, appctl, ping_all, unreachable, vsctl, wait_until};
use crate::overlays::{HERE, HERE6, THERE, THERE6, require_overlay, spec, tunnel};

const MAC: &str = "02:00:00:00:00:55";

/// A switch with a host, 10.0.0.1, and one in the remote namespace, whose `br-int` is 10.0.0.2.
struct Lab {
    // Ended before the namespaces.
    here: Daemon,
    there: Daemon,
    net: Topology,
    _dirs: [RunDir; 2],
}

/// Makes the bridges of a switch. The underlay port is a trunk.
fn bridges(daemon: &Daemon, underlay: &str) {
    vsctl(
        daemon,
        &format!(
            "add-br br-phy -- set Bridge br-phy datapath_type=netdev -- add-port br-phy {underlay} \
             -- add-br br-int -- set Bridge br-int datapath_type=netdev"
        ),
    );
}

fn add_vtep(daemon: &Daemon, netns: &Netns, addresses: [&str; 2]) {
    vsctl(daemon, "add-port br-phy vtep0 tag=100 -- set Interface vtep0 type=internal");
    wait_for(LIMIT, "the device of vtep0", || netns.ip("link show dev vtep0").is_ok()).unwrap();
    netns.up("vtep0").unwrap();
    netns.add_addr("vtep0", &format!("{}/24", addresses[0])).unwrap();
    netns.add_addr("vtep0", &format!("{}/64", addresses[1])).unwrap();
}

impl Lab {
    fn new() -> Lab {
        let net = Topology::new(2).unwrap();
        let dirs = ["here", "there"].map(|tag| RunDir::new(tag).unwrap());
        let (host, far) = (&net.hosts[0], &net.hosts[1]);
        far.netns.ip(&format!("addr flush dev {}", far.dev)).unwrap();
        let here = spec(&net.switch, &dirs[0]).start().unwrap();
        let there = spec(&far.netns, &dirs[1]).start().unwrap();
        bridges(&here, &far.port);
        vsctl(&here, &format!("add-port br-int {}", host.port));
        bridges(&there, &far.dev);
        add_vtep(&here, &net.switch, [HERE, HERE6]);
        add_vtep(&there, &far.netns, [THERE, THERE6]);
        wait_for(LIMIT, "the device of br-int", || far.netns.ip("link show dev br-int").is_ok()).unwrap();
        far.netns.up("br-int").unwrap();
        far.netns.add_addr("br-int", "10.0.0.2/16").unwrap();
        let lab = Lab { here, there, net, _dirs: dirs };
        lab.meets();
        lab
    }

    fn far(&self) -> &Netns {
        &self.net.hosts[1].netns
    }

    /// Waits for the underlay.
    fn meets(&self) {
        for address in [HERE, HERE6] {
            testkit::reachable(self.far(), address.parse().unwrap(), LIMIT).unwrap();
        }
    }

    /// Pings through the tunnel, from both ends.
    fn pings(&self) {
        ping_all(&self.net.hosts[0].netns, [10, 0, 0, 2].into(), 3);
        ping_all(self.far(), [10, 0, 0, 1].into(), 3);
    }

    /// Flows of the first switch.
    fn flows(&self) -> String {
        appctl(&self.here, "dpctl/dump-flows")
    }

    fn wait_for_no_tunnel(&self) {
        wait_for(LIMIT, "flows without tunnels", || !self.flows().contains("tnl_p")).unwrap();
        unreachable(&self.net.hosts[0].netns, [10, 0, 0, 2].into());
    }
}

#[test]
fn tunnels_follow_their_internal_ports() {
    require_overlay!();
    let lab = Lab::new();
    let (switch, far) = (&lab.net.switch, lab.far());
    for (here, there) in [(HERE6, THERE6), (HERE, THERE)] {
        for (daemon, remote) in [(&lab.here, there), (&lab.there, here)] {
            vsctl(
                daemon,
                &format!(
                    "--if-exists del-port tun -- {}",
                    tunnel("tun", "vxlan", &format!("remote_ip={remote},key=5"))
                ),
            );
        }
        lab.pings();
        let flows = lab.flows();
        assert!(flows.contains("push_vlan(vid=100") && flows.contains("pop_vlan,tnl_pop("), "{flows}");
    }
    wait_until(&lab.here, "Interface tun status:tunnel_egress_iface=vtep0");

    // Another Ethernet address: of pushed headers and of the listener.
    switch.ip(&format!("link set dev vtep0 address {MAC}")).unwrap();
    far.ip("neigh flush dev vtep0").unwrap();
    appctl(&lab.there, "tnl/neigh/flush");
    lab.pings();
    wait_for(LIMIT, "flows with the new address", || {
        let flows = lab.flows();
        let pushed = flows.lines().filter(|flow| flow.contains("tnl_push("));
        let of_new = format!("src={MAC},dl_type");
        pushed.clone().count() > 0 && pushed.into_iter().all(|flow| flow.contains(&of_new))
    })
    .unwrap();
    assert!(appctl(&lab.here, "tnl/ports/show -v").contains(MAC));

    // No address, and the same again.
    switch.ip(&format!("addr del {HERE}/24 dev vtep0")).unwrap();
    lab.wait_for_no_tunnel();
    switch.add_addr("vtep0", &format!("{HERE}/24")).unwrap();
    lab.pings();

    // Another name, and the former one again.
    for (from, to) in [("vtep0", "vtep9"), ("vtep9", "vtep0")] {
        switch.ip(&format!("link set dev {from} down")).unwrap();
        switch.ip(&format!("link set dev {from} name {to}")).unwrap();
        switch.up(to).unwrap();
        if to == "vtep9" {
            lab.wait_for_no_tunnel();
        }
    }
    // The kernel removes addresses of IPv6 from a device that is set down.
    switch.add_addr("vtep0", &format!("{HERE6}/64")).unwrap();
    lab.meets();
    lab.pings();

    // Removed, and added again.
    vsctl(&lab.here, "del-port vtep0");
    lab.wait_for_no_tunnel();
    add_vtep(&lab.here, switch, [HERE, HERE6]);
    // The new device has another Ethernet address.
    far.ip("neigh flush dev vtep0").unwrap();
    lab.meets();
    appctl(&lab.there, "tnl/neigh/flush");
    testkit::reachable(&lab.net.hosts[0].netns, [10, 0, 0, 2].into(), LIMIT).unwrap();
    lab.pings();
}
