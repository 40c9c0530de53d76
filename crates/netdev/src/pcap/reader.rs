//! Reads the frames of a capture file sequentially.

use std::io::{self, Read};

use super::format::{FILE_HEADER_BYTES, FormatError, Layout, MAX_FRAME_BYTES, RECORD_HEADER_BYTES};

/// The next record of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// Bytes in the file.
    pub(crate) stored_bytes: usize,
    /// Bytes of the frame at the start of these, without check sequence.
    pub(crate) frame_bytes: usize,
}

/// Reads frames sequentially: [`Frames::next`], then [`Frames::read`].
pub(crate) struct Frames<R> {
    from: R,
    layout: Layout,
    /// Frames begun so far.
    number: u64,
}

impl<R: Read> Frames<R> {
    /// Reads the file's header.
    pub(crate) fn new(mut from: R) -> io::Result<Frames<R>> {
        let mut header = [0; FILE_HEADER_BYTES];
        let got = read_up_to(&mut from, &mut header)?;
        Ok(Frames { from, layout: Layout::of(&header[..got])?, number: 0 })
    }

    /// The next record; `None` at the file's end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Record>> {
        let mut header = [0; RECORD_HEADER_BYTES];
        self.number += 1;
        match read_up_to(&mut self.from, &mut header)? {
            0 => return Ok(None),
            RECORD_HEADER_BYTES => {}
            _ => return Err(FormatError::Cut { number: self.number }.into()),
        }
        let word = |i: usize| self.layout.u32(&[header[i], header[i + 1], header[i + 2], header[i + 3]]);
        let (stored, on_the_wire) = (word(8), word(12));
        if stored as usize > MAX_FRAME_BYTES {
            return Err(FormatError::TooLong { number: self.number, bytes: stored }.into());
        }
        let stored_bytes = stored as usize;
        // Truncation at capture removes the check sequence first.
        let frame_bytes = match self.layout.fcs_bytes {
            0 => stored_bytes,
            fcs => stored_bytes.min((on_the_wire as usize).saturating_sub(fcs)),
        };
        Ok(Some(Record { stored_bytes, frame_bytes }))
    }

    /// Reads the bytes of the last record; `room` has their length.
    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<()> {
        let got = read_up_to(&mut self.from, room)?;
        if got < room.len() { Err(FormatError::Cut { number: self.number }.into()) } else { Ok(()) }
    }
}

/// Fills `room` up to the end of the input.
fn read_up_to(from: &mut impl Read, room: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < room.len() {
        match from.read(&mut room[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}
