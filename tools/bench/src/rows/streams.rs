//! Rows of the hosts' own stacks: TCP with large segments, and UDP of 1,400 bytes, by iperf3.

use super::{Effort, in_turn};
use crate::report::{Row, Sample};
use crate::sides::{Instance, Side};
use anyhow::{Context, Result};
use testkit::{Host, Iperf3Options, Iperf3Report, iperf3_client, iperf3_server};

/// Payload of a datagram: with its headers it fits an Ethernet frame.
const DATAGRAM_BYTES: &str = "1400";

/// A side with its offloads on or off; and whether it failed to carry a stream, after which it is skipped.
struct Asked<'a> {
    instance: &'a Instance,
    offloads: bool,
    failed: bool,
}

fn sides<'a>(instances: &[&'a Instance]) -> Vec<Asked<'a>> {
    let on = instances.iter().map(|instance| Asked { instance, offloads: true, failed: false });
    let stock = instances.iter().filter(|i| i.side == Side::Ovs);
    let off = stock.map(|instance| Asked { instance, offloads: false, failed: false });
    on.chain(off).collect()
}

fn name(asked: &Asked) -> String {
    format!("{}{}", asked.instance.side.name(), if asked.offloads { "" } else { ", offloads off" })
}

fn row(
    instances: &[&Instance],
    effort: Effort,
    options: &Iperf3Options,
    read: impl Fn(&Iperf3Report) -> Sample,
    what: (&str, &str),
) -> Row {
    let time_s = (effort.time.as_secs() as u32).max(1);
    let options = Iperf3Options { time_s, ..options.clone() };
    let sides = in_turn(effort.rounds, &mut sides(instances), name, |asked| {
        if asked.failed {
            return Ok(no_connection());
        }
        asked.instance.set_offloads(asked.offloads)?;
        let [a, b] = &asked.instance.net.hosts[..] else { anyhow::bail!("a line has two ends") };
        let report = stream([a, b], asked.instance.side, &options);
        asked.instance.set_offloads(true)?;
        let Some(report) = report? else {
            asked.failed = true;
            return Ok(no_connection());
        };
        Ok(read(&report))
    });
    Row { id: what.0.into(), title: what.1.into(), unit: "Gb/s", sides }
}

/// A peer that carries no stream.
pub(crate) fn no_connection() -> Sample {
    Sample { note: Some("no connection".into()), ..Sample::default() }
}

/// A stream from the first host to the second through a switch of side `side`; `None`: a peer carries none.
pub(crate) fn stream(
    [a, b]: [&Host; 2],
    side: Side,
    options: &Iperf3Options,
) -> Result<Option<Iperf3Report>> {
    let _server = iperf3_server(&b.netns, 5201)?;
    match iperf3_client(&a.netns, b.ipv4.into(), options) {
        Ok(report) if report.received_bps > 0.0 => Ok(Some(report)),
        // The switch under test must carry streams; a peer may fail, and that is a result.
        Ok(_) if side.is_ours() => anyhow::bail!("no byte passed"),
        Err(e) if side.is_ours() => Err(e).context("no stream"),
        _ => Ok(None),
    }
}

/// Rate of a TCP stream, in Gb/s.
pub(crate) fn tcp_sample(report: &Iperf3Report) -> Sample {
    Sample {
        value: Some(report.received_bps / 1e9),
        note: (report.retransmits > 0).then(|| "with retransmissions".to_string()),
        ..Sample::default()
    }
}

/// TCP between the hosts with offloads on, and for the stock switch also with offloads off.
pub(crate) fn tcp(instances: &[&Instance], id: &str, effort: Effort) -> Row {
    let title = "TCP between namespaces, one stream, offloads on unless said, received";
    row(instances, effort, &Iperf3Options::default(), tcp_sample, (id, title))
}

/// UDP at the sender's maximum rate: received rate and loss.
pub(crate) fn udp(instances: &[&Instance], effort: Effort) -> Row {
    let read = |report: &Iperf3Report| Sample {
        value: Some(report.received_bps / 1e9),
        offered: Some(report.sent_bps / 1e9),
        note: Some(format!("lost {:.0} %", report.lost_percent)),
        ..Sample::default()
    };
    let more = vec!["-l".to_string(), DATAGRAM_BYTES.to_string()];
    let options = Iperf3Options { udp_bps: Some(0), more, ..Iperf3Options::default() };
    let title = "UDP of 1,400 bytes between namespaces, offloads on unless said, received";
    row(instances, effort, &options, read, ("udp1400", title))
}
