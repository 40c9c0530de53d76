//! The kernel datapath with real traffic, beside Debian's switch and its tools.
//!
//! These tests need the module `openvswitch`: usually in the machine of `cargo xtask guest`. The other tests also run on
//! it with `SLUICE_DATAPATH=kernel`.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use netlink::socket::Socket;
use testkit::{
    Cmd, Daemon, DaemonSpec, Host, Netns, RunDir, Running, Signal, Topology, require_netns, require_programs,
    wait_for,
};

use crate::helpers::{
    LIMIT, SLUICED, answered, appctl, descriptors, descriptors_now, keep_flows, ping_all, pings, unreachable,
    vsctl,
};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Skips a test, with a message, if the kernel has no datapath.
macro_rules! require_kernel {
    () => {
        require_netns!();
        require_programs!("ovs-vsctl", "ovs-appctl", "ovs-dpctl", "ovs-ofctl", "ping");
        if !$crate::kernel::has_module() {
            return $crate::kernel::skipped();
        }
    };
}
pub(crate) use require_kernel;

pub(crate) fn has_module() -> bool {
    std::env::var_os("SLUICE_GUEST").is_some_and(|v| v == "1")
        || Path::new("/sys/module/openvswitch").exists()
}

pub(crate) fn skipped() {
    testkit::skip(
        "kernel",
        "the kernel has no module openvswitch (cargo xtask check runs these in a guest that has)",
    );
}

pub(crate) fn spec(netns: &Netns, dir: &RunDir) -> DaemonSpec {
    let spec = DaemonSpec::new(SLUICED).unwrap().netns(netns).rundir(dir);
    spec.args(["--pidfile", "--log-file", "-vconsole:off", "--overwrite-pidfile"])
}

pub(crate) fn start(netns: &Netns, dir: &RunDir) -> Daemon {
    spec(netns, dir).start().unwrap()
}

/// The line that adds `br0` with a port for each host. A guest may take longer from a packet to the listing of its flow
/// than flows last, so they last.
pub(crate) fn bridge(net: &Topology) -> String {
    let ports: Vec<String> = net.ports().iter().map(|p| format!(" -- add-port br0 {p}")).collect();
    format!("add-br br0{} -- set Open_vSwitch . other_config:max-idle=600000", ports.concat())
}

/// Output of `ovs-dpctl` on the namespace's datapaths.
pub(crate) fn dpctl(netns: &Netns, args: &[&str]) -> String {
    netns.run("ovs-dpctl", args).unwrap().stdout
}

/// Flows without their varying fields.
pub(crate) fn steady(flows: &str) -> BTreeSet<String> {
    let one = |line: &str| {
        let (key, rest) = line.split_once(", packets:").unwrap_or((line, ""));
        let rest = rest.find("dp:ovs").or(rest.find("actions:")).map_or("", |at| &rest[at..]);
        format!("{key}, {rest}")
    };
    flows.lines().map(one).collect()
}

fn ifindex(netns: &Netns, name: &str) -> String {
    netns.run("cat", &[&format!("/sys/class/net/{name}/ifindex")]).unwrap().stdout
}

