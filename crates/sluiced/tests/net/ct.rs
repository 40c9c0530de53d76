//! Rules that track connections, on the userspace datapath with real traffic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};

use serde_json::Value;
use testkit::{Cmd, RunDir, patience, require_netns, require_programs, skip, wait_for};

use crate::cli::{program, sluice};
use crate::ct_balancer;
use crate::ct_lab::{self, FIREWALL, Kind, Lab, talk};
use crate::helpers::{LIMIT, appctl, ping_all, wait_until};

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

/// A datagram is tracked whole, whatever its length. It leaves as the fragments that arrived: those above the MTU of the output
/// port are dropped there, and counted by that reason.
#[test]
fn fragments_too_large_for_their_output_port_are_dropped_with_a_reason() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping");
    let forth = |family: &str, zone: u8| {
        format!(
            "{family} actions=ct(table=1,zone={zone})
             table=1,in_port=1,{family},ct_state=+trk+new-inv actions=ct(commit,zone={zone}),2
             table=1,in_port=1,{family},ct_state=+trk+est-inv actions=2
             table=1,in_port=2,{family},ct_state=+trk+est-inv actions=1\n"
        )
    };
    let neighbours = "priority=50000,icmp6,icmp_type=135 actions=normal
                      priority=50000,icmp6,icmp_type=136 actions=normal\n";
    let lab = Lab::new(Kind::Userspace, &format!("{neighbours}{}{}", forth("ip", 5), forth("ipv6", 6)));
    let [one, two] = &lab.net.hosts[..] else { panic!("two hosts") };
    let targets = [IpAddr::from(two.ipv4), two.ipv6.into()];
    let large = |to: &IpAddr| one.netns.run("ping", &["-n", "-c1", "-W1", "-s4000", &to.to_string()]).is_ok();
    for to in &targets {
        wait_for(LIMIT, "a large ping to arrive", || large(to))
            .unwrap_or_else(|why| panic!("{why:#}: {}", lab.state()));
    }
    let counter = || {
        appctl(&lab.daemon, "coverage/read-counter datapath_drop_tx_too_big").trim().parse::<u64>().unwrap()
    };
    assert_eq!(counter(), 0);
    // Two of three fragments are above it.
    lab.net.switch.ip(&format!("link set dev {} mtu 1300", two.port)).unwrap();
    wait_until(&lab.daemon, &format!("Interface {} mtu=1300", two.port));
    for (n, to) in (1..).zip(&targets) {
        assert!(!large(to), "{to}");
        wait_for(LIMIT, "drops", || counter() >= 2 * n).unwrap();
        assert_eq!(counter(), 2 * n);
    }
    wait_until(&lab.daemon, &format!("Interface {} statistics:ovs_tx_mtu_exceeded_drops=4", two.port));
    wait_until(&lab.daemon, &format!("Interface {} statistics:sluice_tx_too_big_drops=4", two.port));
    // Smaller fragments pass.
    for host in [one, two] {
        host.netns.ip(&format!("link set dev {} mtu 1300", host.dev)).unwrap();
    }
    for to in &targets {
        wait_for(LIMIT, "a large ping to arrive", || large(to))
            .unwrap_or_else(|why| panic!("{why:#}: {}", lab.state()));
    }
    assert_eq!(counter(), 4);
    // All were tracked as datagrams: one connection for each ping.
    let tracked = lab.connections();
    assert!(tracked.contains("icmp,orig=") && tracked.contains("icmpv6,orig="), "{tracked}");
}

