//! Family `ovs_flow`: megaflows.
//!
//! Requests hold keys, masks and actions as attributes, since the best key of a new flow is the one that came with its upcall, byte
//! for byte: it tells the kernel also what a [`FlowKey`] cannot hold. [`FlowPut::new`] makes all of them from values.

use super::{Ovs, SMALL_REPLY_BYTES, begin, open_body, u64s};
use crate::error::Error;
use crate::message::flag;
use crate::pool::Dump;
use crate::socket::{Asked, Message};
use dpif::nlactions::{ActionContext, ActionError, actions_to_bytes, parse_actions};
use dpif::{DpAction, FlowStats};
use flow::nlattr::{AttrError, AttrWriter, Attrs};
use flow::nlkey::{Fitness, KeyLimits, kernel_mask, key_to_bytes, mask_to_bytes, parse_key, parse_mask};
use flow::{FlowKey, KeyMask, Ufid};

/// How a flow is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlowName {
    /// By the name that it was given.
    Ufid(Ufid),
    /// By its unmasked key, as attributes (flows of other programs).
    Key(Vec<u8>),
}

/// The bytes that name a flow in the kernel: its four 32-bit parts, high part first, each in the machine's byte order. Stock tools
/// print the same text for them as `Display` does.
pub fn ufid_bytes(ufid: Ufid) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (part, shift) in bytes.as_chunks_mut::<4>().0.iter_mut().zip([96, 64, 32, 0]) {
        *part = ((ufid.0 >> shift) as u32).to_ne_bytes();
    }
    bytes
}

/// The name of these bytes.
pub fn ufid_of_bytes(bytes: [u8; 16]) -> Ufid {
    let parts = bytes.as_chunks::<4>().0;
    Ufid(parts.iter().fold(0, |all, part| all << 32 | u128::from(u32::from_ne_bytes(*part))))
}

/// Whether a put makes or changes a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowMode {
    /// Make it. `EEXIST` if there is one of that name, or another one with an equal masked key.
    Create,
    /// Change the actions of the one that is there; `ENOENT` without one. (There is no "either": what the kernel has for that fails
    /// where a flow with wildcards is there already.)
    Modify,
}

/// Installs or changes a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowPut {
    /// Its name; `None`: its unmasked key is its name.
    pub ufid: Option<Ufid>,
    /// The packet it was made from, as attributes: those of its upcall, or [`flow::nlkey::key_to_bytes`].
    pub key: Vec<u8>,
    /// Which bits count, as attributes ([`flow::nlkey::mask_to_bytes`]); `None`: all bits.
    pub mask: Option<Vec<u8>>,
    /// What to do, as attributes ([`dpif::nlactions::actions_to_bytes`]). The kernel checks them against what is matched: headers are
    /// rewritten only where the mask has their EtherType and protocol.
    pub actions: Vec<u8>,
    /// Make or change.
    pub mode: FlowMode,
    /// It is a trial: the kernel is not to log what it does not like.
    pub probe: bool,
    /// Answer the flow with its counters ([`Reply::Flow`](super::Reply)), all else left out.
    pub stats: bool,
}

impl FlowPut {
    /// A put from values, which makes the flow.
    ///
    /// # Errors
    /// The actions cannot be written.
    pub fn new(
        ufid: Ufid,
        key: &FlowKey,
        mask: &KeyMask,
        actions: &[DpAction],
        limits: &KeyLimits,
        context: &ActionContext,
    ) -> Result<FlowPut, ActionError> {
        Ok(FlowPut {
            ufid: Some(ufid),
            key: key_to_bytes(key, limits),
            mask: Some(mask_to_bytes(key, mask, limits)),
            actions: actions_to_bytes(actions, context)?,
            mode: FlowMode::Create,
            probe: false,
            stats: false,
        })
    }
}

/// Removes a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowDel {
    /// Which.
    pub name: FlowName,
    /// Answer its last counters ([`Reply::Flow`](super::Reply)), all else left out.
    pub stats: bool,
}

/// Asks for a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowGet {
    /// Which.
    pub name: FlowName,
    /// What of it.
    pub parts: FlowParts,
}

/// What of a flow is wanted. Its name and counters are always told. Flows without a ufid come with their keys all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowParts {
    /// Key.
    pub key: bool,
    /// Mask.
    pub mask: bool,
    /// Actions.
    pub actions: bool,
}

impl FlowParts {
    /// Name and counters only.
    pub const TERSE: FlowParts = FlowParts { key: false, mask: false, actions: false };
    /// Everything.
    pub const ALL: FlowParts = FlowParts { key: true, mask: true, actions: true };
}

