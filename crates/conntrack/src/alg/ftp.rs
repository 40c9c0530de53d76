//! FTP control messages that announce a data connection: `PORT` and `EPRT` of the client, replies 227 and 229 of the
//! server (RFC 959, RFC 2428).
//!
//! Accepts the texts that OVS 3.5 accepts: any case; any text between the command and the first digit after a space; any
//! delimiter in `EPRT`; four digits of a byte of the port, six of a whole one, which end it. The first 127 bytes count,
//! up to a NUL, without the last byte of the payload, which is the end of the line.
//!
//! Difference: the address in an `EPRT` of IPv4 is rewritten with dots (RFC 2428); OVS writes commas.

use super::tcp::Segment;
use packet::Packet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Bytes of a payload that are examined.
const EXAMINED_BYTES: usize = 128;
const COMMAND_BYTES: usize = 4;
const CODE_BYTES: usize = 3;
/// Digits of a byte of a port, and of a whole port, at most.
const BYTE_DIGITS: usize = 4;
const PORT_DIGITS: usize = 6;

/// Direction in which the data connection is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// By the server, to the announced port of the client.
    Active,
    /// By the client, to the announced port of the server.
    Passive,
}

/// An address in a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// Its value.
    pub ip: IpAddr,
    /// Its bytes in the payload.
    pub span: Range<usize>,
    /// Whether commas separate the bytes of an IPv4 address.
    pub commas: bool,
}

impl Address {
    /// The text of another address in its place.
    fn text(&self, new: IpAddr) -> String {
        let text = new.to_string();
        if self.commas { text.replace('.', ",") } else { text }
    }

    /// Whether another address has the same length.
    pub(crate) fn keeps_length(&self, new: IpAddr) -> bool {
        self.text(new).len() == self.span.len()
    }
}

/// An announced data connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataPort {
    /// The side that opens it.
    pub mode: Mode,
    /// Its port: of the client in active mode, of the server in passive mode. OVS never translates it.
    pub port: u16,
    /// The address beside the port; extended passive mode has none.
    pub address: Option<Address>,
}

impl DataPort {
    /// Whether the address, if any, is one of `addresses`: those of the announcing side, original and translated. OVS
    /// treats a message with another one as invalid, because it directs the data to a third host.
    pub fn is_of(&self, addresses: [IpAddr; 2]) -> bool {
        self.address.as_ref().is_none_or(|a| addresses.contains(&a.ip))
    }
}

/// A payload from or to the control port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlPayload {
    /// Announces nothing.
    Other,
    /// Announces something, wrongly.
    Invalid,
    /// Announces a data connection.
    Data(DataPort),
}

/// The commands and replies of interest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Port,
    Eprt,
    Pasv,
    Epsv,
}

/// Reads the payload of a control packet of IPv4 or IPv6.
pub fn scan(payload: &[u8], v6: bool) -> ControlPayload {
    let text = &payload[..payload.len().min(EXAMINED_BYTES)];
    let text = &text[..text.len().saturating_sub(1)];
    let text = text.split(|b| *b == 0).next().unwrap_or(&[]);
    let Some(kind) = (if v6 { kind_v6(text) } else { kind_v4(text) }) else { return ControlPayload::Other };
    let data = if v6 { data_v6(kind, text) } else { data_v4(kind, text) };
    data.map_or(ControlPayload::Invalid, ControlPayload::Data)
}

fn starts_with(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

fn kind_v4(text: &[u8]) -> Option<Kind> {
    let kinds: [(&[u8], Kind); 4] =
        [(b"PORT", Kind::Port), (b"EPRT", Kind::Eprt), (b"227", Kind::Pasv), (b"229", Kind::Epsv)];
    kinds.into_iter().find_map(|(word, kind)| starts_with(text, word).then_some(kind))
}

fn kind_v6(text: &[u8]) -> Option<Kind> {
    const REPLY: &[u8] = b"EXTENDED PASSIVE";
    if starts_with(text, b"EPRT") {
        return Some(Kind::Eprt);
    }
    text.windows(REPLY.len()).any(|w| w.eq_ignore_ascii_case(REPLY)).then_some(Kind::Epsv)
}

/// A place in a text.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    /// Moves to the next byte of that kind; `None`: there is none.
    fn seek(&mut self, is_wanted: impl Fn(&u8) -> bool) -> Option<()> {
        self.at += self.text.get(self.at..)?.iter().position(is_wanted)?;
        Some(())
    }

    /// The bytes from here on that are of that kind, at most `max` of them, and the byte after them is skipped.
    fn word(&mut self, is_part: impl Fn(&u8) -> bool, max: usize) -> Range<usize> {
        let rest = self.text.get(self.at..).unwrap_or(&[]);
        let bytes = rest.iter().take(max).take_while(|b| is_part(b)).count();
        let word = self.at..self.at + bytes;
        self.at = word.end + 1;
        word
    }

    /// A number of at most `max` digits and that value.
    fn number(&mut self, max_digits: usize, max: u32) -> Option<u32> {
        let digits = self.word(u8::is_ascii_digit, max_digits);
        let text = std::str::from_utf8(self.text.get(digits)?).ok()?;
        text.parse().ok().filter(|n| *n <= max)
    }

    fn is_digit(&self, at: usize) -> bool {
        self.text.get(at).is_some_and(u8::is_ascii_digit)
    }
}

