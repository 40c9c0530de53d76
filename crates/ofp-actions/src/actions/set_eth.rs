//! `mod_dl_src`, `mod_dl_dst`: set an Ethernet address.

use super::prelude::*;
use crate::put::put_set;
use crate::text::arguments::mac;
use crate::translate::set_whole;
use flow::MacAddr;
use flow::fields::FieldId;

/// The type in OpenFlow 1.1 is one less than in 1.0.
fn put(w: &mut Writer, ty10: u16, field: FieldId, mac: MacAddr) {
    if w.version < Version::V12 {
        standard(w, if w.version == Version::V10 { ty10 } else { ty10 - 1 }, |w| {
            w.bytes(&mac.0);
            w.zeros(6);
        });
    } else {
        put_set(w, field, mac.to_u64().into());
    }
}

/// A setter of one address: name, type in OpenFlow 1.0, field.
macro_rules! set_address {
    ($(#[$doc:meta])* $action:ident, $name:literal, $ty:literal, $field:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $action(pub MacAddr);

        impl OfAction for $action {
            const NAMES: &'static [&'static str] = &[$name];
            const ROWS: &'static [Row] = &[
                of10($ty, 16, |r| Ok($action(MacAddr(r.array()?)).into())),
                setter11($ty - 1, 16, |r| Ok($action(MacAddr(r.array()?)).into())),
            ];
            writes_a_field!();

            fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
                put(w, $ty, FieldId::$field, self.0);
            }

            fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
                out.push($action(mac(text.value())?).into());
                Ok(())
            }

            fn format(&self, _ports: &dyn PortNames) -> String {
                format!("{}:{}", $name, self.0)
            }

            fn check(&self, _checker: &mut Checker<'_>) -> Res<()> {
                Ok(())
            }

            fn translate<X: Translator>(&self, x: &mut X) {
                set_whole(x, FieldId::$field, self.0.to_u64().into());
            }
        }
    };
}

set_address! {
    /// Sets the source (`OFPAT_SET_DL_SRC`).
    SetEthSrc, "mod_dl_src", 4, EthSrc
}

set_address! {
    /// Sets the destination (`OFPAT_SET_DL_DST`).
    SetEthDst, "mod_dl_dst", 5, EthDst
}
