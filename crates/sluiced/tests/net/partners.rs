//! Tunnel devices of the kernel as partners of tunnels on the userspace datapath: Geneve, GRE, ERSPAN, GTP-U, and routes
//! that encapsulate by SRv6.
//!
//! A kernel without the modules skips them; the stage `guest` has one with all of them.

use netlink::genl;
use netlink::socket::{Asked, MessageWriter, Socket};
use testkit::{Capture, Daemon, Netns, wait_for};

use crate::helpers::{LIMIT, appctl, ping_all, unreachable, vsctl, wait_until};
use crate::overlays::{HERE, HERE6, Lab, THERE, THERE6, contents, require_overlay, tunnel};

/// Addresses behind the switch, and on the device of the kernel.
const INNER_HERE: &str = "10.0.0.1";
const INNER_THERE: &str = "10.0.0.2";
/// Room for the longest outer headers, with an option of IPv6.
const INNER_MTU: u32 = 1400;
/// Bytes of a stream each way.
const STREAM_BYTES: usize = 512 << 10;
/// Pings each way.
const PINGS: u32 = 3;

/// Returns from the test, with a line `SKIP: …`, if the kernel does not know the type of a device. A guest knows them.
macro_rules! require_device {
    ($kind:expr) => {
        require_overlay!("ping", "tcpdump");
        if !is_known_or_skip(std::thread::current().name().unwrap_or(module_path!()), $kind) {
            return;
        }
    };
}

/// Whether `ip link add … type KIND` works in a namespace.
pub(crate) fn is_known_or_skip(test: &str, kind: &str) -> bool {
    let netns = Netns::new("known").unwrap();
    match netns.ip(&format!("link add t0 type {kind}")) {
        Ok(_) => true,
        Err(why) if std::env::var_os("SLUICE_GUEST").is_some_and(|v| v == "1") => panic!("{why:#}"),
        Err(why) => {
            testkit::skip(test, &format!("the kernel has no such device (cargo xtask guest): {why:#}"))
        }
    }
}

/// A tunnel of the switch, and its partner.
struct Partner {
    /// Type and options of the interface.
    kind: &'static str,
    options: String,
    /// Type and options of the device.
    device: String,
    /// Large segments of it have to come whole.
    is_large: bool,
    /// Match of its packets.
    fields: &'static str,
}

/// Frames longer than this are large segments: on a slow machine TCP has as few as two in one.
const LARGE_BYTES: u32 = 1600;

/// Pings, and a stream of TCP each way, between the host and the partner; the tunnel counts. `is_large`: large
/// segments of the partner have to come whole.
fn talk(lab: &Lab, is_large: bool) {
    let (host, far) = (lab.host(), lab.far());
    ping_all(&host.netns, INNER_THERE.parse().unwrap(), PINGS);
    ping_all(&far.netns, INNER_HERE.parse().unwrap(), PINGS);
    let least = 2 * PINGS;
    wait_until(
        &lab.daemon,
        &format!("Interface tun statistics:rx_packets>={least} statistics:tx_packets>={least}"),
    );
    let filter = format!("greater {LARGE_BYTES} and ether src {}", far.mac);
    let large = is_large.then(|| Capture::start(&far.netns, &far.dev, &filter, &[]).unwrap());
    contents(&host.netns, &far.netns, INNER_THERE, STREAM_BYTES);
    let least = STREAM_BYTES;
    wait_until(
        &lab.daemon,
        &format!("Interface tun statistics:rx_bytes>={least} statistics:tx_bytes>={least}"),
    );
    if let Some(large) = large {
        large.wait_for("IP", LIMIT).unwrap();
    }
}

/// Lets `br-int` forward packets of the tunnel with these fields, and drop others of it.
fn only_with(daemon: &Daemon, fields: &str) {
    let number = vsctl(daemon, "get Interface tun ofport");
    let rules = format!(
        "priority=9,in_port={number},{fields},actions=NORMAL\npriority=8,in_port={number},actions=drop\n"
    );
    daemon.tool("ovs-ofctl").args(["add-flows", "br-int", "-"]).input(rules.as_str()).run().unwrap();
}