fn data_v4(kind: Kind, text: &[u8]) -> Option<DataPort> {
    let (mode, start) = match kind {
        Kind::Port | Kind::Eprt => (Mode::Active, COMMAND_BYTES),
        Kind::Pasv | Kind::Epsv => (Mode::Passive, CODE_BYTES),
    };
    let mut cursor = Cursor { text, at: start };
    cursor.seek(|b| *b == b' ')?;
    cursor.seek(u8::is_ascii_digit)?;
    if kind == Kind::Eprt {
        // The address family.
        if text.get(cursor.at) != Some(&b'1') || cursor.is_digit(cursor.at + 1) {
            return None;
        }
        cursor.at += 1;
        cursor.seek(u8::is_ascii_digit)?;
    }
    let bytes = matches!(kind, Kind::Port | Kind::Pasv);
    let address = if kind == Kind::Epsv { None } else { Some(address_v4(&mut cursor, bytes)?) };
    let port = if bytes {
        let high = cursor.number(BYTE_DIGITS, 255)?;
        high << 8 | cursor.number(EXAMINED_BYTES, 255)?
    } else {
        cursor.number(PORT_DIGITS, 65535)?
    };
    Some(DataPort { mode, port: port as u16, address })
}

/// An address with dots, or with commas for up to three of them.
fn address_v4(cursor: &mut Cursor, commas: bool) -> Option<Address> {
    let rest = cursor.text.get(cursor.at..)?;
    let mut left = 3;
    let dotted: Vec<u8> = rest
        .iter()
        .map(|b| match b {
            b',' if left > 0 => {
                left -= 1;
                b'.'
            }
            b => *b,
        })
        .take_while(|b| b.is_ascii_digit() || *b == b'.')
        .collect();
    let span = cursor.at..cursor.at + dotted.len();
    cursor.at = span.end + 1;
    let ip: Ipv4Addr = std::str::from_utf8(&dotted).ok()?.parse().ok()?;
    Some(Address { ip: ip.into(), span, commas })
}

fn data_v6(kind: Kind, text: &[u8]) -> Option<DataPort> {
    let mut cursor = Cursor { text, at: 0 };
    let (mode, address) = if kind == Kind::Eprt {
        cursor.at = COMMAND_BYTES;
        cursor.seek(u8::is_ascii_digit)?;
        if text.get(cursor.at) != Some(&b'2') || cursor.is_digit(cursor.at + 1) {
            return None;
        }
        // And the delimiter.
        cursor.at += 2;
        let span = cursor.word(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'), EXAMINED_BYTES);
        let ip: Ipv6Addr = std::str::from_utf8(text.get(span.clone())?).ok()?.parse().ok()?;
        (Mode::Active, Some(Address { ip: ip.into(), span, commas: false }))
    } else {
        cursor.seek(|b| *b == b'(')?;
        cursor.seek(u8::is_ascii_digit)?;
        (Mode::Passive, None)
    };
    let port = cursor.number(PORT_DIGITS, 65535)?;
    Some(DataPort { mode, port: port as u16, address })
}

/// Writes `new` over an address that [`scan`] found in the payload of `segment`, and corrects lengths and checksums.
/// Returns the growth in bytes, at most 8 for IPv4 and 37 for IPv6: the caller adds it to the skew of the direction.
/// `None`, with the packet unchanged: the IP length has no room, or the segment is not the one scanned. OVS too sends a
/// message without room for its growth as it is.
pub fn rewrite(packet: &mut Packet, segment: &Segment, old: &Address, new: IpAddr) -> Option<i32> {
    let text = old.text(new);
    let start = segment.payload().start;
    let span = start.saturating_add(old.span.start)..start.saturating_add(old.span.end);
    segment.replace(packet, span, text.as_bytes())
}
