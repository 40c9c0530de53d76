//! The meters of [`DpShared`].
//!
//! A meter is a token bucket per band (OpenFlow 1.3 §5.7) under its own lock, so one meter limits the total rate of
//! all cores. Cores take the lock for packets subject to the meter; configuration takes it to replace the meter.
//! There is no lock over all meters.
//!
//! A large segment costs the frames that it becomes. If the bucket is too small for all of them, the segment passes when
//! the bucket is full, and the bucket goes into debt: the rate holds, and the segment is not dropped for ever. A single
//! frame never leaves a debt, as in OVS. Statistics count a large segment as one packet, as in OVS.

use crate::burst::LaneMask;
use crate::shared::DpShared;
use dpif::{DpifError, MeterBand, MeterBandStats, MeterConfig, MeterStats};
use packet::{Packet, frame_bytes, frames};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Upper bound of meter ids.
pub const METERS_MAX: u32 = 1 << 18;
/// Maximum bands of a meter.
pub const METER_BANDS_MAX: usize = 8;

const GROUP: usize = 256;
/// Bucket units of one packet, and of one kilobit: one token per microsecond is one packet or kilobit per second.
const UNIT: i64 = 1_000_000;

/// A packet to be charged to a meter.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    bytes: u64,
    frames: u32,
    /// Bytes of its longest frame.
    frame_bytes: u64,
}

impl Load {
    pub(crate) fn of(packet: &Packet) -> Load {
        Load {
            bytes: packet.len() as u64,
            frames: frames(packet) as u32,
            frame_bytes: frame_bytes(packet) as u64,
        }
    }

    /// One frame of that many bytes.
    #[cfg(test)]
    pub(crate) fn frame(bytes: u64) -> Load {
        Load { bytes, frames: 1, frame_bytes: bytes }
    }

    /// Its cost, and that of its longest frame, in bucket units.
    fn costs(&self, per_packet: bool) -> (i64, i64) {
        let of_bytes = |bytes: u64| (bytes as i64).saturating_mul(8 * UNIT / 1000);
        if per_packet {
            (i64::from(self.frames) * UNIT, UNIT)
        } else {
            (of_bytes(self.bytes), of_bytes(self.frame_bytes))
        }
    }
}

struct Band {
    config: MeterBand,
    /// Negative after a large segment that needs more than the bucket holds.
    tokens: i64,
    stats: MeterBandStats,
}

impl Band {
    /// Capacity of the bucket in units; a burst of 0 is one second's worth.
    fn capacity(&self) -> i64 {
        let burst = if self.config.burst == 0 { self.config.rate } else { self.config.burst };
        i64::from(burst) * UNIT
    }
}

pub(crate) struct Meter {
    per_packet: bool,
    bands: Vec<Band>,
    filled_us: Option<u64>,
    used: MeterBandStats,
}

impl Meter {
    /// Whether a packet may pass.
    fn admit(&mut self, load: Load, now_us: u64) -> bool {
        let elapsed_us = now_us.saturating_sub(self.filled_us.unwrap_or(now_us));
        self.filled_us = Some(self.filled_us.unwrap_or(now_us).max(now_us));
        self.used.packets += 1;
        self.used.bytes += load.bytes;
        let (cost, of_frame) = load.costs(self.per_packet);
        let mut exceeded: Option<usize> = None;
        for n in 0..self.bands.len() {
            let capacity = self.bands[n].capacity();
            let band = &mut self.bands[n];
            let refill = elapsed_us.saturating_mul(band.config.rate.into());
            band.tokens = band.tokens.saturating_add_unsigned(refill).min(capacity);
            if band.tokens >= cost.min(capacity.max(of_frame)) {
                band.tokens -= cost;
            } else if exceeded.is_none_or(|e| self.bands[n].config.rate > self.bands[e].config.rate) {
                exceeded = Some(n);
            }
        }
        let Some(n) = exceeded else { return true };
        self.bands[n].stats.packets += 1;
        self.bands[n].stats.bytes += load.bytes;
        false
    }
}

/// Levels of the buckets of a meter and its counters, for another process with the same meter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterLevels {
    /// Time since the buckets were filled, in microseconds.
    pub age_us: u64,
    /// Packets of the meter.
    pub used: MeterBandStats,
    /// Tokens of each band, a million for a packet or kilobit, and the packets beyond its rate.
    pub bands: Vec<(i64, MeterBandStats)>,
}

pub(crate) type Slot = Mutex<Option<Meter>>;

/// Meters by groups of ids; a group is allocated with its first meter.
pub(crate) type Meters = Vec<OnceLock<Box<[Slot]>>>;

/// No meters yet.
pub(crate) fn none() -> Meters {
    (0..METERS_MAX as usize / GROUP).map(|_| OnceLock::new()).collect()
}