/// Real traffic of both directions passes rules that match by the original tuple only; its destination is translated.
#[test]
fn the_original_tuple_decides_about_both_directions() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping");
    let lab = Lab::new(Kind::Userspace, "ip actions=drop");
    let [client, server] = &lab.net.hosts[..] else { panic!("two hosts") };
    let [a, b, c, _] = client.ipv4.octets();
    let virtual4 = Ipv4Addr::new(a, b, c, 99);
    let mut net6 = client.ipv6.octets();
    net6[15] = 0x99;
    let virtual6 = Ipv6Addr::from(net6);
    for address in [virtual4.to_string(), virtual6.to_string()] {
        let entry = ["neigh", "replace", &address, "lladdr", &server.mac, "dev", client.dev.as_str()];
        client.netns.run("ip", &entry).unwrap();
    }
    let neighbours = "priority=50000,icmp6,icmp_type=135 actions=normal
                      priority=50000,icmp6,icmp_type=136 actions=normal\n";
    let mut rules = neighbours.to_string();
    let mut cookie = 0;
    for (family, prefix, from, to, real, ping) in [
        ("ip", "nw", client.ipv4.to_string(), virtual4.to_string(), server.ipv4.to_string(), (1, 8)),
        ("ipv6", "ipv6", client.ipv6.to_string(), virtual6.to_string(), server.ipv6.to_string(), (58, 128)),
    ] {
        rules += &format!(
            "{family} actions=ct(zone=4,nat,table=1)
             table=1,priority=90,in_port=1,{family},ct_state=+trk+new actions=ct(commit,zone=4,nat(dst={real})),2\n"
        );
        let addresses = format!("{family},ct_{prefix}_src={from},ct_{prefix}_dst={to}");
        for ports in [
            "ct_nw_proto=6,ct_tp_dst=5001".to_string(),
            "ct_nw_proto=17,ct_tp_src=6001,ct_tp_dst=5002".to_string(),
            format!("ct_nw_proto={},ct_tp_src={},ct_tp_dst=0", ping.0, ping.1),
        ] {
            for (port, reply, output) in [(1, "-rpl", 2), (2, "+rpl", 1)] {
                cookie += 1;
                rules += &format!(
                    "cookie={cookie},table=1,priority=50,in_port={port},ct_state=+trk+est{reply},{addresses},{ports} \
                     actions={output}\n"
                );
            }
        }
    }
    lab.rules(&rules);
    for to in [IpAddr::from(virtual4), virtual6.into()] {
        let real: IpAddr = if to.is_ipv4() { server.ipv4.into() } else { server.ipv6.into() };
        // No wildcard: a process being started by another test may still hold the socket of the other family.
        let own: IpAddr = if to.is_ipv4() { client.ipv4.into() } else { client.ipv6.into() };
        let listener = server.netns.enter(|| TcpListener::bind((real, 5001))).unwrap().unwrap();
        let stream =
            client.netns.enter(|| TcpStream::connect_timeout(&(to, 5001).into(), patience(LIMIT))).unwrap();
        let stream = stream.unwrap_or_else(|why| panic!("{to}: {why}: {}", lab.state()));
        talk(stream, listener.accept().unwrap().0);
        let asks = client.netns.enter(|| UdpSocket::bind((own, 6001))).unwrap().unwrap();
        let answers = server.netns.enter(|| UdpSocket::bind((real, 5002))).unwrap().unwrap();
        for socket in [&asks, &answers] {
            socket.set_read_timeout(Some(patience(LIMIT))).unwrap();
        }
        let mut got = [0; 9];
        for _ in 0..2 {
            asks.send_to(b"question?", (to, 5002)).unwrap();
            let (_, from) = answers.recv_from(&mut got).unwrap();
            answers.send_to(b"an answer", from).unwrap();
            assert_eq!(asks.recv_from(&mut got).unwrap(), (9, (to, 5002).into()));
        }
        ping_all(&client.netns, to, 3);
    }
    appctl(&lab.daemon, "revalidator/wait");
    let rules = lab.daemon.ovs("ovs-ofctl", &["dump-flows", "br0", "table=1"]).unwrap().stdout;
    for n in 1..=cookie {
        let line = rules.lines().find(|l| l.contains(&format!("cookie={n:#x},"))).unwrap();
        assert!(!line.contains("n_packets=0,"), "{line}\n{}", lab.state());
    }
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
