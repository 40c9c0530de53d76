//! Logical switches and routers, DHCP, DNS, proxies, multicast.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::PermissionsExt;

use testkit::{Capture, wait_for};

use crate::lab::{Kind, LIMIT, Lab, Machine, folder};
use crate::sockets::{ask, connect, serve, transfer};

/// Ping, TCP and UDP between all machines, both families.
fn all_pairs(machines: &[&Machine]) {
    let servers: Vec<_> = machines.iter().map(|m| serve(m, 80, &m.ip)).collect();
    for from in machines {
        for to in machines.iter().filter(|to| to.ip != from.ip) {
            for address in [&to.ip, &to.ip6] {
                from.reaches(address);
                assert_eq!(connect(from, address, 80).as_ref(), Ok(&to.ip));
                assert_eq!(ask(from, address, 80, b"?").as_deref(), Ok(to.ip.as_bytes()));
            }
        }
        let to = machines.iter().rfind(|to| to.ip != from.ip).unwrap();
        transfer(from, &to.ip, 80, &to.ip);
        transfer(from, &to.ip6, 80, &to.ip);
    }
    drop(servers);
}

pub(crate) fn switches_and_routers(kind: Kind) {
    let lab = Lab::new(kind, 2);
    lab.network(1);
    lab.network(2);
    let machines = [lab.machine(0, 1, 11), lab.machine(1, 1, 12), lab.machine(1, 2, 11)];
    lab.apply("lsp-set-enabled n2h11 enabled");
    let [near, peer, routed] = &machines;
    all_pairs(&[near, peer, routed]);
    for (chassis, machine) in [(0, near), (1, peer), (1, routed)] {
        lab.chassis[chassis].wait_installed(machine);
    }
    assert_eq!(lab.nb("get Logical_Switch_Port n1h11 up"), "true");
    // The router decrements the hop limit and answers.
    let late = near.netns.cmd("ping").args(["-n", "-c1", "-W5", "-t1", &routed.ip]).output().unwrap();
    assert!(late.stdout.contains("From 10.1.0.1") && late.stdout.contains("Time to live"), "{late:?}");
    near.reaches("10.2.0.1");
    near.reaches("fd02::1");
    // Geneve carries OVN's metadata.
    let flows = lab.wait_for_encapsulation(near, &peer.ip);
    assert!(flows.contains("class=0x102,type=0x80"), "{flows}");
    // A port that is disabled is cut off.
    lab.apply("lsp-set-enabled n2h11 disabled");
    wait_for(LIMIT, "the port to be cut off", || !near.can_ping(&routed.ip)).unwrap();
}

pub(crate) fn three_chassis(kind: Kind) {
    let lab = Lab::new(kind, 3);
    lab.network(1);
    lab.network(2);
    let machines =
        [lab.machine(0, 1, 11), lab.machine(1, 1, 12), lab.machine(2, 2, 11), lab.machine(0, 2, 12)];
    lab.sync();
    all_pairs(&machines.iter().collect::<Vec<_>>());
}

/// A script for `dhclient` that takes addresses and routes.
const DHCP_SCRIPT: &str = r#"#!/bin/sh
case $reason in
BOUND|RENEW|REBIND|REBOOT)
    ip addr replace $new_ip_address/$new_subnet_mask dev $interface
    ip link set dev $interface mtu $new_interface_mtu
    ip route replace default via $new_routers ;;
BOUND6|RENEW6|REBIND6)
    ip addr replace $new_ip6_address/128 dev $interface ;;
PREINIT|PREINIT6)
    ip link set dev $interface up ;;
esac
"#;

