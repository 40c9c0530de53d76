//! Netlink attributes (`struct nlattr` of linux/netlink.h): checked views of attribute lists, and a writer.
//!
//! An attribute is a length, a type, content, and zeros up to a multiple of four bytes. Lengths, types and
//! plain numbers are in host byte order. [`Attrs::parse`] checks a whole list once; each access to a content
//! checks its size. No input panics, and reading copies nothing. If a content exceeds an attribute (64 KiB)
//! or nests too deep, [`AttrWriter::finish`] fails; the writer never truncates.

use std::fmt;

/// Bytes before an attribute's content.
const HEADER_BYTES: usize = 4;
/// `NLA_F_NESTED`: the content is a list of attributes.
const NESTED: u16 = 0x8000;
/// The type without the flags for nesting and network byte order (`NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;

/// A malformed or unexpected attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AttrError {
    /// The list ends within an attribute, or an attribute is shorter than its header.
    #[error("attributes are cut off at byte {at_bytes}")]
    Cut {
        /// Offset from the start of the list.
        at_bytes: usize,
    },
    /// The content has a wrong size for its type.
    #[error("attribute {kind} has {has_bytes} bytes")]
    Size {
        /// Type of the attribute.
        kind: u16,
        /// Its size.
        has_bytes: usize,
    },
    /// A required attribute is absent.
    #[error("attribute {0} is missing")]
    Missing(u16),
    /// The content has an invalid value.
    #[error("attribute {0} has an invalid value")]
    Value(u16),
}

/// One attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Attr<'a> {
    /// Its type, without flags.
    pub kind: u16,
    /// Whether it has the flag for nesting. Kernels do not flag all nested attributes.
    pub marked_nested: bool,
    /// Its content.
    pub content: &'a [u8],
}

impl fmt::Debug for Attr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:02x?}", self.kind, self.content)
    }
}

impl<'a> Attr<'a> {
    /// Exactly `N` bytes.
    ///
    /// # Errors
    /// Another size.
    pub fn array<const N: usize>(&self) -> Result<[u8; N], AttrError> {
        self.content.try_into().map_err(|_| self.bad_size())
    }

    /// A byte.
    ///
    /// # Errors
    /// Another size.
    pub fn u8(&self) -> Result<u8, AttrError> {
        self.array().map(u8::from_ne_bytes)
    }

    /// Two bytes in host order.
    ///
    /// # Errors
    /// Another size.
    pub fn u16(&self) -> Result<u16, AttrError> {
        self.array().map(u16::from_ne_bytes)
    }

    /// Four bytes in host order.
    ///
    /// # Errors
    /// Another size.
    pub fn u32(&self) -> Result<u32, AttrError> {
        self.array().map(u32::from_ne_bytes)
    }

    /// Eight bytes in host order.
    ///
    /// # Errors
    /// Another size.
    pub fn u64(&self) -> Result<u64, AttrError> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Two bytes in network order.
    ///
    /// # Errors
    /// Another size.
    pub fn be16(&self) -> Result<u16, AttrError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four bytes in network order.
    ///
    /// # Errors
    /// Another size.
    pub fn be32(&self) -> Result<u32, AttrError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Numbers of four bytes each, in host order.
    ///
    /// # Errors
    /// The size is not a multiple of four.
    pub fn u32s(&self) -> Result<impl Iterator<Item = u32> + use<'a>, AttrError> {
        let (words, rest) = self.content.as_chunks::<4>();
        if rest.is_empty() { Ok(words.iter().map(|w| u32::from_ne_bytes(*w))) } else { Err(self.bad_size()) }
    }

    /// Text up to its first zero byte.
    ///
    /// # Errors
    /// Not UTF-8.
    pub fn text(&self) -> Result<&'a str, AttrError> {
        let end = self.content.iter().position(|b| *b == 0).unwrap_or(self.content.len());
        std::str::from_utf8(&self.content[..end]).map_err(|_| AttrError::Value(self.kind))
    }

    /// The nested attributes, whether flagged or not.
    ///
    /// # Errors
    /// The content is not a list of attributes.
    pub fn nested(&self) -> Result<Attrs<'a>, AttrError> {
        Attrs::parse(self.content)
    }

    /// The first `N` bytes of a structure that later kernels may extend.
    ///
    /// # Errors
    /// Shorter than that.
    pub fn prefix<const N: usize>(&self) -> Result<[u8; N], AttrError> {
        self.content.first_chunk().copied().ok_or(self.bad_size())
    }

    fn bad_size(&self) -> AttrError {
        AttrError::Size { kind: self.kind, has_bytes: self.content.len() }
    }
}

/// A checked list of attributes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Attrs<'a> {
    bytes: &'a [u8],
}

impl fmt::Debug for Attrs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

impl<'a> Attrs<'a> {
    /// Checks that `bytes` are a list of attributes, but not their contents. The last one may lack padding.
    ///
    /// # Errors
    /// An attribute is truncated, or bytes are left over.
    pub fn parse(bytes: &'a [u8]) -> Result<Attrs<'a>, AttrError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some((_, behind)) = split(rest) else {
                return Err(AttrError::Cut { at_bytes: bytes.len() - rest.len() });
            };
            rest = behind;
        }
        Ok(Attrs { bytes })
    }

    /// The bytes of the list.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Whether the list is empty.
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// The last attribute of that type, as the kernel reads lists.
    pub fn get(self, kind: u16) -> Option<Attr<'a>> {
        self.into_iter().filter(|a| a.kind == kind).last()
    }

    /// Like `get`, for a required attribute.
    ///
    /// # Errors
    /// It is absent.
    pub fn require(self, kind: u16) -> Result<Attr<'a>, AttrError> {
        self.get(kind).ok_or(AttrError::Missing(kind))
    }
}