#[test]
fn hosts_reach_each_other_and_stock_tools_agree() {
    require_kernel!();
    let net = Topology::new(3).unwrap();
    let [one, two, three] = &net.hosts[..] else { panic!("three hosts") };
    let dir = RunDir::new("kernel").unwrap();
    let daemon = start(&net.switch, &dir);
    vsctl(&daemon, &bridge(&net));
    keep_flows(&daemon);
    assert_eq!(vsctl(&daemon, "get Open_vSwitch . datapath_types"), "[netdev, system]");
    ping_all(&one.netns, two.ipv4.into(), 10);
    ping_all(&two.netns, three.ipv6.into(), 10);
    let shown = appctl(&daemon, "dpif/show");
    assert!(shown.starts_with("system@ovs-system: hit:"), "{shown}");
    assert!(shown.contains(" dispatch:per-"), "{shown}");
    assert!(daemon.log().contains("system@ovs-system: upcalls come per-"), "{}", daemon.log());
    // Both tools print the same datapath, ports and flows.
    let ours = appctl(&daemon, "dpctl/show");
    let stock = dpctl(&net.switch, &["show"]);
    let ports =
        |text: &str| text.lines().filter(|l| l.contains("port ")).map(String::from).collect::<Vec<_>>();
    assert_eq!(ports(&ours), ports(&stock));
    assert_eq!(ports(&ours).len(), 5, "{ours}");
    for options in [vec!["-m"], vec!["--names"], vec![]] {
        let line = format!("dpctl/dump-flows {}", options.join(" "));
        let mut words = vec!["dump-flows"];
        words.extend(&options);
        // A flow may be added or deleted in between.
        let mut last = String::new();
        let same = wait_for(LIMIT, "both to show the same flows", || {
            let (ours, stock) = (appctl(&daemon, line.trim()), dpctl(&net.switch, &words));
            // An attribute unknown to the stock tool.
            let stock = stock.replace(",key32(00 00/00 00)", "");
            last = format!("{ours}\n--\n{stock}");
            steady(&ours) == steady(&stock) && !ours.is_empty()
        });
        assert!(same.is_ok(), "{line}:\n{last}");
    }
    actions_of_others_are_shown(&net, &daemon);
    // OpenFlow flows count packets that the kernel forwards.
    ping_all(&one.netns, two.ipv4.into(), 20);
    wait_for(LIMIT, "the counters", || {
        let rules = daemon.ovs("ovs-ofctl", &["dump-flows", "br0"]).unwrap().stdout;
        let packets = rules.split("n_packets=").nth(1).and_then(|t| t.split(',').next()?.parse::<u64>().ok());
        packets.is_some_and(|n| n >= 60)
    })
    .unwrap();
    // Removing the last bridge removes the datapath.
    vsctl(&daemon, "del-br br0");
    wait_for(LIMIT, "the datapath to go", || dpctl(&net.switch, &["dump-dps"]).is_empty()).unwrap();
    ports_of_rules(&net, &daemon);
}

