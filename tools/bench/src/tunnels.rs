//! Works with a VXLAN tunnel in user space: which bridge has which port, the underlay, and encapsulated frames.
//!
//! The tunnel port is on the bridge of every work, [`BRIDGE`]. A second bridge is the underlay; its device has the
//! outer address, and a command names the neighbour behind it, so that no frame asks for one.

use crate::frames::{FRAME_BYTES, Frames, GENERATOR_MAC, SINK_MAC};
use crate::lab::BRIDGE;
use crate::pmdstats::{Count, PortCounts};
use crate::works::{self, OUT, Source, Work};
use anyhow::Result;
use packet::checksum::checksum;
use testkit::TempDir;

/// The bridge of the underlay, and its device.
pub(crate) const UNDERLAY: &str = "br-phy";
/// OpenFlow number and name of the tunnel port.
pub(crate) const TUNNEL: u32 = 50;
pub(crate) const NAME: &str = "tun";
/// Address of the device of the underlay, and its network as `ovs/route/show` prints it.
pub(crate) const LOCAL_PREFIX: &str = "172.31.1.1/24";
pub(crate) const NETWORK: &str = "172.31.1.0/24";
/// Command about the remote machine, for ovs-appctl(8).
pub(crate) const NEIGHBOUR: [&str; 4] = ["tnl/arp/set", UNDERLAY, "172.31.1.2", "02:be:00:00:00:12"];
/// Creates the bridge of the underlay.
pub(crate) const UNDERLAY_BRIDGE: [&str; 8] = [
    "add-br",
    UNDERLAY,
    "--",
    "set",
    "bridge",
    UNDERLAY,
    "datapath_type=netdev",
    "other-config:hwaddr=02:be:00:00:00:11",
];

const LOCAL_IP: [u8; 4] = [172, 31, 1, 1];
const REMOTE_IP: [u8; 4] = [172, 31, 1, 2];
const LOCAL_MAC: [u8; 6] = [0x02, 0xbe, 0, 0, 0, 0x11];
const REMOTE_MAC: [u8; 6] = [0x02, 0xbe, 0, 0, 0, 0x12];
/// Key of the tunnel.
pub(crate) const VNI: u32 = 5;
/// Assigned by RFC 7348.
pub(crate) const VXLAN_PORT: u16 = 4789;
/// Bytes of the outer headers: Ethernet, IPv4, UDP, VXLAN.
pub(crate) const OUTER_BYTES: usize = 14 + 20 + 8 + 8;
/// Outer source ports are those of Linux: 32768 to 60999, a flow each.
const SOURCE_PORTS: (u64, u64) = (32_768, 28_232);

/// The way of packets from their source to a `null` port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tunnel {
    /// Through one bridge.
    None,
    /// From the bridge through the tunnel port into the underlay, which has the `null` port.
    Push,
    /// Encapsulated from the underlay, which has the source, through the tunnel port into the bridge.
    Pop,
}

/// OpenFlow number of the source of encapsulated frames.
const OUTER_SOURCE: u32 = 2;

impl Tunnel {
    /// The bridge of the sources.
    pub(crate) fn source_bridge(self) -> &'static str {
        if self == Tunnel::Pop { UNDERLAY } else { BRIDGE }
    }

    /// The bridge of the `null` port, and the name of that.
    pub(crate) fn out(self) -> (&'static str, &'static str) {
        if self == Tunnel::Push { (UNDERLAY, "outer") } else { (BRIDGE, "out") }
    }

    /// Bytes of a sent frame with `inner` bytes.
    pub(crate) fn out_bytes(self, inner: u64) -> u64 {
        if self == Tunnel::Push { inner + OUTER_BYTES as u64 } else { inner }
    }

    /// The counter of the tunnel port that counts these packets.
    pub(crate) fn counted(self, counts: PortCounts) -> Count {
        if self == Tunnel::Push { counts.sent } else { counts.received }
    }

    /// Rule of the underlay.
    pub(crate) fn underlay_rule(self) -> Option<String> {
        let outer = format!("udp,tp_dst={VXLAN_PORT}");
        match self {
            Tunnel::None => None,
            Tunnel::Push => Some(format!("in_port=LOCAL,{outer},actions=output:{OUT}")),
            Tunnel::Pop => Some(format!("in_port={OUTER_SOURCE},{outer},actions=LOCAL")),
        }
    }
}

