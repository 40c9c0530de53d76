//! Meters, their counters and features.

use super::{Printer, bit_names, duration, put};
use crate::Multi;
use crate::msg::meter::{Band, BandType, Meter, MeterFeatures, MeterMod, MeterModCommand, MeterStats, flags};
use crate::text::meter::NAMES;
use std::fmt::Write as _;

const FLAGS: [(u32, &str); 4] = [
    (flags::KBPS as u32, "kbps"),
    (flags::PKTPS as u32, "pktps"),
    (flags::BURST as u32, "burst"),
    (flags::STATS as u32, "stats"),
];
const BAND_TYPES: [(u32, &str); 2] = [(1 << 1, "drop"), (1 << 2, "dscp_remark")];

/// A meter's number or name behind a separator.
pub(super) fn meter_id(id: u32, separator: char) -> String {
    match NAMES.iter().find(|(known, _)| *known == id) {
        Some((_, name)) => format!("meter{separator}{name}"),
        None => format!("meter{separator}{id}"),
    }
}

/// The flags of a meter and its bands, a line each.
fn configuration(meter: &Meter) -> String {
    let mut out = meter_id(meter.id, '=');
    if meter.flags != 0 {
        put!(out, " {}", bit_names(meter.flags.into(), &FLAGS, " "));
    }
    out.push_str(" bands=\n");
    for b in &meter.bands {
        out += &band(b, meter.flags);
    }
    out
}

fn band(b: &Band, meter_flags: u16) -> String {
    let (name, level) = match b.ty {
        BandType::Drop => ("drop", None),
        BandType::DscpRemark(level) => ("dscp_remark", Some(level)),
    };
    let mut out = format!("type={name} rate={}", b.rate);
    if meter_flags & flags::BURST != 0 {
        put!(out, " burst_size={}", b.burst_size);
    }
    if let Some(level) = level {
        put!(out, " prec_level={level}");
    }
    out + "\n"
}

impl Printer<'_> {
    pub(super) fn meter_mod(&mut self, m: &MeterMod) {
        let command = match m.command {
            MeterModCommand::Add => "ADD",
            MeterModCommand::Modify => "MOD",
            MeterModCommand::Delete => "DEL",
        };
        put!(self.out, " {command} {}", configuration(&m.meter));
    }

    pub(super) fn meter_request(&mut self, id: u32) {
        put!(self.out, " {}", meter_id(id, '='));
    }

    pub(super) fn meter_configs(&mut self, m: &Multi<Meter>) {
        for meter in &m.entries {
            put!(self.out, "\n{}", configuration(meter));
        }
    }

    pub(super) fn meter_stats(&mut self, m: &Multi<MeterStats>) {
        for s in &m.entries {
            put!(
                self.out,
                "\n{} flow_count:{} packet_in_count:{} byte_in_count:{} duration:{} bands:\n",
                meter_id(s.id, ':'),
                s.flow_count,
                s.packet_in_count,
                s.byte_in_count,
                duration(s.duration_s, s.duration_ns)
            );
            for (n, (packets, bytes)) in s.bands.iter().enumerate() {
                put!(self.out, "{n}: packet_count:{packets} byte_count:{bytes}\n");
            }
        }
    }

    pub(super) fn meter_features(&mut self, m: &MeterFeatures) {
        put!(
            self.out,
            "\nmax_meter:{} max_bands:{} max_color:{}\nband_types: {}\ncapabilities: {}\n",
            m.max_meters,
            m.max_bands,
            m.max_color,
            bit_names(m.band_types, &BAND_TYPES, " "),
            bit_names(m.capabilities, &FLAGS, " ")
        );
    }
}
