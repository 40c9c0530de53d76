//! Reads a file of state. Later lines replace earlier ones; a last line without its end is a write cut short.

use super::lines;
use super::{MAGIC, VERSION};
use connmgr::SavedState;
use flow::{MacAddr, TlvTable};
use ofp_actions::text::{FlowModCommand, parse_flow_mod};
use ofproto::flow_mod::SavedRule;
use openflow::Format;
use openflow::msg::group::GroupModCommand;
use openflow::msg::meter::MeterModCommand;
use openflow::text::{flow_mod_of, parse_group_mod, parse_meter_mod};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};

/// Most bytes of a line: a rule of the longest actions.
const LINE_MAX: u64 = 1 << 20;
/// Most bytes of a file.
const FILE_MAX: u64 = 4 << 30;

/// Table, priority, match.
type Identity = (u8, i32, String);

/// A bridge as a file has it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SavedBridge {
    tlv: TlvTable,
    meters: BTreeMap<u32, String>,
    groups: BTreeMap<u32, String>,
    /// Times and counters, properties, actions.
    rules: BTreeMap<Identity, String>,
    /// Learned addresses, least recently seen first.
    pub(crate) macs: Vec<SavedMac>,
}

/// A learned address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedMac {
    pub(crate) vlan: u16,
    pub(crate) mac: MacAddr,
    /// Name of the port.
    pub(crate) port: String,
    /// Time last seen; `None` for a static address.
    pub(crate) seen_ms: Option<u64>,
}

/// Reads the bridges of a file that was written since this start of the machine.
///
/// # Errors
/// The file cannot be read, or is not whole.
pub(super) fn read(file: impl Read, boot: &str) -> io::Result<BTreeMap<String, SavedBridge>> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_string());
    let mut input = BufReader::with_capacity(1 << 16, file.take(FILE_MAX));
    let mut line = String::new();
    if !next_line(&mut input, &mut line)? {
        return Err(bad("the file is empty"));
    }
    let head: Vec<&str> = line.split('\t').collect();
    match head[..] {
        [MAGIC, VERSION, of] if of == boot => {}
        [MAGIC, VERSION, _] => return Ok(BTreeMap::new()),
        [MAGIC, version, ..] => return Err(bad(&format!("unknown version {version}"))),
        _ => return Err(bad("not a file of state")),
    }
    let (mut bridges, mut at, mut is_whole) = (BTreeMap::new(), None::<String>, false);
    let mut number = 1;
    while next_line(&mut input, &mut line)? {
        number += 1;
        let (kind, rest) = line.split_once('\t').unwrap_or((&line, ""));
        match kind {
            lines::WHOLE => is_whole = true,
            lines::BRIDGE => at = Some(rest.to_string()),
            lines::BRIDGE_GONE => drop(bridges.remove(rest)),
            _ => {
                let bridge: &mut SavedBridge = match &at {
                    Some(name) if bridges.contains_key(name) => match bridges.get_mut(name) {
                        Some(bridge) => bridge,
                        None => continue,
                    },
                    Some(name) => bridges.entry(name.clone()).or_default(),
                    None => return Err(bad(&format!("line {number}: no bridge"))),
                };
                bridge.take(kind, rest).ok_or_else(|| bad(&format!("line {number}: bad {kind}")))?;
            }
        }
    }
    if is_whole { Ok(bridges) } else { Err(bad("the file is not whole")) }
}

/// Reads a line without its end; `false` at the end of the file, or at a line that lacks its end.
fn next_line(input: &mut impl BufRead, line: &mut String) -> io::Result<bool> {
    line.clear();
    input.by_ref().take(LINE_MAX).read_line(line)?;
    let is_complete = line.ends_with('\n');
    if !is_complete && line.len() as u64 >= LINE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
    }
    line.pop();
    Ok(is_complete)
}

