//! Rules that track connections, on the userspace datapath with real traffic.

use std::net::{Ipv4Addr, TcpStream, UdpSocket};

use serde_json::Value;
use testkit::{Cmd, RunDir, require_netns, require_programs, skip, wait_for};

use crate::cli::{program, sluice};
use crate::ct_balancer;
use crate::ct_lab::{self, FIREWALL, Kind, Lab};
use crate::helpers::{LIMIT, appctl};

#[test]
fn one_side_begins_connections_and_marks_belong_to_them() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    ct_lab::one_side_begins_connections_and_marks_belong_to_them(Kind::Userspace);
}

#[test]
fn a_zone_comes_from_a_field_and_clearing_forgets() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    ct_lab::a_zone_comes_from_a_field_and_clearing_forgets(Kind::Userspace);
}

#[test]
fn sources_and_destinations_are_translated() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    ct_lab::sources_and_destinations_are_translated(Kind::Userspace);
}

#[test]
fn connections_are_balanced_with_affinity_and_hairpins() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    ct_balancer::connections_are_balanced_with_affinity_and_hairpins(Kind::Userspace);
}

/// Pings that the hosts fragment are tracked as whole datagrams, and arrive.
#[test]
fn fragments_are_tracked_as_datagrams() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping");
    let lab = Lab::new(Kind::Userspace, FIREWALL);
    let target = lab.address(1).to_string();
    wait_for(LIMIT, "a large ping to arrive", || {
        lab.net.hosts[0].netns.run("ping", &["-c1", "-W1", "-s4000", &target]).is_ok()
    })
    .unwrap();
    let tracked = lab.connections();
    assert!(tracked.contains("icmp,orig=") && tracked.contains("zone=5"), "{tracked}");
    let status = appctl(&lab.daemon, "dpctl/ipf-get-status");
    let completed = status.lines().find_map(|l| l.trim().strip_prefix("v4 frags completed: ")).unwrap();
    // Three fragments of each of a request and its reply.
    assert!(completed.parse::<u32>().unwrap() >= 6, "{status}");
    // Without reassembly they are invalid, and the rules drop them.
    appctl(&lab.daemon, "dpctl/ipf-set-disabled v4");
    let lost = lab.net.hosts[0].netns.run("ping", &["-c1", "-W1", "-s4000", &target]);
    assert!(lost.is_err(), "{}", lab.state());
}

/// Connections of the datapath in `sluice status --json`.
fn connections(lab: &Lab) -> Value {
    let status: Value = serde_json::from_str(&sluice(&lab.daemon, &["status", "--json"])).unwrap();
    status["datapaths"][0]["connections"].clone()
}

/// Sends datagrams to ports 5005 and 5006 from three source ports, which belong to zones 5 and 6.
fn send(lab: &Lab, from: &[UdpSocket]) {
    for socket in from {
        for port in [5005, 5006] {
            // The first packet may be lost: neighbours are unknown, and nobody listens.
            let _unsent = socket.send_to(b"hello", (lab.address(1), port));
        }
    }
}

#[test]
fn the_status_shows_connections_and_refusals_by_zone() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", program().as_str());
    let lab = Lab::new(Kind::Userspace, "ip actions=drop");
    assert_eq!(connections(&lab), Value::Null);
    assert!(!sluice(&lab.daemon, &["status", "--interval=0"]).contains("Connections"));
    appctl(&lab.daemon, "dpctl/ct-set-limits zone=6,limit=2");
    lab.rules(
        "udp,in_port=1,udp_dst=5005 actions=ct(commit,zone=5),2
         udp,in_port=1,udp_dst=5006 actions=ct(commit,zone=6),2",
    );
    let bind = || UdpSocket::bind((lab.address(0), 0)).unwrap();
    let from = lab.net.hosts[0].netns.enter(|| [bind(), bind(), bind()]).unwrap();
    let mut shown = Value::Null;
    wait_for(LIMIT, "connections of both zones, and a refusal", || {
        send(&lab, &from);
        shown = connections(&lab);
        let of = |zone: usize| &shown["zones"][zone]["counts"];
        of(0)["connections"] == 3
            && of(1)["connections"] == 2
            && of(1)["refused"]["zone_limit"].as_u64() > Some(0)
    })
    .unwrap_or_else(|e| panic!("{e}: {shown:#}"));
    let zones: Vec<_> =
        [0, 1].map(|n| (shown["zones"][n]["zone"].as_u64(), &shown["zones"][n]["limit"])).into();
    assert_eq!(zones, [(Some(5), &Value::Null), (Some(6), &Value::from(2))], "{shown:#}");
    assert_eq!((&shown["zones_used"], &shown["maximum"]), (&Value::from(2), &Value::from(3_000_000)));
    assert_eq!((&shown["all"]["created"], &shown["all"]["ended"]), (&Value::from(5), &Value::from(0)));
    assert_eq!(shown["zones"][0]["counts"]["refused"]["zone_limit"], 0);
    // The counter of all zones is the sum.
    let refused = connections(&lab)["all"]["refused"]["zone_limit"].as_u64().unwrap();
    wait_for(LIMIT, "the counter", || {
        let coverage = appctl(&lab.daemon, "coverage/show");
        let line = coverage.lines().find(|l| l.starts_with("conntrack_zone_full")).unwrap_or_default();
        line.split_whitespace().last().and_then(|n| n.parse().ok()) >= Some(refused)
    })
    .unwrap();

    appctl(&lab.daemon, "dpctl/flush-conntrack zone=5");
    let screen = sluice(&lab.daemon, &["status", "--interval=0"]);
    let words: Vec<String> =
        screen.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert!(screen.contains("\nConnections: 2, at most 3000000; 5 created, 3 ended, "), "{screen}");
    assert!(words.iter().any(|l| l == "5 0 - 3 3 0"), "{screen}");
    assert!(words.iter().any(|l| l.starts_with("6 2 2 2 0 ")), "{screen}");

    // Rates, while packets are refused.
    let mut top = Value::Null;
    std::thread::scope(|s| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (lab, from) = (&lab, &from);
        s.spawn(move || {
            let pause = std::time::Duration::from_millis(10);
            while stopped.recv_timeout(pause) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                send(lab, from);
            }
        });
        wait_for(LIMIT, "refusals a second", || {
            top = serde_json::from_str(&sluice(&lab.daemon, &["top", "--json", "-d", "0.3"])).unwrap();
            let zones = top["zones"].as_array().unwrap();
            let zone = zones.iter().find(|z| z["zone"] == 6).unwrap();
            zone["refused_per_s"].as_f64() > Some(1.0) && zone["refusals_per_s"]["zone_limit"].is_f64()
        })
        .unwrap_or_else(|e| panic!("{e}: {top:#}"));
        drop(stop);
    });
    assert_eq!(top["datapaths"][0]["connections"]["maximum"], 3_000_000);
}

