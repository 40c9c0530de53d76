//! `bundle`, `bundle_load`: outputs to a live port of several, or writes its number to a field.

use super::prelude::*;
use crate::action::refer_to;
use crate::put::ofs_nbits;
use crate::rows::subfield;
use crate::text::arguments::{bounded_u16, writable};
use crate::translate::{assign, trace_value};
use flow::flow_hash::{HashFields, rehash};
use flow::text::token::quoted_bytes;
use flow::text::{format_port, format_subfield, parse_port, sub_field};
use flow::{Flow, OfPort, SubField};
use ofp_wire::nxm;

/// Chooses a live member (`NXAST_BUNDLE`, `NXAST_BUNDLE_LOAD`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bundle {
    /// Fields of the hash.
    pub fields: HashFields,
    /// Basis of the hash.
    pub basis: u16,
    /// Choice of a member.
    pub algorithm: MemberAlgorithm,
    /// Ports; `NONE` is always live and drops.
    pub members: Vec<OfPort>,
    /// Destination of the port's number; `None`: outputs the packet.
    pub dest: Option<SubField>,
}

/// Choice of a member (`enum nx_bd_algorithm`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum MemberAlgorithm {
    /// The first live one.
    ActiveBackup,
    /// Highest random weight: packets of a failed member spread over the others.
    Hrw,
}

/// `NXAST_BUNDLE`, `NXAST_BUNDLE_LOAD`.
const NXAST: u16 = 12;
const NXAST_LOAD: u16 = 13;

/// Maximum number of members (`BUNDLE_MAX_MEMBERS`).
const MEMBERS_MAX: usize = 2048;

impl MemberAlgorithm {
    const ALL: [MemberAlgorithm; 2] = [MemberAlgorithm::ActiveBackup, MemberAlgorithm::Hrw];

    fn name(self) -> &'static str {
        match self {
            MemberAlgorithm::ActiveBackup => "active_backup",
            MemberAlgorithm::Hrw => "hrw",
        }
    }
}

impl Bundle {
    /// The member for a packet; `NONE` if none is live. `may_enable`: whether a port is live; reserved ones are.
    fn member(&self, flow: &Flow, mut may_enable: impl FnMut(OfPort) -> bool) -> OfPort {
        let mut is_live = |port: OfPort| port.is_reserved() || may_enable(port);
        let mut live = (0..).zip(&self.members).filter(|(_, port)| is_live(**port));
        let chosen = match self.algorithm {
            MemberAlgorithm::ActiveBackup => live.next(),
            MemberAlgorithm::Hrw => {
                let hash = self.fields.hash(flow, self.basis.into());
                live.max_by_key(|(n, _)| rehash(hash, *n))
            }
        };
        chosen.map_or(OfPort::NONE, |(_, port)| *port)
    }

    fn name(&self) -> &'static str {
        if self.dest.is_some() { "bundle_load" } else { "bundle" }
    }
}

fn read(r: &mut Reader<'_>, is_load: bool) -> Res<Action> {
    let (algorithm, fields, basis) = (r.u16()?, r.u16()?, r.u16()?);
    let (member_type, n_members, range) = (r.u32()?, usize::from(r.u16()?), r.u16()?);
    let mut dest_and_zeros = r.sub(8)?;
    let dest = if is_load {
        let field = nxm::read_action_field(&mut dest_and_zeros)?;
        Some(subfield(field, range, r.options.tlv())?)
    } else if range != 0 {
        return Err(ErrorKind::BacBadArgument);
    } else {
        None
    };
    dest_and_zeros.zeros(ErrorKind::BacBadArgument)?;
    if r.len() < n_members * 2 {
        return Err(ErrorKind::BacBadLen);
    }
    let members = (0..n_members).map(|_| r.u16().map(OfPort::from_of10)).collect::<Res<Vec<_>>>()?;
    let fields = HashFields::ALL.get(usize::from(fields)).ok_or(ErrorKind::BacBadArgument)?;
    let algorithm = MemberAlgorithm::ALL.get(usize::from(algorithm)).ok_or(ErrorKind::BacBadArgument)?;
    let is_valid = member_type == MEMBER_TYPE && n_members <= MEMBERS_MAX;
    if !is_valid || dest.is_some_and(|dest| dest.len_bits < 16) {
        return Err(ErrorKind::BacBadArgument);
    }
    Ok(Box::new(Bundle { fields: *fields, basis, algorithm: *algorithm, members, dest }).into())
}

