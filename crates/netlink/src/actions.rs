//! Datapath actions as attributes (`OVS_ACTION_ATTR_*` of linux/openvswitch.h) and back.
//!
//! Headers are rewritten by `SET_MASKED`, whose values are zero outside their masks, as the kernel demands. Nothing is left out
//! silently: what the kernel cannot do ([`DpAction::needs_help`]) or what does not fit an attribute is an error. Flows of other programs
//! may hold actions that this switch has no word for; those are read as [`DpAction::Foreign`], and written as they were.

mod ct;
mod set;

use crate::cookie::{CookieInfo, parse_cookie, write_cookie};
use dpif::{DpAction, HashAlgorithm, UserCookie, XlateDrop};
use flow::nlattr::{Attr, AttrError, AttrWriter, Attrs, TooLong};
use flow::{DpPort, OfPort, RecircId};

/// How deep actions nest at most, in both directions. The kernel takes less.
pub const DEPTH_MAX: usize = 16;

/// Bytes of an attribute's content at most.
const CONTENT_MAX: usize = 0xffff - 4;
/// `OVS_FLOW_ATTR_ACTIONS`.
const FLOW_ATTR_ACTIONS: u16 = 2;

/// What actions do not say themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActionContext {
    /// Port id of the socket that userspace actions send to. Must not be 0; with per-CPU dispatch the kernel takes no notice of it
    /// (`u32::MAX` by convention).
    pub upcall_pid: u32,
    /// Told in cookies: the packet's OpenFlow input port.
    pub in_port: OfPort,
    /// Told in cookies: UUID of the bridge.
    pub bridge: [u8; 16],
    /// The kernel has `OVS_ACTION_ATTR_DROP` (Linux 6.7); otherwise a drop is no action at all.
    pub explicit_drop: bool,
}

