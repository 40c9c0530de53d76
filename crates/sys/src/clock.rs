//! The real clocks. The pure crates take times as arguments; these are where they come from.

/// Milliseconds since some fixed moment (the machine's start); never goes back.
pub fn monotonic_ms() -> u64 {
    monotonic_us() / 1000
}

/// Microseconds since some fixed moment (the machine's start); never goes back.
pub fn monotonic_us() -> u64 {
    read_us(libc::CLOCK_MONOTONIC)
}

/// Milliseconds since 1970-01-01 UTC; may be set.
pub fn wall_ms() -> u64 {
    wall_us() / 1000
}

/// Microseconds since 1970-01-01 UTC; may be set.
pub fn wall_us() -> u64 {
    read_us(libc::CLOCK_REALTIME)
}

fn read_us(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is alive through the call. Both clocks exist on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &mut now) };
    // A wall clock set before 1970 reads as 1970.
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + now.tv_nsec as u64 / 1000
}
