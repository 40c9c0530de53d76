//! Tunnel ports on the kernel datapath: a host behind the switch, and a remote machine on an underlay network, which uses
//! the kernel's tunnel devices.

use std::collections::BTreeSet;

use testkit::{Daemon, Host, Netns, RunDir, Topology, require_netns, require_programs, wait_for};

use crate::helpers::{
    LIMIT, answered, appctl, keep_flows, ping_all, pings, unreachable, vsctl, vsctl_output, wait_until,
};
use crate::kernel::{Stock, dpctl, require_kernel, spec, steady};

/// Underlay addresses of the switch and of the remote machine.
const HERE: &str = "172.16.0.1";
const THERE: &str = "172.16.0.2";
const HERE6: &str = "fd01::1";
const THERE6: &str = "fd01::2";

/// A switch with one host, 10.0.0.1, and the remote machine.
struct Far {
    net: Topology,
}

impl Far {
    fn new() -> Far {
        let net = Topology::new(2).unwrap();
        let far = Far { net };
        let (there, dev) = (&far.there().netns, &far.there().dev);
        there.ip(&format!("addr flush dev {dev}")).unwrap();
        for (netns, dev, addresses) in
            [(there, dev, [THERE, THERE6]), (&far.net.switch, &far.there().port, [HERE, HERE6])]
        {
            netns.add_addr(dev, &format!("{}/24", addresses[0])).unwrap();
            netns.add_addr(dev, &format!("{}/64", addresses[1])).unwrap();
        }
        testkit::reachable(there, HERE.parse().unwrap(), LIMIT).unwrap();
        far
    }

    fn host(&self) -> &Host {
        &self.net.hosts[0]
    }

    fn there(&self) -> &Host {
        &self.net.hosts[1]
    }

    /// Creates a tunnel device on the remote machine, with this inner address.
    fn device(&self, name: &str, kind: &str, address: &str) {
        let there = &self.there().netns;
        there.ip(&format!("link add {name} type {kind}")).unwrap();
        there.add_addr(name, address).unwrap();
        there.up(name).unwrap();
    }

    /// The line that adds `br0` with the host's port.
    fn bridge(&self) -> String {
        format!("add-br br0 -- add-port br0 {}", self.host().port)
    }
}

/// The line that adds a tunnel.
fn tunnel(name: &str, kind: &str, options: &str) -> String {
    let options: String = options.split(',').map(|o| format!(" options:{o}")).collect();
    format!("add-port br0 {name} -- set Interface {name} type={kind}{options}")
}

fn has_device(netns: &Netns, name: &str) -> bool {
    netns.ip(&format!("link show dev {name}")).is_ok()
}

fn error_of(daemon: &Daemon, name: &str) -> String {
    vsctl(daemon, &format!("get Interface {name} error"))
}

/// Checks that stock tools print the same flows and ports.
fn stock_tools_agree(daemon: &Daemon, netns: &Netns) {
    let ports =
        |text: &str| text.lines().filter(|l| l.contains("port ")).map(String::from).collect::<Vec<_>>();
    let (ours, stock) = (appctl(daemon, "dpctl/show"), dpctl(netns, &["show"]));
    assert_eq!(ports(&ours), ports(&stock));
    for option in ["-m", "--names"] {
        let mut last = String::new();
        let same = wait_for(LIMIT, "both to show the same flows", || {
            let ours = appctl(daemon, &format!("dpctl/dump-flows {option}"));
            let stock = dpctl(netns, &["dump-flows", option]).replace(",key32(00 00/00 00)", "");
            last = format!("{ours}\n--\n{stock}");
            steady(&ours) == steady(&stock) && ours.contains("tunnel(") && ours.contains("set(tunnel(")
        });
        assert!(same.is_ok(), "{last}");
    }
}

#[test]
fn hosts_reach_each_other_through_each_tunnel_type() {
    require_kernel!();
    let far = Far::new();
    let (host, switch) = (far.host(), &far.net.switch);
    let dir = RunDir::new("tunnels").unwrap();
    let daemon = spec(switch, &dir).start().unwrap();
    vsctl(&daemon, &far.bridge());
    keep_flows(&daemon);
    let plain = format!("key=5, remote_ip={THERE}");
    // The remote machine drops outer IPv6 packets without a checksum.
    let v6 = format!("csum=true, key=5, remote_ip={THERE6}");
    let kinds = [
        ("vxlan", "vxlan_sys_4789", format!("vxlan id 5 remote {HERE} local {THERE} dstport 4789"), &plain),
        ("geneve", "genev_sys_6081", format!("geneve id 5 remote {HERE}"), &plain),
        ("gre", "gre_sys", format!("gretap key 5 remote {HERE} local {THERE}"), &plain),
        ("vxlan", "vxlan_sys_4789", format!("vxlan id 5 remote {HERE6} local {THERE6} dstport 4789"), &v6),
    ];
    for (kind, shared, device, options) in kinds {
        println!("{kind}: {options}");
        far.device("t0", &device, "10.0.0.2/16");
        vsctl(&daemon, &tunnel("tun", kind, &options.replace(' ', "")));
        assert_eq!(error_of(&daemon, "tun"), "[]", "{kind}");
        ping_all(&host.netns, [10, 0, 0, 2].into(), 10);
        // Both directions of a ping, in their flows; the device is shared, so the tunnel counts separately.
        stock_tools_agree(&daemon, switch);
        assert!(appctl(&daemon, "dpctl/show").contains(&format!("{shared} ({kind}: packet_type=ptap)")));
        wait_until(&daemon, "Interface tun statistics:rx_packets>=10 statistics:tx_packets>=10");
        let shown = appctl(&daemon, "dpif/show");
        assert!(shown.contains(&format!("({kind}: {options})")), "{shown}");
        vsctl(&daemon, "del-port tun");
        wait_for(LIMIT, "the shared device to go", || !has_device(switch, shared)).unwrap();
        far.there().netns.ip("link del t0").unwrap();
    }
}

