//! The end of an output: the machine writes an unpredictable mark after the command's output.
//!
//! The mark is `NUL, "guest-end ", token, " ", exit status, newline`. [`Stream`] forwards all data before it.

/// The mark that ends an output, with a token of this run.
pub(super) fn mark(token: &str) -> String {
    format!("\0guest-end {token} ")
}

/// Maximum digits of an exit status.
const DIGITS: usize = 3;

/// An output, looked through for its mark.
#[derive(Debug)]
pub(super) struct Stream {
    mark: Vec<u8>,
    held: Vec<u8>,
}

impl Stream {
    /// An output that ends with the mark of `token`.
    pub(super) fn new(token: &str) -> Stream {
        Stream { mark: mark(token).into_bytes(), held: Vec::new() }
    }

    /// Adds input. Returns the data to forward, and the exit status once the whole mark has arrived.
    pub(super) fn push(&mut self, bytes: &[u8]) -> (Vec<u8>, Option<u8>) {
        self.held.extend_from_slice(bytes);
        let found = self.held.windows(self.mark.len()).position(|w| w == self.mark);
        let Some(at) = found else {
            let size = self.held.len();
            // The input may end with the beginning of a mark.
            let start = (size.saturating_sub(self.mark.len())..size)
                .find(|&at| self.mark.starts_with(&self.held[at..]))
                .unwrap_or(size);
            let rest = self.held.split_off(start);
            return (std::mem::replace(&mut self.held, rest), None);
        };
        let behind = &self.held[at + self.mark.len()..];
        let digits = behind.iter().take(DIGITS + 1).position(|&b| b == b'\n');
        let status = match digits {
            None if behind.len() <= DIGITS => None,
            // Not as the guest writes it: no success.
            None => Some(u8::MAX),
            Some(end) => Some(String::from_utf8_lossy(&behind[..end]).parse().unwrap_or(u8::MAX)),
        };
        let rest = self.held.split_off(at);
        (std::mem::replace(&mut self.held, rest), status)
    }

    /// The held-back data, at the end of input.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}
