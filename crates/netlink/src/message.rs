//! Netlink messages (linux/netlink.h, linux/genetlink.h, linux/netfilter/nfnetlink.h): building requests, parsing
//! datagrams.

use crate::error::{Error, Refusal};
use flow::nlattr::{AttrError, AttrWriter, Attrs};
use std::borrow::Cow;

/// Bytes of `struct nlmsghdr`: length, type, flags, sequence number, port id.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes of `struct genlmsghdr`: command, version, reserved.
pub(crate) const GENERIC_BYTES: usize = 4;
/// Bytes of `struct nfgenmsg`: address family, version, resource.
pub(crate) const NETFILTER_BYTES: usize = 4;
/// Receive buffer use of a reply without contents, by the kernel's accounting; includes refusals with messages.
const ACK_BYTES: usize = 2048;

/// NlRequest types.
pub(crate) mod kind {
    pub(crate) const NOOP: u16 = 1;
    pub(crate) const ERROR: u16 = 2;
    pub(crate) const DONE: u16 = 3;
    pub(crate) const OVERRUN: u16 = 4;
}

/// Flags of a message.
pub mod flag {
    /// A request.
    pub const REQUEST: u16 = 1;
    /// Requests an acknowledgement.
    pub const ACK: u16 = 4;
    /// Requests the created or removed object.
    pub const ECHO: u16 = 8;
    /// A dump is not consistent.
    pub const DUMP_INTR: u16 = 0x10;
    /// Requests a dump.
    pub const DUMP: u16 = 0x300;
    /// Create it if it does not exist.
    pub const CREATE: u16 = 0x400;
    /// In an error reply: without a copy of the request.
    pub(crate) const CAPPED: u16 = 0x100;
    /// In an error reply: attributes follow.
    pub(crate) const ACK_TLVS: u16 = 0x200;
}

/// Attributes of error replies (`NLMSGERR_ATTR_*`).
mod error_attr {
    pub(super) const MSG: u16 = 1;
    pub(super) const OFFS: u16 = 2;
    pub(super) const MISS_TYPE: u16 = 5;
}

/// Names of a family's attributes, by number.
pub type AttributeNames = &'static [&'static str];

/// Kind of a request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Description after "cannot": "put a flow".
    pub what: Cow<'static, str>,
    /// Names of the family's attributes, by number, for error messages.
    pub attributes: AttributeNames,
    /// Idempotent: a repetition is harmless, with an equally valid reply.
    pub repeatable: bool,
    /// Maximum bytes of its replies, besides the acknowledgement; 0: none.
    pub reply_bytes: usize,
}

impl Asked {
    /// A request that must not be repeated and has no reply.
    pub fn once(what: impl Into<Cow<'static, str>>, attributes: AttributeNames) -> Asked {
        Asked { what: what.into(), attributes, repeatable: false, reply_bytes: 0 }
    }

    /// An idempotent request, with a reply of at most this many bytes.
    pub fn again(
        what: impl Into<Cow<'static, str>>,
        attributes: AttributeNames,
        reply_bytes: usize,
    ) -> Asked {
        Asked { what: what.into(), attributes, repeatable: true, reply_bytes }
    }
}

/// A request: a netlink message without sequence number and port id.
#[derive(Clone, Debug)]
pub struct NlRequest {
    bytes: Vec<u8>,
    asked: Asked,
    /// Bytes before the attributes.
    head_bytes: usize,
}

/// A request under construction.
#[derive(Debug)]
pub struct MessageWriter {
    /// Attributes.
    pub attrs: AttrWriter,
    asked: Asked,
    head_bytes: usize,
}

impl MessageWriter {
    /// Begins a request of the generic netlink family of that number; `user_header` is the family's header after the
    /// generic one (a multiple of four bytes).
    pub fn new(
        family: u16,
        [command, version]: [u8; 2],
        flags: u16,
        user_header: &[u8],
        asked: Asked,
    ) -> MessageWriter {
        MessageWriter::begin(family, flags, &[&[command, version, 0, 0], user_header], asked)
    }

    /// Begins a request to netfilter: for a subsystem and an address family (0: all).
    pub fn netfilter(
        [subsystem, message]: [u8; 2],
        flags: u16,
        address_family: u8,
        asked: Asked,
    ) -> MessageWriter {
        let kind = u16::from_be_bytes([subsystem, message]);
        // Version 0, resource 0.
        MessageWriter::begin(kind, flags, &[&[address_family, 0, 0, 0]], asked)
    }

    /// Begins a message of that type; `headers` precede the attributes.
    fn begin(kind: u16, flags: u16, headers: &[&[u8]], asked: Asked) -> MessageWriter {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | flag::REQUEST).to_ne_bytes());
        headers.iter().for_each(|header| bytes.extend_from_slice(header));
        let head_bytes = bytes.len();
        MessageWriter { attrs: AttrWriter::behind(bytes), asked, head_bytes }
    }

    /// The request.
    ///
    /// # Errors
    /// [`Error::TooLong`] if an attribute does not fit.
    pub fn finish(self) -> Result<NlRequest, Error> {
        let MessageWriter { attrs, asked, head_bytes } = self;
        match attrs.finish() {
            Ok(mut bytes) => {
                let total = bytes.len() as u32;
                bytes[..4].copy_from_slice(&total.to_ne_bytes());
                Ok(NlRequest { bytes, asked, head_bytes })
            }
            Err(why) => Err(Error::TooLong { asked: asked.what.into_owned(), why }),
        }
    }
}