/// The arguments of ovs-vsctl(8) that create the tunnel port.
pub(crate) fn port() -> Vec<String> {
    let number = format!("ofport_request={TUNNEL}");
    let (remote, key) = (format!("options:remote_ip={}", NEIGHBOUR[2]), format!("options:key={VNI}"));
    let words =
        ["add-port", BRIDGE, NAME, "--", "set", "Interface", NAME, "type=vxlan", &number, &remote, &key];
    words.map(String::from).to_vec()
}

/// A frame as the remote machine sends it, for flow `flow`.
pub(crate) fn encapsulate(inner: &[u8], flow: u64) -> Vec<u8> {
    let udp_bytes = (8 + 8 + inner.len()) as u16;
    let mut out = [&LOCAL_MAC[..], &REMOTE_MAC, &[0x08, 0x00]].concat();
    // Version 4, 20 bytes of header; total length; don't fragment; 64 hops; UDP; checksum.
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    ip[2..4].copy_from_slice(&(20 + udp_bytes).to_be_bytes());
    ip[12..16].copy_from_slice(&REMOTE_IP);
    ip[16..20].copy_from_slice(&LOCAL_IP);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    out.extend(ip);
    let from = (SOURCE_PORTS.0 + flow % SOURCE_PORTS.1) as u16;
    // No checksum (RFC 7348, section 4.1).
    out.extend([from, VXLAN_PORT, udp_bytes, 0].iter().flat_map(|half| half.to_be_bytes()));
    // Flag I: the VNI is valid.
    out.extend([0x0800_0000, VNI << 8].iter().flat_map(|word: &u32| word.to_be_bytes()));
    out.extend_from_slice(inner);
    out
}

/// `flows` flows that are encapsulated, or decapsulated.
pub(crate) fn vxlan(folder: &TempDir, flows: u64, tunnel: Tunnel) -> Result<Work> {
    let frames = Frames::new(0, flows);
    let inner = (0..flows).map(|flow| works::frame(&frames, flow, None));
    let pops = tunnel == Tunnel::Pop;
    let file = if pops {
        let outer = inner.zip(0..).map(|(frame, flow)| encapsulate(&frame, flow));
        works::write(folder.path(), "pop.pcap", outer.collect())?
    } else {
        works::write(folder.path(), "push.pcap", inner.collect())?
    };
    let (port, from, to) = if pops { (OUTER_SOURCE, TUNNEL, OUT) } else { (1, 1, TUNNEL) };
    let (id, what) = if pops { ("pop", "decapsulated") } else { ("push", "encapsulated") };
    Ok(Work {
        id: id.to_string(),
        title: format!("{flows} flows {what}, VXLAN over IPv4"),
        rules: vec![format!("in_port={from},udp,nw_dst=10.98.0.0/16,tp_dst=5000,actions=output:{to}")],
        sources: vec![Source { port, file, tunnel }],
        may_end: 0,
        established: false,
        // Megaflows of outer and of inner headers, if a packet is decapsulated.
        megaflows: if pops { 2 } else { 1 },
    })
}

/// Prefixes of the routes of [`l3_pipeline`] in each direction.
const ROUTES: u32 = 10;
/// Connections that these serve.
const ROUTED: u64 = (1 << ROUTES) - 1;
/// Networks of remote and of local hosts.
const REMOTE_HOSTS: u32 = 0x0a00_0000;
const LOCAL_HOSTS: u32 = 0x0a80_0000;
/// Ethernet addresses of a remote host, and of the router there. A local host has that of the generator, the router here that
/// of the sink.
const REMOTE_HOST_MAC: &str = "02:be:00:00:00:03";
const REMOTE_ROUTER_MAC: [u8; 6] = [0x02, 0xbe, 0, 0, 0, 4];

/// The frame of connection `flow` from a local host, and the reply as the remote router sends it.
fn routed(frames: &Frames, flow: u64) -> [[u8; FRAME_BYTES]; 2] {
    let host = |network: u32| network + 1 + flow as u32;
    let mut own = works::frame(frames, flow, Some(host(REMOTE_HOSTS)));
    own[26..30].copy_from_slice(&host(LOCAL_HOSTS).to_be_bytes());
    works::sum_header(&mut own);
    let mut reply = works::reply_to(&own);
    reply[..6].copy_from_slice(&SINK_MAC);
    reply[6..12].copy_from_slice(&REMOTE_ROUTER_MAC);
    [own, reply]
}