/// Whether there is a server of FTP; reports a skip otherwise.
fn has_ftp_server() -> bool {
    let has = Cmd::new(PYTHON).args(["-c", "import pyftpdlib"]).run().is_ok();
    has || skip("ftp_works_in_all_modes_through_a_translated_source", "python3-pyftpdlib is not installed")
}

/// The interpreter of the system's packages.
const PYTHON: &str = "/usr/bin/python3";

/// The rules forward new connections only to the control port, and those that the helper expects. The server serves data
/// to the address of its control connection only, which is a translated one.
#[test]
fn ftp_works_in_all_modes_through_a_translated_source() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "curl");
    if !has_ftp_server() {
        return;
    }
    let lab = Lab::new(Kind::Userspace, "ip actions=drop");
    let [a, b, c, _] = lab.address(0).octets();
    let translated = Ipv4Addr::new(a, b, c, 177);
    let (client, server) = (&lab.net.hosts[0], &lab.net.hosts[1]);
    let entry =
        ["neigh", "replace", &translated.to_string(), "lladdr", &client.mac, "dev", server.dev.as_str()];
    server.netns.run("ip", &entry).unwrap();
    lab.rules(&format!(
        "ip,in_port=1 actions=ct(zone=3,nat,table=1)
         ip,in_port=2 actions=ct(zone=3,nat,table=1)
         table=1,in_port=1,tcp,ct_state=+trk+new,tp_dst=21 actions=ct(commit,zone=3,alg=ftp,nat(src={translated})),2
         table=1,in_port=1,tcp,ct_state=+trk+new+rel actions=ct(commit,zone=3,nat),2
         table=1,in_port=2,tcp,ct_state=+trk+new+rel actions=ct(commit,zone=3,nat),1
         table=1,in_port=1,tcp,ct_state=+trk+est-inv actions=2
         table=1,in_port=2,tcp,ct_state=+trk+est-inv actions=1"
    ));
    let files = RunDir::new("ftp").unwrap();
    let contents = "0123456789abcdef".repeat(20_000);
    std::fs::write(files.path().join("file"), &contents).unwrap();
    let (at, folder) = (lab.address(1).to_string(), files.path().display().to_string());
    let daemon = ["-m", "pyftpdlib", "-i", &at, "-p", "21", "-d", &folder];
    let _server = server.netns.spawn(PYTHON, &daemon).unwrap();
    let listens = || server.netns.enter(|| TcpStream::connect((lab.address(1), 21)).is_ok()).unwrap();
    wait_for(LIMIT, "the server of FTP", listens).unwrap();
    let url = format!("ftp://{at}/file");
    for (mode, options) in [
        ("passive", &["--disable-epsv"][..]),
        ("extended passive", &[]),
        ("active", &["--ftp-port", "-", "--disable-eprt"]),
        ("extended active", &["--ftp-port", "-"]),
    ] {
        let args = [&["--silent", "--show-error", "--max-time", "20"][..], options, &[&url]].concat();
        let got = client.netns.run("curl", &args);
        let state = || format!("{mode}: {}", lab.state());
        assert!(got.unwrap_or_else(|e| panic!("{e}: {}", state())).stdout == contents, "{}", state());
        let tracked = lab.dpctl(&["dump-conntrack", "-m"]);
        assert!(tracked.contains("helper=ftp") && tracked.contains("parent=(src="), "{mode}: {tracked}");
        appctl(&lab.daemon, "dpctl/flush-conntrack");
    }
    // Without the helper no data connection is expected.
    let rules = format!(
        "ip,in_port=1 actions=ct(zone=3,nat,table=1)
         ip,in_port=2 actions=ct(zone=3,nat,table=1)
         table=1,in_port=1,tcp,ct_state=+trk+new,tp_dst=21 actions=ct(commit,zone=3,nat(src={translated})),2
         table=1,in_port=1,tcp,ct_state=+trk+est actions=2
         table=1,in_port=2,tcp,ct_state=+trk+est actions=1"
    );
    lab.rules(&rules);
    let args = ["--silent", "--max-time", "2", "--disable-epsv", &url];
    assert!(client.netns.run("curl", &args).is_err(), "{}", lab.state());
}
