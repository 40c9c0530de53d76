//! `sluice sample`: packets that the action `sample` selects for local readers, from the event socket of the daemon.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use flow::text::{NoPortNames, format_packet};
use serde_json::{Value, json};
use upcall_cost::ring::Ring;
use upcall_cost::{Capture, Polled, Record, Sampled, Source as _};

use crate::remote::{complain, print, run_dir};
use crate::tcpdump::pcapng::{Captured, Pcapng};

const PROGRAM: &str = "sluice sample";
/// Longest packet: a large segment.
const PACKET_MAX: usize = 1 << 17;
/// Interval of waiting.
const POLL: Duration = Duration::from_secs(1);
/// Maximum time for the daemon's first answer.
const START_LIMIT: Duration = Duration::from_secs(5);

/// Arguments of `sluice sample`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this group, the `local_group_id` of a set of collectors
    #[arg(short, long)]
    group: Option<u32>,
    /// End after this many samples
    #[arg(short, long)]
    count: Option<u64>,
    /// First bytes of each packet
    #[arg(short, long, default_value_t = 192, value_parser = clap::value_parser!(u16).range(..=16384))]
    snaplen: u16,
    /// Print each sample as a line of JSON
    #[arg(long)]
    json: bool,
    /// Write the packets into this file instead, in the format of pcapng
    #[arg(short, long)]
    write: Option<PathBuf>,
}

/// Runs it; returns the exit code.
pub(crate) fn main(options: &Options) -> u8 {
    match run(options) {
        Ok(()) => 0,
        Err(error) => {
            complain(PROGRAM, &format!("{error:#}"));
            1
        }
    }
}

