//! The text of a translation: for `ofproto/trace`, and for failed translations in the log.

use dpif::text::{NumbersOnly, format_actions};
use dpif::{SlowReason, XlateDrop};
use flow::text::{format_flow_with, format_megaflow_with};
use flow::{Flow, Mask, OfPort, VlanTag};
use ofproto::backer::Failed;
use ofproto::xlate::{Translation, render_trace};
use std::fmt::Write as _;

/// A failed translation, as a trace.
pub(crate) fn failed_text(failed: &Failed) -> String {
    let t = &failed.translation;
    Shown { names: &*t.tlv, dp_names: &NumbersOnly, with_names: false, has_packet: true }
        .translation(&failed.flow, t)
}

/// Form of a translation's text.
pub(crate) struct Shown<'a> {
    pub(crate) names: &'a dyn flow::text::PortNames,
    pub(crate) dp_names: &'a dyn dpif::text::PortNames,
    pub(crate) with_names: bool,
    pub(crate) has_packet: bool,
}

impl Shown<'_> {
    /// The flow, the trace, and the resulting flow, mask and actions.
    pub(crate) fn translation(&self, flow: &Flow, t: &Translation) -> String {
        let shown = format_flow_with(flow, self.names);
        format!("Flow: {shown}\n{}{}", render_trace(&t.trace, self.with_names), self.summary(flow, t))
    }

    fn summary(&self, flow: &Flow, t: &Translation) -> String {
        let mut shown = *flow;
        shown.recirc_id = t.final_flow.recirc_id;
        shown.actset_output = OfPort::UNSET.0;
        let is_unchanged = t.final_flow == shown;
        let last =
            if is_unchanged { "unchanged".to_string() } else { format_flow_with(&t.final_flow, self.names) };
        let mut mask: Mask = t.wc;
        for (tag, bits) in flow.vlans.iter().zip(&mut mask.0.vlans) {
            // The EtherType already shows the absence of a tag.
            if !tag.is_present() {
                *bits = VlanTag::default();
            }
        }
        let mut actions = format_actions(&t.actions, self.dp_names);
        if !self.has_packet {
            // Without a packet, controllers receive none.
            actions = actions.replace("dont_send=0", "dont_send=1");
        }
        let mut out =
            format!("\nFinal flow: {last}\nMegaflow: {}\n", format_megaflow_with(flow, &mask, self.names));
        let _ = writeln!(out, "Datapath actions: {actions}");
        if t.slow_reasons != 0 {
            out += "This flow is handled by the userspace slow path because it:\n";
            for reason in SlowReason::of(t.slow_reasons) {
                let _ = writeln!(out, "  - {}", reason.text());
            }
        }
        if let (Some(reason), true) = (t.error, t.fault.is_some()) {
            let _ = writeln!(out, "Translation failed ({}), packet is dropped.", failure(reason));
        }
        out
    }
}

/// The text of a failed translation.
fn failure(reason: XlateDrop) -> &'static str {
    match reason {
        XlateDrop::Ok => "OK",
        XlateDrop::BridgeNotFound => "Bridge not found",
        XlateDrop::RecursionTooDeep => "Recursion too deep",
        XlateDrop::TooManyResubmits => "Too many resubmits",
        XlateDrop::StackTooDeep => "Stack too deep",
        XlateDrop::NoRecirculationContext => "No recirculation context",
        XlateDrop::RecirculationConflict => "Recirculation conflict",
        XlateDrop::TooManyOutputs => "Too many datapath actions",
        XlateDrop::ForwardingDisabled => "Forwarding is disabled",
        XlateDrop::VlanNotAllowed => "VLAN not allowed",
        XlateDrop::TooManyMplsLabels => "Too many MPLS labels",
        XlateDrop::InvalidTunnelMetadata => "Invalid tunnel metadata",
        XlateDrop::UnsupportedPacketType => "Unsupported packet type",
        XlateDrop::Congestion => "Tunnel congestion marking",
        XlateDrop::TunnelNoRoute => "No route of a tunnel",
        XlateDrop::TunnelNoNeighbour => "No neighbour of a tunnel",
    }
}
