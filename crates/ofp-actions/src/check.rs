//! Consistency of a list of actions with its match and with the switch's limits. Groups and meters may be missing:
//! callers look up the references of the actions.
//!
//! The check follows the list's changes of the flow: later actions see a pushed tag. In OpenFlow 1.0 a legacy action
//! that does not fit the packet has no effect; from 1.1 on it is an error (OpenFlow 1.3 §7.2.4 and §5.9).

use crate::actions::Conjunction;
use crate::list::Action;
use flow::fields::Prereq;
use flow::{Flow, Match, OfPort, SubField, TableId};
use ofp_wire::{ErrorKind, Res, Version};
use packet::headers::{ETH_TYPE_IP, ETH_TYPE_IPV6};

/// Context of the check.
#[derive(Clone, Copy, Debug)]
pub struct CheckContext {
    /// Version of the connection; from 1.1 on legacy actions must fit the match.
    pub version: Version,
    /// Upper bound of port numbers.
    pub max_ports: u32,
    /// Number of tables.
    pub n_tables: u8,
    /// The rule's table; `None` for a packet-out.
    pub table: Option<TableId>,
    /// Whether test actions (`debug_recirc`, `debug_slow`) are permitted.
    pub debug_actions: bool,
}

/// Checks `actions` for use with `m`.
///
/// # Errors
/// The error to reply with.
pub fn check_actions(actions: &[Action], m: &Match, cx: &CheckContext) -> Result<(), ErrorKind> {
    if Conjunction::intruder(actions).is_some() {
        return Err(ErrorKind::NxbacBadConjunction);
    }
    let mut checker = Checker { flow: *m.flow(), cx, in_set: false };
    if !Prereq::Connection.holds(m.flow(), Some(&m.mask().0)) {
        // It may be tracked without belonging to a connection.
        checker.flow.ct_state &= !flow::ct_state::TRK;
    }
    checker.list(actions)
}

/// Known properties of the packets at one point of a list.
pub struct Checker<'a> {
    pub(crate) flow: Flow,
    pub(crate) cx: &'a CheckContext,
    in_set: bool,
}

impl Checker<'_> {
    fn list(&mut self, actions: &[Action]) -> Res<()> {
        actions.iter().try_for_each(|a| a.check(self))
    }

    /// Checks a nested list; later actions do not see its changes.
    pub(crate) fn nested(&self, actions: &[Action]) -> Res<()> {
        Checker { flow: self.flow, ..*self }.list(actions)
    }

    /// Checks an action set, which has none within.
    pub(crate) fn action_set(&self, actions: &[Action]) -> Res<()> {
        if self.in_set {
            return Err(ErrorKind::BacTooMany);
        }
        Checker { flow: self.flow, in_set: true, ..*self }.list(actions)
    }

    /// Rejects a legacy action if packets may lack its field. The packet of an action set is unknown.
    pub(crate) fn fits(&self, ok: bool) -> Res<()> {
        let lenient = self.cx.version == Version::V10 || self.in_set;
        if ok || lenient { Ok(()) } else { Err(ErrorKind::BacMatchInconsistent) }
    }

    /// Whether the packets are those of IPv4 or IPv6.
    pub(crate) fn is_ip(&self) -> bool {
        matches!(self.flow.effective_type(), ETH_TYPE_IP | ETH_TYPE_IPV6)
    }

    /// Checks the port of an output.
    pub(crate) fn out_port(&self, port: OfPort) -> Res<()> {
        check_out_port(port, self.cx.max_ports)
    }

    /// Checks bits that are read.
    pub(crate) fn source(&self, s: SubField) -> Res<()> {
        check_source(s, &self.flow)
    }

    /// Checks bits that are written.
    pub(crate) fn dest(&self, s: SubField) -> Res<()> {
        check_dest(s, &self.flow)
    }
}

/// Rejects a port that packets cannot be sent to.
pub(crate) fn check_out_port(port: OfPort, max_ports: u32) -> Res<()> {
    let special = [
        OfPort::IN_PORT,
        OfPort::TABLE,
        OfPort::NORMAL,
        OfPort::FLOOD,
        OfPort::ALL,
        OfPort::CONTROLLER,
        OfPort::LOCAL,
    ];
    let ok = port.0 < max_ports || special.contains(&port);
    if ok { Ok(()) } else { Err(ErrorKind::BacBadOutPort) }
}

pub(crate) fn check_source(s: SubField, flow: &Flow) -> Res<()> {
    if !s.is_valid() {
        return Err(ErrorKind::BacBadSetLen);
    }
    if s.field.prereq_holds(flow, None) { Ok(()) } else { Err(ErrorKind::BacMatchInconsistent) }
}

pub(crate) fn check_dest(s: SubField, flow: &Flow) -> Res<()> {
    check_source(s, flow)?;
    if s.field.def().writable { Ok(()) } else { Err(ErrorKind::BacBadSetArgument) }
}
