//! Reads a file of state. Later lines replace earlier ones; a last line without its end is a write cut short.

use super::following::Counted;
use super::lines;
use super::{MAGIC, VERSION};
use connmgr::{Dated, SavedState, StateChanges};
use flow::{MacAddr, TlvTable};
use ofp_actions::text::{FlowModCommand, parse_flow_mod};
use ofproto::flow_mod::{Past, SavedRule};
use openflow::Format;
use openflow::msg::flow_mod::FlowMod;
use openflow::msg::group::{Group, GroupModCommand};
use openflow::msg::meter::{Meter, MeterModCommand};
use openflow::text::{flow_mod_of, parse_group_mod, parse_meter_mod};
use std::collections::{BTreeMap, BTreeSet};
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
    /// Times of creation.
    meters_since: BTreeMap<u32, u64>,
    groups_since: BTreeMap<u32, u64>,
    /// Counters of groups and their buckets.
    group_counts: BTreeMap<u32, String>,
    /// Times and counters, properties, actions.
    rules: BTreeMap<Identity, String>,
    /// Learned addresses, least recently seen first.
    pub(crate) macs: Vec<SavedMac>,
    /// Changes since [`SavedBridge::note_changes`].
    changes: Option<Box<Changes>>,
}

/// Parts of a bridge that changed.
#[derive(Debug, Default, PartialEq)]
struct Changes {
    tlv: bool,
    meters: BTreeSet<u32>,
    groups: BTreeSet<u32>,
    rules: BTreeSet<Identity>,
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
    let mut lines = Lines::default();
    lines.read(file.take(FILE_MAX), boot)?;
    if lines.is_whole { Ok(lines.bridges) } else { Err(bad("the file is not whole")) }
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

/// The lines of a file so far.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) bridges: BTreeMap<String, SavedBridge>,
    /// Bridge of the last line.
    at: Option<String>,
    pub(super) is_whole: bool,
    number: usize,
    is_of_former_start: bool,
}

impl Lines {
    /// Reads on, to the end of the last whole line. Lines of an earlier start of the machine are skipped.
    ///
    /// # Errors
    /// The file cannot be read, or has a malformed line.
    pub(super) fn read(&mut self, file: impl Read, boot: &str) -> io::Result<()> {
        let mut input = BufReader::with_capacity(1 << 16, file);
        let mut line = String::new();
        if self.number == 0 && !next_line(&mut input, &mut line)? {
            return Err(bad("the file is empty"));
        }
        if self.number == 0 {
            self.number = 1;
            match line.split('\t').collect::<Vec<_>>()[..] {
                [MAGIC, VERSION, of] => self.is_of_former_start = of != boot,
                [MAGIC, version, ..] => return Err(bad(&format!("unknown version {version}"))),
                _ => return Err(bad("not a file of state")),
            }
        }
        if self.is_of_former_start {
            self.is_whole = true;
            return Ok(());
        }
        while next_line(&mut input, &mut line)? {
            self.number += 1;
            self.take(&line)?;
        }
        Ok(())
    }