/// The connection, and the facts that its records tell.
struct Reader {
    ring: Ring,
    ports: BTreeMap<u32, String>,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` of the daemon.
    wall_offset_ns: Option<u64>,
}

/// News from the daemon.
enum Told {
    Packet(Sampled),
    Lost(u64),
    Started,
    Nothing,
}

impl Reader {
    fn next(&mut self, timeout: Duration) -> Result<Told> {
        loop {
            match self.ring.next(timeout)? {
                Polled::Nothing => return Ok(Told::Nothing),
                Polled::End { note } => bail!("{}", note.unwrap_or_else(|| "the switch has ended".into())),
                Polled::Record(Record::Start { wall_offset_ns, .. }) => {
                    self.wall_offset_ns = Some(wall_offset_ns);
                    return Ok(Told::Started);
                }
                Polled::Record(Record::Port { number, name }) => {
                    self.ports.insert(number, name);
                }
                Polled::Record(Record::Sampled(sampled)) => return Ok(Told::Packet(sampled)),
                Polled::Record(Record::SamplesLost { packets }) => return Ok(Told::Lost(packets)),
                Polled::Record(_) => {}
            }
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let packet_bytes = options.snaplen.into();
    let capture =
        Capture { pid: None, run_dir: run_dir(), packet_bytes, key_bytes: 0, buffer_pages: 0, debug: false };
    let ring = Ring::open_samples(&capture)?;
    let mut reader = Reader { ring, ports: BTreeMap::new(), wall_offset_ns: None };
    while reader.wall_offset_ns.is_none() {
        if let Told::Nothing = reader.next(START_LIMIT)? {
            bail!("the switch does not answer on its event socket");
        }
    }
    let mut file = options
        .write
        .as_ref()
        .map(|path| {
            let file = File::create(path).with_context(|| format!("{}: cannot write", path.display()))?;
            Pcapng::new(file, options.snaplen.into()).context("cannot write the file")
        })
        .transpose()?;
    eprintln!("listening to samples");
    let mut left = options.count.unwrap_or(u64::MAX);
    while left > 0 {
        match reader.next(POLL)? {
            Told::Packet(sampled) if options.group.is_none_or(|group| group == sampled.group) => {
                left -= 1;
                let sample = Sample::of(&reader, sampled);
                match &mut file {
                    None if options.json => print(&format!("{}\n", sample.json())),
                    None => print(&sample.text()),
                    Some(file) => sample.write(file)?,
                }
            }
            Told::Lost(packets) if options.json && file.is_none() => {
                print(&format!("{}\n", json!({"lost": packets})));
            }
            Told::Lost(packets) => eprintln!("{packets} samples were lost: this reader is too slow"),
            Told::Packet(_) | Told::Started | Told::Nothing => {}
        }
    }
    Ok(())
}

/// A sample as it is shown.
struct Sample {
    sampled: Sampled,
    port: String,
    /// When, in nanoseconds since 1970.
    wall_ns: u64,
}

/// Observation domain and observation point of a cookie that a translation of `sample` made.
fn ids(cookie: &[u8]) -> Option<(u32, u32)> {
    let id: [u8; 8] = cookie.try_into().ok()?;
    let id = u64::from_be_bytes(id);
    Some(((id >> 32) as u32, id as u32))
}

/// `0x` and two digits a byte.
fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

impl Sample {
    fn of(reader: &Reader, sampled: Sampled) -> Sample {
        let port = reader.ports.get(&sampled.port).cloned();
        let port = port.unwrap_or_else(|| format!("port {}", sampled.port));
        let wall_ns = sampled.time_ns.saturating_add(reader.wall_offset_ns.unwrap_or_default());
        Sample { sampled, port, wall_ns }
    }

    /// The percentage of packets that the sample selects.
    fn percent(&self) -> f64 {
        100.0 * f64::from(self.sampled.probability) / f64::from(u32::MAX)
    }

    fn about(&self) -> String {
        let ids = match ids(&self.sampled.cookie) {
            Some((domain, point)) => format!(" obs_domain_id={domain} obs_point_id={point}"),
            None if self.sampled.cookie.is_empty() => String::new(),
            None => format!(" cookie={}", hex(&self.sampled.cookie)),
        };
        format!("group={}{ids} sample={:.1}% in_port={}", self.sampled.group, self.percent(), self.port)
    }

    /// One line.
    fn text(&self) -> String {
        let mut whole = self.sampled.packet.clone();
        // Headers tell the length: bytes that were not captured are zeros.
        whole.resize(whole.len().max((self.sampled.packet_bytes as usize).min(PACKET_MAX)), 0);
        let packet = format_packet(&whole, 0, &NoPortNames);
        let packet = packet.trim_end().replace('\n', " ");
        format!("{} {} bytes: {packet}\n", self.about(), self.sampled.packet_bytes)
    }

    fn json(&self) -> Value {
        let Sampled { group, cookie, packet_bytes, packet, .. } = &self.sampled;
        let ids = ids(cookie);
        json!({
            "time_ns": self.wall_ns,
            "group": group,
            "cookie": hex(cookie),
            "obs_domain_id": ids.map(|(domain, _)| domain),
            "obs_point_id": ids.map(|(_, point)| point),
            "sample_percent": self.percent(),
            "in_port": self.port,
            "bytes": packet_bytes,
            "packet": hex(packet),
        })
    }

    fn write(&self, file: &mut Pcapng<File>) -> Result<()> {
        let comment = self.about();
        let captured = Captured {
            wall_ns: self.wall_ns,
            interface: &self.port,
            comment: &comment,
            bytes: self.sampled.packet_bytes.max(self.sampled.packet.len() as u32),
            packet: &self.sampled.packet,
        };
        file.write(&captured).context("cannot write the file")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cookie: &[u8]) -> Sample {
        let sampled = Sampled {
            time_ns: 5,
            group: 10,
            probability: u32::MAX / 2,
            port: 2,
            packet_bytes: 60,
            cookie: cookie.to_vec(),
            packet: vec![0xff, 1],
        };
        Sample { sampled, port: "p1".into(), wall_ns: 1005 }
    }

    #[test]
    fn cookies_of_eight_bytes_are_domain_and_point() {
        for (cookie, wanted) in [
            (
                &[0, 0, 0, 1, 0, 0, 1, 0][..],
                "group=10 obs_domain_id=1 obs_point_id=256 sample=50.0% in_port=p1",
            ),
            (&[], "group=10 sample=50.0% in_port=p1"),
            (&[0, 7], "group=10 cookie=0x0007 sample=50.0% in_port=p1"),
        ] {
            assert_eq!(sample(cookie).about(), wanted);
        }
        let json = sample(&[0, 0, 0, 1, 0, 0, 1, 0]).json();
        assert_eq!((&json["obs_point_id"], &json["packet"]), (&json!(256), &json!("0xff01")));
        assert_eq!(sample(&[]).json()["obs_domain_id"], Value::Null);
    }
}
