//! MPLS labels: push and pop on the flow, and the datapath actions that bring the packet's stack up to date.
//!
//! - Each push and pop counts the labels by their bottom bits, so these are examined. The labels that move are
//!   examined whole.
//! - A push hides all headers behind the labels: rules see them as zero.
//! - After a pop of the last label they are unknown. The next action that may need them freezes the translation,
//!   and the datapath parses the inner packet.

use super::ctx::XlateCtx;
use dpif::actions::{PopMpls, PushMpls};
use dpif::{Masked, SetAction, XlateDrop};
use flow::extract::MAX_MPLS_LABELS;
use flow::fields::FieldId;
use flow::{Flow, Mask};
use ofp_actions::Action;
use packet::headers as h;

/// The bottom bit of an entry (RFC 3032).
const BOTTOM: u32 = 0x100;
/// The DSCP in the type-of-service byte.
const DSCP: u8 = 0xfc;
/// Time to live of a first label on a packet without its own.
const DEFAULT_TTL: u8 = 64;
/// Explicit null label of IPv6 (RFC 3032); that of IPv4 is 0.
const NULL_IPV6: u32 = 2;

/// Whether an action needs no header behind a popped label. Groups decide at the actions of their buckets.
pub(super) fn passes_unknown(action: &Action) -> bool {
    if let Action::SetField(set) = action {
        return set.field < FieldId::IpSrc;
    }
    matches!(
        action,
        Action::Output(_)
            | Action::Enqueue(_)
            | Action::OutputReg(_)
            | Action::SetVlanVid(_)
            | Action::SetVlanPcp(_)
            | Action::SetEthSrc(_)
            | Action::SetEthDst(_)
            | Action::SetTunnel(_)
            | Action::SetQueue(_)
            | Action::Group(_)
    )
}

/// Number of labels. A stack without a bottom counts its entries that are not zero.
fn count(flow: &Flow) -> usize {
    if !h::is_mpls(flow.dl_type) {
        return 0;
    }
    let stack = &flow.mpls_lse[..MAX_MPLS_LABELS];
    match bottom(flow) {
        Some(at) => at + 1,
        None => stack.iter().filter(|lse| **lse != 0).count(),
    }
}

/// Marks the bits that determine the number of labels. It is that of the bottom bits, if the packet's own stack has a
/// bottom; else zero entries count, too.
fn look_at_count(flow: &Flow, original: &Flow, wc: &mut Mask) {
    if !h::is_mpls(flow.dl_type) {
        return;
    }
    let bottom = bottom(flow);
    let masks = &mut wc.0.mpls_lse[..MAX_MPLS_LABELS];
    masks[..bottom.map_or(MAX_MPLS_LABELS, |at| at + 1)].iter_mut().for_each(|mask| *mask |= BOTTOM);
    if bottom.is_some() || !h::is_mpls(original.dl_type) || self::bottom(original).is_some() {
        return;
    }
    if flow.mpls_lse != original.mpls_lse {
        return masks.fill(u32::MAX);
    }
    for (mask, lse) in masks.iter_mut().zip(flow.mpls_lse) {
        // One bit shows that an entry is not zero.
        *mask |= if lse == 0 { u32::MAX } else { 1 << lse.trailing_zeros() };
    }
}

/// Position of the entry at the bottom of the stack.
fn bottom(flow: &Flow) -> Option<usize> {
    flow.mpls_lse[..MAX_MPLS_LABELS].iter().position(|lse| lse & BOTTOM != 0)
}

/// Number of labels, examined.
pub(super) fn examined_count(flow: &Flow, original: &Flow, wc: &mut Mask) -> usize {
    look_at_count(flow, original, wc);
    count(flow)
}

/// Number of innermost labels that both stacks have.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

