//! Waits for a named condition, with a limit.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Polling interval.
const STEP: Duration = Duration::from_millis(10);

/// Factor for time limits: other stages, and programs of other users, share the processors. Only a test that fails
/// waits so long.
const SHARED_FACTOR: u32 = 4;

/// Factor of times in the machine of `cargo xtask guest` (`SLUICE_GUEST=1`), which is emulated: process starts and
/// system calls are about eight times slower there.
const GUEST_FACTOR: u32 = 6;

/// Adjusts a limit to this machine: longer than on an idle one, longest in a guest.
pub fn patience(limit: Duration) -> Duration {
    pace(limit) * if in_guest() { 2 } else { SHARED_FACTOR }
}

/// Adjusts a time that something takes, and that a test measures or sets, to this machine: longer in a guest.
pub fn pace(time: Duration) -> Duration {
    time * if in_guest() { GUEST_FACTOR } else { 1 }
}

fn in_guest() -> bool {
    static GUEST: OnceLock<bool> = OnceLock::new();
    *GUEST.get_or_init(|| std::env::var_os("SLUICE_GUEST").is_some_and(|v| v == "1"))
}

/// Whether a socket at `path` takes connections. It appears before that: bind(2) comes before listen(2).
pub fn listens(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

/// Polls until `condition` holds, at least once. The limit suits an idle machine and is
/// stretched ([`patience`]).
///
/// # Errors
/// If it does not hold within `limit`; the text names `what`.
pub fn wait_for(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    let (start, limit) = (Instant::now(), patience(limit));
    while !condition() {
        if start.elapsed() >= limit {
            bail!("waited {:.1} s in vain for {what}", limit.as_secs_f64());
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}
