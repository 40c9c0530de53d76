//! Records written as text, a line each:
//!
//! ```text
//! start PROGRAM SOURCE
//! port 1 veth1
//! gone 1
//! thread 11 handler1
//! 4000 received id=a thread=11 port=1 packet=ping bytes=98 batch=2 key=k error=0 why=miss
//! lost miss 2
//! overhead 38 7600
//! end
//! ```
//!
//! Times are nanoseconds; a packet or key consists of the bytes of its word, an id of hexadecimal digits.

use upcall_events::{Event, Record, Stage, Why, encode_header};

use crate::{Analysed, analyse, gather::Gathered};

fn stage(name: &str) -> Stage {
    Stage::ALL.into_iter().find(|stage| stage.name() == name).unwrap_or_else(|| panic!("no stage {name}"))
}

/// A frame from 10.0.0.1 to 10.0.0.2 with bytes that depend on the word.
fn frame(word: &str) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend_from_slice(&[0x45, 0, 0, 84, 0, 0, 0x40, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 8, 0]);
    frame.extend_from_slice(word.as_bytes());
    frame
}

fn event(time_ns: u64, words: &[&str]) -> Event {
    let mut event = Event {
        stage: stage(words[0]),
        why: Why::Miss,
        time_ns,
        upcall: 0,
        thread: 10,
        cpu: 0,
        batch: 0,
        port: Event::NO_PORT,
        packet_bytes: 0,
        error: 0,
        packet: Vec::new(),
        key: Vec::new(),
    };
    for word in &words[1..] {
        let (name, value) = word.split_once('=').unwrap_or_else(|| panic!("{word}: not NAME=VALUE"));
        match name {
            "id" => event.upcall = u64::from_str_radix(value, 16).unwrap(),
            "thread" => event.thread = value.parse().unwrap(),
            "port" => event.port = value.parse().unwrap(),
            "batch" => event.batch = value.parse().unwrap(),
            "error" => event.error = value.parse().unwrap(),
            "bytes" => event.packet_bytes = value.parse().unwrap(),
            "packet" => (event.packet, event.packet_bytes) = (frame(value), 98),
            "key" => event.key = value.as_bytes().to_vec(),
            "why" => event.why = if value == "action" { Why::Action } else { Why::Unknown },
            _ => panic!("{word}: unknown"),
        }
    }
    event
}

/// The records of a text.
pub(super) fn records(text: &str) -> Vec<Record> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let record = |words: Vec<&str>| match words.as_slice() {
        ["start", program, source] => {
            let (program, source) = (program.replace('_', " "), (*source).to_owned());
            Record::Start { pid: 42, program, source, wall_offset_ns: 0 }
        }
        ["port", number, name] => Record::Port { number: number.parse().unwrap(), name: (*name).to_owned() },
        ["gone", number] => Record::PortGone { number: number.parse().unwrap() },
        ["thread", id, name] => Record::Thread { thread: id.parse().unwrap(), name: (*name).to_owned() },
        ["lost", of, events] => Record::Lost { stage: stage(of), events: events.parse().unwrap() },
        ["overhead", events, ns] => {
            Record::Overhead { events: events.parse().unwrap(), spent_ns: ns.parse().unwrap() }
        }
        ["end"] => Record::End,
        [time, rest @ ..] => Record::Event(event(time.parse().unwrap(), rest)),
        [] => panic!("an empty line"),
    };
    lines.filter(|words| !words.is_empty()).map(record).collect()
}

/// The text as a recording.
pub(super) fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    encode_header(&mut out);
    for record in records(text) {
        record.encode(&mut out);
    }
    out
}

/// The records of the text, stored.
pub(super) fn gathered(text: &str) -> Gathered {
    let mut gathered = Gathered::default();
    for record in records(text) {
        gathered.take(&record);
    }
    gathered
}

/// The text, analysed.
pub(super) fn analysed(text: &str) -> Analysed {
    analyse("text", gathered(text), Vec::new(), &mut |_| {})
}
