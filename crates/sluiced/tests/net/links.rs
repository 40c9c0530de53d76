//! Devices that are missing, added, removed or changed, and the resulting database columns.

use testkit::{Capture, Netns, Topology, if_name, require_netns, require_programs, veth};

use crate::helpers::{LIMIT, kernel_rx_packets, ping_all, start, switch, vsctl, vsctl_output, wait_until};

/// A veth pair between the switch and a new host with an address; the port's and the host's device.
fn late_host(net: &Topology, host: &Netns, port: &str, address: &str) -> String {
    let dev = if_name("l");
    net.switch.ip(&format!("link add name {port} type veth peer name {dev} netns {}", host.name())).unwrap();
    net.switch.ip(&format!("link set dev {port} addrgenmode none")).unwrap();
    net.switch.up(port).unwrap();
    // Neighbours keep the Ethernet address of a former device for a while.
    host.ip(&format!("link set dev {dev} address 02:00:00:00:07:07")).unwrap();
    host.up(&dev).unwrap();
    host.add_addr(&dev, address).unwrap();
    dev
}

#[test]
fn a_loopback_device_is_no_port() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let (_net, daemon) = switch(1);
    let error = "could not add network device lo to ofproto (Invalid argument)";
    let out = vsctl_output(&daemon, "add-port br0 lo");
    assert!(out.stderr.contains(error), "{}", out.stderr);
    assert_eq!(vsctl(&daemon, "get Interface lo ofport error"), format!("-1\n\"{error}\""));
}

#[test]
fn a_missing_device_is_reported_and_attached_once_present() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let port = if_name("m");
    let out = vsctl_output(&daemon, &format!("add-port br0 {port}"));
    assert!(
        out.stderr.contains(&format!("could not open network device {port} (No such device)")),
        "{}",
        out.stderr
    );
    assert_eq!(vsctl(&daemon, &format!("get Interface {port} ofport")), "-1");
    let error = vsctl(&daemon, &format!("get Interface {port} error"));
    assert!(error.contains("No such device"), "{error}");
    ping_all(&one.netns, two.ipv4.into(), 3);
    // The device is added, removed and added again, each time without a command.
    let late = Netns::new("late").unwrap();
    for _ in 0..2 {
        let dev = late_host(&net, &late, &port, "10.0.7.7/16");
        wait_until(&daemon, &format!("Interface {port} ofport>=1 error=[] link_state=up"));
        ping_all(&late, one.ipv4.into(), 3);
        ping_all(&two.netns, "10.0.7.7".parse().unwrap(), 3);
        net.switch.ip(&format!("link del dev {port}")).unwrap();
        wait_until(&daemon, &format!("Interface {port} ofport=-1"));
        let error = vsctl(&daemon, &format!("get Interface {port} error"));
        assert!(error.contains("No such device"), "{error}");
        assert!(late.ip(&format!("link show dev {dev}")).is_err());
        ping_all(&one.netns, two.ipv4.into(), 3);
    }
    vsctl(&daemon, &format!("del-port {port}"));
}

#[test]
fn a_replaced_device_is_reopened() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(1);
    let one = &net.hosts[0];
    let (late, port) = (Netns::new("late").unwrap(), if_name("m"));
    late_host(&net, &late, &port, "10.0.7.7/16");
    vsctl(&daemon, &format!("add-port br0 {port}"));
    ping_all(&late, one.ipv4.into(), 3);
    for _ in 0..3 {
        net.switch.ip(&format!("link del dev {port}")).unwrap();
        late_host(&net, &late, &port, "10.0.7.7/16");
        ping_all(&late, one.ipv4.into(), 3);
        let index = net.switch.ip(&format!("-o link show dev {port}")).unwrap();
        let index = index.split(':').next().unwrap().to_string();
        wait_until(&daemon, &format!("Interface {port} ofport>=1 ifindex={index}"));
    }
}

