//! The continuation of a packet-in: the state of a paused translation, as the properties of `NXT_PACKET_IN2` and
//! `NXT_RESUME` (`NXCPT_*` in Open vSwitch). Opaque to controllers, printed by `ovs-ofctl`.
//!
//! Instructions such as `write_actions`, which lists of actions cannot express, go into a property of our own: stock
//! switches lose them. So do hidden fields of the packet, which no packet-in shows.

use flow::TableId;
use ofp_actions::{Action, Resubmit, Stage, put_actions, put_instructions, read_actions, read_instructions};
use ofp_wire::prop;
use ofp_wire::{ErrorKind, Options, Reader, Res, Version, Writer};

const BRIDGE: u16 = 0x8000;
const STACK: u16 = 0x8001;
const MIRRORS: u16 = 0x8002;
const CONNTRACKED: u16 = 0x8003;
const TABLE_ID: u16 = 0x8004;
const COOKIE: u16 = 0x8005;
const ACTIONS: u16 = 0x8006;
const ACTION_SET: u16 = 0x8007;
const ODP_PORT: u16 = 0x8008;
/// Actions as instructions of OpenFlow 1.5; ours.
const INSTRUCTIONS: u16 = 0x80ff;
/// A hidden field; ours.
const HIDDEN: u16 = 0x80fe;

/// Maximum bytes of the property: the packet and its fields fit beside it.
const MAX_BYTES: usize = 48 << 10;
/// Values on the stack of a continuation; OVS bounds its bytes by 64 KiB.
const MAX_STACK: usize = 2048;
/// Maximum number of hidden fields.
const MAX_HIDDEN: usize = 64;
/// Maximum bytes of a value on the stack.
const MAX_VALUE_BYTES: usize = 128;

/// Remaining actions of one rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemainingActions {
    /// Table of the rule.
    pub table: TableId,
    /// Its cookie.
    pub cookie: u64,
    /// Its actions.
    pub actions: Vec<Action>,
}

/// A paused translation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Continuation {
    /// Identifies the bridge, until it is removed or the switch restarts.
    pub bridge: [u8; 16],
    /// The stack of `push` actions, bottom first.
    pub stack: Vec<Vec<u8>>,
    /// Mirrors that have a copy of the packet.
    pub mirrors: u32,
    /// The packet has passed connection tracking.
    pub conntracked: bool,
    /// Remaining actions, innermost rule first.
    pub steps: Vec<RemainingActions>,
    /// The action set.
    pub action_set: Vec<Action>,
    /// The datapath's number of the input port.
    pub odp_port: u32,
    /// Numbers and values of fields of the packet that no packet-in shows.
    pub hidden: Vec<(u16, u128)>,
}

/// Writes a property of actions, which begin at 8 bytes.
fn put_nested(w: &mut Writer, ty: u16, payload: impl FnOnce(&mut Writer)) {
    prop::put(w, ty, |w| {
        w.zeros(4);
        payload(w);
    });
}

/// The same action where lists of actions have no `goto_table`.
fn listed(action: &Action) -> Action {
    if let Action::GotoTable(goto) = action {
        return Resubmit { in_port: flow::OfPort::IN_PORT, table: Some(goto.0), ct: false }.into();
    }
    action.clone()
}

