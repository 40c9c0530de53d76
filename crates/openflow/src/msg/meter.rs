//! Meters (OpenFlow 1.3 §7.3.4.4, §7.3.5.11 to §7.3.5.13).

use super::wire_enum;
use ofp_wire::ErrorKind;
use ofp_wire::{Reader, Res, Writer};

/// `OFPMF_*` bits.
pub mod flags {
    /// Rates are in kilobits a second.
    pub const KBPS: u16 = 1;
    /// Rates are in packets a second.
    pub const PKTPS: u16 = 2;
    /// Bands have burst sizes.
    pub const BURST: u16 = 4;
    /// Keep statistics.
    pub const STATS: u16 = 8;
}

/// All meters, in requests and deletions.
pub const METER_ALL: u32 = u32::MAX;
/// The meter of all packets to controllers (`OFPM_CONTROLLER`).
pub const CONTROLLER: u32 = u32::MAX - 1;
/// The meter of all packets that take the slow path (`OFPM_SLOWPATH`).
pub const SLOW_PATH: u32 = u32::MAX - 2;

/// Action of a band on excess packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BandType {
    /// Drops it.
    Drop,
    /// Raises the drop precedence in the DSCP by that many levels.
    DscpRemark(u8),
}

/// A band of a meter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Band {
    /// Its action.
    pub ty: BandType,
    /// Rate above which it applies, in the meter's unit.
    pub rate: u32,
    /// Burst size, in kilobits or packets.
    pub burst_size: u32,
}

/// A meter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meter {
    /// Its number.
    pub id: u32,
    /// Bits of [`flags`].
    pub flags: u16,
    /// Its bands.
    pub bands: Vec<Band>,
}

wire_enum! {
    /// Command of a meter modification.
    MeterModCommand: u16 {
        /// Add it.
        Add = 0,
        /// Change it.
        Modify = 1,
        /// Delete it, or all.
        Delete = 2,
    }
}

/// Changes meters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterMod {
    /// The command.
    pub command: MeterModCommand,
    /// The meter.
    pub meter: Meter,
}

fn read_bands(r: &mut Reader<'_>) -> Res<Vec<Band>> {
    let mut bands = Vec::new();
    while !r.is_empty() {
        let (ty, len) = (r.u16()?, r.u16()?);
        if len != 16 {
            return Err(ErrorKind::BrcBadLen);
        }
        let (rate, burst_size, level) = (r.u32()?, r.u32()?, r.u8()?);
        r.skip(3)?;
        let ty = match ty {
            1 => BandType::Drop,
            2 => BandType::DscpRemark(level),
            _ => return Err(ErrorKind::MmfcBadBand),
        };
        bands.push(Band { ty, rate, burst_size });
    }
    Ok(bands)
}

fn put_bands(w: &mut Writer, bands: &[Band]) {
    for b in bands {
        let (ty, level) = match b.ty {
            BandType::Drop => (1, 0),
            BandType::DscpRemark(level) => (2, level),
        };
        w.u16(ty);
        w.u16(16);
        w.u32(b.rate);
        w.u32(b.burst_size);
        w.u8(level);
        w.zeros(3);
    }
}

pub(crate) fn decode_mod(r: &mut Reader<'_>) -> Res<MeterMod> {
    let command = MeterModCommand::from_wire(r.u16()?).ok_or(ErrorKind::MmfcBadCommand)?;
    let (flags, id) = (r.u16()?, r.u32()?);
    if command == MeterModCommand::Delete {
        return Ok(MeterMod { command, meter: Meter { id, flags: 0, bands: Vec::new() } });
    }
    let units = flags & (flags::KBPS | flags::PKTPS);
    if flags & !0xf != 0 || units == flags::KBPS | flags::PKTPS {
        return Err(ErrorKind::MmfcBadFlags);
    }
    // Neither unit means the first.
    let flags = if units == 0 { flags | flags::KBPS } else { flags };
    Ok(MeterMod { command, meter: Meter { id, flags, bands: read_bands(r)? } })
}

