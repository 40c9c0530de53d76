//! Compact storage of records: events with their packets stored once, names of ports and threads, losses.
//!
//! Bounded: beyond [`EVENTS_MAX`] events or [`BYTES_MAX`] of packets and keys it stores no more
//! ([`Gathered::full`]).

use std::collections::HashMap;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use rapidhash::fast::RandomState;
use upcall_events::{Event, Record, Stage, Why};

/// Maximum stored events: about 1 GiB with their packets.
pub const EVENTS_MAX: usize = 16 << 20;
/// Maximum stored bytes of packets and keys.
pub const BYTES_MAX: usize = 1 << 30;
/// Maximum number of stored names of ports (each name of a number counts) and threads.
const NAMES_MAX: usize = 1 << 16;
/// No packet, key or port.
pub const NONE: u32 = u32::MAX;

/// A stored event. `packet` and `key` are indices into [`Bytes`]; `port` is an index into
/// [`Gathered::ports`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// As in [`Event`].
    pub time_ns: u64,
    /// As in [`Event`].
    pub upcall: u64,
    /// First bytes of the packet, or [`NONE`].
    pub packet: u32,
    /// First bytes of the flow key, or [`NONE`].
    pub key: u32,
    /// As in [`Event`].
    pub thread: u32,
    /// The port, or [`NONE`].
    pub port: u32,
    /// As in [`Event`].
    pub packet_bytes: u32,
    /// As in [`Event`].
    pub error: u32,
    /// As in [`Event`].
    pub cpu: u16,
    /// As in [`Event`].
    pub batch: u16,
    /// As in [`Event`].
    pub stage: Stage,
    /// As in [`Event`].
    pub why: Why,
}

/// Byte strings, each stored once.
#[derive(Default)]
pub struct Bytes {
    arena: Vec<u8>,
    /// End of each; it begins at the end of the previous one.
    ends: Vec<usize>,
    table: HashTable<u32>,
    hasher: RandomState,
}

impl Bytes {
    /// The bytes of a number that [`Bytes::number`] gave.
    pub fn get(&self, number: u32) -> &[u8] {
        slice(&self.arena, &self.ends, number)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The index of these bytes; equal bytes have equal indices.
    pub fn number(&mut self, bytes: &[u8]) -> u32 {
        let Bytes { arena, ends, table, hasher } = self;
        let hash = hash(hasher, bytes);
        if let Some(number) = table.find(hash, |number| slice(arena, ends, *number) == bytes) {
            return *number;
        }
        let number = ends.len() as u32;
        arena.extend_from_slice(bytes);
        ends.push(arena.len());
        table.insert_unique(hash, number, |number| self::hash(hasher, slice(arena, ends, *number)));
        number
    }
}

fn hash(hasher: &RandomState, bytes: &[u8]) -> u64 {
    hasher.hash_one(bytes)
}

fn slice<'a>(arena: &'a [u8], ends: &[usize], number: u32) -> &'a [u8] {
    let number = number as usize;
    let start = number.checked_sub(1).map_or(0, |before| ends[before]);
    &arena[start..ends[number]]
}

/// A port, during one use of its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Number in the datapath.
    pub number: u32,
    /// Its name, once known.
    pub name: Option<String>,
}

impl Port {
    /// Its name, or its number if unknown.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("port {}", self.number))
    }
}

