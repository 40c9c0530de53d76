//! Datapath actions as netlink attributes (`OVS_ACTION_ATTR_*` of linux/openvswitch.h) and back; each action's file
//! has its own encoding.
//!
//! Nothing is omitted silently: an action unsupported by the kernel or too long for an attribute is an error. Flows
//! of other programs may have unknown actions; those are read as [`Foreign`](crate::actions::Foreign), and written
//! back unchanged.

use crate::actions::{self, DpAction, ReadFn};
use flow::OfPort;
use flow::nlattr::{AttrError, AttrWriter, Attrs, TooLong};

/// Maximum nesting of actions, in both directions. The kernel's limit is lower.
pub const DEPTH_MAX: usize = 16;

/// Maximum bytes of an attribute's content.
const CONTENT_MAX: usize = 0xffff - 4;
/// `OVS_FLOW_ATTR_ACTIONS`.
const FLOW_ATTR_ACTIONS: u16 = 2;

/// Context of encoded actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActionContext {
    /// Port id of the socket of userspace actions. Must not be 0; the kernel ignores it with per-CPU dispatch
    /// (`u32::MAX` by convention).
    pub upcall_pid: u32,
    /// For cookies: the packet's OpenFlow input port.
    pub in_port: OfPort,
    /// For cookies: UUID of the bridge.
    pub bridge: [u8; 16],
    /// The kernel has `OVS_ACTION_ATTR_DROP` (Linux 6.7); otherwise a drop is an empty list.
    pub explicit_drop: bool,
}

/// Errors of encoding or decoding actions.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ActionError {
    /// The kernel does not support this; the slow path emulates it.
    #[error("the kernel cannot {0}")]
    NeedsEmulation(&'static str),
    /// An action, or a detail of one, that this switch cannot express.
    #[error("an action of another program")]
    Foreign,
    /// Malformed bytes.
    #[error("bad actions: {0}")]
    Malformed(#[from] AttrError),
    /// Actions nested too deep.
    #[error("actions nest deeper than {DEPTH_MAX}")]
    TooDeep,
    /// More actions than fit an attribute.
    #[error("too many actions: {0}")]
    TooLong(#[from] TooLong),
}

/// Appends a list of actions to `out`.
///
/// # Errors
/// [`ActionError::NeedsEmulation`], [`ActionError::TooDeep`]. [`AttrWriter::finish`] reports excessive length.
pub fn write_actions(
    out: &mut AttrWriter,
    actions: &[DpAction],
    context: &ActionContext,
) -> Result<(), ActionError> {
    Writer { context, depth: 0 }.here(out, actions)
}

/// The bytes of a list of actions (the content of `OVS_FLOW_ATTR_ACTIONS`).
///
/// # Errors
/// [`ActionError::NeedsEmulation`], [`ActionError::TooDeep`], [`ActionError::TooLong`].
pub fn actions_to_bytes(actions: &[DpAction], context: &ActionContext) -> Result<Vec<u8>, ActionError> {
    let mut out = AttrWriter::new();
    write_actions(&mut out, actions, context)?;
    let bytes = out.finish()?;
    if bytes.len() > CONTENT_MAX {
        return Err(TooLong { kind: FLOW_ATTR_ACTIONS, has_bytes: bytes.len() }.into());
    }
    Ok(bytes)
}

/// Writes actions at a given nesting depth.
pub(crate) struct Writer<'a> {
    pub(crate) context: &'a ActionContext,
    depth: usize,
}

impl Writer<'_> {
    /// A nested list.
    pub(crate) fn list(&self, out: &mut AttrWriter, actions: &[DpAction]) -> Result<(), ActionError> {
        Writer { context: self.context, depth: self.depth + 1 }.here(out, actions)
    }

    fn here(&self, out: &mut AttrWriter, actions: &[DpAction]) -> Result<(), ActionError> {
        if self.depth > DEPTH_MAX {
            return Err(ActionError::TooDeep);
        }
        for action in actions {
            action.write(out, self)?;
            // The kernel requires such an action to be last.
            if action.ends_list() {
                break;
            }
        }
        Ok(())
    }
}

/// Reads a list of actions (the content of `OVS_FLOW_ATTR_ACTIONS`).
///
/// # Errors
/// [`ActionError::Malformed`], [`ActionError::TooDeep`].
pub fn parse_actions(bytes: &[u8]) -> Result<Vec<DpAction>, ActionError> {
    Reader { depth: 0 }.here(Attrs::parse(bytes)?)
}

/// Reads actions at a given nesting depth.
pub(crate) struct Reader {
    depth: usize,
}

impl Reader {
    /// A nested list.
    pub(crate) fn list(&self, attrs: Attrs<'_>) -> Result<Vec<DpAction>, ActionError> {
        Reader { depth: self.depth + 1 }.here(attrs)
    }

    fn here(&self, attrs: Attrs<'_>) -> Result<Vec<DpAction>, ActionError> {
        if self.depth > DEPTH_MAX {
            return Err(ActionError::TooDeep);
        }
        attrs.into_iter().map(|a| actions::read(&a, self)).collect()
    }
}

/// Readers by attribute number; numbers must be distinct and less than `N`.
pub(crate) const fn by_attribute<const N: usize>(rows: &[(&[u16], ReadFn)]) -> [Option<ReadFn>; N] {
    let mut readers = [None; N];
    let mut i = 0;
    while i < rows.len() {
        let mut j = 0;
        while j < rows[i].0.len() {
            let kind = rows[i].0[j] as usize;
            assert!(kind < N, "the table of attributes is too small");
            assert!(readers[kind].is_none(), "two actions have the same attribute");
            readers[kind] = Some(rows[i].1);
            j += 1;
        }
        i += 1;
    }
    readers
}

#[cfg(test)]
mod tests;
