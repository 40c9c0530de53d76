//! Tunnels on the userspace datapath: hosts behind `br-int`, an underlay behind `br-phy`, whose device has the outer
//! addresses. Partners: the kernel's tunnel devices, Open vSwitch, and another Sluice.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use testkit::{Daemon, DaemonSpec, Host, Iperf3Options, Netns, RunDir, Topology, patience, wait_for};

use crate::helpers::{LIMIT, appctl, appctl_output, on_kernel, ping_all, unreachable, vsctl, wait_until};

/// MTU of the hosts: 1500 bytes less the outer headers.
const INNER_MTU: u32 = 1420;
pub(crate) const HERE: &str = "172.16.0.1";
pub(crate) const THERE: &str = "172.16.0.2";
pub(crate) const HERE6: &str = "fd01::1";
pub(crate) const THERE6: &str = "fd01::2";

/// A switch with one host, 10.0.0.1, and a remote machine on the underlay.
pub(crate) struct Lab {
    pub(crate) net: Topology,
    pub(crate) daemon: Daemon,
    _dir: RunDir,
}

/// The lines that make both bridges: `br-int` with the host's port, `br-phy` with that of the underlay.
fn bridges(host: &Host, far: &Host, datapath: &str) -> String {
    format!(
        "add-br br-phy -- set Bridge br-phy datapath_type={datapath} -- add-port br-phy {} \
         -- add-br br-int -- set Bridge br-int datapath_type={datapath} -- add-port br-int {}",
        far.port, host.port
    )
}

/// Has the kernel of a namespace answer ARP only for addresses of the device that it was asked at: ports of a datapath in user space
/// are devices of the kernel, too, which would answer for the address of `br-phy`.
pub(crate) fn answer_at_their_device(switch: &Netns) {
    let path = "/proc/sys/net/ipv4/conf/all/arp_ignore";
    switch.enter(|| std::fs::write(path, "1")).unwrap().unwrap();
}

/// Gives the device of `br-phy` its addresses, and its host MAC address to tests that need it.
fn address(switch: &Netns, addresses: [&str; 2]) {
    wait_for(LIMIT, "the device of br-phy", || switch.ip("link show dev br-phy").is_ok()).unwrap();
    answer_at_their_device(switch);
    switch.up("br-phy").unwrap();
    switch.add_addr("br-phy", &format!("{}/24", addresses[0])).unwrap();
    switch.add_addr("br-phy", &format!("{}/64", addresses[1])).unwrap();
}

impl Lab {
    pub(crate) fn new(tag: &str) -> Lab {
        let net = Topology::new(2).unwrap();
        let dir = RunDir::new(tag).unwrap();
        let daemon = spec(&net.switch, &dir).start().unwrap();
        let far = &net.hosts[1];
        far.netns.ip(&format!("addr flush dev {}", far.dev)).unwrap();
        far.netns.add_addr(&far.dev, &format!("{THERE}/24")).unwrap();
        far.netns.add_addr(&far.dev, &format!("{THERE6}/64")).unwrap();
        vsctl(&daemon, &bridges(&net.hosts[0], far, "netdev"));
        address(&net.switch, [HERE, HERE6]);
        testkit::reachable(&far.netns, HERE.parse().unwrap(), LIMIT).unwrap();
        testkit::reachable(&far.netns, HERE6.parse().unwrap(), LIMIT).unwrap();
        net.hosts[0].netns.ip(&format!("link set dev {} mtu {INNER_MTU}", net.hosts[0].dev)).unwrap();
        Lab { net, daemon, _dir: dir }
    }

    pub(crate) fn host(&self) -> &Host {
        &self.net.hosts[0]
    }

    pub(crate) fn far(&self) -> &Host {
        &self.net.hosts[1]
    }

