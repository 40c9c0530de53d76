//! Family `ovs_flow`: megaflows.
//!
//! Requests hold keys, masks and actions as attributes: the best key of a new flow is that of its upcall, byte for
//! byte, since it includes data beyond a [`FlowKey`]. [`FlowPut::new`] makes all of them from values.

use super::{Ovs, SMALL_REPLY_BYTES, begin, open_body, u64s};
use crate::error::Error;
use crate::message::flag;
use crate::pool::Dump;
use crate::socket::{Asked, NlRequest};
use dpif::nlactions::{ActionContext, ActionError, actions_to_bytes, parse_actions};
use dpif::{DpAction, FlowStats};
use flow::nlattr::{AttrError, AttrWriter, Attrs};
use flow::nlkey::{Fitness, KeyLimits, kernel_mask, key_to_bytes, mask_to_bytes, parse_key, parse_mask};
use flow::{FlowKey, KeyMask, Ufid};

/// Identity of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlowName {
    /// By its ufid.
    Ufid(Ufid),
    /// By its unmasked key, as attributes (flows of other programs).
    Key(Vec<u8>),
}

/// The ufid of a flow in the kernel: its four 32-bit parts, high part first, each in the machine's byte order. Stock
/// tools print it like `Display`.
pub fn ufid_bytes(ufid: Ufid) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (part, shift) in bytes.as_chunks_mut::<4>().0.iter_mut().zip([96, 64, 32, 0]) {
        *part = ((ufid.0 >> shift) as u32).to_ne_bytes();
    }
    bytes
}

/// The ufid with these bytes.
pub fn ufid_of_bytes(bytes: [u8; 16]) -> Ufid {
    let parts = bytes.as_chunks::<4>().0;
    Ufid(parts.iter().fold(0, |all, part| all << 32 | u128::from(u32::from_ne_bytes(*part))))
}

/// Whether a put creates or modifies a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowMode {
    /// Create. `EEXIST` if the ufid exists, or another flow with an equal masked key.
    Create,
    /// Change the actions of the existing flow; `ENOENT` without one. (There is no "either": the kernel's form of
    /// that fails for an existing flow with wildcards.)
    Modify,
}

/// Installs or modifies a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowPut {
    /// Its ufid; `None`: its unmasked key identifies it.
    pub ufid: Option<Ufid>,
    /// The packet it was made from, as attributes: those of its upcall, or [`flow::nlkey::key_to_bytes`].
    pub key: Vec<u8>,
    /// Mask as attributes ([`flow::nlkey::mask_to_bytes`]); `None`: all bits.
    pub mask: Option<Vec<u8>>,
    /// Actions as attributes ([`dpif::nlactions::actions_to_bytes`]). The kernel checks them against the match:
    /// headers are rewritten only if the mask has their EtherType and protocol.
    pub actions: Vec<u8>,
    /// Create or modify.
    pub mode: FlowMode,
    /// Probe: the kernel does not log errors.
    pub probe: bool,
    /// Reply with the flow's counters only ([`Reply::Flow`](super::Reply)).
    pub stats: bool,
}

impl FlowPut {
    /// A put from values that creates the flow.
    ///
    /// # Errors
    /// The actions cannot be encoded.
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
    /// The flow.
    pub name: FlowName,
    /// Reply with its last counters only ([`Reply::Flow`](super::Reply)).
    pub stats: bool,
}

/// Gets a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowGet {
    /// The flow.
    pub name: FlowName,
    /// The requested parts.
    pub parts: FlowParts,
}

/// Requested parts of a flow. Its ufid and counters are always included. Flows without a ufid always include their
/// keys.
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
    /// Ufid and counters only.
    pub const TERSE: FlowParts = FlowParts { key: false, mask: false, actions: false };
    /// Everything.
    pub const ALL: FlowParts = FlowParts { key: true, mask: true, actions: true };
}

/// A flow from the kernel, with attributes as received. The request determines its parts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowReply {
    /// Its datapath.
    pub dp_ifindex: u32,
    /// Its ufid, if it has one of 16 bytes.
    pub ufid: Option<Ufid>,
    /// Masked key; the unmasked one for flows identified by key.
    pub key: Option<Vec<u8>>,
    /// Mask.
    pub mask: Option<Vec<u8>>,
    /// Actions.
    pub actions: Option<Vec<u8>>,
    /// Counters; `used_ms` on the clock `CLOCK_MONOTONIC`, computed for each reply (a few milliseconds up or down),
    /// 0 for never.
    pub stats: FlowStats,
}

