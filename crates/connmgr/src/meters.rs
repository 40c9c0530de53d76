//! The meters of a bridge (OpenFlow 1.3 §5.7, §7.3.4.4): stored here, executed by the datapath under its own numbers
//! (see [`ofproto::meter_ids`]).

use super::conn::{Conn, Outcome};
use super::forward::Forward;
use super::requests::Request;
use super::{BridgeCtx, Shared};
use dpif::{DpifError, MeterBand, MeterBandStats, MeterConfig};
use ofp_actions::Reference;
use ofproto::flow_mod;
use ofproto::meter_ids::DP_METERS_MAX;
use openflow::ErrorKind;
use openflow::msg::meter::{
    Band, BandType, CONTROLLER, METER_ALL, Meter, MeterFeatures, MeterMod, MeterModCommand, MeterStats,
    SLOW_PATH, flags,
};
use std::collections::BTreeMap;

/// Maximum meter number.
const METERS: u32 = DP_METERS_MAX;
/// Maximum bands of a meter.
const BANDS: usize = 8;

struct Entry {
    meter: Meter,
    /// Its datapath number.
    dp_id: u32,
    since_ms: u64,
}

/// The meters of a bridge.
#[derive(Default)]
pub(super) struct MeterTable {
    meters: BTreeMap<u32, Entry>,
    /// Deleted meters whose rules are being removed.
    ending: Vec<Entry>,
}

/// Meter features: drop bands, both units, bursts and statistics.
pub(super) fn features() -> MeterFeatures {
    MeterFeatures {
        max_meters: METERS,
        band_types: 1 << 1,
        capabilities: u32::from(flags::KBPS | flags::PKTPS | flags::BURST | flags::STATS),
        max_bands: BANDS as u8,
        max_color: 0,
    }
}

impl Conn {
    pub(super) fn meter_mod(
        &mut self,
        m: MeterMod,
        request: &Request<'_>,
        shared: &mut Shared,
        ctx: &BridgeCtx<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), ErrorKind> {
        shared.meters.change(&m, ctx, request.now_ms)?;
        outcome.forwards.push(Forward::Meter(m, request.xid));
        // Later requests see the rules of deleted meters removed.
        self.waits = shared.meters.is_ending();
        Ok(())
    }
}

impl MeterTable {
    pub(super) fn has(&self, id: u32) -> bool {
        self.meters.contains_key(&id)
    }

    /// Executes a meter-mod.
    pub(super) fn change(&mut self, m: &MeterMod, ctx: &BridgeCtx<'_>, now_ms: u64) -> Result<(), ErrorKind> {
        let id = m.meter.id;
        if m.command == MeterModCommand::Delete {
            let gone = self.meters.extract_if(.., |n, _| id == METER_ALL || *n == id);
            let gone: Vec<Entry> = gone.map(|(_, entry)| entry).collect();
            gone.iter().for_each(|entry| ctx.backer.recorder.meter(ctx.bridge, entry.meter.id, None));
            self.ending.extend(gone);
            return Ok(());
        }
        let meter = checked(&m.meter)?;
        let (dp_id, since_ms) = match (m.command, self.meters.get(&id)) {
            (MeterModCommand::Add, Some(_)) => return Err(ErrorKind::MmfcMeterExists),
            (MeterModCommand::Add, None) => {
                (ctx.backer.meter_hold().ok_or(ErrorKind::MmfcOutOfMeters)?, now_ms)
            }
            (_, Some(there)) => (there.dp_id, there.since_ms),
            (_, None) => return Err(ErrorKind::MmfcUnknownMeter),
        };
        let bands = meter.bands.iter().map(|b| MeterBand { rate: b.rate, burst: b.burst_size }).collect();
        let config = MeterConfig { per_packet: meter.flags & flags::PKTPS != 0, bands };
        if let Err(e) = ctx.datapath.meter_set(dp_id, &config) {
            if m.command == MeterModCommand::Add {
                ctx.backer.meter_release(dp_id);
            }
            return Err(match e {
                DpifError::Full(_) | DpifError::Unsupported(_) => ErrorKind::MmfcOutOfMeters,
                DpifError::Exists(_) | DpifError::NotFound(_) | DpifError::Busy(_) | DpifError::Device(_) => {
                    ErrorKind::MmfcUnknown
                }
            });
        }
        if m.command == MeterModCommand::Add {
            ctx.backer.set_meter(ctx.bridge, id, Some(dp_id));
        }
        ctx.backer.recorder.meter(ctx.bridge, id, Some((&meter, since_ms)));
        self.meters.insert(id, Entry { meter, dp_id, since_ms });
        Ok(())
    }