    /// Creates a tunnel device on the remote machine, with this inner address.
    pub(crate) fn device(&self, kind: &str, address: &str) {
        let far = &self.far().netns;
        // Its neighbours keep the address of a former device.
        far.ip(&format!("link add t0 address 02:00:00:00:00:77 type {kind}")).unwrap();
        far.add_addr("t0", address).unwrap();
        far.ip(&format!("link set dev t0 mtu {INNER_MTU}")).unwrap();
        far.up("t0").unwrap();
    }
}

pub(crate) fn tunnel(name: &str, kind: &str, options: &str) -> String {
    let options: String = options.split(',').map(|o| format!(" options:{o}")).collect();
    format!("add-port br-int {name} -- set Interface {name} type={kind}{options}")
}

pub(crate) fn spec(netns: &Netns, dir: &RunDir) -> DaemonSpec {
    crate::helpers::spec(netns).rundir(dir)
}

/// TCP in both directions, in large segments.
fn streams(from: &Host, to: &Host, address: &str) {
    let _server = testkit::iperf3_server(&to.netns, 5201).unwrap();
    for more in [vec![], vec!["-R".to_string()]] {
        let options = Iperf3Options { bytes: Some(SEGMENTED_BYTES), more, ..Iperf3Options::default() };
        let report = testkit::iperf3_client(&from.netns, address.parse().unwrap(), &options).unwrap();
        println!("{address}: {:.0} Mbit/s", report.received_bps / 1e6);
        assert!(report.received_bps > 1e6, "{report:?}");
    }
    contents(&from.netns, &to.netns, address, STREAM_BYTES);
}

/// Bytes of a stream in large segments, each way: some 250 segments.
const SEGMENTED_BYTES: u64 = 16 << 20;
/// Bytes of a stream whose contents are compared, each way.
const STREAM_BYTES: usize = 8 << 20;

/// One connection: each side sends this number of its own bytes, and receives the other's unchanged.
pub(crate) fn contents(from: &Netns, to: &Netns, address: &str, stream_bytes: usize) {
    let bytes = |seed: u32| -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..stream_bytes).map(|_| next()).collect()
    };
    let limit = patience(LIMIT);
    let exchange = |stream: TcpStream, own: u32, other: u32| {
        stream.set_read_timeout(Some(limit)).unwrap();
        stream.set_write_timeout(Some(limit)).unwrap();
        let mut got = vec![0; stream_bytes];
        std::thread::scope(|scope| {
            scope.spawn(|| (&stream).write_all(&bytes(own)).unwrap());
            (&stream).read_exact(&mut got).unwrap();
        });
        assert!(got == bytes(other), "{address}: other bytes than sent");
    };
    let at: SocketAddr = (address.parse::<IpAddr>().unwrap(), 5202).into();
    let listener = to.enter(|| TcpListener::bind(at)).unwrap().unwrap();
    let stream = from.enter(|| TcpStream::connect_timeout(&at, limit)).unwrap().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(listener.accept().unwrap().0, 1, 2));
        exchange(stream, 2, 1);
    });
}

#[test]
fn the_kernels_vxlan_device_is_a_partner() {
    require_overlay!("iperf3");
    let lab = Lab::new("overlay");
    let (host, far) = (lab.host(), lab.far());
    for (device, options) in [
        (format!("vxlan id 5 remote {HERE} local {THERE} dstport 4789"), format!("remote_ip={THERE},key=5")),
        (
            format!("vxlan id 5 remote {HERE} local {THERE} dstport 8472 udpcsum"),
            format!("remote_ip={THERE},key=5,dst_port=8472,csum=true"),
        ),
        (
            format!("vxlan id 5 remote {HERE6} local {THERE6} dstport 4789"),
            format!("remote_ip={THERE6},key=5"),
        ),
        (
            format!("vxlan id 5 remote {HERE} local {THERE} dstport 4790 gbp"),
            format!("remote_ip={THERE},key=5,dst_port=4790,exts=gbp"),
        ),
    ] {
        println!("{options}");
        lab.device(&device, "10.0.0.2/16");
        vsctl(&lab.daemon, &tunnel("tun", "vxlan", &options));
        assert_eq!(vsctl(&lab.daemon, "get Interface tun error"), "[]");
        ping_all(&host.netns, [10, 0, 0, 2].into(), 10);
        ping_all(&far.netns, [10, 0, 0, 1].into(), 10);
        // Tunnels have no device, so the translation counts their packets.
        wait_until(&lab.daemon, "Interface tun statistics:rx_packets>=20 statistics:tx_packets>=20");
        let flows = appctl(&lab.daemon, "dpctl/dump-flows");
        assert!(flows.contains("tnl_push(") && flows.contains("tnl_pop("), "{flows}");
        streams(host, far, "10.0.0.2");
        vsctl(&lab.daemon, "del-port tun");
        far.netns.ip("link del t0").unwrap();
    }
    assert_eq!(appctl(&lab.daemon, "tnl/ports/show"), "Listening ports:\n");
    let lost = appctl(&lab.daemon, "coverage/show");
    assert!(!lost.contains("datapath_drop_tunnel_push_error"), "{lost}");
}