/// IPFIX has the outer headers that the kernel gives a packet: source and UDP port are known to it alone.
#[test]
fn samples_show_the_tunnels_that_packets_leave_by() {
    require_kernel!();
    let net = Topology::new(1).unwrap();
    let host = &net.hosts[0];
    let dir = RunDir::new("kernel").unwrap();
    let daemon = start(&net.switch, &dir);
    net.switch.up("lo").unwrap();
    let socket = net.switch.enter(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    socket.set_read_timeout(Some(testkit::patience(LIMIT))).unwrap();
    let far = Netns::new("far").unwrap();
    let (under, end) = testkit::veth(&net.switch, &far).unwrap();
    net.switch.add_addr(&under, "198.18.9.1/24").unwrap();
    net.switch.up(&under).unwrap();
    far.up(&end).unwrap();
    net.switch.ip(&format!("neigh replace 198.18.9.2 lladdr 02:00:00:00:09:02 dev {under}")).unwrap();
    vsctl(&daemon, &bridge(&net));
    let tunnel =
        "-- set Interface tun type=vxlan options:remote_ip=198.18.9.2 options:key=77 ofport_request=9";
    let target = socket.local_addr().unwrap();
    let row = format!("-- --id=@i create IPFIX targets=\"{target}\" sampling=1 -- set Bridge br0 ipfix=@i");
    vsctl(&daemon, &format!("add-port br0 tun {tunnel} {row}"));
    assert_eq!(vsctl(&daemon, "get Interface tun error"), "[]");
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", "priority=9,arp,actions=output:9"]).unwrap();
    host.netns.ip(&format!("neigh flush dev {}", host.dev)).unwrap();
    // Asks for an address that nobody has.
    let absent = std::net::Ipv4Addr::from(u32::from(host.ipv4) ^ 0x3f).to_string();
    let _asking = host.netns.spawn("ping", &["-n", "-i", "0.2", &absent]).unwrap();
    let (head, tail) = ([198, 18, 9, 1, 198, 18, 9, 2, 17], [0x12, 0xb5, 1, 3, 0, 0, 77]);
    let shown = |domain: u8| {
        let mut buffer = [0; 2048];
        loop {
            let length = socket.recv(&mut buffer).expect("a record with a tunnel");
            let datagram = &buffer[..length];
            let tunnel = datagram.windows(18).find(|part| part[..9] == head && part[11..] == tail);
            if let Some(tunnel) = tunnel.filter(|_| datagram[15] == domain) {
                return assert_ne!(tunnel[9..11], [0, 0], "the UDP source port");
            }
        }
    };
    shown(0);
    let flows = appctl(&daemon, "dpctl/dump-flows");
    assert!(flows.contains(",tunnel_out_port="), "{flows}");
    // The action `sample` names the tunnel before the packet leaves by it.
    let id = vsctl(&daemon, "get Bridge br0 _uuid");
    let set = format!("create Flow_Sample_Collector_Set id=1 bridge={id} ipfix=@i");
    let row = format!("--id=@i create IPFIX targets=\"{target}\" -- {set}");
    vsctl(&daemon, &format!("clear Bridge br0 ipfix -- {row}"));
    let sampled = "sample(probability=65535,collector_set_id=1,obs_domain_id=5,sampling_port=9),output:9";
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", &format!("priority=9,arp,actions={sampled}")]).unwrap();
    shown(5);
}

/// Attributes of samples (`enum psample_attr` in the kernel's linux/psample.h).
mod psample {
    pub(super) const IIFINDEX: u16 = 0;
    pub(super) const GROUP: u16 = 3;
    pub(super) const RATE: u16 = 5;
    pub(super) const DATA: u16 = 6;
    pub(super) const USER_COOKIE: u16 = 15;
    pub(super) const PROBABILITY: u16 = 16;
}

/// Samples for local readers leave by psample, which any program reads; before Linux 6.11 the row has the reason why not.
#[test]
fn samples_for_local_readers_leave_by_psample() {
    require_kernel!();
    let net = Topology::new(2).unwrap();
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let dir = RunDir::new("kernel").unwrap();
    let daemon = start(&net.switch, &dir);
    vsctl(&daemon, &bridge(&net));
    let row = "vsctl -- --id=@b get Bridge br0 -- create Flow_Sample_Collector_Set id=1 bridge=@b local_group_id=10";
    // Debian's tool does not know the column.
    crate::cli::sluice(&daemon, &row.split(' ').collect::<Vec<_>>());
    let sample = "sample(probability=65535,collector_set_id=1,obs_domain_id=0x11223344,obs_point_id=7)";
    daemon
        .ovs("ovs-ofctl", &["add-flow", "br0", &format!("priority=9,icmp,actions={sample},normal")])
        .unwrap();
    if appctl(&daemon, "dpif/show-dp-features br0").contains("psample action: No") {
        let why = "samples for local readers are not taken: the datapath lacks psample";
        wait_for(LIMIT, "the reason in the row", || {
            vsctl(&daemon, "--if-exists get Bridge br0 status:notice").contains(why)
        })
        .unwrap();
        ping_all(&one.netns, two.ipv4.into(), 3);
        testkit::skip("kernel", "samples by psample: the kernel lacks the action (Linux 6.11)");
        return;
    }
    let mut reader = net.switch.enter(|| Socket::open().unwrap()).unwrap();
    let family = netlink::genl::family(&mut reader, "psample").unwrap();
    testkit::reachable(&one.netns, two.ipv4.into(), LIMIT).unwrap();
    reader.join(family.group("packets").unwrap()).unwrap();
    assert_eq!(testkit::ping(&one.netns, two.ipv4.into(), 10).unwrap().received, 10);
    let mut reader = std::fs::File::from(reader.as_fd().try_clone_to_owned().unwrap());
    let mut seen = BTreeSet::new();
    let mut buffer = vec![0; 1 << 16];
    // Request and reply of each ping.
    for _ in 0..20 {
        let length = reader.read(&mut buffer).unwrap();
        // Behind the netlink and the generic header.
        let sample = netlink::attr::Attrs::parse(&buffer[20..length]).unwrap();
        let of = |kind| sample.get(kind).unwrap_or_else(|| panic!("no attribute {kind}"));
        assert_eq!((of(psample::GROUP).u32().unwrap(), of(psample::RATE).u32().unwrap()), (10, u32::MAX));
        assert!(sample.get(psample::PROBABILITY).is_some());
        let cookie = [0x11, 0x22, 0x33, 0x44, 0, 0, 0, 7];
        assert_eq!(of(psample::USER_COOKIE).content, cookie);
        let data = of(psample::DATA).content;
        let ingress = of(psample::IIFINDEX).u16().unwrap();
        // ICMP: type and sequence number behind 14 and 20 bytes of headers.
        seen.insert((ingress, data[34], u16::from_be_bytes([data[40], data[41]])));
    }
    let of = |host: usize| ifindex(&net.switch, net.ports()[host]).trim().parse::<u16>().unwrap();
    let wanted = (1..=10).flat_map(|number| [(of(0), 8, number), (of(1), 0, number)]).collect();
    assert_eq!(seen, wanted);
}

/// Checks that flows with actions never generated by Sluice print as in the stock tools.
fn actions_of_others_are_shown(net: &Topology, daemon: &Daemon) {
    let key = "in_port(1),eth(src=02:00:00:00:00:77,dst=02:00:00:00:00:78),eth_type(0x0800),ipv4(proto=253,frag=no)";
    let of = |flows: String| flows.lines().find(|l| l.contains("00:77")).unwrap_or_default().to_string();
    // No OpenFlow flow leads to these: the revalidator would delete them.
    appctl(daemon, "revalidator/pause");
    for (is_ours, actions) in [
        (false, "ct_clear,2"),
        (false, "ct(commit,zone=5,mark=0x1/0xff,label=0x1/0x3,nat(dst=10.0.0.1-10.0.0.9:1-99,random)),2"),
        (true, "ct(force_commit,timeout=x,nat(src)),hash(l4(7)),recirc(0x99)"),
        (
            true,
            "set(skb_mark(0x1)),push_mpls(label=16,tc=0,ttl=64,bos=1,eth_type=0x8847),set(mpls(label=5,tc=0,ttl=9,bos=1)),2",
        ),
        (true, "check_pkt_len(size=200,gt(trunc(64),2),le(check_pkt_len(size=100,gt(2),le(ct_clear)))),2"),
        (true, "pop_eth,push_eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),2"),
    ] {
        if is_ours {
            appctl(daemon, &format!("dpctl/add-flow {key} {actions}"));
        } else {
            dpctl(&net.switch, &["add-flow", "ovs-system", key, actions]);
        }
        let (ours, stock) = (of(appctl(daemon, "dpctl/dump-flows")), of(dpctl(&net.switch, &["dump-flows"])));
        assert!(stock.ends_with(&format!(" actions:{actions}")), "{stock}");
        assert_eq!(ours, stock);
        // A flow with a ufid is addressed by it.
        if is_ours {
            appctl(daemon, &format!("dpctl/del-flow {key}"));
        } else {
            dpctl(&net.switch, &["del-flow", "ovs-system", key]);
        }
    }
    appctl(daemon, "revalidator/resume");
}

/// Checks that changed OpenFlow flows (drop, redirect, ARP reply) change the kernel's forwarding at once.
fn ports_of_rules(net: &Topology, daemon: &Daemon) {
    let [one, two, _] = &net.hosts[..] else { panic!("three hosts") };
    vsctl(daemon, &bridge(net));
    ping_all(&one.netns, two.ipv4.into(), 3);
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", "priority=9,icmp,actions=drop"]).unwrap();
    unreachable(&one.netns, two.ipv4.into());
    daemon.ovs("ovs-ofctl", &["del-flows", "br0", "icmp"]).unwrap();
    ping_all(&one.netns, two.ipv4.into(), 3);
}

/// Answers ARP requests for any address.
const ARP_RULE: &str = "priority=9,arp,arp_op=1,actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],\
    mod_dl_src:02:00:00:00:00:99,load:2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],\
    load:0x020000000099->NXM_NX_ARP_SHA[],push:NXM_OF_ARP_TPA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],\
    pop:NXM_OF_ARP_SPA[],in_port";

/// Waits until the host resolves an address that only the flow answers for.
fn asks(host: &Host) {
    let (mut other, dev) = (host.ipv4.octets(), &host.dev);
    other[3] = 77;
    let other = std::net::Ipv4Addr::from(other).to_string();
    host.netns.ip(&format!("neigh flush dev {dev}")).unwrap();
    let answered = || {
        let _ = host.netns.cmd("ping").args(["-n", "-c", "1", "-W", "1", &other]).output();
        host.netns.ip(&format!("neigh show {other} dev {dev}")).unwrap().contains("02:00:00:00:00:99")
    };
    wait_for(LIMIT, "an answer to ARP", answered).unwrap();
}

/// The upcall socket of a flow's slow-path action.
fn slow_pid(netns: &Netns) -> Option<String> {
    let flows = dpctl(netns, &["dump-flows"]);
    let (_, rest) = flows.split_once("userspace(pid=")?;
    let (pid, rest) = rest.split_once(',')?;
    assert!(rest.starts_with("slow_path(action)"), "{flows}");
    Some(pid.to_string())
}

/// The kernel cannot rewrite ARP, so the slow path does, for each packet. A flow kept over a restart sends its packets to
/// the new process.
#[test]
fn a_flow_answers_arp_in_the_slow_path() {
    require_kernel!();
    let net = Topology::new(1).unwrap();
    let host = &net.hosts[0];
    let dir = RunDir::new("arp").unwrap();
    let daemon = start(&net.switch, &dir);
    vsctl(&daemon, "set Open_vSwitch . other_config:upcall-dispatch=per-port");
    vsctl(&daemon, &bridge(&net));
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", ARP_RULE]).unwrap();
    asks(host);
    let before = slow_pid(&net.switch);
    assert!(before.is_some());
    vsctl(&daemon, "set Open_vSwitch . other_config:flow-restore-wait=true");
    daemon.crash().unwrap();
    let daemon = start(&net.switch, &dir);
    // Answered once the bridge exists again.
    vsctl(&daemon, "set Bridge br0 external_ids:back=yes");
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", ARP_RULE]).unwrap();
    assert_eq!(slow_pid(&net.switch), before);
    vsctl(&daemon, "remove Open_vSwitch . other_config flow-restore-wait");
    wait_for(LIMIT, "the socket of the new process", || slow_pid(&net.switch) != before).unwrap();
    asks(host);
}

/// Debian's switch with its own database server.
pub(crate) struct Stock {
    server: Option<Running>,
    dir: RunDir,
}

impl Stock {
    pub(crate) fn new() -> Stock {
        let dir = RunDir::new("stock").unwrap();
        let file = dir.join("conf.db").to_string_lossy().into_owned();
        dir.ovs("ovsdb-tool", &["create", &file, SCHEMA]).unwrap();
        let server = Cmd::new("ovsdb-server")
            .arg(&file)
            .arg(format!("--remote=p{}", dir.db()))
            .arg(format!("--unixctl={}", dir.join("ovsdb-server.ctl").display()))
            .args(["-vconsole:off"])
            .spawn()
            .unwrap();
        wait_for(LIMIT, "ovsdb-server", || dir.ovs("ovsdb-client", &["list-dbs", &dir.db()]).is_ok())
            .unwrap();
        Stock { server: Some(server), dir }
    }

    /// Starts Sluice on its own database.
    pub(crate) fn serve(&self, netns: &Netns) -> Daemon {
        spec(netns, &self.dir).args([self.dir.db()]).start().unwrap()
    }

    pub(crate) fn start(&self, netns: &Netns) -> Daemon {
        testkit::wait_for_processors().unwrap();
        let spec = DaemonSpec::new("ovs-vswitchd").unwrap().netns(netns).rundir(&self.dir);
        spec.args([&self.dir.db(), "--pidfile", "--log-file", "-vconsole:off", "--overwrite-pidfile"])
            .start()
            .unwrap()
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let _ = server.stop(Signal::TERM, LIMIT);
        }
    }
}

