//! `learn` in text.

use super::{LearnAction, LearnDest, LearnSource, LearnSpec};
use crate::text::arguments::{arrow, source_and_dest, table, timeouts, writable};
use flow::text::number::{hex, parse_u128, u16_named, u32_argument, u64_argument};
use flow::text::token::{Attached, Token, Tokens};
use flow::text::{
    Parsed, PortNames, fail, field_by_name, format_subfield, format_table, format_value, masked_value,
    sub_field, unknown_keyword,
};
use flow::{SubField, TableId};

/// Default priority of a learned rule.
const DEFAULT_PRIORITY: u16 = 0x8000;

/// Parses the content of the parentheses.
pub(super) fn parse(arg: &str, ports: &dyn PortNames) -> Parsed<LearnAction> {
    let mut learn = LearnAction {
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        priority: DEFAULT_PRIORITY,
        cookie: 0,
        table: TableId(1),
        send_flow_rem: false,
        delete_learned: false,
        fin_idle_timeout_s: 0,
        fin_hard_timeout_s: 0,
        limit: 0,
        result_dst: None,
        specs: Vec::new(),
    };
    let mut tokens = Tokens::new(arg);
    while let Some(token) = tokens.next_token()? {
        if !parse_parameter(&mut learn, &token, ports)? {
            learn.specs.push(parse_spec(&token, ports)?);
        }
    }
    Ok(learn)
}

