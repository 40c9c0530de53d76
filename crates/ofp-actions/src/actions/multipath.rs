//! `multipath`: writes the number of a link, chosen by a hash, to a field.

use super::prelude::*;
use crate::action::refer_to;
use crate::put::ofs_nbits;
use crate::rows::subfield;
use crate::text::arguments::{bounded_u16, writable};
use crate::translate::{assign, trace_value};
use flow::flow_hash::{HashFields, rehash};
use flow::text::number::u32_argument;
use flow::text::{format_subfield, sub_field};
use flow::{Flow, SubField};
use ofp_wire::nxm;

/// Writes the number of a link to a field (`NXAST_MULTIPATH`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Multipath {
    /// Fields of the hash.
    pub fields: HashFields,
    /// Basis of the hash.
    pub basis: u16,
    /// Choice of a link.
    pub algorithm: LinkAlgorithm,
    /// Greatest number of a link; they begin at 0.
    pub max_link: u16,
    /// Unused by all algorithms, and kept.
    pub arg: u32,
    /// Destination, wide enough for all links.
    pub dest: SubField,
}

/// Choice of a link by a hash (`enum nx_mp_algorithm`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum LinkAlgorithm {
    /// Remainder.
    ModuloN,
    /// Equal ranges of hashes.
    HashThreshold,
    /// Highest random weight: a new link takes its share evenly from the others.
    Hrw,
    /// Repeated hashes until one is the number of a link.
    IterHash,
}

/// `NXAST_MULTIPATH`.
const NXAST: u16 = 10;

/// Hashes tried by [`LinkAlgorithm::IterHash`]; each succeeds with a probability of at least 1/2.
const ITERATIONS_MAX: u32 = 64;

impl LinkAlgorithm {
    const ALL: [LinkAlgorithm; 4] =
        [LinkAlgorithm::ModuloN, LinkAlgorithm::HashThreshold, LinkAlgorithm::Hrw, LinkAlgorithm::IterHash];

    fn name(self) -> &'static str {
        match self {
            LinkAlgorithm::ModuloN => "modulo_n",
            LinkAlgorithm::HashThreshold => "hash_threshold",
            LinkAlgorithm::Hrw => "hrw",
            LinkAlgorithm::IterHash => "iter_hash",
        }
    }
}

impl Multipath {
    /// The number of the link of a packet.
    pub fn link(&self, flow: &Flow) -> u16 {
        let hash = self.fields.hash(flow, self.basis.into());
        let n_links = u32::from(self.max_link) + 1;
        let link = match self.algorithm {
            LinkAlgorithm::ModuloN => hash % n_links,
            LinkAlgorithm::HashThreshold => ((u64::from(hash) * u64::from(n_links)) >> 32) as u32,
            LinkAlgorithm::Hrw => (0..n_links).max_by_key(|link| rehash(hash, *link)).unwrap_or(0),
            LinkAlgorithm::IterHash => {
                let range = n_links.next_power_of_two();
                let tries = (0..ITERATIONS_MAX).map(|n| rehash(hash, n) % range);
                tries.into_iter().find(|link| *link < n_links).unwrap_or(hash % n_links)
            }
        };
        link as u16
    }
}

fn read(r: &mut Reader<'_>) -> Res<Action> {
    let (fields, basis) = (r.u16()?, r.u16()?);
    r.skip(2)?;
    let (algorithm, max_link, arg) = (r.u16()?, r.u16()?, r.u32()?);
    r.skip(2)?;
    let range = r.u16()?;
    let dest = subfield(nxm::read_short_action_field(r)?, range, r.options.tlv())?;
    let fields = HashFields::ALL.get(usize::from(fields)).ok_or(ErrorKind::BacBadArgument)?;
    let algorithm = LinkAlgorithm::ALL.get(usize::from(algorithm)).ok_or(ErrorKind::BacBadArgument)?;
    if dest.len_bits < 16 && max_link >> dest.len_bits != 0 {
        return Err(ErrorKind::BacBadArgument);
    }
    Ok(Multipath { fields: *fields, basis, algorithm: *algorithm, max_link, arg, dest }.into())
}

