//! Representation of packets: header fields, flows, masks, matches and datapath keys.
//!
//! - [`fields`]: the field registry. One row per match field: name, width, NXM and OXM headers,
//!   prerequisites, place in a [`Flow`]. Codecs, text syntax and documentation derive from it.
//! - [`Flow`], [`Mask`], [`Match`]: all fields of a packet in the slow path, as one block of 64-bit words.
//! - [`FlowKey`]: the same packet for the datapath, a 64-byte block and cold extension blocks named by its shape.
//! - [`extract`]: bytes to [`FlowKey`], [`template`] the fast path for common packets; [`compose`]: the
//!   reverse, a frame of a flow.
//! - [`flow_hash`]: hashes that distribute packets over buckets and links.
//! - [`nlattr`]: netlink attributes, read and written; [`nlkey`]: keys and masks as such attributes, both ways.
//! - [`TunnelOptions`]: the options of a tunnel's outer header; [`TlvTable`]: their place in a flow; [`Wide`]: their
//!   values.
//! - [`Protocols`]: flow formats, which depend on fields and actions of a rule.
//! - [`SubField`]: a range of bits of a field.
//! - [`text`]: matches and flows as text, and shared parts of other syntax: tokens, numbers, ports,
//!   subfields.
//!
//! Integers are in host byte order everywhere; addresses of more than 4 bytes are byte arrays.
#![forbid(unsafe_code)]

pub mod compose;
pub mod extract;
pub mod fields;
mod flow;
pub mod flow_hash;
pub mod fuzz;
mod key;
mod matching;
pub mod nlattr;
pub mod nlkey;
mod nsh;
mod options;
mod packed;
mod packed_match;
mod protocols;
mod subfield;
pub mod template;
pub mod text;
mod tlv;
mod tunnel;
mod types;
mod wide;

pub use flow::{FLOW_WORDS, Flow, Mask, Registers, Stage, TcpFlags, VlanTag, ct_state, nw_frag};
pub use key::{ArpBlock, BaseBlock, CtBlock, FlowKey, Ipv6Block, KeyMask, shape};
pub use matching::Match;
pub use nlkey::key_attributes;
pub use nsh::{Nsh, nsh_np};
pub use options::{BadOptions, TunnelOption, TunnelOptions};
pub use packed::{KeyWord, PackedFlow, PackedKey};
pub use packed_match::{MaskWord, MaskedWords, PackedMask, PackedMatch};
pub use protocols::Protocols;
pub use subfield::SubField;
pub use tlv::{TLV_BYTES, TLV_FIELDS, TLV_VALUE_BYTES, TlvError, TlvMapping, TlvTable, TunMetadata};
pub use tunnel::{Erspan, OuterHeaders, Tunnel, tunnel_flags};
pub use types::{DpPort, MacAddr, OfPort, RecircId, TableId, Ufid, VlanId};
pub use wide::Wide;

#[cfg(test)]
mod tests;
