//! The list of events as they come.

use upcall_events::{Event, Record};

use crate::gather::{Gathered, NONE};
use crate::packet::brief;

/// Headings of the list.
pub fn headings() -> String {
    format!(
        "{:<18} {:<13} {:<16} {:>8} {:>4} {:<16} {:>16} {:>6}  {}",
        "TIME", "EVENT", "THREAD", "ID", "CPU", "PORT", "UPCALL", "BYTES", "PACKET"
    )
}

/// The line of a record just stored in `gathered`; `None` if not listed.
pub fn line(record: &Record, gathered: &Gathered) -> Option<String> {
    match record {
        Record::Event(event) => Some(event_line(event, gathered)),
        Record::Lost { stage, events } => Some(format!("{events} {} EVENTS LOST", stage.name())),
        Record::Port { number, name } => Some(format!("port {number} is {name}")),
        Record::PortGone { number } => Some(format!("port {number} is gone")),
        Record::Start { .. }
        | Record::Thread { .. }
        | Record::Overhead { .. }
        | Record::Dropped(_)
        | Record::Unsampled { .. }
        | Record::Sampled(_)
        | Record::SamplesLost { .. }
        | Record::End => None,
    }
}

fn event_line(event: &Event, gathered: &Gathered) -> String {
    let port = gathered.events.last().map_or(NONE, |kept| kept.port);
    let error = if event.error == 0 { String::new() } else { format!(" (error {})", event.error) };
    format!(
        "{:<18} {:<13} {:<16} {:>8} {:>4} {:<16} {:>16} {:>6}  {}{error}",
        format!("{}.{:09}", event.time_ns / 1_000_000_000, event.time_ns % 1_000_000_000),
        event.stage.name(),
        gathered.thread_name(event.thread),
        event.thread,
        event.cpu,
        gathered.port_name(port),
        if event.upcall == 0 { "-".to_owned() } else { format!("{:016x}", event.upcall) },
        event.packet_bytes,
        brief(&event.packet)
    )
}
