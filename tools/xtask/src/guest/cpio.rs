//! An archive in the kernel's initramfs format: cpio "newc" (Documentation/driver-api/early-userspace/
//! buffer-format.rst of the kernel), uncompressed. Names are relative; folders must precede their contents.

/// An archive in the making.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const TRAILER: &str = "TRAILER!!!";

impl Archive {
    /// Adds a folder.
    pub(super) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER | 0o755, &[]);
    }

    /// Adds a file that may be executed.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, FILE | 0o755, content);
    }

    /// The archive, ended.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let number = if name == TRAILER { 0 } else { self.entries };
        let links = if mode & FOLDER == FOLDER { 2 } else { 1 };
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(b"070701");
        // Number, mode, owner, group, links, time, size, device (2), device it refers to (2), size of the
        // name, no checksum.
        for field in [number, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0] {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