#[test]
fn a_datapath_is_taken_over_from_the_stock_switch_and_back() {
    require_kernel!();
    require_programs!("ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovsdb-client");
    let net = Topology::new(2).unwrap();
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let stock = Stock::new();
    let theirs = stock.start(&net.switch);
    vsctl(&theirs, &bridge(&net));
    ping_all(&one.netns, two.ipv4.into(), 5);
    let (system, local) = (ifindex(&net.switch, "ovs-system"), ifindex(&net.switch, "br0"));
    let ports = dpctl(&net.switch, &["show"]);
    let ports: Vec<&str> = ports.lines().filter(|l| l.contains("port ")).collect();
    let abilities = appctl(&theirs, "dpif/show-dp-features br0");
    // As after a crash: the datapath stays, with a port absent from the database.
    theirs.crash().unwrap();
    net.switch.run("ovs-dpctl", &["add-if", "ovs-system", "left0,type=internal"]).unwrap();
    let ours = stock.serve(&net.switch);
    ping_all(&one.netns, two.ipv4.into(), 5);
    assert!(ours.log().contains("takes over the kernel's datapath"), "{}", ours.log());
    same_abilities(&abilities, &appctl(&ours, "dpif/show-dp-features br0"));
    assert_eq!(
        (ifindex(&net.switch, "ovs-system"), ifindex(&net.switch, "br0")),
        (system.clone(), local.clone())
    );
    let same_ports = || {
        let now = dpctl(&net.switch, &["show"]);
        now.lines().filter(|l| l.contains("port ")).collect::<Vec<_>>() == ports
    };
    wait_for(LIMIT, "the port of nobody to go", same_ports).unwrap();
    ours.crash().unwrap();
    let theirs = stock.start(&net.switch);
    ping_all(&two.netns, one.ipv6.into(), 5);
    assert_eq!((ifindex(&net.switch, "ovs-system"), ifindex(&net.switch, "br0")), (system, local));
    theirs.stop().unwrap();
}

