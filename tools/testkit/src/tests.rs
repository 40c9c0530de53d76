use super::*;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_secs(20);

/// A topology whose switch is the Linux bridge.
fn bridged(options: TopologyOptions) -> Topology {
    let net = Topology::with(options).unwrap();
    net.switch.ip("link add br0 type bridge stp_state 0 mcast_snooping 0").unwrap();
    for port in net.ports() {
        net.switch.ip(&format!("link set dev {port} master br0")).unwrap();
    }
    net.switch.up("br0").unwrap();
    net
}

fn ns_path(name: &str) -> PathBuf {
    PathBuf::from("/run/netns").join(name)
}

fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z "))
}

#[test]
fn waiting_has_a_limit_and_a_name() {
    let mut looks = 0;
    wait_for(SHORT, "three looks", || {
        looks += 1;
        looks == 3
    })
    .unwrap();
    let error = wait_for(Duration::from_millis(20), "rain", || false).unwrap_err();
    assert!(error.to_string().contains("rain"), "{error}");
}

#[test]
fn commands_capture_output_and_status() {
    let out =
        Cmd::new("sh").args(["-c", "cat; echo $X >&2; exit 3"]).env("X", "err").input("in").output().unwrap();
    assert_eq!((out.status.code(), out.stdout.as_str(), out.stderr.as_str()), (Some(3), "in", "err\n"));
    let error = Cmd::new("sh").args(["-c", "echo why; exit 1"]).run().unwrap_err().to_string();
    assert!(error.contains("exit status: 1") && error.contains("why"), "{error}");
    assert!(Cmd::new("/nonexistent/program").run().unwrap_err().to_string().contains("cannot start"));
}

#[test]
fn commands_end_at_their_limit_with_all_they_started() {
    let start = Instant::now();
    let script = "sleep 300 & echo $!; wait";
    let error = Cmd::new("sh")
        .args(["-c", script])
        .limit(Duration::from_millis(300))
        .output()
        .unwrap_err()
        .to_string();
    assert!(start.elapsed() < SHORT, "{:?}", start.elapsed());
    let child: u32 = error.lines().nth(1).unwrap().parse().unwrap();
    wait_for(SHORT, "the grandchild's end", || !alive(child)).unwrap();
}

#[test]
fn a_child_that_holds_the_output_open_does_not_hold_us() {
    let start = Instant::now();
    let out = Cmd::new("sh").args(["-c", "setsid sleep 8 & echo done"]).run().unwrap();
    assert_eq!(out.stdout, "done\n");
    assert!(start.elapsed() < Duration::from_secs(7), "{:?}", start.elapsed());
}

#[test]
fn all_output_of_an_ended_program_is_read() {
    for child in ["", "setsid sleep 8 & "] {
        let out = Cmd::new("sh").args(["-c", &format!("{child}seq 300000")]).run().unwrap();
        assert!(out.stdout.len() == 1_988_895 && out.stdout.ends_with("\n300000\n"), "{}", out.stdout.len());
    }
}

#[test]
fn dropping_kills_and_stopping_is_polite() {
    let running = Cmd::new("sleep").arg("300").spawn().unwrap();
    let pid = running.pid();
    assert!(alive(pid));
    drop(running);
    assert!(!alive(pid));
    let script = "trap 'echo bye; exit 0' TERM; echo on; while :; do sleep 0.01; done";
    let polite = Cmd::new("sh").args(["-c", script]).spawn().unwrap();
    wait_for(SHORT, "the trap", || polite.stdout() == "on\n").unwrap();
    assert_eq!(polite.stop(Signal::TERM, SHORT).unwrap().stdout, "on\nbye\n");
    let stubborn =
        Cmd::new("sh").args(["-c", "trap '' TERM; echo on; while :; do sleep 0.01; done"]).spawn().unwrap();
    wait_for(SHORT, "the trap", || stubborn.stdout() == "on\n").unwrap();
    assert!(!stubborn.stop(Signal::TERM, Duration::from_millis(100)).unwrap().status.success());
}

#[test]
fn folders_go_with_their_value_and_stale_ones_are_swept() {
    let dir = TempDir::new("a").unwrap();
    let path = dir.path().to_owned();
    std::fs::write(path.join("file"), "x").unwrap();
    assert!(path.is_dir());
    drop(dir);
    assert!(!path.exists());
    // Owned by a process id above Linux's maximum; and a foreign folder.
    let stale = std::env::temp_dir().join("sl-4194305-0-stale");
    let other = TempDir::new("other").unwrap();
    std::fs::create_dir_all(stale.join("inner")).unwrap();
    tempdir::sweep();
    assert!(!stale.exists() && other.path().exists());
}

