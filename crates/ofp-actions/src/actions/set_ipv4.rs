//! `mod_nw_src`, `mod_nw_dst`: set an IPv4 address.

use super::prelude::*;
use crate::put::put_set;
use crate::text::arguments::ipv4;
use crate::translate::set_nw;
use flow::fields::FieldId;
use flow::text;
use packet::headers::ETH_TYPE_IP;

/// The type in OpenFlow 1.1 is one less than in 1.0.
fn put(w: &mut Writer, ty10: u16, field: FieldId, address: u32) {
    if w.version < Version::V12 {
        standard(w, if w.version == Version::V10 { ty10 } else { ty10 - 1 }, |w| w.u32(address));
    } else {
        put_set(w, field, address.into());
    }
}

/// A setter of one address: name, type in OpenFlow 1.0, field.
macro_rules! set_address {
    ($(#[$doc:meta])* $action:ident, $name:literal, $ty:literal, $field:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $action(pub u32);

        impl OfAction for $action {
            const NAMES: &'static [&'static str] = &[$name];
            const ROWS: &'static [Row] = &[
                of10($ty, 8, |r| Ok($action(r.u32()?).into())),
                setter11($ty - 1, 8, |r| Ok($action(r.u32()?).into())),
            ];
            writes_a_field!();

            fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
                put(w, $ty, FieldId::$field, self.0);
            }

            fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
                out.push($action(ipv4(text.value())?).into());
                Ok(())
            }

            fn format(&self, _ports: &dyn PortNames) -> String {
                format!("{}:{}", $name, text::ipv4(self.0))
            }

            fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
                checker.fits(checker.flow.effective_type() == ETH_TYPE_IP)
            }

            fn translate<X: Translator>(&self, x: &mut X) {
                set_nw(x, FieldId::$field, self.0.into());
            }
        }
    };
}

set_address! {
    /// Sets the source (`OFPAT_SET_NW_SRC`).
    SetIpv4Src, "mod_nw_src", 6, IpSrc
}

set_address! {
    /// Sets the destination (`OFPAT_SET_NW_DST`).
    SetIpv4Dst, "mod_nw_dst", 7, IpDst
}