/// Type of members: `NXM_OF_IN_PORT`.
const MEMBER_TYPE: u32 = 0x0000_0002;

/// The arguments before the members, and the members.
fn split(arg: &str, is_load: bool) -> Option<(Vec<&str>, &str, &str)> {
    let separators = [',', ' '];
    let mut rest = arg;
    let mut heads = Vec::new();
    for _ in 0..if is_load { 5 } else { 4 } {
        rest = rest.trim_start_matches(separators);
        let end = rest.find(separators).unwrap_or(rest.len());
        heads.push(&rest[..end]);
        rest = &rest[end..];
    }
    rest = rest.trim_start_matches([',', ' ', ':']);
    let end = rest.find([':', ' ']).unwrap_or(rest.len());
    let (delimiter, members) = rest.split_at(end);
    (!delimiter.is_empty()).then_some((heads, delimiter, members))
}

/// The next member of a list; the name of a port may be quoted.
fn next_member<'a>(rest: &mut &'a str) -> Parsed<Option<&'a str>> {
    let separators = [':', ',', ' ', '[', ']'];
    let text = rest.trim_start_matches(separators);
    let end =
        if text.starts_with('"') { quoted_bytes(text)? } else { text.find(separators).unwrap_or(text.len()) };
    let (member, behind) = text.split_at(end);
    *rest = behind;
    Ok((!member.is_empty()).then_some(member))
}

fn parse(arg: &str, is_load: bool, ports: &dyn PortNames) -> Parsed<Bundle> {
    let Some((heads, delimiter, members)) = split(arg, is_load) else {
        return fail(arg, format!("{arg}: not enough arguments to bundle action"));
    };
    if !["members", "slaves"].iter().any(|word| delimiter.eq_ignore_ascii_case(word)) {
        let why = format!("{arg}: missing member delimiter, expected `members', got `{delimiter}'");
        return fail(delimiter, why);
    }
    let mut found = Vec::new();
    let mut rest = members;
    while let Some(member) = next_member(&mut rest)? {
        match parse_port(member, ports) {
            Some(port) if found.len() < MEMBERS_MAX => found.push(port),
            Some(_) => return fail(member, format!("{member}: over {MEMBERS_MAX} members")),
            None => return fail(member, format!("{member}: bad port number")),
        }
    }
    let (fields, basis, algorithm, member_type) = (heads[0], heads[1], heads[2], heads[3]);
    let Some(fields) = HashFields::ALL.into_iter().find(|f| f.name().eq_ignore_ascii_case(fields)) else {
        return fail(fields, format!("{arg}: unknown fields `{fields}'"));
    };
    let named = MemberAlgorithm::ALL.into_iter().find(|a| a.name().eq_ignore_ascii_case(algorithm));
    let Some(algorithm) = named else {
        return fail(algorithm, format!("{arg}: unknown algorithm `{algorithm}'"));
    };
    if !member_type.eq_ignore_ascii_case("ofport") {
        return fail(member_type, format!("{arg}: unknown member_type `{member_type}'"));
    }
    let basis = bounded_u16(basis, "basis", u16::MAX)?;
    let dest = heads.get(4).map(|name| destination(arg, name, ports)).transpose()?;
    Ok(Bundle { fields, basis, algorithm, members: found, dest })
}

fn destination(arg: &str, name: &str, ports: &dyn PortNames) -> Parsed<SubField> {
    let dest = sub_field(name, ports)?;
    if !nxm::has_header(dest.field) || nxm::has_long_nx_header(dest.field) {
        return fail(name, format!("{arg}: experimenter OXM field '{name}' not supported"));
    }
    writable(dest.field, name)?;
    if !(16..=64).contains(&dest.len_bits) {
        return fail(name, format!("{arg}: bundle_load needs a destination of 16 to 64 bits"));
    }
    Ok(dest)
}