/// Actions that cannot be written or read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ActionError {
    /// The kernel cannot do this by itself.
    #[error("the kernel cannot {0}")]
    NeedsHelp(&'static str),
    /// An action, or a detail of one, that this switch has no word for.
    #[error("an action of another program")]
    Foreign,
    /// Bytes that are no actions.
    #[error("bad actions: {0}")]
    Malformed(#[from] AttrError),
    /// Actions within each other.
    #[error("actions nest deeper than {DEPTH_MAX}")]
    TooDeep,
    /// More actions than an attribute holds.
    #[error("too many actions: {0}")]
    TooLong(#[from] TooLong),
}

/// `OVS_ACTION_ATTR_*`.
mod attr {
    pub(super) const OUTPUT: u16 = 1;
    pub(super) const USERSPACE: u16 = 2;
    pub(super) const SET: u16 = 3;
    pub(super) const PUSH_VLAN: u16 = 4;
    pub(super) const POP_VLAN: u16 = 5;
    pub(super) const SAMPLE: u16 = 6;
    pub(super) const RECIRC: u16 = 7;
    pub(super) const HASH: u16 = 8;
    pub(super) const PUSH_MPLS: u16 = 9;
    pub(super) const POP_MPLS: u16 = 10;
    pub(super) const SET_MASKED: u16 = 11;
    pub(super) const CT: u16 = 12;
    pub(super) const TRUNC: u16 = 13;
    pub(super) const PUSH_ETH: u16 = 14;
    pub(super) const POP_ETH: u16 = 15;
    pub(super) const CT_CLEAR: u16 = 16;
    pub(super) const METER: u16 = 19;
    pub(super) const CLONE: u16 = 20;
    pub(super) const CHECK_PKT_LEN: u16 = 21;
    pub(super) const DEC_TTL: u16 = 23;
    pub(super) const DROP: u16 = 24;
    /// Within USERSPACE.
    pub(super) const USERSPACE_PID: u16 = 1;
    pub(super) const USERSPACE_USERDATA: u16 = 2;
    /// Within SAMPLE.
    pub(super) const SAMPLE_PROBABILITY: u16 = 1;
    pub(super) const SAMPLE_ACTIONS: u16 = 2;
    /// Within CHECK_PKT_LEN.
    pub(super) const PKT_LEN: u16 = 1;
    pub(super) const IF_GREATER: u16 = 2;
    pub(super) const IF_LESS_EQUAL: u16 = 3;
    /// Within DEC_TTL.
    pub(super) const DEC_TTL_ACTION: u16 = 1;
}

/// Appends a list of actions to `out`.
///
/// # Errors
/// [`ActionError::NeedsHelp`], [`ActionError::TooDeep`]. That something does not fit is told by [`AttrWriter::finish`].
pub fn write_actions(
    out: &mut AttrWriter,
    actions: &[DpAction],
    context: &ActionContext,
) -> Result<(), ActionError> {
    write_list(out, actions, context, 0)
}

/// The bytes of a list of actions (the content of `OVS_FLOW_ATTR_ACTIONS`).
///
/// # Errors
/// [`ActionError::NeedsHelp`], [`ActionError::TooDeep`], [`ActionError::TooLong`].
pub fn actions_to_bytes(actions: &[DpAction], context: &ActionContext) -> Result<Vec<u8>, ActionError> {
    let mut out = AttrWriter::new();
    write_actions(&mut out, actions, context)?;
    let bytes = out.finish()?;
    if bytes.len() > CONTENT_MAX {
        return Err(TooLong { kind: FLOW_ATTR_ACTIONS, has_bytes: bytes.len() }.into());
    }
    Ok(bytes)
}

fn write_list(
    out: &mut AttrWriter,
    actions: &[DpAction],
    context: &ActionContext,
    depth: usize,
) -> Result<(), ActionError> {
    if depth > DEPTH_MAX {
        return Err(ActionError::TooDeep);
    }
    for action in actions {
        write_one(out, action, context, depth)?;
        // What follows a drop is never reached, and the kernel wants a drop last.
        if matches!(action, DpAction::Drop(_)) {
            break;
        }
    }
    Ok(())
}

fn write_one(
    out: &mut AttrWriter,
    action: &DpAction,
    context: &ActionContext,
    depth: usize,
) -> Result<(), ActionError> {
    match action {
        DpAction::Output(port) => out.u32(attr::OUTPUT, port.0),
        DpAction::Userspace(cookie) => {
            let info = CookieInfo { cookie: *cookie, in_port: context.in_port, bridge: context.bridge };
            out.nested(attr::USERSPACE, |out| {
                out.u32(attr::USERSPACE_PID, context.upcall_pid);
                out.put(attr::USERSPACE_USERDATA, &write_cookie(&info));
            });
        }
        DpAction::Set(set) => {
            if let Some(what) = set::unsettable(set) {
                return Err(ActionError::NeedsHelp(what));
            }
            set::write(out, set);
        }
        DpAction::PushVlan { tpid, tci } => {
            out.put(attr::PUSH_VLAN, &[tpid.to_be_bytes(), tci.to_be_bytes()].concat());
        }
        DpAction::PopVlan => out.flag(attr::POP_VLAN),
        DpAction::Trunc(bytes) => out.u32(attr::TRUNC, *bytes),
        DpAction::Recirc(id) => out.u32(attr::RECIRC, id.0),
        DpAction::Meter(id) => out.u32(attr::METER, *id),
        DpAction::Sample { probability, actions } => out.nested(attr::SAMPLE, |out| {
            out.u32(attr::SAMPLE_PROBABILITY, *probability);
            out.nested(attr::SAMPLE_ACTIONS, |out| write_list(out, actions, context, depth + 1))
        })?,
        DpAction::Clone(actions) => {
            out.nested(attr::CLONE, |out| write_list(out, actions, context, depth + 1))?;
        }
        DpAction::Hash { algorithm, basis } => {
            out.put(attr::HASH, &[(*algorithm as u32).to_ne_bytes(), basis.to_ne_bytes()].concat());
        }
        // The structure ends with two bytes of padding.
        DpAction::PushMpls { lse, ethertype } => {
            out.put(attr::PUSH_MPLS, &[&lse.to_be_bytes()[..], &ethertype.to_be_bytes(), &[0; 2]].concat());
        }
        DpAction::PopMpls { ethertype } => out.be16(attr::POP_MPLS, *ethertype),
        DpAction::Ct(action) => out.nested(attr::CT, |out| ct::write(out, action)),
        DpAction::CtClear => out.flag(attr::CT_CLEAR),
        DpAction::PushEth { src, dst } => out.put(attr::PUSH_ETH, &[*src, *dst].concat()),
        DpAction::PopEth => out.flag(attr::POP_ETH),
        DpAction::CheckPktLen { len, greater, less } => out.nested(attr::CHECK_PKT_LEN, |out| {
            out.u16(attr::PKT_LEN, *len);
            out.nested(attr::IF_GREATER, |out| write_list(out, greater, context, depth + 1))?;
            out.nested(attr::IF_LESS_EQUAL, |out| write_list(out, less, context, depth + 1))
        })?,
        DpAction::DecTtl(actions) => out.nested(attr::DEC_TTL, |out| {
            out.nested(attr::DEC_TTL_ACTION, |out| write_list(out, actions, context, depth + 1))
        })?,
        DpAction::Drop(why) if context.explicit_drop => out.u32(attr::DROP, *why as u32),
        DpAction::Drop(_) => {}
        DpAction::Foreign { kind, content } => out.put(*kind, content),
    }
    Ok(())
}

/// Reads a list of actions (the content of `OVS_FLOW_ATTR_ACTIONS`).
///
/// # Errors
/// [`ActionError::Malformed`], [`ActionError::TooDeep`].
pub fn parse_actions(bytes: &[u8]) -> Result<Vec<DpAction>, ActionError> {
    parse_list(Attrs::parse(bytes)?, 0)
}

fn parse_list(attrs: Attrs<'_>, depth: usize) -> Result<Vec<DpAction>, ActionError> {
    if depth > DEPTH_MAX {
        return Err(ActionError::TooDeep);
    }
    attrs.into_iter().map(|a| parse_one(&a, depth)).collect()
}

fn parse_one(a: &Attr<'_>, depth: usize) -> Result<DpAction, ActionError> {
    match parse_own(a, depth) {
        Err(ActionError::Foreign) => Ok(DpAction::Foreign { kind: a.kind, content: a.content.into() }),
        other => other,
    }
}

/// An action that this switch makes itself.
fn parse_own(a: &Attr<'_>, depth: usize) -> Result<DpAction, ActionError> {
    Ok(match a.kind {
        attr::OUTPUT => DpAction::Output(DpPort(a.u32()?)),
        attr::USERSPACE => DpAction::Userspace(parse_userspace(a)?),
        attr::SET => DpAction::Set(set::parse_plain(a)?),
        attr::SET_MASKED => DpAction::Set(set::parse_masked(a)?),
        attr::PUSH_VLAN => {
            let [a, b, c, d] = a.array()?;
            DpAction::PushVlan { tpid: u16::from_be_bytes([a, b]), tci: u16::from_be_bytes([c, d]) }
        }
        attr::POP_VLAN => DpAction::PopVlan,
        attr::TRUNC => DpAction::Trunc(a.u32()?),
        attr::RECIRC => DpAction::Recirc(RecircId(a.u32()?)),
        attr::METER => DpAction::Meter(a.u32()?),
        attr::SAMPLE => {
            let inner = a.nested()?;
            let probability = inner.require(attr::SAMPLE_PROBABILITY)?.u32()?;
            let actions = inner.require(attr::SAMPLE_ACTIONS)?.nested()?;
            DpAction::Sample { probability, actions: parse_list(actions, depth + 1)? }
        }
        attr::CLONE => DpAction::Clone(parse_list(a.nested()?, depth + 1)?),
        attr::HASH => {
            let [a, b, c, d, basis @ ..] = a.array::<8>()?;
            let algorithm = match u32::from_ne_bytes([a, b, c, d]) {
                0 => HashAlgorithm::L4,
                1 => HashAlgorithm::SymL4,
                _ => return Err(ActionError::Foreign),
            };
            DpAction::Hash { algorithm, basis: u32::from_ne_bytes(basis) }
        }
        attr::PUSH_MPLS => {
            let [a, b, c, d, e, f, _, _] = a.array()?;
            DpAction::PushMpls {
                lse: u32::from_be_bytes([a, b, c, d]),
                ethertype: u16::from_be_bytes([e, f]),
            }
        }
        attr::POP_MPLS => DpAction::PopMpls { ethertype: a.be16()? },
        attr::CT => DpAction::Ct(Box::new(ct::parse(a.nested()?)?)),
        attr::CT_CLEAR => DpAction::CtClear,
        attr::PUSH_ETH => {
            let [a, b, c, d, e, f, dst @ ..] = a.array::<12>()?;
            DpAction::PushEth { src: [a, b, c, d, e, f], dst }
        }
        attr::POP_ETH => DpAction::PopEth,
        attr::CHECK_PKT_LEN => {
            let inner = a.nested()?;
            let list = |kind| parse_list(inner.require(kind)?.nested()?, depth + 1);
            DpAction::CheckPktLen {
                len: inner.require(attr::PKT_LEN)?.u16()?,
                greater: list(attr::IF_GREATER)?,
                less: list(attr::IF_LESS_EQUAL)?,
            }
        }
        attr::DEC_TTL => {
            DpAction::DecTtl(parse_list(a.nested()?.require(attr::DEC_TTL_ACTION)?.nested()?, depth + 1)?)
        }
        attr::DROP => {
            let why = a.u32()?;
            let ours = XlateDrop::ALL.into_iter().find(|d| *d as u32 == why);
            DpAction::Drop(ours.ok_or(ActionError::Foreign)?)
        }
        _ => return Err(ActionError::Foreign),
    })
}

/// The cookie; whose socket it goes to is not told.
fn parse_userspace(a: &Attr<'_>) -> Result<UserCookie, ActionError> {
    let inner = a.nested()?;
    if inner.into_iter().any(|a| !matches!(a.kind, attr::USERSPACE_PID | attr::USERSPACE_USERDATA)) {
        return Err(ActionError::Foreign);
    }
    inner.require(attr::USERSPACE_PID)?.u32()?;
    let userdata = inner.get(attr::USERSPACE_USERDATA).map_or(&[][..], |a| a.content);
    parse_cookie(userdata).map(|info| info.cookie).map_err(|_| ActionError::Foreign)
}

#[cfg(test)]
mod tests;