impl FlowParts {
    /// `OVS_UFID_F_OMIT_*` of unrequested parts.
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

/// Names of `OVS_FLOW_ATTR_*`, by number.
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

/// Maximum bytes of a reply with key, mask and actions: actions fill one attribute.
const FULL_REPLY_BYTES: usize = 72 << 10;

impl FlowReply {
    /// Key and mask as values; all bits for a flow without a mask. Returns the worse fitness of the two.
    ///
    /// # Errors
    /// The attributes are malformed, or the key was omitted.
    pub fn key_and_mask(&self, vlan_limit: u8) -> Result<(FlowKey, KeyMask, Fitness), AttrError> {
        let bytes = self.key.as_deref().ok_or(AttrError::Missing(attr::KEY))?;
        let (key, fitness) = parse_key(bytes, vlan_limit)?;
        let (mask, mask_fitness) = match self.mask.as_deref() {
            Some(mask) => parse_mask(mask, &key, vlan_limit)?,
            None => (exact(&key), Fitness::Perfect),
        };
        Ok((key, mask, fitness.max(mask_fitness)))
    }

    /// Actions as values; empty if omitted.
    ///
    /// # Errors
    /// Malformed actions, or nested too deep.
    pub fn dp_actions(&self) -> Result<Vec<DpAction>, ActionError> {
        self.actions.as_deref().map_or(Ok(Vec::new()), parse_actions)
    }

    /// Reads a flow from the kernel.
    pub(crate) fn parse(dp_ifindex: u32, attrs: Attrs<'_>) -> Result<FlowReply, AttrError> {
        let mut reply = FlowReply { dp_ifindex, ..FlowReply::default() };
        for a in attrs {
            match a.kind {
                attr::KEY => reply.key = Some(a.content.to_vec()),
                attr::MASK => reply.mask = Some(a.content.to_vec()),
                attr::ACTIONS => reply.actions = Some(a.content.to_vec()),
                // Ufids of other sizes belong to other programs.
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

/// An active dump of flows: an iterator that holds one socket and one buffer. Flows added or removed meanwhile may
/// be missing or repeated.
/// come twice.
pub struct FlowDump<'a>(Dump<'a>);

impl FlowDump<'_> {
    /// Whether the kernel has reported an inconsistent dump so far (`NLM_F_DUMP_INTR`).
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
    /// Begins a dump of all flows of a datapath.
    ///
    /// # Errors
    /// No socket is available, or the request cannot be sent. [`Error::is_no_device`] is returned as the first item.
    pub fn flow_dump(&self, dp_ifindex: u32, parts: FlowParts) -> Result<FlowDump<'_>, Error> {
        let asked = Asked::again("list flows", ATTRIBUTES, 0);
        let mut request = begin(&self.families.flow, command::GET, 0, dp_ifindex, asked);
        request.attrs.u32(attr::UFID_FLAGS, parts.omitted());
        self.pool.dump(&request.finish()?).map(FlowDump)
    }

    /// Removes all flows of a datapath.
    ///
    /// # Errors
    /// [`Error::is_no_device`] if there is no such datapath.
    pub fn flow_flush(&self, dp_ifindex: u32) -> Result<(), Error> {
        let asked = Asked::again("remove all flows", ATTRIBUTES, 0);
        // A deletion without a flow deletes all.
        let request = begin(&self.families.flow, command::DEL, 0, dp_ifindex, asked).finish()?;
        self.ask(request, FlowReply::parse).map(drop)
    }

    pub(super) fn put_message(&self, dp_ifindex: u32, put: &FlowPut) -> Result<NlRequest, Error> {
        let (command, flags, what) = match put.mode {
            // For this family, the flag requires that the flow does not exist.
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

    pub(super) fn del_message(&self, dp_ifindex: u32, del: &FlowDel) -> Result<NlRequest, Error> {
        let asked = Asked {
            // A repetition would lose the counters with the flow.
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

    pub(super) fn get_message(&self, dp_ifindex: u32, get: &FlowGet) -> Result<NlRequest, Error> {
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

    /// Maximum bytes of a reply about it: the kernel may add key, mask and actions for flows identified by key.
    fn reply_bytes(&self, parts: FlowParts) -> usize {
        match self {
            FlowName::Ufid(_) if !parts.actions => SMALL_REPLY_BYTES,
            FlowName::Ufid(_) | FlowName::Key(_) => FULL_REPLY_BYTES,
        }
    }
}

#[cfg(test)]
mod tests;
