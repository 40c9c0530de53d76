//! USDT probes ("user statically-defined tracing"): named places in the program whose arguments a tracer
//! reads from registers. [`usdt!`](crate::usdt) declares them.
//!
//! A probe is a no-operation in the code and a note in the ELF section `.note.stapsdt` (owner `stapsdt`, type
//! 3, defined by SystemTap; read by bpftrace, bcc, perf, libbpf and gdb): address of the instruction, base
//! for relocated programs, address of the semaphore, provider, name, and the place of each argument, as
//! `8@%rdi`. The semaphore is a counter that the kernel increments for each attached tracer: while it is 0,
//! arguments are not computed, and the probe costs one load and one branch.
//!
//! The instruction is a `nop` followed by a `nop` of five bytes: tracers aware of the pair (libbpf 1.7)
//! attach to the latter, which kernels from 6.18 on turn into a call; all others attach to the first one,
//! with a trap.
//!
//! On processors other than x86-64 and aarch64 probes are never armed.

/// Declares probes. Each becomes a module with `armed()`, whether a tracer is attached, and `fire(…)`, the
/// probe. Check `armed` before `fire`, so that arguments are computed only if read.
///
/// ```
/// sys::usdt! {
///     /// A frame came.
///     probe frame_came = "example", "frame_came", (port, bytes);
/// }
/// if frame_came::armed() {
///     frame_came::fire(1, 64);
/// }
/// ```
///
/// Arguments are 64 bits each, at most thirteen: numbers, or addresses of memory that is alive during the
/// call.
#[macro_export]
macro_rules! usdt {
    ($(
        $(#[$doc:meta])*
        probe $module:ident = $provider:literal, $name:literal, ($($first:ident $(, $rest:ident)*)?);
    )+) => { $(
        $(#[$doc])*
        pub(crate) mod $module {
            use ::std::sync::atomic::{AtomicU16, Ordering};

            // The second half is non-zero so that the section has its bytes in the file: the kernel counts
            // only there. SAFETY: the section's name has no meaning to linkers and loaders: it is data like
            // any other.
            #[unsafe(link_section = ".probes")]
            static SEMAPHORE: [AtomicU16; 2] = [AtomicU16::new(0), AtomicU16::new(u16::MAX)];

            /// Whether a tracer is attached.
            #[inline(always)]
            pub(crate) fn armed() -> bool {
                SEMAPHORE[0].load(Ordering::Relaxed) != 0
            }

            /// The probe.
            #[cold]
            #[inline(never)]
            pub(crate) fn fire($($first: u64 $(, $rest: u64)*)?) {
                $crate::usdt_instruction!($provider, $name, SEMAPHORE, ($($first $(, $rest)*)?));
            }
        }
    )+ };
}

/// The instruction and the note of [`usdt!`], for this processor; internal.
#[doc(hidden)]
#[macro_export]
#[cfg(target_arch = "x86_64")]
macro_rules! usdt_instruction {
    ($($what:tt)*) => {
        $crate::usdt_asm!("nop; .byte 0x0f, 0x1f, 0x44, 0x00, 0x00", "", (att_syntax, nostack, preserves_flags), $($what)*)
    };
}

/// The instruction and the note of [`usdt!`], for this processor; internal.
#[doc(hidden)]
#[macro_export]
#[cfg(target_arch = "aarch64")]
macro_rules! usdt_instruction {
    ($($what:tt)*) => { $crate::usdt_asm!("nop", ":x", (nostack, preserves_flags), $($what)*) };
}

/// Nothing, for other processors.
#[doc(hidden)]
#[macro_export]
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
macro_rules! usdt_instruction {
    ($provider:literal, $name:literal, $semaphore:ident, ($($arg:ident),*)) => { $(let _ = $arg;)* };
}

/// The assembly of [`usdt!`]; internal.
#[doc(hidden)]
#[macro_export]
macro_rules! usdt_asm {
    ($nops:literal, $width:literal, ($($option:ident),*), $provider:literal, $name:literal, $semaphore:ident,
        ($($first:ident $(, $rest:ident)*)?)) => {
        // SAFETY: the instructions do nothing; the rest goes into separate sections: `.note.stapsdt`, which
        // is not loaded, and the one byte of `.stapsdt.base`. A tracer only reads the contents of registers.
        unsafe {
            ::std::arch::asm!(
                concat!("990: ", $nops),
                ".pushsection .note.stapsdt, \"\", %note",
                ".balign 4",
                ".4byte 992f - 991f, 994f - 993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte _.stapsdt.base",
                ".8byte {semaphore}",
                concat!(".asciz \"", $provider, "\""),
                concat!(".asciz \"", $name, "\""),
                concat!(".asciz \"", $("8@{", stringify!($first), $width, "}",
                    $(" 8@{", stringify!($rest), $width, "}",)*)? "\""),
                "994: .balign 4",
                ".popsection",
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base, \"aGR\", %progbits, .stapsdt.base, comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                semaphore = sym $semaphore,
                $($first = in(reg) $first, $($rest = in(reg) $rest,)*)?
                options($($option),*),
            )
        }
    };
}

#[cfg(test)]
mod tests;