/// A flow as the kernel tells it; attributes as they came. Which parts there are follows from what was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowReply {
    /// Its datapath.
    pub dp_ifindex: u32,
    /// Its name, if it was given one of 16 bytes.
    pub ufid: Option<Ufid>,
    /// Masked key; the unmasked one of flows that it names.
    pub key: Option<Vec<u8>>,
    /// Mask.
    pub mask: Option<Vec<u8>>,
    /// Actions.
    pub actions: Option<Vec<u8>>,
    /// Counters; `used_ms` on the clock `CLOCK_MONOTONIC`, reckoned anew for each answer (a few
    /// milliseconds up or down), 0 for never.
    pub stats: FlowStats,
}

impl FlowParts {
    /// `OVS_UFID_F_OMIT_*` of what is not wanted.
    fn omitted(self) -> u32 {
        u32::from(!self.key) | u32::from(!self.mask) << 1 | u32::from(!self.actions) << 2
    }
}

/// `OVS_FLOW_CMD_*`.
mod command {
    pub(super) const NEW: u8 = 1;
    pub(super) const DEL: u8 = 2;
    pub(super) const GET: u8 = 3;
    pub(super) const SET: u8 = 4;
}

/// `OVS_FLOW_ATTR_*`.
mod attr {
    pub(super) const KEY: u16 = 1;
    pub(super) const ACTIONS: u16 = 2;
    pub(super) const STATS: u16 = 3;
    pub(super) const TCP_FLAGS: u16 = 4;
    pub(super) const USED: u16 = 5;
    pub(super) const MASK: u16 = 7;
    pub(super) const PROBE: u16 = 8;
    pub(super) const UFID: u16 = 9;
    pub(super) const UFID_FLAGS: u16 = 10;
}

/// The same, by number.
const ATTRIBUTES: &[&str] = &[
    "OVS_FLOW_ATTR_UNSPEC",
    "OVS_FLOW_ATTR_KEY",
    "OVS_FLOW_ATTR_ACTIONS",
    "OVS_FLOW_ATTR_STATS",
    "OVS_FLOW_ATTR_TCP_FLAGS",
    "OVS_FLOW_ATTR_USED",
    "OVS_FLOW_ATTR_CLEAR",
    "OVS_FLOW_ATTR_MASK",
    "OVS_FLOW_ATTR_PROBE",
    "OVS_FLOW_ATTR_UFID",
    "OVS_FLOW_ATTR_UFID_FLAGS",
];

/// Bytes of a reply with key, mask and actions at most: actions fill one attribute.
const FULL_REPLY_BYTES: usize = 72 << 10;

impl FlowReply {
    /// Key and mask as values; of a flow without a mask: all bits. The worse fitness of the two counts.
    ///
    /// # Errors
    /// The attributes make no sense, or the key was left out.
    pub fn key_and_mask(&self, vlan_limit: u8) -> Result<(FlowKey, KeyMask, Fitness), AttrError> {
        let bytes = self.key.as_deref().ok_or(AttrError::Missing(attr::KEY))?;
        let (key, fitness) = parse_key(bytes, vlan_limit)?;
        let (mask, mask_fitness) = match self.mask.as_deref() {
            Some(mask) => parse_mask(mask, &key, vlan_limit)?,
            None => (exact(&key), Fitness::Perfect),
        };
        Ok((key, mask, fitness.max(mask_fitness)))
    }

    /// Actions as values; empty when they were left out.
    ///
    /// # Errors
    /// Bytes that are no actions, or nest too deep.
    pub fn dp_actions(&self) -> Result<Vec<DpAction>, ActionError> {
        self.actions.as_deref().map_or(Ok(Vec::new()), parse_actions)
    }

    /// Reads what the kernel says of a flow.
    pub(crate) fn parse(dp_ifindex: u32, attrs: Attrs<'_>) -> Result<FlowReply, AttrError> {
        let mut reply = FlowReply { dp_ifindex, ..FlowReply::default() };
        for a in attrs {
            match a.kind {
                attr::KEY => reply.key = Some(a.content.to_vec()),
                attr::MASK => reply.mask = Some(a.content.to_vec()),
                attr::ACTIONS => reply.actions = Some(a.content.to_vec()),
                // Names of other sizes are other programs' business.
                attr::UFID => reply.ufid = a.array().ok().map(ufid_of_bytes),
                attr::STATS => [reply.stats.packets, reply.stats.bytes] = u64s(a.content, a.kind)?,
                attr::USED => reply.stats.used_ms = a.u64()?,
                attr::TCP_FLAGS => reply.stats.tcp_flags = a.u8()?.into(),
                _ => {}
            }
        }
        Ok(reply)
    }
}

/// The mask of all bits that a packet with this key has.
fn exact(key: &FlowKey) -> KeyMask {
    let mut mask = KeyMask::default();
    for i in key.present_blocks() {
        *mask.block_mut(i) = [u64::MAX; 8];
    }
    kernel_mask(key, &mask, &KeyLimits::LINUX)
}

/// A dump of flows under way: an iterator that holds one socket and one buffer. Flows that come or go meanwhile may be missing or
/// come twice.
pub struct FlowDump<'a>(Dump<'a>);