#[test]
fn link_states_are_reported() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let port = &two.port;
    let resets = || vsctl(&daemon, &format!("get Interface {port} link_resets")).parse::<u32>().unwrap();
    wait_until(&daemon, &format!("Interface {port} link_state=up admin_state=up mtu=1500"));
    let before = resets();
    // Its carrier was up before it became a port.
    assert_eq!(before, 0);
    two.netns.ip(&format!("link set dev {} down", two.dev)).unwrap();
    wait_until(&daemon, &format!("Interface {port} link_state=down"));
    two.netns.up(&two.dev).unwrap();
    wait_until(&daemon, &format!("Interface {port} link_state=up"));
    assert!(resets() > before, "{before} and then {}", resets());
    ping_all(&one.netns, two.ipv4.into(), 3);
    net.switch.ip(&format!("link set dev {port} down")).unwrap();
    wait_until(&daemon, &format!("Interface {port} admin_state=down"));
    net.switch.up(port).unwrap();
    wait_until(&daemon, &format!("Interface {port} admin_state=up link_state=up"));
    ping_all(&one.netns, two.ipv4.into(), 3);
    // Configured values are applied, and changes by the system reported.
    vsctl(&daemon, &format!("set Interface {port} mtu_request=1400"));
    wait_until(&daemon, &format!("Interface {port} mtu=1400"));
    assert!(net.switch.ip(&format!("link show dev {port}")).unwrap().contains("mtu 1400"));
    vsctl(&daemon, &format!("clear Interface {port} mtu_request"));
    net.switch.ip(&format!("link set dev {port} mtu 1450")).unwrap();
    wait_until(&daemon, &format!("Interface {port} mtu=1450"));
    let text = net.switch.ip(&format!("-o link show dev {port}")).unwrap();
    let index = text.split(':').next().unwrap().to_string();
    assert_eq!(vsctl(&daemon, &format!("get Interface {port} ifindex")), index);
    let mac = vsctl(&daemon, &format!("get Interface {port} mac_in_use"));
    assert!(text.contains(mac.trim_matches('"')), "{mac}: {text}");
    assert!(vsctl(&daemon, &format!("get Interface {port} status:driver_name")).contains("veth"));
    let other = two.netns.ip(&format!("-o link show dev {}", two.dev)).unwrap();
    let index = format!("\"{}\"", other.split(':').next().unwrap());
    assert_eq!(vsctl(&daemon, &format!("get Interface {port} status:peer_ifindex")), index);
}

#[test]
fn a_device_that_is_down_stays_down_unless_queues_need_it() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let port = &two.port;
    let is_up = || net.switch.ip(&format!("-o link show dev {port}")).unwrap().contains(",UP");
    vsctl(&daemon, &format!("del-port {port}"));
    net.switch.ip(&format!("link set dev {port} down")).unwrap();
    vsctl(&daemon, &format!("add-port br0 {port}"));
    wait_until(&daemon, &format!("Interface {port} admin_state=down link_state=down"));
    assert!(!is_up());
    net.switch.up(port).unwrap();
    wait_until(&daemon, &format!("Interface {port} admin_state=up link_state=up"));
    ping_all(&one.netns, two.ipv4.into(), 3);
    // A device distributes frames over several sockets only while it is up.
    net.switch.ip(&format!("link set dev {port} down")).unwrap();
    wait_until(&daemon, &format!("Interface {port} admin_state=down"));
    vsctl(&daemon, &format!("set Interface {port} options:n_rxq=2"));
    wait_until(&daemon, &format!("Interface {port} admin_state=up link_state=up"));
    ping_all(&one.netns, two.ipv4.into(), 3);
}

#[test]
fn statistics_advance() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let count = |port: &str, what: &str| -> u64 {
        vsctl(&daemon, &format!("get Interface {port} statistics:{what}")).parse().unwrap()
    };
    ping_all(&one.netns, two.ipv4.into(), 30);
    for (port, key) in [(&one.port, "rx_packets"), (&two.port, "tx_packets"), (&two.port, "rx_packets")] {
        wait_until(&daemon, &format!("Interface {port} statistics:{key}>=30"));
    }
    let (packets, bytes) = (count(&one.port, "rx_packets"), count(&one.port, "rx_bytes"));
    assert!(bytes >= 30 * 98 && bytes < packets * 200, "{packets} packets, {bytes} bytes");
    assert!(packets <= kernel_rx_packets(&net.switch, &one.port) + 5);
    for key in ["rx_dropped", "rx_errors", "tx_dropped", "tx_errors"] {
        assert_eq!(count(&one.port, key), 0, "{key}");
    }
    // They keep increasing.
    ping_all(&one.netns, two.ipv4.into(), 20);
    wait_until(&daemon, &format!("Interface {} statistics:rx_packets>={}", one.port, packets + 20));
}

