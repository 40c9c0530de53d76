//! Meters (ovs-ofctl(8), "Meter Syntax").

use crate::msg::meter::{
    Band, BandType, CONTROLLER, METER_ALL, Meter, MeterMod, MeterModCommand, SLOW_PATH, flags,
};
use flow::text::number::{u8_named, u32_argument};
use flow::text::token::{Token, Tokens, is_separator};
use flow::text::{ParseError, Parsed, fail};

/// Meters with names.
pub(super) const NAMES: [(u32, &str); 3] =
    [(METER_ALL, "all"), (CONTROLLER, "controller"), (SLOW_PATH, "slowpath")];
/// Largest number of an ordinary meter (`OFPM_MAX`).
const MAX: u32 = 0xffff_0000;

/// Parses a meter modification, or with [`MeterModCommand::Delete`] the choice of meters in a deletion or request:
/// all without `meter=`.
///
/// # Errors
/// The first error, located in `text`.
pub fn parse_meter_mod(text: &str, command: MeterModCommand) -> Result<MeterMod, ParseError> {
    meter_mod(text, command).map_err(|e| e.locate(text))
}

fn meter_mod(text: &str, command: MeterModCommand) -> Parsed<MeterMod> {
    let changes = command != MeterModCommand::Delete;
    let (head, bands) = split_bands(text);
    if changes && bands.is_none() {
        return fail(text, "must specify bands");
    }
    let mut meter = Meter { id: METER_ALL, flags: 0, bands: Vec::new() };
    let mut has_id = false;
    let mut tokens = Tokens::new(if changes { head } else { text });
    while let Some(token) = tokens.next_token()? {
        match token.key {
            "kbps" if changes => meter.flags |= flags::KBPS,
            "pktps" if changes => meter.flags |= flags::PKTPS,
            "burst" if changes => meter.flags |= flags::BURST,
            "stats" if changes => meter.flags |= flags::STATS,
            "meter" if token.has_value() => {
                meter.id = id(token.value)?;
                has_id = true;
            }
            key if !token.has_value() => return fail(key, format!("field {key} missing value")),
            key => return fail(key, format!("unknown keyword {key}")),
        }
    }
    if changes && !has_id {
        return fail(text, "must specify 'meter'");
    }
    if changes && meter.flags & (flags::KBPS | flags::PKTPS) == 0 {
        return fail(text, "meter must specify either 'kbps' or 'pktps'");
    }
    if let Some(text) = bands {
        meter.bands = parse_bands(text, meter.flags)?;
    }
    Ok(MeterMod { command, meter })
}

/// A meter in the syntax that [`parse_meter_mod`] reads.
pub fn format_meter(meter: &Meter) -> String {
    let words =
        [(flags::KBPS, "kbps"), (flags::PKTPS, "pktps"), (flags::BURST, "burst"), (flags::STATS, "stats")];
    let name = NAMES.iter().find(|(id, _)| *id == meter.id);
    let mut text = name.map_or_else(|| format!("meter={}", meter.id), |(_, name)| format!("meter={name}"));
    for (_, word) in words.iter().filter(|(flag, _)| meter.flags & flag != 0) {
        text += &format!(",{word}");
    }
    text += ",bands=";
    for (n, band) in meter.bands.iter().enumerate() {
        let separator = if n == 0 { "" } else { " " };
        text += &match band.ty {
            BandType::Drop => format!("{separator}type=drop"),
            BandType::DscpRemark(level) => format!("{separator}type=dscp_remark,prec_level={level}"),
        };
        text += &format!(",rate={}", band.rate);
        if meter.flags & flags::BURST != 0 {
            text += &format!(",burst_size={}", band.burst_size);
        }
    }
    text
}

fn id(text: &str) -> Parsed<u32> {
    if let Some((id, _)) = NAMES.iter().find(|(_, name)| *name == text) {
        return Ok(*id);
    }
    match u32_argument(text)? {
        n if n <= MAX => Ok(n),
        n => fail(text, format!("invalid meter id {n}")),
    }
}

/// The text before the bands, and that of the bands, which begins after `bands=` or `band=`.
fn split_bands(text: &str) -> (&str, Option<&str>) {
    for (at, _) in text.match_indices("band") {
        let starts = text[..at].chars().next_back().is_none_or(is_separator);
        let rest = text[at + 4..].strip_prefix('s').unwrap_or(&text[at + 4..]);
        if starts && let Some(rest) = rest.strip_prefix(['=', ':']) {
            return (&text[..at], Some(rest));
        }
    }
    (text, None)
}

fn parse_bands(text: &str, meter_flags: u16) -> Parsed<Vec<Band>> {
    let mut bands: Vec<(Band, bool)> = Vec::new();
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next_token()? {
        let ty = match token.key {
            "type" => Some(token.value),
            "bands" | "band" => token.value.strip_prefix("type="),
            _ => None,
        };
        if let Some(name) = ty {
            let ty = match name {
                "drop" => BandType::Drop,
                "dscp_remark" => BandType::DscpRemark(0),
                other => return fail(other, format!("field type unknown value {other}")),
            };
            bands.push((Band { ty, rate: 0, burst_size: 0 }, false));
            continue;
        }
        let Some((band, has_rate)) = bands.last_mut() else {
            return fail(token.key, "band must start with the 'type' keyword");
        };
        *has_rate |= take(band, &token, meter_flags)?;
    }
    if bands.iter().any(|(_, has_rate)| !has_rate) {
        return fail(text, "band must have 'rate'");
    }
    Ok(bands.into_iter().map(|(band, _)| band).collect())
}

/// Takes a keyword of a band; returns whether it is the rate.
fn take(band: &mut Band, token: &Token<'_>, meter_flags: u16) -> Parsed<bool> {
    match token.key {
        "rate" => band.rate = u32_argument(token.value)?,
        "burst_size" if meter_flags & flags::BURST == 0 => {
            return fail(token.key, "band may have 'burst_size' only when 'burst' flag is set");
        }
        "burst_size" => band.burst_size = u32_argument(token.value)?,
        "prec_level" => match &mut band.ty {
            BandType::DscpRemark(level) => *level = u8_named(token.value, "prec_level")?,
            BandType::Drop => return fail(token.key, "only dscp_remark bands have 'prec_level'"),
        },
        other => return fail(other, format!("unknown keyword {other}")),
    }
    Ok(token.key == "rate")
}