    /// Sets the time of the creation of a meter, if it is there.
    pub(super) fn date(&mut self, id: u32, created_ms: u64, ctx: &BridgeCtx<'_>) {
        if let Some(entry) = self.meters.get_mut(&id).filter(|entry| entry.since_ms != created_ms) {
            entry.since_ms = created_ms;
            ctx.backer.recorder.meter(ctx.bridge, id, Some((&entry.meter, created_ms)));
        }
    }

    /// Whether rules of deleted meters are being removed.
    pub(super) fn is_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Continues to remove the rules that use deleted meters (1.3 §6.5), until `work`, in rules, is used up or the
    /// event queue is full.
    pub(super) fn run_ending(&mut self, ctx: &BridgeCtx<'_>, work: &mut usize) {
        while *work > 0
            && let Some(entry) = self.ending.last()
        {
            let (ended, more) =
                flow_mod::remove_users_of_meter(ctx.backer, ctx.bridge, entry.meter.id, *work);
            *work = work.saturating_sub(ended.max(1));
            if more {
                return;
            }
            if let Some(entry) = self.ending.pop() {
                ctx.backer.set_meter(ctx.bridge, entry.meter.id, None);
                MeterTable::release(&entry, ctx);
            }
        }
    }

    /// Removes a meter from the datapath.
    fn release(entry: &Entry, ctx: &BridgeCtx<'_>) {
        // A datapath without it has nothing to remove.
        let _ = ctx.datapath.meter_del(entry.dp_id);
        ctx.backer.meter_release(entry.dp_id);
    }

    /// Removes all meters, whose rules are gone or go with the bridge.
    pub(super) fn clear(&mut self, ctx: &BridgeCtx<'_>) {
        ctx.backer.clear_meters(ctx.bridge);
        self.meters.keys().for_each(|id| ctx.backer.recorder.meter(ctx.bridge, *id, None));
        let all = std::mem::take(&mut self.meters).into_values().chain(self.ending.drain(..));
        all.for_each(|entry| MeterTable::release(&entry, ctx));
    }

    fn chosen(&self, id: u32) -> Result<Vec<&Entry>, ErrorKind> {
        if id == METER_ALL {
            return Ok(self.meters.values().collect());
        }
        self.meters.get(&id).map(|e| vec![e]).ok_or(ErrorKind::MmfcUnknownMeter)
    }

    /// Configuration of a meter, or of all.
    pub(super) fn config(&self, id: u32) -> Result<Vec<Meter>, ErrorKind> {
        Ok(self.chosen(id)?.into_iter().map(|e| e.meter.clone()).collect())
    }

    /// Statistics of a meter, or of all. Counters unknown to the datapath are all ones, as the standard requires.
    pub(super) fn stats(
        &self,
        id: u32,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
    ) -> Result<Vec<MeterStats>, ErrorKind> {
        let view = ctx.bridge_view();
        let users = |id: u32| view.as_ref().map_or(0, |b| b.tables.len_of_users(Reference::Meter(id)) as u32);
        let stats_of = |e: &Entry| {
            let age_ms = now_ms.saturating_sub(e.since_ms);
            let unknown = MeterBandStats { packets: u64::MAX, bytes: u64::MAX };
            let counted = ctx.datapath.meter_stats(e.dp_id).ok();
            let band = |n: usize| counted.as_ref().and_then(|c| c.bands.get(n)).copied().unwrap_or(unknown);
            let bands = (0..e.meter.bands.len()).map(|n| (band(n).packets, band(n).bytes)).collect();
            MeterStats {
                id: e.meter.id,
                flow_count: users(e.meter.id),
                packet_in_count: counted.as_ref().map_or(u64::MAX, |c| c.packets),
                byte_in_count: counted.as_ref().map_or(u64::MAX, |c| c.bytes),
                duration_s: (age_ms / 1000) as u32,
                duration_ns: (age_ms % 1000) as u32 * 1_000_000,
                bands,
            }
        };
        Ok(self.chosen(id)?.into_iter().map(stats_of).collect())
    }
}

/// The stored form of the meter: a band without a burst size gets one second's worth. The flag of bursts decides only
/// how the meter is shown.
fn checked(m: &Meter) -> Result<Meter, ErrorKind> {
    if (m.id == 0 || m.id > METERS) && !matches!(m.id, CONTROLLER | SLOW_PATH) {
        return Err(ErrorKind::MmfcInvalidMeter);
    }
    if m.bands.is_empty() || m.bands.len() > BANDS {
        return Err(ErrorKind::MmfcOutOfBands);
    }
    let band = |b: &Band| {
        if b.ty != BandType::Drop {
            return Err(ErrorKind::MmfcBadBand);
        }
        if b.rate == 0 {
            return Err(ErrorKind::MmfcBadRate);
        }
        Ok(Band { burst_size: if b.burst_size == 0 { b.rate } else { b.burst_size }, ..*b })
    };
    Ok(Meter { bands: m.bands.iter().map(band).collect::<Result<_, _>>()?, ..m.clone() })
}
