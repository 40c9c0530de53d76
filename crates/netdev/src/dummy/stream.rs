//! Frames over a byte stream, as exchanged by dummy ports of stock switches over `stream` and `pstream`
//! connections: two bytes of length, big-endian, then the frame.
//!
//! [`Framer`] holds at most one frame of maximum length, whatever the input.

use packet::headers::ETH_HEADER_BYTES;

/// Maximum frame length in two bytes.
pub const MAX_FRAME_BYTES: usize = u16::MAX as usize;
const LENGTH_BYTES: usize = 2;

/// Fatal error of a stream: close the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamError {
    /// The length is below that of an Ethernet header.
    #[error("a frame of {0} bytes on a dummy port's stream; an Ethernet header has {ETH_HEADER_BYTES}")]
    TooShort(usize),
    /// The length exceeds two bytes.
    #[error("a frame of {0} bytes for a dummy port's stream; {MAX_FRAME_BYTES} are the most")]
    TooLong(usize),
}

/// Appends `bytes` to `out` as they go over the wire.
pub fn frame(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), StreamError> {
    let length = u16::try_from(bytes.len()).map_err(|_| StreamError::TooLong(bytes.len()))?;
    if bytes.len() < ETH_HEADER_BYTES {
        return Err(StreamError::TooShort(bytes.len()));
    }
    out.extend(length.to_be_bytes());
    out.extend(bytes);
    Ok(())
}

/// Splits a stream into frames: [`Framer::push`] the input, then call [`Framer::next_frame`] until it returns
/// none.
#[derive(Default)]
pub struct Framer {
    buf: Vec<u8>,
    /// Consumed bytes of `buf`.
    done: usize,
}

impl Framer {
    /// An empty framer.
    pub fn new() -> Framer {
        Framer::default()
    }

    /// Bytes that [`Framer::push`] would accept now; never 0 after [`Framer::next_frame`] returned none.
    pub fn room(&self) -> usize {
        LENGTH_BYTES + MAX_FRAME_BYTES - (self.buf.len() - self.done)
    }

    /// Accepts the first bytes of `input`, up to [`Framer::room`], and returns their number.
    pub fn push(&mut self, input: &[u8]) -> usize {
        let taken = input.len().min(self.room());
        self.buf.drain(..self.done);
        self.done = 0;
        self.buf.extend(&input[..taken]);
        taken
    }

    /// The next whole frame, if available. An error is permanent: the frame boundary is lost.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, StreamError> {
        let Some((length, rest)) = self.buf[self.done..].split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let bytes = usize::from(u16::from_be_bytes(*length));
        if bytes < ETH_HEADER_BYTES {
            return Err(StreamError::TooShort(bytes));
        }
        if rest.len() < bytes {
            return Ok(None);
        }
        let start = self.done + LENGTH_BYTES;
        self.done = start + bytes;
        Ok(Some(&self.buf[start..self.done]))
    }
}
