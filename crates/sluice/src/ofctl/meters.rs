//! Commands about meters, which OpenFlow 1.3 introduced.

use anyhow::Result;
use openflow::msg::meter::MeterModCommand;
use openflow::text::parse_meter_mod;
use openflow::{Message, Version};

use super::{Run, entries, json};

fn change(run: &mut Run<'_>, text: &str, command: MeterModCommand) -> Result<String> {
    let message = Message::MeterMod(parse_meter_mod(text, command)?);
    run.needs(Version::V13)?;
    run.connection.carry_out(&[message])?;
    Ok(String::new())
}

pub(super) fn add_meter(run: &mut Run<'_>, text: &str) -> Result<String> {
    change(run, text, MeterModCommand::Add)
}

pub(super) fn mod_meter(run: &mut Run<'_>, text: &str) -> Result<String> {
    change(run, text, MeterModCommand::Modify)
}

pub(super) fn del_meters(run: &mut Run<'_>, text: &str) -> Result<String> {
    change(run, text, MeterModCommand::Delete)
}

/// The chosen meter's number.
fn chosen(run: &mut Run<'_>, text: &str) -> Result<u32> {
    let id = parse_meter_mod(text, MeterModCommand::Delete)?.meter.id;
    run.needs(Version::V13)?;
    Ok(id)
}

pub(super) fn dump_meters(run: &mut Run<'_>, text: &str) -> Result<String> {
    let request = Message::MeterConfigRequest(chosen(run, text)?);
    run.dump_or(&request, entries!(MeterConfigReply), |all, _| json::meters(all))
}

pub(super) fn meter_stats(run: &mut Run<'_>, text: &str) -> Result<String> {
    let request = Message::MeterStatsRequest(chosen(run, text)?);
    run.dump_or(&request, entries!(MeterStatsReply), |all, _| json::meter_stats(all))
}

pub(super) fn meter_features(run: &mut Run<'_>, _: &str) -> Result<String> {
    run.needs(Version::V13)?;
    run.dump(&Message::MeterFeaturesRequest)
}
