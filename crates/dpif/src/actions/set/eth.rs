//! `set(eth(…))`.

use super::Header;
use super::content::{Content, Masked, join, part, put_masked};
use crate::actions::prelude::*;
use crate::text::sets;
use crate::text::write::Fields;

/// Ethernet addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct EthSet {
    /// Source.
    pub src: [u8; 6],
    /// Destination.
    pub dst: [u8; 6],
}

/// `OVS_KEY_ATTR_ETHERNET`.
const KEY: u16 = 4;

/// See the module documentation.
pub(super) struct Eth;

impl Header for Eth {
    type Value = Masked<EthSet>;
    const NAME: &'static str = "eth";
    const KEY: Option<u16> = Some(KEY);
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(_can: &Capabilities) -> Option<&'static str> {
        None
    }

    fn format(value: &Masked<EthSet>) -> String {
        let mut f = Fields::new(false);
        sets::put_eth(&mut f, value);
        f.finish(Self::NAME)
    }

    fn parse(item: &Item<'_>) -> Result<Masked<EthSet>, TextError> {
        sets::eth(item)
    }

    fn write(value: &Masked<EthSet>, out: &mut AttrWriter) -> Result<(), ActionError> {
        let bytes = |e: &EthSet| join::<12>(&[&e.src, &e.dst]);
        put_masked(out, KEY, bytes(&value.value), bytes(&value.mask));
        Ok(())
    }

    fn read(content: &Content<'_>) -> Result<Masked<EthSet>, ActionError> {
        content.masked([0xff; 12], |b| EthSet { src: part(b, 0), dst: part(b, 6) })
    }
}
