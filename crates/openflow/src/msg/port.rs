//! Ports: description, statistics, configuration.
//!
//! Sources: OpenFlow 1.0 §5.2.1, §5.3.3, §5.4.3; 1.3 §7.2.1, §7.3.4.3, §7.3.5.6, §7.3.5.7; 1.4 §7.2.1, §7.3.5.6. Features
//! use the numbers of OpenFlow 1.1 and later; those of 1.0 are translated.

use super::wire_enum;
use flow::{MacAddr, OfPort};
use ofp_wire::ErrorKind;
use ofp_wire::Version;
use ofp_wire::nxm;
use ofp_wire::prop;
use ofp_wire::{Reader, Res, Writer};

/// Bytes of a port's name.
const NAME_BYTES: usize = 16;

/// `OFPPC_*` bits of a port's configuration.
pub mod config {
    /// Administratively down.
    pub const PORT_DOWN: u32 = 1;
    /// No spanning tree (OpenFlow 1.0).
    pub const NO_STP: u32 = 1 << 1;
    /// Drop received packets.
    pub const NO_RECV: u32 = 1 << 2;
    /// Drop arriving spanning tree packets (OpenFlow 1.0).
    pub const NO_RECV_STP: u32 = 1 << 3;
    /// Leave out when flooding (OpenFlow 1.0).
    pub const NO_FLOOD: u32 = 1 << 4;
    /// Drop packets to send.
    pub const NO_FWD: u32 = 1 << 5;
    /// No packet-in for received packets.
    pub const NO_PACKET_IN: u32 = 1 << 6;
    /// Bits of OpenFlow 1.1 and later.
    pub(super) const OF11: u32 = PORT_DOWN | NO_RECV | NO_FWD | NO_PACKET_IN;
    /// Bits of OpenFlow 1.0.
    pub(super) const OF10: u32 = 0x7f;
}

