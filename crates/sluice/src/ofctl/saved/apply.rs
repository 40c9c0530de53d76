//! Gives a bridge the state of a file.
//!
//! Differences alone are sent, so a second time changes nothing, and rules that stay keep their counters. Groups and rules
//! change in one transaction where the switch takes it. A part that is refused leaves the others.

use super::super::connection::Refusal;
use super::super::{Run, groups, tlv};
use super::file::{Kind, Line, Section};
use super::{OF_REQUEST, group_text, meters, options};
use anyhow::Result;
use flow::{OfPort, PackedMatch, TableId};
use ofp_actions::text::{FlowModCommand as Words, parse_flow_mod};
use openflow::msg::control::{TlvMap, TlvTableCommand, TlvTableMod};
use openflow::msg::flow_mod::{FlowMod, FlowModCommand};
use openflow::msg::flow_stats::FlowStats;
use openflow::msg::group::{BUCKET_ALL, Group, GroupMod, GroupModCommand};
use openflow::msg::meter::{Meter, MeterMod, MeterModCommand};
use openflow::text::{flow_mod_of, format_meter, parse_group_mod, parse_meter_mod};
use openflow::{Format, GROUP_ANY, Message, NO_BUFFER, Version, encode_with};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Transactions tried, each without the parts refused before: a switch may name one refused part a transaction.
const BUNDLES: usize = 8;
/// Messages sent in these transactions together, about: each carries all changes.
const BUNDLED: usize = 300_000;

/// Effect of a restoration.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Changes that the switch accepted.
    pub(crate) changes: usize,
    /// Parts left out, by line.
    pub(crate) left_out: Vec<LeftOut>,
}

/// A part left out.
#[derive(Debug)]
pub(crate) struct LeftOut {
    /// Line of the file; `None` for the removal of a part that the file lacks.
    pub(crate) line: Option<usize>,
    /// The part.
    pub(crate) text: String,
    pub(crate) error: String,
}

/// A change, and its line of the file.
struct Change<'t> {
    message: Message,
    line: Option<Line<'t>>,
}

/// Table, priority, match.
type Identity = (TableId, u16, PackedMatch);

/// Gives a bridge the state of its section.
///
/// # Errors
/// The bridge cannot be reached, or does not answer.
pub(crate) fn restore(section: &Section<'_>, timeout_s: u32) -> Result<Outcome> {
    let options = options(timeout_s);
    let mut run = Run::open(&options, section.bridge, "restore")?;
    let mut restore = Restore { run: &mut run, outcome: Outcome::default() };
    if restore.run.connection.version() == Version::V10 {
        restore.run.connection.carry_out(&[Message::FlowModTableId(true)])?;
    }
    let surplus = restore.add_mappings(section)?;
    restore.change_meters(section)?;
    let mut changes = Vec::new();
    let gone = restore.change_groups(section, &mut changes)?;
    restore.change_rules(section, &gone.keys().copied().collect(), &mut changes)?;
    restore.commit(changes)?;
    // A transaction that fails after the removal of a group ends OVS 3.1.
    restore.send(gone.into_values().collect())?;
    restore.change_mappings(TlvTableCommand::Delete, surplus.into_iter().map(|map| (map, None)).collect())?;
    restore.outcome.left_out.sort_by_key(|part| part.line.unwrap_or(usize::MAX));
    Ok(restore.outcome)
}

/// A run and its effect so far.
struct Restore<'r, 'o> {
    run: &'r mut Run<'o>,
    outcome: Outcome,
}

impl Restore<'_, '_> {
    fn leave_out(&mut self, line: Line<'_>, error: &dyn std::fmt::Display) {
        let (line, text, error) = (Some(line.number), line.text.to_string(), error.to_string());
        self.outcome.left_out.push(LeftOut { line, text, error });
    }