impl Continuation {
    /// The payload of the property, for a connection of that version and options; `None` if it does not fit a message.
    pub fn encode(&self, version: Version, options: &Options) -> Option<Vec<u8>> {
        let mut w = Writer::new(version);
        w.options = options.clone();
        w.zeros(4);
        prop::put(&mut w, BRIDGE, |w| w.bytes(&self.bridge));
        for value in self.stack.iter().rev() {
            prop::put(&mut w, STACK, |w| w.bytes(value));
        }
        if self.mirrors != 0 {
            prop::put(&mut w, MIRRORS, |w| w.u32(self.mirrors));
        }
        if self.conntracked {
            prop::put(&mut w, CONNTRACKED, |_| {});
        }
        let (mut table, mut cookie) = (TableId(0), 0);
        for step in self.steps.iter().filter(|step| !step.actions.is_empty()) {
            if std::mem::replace(&mut table, step.table) != step.table {
                prop::put(&mut w, TABLE_ID, |w| w.u8(step.table.0));
            }
            if std::mem::replace(&mut cookie, step.cookie) != step.cookie {
                prop::put(&mut w, COOKIE, |w| {
                    w.zeros(4);
                    w.u64(step.cookie);
                });
            }
            let actions: Vec<Action> = step.actions.iter().map(listed).collect();
            if actions.iter().all(|a| a.stage() == Stage::Apply) {
                put_nested(&mut w, ACTIONS, |w| put_actions(w, actions.iter(), &flow::Match::catchall()));
            } else {
                let mut inner = Writer::new(Version::V15);
                inner.options = options.clone();
                put_instructions(&mut inner, &step.actions, &flow::Match::catchall());
                put_nested(&mut w, INSTRUCTIONS, |w| w.bytes(&inner.buf));
            }
        }
        if !self.action_set.is_empty() {
            put_nested(&mut w, ACTION_SET, |w| {
                put_actions(w, self.action_set.iter(), &flow::Match::catchall())
            });
        }
        prop::put(&mut w, ODP_PORT, |w| w.u32(self.odp_port));
        for (number, value) in &self.hidden {
            prop::put(&mut w, HIDDEN, |w| {
                w.u16(*number);
                w.zeros(2);
                w.bytes(&value.to_be_bytes());
            });
        }
        (w.buf.len() <= MAX_BYTES).then_some(w.buf)
    }

    /// Parses the payload of the property, from a connection of that version and options.
    ///
    /// # Errors
    /// The error to reply with.
    pub fn decode(bytes: &[u8], version: Version, options: &Options) -> Res<Continuation> {
        let mut r = Reader::new(bytes, version);
        r.options = options;
        if r.is_empty() {
            return Ok(Continuation::default());
        }
        r.skip(4)?;
        let mut c = Continuation::default();
        let (mut table, mut cookie) = (TableId(0), 0);
        while !r.is_empty() {
            let (ty, mut p) = prop::read(&mut r)?;
            match ty {
                BRIDGE => c.bridge = p.array()?,
                STACK if c.stack.len() >= MAX_STACK => return Err(ErrorKind::BpcTooMany),
                STACK if p.len() > MAX_VALUE_BYTES => return Err(ErrorKind::BpcBadLen),
                STACK => c.stack.insert(0, p.rest().to_vec()),
                MIRRORS => c.mirrors = p.u32()?,
                CONNTRACKED => c.conntracked = true,
                TABLE_ID => table = TableId(prop::small_u8(&mut p)?),
                COOKIE => {
                    p.skip(4)?;
                    cookie = p.u64()?;
                }
                ACTIONS => {
                    p.skip(4)?;
                    c.steps.push(RemainingActions { table, cookie, actions: read_actions(&mut p)? });
                }
                INSTRUCTIONS => {
                    p.skip(4)?;
                    let mut inner = Reader::new(p.rest(), Version::V15);
                    inner.options = options;
                    c.steps.push(RemainingActions { table, cookie, actions: read_instructions(&mut inner)? });
                }
                ACTION_SET => {
                    p.skip(4)?;
                    c.action_set = read_actions(&mut p)?;
                }
                ODP_PORT => c.odp_port = p.u32()?,
                HIDDEN if c.hidden.len() >= MAX_HIDDEN => return Err(ErrorKind::BpcTooMany),
                HIDDEN => {
                    let number = p.u16()?;
                    p.skip(2)?;
                    c.hidden.push((number, u128::from_be_bytes(p.array()?)));
                }
                _ => return Err(ErrorKind::BpcBadType),
            }
        }
        Ok(c)
    }
}

#[cfg(test)]
mod tests;