/// Returns from a test of overlays, with a line `SKIP: …`, without what it needs: namespaces, the userspace datapath, and
/// these programs beside those of Open vSwitch.
macro_rules! require_overlay {
    ($($program:literal),*) => {
        testkit::require_netns!();
        $crate::helpers::require_userspace!("tunnels of the userspace datapath");
        testkit::require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl" $(, $program)*);
    };
}
pub(crate) use require_overlay;

/// Requires an overlay with the daemons of Open vSwitch as partner.
macro_rules! require_overlay_to_stock {
    ($($program:literal),*) => {
        $crate::overlays::require_overlay!("ovs-vswitchd", "ovsdb-server", "ovsdb-tool" $(, $program)*);
    };
}
pub(crate) use require_overlay_to_stock;

/// Open vSwitch in a namespace, also on the kernel's datapath if that is under test; the daemon is first.
pub(crate) fn stock(netns: &Netns, dir: &RunDir) -> Vec<Daemon> {
    let spec = |program: &Path| Ok(DaemonSpec::new(program)?.netns(netns).rundir(dir));
    let args: [&[&str]; 2] = [&[], &["--pidfile", "--log-file"]];
    let daemons = if on_kernel() {
        testkit::start_stock_with(spec, "ovs-vswitchd", &[], args)
    } else {
        testkit::start_stock(spec, "ovs-vswitchd", &[], args)
    };
    daemons.unwrap()
}

/// Two switches over one underlay: that of the lab, and one in the remote namespace.
pub(crate) struct Pair {
    // Ended before the lab.
    daemons: Vec<Daemon>,
    is_stock: bool,
    _dir: RunDir,
    pub(crate) lab: Lab,
}

impl Pair {
    fn new(tag: &str, is_stock: bool, start: impl FnOnce(&Netns, &RunDir) -> Vec<Daemon>) -> Pair {
        let lab = Lab::new(tag);
        let dir = RunDir::new("far").unwrap();
        let daemons = start(&lab.far().netns, &dir);
        far_switch(&lab, &daemons[0]);
        Pair { daemons, is_stock, _dir: dir, lab }
    }

    /// With Open vSwitch there.
    pub(crate) fn with_stock(tag: &str) -> Pair {
        Pair::new(tag, true, stock)
    }

    /// With Sluice at both ends.
    pub(crate) fn of_ours(tag: &str) -> Pair {
        Pair::new(tag, false, |netns, dir| vec![spec(netns, dir).start().unwrap()])
    }

    /// The switch in the remote namespace.
    pub(crate) fn there(&self) -> &Daemon {
        &self.daemons[0]
    }