/// Source of the events: the first record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// Process id of the switch.
    pub pid: u32,
    /// Program and version.
    pub program: String,
    /// `bpf` or `ring`.
    pub source: String,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` in nanoseconds.
    pub wall_offset_ns: u64,
}

/// All stored records.
#[derive(Default)]
pub struct Gathered {
    /// Source of the events, if recorded.
    pub origin: Option<Origin>,
    /// Events as they came.
    pub events: Vec<Kept>,
    /// Packets and keys.
    pub bytes: Bytes,
    /// Ports, also removed ones.
    pub ports: Vec<Port>,
    /// Names of threads.
    pub threads: HashMap<u32, String>,
    /// Lost events, by stage number.
    pub lost: [u64; Stage::ALL.len() + 1],
    /// Reported events and the nanoseconds spent on reporting.
    pub overhead: Option<(u64, u64)>,
    /// Whether only upcalls received by a handler count: events of other handlers were filtered out.
    pub handled_only: bool,
    /// Present port of a number.
    now: HashMap<u32, u32>,
    /// Named ports, by number and name.
    named: HashMap<(u32, String), u32>,
}

/// A printable name: control characters of an untrusted recording would reach the terminal.
fn clean(name: &str) -> String {
    name.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

impl Gathered {
    /// Whether the bounds are reached.
    pub fn full(&self) -> bool {
        self.events.len() >= EVENTS_MAX || self.bytes.arena.len() >= BYTES_MAX
    }

    /// All lost events.
    pub fn lost_all(&self) -> u64 {
        self.lost.iter().fold(0, |sum, lost| sum.saturating_add(*lost))
    }

    /// The name of a thread, or its id if unknown.
    pub fn thread_name(&self, thread: u32) -> String {
        self.threads.get(&thread).cloned().unwrap_or_else(|| format!("thread {thread}"))
    }

    /// The name of a port by its index.
    pub fn port_name(&self, port: u32) -> String {
        self.ports.get(port as usize).map_or("-".into(), Port::label)
    }

    /// Stores a record; drops events beyond the bounds.
    pub fn take(&mut self, record: &Record) {
        match record {
            Record::Start { pid, program, source, wall_offset_ns } => {
                let (program, source) = (clean(program), clean(source));
                let origin = Origin { pid: *pid, program, source, wall_offset_ns: *wall_offset_ns };
                self.origin.get_or_insert(origin);
            }
            Record::Port { number, name } => self.name_port(*number, &clean(name)),
            Record::PortGone { number } => {
                self.now.remove(number);
            }
            Record::Thread { thread, name } => {
                if self.threads.len() < NAMES_MAX {
                    self.threads.insert(*thread, clean(name));
                }
            }
            Record::Event(event) if !self.full() => self.event(event),
            Record::Event(_)
            | Record::Dropped(_)
            | Record::Unsampled { .. }
            | Record::Sampled(_)
            | Record::SamplesLost { .. }
            | Record::End => {}
            Record::Lost { stage, events } => {
                let lost = &mut self.lost[*stage as usize];
                *lost = lost.saturating_add(*events);
            }
            Record::Overhead { events, spent_ns } => self.overhead = Some((*events, *spent_ns)),
        }
    }

    /// Names a port. Earlier events of the number get the name, too; another name means another port.
    fn name_port(&mut self, number: u32, name: &str) {
        let now = self.now.get(&number).copied();
        let name_now = now.and_then(|index| self.ports.get(index as usize)).map(|port| port.name.as_deref());
        if name_now == Some(Some(name)) {
            return;
        }
        // A port that returns is the same port.
        let named = (number, name.to_owned());
        if let Some(index) = self.named.get(&named) {
            self.now.insert(number, *index);
            return;
        }
        let index = match now {
            Some(index) if name_now == Some(None) => index,
            _ if self.ports.len() >= NAMES_MAX => return,
            _ => {
                self.ports.push(Port { number, name: None });
                self.ports.len() as u32 - 1
            }
        };
        self.ports[index as usize].name = Some(name.to_owned());
        self.named.insert(named, index);
        self.now.insert(number, index);
    }

    fn port(&mut self, number: u32) -> u32 {
        if number == Event::NO_PORT {
            return NONE;
        }
        if let Some(index) = self.now.get(&number) {
            return *index;
        }
        if self.ports.len() >= NAMES_MAX {
            return NONE;
        }
        let index = self.ports.len() as u32;
        self.ports.push(Port { number, name: None });
        self.now.insert(number, index);
        index
    }

    fn event(&mut self, event: &Event) {
        let mut number = |bytes: &[u8]| if bytes.is_empty() { NONE } else { self.bytes.number(bytes) };
        let (packet, key) = (number(&event.packet), number(&event.key));
        let port = self.port(event.port);
        self.events.push(Kept {
            time_ns: event.time_ns,
            upcall: event.upcall,
            packet,
            key,
            thread: event.thread,
            port,
            packet_bytes: event.packet_bytes,
            error: event.error,
            cpu: event.cpu,
            batch: event.batch,
            stage: event.stage,
            why: event.why,
        });
    }
}