pub(crate) fn dhcp_and_router_advertisements(kind: Kind) {
    if !testkit::programs_or_skip("dhcp_and_router_advertisements", &["dhclient"]) {
        return;
    }
    let lab = Lab::new(kind, 1);
    lab.network(1);
    let options = lab
        .nb("create DHCP_Options cidr=10.1.0.0/24 options='\"lease_time\"=\"3600\" \"router\"=\"10.1.0.1\" \
         \"server_id\"=\"10.1.0.1\" \"server_mac\"=\"0a:00:00:00:01:01\" \"mtu\"=\"1380\"'");
    let options6 =
        lab.nb("create DHCP_Options cidr='\"fd01::/64\"' options='\"server_id\"=\"0a:00:00:00:01:01\"'");
    lab.nb(
        "set Logical_Router_Port r-n1 ipv6_ra_configs:address_mode=slaac ipv6_ra_configs:send_periodic=true \
         ipv6_ra_configs:min_interval=3 ipv6_ra_configs:max_interval=4 ipv6_ra_configs:mtu=1390",
    );
    lab.nb(&format!(
        "lsp-add n1 n1h11 -- lsp-set-addresses n1h11 '0a:00:00:00:01:11 10.1.0.11 fd01::11' \
         -- lsp-set-dhcpv4-options n1h11 {options} -- lsp-set-dhcpv6-options n1h11 {options6}"
    ));
    let machine = lab.bare_machine(0, 1, 11);
    lab.sync();
    lab.chassis[0].wait_installed(&machine);
    let files = folder();
    let script = files.path().join("script");
    std::fs::write(&script, DHCP_SCRIPT).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let netns = &machine.netns;
    netns.up(&machine.dev).unwrap();
    for family in ["-4", "-6"] {
        let name = |end: &str| files.path().join(format!("dhclient{family}.{end}")).into_os_string();
        // A link-local address that is still tentative ends the client of IPv6.
        wait_for(LIMIT, "a lease", || {
            let client = netns.cmd("dhclient").args([family, "-1", "-d", "-sf"]).arg(&script);
            let client = client.arg("-lf").arg(name("leases")).arg("-pf").arg(name("pid")).arg(&machine.dev);
            let running = client.spawn().unwrap();
            let bound = || {
                let shown = netns.ip(&format!("{family} addr show dev {}", machine.dev)).unwrap();
                // The script adds the route last.
                let has_route = || netns.ip("route show default").unwrap().contains("via 10.1.0.1");
                shown.contains("inet 10.1.0.11/24") && has_route() || shown.contains("inet6 fd01::11/128")
            };
            let came = wait_for(LIMIT / 8, "an address", bound).is_ok();
            drop(running);
            came
        })
        .unwrap();
    }
    assert!(netns.ip(&format!("link show dev {}", machine.dev)).unwrap().contains("mtu 1380"));
    machine.reaches("10.1.0.1");
    // The kernel takes prefix and router from the advertisements.
    wait_for(LIMIT, "an advertised prefix and router", || {
        let has = |what: &str, part: &str| netns.ip(what).unwrap().contains(part);
        has(&format!("-6 addr show dev {} scope global", machine.dev), "inet6 fd01::8")
            && has("-6 route show default", "proto ra")
    })
    .unwrap();
    machine.reaches("fd01::1");
}

/// A query for an address of a name, and the answers as text.
fn resolve(machine: &Machine, name: &str, kind: u16) -> Vec<String> {
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend(label.as_bytes());
    }
    query.extend([0, 0, u8::try_from(kind).unwrap(), 0, 1]);
    let Ok(answer) = ask(machine, "10.1.0.53", 53, &query) else { return Vec::new() };
    assert_eq!((&answer[..2], answer[2] & 0x80), (&query[..2], 0x80), "{answer:02x?}");
    let count = usize::from(u16::from_be_bytes([answer[6], answer[7]]));
    // Each answer: the name (a pointer, or repeated), type, class, lifetime, length, address.
    let bytes = if kind == 1 { 4 } else { 16 };
    let address = |at: usize| match <[u8; 4]>::try_from(&answer[at..at + bytes]) {
        Ok(v4) => Ipv4Addr::from(v4).to_string(),
        Err(_) => {
            std::net::Ipv6Addr::from(<[u8; 16]>::try_from(&answer[at..at + bytes]).unwrap()).to_string()
        }
    };
    let one = (answer.len() - query.len()).checked_div(count).unwrap_or(0);
    (1..=count).map(|n| address(query.len() + n * one - bytes)).collect()
}

pub(crate) fn names_are_resolved(kind: Kind) {
    let lab = Lab::new(kind, 1);
    lab.network(1);
    let machine = lab.machine(0, 1, 11);
    lab.nb("--id=@d create DNS records:www.example='\"10.1.0.80 10.1.0.81 fd01::80\"' \
         records:one.example=10.9.9.9 -- set Logical_Switch n1 dns_records=@d");
    lab.sync();
    lab.chassis[0].wait_installed(&machine);
    // Any name server of the network will do: queries are answered on the way, if their addresses resolve.
    machine.netns.ip(&format!("neigh add 10.1.0.53 lladdr 0a:00:00:00:01:53 dev {}", machine.dev)).unwrap();
    wait_for(LIMIT, "an answer", || !resolve(&machine, "www.example", 1).is_empty()).unwrap();
    let mut found = resolve(&machine, "WWW.example", 1);
    found.sort();
    assert_eq!(found, ["10.1.0.80", "10.1.0.81"]);
    assert_eq!(resolve(&machine, "www.example", 28), ["fd01::80"]);
    assert_eq!(resolve(&machine, "one.example", 1), ["10.9.9.9"]);
    assert!(resolve(&machine, "unknown.example", 1).is_empty());
}

