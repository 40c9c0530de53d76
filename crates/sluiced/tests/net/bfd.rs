//! BFD with Open vSwitch and another Sluice as partners: over plain links with a failover group, and through tunnels.

use std::path::Path;
use std::time::{Duration, Instant};

use testkit::{Daemon, DaemonSpec, Netns, RunDir, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, capture, ping_all, require_userspace, serving, spec, vsctl, wait_until};
use crate::overlays::{HERE, Lab, THERE, far_switch, tunnel};

/// Intervals of OVN's kind, and a detection time that a loaded test machine keeps.
const BFD: &str = "bfd:enable=true bfd:min_tx=100 bfd:min_rx=100 bfd:mult=5";

/// Every packet of the flood needs its own megaflow.
const OWN_MEGAFLOW: &str = "move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],move:NXM_OF_UDP_SRC[]->NXM_NX_REG1[0..15]";

fn status(daemon: &Daemon, interface: &str) -> String {
    vsctl(daemon, &format!("get Interface {interface} bfd_status"))
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

/// Two paths between a host's switch and a partner, each with a session; fast failover groups choose.
fn paths_fail_over(partner: impl FnOnce(&Netns, &RunDir) -> Vec<Daemon>) {
    let net = testkit::Topology::new(1).unwrap();
    let (middle, far) = (Netns::new("mid").unwrap(), Netns::new("far").unwrap());
    let dir = RunDir::new("far").unwrap();
    let ours = crate::helpers::start(&net.switch);
    let theirs = partner(&far, &dir);
    let theirs = &theirs[0];
    let host = &net.hosts[0];
    let paths: Vec<Path2> = (0..2).map(|n| Path2::new(n, &net.switch, &middle, &far)).collect();
    let bridge = |ports: [&str; 2], more: &str| {
        let port = |(n, name): (usize, &&str)| {
            let n = n + 1;
            format!(" -- add-port br0 {name} -- set Interface {name} ofport_request={n} {BFD}")
        };
        let ports: String = ports.iter().enumerate().map(port).collect();
        format!("add-br br0 -- set Bridge br0 datapath_type=netdev fail_mode=secure{ports}{more}")
    };
    let more = format!(" -- add-port br0 {0} -- set Interface {0} ofport_request=3", host.port);
    vsctl(&ours, &bridge([&paths[0].here, &paths[1].here], &more));
    vsctl(theirs, &bridge([&paths[0].there, &paths[1].there], ""));
    far.ip("link set dev br0 mtu 1500").unwrap();
    far.up("br0").unwrap();
    let address = "10.0.77.2";
    far.add_addr("br0", &format!("{address}/24")).unwrap();
    host.netns.add_addr(&host.dev, "10.0.77.1/24").unwrap();
    prefer_first_path(&ours, "3");
    prefer_first_path(theirs, "LOCAL");
    let both = |path: &Path2| [(&ours, path.here.clone()), (theirs, path.there.clone())];
    paths.iter().flat_map(both).for_each(|(daemon, interface)| up(daemon, &interface));
    ping_all(&host.netns, address.parse().unwrap(), 5);
    let live = |daemon: &Daemon, port: &str| {
        let out = daemon.ovs("ovs-ofctl", &["-OOpenFlow13", "dump-ports-desc", "br0"]).unwrap().stdout;
        let mut lines = out.lines().skip_while(|line| !line.trim().starts_with(&format!("{port}(")));
        lines.find(|line| line.trim().starts_with("state:")).is_some_and(|line| line.contains("LIVE"))
    };
    assert!(live(&ours, "1") && live(&ours, "2"));
    let flows = appctl(&ours, "dpctl/dump-flows");
    assert!(flows.contains("userspace(pid=0,slow_path(bfd))"), "{flows}");

    paths[0].cut(&middle);
    for (daemon, interface) in both(&paths[0]) {
        wait_until(daemon, &format!("Interface {interface} bfd_status:state=down bfd_status:flap_count=2"));
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
        wait_until(daemon, &format!("Interface {interface} bfd_status:flap_count=3"));
    }
    let (here, there) = (status(&ours, &paths[0].here), status(theirs, &paths[0].there));
    println!("{here}");
    assert_eq!(here, there);
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

fn stock(netns: &Netns, dir: &RunDir) -> Vec<Daemon> {
    let spec = |program: &Path| Ok(DaemonSpec::new(program)?.netns(netns).rundir(dir));
    testkit::start_stock(spec, "ovs-vswitchd", &[], [&[], &["--pidfile", "--log-file"]]).unwrap()
}

#[test]
fn groups_fail_over_with_open_vswitch_as_partner() {
    require_netns!();
    require_userspace!("bridges of type netdev");
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    paths_fail_over(stock);
}

#[test]
fn groups_fail_over_between_two_of_ours() {
    require_netns!();
    require_userspace!("bridges of type netdev");
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl");
    paths_fail_over(|netns, dir| vec![serving(&spec(netns).rundir(dir))]);
}

/// Sessions through tunnels of each kind, with the settings of OVN: the key is that of the flow, and BFD has none.
fn through_tunnels(lab: &Lab, theirs: &Daemon) {
    for (kind, more) in [("vxlan", ""), ("geneve", " bfd:oam=true bfd:check_tnl_key=true"), ("gre", "")] {
        let ends = [(&lab.daemon, THERE), (theirs, HERE)];
        for (daemon, remote) in ends {
            let line = tunnel("tun", kind, &format!("remote_ip={remote},key=flow"));
            vsctl(daemon, &format!("{line} {BFD}{more}"));
            assert_eq!(vsctl(daemon, "get Interface tun error"), "[]");
        }
        ends.iter().for_each(|(daemon, _)| up(daemon, "tun"));
        assert_eq!(status(&lab.daemon, "tun"), status(theirs, "tun"), "{kind}");
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
    require_netns!();
    require_userspace!("tunnels of the userspace datapath");
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let lab = Lab::new("bfd");
    let dir = RunDir::new("partner").unwrap();
    let theirs = stock(&lab.far().netns, &dir);
    far_switch(&lab, &theirs[0]);
    through_tunnels(&lab, &theirs[0]);
}

#[test]
fn sessions_pass_tunnels_between_two_of_ours() {
    require_netns!();
    require_userspace!("tunnels of the userspace datapath");
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = Lab::new("bfd2");
    let dir = RunDir::new("far").unwrap();
    let there = serving(&spec(&lab.far().netns).rundir(&dir));
    far_switch(&lab, &there);
    through_tunnels(&lab, &there);
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
    let daemon = serving(&spec(&here).rundir(&ours).args(["--enable-dummy"]));
    let stock_spec = |program: &Path| Ok(DaemonSpec::new(program)?.netns(&there).rundir(&dir));
    let args: [&[&str]; 2] = [&[], &["--pidfile", "--log-file", "--enable-dummy"]];
    let theirs = testkit::start_stock(stock_spec, "ovs-vswitchd", &[], args).unwrap();
    let (told, expected) = (story(&daemon), story(&theirs[0]));
    assert_eq!(told, expected);
    assert!(
        told.contains("p0   Local Session State: up") && told.contains("Concatenated Path Down"),
        "{told}"
    );
    // What OVS leaves to its log is in the row.
    assert!(vsctl(&daemon, "get Interface p1 status:notice").contains("bfd:mult=x: ignored"));
}

/// Processor time of a daemon's threads of that name, milliseconds (proc_pid_stat(5)).
fn thread_ms(daemon: &Daemon, name: &str) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().flatten();
    let of_task = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (comm, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let ticks = |n: usize| rest.split_whitespace().nth(n)?.parse::<u64>().ok();
        comm.starts_with(name).then(|| Some(10 * (ticks(11)? + ticks(12)?))).flatten()
    };
    tasks.filter_map(of_task).sum()
}

/// Sessions, rules and seconds of [`sessions_outlive_an_overload`]; `SLUICE_BFD_LOAD=SESSIONS,RULES,SECONDS,MULT` for a
/// measurement by hand.
fn load() -> [u32; 4] {
    let given = std::env::var("SLUICE_BFD_LOAD").ok();
    let parse =
        |text: String| text.split(',').map(|n| n.parse().unwrap()).collect::<Vec<u32>>().try_into().unwrap();
    // A detection time of a second: test machines stall for longer than a third of one.
    given.map_or([40, 20_000, 3, 10], parse)
}

/// Tunnels with sessions of 100 ms to one address, each with its own key.
fn many_tunnels(daemon: &Daemon, remote: &str, sessions: u32, mult: u32) {
    // Parallel tunnels are a loop.
    daemon.ovs("ovs-ofctl", &["del-flows", "br-int"]).unwrap();
    let one = |n: u32| {
        format!(
            "add-port br-int t{n} -- set Interface t{n} type=vxlan options:remote_ip={remote} \
             options:key={n} bfd:enable=true bfd:min_tx=100 bfd:min_rx=100 bfd:mult={mult}"
        )
    };
    let all: Vec<String> = (1..=sessions).map(one).collect();
    all.chunks(200).for_each(|some| drop(vsctl(daemon, &some.join(" -- "))));
}

/// Adds a port that sends new flows without end.
fn flood(daemon: &Daemon, dir: &RunDir) {
    let file = dir.join("flood.pcap");
    std::fs::write(&file, capture(100_000)).unwrap();
    let rule = format!("priority=9,in_port=999,udp,actions={OWN_MEGAFLOW}");
    daemon.ovs("ovs-ofctl", &["add-flow", "br-int", &rule]).unwrap();
    let port = "add-port br-int flood -- set Interface flood type=pcap ofport_request=999";
    let file = file.display();
    vsctl(daemon, &format!("{port} options:infinite_rx=true options:rx_pcap={file}"));
}

/// Sessions of 100 ms through tunnels, while a port floods with new flows and a controller adds rules.
#[test]
fn sessions_outlive_an_overload() {
    require_netns!();
    require_userspace!("tunnels of the userspace datapath");
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl");
    let [sessions, rules, seconds, mult] = load();
    let lab = Lab::new("load");
    let dir = RunDir::new("far").unwrap();
    let there = serving(&spec(&lab.far().netns).rundir(&dir));
    far_switch(&lab, &there);
    let both = [(&lab.daemon, THERE), (&there, HERE)];
    both.into_iter().for_each(|(daemon, remote)| many_tunnels(daemon, remote, sessions, mult));
    let up = |daemon: &Daemon| appctl(daemon, "bfd/show").matches("Local Session State: up").count();
    for (daemon, _) in both {
        wait_for(6 * LIMIT, "all sessions to be up", || up(daemon) == sessions as usize).unwrap();
    }
    let flaps = |daemon: &Daemon| {
        let told = vsctl(daemon, "--bare --columns=name,bfd_status find Interface type=vxlan");
        let kept = |word: &&str| word.starts_with('t') || word.starts_with("flap_count=");
        told.split_whitespace().filter(kept).collect::<Vec<_>>().join(" ")
    };
    let rows_up = |daemon: &Daemon| {
        vsctl(daemon, "--bare --columns=bfd_status find Interface type=vxlan").matches(" state=up").count()
    };
    let never = |daemon: &Daemon| flaps(daemon).matches("flap_count=1").count() == sessions as usize;
    for (daemon, _) in both {
        wait_for(6 * LIMIT, "the status of all", || never(daemon)).unwrap();
    }
    let before = both.map(|(daemon, _)| (thread_ms(daemon, "monitor"), thread_ms(daemon, "")));
    std::thread::sleep(Duration::from_secs(seconds.into()));
    for ((daemon, _), (monitor, all)) in both.into_iter().zip(before) {
        let (monitor, all) = (thread_ms(daemon, "monitor") - monitor, thread_ms(daemon, "") - all);
        println!(
            "{sessions} sessions: monitor {monitor} ms, the daemon {all} ms of processor time in {seconds} s"
        );
    }
    flood(&lab.daemon, &dir);
    let misses = || {
        let stats = appctl(&lab.daemon, "dpif-netdev/pmd-stats-show");
        let of = |name: &str| {
            let lines =
                stats.lines().filter_map(|line| line.trim().strip_prefix(name)?.trim().parse::<u64>().ok());
            lines.sum::<u64>()
        };
        of("miss with success upcall:") + of("miss with failed upcall:")
    };
    wait_for(LIMIT, "the flood", || misses() > 200_000).unwrap();
    for (daemon, _) in both {
        wait_for(6 * LIMIT, "all sessions to be up", || up(daemon) == sessions as usize).unwrap();
        wait_for(6 * LIMIT, "the rows to follow", || rows_up(daemon) == sessions as usize).unwrap();
        println!("flaps as the flood begins: {}", !never(daemon));
    }
    let flaps_before = both.map(|(daemon, _)| flaps(daemon));
    let (begun, misses_before) = (Instant::now(), misses());
    let rule = |n: u32| {
        format!("table=9,priority=5,ip,nw_src=10.{}.{}.{},actions=drop\n", n >> 16, n >> 8 & 255, n & 255)
    };
    let list = dir.join("rules");
    std::fs::write(&list, (0..rules).map(rule).collect::<String>()).unwrap();
    let load = ["-OOpenFlow14", "--bundle", "add-flows", "br-int", list.to_str().unwrap()];
    lab.daemon.ovs("ovs-ofctl", &load).unwrap();
    let loaded = begun.elapsed();
    while begun.elapsed() < Duration::from_secs(seconds.into()) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let rate = (misses() - misses_before) as f64 / begun.elapsed().as_secs_f64();
    println!("{rules} rules in {loaded:.1?}, {rate:.0} misses a second");
    assert_eq!(both.map(|(daemon, _)| flaps(daemon)), flaps_before);
    for (daemon, _) in both {
        assert_eq!(up(daemon), sessions as usize);
        let lost = appctl(daemon, "coverage/show");
        assert!(!lost.contains("bfd_queue_full"), "{lost}");
    }
}
