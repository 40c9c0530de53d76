//! Cache line transfers between simulated cores, for machines with few processors (`--cfg sluice_contention`).
//!
//! One thread plays all cores in turn ([`run_on`]). Each access to an atomic of this crate, and each lock taken by
//! [`crate::lock`], moves its cache line as the MESI protocol does: a write needs the line alone, a read a copy. Counted are
//! accesses that find the line elsewhere; the first access ever is not.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{self, Ordering};

const LINE_BYTES: usize = 64;

/// Accesses since the last [`take`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Accesses {
    /// Read-modify-write operations.
    pub locked: u64,
    /// Accesses of all kinds that wait for a line of another core.
    pub transfers: u64,
}

#[derive(Default)]
struct Machine {
    core: u32,
    /// Cores with a copy, as bits; and whether the only one has written.
    lines: HashMap<usize, (u32, bool)>,
    accesses: Accesses,
}

thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::default();
}

/// Continues as that core, 0 to 31.
pub fn run_on(core: u32) {
    MACHINE.with_borrow_mut(|m| m.core = core);
}

/// Forgets all lines and accesses: memory may be used anew.
pub fn reset() {
    MACHINE.with_borrow_mut(|m| *m = Machine::default());
}

/// The accesses since the last call.
pub fn take() -> Accesses {
    MACHINE.with_borrow_mut(|m| std::mem::take(&mut m.accesses))
}

fn read<T>(at: *const T) {
    MACHINE.with_borrow_mut(|m| {
        let me = 1 << m.core;
        let (holders, written) = m.lines.entry(at.addr() / LINE_BYTES).or_default();
        if *holders & me == 0 {
            m.accesses.transfers += u64::from(*written);
            (*holders, *written) = (*holders | me, false);
        }
    });
}

/// Counts a write, or a read-modify-write (`locked`).
pub(crate) fn write<T: ?Sized>(at: *const T, locked: bool) {
    MACHINE.with_borrow_mut(|m| {
        let me = 1 << m.core;
        let (holders, written) = m.lines.entry(at.addr() / LINE_BYTES).or_default();
        m.accesses.transfers += u64::from(*holders & !me != 0);
        m.accesses.locked += u64::from(locked);
        (*holders, *written) = (me, true);
    });
}

/// Methods that read, modify and write: counted as such, then as in the standard library.
macro_rules! modify {
    ($name:ident: $($method:ident($($arg:ident: $ty:ty),*) -> $result:ty;)*) => {
        #[allow(missing_docs, reason = "as in the standard library")]
        impl $name {
            $(pub fn $method(&self, $($arg: $ty),*) -> $result {
                write(self, true);
                self.0.$method($($arg),*)
            })*
        }
    };
}

macro_rules! counted {
    ($($(#[$doc:meta])* $name:ident: $value:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        #[allow(missing_docs, reason = "as in the standard library")]
        impl $name {
            pub const fn new(value: $value) -> $name {
                $name(atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $value {
                read(self);
                self.0.load(order)
            }

            pub fn store(&self, value: $value, order: Ordering) {
                write(self, false);
                self.0.store(value, order);
            }

            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
        }

        modify! { $name:
            swap(value: $value, order: Ordering) -> $value;
            compare_exchange(old: $value, new: $value, on: Ordering, off: Ordering) -> Result<$value, $value>;
            compare_exchange_weak(old: $value, new: $value, on: Ordering, off: Ordering) -> Result<$value, $value>;
            fetch_and(value: $value, order: Ordering) -> $value;
            fetch_or(value: $value, order: Ordering) -> $value;
        }
    )*};
}

macro_rules! counted_numbers {
    ($($name:ident: $value:ty;)*) => {$(
        modify! { $name:
            fetch_add(value: $value, order: Ordering) -> $value;
            fetch_sub(value: $value, order: Ordering) -> $value;
            fetch_max(value: $value, order: Ordering) -> $value;
            fetch_min(value: $value, order: Ordering) -> $value;
            fetch_update(set: Ordering, fetch: Ordering, f: impl FnMut($value) -> Option<$value>) -> Result<$value, $value>;
        }
    )*};
}

counted! {
    /// As [`atomic::AtomicBool`].
    AtomicBool: bool;
    /// As [`atomic::AtomicU32`].
    AtomicU32: u32;
    /// As [`atomic::AtomicU64`].
    AtomicU64: u64;
    /// As [`atomic::AtomicUsize`].
    AtomicUsize: usize;
}

counted_numbers! {
    AtomicU32: u32;
    AtomicU64: u64;
    AtomicUsize: usize;
}
