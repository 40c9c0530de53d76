//! The clocks. The pure crates take times as arguments; these functions supply them.
//!
//! The monotonic clock is the switch's own: it can be stopped and advanced by command, for tests independent
//! of the machine's speed. Code that concerns the machine itself (sleeps, polling intervals) reads
//! [`machine_us`].

use std::sync::atomic::{AtomicU64, Ordering};

/// Offset added to the machine's clock.
static WARPED_US: AtomicU64 = AtomicU64::new(0);
/// The stopped time; 0 while running.
static STOPPED_AT_US: AtomicU64 = AtomicU64::new(0);

/// Milliseconds since some fixed moment (the machine's start); never decreases.
pub fn monotonic_ms() -> u64 {
    monotonic_us() / 1000
}

/// Microseconds since some fixed moment (the machine's start); never decreases.
pub fn monotonic_us() -> u64 {
    monotonic_us_at(machine_us())
}

/// The monotonic clock for a given [`machine_us`], for callers that need both.
pub fn monotonic_us_at(machine_us: u64) -> u64 {
    match STOPPED_AT_US.load(Ordering::Relaxed) {
        0 => machine_us + WARPED_US.load(Ordering::Relaxed),
        stopped_at => stopped_at,
    }
}

/// Stops the monotonic clock; it stays stopped.
pub fn stop() {
    // Only one of two callers stops it.
    let _ = STOPPED_AT_US.compare_exchange(0, monotonic_us().max(1), Ordering::Relaxed, Ordering::Relaxed);
}

/// Moves the monotonic clock on, stopped or not.
pub fn warp_ms(ms: u64) {
    let us = ms.saturating_mul(1000);
    let on = |t: u64| (t != 0).then(|| t.saturating_add(us));
    if STOPPED_AT_US.fetch_update(Ordering::Relaxed, Ordering::Relaxed, on).is_err() {
        WARPED_US.fetch_add(us, Ordering::Relaxed);
    }
}

/// Microseconds of the machine's own monotonic clock, which cannot be stopped.
pub fn machine_us() -> u64 {
    read_us(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of the machine's own monotonic clock, which cannot be stopped.
pub fn machine_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970-01-01 UTC; may be set.
pub fn wall_ns() -> u64 {
    read_ns(libc::CLOCK_REALTIME)
}

/// Milliseconds since 1970-01-01 UTC; may be set.
pub fn wall_ms() -> u64 {
    wall_us() / 1000
}

/// Microseconds since 1970-01-01 UTC; may be set.
pub fn wall_us() -> u64 {
    read_us(libc::CLOCK_REALTIME)
}

/// Microseconds of processor time that the calling thread has used, user and system.
pub fn thread_cpu_us() -> u64 {
    read_us(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read_us(clock: libc::clockid_t) -> u64 {
    let (seconds, ns) = read(clock);
    seconds * 1_000_000 + ns / 1000
}

fn read_ns(clock: libc::clockid_t) -> u64 {
    let (seconds, ns) = read(clock);
    seconds * 1_000_000_000 + ns
}

/// Seconds, and nanoseconds of the next one.
fn read(clock: libc::clockid_t) -> (u64, u64) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is alive through the call. These clocks exist on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &mut now) };
    // A wall clock set before 1970 reads as 1970.
    (u64::try_from(now.tv_sec).unwrap_or(0), now.tv_nsec as u64)
}

/// A processor counter for short times: its rate is constant, whatever the load, but known only by
/// comparison.
#[inline]
#[cfg(target_arch = "x86_64")]
pub fn cycles() -> u64 {
    // SAFETY: every processor of this architecture has the instruction; the kernel permits it to processes.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// A counter for short times, in nanoseconds, without using this processor's own counter.
#[inline]
#[cfg(not(target_arch = "x86_64"))]
pub fn cycles() -> u64 {
    machine_us() * 1000
}
