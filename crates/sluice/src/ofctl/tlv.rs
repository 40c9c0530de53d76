//! Mappings of tunnel metadata: `add-tlv-map`, `del-tlv-map`, `dump-tlv-map`.

use super::Run;
use super::connection::Connection;
use anyhow::{Context, Result, bail};
use flow::TlvTable;
use flow::fields::FieldId;
use flow::text::field_by_name;
use flow::text::number::{hex, parse_u128};
use openflow::Message;
use openflow::msg::control::{TlvMap, TlvTableCommand, TlvTableMod};
use std::fmt::Write as _;

/// The mappings that the switch reports; none if it has no such extension.
pub(super) fn maps(connection: &mut Connection) -> Vec<TlvMap> {
    match connection.ask(&Message::TlvTableRequest) {
        Ok((_, Message::TlvTableReply(reply))) => reply.maps,
        _ => Vec::new(),
    }
}

/// The mappings that the switch reports, as a table.
pub(super) fn mappings(connection: &mut Connection) -> TlvTable {
    let mut table = TlvTable::EMPTY;
    for map in maps(connection) {
        // Mappings beyond the limits of this program are left out.
        let _fits = table.add(map.index, map.class, map.ty, map.len_bytes);
    }
    table
}

/// A mapping in the syntax of [`parse`].
pub(super) fn text(map: &TlvMap) -> String {
    let (class, ty) = (hex(map.class.into()), hex(map.ty.into()));
    format!("{{class={class},type={ty},len={}}}->tun_metadata{}", map.len_bytes, map.index)
}

/// `{class=0xffff,type=0,len=4}->tun_metadata0`, several separated by commas.
pub(super) fn parse(text: &str) -> Result<Vec<TlvMap>> {
    let mut maps = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (map, after) = parse_one(rest).context("invalid tlv mapping")?;
        maps.push(map);
        rest = after.trim_start_matches([',', ' ']);
    }
    Ok(maps)
}

fn parse_one(text: &str) -> Option<(TlvMap, &str)> {
    let (option, rest) = text.strip_prefix('{')?.split_once("}->")?;
    let (mut class, mut ty, mut len) = (None, None, None);
    for part in option.split(',') {
        let (name, value) = part.trim().split_once('=')?;
        let value = parse_u128(value).ok()?;
        match name {
            "class" => class = Some(u16::try_from(value).ok()?),
            "type" => ty = Some(u8::try_from(value).ok()?),
            "len" => len = Some(u8::try_from(value).ok()?),
            _ => return None,
        }
    }
    let (name, rest) = rest.split_at(rest.find([',', ' ']).unwrap_or(rest.len()));
    let index = field_by_name(name).and_then(FieldId::metadata_index)?;
    Some((TlvMap { class: class?, ty: ty?, len_bytes: len?, index: index.into() }, rest))
}

fn change(run: &mut Run<'_>, command: TlvTableCommand, maps: Vec<TlvMap>) -> Result<String> {
    run.connection.carry_out(&[Message::TlvTableMod(TlvTableMod { command, maps })])?;
    Ok(String::new())
}

pub(super) fn add_tlv_map(run: &mut Run<'_>, text: &str) -> Result<String> {
    change(run, TlvTableCommand::Add, parse(text)?)
}

pub(super) fn del_tlv_map(run: &mut Run<'_>, text: &str) -> Result<String> {
    let maps = parse(text)?;
    let command = if maps.is_empty() { TlvTableCommand::Clear } else { TlvTableCommand::Delete };
    change(run, command, maps)
}

pub(super) fn dump_tlv_map(run: &mut Run<'_>, _: &str) -> Result<String> {
    let (xid, Message::TlvTableReply(reply)) = run.connection.ask(&Message::TlvTableRequest)? else {
        bail!("the switch gave an answer of another kind");
    };
    let used: u32 = reply.maps.iter().map(|map| u32::from(map.len_bytes)).sum();
    let mut out = format!(
        "NXT_TLV_TABLE_REPLY{} (xid={xid:#x}):\n max option space={} max fields={}\n allocated option space={used}\n\n",
        run.connection.version_text(),
        reply.max_option_bytes,
        reply.max_fields
    );
    out += " mapping table:\n  class  type  length  match field\n ------  ----  ------  --------------\n";
    for map in &reply.maps {
        let (class, ty) = (hex(map.class.into()), hex(map.ty.into()));
        let _ = writeln!(out, " {class:>6}  {ty:>4}  {:>6}  tun_metadata{}", map.len_bytes, map.index);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_parsed() {
        let map = |class, ty, len_bytes, index| TlvMap { class, ty, len_bytes, index };
        let check = |text: &str, want: Option<Vec<TlvMap>>| assert_eq!(parse(text).ok(), want, "{text}");
        check("", Some(vec![]));
        check("{class=0xffff,type=0,len=4}->tun_metadata0", Some(vec![map(0xffff, 0, 4, 0)]));
        check(
            "{class=1,type=0x82,len=124}->tun_metadata63, {class=0,type=2,len=8}->tun_metadata4",
            Some(vec![map(1, 0x82, 124, 63), map(0, 2, 8, 4)]),
        );
        check("{class=1,type=0x182,len=4}->tun_metadata1", None);
        check("{class=1,type=2}->tun_metadata1", None);
        check("{class=1,type=2,len=4}->tun_metadata64", None);
        check("{class=1,type=2,len=4}->reg0", None);
        check("{class=1,type=2,len=4}", None);
    }
}