/// Parses a parameter of the action itself; returns whether it is one.
fn parse_parameter(learn: &mut LearnAction, token: &Token<'_>, ports: &dyn PortNames) -> Parsed<bool> {
    let value = token.value;
    match token.key {
        "table" => {
            learn.table = table(value, ports, || format!("unknown table \"{value}\""))?;
            if learn.table == TableId::ALL {
                return fail(value, format!("{value}: table id 255 not valid for `learn' action"));
            }
        }
        "priority" => learn.priority = u16_named(value, "priority")?,
        "idle_timeout" => learn.idle_timeout_s = u16_named(value, "idle_timeout")?,
        "hard_timeout" => learn.hard_timeout_s = u16_named(value, "hard_timeout")?,
        "fin_idle_timeout" => learn.fin_idle_timeout_s = u16_named(value, "fin_idle_timeout")?,
        "fin_hard_timeout" => learn.fin_hard_timeout_s = u16_named(value, "fin_hard_timeout")?,
        "cookie" => learn.cookie = u64_argument(value)?,
        "send_flow_rem" => learn.send_flow_rem = true,
        "delete_learned" => learn.delete_learned = true,
        "limit" => learn.limit = u32_argument(value)?,
        "result_dst" => {
            let sub = sub_field(value, ports)?;
            writable(sub.field, value)?;
            if sub.len_bits != 1 {
                return fail(value, "result_dst in 'learn' action must be a single bit");
            }
            learn.result_dst = Some(sub);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn parse_spec(token: &Token<'_>, ports: &dyn PortNames) -> Parsed<LearnSpec> {
    match (token.key, token.attached) {
        ("load", Attached::Colon | Attached::Equals | Attached::Parens) => {
            parse_load_spec(token.value, ports)
        }
        ("output", Attached::Colon | Attached::Equals | Attached::Parens) => {
            let source = sub_field(token.value, ports)?;
            let len_bits = source.len_bits;
            Ok(LearnSpec { source: LearnSource::Field(source), dest: LearnDest::Output, len_bits })
        }
        (_, Attached::Equals | Attached::Parens) => parse_match_spec(token, ports),
        (key, Attached::Nothing) => match sub_field(key, ports) {
            Ok(sub) => {
                has_header(sub, key)?;
                Ok(match_spec(LearnSource::Field(sub), sub))
            }
            Err(_) => fail(key, format!("unknown keyword {key}")),
        },
        _ => unknown_keyword(token),
    }
}

fn match_spec(source: LearnSource, dest: SubField) -> LearnSpec {
    LearnSpec { source, dest: LearnDest::Match(dest), len_bits: dest.len_bits }
}

fn has_header(sub: SubField, part: &str) -> Parsed<()> {
    let def = sub.field.def();
    if def.nxm.is_none() && def.oxm.is_none() {
        return fail(
            part,
            format!("field '{}' cannot stand in learn: it has no NXM or OXM header", def.name),
        );
    }
    Ok(())
}

/// `IMMEDIATE->DESTINATION` or `SOURCE->DESTINATION`.
fn parse_load_spec(arg: &str, ports: &dyn PortNames) -> Parsed<LearnSpec> {
    if !arg.starts_with(|c: char| c.is_ascii_digit()) {
        let (source, dest) = source_and_dest(arg, ports)?;
        let len_bits = dest.len_bits;
        return Ok(LearnSpec { source: LearnSource::Field(source), dest: LearnDest::Load(dest), len_bits });
    }
    let (text, name) = arrow(arg, "missing `->'")?;
    let dest = sub_field(name, ports)?;
    writable(dest.field, name)?;
    let Ok(value) = parse_u128(text) else {
        return fail(text, format!("load: garbage before `->' in `{arg}'"));
    };
    if dest.len_bits < 128 && value >> dest.len_bits != 0 {
        return fail(text, format!("{arg}: value does not fit into {} bits", dest.len_bits));
    }
    let len_bits = dest.len_bits;
    Ok(LearnSpec { source: LearnSource::Immediate(value), dest: LearnDest::Load(dest), len_bits })
}

/// `FIELD=VALUE`, `FIELD[BITS]=NUMBER` or `FIELD[BITS]=SOURCE[BITS]`.
fn parse_match_spec(token: &Token<'_>, ports: &dyn PortNames) -> Parsed<LearnSpec> {
    let (key, text) = (token.key, token.value);
    let dest = match field_by_name(key) {
        Some(field) if field.metadata_index().is_none() => SubField::whole(field),
        Some(_) => sub_field(key, ports)?,
        None => match sub_field(key, ports) {
            Ok(dest) => dest,
            Err(f) if key.contains('[') => return Err(f),
            Err(_) => return unknown_keyword(token),
        },
    };
    has_header(dest, key)?;
    let not_field = match sub_field(text, ports) {
        Ok(source) => {
            let dest = if field_by_name(key).is_some() { sub_field(key, ports)? } else { dest };
            if source.len_bits != dest.len_bits {
                let (a, b) = (dest.len_bits, source.len_bits);
                return fail(key, format!("bit widths of {key} ({a}) and {text} ({b}) differ"));
            }
            return Ok(match_spec(LearnSource::Field(source), dest));
        }
        Err(f) => f.message().to_owned(),
    };
    let value = match immediate(dest, text, ports) {
        Ok(value) => value,
        Err(f) => {
            let why = f.message();
            let both = format!("cannot be parsed as a subfield ({not_field}) or an immediate value ({why})");
            return fail(text, format!("{key} value {text} {both}"));
        }
    };
    Ok(match_spec(LearnSource::Immediate(value), dest))
}

fn immediate(dest: SubField, text: &str, ports: &dyn PortNames) -> Parsed<u128> {
    if dest.field_mask() == dest.field.full_mask() {
        let (value, mask) = masked_value(dest.field, text, ports)?;
        if mask != dest.field.full_mask() {
            return fail(text, format!("{text}: wildcards not allowed here"));
        }
        return Ok(value);
    }
    let Ok(value) = parse_u128(text) else {
        return fail(text, format!("{text}: cannot parse integer value"));
    };
    if value >> dest.len_bits.min(127) != 0 {
        return fail(text, format!("{text}: value {} does not fit into {} bits", hex(value), dest.len_bits));
    }
    Ok(value)
}

/// Prints the whole action.
pub(super) fn format(learn: &LearnAction, ports: &dyn PortNames) -> String {
    let mut parts = vec![format!("table={}", format_table(learn.table, ports))];
    let given = [
        ("idle_timeout", learn.idle_timeout_s),
        ("hard_timeout", learn.hard_timeout_s),
        ("fin_idle_timeout", learn.fin_idle_timeout_s),
        ("fin_hard_timeout", learn.fin_hard_timeout_s),
    ];
    parts.extend(timeouts(&given));
    if learn.priority != DEFAULT_PRIORITY {
        parts.push(format!("priority={}", learn.priority));
    }
    if learn.send_flow_rem {
        parts.push("send_flow_rem".into());
    }
    if learn.delete_learned {
        parts.push("delete_learned".into());
    }
    if learn.cookie != 0 {
        parts.push(format!("cookie={}", hex(learn.cookie.into())));
    }
    if learn.limit != 0 {
        parts.push(format!("limit={}", learn.limit));
    }
    if let Some(dest) = learn.result_dst {
        parts.push(format!("result_dst={}", format_subfield(dest, ports)));
    }
    parts.extend(learn.specs.iter().map(|spec| format_spec(spec, ports)));
    format!("learn({})", parts.join(","))
}

fn format_spec(spec: &LearnSpec, ports: &dyn PortNames) -> String {
    match (&spec.source, &spec.dest) {
        (LearnSource::Field(source), LearnDest::Match(dest)) if source == dest => {
            format_subfield(*dest, ports)
        }
        (LearnSource::Field(source), LearnDest::Match(dest)) => {
            format!("{}={}", format_subfield(*dest, ports), format_subfield(*source, ports))
        }
        (LearnSource::Immediate(value), LearnDest::Match(dest)) => {
            if dest.field_mask() == dest.field.full_mask() {
                let value = format_value(dest.field, *value, dest.field.full_mask(), ports);
                format!("{}={value}", dest.field.def().name)
            } else {
                format!("{}={}", format_subfield(*dest, ports), hex(*value))
            }
        }
        (LearnSource::Field(source), LearnDest::Load(dest)) => {
            format!("load:{}->{}", format_subfield(*source, ports), format_subfield(*dest, ports))
        }
        (LearnSource::Immediate(value), LearnDest::Load(dest)) => {
            format!("load:{}->{}", hex(*value), format_subfield(*dest, ports))
        }
        (LearnSource::Field(source), LearnDest::Output) => {
            format!("output:{}", format_subfield(*source, ports))
        }
        (LearnSource::Immediate(value), LearnDest::Output) => format!("output:{}", hex(*value)),
    }
}