#[test]
fn addresses_of_bridges() {
    require_netns!();
    require_programs!("ovs-vsctl", "tcpdump", "ping");
    let net = Topology::new(1).unwrap();
    let daemon = start(&net.switch);
    vsctl(
        &daemon,
        &format!(
            "add-br br0 -- set Bridge br0 other_config:hwaddr=02:00:00:00:0b:01 -- add-port br0 {}",
            net.hosts[0].port
        ),
    );
    wait_until(&daemon, "Interface br0 mac_in_use=\"02:00:00:00:0b:01\"");
    assert!(net.switch.ip("link show dev br0").unwrap().contains("02:00:00:00:0b:01"));
    net.switch.add_addr("br0", "10.0.9.9/16").unwrap();
    net.switch.up("br0").unwrap();
    let capture =
        Capture::start(&net.hosts[0].netns, &net.hosts[0].dev, "icmp[icmptype]=icmp-echoreply", &["-e"])
            .unwrap();
    ping_all(&net.hosts[0].netns, "10.0.9.9".parse().unwrap(), 3);
    capture.wait_for("02:00:00:00:0b:01 >", LIMIT).unwrap();
    assert_eq!(vsctl(&daemon, "get Bridge br0 datapath_id"), "\"0000020000000b01\"");
}

#[test]
fn many_ports_at_once() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(2);
    let others = Netns::new("others").unwrap();
    let mut line = "--".to_string();
    for _ in 0..30 {
        let (port, peer) = veth(&net.switch, &others).unwrap();
        net.switch.up(&port).unwrap();
        others.up(&peer).unwrap();
        line += &format!(" -- add-port br0 {port}");
    }
    vsctl(&daemon, line.trim_start_matches("-- "));
    let ports = vsctl(&daemon, "--bare --columns=ofport list Interface");
    let mut numbers: Vec<u32> = ports.split_whitespace().map(|n| n.parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 33, "{ports}");
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 3);
}

#[test]
fn a_port_survives_being_taken_down_again_and_again() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    vsctl(&daemon, "add-port br0 int1 -- set Interface int1 type=internal");
    net.switch.add_addr("int1", "10.0.8.8/16").unwrap();
    // Without packets in between: the hosts send none unprompted.
    for host in [one, two] {
        host.netns.ip(&format!("addr flush dev {}", host.dev)).unwrap();
        host.netns.ip(&format!("link set dev {} addrgenmode none", host.dev)).unwrap();
    }
    for _ in 0..8 {
        for (port, state) in [(&*two.port, "down"), ("int1", "up"), (&*two.port, "up"), ("int1", "down")] {
            net.switch.ip(&format!("link set dev {port} {state}")).unwrap();
            wait_until(&daemon, &format!("Interface {port} admin_state={state}"));
        }
    }
    net.switch.up("int1").unwrap();
    for host in [one, two] {
        host.netns.add_addr(&host.dev, &format!("{}/16", host.ipv4)).unwrap();
    }
    ping_all(&two.netns, one.ipv4.into(), 3);
    ping_all(&two.netns, "10.0.8.8".parse().unwrap(), 3);
}

#[test]
fn requested_port_numbers_are_assigned_and_kept() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let net = Topology::new(2).unwrap();
    let daemon = start(&net.switch);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    vsctl(
        &daemon,
        &format!("add-br br0 -- add-port br0 {} -- set Interface {} ofport_request=77", one.port, one.port),
    );
    vsctl(&daemon, &format!("add-port br0 {}", two.port));
    assert_eq!(vsctl(&daemon, &format!("get Interface {} ofport", one.port)), "77");
    vsctl(&daemon, &format!("set Interface {} ofport_request=78", two.port));
    wait_until(&daemon, &format!("Interface {} ofport=78", two.port));
    ping_all(&one.netns, two.ipv4.into(), 3);
}

#[test]
fn a_device_belongs_to_one_bridge() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    // By raw commands: `add-port` itself would refuse.
    let line = format!(
        "add-br br1 -- --id=@i create Interface name={} -- --id=@p create Port name=twice interfaces=@i -- add Bridge br1 \
         ports @p",
        one.port
    );
    let out = vsctl_output(&daemon, &line);
    // Names of interfaces are unique in the schema.
    assert!(!out.status.success() && out.stderr.contains("constraint violation"), "{}", out.stderr);
    ping_all(&one.netns, two.ipv4.into(), 3);
}
