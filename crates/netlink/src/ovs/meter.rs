//! Family `ovs_meter`.

use super::{Ovs, SMALL_REPLY_BYTES, begin, u64s};
use crate::error::{Error, Refusal};
use crate::genl::Family;
use crate::socket::{Asked, NlRequest};
use dpif::{MeterBandStats, MeterConfig, MeterStats};
use flow::nlattr::{Attr, AttrError, Attrs};

/// Meter features of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeterFeatures {
    /// Maximum meters of a datapath.
    pub meters_max: u32,
    /// Maximum bands of a meter.
    pub bands_max: u32,
    /// Supports drop bands.
    pub drop_bands: bool,
}

/// A meter's counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterReply {
    /// Its number.
    pub id: u32,
    /// Its counters.
    pub stats: MeterStats,
    /// Time of its last packet, on the clock `CLOCK_MONOTONIC`; 0 for never.
    pub used_ms: u64,
}

/// `OVS_METER_CMD_*`.
mod command {
    pub(super) const FEATURES: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const DEL: u8 = 3;
    pub(super) const GET: u8 = 4;
}

/// `OVS_METER_ATTR_*`.
mod attr {
    pub(super) const ID: u16 = 1;
    pub(super) const KBPS: u16 = 2;
    pub(super) const STATS: u16 = 3;
    pub(super) const BANDS: u16 = 4;
    pub(super) const USED: u16 = 5;
    pub(super) const CLEAR: u16 = 6;
    pub(super) const MAX_METERS: u16 = 7;
    pub(super) const MAX_BANDS: u16 = 8;
    /// Attribute within BANDS: one for each band.
    pub(super) const BAND: u16 = 0;
    /// Within a band.
    pub(super) const BAND_TYPE: u16 = 1;
    pub(super) const BAND_RATE: u16 = 2;
    pub(super) const BAND_BURST: u16 = 3;
    pub(super) const BAND_STATS: u16 = 4;
}

/// Names of the attributes, by number.
const ATTRIBUTES: &[&str] = &[
    "OVS_METER_ATTR_UNSPEC",
    "OVS_METER_ATTR_ID",
    "OVS_METER_ATTR_KBPS",
    "OVS_METER_ATTR_STATS",
    "OVS_METER_ATTR_BANDS",
    "OVS_METER_ATTR_USED",
    "OVS_METER_ATTR_CLEAR",
    "OVS_METER_ATTR_MAX_METERS",
    "OVS_METER_ATTR_MAX_BANDS",
];

/// `OVS_METER_BAND_TYPE_DROP`.
const BAND_DROP: u32 = 1;

impl MeterFeatures {
    pub(crate) fn parse(_dp_ifindex: u32, attrs: Attrs<'_>) -> Result<MeterFeatures, AttrError> {
        let number = |kind| attrs.get(kind).map_or(Ok(0), |a| a.u32());
        let mut drop_bands = false;
        if let Some(bands) = attrs.get(attr::BANDS) {
            for band in bands.nested()? {
                drop_bands |= band.nested()?.require(attr::BAND_TYPE)?.u32()? == BAND_DROP;
            }
        }
        Ok(MeterFeatures {
            meters_max: number(attr::MAX_METERS)?,
            bands_max: number(attr::MAX_BANDS)?,
            drop_bands,
        })
    }
}

impl MeterReply {
    /// Reads a meter; `None`: there is none.
    pub(crate) fn parse(_dp_ifindex: u32, attrs: Attrs<'_>) -> Result<Option<MeterReply>, AttrError> {
        let Some(stats) = attrs.get(attr::STATS) else { return Ok(None) };
        let counters = |a: Attr<'_>| -> Result<MeterBandStats, AttrError> {
            let [packets, bytes] = u64s(a.content, a.kind)?;
            Ok(MeterBandStats { packets, bytes })
        };
        let all = counters(stats)?;
        let mut bands = Vec::new();
        if let Some(list) = attrs.get(attr::BANDS) {
            for band in list.nested()? {
                let stats = band.nested()?.get(attr::BAND_STATS);
                bands.push(stats.map(counters).transpose()?.unwrap_or_default());
            }
        }
        Ok(Some(MeterReply {
            id: attrs.require(attr::ID)?.u32()?,
            stats: MeterStats { packets: all.packets, bytes: all.bytes, bands },
            used_ms: attrs.get(attr::USED).map_or(Ok(0), |a| a.u64())?,
        }))
    }
}

