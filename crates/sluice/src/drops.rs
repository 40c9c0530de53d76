//! `sluice drops`: who drops which packets, and why.
//!
//! Counters and causes come from `drops/show`, packets from the event socket, which the program reads between two readings.
//! While another program listens there, packets are missing, and the rest remains.

mod rows;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use serde_json::Value;

use crate::appctl::{self, DEFAULT_TARGET};
use crate::drop_feed::{DropFeed, Told};
use crate::remote::{Deadline, EXIT_TIMED_OUT, TimedOut, complain, print};
use crate::vsctl;
use rows::{Rows, Samples};

const PROGRAM: &str = "sluice drops";
/// Bytes of a packet that its text needs.
const PACKET_BYTES: usize = 192;
/// Packets of each reason and second: one is shown.
const PER_SECOND: u32 = 4;
/// Clears the terminal and goes to its top.
const CLEAR: &str = "\x1b[H\x1b[2J";
/// Maximum time for the event socket's first answer.
const FEED_LIMIT: Duration = Duration::from_secs(2);

/// Arguments of `sluice drops`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this port, or the ports of this bridge
    name: Option<String>,
    /// Seconds between two readings, in which packets are sampled
    #[arg(short, long, default_value = "1", value_parser = crate::top::parse_delay)]
    delay: Duration,
    /// Print once after one delay and exit, the default without a terminal
    #[arg(long)]
    once: bool,
    /// Print that as JSON instead
    #[arg(long)]
    json: bool,
    /// Show the trace of each cause through the tables
    #[arg(long)]
    trace: bool,
    /// The daemon: its name, or the path of its control socket
    #[arg(short, long, default_value = DEFAULT_TARGET)]
    target: String,
    /// Timeout for a reply in seconds; 0 waits for ever
    #[arg(long, default_value_t = 10)]
    timeout: u32,
}

/// Runs it; returns the exit code.
pub(crate) fn main(options: &Options) -> u8 {
    match run(options) {
        Ok(()) => 0,
        Err(error) => {
            complain(PROGRAM, &format!("{error:#}"));
            if error.chain().any(|cause| cause.is::<TimedOut>()) { EXIT_TIMED_OUT } else { 1 }
        }
    }
}

fn read(options: &Options) -> Result<Value> {
    let args: Vec<String> = options.name.iter().cloned().collect();
    match appctl::call_json(&options.target, "drops/show", &args, Deadline::after_s(options.timeout))? {
        Ok(value) => Ok(value),
        Err(text) if text.contains("is not a valid command") => {
            Err(anyhow!("{} is another switch: `sluice drops` needs sluiced", options.target))
        }
        Err(text) => bail!("{}", text.trim_end()),
    }
}

/// Connects to the event socket; without it there are no packets.
fn feed() -> Result<DropFeed> {
    let mut feed = DropFeed::open(PACKET_BYTES, PER_SECOND)?;
    feed.wait_for_start(FEED_LIMIT)?;
    Ok(feed)
}

fn run(options: &Options) -> Result<()> {
    let once = options.once || options.json || !std::io::stdout().is_terminal();
    let mut before = read(options)?;
    let (mut feed, mut note) = match feed() {
        Ok(feed) => (Some(feed), None),
        Err(error) => (None, Some(format!("no sample packets: {error:#}"))),
    };
    let mut samples = Samples::default();
    loop {
        let start = Instant::now();
        gather(&mut feed, &mut samples, start + options.delay).unwrap_or_else(|error| {
            (feed, note) = (None, Some(format!("no more sample packets: {error:#}")));
        });
        std::thread::sleep((start + options.delay).saturating_duration_since(Instant::now()));
        let now = read(options)?;
        let rows = Rows::new(&before, &now, start.elapsed(), &samples, &mtu);
        let text =
            if options.json { rows.json(note.as_deref()) } else { rows.text(note.as_deref(), options.trace) };
        print(&if once { text } else { format!("{CLEAR}{text}") });
        if once {
            return Ok(());
        }
        before = now;
    }
}

/// Keeps the last packet of each port and reason, until that time.
fn gather(feed: &mut Option<DropFeed>, samples: &mut Samples, end: Instant) -> Result<()> {
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        let Some(feed) = feed else { return Ok(()) };
        if let Told::Packet(packet) = feed.next(left)? {
            samples.take(*packet);
        }
    }
    Ok(())
}

/// The MTU of an interface, if the database knows it.
fn mtu(port: &str) -> Option<u32> {
    let words = ["--if-exists", "get", "Interface", port, "mtu"].map(str::to_string);
    vsctl::answer(PROGRAM, &words).ok()?.trim().parse().ok()
}
