//! BFD with Open vSwitch and another Sluice as partners: over plain links with a failover group, and through tunnels.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use testkit::{Capture, Daemon, DaemonSpec, Netns, RunDir, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, on_kernel, ping_all, spec, vsctl, wait_until};
use crate::overlays::{HERE, Pair, THERE, require_overlay, require_overlay_to_stock, stock, tunnel};

/// Intervals of OVN's kind, and a detection time that a loaded test machine keeps.
const BFD: &str = "bfd:enable=true bfd:min_tx=100 bfd:min_rx=100 bfd:mult=15";

/// Settings for an emulated machine, whose threads wait for seconds at times.
const SLOW_BFD: &str = "bfd:enable=true bfd:min_tx=900 bfd:min_rx=900 bfd:mult=9";

fn status(daemon: &Daemon, interface: &str) -> String {
    vsctl(daemon, &format!("get Interface {interface} bfd_status"))
}

/// Flaps of a failure and a recovery at most: a busy machine adds some.
const FLAPS_MAX: u64 = 6;

fn flap_count(daemon: &Daemon, interface: &str) -> u64 {
    vsctl(daemon, &format!("get Interface {interface} bfd_status:flap_count"))
        .replace('"', "")
        .parse()
        .unwrap()
}

/// A status without the values that depend on which end timed out first: on a busy machine a session may flap as it begins.
fn stable(status: &str) -> String {
    let rows = status.trim_matches(['{', '}']).split(", ");
    rows.map(|row| match row.split_once('=') {
        Some((key @ ("diagnostic" | "remote_diagnostic" | "flap_count"), _)) => key.to_string(),
        _ => row.to_string(),
    })
    .collect::<Vec<_>>()
    .join(", ")
}

fn up(daemon: &Daemon, interface: &str) {
    wait_until(
        daemon,
        &format!(
            "Interface {interface} bfd_status:state=up bfd_status:remote_state=up bfd_status:forwarding=true"
        ),
    );
}

/// A path from one namespace to another, through a bridge of the kernel in a third one.
struct Path2 {
    /// Its end at the switch under test.
    here: String,
    /// Its end at the partner.
    there: String,
    /// The device in the middle that leads to the partner.
    middle: String,
    bridge: String,
}

impl Path2 {
    fn new(n: usize, here: &Netns, middle: &Netns, there: &Netns) -> Path2 {
        let (a, x) = testkit::veth(here, middle).unwrap();
        let (b, y) = testkit::veth(there, middle).unwrap();
        let bridge = format!("m{n}");
        middle.ip(&format!("link add {bridge} type bridge")).unwrap();
        middle.up(&bridge).unwrap();
        for dev in [&x, &y] {
            middle.ip(&format!("link set dev {dev} master {bridge}")).unwrap();
            middle.up(dev).unwrap();
        }
        here.up(&a).unwrap();
        there.up(&b).unwrap();
        Path2 { here: a, there: b, middle: y, bridge }
    }

    /// Cuts it while both ends keep their carrier.
    fn cut(&self, middle: &Netns) {
        middle.ip(&format!("link set dev {} nomaster", self.middle)).unwrap();
    }

    fn mend(&self, middle: &Netns) {
        middle.ip(&format!("link set dev {} master {}", self.middle, self.bridge)).unwrap();
    }
}

/// Packets from `port` take the first live one of ports 1 and 2; those of others go to it.
fn prefer_first_path(daemon: &Daemon, port: &str) {
    let group = "group_id=1,type=ff,bucket=watch_port:1,output:1,bucket=watch_port:2,output:2";
    daemon.ovs("ovs-ofctl", &["-OOpenFlow13", "add-group", "br0", group]).unwrap();
    for flow in [format!("in_port={port},actions=group:1"), format!("priority=1,actions=output:{port}")] {
        daemon.ovs("ovs-ofctl", &["-OOpenFlow13", "add-flow", "br0", &flow]).unwrap();
    }
}

/// Waits for the device of the daemon's bridge, and gives it an address.
fn address_bridge(daemon: &Daemon, netns: &Netns, address: &str) {
    let errors = || vsctl(daemon, "--columns=name,error find Interface error!=[]");
    let device = wait_for(LIMIT, "the device of br0", || netns.ip("link show dev br0").is_ok());
    device.unwrap_or_else(|why| panic!("{why}; interfaces with errors: {}", errors()));
    netns.ip("link set dev br0 mtu 1500").unwrap();
    netns.up("br0").unwrap();
    netns.add_addr("br0", &format!("{address}/24")).unwrap();
}

