//! `sample`: exports some packets to a set of collectors.
//!
//! Versions of the wire form: 1 has probability, set and numbers; 2 a port; 3 a direction; 4 (OVS 3.4) fields in place
//! of numbers. The first that has all of an action's parts is written.

use super::prelude::*;
use crate::action::refer_to;
use crate::put::ofs_nbits;
use crate::rows::subfield;
use flow::text::number::{u16_named, u32_argument};
use flow::text::token::Tokens;
use flow::text::{format_port, format_subfield, parse_port, sub_field};
use flow::{OfPort, SubField};
use ofp_wire::nxm;

/// Exports packets with a probability (`NXAST_SAMPLE`, `NXAST_SAMPLE2` to `4`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SampleFlow {
    /// Sampled packets out of 65535, at least 1.
    pub probability: u16,
    /// Set of collectors (`Flow_Sample_Collector_Set` of the database).
    pub collector_set: u32,
    /// Observation domain in the exported records.
    pub domain: SampleId,
    /// Observation point in the exported records.
    pub point: SampleId,
    /// Sampled port in the exported records; `NONE`: none.
    pub port: OfPort,
    /// Direction in the exported records.
    pub direction: SampleDirection,
}

/// A number in exported records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SampleId {
    /// A number for all packets.
    Number(u32),
    /// In a field, of at most 32 bits.
    Field(SubField),
}

/// Direction of sampled packets (`enum nx_action_sample_direction`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum SampleDirection {
    /// Egress if the packet leaves by the sampled port, else ingress.
    ByPort,
    /// Ingress.
    Ingress,
    /// Egress.
    Egress,
}

/// `NXAST_SAMPLE` and later forms.
const NXAST: [u16; 4] = [29, 38, 41, 51];

/// Bits of a number in exported records.
const ID_BITS: u16 = 32;

impl SampleId {
    fn parse(text: &str, key: &str, ports: &dyn PortNames) -> Parsed<SampleId> {
        if text.bytes().next().is_none_or(|b| b.is_ascii_digit()) {
            return u32_argument(text).map(SampleId::Number);
        }
        let range = sub_field(text, ports)?;
        if range.len_bits > ID_BITS {
            let bits = range.len_bits;
            return fail(text, format!("size of {key} field ({bits}) exceeds maximum ({ID_BITS})"));
        }
        Ok(SampleId::Field(range))
    }

    fn format(self, ports: &dyn PortNames) -> String {
        match self {
            SampleId::Number(n) => n.to_string(),
            SampleId::Field(range) => format_subfield(range, ports),
        }
    }

    fn read(r: &mut Reader<'_>) -> Res<SampleId> {
        let mut header = r.sub(4)?;
        if header.peek() == [0; 4] {
            return Ok(SampleId::Number(r.u32()?));
        }
        let field = nxm::read_short_action_field(&mut header)?;
        let range = subfield(field, r.u16()?, r.options.tlv())?;
        r.skip(2)?;
        if range.len_bits > ID_BITS { Err(ErrorKind::BacBadArgument) } else { Ok(SampleId::Field(range)) }
    }

    fn put(self, w: &mut Writer) {
        match self {
            SampleId::Number(n) => {
                w.u32(0);
                w.u32(n);
            }
            SampleId::Field(range) => {
                nxm::put_nx_header(w, range.field);
                w.u16(ofs_nbits(range));
                w.zeros(2);
            }
        }
    }

    fn field(self) -> Option<SubField> {
        match self {
            SampleId::Number(_) => None,
            SampleId::Field(range) => Some(range),
        }
    }
}

impl SampleFlow {
    fn fields(&self) -> impl Iterator<Item = SubField> {
        [self.domain, self.point].into_iter().filter_map(SampleId::field)
    }

    /// The first wire form that has all parts.
    fn form(&self) -> usize {
        if self.fields().next().is_some() {
            4
        } else if self.direction != SampleDirection::ByPort {
            3
        } else if self.port != OfPort::NONE {
            2
        } else {
            1
        }
    }
}