impl OfAction for Box<Bundle> {
    const NAMES: &'static [&'static str] = &["bundle", "bundle_load"];
    const ROWS: &'static [Row] =
        &[nx(NXAST, Len::Min(32), |r| read(r, false)), nx(NXAST_LOAD, Len::Min(32), |r| read(r, true))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira(w, if self.dest.is_some() { NXAST_LOAD } else { NXAST }, |w| {
            w.u16(self.algorithm as u16);
            w.u16(self.fields as u16);
            w.u16(self.basis);
            w.u32(MEMBER_TYPE);
            w.u16(self.members.len() as u16);
            match self.dest {
                Some(dest) => {
                    w.u16(ofs_nbits(dest));
                    nxm::put_nx_header(w, dest.field);
                }
                None => w.zeros(6),
            }
            w.zeros(4);
            // A port beyond 16 bits has no number here.
            self.members.iter().for_each(|port| w.u16(port.to_of10().unwrap_or(u16::MAX)));
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(Box::new(parse(text.value(), text.name == "bundle_load", text.ports)?).into());
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        let (name, fields, algorithm) = (self.name(), self.fields.name(), self.algorithm.name());
        let dest = self.dest.map(|dest| format_subfield(dest, ports) + ",").unwrap_or_default();
        let members: Vec<String> = self.members.iter().map(|port| format_port(*port, ports)).collect();
        format!("{name}({fields},{},{algorithm},ofport,{dest}members:{})", self.basis, members.join(","))
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        self.dest.map_or(Ok(()), |dest| checker.dest(dest))?;
        for port in self.members.iter().filter(|port| **port != OfPort::NONE) {
            checker.out_port(*port)?;
            if *port == OfPort::CONTROLLER {
                return Err(ErrorKind::BacBadOutPort);
            }
        }
        Ok(())
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        self.dest.map_or(Ok(()), |dest| checker.need(self.name(), dest.field))?;
        // Tables belong to packet-outs, and the controllers need a length.
        let is_bad = |port: &&OfPort| **port == OfPort::CONTROLLER || **port == OfPort::MAX;
        match self.members.iter().find(is_bad) {
            Some(port) => Err(format!("{}: {port} cannot be a member (OFPBAC_BAD_OUT_PORT)", self.name())),
            None => Ok(()),
        }
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    /// As in OVS, members are no output ports of the rule: the packet chooses among them.
    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        if let Some(dest) = self.dest {
            refer_to(dest, visit);
        }
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        if self.algorithm == MemberAlgorithm::Hrw && self.members.len() > 1 {
            let (flow, wc) = x.state();
            self.fields.add_mask(flow, wc);
        }
        let flow = *x.flow();
        let port = self.member(&flow, |port| x.is_live(port));
        match self.dest {
            Some(dest) => {
                assign(x, &dest, port.to_of10().unwrap_or(u16::MAX).into());
                trace_value(x, &dest);
            }
            None => x.output(port, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(algorithm: MemberAlgorithm, members: &[u32]) -> Bundle {
        let members = members.iter().copied().map(OfPort).collect();
        Bundle { fields: HashFields::EthSrc, basis: 7, algorithm, members, dest: None }
    }

    #[test]
    fn the_first_live_member_is_active() {
        for (members, live, chosen) in [
            (&[3, 1, 2][..], &[1, 2, 3][..], OfPort(3)),
            (&[3, 1, 2], &[1, 2], OfPort(1)),
            (&[3, 1], &[2], OfPort::NONE),
            (&[3, OfPort::IN_PORT.0, 1], &[1], OfPort::IN_PORT),
            (&[OfPort::LOCAL.0, OfPort::NONE.0, 1], &[1], OfPort::NONE),
            (&[], &[1], OfPort::NONE),
        ] {
            let b = bundle(MemberAlgorithm::ActiveBackup, members);
            assert_eq!(b.member(&Flow::default(), |port| live.contains(&port.0)), chosen, "{members:?}");
        }
    }

    /// Live members have equal shares, and only packets of a failed one change theirs.
    #[test]
    fn packets_of_a_failed_member_spread_over_the_others() {
        let b = bundle(MemberAlgorithm::Hrw, &[1, 2, 3, 4]);
        let (mut before, mut after) = ([0u32; 5], [0u32; 5]);
        for n in 0..4096u16 {
            let [high, low] = n.to_be_bytes();
            let flow = Flow { dl_src: [2, 0, 0, 0, high, low], ..Flow::default() };
            let all = b.member(&flow, |_| true);
            let without_2 = b.member(&flow, |port| port != OfPort(2));
            assert!(all == without_2 || all == OfPort(2), "{n}: {all} became {without_2}");
            before[all.0 as usize] += 1;
            after[without_2.0 as usize] += 1;
        }
        before[1..].iter().for_each(|n| assert!(n.abs_diff(1024) < 256, "{before:?}"));
        [1, 3, 4].iter().for_each(|n| assert!(after[*n].abs_diff(1365) < 341, "{after:?}"));
        assert_eq!(b.member(&Flow::default(), |_| false), OfPort::NONE);
    }
}