impl<'a> IntoIterator for Attrs<'a> {
    type Item = Attr<'a>;
    type IntoIter = AttrIter<'a>;

    fn into_iter(self) -> AttrIter<'a> {
        AttrIter { rest: self.bytes }
    }
}

/// Iterates over the attributes of a list, in order.
#[derive(Clone, Debug)]
pub struct AttrIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for AttrIter<'a> {
    type Item = Attr<'a>;

    fn next(&mut self) -> Option<Attr<'a>> {
        let (attr, rest) = split(self.rest)?;
        self.rest = rest;
        Some(attr)
    }
}

/// The first attribute and the bytes after it; `None` if it is truncated.
fn split(bytes: &[u8]) -> Option<(Attr<'_>, &[u8])> {
    let [a, b, c, d] = *bytes.first_chunk()?;
    let end = usize::from(u16::from_ne_bytes([a, b]));
    let kind = u16::from_ne_bytes([c, d]);
    let content = bytes.get(HEADER_BYTES..end)?;
    let rest = bytes.get(end.next_multiple_of(4)..).unwrap_or(&[]);
    Some((Attr { kind: kind & TYPE_MASK, marked_nested: kind & NESTED != 0, content }, rest))
}

/// An attribute exceeds the maximum length of 65535 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("attribute {kind} would have {has_bytes} bytes: 65531 fit")]
pub struct TooLong {
    /// Type of the attribute.
    pub kind: u16,
    /// Size of its content.
    pub has_bytes: usize,
}

/// Writes a list of attributes.
#[derive(Debug, Default)]
pub struct AttrWriter {
    bytes: Vec<u8>,
    /// The first one that did not fit.
    too_long: Option<TooLong>,
}

impl AttrWriter {
    /// An empty list.
    pub fn new() -> AttrWriter {
        AttrWriter::default()
    }

    /// Appends to existing bytes (a message's headers). Their number must be a multiple of four.
    pub fn behind(bytes: Vec<u8>) -> AttrWriter {
        debug_assert!(bytes.len().is_multiple_of(4));
        AttrWriter { bytes, too_long: None }
    }

    /// Bytes so far.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends an attribute.
    pub fn put(&mut self, kind: u16, content: &[u8]) {
        let start = self.begin(kind);
        self.bytes.extend_from_slice(content);
        self.end(start);
    }

    /// An attribute without content.
    pub fn flag(&mut self, kind: u16) {
        self.put(kind, &[]);
    }

    /// A byte.
    pub fn u8(&mut self, kind: u16, value: u8) {
        self.put(kind, &[value]);
    }

    /// Two bytes in host order.
    pub fn u16(&mut self, kind: u16, value: u16) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// Four bytes in host order.
    pub fn u32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// Eight bytes in host order.
    pub fn u64(&mut self, kind: u16, value: u64) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// Two bytes in network order.
    pub fn be16(&mut self, kind: u16, value: u16) {
        self.put(kind, &value.to_be_bytes());
    }

    /// Four bytes in network order.
    pub fn be32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }

    /// Numbers of four bytes each, in host order.
    pub fn u32s(&mut self, kind: u16, values: &[u32]) {
        let start = self.begin(kind);
        self.bytes.extend(values.iter().flat_map(|v| v.to_ne_bytes()));
        self.end(start);
    }

    /// Text with a terminating zero byte.
    pub fn text(&mut self, kind: u16, text: &str) {
        let start = self.begin(kind);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        self.end(start);
    }

    /// Appends an attribute that nests those written by `inner`, with the flag.
    pub fn nested<R>(&mut self, kind: u16, inner: impl FnOnce(&mut AttrWriter) -> R) -> R {
        let start = self.begin(kind | NESTED);
        let result = inner(self);
        self.end(start);
        result
    }

    /// Appends an attribute that nests the given ones, with the flag.
    pub fn nested_bytes(&mut self, kind: u16, attributes: &[u8]) {
        self.put(kind | NESTED, attributes);
    }

    /// Returns the written bytes.
    ///
    /// # Errors
    /// An attribute did not fit.
    pub fn finish(self) -> Result<Vec<u8>, TooLong> {
        match self.too_long {
            None => Ok(self.bytes),
            Some(which) => Err(which),
        }
    }

    fn begin(&mut self, kind: u16) -> usize {
        let start = self.bytes.len();
        self.bytes.extend([0, 0]);
        self.bytes.extend(kind.to_ne_bytes());
        start
    }

    /// Sets the length of the attribute that began at `start`, and pads it.
    fn end(&mut self, start: usize) {
        let total_bytes = self.bytes.len() - start;
        match u16::try_from(total_bytes) {
            Ok(len) => self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes()),
            Err(_) => {
                let kind = u16::from_ne_bytes([self.bytes[start + 2], self.bytes[start + 3]]) & TYPE_MASK;
                let which = TooLong { kind, has_bytes: total_bytes - HEADER_BYTES };
                self.too_long.get_or_insert(which);
            }
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests;
