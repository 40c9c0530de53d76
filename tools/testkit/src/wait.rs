//! Waiting for a condition, with a limit and a name for what is waited for.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long to sleep between two looks.
const STEP: Duration = Duration::from_millis(10);

/// How often longer everything may take in the machine of `cargo xtask guest` (`SLUICE_GUEST=1`), whose instructions are translated:
/// processes start and make system calls about eight times as slowly there.
const GUEST_FACTOR: u32 = 6;

/// A limit as it is on this machine: longer in a guest.
pub fn patience(limit: Duration) -> Duration {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    let in_guest = || std::env::var_os("SLUICE_GUEST").is_some_and(|v| v == "1");
    limit * *FACTOR.get_or_init(|| if in_guest() { GUEST_FACTOR } else { 1 })
}

/// Looks again and again until `condition` holds, once at least. The limit is a usual machine's: in a guest it is longer ([`patience`]).
///
/// # Errors
/// When it still does not hold after `limit`; the text names `what`.
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