/// `OFPPS_*` bits of a port's state.
pub mod state {
    /// No link.
    pub const LINK_DOWN: u32 = 1;
    /// Blocked by a protocol of the switch (OpenFlow 1.1).
    pub const BLOCKED: u32 = 2;
    /// Live for fast failover (OpenFlow 1.1).
    pub const LIVE: u32 = 4;
    /// Spanning tree state (OpenFlow 1.0), in these bits.
    pub const STP_MASK: u32 = 3 << 8;
    /// Listening, or no spanning tree.
    pub const STP_LISTEN: u32 = 0;
    /// Learning.
    pub const STP_LEARN: u32 = 1 << 8;
    /// Forwarding.
    pub const STP_FORWARD: u32 = 2 << 8;
    /// Blocked.
    pub const STP_BLOCK: u32 = 3 << 8;
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port {
    /// Number.
    pub port: OfPort,
    /// Address.
    pub hw_addr: MacAddr,
    /// Name, at most 15 bytes.
    pub name: String,
    /// Bits of [`config`].
    pub config: u32,
    /// Bits of [`state`].
    pub state: u32,
    /// `OFPPF_*` in use.
    pub curr: u32,
    /// `OFPPF_*` advertised.
    pub advertised: u32,
    /// `OFPPF_*` supported.
    pub supported: u32,
    /// `OFPPF_*` of the peer.
    pub peer: u32,
    /// Bit rate now (OpenFlow 1.1).
    pub curr_speed_kbps: u32,
    /// Highest bit rate (OpenFlow 1.1).
    pub max_speed_kbps: u32,
}

/// Converts `OFPPF_*` of OpenFlow 1.0 to the numbers of 1.1, which inserted four rates.
fn features_from10(f: u32) -> u32 {
    f & 0x7f | (f >> 7 & 0x1f) << 11
}

fn features_to10(f: u32) -> u32 {
    f & 0x7f | (f >> 11 & 0x1f) << 7
}

fn read_port_number(r: &mut Reader<'_>) -> Res<OfPort> {
    let n = r.u32()?;
    if nxm::port_number_ok(n) { Ok(OfPort(n)) } else { Err(ErrorKind::BacBadOutPort) }
}

/// Type of the Ethernet property, of descriptions, modifications and statistics.
const ETHERNET: u16 = 0;

/// Reads the description of OpenFlow 1.4: a length, the common part, properties.
fn read14(r: &mut Reader<'_>) -> Res<Port> {
    let mut head = r.clone();
    head.skip(4)?;
    let mut r = r.sub(usize::from(head.u16()?))?;
    let mut p = Port { port: read_port_number(&mut r)?, ..Port::default() };
    r.skip(4)?;
    p.hw_addr = MacAddr(r.array()?);
    r.skip(2)?;
    p.name = r.text(NAME_BYTES)?;
    (p.config, p.state) = (r.u32()? & config::OF11, r.u32()? & 7);
    while !r.is_empty() {
        let (ty, mut body) = prop::read(&mut r)?;
        if ty == ETHERNET {
            body.skip(4)?;
            (p.curr, p.advertised, p.supported, p.peer) =
                (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
            (p.curr_speed_kbps, p.max_speed_kbps) = (body.u32()?, body.u32()?);
        }
    }
    Ok(p)
}

fn put14(w: &mut Writer, p: &Port) {
    let mark = w.mark();
    w.u32(p.port.0);
    w.zeros(4);
    w.bytes(&p.hw_addr.0);
    w.zeros(2);
    w.text(&p.name, NAME_BYTES);
    w.u32(p.config & config::OF11);
    w.u32(p.state & 7);
    prop::put(w, ETHERNET, |w| {
        w.zeros(4);
        for n in [p.curr, p.advertised, p.supported, p.peer, p.curr_speed_kbps, p.max_speed_kbps] {
            w.u32(n);
        }
    });
    w.set_len(mark, 4);
}

pub(crate) fn read(r: &mut Reader<'_>) -> Res<Port> {
    if r.version >= Version::V14 {
        return read14(r);
    }
    let old = r.version == Version::V10;
    let port = if old {
        OfPort::from_of10(r.u16()?)
    } else {
        let port = read_port_number(r)?;
        r.skip(4)?;
        port
    };
    let hw_addr = MacAddr(r.array()?);
    r.skip(if old { 0 } else { 2 })?;
    let name = r.text(NAME_BYTES)?;
    let (config, state) = (r.u32()?, r.u32()?);
    let mut features = [0; 4];
    for f in &mut features {
        let wire = r.u32()?;
        *f = if old { features_from10(wire) } else { wire };
    }
    let [curr, advertised, supported, peer] = features;
    let (curr_speed_kbps, max_speed_kbps) = if old { (0, 0) } else { (r.u32()?, r.u32()?) };
    Ok(Port {
        port,
        hw_addr,
        name,
        config,
        state,
        curr,
        advertised,
        supported,
        peer,
        curr_speed_kbps,
        max_speed_kbps,
    })
}

pub(crate) fn put(w: &mut Writer, p: &Port) {
    if w.version >= Version::V14 {
        return put14(w, p);
    }
    let old = w.version == Version::V10;
    if old {
        w.u16(p.port.to_of10().unwrap_or(0xffff));
    } else {
        w.u32(p.port.0);
        w.zeros(4);
    }
    w.bytes(&p.hw_addr.0);
    w.zeros(if old { 0 } else { 2 });
    w.text(&p.name, NAME_BYTES);
    w.u32(p.config & if old { config::OF10 } else { config::OF11 });
    w.u32(p.state & if old { state::LINK_DOWN | state::STP_MASK } else { 7 });
    for f in [p.curr, p.advertised, p.supported, p.peer] {
        w.u32(if old { features_to10(f) } else { f });
    }
    if !old {
        w.u32(p.curr_speed_kbps);
        w.u32(p.max_speed_kbps);
    }
}

wire_enum! {
    /// Change of a port.
    PortReason: u8 {
        /// Added.
        Add = 0,
        /// Deleted.
        Delete = 1,
        /// Changed.
        Modify = 2,
    }
}

/// A change of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortStatus {
    /// The change.
    pub reason: PortReason,
    /// The port.
    pub port: Port,
}

pub(crate) fn decode_status(r: &mut Reader<'_>) -> Res<PortStatus> {
    let reason = PortReason::from_wire(r.u8()?).ok_or(ErrorKind::NxbrcBadReason)?;
    r.skip(7)?;
    Ok(PortStatus { reason, port: read(r)? })
}

pub(crate) fn encode_status(m: &PortStatus, w: &mut Writer) {
    w.u8(m.reason as u8);
    w.zeros(7);
    put(w, &m.port);
}

/// Configures a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortMod {
    /// Number.
    pub port: OfPort,
    /// Must be the port's.
    pub hw_addr: MacAddr,
    /// Bits of [`config`].
    pub config: u32,
    /// Bits to set.
    pub mask: u32,
    /// `OFPPF_*` to advertise; 0 leaves them.
    pub advertise: u32,
}

