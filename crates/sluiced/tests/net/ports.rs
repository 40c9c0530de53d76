//! Virtual ports: the bridge's internal port, further internal ports and taps, patch ports.

use std::net::IpAddr;

use testkit::{
    Iperf3Options, Netns, iperf3_client, iperf3_server, require_netns, require_programs, wait_for,
};

use crate::helpers::{LIMIT, on_kernel, ping_all, switch, unreachable, vsctl, wait_until};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn address(netns: &Netns, dev: &str, address: &str) {
    netns.add_addr(dev, address).unwrap();
    netns.up(dev).unwrap();
}

#[test]
fn internal_ports_and_taps_reach_hosts() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping", "iperf3");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    vsctl(&daemon, "add-port br0 int1 -- set Interface int1 type=internal");
    vsctl(&daemon, "add-port br0 tap1 -- set Interface tap1 type=tap");
    address(&net.switch, "br0", "10.0.9.9/16");
    address(&net.switch, "br0", "fd00::99/64");
    address(&net.switch, "int1", "10.1.0.9/24");
    address(&net.switch, "tap1", "10.2.0.9/24");
    address(&one.netns, &one.dev, "10.1.0.1/24");
    address(&two.netns, &two.dev, "10.2.0.2/24");
    ping_all(&net.switch, one.ipv4.into(), 5);
    ping_all(&one.netns, ip("10.0.9.9"), 5);
    ping_all(&two.netns, ip("fd00::99"), 5);
    ping_all(&net.switch, ip("10.1.0.1"), 5);
    ping_all(&one.netns, ip("10.1.0.9"), 5);
    if on_kernel() {
        // The kernel handles it as any device: a reply needs a process on the tap's other end, as with the stock switch.
        assert!(net.switch.ip("-d link show dev tap1").unwrap().contains("tun type tap"));
        unreachable(&net.switch, ip("10.2.0.2"));
    } else {
        ping_all(&net.switch, ip("10.2.0.2"), 5);
        ping_all(&two.netns, ip("10.2.0.9"), 5);
    }
    // TCP between the local stack and a host, in both directions.
    let options = Iperf3Options::default();
    let server = iperf3_server(&one.netns, 5201).unwrap();
    assert!(iperf3_client(&net.switch, one.ipv4.into(), &options).unwrap().received_bps > 1e6);
    drop(server);
    let _server = iperf3_server(&net.switch, 5201).unwrap();
    for to in ["10.0.9.9", "10.1.0.9"] {
        assert!(iperf3_client(&one.netns, ip(to), &options).unwrap().received_bps > 1e6, "{to}");
    }
    // The devices are removed with their ports.
    vsctl(&daemon, "del-port int1 -- del-port tap1");
    for gone in ["int1", "tap1"] {
        assert!(net.switch.ip(&format!("link show dev {gone}")).is_err(), "{gone} stays behind");
    }
    ping_all(&one.netns, ip("10.0.9.9"), 2);
}

#[test]
fn patch_ports_join_bridges() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(3);
    let [one, two, three] = &net.hosts[..] else { panic!("three hosts") };
    vsctl(&daemon, &format!("del-port {} -- add-br br1 -- add-port br1 {}", two.port, two.port));
    unreachable(&one.netns, two.ipv4.into());
    vsctl(
        &daemon,
        "add-port br0 to1 -- set Interface to1 type=patch options:peer=to0 -- add-port br1 to0 -- set Interface to0 \
         type=patch options:peer=to1",
    );
    ping_all(&one.netns, two.ipv4.into(), 5);
    ping_all(&two.netns, three.ipv6.into(), 5);
    // Patch ports without a device count crossing packets in their statistics.
    wait_until(&daemon, "Interface to0 statistics:rx_packets>=10");
    wait_until(&daemon, "Interface to1 statistics:tx_packets>=10");
    vsctl(&daemon, "del-port to0");
    unreachable(&one.netns, two.ipv4.into());
    ping_all(&one.netns, three.ipv4.into(), 2);
}

#[test]
fn internal_ports_can_be_moved_into_namespaces() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(1);
    let one = &net.hosts[0];
    let inner = Netns::new("inner").unwrap();
    vsctl(&daemon, "add-port br0 int1 -- set Interface int1 type=internal");
    let number = vsctl(&daemon, "get Interface int1 ofport");
    net.switch.ip(&format!("link set dev int1 netns {}", inner.name())).unwrap();
    address(&inner, "int1", "10.0.8.8/16");
    ping_all(&one.netns, ip("10.0.8.8"), 3);
    // Events of other links and other commands do not affect it.
    vsctl(&daemon, "add-port br0 int2 -- set Interface int2 type=internal");
    ping_all(&inner, one.ipv4.into(), 3);
    assert_eq!(vsctl(&daemon, "get Interface int1 ofport"), number);
    inner.ip(&format!("link set dev int1 netns {}", net.switch.name())).unwrap();
    address(&net.switch, "int1", "10.0.8.8/16");
    ping_all(&one.netns, ip("10.0.8.8"), 3);
    vsctl(&daemon, "del-port int1");
    assert!(net.switch.ip("link show dev int1").is_err());
}

