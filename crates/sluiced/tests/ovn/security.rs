//! Access lists and their samples, meters, logs and quality of service.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use testkit::{Capture, wait_for};

use crate::lab::{Kind, LIMIT, Lab, Machine, on_kernel};
use crate::sockets::{ask, connect, serve};

/// Two machines of one network on two chassis, and one more on the second.
fn network(kind: Kind) -> (Lab, [Machine; 3]) {
    let lab = Lab::new(kind, 2);
    lab.network(1);
    let machines = [lab.machine(0, 1, 11), lab.machine(1, 1, 12), lab.machine(1, 1, 13)];
    lab.sync();
    for to in &machines[1..] {
        machines[0].reaches(&to.ip);
    }
    (lab, machines)
}

/// Port groups, address sets, and conjunctions of both.
pub(crate) fn security_groups(kind: Kind) {
    let (lab, [web, peer, stranger]) = network(kind);
    lab.nb("create Address_Set name=trusted addresses=10.1.0.12,10.1.0.99,10.1.0.98 \
         -- pg-add servers n1h11 -- pg-add clients n1h12 n1h13");
    lab.apply(
        "acl-add servers to-lport 1000 'outport == @servers && ip4' drop \
         -- acl-add servers to-lport 1001 \
            'outport == @servers && ip4.src == $trusted && tcp.dst == {80, 443, 8080}' allow-related \
         -- acl-add servers to-lport 1001 'outport == @servers && icmp4 && ip4.src == 10.1.0.12' allow-related",
    );
    let _servers = [80, 443, 8080, 81].map(|port| serve(&web, port, "web"));
    let flows = lab.chassis[0].ofctl("dump-flows br-int");
    assert!(flows.contains("conjunction(") && flows.contains("conj_id="), "{flows}");
    for port in [80, 443, 8080] {
        assert_eq!(connect(&peer, "10.1.0.11", port).as_deref(), Ok("web"));
        assert_eq!(connect(&stranger, "10.1.0.11", port), Err(ErrorKind::TimedOut));
    }
    assert_eq!(connect(&peer, "10.1.0.11", 81), Err(ErrorKind::TimedOut));
    assert!(peer.can_ping("10.1.0.11") && !stranger.can_ping("10.1.0.11"));
    // IPv6 is not in the lists.
    stranger.reaches("fd01::11");
    // Members come and go.
    lab.nb("add Address_Set trusted addresses 10.1.0.13 -- remove Address_Set trusted addresses 10.1.0.12");
    lab.sync();
    wait_for(LIMIT, "the new member", || connect(&stranger, "10.1.0.11", 443).is_ok()).unwrap();
    assert_eq!(connect(&peer, "10.1.0.11", 443), Err(ErrorKind::TimedOut));
    lab.apply("clear Port_Group servers ports");
    wait_for(LIMIT, "the end of the group", || connect(&peer, "10.1.0.11", 81).is_ok()).unwrap();
    // Port security: another source address does not leave the port.
    lab.apply("lsp-set-port-security n1h12 '0a:00:00:00:01:12 10.1.0.12'");
    peer.reaches("10.1.0.11");
    peer.netns.add_addr(&peer.dev, "10.1.0.77/24").unwrap();
    let spoofed = peer.netns.cmd("ping").args(["-n", "-c2", "-W1", "-I", "10.1.0.77", "10.1.0.11"]).output();
    assert!(spoofed.unwrap().stdout.contains(" 0 received"));
}

