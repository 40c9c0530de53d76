//! Sets of named bits: TCP flags, conntrack state, tunnel flags.

use super::number::{field_integer, hex};
use super::{Parsed, fail};
use crate::flow::{TcpFlags, ct_state};
use crate::tunnel::tunnel_flags;
use std::fmt::Write;

/// Names of a field's bits.
pub(crate) struct FlagSet {
    /// Their name in errors.
    what: &'static str,
    /// Bit and name, lowest bit first.
    names: &'static [(u32, &'static str)],
    /// All valid bits of a value.
    pub(crate) all: u32,
    /// Bytes of the field.
    wire_bytes: u8,
}

/// Flags of TCP.
pub(crate) static TCP: FlagSet = FlagSet {
    what: "TCP flag",
    names: &{
        // Reserved bits are named by their value.
        let mut names = [
            (0, ""),
            (0, ""),
            (0, ""),
            (0, ""),
            (0, ""),
            (0, ""),
            (0, ""),
            (0, ""),
            (0, ""),
            (0x200, "[200]"),
            (0x400, "[400]"),
            (0x800, "[800]"),
        ];
        let mut i = 0;
        while i < TcpFlags::NAMES.len() {
            names[i] = (1 << i, TcpFlags::NAMES[i]);
            i += 1;
        }
        names
    },
    all: TcpFlags::MASK as u32,
    wire_bytes: 2,
};

/// Bits of `ct_state`.
pub(crate) static CT_STATE: FlagSet = FlagSet {
    what: "ct_state flag",
    names: &[
        (ct_state::NEW, "new"),
        (ct_state::EST, "est"),
        (ct_state::REL, "rel"),
        (ct_state::RPL, "rpl"),
        (ct_state::INV, "inv"),
        (ct_state::TRK, "trk"),
        (ct_state::SNAT, "snat"),
        (ct_state::DNAT, "dnat"),
    ],
    all: 0xff,
    wire_bytes: 4,
};

/// Tunnel flags valid in a match.
pub(crate) static TUNNEL: FlagSet =
    FlagSet { what: "tunnel flag", names: &[(1, "oam")], all: 1, wire_bytes: 2 };

/// All tunnel flags, as in packets and megaflows.
pub(crate) static TUNNEL_OF_PACKET: FlagSet = FlagSet {
    what: "tunnel flag",
    names: &[(1, "oam"), (2, "df"), (4, "csum"), (8, "key")],
    all: tunnel_flags::ALL as u32,
    wire_bytes: 2,
};

/// The bit of a `ct_state` flag's name.
pub fn ct_state_flag(name: &str) -> Option<u32> {
    CT_STATE.bit(name)
}

/// Names of the bits of a `ct_state`, as `est|trk`; `0` for none.
pub fn format_ct_state(state: u32) -> String {
    CT_STATE.format(state)
}

impl FlagSet {
    fn bit(&self, name: &str) -> Option<u32> {
        self.names.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit)
    }

    fn unknown<T>(&self, part: &str) -> Parsed<T> {
        fail(part, format!("{part}: unknown {}(s)", self.what))
    }

    /// `+a-b`, `a|b`, a number, or a number with a mask.
    pub(crate) fn parse(&self, text: &str) -> Parsed<(u32, u32)> {
        if text.starts_with(['+', '-']) {
            return self.parse_signed(text);
        }
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return self.parse_number(text);
        }
        let mut value = 0;
        for name in text.split('|') {
            let named = self.bit(name).or_else(|| bracketed(name).filter(|n| n & !self.all == 0));
            match named {
                Some(bit) => value |= bit,
                None => return self.unknown(name),
            }
        }
        Ok((value, self.all))
    }

    fn parse_number(&self, text: &str) -> Parsed<(u32, u32)> {
        let number =
            |s| field_integer(s, self.wire_bytes).ok().map(|n| n as u32).filter(|n| n & !self.all == 0);
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (number(value), number(mask)),
            None => (number(text), Some(self.all)),
        };
        match value.zip(mask) {
            Some((value, mask)) => Ok((value & mask, mask)),
            None => self.unknown(text),
        }
    }

    fn parse_signed(&self, text: &str) -> Parsed<(u32, u32)> {
        let (mut value, mut mask) = (0, 0);
        let mut rest = text;
        while let Some(sign) = rest.chars().next() {
            let body = &rest[1..];
            let end = body.find(['+', '-']).unwrap_or(body.len());
            let name = &body[..end];
            let bit = match self.bit(name).or_else(|| bracketed(name).filter(|n| n & !self.all == 0)) {
                Some(bit) => bit,
                None => return self.unknown(name),
            };
            if mask & bit != 0 {
                return fail(name, format!("{name}: Each {} can be specified only once", self.what));
            }
            mask |= bit;
            if sign == '+' {
                value |= bit;
            }
            rest = &body[end..];
        }
        Ok((value, mask))
    }

    /// `a|b`, or `0`.
    pub(crate) fn format(&self, value: u32) -> String {
        if value == 0 {
            return "0".into();
        }
        let mut parts: Vec<String> =
            self.names.iter().filter(|(bit, _)| value & bit != 0).map(|(_, name)| (*name).into()).collect();
        let unnamed = value & !self.named();
        if unnamed != 0 {
            parts.push(format!("[{unnamed:x}]"));
        }
        parts.join("|")
    }

    /// `+a-b`.
    pub(crate) fn format_signed(&self, value: u32, mask: u32) -> String {
        let mut out = String::new();
        for (bit, name) in self.names.iter().filter(|(bit, _)| mask & bit != 0) {
            out.push(if value & bit != 0 { '+' } else { '-' });
            out.push_str(name);
        }
        for (sign, bits) in [('+', value & mask & !self.named()), ('-', !value & mask & !self.named())] {
            if bits != 0 {
                let _ = write!(out, "{sign}[{bits:x}]");
            }
        }
        if out.is_empty() { hex(0) } else { out }
    }

    fn named(&self) -> u32 {
        self.names.iter().fold(0, |all, (bit, _)| all | bit)
    }
}

/// `[HEX]`: bits without a name.
fn bracketed(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('[')?.strip_suffix(']')?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(digits, 16).ok()).flatten().filter(|n| *n != 0)
}