fn read(r: &mut Reader<'_>, form: u8) -> Res<Action> {
    let (probability, collector_set) = (r.u16()?, r.u32()?);
    let (domain, point) = if form == 4 {
        (SampleId::read(r)?, SampleId::read(r)?)
    } else {
        (SampleId::Number(r.u32()?), SampleId::Number(r.u32()?))
    };
    let port = if form > 1 { OfPort::from_of10(r.u16()?) } else { OfPort::NONE };
    let direction = match if form > 2 { r.u8()? } else { 0 } {
        0 => SampleDirection::ByPort,
        1 => SampleDirection::Ingress,
        2 => SampleDirection::Egress,
        _ => return Err(ErrorKind::BacBadArgument),
    };
    if form > 2 {
        r.zeros(ErrorKind::NxbrcMustBeZero)?;
    }
    if probability == 0 {
        return Err(ErrorKind::BacBadArgument);
    }
    Ok(SampleFlow { probability, collector_set, domain, point, port, direction }.into())
}

fn parse(arg: &str, ports: &dyn PortNames) -> Parsed<SampleFlow> {
    let mut sample = SampleFlow {
        probability: 0,
        collector_set: 0,
        domain: SampleId::Number(0),
        point: SampleId::Number(0),
        port: OfPort::NONE,
        direction: SampleDirection::ByPort,
    };
    let mut tokens = Tokens::new(arg);
    while let Some(token) = tokens.next_token()? {
        let value = token.value;
        match token.key {
            "probability" => match u16_named(value, "probability")? {
                0 => return fail(value, format!("invalid probability value \"{value}\"")),
                probability => sample.probability = probability,
            },
            "collector_set_id" => sample.collector_set = u32_argument(value)?,
            "obs_domain_id" => sample.domain = SampleId::parse(value, token.key, ports)?,
            "obs_point_id" => sample.point = SampleId::parse(value, token.key, ports)?,
            "sampling_port" => match parse_port(value, ports) {
                Some(port) => sample.port = port,
                None => return fail(value, format!("{value}: unknown port")),
            },
            "ingress" => sample.direction = SampleDirection::Ingress,
            "egress" => sample.direction = SampleDirection::Egress,
            key => return fail(token.key, format!("invalid key \"{key}\" in \"sample\" argument")),
        }
    }
    if sample.probability == 0 {
        return fail(arg, "non-zero \"probability\" must be specified on sample");
    }
    Ok(sample)
}

impl OfAction for SampleFlow {
    const NAMES: &'static [&'static str] = &["sample"];
    const ROWS: &'static [Row] = &[
        nx(NXAST[0], Len::Is(24), |r| read(r, 1)),
        nx(NXAST[1], Len::Is(32), |r| read(r, 2)),
        nx(NXAST[2], Len::Is(32), |r| read(r, 3)),
        nx(NXAST[3], Len::Is(40), |r| read(r, 4)),
    ];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        let form = self.form();
        nicira(w, NXAST[form - 1], |w| {
            w.u16(self.probability);
            w.u32(self.collector_set);
            for id in [self.domain, self.point] {
                match id {
                    SampleId::Number(n) if form < 4 => w.u32(n),
                    SampleId::Number(_) | SampleId::Field(_) => id.put(w),
                }
            }
            if form > 1 {
                w.u16(self.port.to_of10().unwrap_or(u16::MAX));
                w.u8(self.direction as u8);
                w.zeros(5);
            }
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(parse(text.value(), text.ports)?.into());
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        let (domain, point) = (self.domain.format(ports), self.point.format(ports));
        let mut text = format!(
            "sample(probability={},collector_set_id={},obs_domain_id={domain},obs_point_id={point}",
            self.probability, self.collector_set
        );
        if self.port != OfPort::NONE {
            text += &format!(",sampling_port={}", format_port(self.port, ports));
        }
        text += match self.direction {
            SampleDirection::ByPort => ")",
            SampleDirection::Ingress => ",ingress)",
            SampleDirection::Egress => ",egress)",
        };
        text
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        self.fields().try_for_each(|range| checker.source(range))
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        self.fields().try_for_each(|range| checker.need("sample", range.field))
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        self.fields().for_each(|range| refer_to(range, visit));
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        x.sample(self);
    }
}