/// Both directions by each partner; then the last tunnel with another key, which neither side takes.
fn each_answers(lab: &Lab, partners: &[Partner]) {
    let (host, far) = (lab.host(), lab.far());
    host.netns.ip(&format!("link set dev {} mtu {INNER_MTU}", host.dev)).unwrap();
    for (n, partner) in partners.iter().enumerate() {
        println!("{} {}, {}", partner.kind, partner.options, partner.device);
        lab.device(&partner.device, &format!("{INNER_THERE}/16"));
        far.netns.ip(&format!("link set dev t0 mtu {INNER_MTU}")).unwrap();
        vsctl(&lab.daemon, &tunnel("tun", partner.kind, &partner.options));
        assert_eq!(vsctl(&lab.daemon, "get Interface tun error"), "[]");
        only_with(&lab.daemon, partner.fields);
        // The former device sent on while its tunnel went: those packets count as errors.
        let errors_before = tunnel_errors(&lab.daemon);
        if let Err(why) = testkit::reachable(&host.netns, INNER_THERE.parse().unwrap(), LIMIT) {
            let shown = ["dpctl/dump-flows", "coverage/show"].map(|what| appctl(&lab.daemon, what));
            panic!("{why:#}\n{}\n{}", shown.join("\n"), far.netns.ip("-s link show dev t0").unwrap());
        }
        let flows = appctl(&lab.daemon, "dpctl/dump-flows");
        assert!(flows.contains("tnl_push(") && flows.contains("tnl_pop("), "{flows}");
        talk(lab, partner.is_large);
        if n + 1 == partners.len() {
            vsctl(&lab.daemon, "set Interface tun options:key=6");
            unreachable(&host.netns, INNER_THERE.parse().unwrap());
            unreachable(&far.netns, INNER_HERE.parse().unwrap());
            // Packets of that tunnel come and are dropped.
            wait_for(LIMIT, "a flow that drops", || {
                let sent = testkit::ping(&far.netns, INNER_HERE.parse().unwrap(), 1).unwrap();
                assert_eq!(sent.received, 0);
                let flows = appctl(&lab.daemon, "dpctl/dump-flows");
                flows.lines().any(|l| l.contains("tunnel(tun_id=0x5") && l.ends_with("actions:drop"))
            })
            .unwrap();
            vsctl(&lab.daemon, "set Interface tun options:key=5");
            ping_all(&far.netns, INNER_HERE.parse().unwrap(), 1);
        }
        let errors = tunnel_errors(&lab.daemon);
        assert_eq!(errors, errors_before, "{}", appctl(&lab.daemon, "coverage/show"));
        vsctl(&lab.daemon, "del-port tun");
        far.netns.ip("link del t0").unwrap();
    }
}

/// Packets dropped because their outer headers could not be added or removed.
fn tunnel_errors(daemon: &Daemon) -> [String; 2] {
    ["push", "pop"]
        .map(|what| appctl(daemon, &format!("coverage/read-counter datapath_drop_tunnel_{what}_error")))
}

fn geneve(remote: &str, options: &str, device: &str) -> Partner {
    let here = if remote == THERE { HERE } else { HERE6 };
    Partner {
        kind: "geneve",
        options: format!("remote_ip={remote},key=5{options}"),
        device: format!("geneve id 5 remote {here} {device}"),
        is_large: true,
        fields: "tun_id=5",
    }
}

#[test]
fn geneve_devices_answer() {
    require_device!("geneve id 1 remote 192.0.2.1");
    let partners = [
        geneve(THERE6, "", ""),
        geneve(THERE, ",csum=true,dst_port=6082", "dstport 6082 udpcsum"),
        geneve(THERE, "", ""),
    ];
    each_answers(&Lab::new("geneve"), &partners);
}

fn gre(kind: &'static str, options: &str, device: &str) -> Partner {
    let (name, here, there) = match kind {
        "gre" => ("gretap", HERE, THERE),
        _ => ("ip6gretap", HERE6, THERE6),
    };
    Partner {
        kind,
        options: format!("remote_ip={there}{options}"),
        device: format!("{name} remote {here} local {there} {device}"),
        is_large: kind == "gre" && !options.contains("csum") && !options.contains("seq"),
        fields: if options.contains("key") { "tun_id=5" } else { "tun_id=0" },
    }
}