#[test]
fn namespaces_end_with_the_test_also_on_panic() {
    require_netns!();
    let (mut name, mut pid) = (String::new(), 0);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let netns = Netns::new("panic").unwrap();
        name = netns.name().to_owned();
        assert!(ns_path(&name).exists());
        // Outside of its process group, so that only the namespace leads to it.
        let out = netns.run("sh", &["-c", "setsid sleep 300 >/dev/null 2>&1 & echo $!"]).unwrap();
        pid = out.stdout.trim().parse().unwrap();
        let _running = netns.spawn("sleep", &["300"]).unwrap();
        panic!("on purpose");
    }));
    assert!(panicked.is_err() && !name.is_empty());
    assert!(!ns_path(&name).exists(), "{name}");
    wait_for(SHORT, "the end of what ran in it", || !alive(pid)).unwrap();
}

#[test]
fn a_namespace_outlives_its_value_while_a_program_runs_in_it() {
    require_netns!();
    let netns = Netns::new("keep").unwrap();
    let path = ns_path(netns.name());
    let running = netns.spawn("sleep", &["300"]).unwrap();
    drop(netns);
    assert!(path.exists());
    drop(running);
    assert!(!path.exists());
}

#[test]
fn what_a_dead_process_left_is_swept() {
    require_netns!();
    // A process that creates a namespace under its own id, and dies once a program is inside.
    let script = "ip netns add sl-$$-0-dead && ip netns exec sl-$$-0-dead setsid sleep 300 >/dev/null 2>&1 & \
                  until ip netns pids sl-$$-0-dead 2>/dev/null | grep -q .; do sleep 0.01; done; echo $$ $!";
    let out = Cmd::new("sh").args(["-c", script]).run().unwrap().stdout;
    let mut ids = out.split_whitespace().map(|w| w.parse::<u32>().unwrap());
    let (owner, inner) = (ids.next().unwrap(), ids.next().unwrap());
    let path = ns_path(&format!("sl-{owner}-0-dead"));
    netns::sweep();
    assert!(!path.exists(), "{}", path.display());
    wait_for(SHORT, "the end of the program inside", || !alive(inner)).unwrap();
}

#[test]
fn a_dead_process_leaves_nothing_although_its_children_go_on() {
    require_netns!();
    let folder = std::env::temp_dir();
    // One child keeps writing into a folder, another creates a namespace long after the death of the process.
    let writer = "while :; do touch $0/$RANDOM 2>/dev/null; mkdir $0/a 2>/dev/null; rm -rf $0/a; done";
    let script = format!(
        "cd {}; mkdir sl-$$-1-dead; ip netns add sl-$$-0-dead; \
         ip netns exec sl-$$-0-dead setsid bash -c '{writer}' sl-$$-1-dead >/dev/null 2>&1 & \
         (sleep 0.3; ip netns add sl-$$-2-late) >/dev/null 2>&1 & \
         until ip netns pids sl-$$-0-dead 2>/dev/null | grep -q .; do sleep 0.01; done; echo $$",
        folder.display()
    );
    let owner = Cmd::new("bash").args(["-c", &script]).run().unwrap().stdout.trim().parse().unwrap();
    wait_for(SHORT, "what it leaves", || left_by(owner).len() >= 2).unwrap();
    remove_left_by(owner, Duration::from_secs(60)).unwrap();
    assert_eq!(left_by(owner), Vec::<String>::new());
    assert!(!folder.join(format!("sl-{owner}-1-dead")).exists());
}

#[test]
fn namespaces_are_apart_from_the_machine() {
    require_netns!();
    let netns = Netns::new("apart").unwrap();
    netns.ip("link add sw0 type bridge").unwrap();
    netns.add_addr("sw0", "192.0.2.1/24").unwrap();
    netns.up("sw0").unwrap();
    assert!(netns.ip("-o addr show dev sw0").unwrap().contains("192.0.2.1/24"));
    assert!(netns.ip("-o link show dev lo").unwrap().contains("UP"));
    assert!(!PathBuf::from("/sys/class/net/sw0").exists());
    assert!(netns.ip("link add sw0 type bridge").is_err());
}

#[test]
fn code_of_the_test_can_enter_a_namespace() {
    require_netns!();
    let netns = Netns::new("enter").unwrap();
    netns.add_addr("lo", "192.0.2.7/32").unwrap();
    let bind = || std::net::UdpSocket::bind("192.0.2.7:0").map(|_| ());
    assert!(bind().is_err(), "the address is the namespace's");
    netns.enter(bind).unwrap().unwrap();
    netns.enter(|| std::thread::spawn(bind).join().unwrap()).unwrap().unwrap();
    assert!(bind().is_err(), "the test itself has not moved");
    let panicked = std::panic::catch_unwind(|| netns.enter(|| panic!("on purpose")));
    assert!(panicked.is_err());
}

