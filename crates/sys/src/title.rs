//! The title of this process, as ps(1) shows it: the memory of its arguments.

/// Where the arguments are, and how they were.
#[derive(Debug)]
pub(crate) struct Title {
    start: usize,
    original: Vec<u8>,
}

impl Title {
    /// The process's own; where it cannot be found, setting it does nothing. Nobody may read the arguments while it is set.
    pub(crate) fn find() -> Title {
        let bounds = || {
            let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
            // Fields 48 and 49 of proc(5), the second of which is the first in parentheses.
            let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(45);
            let (start, end) = (fields.next()?.parse::<usize>().ok()?, fields.next()?.parse::<usize>().ok()?);
            (start != 0 && end > start).then_some((start, end))
        };
        let Some((start, end)) = bounds() else { return Title { start: 0, original: Vec::new() } };
        // SAFETY: the kernel tells where the arguments of this process are, which stay mapped and readable.
        let original = unsafe { std::slice::from_raw_parts(start as *const u8, end - start) }.to_vec();
        Title { start, original }
    }

    /// Shows `text`, as much of it as there is room for.
    pub(crate) fn set(&mut self, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        // The last place stays zero: else the kernel would show the environment too.
        bytes.truncate(self.original.len().saturating_sub(1));
        bytes.resize(self.original.len(), 0);
        self.write(&bytes);
    }

    /// Shows the arguments again.
    pub(crate) fn restore(&mut self) {
        let original = self.original.clone();
        self.write(&original);
    }

    fn write(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.original.len());
        if len > 0 {
            // SAFETY: within the memory of the arguments, which is writable; no reference to it is held, and the process
            // has one thread.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start as *mut u8, len) };
        }
    }
}