    fn take(&mut self, line: &str) -> io::Result<()> {
        let (kind, rest) = line.split_once('\t').unwrap_or((line, ""));
        match kind {
            lines::WHOLE => self.is_whole = true,
            lines::BRIDGE => self.at = Some(rest.to_string()),
            lines::BRIDGE_GONE => drop(self.bridges.remove(rest)),
            _ => {
                let number = self.number;
                let name = self.at.as_ref().ok_or_else(|| bad(&format!("line {number}: no bridge")))?;
                if !self.bridges.contains_key(name) {
                    self.bridges.insert(name.clone(), SavedBridge::default());
                }
                let taken = self.bridges.get_mut(name).and_then(|bridge| bridge.take(kind, rest));
                taken.ok_or_else(|| bad(&format!("line {number}: bad {kind}")))?;
            }
        }
        Ok(())
    }
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
                self.note(|c| c.rules.insert(identity.clone()));
                self.rules.insert(identity, value.to_string());
            }
            lines::RULE_GONE => {
                let (identity, _) = identity(rest)?;
                self.rules.remove(&identity);
                self.note(|c| c.rules.insert(identity.clone()));
            }
            lines::TABLE_GONE => {
                let table: u8 = rest.parse().ok()?;
                let gone =
                    self.rules.extract_if(.., |(of, ..), _| *of == table).map(|(identity, _)| identity);
                match &mut self.changes {
                    Some(changes) => changes.rules.extend(gone),
                    None => gone.for_each(drop),
                }
            }
            lines::GROUP => {
                let (id, text) = numbered(rest)?;
                self.groups.insert(id, text.to_string());
                self.groups_since.remove(&id);
                self.group_counts.remove(&id);
                self.note(|c| c.groups.insert(id));
            }
            lines::GROUP_SINCE => {
                let (id, since) = numbered(rest)?;
                self.groups_since.insert(id, since.parse().ok()?);
            }
            lines::GROUP_COUNTS => {
                let (id, counts) = numbered(rest)?;
                self.group_counts.insert(id, counts.to_string());
            }
            lines::GROUP_GONE => {
                let id = rest.parse().ok()?;
                self.groups.remove(&id);
                self.groups_since.remove(&id);
                self.group_counts.remove(&id);
                self.note(|c| c.groups.insert(id));
            }
            lines::GROUPS_GONE => {
                self.groups_since.clear();
                self.group_counts.clear();
                let gone = std::mem::take(&mut self.groups);
                self.changes.iter_mut().for_each(|c| c.groups.extend(gone.keys()));
            }
            lines::METER => {
                let (id, text) = numbered(rest)?;
                self.meters.insert(id, text.to_string());
                self.meters_since.remove(&id);
                self.note(|c| c.meters.insert(id));
            }
            lines::METER_SINCE => {
                let (id, since) = numbered(rest)?;
                self.meters_since.insert(id, since.parse().ok()?);
            }
            lines::METER_GONE => {
                let id = rest.parse().ok()?;
                self.meters.remove(&id);
                self.meters_since.remove(&id);
                self.note(|c| c.meters.insert(id));
            }
            lines::TLV_GONE => {
                self.tlv = TlvTable::EMPTY;
                self.note(|c| std::mem::replace(&mut c.tlv, true));
            }
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

    /// Notes a change, if changes are noted.
    fn note(&mut self, note: impl FnOnce(&mut Changes) -> bool) {
        self.changes.as_deref_mut().map(note);
    }

    /// Its meters alone.
    pub(crate) fn only_meters(self) -> SavedBridge {
        SavedBridge { meters: self.meters, meters_since: self.meters_since, ..SavedBridge::default() }
    }

    /// Notes what changes from now on.
    pub(super) fn note_changes(&mut self) {
        self.changes = Some(Box::default());
    }

    /// The state in its types; text that does not parse is left out, with the reason.
    pub(crate) fn parse(&self) -> (SavedState, Vec<String>) {
        let mut faults = Vec::new();
        let mut state = SavedState { tlv: self.tlv.clone(), ..SavedState::default() };
        keep(
            self.meters.iter().map(|(id, text)| self.dated_meter(*id, text)),
            &mut state.meters,
            &mut faults,
        );
        keep(
            self.groups.iter().map(|(id, text)| self.dated_group(*id, text)),
            &mut state.groups,
            &mut faults,
        );
        keep(
            self.rules.iter().map(|(identity, value)| self.rule(identity, value)),
            &mut state.rules,
            &mut faults,
        );
        (state, faults)
    }

    /// The changes since [`SavedBridge::note_changes`] in their types, as [`SavedBridge::parse`].
    pub(crate) fn take_changes(&mut self) -> (StateChanges, Vec<String>) {
        let Some(changes) = self.changes.replace(Box::default()) else { return Default::default() };
        let Changes { tlv, meters, groups, rules } = *changes;
        let (mut faults, mut out) = (Vec::new(), StateChanges::default());
        out.tlv = tlv.then(|| self.tlv.clone());
        let there = meters.iter().filter_map(|id| Some((*id, self.meters.get(id)?)));
        keep(there.map(|(id, text)| self.dated_meter(id, text)), &mut out.meters, &mut faults);
        out.meters_gone = meters.into_iter().filter(|id| !self.meters.contains_key(id)).collect();
        let there = groups.iter().filter_map(|id| Some((*id, self.groups.get(id)?)));
        keep(there.map(|(id, text)| self.dated_group(id, text)), &mut out.groups, &mut faults);
        out.groups_gone = groups.into_iter().filter(|id| !self.groups.contains_key(id)).collect();
        let (there, gone): (Vec<_>, Vec<_>) = rules.into_iter().partition(|of| self.rules.contains_key(of));
        let there = there.iter().filter_map(|of| Some((of, self.rules.get(of)?)));
        keep(there.map(|(of, value)| self.rule(of, value)), &mut out.rules, &mut faults);
        keep(gone.iter().map(|of| self.deletion(of)), &mut out.rules_gone, &mut faults);
        (out, faults)
    }

    /// Rules whose counters differ from those of `before`, with the difference, and the groups that had packets.
    pub(crate) fn counted_since(&self, before: &SavedBridge) -> Counted {
        Counted { rules: self.rules_since(before), groups: self.groups_counted() }
    }

    /// Groups with their counters, those of the groups first, then of each bucket.
    fn groups_counted(&self) -> Vec<(Group, Vec<(u64, u64)>)> {
        let counted = self.group_counts.iter().filter_map(|(id, counts)| {
            let numbers: Vec<u64> = counts.split('\t').map_while(|n| n.parse().ok()).collect();
            let pairs = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
            Some((self.group(self.groups.get(id)?).ok()?, pairs))
        });
        counted.collect()
    }

    fn rules_since(&self, before: &SavedBridge) -> Vec<(FlowMod, Past)> {
        let mut counted = Vec::new();
        for (identity, value) in &self.rules {
            let old = before.rules.get(identity);
            let (Some(now), Some(then)) = (past_of(value), old.and_then(|old| past_of(old))) else {
                continue;
            };
            if (now.packets, now.bytes, now.used_ms) == (then.packets, then.bytes, then.used_ms) {
                continue;
            }
            let (packets, bytes) = (now.packets.checked_sub(then.packets), now.bytes.checked_sub(then.bytes));
            if let (Some(packets), Some(bytes), Ok(rule)) = (packets, bytes, self.deletion(identity)) {
                counted.push((rule, Past { packets, bytes, ..now }));
            }
        }
        counted
    }

    fn dated_meter(&self, id: u32, text: &str) -> Result<Dated<Meter>, String> {
        Ok(Dated { what: meter(text)?, created_ms: self.meters_since.get(&id).copied() })
    }

    fn dated_group(&self, id: u32, text: &str) -> Result<Dated<Group>, String> {
        Ok(Dated { what: self.group(text)?, created_ms: self.groups_since.get(&id).copied() })
    }

    fn group(&self, text: &str) -> Result<Group, String> {
        let add = parse_group_mod(text, GroupModCommand::Add, &self.tlv);
        add.map(|add| add.group).map_err(|e| format!("{text}: {e}"))
    }

    fn rule(&self, (table, priority, matching): &Identity, value: &str) -> Result<SavedRule, String> {
        let fields: Vec<&str> = value.splitn(7, '\t').collect();
        let parts = (lines::past(&fields), fields.get(5), fields.get(6));
        let (Some(past), Some(properties), Some(actions)) = parts else {
            return Err(format!("{value}: fields are missing"));
        };
        let comma = if matching.is_empty() { "" } else { "," };
        let text =
            format!("table={table},priority={priority},{matching}{comma}{properties},actions={actions}");
        let add =
            parse_flow_mod(&text, FlowModCommand::Add, &self.tlv).map_err(|e| format!("{text}: {e}"))?;
        Ok(SavedRule { added: flow_mod_of(Format::Standard, add), past })
    }

    /// The deletion of one rule.
    fn deletion(&self, (table, priority, matching): &Identity) -> Result<FlowMod, String> {
        let comma = if matching.is_empty() { "" } else { "," };
        let text = format!("table={table},priority={priority}{comma}{matching}");
        let delete = parse_flow_mod(&text, FlowModCommand::DeleteStrict, &self.tlv);
        delete.map(|delete| flow_mod_of(Format::Standard, delete)).map_err(|e| format!("{text}: {e}"))
    }
}

fn meter(text: &str) -> Result<Meter, String> {
    parse_meter_mod(text, MeterModCommand::Add).map(|add| add.meter).map_err(|e| format!("{text}: {e}"))
}

fn past_of(value: &str) -> Option<Past> {
    lines::past(&value.splitn(6, '\t').collect::<Vec<_>>())
}

/// Sorts parts from reasons why there are none.
fn keep<T>(parts: impl Iterator<Item = Result<T, String>>, good: &mut Vec<T>, faults: &mut Vec<String>) {
    for part in parts {
        match part {
            Ok(part) => good.push(part),
            Err(why) => faults.push(why),
        }
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