/// Several tunnels share a device: keys and addresses distinguish them, and flows may set the destination.
#[test]
fn tunnels_share_a_device_and_flows_select_them() {
    require_kernel!();
    let far = Far::new();
    let (host, switch, there) = (far.host(), &far.net.switch, &far.there().netns);
    let dir = RunDir::new("shared").unwrap();
    let daemon = spec(switch, &dir).start().unwrap();
    vsctl(&daemon, &far.bridge());
    keep_flows(&daemon);
    far.device("t5", &format!("vxlan id 5 remote {HERE} local {THERE} dstport 4789"), "10.0.5.2/24");
    far.device("t6", &format!("vxlan id 6 remote {HERE} local {THERE} dstport 4789"), "10.0.6.2/24");
    vsctl(&daemon, &tunnel("five", "vxlan", &format!("remote_ip={THERE},key=5")));
    vsctl(&daemon, &tunnel("rules", "vxlan", "remote_ip=flow,key=flow"));
    let number = |name: &str| vsctl(&daemon, &format!("get Interface {name} ofport"));
    let (five, rules, local) = (number("five"), number("rules"), number(&host.port));
    let flows = [
        format!("in_port={local},ip,nw_dst=10.0.5.0/24,actions={five}"),
        format!("in_port={local},arp,arp_tpa=10.0.5.0/24,actions={five}"),
        format!(
            "in_port={local},ip,nw_dst=10.0.6.0/24,actions=set_field:6->tun_id,set_field:{THERE}->tun_dst,{rules}"
        ),
        format!(
            "in_port={local},arp,arp_tpa=10.0.6.0/24,actions=set_tunnel:6,set_field:{THERE}->tun_dst,{rules}"
        ),
        format!("in_port={five},actions={local}"),
        format!("in_port={rules},tun_id=6,tun_src={THERE},actions={local}"),
    ];
    daemon.ovs("ovs-ofctl", &["del-flows", "br0"]).unwrap();
    for flow in &flows {
        daemon.ovs("ovs-ofctl", &["add-flow", "br0", flow]).unwrap();
    }
    host.netns.ip(&format!("route add 10.0.5.0/24 dev {}", host.dev)).ok();
    for (dev, to) in [("t5", [10, 0, 5, 2]), ("t6", [10, 0, 6, 2])] {
        there.ip(&format!("route add {} dev {dev}", host.ipv4)).unwrap();
        ping_all(&host.netns, to.into(), 5);
        there.ip(&format!("route del {} dev {dev}", host.ipv4)).unwrap();
    }
    stock_tools_agree(&daemon, switch);
    let counted = |text: &str| {
        daemon.ovs("ovs-ofctl", &["dump-flows", "br0", text]).unwrap().stdout.contains("n_packets=0,")
    };
    wait_for(LIMIT, "the rules to count", || !counted(&format!("in_port={rules}"))).unwrap();
    // The device is removed with the last tunnel.
    vsctl(&daemon, "del-port five");
    assert!(has_device(switch, "vxlan_sys_4789"));
    vsctl(&daemon, "del-port rules");
    wait_for(LIMIT, "the shared device to go", || !has_device(switch, "vxlan_sys_4789")).unwrap();
}

