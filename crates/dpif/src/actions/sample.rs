//! `sample`: actions on a copy of some packets.

use super::prelude::*;
use super::text::format_actions;

/// Executes actions on a copy with a probability of `probability / u32::MAX`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sample {
    /// Probability.
    pub probability: u32,
    /// Actions for the copy.
    pub actions: Vec<DpAction>,
}

/// `OVS_SAMPLE_ATTR_*`.
mod attr {
    pub(super) const PROBABILITY: u16 = 1;
    pub(super) const ACTIONS: u16 = 2;
}

/// `OVS_ACTION_ATTR_SAMPLE`.
const ATTR: u16 = 6;

impl Action for Sample {
    const WORDS: &'static [Word] = &[call("sample")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        [Some(&self.actions), None]
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn format(&self, names: &dyn PortNames) -> String {
        let percent = 100.0 * f64::from(self.probability) / f64::from(u32::MAX);
        format!("sample(sample={percent:.1}%,actions({}))", format_actions(&self.actions, names))
    }

    fn parse(item: &Item<'_>, parser: &Parser<'_>) -> Result<Sample, TextError> {
        let (mut probability, mut actions) = (None, Vec::new());
        for field in item.args()? {
            match field.name {
                "sample" => probability = Some(parse_percent(field.value()?)?),
                "actions" => actions = parser.list(field.args()?)?,
                _ => return Err(field.unknown(item.name)),
            }
        }
        let probability =
            probability.ok_or_else(|| TextError("sample: sample=PERCENT% is missing".into()))?;
        Ok(Sample { probability, actions })
    }

    fn write(&self, out: &mut AttrWriter, writer: &Writer<'_>) -> Result<(), ActionError> {
        out.nested(ATTR, |out| {
            out.u32(attr::PROBABILITY, self.probability);
            out.nested(attr::ACTIONS, |out| writer.list(out, &self.actions))
        })
    }

    fn read(attr: &Attr<'_>, reader: &Reader) -> Result<Sample, ActionError> {
        let inner = attr.nested()?;
        let probability = inner.require(attr::PROBABILITY)?.u32()?;
        let actions = reader.list(inner.require(attr::ACTIONS)?.nested()?)?;
        Ok(Sample { probability, actions })
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.sample(packets, self.probability, &self.actions)
    }
}

fn parse_percent(text: &str) -> Result<u32, TextError> {
    let percent = text.strip_suffix('%').and_then(|t| t.parse::<f64>().ok());
    let percent = percent.filter(|p| (0.0..=100.0).contains(p));
    let percent = percent.ok_or_else(|| TextError(format!("sample: {text:?} is not 0% to 100%")))?;
    Ok((percent / 100.0 * f64::from(u32::MAX)).round() as u32)
}
