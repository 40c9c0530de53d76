//! Reasons to handle a flow in the slow path packet by packet: one table for datapath actions, cookies and traces.

use l2proto::Protocol;

/// A reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlowReason {
    /// A session of a link protocol takes the packet.
    Link(Protocol),
    /// The packet goes to a controller.
    Controller,
    /// The test action `debug_slow`, or an action that the datapath lacks.
    Action,
    /// The datapath's masks cannot express the bits examined by translation.
    Match,
}

/// Bit of the first link protocol; those of the others follow.
const FIRST_LINK: u16 = 16;

// Each protocol has a bit.
const _: () = assert!(Protocol::ALL.len() <= (u16::BITS - FIRST_LINK.trailing_zeros()) as usize);

impl SlowReason {
    /// All reasons, in the order of traces.
    pub fn all() -> impl Iterator<Item = SlowReason> {
        let links = Protocol::ALL.iter().map(|protocol| SlowReason::Link(*protocol));
        links.chain([SlowReason::Controller, SlowReason::Action, SlowReason::Match])
    }

    /// The reasons of a set of bits, in the same order.
    pub fn of(bits: u16) -> impl Iterator<Item = SlowReason> {
        SlowReason::all().filter(move |reason| reason.bit() & bits != 0)
    }

    /// Its bit in sets of reasons.
    pub const fn bit(self) -> u16 {
        match self {
            SlowReason::Controller => 1,
            SlowReason::Action => 2,
            SlowReason::Match => 8,
            SlowReason::Link(protocol) => FIRST_LINK << protocol as u8,
        }
    }

    /// Its bit in cookies (`enum slow_path_reason` of OVS). OVS has a kind of cookie of its own for packets to
    /// controllers, so the bit for them lies beyond its bits.
    pub fn cookie_bit(self) -> u32 {
        match self {
            SlowReason::Link(protocol) => protocol.ovs_slow_path(),
            SlowReason::Action => 32,
            SlowReason::Match => 64,
            SlowReason::Controller => 128,
        }
    }

    /// Its word in `slow_path(…)`.
    pub fn name(self) -> &'static str {
        match self {
            SlowReason::Link(protocol) => protocol.name(),
            SlowReason::Controller => "controller",
            SlowReason::Action => "action",
            SlowReason::Match => "match",
        }
    }

    /// Its line in `ofproto/trace`.
    pub fn text(self) -> &'static str {
        match self {
            SlowReason::Link(protocol) => protocol.slow_path_text(),
            SlowReason::Controller => "Sends \"packet-in\" messages to the OpenFlow controller.",
            SlowReason::Action => "Uses action(s) not supported by datapath.",
            SlowReason::Match => "Needs more specific matching than the datapath supports.",
        }
    }
}

/// Whether a set of reasons has a link protocol.
pub const fn has_link(bits: u16) -> bool {
    bits >= FIRST_LINK
}

/// Any set of reasons.
#[cfg(test)]
pub(crate) fn slow_reasons() -> impl proptest::strategy::Strategy<Value = u16> {
    let all: Vec<u16> = SlowReason::all().map(SlowReason::bit).collect();
    let sets = proptest::sample::subsequence(all.clone(), 0..=all.len());
    proptest::strategy::Strategy::prop_map(sets, |bits| bits.into_iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn reasons_are_distinct() {
        let all: Vec<SlowReason> = SlowReason::all().collect();
        let bits: BTreeSet<u16> = all.iter().map(|reason| reason.bit()).collect();
        let cookies: BTreeSet<u32> = all.iter().map(|reason| reason.cookie_bit()).collect();
        let names: BTreeSet<&str> = all.iter().map(|reason| reason.name()).collect();
        assert_eq!((bits.len(), cookies.len(), names.len()), (all.len(), all.len(), all.len()));
        assert!(bits.iter().chain([&0]).all(|bit| bit.count_ones() <= 1));
        assert!(cookies.iter().all(|bit| bit.count_ones() == 1));
        for reason in all {
            assert_eq!(SlowReason::of(reason.bit()).collect::<Vec<_>>(), [reason]);
            assert_eq!(has_link(reason.bit()), matches!(reason, SlowReason::Link(_)));
        }
    }
}
