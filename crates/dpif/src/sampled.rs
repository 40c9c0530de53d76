//! Packets that the action `psample` samples, on their way to a reader.

use flow::DpPort;

/// A sampled packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampledPacket {
    /// Group of the action.
    pub group: u32,
    /// Cookie of the action: at most 16 bytes.
    pub cookie: Box<[u8]>,
    /// Probability of the sample that the action is in, out of `u32::MAX`.
    pub probability: u32,
    /// The input port of the packet's key.
    pub in_port: DpPort,
    /// Length of the packet in bytes.
    pub bytes: usize,
    /// Its first bytes.
    pub packet: Vec<u8>,
}
