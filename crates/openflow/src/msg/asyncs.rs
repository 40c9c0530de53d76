//! Asynchronous messages that a controller enables, by role and reason.
//!
//! Sources: OpenFlow 1.3 §7.3.10, 1.4 §7.3.10; Nicira's `NXT_SET_ASYNC_CONFIG` and `NXT_SET_ASYNC_CONFIG2`.

use super::Format;
use ofp_wire::ErrorKind;
use ofp_wire::prop;
use ofp_wire::{Reader, Res, Version, Writer};

/// Kinds of asynchronous messages, in the order of their properties.
pub const KINDS: usize = 6;
/// Kinds in the form of OpenFlow 1.3.
const KINDS_13: usize = 3;

/// Asynchronous messages enabled for a controller: bits by reason, `[master or equal, slave]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsyncConfig {
    /// The wire form.
    pub format: Format,
    /// `1 << OFPR_*`.
    pub packet_in: [u32; 2],
    /// `1 << OFPPR_*`.
    pub port_status: [u32; 2],
    /// `1 << OFPRR_*`.
    pub flow_removed: [u32; 2],
    /// `1 << OFPCRR_*` (OpenFlow 1.4).
    pub role_status: [u32; 2],
    /// `1 << OFPTR_*` (OpenFlow 1.4).
    pub table_status: [u32; 2],
    /// `1 << OFPRFR_*` (OpenFlow 1.4).
    pub request_forward: [u32; 2],
    /// Parts given by a request, by property type: others stay as they are.
    pub given: u16,
}

impl AsyncConfig {
    /// All parts are given.
    pub const ALL: u16 = (1 << (2 * KINDS)) - 1;
    /// The parts of OpenFlow 1.3 are given.
    pub const OF13: u16 = (1 << (2 * KINDS_13)) - 1;

    /// Its masks by kind.
    pub fn masks(&mut self) -> [&mut [u32; 2]; KINDS] {
        [
            &mut self.packet_in,
            &mut self.port_status,
            &mut self.flow_removed,
            &mut self.role_status,
            &mut self.table_status,
            &mut self.request_forward,
        ]
    }

    /// Whether a request gives the part of a kind; `slave`: of the slave role.
    pub fn gives(&self, kind: usize, slave: bool) -> bool {
        self.given >> property(kind, usize::from(slave)) & 1 != 0
    }
}

impl Default for AsyncConfig {
    /// Nothing enabled, all parts given.
    fn default() -> AsyncConfig {
        AsyncConfig {
            format: Format::Standard,
            packet_in: [0; 2],
            port_status: [0; 2],
            flow_removed: [0; 2],
            role_status: [0; 2],
            table_status: [0; 2],
            request_forward: [0; 2],
            given: AsyncConfig::ALL,
        }
    }
}

/// Property type of a kind and role: slave first.
fn property(kind: usize, slave: usize) -> usize {
    2 * kind + 1 - slave
}

pub(crate) fn decode_async(r: &mut Reader<'_>) -> Res<AsyncConfig> {
    let mut m = AsyncConfig { given: AsyncConfig::OF13, ..AsyncConfig::default() };
    for masks in m.masks().into_iter().take(KINDS_13) {
        *masks = [r.u32()?, r.u32()?];
    }
    Ok(m)
}

pub(crate) fn decode_nx_async(r: &mut Reader<'_>) -> Res<AsyncConfig> {
    Ok(AsyncConfig { format: Format::Nxt, ..decode_async(r)? })
}

pub(crate) fn encode_async(m: &AsyncConfig, w: &mut Writer) {
    for masks in m.clone().masks().into_iter().take(KINDS_13) {
        masks.iter().for_each(|n| w.u32(*n));
    }
}

/// Reasons of each kind in OpenFlow 1.4.
const REASONS_14: [u32; KINDS] = [0x3f, 0x7, 0x3f, 0x7, 0x18, 0x3];
/// Reasons of each kind before, as in OVS: removals may have the reasons of later versions.
const REASONS_10: [u32; KINDS] = [0x7, 0x7, 0x3f, 0x7, 0x18, 0x3];

/// The reasons of each kind in a version.
pub fn known_reasons(version: Version) -> [u32; KINDS] {
    if version >= Version::V14 { REASONS_14 } else { REASONS_10 }
}

pub(crate) fn decode_async14(r: &mut Reader<'_>) -> Res<AsyncConfig> {
    let known = known_reasons(r.version);
    let mut m = AsyncConfig { given: 0, ..AsyncConfig::default() };
    while !r.is_empty() {
        let (ty, mut p) = prop::read(r)?;
        let at = usize::from(ty);
        if at >= 2 * KINDS {
            return Err(ErrorKind::AcfcUnsupported);
        }
        let mask = p.u32()?;
        if !p.is_empty() {
            return Err(ErrorKind::BpcBadLen);
        }
        if mask & !known[at / 2] != 0 {
            return Err(ErrorKind::AcfcInvalid);
        }
        m.masks()[at / 2][1 - at % 2] = mask;
        m.given |= 1 << at;
    }
    Ok(m)
}

pub(crate) fn decode_nx_async2(r: &mut Reader<'_>) -> Res<AsyncConfig> {
    Ok(AsyncConfig { format: Format::Nxt2, ..decode_async14(r)? })
}

pub(crate) fn encode_async14(m: &AsyncConfig, w: &mut Writer) {
    for (kind, masks) in m.clone().masks().into_iter().enumerate() {
        for slave in [1, 0] {
            if m.gives(kind, slave == 1) {
                prop::put(w, property(kind, slave) as u16, |w| w.u32(masks[slave]));
            }
        }
    }
}
