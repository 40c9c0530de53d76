//! `set(ipv6(…))`.

use super::Header;
use super::content::{Content, Masked, join, part, put_masked};
use crate::actions::prelude::*;
use crate::text::sets::{self, nothing_more};
use crate::text::write::Fields;

/// IPv6 header fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ipv6Set {
    /// Source.
    pub src: [u8; 16],
    /// Destination.
    pub dst: [u8; 16],
    /// Flow label, 20 bits.
    pub label: u32,
    /// Traffic class.
    pub tclass: u8,
    /// Hop limit.
    pub hlimit: u8,
}

/// `OVS_KEY_ATTR_IPV6`.
const KEY: u16 = 8;

/// Offsets of the protocol and the fragment bits, which are never rewritten.
const FIXED: [usize; 2] = [36, 39];

/// See the module documentation.
pub(super) struct Ipv6;

fn bytes(ip: &Ipv6Set) -> [u8; 40] {
    let label = (ip.label & 0xf_ffff).to_be_bytes();
    join(&[&ip.src, &ip.dst, &label, &[0, ip.tclass, ip.hlimit, 0]])
}

impl Header for Ipv6 {
    type Value = Masked<Ipv6Set>;
    const NAME: &'static str = "ipv6";
    const KEY: Option<u16> = Some(KEY);
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(_can: &Capabilities) -> Option<&'static str> {
        None
    }

    fn format(value: &Masked<Ipv6Set>) -> String {
        let mut f = Fields::new(false);
        sets::put_ipv6(&mut f, value, None);
        f.finish(Self::NAME)
    }

    fn parse(item: &Item<'_>) -> Result<Masked<Ipv6Set>, TextError> {
        sets::ipv6_header(item, &mut nothing_more)
    }

    fn write(value: &Masked<Ipv6Set>, out: &mut AttrWriter) -> Result<(), ActionError> {
        put_masked(out, KEY, bytes(&value.value), bytes(&value.mask));
        Ok(())
    }

    fn read(content: &Content<'_>) -> Result<Masked<Ipv6Set>, ActionError> {
        content.none_of(&FIXED)?;
        let mut all = [0xff; 40];
        FIXED.iter().for_each(|at| all[*at] = 0);
        // A label has 20 bits.
        (all[32], all[33]) = (0, 0x0f);
        content.masked(all, |b| Ipv6Set {
            src: part(b, 0),
            dst: part(b, 16),
            label: u32::from_be_bytes(part(b, 32)),
            tclass: b[37],
            hlimit: b[38],
        })
    }
}