/// Whether a port is live for OpenFlow.
fn live(daemon: &Daemon, port: &str) -> bool {
    let out = daemon.ovs("ovs-ofctl", &["-OOpenFlow13", "dump-ports-desc", "br0"]).unwrap().stdout;
    let mut lines = out.lines().skip_while(|line| !line.trim().starts_with(&format!("{port}(")));
    lines.find(|line| line.trim().starts_with("state:")).is_some_and(|line| line.contains("LIVE"))
}

/// Two paths between a host's switch and a partner, each with a session; fast failover groups choose.
fn paths_fail_over(partner: impl FnOnce(&Netns, &RunDir) -> Vec<Daemon>) {
    let net = testkit::Topology::new(1).unwrap();
    let (middle, far) = (Netns::new("mid").unwrap(), Netns::new("far").unwrap());
    let dir = RunDir::new("far").unwrap();
    let (datapath, bfd) = if on_kernel() { ("system", SLOW_BFD) } else { ("netdev", BFD) };
    let ours = crate::helpers::start(&net.switch);
    let host = &net.hosts[0];
    let paths: Vec<Path2> = (0..2).map(|n| Path2::new(n, &net.switch, &middle, &far)).collect();
    let bridge = |ports: [&str; 2], more: &str| {
        let port = |(n, name): (usize, &&str)| {
            let n = n + 1;
            format!(" -- add-port br0 {name} -- set Interface {name} ofport_request={n} {bfd}")
        };
        let ports: String = ports.iter().enumerate().map(port).collect();
        format!("add-br br0 -- set Bridge br0 datapath_type={datapath} fail_mode=secure{ports}{more}")
    };
    let more = format!(" -- add-port br0 {0} -- set Interface {0} ofport_request=3", host.port);
    vsctl(&ours, &bridge([&paths[0].here, &paths[1].here], &more));
    // Open vSwitch looks for the kernel's module as it starts; the bridge of ours has loaded it.
    let theirs = partner(&far, &dir);
    let theirs = &theirs[0];
    vsctl(theirs, &bridge([&paths[0].there, &paths[1].there], ""));
    let address = "10.0.77.2";
    address_bridge(theirs, &far, address);
    host.netns.add_addr(&host.dev, "10.0.77.1/24").unwrap();
    prefer_first_path(&ours, "3");
    prefer_first_path(theirs, "LOCAL");
    let both = |path: &Path2| [(&ours, path.here.clone()), (theirs, path.there.clone())];
    paths.iter().flat_map(both).for_each(|(daemon, interface)| up(daemon, &interface));
    ping_all(&host.netns, address.parse().unwrap(), 5);
    assert!(live(&ours, "1") && live(&ours, "2"));
    let flows = appctl(&ours, "dpctl/dump-flows");
    let pid = if on_kernel() { "" } else { "userspace(pid=0," };
    assert!(flows.contains(&format!("{pid}slow_path(bfd)")), "{flows}");

    let flaps = || both(&paths[0]).map(|(daemon, interface)| flap_count(daemon, &interface));
    let flapped = flaps();
    paths[0].cut(&middle);
    for (daemon, interface) in both(&paths[0]) {
        wait_until(daemon, &format!("Interface {interface} bfd_status:state=down"));
        let told = status(daemon, &interface);
        assert!(told.contains(r#"diagnostic="Control Detection Time Expired""#), "{told}");
        assert!(told.contains(r#"forwarding="false""#), "{told}");
        assert_eq!(vsctl(daemon, &format!("get Interface {interface} link_state")), "up");
    }
    ping_all(&host.netns, address.parse().unwrap(), 5);
    wait_for(LIMIT, "the port to be dead for OpenFlow", || !live(&ours, "1")).unwrap();
    assert!(live(&ours, "2"));

    paths[0].mend(&middle);
    for (daemon, interface) in both(&paths[0]) {
        up(daemon, &interface);
    }
    let (here, there) = (status(&ours, &paths[0].here), status(theirs, &paths[0].there));
    println!("{here}");
    assert_eq!(stable(&here), stable(&there));
    // Down and up, at both ends.
    let more = || flaps().iter().zip(flapped).all(|(now, before)| *now >= before + 2);
    wait_for(LIMIT, "the flaps to be counted", more).unwrap();
    let few = flaps().iter().zip(flapped).all(|(now, before)| *now <= before + FLAPS_MAX);
    assert!(few, "{:?} after {flapped:?}", flaps());
    paths[1].cut(&middle);
    for (daemon, interface) in both(&paths[1]) {
        wait_until(daemon, &format!("Interface {interface} bfd_status:state=down"));
    }
    ping_all(&host.netns, address.parse().unwrap(), 5);
    // A command overrides the session, for both ends' groups.
    appctl(&ours, &format!("bfd/set-forwarding {} false", paths[0].here));
    wait_until(
        &ours,
        &format!("Interface {} bfd_status:forwarding=false bfd_status:state=up", paths[0].here),
    );
    appctl(&ours, "bfd/set-forwarding normal");
    up(&ours, &paths[0].here);
    vsctl(&ours, &format!("clear Interface {} bfd", paths[0].here));
    wait_until(&ours, &format!("Interface {} bfd_status={{}}", paths[0].here));
    assert!(ours.log().contains("BFD state change"));
}

#[test]
fn groups_fail_over_with_open_vswitch_as_partner() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    paths_fail_over(stock);
}

#[test]
fn groups_fail_over_between_two_of_ours() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl");
    paths_fail_over(|netns, dir| vec![spec(netns).rundir(dir).start().unwrap()]);
}

/// Sessions through tunnels of each kind, with the settings of OVN: the key is that of the flow, and BFD has none.
fn through_tunnels(pair: &Pair) {
    let (lab, theirs, ends) = (&pair.lab, pair.there(), pair.ends());
    for (kind, more) in [("vxlan", ""), ("geneve", " bfd:oam=true bfd:check_tnl_key=true"), ("gre", "")] {
        for (daemon, remote) in ends {
            let line = tunnel("tun", kind, &format!("remote_ip={remote},key=flow"));
            vsctl(daemon, &format!("{line} {BFD}{more}"));
            assert_eq!(vsctl(daemon, "get Interface tun error"), "[]");
        }
        pair.forget_flows_before_tunnel();
        ends.iter().for_each(|(daemon, _)| up(daemon, "tun"));
        assert_eq!(stable(&status(&lab.daemon, "tun")), stable(&status(theirs, "tun")), "{kind}");
        let flows = appctl(&lab.daemon, "dpctl/dump-flows");
        assert!(flows.contains("slow_path(bfd)"), "{flows}");
        // The partner ends its session: ours ends in time.
        vsctl(theirs, "set Interface tun bfd:enable=false");
        wait_until(&lab.daemon, "Interface tun bfd_status:state=down bfd_status:forwarding=false");
        for (daemon, _) in ends {
            vsctl(daemon, "del-port tun");
        }
    }
}

#[test]
fn sessions_pass_tunnels_to_open_vswitch() {
    require_overlay_to_stock!();
    through_tunnels(&Pair::with_stock("bfd"));
}

#[test]
fn sessions_pass_tunnels_between_two_of_ours() {
    require_overlay!();
    through_tunnels(&Pair::of_ours("bfd2"));
}

/// Geneve headers of control packets on the wire, by their sender's outer address: version, length of options, flags,
/// protocol, key.
fn geneve_headers(lines: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (mut from, mut bytes) = (String::new(), String::new());
    for line in lines.iter().map(String::as_str).chain(["IP end > end"]) {
        let Some(hex) = line.trim().strip_prefix("0x").and_then(|l| l.split_once(":  ")).map(|(_, hex)| hex)
        else {
            // IPv4, UDP, Geneve; the inner frame is UDP to port 3784.
            if let (Some(geneve), Some("0ec8")) = (bytes.get(56..72), bytes.get(144..148)) {
                all.entry(from).or_default().insert(geneve.to_string());
            }
            from = line.split(' ').nth(1).and_then(|a| a.rsplit_once('.')).map_or("", |(a, _)| a).to_string();
            bytes.clear();
            continue;
        };
        bytes.extend(hex.chars().filter(|c| !c.is_whitespace()));
    }
    all
}

/// The O bit of Geneve marks control packets of sessions with `bfd:oam=true`, and no others, as of Open vSwitch.
#[test]
fn sessions_mark_packets_as_management_on_the_wire() {
    require_overlay_to_stock!("tcpdump");
    let pair = Pair::with_stock("oam");
    let (far, ends) = (pair.lab.far(), pair.ends());
    for (oam, first) in [("true", "00806558"), ("false", "00006558")] {
        for (daemon, remote) in ends {
            let line = tunnel("tun", "geneve", &format!("remote_ip={remote},key=flow"));
            vsctl(daemon, &format!("{line} {BFD} bfd:oam={oam}"));
        }
        pair.forget_flows_before_tunnel();
        ends.iter().for_each(|(daemon, _)| up(daemon, "tun"));
        let capture = Capture::start(&far.netns, &far.dev, "udp port 6081", &["-x"]).unwrap();
        let both = || {
            let seen = geneve_headers(&capture.lines());
            [HERE, THERE].iter().all(|from| seen.contains_key(*from))
        };
        wait_for(LIMIT, "control packets of both", both).unwrap();
        let seen = geneve_headers(&capture.stop().unwrap());
        println!("oam={oam}: {seen:?}");
        let header = BTreeSet::from([format!("{first}00000000")]);
        let expected = [HERE, THERE].map(|from| (from.to_string(), header.clone()));
        assert_eq!(seen, BTreeMap::from(expected), "bfd:oam={oam}");
        ends.iter().for_each(|(daemon, _)| drop(vsctl(daemon, "del-port tun")));
    }
}

/// Steps of a session between patch ports, each a change of settings and a time; the clock is stopped.
const STEPS: [(&str, &str); 6] = [
    ("p0 bfd:enable=true bfd:min_tx=300 bfd:min_rx=300", "p1 bfd:enable=true bfd:min_tx=500 bfd:min_rx=500"),
    ("p0 bfd:min_tx=400", "p1 bfd:mult=5"),
    ("p0 bfd:oam=true", "p1 bfd:enable=false"),
    ("p0 bfd:forwarding_if_rx=true", "p1 bfd:enable=true bfd:cpath_down=true"),
    ("p0 bfd:decay_min_rx=1000", "p1 bfd:cpath_down=false bfd:mult=x"),
    ("p0 bfd:decay_min_rx=0 bfd:min_rx=700", "p1 bfd:min_tx=200"),
];

/// States after each step, without times and discriminators, and both rows.
fn story(daemon: &Daemon) -> String {
    let bridge = |n: u32, peer: u32| {
        format!(
            "add-br br{n} -- set Bridge br{n} datapath_type=dummy -- add-port br{n} p{n} \
             -- set Interface p{n} type=patch options:peer=p{peer}"
        )
    };
    vsctl(daemon, &format!("{} -- {}", bridge(0, 1), bridge(1, 0)));
    appctl(daemon, "time/stop");
    let mut all = String::new();
    for (one, two) in STEPS {
        vsctl(daemon, &format!("set Interface {one} -- set Interface {two}"));
        appctl(daemon, "time/warp 5000 100");
        for port in ["p0", "p1"] {
            let shown = daemon.tool("ovs-appctl").args(["bfd/show", port]).output().unwrap();
            let text = if shown.status.success() { shown.stdout } else { "no session\n".to_string() };
            let changing = |line: &&str| !line.contains("Time:") && !line.contains("Discriminator");
            all.extend(text.lines().filter(changing).map(|line| format!("{port} {line}\n")));
        }
        // Its row follows the session.
        let state = |name: &str| {
            let line = all.lines().rev().find(|line| line.starts_with(&format!("p0   {name}: ")));
            line.and_then(|line| line.split(": ").nth(1)).unwrap_or_default().to_string()
        };
        let (state, forwarding) = (state("Local Session State"), state("Forwarding"));
        wait_until(
            daemon,
            &format!("Interface p0 bfd_status:state={state} bfd_status:forwarding={forwarding}"),
        );
        let flaps = vsctl(daemon, "get Interface p0 bfd_status:flap_count");
        all += &format!("p0 flaps {flaps}\n");
    }
    all
}

#[test]
fn sessions_have_the_states_of_open_vswitch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let (here, there) = (Netns::new("ours").unwrap(), Netns::new("theirs").unwrap());
    let (ours, dir) = (RunDir::new("ours").unwrap(), RunDir::new("theirs").unwrap());
    let daemon = spec(&here).rundir(&ours).args(["--enable-dummy"]).start().unwrap();
    let stock_spec = |program: &Path| Ok(DaemonSpec::new(program)?.netns(&there).rundir(&dir));
    let args: [&[&str]; 2] = [&[], &["--pidfile", "--log-file", "--enable-dummy"]];
    let theirs = testkit::start_stock(stock_spec, "ovs-vswitchd", &[], args).unwrap();
    let (told, expected) = (story(&daemon), story(&theirs[0]));
    assert_eq!(told, expected);
    assert!(
        told.contains("p0   Local Session State: up") && told.contains("Concatenated Path Down"),
        "{told}"
    );
    // The row has a message that OVS leaves to its log.
    assert!(vsctl(&daemon, "get Interface p1 status:notice").contains("bfd:mult=x: ignored"));
}
