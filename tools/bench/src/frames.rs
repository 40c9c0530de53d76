//! Generator frames: 64 bytes (as on a veth, without a frame check sequence) of Ethernet, IPv4 and UDP, of a
//! flow given by the sequence number, with the run's id, the number and the transmit time in the payload.
//!
//! Run and number determine every byte except the time, so the sink compares whole frames.

use packet::checksum::checksum;

/// Bytes of a frame.
pub(crate) const FRAME_BYTES: usize = 64;

/// Ethernet address of the generator, not of its device: the host's own stack ignores these frames.
pub(crate) const GENERATOR_MAC: [u8; 6] = [0x02, 0xbe, 0, 0, 0, 1];
/// Ethernet address of the sink, likewise.
pub(crate) const SINK_MAC: [u8; 6] = [0x02, 0xbe, 0, 0, 0, 2];

const IP_AT: usize = 14;
const UDP_AT: usize = 34;
const RUN_AT: usize = 42;
const SEQUENCE_AT: usize = 46;
const TIME_AT: usize = 54;
const TAIL_AT: usize = 62;
const TAIL: [u8; 2] = [0x51, 0x0c];
/// Flows differ in their source port and in the last two bytes of their source address.
const PORTS: u64 = 1000;

/// Contents of a frame's stamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    /// Number within the run, from 0.
    pub(crate) sequence: u64,
    /// Transmit time, in ns since the start of the run.
    pub(crate) sent_ns: u64,
}

/// Builds and parses the frames of one run.
pub(crate) struct Frames {
    run: u32,
    flows: u64,
    template: [u8; FRAME_BYTES],
}

/// Reason for not counting a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// Not of this run: from an earlier one, or sent by a host.
    Foreign,
    /// A frame of this run that differs from the sent one.
    Damaged,
}

impl Frames {
    /// Frames of run `run` in `flows` 5-tuples (1 to 1,000,000), in rotation.
    pub(crate) fn new(run: u32, flows: u64) -> Frames {
        let mut template = [0; FRAME_BYTES];
        template[..6].copy_from_slice(&SINK_MAC);
        template[6..12].copy_from_slice(&GENERATOR_MAC);
        template[12..14].copy_from_slice(&[0x08, 0x00]);
        // Version 4, 20 bytes of header; total length; don't fragment; 64 hops; UDP.
        template[IP_AT..IP_AT + 4].copy_from_slice(&[0x45, 0, 0, (FRAME_BYTES - IP_AT) as u8]);
        template[IP_AT + 6..IP_AT + 10].copy_from_slice(&[0x40, 0, 64, 17]);
        template[IP_AT + 12..IP_AT + 20].copy_from_slice(&[10, 99, 0, 0, 10, 98, 0, 1]);
        // Destination port; length; no checksum, as RFC 768 allows.
        template[UDP_AT + 2..UDP_AT + 6].copy_from_slice(&[0x13, 0x88, 0, (FRAME_BYTES - UDP_AT) as u8]);
        template[RUN_AT..SEQUENCE_AT].copy_from_slice(&run.to_be_bytes());
        template[TAIL_AT..].copy_from_slice(&TAIL);
        Frames { run, flows: flows.clamp(1, 1_000_000), template }
    }

    /// Number of flows.
    pub(crate) fn flows(&self) -> u64 {
        self.flows
    }

    /// The flow of a frame.
    pub(crate) fn flow(&self, sequence: u64) -> u64 {
        sequence % self.flows
    }

    /// Writes a frame.
    pub(crate) fn write(&self, stamp: Stamp, frame: &mut [u8; FRAME_BYTES]) {
        *frame = self.template;
        let flow = self.flow(stamp.sequence);
        let host = (flow / PORTS) as u16;
        frame[IP_AT + 14..IP_AT + 16].copy_from_slice(&host.to_be_bytes());
        let sum = checksum(&frame[IP_AT..UDP_AT]);
        frame[IP_AT + 10..IP_AT + 12].copy_from_slice(&sum.to_be_bytes());
        let port = 1024 + (flow % PORTS) as u16;
        frame[UDP_AT..UDP_AT + 2].copy_from_slice(&port.to_be_bytes());
        frame[SEQUENCE_AT..TIME_AT].copy_from_slice(&stamp.sequence.to_be_bytes());
        frame[TIME_AT..TAIL_AT].copy_from_slice(&stamp.sent_ns.to_be_bytes());
    }

    /// Reads a frame; every byte is compared.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<Stamp, Refused> {
        let ours = bytes.get(..12) == Some(&self.template[..12])
            && bytes.get(RUN_AT..SEQUENCE_AT) == Some(&self.run.to_be_bytes()[..]);
        if !ours {
            return Err(Refused::Foreign);
        }
        let Ok(frame) = <&[u8; FRAME_BYTES]>::try_from(bytes) else { return Err(Refused::Damaged) };
        let number = |at: usize| frame[at..].first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
        let stamp = Stamp { sequence: number(SEQUENCE_AT), sent_ns: number(TIME_AT) };
        let mut expected = [0; FRAME_BYTES];
        self.write(stamp, &mut expected);
        if *frame == expected { Ok(stamp) } else { Err(Refused::Damaged) }
    }

    /// A frame that teaches a switch the sink's location; not part of any run.
    pub(crate) fn announcement() -> [u8; FRAME_BYTES] {
        let mut frame = [0; FRAME_BYTES];
        frame[..6].copy_from_slice(&GENERATOR_MAC);
        frame[6..12].copy_from_slice(&SINK_MAC);
        // The Ethernet type for local experiments (IEEE 802).
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame
    }
}
