//! Records of the ring buffer, as written by `upcalls.bpf.c` (`struct head`, then packet and key), in host
//! byte order.

use upcall_events::{Event, Stage, Why};

/// Bytes of a record without packet and key.
const HEAD_BYTES: usize = 64;

/// The name is that of the port (`enum named`).
const NAMED_PORT: u8 = 1;

/// Object of a record's name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Named {
    /// The reporting thread.
    Thread(String),
    /// The device of the event's port; the kernel reports it on an arbitrary thread.
    Port(String),
}

/// Space for packets and keys in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) packet_bytes: usize,
    pub(super) key_bytes: usize,
}

impl Layout {
    /// Parses the event and the name of its thread or port; `None` if invalid.
    pub(super) fn read(self, bytes: &[u8]) -> Option<(Event, Named)> {
        let (head, data) = bytes.split_at_checked(HEAD_BYTES)?;
        let mut at = Fields(head);
        let (time_ns, upcall) = (at.u64()?, at.u64()?);
        let (thread, port, packet_bytes, error) = (at.u32()?, at.u32()?, at.u32()?, at.u32()?);
        let (cpu, batch) = (at.u16()?, at.u16()?);
        let (packet_held, key_held) = (usize::from(at.u16()?), usize::from(at.u16()?));
        let [stage, why] = at.take()?;
        let [named, _pad @ ..]: [u8; 6] = at.take()?;
        let name: [u8; 16] = at.take()?;
        let key_at = self.packet_bytes.min(data.len());
        let event = Event {
            stage: Stage::from_number(stage)?,
            why: Why::from_number(why)?,
            time_ns,
            upcall,
            thread,
            cpu,
            batch,
            port,
            packet_bytes,
            error,
            packet: data.get(..packet_held.min(self.packet_bytes))?.to_vec(),
            key: data.get(key_at..key_at + key_held.min(self.key_bytes))?.to_vec(),
        };
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        let name = String::from_utf8_lossy(&name[..end]).into_owned();
        Some((event, if named == NAMED_PORT { Named::Port(name) } else { Named::Thread(name) }))
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }
}
