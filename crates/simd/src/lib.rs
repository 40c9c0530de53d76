//! What the fast path takes from the processor beyond plain Rust: instruction sets chosen at run time, prefetch, one
//! vector compare. The room for `unsafe` of that kind, so that the fast path itself forbids it.
//!
//! A stage of the fast path is a [`Kernel`]: safe code, the same source for every instruction set. [`run`] has it compiled once for
//! each [`Level`] and enters the one that was chosen; the plain level is the oracle of the others. Dispatch costs a call,
//! so a kernel works on a whole batch. What a kernel calls must be `#[inline(always)]` to be compiled along.
//!
//! Not here: anything that knows of packets. No results depend on the level.

#![allow(unsafe_code, reason = "processor features; each block says why it is sound")]

#[cfg(test)]
mod tests;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Features {
    Plain,
    Avx2,
    Avx512,
}

/// An instruction set that this processor has.
///
/// Invariant: a value other than [`Level::PLAIN`] is made only after the processor said that it has the features.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Level(Features);

impl Level {
    /// What the program was compiled for, nothing more.
    pub const PLAIN: Level = Level(Features::Plain);

    /// All levels of this processor, the plain one first.
    pub fn available() -> Vec<Level> {
        let mut levels = vec![Level::PLAIN];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("movbe");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            levels.extend(avx2.then_some(Level(Features::Avx2)));
            levels.extend(avx512.then_some(Level(Features::Avx512)));
        }
        levels
    }

    /// The widest level of this processor.
    pub fn best() -> Level {
        Level::available().pop().unwrap_or(Level::PLAIN)
    }
}

/// A piece of work over a batch, written once.
pub trait Kernel {
    /// What it answers.
    type Output;

    /// Does the work. To be marked `#[inline(always)]` by who implements it.
    fn run(self) -> Self::Output;
}

/// Runs a kernel as compiled for `level`.
#[inline]
pub fn run<K: Kernel>(level: Level, kernel: K) -> K::Output {
    match level.0 {
        Features::Plain => run_plain(kernel),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a level of these features is only made when the processor has all of them (see `available`).
        Features::Avx2 => unsafe { run_avx2(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Features::Avx512 => unsafe { run_avx512(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        Features::Avx2 | Features::Avx512 => run_plain(kernel),
    }
}

#[inline(never)]
fn run_plain<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,movbe")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,movbe,avx512f,avx512bw,avx512dq,avx512vl")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

/// Asks for the cache lines of a value that will soon be read. Does nothing where there is no such instruction.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        let start = std::ptr::from_ref(value).cast::<i8>();
        for line in 0..size_of::<T>().div_ceil(64) {
            // SAFETY: a prefetch reads nothing and faults at no address; SSE is part of x86-64.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                    start.wrapping_add(line * 64),
                );
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Bit `i` says that `values[i]` is `wanted`: the plain version of [`equal_u16`], and its oracle.
#[inline(always)]
pub fn equal_u16_plain(values: &[u16; 12], wanted: u16) -> u32 {
    let mut hits = 0;
    for (i, v) in values.iter().enumerate() {
        hits |= u32::from(*v == wanted) << i;
    }
    hits
}

/// Bit `i` says that `values[i]` is `wanted`: a few instructions of SSE2, which every x86-64 has.
#[inline(always)]
pub fn equal_u16(values: &[u16; 12], wanted: u16) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            _mm_cmpeq_epi16, _mm_loadl_epi64, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16,
            _mm_set1_epi16,
        };
        let at = values.as_ptr();
        // SAFETY: the loads are of the first 16 and the last 8 bytes of the 24 of `values`, need no alignment, and SSE2 is
        // part of x86-64.
        unsafe {
            let wanted = _mm_set1_epi16(wanted as i16);
            let low = _mm_cmpeq_epi16(_mm_loadu_si128(at.cast()), wanted);
            let high = _mm_cmpeq_epi16(_mm_loadl_epi64(at.add(8).cast()), wanted);
            _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32 & 0xfff
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    equal_u16_plain(values, wanted)
}