/// The tables of an overlay with distributed routers, as OVN has them: port security, tracked access lists, routing by
/// prefixes of ten lengths, neighbours, logical output. `flows` connections of local hosts go out by the tunnel, and their
/// replies come in by it, through all tables both. Packets recirculate once after tracking, and once after decapsulation.
/// Remote hosts may begin no connection.
pub(crate) fn l3_pipeline(folder: &TempDir, flows: u64) -> Result<Work> {
    let frames = Frames::new(0, flows.min(ROUTED));
    let both: Vec<_> = (0..frames.flows()).map(|flow| routed(&frames, flow)).collect();
    let own = both.iter().map(|[own, _]| *own).collect();
    let mut outer: Vec<_> = both.iter().zip(0..).map(|([_, reply], flow)| encapsulate(reply, flow)).collect();
    // In another order than those that they answer.
    outer.rotate_left(both.len() / 2);
    let source = |port, tunnel, file| Source { port, file, tunnel };
    let sources = vec![
        source(1, Tunnel::Push, works::write(folder.path(), "l3-own.pcap", own)?),
        source(OUTER_SOURCE, Tunnel::Pop, works::write(folder.path(), "l3-replies.pcap", outer)?),
    ];
    let mac = |of: [u8; 6]| of.map(|byte| format!("{byte:02x}")).join(":");
    let macs = [GENERATOR_MAC, SINK_MAC, REMOTE_ROUTER_MAC].map(mac);
    let [host, router, remote] = macs.each_ref().map(String::as_str);
    let mut rules = vec![
        "table=2,ip,metadata=1,actions=load:1->NXM_NX_REG10[0],resubmit(,3)".to_string(),
        "table=3,ip,reg10=1/1,actions=ct(table=4,zone=7)".to_string(),
        "table=4,priority=9,ct_state=+trk+new,udp,reg14=1,tp_dst=5000,actions=ct(commit,zone=7),resubmit(,5)"
            .to_string(),
        "table=4,priority=8,ct_state=+trk+est-inv,ip,actions=resubmit(,5)".to_string(),
        "table=5,priority=5,arp,actions=drop".to_string(),
        "table=5,priority=0,actions=resubmit(,6)".to_string(),
        "table=6,priority=5,ip,nw_dst=192.0.2.0/24,actions=drop".to_string(),
        "table=6,priority=0,actions=resubmit(,7)".to_string(),
        "table=9,priority=0,actions=resubmit(,10)".to_string(),
        "table=10,priority=5,ip,nw_src=192.0.2.0/24,actions=drop".to_string(),
        "table=10,priority=0,actions=resubmit(,11)".to_string(),
        "table=12,priority=0,actions=resubmit(,13)".to_string(),
    ];
    // For each direction: number of the logical port in and out, OpenFlow ports, sender of the frames; network, Ethernet addresses
    // and next hop of the receivers.
    let directions = [
        (1, 2, 1, TUNNEL, host, REMOTE_HOSTS, remote, REMOTE_HOST_MAC),
        (2, 1, TUNNEL, OUT, remote, LOCAL_HOSTS, router, host),
    ];
    for (from, to, in_port, out, sender, network, source, receiver) in directions {
        let hop = network + 1;
        rules.extend([
            format!(
                "table=0,in_port={in_port},actions=load:1->OXM_OF_METADATA[],load:{from}->NXM_NX_REG14[],resubmit(,1)"
            ),
            format!("table=1,metadata=1,reg14={from},dl_src={sender},actions=resubmit(,2)"),
            format!("table=8,ip,metadata=1,reg0={hop:#x},actions=mod_dl_dst:{receiver},resubmit(,9)"),
            format!("table=11,metadata=1,dl_dst={receiver},actions=load:{to}->NXM_NX_REG15[],resubmit(,12)"),
            format!("table=13,metadata=1,reg15={to},actions=resubmit(,14)"),
            format!("table=14,reg15={to},actions=output:{out}"),
        ]);
        rules.extend((0..ROUTES).map(|bit| {
            format!(
                "table=7,priority={},ip,metadata=1,dl_dst={router},nw_dst={},actions=dec_ttl,load:{hop:#x}->NXM_NX_REG0[],\
                 mod_dl_src:{source},resubmit(,8)",
                90 - bit,
                works::leading_in(network, bit).1
            )
        }));
    }
    Ok(Work {
        id: "l3".to_string(),
        title: format!(
            "{} connections by VXLAN through 15 tables, half of the packets out, their replies in",
            frames.flows()
        ),
        rules,
        sources,
        // New connections end some seconds after the last of them.
        may_end: ROUTES as usize,
        established: true,
        // Megaflows of outer headers; before tracking, in each direction; for each route, and there also of new connections.
        megaflows: 1 + 2 + 3 * ROUTES as usize,
    })
}