impl Ovs {
    /// Meter features; [`Error::NoModule`] if the kernel has no meters.
    ///
    /// # Errors
    /// [`Error::is_no_device`] if there is no such datapath.
    pub fn meter_features(&self, dp_ifindex: u32) -> Result<MeterFeatures, Error> {
        let asked = Asked::again("ask what meters can do", ATTRIBUTES, SMALL_REPLY_BYTES);
        let request = begin(self.meters()?, command::FEATURES, 0, dp_ifindex, asked).finish()?;
        self.ask_for(request, MeterFeatures::parse)
    }

    /// Creates or replaces a meter.
    ///
    /// # Errors
    /// [`Error::is_no_device`]: no such datapath; [`Error::is_invalid`]: too many bands, or one without a rate;
    /// `EFBIG`: no more meters.
    pub fn meter_set(&self, dp_ifindex: u32, id: u32, config: &MeterConfig) -> Result<(), Error> {
        let asked = Asked::again(format!("set meter {id}"), ATTRIBUTES, SMALL_REPLY_BYTES);
        let mut request = begin(self.meters()?, command::SET, 0, dp_ifindex, asked);
        request.attrs.u32(attr::ID, id);
        if !config.per_packet {
            request.attrs.flag(attr::KBPS);
        }
        // Its previous counters belong to another meter.
        request.attrs.flag(attr::CLEAR);
        request.attrs.nested(attr::BANDS, |out| {
            for band in &config.bands {
                out.nested(attr::BAND, |out| {
                    out.u32(attr::BAND_TYPE, BAND_DROP);
                    out.u32(attr::BAND_RATE, band.rate);
                    out.u32(attr::BAND_BURST, band.burst);
                });
            }
        });
        self.ask(request.finish()?, MeterReply::parse).map(drop)
    }

    /// A meter's counters.
    ///
    /// # Errors
    /// [`Error::is_not_found`] if there is no such meter.
    pub fn meter_get(&self, dp_ifindex: u32, id: u32) -> Result<MeterReply, Error> {
        let request = self.about_meter(dp_ifindex, id, command::GET, "read")?;
        let asked = request.asked().to_owned();
        self.ask_for(request, MeterReply::parse)?.ok_or_else(|| {
            let refusal = Refusal { errno: libc::ENOENT, asked, message: None, attribute: None };
            Error::Refused(Box::new(refusal))
        })
    }

    /// Removes a meter; returns its last counters, `None` if it did not exist. Flows that still refer to it pass
    /// packets.
    ///
    /// # Errors
    /// [`Error::is_no_device`] if there is no such datapath.
    pub fn meter_del(&self, dp_ifindex: u32, id: u32) -> Result<Option<MeterReply>, Error> {
        let request = self.about_meter(dp_ifindex, id, command::DEL, "remove")?;
        self.ask_for(request, MeterReply::parse)
    }

    fn meters(&self) -> Result<&Family, Error> {
        self.families.meter.as_ref().ok_or_else(|| Error::NoModule { family: "ovs_meter".into() })
    }

    fn about_meter(&self, dp_ifindex: u32, id: u32, command: u8, verb: &str) -> Result<NlRequest, Error> {
        let asked = Asked::again(format!("{verb} meter {id}"), ATTRIBUTES, SMALL_REPLY_BYTES);
        let asked = Asked { repeatable: command != command::DEL, ..asked };
        let mut request = begin(self.meters()?, command, 0, dp_ifindex, asked);
        request.attrs.u32(attr::ID, id);
        request.finish()
    }
}