/// Debian's switch and Sluice detect the same capabilities; but it does not probe explicit drops, and Sluice parses one VLAN
/// tag.
fn same_abilities(stock: &str, ours: &str) {
    let asked = stock.lines().filter(|row| !row.starts_with("Explicit Drop action"));
    let differ: Vec<&str> = asked.filter(|row| !ours.lines().any(|l| l == *row)).collect();
    assert_eq!(differ, ["Max VLAN headers: 2"], "{ours}");
}

#[test]
fn established_traffic_survives_a_kill() {
    require_kernel!();
    let net = Topology::new(2).unwrap();
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let dir = RunDir::new("restart").unwrap();
    let mut daemon = start(&net.switch, &dir);
    vsctl(&daemon, &bridge(&net));
    // Neighbours are resolved: a new request would be a new flow.
    for (host, other) in [(one, two), (two, one)] {
        let (ip, mac, dev) = (other.ipv4, &other.mac, &host.dev);
        host.netns.ip(&format!("neigh replace {ip} lladdr {mac} dev {dev} nud permanent")).unwrap();
    }
    ping_all(&one.netns, two.ipv4.into(), 5);
    let pings = pings(&one.netns, "0.01", two.ipv4.into());
    for round in 0..2 {
        vsctl(&daemon, "set Open_vSwitch . other_config:flow-restore-wait=true");
        ping_all(&two.netns, one.ipv4.into(), 5);
        daemon.crash().unwrap();
        // No daemon runs: the kernel forwards.
        ping_all(&two.netns, one.ipv4.into(), 5);
        let foreign = "in_port(1),eth(src=02:00:00:00:00:77,dst=02:00:00:00:00:78),eth_type(0x88b5)";
        dpctl(&net.switch, &["add-flow", "ovs-system", foreign, "ct_clear,2"]);
        daemon = start(&net.switch, &dir);
        // All rounds share one log.
        let message = |text: &str| daemon.log().matches(text).count() > round;
        wait_for(LIMIT, "the kept flows in the log", || message("flows of a former process stay")).unwrap();
        let kept = dpctl(&net.switch, &["dump-flows"]);
        assert!(!kept.contains("ct_clear"), "{kept}");
        ping_all(&two.netns, one.ipv4.into(), 5);
        vsctl(&daemon, "remove Open_vSwitch . other_config flow-restore-wait");
        wait_for(LIMIT, "the end of the restart", || message("flows are restored")).unwrap();
        appctl(&daemon, "revalidator/wait");
        ping_all(&two.netns, one.ipv4.into(), 5);
        println!("round {round}: {}", appctl(&daemon, "dpctl/dump-flows"));
    }
    answered(pings, 1);
    // New flows are forwarded as well.
    ping_all(&one.netns, two.ipv6.into(), 3);
}

