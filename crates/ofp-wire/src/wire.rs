//! Bounded reading and writing of big-endian wire formats.
//!
//! Invariants: a [`Reader`] never reads past the end of its part of the message; a [`Writer`] never lets a
//! message grow beyond 65535 bytes if its entries use [`Writer::entry`]. Neither interprets the bytes.

use crate::error::ErrorKind;
use crate::version::Version;
use flow::TlvTable;
use std::sync::Arc;

/// Result inside the codec: the error, without its message.
pub type Res<T> = Result<T, ErrorKind>;

/// Largest message (16 bits of length in the header).
pub const MAX_MESSAGE_BYTES: usize = 65535;

/// Negotiated options of a connection beyond the version.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// `NXT_FLOW_MOD_TABLE_ID`: in OpenFlow 1.0 the high byte of a flow mod's command is the table.
    pub table_id_in_command: bool,
    /// The bridge's mappings of tunnel metadata; `None`: there are none.
    pub tlv: Option<Arc<TlvTable>>,
}

impl Options {
    /// Options of a new connection.
    pub const DEFAULT: Options = Options { table_id_in_command: false, tlv: None };

    /// The mappings of tunnel metadata.
    #[inline]
    pub fn tlv(&self) -> &TlvTable {
        static EMPTY: TlvTable = TlvTable::EMPTY;
        self.tlv.as_deref().unwrap_or(&EMPTY)
    }
}

/// Reads a part of a message.
#[derive(Clone)]
pub struct Reader<'a> {
    data: &'a [u8],
    /// Version of the message.
    pub version: Version,
    /// Transaction of the message.
    pub xid: u32,
    /// Whether more parts of a multipart message follow.
    pub more: bool,
    /// Decoding options.
    pub options: &'a Options,
    /// Lists of actions around this one.
    pub nesting: u8,
    /// The error of a short read here.
    short: ErrorKind,
}

impl<'a> Reader<'a> {
    /// A reader of `data`; a short read is `OFPBRC_BAD_LEN`.
    #[inline]
    pub fn new(data: &'a [u8], version: Version) -> Reader<'a> {
        Reader {
            data,
            version,
            xid: 0,
            more: false,
            options: &Options::DEFAULT,
            nesting: 0,
            short: ErrorKind::BrcBadLen,
        }
    }

    /// Sets another error for short reads.
    #[inline]
    pub fn or(mut self, short: ErrorKind) -> Reader<'a> {
        self.short = short;
        self
    }

    /// Bytes that are left.
    #[inline]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether no byte is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Consumes the next `n` bytes.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Res<&'a [u8]> {
        if n > self.data.len() {
            return Err(self.short);
        }
        let (head, tail) = self.data.split_at(n);
        self.data = tail;
        Ok(head)
    }

    /// The rest, without consuming it.
    #[inline]
    pub fn peek(&self) -> &'a [u8] {
        self.data
    }

    /// Consumes the rest.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.data)
    }

    /// Consumes the next `n` bytes; returns a reader of them.
    #[inline]
    pub fn sub(&mut self, n: usize) -> Res<Reader<'a>> {
        let data = self.bytes(n)?;
        Ok(Reader { data, ..self.clone() })
    }

    /// Skips the next `n` bytes.
    #[inline]
    pub fn skip(&mut self, n: usize) -> Res<()> {
        self.bytes(n).map(|_| ())
    }

    /// Consumes the next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Res<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N)?);
        Ok(out)
    }

    /// Consumes a byte.
    #[inline]
    pub fn u8(&mut self) -> Res<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Consumes 16 bits.
    #[inline]
    pub fn u16(&mut self) -> Res<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// Consumes 32 bits.
    #[inline]
    pub fn u32(&mut self) -> Res<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Consumes 64 bits.
    #[inline]
    pub fn u64(&mut self) -> Res<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// A number of `n` bytes, at most 16.
    #[inline]
    pub fn uint(&mut self, n: usize) -> Res<u128> {
        Ok(self.bytes(n)?.iter().fold(0, |v, b| v << 8 | u128::from(*b)))
    }

    /// `n` bytes of text up to the first zero byte. If not UTF-8, non-ASCII bytes become question marks.
    pub fn text(&mut self, n: usize) -> Res<String> {
        let b = self.bytes(n)?;
        let end = b.iter().position(|c| *c == 0).unwrap_or(n);
        let ascii = |b: &[u8]| b.iter().map(|c| if c.is_ascii() { char::from(*c) } else { '?' }).collect();
        Ok(std::str::from_utf8(&b[..end]).map_or_else(|_| ascii(&b[..end]), str::to_owned))
    }

    /// Requires the rest to be zero bytes.
    #[inline]
    pub fn zeros(&mut self, otherwise: ErrorKind) -> Res<()> {
        if self.rest().iter().all(|b| *b == 0) { Ok(()) } else { Err(otherwise) }
    }
}

