//! Encoding of records, on the daemon's event socket and in recordings.
//!
//! A stream is a header (magic, version) and frames. A frame is the length of its body (varint) and the body:
//! a tag and the fields of one [`Record`]. Numbers are varints (seven bits a byte, least first), except
//! upcall ids, which are random: eight bytes, least first. Frames are independent, so a truncated stream is
//! readable up to the cut. No frame exceeds [`FRAME_BYTES_MAX`]; the encoder truncates names, packets and
//! keys to ensure that.

use std::fmt;

use crate::{Dropped, Event, Record, Sampled, Stage, Why};

/// First bytes of a stream. The first is not ASCII, and the line ends reveal a file copied as text.
pub const MAGIC: [u8; 8] = *b"\x89UPC\r\n\x1a\n";
/// Version of the format; follows the magic, two bytes, least first.
pub const VERSION: u16 = 1;
/// Length of magic and version.
pub const HEADER_BYTES: usize = MAGIC.len() + 2;
/// Longest body of a frame.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Maximum bytes of a packet or a key in a record.
pub const PACKET_BYTES_MAX: usize = 16 * 1024;
/// Maximum bytes of a name in a record.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum bytes of a cookie in a record (`OVS_PSAMPLE_COOKIE_MAX_SIZE`).
pub const COOKIE_BYTES_MAX: usize = 16;

/// Maximum length of a length field, for [`FRAME_BYTES_MAX`].
const LENGTH_BYTES_MAX: usize = 3;

const TAG_START: u8 = 1;
const TAG_PORT: u8 = 2;
const TAG_PORT_GONE: u8 = 3;
const TAG_THREAD: u8 = 4;
const TAG_EVENT: u8 = 5;
const TAG_LOST: u8 = 6;
const TAG_OVERHEAD: u8 = 7;
const TAG_END: u8 = 8;
const TAG_DROPPED: u8 = 9;
const TAG_UNSAMPLED: u8 = 10;
const TAG_SAMPLED: u8 = 11;
const TAG_SAMPLES_LOST: u8 = 12;

/// Flags of an event: presence of optional fields.
const HAS_UPCALL: u8 = 1;
const HAS_BATCH: u8 = 2;
const HAS_PORT: u8 = 4;
const HAS_ERROR: u8 = 8;
const HAS_KEY: u8 = 16;
const FLAGS: u8 = HAS_UPCALL | HAS_BATCH | HAS_PORT | HAS_ERROR | HAS_KEY;

/// Fault of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Wrong {
    /// The magic is another.
    #[error("not a recording of upcalls")]
    Foreign,
    /// The version is not ours.
    #[error("version {0} of the format; this program reads version {VERSION}")]
    Version(u16),
    /// A frame is longer than allowed, or of no length.
    #[error("a frame of impossible length")]
    Length,
    /// The tag is none of ours.
    #[error("a record of the unknown kind {0}")]
    Tag(u8),
    /// A field has an invalid value; its name.
    #[error("a bad {0}")]
    Field(&'static str),
    /// The body ends within a field; its name.
    #[error("a record that ends in its {0}")]
    Short(&'static str),
    /// Bytes after the last field.
    #[error("a record with bytes after its end")]
    Long,
    /// The stream ends within a frame (or within the header).
    #[error("cut off: it ends within a record")]
    Torn,
}

/// A decoding error with its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodecError {
    /// Offset in bytes of the invalid frame, from the beginning of the stream.
    pub offset: u64,
    /// The fault.
    pub wrong: Wrong,
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wrong {
            wrong @ (Wrong::Foreign | Wrong::Version(_)) => wrong.fmt(f),
            wrong => write!(f, "at byte {}: {wrong}", self.offset),
        }
    }
}

impl std::error::Error for CodecError {}

/// Writes the header of a stream.
pub fn encode_header(out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    put_bytes(out, &name.as_bytes()[..end]);
}

