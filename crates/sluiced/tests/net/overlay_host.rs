//! An overlay host: a bond with LACP to the underlay, a tunnel with BFD above it, an ACL and NAT by connection tracking on top.
//! The partner is Open vSwitch with the same bond.

use testkit::{Daemon, Netns, RunDir, Topology, wait_for};

use crate::helpers::{LIMIT, appctl, ping_all, unreachable, vsctl, wait_until};
use crate::overlays::{
    HERE, THERE, answer_at_their_device, contents, require_overlay_to_stock, spec, stock, tunnel,
};

/// MTU of the hosts: 1500 bytes less the outer headers.
const INNER_MTU: u32 = 1400;
/// Bytes of a stream each way.
const STREAM_BYTES: usize = 4 << 20;
/// Address of the host for the other side.
const NAT: &str = "10.0.0.100";

/// A bond of two wires below `br-phy`, and a bridge `br-int` with a tunnel.
fn configure(daemon: &Daemon, netns: &Netns, wires: [&str; 2], [own, remote]: [&str; 2]) {
    vsctl(
        daemon,
        &format!(
            "add-br br-phy -- set Bridge br-phy datapath_type=netdev -- add-bond br-phy bond0 {} {} lacp=active \
             bond_mode=balance-tcp other_config:lacp-time=fast -- add-br br-int -- set Bridge br-int datapath_type=netdev",
            wires[0], wires[1]
        ),
    );
    wait_for(LIMIT, "the device of br-phy", || netns.ip("link show dev br-phy").is_ok()).unwrap();
    answer_at_their_device(netns);
    netns.up("br-phy").unwrap();
    netns.add_addr("br-phy", &format!("{own}/24")).unwrap();
    let bfd = "bfd:enable=true bfd:min_tx=200 bfd:min_rx=200 bfd:mult=50";
    vsctl(daemon, &format!("{} {bfd}", tunnel("tun", "geneve", &format!("remote_ip={remote},key=5"))));
}

/// The host may open connections, with another source address; nobody may open one to it.
fn protect(daemon: &Daemon, host_port: &str) {
    let rules = format!(
        "table=0,priority=100,arp,actions=NORMAL\n\
         table=0,priority=90,ip,actions=ct(nat,zone=7,table=1)\n\
         table=1,ct_state=+new+trk,ip,in_port={host_port},actions=ct(commit,zone=7,nat(src={NAT})),output:tun\n\
         table=1,ct_state=+est+trk,ip,in_port={host_port},actions=output:tun\n\
         table=1,ct_state=+est+trk,ip,in_port=tun,actions=output:{host_port}\n\
         table=1,priority=0,actions=drop\n"
    );
    daemon
        .tool("ovs-ofctl")
        .args(["-OOpenFlow13", "--names", "replace-flows", "br-int", "-"])
        .input(rules)
        .run()
        .unwrap();
}

#[test]
fn an_overlay_host_keeps_its_connections_when_a_wire_fails() {
    require_overlay_to_stock!("ping");
    let net = Topology::new(1).unwrap();
    let (far, dir, far_dir) =
        (Netns::new("far").unwrap(), RunDir::new("near").unwrap(), RunDir::new("far").unwrap());
    let wires = [(); 2].map(|()| testkit::veth(&net.switch, &far).unwrap());
    for (here, there) in &wires {
        net.switch.up(here).unwrap();
        far.up(there).unwrap();
        // Open vSwitch 3.1 leaves no checksums to a device.
        far.set_offloads(there, false).unwrap();
        net.switch.set_offloads(here, false).unwrap();
    }
    let ours = spec(&net.switch, &dir).start().unwrap();
    let theirs = stock(&far, &far_dir);
    let theirs = &theirs[0];
    configure(&ours, &net.switch, [&wires[0].0, &wires[1].0], [HERE, THERE]);
    configure(theirs, &far, [&wires[0].1, &wires[1].1], [THERE, HERE]);

    let host = &net.hosts[0];
    vsctl(&ours, &format!("add-port br-int {}", host.port));
    host.netns.ip(&format!("link set dev {} mtu {INNER_MTU}", host.dev)).unwrap();
    host.netns.add_addr("lo", &format!("{NAT}/32")).unwrap();
    wait_for(LIMIT, "the device of br-int", || far.ip("link show dev br-int").is_ok()).unwrap();
    far.ip(&format!("link set dev br-int mtu {INNER_MTU}")).unwrap();
    far.up("br-int").unwrap();
    far.add_addr("br-int", "10.0.0.2/16").unwrap();
    protect(&ours, &host.port);

    for wire in wires.iter().map(|(here, _)| here) {
        wait_until(&ours, &format!("Interface {wire} lacp_current=true"));
    }
    let shown = appctl(&ours, "bond/show bond0");
    assert!(shown.contains("lacp_status: negotiated"), "{shown}");
    // OVS 3.1 may keep a flow from before the tunnel.
    appctl(theirs, "revalidator/purge");
    wait_until(&ours, "Interface tun bfd_status:state=up bfd_status:forwarding=true");
    ping_all(&host.netns, [10, 0, 0, 2].into(), 5);
    unreachable(&far, [10, 0, 0, 1].into());
    let tracked = appctl(&ours, "dpctl/dump-conntrack");
    assert!(tracked.contains(&format!("dst={NAT}")), "{tracked}");

    // The wire that carries the stream fails with it, the other one takes its traffic.
    std::thread::scope(|scope| {
        let stream = scope.spawn(|| contents(&host.netns, &far, "10.0.0.2", STREAM_BYTES));
        for (_, there) in &wires {
            far.ip(&format!("link set dev {there} down")).unwrap();
            // The kernel reports one lost carrier a second.
            for daemon in [&ours, theirs] {
                let failed = || appctl(daemon, "bond/show bond0").contains(": disabled");
                wait_for(LIMIT, "the member to be disabled", failed).unwrap();
            }
            // The stream fills the wire, so single packets may be lost in queues.
            testkit::reachable(&host.netns, [10, 0, 0, 2].into(), LIMIT).unwrap();
            far.ip(&format!("link set dev {there} up")).unwrap();
            let here =
                wires.iter().find(|(_, other)| other == there).map(|(here, _)| here.as_str()).unwrap_or("");
            wait_until(&ours, &format!("Interface {here} lacp_current=true link_state=up"));
            wait_for(LIMIT, "both members", || {
                appctl(&ours, "bond/show bond0").matches(": enabled").count() == 2
            })
            .unwrap();
        }
        stream.join().unwrap();
    });
    // The session ran on meanwhile: one transition, to up.
    let status = vsctl(&ours, "get Interface tun bfd_status");
    assert!(status.contains("flap_count=\"1\"") && status.contains("state=up"), "{status}");
}