pub(crate) fn decode_mod(r: &mut Reader<'_>) -> Res<PortMod> {
    if r.version == Version::V10 {
        let (port, hw_addr) = (OfPort::from_of10(r.u16()?), MacAddr(r.array()?));
        let (config, mask, advertise) = (r.u32()?, r.u32()?, r.u32()?);
        let known = config::OF10;
        let advertise = features_from10(advertise);
        return Ok(PortMod { port, hw_addr, config: config & known, mask: mask & known, advertise });
    }
    let port = read_port_number(r)?;
    r.skip(4)?;
    let hw_addr = MacAddr(r.array()?);
    r.skip(2)?;
    let (config, mask) = (r.u32()?, r.u32()?);
    let advertise = if r.version >= Version::V14 { read_advertise(r)? } else { r.u32()? };
    Ok(PortMod { port, hw_addr, config: config & config::OF11, mask: mask & config::OF11, advertise })
}

/// The advertised features of a modification of OpenFlow 1.4.
fn read_advertise(r: &mut Reader<'_>) -> Res<u32> {
    let mut advertise = 0;
    while !r.is_empty() {
        let (ty, mut body) = prop::read(r)?;
        if ty != ETHERNET {
            return Err(ErrorKind::BpcBadType);
        }
        advertise = body.u32()?;
        if !body.is_empty() {
            return Err(ErrorKind::BpcBadLen);
        }
    }
    Ok(advertise)
}

pub(crate) fn encode_mod(m: &PortMod, w: &mut Writer) {
    if w.version == Version::V10 {
        w.u16(m.port.to_of10().unwrap_or(0xffff));
        w.bytes(&m.hw_addr.0);
        w.u32(m.config & config::OF10);
        w.u32(m.mask & config::OF10);
        w.u32(features_to10(m.advertise));
    } else {
        w.u32(m.port.0);
        w.zeros(4);
        w.bytes(&m.hw_addr.0);
        w.zeros(2);
        w.u32(m.config & config::OF11);
        w.u32(m.mask & config::OF11);
        if w.version >= Version::V14 {
            if m.advertise != 0 {
                prop::put(w, ETHERNET, |w| w.u32(m.advertise));
            }
            return;
        }
        w.u32(m.advertise);
    }
    w.zeros(4);
}

/// Counters of a port; `u64::MAX` is unknown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// The port.
    pub port: OfPort,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets dropped.
    pub rx_dropped: u64,
    /// Packets to send dropped.
    pub tx_dropped: u64,
    /// Receive errors.
    pub rx_errors: u64,
    /// Transmit errors.
    pub tx_errors: u64,
    /// Frame alignment errors.
    pub rx_frame_errors: u64,
    /// Overruns.
    pub rx_over_errors: u64,
    /// Checksum errors.
    pub rx_crc_errors: u64,
    /// Collisions.
    pub collisions: u64,
    /// Age, whole seconds (OpenFlow 1.3).
    pub duration_s: u32,
    /// Age, the rest (OpenFlow 1.3).
    pub duration_ns: u32,
    /// Counters by name, in Intel's property (OpenFlow 1.4).
    pub custom: Vec<(String, u64)>,
}

pub(crate) fn read_stats(r: &mut Reader<'_>) -> Res<PortStats> {
    let old = r.version == Version::V10;
    let port = if old { OfPort::from_of10(r.u16()?) } else { read_port_number(r)? };
    r.skip(if old { 6 } else { 4 })?;
    let mut s = PortStats { port, ..PortStats::default() };
    for field in counters(&mut s) {
        *field = r.u64()?;
    }
    if r.version >= Version::V13 {
        (s.duration_s, s.duration_ns) = (r.u32()?, r.u32()?);
    }
    Ok(s)
}

fn counters(s: &mut PortStats) -> [&mut u64; 12] {
    [
        &mut s.rx_packets,
        &mut s.tx_packets,
        &mut s.rx_bytes,
        &mut s.tx_bytes,
        &mut s.rx_dropped,
        &mut s.tx_dropped,
        &mut s.rx_errors,
        &mut s.tx_errors,
        &mut s.rx_frame_errors,
        &mut s.rx_over_errors,
        &mut s.rx_crc_errors,
        &mut s.collisions,
    ]
}

pub(crate) fn put_stats(w: &mut Writer, s: &PortStats) {
    let old = w.version == Version::V10;
    if old {
        w.u16(s.port.to_of10().unwrap_or(0xffff));
    } else {
        w.u32(s.port.0);
    }
    w.zeros(if old { 6 } else { 4 });
    for n in counters(&mut s.clone()) {
        w.u64(*n);
    }
    if w.version >= Version::V13 {
        w.u32(s.duration_s);
        w.u32(s.duration_ns);
    }
}