#[test]
fn a_removed_datapath_is_recreated() {
    require_kernel!();
    let net = Topology::new(2).unwrap();
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let dir = RunDir::new("removed").unwrap();
    let daemon = start(&net.switch, &dir);
    vsctl(&daemon, &bridge(&net));
    ping_all(&one.netns, two.ipv4.into(), 3);
    net.switch.run("ovs-dpctl", &["del-dp", "ovs-system"]).unwrap();
    wait_for(LIMIT, "the ports to come back", || {
        testkit::ping(&one.netns, two.ipv4.into(), 1).is_ok_and(|report| report.received == 1)
    })
    .unwrap();
    assert!(daemon.log().contains("another process deleted the datapath"), "{}", daemon.log());
    // A single port too, whether of a device or internal.
    for (port, to) in [(&*one.port, two.ipv4), ("br0", [10, 0, 9, 9].into())] {
        // The local port may not be recreated yet.
        let removed = || net.switch.run("ovs-dpctl", &["del-if", "ovs-system", port]).is_ok();
        wait_for(LIMIT, "the port to be removed", removed).unwrap();
        wait_for(LIMIT, "the port to come back", || {
            if port == "br0" {
                // Its device is recreated.
                let _ = net.switch.ip("addr replace 10.0.9.9/16 dev br0");
                let _ = net.switch.up("br0");
            }
            testkit::ping(&one.netns, to.into(), 1).is_ok_and(|report| report.received == 1)
        })
        .unwrap();
    }
    let message = format!("another process deleted port {}; added it again", one.port);
    assert!(daemon.log().contains(&message), "{}", daemon.log());
}

