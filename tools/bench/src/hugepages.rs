//! 2 MB pages for DPDK, for the duration of a run: reserved, and returned to the kernel when the value is
//! dropped. The guard is informed first, to return them if this process cannot.

use crate::guard::Guard;
use anyhow::{Context, Result, bail};

const FOLDER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Pages reserved beyond the existing ones.
pub(crate) struct Hugepages<'a> {
    former: u64,
    guard: &'a Guard,
}

fn read(name: &str) -> Result<u64> {
    let path = format!("{FOLDER}/{name}");
    let text = std::fs::read_to_string(&path).with_context(|| format!("no 2 MB pages here: {path}"))?;
    text.trim().parse().with_context(|| format!("{path} is no number"))
}

/// Sets the number of pages that the machine keeps.
pub(crate) fn set(pages: u64) -> Result<()> {
    let path = format!("{FOLDER}/nr_hugepages");
    std::fs::write(&path, pages.to_string()).with_context(|| format!("cannot set {path}"))
}

impl Hugepages<'_> {
    /// Sees to it that `pages` are free.
    ///
    /// # Errors
    /// If the kernel lacks contiguous memory; nothing is changed then.
    pub(crate) fn reserve(pages: u64, guard: &Guard) -> Result<Hugepages<'_>> {
        let (former, free) = (read("nr_hugepages")?, read("free_hugepages")?);
        guard.send(Some(former))?;
        let reserved = Hugepages { former, guard };
        set(former + pages.saturating_sub(free))?;
        let free = read("free_hugepages")?;
        if free < pages {
            bail!("{pages} pages of 2 MB are needed, the kernel has {free}");
        }
        Ok(reserved)
    }
}

impl Drop for Hugepages<'_> {
    fn drop(&mut self) {
        match set(self.former).and_then(|()| self.guard.send(None)) {
            Ok(()) => {}
            Err(e) => eprintln!("bench: {e:#}"),
        }
    }
}