    /// Notes changes of which some were refused.
    fn note(&mut self, changes: &[Change<'_>], refused: Vec<Refusal>) {
        self.outcome.changes += changes.len() - refused.len();
        for Refusal { at, error } in refused {
            match &changes[at] {
                Change { line: Some(line), .. } => self.leave_out(*line, &error),
                Change { message, .. } => {
                    let text = removal(message);
                    self.outcome.left_out.push(LeftOut { line: None, text, error });
                }
            }
        }
    }

    /// Sends changes one by one. Refused ones are sent again while others succeed, since groups may refer to later ones.
    fn send(&mut self, mut changes: Vec<Change<'_>>) -> Result<()> {
        while !changes.is_empty() {
            let messages: Vec<Message> = changes.iter().map(|change| change.message.clone()).collect();
            let refused = self.run.connection.try_each(&messages)?;
            if refused.is_empty() || refused.len() == changes.len() {
                self.note(&changes, refused);
                return Ok(());
            }
            self.outcome.changes += changes.len() - refused.len();
            changes = split(changes, &refused).1;
        }
        Ok(())
    }

    /// Carries out changes of groups and rules, in one transaction if the version has some.
    fn commit(&mut self, mut changes: Vec<Change<'_>>) -> Result<()> {
        let mut refused_before = Vec::new();
        let has_bundles = self.run.connection.version() >= Version::V13;
        let tries = if has_bundles { (BUNDLED / changes.len().max(1)).clamp(1, BUNDLES) } else { 0 };
        for _ in 0..tries {
            if changes.is_empty() {
                break;
            }
            let messages: Vec<Message> = changes.iter().map(|change| change.message.clone()).collect();
            let refused = self.run.connection.try_bundle(&messages)?;
            if refused.is_empty() {
                self.outcome.changes += std::mem::take(&mut changes).len();
                break;
            }
            let (rest, refused) = split(changes, &refused);
            changes = rest;
            refused_before.extend(refused);
        }
        changes.extend(refused_before);
        self.send(changes)
    }

    /// Adds missing mappings, and removes those in their way; returns those that the file lacks.
    fn add_mappings(&mut self, section: &Section<'_>) -> Result<Vec<TlvMap>> {
        let present = tlv::maps(&mut self.run.connection);
        let mut wanted = Vec::new();
        for line in section.of(Kind::TlvMap) {
            match tlv::parse(line.text) {
                Ok(maps) => wanted.extend(maps.into_iter().map(|map| (map, Some(line)))),
                Err(error) => self.leave_out(line, &format!("{error:#}")),
            }
        }
        let is_wanted = |map: &TlvMap| wanted.iter().any(|(known, _)| known == map);
        let surplus: Vec<TlvMap> = present.iter().copied().filter(|map| !is_wanted(map)).collect();
        wanted.retain(|(map, _)| !present.contains(map));
        let is_in_the_way = |old: &TlvMap| {
            let collides =
                |new: &TlvMap| old.index == new.index || (old.class, old.ty) == (new.class, new.ty);
            wanted.iter().any(|(new, _)| collides(new))
        };
        let (first, later): (Vec<_>, Vec<_>) = surplus.into_iter().partition(is_in_the_way);
        self.change_mappings(TlvTableCommand::Delete, first.into_iter().map(|map| (map, None)).collect())?;
        self.change_mappings(TlvTableCommand::Add, wanted)?;
        Ok(later)
    }

    fn change_mappings(
        &mut self,
        command: TlvTableCommand,
        maps: Vec<(TlvMap, Option<Line<'_>>)>,
    ) -> Result<()> {
        if maps.is_empty() {
            return Ok(());
        }
        let message = |map| Message::TlvTableMod(TlvTableMod { command, maps: vec![map] });
        self.send(maps.into_iter().map(|(map, line)| Change { message: message(map), line }).collect())?;
        let table = Arc::new(tlv::mappings(&mut self.run.connection));
        self.run.connection.use_tlv(&table);
        self.run.names.tlv = table;
        Ok(())
    }

    /// Changes meters, which are in no transaction: rules refer to them. Removal of a meter removes its rules.
    fn change_meters(&mut self, section: &Section<'_>) -> Result<()> {
        let has_meters = self.run.connection.version() >= Version::V13;
        let mut wanted: BTreeMap<u32, (Line<'_>, Meter)> = BTreeMap::new();
        for line in section.of(Kind::Meter) {
            match parse_meter_mod(line.text, MeterModCommand::Add) {
                _ if !has_meters => self.leave_out(line, &"meters need OpenFlow 1.3 or later"),
                Ok(add) => drop(wanted.insert(add.meter.id, (line, add.meter))),
                Err(error) => self.leave_out(line, &error),
            }
        }
        let present: BTreeMap<u32, Meter> =
            meters(self.run)?.into_iter().map(|meter| (meter.id, meter)).collect();
        let mut changes = Vec::new();
        let message = |command, meter| Message::MeterMod(MeterMod { command, meter });
        for meter in present.values().filter(|meter| !wanted.contains_key(&meter.id)) {
            changes.push(Change { message: message(MeterModCommand::Delete, meter.clone()), line: None });
        }
        for (id, (line, meter)) in wanted {
            let command = match present.get(&id) {
                // Without the flag for bursts a switch reports sizes of its own.
                Some(known) if format_meter(known) == format_meter(&meter) => continue,
                Some(_) => MeterModCommand::Modify,
                None => MeterModCommand::Add,
            };
            changes.push(Change { message: message(command, meter), line: Some(line) });
        }
        self.send(changes)
    }

    /// Collects the changes of groups; returns the removals of those that go.
    fn change_groups<'t>(
        &mut self,
        section: &Section<'t>,
        changes: &mut Vec<Change<'t>>,
    ) -> Result<BTreeMap<u32, Change<'t>>> {
        let mut wanted: BTreeMap<u32, (Line<'t>, Group)> = BTreeMap::new();
        for line in section.of(Kind::Group) {
            let found = parse_group_mod(line.text, GroupModCommand::Add, &self.run.names);
            let found = found.map_err(anyhow::Error::from).and_then(|add| {
                self.run.needs_one_of(groups::protocols(&add))?;
                Ok(add.group)
            });
            match found {
                Ok(group) => drop(wanted.insert(group.id, (line, group))),
                Err(error) => self.leave_out(line, &error),
            }
        }
        let present: BTreeMap<u32, Group> =
            super::groups(self.run)?.into_iter().map(|group| (group.id, group)).collect();
        let format = self.run.format();
        let message = |command, group| {
            Message::GroupMod(GroupMod { format, command, command_bucket_id: BUCKET_ALL, group })
        };
        let removal = |group: &Group| {
            let group = Group { buckets: Vec::new(), selection: None, ..group.clone() };
            (group.id, Change { message: message(GroupModCommand::Delete, group), line: None })
        };
        let gone = present.values().filter(|group| !wanted.contains_key(&group.id)).map(removal).collect();
        for (id, (line, group)) in wanted {
            let command = match present.get(&id) {
                Some(known) if group_text(self.run, known) == group_text(self.run, &group) => continue,
                Some(_) => GroupModCommand::Modify,
                None => GroupModCommand::Add,
            };
            changes.push(Change { message: message(command, group), line: Some(line) });
        }
        Ok(gone)
    }

    /// Collects the changes of rules, without those of groups that go: the switch removes them with the group.
    fn change_rules<'t>(
        &mut self,
        section: &Section<'t>,
        gone: &HashSet<u32>,
        changes: &mut Vec<Change<'t>>,
    ) -> Result<()> {
        let mut wanted: Vec<Option<(Line<'t>, FlowMod)>> = Vec::new();
        let mut places: HashMap<Identity, usize> = HashMap::new();
        for line in section.of(Kind::Flow) {
            match self.rule(line.text) {
                Ok(_) if uses_group(line.text, gone) => self.leave_out(line, &"the file lacks its group"),
                Ok(rule) => {
                    if let Some(earlier) = places.insert(identity(&rule), wanted.len()) {
                        wanted[earlier] = None;
                    }
                    wanted.push(Some((line, rule)));
                }
                Err(error) => self.leave_out(line, &format!("{error:#}")),
            }
        }
        let (_, present) = super::super::flows::rules(self.run, "")?;
        for stats in present {
            let known = rule_of(stats, self.run.format());
            match places.get(&identity(&known)) {
                Some(place) => {
                    let place = &mut wanted[*place];
                    let stays = place
                        .as_ref()
                        .is_some_and(|(line, rule)| self.same(&known, rule) && !uses_group(line.text, gone));
                    if stays {
                        *place = None;
                    }
                }
                None => {
                    let command = FlowModCommand::DeleteStrict;
                    let rule = FlowMod { command, new_cookie: 0, actions: Vec::new(), ..known };
                    changes.push(Change { message: Message::FlowMod(rule), line: None });
                }
            }
        }
        changes.extend(
            wanted
                .into_iter()
                .flatten()
                .map(|(line, rule)| Change { message: Message::FlowMod(rule), line: Some(line) }),
        );
        Ok(())
    }

    /// The rule of a line.
    fn rule(&self, text: &str) -> Result<FlowMod> {
        let mut asked = parse_flow_mod(text, Words::Add, &self.run.names)?;
        asked.table.get_or_insert(TableId(0));
        self.run.needs_one_of(asked.protocols)?;
        Ok(flow_mod_of(self.run.format(), asked))
    }

    /// Whether two rules of one identity are the same, in all that the version reports. An action may have several forms
    /// (`set_field` and `load`), so messages are compared.
    fn same(&self, known: &FlowMod, wanted: &FlowMod) -> bool {
        let version = self.run.connection.version();
        let numbers = |rule: &FlowMod| (rule.new_cookie, rule.idle_timeout_s, rule.hard_timeout_s);
        let later = |rule: &FlowMod| {
            let flags = if version >= Version::V13 { rule.flags } else { rule.flags & OF_REQUEST };
            (flags - OF_REQUEST, if version >= Version::V14 { rule.importance } else { 0 })
        };
        if numbers(known) != numbers(wanted) || later(known) != later(wanted) {
            return false;
        }
        let bytes = |actions: &[ofp_actions::Action]| {
            let message = Message::FlowMod(FlowMod { actions: actions.to_vec(), ..known.clone() });
            encode_with(&message, version, 0, self.run.connection.options()).ok()
        };
        known.actions == wanted.actions
            || bytes(&known.actions).is_some_and(|known| Some(known) == bytes(&wanted.actions))
    }
}

fn identity(rule: &FlowMod) -> Identity {
    (rule.table, rule.priority, rule.matching.clone())
}

/// The addition of a rule that the switch reports.
fn rule_of(stats: FlowStats, format: Format) -> FlowMod {
    FlowMod {
        format,
        command: FlowModCommand::Add,
        table: stats.table,
        cookie: 0,
        cookie_mask: 0,
        new_cookie: stats.cookie,
        idle_timeout_s: stats.idle_timeout_s,
        hard_timeout_s: stats.hard_timeout_s,
        priority: stats.priority,
        buffer_id: NO_BUFFER,
        out_port: OfPort::NONE,
        out_group: GROUP_ANY,
        flags: stats.flags - OF_REQUEST,
        importance: stats.importance,
        matching: stats.matching,
        actions: stats.actions.to_vec(),
    }
}

/// Whether the text of a rule names one of the groups.
fn uses_group(text: &str, groups: &HashSet<u32>) -> bool {
    const WORD: &str = "group:";
    text.match_indices(WORD).any(|(at, _)| {
        let rest = &text[at + WORD.len()..];
        let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
        digits.parse().is_ok_and(|id| groups.contains(&id))
    })
}

/// Splits off the refused changes.
fn split<'t>(changes: Vec<Change<'t>>, refused: &[Refusal]) -> (Vec<Change<'t>>, Vec<Change<'t>>) {
    let places: HashSet<usize> = refused.iter().map(|refusal| refusal.at).collect();
    let (refused, rest): (Vec<_>, Vec<_>) =
        changes.into_iter().enumerate().partition(|(at, _)| places.contains(at));
    let plain = |part: Vec<(usize, Change<'t>)>| part.into_iter().map(|(_, change)| change).collect();
    (plain(rest), plain(refused))
}

/// The removal of a part, in words.
fn removal(message: &Message) -> String {
    match message {
        Message::MeterMod(m) => format!("removal of meter {}", m.meter.id),
        Message::GroupMod(m) => format!("removal of group {}", m.group.id),
        Message::FlowMod(m) => format!("removal of a rule of table {}, priority {}", m.table.0, m.priority),
        Message::TlvTableMod(m) => {
            format!("removal of mapping {}", m.maps.iter().map(tlv::text).collect::<String>())
        }
        _ => "removal".to_string(),
    }
}
