//! A cache line of twelve entries, (signature of 16 bits, megaflow id of 24): building block of the flow cache and
//! the subtables.
//!
//! A signature is never 0, so 0 marks a free entry. An entry is only a hint: the reader confirms it with the
//! megaflow.

/// Entries of one bucket.
pub(crate) const BUCKET_ENTRIES: usize = 12;
/// Ids have 24 bits.
pub(crate) const ID_LIMIT: u32 = 1 << 24;

/// See the module documentation.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    signatures: [u16; BUCKET_ENTRIES],
    ids: [[u8; 3]; BUCKET_ENTRIES],
    /// Owner-defined data.
    pub(crate) note: u8,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    /// No entries.
    pub(crate) const EMPTY: Bucket =
        Bucket { signatures: [0; BUCKET_ENTRIES], ids: [[0; 3]; BUCKET_ENTRIES], note: 0 };

    /// The signature of a hash, from other bits than those that select the bucket.
    #[inline(always)]
    pub(crate) fn signature(hash: u64) -> u16 {
        (hash >> 48) as u16 | 1
    }

    /// Bit `i` is set if entry `i` has this signature.
    #[inline(always)]
    pub(crate) fn probe(&self, signature: u16) -> u32 {
        simd::equal_u16(&self.signatures, signature)
    }

    /// The id of entry `i`, if the entry is used.
    #[inline(always)]
    pub(crate) fn id(&self, i: usize) -> Option<u32> {
        let [a, b, c] = *self.ids.get(i)?;
        Some(u32::from_le_bytes([a, b, c, 0]))
    }

    /// The id of the first entry of that signature.
    #[inline(always)]
    pub(crate) fn first(&self, signature: u16) -> Option<u32> {
        self.id(self.probe(signature).trailing_zeros() as usize)
    }

    /// The id accepted by `confirm` among those of that signature.
    #[inline(always)]
    pub(crate) fn find(&self, signature: u16, mut confirm: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut hits = self.probe(signature);
        while hits != 0 {
            let id = self.id(hits.trailing_zeros() as usize)?;
            if confirm(id) {
                return Some(id);
            }
            hits &= hits - 1;
        }
        None
    }

    /// The index of an entry, if present.
    pub(crate) fn position(&self, signature: u16, id: u32) -> Option<usize> {
        (0..BUCKET_ENTRIES).find(|i| self.signatures[*i] == signature && self.id(*i) == Some(id))
    }

    /// The index of a free entry.
    #[inline]
    pub(crate) fn free(&self) -> Option<usize> {
        let at = self.probe(0).trailing_zeros() as usize;
        (at < BUCKET_ENTRIES).then_some(at)
    }

    /// Writes entry `i`.
    #[inline]
    pub(crate) fn set(&mut self, i: usize, signature: u16, id: u32) {
        debug_assert!(id < ID_LIMIT);
        let [a, b, c, _] = id.to_le_bytes();
        self.signatures[i] = signature;
        self.ids[i] = [a, b, c];
    }

    /// All entries.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        (0..BUCKET_ENTRIES).filter(|i| self.signatures[*i] != 0).filter_map(|i| self.id(i))
    }

    /// Frees entry `i`.
    pub(crate) fn clear(&mut self, i: usize) {
        self.signatures[i] = 0;
    }
}