impl XlateCtx<'_> {
    /// Pushes a label with the values of the outermost one; a first label has those of the IP header.
    pub(super) fn push_label(&mut self, ethertype: u16) {
        look_at_count(&self.packet.flow, &self.packet.original, &mut self.record.wc);
        let labels = count(&self.packet.flow);
        if labels >= MAX_MPLS_LABELS {
            let fault = format!("push_mpls: the packet would have more than {MAX_MPLS_LABELS} MPLS labels");
            return self.fail(XlateDrop::TooManyMplsLabels, fault);
        }
        if labels == 0 {
            // The headers behind the label must be up to date: they are hidden from now on.
            self.commit();
            let entry = self.first_label();
            self.packet.flow = without_network(&self.packet.flow);
            self.packet.flow.mpls_lse[0] = entry;
        } else {
            self.record.wc.0.mpls_lse[..labels].fill(u32::MAX);
            self.packet.flow.mpls_lse.copy_within(..labels, 1);
            self.packet.flow.mpls_lse[0] &= !BOTTOM;
        }
        self.packet.flow.set_ethertype(ethertype);
    }

    fn first_label(&mut self) -> u32 {
        let flow = &self.packet.flow;
        let label = if flow.dl_type == h::ETH_TYPE_IPV6 { NULL_IPV6 } else { 0 };
        let (mut class, mut ttl) = (0, DEFAULT_TTL);
        if flow.is_ip() {
            self.record.wc.0.nw_tos |= DSCP;
            self.record.wc.0.nw_ttl = u8::MAX;
            class = flow.nw_tos >> 2 & 7;
            ttl = if flow.nw_ttl == 0 { DEFAULT_TTL } else { flow.nw_ttl };
        }
        label << 12 | u32::from(class) << 9 | BOTTOM | u32::from(ttl)
    }

    /// Pops the outermost label, if there is one.
    pub(super) fn pop_label(&mut self, ethertype: u16) {
        look_at_count(&self.packet.flow, &self.packet.original, &mut self.record.wc);
        let labels = count(&self.packet.flow);
        let stack = &mut self.packet.flow.mpls_lse[..MAX_MPLS_LABELS];
        if labels == 0 {
            return;
        }
        if labels == MAX_MPLS_LABELS && stack[labels - 1] & BOTTOM == 0 {
            let fault = format!("pop_mpls: the packet has more than {MAX_MPLS_LABELS} MPLS labels");
            return self.fail(XlateDrop::TooManyMplsLabels, fault);
        }
        self.record.wc.0.mpls_lse[1..labels].fill(u32::MAX);
        stack.copy_within(1.., 0);
        stack[MAX_MPLS_LABELS - 1] = 0;
        self.packet.flow.set_ethertype(ethertype);
        if !h::is_mpls(ethertype) && self.host.capabilities().recirc {
            self.packet.was_mpls = true;
        }
    }

    /// Pops, rewrites and pushes labels so that the packet has those of the flow.
    pub(super) fn commit_labels(&mut self) {
        let (new_labels, mut old_labels) = (count(&self.packet.flow), count(&self.packet.base));
        let (flow, base) = (self.packet.flow, self.packet.base);
        let (new, old) = (&flow.mpls_lse[..new_labels], &base.mpls_lse[..old_labels]);
        let mut common = common(new, old);
        while old_labels > common {
            if old_labels - 1 == common && new_labels > common {
                let value = new[new_labels - old_labels];
                self.set(SetAction::Mpls(Masked { value, mask: u32::MAX }));
                self.look_at_labels();
                common += 1;
            } else {
                let inner = old_labels > 1 && !h::is_mpls(flow.dl_type);
                let ethertype = if inner { h::ETH_TYPE_MPLS } else { flow.dl_type };
                self.out.actions.push(PopMpls { ethertype }.into());
                old_labels -= 1;
            }
        }
        for lse in new[..new_labels - common].iter().rev() {
            self.out.actions.push(PushMpls { lse: *lse, ethertype: flow.dl_type }.into());
            self.look_at_labels();
        }
    }

    /// A written entry is made from all bits of the packet's own. A pop and a push examine those of inner entries.
    fn look_at_labels(&mut self) {
        if h::is_mpls(self.packet.original.dl_type) {
            look_at_count(&self.packet.original, &self.packet.original, &mut self.record.wc);
            self.record.wc.0.mpls_lse[0] = u32::MAX;
        }
    }
}

/// The flow without the headers behind its labels.
fn without_network(flow: &Flow) -> Flow {
    let mut out = *flow;
    copy_network(&Flow::default(), &mut out);
    out.dp_hash = 0;
    out.clear_connection_ends();
    out
}

/// Replaces the headers that labels hide by those of another flow.
pub(super) fn copy_network(from: &Flow, to: &mut Flow) {
    (to.nw_src, to.nw_dst, to.nw_proto) = (from.nw_src, from.nw_dst, from.nw_proto);
    (to.nw_tos, to.nw_ttl, to.nw_frag) = (from.nw_tos, from.nw_ttl, from.nw_frag);
    (to.ipv6_src, to.ipv6_dst, to.ipv6_label) = (from.ipv6_src, from.ipv6_dst, from.ipv6_label);
    (to.nd_target, to.arp_sha, to.arp_tha) = (from.nd_target, from.arp_sha, from.arp_tha);
    (to.tp_src, to.tp_dst, to.tcp_flags) = (from.tp_src, from.tp_dst, from.tcp_flags);
    to.igmp_group = from.igmp_group;
}
