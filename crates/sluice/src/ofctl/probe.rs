//! Echo requests: whether a switch answers, and how fast.

use std::time::Instant;

use anyhow::{Result, bail};

use super::Run;
use crate::remote::print;

/// Requests of `ping`.
const PINGS: usize = 10;
/// Bytes of `ping` without another number.
const PING_BYTES: usize = 64;
/// Maximum bytes of a payload, beside the header of 8 bytes.
const MAX_BYTES: usize = 65527;

pub(super) fn probe(run: &mut Run<'_>, _: &str) -> Result<String> {
    let (_, payload) = run.connection.echo(&[])?;
    if !payload.is_empty() {
        bail!("reply does not match request");
    }
    Ok(String::new())
}

/// Bytes of a payload.
pub(super) fn size(text: &str) -> Result<usize> {
    match text.parse() {
        Ok(n @ 0..=MAX_BYTES) => Ok(n),
        _ => bail!("payload must be between 0 and {MAX_BYTES} bytes"),
    }
}

pub(super) fn ping(run: &mut Run<'_>, text: &str) -> Result<String> {
    let bytes = if text.is_empty() { PING_BYTES } else { size(text)? };
    for n in 0..PINGS {
        let payload: Vec<u8> = (0..bytes).map(|at| (at * 7 + n * 31) as u8).collect();
        let begin = Instant::now();
        let (xid, reply) = run.connection.echo(&payload)?;
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        if reply != payload {
            bail!("reply does not match request (xid={xid:08x})");
        }
        print(&format!("{} bytes from {}: xid={xid:08x} time={ms:.1} ms\n", reply.len(), run.target));
    }
    Ok(String::new())
}

pub(super) fn benchmark(run: &mut Run<'_>, args: &[String]) -> Result<String> {
    let [bytes, count] = args else { bail!("needs a size and a count") };
    let bytes = size(bytes)?;
    let Ok(count) = count.parse::<u32>() else { bail!("{count}: not a count of requests") };
    let message_bytes = bytes + 8;
    let total = message_bytes as u64 * u64::from(count);
    print(&format!("Sending {count} packets * {message_bytes} bytes (with header) = {total} bytes total\n"));
    let payload = vec![0; bytes];
    let begin = Instant::now();
    for _ in 0..count {
        run.connection.echo(&payload)?;
    }
    let s = begin.elapsed().as_secs_f64();
    Ok(format!(
        "Finished in {:.1} ms ({:.0} packets/s) ({:.0} bytes/s)\n",
        s * 1e3,
        f64::from(count) / s,
        total as f64 / s
    ))
}
