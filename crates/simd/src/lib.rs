//! Processor features for the fast path: instruction sets selected at run time, prefetch, one vector compare,
//! one permutation of bytes, large pages. This crate has the `unsafe` code of that kind, so the fast path itself forbids
//! it.
//!
//! A stage of the fast path is a [`Kernel`]: safe code, the same source for every instruction set. [`run`]
//! compiles it once for each [`Level`] and calls the selected one; the plain level is the oracle of the
//! others. Dispatch costs a call, so a kernel works on a whole batch. Functions called by a kernel must be
//! `#[inline(always)]` to be compiled with it.
//!
//! Nothing here depends on packets. Results do not depend on the level.

#![allow(unsafe_code, reason = "processor features; each block says why it is sound")]

mod pages;
#[cfg(test)]
mod tests;

pub use pages::Pages;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Features {
    Plain,
    Avx2,
    Avx512,
    /// AVX-512 with VBMI: any permutation of 64 bytes in one instruction.
    Avx512Vbmi,
}

/// An instruction set of this processor.
///
/// Invariant: a value other than [`Level::PLAIN`] is created only after detecting the features.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Level(Features);

impl Level {
    /// The baseline of the compiled program.
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
            let vbmi = avx512 && is_x86_feature_detected!("avx512vbmi");
            levels.extend(avx512.then_some(Level(Features::Avx512)));
            levels.extend(vbmi.then_some(Level(Features::Avx512Vbmi)));
        }
        levels
    }

    /// The widest level of this processor.
    pub fn best() -> Level {
        Level::available().pop().unwrap_or(Level::PLAIN)
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Features::Plain => "plain",
            Features::Avx2 => "avx2",
            Features::Avx512 => "avx512",
            Features::Avx512Vbmi => "avx512 with vbmi",
        })
    }
}

/// A permutation of 64 bytes, of which some bits are kept.
#[repr(align(64))]
pub struct Permutation {
    /// For each byte of the result its place in the source.
    places: [u8; 64],
    /// For each quarter of the source: the place there, or [`ELSEWHERE`].
    by_quarter: [[u8; 64]; 4],
    keep: [u64; 8],
}

/// The byte is in another quarter: shuffles write 0.
const ELSEWHERE: u8 = 0x80;

impl Permutation {
    /// Byte `i` of the result, the low byte of a word first, is byte `places[i] % 64` of the source, masked by `keep`.
    pub const fn new(places: [u8; 64], keep: [u64; 8]) -> Permutation {
        let (mut by_quarter, mut i) = ([[ELSEWHERE; 64]; 4], 0);
        while i < 64 {
            let place = places[i] % 64;
            by_quarter[place as usize / 16][i] = place % 16;
            i += 1;
        }
        Permutation { places, by_quarter, keep }
    }
}

/// Features of a level beyond plain code, as a value passed to kernels.
pub trait Lanes: Copy {
    /// Whether [`Lanes::permute`] is some instructions, instead of a loop over bytes.
    const PERMUTES: bool;

    /// Writes the permutation of `bytes`, with the bits of `set` added.
    fn permute(self, bytes: &[u8; 64], by: &Permutation, set: &[u64; 8], out: &mut [u64; 8]);
}

/// Plain code.
#[derive(Clone, Copy)]
struct PlainLanes;

impl Lanes for PlainLanes {
    const PERMUTES: bool = false;

    #[inline(always)]
    fn permute(self, bytes: &[u8; 64], by: &Permutation, set: &[u64; 8], out: &mut [u64; 8]) {
        for (i, word) in out.iter_mut().enumerate() {
            let byte = |n: usize| bytes[usize::from(by.places[8 * i + n]) % 64];
            *word = u64::from_le_bytes(std::array::from_fn(byte)) & by.keep[i] | set[i];
        }
    }
}

/// AVX2: shuffles within 16 bytes.
///
/// Invariant: a value is created only inside a function compiled for these features.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx2Lanes;

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx2Lanes {
    const PERMUTES: bool = true;

    #[inline(always)]
    fn permute(self, bytes: &[u8; 64], by: &Permutation, set: &[u64; 8], out: &mut [u64; 8]) {
        use std::arch::x86_64::{
            _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
            _mm256_or_si256, _mm256_shuffle_epi8, _mm256_storeu_si256,
        };
        // SAFETY: a value of this type is created in a function of these features only, so the processor has
        // them; loads and stores are within the 64 bytes of an argument each and need no alignment.
        unsafe {
            let quarter =
                |n: usize| _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().add(16 * n).cast()));
            let quarters = [quarter(0), quarter(1), quarter(2), quarter(3)];
            for half in 0..2 {
                let part = |n: usize| {
                    let places = _mm256_loadu_si256(by.by_quarter[n].as_ptr().add(32 * half).cast());
                    _mm256_shuffle_epi8(quarters[n], places)
                };
                let placed =
                    _mm256_or_si256(_mm256_or_si256(part(0), part(1)), _mm256_or_si256(part(2), part(3)));
                let words = |of: &[u64; 8]| _mm256_loadu_si256(of.as_ptr().add(4 * half).cast());
                let word = _mm256_or_si256(_mm256_and_si256(placed, words(&by.keep)), words(set));
                _mm256_storeu_si256(out.as_mut_ptr().add(4 * half).cast(), word);
            }
        }
    }
}