    /// Each switch, and the outer address of the other one.
    pub(crate) fn ends(&self) -> [(&Daemon, &'static str); 2] {
        [(&self.lab.daemon, THERE), (self.there(), HERE)]
    }

    /// Call it once both switches have a tunnel. OVS 3.1 may keep a flow from before it, which sends its packets to the bridge
    /// (seen with GRE and ERSPAN, one after the other): a stock partner purges its flows.
    pub(crate) fn forget_flows_before_tunnel(&self) {
        if self.is_stock {
            appctl(self.there(), "revalidator/purge");
        }
    }
}

/// A second switch in the remote namespace: `br-phy` has its addresses, the device of `br-int` is its host.
fn far_switch(lab: &Lab, daemon: &Daemon) {
    let far = lab.far();
    far.netns.ip(&format!("addr flush dev {}", far.dev)).unwrap();
    vsctl(
        daemon,
        &format!(
            "add-br br-phy -- set Bridge br-phy datapath_type=netdev -- add-port br-phy {} \
             -- add-br br-int -- set Bridge br-int datapath_type=netdev",
            far.dev
        ),
    );
    address(&far.netns, [THERE, THERE6]);
    wait_for(LIMIT, "the device of br-int", || far.netns.ip("link show dev br-int").is_ok()).unwrap();
    far.netns.ip(&format!("link set dev br-int mtu {INNER_MTU}")).unwrap();
    far.netns.up("br-int").unwrap();
    far.netns.add_addr("br-int", "10.0.0.2/16").unwrap();
}

/// Both switches with tunnels of each kind, to each other.
fn each_kind(pair: &Pair) {
    let (lab, there) = (&pair.lab, pair.there());
    for (kind, options, v6) in [
        ("vxlan", "key=5", false),
        ("vxlan", "key=5,csum=true,dst_port=8472", false),
        ("vxlan", "key=5", true),
        ("geneve", "key=5", false),
        ("gre", "key=5", false),
        ("gre", "csum=true,key=7", false),
        ("ip6gre", "key=5", true),
        ("erspan", "key=5,erspan_ver=1,erspan_idx=3", false),
        ("erspan", "key=1023,erspan_ver=2,erspan_dir=1,erspan_hwid=4", false),
        ("ip6erspan", "key=5,erspan_ver=2,erspan_hwid=3f", true),
        ("vxlan", "key=5,exts=gpe,dst_port=4790", false),
        ("gre", "key=9,packet_type=ptap", false),
    ] {
        println!("{kind} {options}, IPv6: {v6}");
        let (here, remote) = if v6 { (HERE6, THERE6) } else { (HERE, THERE) };
        for (daemon, remote) in [(&lab.daemon, remote), (there, here)] {
            vsctl(daemon, &tunnel("tun", kind, &format!("{options},remote_ip={remote}")));
            assert_eq!(vsctl(daemon, "get Interface tun error"), "[]");
        }
        pair.forget_flows_before_tunnel();
        if let Err(why) = testkit::reachable(&lab.host().netns, [10, 0, 0, 2].into(), LIMIT) {
            panic!("{why:#}\n{}", [&lab.daemon, there].map(tunnel_state).concat());
        }
        ping_all(&lab.host().netns, [10, 0, 0, 2].into(), 5);
        ping_all(&lab.far().netns, [10, 0, 0, 1].into(), 5);
        streams(lab.host(), lab.far(), "10.0.0.2");
        for daemon in [&lab.daemon, there] {
            vsctl(daemon, "del-port tun");
        }
    }
}

/// Flows, neighbours and counters of a switch, for a failure.
fn tunnel_state(daemon: &Daemon) -> String {
    let shown = |line| appctl_output(daemon, line).stdout;
    ["dpctl/dump-flows -m", "tnl/neigh/show", "tnl/ports/show -v", "ovs/route/show", "coverage/show"]
        .map(|line| format!("--- {line}\n{}\n", shown(line)))
        .concat()
}

/// OpenFlow ports of the host and of the tunnel on `br-int`.
const HOST_PORT: u32 = 41;
const TUNNEL_PORT: u32 = 42;

/// Both switches with tunnels of packets without Ethernet headers: received ones get the address of the host.
fn each_bare_kind(pair: &Pair, kinds: &[(&str, &str)]) {
    let (lab, there) = (&pair.lab, pair.there());
    let (host, far) = (lab.host(), &lab.far().netns);
    let far_mac = far.run("cat", &["/sys/class/net/br-int/address"]).unwrap().stdout;
    vsctl(&lab.daemon, &format!("set Interface {} ofport_request={HOST_PORT}", host.port));
    host.netns.ip(&format!("neigh replace 10.0.0.2 lladdr {} dev {}", far_mac.trim(), host.dev)).unwrap();
    far.ip(&format!("neigh replace 10.0.0.1 lladdr {} dev br-int", host.mac)).unwrap();
    let sides = [
        (&lab.daemon, [THERE, THERE6], host.mac.as_str(), HOST_PORT.to_string()),
        (there, [HERE, HERE6], far_mac.trim(), "LOCAL".to_string()),
    ];
    for (kind, options) in kinds {
        println!("{kind} {options}");
        for (daemon, remote, mac, port) in &sides {
            let remote = remote[usize::from(*kind == "srv6")];
            let row = tunnel("tun", kind, &format!("{options},remote_ip={remote}"));
            vsctl(daemon, &format!("{row} ofport_request={TUNNEL_PORT}"));
            assert_eq!(vsctl(daemon, "get Interface tun error"), "[]");
            let (gets, loses) = match options.contains("ptap") {
                true => ("encap(ethernet),", "decap(),"),
                false => ("", ""),
            };
            let rules = format!(
                "in_port={TUNNEL_PORT},actions={gets}set_field:{mac}->eth_dst,output:{port}\n\
                 in_port={port},ip,actions={loses}output:{TUNNEL_PORT}\n"
            );
            // With `ptap` a rule for packets without Ethernet names their type.
            let rules = match gets {
                "" => rules,
                _ => rules.replacen("actions", "packet_type=(1,0x800),actions", 1),
            };
            daemon.tool("ovs-ofctl").args(["-O", "OpenFlow15", "del-flows", "br-int"]).run().unwrap();
            let add = ["-O", "OpenFlow15", "add-flows", "br-int", "-"];
            daemon.tool("ovs-ofctl").args(add).input(rules.as_str()).run().unwrap();
        }
        pair.forget_flows_before_tunnel();
        ping_all(&host.netns, [10, 0, 0, 2].into(), 5);
        ping_all(far, [10, 0, 0, 1].into(), 5);
        streams(host, lab.far(), "10.0.0.2");
        for (daemon, ..) in &sides {
            vsctl(daemon, "del-port tun");
        }
    }
}

/// Kinds of tunnels of bare packets.
const BARE: [(&str, &str); 4] = [
    ("gre", "key=5,packet_type=legacy_l3"),
    ("gre", "key=6,packet_type=ptap"),
    ("vxlan", "key=5,exts=gpe,packet_type=legacy_l3,dst_port=4790"),
    ("gtpu", "key=5"),
];

#[test]
fn open_vswitch_is_a_partner() {
    require_overlay_to_stock!("iperf3", "ethtool");
    let pair = Pair::with_stock("ovs");
    let lab = &pair.lab;
    // It takes no large segments, and no checksums left to a device.
    lab.net.switch.run("ethtool", &["-K", &lab.far().port, "tx", "off"]).unwrap();
    each_kind(&pair);
    // Packets of its GTP-U have wrong checksums, which it drops itself.
    let kinds = BARE.into_iter().filter(|(kind, _)| *kind != "gtpu").collect::<Vec<_>>();
    each_bare_kind(&pair, &kinds);
}

#[test]
fn two_switches_span_an_overlay() {
    require_overlay!("iperf3");
    let pair = Pair::of_ours("two");
    each_kind(&pair);
    each_bare_kind(&pair, &BARE);
    // OVS 3.1 lacks it.
    each_bare_kind(&pair, &[("srv6", "srv6_flowlabel=compute")]);
}

/// A neighbour is asked for, and a route that changes moves the flows at once.
#[test]
fn routes_and_neighbours_of_the_machine_decide() {
    require_overlay!();
    let lab = Lab::new("routes");
    let (host, far, daemon) = (lab.host(), lab.far(), &lab.daemon);
    far.netns.add_addr("lo", "172.20.0.2/32").unwrap();
    lab.device(&format!("vxlan id 5 remote {HERE} local 172.20.0.2 dstport 4789"), "10.0.0.2/16");
    vsctl(daemon, &tunnel("tun", "vxlan", "remote_ip=172.20.0.2,key=5"));
    unreachable(&host.netns, [10, 0, 0, 2].into());
    // The next hop is not in the kernel's table of neighbours, but in ours.
    let switch = &lab.net.switch;
    switch.ip(&format!("route add 172.20.0.0/24 via {THERE} dev br-phy")).unwrap();
    ping_all(&host.netns, [10, 0, 0, 2].into(), 5);
    assert!(appctl(daemon, "tnl/neigh/show").contains(THERE));
    wait_until(
        daemon,
        "Interface tun status:tunnel_egress_iface=br-phy status:tunnel_egress_iface_carrier=up",
    );
    switch.ip("route del 172.20.0.0/24").unwrap();
    let flows = || appctl(daemon, "dpctl/dump-flows").contains("tnl_push");
    wait_for(LIMIT, "the flows to follow the route", || !flows()).unwrap();
    unreachable(&host.netns, [10, 0, 0, 2].into());
    appctl(daemon, &format!("ovs/route/add 172.20.0.2/32 br-phy {THERE}"));
    ping_all(&host.netns, [10, 0, 0, 2].into(), 5);
    // Another address of the next hop: it announces it, and flows follow.
    far.netns.ip(&format!("link set dev {} address 02:00:00:00:00:99", far.dev)).unwrap();
    appctl(daemon, "tnl/neigh/flush");
    ping_all(&host.netns, [10, 0, 0, 2].into(), 5);
    assert!(appctl(daemon, "tnl/neigh/show").contains("02:00:00:00:00:99"));
}

/// The first packet of a flow waits for the next hop's address. OVS drops it.
#[test]
fn the_first_packet_waits_for_the_neighbour() {
    require_overlay!();
    let lab = Lab::new("first");
    let (host, far, daemon) = (lab.host(), lab.far(), &lab.daemon);
    lab.device(&format!("vxlan id 5 remote {HERE} local {THERE} dstport 4789"), "10.0.0.2/16");
    far.netns.ip("neigh replace 10.0.0.1 lladdr 02:00:00:00:00:01 dev t0").unwrap();
    host.netns.ip(&format!("link set dev {} address 02:00:00:00:00:01", host.dev)).unwrap();
    host.netns.ip(&format!("neigh replace 10.0.0.2 lladdr 02:00:00:00:00:77 dev {}", host.dev)).unwrap();
    vsctl(daemon, &tunnel("tun", "vxlan", &format!("remote_ip={THERE},key=5")));
    let [from, to] = ["tun", &host.port].map(|port| format!("in_port={port},actions=output:"));
    for args in [
        ["mod-flows", "br-int", "actions=drop"],
        ["add-flow", "br-int", &format!("{from}{}", host.port)],
        ["add-flow", "br-int", &format!("{to}tun")],
    ] {
        daemon.ovs("ovs-ofctl", &args).unwrap();
    }
    let held = || {
        let counters = appctl(daemon, "coverage/show");
        let held = counters.lines().find(|line| line.starts_with("tnl_packet_held"));
        held.and_then(|line| line.rsplit(' ').next()?.parse::<u32>().ok()).unwrap_or(0)
    };
    // The next hop may announce its address between flush and packet, so more tries than packets to be held.
    wait_for(LIMIT, "five packets to be held", || {
        appctl(daemon, "tnl/neigh/flush");
        appctl(daemon, "dpctl/del-flows netdev@ovs-netdev");
        let report = testkit::ping(&host.netns, [10, 0, 0, 2].into(), 1).unwrap();
        assert_eq!(report.received, 1, "{}", appctl(daemon, "dpctl/dump-flows"));
        held() >= 5
    })
    .unwrap();
}
