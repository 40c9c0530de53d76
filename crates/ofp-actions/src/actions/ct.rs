//! `ct`: passes the packet through the connection tracker.

use super::Nat;
use super::prelude::*;
use crate::action::refer_to;
use crate::list::protocols_of;
use crate::nesting::Scope;
use crate::put::ofs_nbits;
use crate::rows::{read_nested, subfield};
use crate::text::arguments::table;
use crate::text::{joined, nested};
use flow::fields::{FieldId, Prereq};
use flow::text::number::parse_u128;
use flow::text::token::Tokens;
use flow::text::{format_subfield, format_table, sub_field};
use flow::{SubField, TableId, ct_state};
use ofp_wire::nxm;
use packet::headers::{IPPROTO_TCP, IPPROTO_UDP};

/// Passes the packet through the connection tracker (`NXAST_CT`).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ct {
    /// Whether to commit the connection.
    pub commit: Commit,
    /// Zone of the connection.
    pub zone: Zone,
    /// Table in which a copy of the tracked packet continues; `None`: there is no copy.
    pub table: Option<TableId>,
    /// Port of the helper's protocol ([`Ct::FTP`], [`Ct::TFTP`]); 0: no helper.
    pub alg: u16,
    /// Actions on the connection: `nat`, and writes of its mark and labels.
    pub actions: Vec<Action>,
}

/// Whether `ct` commits the connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Commit {
    /// Lookup only.
    #[default]
    No,
    /// Commit.
    Yes,
    /// Commit, and remove an existing connection of the opposite direction.
    Force,
}

/// Zone of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Zone {
    /// This number.
    Number(u16),
    /// The value of 16 bits of a field.
    Field(SubField),
}

impl Default for Zone {
    fn default() -> Zone {
        Zone::Number(0)
    }
}

/// `NXAST_CT`.
const NXAST: u16 = 35;
/// `NX_CT_F_COMMIT`.
const COMMIT: u16 = 1;
/// `NX_CT_F_FORCE`.
const FORCE: u16 = 2;
/// `NX_CT_RECIRC_NONE`.
const NO_TABLE: u8 = 0xff;

/// Helpers by name.
const HELPERS: [(&str, u16); 2] = [("ftp", Ct::FTP), ("tftp", Ct::TFTP)];
/// For `nat` with arguments, and all other actions.
const NEEDS_COMMIT: &str =
    "CT action requires commit flag if actions other than NAT without arguments are specified.";

impl Ct {
    /// Port of FTP, which needs TCP.
    pub const FTP: u16 = 21;
    /// Port of TFTP, which needs UDP.
    pub const TFTP: u16 = 69;

    /// Name of the helper, if it is known.
    pub fn helper(&self) -> Option<&'static str> {
        HELPERS.iter().find(|(_, port)| *port == self.alg).map(|(name, _)| *name)
    }

    /// Whether its actions need a commit that it lacks.
    fn lacks_commit(&self) -> bool {
        let plain = |a: &Action| matches!(a, Action::Nat(nat) if **nat == Nat::default());
        self.commit == Commit::No && !self.actions.iter().all(plain)
    }

    /// Whether packets of the match can be tracked in this way.
    fn fits(&self, flow: &flow::Flow) -> bool {
        let proto = match self.alg {
            Ct::FTP => flow.nw_proto == IPPROTO_TCP,
            Ct::TFTP => flow.nw_proto == IPPROTO_UDP,
            _ => true,
        };
        let invalid = self.commit != Commit::No && flow.ct_state & ct_state::INV != 0;
        flow.is_ip() && proto && !invalid
    }
}

fn read(r: &mut Reader<'_>) -> Res<Action> {
    let flags = r.u16()?;
    let commit = match (flags & COMMIT != 0, flags & FORCE != 0) {
        (false, true) => return Err(ErrorKind::BacBadArgument),
        (false, false) => Commit::No,
        (true, false) => Commit::Yes,
        (true, true) => Commit::Force,
    };
    let mut source = r.sub(4)?;
    let number = r.u16()?;
    let zone = if source.peek() == [0; 4] {
        Zone::Number(number)
    } else {
        let is_unmapped = |e: &ErrorKind| *e == ErrorKind::NxfmfcInvalidTlvField;
        let field = nxm::read_action_field(&mut source)
            .map_err(|e| if is_unmapped(&e) { e } else { ErrorKind::BacBadSetType })?;
        let field = subfield(field, number, r.options.tlv())?;
        if field.len_bits != 16 {
            return Err(ErrorKind::BacBadSetLen);
        }
        Zone::Field(field)
    };
    let table = r.u8()?;
    r.skip(3)?;
    let alg = r.u16()?;
    let table = (table != NO_TABLE).then_some(TableId(table));
    let ct = Ct { commit, zone, table, alg, actions: read_nested(r, Scope::Ct)? };
    if ct.lacks_commit() { Err(ErrorKind::BacBadArgument) } else { Ok(Box::new(ct).into()) }
}

