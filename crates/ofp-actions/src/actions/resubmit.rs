//! `resubmit`: looks the packet up in a table and continues afterwards.

use super::prelude::*;
use crate::text::arguments::table;
use flow::fields::{FieldId, Prereq};
use flow::text::token::quoted_bytes;
use flow::text::{format_port, format_table, parse_port};
use flow::{OfPort, TableId};

/// Looks the packet up in a table and continues afterwards (`NXAST_RESUBMIT`, `NXAST_RESUBMIT_TABLE`,
/// `NXAST_RESUBMIT_TABLE_CT`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Resubmit {
    /// Input port of the lookup; `IN_PORT` keeps it.
    pub in_port: OfPort,
    /// Table; `None` means the current one.
    pub table: Option<TableId>,
    /// Looks up the addresses and ports of the connection's original direction in place of the packet's own.
    pub ct: bool,
}

/// `NXAST_RESUBMIT`, `NXAST_RESUBMIT_TABLE`, `NXAST_RESUBMIT_TABLE_CT`.
const NXAST: u16 = 1;
const NXAST_TABLE: u16 = 14;
const NXAST_TABLE_CT: u16 = 44;

fn read(r: &mut Reader<'_>) -> Res<Action> {
    Ok(Resubmit { in_port: OfPort::from_of10(r.u16()?), table: None, ct: false }.into())
}

fn read_table(r: &mut Reader<'_>, ct: bool) -> Res<Action> {
    let in_port = OfPort::from_of10(r.u16()?);
    let table = r.u8()?;
    r.zeros(if ct { ErrorKind::BacBadArgument } else { ErrorKind::NxbacMustBeZero })?;
    Ok(Resubmit { in_port, table: (table != 0xff).then_some(TableId(table)), ct }.into())
}

fn parse(text: &Argument<'_>) -> Parsed<Resubmit> {
    let arg = text.value().trim_start();
    let port_bytes =
        if arg.starts_with('"') { quoted_bytes(arg)? } else { arg.find(',').unwrap_or(arg.len()) };
    let (port_text, behind) = arg.split_at(port_bytes);
    let port_text = port_text.trim();
    let mut parts = behind.split(',').map(str::trim);
    if let Some(extra) = parts.next().filter(|extra| !extra.is_empty()) {
        return fail(extra, format!("{extra}: unexpected text behind port name"));
    }
    let table_text = parts.next().unwrap_or_default();
    let ct = match parts.next() {
        Some("ct") => true,
        Some(other) => return fail(other, format!("{other}: unknown parameter")),
        None => false,
    };
    let in_port = match port_text {
        "" => OfPort::IN_PORT,
        name => match parse_port(name, text.ports) {
            Some(port) => port,
            None => return fail(name, format!("{name}: resubmit to unknown port")),
        },
    };
    let table = match table_text {
        "" => None,
        number => {
            let unknown = || format!("{number}: resubmit to unknown table");
            Some(table(number, text.ports, unknown)?).filter(|t| *t != TableId::ALL)
        }
    };
    if in_port == OfPort::IN_PORT && table.is_none() {
        let why = "at least one \"in_port\" or \"table\" must be specified on resubmit";
        return fail(text.token.key, why);
    }
    Ok(Resubmit { in_port, table, ct })
}

impl OfAction for Resubmit {
    const NAMES: &'static [&'static str] = &["resubmit"];
    const ROWS: &'static [Row] = &[
        nx(NXAST, Len::Is(16), read),
        nx(NXAST_TABLE, Len::Is(16), |r| read_table(r, false)),
        nx(NXAST_TABLE_CT, Len::Is(16), |r| read_table(r, true)),
    ];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira(w, if self.ct { NXAST_TABLE_CT } else { NXAST_TABLE }, |w| {
            w.u16(self.in_port.to_of10().unwrap_or(0xffff));
            w.u8(self.table.map_or(0xff, |t| t.0));
            w.zeros(3);
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(parse(text)?.into());
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        let keeps_port = self.in_port == OfPort::IN_PORT;
        let port = if keeps_port { String::new() } else { format_port(self.in_port, ports) };
        // OVS loses `ct` of a resubmit to the current table.
        if self.table.is_none() && !keeps_port && !self.ct {
            return format!("resubmit:{port}");
        }
        let table = self.table.map_or(String::new(), |t| format_table(t, ports));
        format!("resubmit({port},{table}{})", if self.ct { ",ct" } else { "" })
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        let known = !self.ct || Prereq::Connection.holds(&checker.flow, None);
        if known { Ok(()) } else { Err(ErrorKind::BacMatchInconsistent) }
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        if self.ct { checker.need("resubmit", FieldId::CtNwProto) } else { Ok(()) }
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    /// The standard permits none in a set; OVS accepts it.
    fn set_place(&self) -> SetPlace {
        SetPlace::WayOut(120)
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        let in_port = Some(self.in_port).filter(|port| *port != OfPort::IN_PORT);
        x.resubmit(self.table, in_port, self.ct, false);
    }
}