/// The number of sockets depends on ports or processors, not on handlers.
#[test]
fn sockets_do_not_grow_with_handlers() {
    require_kernel!();
    const PORTS: usize = 20;
    for (mode, per_port) in [("per-port", true), ("per-cpu", false)] {
        let net = Topology::new(2).unwrap();
        let dir = RunDir::new(mode).unwrap();
        let daemon = start(&net.switch, &dir);
        vsctl(
            &daemon,
            &format!(
                "set Open_vSwitch . other_config:upcall-dispatch={mode} other_config:n-handler-threads=2"
            ),
        );
        vsctl(&daemon, &bridge(&net));
        let internal = |n: usize| format!(" -- add-port br0 i{n} -- set Interface i{n} type=internal");
        let many: String = (0..PORTS).map(internal).collect();
        vsctl(&daemon, many.trim_start_matches(" -- "));
        let descriptors = || descriptors(&daemon);
        let shown = |handlers: usize| {
            let sockets = if per_port { PORTS + 4 } else { cpus() };
            format!(" dispatch:{mode} sockets:{sockets} handlers:{handlers}\n")
        };
        let mut before = None;
        for handlers in [2, 8, 2] {
            vsctl(&daemon, &format!("set Open_vSwitch . other_config:n-handler-threads={handlers}"));
            wait_for(LIMIT, "the handlers", || appctl(&daemon, "dpif/show").contains(&shown(handlers)))
                .unwrap();
            ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 3);
            // An epoll set and a waker for each handler.
            let without = descriptors() - 2 * handlers;
            assert_eq!(*before.get_or_insert(without), without, "{mode}, {handlers} handlers");
        }
        vsctl(&daemon, "remove Open_vSwitch . other_config n-handler-threads");
        wait_for(LIMIT, "a handler for each processor", || {
            appctl(&daemon, "dpif/show").contains(&shown(cpus()))
        })
        .unwrap();
        if per_port {
            assert!(before.unwrap() >= PORTS);
        }
        drop(daemon);
        let _ = net.switch.run("ovs-dpctl", &["del-dp", "ovs-system"]);
    }
}

