//! Lookups in the index: builds with debug assertions count those of each thread, for tests of the number that a packet
//! takes.

#[cfg(debug_assertions)]
use std::cell::Cell;

#[cfg(debug_assertions)]
thread_local! {
    static LOOKUPS: Cell<u64> = const { Cell::new(0) };
}

/// Counts a lookup.
#[inline(always)]
pub(crate) fn count() {
    #[cfg(debug_assertions)]
    LOOKUPS.set(LOOKUPS.get() + 1);
}

/// Lookups of this thread so far: keys whose bucket was read.
#[cfg(debug_assertions)]
pub fn lookups_of_thread() -> u64 {
    LOOKUPS.get()
}
