//! `hash`: sets `dp_hash`, matched after recirculation.

use super::prelude::*;
use crate::text::values::number;

/// Algorithms of [`HashAction`] (`enum ovs_hash_alg`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashAlgorithm {
    /// Over addresses, protocol and ports.
    L4 = 0,
    /// Symmetric: the same value in both directions.
    SymL4 = 1,
}

impl HashAlgorithm {
    const ALL: [HashAlgorithm; 2] = [HashAlgorithm::L4, HashAlgorithm::SymL4];

    /// Its word in text.
    fn name(self) -> &'static str {
        match self {
            HashAlgorithm::L4 => "l4",
            HashAlgorithm::SymL4 => "sym_l4",
        }
    }
}

/// Sets `dp_hash`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HashAction {
    /// Algorithm.
    pub algorithm: HashAlgorithm,
    /// Basis.
    pub basis: u32,
}

/// `OVS_ACTION_ATTR_HASH`.
const ATTR: u16 = 8;

impl Action for HashAction {
    const WORDS: &'static [Word] = &[call("hash")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;

    fn is_translated(&self) -> bool {
        true
    }

    fn userspace_lacks(&self) -> Option<&'static str> {
        None
    }

    fn lacking(&self, can: &Capabilities) -> Option<&'static str> {
        (self.algorithm as u8 > can.max_hash_algorithm).then_some("hash")
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        Some(Rewrite::Hash(*self))
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.rewrite(packets, Rewrite::Hash(*self))
    }

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        format!("hash({}({}))", self.algorithm.name(), self.basis)
    }

    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<HashAction, TextError> {
        let [one] = item.args()? else {
            return Err(TextError("hash: exactly one algorithm expected".into()));
        };
        let algorithm = HashAlgorithm::ALL.into_iter().find(|a| a.name() == one.name);
        let algorithm = algorithm.ok_or_else(|| one.unknown("hash"))?;
        Ok(HashAction { algorithm, basis: number(one.word()?, u32::MAX.into())? as u32 })
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.put(ATTR, &[(self.algorithm as u32).to_ne_bytes(), self.basis.to_ne_bytes()].concat());
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<HashAction, ActionError> {
        let [a, b, c, d, basis @ ..] = attr.array::<8>()?;
        let number = u32::from_ne_bytes([a, b, c, d]);
        let algorithm = HashAlgorithm::ALL.into_iter().find(|a| *a as u32 == number);
        Ok(HashAction { algorithm: algorithm.ok_or(ActionError::Foreign)?, basis: u32::from_ne_bytes(basis) })
    }
}