impl FlowDump<'_> {
    /// Whether the kernel said, so far, that the table changed in a way that makes the dump inconsistent (`NLM_F_DUMP_INTR`).
    pub fn interrupted(&self) -> bool {
        self.0.interrupted()
    }
}

impl Iterator for FlowDump<'_> {
    type Item = Result<FlowReply, Error>;

    fn next(&mut self) -> Option<Result<FlowReply, Error>> {
        self.0.next(|body| open_body(body).and_then(|(dp, attrs)| FlowReply::parse(dp, attrs)))
    }
}

impl Ovs {
    /// Begins to read all flows of a datapath.
    ///
    /// # Errors
    /// No socket can be had, the request cannot be sent. [`Error::is_no_device`] comes as the first item.
    pub fn flow_dump(&self, dp_ifindex: u32, parts: FlowParts) -> Result<FlowDump<'_>, Error> {
        let asked = Asked::again("list flows", ATTRIBUTES, 0);
        let mut request = begin(&self.families.flow, command::GET, 0, dp_ifindex, asked);
        request.attrs.u32(attr::UFID_FLAGS, parts.omitted());
        self.pool.dump(&request.finish()?).map(FlowDump)
    }

    /// Removes all flows of a datapath.
    ///
    /// # Errors
    /// [`Error::is_no_device`] when there is no such datapath.
    pub fn flow_flush(&self, dp_ifindex: u32) -> Result<(), Error> {
        let asked = Asked::again("remove all flows", ATTRIBUTES, 0);
        // A deletion that names no flow is one of all.
        let request = begin(&self.families.flow, command::DEL, 0, dp_ifindex, asked).finish()?;
        self.ask(request, FlowReply::parse).map(drop)
    }

    pub(super) fn put_message(&self, dp_ifindex: u32, put: &FlowPut) -> Result<Message, Error> {
        let (command, flags, what) = match put.mode {
            // To this family, the flag says that the flow must not be there yet.
            FlowMode::Create => (command::NEW, flag::CREATE, "put a flow"),
            FlowMode::Modify => (command::SET, 0, "change a flow"),
        };
        let asked = Asked {
            repeatable: put.mode != FlowMode::Create,
            reply_bytes: if put.stats { SMALL_REPLY_BYTES } else { 0 },
            ..Asked::once(what, ATTRIBUTES)
        };
        let flags = if put.stats { flags | flag::ECHO } else { flags };
        let mut request = begin(&self.families.flow, command, flags, dp_ifindex, asked);
        let out = &mut request.attrs;
        if let Some(ufid) = put.ufid {
            out.put(attr::UFID, &ufid_bytes(ufid));
            out.u32(attr::UFID_FLAGS, FlowParts::TERSE.omitted());
        }
        out.nested_bytes(attr::KEY, &put.key);
        if let Some(mask) = &put.mask {
            out.nested_bytes(attr::MASK, mask);
        }
        out.nested_bytes(attr::ACTIONS, &put.actions);
        if put.probe {
            out.flag(attr::PROBE);
        }
        request.finish()
    }

    pub(super) fn del_message(&self, dp_ifindex: u32, del: &FlowDel) -> Result<Message, Error> {
        let asked = Asked {
            // The second time, its counters would be gone with the flow.
            repeatable: false,
            reply_bytes: if del.stats { del.name.reply_bytes(FlowParts::TERSE) } else { 0 },
            ..Asked::once("remove a flow", ATTRIBUTES)
        };
        let flags = if del.stats { flag::ECHO } else { 0 };
        let mut request = begin(&self.families.flow, command::DEL, flags, dp_ifindex, asked);
        del.name.write(&mut request.attrs);
        request.attrs.u32(attr::UFID_FLAGS, FlowParts::TERSE.omitted());
        request.finish()
    }

    pub(super) fn get_message(&self, dp_ifindex: u32, get: &FlowGet) -> Result<Message, Error> {
        let asked = Asked::again("read a flow", ATTRIBUTES, get.name.reply_bytes(get.parts));
        let mut request = begin(&self.families.flow, command::GET, 0, dp_ifindex, asked);
        get.name.write(&mut request.attrs);
        request.attrs.u32(attr::UFID_FLAGS, get.parts.omitted());
        request.finish()
    }
}

impl FlowName {
    fn write(&self, out: &mut AttrWriter) {
        match self {
            FlowName::Ufid(ufid) => out.put(attr::UFID, &ufid_bytes(*ufid)),
            FlowName::Key(key) => out.nested_bytes(attr::KEY, key),
        }
    }

    /// Bytes of a reply about it at most: flows that keys name come with key, mask and actions if the kernel likes.
    fn reply_bytes(&self, parts: FlowParts) -> usize {
        match self {
            FlowName::Ufid(_) if !parts.actions => SMALL_REPLY_BYTES,
            FlowName::Ufid(_) | FlowName::Key(_) => FULL_REPLY_BYTES,
        }
    }
}

#[cfg(test)]
mod tests;
