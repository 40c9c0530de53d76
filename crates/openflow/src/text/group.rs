//! Groups (ovs-ofctl(8), "Group Syntax").

use crate::GROUP_ANY;
use crate::msg::Format;
use crate::msg::group::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, Bucket, GROUP_ALL, Group, GroupMod, GroupModCommand, GroupType,
    Selection, is_field_mask, whole_field,
};
use flow::OfPort;
use flow::fields::FieldId;
use flow::text::number::{u16_named, u32_argument, u64_argument};
use flow::text::token::{Attached, Token, Tokens, is_separator};
use flow::text::{
    ParseError, Parsed, PortNames, fail, field_by_name, format_port, format_value, masked_value, parse_port,
};
use ofp_actions::text::{format_actions, parse_actions};
use std::collections::HashSet;

/// Names of the types.
const TYPES: [(&str, GroupType); 5] = [
    ("all", GroupType::All),
    ("select", GroupType::Select),
    ("indirect", GroupType::Indirect),
    ("ff", GroupType::FastFailover),
    ("fast_failover", GroupType::FastFailover),
];

/// Parses a group modification.
///
/// # Errors
/// The first error, located in `text`.
pub fn parse_group_mod(
    text: &str,
    command: GroupModCommand,
    ports: &dyn PortNames,
) -> Result<GroupMod, ParseError> {
    group_mod(text, command, ports).map_err(|e| e.locate(text))
}

fn group_mod(text: &str, command: GroupModCommand, ports: &dyn PortNames) -> Parsed<GroupMod> {
    let deletes = command == GroupModCommand::Delete;
    let (head, buckets) = split_buckets(text);
    let mut asked = Asked::default();
    let mut tokens = Tokens::new(head);
    while let Some(token) = tokens.next_token()? {
        asked.take(&token, command)?;
    }
    let id = match asked.id {
        Some(id) => id,
        None if deletes => GROUP_ALL,
        None => return fail(text, "must specify a group_id"),
    };
    let changes_buckets = matches!(command, GroupModCommand::InsertBucket | GroupModCommand::RemoveBucket);
    match asked.place {
        None if command == GroupModCommand::InsertBucket => {
            return fail(text, "must specify a command bucket id");
        }
        Some(BUCKET_ALL) if command == GroupModCommand::InsertBucket => {
            return fail(text, "command_bucket_id=all is not permitted");
        }
        Some(_) | None => {}
    }
    if let (Some(first), true) = (buckets.first(), deletes || command == GroupModCommand::RemoveBucket) {
        return fail(first, "bucket is not needed");
    }
    let ty = asked.ty.unwrap_or(GroupType::All);
    if asked.ty.is_none() && !deletes && !changes_buckets {
        return fail(text, "must specify a type");
    }
    let selection = asked.selection(text)?;
    let mut group = Group { ty, id, buckets: Vec::new(), selection };
    let mut used = HashSet::new();
    for text in buckets {
        let bucket = bucket(text, ty, ports)?;
        // The group into which a bucket is inserted may have another type.
        if command != GroupModCommand::InsertBucket {
            check_bucket(text, &bucket, ty)?;
        }
        if bucket.id != BUCKET_ALL && !used.insert(bucket.id) {
            return fail(text, format!("bucket_id {} is used twice", bucket.id));
        }
        group.buckets.push(bucket);
    }
    // Buckets without an id get the lowest ones that are free.
    let mut free = (0..).filter(|id| !used.contains(id));
    for bucket in group.buckets.iter_mut().filter(|b| b.id == BUCKET_ALL) {
        bucket.id = free.next().unwrap_or(BUCKET_ALL);
    }
    if ty == GroupType::Indirect && !deletes && !changes_buckets && group.buckets.len() != 1 {
        return fail(text, "an indirect group has exactly one bucket");
    }
    let command_bucket_id = asked.place.unwrap_or(BUCKET_ALL);
    Ok(GroupMod { format: Format::Standard, command, command_bucket_id, group })
}

/// The keywords before the buckets.
#[derive(Default)]
struct Asked {
    id: Option<u32>,
    ty: Option<GroupType>,
    place: Option<u32>,
    selection: Selection,
}