pub(crate) fn neighbours_are_answered(kind: Kind) {
    let lab = Lab::new(kind, 2);
    lab.network(1);
    let (near, far) = (lab.machine(0, 1, 11), lab.machine(1, 1, 12));
    lab.nb("lsp-set-options n1-r router-port=r-n1 arp_proxy=10.1.0.200");
    lab.sync();
    lab.chassis[0].wait_installed(&near);
    lab.chassis[1].wait_installed(&far);
    let broadcasts = Capture::start(&far.netns, &far.dev, "arp[6:2] == 1 or icmp6[0] == 135", &[]).unwrap();
    for address in ["10.1.0.12", "fd01::12", "10.1.0.1", "fd01::1"] {
        near.reaches(address);
    }
    let known = near.netns.ip("neigh show").unwrap();
    for (address, mac) in [("10.1.0.12", &far.mac), ("fd01::12", &far.mac)] {
        assert!(known.lines().any(|l| l.starts_with(&format!("{address} ")) && l.contains(mac)), "{known}");
    }
    // The proxy's address has the router's Ethernet address. OVN 23.03 has no proxy for IPv6.
    wait_for(LIMIT, "an answer of the proxy", || {
        near.can_ping("10.1.0.200");
        let known = near.netns.ip("neigh show 10.1.0.200").unwrap();
        known.contains("0a:00:00:00:01:01")
    })
    .unwrap();
    // OVN answers for the far machine: it gets no request from the near one. Its own solicitations are its.
    let requests = broadcasts.stop().unwrap();
    let foreign: Vec<_> = requests.iter().filter(|l| l.contains("tell 10.1.0.11")).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

/// The socket of a member of a group.
fn member(machine: &Machine, group: Ipv4Addr) -> UdpSocket {
    let join = || {
        let socket = UdpSocket::bind(("0.0.0.0", 5000)).unwrap();
        socket.join_multicast_v4(&group, &machine.ip.parse().unwrap()).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    };
    machine.netns.enter(join).unwrap()
}

pub(crate) fn multicast(kind: Kind) {
    let lab = Lab::new(kind, 2);
    lab.network(1);
    lab.nb("set Logical_Switch n1 other_config:mcast_snoop=true other_config:mcast_querier=true \
         other_config:mcast_query_interval=2 other_config:mcast_ip4_src=10.1.0.1 \
         other_config:mcast_eth_src=0a:00:00:00:01:01 other_config:mcast_flood_unregistered=false");
    let (sender, joined, other) = (lab.machine(0, 1, 11), lab.machine(1, 1, 12), lab.machine(1, 1, 13));
    lab.sync();
    for (chassis, machine) in [(0, &sender), (1, &joined), (1, &other)] {
        lab.chassis[chassis].wait_installed(machine);
    }
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let socket = member(&joined, group);
    wait_for(LIMIT, "the group in the southbound database", || {
        lab.sb("--bare --columns=address list IGMP_Group").contains("239.1.2.3")
    })
    .unwrap();
    lab.sync();
    let capture = Capture::start(&other.netns, &other.dev, "dst 239.1.2.3 and udp", &[]).unwrap();
    let mut text = String::new();
    wait_for(LIMIT, "a datagram of the group", || {
        sender
            .netns
            .enter(|| {
                let from = UdpSocket::bind((sender.ip.parse::<Ipv4Addr>().unwrap(), 0)).unwrap();
                from.send_to(b"news", (group, 5000)).unwrap();
            })
            .unwrap();
        socket.set_read_timeout(Some(LIMIT / 40)).unwrap();
        let mut buffer = [0; 64];
        let received = socket.recv(&mut buffer);
        let _ = write!(text, "{received:?} ");
        received.is_ok_and(|n| &buffer[..n] == b"news")
    })
    .unwrap_or_else(|why| panic!("{why:#}: {text}"));
    // A later packet on that path shows that nothing of the group came before it.
    other.reaches(&sender.ip);
    let leaked = capture.stop().unwrap();
    assert!(leaked.is_empty(), "{leaked:?}");
}