/// Writes messages of one version.
pub struct Writer {
    /// The written bytes.
    pub buf: Vec<u8>,
    /// Version of the messages.
    pub version: Version,
    /// Transaction of the messages.
    pub xid: u32,
    /// Encoding options.
    pub options: Options,
    /// Start of the current message in `buf`.
    message_start: usize,
    /// Length of its headers up to the first entry.
    head_len: usize,
    /// Offset of the flags of a multipart header from the start of the message, if it is one.
    multipart_flags_at: Option<usize>,
}

impl Writer {
    /// An empty writer.
    #[inline]
    pub fn new(version: Version) -> Writer {
        Writer {
            buf: Vec::new(),
            version,
            xid: 0,
            options: Options::default(),
            message_start: 0,
            head_len: 0,
            multipart_flags_at: None,
        }
    }

    /// Declares the headers written: entries follow.
    #[inline]
    pub fn end_head(&mut self, multipart_flags_at: Option<usize>) {
        self.head_len = self.buf.len() - self.message_start;
        self.multipart_flags_at = multipart_flags_at;
    }

    /// Writes a byte.
    #[inline]
    pub fn u8(&mut self, v: u8) {
        self.buf.push(v);
    }

    /// Writes 16 bits.
    #[inline]
    pub fn u16(&mut self, v: u16) {
        self.buf.extend_from_slice(&v.to_be_bytes());
    }

    /// Writes 32 bits.
    #[inline]
    pub fn u32(&mut self, v: u32) {
        self.buf.extend_from_slice(&v.to_be_bytes());
    }

    /// Writes 64 bits.
    #[inline]
    pub fn u64(&mut self, v: u64) {
        self.buf.extend_from_slice(&v.to_be_bytes());
    }

    /// A number in its low `n` bytes.
    #[inline]
    pub fn uint(&mut self, v: u128, n: usize) {
        self.buf.extend_from_slice(&v.to_be_bytes()[16 - n..]);
    }

    /// Writes bytes.
    #[inline]
    pub fn bytes(&mut self, b: &[u8]) {
        self.buf.extend_from_slice(b);
    }

    /// Writes `n` zero bytes.
    #[inline]
    pub fn zeros(&mut self, n: usize) {
        self.buf.resize(self.buf.len() + n, 0);
    }

    /// `n` bytes of text, truncated at a character boundary so that a zero byte ends it.
    pub fn text(&mut self, s: &str, n: usize) {
        let keep = (0..n.min(s.len() + 1)).rev().find(|i| s.is_char_boundary(*i)).unwrap_or(0);
        self.bytes(&s.as_bytes()[..keep]);
        self.zeros(n - keep);
    }

    /// Position for [`Writer::pad8`] or [`Writer::set_len`].
    #[inline]
    pub fn mark(&self) -> usize {
        self.buf.len()
    }

    /// Fills up to a multiple of 8 bytes from `mark`.
    #[inline]
    pub fn pad8(&mut self, mark: usize) {
        let n = self.buf.len() - mark;
        self.zeros(n.next_multiple_of(8) - n);
    }

    /// Writes the length since `mark` into the 16 bits at `mark + at`.
    #[inline]
    pub fn set_len(&mut self, mark: usize, at: usize) {
        let n = (self.buf.len() - mark).min(MAX_MESSAGE_BYTES) as u16;
        self.set_u16(mark + at, n);
    }

    /// Writes the 16 bits at the position `at`.
    #[inline]
    pub fn set_u16(&mut self, at: usize, v: u16) {
        self.buf[at..at + 2].copy_from_slice(&v.to_be_bytes());
    }

    /// Writes one entry of a multipart message. If it does not fit, ends the message with the flag for more,
    /// and starts a new one with the same headers. Omits an entry that fits into no message.
    pub fn entry(&mut self, write: impl FnOnce(&mut Writer)) {
        let start = self.buf.len();
        write(self);
        let entry_len = self.buf.len() - start;
        if self.head_len + entry_len > MAX_MESSAGE_BYTES {
            self.buf.truncate(start);
            return;
        }
        if self.buf.len() - self.message_start <= MAX_MESSAGE_BYTES {
            return;
        }
        let head = self.buf[self.message_start..self.message_start + self.head_len].to_vec();
        self.set_u16(self.message_start + 2, (start - self.message_start) as u16);
        if let Some(at) = self.multipart_flags_at {
            self.set_u16(self.message_start + at, 1);
        }
        self.buf.splice(start..start, head);
        self.message_start = start;
    }

    /// Sets the length of the last message; `Err` if it is too long.
    pub fn finish(mut self, more: bool) -> Res<Vec<u8>> {
        let len = self.buf.len() - self.message_start;
        if len > MAX_MESSAGE_BYTES {
            return Err(ErrorKind::BrcBadLen);
        }
        self.set_u16(self.message_start + 2, len as u16);
        if let (Some(at), true) = (self.multipart_flags_at, more) {
            self.set_u16(self.message_start + at, 1);
        }
        Ok(self.buf)
    }
}
