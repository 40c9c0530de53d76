//! The row of TCP between two hosts across a VXLAN overlay of two switches.

use super::streams::{no_connection, stream, tcp_sample};
use super::{Effort, in_turn};
use crate::overlay::{Design, Overlay, Passed};
use crate::report::{Row, Sample};
use crate::sides::Side;
use anyhow::{Context, Result};
use std::time::Duration;
use testkit::{Iperf3Options, wait_for};

/// Counters of tunnel ports follow those of megaflows.
const COUNTERS_LIMIT: Duration = Duration::from_secs(10);

/// An overlay with its offloads on or off; and whether it failed to carry a stream, after which it is skipped.
struct Asked<'a> {
    overlay: &'a Overlay,
    offloads: bool,
    failed: bool,
}

/// One TCP stream from the first host to the second; for the stock switch also with offloads off.
pub(crate) fn tcp(overlays: &[Overlay], design: Design, effort: Effort) -> Row {
    let ask = |offloads| move |overlay| Asked { overlay, offloads, failed: false };
    let stock = overlays.iter().filter(|o| o.side == Side::Ovs);
    let mut all: Vec<Asked> = overlays.iter().map(ask(true)).chain(stock.map(ask(false))).collect();
    let name = |asked: &Asked| {
        format!("{}{}", asked.overlay.name(), if asked.offloads { "" } else { ", offloads off" })
    };
    let time_s = (effort.time.as_secs() as u32).max(1);
    let options = Iperf3Options { time_s, ..Iperf3Options::default() };
    let sides = in_turn(effort.rounds, &mut all, name, |asked| {
        if asked.failed {
            return Ok(no_connection());
        }
        asked.overlay.set_offloads(asked.offloads)?;
        let sample = measure(asked, &options);
        asked.overlay.set_offloads(true)?;
        sample
    });
    let (id, what) = match design {
        Design::Tunnel => ("tunnel-tcp", "a VXLAN overlay of two switches"),
        Design::Host => (
            "tunnel-host",
            "two overlay hosts: bonds with LACP, VXLAN with BFD, tracked access lists, source NAT",
        ),
    };
    let title = format!("TCP across {what}, one stream, offloads on unless said, received");
    Row { id: id.into(), title, unit: "Gb/s", sides }
}

fn measure(asked: &mut Asked, options: &Iperf3Options) -> Result<Sample> {
    let overlay = asked.overlay;
    let before = overlay.passed()?;
    let Some(report) = stream(overlay.hosts()?, overlay.side, options)? else {
        asked.failed = true;
        return Ok(no_connection());
    };
    let bytes = report.json["end"]["sum_received"]["bytes"].as_u64().context("iperf3 counts no bytes")?;
    let (mut after, mut wrong) = (before, None);
    let counted = wait_for(COUNTERS_LIMIT, "the counters of the tunnels", || {
        wrong = match overlay.passed() {
            Ok(now) => {
                after = now;
                fault(&before, &now, bytes)
            }
            Err(why) => Some(format!("{why:#}")),
        };
        wrong.is_none()
    });
    let mut sample = tcp_sample(&report);
    sample.fault = wrong.filter(|_| counted.is_err());
    let drops = after.drops.others.saturating_sub(before.drops.others);
    if drops > 0 && overlay.side.is_ours() {
        sample.fault.get_or_insert(format!("{drops} packets dropped by the datapath"));
    }
    if after.drops.full_rings > before.drops.full_rings {
        let retransmitted = sample.note.map(|note| format!(", {note}")).unwrap_or_default();
        sample.note = Some(format!("lost at full receive rings{retransmitted}"));
    }
    Ok(sample)
}

/// The fault if a tunnel port counts fewer bytes than the stream's.
pub(crate) fn fault(before: &Passed, after: &Passed, bytes: u64) -> Option<String> {
    let sent = after.sent.bytes.saturating_sub(before.sent.bytes);
    let received = after.received.bytes.saturating_sub(before.received.bytes);
    let least = sent.min(received);
    (least < bytes)
        .then(|| format!("{bytes} bytes of TCP, but tunnels count {sent} sent, {received} received"))
}
