//! The classic capture file format (`pcap-savefile(5)`): a header of 24 bytes, then records of 16 bytes and a frame each.
//!
//! Reads either byte order and either time resolution; writes host byte order, with microseconds, like stock
//! switches. Cuts off a frame check sequence declared by the header. Rejects other files, and those without
//! Ethernet frames, with a message.

use std::io;
use std::time::Duration;

/// Bytes of the file's header.
pub(crate) const FILE_HEADER_BYTES: usize = 24;
/// Bytes before each frame.
pub(crate) const RECORD_HEADER_BYTES: usize = 16;
/// The longest frame that a file may hold here.
pub(crate) const MAX_FRAME_BYTES: usize = packet::LARGE_FRAME_BYTES;

const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_PCAPNG: u32 = 0x0a0d_0d0a;
const MAJOR_VERSION: u16 = 2;
const MINOR_VERSION: u16 = 4;
/// The snapshot length of written files: Ethernet with one tag.
const SNAP_BYTES: u32 = 1518;
const LINKTYPE_ETHERNET: u32 = 1;
/// In the link type word: the four highest bits hold the length of check sequences, in units of two bytes.
const FCS_PRESENT: u32 = 1 << 26;

/// Fault of a capture file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FormatError {
    #[error("it is empty or ends within its header of {FILE_HEADER_BYTES} bytes")]
    NoHeader,
    #[error("it is in the pcapng format; convert it to classic pcap (editcap -F pcap OLD NEW)")]
    PcapNg,
    #[error("it is no pcap file: it begins with 0x{0:08x}")]
    NotPcap(u32),
    #[error("it has version {0}.{1} of the pcap format; version {MAJOR_VERSION}.{MINOR_VERSION} is read")]
    Version(u16, u16),
    #[error("it holds frames of link type {0}; only Ethernet (1) is read")]
    LinkType(u32),
    #[error("frame {number} is said to have {bytes} bytes; {MAX_FRAME_BYTES} are the most")]
    TooLong { number: u64, bytes: u32 },
    #[error("it has another byte order or resolution of time than the files written here")]
    OtherLayout,
    #[error("it ends within frame {number}")]
    Cut { number: u64 },
}

impl From<FormatError> for io::Error {
    fn from(e: FormatError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, e)
    }
}

/// Byte order and time resolution of a file, and the bytes to cut off its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) swapped: bool,
    pub(super) nanoseconds: bool,
    pub(super) fcs_bytes: usize,
}

impl Layout {
    pub(super) fn u32(self, b: &[u8; 4]) -> u32 {
        let n = u32::from_ne_bytes(*b);
        if self.swapped { n.swap_bytes() } else { n }
    }

    fn u16(self, b: [u8; 2]) -> u16 {
        let n = u16::from_ne_bytes(b);
        if self.swapped { n.swap_bytes() } else { n }
    }

    /// Parses the file's first bytes. A wrong file type takes precedence over a too short file.
    pub(super) fn of(header: &[u8]) -> Result<Layout, FormatError> {
        let [a, b, c, d] = *header.first_chunk().ok_or(FormatError::NoHeader)?;
        let magic = u32::from_ne_bytes([a, b, c, d]);
        let (swapped, nanoseconds) = match magic {
            MAGIC_MICROSECONDS => (false, false),
            MAGIC_NANOSECONDS => (false, true),
            MAGIC_PCAPNG => return Err(FormatError::PcapNg),
            m if m.swap_bytes() == MAGIC_MICROSECONDS => (true, false),
            m if m.swap_bytes() == MAGIC_NANOSECONDS => (true, true),
            _ => return Err(FormatError::NotPcap(u32::from_be_bytes([a, b, c, d]))),
        };
        let header: &[u8; FILE_HEADER_BYTES] = header.first_chunk().ok_or(FormatError::NoHeader)?;
        let mut layout = Layout { swapped, nanoseconds, fcs_bytes: 0 };
        let (major, minor) = (layout.u16([header[4], header[5]]), layout.u16([header[6], header[7]]));
        if (major, minor) != (MAJOR_VERSION, MINOR_VERSION) {
            return Err(FormatError::Version(major, minor));
        }
        let link = layout.u32(&[header[20], header[21], header[22], header[23]]);
        if link & 0xffff != LINKTYPE_ETHERNET {
            return Err(FormatError::LinkType(link & 0xffff));
        }
        if link & FCS_PRESENT != 0 {
            layout.fcs_bytes = 2 * (link >> 28) as usize;
        }
        Ok(layout)
    }
}

/// The header of a file as written here.
pub(crate) fn file_header() -> [u8; FILE_HEADER_BYTES] {
    let mut h = [0; FILE_HEADER_BYTES];
    h[..4].copy_from_slice(&MAGIC_MICROSECONDS.to_ne_bytes());
    h[4..6].copy_from_slice(&MAJOR_VERSION.to_ne_bytes());
    h[6..8].copy_from_slice(&MINOR_VERSION.to_ne_bytes());
    h[16..20].copy_from_slice(&SNAP_BYTES.to_ne_bytes());
    h[20..].copy_from_slice(&LINKTYPE_ETHERNET.to_ne_bytes());
    h
}

/// The header of a written record, for a frame of that length at a time since 1970.
pub(crate) fn record_header(time: Duration, frame_bytes: u32) -> [u8; RECORD_HEADER_BYTES] {
    let mut h = [0; RECORD_HEADER_BYTES];
    h[..4].copy_from_slice(&(time.as_secs() as u32).to_ne_bytes());
    h[4..8].copy_from_slice(&time.subsec_micros().to_ne_bytes());
    h[8..12].copy_from_slice(&frame_bytes.to_ne_bytes());
    h[12..].copy_from_slice(&frame_bytes.to_ne_bytes());
    h
}

/// Rejects continuing a file with another layout than written here.
pub(crate) fn require_own_layout(header: &[u8]) -> Result<(), FormatError> {
    let own = Layout { swapped: false, nanoseconds: false, fcs_bytes: 0 };
    if Layout::of(header)? == own { Ok(()) } else { Err(FormatError::OtherLayout) }
}
