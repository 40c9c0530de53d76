//! The title of this process, as shown by ps(1): the memory of its arguments.

/// Location and original contents of the arguments.
#[derive(Debug)]
pub(crate) struct Title {
    start: usize,
    original: Vec<u8>,
}

impl Title {
    /// The process's own; if not found, setting it does nothing. No other code may read the arguments while
    /// it is set.
    pub(crate) fn find() -> Title {
        let bounds = || {
            let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
            // Fields 48 and 49 of proc(5), whose second field is the first in parentheses.
            let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(45);
            let (start, end) = (fields.next()?.parse::<usize>().ok()?, fields.next()?.parse::<usize>().ok()?);
            (start != 0 && end > start).then_some((start, end))
        };
        let Some((start, end)) = bounds() else { return Title { start: 0, original: Vec::new() } };
        // SAFETY: the kernel reports the location of this process's arguments, which stay mapped and
        // readable.
        let original = unsafe { std::slice::from_raw_parts(start as *const u8, end - start) }.to_vec();
        Title { start, original }
    }

    /// Shows `text`, truncated to the available space.
    pub(crate) fn set(&mut self, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        // The last byte stays zero: else the kernel would show the environment too.
        bytes.truncate(self.original.len().saturating_sub(1));
        bytes.resize(self.original.len(), 0);
        self.write(&bytes);
    }

    /// Restores the arguments.
    pub(crate) fn restore(&mut self) {
        let original = self.original.clone();
        self.write(&original);
    }

    fn write(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.original.len());
        if len > 0 {
            // SAFETY: within the memory of the arguments, which is writable; there is no reference to it, and
            // the process has one thread.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start as *mut u8, len) };
        }
    }
}