impl NlRequest {
    /// Description, for error messages ("put a flow").
    pub fn asked(&self) -> &str {
        &self.asked.what
    }

    pub(crate) fn is_repeatable(&self) -> bool {
        self.asked.repeatable
    }

    /// Bytes on the wire.
    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Maximum bytes of its replies.
    pub(crate) fn reply_bytes(&self) -> usize {
        self.asked.reply_bytes
    }

    /// Maximum receive buffer use of its replies, by the kernel's accounting.
    pub(crate) fn answer_bytes(&self) -> usize {
        let reply = self.asked.reply_bytes;
        // The kernel accounts for buffers, rounded to powers of two, and their management data.
        ACK_BYTES + if reply == 0 { 0 } else { reply.next_power_of_two() + ACK_BYTES }
    }

    /// Appends it with this port id and sequence number.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>, more_flags: u16, seq: u32, pid: u32) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let flags = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]) | more_flags;
        out[start + 6..start + 8].copy_from_slice(&flags.to_ne_bytes());
        out[start + 8..start + 12].copy_from_slice(&seq.to_ne_bytes());
        out[start + 12..start + 16].copy_from_slice(&pid.to_ne_bytes());
    }

    /// The result in an error reply to it; `Ok` for an acknowledgement.
    pub(crate) fn result(&self, answer: &Answer<'_>) -> Result<(), Error> {
        let bad = |why| Error::Answer { asked: self.asked().to_owned(), why };
        let code = answer.body.first_chunk().map(|c| i32::from_ne_bytes(*c));
        match code {
            None => Err(bad(AttrError::Cut { at_bytes: 0 })),
            Some(0) => Ok(()),
            Some(code) => Err(Error::Refused(Box::new(self.refusal(code.saturating_neg(), answer)))),
        }
    }

    /// A refusal with that error number.
    pub(crate) fn refusal(&self, errno: i32, answer: &Answer<'_>) -> Refusal {
        let attrs = answer.error_attributes().unwrap_or_default();
        let message = attrs.get(error_attr::MSG).and_then(|a| a.text().ok()).map(str::to_owned);
        let offset = attrs.get(error_attr::OFFS).and_then(|a| a.u32().ok());
        let missing = attrs.get(error_attr::MISS_TYPE).and_then(|a| a.u32().ok());
        let attribute = match (offset, missing) {
            (_, Some(kind)) => Some(format!("{}, which is missing", self.attribute_name(kind as u16))),
            (Some(offset), None) => self.attribute_at(offset as usize),
            (None, None) => None,
        };
        Refusal { errno, asked: self.asked().to_owned(), message, attribute }
    }

    fn attribute_name(&self, kind: u16) -> String {
        match self.asked.attributes.get(usize::from(kind)) {
            Some(name) => (*name).to_owned(),
            None => format!("attribute {kind}"),
        }
    }

    /// The attribute of the request at that offset.
    fn attribute_at(&self, offset: usize) -> Option<String> {
        let list = self.bytes.get(self.head_bytes..)?;
        let mut start = self.head_bytes;
        for a in Attrs::parse(list).ok()? {
            let content_start = start + 4;
            let end = (content_start + a.content.len()).next_multiple_of(4);
            if (start..end).contains(&offset) {
                let name = self.attribute_name(a.kind);
                let is_itself = offset == start || offset == content_start && !a.marked_nested;
                return Some(if is_itself {
                    name
                } else {
                    format!("{name}, byte {}", offset.saturating_sub(content_start))
                });
            }
            start = end;
        }
        None
    }
}

/// One message of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) seq: u32,
    /// The bytes after the header.
    pub(crate) body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// The attributes after an error and its request.
    fn error_attributes(&self) -> Option<Attrs<'a>> {
        if self.flags & flag::ACK_TLVS == 0 {
            return None;
        }
        let request_bytes = if self.flags & flag::CAPPED != 0 {
            HEADER_BYTES
        } else {
            u32::from_ne_bytes(*self.body.get(4..)?.first_chunk()?) as usize
        };
        Attrs::parse(self.body.get(4 + request_bytes.checked_next_multiple_of(4)?..)?).ok()
    }

    /// The error number at the end of a dump; 0: success.
    pub(crate) fn done_errno(&self) -> i32 {
        self.body.first_chunk().map_or(0, |c| i32::from_ne_bytes(*c)).saturating_neg()
    }
}

/// The messages of a datagram, in order. A truncated one ends it.
pub(crate) fn answers(bytes: &[u8]) -> impl Iterator<Item = Answer<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (answer, behind) = split(rest)?;
        rest = behind;
        Some(answer)
    })
}

/// The first message and the remaining bytes.
pub(crate) fn split(bytes: &[u8]) -> Option<(Answer<'_>, &[u8])> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
    let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let body = bytes.get(HEADER_BYTES..len)?;
    let answer = Answer {
        kind: u16::from_ne_bytes([header[4], header[5]]),
        flags: u16::from_ne_bytes([header[6], header[7]]),
        seq: u32::from_ne_bytes([header[8], header[9], header[10], header[11]]),
        body,
    };
    let end = len.checked_next_multiple_of(4)?;
    Some((answer, bytes.get(end..).unwrap_or(&[])))
}

#[cfg(test)]
mod tests;
