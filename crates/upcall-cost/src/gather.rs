//! What records say, kept compactly: events with their packets stored once, names of ports and threads, what was lost.
//!
//! Bounded: beyond [`EVENTS_MAX`] events or [`BYTES_MAX`] of packets and keys nothing more is taken ([`Gathered::full`]).

use std::collections::HashMap;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use rapidhash::fast::RandomState;
use upcall_events::{Event, Record, Stage, Why};

/// Most events that are kept: about 1 GiB with their packets.
pub const EVENTS_MAX: usize = 16 << 20;
/// Most bytes of packets and keys that are kept.
pub const BYTES_MAX: usize = 1 << 30;
/// Most ports (each name of a number counts) and threads whose names are kept.
const NAMES_MAX: usize = 1 << 16;
/// No packet, key or port.
pub const NONE: u32 = u32::MAX;

/// An event as it is kept. `packet` and `key` are numbers of [`Bytes`]; `port` is an index into [`Gathered::ports`].
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
    /// Where each ends; it begins where the one before ends.
    ends: Vec<usize>,
    table: HashTable<u32>,
    hasher: RandomState,
}

impl Bytes {
    /// The bytes of a number that [`Bytes::number`] gave.
    pub fn get(&self, number: u32) -> &[u8] {
        slice(&self.arena, &self.ends, number)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The number of these bytes; the same for the same bytes.
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

/// A port for as long as a number meant it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Number in the datapath.
    pub number: u32,
    /// Its name, once that is known.
    pub name: Option<String>,
}

impl Port {
    /// Its name, or its number where that is not known.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("port {}", self.number))
    }
}

/// Who told: the first record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Teller {
    /// Process id of the switch.
    pub pid: u32,
    /// Program and version.
    pub program: String,
    /// `bpf` or `ring`.
    pub source: String,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` in nanoseconds.
    pub wall_offset_ns: u64,
}

/// All that was told.
#[derive(Default)]
pub struct Gathered {
    /// Who told, if it said so.
    pub teller: Option<Teller>,
    /// Events as they came.
    pub events: Vec<Kept>,
    /// Packets and keys.
    pub bytes: Bytes,
    /// Ports, also those that came and went.
    pub ports: Vec<Port>,
    /// Names of threads.
    pub threads: HashMap<u32, String>,
    /// Lost events, by stage number.
    pub lost: [u64; Stage::ALL.len() + 1],
    /// Events told and nanoseconds spent on it, as the teller says.
    pub overhead: Option<(u64, u64)>,
    /// Whether only upcalls count of which it is told that a handler took them: events of other handlers were left out.
    pub handled_only: bool,
    /// Which port a number means now.
    now: HashMap<u32, u32>,
    /// The ports that have a name, by number and name.
    named: HashMap<(u32, String), u32>,
}

/// A name that is safe to print: control characters of a hostile recording would reach the terminal.
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

    /// The name of a thread, or its number where that is not known.
    pub fn thread_name(&self, thread: u32) -> String {
        self.threads.get(&thread).cloned().unwrap_or_else(|| format!("thread {thread}"))
    }

    /// The name of a port by its index.
    pub fn port_name(&self, port: u32) -> String {
        self.ports.get(port as usize).map_or("-".into(), Port::label)
    }

    /// Takes a record; events beyond the bounds are left out.
    pub fn take(&mut self, record: &Record) {
        match record {
            Record::Start { pid, program, source, wall_offset_ns } => {
                let (program, source) = (clean(program), clean(source));
                let teller = Teller { pid: *pid, program, source, wall_offset_ns: *wall_offset_ns };
                self.teller.get_or_insert(teller);
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
            Record::Event(_) | Record::End => {}
            Record::Lost { stage, events } => {
                let lost = &mut self.lost[*stage as usize];
                *lost = lost.saturating_add(*events);
            }
            Record::Overhead { events, spent_ns } => self.overhead = Some((*events, *spent_ns)),
        }
    }

    /// A number gets a name. Events that came before their port's name get it as well; another name is another port.
    fn name_port(&mut self, number: u32, name: &str) {
        let now = self.now.get(&number).copied();
        let name_now = now.and_then(|index| self.ports.get(index as usize)).map(|port| port.name.as_deref());
        if name_now == Some(Some(name)) {
            return;
        }
        // One that comes back is the one that it was.
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
