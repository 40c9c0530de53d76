//! [`Nsh`]: the fields of a network service header (RFC 8300), and its bytes.

use crate::flow::Flow;
use crate::key::FlowKey;
use packet::headers::{self as h, array, be32};

/// Next protocols (RFC 8300 §2.2).
pub mod nsh_np {
    /// IPv4.
    pub const IPV4: u8 = 1;
    /// IPv6.
    pub const IPV6: u8 = 2;
    /// Ethernet.
    pub const ETHERNET: u8 = 3;
    /// A further network service header.
    pub const NSH: u8 = 4;
}

/// Fields of a network service header, or a mask of them. Without the context headers of metadata type 2.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Nsh {
    /// Flags, 2 bits.
    pub flags: u8,
    /// Time to live, 6 bits.
    pub ttl: u8,
    /// Metadata type.
    pub mdtype: u8,
    /// Next protocol, one of [`nsh_np`].
    pub np: u8,
    /// Service path identifier (24 bits) and service index.
    pub path: u32,
    /// The context headers of metadata type 1.
    pub context: [u32; 4],
}

impl Nsh {
    /// The mask of all bits.
    pub const ALL: Nsh = Nsh {
        flags: u8::MAX,
        ttl: u8::MAX,
        mdtype: u8::MAX,
        np: u8::MAX,
        path: u32::MAX,
        context: [u32::MAX; 4],
    };
    /// Bytes of [`Nsh::base`].
    pub const BASE_BYTES: usize = 8;
    /// Bytes of [`Nsh::contexts`].
    pub const CONTEXT_BYTES: usize = 16;

    /// Parses a header at the start of `bytes`. `None`: its version is not 0, its metadata type is unknown, or its
    /// length contradicts either.
    pub fn parse(bytes: &[u8]) -> Option<Nsh> {
        let base: [u8; h::NSH_BASE_BYTES] = array(bytes, 0)?;
        Nsh::len_bytes(bytes)?;
        let context = if base[2] == h::NSH_MD_TYPE1 { array(bytes, h::NSH_BASE_BYTES)? } else { [0; 16] };
        Some(Nsh {
            flags: base[0] >> 4 & 3,
            ttl: (u16::from_be_bytes([base[0], base[1]]) >> 6) as u8 & 0x3f,
            mdtype: base[2],
            np: base[3],
            path: be32(&base, 4)?,
            ..Nsh::from_bytes([0; 8], context)
        })
    }

    /// The length of a header at the start of `bytes`, if [`Nsh::parse`] accepts it.
    pub fn len_bytes(bytes: &[u8]) -> Option<usize> {
        let base: [u8; h::NSH_BASE_BYTES] = array(bytes, 0)?;
        let len = usize::from(base[1] & 0x3f) * 4;
        let fits = match base[2] {
            h::NSH_MD_TYPE1 => len == h::NSH_MD1_BYTES,
            h::NSH_MD_TYPE2 => len >= h::NSH_BASE_BYTES,
            _ => false,
        };
        (base[0] >> 6 == 0 && fits && len <= bytes.len()).then_some(len)
    }

    /// The first bytes of a header of that whole length; the contexts follow.
    pub fn header(&self, len_bytes: usize) -> [u8; h::NSH_BASE_BYTES] {
        let words = (len_bytes / 4) as u16 & 0x3f;
        let first = u16::from(self.flags & 3) << 12 | u16::from(self.ttl & 0x3f) << 6 | words;
        let ([a, b], [e, f, g, i]) = (first.to_be_bytes(), self.path.to_be_bytes());
        [a, b, self.mdtype, self.np, e, f, g, i]
    }

    /// The fields as `struct ovs_nsh_key_base`, without the contexts.
    pub fn base(&self) -> [u8; Nsh::BASE_BYTES] {
        let [a, b, c, d] = self.path.to_be_bytes();
        [self.flags, self.ttl, self.mdtype, self.np, a, b, c, d]
    }

    /// The context headers of metadata type 1.
    pub fn contexts(&self) -> [u8; Nsh::CONTEXT_BYTES] {
        let mut out = [0; Nsh::CONTEXT_BYTES];
        for (to, word) in out.chunks_exact_mut(4).zip(self.context) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        out
    }

    /// The inverse of [`Nsh::base`] and [`Nsh::contexts`].
    pub fn from_bytes(base: [u8; Nsh::BASE_BYTES], contexts: [u8; Nsh::CONTEXT_BYTES]) -> Nsh {
        let [flags, ttl, mdtype, np, path @ ..] = base;
        let word = |i: usize| be32(&contexts, 4 * i).unwrap_or(0);
        Nsh { flags, ttl, mdtype, np, path: u32::from_be_bytes(path), context: std::array::from_fn(word) }
    }

    /// Keeps only the bits of `mask`.
    pub fn masked(&self, mask: &Nsh) -> Nsh {
        Nsh {
            flags: self.flags & mask.flags,
            ttl: self.ttl & mask.ttl,
            mdtype: self.mdtype & mask.mdtype,
            np: self.np & mask.np,
            path: self.path & mask.path,
            context: std::array::from_fn(|i| self.context[i] & mask.context[i]),
        }
    }

    /// This header with the bits `mask` of `value`.
    pub fn with(&self, value: &Nsh, mask: &Nsh) -> Nsh {
        let merge = |old: u8, new: u8, mask: u8| old & !mask | new & mask;
        Nsh {
            flags: merge(self.flags, value.flags, mask.flags),
            ttl: merge(self.ttl, value.ttl, mask.ttl),
            mdtype: merge(self.mdtype, value.mdtype, mask.mdtype),
            np: merge(self.np, value.np, mask.np),
            path: self.path & !mask.path | value.path & mask.path,
            context: std::array::from_fn(|i| {
                self.context[i] & !mask.context[i] | value.context[i] & mask.context[i]
            }),
        }
    }
}

impl Flow {
    /// The fields of a network service header.
    pub fn nsh(&self) -> Nsh {
        Nsh {
            flags: self.nsh_flags,
            ttl: self.nsh_ttl,
            mdtype: self.nsh_mdtype,
            np: self.nsh_np,
            path: self.nsh_path,
            context: self.nsh_context,
        }
    }

    /// Writes the fields of a network service header.
    pub fn set_nsh(&mut self, nsh: &Nsh) {
        (self.nsh_flags, self.nsh_ttl, self.nsh_mdtype, self.nsh_np) =
            (nsh.flags, nsh.ttl, nsh.mdtype, nsh.np);
        (self.nsh_path, self.nsh_context) = (nsh.path, nsh.context);
    }
}

impl FlowKey {
    /// The fields of a network service header, of a packet that has one.
    pub fn nsh(&self) -> Nsh {
        let a = &self.arp;
        Nsh {
            flags: a.nsh_flags,
            ttl: a.nsh_ttl,
            mdtype: a.nsh_mdtype,
            np: a.nsh_np,
            path: a.igmp_group,
            context: a.nsh_context,
        }
    }

    /// Writes the fields of a network service header, for a packet that has one.
    pub fn set_nsh(&mut self, nsh: &Nsh) {
        let a = &mut self.arp;
        (a.nsh_flags, a.nsh_ttl, a.nsh_mdtype, a.nsh_np) = (nsh.flags, nsh.ttl, nsh.mdtype, nsh.np);
        (a.igmp_group, a.nsh_context) = (nsh.path, nsh.context);
    }
}

#[cfg(test)]
mod tests;