impl Record {
    /// Appends it as a frame to `out`. Truncates names above [`NAME_BYTES_MAX`], packets and keys above
    /// [`PACKET_BYTES_MAX`]. Allocates nothing if `out` has capacity.
    pub fn encode(&self, out: &mut Vec<u8>) {
        // The length is known after the body: most take one byte, longer bodies are moved by some bytes.
        let start = out.len();
        out.push(0);
        self.encode_body(out);
        let length = out.len() - start - 1;
        if length < 0x80 {
            out[start] = length as u8;
            return;
        }
        let mut field = Vec::with_capacity(LENGTH_BYTES_MAX);
        put_varint(&mut field, length as u64);
        out.splice(start..=start, field);
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Record::Start { pid, program, source, wall_offset_ns } => {
                out.push(TAG_START);
                put_varint(out, u64::from(*pid));
                put_varint(out, *wall_offset_ns);
                put_name(out, program);
                put_name(out, source);
            }
            Record::Port { number, name } => {
                out.push(TAG_PORT);
                put_varint(out, u64::from(*number));
                put_name(out, name);
            }
            Record::PortGone { number } => {
                out.push(TAG_PORT_GONE);
                put_varint(out, u64::from(*number));
            }
            Record::Thread { thread, name } => {
                out.push(TAG_THREAD);
                put_varint(out, u64::from(*thread));
                put_name(out, name);
            }
            Record::Event(event) => encode_event(event, out),
            Record::Lost { stage, events } => {
                out.extend_from_slice(&[TAG_LOST, *stage as u8]);
                put_varint(out, *events);
            }
            Record::Overhead { events, spent_ns } => {
                out.push(TAG_OVERHEAD);
                put_varint(out, *events);
                put_varint(out, *spent_ns);
            }
            Record::Dropped(dropped) => encode_dropped(dropped, out),
            Record::Unsampled { packets } => {
                out.push(TAG_UNSAMPLED);
                put_varint(out, *packets);
            }
            Record::Sampled(sampled) => encode_sampled(sampled, out),
            Record::SamplesLost { packets } => {
                out.push(TAG_SAMPLES_LOST);
                put_varint(out, *packets);
            }
            Record::End => out.push(TAG_END),
        }
    }
}

fn encode_event(event: &Event, out: &mut Vec<u8>) {
    let has = |there: bool, flag: u8| if there { flag } else { 0 };
    let flags = has(event.upcall != 0, HAS_UPCALL)
        | has(event.batch != 0, HAS_BATCH)
        | has(event.port != Event::NO_PORT, HAS_PORT)
        | has(event.error != 0, HAS_ERROR)
        | has(!event.key.is_empty(), HAS_KEY);
    out.extend_from_slice(&[TAG_EVENT, event.stage as u8 | (event.why as u8) << 4, flags]);
    put_varint(out, event.time_ns);
    if flags & HAS_UPCALL != 0 {
        out.extend_from_slice(&event.upcall.to_le_bytes());
    }
    put_varint(out, u64::from(event.thread));
    put_varint(out, u64::from(event.cpu));
    if flags & HAS_BATCH != 0 {
        put_varint(out, u64::from(event.batch));
    }
    if flags & HAS_PORT != 0 {
        put_varint(out, u64::from(event.port));
    }
    if flags & HAS_ERROR != 0 {
        put_varint(out, u64::from(event.error));
    }
    put_varint(out, u64::from(event.packet_bytes));
    put_bytes(out, &event.packet[..event.packet.len().min(PACKET_BYTES_MAX)]);
    if flags & HAS_KEY != 0 {
        put_bytes(out, &event.key[..event.key.len().min(PACKET_BYTES_MAX)]);
    }
}

fn encode_dropped(dropped: &Dropped, out: &mut Vec<u8>) {
    out.push(TAG_DROPPED);
    put_varint(out, dropped.time_ns);
    put_name(out, &dropped.reason);
    put_name(out, &dropped.kernel);
    put_varint(out, u64::from(dropped.port));
    put_varint(out, u64::from(dropped.packet_bytes));
    for bytes in [&dropped.packet, &dropped.key] {
        put_bytes(out, &bytes[..bytes.len().min(PACKET_BYTES_MAX)]);
    }
}

fn encode_sampled(sampled: &Sampled, out: &mut Vec<u8>) {
    out.push(TAG_SAMPLED);
    put_varint(out, sampled.time_ns);
    for number in [sampled.group, sampled.probability, sampled.port, sampled.packet_bytes] {
        put_varint(out, u64::from(number));
    }
    put_bytes(out, &sampled.cookie[..sampled.cookie.len().min(COOKIE_BYTES_MAX)]);
    put_bytes(out, &sampled.packet[..sampled.packet.len().min(PACKET_BYTES_MAX)]);
}

