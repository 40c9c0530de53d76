//! [`Pages`]: values in memory of their own, on pages of 2 MB where the kernel has some.
//!
//! Large tables that packets read at random cost a walk of the page tables for each access with pages of 4 KB.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};

/// A large page of x86-64 (`MADV_HUGEPAGE`).
const LARGE: usize = 2 << 20;

/// `N` values. Suits tables of at least [`LARGE`] bytes; smaller ones get usual pages.
pub struct Pages<T, const N: usize> {
    /// Invariant: the start of a mapping of [`Self::BYTES`], of which this value alone has the address; `N` values are there.
    values: NonNull<[T; N]>,
}

// SAFETY: the mapping belongs to this value as that of a box does.
unsafe impl<T: Send, const N: usize> Send for Pages<T, N> {}
// SAFETY: as above; shared access gives `&T` only.
unsafe impl<T: Sync, const N: usize> Sync for Pages<T, N> {}

impl<T, const N: usize> Pages<T, N> {
    const BYTES: usize = size_of::<[T; N]>();

    /// Values made one by one. Ends the process without memory, as a box does.
    pub fn new(mut make: impl FnMut() -> T) -> Pages<T, N> {
        const { assert!(align_of::<T>() <= 4096 && Self::BYTES != 0) };
        let slack = if Self::BYTES >= LARGE { LARGE } else { 0 };
        let all = map(Self::BYTES + slack);
        let start = if slack == 0 { all } else { all.map_addr(|at| at.next_multiple_of(LARGE)) };
        let before = start.addr() - all.addr();
        unmap(all, before);
        unmap(start.wrapping_add(Self::BYTES).map_addr(|at| at.next_multiple_of(4096)), slack - before);
        if slack != 0 {
            // SAFETY: the range is that of the mapping; advice changes no byte of it. Without large pages it has no effect.
            let _advice = unsafe { libc::madvise(start.cast(), Self::BYTES, libc::MADV_HUGEPAGE) };
        }
        let values: *mut T = start.cast();
        for n in 0..N {
            // SAFETY: `n < N`, and `N` values fit into the mapping, which is aligned to a page.
            unsafe { values.add(n).write(make()) };
        }
        Pages { values: NonNull::new(values.cast()).expect("a mapping does not start at 0") }
    }
}

impl<T, const N: usize> Deref for Pages<T, N> {
    type Target = [T; N];

    #[inline(always)]
    fn deref(&self) -> &[T; N] {
        // SAFETY: the values are there as long as this one.
        unsafe { self.values.as_ref() }
    }
}

impl<T, const N: usize> Drop for Pages<T, N> {
    fn drop(&mut self) {
        // SAFETY: nobody uses the values afterwards.
        unsafe { self.values.drop_in_place() };
        unmap(self.values.as_ptr().cast(), Self::BYTES);
    }
}

fn map(bytes: usize) -> *mut u8 {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let start = unsafe { libc::mmap(null_mut(), bytes, prot, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        handle_alloc_error(Layout::from_size_align(bytes, LARGE).expect("a size of a mapping"));
    }
    start.cast()
}

/// Removes a range of whole pages that nobody uses.
fn unmap(start: *mut u8, bytes: usize) {
    if bytes != 0 {
        // SAFETY: the range belongs to a mapping of this module, and no value is there any longer.
        let done = unsafe { libc::munmap(start.cast(), bytes) };
        debug_assert_eq!(done, 0, "a range of a mapping");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn values_are_made_read_and_dropped_once() {
        let owner = Rc::new(());
        let mut n = 0;
        let pages: Pages<(u64, Rc<()>), 200_000> = Pages::new(|| {
            n += 1;
            (n, owner.clone())
        });
        assert_eq!(pages.as_ptr().addr() % LARGE, 0);
        assert!(pages.iter().map(|(n, _)| *n).eq(1..=200_000));
        assert_eq!(Rc::strong_count(&owner), 200_001);
        drop(pages);
        assert_eq!(Rc::strong_count(&owner), 1);
    }

    #[test]
    fn small_tables_take_usual_pages() {
        let pages: Pages<u64, 10> = Pages::new(|| 7);
        assert_eq!(*pages, [7; 10]);
    }

    #[test]
    fn no_mapping_remains() {
        // A process has at most some 65,530 mappings.
        for _ in 0..70_000 {
            assert_eq!(Pages::<u64, 10>::new(|| 1)[9], 1);
        }
        let mapped_kb = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap().to_owned();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        let before = mapped_kb();
        for _ in 0..500 {
            assert_eq!(Pages::<u64, { LARGE / 8 }>::new(|| 1)[9], 1);
        }
        assert!(mapped_kb() < before + 500_000);
    }
}
