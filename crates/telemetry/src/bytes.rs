//! Numbers in network byte order.

/// Bytes of a datagram.
#[derive(Clone, Default, Debug)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    pub(crate) fn u8(&mut self, n: u8) {
        self.0.push(n);
    }

    pub(crate) fn u16(&mut self, n: u16) {
        self.0.extend(n.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, n: u32) {
        self.0.extend(n.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, n: u64) {
        self.0.extend(n.to_be_bytes());
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// Bytes and zeros up to a multiple of four, as XDR (RFC 4506) has opaque data.
    pub(crate) fn padded(&mut self, bytes: &[u8]) {
        self.put(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Sets the number at that place.
    pub(crate) fn set_u16(&mut self, at: usize, n: u16) {
        if let Some(place) = self.0.get_mut(at..at + 2) {
            place.copy_from_slice(&n.to_be_bytes());
        }
    }

    /// Sets the number at that place.
    pub(crate) fn set_u32(&mut self, at: usize, n: u32) {
        if let Some(place) = self.0.get_mut(at..at + 4) {
            place.copy_from_slice(&n.to_be_bytes());
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
