//! Waiting for a condition, with a limit and a name for what is waited for.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long to sleep between two looks.
const STEP: Duration = Duration::from_millis(10);

/// Looks again and again until `condition` holds, once at least.
///
/// # Errors
/// When it still does not hold after `limit`; the text names `what`.
pub fn wait_for(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() >= limit {
            bail!("waited {:.1} s in vain for {what}", limit.as_secs_f64());
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}