/// AVX-512 with VBMI.
///
/// Invariant: a value is created only inside a function compiled for these features.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct VbmiLanes;

#[cfg(target_arch = "x86_64")]
impl Lanes for VbmiLanes {
    const PERMUTES: bool = true;

    #[inline(always)]
    fn permute(self, bytes: &[u8; 64], by: &Permutation, set: &[u64; 8], out: &mut [u64; 8]) {
        use std::arch::x86_64::{
            _mm512_and_si512, _mm512_loadu_epi8, _mm512_loadu_epi64, _mm512_or_si512,
            _mm512_permutexvar_epi8, _mm512_storeu_epi64,
        };
        // SAFETY: a value of this type is created in a function of these features only, so the processor has
        // them; loads and the store are of the 64 bytes of an argument each and need no alignment.
        unsafe {
            let bytes = _mm512_loadu_epi8(bytes.as_ptr().cast());
            let places = _mm512_loadu_epi8(by.places.as_ptr().cast());
            let (keep, set) =
                (_mm512_loadu_epi64(by.keep.as_ptr().cast()), _mm512_loadu_epi64(set.as_ptr().cast()));
            let placed = _mm512_permutexvar_epi8(places, bytes);
            let word = _mm512_or_si512(_mm512_and_si512(placed, keep), set);
            _mm512_storeu_epi64(out.as_mut_ptr().cast(), word);
        }
    }
}

/// A piece of work over a batch, written once.
pub trait Kernel {
    /// The result.
    type Output;

    /// Runs the stage. Implementations must be marked `#[inline(always)]`.
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// Runs a kernel as compiled for `level`.
#[inline]
pub fn run<K: Kernel>(level: Level, kernel: K) -> K::Output {
    match level.0 {
        Features::Plain => run_plain(kernel),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a level of these features is only created if the processor has all of them (see
        // `available`).
        Features::Avx2 => unsafe { run_avx2(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Features::Avx512 => unsafe { run_avx512(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Features::Avx512Vbmi => unsafe { run_vbmi(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        Features::Avx2 | Features::Avx512 | Features::Avx512Vbmi => run_plain(kernel),
    }
}

#[inline(never)]
fn run_plain<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(PlainLanes)
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,movbe")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2Lanes)
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,movbe,avx512f,avx512bw,avx512dq,avx512vl")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2Lanes)
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,movbe,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
fn run_vbmi<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(VbmiLanes)
}

/// Bit `i` is set if `values[i]` is `wanted`: the plain version of [`equal_u32`], and its oracle.
#[inline(always)]
pub fn equal_u32_plain(values: &[u32; 32], wanted: u32) -> u32 {
    let mut hits = 0;
    for (i, v) in values.iter().enumerate() {
        hits |= u32::from(*v == wanted) << i;
    }
    hits
}

/// Bit `i` is set if `values[i]` is `wanted`: by SSE2, which every x86-64 has.
#[inline(always)]
pub fn equal_u32(values: &[u32; 32], wanted: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32,
            _mm_set1_epi32,
        };
        let at = values.as_ptr();
        // SAFETY: eight loads of 16 bytes each are the 128 bytes of `values`, need no alignment, and SSE2 is part of x86-64.
        unsafe {
            let wanted = _mm_set1_epi32(wanted as i32);
            let four = |n: usize| _mm_cmpeq_epi32(_mm_loadu_si128(at.add(4 * n).cast()), wanted);
            let eight = |n: usize| _mm_packs_epi32(four(n), four(n + 1));
            let sixteen = |n: usize| _mm_movemask_epi8(_mm_packs_epi16(eight(n), eight(n + 2))) as u32;
            sixteen(0) | sixteen(4) << 16
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    equal_u32_plain(values, wanted)
}

/// Prefetches the cache lines of a value that will soon be read. Does nothing without such an instruction.
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

/// Bit `i` is set if `values[i]` is `wanted`: the plain version of [`equal_u16`], and its oracle.
#[inline(always)]
pub fn equal_u16_plain(values: &[u16; 12], wanted: u16) -> u32 {
    let mut hits = 0;
    for (i, v) in values.iter().enumerate() {
        hits |= u32::from(*v == wanted) << i;
    }
    hits
}

/// Bit `i` is set if `values[i]` is `wanted`: a few instructions of SSE2, which every x86-64 has.
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