/// Counters of every port, before those of the Ethernet property (OpenFlow 1.4).
const COMMON_COUNTERS: usize = 8;

pub(crate) fn read_stats14(r: &mut Reader<'_>) -> Res<PortStats> {
    let len = usize::from(r.clone().u16()?);
    let mut r = r.sub(len)?;
    r.skip(4)?;
    let port = read_port_number(&mut r)?;
    let (duration_s, duration_ns) = (r.u32()?, r.u32()?);
    let mut s = PortStats { port, duration_s, duration_ns, ..PortStats::default() };
    let mut custom = Vec::new();
    let mut fields = counters(&mut s);
    let (common, ethernet) = fields.split_at_mut(COMMON_COUNTERS);
    for field in common {
        **field = r.u64()?;
    }
    // Unknown without the property.
    ethernet.iter_mut().for_each(|field| **field = u64::MAX);
    while !r.is_empty() {
        let (ty, mut body) = prop::read(&mut r)?;
        if ty == ETHERNET {
            body.skip(4)?;
            for field in &mut *ethernet {
                **field = body.u64()?;
            }
        } else if ty == EXPERIMENTER && (body.u32()?, body.u32()?) == (INTEL_VENDOR, CUSTOM_STATS) {
            custom = read_custom(&mut body)?;
        }
    }
    s.custom = custom;
    Ok(s)
}

/// Type of a property of an experimenter; Intel's has counters of devices.
const EXPERIMENTER: u16 = 0xffff;
const INTEL_VENDOR: u32 = 0x0000_aa01;
const CUSTOM_STATS: u32 = 2;

fn put_custom(w: &mut Writer, custom: &[(String, u64)]) {
    w.u32(INTEL_VENDOR);
    w.u32(CUSTOM_STATS);
    w.zeros(2);
    w.u16(custom.len().min(0xffff) as u16);
    for (name, n) in custom {
        let name = &name.as_bytes()[..name.len().min(0xff)];
        w.u8(name.len() as u8);
        w.bytes(name);
        w.u64(*n);
    }
}

/// Counters with names.
fn read_custom(body: &mut Reader<'_>) -> Res<Vec<(String, u64)>> {
    body.skip(2)?;
    let number = body.u16()?;
    let mut custom = Vec::new();
    for _ in 0..number {
        let len = usize::from(body.u8()?);
        let shown = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' };
        let name = body.bytes(len)?.iter().map(shown).collect();
        custom.push((name, body.u64()?));
    }
    Ok(custom)
}

pub(crate) fn put_stats14(w: &mut Writer, s: &PortStats) {
    let mark = w.mark();
    w.zeros(4);
    w.u32(s.port.0);
    w.u32(s.duration_s);
    w.u32(s.duration_ns);
    let mut s = s.clone();
    let fields = counters(&mut s);
    let (common, ethernet) = fields.split_at(COMMON_COUNTERS);
    common.iter().for_each(|n| w.u64(**n));
    prop::put(w, ETHERNET, |w| {
        w.zeros(4);
        ethernet.iter().for_each(|n| w.u64(**n));
    });
    if !s.custom.is_empty() {
        prop::put(w, EXPERIMENTER, |w| put_custom(w, &s.custom));
    }
    w.set_len(mark, 0);
}

/// Before OpenFlow 1.5 a request asks for the descriptions of all ports.
pub(crate) fn decode_desc_request_all(_: &mut Reader<'_>) -> Res<OfPort> {
    Ok(OfPort::NONE)
}

pub(crate) fn encode_desc_request_all(_: &OfPort, _: &mut Writer) {}

/// A lone port number with padding, as in port statistics and queue configuration requests.
pub(crate) fn decode_request(r: &mut Reader<'_>) -> Res<OfPort> {
    if r.version == Version::V10 {
        return Ok(OfPort::from_of10(r.u16()?));
    }
    read_port_number(r)
}

/// The request of port statistics.
pub(crate) fn encode_stats_request(m: &OfPort, w: &mut Writer) {
    if w.version == Version::V10 {
        w.u16(m.to_of10().unwrap_or(0xffff));
        w.zeros(6);
    } else {
        w.u32(m.0);
        w.zeros(4);
    }
}

/// The request of a queue configuration.
pub(crate) fn encode_queue_config_request(m: &OfPort, w: &mut Writer) {
    if w.version == Version::V10 {
        w.u16(m.to_of10().unwrap_or(0xffff));
        w.zeros(2);
    } else {
        w.u32(m.0);
        w.zeros(4);
    }
}