/// The body of a frame, read from its beginning.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, bytes: usize, what: &'static str) -> Result<&'a [u8], Wrong> {
        let (head, rest) = self.0.split_at_checked(bytes).ok_or(Wrong::Short(what))?;
        self.0 = rest;
        Ok(head)
    }

    fn byte(&mut self, what: &'static str) -> Result<u8, Wrong> {
        Ok(self.take(1, what)?[0])
    }

    fn varint(&mut self, what: &'static str) -> Result<u64, Wrong> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Wrong::Field(what));
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Wrong::Field(what))
    }

    fn number<T: TryFrom<u64>>(&mut self, what: &'static str) -> Result<T, Wrong> {
        T::try_from(self.varint(what)?).map_err(|_| Wrong::Field(what))
    }

    fn bytes(&mut self, max: usize, what: &'static str) -> Result<&'a [u8], Wrong> {
        let length: usize = self.number(what)?;
        if length > max {
            return Err(Wrong::Field(what));
        }
        self.take(length, what)
    }

    fn name(&mut self, what: &'static str) -> Result<String, Wrong> {
        let bytes = self.bytes(NAME_BYTES_MAX, what)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| Wrong::Field(what))
    }

    fn stage(&mut self) -> Result<Stage, Wrong> {
        Stage::from_number(self.byte("stage")?).ok_or(Wrong::Field("stage"))
    }

    fn record(&mut self) -> Result<Record, Wrong> {
        Ok(match self.byte("kind")? {
            TAG_START => {
                let (pid, wall_offset_ns) = (self.number("process id")?, self.varint("clock offset")?);
                let (program, source) = (self.name("program")?, self.name("source")?);
                Record::Start { pid, program, source, wall_offset_ns }
            }
            TAG_PORT => Record::Port { number: self.number("port")?, name: self.name("port name")? },
            TAG_PORT_GONE => Record::PortGone { number: self.number("port")? },
            TAG_THREAD => Record::Thread { thread: self.number("thread")?, name: self.name("thread name")? },
            TAG_EVENT => Record::Event(self.event()?),
            TAG_LOST => Record::Lost { stage: self.stage()?, events: self.varint("number of lost events")? },
            TAG_OVERHEAD => Record::Overhead {
                events: self.varint("number of events")?,
                spent_ns: self.varint("time spent")?,
            },
            TAG_DROPPED => Record::Dropped(Dropped {
                time_ns: self.varint("time")?,
                reason: self.name("reason")?,
                kernel: self.name("kernel's reason")?,
                port: self.number("port")?,
                packet_bytes: self.number("packet length")?,
                packet: self.bytes(PACKET_BYTES_MAX, "packet")?.to_vec(),
                key: self.bytes(PACKET_BYTES_MAX, "flow key")?.to_vec(),
            }),
            TAG_UNSAMPLED => Record::Unsampled { packets: self.varint("number of packets")? },
            TAG_SAMPLED => Record::Sampled(Sampled {
                time_ns: self.varint("time")?,
                group: self.number("group")?,
                probability: self.number("probability")?,
                port: self.number("port")?,
                packet_bytes: self.number("packet length")?,
                cookie: self.bytes(COOKIE_BYTES_MAX, "cookie")?.to_vec(),
                packet: self.bytes(PACKET_BYTES_MAX, "packet")?.to_vec(),
            }),
            TAG_SAMPLES_LOST => Record::SamplesLost { packets: self.varint("number of packets")? },
            TAG_END => Record::End,
            tag => return Err(Wrong::Tag(tag)),
        })
    }

    fn event(&mut self) -> Result<Event, Wrong> {
        let kind = self.byte("stage")?;
        let stage = Stage::from_number(kind & 0xf).ok_or(Wrong::Field("stage"))?;
        let why = Why::from_number(kind >> 4).ok_or(Wrong::Field("reason"))?;
        let flags = self.byte("flags")?;
        if flags & !FLAGS != 0 {
            return Err(Wrong::Field("flags"));
        }
        let has = |flag: u8| flags & flag != 0;
        let time_ns = self.varint("time")?;
        let mut id = [0; 8];
        if has(HAS_UPCALL) {
            id.copy_from_slice(self.take(8, "upcall id")?);
        }
        Ok(Event {
            stage,
            why,
            time_ns,
            upcall: u64::from_le_bytes(id),
            thread: self.number("thread")?,
            cpu: self.number("processor")?,
            batch: if has(HAS_BATCH) { self.number("batch")? } else { 0 },
            port: if has(HAS_PORT) { self.number("port")? } else { Event::NO_PORT },
            error: if has(HAS_ERROR) { self.number("error")? } else { 0 },
            packet_bytes: self.number("packet length")?,
            packet: self.bytes(PACKET_BYTES_MAX, "packet")?.to_vec(),
            key: if has(HAS_KEY) { self.bytes(PACKET_BYTES_MAX, "flow key")?.to_vec() } else { Vec::new() },
        })
    }
}