/// `reject` answers at once; established connections survive a list that allows no new ones.
pub(crate) fn rejects_and_established(kind: Kind) {
    let (lab, [web, peer, stranger]) = network(kind);
    let _server = serve(&web, 80, "web");
    lab.apply(
        "acl-add n1 to-lport 1000 'outport == \"n1h11\" && ip' reject \
         -- acl-add n1 to-lport 1001 'outport == \"n1h11\" && ip4.src == 10.1.0.12 && tcp' allow-related \
         -- acl-add n1 from-lport 1000 'inport == \"n1h13\" && udp.dst == 9' reject \
         -- acl-add n1 from-lport 900 'inport == \"n1h11\" && ip4' allow-related",
    );
    wait_for(LIMIT, "a reset", || connect(&stranger, "10.1.0.11", 80) == Err(ErrorKind::ConnectionRefused))
        .unwrap();
    assert_eq!(connect(&stranger, "fd01::11", 80), Err(ErrorKind::ConnectionRefused));
    assert_eq!(ask(&stranger, "10.1.0.11", 80, b"?"), Err(ErrorKind::ConnectionRefused));
    assert_eq!(ask(&stranger, "10.1.0.12", 9, b"?"), Err(ErrorKind::ConnectionRefused));
    assert_eq!(connect(&peer, "10.1.0.11", 80).as_deref(), Ok("web"));
    // Answers to what the server begins pass.
    let _other = serve(&stranger, 80, "stranger");
    assert_eq!(connect(&web, "10.1.0.13", 80).as_deref(), Ok("stranger"));
    assert_eq!(ask(&web, "10.1.0.13", 80, b"?").as_deref(), Ok(&b"stranger"[..]));
}

pub(crate) fn meters_and_the_log(kind: Kind) {
    let (lab, [web, peer, _]) = network(kind);
    let _server = serve(&web, 80, "web");
    lab.apply(
        "meter-add slow drop 2 pktps 1 \
         -- --log --name=closed --severity=alert --meter=slow acl-add n1 to-lport 1000 \
            'outport == \"n1h11\" && icmp4' drop \
         -- --log --name=open --severity=info acl-add n1 to-lport 1000 'outport == \"n1h11\" && tcp' allow-related",
    );
    let chassis = &lab.chassis;
    wait_for(LIMIT, "the list", || !peer.can_ping("10.1.0.11")).unwrap();
    assert_eq!(connect(&peer, "10.1.0.11", 80).as_deref(), Ok("web"));
    let logged = |text: &str| chassis.iter().map(|c| c.controller_log().matches(text).count()).sum::<usize>();
    let closed = "name=\"closed\", verdict=drop, severity=alert, direction=to-lport: icmp,";
    let open = "name=\"open\", verdict=allow, severity=info, direction=to-lport: tcp,";
    wait_for(LIMIT, "lines of the log", || logged(closed) > 0 && logged(open) > 0).unwrap();
    // The meter limits the log, and the switch counts what it drops.
    assert!(chassis[0].ofctl("dump-meters br-int").contains("pktps"));
    let before = logged(closed);
    let sent = 200;
    let ping = ["-n", "-q", "-i", "0.005", "-c", &sent.to_string(), "-W", "1", "10.1.0.11"];
    let report = peer.netns.cmd("ping").args(ping).output().unwrap();
    assert!(report.stdout.contains(" 0 received"), "{report:?}");
    let dropped = || {
        let text = chassis[0].ofctl("meter-stats br-int");
        let band = text.lines().find_map(|l| l.trim().strip_prefix("0: packet_count:").map(str::to_string));
        band.and_then(|b| b.split_whitespace().next().and_then(|n| n.parse::<usize>().ok())).unwrap_or(0)
    };
    wait_for(LIMIT, "the meter to drop", || dropped() > sent / 2).unwrap();
    assert!(logged(closed) - before < sent / 2, "{} lines", logged(closed) - before);
}