impl Asked {
    fn take(&mut self, token: &Token<'_>, command: GroupModCommand) -> Parsed<()> {
        let changes_buckets =
            matches!(command, GroupModCommand::InsertBucket | GroupModCommand::RemoveBucket);
        let of_whole_group = match token.key {
            "type" => Some("type is"),
            "selection_method" => Some("selection method is"),
            "selection_method_param" => Some("selection method param is"),
            "fields" => Some("fields are"),
            _ => None,
        };
        if let Some(what) = of_whole_group.filter(|_| changes_buckets || command == GroupModCommand::Delete) {
            return fail(token.key, format!("{what} not needed"));
        }
        if token.key == "command_bucket_id" && !changes_buckets {
            return fail(token.key, "command bucket id is not needed");
        }
        match token.key {
            "group_id" => self.id = Some(group_id(token.value, command)?),
            "type" => {
                let ty = TYPES.iter().find(|(name, _)| *name == token.value);
                self.ty = match ty {
                    Some((_, ty)) => Some(*ty),
                    None => return fail(token.value, format!("invalid group type {}", token.value)),
                };
            }
            "command_bucket_id" => self.place = Some(place(token.value)?),
            "selection_method" if token.value.len() >= 16 => {
                return fail(token.value, "selection method is longer than 15 bytes long");
            }
            "selection_method" => self.selection.method = token.value.to_string(),
            "selection_method_param" => self.selection.param = u64_argument(token.value)?,
            "fields" => self.selection.fields = fields(token)?,
            other => return fail(other, format!("unknown keyword {other}")),
        }
        Ok(())
    }

    /// The selection; without a method, none.
    fn selection(&mut self, text: &str) -> Parsed<Option<Selection>> {
        let asked = std::mem::take(&mut self.selection);
        if asked.method.is_empty() && asked.param != 0 {
            return fail(text, "selection_method_param is only allowed with \"selection_method\"");
        }
        if asked.method != "hash" && !asked.fields.is_empty() {
            return fail(text, "fields may only be specified with \"selection_method=hash\"");
        }
        Ok(Some(asked).filter(|selection| !selection.method.is_empty()))
    }
}

fn group_id(text: &str, command: GroupModCommand) -> Parsed<u32> {
    if text == "all" && command == GroupModCommand::Delete {
        return Ok(GROUP_ALL);
    }
    match u32_argument(text)? {
        id if id <= 0xffff_ff00 => Ok(id),
        id => fail(text, format!("invalid group id {id}")),
    }
}

fn place(text: &str) -> Parsed<u32> {
    match text {
        "first" => Ok(BUCKET_FIRST),
        "last" => Ok(BUCKET_LAST),
        "all" => Ok(BUCKET_ALL),
        _ => match u32_argument(text)? {
            id if id <= 0xffff_ff00 => Ok(id),
            id => fail(text, format!("invalid command bucket id {id}")),
        },
    }
}

/// `fields(a,b=MASK)`, or `fields=a`.
fn fields(token: &Token<'_>) -> Parsed<Vec<(FieldId, u128)>> {
    let mut fields = Vec::new();
    let mut tokens = Tokens::new(token.value);
    while let Some(part) = tokens.next_token()? {
        let Some(field) = field_by_name(part.key) else {
            return fail(part.key, format!("unknown field {}", part.key));
        };
        let mask = match part.has_value() {
            true => masked_value(field, part.value, &flow::text::NoPortNames)?.0,
            false => whole_field(field),
        };
        if mask == 0 {
            return fail(part.value, "values are wildcards here and must not be all-zeros");
        }
        if !is_field_mask(field, mask) {
            return fail(part.value, format!("{}: invalid mask for field {}", part.value, part.key));
        }
        if fields.iter().any(|(other, _)| *other == field) {
            return fail(part.key, format!("{}: duplicate field", part.key));
        }
        fields.push((field, mask));
    }
    fields.sort_unstable();
    Ok(fields)
}

/// The text before the first `bucket=`, and the texts of the buckets.
fn split_buckets(text: &str) -> (&str, Vec<&str>) {
    let mut starts = Vec::new();
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            'b' if depth == 0 && text[..at].chars().next_back().is_none_or(is_separator) => {
                let word = ["bucket=", "bucket:", "buckets=", "buckets:"].iter();
                starts.extend(word.filter(|w| text[at..].starts_with(**w)).map(|w| (at, at + w.len())));
            }
            _ => {}
        }
    }
    let ends = starts.iter().skip(1).map(|(at, _)| *at).chain([text.len()]);
    let buckets =
        starts.iter().zip(ends).map(|((_, from), to)| text[*from..to].trim_end_matches(is_separator));
    (&text[..starts.first().map_or(text.len(), |(at, _)| *at)], buckets.collect())
}