impl SavedBridge {
    /// Follows a line; `None` for a malformed one. An unknown kind is one of a later version.
    fn take(&mut self, kind: &str, rest: &str) -> Option<()> {
        match kind {
            lines::RULE => {
                let (identity, value) = identity(rest)?;
                self.rules.insert(identity, value.to_string());
            }
            lines::RULE_GONE => drop(self.rules.remove(&identity(rest)?.0)),
            lines::TABLE_GONE => {
                let table: u8 = rest.parse().ok()?;
                self.rules.retain(|(of, ..), _| *of != table);
            }
            lines::GROUP => drop(self.groups.insert(numbered(rest)?.0, numbered(rest)?.1.to_string())),
            lines::GROUP_GONE => drop(self.groups.remove(&rest.parse().ok()?)),
            lines::GROUPS_GONE => self.groups.clear(),
            lines::METER => drop(self.meters.insert(numbered(rest)?.0, numbered(rest)?.1.to_string())),
            lines::METER_GONE => drop(self.meters.remove(&rest.parse().ok()?)),
            lines::TLV_GONE => self.tlv = TlvTable::EMPTY,
            lines::TLV => {
                let numbers: Vec<u16> = rest.split('\t').map_while(|n| n.parse().ok()).collect();
                let [index, class, ty, len] = numbers[..] else { return None };
                self.tlv.add(index, class, ty.try_into().ok()?, len.try_into().ok()?).ok()?;
            }
            lines::MACS_GONE => self.macs.clear(),
            lines::MAC => self.macs.push(SavedMac::parse(rest)?),
            _ => {}
        }
        Some(())
    }

    /// Its meters alone.
    pub(crate) fn only_meters(self) -> SavedBridge {
        SavedBridge { meters: self.meters, ..SavedBridge::default() }
    }

    /// The state in its types; text that does not parse is left out, with the reason.
    pub(crate) fn parse(&self) -> (SavedState, Vec<String>) {
        let mut faults = Vec::new();
        let mut kept = |text: &str, error: &dyn std::fmt::Display| faults.push(format!("{text}: {error}"));
        let mut state = SavedState { tlv: self.tlv.clone(), ..SavedState::default() };
        for text in self.meters.values() {
            match parse_meter_mod(text, MeterModCommand::Add) {
                Ok(add) => state.meters.push(add.meter),
                Err(e) => kept(text, &e),
            }
        }
        for text in self.groups.values() {
            match parse_group_mod(text, GroupModCommand::Add, &self.tlv) {
                Ok(add) => state.groups.push(add.group),
                Err(e) => kept(text, &e),
            }
        }
        for ((table, priority, matching), value) in &self.rules {
            let fields: Vec<&str> = value.splitn(7, '\t').collect();
            let parts = (lines::past(&fields), fields.get(5), fields.get(6));
            let (Some(past), Some(properties), Some(actions)) = parts else {
                kept(value, &"fields are missing");
                continue;
            };
            let comma = if matching.is_empty() { "" } else { "," };
            let text =
                format!("table={table},priority={priority},{matching}{comma}{properties},actions={actions}");
            match parse_flow_mod(&text, FlowModCommand::Add, &self.tlv) {
                Ok(add) => state.rules.push(SavedRule { added: flow_mod_of(Format::Standard, add), past }),
                Err(e) => kept(&text, &e),
            }
        }
        (state, faults)
    }
}

impl SavedMac {
    fn parse(rest: &str) -> Option<SavedMac> {
        let mut fields = rest.splitn(4, '\t');
        let (vlan, mac, seen, port) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let seen_ms = if seen == "static" { None } else { Some(seen.parse().ok()?) };
        Some(SavedMac {
            vlan: vlan.parse().ok()?,
            mac: MacAddr::parse(mac)?,
            port: port.to_string(),
            seen_ms,
        })
    }
}

/// The identity of a rule, and the fields after it.
fn identity(rest: &str) -> Option<(Identity, &str)> {
    let mut fields = rest.splitn(4, '\t');
    let (table, priority, matching) = (fields.next()?, fields.next()?, fields.next()?);
    let identity = (table.parse().ok()?, priority.parse().ok()?, matching.to_string());
    Some((identity, fields.next().unwrap_or("")))
}

/// A number, and the text after it.
fn numbered(rest: &str) -> Option<(u32, &str)> {
    let (number, text) = rest.split_once('\t')?;
    Some((number.parse().ok()?, text))
}
