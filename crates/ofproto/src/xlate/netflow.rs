//! Flows of NetFlow: their keys, their outputs, and the bits of packets that tell them apart.
//!
//! As in OVS, a flow has the fields with which its packets leave the tables of the first bridge, and the packets of a
//! recirculation count only once, before it.

use super::ctx::XlateCtx;
use crate::cache::{NetflowEffect, XlateEffect};
use flow::{Flow, Mask};
use packet::headers::ETH_TYPE_IP;
use telemetry::netflow::{Key, output};

/// Bits of the type of service that tell flows apart.
const DSCP_MASK: u8 = 0xfc;

/// The output of a packet after one action with this output, and another one.
fn joined(before: u16, now: u16) -> u16 {
    match (before, now) {
        (output::FLOOD, _) | (_, output::FLOOD) => output::FLOOD,
        (only, output::DROP) | (output::DROP, only) => only,
        _ => output::SEVERAL,
    }
}

fn key_of(flow: &Flow) -> Key {
    Key {
        in_port: flow.in_port().0 as u16,
        src: flow.nw_src,
        dst: flow.nw_dst,
        tos: flow.nw_tos & DSCP_MASK,
        protocol: flow.nw_proto,
        src_port: flow.tp_src,
        dst_port: flow.tp_dst,
    }
}

/// Adds the fields of a key to the mask of packets like `flow`.
fn add_key(flow: &Flow, wc: &mut Mask) {
    if flow.dl_type == ETH_TYPE_IP {
        let m = &mut wc.0;
        (m.nw_src, m.nw_dst, m.nw_proto) = (u32::MAX, u32::MAX, u8::MAX);
        (m.tp_src, m.tp_dst) = (u16::MAX, u16::MAX);
        m.nw_tos |= DSCP_MASK;
    }
}

impl XlateCtx<'_> {
    /// Runs an output action, and joins its output with that of the actions before.
    pub(super) fn join_outputs(&mut self, send: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.out.netflow, output::DROP);
        send(self);
        self.out.netflow = joined(before, self.out.netflow);
    }

    /// Packets of one flow of the datapath belong to one flow of NetFlow.
    pub(super) fn examine_flow(&mut self) {
        if self.bridge.netflow.is_some() {
            add_key(&self.packet.original, &mut self.record.wc);
        }
    }

    /// The translation of a received packet ends: its packets count for NetFlow.
    pub(super) fn count_flow(&mut self) {
        let Some(exporter) = self.bridge.netflow.clone() else { return };
        if self.packet.flow.dl_type == ETH_TYPE_IP {
            let output = if self.has_failed() { output::DROP } else { self.out.netflow };
            let effect = NetflowEffect { exporter, key: key_of(&self.packet.flow), output };
            self.record.cache.push(XlateEffect::Netflow(Box::new(effect)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_outputs_are_no_port() {
        let of = |outputs: &[u16]| outputs.iter().fold(output::DROP, |before, now| joined(before, *now));
        for (outputs, wanted) in [
            (&[][..], output::DROP),
            (&[7], 7),
            (&[output::DROP, 7, output::DROP], 7),
            (&[7, 7], output::SEVERAL),
            (&[7, output::FLOOD], output::FLOOD),
            (&[output::FLOOD, 7], output::FLOOD),
            (&[7, 8, 9], output::SEVERAL),
        ] {
            assert_eq!(of(outputs), wanted, "{outputs:?}");
        }
    }
}
