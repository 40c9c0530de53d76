//! `mod_tp_src`, `mod_tp_dst`: set a port of TCP, UDP or SCTP.

use super::prelude::*;
use crate::put::put_set;
use crate::translate::set_nw;
use flow::fields::FieldId;
use flow::text::number::u16_named;
use flow::{Flow, nw_frag};
use packet::headers::{IPPROTO_SCTP, IPPROTO_TCP, IPPROTO_UDP};

/// A port field of each protocol.
struct PortFields {
    tcp: FieldId,
    udp: FieldId,
    sctp: FieldId,
}

const SRC: PortFields = PortFields { tcp: FieldId::TcpSrc, udp: FieldId::UdpSrc, sctp: FieldId::SctpSrc };
const DST: PortFields = PortFields { tcp: FieldId::TcpDst, udp: FieldId::UdpDst, sctp: FieldId::SctpDst };

impl PortFields {
    fn of(&self, nw_proto: u8) -> Option<FieldId> {
        match nw_proto {
            IPPROTO_TCP => Some(self.tcp),
            IPPROTO_UDP => Some(self.udp),
            IPPROTO_SCTP => Some(self.sctp),
            _ => None,
        }
    }
}

/// From OpenFlow 1.2 on the match determines the protocol, TCP by default.
fn put(w: &mut Writer, cx: &PutContext<'_>, ty10: u16, fields: &PortFields, port: u16) {
    if w.version < Version::V12 {
        standard(w, ty10, |w| w.u16(port));
    } else {
        put_set(w, fields.of(cx.nw_proto).unwrap_or(fields.tcp), port.into());
    }
}

fn has_ports(flow: &Flow) -> bool {
    flow.is_ip() && SRC.of(flow.nw_proto).is_some() && flow.nw_frag & nw_frag::LATER == 0
}

fn set(x: &mut impl Translator, fields: &PortFields, port: u16) {
    if x.flow().is_ip() {
        x.state().1.0.nw_proto = u8::MAX;
        if let Some(field) = fields.of(x.flow().nw_proto) {
            set_nw(x, field, port.into());
        }
    }
}

/// A setter of one port: name, its name in errors, type in OpenFlow 1.0, fields.
macro_rules! set_port {
    ($(#[$doc:meta])* $action:ident, $name:literal, $words:literal, $ty:literal, $fields:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $action(pub u16);

        impl OfAction for $action {
            const NAMES: &'static [&'static str] = &[$name];
            const ROWS: &'static [Row] = &[
                of10($ty, 8, |r| Ok($action(r.u16()?).into())),
                setter11($ty, 8, |r| Ok($action(r.u16()?).into())),
            ];
            writes_a_field!();

            fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
                put(w, cx, $ty, &$fields, self.0);
            }

            fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
                out.push($action(u16_named(text.value(), $words)?).into());
                Ok(())
            }

            fn format(&self, _ports: &dyn PortNames) -> String {
                format!("{}:{}", $name, self.0)
            }

            fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
                checker.fits(has_ports(&checker.flow))
            }

            fn translate<X: Translator>(&self, x: &mut X) {
                set(x, &$fields, self.0);
            }
        }
    };
}

set_port! {
    /// Sets the source port (`OFPAT_SET_TP_SRC`).
    SetL4Src, "mod_tp_src", "source port", 9, SRC
}

set_port! {
    /// Sets the destination port (`OFPAT_SET_TP_DST`).
    SetL4Dst, "mod_tp_dst", "destination port", 10, DST
}