fn bucket(text: &str, ty: GroupType, ports: &dyn PortNames) -> Parsed<Bucket> {
    let weight = u16::from(ty == GroupType::Select);
    let mut b = Bucket {
        id: BUCKET_ALL,
        weight,
        watch_port: OfPort::NONE,
        watch_group: GROUP_ANY,
        actions: Vec::new(),
    };
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(is_separator);
        let mut tokens = Tokens::new(rest);
        let Some(token) = tokens.next_token()? else { break };
        match token.key {
            "bucket_id" => b.id = bucket_id(token.value)?,
            "weight" => b.weight = u16_named(token.value, "weight")?,
            "watch_port" => b.watch_port = watched_port(token.value, ports)?,
            "watch_group" => b.watch_group = group_id(token.value, GroupModCommand::Add)?,
            "action" | "actions" => {
                rest = &rest[token.key.len() + 1..];
                break;
            }
            // Actions without a keyword.
            _ => break,
        }
        rest = &rest[end_of(rest, &token)..];
    }
    b.actions = parse_actions_of(rest, ports)?;
    Ok(b)
}

/// Whether the bucket fits a new group of that type.
fn check_bucket(text: &str, b: &Bucket, ty: GroupType) -> Parsed<()> {
    let watches = b.watch_port != OfPort::NONE || b.watch_group != GROUP_ANY;
    match ty {
        GroupType::Select => Ok(()),
        _ if b.weight != 0 => fail(text, "Only select groups can have bucket weights."),
        GroupType::FastFailover if !watches => {
            fail(text, "fast failover bucket requires watch_port or watch_group")
        }
        GroupType::FastFailover | GroupType::All | GroupType::Indirect => Ok(()),
    }
}

/// Bytes of `text` up to the end of its first token, which has a value after one character.
fn end_of(text: &str, token: &Token<'_>) -> usize {
    let parens = if token.attached == Attached::Parens { 1 } else { 0 };
    (token.key.len() + 1 + token.value.len() + parens).min(text.len())
}

fn parse_actions_of(text: &str, ports: &dyn PortNames) -> Parsed<Vec<ofp_actions::Action>> {
    let actions =
        parse_actions(text, ports).map_err(|e| flow::text::fail::<()>(text, e.message).unwrap_err())?;
    match actions.iter().find(|a| a.stage() > ofp_actions::Stage::Apply) {
        Some(a) => fail(text, format!("{} instruction not allowed here", a.stage().name())),
        None => Ok(actions),
    }
}

fn bucket_id(text: &str) -> Parsed<u32> {
    match u32_argument(text)? {
        id if id <= 0xffff_ff00 => Ok(id),
        id => fail(text, format!("invalid bucket_id id {id}")),
    }
}

fn watched_port(text: &str, ports: &dyn PortNames) -> Parsed<OfPort> {
    match parse_port(text, ports) {
        Some(port) => Ok(port),
        None => fail(text, format!("{text}: invalid watch_port")),
    }
}

/// Prints a group as `dump-groups` does; `with_ids`: with ids of buckets, which OpenFlow 1.1 to 1.4 lack.
pub fn format_group(group: &Group, with_ids: bool, ports: &dyn PortNames) -> String {
    let name = TYPES.iter().find(|(_, ty)| *ty == group.ty).map_or("", |(name, _)| name);
    let mut out = format!("group_id={},type={name}", group.id);
    if let Some(s) = group.selection.as_ref().filter(|s| !s.method.is_empty()) {
        out += &format!(",selection_method={}", s.method);
        if s.param != 0 {
            out += &format!(",selection_method_param={}", s.param);
        }
        out += &format_fields(&s.fields, ports);
    }
    for b in &group.buckets {
        let mut parts = Vec::new();
        parts.extend(with_ids.then(|| format!("bucket_id:{}", b.id)));
        if b.weight != u16::from(group.ty == GroupType::Select) {
            parts.push(format!("weight:{}", b.weight));
        }
        if b.watch_port != OfPort::NONE {
            parts.push(format!("watch_port:{}", format_port(b.watch_port, ports)));
        }
        if b.watch_group != GROUP_ANY {
            parts.push(format!("watch_group:{}", b.watch_group));
        }
        parts.push(format!("actions={}", format_actions(&b.actions, ports)));
        out += &format!(",bucket={}", parts.join(","));
    }
    out
}

fn format_fields(fields: &[(FieldId, u128)], ports: &dyn PortNames) -> String {
    let one = |(field, mask): &(FieldId, u128)| {
        let name = field.def().name;
        match *mask == whole_field(*field) {
            true => name.to_string(),
            false => format!("{name}={}", format_value(*field, *mask, field.full_mask(), ports)),
        }
    };
    match fields {
        [] => String::new(),
        [field] => format!(",fields={}", one(field)),
        _ => format!(",fields({})", fields.iter().map(one).collect::<Vec<_>>().join(",")),
    }
}