#[test]
fn gre_devices_answer() {
    require_device!("gretap remote 192.0.2.1");
    let partners = [
        gre("gre", "", ""),
        gre("gre", ",key=5,csum=true", "key 5 csum"),
        gre("gre", ",key=5,csum=true,seq=true", "key 5 csum seq"),
        gre("ip6gre", ",key=5,csum=true,seq=true", "key 5 csum seq encaplimit none"),
        // With the option that limits nested tunnels, which the device adds by default.
        gre("ip6gre", ",key=5", "key 5"),
        gre("gre", ",key=5", "key 5"),
    ];
    each_answers(&Lab::new("gre"), &partners);
}

fn erspan(kind: &'static str, version: u8) -> Partner {
    let (name, here, there) = match kind {
        "erspan" => ("erspan", HERE, THERE),
        _ => ("ip6erspan", HERE6, THERE6),
    };
    let (options, device, fields) = match version {
        1 => (
            "erspan_ver=1,erspan_idx=3",
            "erspan_ver 1 erspan 3",
            "tun_id=5,tun_erspan_ver=1,tun_erspan_idx=3",
        ),
        _ => (
            "erspan_ver=2,erspan_dir=1,erspan_hwid=4",
            "erspan_ver 2 erspan_dir egress erspan_hwid 4",
            "tun_id=5,tun_erspan_ver=2,tun_erspan_dir=1,tun_erspan_hwid=4",
        ),
    };
    Partner {
        kind,
        options: format!("remote_ip={there},key=5,{options}"),
        device: format!("{name} seq key 5 remote {here} local {there} {device}"),
        is_large: false,
        fields,
    }
}

const ERSPAN: &str = "erspan seq key 1 remote 192.0.2.1 local 192.0.2.2 erspan_ver 1";

#[test]
fn erspan_devices_answer() {
    require_device!(ERSPAN);
    let partners = [erspan("ip6erspan", 1), erspan("ip6erspan", 2), erspan("erspan", 1), erspan("erspan", 2)];
    each_answers(&Lab::new("erspan"), &partners);
}

/// The short form of these tests.
#[test]
fn one_device_of_each_kind_answers() {
    require_device!(ERSPAN);
    let partners =
        [geneve(THERE, "", ""), gre("ip6gre", ",key=5,csum=true", "key 5 csum"), erspan("erspan", 2)];
    each_answers(&Lab::new("devices"), &partners);
}

/// Rules for a tunnel of bare packets: those that it receives get the address of the host. Both sides know the neighbour.
fn bare_rules(lab: &Lab, row: &str) {
    let host = lab.host();
    vsctl(&lab.daemon, &format!("{row} ofport_request=42 -- set Interface {} ofport_request=41", host.port));
    assert_eq!(vsctl(&lab.daemon, "get Interface tun error"), "[]");
    let add = lab.daemon.tool("ovs-ofctl").args(["add-flows", "br-int", "-"]);
    let rules =
        format!("in_port=42,actions=mod_dl_dst:{},output:41\nin_port=41,ip,actions=output:42\n", host.mac);
    add.input(rules.as_str()).run().unwrap();
    host.netns.ip(&format!("link set dev {} mtu {INNER_MTU}", host.dev)).unwrap();
    host.netns.ip(&format!("neigh replace {INNER_THERE} lladdr 02:00:00:00:00:77 dev {}", host.dev)).unwrap();
}

/// Numbers of the kernel's family `gtp` (linux/gtp.h).
mod gtp {
    pub(super) const NEW_PDP: u8 = 0;
    pub(super) const LINK: u16 = 1;
    pub(super) const VERSION: u16 = 2;
    pub(super) const PEER_ADDRESS: u16 = 4;
    pub(super) const MS_ADDRESS: u16 = 5;
    pub(super) const I_TEI: u16 = 8;
    pub(super) const O_TEI: u16 = 9;
}

