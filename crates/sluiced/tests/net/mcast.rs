//! Multicast snooping with hosts whose kernels join and leave groups: streams reach members alone, reports only routers.

use crate::helpers::{LIMIT, appctl, received_text, switch, vsctl};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use testkit::{Capture, Daemon, Host, Topology, require_netns, require_programs, wait_for};

pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0x15);
const PORT: u16 = 5001;

/// An IGMP query of 10.0.0.254.
pub(crate) const QUERY: &str =
    "01005e0000015054000000fe0800460000200000000001023ad80a0000fee0000001940400001164ee9b00000000";
const SEND: &str = "\
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((sys.argv[1], 0))
s.send(bytes.fromhex(sys.argv[2]))
";

/// Sends a frame, in hexadecimal.
pub(crate) fn send_frame(host: &Host, frame: &str) {
    host.netns.cmd("python3").args(["-c", SEND, &host.dev, frame]).run().unwrap();
}

/// A member of the group of IPv4.
pub(crate) fn join(host: &Host) -> UdpSocket {
    let joined = host.netns.enter(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
        socket.join_multicast_v4(&GROUP, &host.ipv4)?;
        socket.set_read_timeout(Some(LIMIT))?;
        Ok::<_, std::io::Error>(socket)
    });
    joined.unwrap().unwrap()
}

/// A member of the group of IPv6.
pub(crate) fn join6(host: &Host) -> UdpSocket {
    let index: u32 = index(host).parse().unwrap();
    let joined = host.netns.enter(|| {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT))?;
        socket.join_multicast_v6(&GROUP6, index)?;
        socket.set_read_timeout(Some(LIMIT))?;
        Ok::<_, std::io::Error>(socket)
    });
    joined.unwrap().unwrap()
}

/// Number of the host's interface.
fn index(host: &Host) -> String {
    let shown = host.netns.ip(&format!("-o link show dev {}", host.dev)).unwrap();
    shown.split(':').next().unwrap().trim().to_string()
}

/// Sends texts to both groups.
pub(crate) fn stream(host: &Host, texts: &[&str]) {
    let index: u32 = index(host).parse().unwrap();
    let to_v4 = SocketAddr::from((GROUP, PORT));
    let to_v6 = std::net::SocketAddrV6::new(GROUP6, PORT, 0, index);
    let sent = host.netns.enter(|| {
        let (v4, v6) = (UdpSocket::bind((host.ipv4, 0))?, UdpSocket::bind((host.ipv6, 0))?);
        for text in texts {
            v4.send_to(text.as_bytes(), to_v4)?;
            v6.send_to(text.as_bytes(), to_v6)?;
        }
        Ok::<_, std::io::Error>(())
    });
    sent.unwrap().unwrap();
}

pub(crate) fn received(socket: &UdpSocket) -> String {
    received_text(|bytes| socket.recv(bytes)).unwrap()
}

pub(crate) fn wait_for_groups(daemon: &Daemon, what: &str, condition: impl Fn(&str) -> bool) {
    wait_for(LIMIT, what, || condition(&appctl(daemon, "mdb/show br0"))).unwrap();
}

fn watch(host: &Host, filter: &str) -> Capture {
    Capture::start(&host.netns, &host.dev, filter, &["-Q", "in"]).unwrap()
}

/// Five hosts: a sender, members by IGMP version 2, by IGMP version 3 and by MLD, and a router.
pub(crate) fn lab() -> (Topology, Daemon) {
    let (net, daemon) = switch(5);
    let strict = "other_config:mcast-snooping-disable-flood-unregistered=true";
    vsctl(&daemon, &format!("set Bridge br0 mcast_snooping_enable=true {strict}"));
    let version = "echo 2 > /proc/sys/net/ipv4/conf/all/force_igmp_version";
    net.hosts[1].netns.cmd("sh").args(["-c", version]).run().unwrap();
    for host in &net.hosts {
        // Multicast leaves by the only device.
        host.netns.ip(&format!("route add 224.0.0.0/4 dev {}", host.dev)).unwrap();
    }
    (net, daemon)
}

#[test]
fn streams_reach_members_and_reports_reach_routers() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "tcpdump");
    let (net, daemon) = lab();
    let [sender, v2, v3, v6, router] = &net.hosts[..] else { panic!("five hosts") };
    send_frame(router, QUERY);
    wait_for_groups(&daemon, "the router", |shown| shown.contains("querier"));
    let messages = "igmp or (icmp6 and ip6[48] >= 131 and ip6[48] <= 143)";
    let [of_sender, of_router] = [sender, router].map(|host| watch(host, messages));
    let data = format!("udp port {PORT}");
    let streams = [v2, v3, v6, router].map(|host| watch(host, &data));
    let (one, two, three) = (join(v2), join(v3), join6(v6));
    wait_for_groups(&daemon, "the members", |shown| {
        ["IGMPv", "MLDv2"].iter().all(|protocol| shown.contains(protocol))
            && shown.matches("239.1.1.1").count() == 2
            && shown.contains("ff05::15")
    });
    of_router.wait_for("igmp v2 report 239.1.1.1", LIMIT).unwrap();
    of_router.wait_for("igmp v3 report", LIMIT).unwrap();
    stream(sender, &["first", "second"]);
    for socket in [&one, &two, &three] {
        assert_eq!([received(socket), received(socket)], ["first", "second"]);
    }
    // A member that leaves gets no more; the other goes on.
    drop(one);
    wait_for_groups(&daemon, "one member", |shown| shown.matches("239.1.1.1").count() == 1);
    // The flows follow.
    appctl(&daemon, "revalidator/wait");
    stream(sender, &["third"]);
    assert_eq!([received(&two), received(&three)], ["third", "third"]);
    // The router gets each packet of both groups.
    let expected = [2, 3, 3, 6];
    for (capture, count) in streams.iter().zip(expected) {
        wait_for(LIMIT, "all packets", || capture.lines().len() >= count).unwrap();
    }
    let counts = streams.map(|capture| capture.stop().unwrap().len());
    assert_eq!(counts, expected);
    let at_sender = of_sender.stop().unwrap();
    let reports: Vec<_> = at_sender.iter().filter(|line| line.contains("report")).collect();
    assert!(reports.is_empty(), "{reports:?}");
}