fn cpus() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/present").unwrap();
    text.trim().rsplit('-').next().and_then(|n| n.parse::<usize>().ok()).unwrap() + 1
}

/// Adds and removes ports under continuous misses: descriptors are closed with their ports, and no packet stalls.
#[test]
fn ports_are_added_and_removed_under_upcalls() {
    require_kernel!();
    let ports = if testkit::long() { 1000 } else { 60 };
    for mode in ["per-port", "per-cpu"] {
        let net = Topology::new(2).unwrap();
        let [one, two] = &net.hosts[..] else { panic!("two hosts") };
        let dir = RunDir::new(mode).unwrap();
        let daemon = start(&net.switch, &dir);
        vsctl(
            &daemon,
            &format!(
                "set Open_vSwitch . other_config:upcall-dispatch={mode} other_config:n-handler-threads=3"
            ),
        );
        vsctl(&daemon, &bridge(&net));
        // Each UDP port is a separate flow.
        let rule = "priority=9,udp,actions=move:NXM_OF_UDP_DST[]->NXM_NX_REG0[0..15],normal";
        daemon.ovs("ovs-ofctl", &["add-flow", "br0", rule]).unwrap();
        ping_all(&one.netns, two.ipv4.into(), 3);
        let stop = AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let flood = scope.spawn(|| one.netns.enter(|| new_flows(two.ipv4, &stop)).unwrap());
            let many = |verb: &str, more: &str| {
                for chunk in (0..ports).collect::<Vec<_>>().chunks(50) {
                    let one = |n: &usize| format!(" -- {verb} br0 i{n}{}", more.replace('@', &n.to_string()));
                    let line: String = chunk.iter().map(one).collect();
                    vsctl(&daemon, &format!("--timeout=120{line}"));
                }
            };
            let descriptors = || descriptors_now(&daemon);
            let before = descriptors();
            many("add-port", " -- set Interface i@ type=internal");
            let with_ports = descriptors();
            testkit::reachable(&two.netns, one.ipv6.into(), LIMIT).unwrap();
            many("del-port", "");
            // Concurrent requests use one socket per thread.
            let gone = wait_for(LIMIT, "the descriptors to go", || descriptors() <= before + 8);
            stop.store(true, Ordering::Relaxed);
            assert!(gone.is_ok(), "{mode}: {before}, then {with_ports}, at last {}", descriptors());
            let grown = if mode == "per-port" { ports } else { 0 };
            assert!(
                (grown..grown + 10).contains(&(with_ports - before)),
                "{mode}: {before}, then {with_ports}"
            );
            flood.join().unwrap()
        });
        assert!(sent > 100, "only {sent} packets were sent meanwhile");
        // All upcalls are handled, and new flows are forwarded.
        let waiting = || {
            let status = appctl(&daemon, "sluice/status");
            let status: serde_json::Value = serde_json::from_str(&status).unwrap();
            let bridges = status["bridges"].as_array().unwrap().clone();
            let of = |b: &serde_json::Value| {
                b["ports"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(|p| p["upcalls_waiting"].as_u64())
                    .sum::<u64>()
            };
            bridges.iter().map(of).sum::<u64>()
        };
        wait_for(LIMIT, "the queues to be empty", || waiting() == 0).unwrap();
        testkit::reachable(&one.netns, two.ipv6.into(), LIMIT).unwrap();
        vsctl(&daemon, "--timeout=60 del-br br0");
        println!("{mode}: {sent} packets of new flows while {ports} ports came and went");
    }
}

/// Sends packets of new flows until stopped; returns their number.
fn new_flows(to: std::net::Ipv4Addr, stop: &AtomicBool) -> u64 {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let port = 1024 + (sent % 60_000) as u16;
        // Skips packets that do not fit the socket buffer.
        sent += u64::from(socket.send_to(&[0; 16], (to, port)).is_ok());
        if sent % 64 == 0 {
            std::thread::yield_now();
        }
    }
    sent
}