/// A device that comes back has another index if its own was taken elsewhere; the device that has the former one since is
/// left alone.
#[test]
fn an_internal_port_comes_back_with_another_index() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(1);
    let add = |n: usize| format!("add-port br0 int{n} -- set Interface int{n} type=internal");
    vsctl(&daemon, &format!("{} -- {}", add(1), add(2)));
    let index = |dev: &str| {
        let line = net.switch.ip(&format!("-o link show dev {dev}")).unwrap();
        line.split(':').next().unwrap().to_string()
    };
    let mtu_is = |dev: &str, mtu: usize| {
        net.switch.ip(&format!("-o link show dev {dev}")).unwrap().contains(&format!("mtu {mtu} "))
    };
    let taken = index("int1");
    let inner = Netns::new("inner").unwrap();
    inner.ip(&format!("link add in1 index {taken} type veth peer name in2")).unwrap();
    net.switch.ip(&format!("link set dev int1 netns {}", inner.name())).unwrap();
    net.switch.ip(&format!("link add other index {taken} type veth peer name other2")).unwrap();
    vsctl(&daemon, "set Interface int1 mtu_request=1300");
    assert!(mtu_is("other", 1500));
    // A device that has its name meanwhile is not it.
    net.switch.ip("link add int1 mtu 1234 type veth peer name int1p").unwrap();
    vsctl(&daemon, &add(3));
    assert_ne!(vsctl(&daemon, "get Interface int1 mtu"), "1234");
    assert_ne!(vsctl(&daemon, "get Interface int1 ifindex"), index("int1"));
    net.switch.ip("link del int1").unwrap();
    inner.ip(&format!("link set dev int1 netns {}", net.switch.name())).unwrap();
    assert_ne!(index("int1"), taken);
    address(&net.switch, "int1", "10.0.8.8/16");
    ping_all(&net.hosts[0].netns, ip("10.0.8.8"), 3);
    let shown = || vsctl(&daemon, "get Interface int1 ifindex") == index("int1");
    wait_for(LIMIT, "its new index in its row", shown).unwrap();
    vsctl(&daemon, "set Interface int1 mtu_request=1400");
    wait_for(LIMIT, "its MTU", || mtu_is("int1", 1400)).unwrap();
    assert!(mtu_is("other", 1500));
    vsctl(&daemon, "del-port int1 -- del-port int2");
    for dev in ["int1", "int2"] {
        assert!(net.switch.ip(&format!("link show dev {dev}")).is_err(), "{dev}");
    }
    assert_eq!(index("other"), taken);
}

#[test]
fn a_deleted_internal_device_is_recreated() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(1);
    vsctl(&daemon, "add-port br0 int1 -- set Interface int1 type=internal");
    let inner = Netns::new("inner").unwrap();
    net.switch.ip(&format!("link set dev int1 netns {}", inner.name())).unwrap();
    if on_kernel() {
        // The kernel refuses to delete such a device, but deletes its vport.
        net.switch.run("ovs-dpctl", &["del-if", "ovs-system", "int1"]).unwrap();
    } else {
        inner.ip("link del dev int1").unwrap();
    }
    wait_for(LIMIT * 2, "the device to be made anew", || net.switch.ip("link show dev int1").is_ok())
        .unwrap();
    address(&net.switch, "int1", "10.0.8.8/16");
    ping_all(&net.hosts[0].netns, ip("10.0.8.8"), 3);
}

/// One transaction removes many devices, of which some names are taken again, as devices of other kinds too.
#[test]
fn many_internal_ports_go_together_and_leave_their_names() {
    const COUNT: usize = 40;
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(1);
    let add = |n: usize, kind: &str| format!(" -- add-port br0 i{n} -- set Interface i{n} type={kind}");
    let all: String = (0..COUNT).map(|n| add(n, "internal")).collect();
    vsctl(&daemon, all.trim_start_matches(" -- "));
    let inner = Netns::new("inner").unwrap();
    net.switch.ip(&format!("link set dev i5 netns {}", inner.name())).unwrap();
    let index = |n: usize| {
        net.switch
            .ip(&format!("-o link show dev i{n}"))
            .ok()
            .map(|line| line.split(':').next().unwrap().to_string())
    };
    let before = [index(1), index(2)];
    assert!(before.iter().all(Option::is_some) && index(5).is_none());
    let mut change: String = (0..COUNT).map(|n| format!(" -- del-port i{n}")).collect();
    change += &add(1, "internal");
    change += &add(2, "tap");
    change += &add(3, "system");
    vsctl(&daemon, change.trim_start_matches(" -- "));
    let left: Vec<usize> = (0..COUNT).filter(|n| index(*n).is_some()).collect();
    assert_eq!(left, [1, 2]);
    assert_eq!(index(1), before[0], "the row is another, the device is not");
    assert_ne!(index(2), before[1], "a device of another kind");
    assert!(inner.ip("link show dev i5").is_err());
    assert!(vsctl(&daemon, "get Interface i3 error").contains("No such device"));
    address(&net.switch, "i1", "10.0.8.8/16");
    ping_all(&net.hosts[0].netns, ip("10.0.8.8"), 3);
}
