//! Effects of packets on rules: `learn` makes a rule, `fin_timeout` shortens timeouts of its own rule.

use super::Learning;
use super::ctx::XlateCtx;
use crate::cache::{LearnedFlow, XlateEffect};
use crate::changes::Lookups;
use crate::ct_support;
use crate::rule::RuleTimeouts;
use flow::text::format_match_with;
use flow::{Flow, Match, OfPort, SubField, TlvTable, Wide};
use ofp_actions::text::format_actions;
use ofp_actions::{
    Action, FinTimeout, LearnAction, LearnDest, LearnSource, Output, SetField, SetStyle, SetTunMetadata,
};
use openflow::msg::flow_mod::FlowModFlags;

impl XlateCtx<'_> {
    /// Adds or refreshes a learned rule; returns whether it exists now. As in OVS, a trace without a packet ignores the
    /// action: `None`. Its match stays off the stack of nested lists.
    #[inline(never)]
    pub(super) fn learn_rule(&mut self, learn: &LearnAction) -> Option<bool> {
        if self.record.trace.is_on() && !self.host.has_effects() {
            self.record.trace.warning(|| "suppressing side effects, so learn action ignored".to_string());
            return None;
        }
        let learned = learned_flow(learn, &self.packet.flow, self.bridge.tables.tlv());
        let can = self.host.capabilities();
        let can_match = ct_support::check_match(&learned.matching, &can).is_ok();
        let found = if can_match { self.host.learn(self.bridge.id, &learned) } else { Learning::Refused };
        let there = found != Learning::Refused;
        if !there || learn.result_dst.is_some() || learn.limit != 0 {
            // The result depends on all rules of the learned rule's table.
            self.record.lookups = Lookups::ALL;
        }
        // As in OVS, the next packet takes a place below the limit at once.
        self.record.to_upcall |= learn.limit != 0 && found == Learning::Possible;
        self.record.trace.detail(|| story(&learned, self.bridge.tables.tlv()));
        if there {
            self.record.cache.push(XlateEffect::Learn { bridge: self.bridge.id, learned: Box::new(learned) });
        }
        Some(there)
    }

    /// Packets that end a connection shorten the timeouts of the rule. Packet-outs and frozen rules have none.
    pub(super) fn shorten_own_timeouts(&mut self, idle_s: u16, hard_s: u16) {
        if let Some(RuleTimeouts::Shrinking(timeouts)) = self.control.rule_timeouts.clone() {
            self.record.cache.push(XlateEffect::FinTimeout { timeouts, idle_s, hard_s });
        }
    }
}

/// The learned rule in flow-mod syntax.
fn story(l: &LearnedFlow, tlv: &TlvTable) -> String {
    let matching = format_match_with(&l.matching, None, tlv);
    let mut out = format!("table={} {matching} priority={}", l.table.0, l.priority);
    let fields = [
        ("cookie", l.cookie, format!("{:#x}", l.cookie)),
        ("idle", l.idle_timeout_s.into(), l.idle_timeout_s.to_string()),
        ("hard", l.hard_timeout_s.into(), l.hard_timeout_s.to_string()),
    ];
    for (name, _, value) in fields.iter().filter(|(_, n, _)| *n != 0) {
        out += &format!(" {name}={value}");
    }
    if l.flags.contains(FlowModFlags::SEND_FLOW_REM) {
        out += " send_flow_rem";
    }
    out + " actions=" + &format_actions(&l.actions, tlv)
}

/// Loads a value into a range of bits.
fn load(dest: &SubField, value: Wide) -> Action {
    let (mask, value) = (dest.wide_mask(), value << dest.offset_bits.into());
    let (field, value) = (dest.field, value & mask);
    if field.metadata_index().is_some() {
        return SetTunMetadata { field, bits: Box::new((value, mask)), is_load: true }.into();
    }
    SetField { field, value: value.low(), mask: mask.low(), style: SetStyle::Load }.into()
}

/// The port that a learned output sends to: a port number of OpenFlow 1.0, regardless of the width. A number that is not
/// of a port, nor of one of these reserved ports, is no output.
fn learned_port(value: Wide) -> Option<OfPort> {
    let port = OfPort::from_of10(u16::try_from(value.low()).ok()?);
    let reserved = [OfPort::IN_PORT, OfPort::FLOOD, OfPort::ALL, OfPort::LOCAL];
    (port.0 < OfPort::MAX.0 || reserved.contains(&port)).then_some(port)
}

fn learned_flow(learn: &LearnAction, flow: &Flow, tlv: &TlvTable) -> LearnedFlow {
    let mut matching = Match::catchall();
    let mut actions = Vec::new();
    if learn.fin_idle_timeout_s != 0 || learn.fin_hard_timeout_s != 0 {
        let (idle_timeout_s, hard_timeout_s) = (learn.fin_idle_timeout_s, learn.fin_hard_timeout_s);
        actions.push(FinTimeout { idle_timeout_s, hard_timeout_s }.into());
    }
    for spec in &learn.specs {
        let value = match &spec.source {
            LearnSource::Field(source) if source.field.metadata_index().is_some() => {
                source.get_wide(tlv, flow)
            }
            LearnSource::Field(source) => source.get(flow).into(),
            LearnSource::Immediate(value) => (*value).into(),
        };
        match &spec.dest {
            LearnDest::Match(dest) => {
                let (old_value, old_mask) = matching.get_wide(tlv, dest.field);
                let mask = dest.wide_mask();
                let value = (old_value & !mask) | ((value << dest.offset_bits.into()) & mask);
                matching.set_wide(tlv, dest.field, value, old_mask | mask);
            }
            LearnDest::Load(dest) => actions.push(load(dest, value)),
            LearnDest::Output => {
                let port = learned_port(value);
                actions.extend(port.map(|port| Output { port, max_len_bytes: 0 }.into()));
            }
        }
    }
    matching.imply_packet_type();
    LearnedFlow {
        table: learn.table,
        matching,
        priority: learn.priority,
        cookie: learn.cookie,
        idle_timeout_s: learn.idle_timeout_s,
        hard_timeout_s: learn.hard_timeout_s,
        flags: if learn.send_flow_rem { FlowModFlags::SEND_FLOW_REM } else { FlowModFlags::empty() },
        actions,
        limit: learn.limit,
    }
}