fn parse(arg: &str, ports: &dyn PortNames) -> Parsed<Multipath> {
    let parts: Vec<&str> = arg.split([',', ' ']).filter(|part| !part.is_empty()).collect();
    let [fields, basis, algorithm, n_links, number, name] = parts[..] else {
        let why = if parts.len() < 6 { "not enough" } else { "too many" };
        return fail(arg, format!("{arg}: {why} arguments to multipath action"));
    };
    let Some(fields) = HashFields::ALL.into_iter().find(|f| f.name().eq_ignore_ascii_case(fields)) else {
        return fail(fields, format!("{arg}: unknown fields `{fields}'"));
    };
    let Some(algorithm) = LinkAlgorithm::ALL.into_iter().find(|a| a.name() == algorithm) else {
        return fail(algorithm, format!("{arg}: unknown algorithm `{algorithm}'"));
    };
    let max_link = match n_links.parse::<u32>().ok().and_then(|n| n.checked_sub(1)).map(u16::try_from) {
        Some(Ok(max_link)) => max_link,
        _ => return fail(n_links, format!("{arg}: n_links {n_links} is not in valid range 1 to 65536")),
    };
    let dest = sub_field(name, ports)?;
    writable(dest.field, name)?;
    let width = dest.len_bits;
    if width > 64 {
        return fail(name, format!("{arg}: destination field has more than 64 bits"));
    }
    if width < 16 && max_link >> width != 0 {
        let (values, n) = (1u32 << width, u32::from(max_link) + 1);
        let why = format!(
            "{arg}: {width}-bit destination field has {values} possible values, less than specified n_links {n}"
        );
        return fail(n_links, why);
    }
    let basis = bounded_u16(basis, "basis", u16::MAX)?;
    Ok(Multipath { fields, basis, algorithm, max_link, arg: u32_argument(number)?, dest })
}

impl OfAction for Multipath {
    const NAMES: &'static [&'static str] = &["multipath"];
    const ROWS: &'static [Row] = &[nx(NXAST, Len::Is(32), read)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira(w, NXAST, |w| {
            w.u16(self.fields as u16);
            w.u16(self.basis);
            w.zeros(2);
            w.u16(self.algorithm as u16);
            w.u16(self.max_link);
            w.u32(self.arg);
            w.zeros(2);
            w.u16(ofs_nbits(self.dest));
            nxm::put_nx_header(w, self.dest.field);
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(parse(text.value(), text.ports)?.into());
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        let (fields, algorithm, dest) =
            (self.fields.name(), self.algorithm.name(), format_subfield(self.dest, ports));
        let n_links = u32::from(self.max_link) + 1;
        format!("multipath({fields},{},{algorithm},{n_links},{},{dest})", self.basis, self.arg)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.dest(self.dest)
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        checker.need("multipath", self.dest.field)
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        refer_to(self.dest, visit);
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        let (flow, wc) = x.state();
        self.fields.add_mask(flow, wc);
        let link = self.link(flow);
        assign(x, &self.dest, link.into());
        trace_value(x, &self.dest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All algorithms use all links about evenly, and no others.
    #[test]
    fn packets_spread_over_all_links() {
        let dest = SubField::whole(flow::fields::FieldId::Reg0);
        for algorithm in LinkAlgorithm::ALL {
            for max_link in [0, 4, 15] {
                let fields = HashFields::EthSrc;
                let multipath = Multipath { fields, basis: 7, algorithm, max_link, arg: 0, dest };
                let mut of = vec![0u32; usize::from(max_link) + 1];
                for n in 0..4096u16 {
                    let [a, b] = n.to_be_bytes();
                    let flow = Flow { dl_src: [2, 0, 0, 0, a, b], ..Flow::default() };
                    of[usize::from(multipath.link(&flow))] += 1;
                }
                let share = 4096 / of.len() as u32;
                of.iter().for_each(|n| assert!(n.abs_diff(share) <= share / 2, "{algorithm:?}: {of:?}"));
            }
        }
    }
}