fn lock(slot: &Slot) -> MutexGuard<'_, Option<Meter>> {
    // A meter is consistent after every statement that writes it, so a panic of another thread leaves it usable.
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DpShared {
    fn slot(&self, id: u32) -> Option<&Slot> {
        let group = self.meters.get(id as usize / GROUP)?.get()?;
        group.get(id as usize % GROUP)
    }

    /// Makes or replaces a meter; its buckets are full and its counters zero.
    ///
    /// # Errors
    /// `Unsupported` for an id from [`METERS_MAX`] on or more than [`METER_BANDS_MAX`] bands.
    pub fn meter_set(&self, id: u32, config: &MeterConfig) -> Result<(), DpifError> {
        let group = self
            .meters
            .get(id as usize / GROUP)
            .ok_or_else(|| DpifError::Unsupported(format!("meter {id}: ids go up to {}", METERS_MAX - 1)))?;
        if config.bands.len() > METER_BANDS_MAX {
            let bands = config.bands.len();
            return Err(DpifError::Unsupported(format!(
                "meter {id}: {bands} bands, at most {METER_BANDS_MAX}"
            )));
        }
        let band = |b: &MeterBand| {
            let mut band = Band { config: *b, tokens: 0, stats: MeterBandStats::default() };
            band.tokens = band.capacity();
            band
        };
        let meter = Meter {
            per_packet: config.per_packet,
            bands: config.bands.iter().map(band).collect(),
            filled_us: None,
            used: MeterBandStats::default(),
        };
        let group = group.get_or_init(|| (0..GROUP).map(|_| Slot::default()).collect());
        *lock(&group[id as usize % GROUP]) = Some(meter);
        Ok(())
    }

    /// Removes a meter. Packets that still refer to it pass.
    ///
    /// # Errors
    /// `NotFound` for an unknown id.
    pub fn meter_del(&self, id: u32) -> Result<(), DpifError> {
        let removed = self.slot(id).and_then(|slot| lock(slot).take());
        removed.map(drop).ok_or(DpifError::NotFound("meter"))
    }

    /// Counters of a meter.
    ///
    /// # Errors
    /// `NotFound` for an unknown id.
    pub fn meter_stats(&self, id: u32) -> Result<MeterStats, DpifError> {
        let slot = self.slot(id).ok_or(DpifError::NotFound("meter"))?;
        let guard = lock(slot);
        let meter = guard.as_ref().ok_or(DpifError::NotFound("meter"))?;
        Ok(MeterStats {
            packets: meter.used.packets,
            bytes: meter.used.bytes,
            bands: meter.bands.iter().map(|b| b.stats).collect(),
        })
    }

    /// Levels of a meter at this time; `None` without such a meter, or if it had no packet.
    pub fn meter_levels(&self, id: u32, now_us: u64) -> Option<MeterLevels> {
        let guard = lock(self.slot(id)?);
        let meter = guard.as_ref()?;
        let bands = meter.bands.iter().map(|band| (band.tokens, band.stats)).collect();
        Some(MeterLevels { age_us: now_us.saturating_sub(meter.filled_us?), used: meter.used, bands })
    }

    /// Has a meter go on from these levels; one with another number of bands stays as it is.
    pub fn meter_resume(&self, id: u32, levels: &MeterLevels, now_us: u64) {
        let Some(slot) = self.slot(id) else { return };
        let mut guard = lock(slot);
        let Some(meter) = guard.as_mut().filter(|meter| meter.bands.len() == levels.bands.len()) else {
            return;
        };
        meter.filled_us = Some(now_us.saturating_sub(levels.age_us));
        meter.used = levels.used;
        for (band, (tokens, stats)) in meter.bands.iter_mut().zip(&levels.bands) {
            (band.tokens, band.stats) = ((*tokens).min(band.capacity()), *stats);
        }
    }

    /// Which packets of a group may pass, in order of arrival: takes the lock once for all of them.
    pub(crate) fn admit_group(
        &self,
        id: u32,
        lanes: LaneMask,
        load: impl Fn(usize) -> Load,
        now_us: u64,
    ) -> LaneMask {
        let Some(slot) = self.slot(id) else { return lanes };
        let mut guard = lock(slot);
        let Some(meter) = guard.as_mut() else { return lanes };
        let mut admitted = LaneMask::NONE;
        for lane in lanes {
            if meter.admit(load(lane), now_us) {
                admitted.add(LaneMask::one(lane));
            }
        }
        admitted
    }

    /// Whether a packet may pass; an unknown meter passes everything.
    pub(crate) fn admit(&self, id: u32, load: Load, now_us: u64) -> bool {
        let Some(slot) = self.slot(id) else { return true };
        lock(slot).as_mut().is_none_or(|m| m.admit(load, now_us))
    }
}