pub(crate) fn encode_mod(m: &MeterMod, w: &mut Writer) {
    w.u16(m.command as u16);
    w.u16(m.meter.flags);
    w.u32(m.meter.id);
    if m.command != MeterModCommand::Delete {
        put_bands(w, &m.meter.bands);
    }
}

pub(crate) fn decode_request(r: &mut Reader<'_>) -> Res<u32> {
    r.u32()
}

pub(crate) fn encode_request(m: &u32, w: &mut Writer) {
    w.u32(*m);
    w.zeros(4);
}

pub(crate) fn read_config(r: &mut Reader<'_>) -> Res<Meter> {
    let len = usize::from(r.clone().u16()?);
    let mut r = r.sub(len)?;
    r.skip(2)?;
    let (flags, id) = (r.u16()?, r.u32()?);
    Ok(Meter { id, flags, bands: read_bands(&mut r)? })
}

pub(crate) fn put_config(w: &mut Writer, m: &Meter) {
    let mark = w.mark();
    w.zeros(2);
    w.u16(m.flags);
    w.u32(m.id);
    put_bands(w, &m.bands);
    w.set_len(mark, 0);
}

/// Counters of a meter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterStats {
    /// Its number.
    pub id: u32,
    /// Rules that use it.
    pub flow_count: u32,
    /// Packets in.
    pub packet_in_count: u64,
    /// Bytes in.
    pub byte_in_count: u64,
    /// Age, whole seconds.
    pub duration_s: u32,
    /// Age, the rest.
    pub duration_ns: u32,
    /// Packets and bytes that each band had.
    pub bands: Vec<(u64, u64)>,
}

pub(crate) fn read_stats(r: &mut Reader<'_>) -> Res<MeterStats> {
    let mut head = r.clone();
    let (id, len) = (head.u32()?, usize::from(head.u16()?));
    let mut r = r.sub(len)?;
    r.skip(12)?;
    let mut m = MeterStats { id, flow_count: r.u32()?, ..MeterStats::default() };
    (m.packet_in_count, m.byte_in_count) = (r.u64()?, r.u64()?);
    (m.duration_s, m.duration_ns) = (r.u32()?, r.u32()?);
    while !r.is_empty() {
        m.bands.push((r.u64()?, r.u64()?));
    }
    Ok(m)
}

pub(crate) fn put_stats(w: &mut Writer, m: &MeterStats) {
    let mark = w.mark();
    w.u32(m.id);
    w.zeros(8);
    w.u32(m.flow_count);
    w.u64(m.packet_in_count);
    w.u64(m.byte_in_count);
    w.u32(m.duration_s);
    w.u32(m.duration_ns);
    for (packets, bytes) in &m.bands {
        w.u64(*packets);
        w.u64(*bytes);
    }
    w.set_len(mark, 4);
}

/// Features of meters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeterFeatures {
    /// Maximum number of meters.
    pub max_meters: u32,
    /// `1 << OFPMBT_*`.
    pub band_types: u32,
    /// Bits of [`flags`].
    pub capabilities: u32,
    /// Bands of a meter.
    pub max_bands: u8,
    /// Colours.
    pub max_color: u8,
}

pub(crate) fn decode_features(r: &mut Reader<'_>) -> Res<MeterFeatures> {
    Ok(MeterFeatures {
        max_meters: r.u32()?,
        band_types: r.u32()?,
        capabilities: r.u32()?,
        max_bands: r.u8()?,
        max_color: r.u8()?,
    })
}

pub(crate) fn encode_features(m: &MeterFeatures, w: &mut Writer) {
    w.u32(m.max_meters);
    w.u32(m.band_types);
    w.u32(m.capabilities);
    w.u8(m.max_bands);
    w.u8(m.max_color);
    w.zeros(2);
}
