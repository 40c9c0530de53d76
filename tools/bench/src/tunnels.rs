//! Works with a VXLAN tunnel in user space: which bridge has which port, the underlay, and encapsulated frames.
//!
//! The tunnel port is on the bridge of every work, [`BRIDGE`]. A second bridge is the underlay; its device has the
//! outer address, and a command names the neighbour behind it, so that no frame asks for one.

use crate::frames::Frames;
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
/// Of the tunnel.
pub(crate) const VNI: u32 = 5;
/// Assigned by RFC 7348.
pub(crate) const VXLAN_PORT: u16 = 4789;
/// Bytes of the outer headers: Ethernet, IPv4, UDP, VXLAN.
pub(crate) const OUTER_BYTES: usize = 14 + 20 + 8 + 8;
/// Outer source ports are those of Linux: 32768 to 60999, a flow each.
const SOURCE_PORTS: (u64, u64) = (32_768, 28_232);

/// The way of a work's packets, from their source to the `null` port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tunnel {
    /// Through one bridge.
    None,
    /// From the bridge through the tunnel port into the underlay, which has the `null` port.
    Push,
    /// Encapsulated from the underlay, which has the source, through the tunnel port into the bridge.
    Pop,
}

impl Tunnel {
    /// The bridge of the sources.
    pub(crate) fn source_bridge(self) -> &'static str {
        if self == Tunnel::Pop { UNDERLAY } else { BRIDGE }
    }

    /// The bridge of the `null` port.
    pub(crate) fn out_bridge(self) -> &'static str {
        if self == Tunnel::Push { UNDERLAY } else { BRIDGE }
    }

    /// Bytes of a sent frame with `inner` bytes.
    pub(crate) fn out_bytes(self, inner: u64) -> u64 {
        if self == Tunnel::Push { inner + OUTER_BYTES as u64 } else { inner }
    }

    /// The counter of the tunnel port that counts the work's packets.
    pub(crate) fn counted(self, counts: PortCounts) -> Count {
        if self == Tunnel::Push { counts.sent } else { counts.received }
    }

    /// Rules of the underlay.
    pub(crate) fn underlay_rules(self) -> Vec<String> {
        let outer = format!("udp,tp_dst={VXLAN_PORT}");
        match self {
            Tunnel::None => Vec::new(),
            Tunnel::Push => vec![format!("in_port=LOCAL,{outer},actions=output:{OUT}")],
            Tunnel::Pop => vec![format!("in_port=1,{outer},actions=LOCAL")],
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
    let (from, to) = if pops { (TUNNEL, OUT) } else { (1, TUNNEL) };
    let (id, what) = if pops { ("pop", "decapsulated") } else { ("push", "encapsulated") };
    Ok(Work {
        id: id.to_string(),
        title: format!("{flows} flows {what}, VXLAN over IPv4"),
        rules: vec![format!("in_port={from},udp,nw_dst=10.98.0.0/16,tp_dst=5000,actions=output:{to}")],
        tunnel,
        sources: vec![Source { port: 1, file }],
        may_end: 0,
        // Of outer and of inner headers, if a packet is decapsulated.
        megaflows: if pops { 2 } else { 1 },
    })
}

/// Prefixes of the routes of [`l3_pipeline`], for up to 1,023 flows.
const ROUTES: u32 = 10;

/// The tables of an overlay with distributed routers, as OVN has them: port security, tracked access lists, routing by
/// prefixes of ten lengths, neighbours, logical output. `flows` connections go through them and out by the tunnel, or come
/// by the tunnel. Packets recirculate once after tracking, and once after decapsulation.
pub(crate) fn l3_pipeline(folder: &TempDir, flows: u64, tunnel: Tunnel) -> Result<Work> {
    let frames = Frames::new(0, flows);
    let to = |flow: u64| 0x0a00_0000 | (flow as u32 + 1);
    let inner = (0..flows).map(|flow| works::frame(&frames, flow, Some(to(flow))));
    let pops = tunnel == Tunnel::Pop;
    let file = if pops {
        let outer = inner.zip(0..).map(|(frame, flow)| encapsulate(&frame, flow));
        works::write(folder.path(), "l3-pop.pcap", outer.collect())?
    } else {
        works::write(folder.path(), "l3-push.pcap", inner.collect())?
    };
    let (from, out) = if pops { (TUNNEL, OUT) } else { (1, TUNNEL) };
    let (id, what, zone) = if pops { ("l3-pop", "in", 8) } else { ("l3-push", "out", 7) };
    let mac = |of: [u8; 6]| of.map(|byte| format!("{byte:02x}")).join(":");
    let (sender, receiver) = (mac(crate::frames::GENERATOR_MAC), mac(crate::frames::SINK_MAC));
    let mut rules = vec![
        format!(
            "table=0,in_port={from},actions=load:1->OXM_OF_METADATA[],load:1->NXM_NX_REG14[],resubmit(,1)"
        ),
        format!("table=1,metadata=1,reg14=1,dl_src={sender},actions=resubmit(,2)"),
        "table=2,ip,metadata=1,actions=load:1->NXM_NX_REG10[0],resubmit(,3)".to_string(),
        format!("table=3,ip,reg10=1/1,actions=ct(table=4,zone={zone})"),
        format!(
            "table=4,priority=9,ct_state=+trk+new,udp,reg14=1,tp_dst=5000,actions=ct(commit,zone={zone}),resubmit(,5)"
        ),
        "table=4,priority=8,ct_state=+trk+est-inv,ip,actions=resubmit(,5)".to_string(),
        "table=5,priority=5,arp,actions=drop".to_string(),
        "table=5,priority=0,actions=resubmit(,6)".to_string(),
        "table=6,priority=5,ip,nw_dst=192.0.2.0/24,actions=drop".to_string(),
        "table=6,priority=0,actions=resubmit(,7)".to_string(),
        "table=8,ip,metadata=1,reg0=0x0a000001,actions=mod_dl_dst:02:be:00:00:00:03,resubmit(,9)".to_string(),
        "table=9,priority=0,actions=resubmit(,10)".to_string(),
        "table=10,priority=5,ip,nw_src=192.0.2.0/24,actions=drop".to_string(),
        "table=10,priority=0,actions=resubmit(,11)".to_string(),
        "table=11,metadata=1,dl_dst=02:be:00:00:00:03,actions=load:2->NXM_NX_REG15[],resubmit(,12)"
            .to_string(),
        "table=12,priority=0,actions=resubmit(,13)".to_string(),
        "table=13,metadata=1,reg15=2,actions=resubmit(,14)".to_string(),
        format!("table=14,reg15=2,actions=output:{out}"),
    ];
    rules.extend((0..ROUTES).map(|bit| {
        format!(
            "table=7,priority={},ip,metadata=1,dl_dst={receiver},nw_dst={},actions=dec_ttl,load:0x0a000001->NXM_NX_REG0[],\
             mod_dl_src:{sender},resubmit(,8)",
            90 - bit,
            works::leading(bit).1
        )
    }));
    Ok(Work {
        id: id.to_string(),
        title: format!("{flows} connections {what} by VXLAN through 15 tables"),
        rules,
        tunnel,
        sources: vec![Source { port: 1, file }],
        // Those of new connections end some seconds after the last of them.
        may_end: ROUTES as usize,
        // Before tracking, and for each route of new and of established connections; of outer headers.
        megaflows: 1 + 2 * ROUTES as usize + usize::from(pops),
    })
}
