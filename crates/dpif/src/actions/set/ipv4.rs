//! `set(ipv4(…))`.

use super::Header;
use super::content::{Content, Masked, join, part, put_masked};
use crate::actions::prelude::*;
use crate::text::sets::{self, nothing_more};
use crate::text::write::Fields;

/// IPv4 header fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ipv4Set {
    /// Source.
    pub src: u32,
    /// Destination.
    pub dst: u32,
    /// Type of service.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
}

/// `OVS_KEY_ATTR_IPV4`.
const KEY: u16 = 7;

/// Offsets of the protocol and the fragment bits, which are never rewritten.
const FIXED: [usize; 2] = [8, 11];

/// See the module documentation.
pub(super) struct Ipv4;

fn bytes(ip: &Ipv4Set) -> [u8; 12] {
    join(&[&ip.src.to_be_bytes(), &ip.dst.to_be_bytes(), &[0, ip.tos, ip.ttl, 0]])
}

impl Header for Ipv4 {
    type Value = Masked<Ipv4Set>;
    const NAME: &'static str = "ipv4";
    const KEY: Option<u16> = Some(KEY);
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(_can: &Capabilities) -> Option<&'static str> {
        None
    }

    fn format(value: &Masked<Ipv4Set>) -> String {
        let mut f = Fields::new(false);
        sets::put_ipv4(&mut f, value, None);
        f.finish(Self::NAME)
    }

    fn parse(item: &Item<'_>) -> Result<Masked<Ipv4Set>, TextError> {
        sets::ipv4_header(item, &mut nothing_more)
    }

    fn write(value: &Masked<Ipv4Set>, out: &mut AttrWriter) -> Result<(), ActionError> {
        put_masked(out, KEY, bytes(&value.value), bytes(&value.mask));
        Ok(())
    }

    fn read(content: &Content<'_>) -> Result<Masked<Ipv4Set>, ActionError> {
        content.none_of(&FIXED)?;
        let mut all = [0xff; 12];
        FIXED.iter().for_each(|at| all[*at] = 0);
        content.masked(all, |b| Ipv4Set {
            src: u32::from_be_bytes(part(b, 0)),
            dst: u32::from_be_bytes(part(b, 4)),
            tos: b[9],
            ttl: b[10],
        })
    }
}
