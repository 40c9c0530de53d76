//! The OpenFlow state of a bridge as text, and back: mappings of tunnel metadata, meters, groups, rules.
//!
//! `sluice save` and `sluice restore` call it, for one bridge after the other.

mod apply;
pub(crate) mod file;

pub(crate) use apply::restore;

use super::options::Options;
use super::{Run, entries, tlv};
use anyhow::Result;
use file::{Kind, bridge, part};
use ofp_actions::text::{FlowModCommand as Words, parse_flow_mod};
use openflow::msg::flow_mod::FlowModFlags;
use openflow::msg::group::{GROUP_ALL, Group, GroupModCommand, GroupRequest};
use openflow::msg::meter::{METER_ALL, Meter, MeterModCommand};
use openflow::text::{format_group, format_meter, format_rule, parse_group_mod, parse_meter_mod};
use openflow::{Message, Version, VersionSet};

/// Flags of the request that added a rule, which are none of the rule.
const OF_REQUEST: FlowModFlags = FlowModFlags::CHECK_OVERLAP.union(FlowModFlags::RESET_COUNTS);

/// Options of both commands: the latest version that the bridge permits, since earlier ones lack parts; numbers for names.
fn options(timeout_s: u32) -> Options {
    Options { versions: Some(VersionSet::IMPLEMENTED), names: Some(false), timeout_s, ..Options::new() }
}

/// Adds the state of a bridge to the text of a file.
///
/// # Errors
/// The bridge cannot be reached, or does not answer.
pub(crate) fn save(name: &str, timeout_s: u32, out: &mut String) -> Result<()> {
    let options = options(timeout_s);
    let mut run = Run::open(&options, name, "save")?;
    bridge(out, name);
    for map in tlv::maps(&mut run.connection) {
        part(out, Kind::TlvMap, &tlv::text(&map));
    }
    for meter in meters(&mut run)? {
        part(out, Kind::Meter, &format_meter(&meter));
    }
    for group in groups(&mut run)? {
        part(out, Kind::Group, &group_text(&run, &group));
    }
    let (_, rules) = super::flows::rules(&mut run, "")?;
    for mut rule in rules {
        rule.flags.remove(OF_REQUEST);
        part(out, Kind::Flow, &format_rule(&rule, false, false, &run.names));
    }
    Ok(())
}

/// All meters, by number; none before OpenFlow 1.3.
fn meters(run: &mut Run<'_>) -> Result<Vec<Meter>> {
    if run.connection.version() < Version::V13 {
        return Ok(Vec::new());
    }
    let request = Message::MeterConfigRequest(METER_ALL);
    let (_, mut meters) = run.connection.gather(&request, entries!(MeterConfigReply))?;
    meters.sort_by_key(|meter| meter.id);
    Ok(meters)
}

/// All groups, by number.
fn groups(run: &mut Run<'_>) -> Result<Vec<Group>> {
    let request = Message::GroupDescRequest(GroupRequest { group: GROUP_ALL });
    let (_, mut groups) = run.connection.gather(&request, entries!(GroupDescReply))?;
    groups.sort_by_key(|group| group.id);
    Ok(groups)
}

/// A group in the syntax of `add-group`. Versions 1.1 to 1.4 do not report numbers of buckets.
fn group_text(run: &Run<'_>, group: &Group) -> String {
    let version = run.connection.version();
    format_group(group, version == Version::V10 || version >= Version::V15, &run.names)
}

/// Whether a part is well formed, without a switch.
pub(super) fn is_readable(line: &file::Line<'_>) -> bool {
    let names = flow::text::NoPortNames;
    match line.kind {
        Kind::TlvMap => tlv::parse(line.text).is_ok(),
        Kind::Meter => parse_meter_mod(line.text, MeterModCommand::Add).is_ok(),
        Kind::Group => parse_group_mod(line.text, GroupModCommand::Add, &names).is_ok(),
        Kind::Flow => parse_flow_mod(line.text, Words::Add, &names).is_ok(),
    }
}