#[test]
fn tunnels_follow_their_options_and_report_errors() {
    require_kernel!();
    let far = Far::new();
    let (host, switch) = (far.host(), &far.net.switch);
    let dir = RunDir::new("options").unwrap();
    let daemon = spec(switch, &dir).start().unwrap();
    vsctl(&daemon, &far.bridge());
    keep_flows(&daemon);
    far.device("t0", &format!("vxlan id 5 remote {HERE} local {THERE} dstport 8472"), "10.0.0.2/16");
    vsctl(&daemon, &tunnel("tun", "vxlan", "remote_ip=172.16.0.9,key=5"));
    unreachable(&host.netns, [10, 0, 0, 2].into());
    // By modifying the device, and by replacing it.
    vsctl(&daemon, &format!("set Interface tun options:remote_ip={THERE}"));
    unreachable(&host.netns, [10, 0, 0, 2].into());
    vsctl(&daemon, "set Interface tun options:dst_port=8472");
    ping_all(&host.netns, [10, 0, 0, 2].into(), 3);
    assert!(!has_device(switch, "vxlan_sys_4789"));
    vsctl(&daemon, "set Interface tun options:key=6");
    unreachable(&host.netns, [10, 0, 0, 2].into());
    vsctl(&daemon, "set Interface tun options:key=5");
    ping_all(&host.netns, [10, 0, 0, 2].into(), 3);
    // Another program removes the device: it is recreated.
    switch.ip("link del vxlan_sys_8472").unwrap();
    testkit::reachable(&host.netns, [10, 0, 0, 2].into(), LIMIT).unwrap();
    for (name, options, error) in [
        ("none", "key=1", "none: vxlan type requires valid 'remote_ip' argument".to_string()),
        (
            "twin",
            &*format!("remote_ip={THERE},key=5,dst_port=8472,ttl=9"),
            "could not add network device twin to ofproto (tun is the same tunnel)".to_string(),
        ),
    ] {
        let _fails = vsctl_output(&daemon, &tunnel(name, "vxlan", options));
        assert_eq!(error_of(&daemon, name), format!("\"{error}\""));
        assert_eq!(vsctl(&daemon, &format!("get Interface {name} ofport")), "-1");
    }
    // No longer a duplicate.
    vsctl(&daemon, "set Interface twin options:key=7");
    assert_eq!(error_of(&daemon, "twin"), "[]");
    // Types that only the userspace datapath has.
    let _fails = vsctl_output(&daemon, &tunnel("u0", "ip6gre", &format!("remote_ip={THERE6}")));
    let error = error_of(&daemon, "u0");
    assert!(error.contains("need the userspace datapath"), "{error}");
}

/// A kill, a clean exit, and a takeover from the stock switch, which creates its devices differently.
#[test]
fn tunnels_outlive_a_kill_and_are_taken_over() {
    require_kernel!();
    require_programs!("ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovsdb-client");
    let far = Far::new();
    let (host, switch) = (far.host(), &far.net.switch);
    let stock = Stock::new();
    let theirs = stock.start(switch);
    vsctl(&theirs, &far.bridge());
    far.device("t0", &format!("vxlan id 5 remote {HERE} local {THERE} dstport 4789"), "10.0.0.2/16");
    vsctl(&theirs, &tunnel("tun", "vxlan", &format!("remote_ip={THERE},key=5")));
    let there = [10, 0, 0, 2];
    vsctl(&theirs, &tunnel("rules", "geneve", "remote_ip=flow,local_ip=172.16.0.1,key=flow,csum=true"));
    vsctl(
        &theirs,
        &tunnel("gre", "gre", "remote_ip=fd01::9,in_key=6,out_key=7,ttl=inherit,tos=0x20,df_default=false"),
    );
    ping_all(&host.netns, there.into(), 3);
    let reported = |daemon: &Daemon| {
        let lines = |text: String| text.lines().map(|l| l.trim().to_string()).collect::<BTreeSet<_>>();
        let show = lines(appctl(daemon, "dpif/show"));
        let ports: Vec<_> = show.into_iter().filter(|l| l.contains("remote_ip=")).collect();
        (ports, lines(appctl(daemon, "ofproto/list-tunnels")))
    };
    let before = reported(&theirs);
    assert_eq!((before.0.len(), before.1.len()), (3, 3), "{before:?}");
    theirs.crash().unwrap();
    let ours = stock.serve(switch);
    assert_eq!(reported(&ours), before);
    ping_all(&host.netns, there.into(), 3);
    stock_tools_agree(&ours, switch);
    vsctl(&ours, "set Open_vSwitch . other_config:flow-restore-wait=true");
    let pings = pings(&host.netns, "0.02", there.into());
    wait_for(LIMIT, "pings", || has_device(switch, "vxlan_sys_4789")).unwrap();
    ours.crash().unwrap();
    let ours = stock.serve(switch);
    wait_for(LIMIT, "the kept flows", || ours.log().contains("flows of a former process stay")).unwrap();
    vsctl(&ours, "remove Open_vSwitch . other_config flow-restore-wait");
    wait_for(LIMIT, "the end of the restart", || ours.log().contains("flows are restored")).unwrap();
    appctl(&ours, "revalidator/wait");
    ping_all(&host.netns, there.into(), 3);
    answered(pings, 1);
    ours.crash().unwrap();
    let theirs = stock.start(switch);
    ping_all(&host.netns, there.into(), 3);
    theirs.stop().unwrap();
}