/// Decodes records from arriving bytes. It holds pushed bytes until decoded: call [`Decoder::next`] until
/// empty before the next push, and it holds less than a frame.
#[derive(Debug, Default)]
pub struct Decoder {
    held: Vec<u8>,
    /// Consumed bytes of `held`.
    done: usize,
    /// Offset in the stream of `held[0]`.
    offset: u64,
    header_seen: bool,
    failed: Option<CodecError>,
}

impl Decoder {
    /// At the beginning of a stream, before its header.
    pub fn new() -> Self {
        Decoder::default()
    }

    /// Pushes the next bytes of the stream. After an error they are ignored.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        self.held.drain(..self.done);
        self.offset += self.done as u64;
        self.done = 0;
        self.held.extend_from_slice(bytes);
    }

    /// Offset in the stream of the next bytes to decode.
    pub fn offset(&self) -> u64 {
        self.offset + self.done as u64
    }

    /// The next record; `None`: more bytes are needed.
    ///
    /// # Errors
    ///
    /// The stream has another format or is damaged. It is unusable then: each further call returns the same
    /// error.
    #[allow(clippy::should_implement_trait, reason = "not an iterator: None is not the end")]
    pub fn next(&mut self) -> Result<Option<Record>, CodecError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.step().map_err(|wrong| {
            let error = CodecError { offset: self.offset(), wrong };
            (self.held, self.done, self.failed) = (Vec::new(), 0, Some(error));
            error
        })
    }

    fn step(&mut self) -> Result<Option<Record>, Wrong> {
        if !self.header_seen && !self.header()? {
            return Ok(None);
        }
        let rest = &self.held[self.done..];
        let head = &rest[..rest.len().min(LENGTH_BYTES_MAX)];
        let Some(last) = head.iter().position(|byte| *byte < 0x80) else {
            return if head.len() < LENGTH_BYTES_MAX { Ok(None) } else { Err(Wrong::Length) };
        };
        let length: usize = Body(head).number("length")?;
        if length == 0 || length > FRAME_BYTES_MAX {
            return Err(Wrong::Length);
        }
        let Some(body) = rest.get(last + 1..last + 1 + length) else { return Ok(None) };
        let mut body = Body(body);
        let record = body.record()?;
        if !body.0.is_empty() {
            return Err(Wrong::Long);
        }
        self.done += last + 1 + length;
        Ok(Some(record))
    }

    /// Parses the header; returns whether it is complete.
    fn header(&mut self) -> Result<bool, Wrong> {
        let magic = &self.held[..self.held.len().min(MAGIC.len())];
        if !MAGIC.starts_with(magic) {
            return Err(Wrong::Foreign);
        }
        let Some(version) = self.held.get(MAGIC.len()..HEADER_BYTES) else { return Ok(false) };
        let version = u16::from_le_bytes([version[0], version[1]]);
        if version != VERSION {
            return Err(Wrong::Version(version));
        }
        (self.done, self.header_seen) = (HEADER_BYTES, true);
        Ok(true)
    }

    /// Checks the end of the stream.
    ///
    /// # Errors
    ///
    /// It ends within a frame or the header, or had an error before.
    pub fn finish(&self) -> Result<(), CodecError> {
        match self.failed {
            Some(error) => Err(error),
            None if self.done == self.held.len() && self.header_seen => Ok(()),
            None => Err(CodecError { offset: self.offset(), wrong: Wrong::Torn }),
        }
    }
}
