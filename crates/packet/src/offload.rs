//! Offload metadata: work left undone by a device (a checksum, segmentation), and its `virtio_net_hdr` form
//! (VIRTIO 1.2 §5.1.6, `linux/virtio_net.h`), little-endian, 10 bytes.

/// Bytes of a `virtio_net_hdr` without `num_buffers`.
pub const VIRTIO_NET_HDR_BYTES: usize = 10;

const F_NEEDS_CSUM: u8 = 1;
const F_DATA_VALID: u8 = 2;
const GSO_TCPV4: u8 = 1;
const GSO_UDP: u8 = 3;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Kind of segmentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GsoKind {
    /// Not a large segment.
    #[default]
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4 or IPv6, cut into datagrams.
    UdpL4,
}

/// Pending work on a frame. Offsets count from the start of the frame.
///
/// Metadata of a large segment inside a UDP tunnel concern the frame inside, as in frames of a kernel's tunnel device. Only
/// `csum_start` shows the tunnel ([`crate::is_tunneled`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// The checksum field holds only the pseudo-header sum: sum from `csum_start` on and store at `csum_start
    /// + csum_offset`.
    pub needs_csum: bool,
    /// The receiver verified the layer-4 checksum already.
    pub csum_valid: bool,
    /// Start of the sum (the layer-4 header).
    pub csum_start: u16,
    /// Offset of the checksum field from `csum_start`.
    pub csum_offset: u16,
    /// Segmentation of a large segment.
    pub gso: GsoKind,
    /// Payload bytes of one segment.
    pub gso_size: u16,
    /// Bytes of all headers, by the sender (a hint).
    pub hdr_len: u16,
    /// The large segment has TCP ECN marks (CWR on the first segment only).
    pub ecn: bool,
}

impl Offload {
    /// No pending work.
    pub const NONE: Offload = Offload {
        needs_csum: false,
        csum_valid: false,
        csum_start: 0,
        csum_offset: 0,
        gso: GsoKind::None,
        gso_size: 0,
        hdr_len: 0,
        ecn: false,
    };

    /// Whether the frame is a large segment.
    #[inline]
    pub fn is_gso(&self) -> bool {
        self.gso != GsoKind::None
    }

    /// Adjusts offsets for an insertion (`by > 0`) or removal (`by < 0`) of bytes at frame offset `at`.
    #[inline]
    pub(crate) fn moved(&mut self, at: usize, by: isize) {
        if self.needs_csum && self.csum_start as usize >= at {
            self.csum_start = (self.csum_start as isize + by).clamp(0, u16::MAX as isize) as u16;
        }
        if self.hdr_len as usize >= at && self.hdr_len != 0 {
            self.hdr_len = (self.hdr_len as isize + by).clamp(0, u16::MAX as isize) as u16;
        }
    }

    /// Parses the `virtio_net_hdr` of a frame of `frame_bytes`. `None`: an unknown segmentation type or
    /// offsets outside the frame; the caller drops and counts the frame.
    pub fn from_virtio(hdr: &[u8; VIRTIO_NET_HDR_BYTES], frame_bytes: usize) -> Option<Offload> {
        let u16_at = |i: usize| u16::from_le_bytes([hdr[i], hdr[i + 1]]);
        let gso = match hdr[1] & !GSO_ECN {
            0 => GsoKind::None,
            GSO_TCPV4 => GsoKind::Tcp4,
            GSO_TCPV6 => GsoKind::Tcp6,
            GSO_UDP_L4 => GsoKind::UdpL4,
            GSO_UDP => return None,
            _ => return None,
        };
        let o = Offload {
            needs_csum: hdr[0] & F_NEEDS_CSUM != 0,
            csum_valid: hdr[0] & F_DATA_VALID != 0,
            csum_start: u16_at(6),
            csum_offset: u16_at(8),
            gso,
            gso_size: u16_at(4),
            hdr_len: u16_at(2),
            ecn: hdr[1] & GSO_ECN != 0,
        };
        let sum_end = o.csum_start as usize + o.csum_offset as usize + 2;
        let bad_sum = o.needs_csum && sum_end > frame_bytes;
        let bad_gso = o.is_gso() && (o.gso_size == 0 || !o.needs_csum);
        (!bad_sum && !bad_gso).then_some(o)
    }

    /// The equivalent `virtio_net_hdr`.
    pub fn to_virtio(&self) -> [u8; VIRTIO_NET_HDR_BYTES] {
        let mut h = [0; VIRTIO_NET_HDR_BYTES];
        if self.needs_csum {
            h[0] |= F_NEEDS_CSUM;
            h[6..8].copy_from_slice(&self.csum_start.to_le_bytes());
            h[8..10].copy_from_slice(&self.csum_offset.to_le_bytes());
        } else if self.csum_valid {
            h[0] |= F_DATA_VALID;
        }
        if self.is_gso() {
            h[1] = match self.gso {
                GsoKind::None => 0,
                GsoKind::Tcp4 => GSO_TCPV4,
                GsoKind::Tcp6 => GSO_TCPV6,
                GsoKind::UdpL4 => GSO_UDP_L4,
            };
            if self.ecn {
                h[1] |= GSO_ECN;
            }
            h[2..4].copy_from_slice(&self.hdr_len.to_le_bytes());
            h[4..6].copy_from_slice(&self.gso_size.to_le_bytes());
        }
        h
    }
}
