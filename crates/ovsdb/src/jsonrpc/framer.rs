//! [`Framer`]: from chunks of a stream to whole JSON texts.

use serde_json::Value;

use crate::limits::{MAX_DEPTH, MAX_MESSAGE_BYTES, MAX_NODES};

/// Memory that stays for the next text.
const KEPT_BYTES: usize = 64 << 10;

/// Fatal error of a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A message must be an object or an array.
    #[error("a message cannot begin with byte {0:#04x}")]
    Garbage(u8),
    /// A text longer than the limit.
    #[error("a message has more than {0} bytes")]
    TooLong(usize),
    /// Nested deeper than the limit.
    #[error("a message is nested more than {0} levels deep")]
    TooDeep(usize),
    /// More values than the limit.
    #[error("a message has more than {0} values")]
    TooMany(usize),
    /// Not JSON.
    #[error("a message is not JSON: {0}")]
    Syntax(String),
}

/// Bounds of one message.
#[derive(Clone, Copy, Debug)]
pub struct FramerLimits {
    /// Longest text, bytes.
    pub bytes: usize,
    /// Maximum nesting; values above [`MAX_DEPTH`] have no effect.
    pub depth: usize,
    /// Maximum number of values.
    pub nodes: usize,
}

impl Default for FramerLimits {
    fn default() -> Self {
        FramerLimits { bytes: MAX_MESSAGE_BYTES, depth: MAX_DEPTH, nodes: MAX_NODES }
    }
}

/// Collects bytes and returns whole JSON texts. Scans each byte once before parsing.
#[derive(Debug, Default)]
pub struct Framer {
    limits: FramerLimits,
    buffer: Vec<u8>,
    /// Start of the current text.
    start: usize,
    /// End of the scanned part.
    scanned: usize,
    depth: usize,
    nodes: usize,
    in_string: bool,
    escaped: bool,
    failed: Option<FrameError>,
}

impl Framer {
    /// A framer with these bounds.
    pub fn new(limits: FramerLimits) -> Self {
        Framer { limits, ..Framer::default() }
    }

    /// Appends bytes from the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        if self.buffer.len() + bytes.len() > self.buffer.capacity() {
            let wanted = self.held_after(bytes.len());
            self.buffer.reserve_exact(wanted - self.buffer.len());
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Memory in use after that many more bytes.
    pub fn held_after(&self, bytes: usize) -> usize {
        let capacity = self.buffer.capacity();
        let wanted = self.pending_bytes() + bytes;
        if wanted <= capacity { capacity } else { wanted.max(capacity + capacity / 2) }
    }

    /// Memory in use, bytes.
    pub fn held_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Bytes held that are not yet a whole text.
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Discards its contents. Later input begins a new text.
    pub fn clear(&mut self) {
        *self = Framer::new(self.limits);
    }

    /// The next whole text, or `None` until more bytes arrive. An error is final.
    pub fn next_text(&mut self) -> Result<Option<Value>, FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.scan();
        if let Err(error) = &result {
            self.failed = Some(error.clone());
            self.buffer = Vec::new();
            self.start = 0;
            self.scanned = 0;
        }
        result
    }

    fn scan(&mut self) -> Result<Option<Value>, FrameError> {
        while self.scanned < self.buffer.len() {
            let byte = self.buffer[self.scanned];
            self.scanned += 1;
            if self.depth == 0 {
                self.begin(byte)?;
                continue;
            }
            self.step(byte)?;
            if self.scanned - self.start > self.limits.bytes {
                return Err(FrameError::TooLong(self.limits.bytes));
            }
            if self.depth == 0 {
                return self.finish().map(Some);
            }
        }
        Ok(None)
    }

    fn begin(&mut self, byte: u8) -> Result<(), FrameError> {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => self.start = self.scanned,
            b'{' | b'[' => {
                self.depth = 1;
                self.nodes = 1;
            }
            other => return Err(FrameError::Garbage(other)),
        }
        Ok(())
    }

    fn step(&mut self, byte: u8) -> Result<(), FrameError> {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return Ok(());
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth > self.limits.depth {
                    return Err(FrameError::TooDeep(self.limits.depth));
                }
            }
            b'}' | b']' => self.depth -= 1,
            b',' | b':' => {
                self.nodes += 1;
                if self.nodes > self.limits.nodes {
                    return Err(FrameError::TooMany(self.limits.nodes));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Value, FrameError> {
        let text = &self.buffer[self.start..self.scanned];
        let json = serde_json::from_slice(text).map_err(|error| FrameError::Syntax(error.to_string()))?;
        self.start = self.scanned;
        if self.start == self.buffer.len() {
            // A long text's memory does not stay.
            if self.buffer.capacity() > KEPT_BYTES {
                self.buffer = Vec::new();
            }
            self.buffer.clear();
            self.start = 0;
            self.scanned = 0;
        }
        Ok(json)
    }
}
