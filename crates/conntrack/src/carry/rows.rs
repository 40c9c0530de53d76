//! Blocks and their rows: writing and bounded reading.

use super::{HEAD_BYTES, MAGIC, VERSION, WORD};

/// Fields of a block at most.
const FIELDS_MAX: usize = 32;
/// Words of a field at most.
const WORDS_MAX: usize = 16;
/// Numbers of fields that a reader may know.
const KNOWN: usize = 32;

/// A block that is being written.
pub(super) struct Block {
    kind: u8,
    fields: &'static [(u8, u8)],
    rows: u32,
    bytes: Vec<u8>,
}

impl Block {
    pub(super) fn new(kind: u8, fields: &'static [(u8, u8)]) -> Block {
        Block { kind, fields, rows: 0, bytes: Vec::new() }
    }

    /// Adds a row of all fields in their order.
    pub(super) fn row(&mut self, parts: &[&[u64]]) {
        debug_assert!(parts.iter().map(|part| part.len()).eq(self.fields.iter().map(|f| usize::from(f.1))));
        parts.iter().flat_map(|part| part.iter()).for_each(|word| self.bytes.extend(word.to_le_bytes()));
        self.rows += 1;
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the block, unless it has no rows.
    pub(super) fn finish(self, out: &mut Vec<u8>) {
        if self.rows == 0 {
            return;
        }
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend([self.kind, self.fields.len() as u8]);
        out.extend(self.rows.to_le_bytes());
        self.fields.iter().for_each(|(number, words)| out.extend([*number, *words]));
        out.extend(self.bytes);
    }
}

/// A block that is being read.
pub(super) struct Table<'a> {
    pub(super) kind: u8,
    row_words: usize,
    bytes: &'a [u8],
    /// Place in a row and width of each field, by its number.
    places: [Option<(usize, usize)>; KNOWN],
}

impl<'a> Table<'a> {
    /// Takes the first block of `bytes`; `None` at their end.
    ///
    /// # Errors
    /// It is no block, or longer than the bytes.
    pub(super) fn take(bytes: &mut &'a [u8]) -> Result<Option<Table<'a>>, String> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Err("a block of connections is cut".to_string());
        };
        let [m0, m1, m2, m3, v0, v1, kind, fields, r0, r1, r2, r3] = *head;
        if [m0, m1, m2, m3] != MAGIC {
            return Err("no block of connections".to_string());
        }
        let version = u16::from_le_bytes([v0, v1]);
        if version != VERSION {
            return Err(format!("connections of format {version}, not {VERSION}"));
        }
        let (fields, rows) = (usize::from(fields), u32::from_le_bytes([r0, r1, r2, r3]));
        if fields > FIELDS_MAX || rest.len() < fields * 2 {
            return Err(format!("a block of connections with {fields} fields"));
        }
        let (list, rest) = rest.split_at(fields * 2);
        let mut places = [None; KNOWN];
        let mut row_words = 0;
        for pair in list.chunks_exact(2) {
            let (number, words) = (usize::from(pair[0]), usize::from(pair[1]));
            if words == 0 || words > WORDS_MAX {
                return Err(format!("a field of connections with {words} words"));
            }
            if let Some(place) = places.get_mut(number) {
                *place = Some((row_words, words));
            }
            row_words += words;
        }
        let needed = (rows as usize).checked_mul(row_words * WORD);
        let Some(needed) = needed.filter(|needed| *needed <= rest.len() && (row_words > 0 || rows == 0))
        else {
            return Err(format!("a block of {rows} connections is cut"));
        };
        let (own, rest) = rest.split_at(needed);
        *bytes = rest;
        Ok(Some(Table { kind, row_words, bytes: own, places }))
    }

    /// The rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        // Without fields there are no rows.
        let bytes = (self.row_words * WORD).max(1);
        self.bytes.chunks_exact(bytes).map(|bytes| Row { places: &self.places, bytes })
    }
}

/// A row.
pub(super) struct Row<'a> {
    places: &'a [Option<(usize, usize)>; KNOWN],
    bytes: &'a [u8],
}

impl Row<'_> {
    /// A field of that width; `None` if the row has none.
    #[inline]
    pub(super) fn field<const N: usize>(&self, number: u8) -> Option<[u64; N]> {
        let (at, words) = (*self.places.get(usize::from(number))?)?;
        if words != N {
            return None;
        }
        let (words, _) = self.bytes.get(at * WORD..)?.as_chunks::<WORD>();
        let words = words.first_chunk::<N>()?;
        Some(words.map(u64::from_le_bytes))
    }

    /// A field of one word, 0 without it.
    #[inline]
    pub(super) fn word(&self, number: u8) -> u64 {
        self.field::<1>(number).map_or(0, |[word]| word)
    }
}
