//! `sluice tcpdump --dropped`: dropped packets with their reasons, from the event socket of the daemon.
//!
//! tcpdump prints the packets, which it reads from a pipe; each of its lines gets the reason of its packet. A file is written
//! here, in the format of pcapng with a comment for each packet.

use std::fs::File;
use std::io::{BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use flow::text::{NoPortNames, parse_match};
use flow::{Match, OfPort};

use super::pcapng::{Captured, Pcapng, pcap_header, pcap_packet};
use super::{Direction, Options, find_program};
use crate::drop_feed::{DropFeed, DroppedOf, Told};
use crate::remote::complain;

/// Bytes of a packet without `-s`: the longest that the daemon sends.
const PACKET_BYTES: u16 = 16 * 1024;
/// Packets of each reason and second from each thread.
const PER_SECOND: u32 = 10_000;
/// Name that stands for all ports.
const ANY: &str = "any";
/// Maximum time for the daemon's first answer.
const START_LIMIT: Duration = Duration::from_secs(5);
/// Interval of waiting.
const POLL: Duration = Duration::from_secs(1);

/// Which packets to show.
struct Filter {
    port: Option<String>,
    matching: Option<Match>,
    direction: Direction,
}

impl Filter {
    fn of(options: &Options) -> Result<Filter> {
        let parse = |text: &String| {
            parse_match(text, &NoPortNames).map_err(|error| anyhow!("{text}: {}", error.message))
        };
        Ok(Filter {
            port: options.port.clone().filter(|port| port != ANY),
            matching: options.expr.as_ref().map(parse).transpose()?,
            direction: options.direction,
        })
    }

    fn takes(&self, packet: &DroppedOf) -> bool {
        let way = match self.direction {
            Direction::Both => true,
            Direction::In => !packet.is_sending(),
            Direction::Out => packet.is_sending(),
        };
        way && self.port.as_ref().is_none_or(|port| *port == packet.port)
            && self.matching.as_ref().is_none_or(|m| m.matches(&packet.key().to_flow(OfPort::NONE)))
    }
}

/// Where packets go.
enum Output {
    File(Pcapng<Box<dyn Write>>),
    Text(Box<Printer>),
}

/// A tcpdump that prints, and the reasons of its lines.
struct Printer {
    packets: Box<dyn Write>,
    reasons: Sender<String>,
    thread: std::thread::JoinHandle<()>,
}

/// Shows packets until the daemon, the count or the user ends it.
pub(super) fn run(options: &Options) -> Result<()> {
    let filter = Filter::of(options)?;
    let bytes = options.snaplen.unwrap_or(PACKET_BYTES).min(PACKET_BYTES);
    let mut feed = DropFeed::open(bytes.into(), PER_SECOND)?;
    feed.wait_for_start(START_LIMIT)?;
    let mut output = Output::open(options, bytes.into())?;
    let (mut left, mut missing) = (options.count.unwrap_or(u64::MAX), 0);
    eprintln!("listening to dropped packets");
    let mut told = Ok(());
    while left > 0 {
        match feed.next(POLL) {
            Ok(Told::Packet(packet)) if filter.takes(&packet) => {
                output.write(&packet)?;
                left -= 1;
            }
            Ok(Told::Unsampled(packets)) => missing += packets,
            Ok(Told::Packet(_) | Told::Nothing) => {}
            Err(error) => {
                told = Err(error);
                break;
            }
        }
    }
    output.finish();
    if missing > 0 {
        eprintln!("{missing} more packets were dropped, beyond the limits of samples");
    }
    told
}

impl Output {
    fn open(options: &Options, snaplen: u32) -> Result<Output> {
        let Some(path) = &options.write else {
            return Ok(Output::Text(Box::new(Printer::start(snaplen)?)));
        };
        let out: Box<dyn Write> = match path.as_os_str() == "-" {
            true => Box::new(std::io::stdout()),
            false => {
                Box::new(File::create(path).with_context(|| format!("{}: cannot write", path.display()))?)
            }
        };
        Ok(Output::File(Pcapng::new(out, snaplen).context("cannot write the file")?))
    }

    fn write(&mut self, packet: &DroppedOf) -> Result<()> {
        let reason = packet.reason();
        let captured = Captured {
            wall_ns: packet.wall_ns,
            interface: &packet.port,
            comment: &reason,
            bytes: packet.dropped.packet_bytes.max(packet.dropped.packet.len() as u32),
            packet: &packet.dropped.packet,
        };
        match self {
            Output::File(file) => file.write(&captured).context("cannot write the file"),
            Output::Text(printer) => {
                let bytes = pcap_packet(&captured);
                // The reason is there before its line.
                printer.reasons.send(reason).map_err(|_| anyhow!("the output is closed"))?;
                printer
                    .packets
                    .write_all(&bytes)
                    .and_then(|()| printer.packets.flush())
                    .context("tcpdump has ended")
            }
        }
    }

    fn finish(self) {
        if let Output::Text(printer) = self {
            let Printer { packets, reasons, thread } = *printer;
            drop((packets, reasons));
            if thread.join().is_err() {
                complain(super::PROGRAM, "the output ended early");
            }
        }
    }
}

impl Printer {
    fn start(snaplen: u32) -> Result<Printer> {
        let program =
            find_program("tcpdump").ok_or_else(|| anyhow!("tcpdump is not installed: install it"))?;
        let mut child = Command::new(program)
            .args(["-n", "-e", "-U", "-l", "-Z", "root", "-r", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run tcpdump")?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (mut packets, stdout) = stdin.zip(stdout).ok_or_else(|| anyhow!("tcpdump has no pipes"))?;
        packets.write_all(&pcap_header(snaplen)).context("tcpdump does not start")?;
        let (reasons, told) = channel();
        let thread = std::thread::spawn(move || {
            prefix(BufReader::new(stdout), &told);
            // It ends with its input.
            let _ = child.wait();
        });
        Ok(Printer { packets: Box::new(packets), reasons, thread })
    }
}

/// Prints lines with the reason of their packet; further lines of a packet begin with white space.
fn prefix(lines: impl std::io::BufRead, reasons: &Receiver<String>) {
    for line in lines.lines().map_while(Result::ok) {
        let is_more = line.starts_with([' ', '\t']);
        let reason = if is_more { None } else { reasons.recv().ok() };
        let text = reason.map_or_else(|| line.clone(), |reason| format!("{reason}: {line}"));
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}
