//! Protocol errors: names, their numbers in each version, and the error message.
//!
//! One row per error of the table in `table.rs`. A decoder returns an [`OfError`] for a bad message; the
//! session sends it as `OFPT_ERROR` (OpenFlow 1.0 §5.4.4, 1.3 §7.4.4). Errors that a version lacks are sent
//! as Nicira's vendor errors (type 0xb0c2 before 1.2, experimenter errors since), as stock tools expect.

mod table;

pub use table::ErrorKind;

use crate::version::Version;
use crate::wire::{MAX_MESSAGE_BYTES, Reader, Res, Writer};
use std::fmt;

/// Nicira's experimenter id.
pub const NX_VENDOR: u32 = 0x0000_2320;
/// The Open Networking Foundation's experimenter id.
pub const ONF_VENDOR: u32 = 0x4f4e_4600;
/// Experimenter of the fields of network service headers.
pub(crate) const NSH_VENDOR: u32 = 0x005a_d650;

/// Type of Nicira's vendor errors in OpenFlow 1.0 and 1.1.
const NXET_VENDOR: u16 = 0xb0c2;
/// Type of experimenter errors since OpenFlow 1.2.
const OFPET_EXPERIMENTER: u16 = 0xffff;

/// Numbers of an error in a range of versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Numbers {
    /// 0 for a standard error.
    vendor: u32,
    first: u8,
    last: u8,
    ty: u16,
    code: u16,
}

/// An error in its wire form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WireError {
    /// Experimenter id, 0 for a standard error.
    pub vendor: u32,
    /// Type (of an experimenter error since 1.2: its experimenter type).
    pub ty: u16,
    /// Code (0 for an experimenter error since 1.2).
    pub code: u16,
}

impl ErrorKind {
    /// Its numbers in `version`, if any.
    pub fn wire(self, version: Version) -> Option<WireError> {
        let n = self.numbers().iter().find(|n| (n.first..=n.last).contains(&version.0))?;
        Some(WireError { vendor: n.vendor, ty: n.ty, code: n.code })
    }

    /// The error with these numbers.
    pub fn from_wire(wire: WireError, version: Version) -> Option<ErrorKind> {
        ErrorKind::ALL.iter().copied().find(|k| k.wire(version) == Some(wire))
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error of a rejected message, with the fields of its error message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind} in a message of {version} (xid {xid:#x})")]
pub struct OfError {
    /// The error.
    pub kind: ErrorKind,
    /// Version of the reply.
    pub version: Version,
    /// Transaction id of the rejected message.
    pub xid: u32,
    /// The rejected message.
    pub data: Vec<u8>,
}

impl OfError {
    /// An error about `message`, the bytes of a whole OpenFlow message.
    pub fn about(kind: ErrorKind, message: &[u8]) -> OfError {
        let byte = |i: usize| message.get(i).copied().unwrap_or(0);
        OfError {
            kind,
            version: Version(byte(0)),
            xid: u32::from_be_bytes([byte(4), byte(5), byte(6), byte(7)]),
            data: message.to_vec(),
        }
    }

    /// The body of the `OFPT_ERROR` for the sender.
    pub fn to_body(&self) -> ErrorBody {
        ErrorBody { error: ErrorCode::Known(self.kind), data: self.data.clone() }
    }
}

/// Contents of an error message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorCode {
    /// An error of the table.
    Known(ErrorKind),
    /// Unknown numbers.
    Other(WireError),
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorCode::Known(k) => k.fmt(f),
            ErrorCode::Other(w) if w.vendor == 0 => write!(f, "type {} code {}", w.ty, w.code),
            ErrorCode::Other(w) => write!(f, "experimenter {:#x} type {} code {}", w.vendor, w.ty, w.code),
        }
    }
}

/// The body of an `OFPT_ERROR`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorCode,
    /// Beginning of the rejected message; after a failed hello, text.
    pub data: Vec<u8>,
}

/// Reads the body of an `OFPT_ERROR`.
pub fn decode(r: &mut Reader<'_>) -> Res<ErrorBody> {
    let version = r.version;
    let (ty, code) = (r.u16()?, r.u16()?);
    let wire = if ty == NXET_VENDOR && code == 0 && r.len() >= 8 {
        WireError { vendor: r.u32()?, ty: r.u16()?, code: r.u16()? }
    } else if ty == OFPET_EXPERIMENTER && version >= Version::V12 && r.len() >= 4 {
        WireError { vendor: r.u32()?, ty: code, code: 0 }
    } else {
        WireError { vendor: 0, ty, code }
    };
    let error = ErrorKind::from_wire(wire, version).map_or(ErrorCode::Other(wire), ErrorCode::Known);
    Ok(ErrorBody { error, data: r.rest().to_vec() })
}

/// Writes the body of an `OFPT_ERROR`.
pub fn encode(m: &ErrorBody, w: &mut Writer) {
    let wire = match m.error {
        ErrorCode::Other(wire) => wire,
        // A version unknown to this crate may be answered too: with the numbers of the next one below.
        ErrorCode::Known(kind) => kind
            .wire(w.version)
            .or_else(|| ErrorKind::NxbrcUnencodableError.wire(w.version))
            .or_else(|| kind.wire(Version::V15))
            .unwrap_or(WireError { vendor: 0, ty: 1, code: 1 }),
    };
    if wire.vendor == 0 {
        w.u16(wire.ty);
        w.u16(wire.code);
    } else if w.version < Version::V12 {
        w.u16(NXET_VENDOR);
        w.u16(0);
        w.u32(wire.vendor);
        w.u16(wire.ty);
        w.u16(wire.code);
    } else {
        w.u16(OFPET_EXPERIMENTER);
        w.u16(wire.ty);
        w.u32(wire.vendor);
    }
    // The standard requires 64 bytes; OVS sends all that fits, and `ovs-ofctl` prints the rejected message
    // from them.
    let room = MAX_MESSAGE_BYTES.saturating_sub(w.mark());
    w.bytes(&m.data[..m.data.len().min(room)]);
}
