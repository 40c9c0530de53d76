//! Speed of the analysis: generates a recording of the given number of events (default: a million) in memory
//! and times each step.
//!
//! ```text
//! cargo run --release -p upcall-cost --example analysis_speed -- [EVENTS [FILE]]
//! ```
//!
//! Every second upcall has nine events joined by its id. The others, like those of the kernel's probes, have
//! no queue events and no id at their miss, which is joined by packet. With FILE the recording is kept there.
#![forbid(unsafe_code)]

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use upcall_cost::gather::Gathered;
use upcall_cost::recording::Recording;
use upcall_cost::{Polled, Source, export, text};
use upcall_events::{Event, Record, Stage, Why, encode_header};

/// The way of an upcall and the nanoseconds to each stage.
const WAY: [(Stage, u64); 9] = [
    (Stage::Miss, 0),
    (Stage::Enqueued, 150),
    (Stage::Received, 4_000),
    (Stage::Translated, 9_000),
    (Stage::PutSent, 9_400),
    (Stage::ExecuteSent, 9_600),
    (Stage::PutDone, 12_000),
    (Stage::Executed, 13_000),
    (Stage::OnWire, 14_500),
];
const PORTS: u64 = 100;
const HANDLERS: u64 = 4;

fn event(number: u64, stage: Stage, time_ns: u64) -> Record {
    let by_handler = (Stage::Received..=Stage::ExecuteSent).contains(&stage);
    let mut packet =
        vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 110, 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet.extend_from_slice(&[10, 1, 0, 1, 10, 2, 0, 1, (number >> 8) as u8, number as u8, 0, 53]);
    packet.extend_from_slice(&number.to_be_bytes());
    packet.resize(124, 0);
    let compared = number % 2 == 1 && stage == Stage::Miss;
    Record::Event(Event {
        stage,
        why: Why::Miss,
        time_ns,
        upcall: if compared { 0 } else { number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 },
        thread: if by_handler { 100 + (number % HANDLERS) as u32 } else { 99 },
        cpu: 0,
        batch: if stage == Stage::Received { 1 } else { 0 },
        port: (number % PORTS) as u32,
        packet_bytes: 124,
        error: 0,
        packet: if matches!(stage, Stage::Miss | Stage::Received) { packet } else { Vec::new() },
        key: Vec::new(),
    })
}

fn recording(events: u64) -> Vec<u8> {
    let mut out = Vec::new();
    encode_header(&mut out);
    for number in 0..events * 2 / (2 * WAY.len() as u64 - 1) {
        // A little unevenness, the same each time.
        let slow = number * 7919 % 1000;
        for (index, (stage, at)) in WAY.into_iter().enumerate() {
            if number % 2 == 0 && stage == Stage::Enqueued {
                continue;
            }
            let time_ns = 1_000_000_000 + number * 10_000 + at + slow * index as u64;
            event(number + 1, stage, time_ns).encode(&mut out);
        }
    }
    Record::End.encode(&mut out);
    out
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let events: u64 =
        words.next().map_or(Ok(1_000_000), |word| word.parse()).context("EVENTS is a number")?;
    let bytes = recording(events);
    if let Some(path) = words.next() {
        std::fs::write(&path, &bytes).with_context(|| format!("{path}: cannot be written"))?;
    }
    println!("{events} events, {:.1} bytes each", bytes.len() as f64 / events as f64);
    let mut last = Instant::now();
    let mut step = |what: &str| {
        let took: Duration = last.elapsed();
        println!("{what:<20} {:>8.3} s", took.as_secs_f64());
        last = Instant::now();
    };
    let mut source = Recording::new(Path::new("memory"), bytes.as_slice());
    let mut gathered = Gathered::default();
    while let Polled::Record(record) = source.next(Duration::ZERO)? {
        gathered.take(&record);
    }
    step("read and gather");
    let analysed = upcall_cost::analyse("memory", gathered, Vec::new(), &mut |_| {});
    step("match and measure");
    let shown = text::full(&analysed.report, 20, 10).len();
    step("show");
    let mut csv = Vec::new();
    export::csv(std::slice::from_ref(&analysed), &mut csv)?;
    step("CSV");
    print!("{}", text::summary(&analysed.report));
    println!("{shown} bytes of text, {} of CSV", csv.len());
    Ok(())
}