/// Tells the device `t0` that the machine of that inner address is behind a peer, by this TEID both ways.
fn add_pdp(netns: &Netns, [inner, peer]: [&str; 2], teid: u32) {
    let index = netns.run("cat", &["/sys/class/net/t0/ifindex"]).unwrap().stdout;
    let address = |text: &str| text.parse::<std::net::Ipv4Addr>().unwrap().octets();
    let add = || {
        let mut socket = Socket::open().unwrap();
        let family = genl::family(&mut socket, "gtp").unwrap();
        let asked = Asked::once("add a PDP context", &[]);
        let mut request = MessageWriter::new(family.id, [gtp::NEW_PDP, 0], 0, &[], asked);
        request.attrs.u32(gtp::VERSION, 1);
        request.attrs.u32(gtp::LINK, index.trim().parse().unwrap());
        request.attrs.put(gtp::PEER_ADDRESS, &address(peer));
        request.attrs.put(gtp::MS_ADDRESS, &address(inner));
        request.attrs.u32(gtp::I_TEI, teid);
        request.attrs.u32(gtp::O_TEI, teid);
        socket.request(request.finish().unwrap(), &mut |_| {}).unwrap();
    };
    netns.enter(add).unwrap();
}

#[test]
fn gtp_devices_answer() {
    require_device!("gtp role ggsn");
    let lab = Lab::new("gtp");
    let far = &lab.far().netns;
    far.ip("link add t0 mtu 1400 type gtp role ggsn").unwrap();
    far.up("t0").unwrap();
    far.add_addr("t0", &format!("{INNER_THERE}/16")).unwrap();
    add_pdp(far, [INNER_HERE, HERE], 5);
    bare_rules(&lab, &tunnel("tun", "gtpu", &format!("remote_ip={THERE},key=5")));
    talk(&lab, false);
    vsctl(&lab.daemon, "set Interface tun options:key=6");
    unreachable(&lab.host().netns, INNER_THERE.parse().unwrap());
    unreachable(far, INNER_HERE.parse().unwrap());
}

/// Segments that end at the remote machine, in a network behind its address.
const SEGMENT_NETWORK: &str = "fd02::/64";
const SEGMENT_PASS: &str = "fd02::e";
const SEGMENT_END: &str = "fd02::d";

#[test]
fn routes_with_segments_answer() {
    require_device!("dummy");
    let lab = Lab::new("srv6");
    let (far, dev) = (&lab.far().netns, &lab.far().dev);
    let route = |words: &str| far.ip(&format!("-6 route {words}"));
    let end = format!("add {SEGMENT_END}/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev {dev}");
    if let Err(why) = route(&end) {
        let guest = std::env::var_os("SLUICE_GUEST").is_some_and(|v| v == "1");
        assert!(!guest, "{why:#}");
        let test = std::thread::current();
        testkit::skip(test.name().unwrap_or("srv6"), &format!("the kernel has no SRv6: {why:#}"));
        return;
    }
    route(&format!("add {SEGMENT_PASS}/128 encap seg6local action End dev {dev}")).unwrap();
    for what in ["all.seg6_enabled", &format!("{dev}.seg6_enabled"), "all.forwarding"] {
        far.run("sysctl", &["-q", "-w", &format!("net.ipv6.conf.{what}=1")]).unwrap();
    }
    far.run("sysctl", &["-q", "-w", "net.ipv4.conf.all.rp_filter=0"]).unwrap();
    far.add_addr("lo", &format!("{INNER_THERE}/32")).unwrap();
    lab.net.switch.ip(&format!("-6 route add {SEGMENT_NETWORK} via {THERE6} dev br-phy")).unwrap();
    for (segments, source) in
        [(vec![SEGMENT_END], SEGMENT_END), (vec![SEGMENT_PASS, SEGMENT_END], SEGMENT_PASS)]
    {
        println!("{segments:?}");
        far.ip(&format!("sr tunsrc set {source}")).unwrap();
        let encap = |segments: &str| {
            far.ip(&format!(
                "route replace {INNER_HERE}/32 encap seg6 mode encap segs {segments} dev {dev} src {INNER_THERE}"
            ))
        };
        encap(HERE6).unwrap();
        let options = format!("remote_ip={source},srv6_flowlabel=compute");
        let mut row = tunnel("tun", "srv6", &options);
        if segments.len() > 1 {
            row += &format!(" options:srv6_segs=\"{}\"", segments.join(","));
        }
        bare_rules(&lab, &row);
        talk(&lab, true);
        // A segment is left.
        encap(&format!("{HERE6},fd01::99")).unwrap();
        unreachable(far, INNER_HERE.parse().unwrap());
        vsctl(&lab.daemon, "del-port tun");
    }
}
