//! [`Heap`]: the allocator of the daemon, mimalloc.
//!
//! Blocks of usual alignment come from `mi_malloc`, which aligns them anyway. `mi_malloc_aligned`, the only function that
//! the crate `mimalloc` calls, takes a slow path for sizes that are no powers of two whenever the page at hand has no free
//! block: it allocates a larger block, and freeing that searches its beginning. Rules, matches and blocks of the
//! classifier have such sizes.
//!
//! mimalloc returns pages to the system a second after they became free, but only as a thread asks for new ones:
//! [`give_back`] does it for a process that asks for none.

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};
use std::alloc::{GlobalAlloc, Layout};

/// See the module documentation.
pub struct Heap;

unsafe extern "C" {
    // SAFETY: callable at any time from any thread. The crate declares it behind a feature that needs another crate.
    safe fn mi_collect(force: bool);
}

/// Returns to the system memory that has been free for a second in the whole process, and takes back blocks of this thread's
/// partly used pages that other threads freed.
pub fn give_back() {
    mi_collect(false);
}

/// Alignment of blocks of at least as many bytes (`MI_MAX_ALIGN_SIZE`); smaller blocks have that of a word.
const BLOCK_ALIGN: usize = 16;

/// Whether every block of `size` bytes has the alignment `align`.
#[inline]
fn is_usual(size: usize, align: usize) -> bool {
    align <= size_of::<usize>() || align <= BLOCK_ALIGN && size >= BLOCK_ALIGN
}

// SAFETY: mimalloc returns blocks of at least the given size, null without memory, and never unwinds. `is_usual` tells
// whether `mi_malloc` aligns a block as its layout demands; all others are allocated with their alignment. Every function
// accepts blocks of every other.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and any power of two are valid.
        unsafe {
            match is_usual(layout.size(), layout.align()) {
                true => mi_malloc(layout.size()).cast(),
                false => mi_malloc_aligned(layout.size(), layout.align()).cast(),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            match is_usual(layout.size(), layout.align()) {
                true => mi_zalloc(layout.size()).cast(),
                false => mi_zalloc_aligned(layout.size(), layout.align()).cast(),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: the caller got the block from here.
        unsafe { mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller got the block from here. A block that stays in place keeps its alignment.
        unsafe {
            match is_usual(size, layout.align()) {
                true => mi_realloc(block.cast(), size).cast(),
                false => mi_realloc_aligned(block.cast(), size, layout.align()).cast(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Number of `pages` (addresses) that are mapped and in memory (mincore(2)).
    fn resident(pages: &BTreeSet<usize>) -> usize {
        let is_resident = |&&page: &&usize| {
            let mut state = 0_u8;
            // SAFETY: the kernel examines the address and reads nothing there; it writes one byte for one page.
            let answer = unsafe { libc::mincore(std::ptr::without_provenance_mut(page), 1, &mut state) };
            answer == 0 && state & 1 == 1
        };
        pages.iter().filter(is_resident).count()
    }

    #[test]
    fn blocks_that_another_thread_freed_return_to_the_system() {
        const BLOCKS: usize = 40_000;
        let page_size = crate::machine::system_value(libc::_SC_PAGESIZE) as usize;
        let layout = Layout::from_size_align(1280, 8).unwrap();
        let blocks: Vec<usize> = (0..BLOCKS)
            .map(|_| {
                // SAFETY: the size is not 0; writes stay within it.
                unsafe {
                    let block = Heap.alloc(layout);
                    block.write_bytes(1, layout.size());
                    block.expose_provenance()
                }
            })
            .collect();
        let pages: BTreeSet<usize> = blocks.iter().map(|block| block / page_size * page_size).collect();
        assert_eq!(resident(&pages), pages.len());
        // SAFETY: each block is freed once.
        let free = move |block| unsafe { Heap.dealloc(std::ptr::with_exposed_provenance_mut(block), layout) };
        std::thread::spawn(move || blocks.into_iter().for_each(free)).join().unwrap();
        let limit = std::time::Duration::from_secs(20);
        let falls = testkit::wait_for(limit, "the memory to return", || {
            give_back();
            resident(&pages) < pages.len() / 2
        });
        falls.unwrap();
    }

    #[test]
    fn blocks_are_aligned_and_keep_their_bytes() {
        let mut held = Vec::new();
        for n in 0..20_000_usize {
            let (size, align) = (1 + n * 7 % 1500, 1 << (n % 13));
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: the size is not 0; reads and writes stay within it.
            unsafe {
                let block = if n % 3 == 0 { Heap.alloc_zeroed(layout) } else { Heap.alloc(layout) };
                assert!(!block.is_null() && block.addr().is_multiple_of(align), "{layout:?}");
                assert!(n % 3 != 0 || (0..size).all(|i| block.add(i).read() == 0), "{layout:?}");
                block.write_bytes(n as u8, size);
                held.push((block, layout, n as u8));
            }
        }
        for (n, (block, layout, byte)) in held.into_iter().enumerate() {
            let size = 1 + (layout.size() * (1 + n % 5)) / 2;
            // SAFETY: as above; each block is used by its present layout and freed once.
            unsafe {
                let moved = Heap.realloc(block, layout, size);
                assert!(!moved.is_null() && moved.addr().is_multiple_of(layout.align()), "{layout:?}");
                assert!((0..size.min(layout.size())).all(|i| moved.add(i).read() == byte), "{layout:?}");
                Heap.dealloc(moved, Layout::from_size_align(size, layout.align()).unwrap());
            }
        }
    }
}