#[test]
fn hosts_reach_each_other_across_a_bridge() {
    require_netns!();
    let net = bridged(TopologyOptions::new(3));
    let [one, two, three] = &net.hosts[..] else { panic!("three hosts") };
    assert_eq!((two.ipv4.to_string(), two.ipv6.to_string()), ("10.0.0.2".into(), "fd00::2".into()));
    reachable(&one.netns, two.ipv4.into(), SHORT).unwrap();
    reachable(&one.netns, three.ipv6.into(), SHORT).unwrap();
    let report = ping(&two.netns, three.ipv4.into(), 5).unwrap();
    assert_eq!((report.sent, report.received), (5, 5), "{report:?}");
    assert!(report.mean_rtt_ms.is_some());
    net.switch.ip(&format!("link set dev {} down", three.port)).unwrap();
    assert_eq!(ping(&two.netns, three.ipv4.into(), 2).unwrap().received, 0);
    assert!(reachable(&two.netns, three.ipv4.into(), Duration::ZERO).is_err());
}

#[test]
fn options_of_the_topology_take_effect() {
    require_netns!();
    let net = Topology::with(TopologyOptions {
        first: 7,
        mtu_bytes: 9000,
        offloads: false,
        ..TopologyOptions::new(1)
    })
    .unwrap();
    let host = &net.hosts[0];
    for (netns, dev) in [(&host.netns, &host.dev), (&net.switch, &host.port)] {
        assert!(netns.ip(&format!("-o link show dev {dev}")).unwrap().contains("mtu 9000"));
        let features = netns.run("ethtool", &["-k", dev]).unwrap().stdout;
        for feature in
            ["tcp-segmentation-offload: off", "tx-checksumming: off", "generic-receive-offload: off"]
        {
            assert!(features.contains(feature), "{dev}: {feature} in\n{features}");
        }
    }
    assert!(host.netns.ip(&format!("-o link show dev {}", host.dev)).unwrap().contains(&host.mac));
    assert!(!net.switch.ip("-6 -o addr show").unwrap().contains(&host.port));
    assert_eq!(host.ipv4.to_string(), "10.0.0.7");
}

#[test]
fn iperf3_measures() {
    require_netns!();
    let net = bridged(TopologyOptions::new(2));
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    reachable(&one.netns, two.ipv4.into(), SHORT).unwrap();
    let _server = iperf3_server(&two.netns, 5201).unwrap();
    let report = iperf3_client(&one.netns, two.ipv4.into(), &Iperf3Options::default()).unwrap();
    assert!(report.sent_bps > 1e6 && report.received_bps > 1e6, "{report:?}");
    let udp = Iperf3Options { udp_bps: Some(2_000_000), ..Iperf3Options::default() };
    let report = iperf3_client(&one.netns, two.ipv6.into(), &udp).unwrap();
    assert!((1e6..4e6).contains(&report.sent_bps), "{report:?}");
    let nobody = Iperf3Options { port: 5999, ..Iperf3Options::default() };
    let error = format!("{:#}", iperf3_client(&one.netns, two.ipv4.into(), &nobody).unwrap_err());
    assert!(error.contains("iperf3 says"), "{error}");
    assert!(iperf3_server(&two.netns, 5201).is_err(), "the port is taken");
}

#[test]
fn tcpdump_sees_what_passes() {
    require_netns!();
    let net = bridged(TopologyOptions::new(2));
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    reachable(&one.netns, two.ipv4.into(), SHORT).unwrap();
    let capture = Capture::start(&net.switch, &two.port, "icmp and icmp[icmptype] = 8", &["-e"]).unwrap();
    ping(&one.netns, two.ipv4.into(), 3).unwrap();
    capture.wait_for("seq 3", SHORT).unwrap();
    let lines = capture.stop().unwrap();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines[0].contains("10.0.0.1 > 10.0.0.2: ICMP echo request") && lines[0].contains(&one.mac),
        "{lines:?}"
    );
    assert!(Capture::start(&net.switch, &two.port, "no such filter", &[]).is_err());
}