fn parse(text: &Argument<'_>) -> Parsed<Ct> {
    let mut ct = Ct::default();
    let (mut commit, mut force) = (false, false);
    let mut tokens = Tokens::new(text.value());
    while let Some(token) = tokens.next_token()? {
        let value = token.value;
        let inner = Argument { token, ..*text };
        match token.key {
            "commit" => commit = true,
            "force" => force = true,
            "table" => {
                ct.table = match table(value, text.ports, || format!("unknown table {value}"))? {
                    TableId::ALL => return fail(value, "invalid table 0xff"),
                    table => Some(table),
                }
            }
            "zone" => ct.zone = parse_zone(value, text.ports)?,
            "alg" => match HELPERS.iter().find(|(name, _)| *name == value) {
                Some((_, port)) => ct.alg = *port,
                None => return fail(value, format!("invalid conntrack helper \"{value}\"")),
            },
            "nat" => Box::<Nat>::parse(&inner, &mut ct.actions)?,
            "exec" => ct.actions.extend(nested(&inner, Scope::Ct)?),
            key => return fail(key, format!("invalid argument to \"ct\" action: `{key}'")),
        }
    }
    ct.commit = match (commit, force) {
        (false, true) => return fail(text.token.key, "\"force\" flag requires \"commit\" flag."),
        (false, false) => Commit::No,
        (true, false) => Commit::Yes,
        (true, true) => Commit::Force,
    };
    if ct.lacks_commit() { fail(text.token.key, NEEDS_COMMIT) } else { Ok(ct) }
}

/// A number of 16 bits, else 16 bits of a field.
fn parse_zone(text: &str, ports: &dyn PortNames) -> Parsed<Zone> {
    if let Some(number) = parse_u128(text).ok().and_then(|n| u16::try_from(n).ok()) {
        return Ok(Zone::Number(number));
    }
    let field = sub_field(text, ports)?;
    match field.len_bits {
        16 => Ok(Zone::Field(field)),
        n => fail(text, format!("zone n_bits {n} not within valid range [16..16]")),
    }
}

impl OfAction for Box<Ct> {
    const NAMES: &'static [&'static str] = &["ct"];
    const ROWS: &'static [Row] = &[nx(NXAST, Len::Min(24), read)];
    const STAGE: Stage = Stage::Apply;
    /// The tracker remembers the packet.
    const REVERSIBLE: bool = false;

    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        nicira(w, NXAST, |w| {
            w.u16(match self.commit {
                Commit::No => 0,
                Commit::Yes => COMMIT,
                Commit::Force => COMMIT | FORCE,
            });
            match self.zone {
                Zone::Number(number) => {
                    w.u32(0);
                    w.u16(number);
                }
                Zone::Field(field) => {
                    nxm::put_nx_header(w, field.field);
                    w.u16(ofs_nbits(field));
                }
            }
            w.u8(self.table.map_or(NO_TABLE, |t| t.0));
            w.zeros(3);
            w.u16(self.alg);
            self.actions.iter().for_each(|a| a.put(w, cx));
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(Box::new(parse(text)?).into());
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        let mut parts = Vec::new();
        match self.commit {
            Commit::No => {}
            Commit::Yes => parts.push("commit".to_string()),
            Commit::Force => parts.push("commit,force".to_string()),
        }
        parts.extend(self.table.map(|t| format!("table={}", format_table(t, ports))));
        match self.zone {
            Zone::Number(0) => {}
            Zone::Number(number) => parts.push(format!("zone={number}")),
            Zone::Field(field) => parts.push(format!("zone={}", format_subfield(field, ports))),
        }
        // Only a first `nat` is an argument of its own.
        let nat_first = matches!(self.actions.first(), Some(Action::Nat(_)));
        let (nat, exec) = self.actions.split_at(usize::from(nat_first));
        parts.extend(nat.iter().map(|a| a.format(ports)));
        if !exec.is_empty() {
            parts.push(format!("exec({})", joined(exec, ports)));
        }
        match self.helper() {
            Some(name) => parts.push(format!("alg={name}")),
            None if self.alg != 0 => parts.push(format!("alg={}", self.alg)),
            None => {}
        }
        format!("ct({})", parts.join(","))
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        if !self.fits(&checker.flow) {
            return Err(ErrorKind::BacMatchInconsistent);
        }
        if let Zone::Field(field) = self.zone {
            checker.source(field)?;
        }
        self.actions.iter().try_for_each(|a| a.check(checker))
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        let mut flow = checker.flow;
        if !Prereq::Connection.holds(&flow, Some(&checker.mask)) {
            flow.ct_state &= !ct_state::TRK;
        }
        if !checker.has(FieldId::NwProto) {
            return checker.need("ct", FieldId::NwProto);
        }
        if !self.fits(&flow) {
            return Err("ct does not fit the match (OFPBAC_MATCH_INCONSISTENT)".to_string());
        }
        if let Zone::Field(field) = self.zone {
            checker.need("ct zone", field.field)?;
        }
        self.actions.iter().try_for_each(|a| a.check_text(checker))
    }

    fn protocols(&self) -> Protocols {
        protocols_of(&self.actions)
    }

    /// The standard permits none in a set; OVS accepts it.
    fn set_place(&self) -> SetPlace {
        SetPlace::WayOut(140)
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        if let Zone::Field(field) = self.zone {
            refer_to(field, visit);
        }
        self.actions.iter().for_each(|a| a.references(visit));
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        x.track(self);
    }
}