pub(crate) fn quality_of_service(kind: Kind) {
    let (lab, [web, peer, _]) = network(kind);
    lab.apply(
        "qos-add n1 from-lport 100 'inport == \"n1h12\" && ip4.dst == 10.1.0.11' dscp=10 \
         -- qos-add n1 to-lport 100 'outport == \"n1h11\" && icmp4' rate=8 burst=8",
    );
    let capture = Capture::start(&web.netns, &web.dev, "icmp and src 10.1.0.12", &["-v"]).unwrap();
    wait_for(LIMIT, "a marked packet", || {
        peer.can_ping("10.1.0.11");
        capture.lines().iter().any(|l| l.contains("tos 0x28"))
    })
    .unwrap();
    // 8 kbit/s are one packet of 1,000 bytes a second.
    let ping = ["-n", "-q", "-s", "950", "-i", "0.01", "-c", "100", "-W", "1", "10.1.0.11"];
    let report = peer.netns.cmd("ping").args(ping).output().unwrap();
    let received = report.stdout.split(", ").find_map(|part| part.strip_suffix(" received")).unwrap();
    let received: u32 = received.parse().unwrap();
    assert!((1..50).contains(&received), "{report:?}");
}

/// Access lists sample new and established connections for local readers.
pub(crate) fn sampled_lists(kind: Kind) {
    let (lab, [web, peer, stranger]) = network(kind);
    if !lab.nb_has("Sample_Collector") {
        return eprintln!(
            "SKIP: security::sampled_lists: this OVN samples no access lists (24.09, SLUICE_OVN_ROOT)"
        );
    }
    let _servers = [80, 81].map(|port| serve(&web, port, "web"));
    let acl = |name: &str, matches: &str| {
        format!(
            "--id=@{name} create ACL direction=to-lport priority=1001 action=allow-related match='{matches}' \
             sample_new=@new sample_est=@est -- add Logical_Switch n1 acls @{name}"
        )
    };
    lab.apply(&format!(
        "--id=@to create Sample_Collector id=1 name=local set_id=100 probability=65535 \
         -- --id=@new create Sample metadata=4301 collectors=@to -- --id=@est create Sample metadata=4302 collectors=@to \
         -- create Sampling_App type=acl-new id=10 -- create Sampling_App type=acl-est id=11 -- {}",
        acl("web", "\"outport == \\\"n1h11\\\" && tcp.dst == 80 && ip4\"")
    ));
    let here = &lab.chassis[0];
    // OVN installs rules that sample once their set is there. Debian's switch and tool have no local groups.
    let set = "--id=@b get Bridge br-int -- create Flow_Sample_Collector_Set id=100 bridge=@b";
    match kind {
        Kind::Stock => drop(here.vsctl(set)),
        Kind::Sluice => drop(
            here.sluice().args(["vsctl", "--"]).args(set.split(' ')).arg("local_group_id=7").run().unwrap(),
        ),
    }
    // Debian's ovs-ofctl knows no observation point in a register.
    let rules = || here.appctl("bridge/dump-flows br-int");
    wait_for(LIMIT, "rules that sample", || rules().contains("sample(")).unwrap();
    assert_eq!(connect(&peer, "10.1.0.11", 80).as_deref(), Ok("web"));
    // The kernel's samples go to its own readers.
    if kind == Kind::Stock || on_kernel() {
        return;
    }
    let reader = here.sluice().args(["sample", "--json"]).spawn().unwrap();
    wait_for(LIMIT, "the reader", || reader.stderr().contains("listening")).unwrap();
    let seen = || -> BTreeSet<(u64, u64, u64)> {
        let lines = reader.stdout();
        let lines = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let key = |line: &serde_json::Value| {
            ["group", "obs_domain_id", "obs_point_id"].map(|key| line[key].as_u64().unwrap())
        };
        // The upper byte of the domain is the application, the others are the datapath.
        lines.map(|line| key(&line)).map(|[group, domain, point]| (group, domain >> 24, point)).collect()
    };
    wait_for(LIMIT, "samples of both kinds", || {
        assert_eq!(connect(&peer, "10.1.0.11", 80).as_deref(), Ok("web"));
        assert_eq!(connect(&stranger, "10.1.0.11", 81).as_deref(), Ok("web"));
        seen().len() >= 2
    })
    .unwrap();
    assert_eq!(seen(), BTreeSet::from([(7, 10, 4301), (7, 11, 4302)]));
}