#[test]
fn reports_are_parsed() {
    let text = "2 packets transmitted, 1 received, +1 duplicates, 50% packet loss, time 1ms\nrtt min/avg/max/mdev = 1.0/2.5/3.0/0.1 ms\n";
    let report = traffic::parse_ping(text).unwrap();
    assert_eq!(report, PingReport { sent: 2, received: 1, mean_rtt_ms: Some(2.5) });
    let errors = "3 packets transmitted, 0 received, +3 errors, 100% packet loss, time 2049ms\n";
    assert_eq!(traffic::parse_ping(errors).unwrap().received, 0);
    assert_eq!(traffic::parse_ping("ping: connect: Network is unreachable"), None);
    let udp = r#"{"end":{"sum":{"bits_per_second":1000.0,"lost_percent":25}}}"#;
    let report = traffic::parse_iperf3(udp).unwrap();
    assert_eq!((report.sent_bps, report.received_bps, report.lost_percent), (1000.0, 750.0, 25.0));
    for bad in ["", "{}", r#"{"end":{}}"#, r#"{"error":"no route"}"#] {
        assert!(traffic::parse_iperf3(bad).is_err(), "{bad}");
    }
}

/// A database server of the stock tools, as a sample daemon.
fn database() -> DaemonSpec {
    let spec = DaemonSpec::new("ovsdb-server").unwrap();
    let rundir = spec.run_directory().clone();
    let db = rundir.join("conf.db");
    let schema = "/usr/share/openvswitch/vswitch.ovsschema";
    rundir.ovs("ovsdb-tool", &["create", db.to_str().unwrap(), schema]).unwrap();
    let socket = format!("--remote=punix:{}", rundir.join("db.sock").display());
    let spec = spec.ready_file("db.sock");
    spec.args([socket, "--log-file".to_owned(), "--pidfile".to_owned(), db.display().to_string()])
}

#[test]
fn replies_are_counted_by_request() {
    let reply = |seq: u32| format!("64 bytes from 192.0.2.1: icmp_seq={seq} ttl=64 time=0.05 ms\n");
    let output =
        [reply(2), "From 192.0.2.9 icmp_seq=3 Destination Host Unreachable\n".into(), reply(4), reply(2)];
    let output = format!("PING 192.0.2.1\n{}", output.concat());
    assert_eq!(traffic::last_reply(&output), 4);
    assert_eq!(traffic::replies(&output, 5), [0, 2, 0, 1, 0]);
    assert_eq!(traffic::last_reply(""), 0);
}

#[test]
fn daemons_start_answer_and_stop() {
    require_programs!("ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let mut daemon = database().start().unwrap();
    assert_eq!(daemon.status(), None);
    daemon.ovs("ovs-vsctl", &["--no-wait", "init"]).unwrap();
    daemon.ovs("ovs-vsctl", &["--no-wait", "add-br", "br7"]).unwrap();
    assert_eq!(daemon.ovs("ovs-vsctl", &["list-br"]).unwrap().stdout, "br7\n");
    assert!(daemon.log().contains("|ovsdb_server|INFO|"), "{}", daemon.log());
    assert!(daemon.tail().contains("--- log"));
    let (pid, rundir) = (daemon.pid(), daemon.rundir().clone());
    daemon.stop().unwrap();
    assert!(!alive(pid) && rundir.path().exists());
    let path = rundir.path().to_owned();
    drop(rundir);
    assert!(!path.exists());
}

#[test]
fn a_daemon_starts_again_after_a_crash_in_the_same_folder() {
    require_netns!();
    require_programs!("ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let netns = Netns::new("db").unwrap();
    let spec = database().netns(&netns);
    let daemon = spec.start().unwrap();
    daemon.ovs("ovs-vsctl", &["--no-wait", "--", "init", "--", "add-br", "br8"]).unwrap();
    let pid = daemon.pid();
    daemon.crash().unwrap();
    let daemon = spec.start().unwrap();
    assert_ne!(daemon.pid(), pid);
    assert_eq!(daemon.ovs("ovs-vsctl", &["list-br"]).unwrap().stdout, "br8\n");
    let pids = netns_pids(&netns);
    assert!(pids.contains(&daemon.pid()), "{pids:?}");
    let pid = daemon.pid();
    drop(daemon);
    assert!(!alive(pid));
}

fn netns_pids(netns: &Netns) -> Vec<u32> {
    let out = Cmd::new("ip").args(["netns", "pids", netns.name()]).run().unwrap().stdout;
    out.split_whitespace().map(|w| w.parse().unwrap()).collect()
}

#[test]
fn a_daemon_that_dies_says_why() {
    let spec = DaemonSpec::new("sh").unwrap().args(["-c", "echo broken >&2; exit 7"]);
    let error = format!("{:#}", spec.start().unwrap_err());
    assert!(
        error.contains("ended before it was ready: exit status: 7") && error.contains("broken"),
        "{error}"
    );
}
