//! Netlink attributes (`struct nlattr` of linux/netlink.h): a checked view of lists of them, and a writer.
//!
//! An attribute is a length, a type, content, and zeros up to a multiple of four bytes. Lengths, types and plain numbers are in
//! the machine's byte order. [`Attrs::parse`] checks a whole list once; each access to a content checks its size. Nothing
//! here panics on any bytes, and nothing is copied by reading. A writer whose content does not fit an attribute (64 KiB) or nests
//! too deep says so at the end ([`AttrWriter::finish`]); it never cuts anything off.

use std::fmt;

/// Bytes before an attribute's content.
const HEADER_BYTES: usize = 4;
/// `NLA_F_NESTED`: the content is made of attributes.
const NESTED: u16 = 0x8000;
/// The bits of the type without that mark and that of network byte order (`NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;

/// Attributes that are none, or not the ones that were expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AttrError {
    /// The list ends within an attribute, or an attribute is shorter than its own header.
    #[error("attributes are cut off at byte {at_bytes}")]
    Cut {
        /// Where, from the start of the list.
        at_bytes: usize,
    },
    /// The content has another size than its type asks for.
    #[error("attribute {kind} has {has_bytes} bytes")]
    Size {
        /// Type of the attribute.
        kind: u16,
        /// Its size.
        has_bytes: usize,
    },
    /// It has to be there.
    #[error("attribute {0} is missing")]
    Missing(u16),
    /// The content makes no sense.
    #[error("attribute {0} has a value that makes no sense")]
    Value(u16),
}

/// One attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Attr<'a> {
    /// Its type, without flags.
    pub kind: u16,
    /// Whether it is marked as made of attributes. Kernels do not mark all that are.
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

    /// Two bytes in the machine's order.
    ///
    /// # Errors
    /// Another size.
    pub fn u16(&self) -> Result<u16, AttrError> {
        self.array().map(u16::from_ne_bytes)
    }

    /// Four bytes in the machine's order.
    ///
    /// # Errors
    /// Another size.
    pub fn u32(&self) -> Result<u32, AttrError> {
        self.array().map(u32::from_ne_bytes)
    }

    /// Eight bytes in the machine's order.
    ///
    /// # Errors
    /// Another size.
    pub fn u64(&self) -> Result<u64, AttrError> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Two bytes in the network's order.
    ///
    /// # Errors
    /// Another size.
    pub fn be16(&self) -> Result<u16, AttrError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four bytes in the network's order.
    ///
    /// # Errors
    /// Another size.
    pub fn be32(&self) -> Result<u32, AttrError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Numbers of four bytes each, in the machine's order.
    ///
    /// # Errors
    /// The size is no multiple of four.
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

    /// The attributes that it is made of, marked so or not.
    ///
    /// # Errors
    /// The content is no list of attributes.
    pub fn nested(&self) -> Result<Attrs<'a>, AttrError> {
        Attrs::parse(self.content)
    }

    /// The first `N` bytes of a structure that later kernels may make longer.
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

/// A list of attributes, checked.
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
    /// Checks that `bytes` are a list of attributes, without a look into their contents. The last one need not be filled up.
    ///
    /// # Errors
    /// An attribute is cut off, or bytes are left over.
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

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// The last attribute of that type, as the kernel reads lists.
    pub fn get(self, kind: u16) -> Option<Attr<'a>> {
        self.into_iter().filter(|a| a.kind == kind).last()
    }

    /// The same, of one that has to be there.
    ///
    /// # Errors
    /// It is not there.
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

/// The attributes of a list, in order.
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

/// The first attribute and the bytes behind it; `None` if it is cut off.
fn split(bytes: &[u8]) -> Option<(Attr<'_>, &[u8])> {
    let [a, b, c, d] = *bytes.first_chunk()?;
    let end = usize::from(u16::from_ne_bytes([a, b]));
    let kind = u16::from_ne_bytes([c, d]);
    let content = bytes.get(HEADER_BYTES..end)?;
    let rest = bytes.get(end.next_multiple_of(4)..).unwrap_or(&[]);
    Some((Attr { kind: kind & TYPE_MASK, marked_nested: kind & NESTED != 0, content }, rest))
}

/// An attribute would be longer than the 65535 bytes that its length can say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("attribute {kind} would have {has_bytes} bytes: 65531 fit")]
pub struct TooLong {
    /// Type of the attribute.
    pub kind: u16,
    /// Size that its content would have.
    pub has_bytes: usize,
}

/// Writes attributes one behind the other.
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

    /// Goes on behind bytes that are there already (a message's headers). Their number must be a multiple of four.
    pub fn behind(bytes: Vec<u8>) -> AttrWriter {
        debug_assert!(bytes.len().is_multiple_of(4));
        AttrWriter { bytes, too_long: None }
    }

    /// Bytes so far.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// One attribute.
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

    /// Two bytes in the machine's order.
    pub fn u16(&mut self, kind: u16, value: u16) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// Four bytes in the machine's order.
    pub fn u32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// Eight bytes in the machine's order.
    pub fn u64(&mut self, kind: u16, value: u64) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// Two bytes in the network's order.
    pub fn be16(&mut self, kind: u16, value: u16) {
        self.put(kind, &value.to_be_bytes());
    }

    /// Four bytes in the network's order.
    pub fn be32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }

    /// Numbers of four bytes each, in the machine's order.
    pub fn u32s(&mut self, kind: u16, values: &[u32]) {
        let start = self.begin(kind);
        self.bytes.extend(values.iter().flat_map(|v| v.to_ne_bytes()));
        self.end(start);
    }

    /// Text with the zero byte that ends it.
    pub fn text(&mut self, kind: u16, text: &str) {
        let start = self.begin(kind);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        self.end(start);
    }

    /// An attribute made of those that `inner` writes, marked as such.
    pub fn nested<R>(&mut self, kind: u16, inner: impl FnOnce(&mut AttrWriter) -> R) -> R {
        let start = self.begin(kind | NESTED);
        let result = inner(self);
        self.end(start);
        result
    }

    /// An attribute made of those that were written elsewhere, marked as such.
    pub fn nested_bytes(&mut self, kind: u16, attributes: &[u8]) {
        self.put(kind | NESTED, attributes);
    }

    /// What was written.
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

    /// Says how long the attribute that began at `start` is, and fills it up.
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
