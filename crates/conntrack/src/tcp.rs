//! TCP: sequence tracking after "Real Stateful TCP Packet Filtering in IP Filter" (G. van Rooij, 2001), with the states and
//! tolerances of the packet filter of OpenBSD, which Open vSwitch has too.
//!
//! Each side has the end of the data that it sent (`low`), the end of the data that the other side permits (`high`), its
//! largest window and its scale. A segment fits if its data lie between them and its acknowledgement is not far from the
//! other side's data. Segments in doubtful states (half open, just closed, picked up in the middle) get more room.

use dpif::{TcpState, TimeoutAttr};

/// Flags of the TCP header.
pub mod flag {
    /// No more data.
    pub const FIN: u8 = 1;
    /// Synchronize.
    pub const SYN: u8 = 2;
    /// Reset.
    pub const RST: u8 = 4;
    /// Push.
    pub const PSH: u8 = 8;
    /// The acknowledgement counts.
    pub const ACK: u8 = 16;
    /// Urgent data.
    pub const URG: u8 = 32;
}

use flag::{ACK, FIN, PSH, RST, SYN, URG};

/// A window scale was sent.
const SCALED: u8 = 0x80;
/// The first segment seen was not a SYN: any scale is possible.
const UNKNOWN: u8 = 0x40;
/// Segments of this side passed unseen: its next one tells where it is.
const UNPLACED: u8 = 0x20;
const SCALE: u8 = 0x0f;
/// Maximum scale (RFC 7323 §2.3).
const SCALE_MAX: u8 = 14;
/// Maximum distance of an acknowledgement from the data: a window without scale, and one segment.
const SKEW_MAX: i64 = 0xffff + 1500;

/// A TCP segment, as far as tracking needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// [`flag`]s.
    pub flags: u8,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Window, not scaled.
    pub window: u16,
    /// Bytes of data.
    pub bytes: u32,
    /// Window scale option of a SYN.
    pub scale: Option<u8>,
}

impl Segment {
    /// Whether the flags contradict each other.
    fn has_invalid_flags(&self) -> bool {
        let f = self.flags;
        if f & SYN != 0 {
            // A SYN with data that end, or that resets.
            return f & (RST | FIN) != 0 || f & ACK == 0 && f & (PSH | URG) != 0;
        }
        f & (ACK | RST) == 0 || f & ACK == 0 && f & (FIN | PSH | URG) != 0
    }

    /// Whether it may begin a connection: a SYN, or any segment of an established one.
    pub(crate) fn may_begin(&self) -> bool {
        !self.has_invalid_flags() && self.flags & (SYN | ACK) != SYN | ACK
    }

    /// Sequence numbers that SYN, data and FIN take.
    fn length(&self) -> u32 {
        self.bytes + u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0)
    }

    fn scale_byte(&self) -> u8 {
        self.scale.map_or(0, |scale| scale.min(SCALE_MAX) | SCALED)
    }
}

/// `a` at or after `b`, modulo 2^32.
fn at_or_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 >= 0
}

fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

/// One side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Side {
    low: u32,
    high: u32,
    window: u16,
    scale: u8,
    state: TcpState,
}

/// The states of both sides in the last packed word.
const BOTH_STATES: u64 = 0xff << 32 | 0xff;
/// The states and scales of both sides, without windows, in the last packed word.
pub(crate) const BOTH_SIDES: u64 = 0xffff << 32 | 0xffff;
const BOTH_ESTABLISHED: u64 = (TcpState::Established as u64) << 32 | TcpState::Established as u64;

fn number(state: TcpState) -> u8 {
    state as u8
}

/// Both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tcp {
    sides: [Side; 2],
}

/// Result of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Update {
    /// It belongs to the connection; a new timeout counts from now.
    Valid(Option<TimeoutAttr>),
    /// The first packet again.
    StillNew(TimeoutAttr),
    /// It does not fit.
    Invalid,
    /// It does not fit its sequence numbers.
    OutOfWindow,
    /// It begins another connection of the same key.
    Anew,
}

fn scaled_down(window: u16, scale: u8) -> u16 {
    (u32::from(window)).div_ceil(1 << (scale & SCALE)) as u16
}

impl Tcp {
    /// After the first segment.
    pub(crate) fn new(s: &Segment) -> Tcp {
        let syn = s.flags & SYN != 0;
        let scale = if syn { s.scale_byte() } else { UNKNOWN };
        let first = Side {
            low: s.seq,
            high: s.seq.wrapping_add(s.length()).wrapping_add(1),
            window: scaled_down(s.window.max(1), if syn { scale } else { 0 }),
            scale,
            state: TcpState::SynSent,
        };
        let scale = if syn { 0 } else { UNKNOWN };
        Tcp { sides: [first, Side { low: 0, high: 1, window: 1, scale, state: TcpState::Closed }] }
    }

    /// After packets that passed unseen: sides that have sent are where their next segments are, with any window.
    pub(crate) fn unplaced(self) -> Tcp {
        let mark = |side: Side| match side.state < TcpState::SynSent {
            true => side,
            false => Side { scale: side.scale | UNPLACED, window: u16::MAX, ..side },
        };
        Tcp { sides: self.sides.map(mark) }
    }

    /// Takes a segment of a direction. `checked`: sequence numbers must fit.
    #[inline]
    pub(crate) fn update(&mut self, s: &Segment, is_reply: bool, checked: bool) -> Update {
        if s.has_invalid_flags() {
            return Update::Invalid;
        }
        let [first, second] = self.sides;
        let (mut src, mut dst) = if is_reply { (second, first) } else { (first, second) };
        let is_placed = (first.scale | second.scale) & UNPLACED == 0;
        let result = step(s, &mut src, &mut dst, checked);
        // A segment that does not fit tells no place.
        if is_placed || result != Update::OutOfWindow {
            self.sides = if is_reply { [dst, src] } else { [src, dst] };
        }
        result
    }

    /// The words of a record after a segment of data or an acknowledgement that fits an established connection; `None`
    /// for all other segments.
    #[inline(always)]
    pub(crate) fn usual(words: [u64; 3], s: &Segment, is_reply: bool, checked: bool) -> Option<[u64; 3]> {
        if s.flags & (SYN | FIN | RST | ACK) != ACK || words[2] & BOTH_STATES != BOTH_ESTABLISHED {
            return None;
        }
        let mut tcp = Tcp::unpack(words);
        let update = tcp.update(s, is_reply, checked);
        (update == Update::Valid(Some(TimeoutAttr::TcpEstablished))).then(|| tcp.pack())
    }

    /// As three words of a record.
    #[inline]
    pub(crate) fn pack(self) -> [u64; 3] {
        let [a, b] = self.sides;
        let range = |s: Side| u64::from(s.low) << 32 | u64::from(s.high);
        let rest = |s: Side| u64::from(s.window) << 16 | u64::from(s.scale) << 8 | u64::from(number(s.state));
        [range(a), range(b), rest(a) << 32 | rest(b)]
    }

    /// The reverse of [`Tcp::pack`].
    #[inline]
    pub(crate) fn unpack(words: [u64; 3]) -> Tcp {
        let side = |range: u64, rest: u64| Side {
            low: (range >> 32) as u32,
            high: range as u32,
            window: (rest >> 16) as u16,
            scale: (rest >> 8) as u8,
            state: TcpState::ALL.get(rest as usize & 0xff).copied().unwrap_or(TcpState::Closed),
        };
        Tcp { sides: [side(words[0], words[2] >> 32), side(words[1], words[2] & 0xffff_ffff)] }
    }

    /// State, window scale and flags (`CT_DPIF_TCPF_*`) of both sides, for lists of connections.
    pub(crate) fn sides(&self) -> [dpif::TcpSide; 2] {
        self.sides.map(|s| dpif::TcpSide {
            state: s.state,
            window_scale: s.scale & SCALE,
            flags: u8::from(s.scale & SCALED != 0) | u8::from(s.scale & UNKNOWN != 0) << 3,
        })
    }
}

/// A segment from `src` to `dst`.
#[inline]
fn step(s: &Segment, src: &mut Side, dst: &mut Side, checked: bool) -> Update {
    let is_past = |side: &Side, state: TcpState| side.state >= state;
    let syn = s.flags & SYN != 0;
    if s.flags & (SYN | ACK) == SYN {
        if is_past(src, TcpState::FinWait2) && is_past(dst, TcpState::FinWait2) {
            return Update::Anew;
        }
        if src.state <= TcpState::SynSent {
            src.state = TcpState::SynSent;
            return Update::StillNew(TimeoutAttr::TcpSynSent);
        }
    }
    let (mut src_scale, mut dst_scale) = match (src.scale, dst.scale) {
        (a, b) if !syn && a & b & SCALED != 0 => (a & SCALE, b & SCALE),
        (a, b) if !syn && a & b & UNKNOWN != 0 => (SCALE_MAX, SCALE_MAX),
        _ => (0, 0),
    };
    let (mut window, mut check_ack) = (s.window, true);
    let mut seq = s.seq;
    let mut end = seq.wrapping_add(s.length());
    if src.state < TcpState::SynSent {
        if syn && dst.scale & SCALED != 0 {
            (src_scale, dst_scale) = agree_on_scale(s, src, dst, &mut window);
        }
        src.low = seq;
        src.state = TcpState::SynSent;
        let limit = end.wrapping_add((u32::from(dst.window) << dst_scale).max(1));
        if src.high == 1 || at_or_after(limit, src.high) {
            src.high = limit;
            // Begun or picked up just now: the other side's data are not known exactly.
            check_ack = false;
        }
        src.window = src.window.max(window);
    }
    // A reset must fit what is known.
    if (src.scale | dst.scale) & UNPLACED != 0 && s.flags & (SYN | RST) == 0 {
        place(s, src, dst, (end, src_scale, dst_scale));
    }
    let mut ack = s.ack;
    // Without an acknowledgement, and for stacks that reset with number 0.
    if s.flags & ACK == 0 || ack == 0 && s.flags & RST != 0 {
        ack = dst.low;
    }
    if seq == end {
        // Without data any sequence number does.
        seq = src.low;
        end = seq;
    }
    let skew = if check_ack { i64::from(dst.low.wrapping_sub(ack) as i32) } else { 0 };
    let resets = s.flags & RST != 0;
    let reset_fits = s.seq.wrapping_sub(src.low).wrapping_add(1) <= 2;
    let fits = at_or_after(src.high, end)
        && at_or_after(seq, src.low.wrapping_sub(u32::from(dst.window) << dst_scale))
        && (-SKEW_MAX..=SKEW_MAX << src_scale).contains(&skew)
        && (!resets || reset_fits);
    if fits || !checked {
        slide(src, dst, window, end, ack, src_scale);
        if s.flags & ACK != 0 {
            match dst.state {
                TcpState::SynSent => dst.state = TcpState::Established,
                TcpState::Closing => dst.state = TcpState::FinWait2,
                _ => {}
            }
        }
        close(s, src, dst);
        return Update::Valid(Some(timeout(src.state, dst.state)));
    }
    let doubtful =
        dst.state < TcpState::SynSent || is_past(dst, TcpState::FinWait2) || is_past(src, TcpState::FinWait2);
    let near = at_or_after(src.high.wrapping_add(SKEW_MAX as u32), end)
        && at_or_after(seq, src.low.wrapping_sub(SKEW_MAX as u32));
    if !doubtful || !near {
        return Update::OutOfWindow;
    }
    slide(src, dst, window, end, ack, src_scale);
    close(s, src, dst);
    // The deadline stays: a flood of doubtful segments keeps nothing alive.
    Update::Valid(None)
}

/// Takes the place of an [`UNPLACED`] side from a segment that ends at `end`: the sender's own, and the other's by the
/// acknowledgement, until that sends too.
#[cold]
fn place(s: &Segment, src: &mut Side, dst: &mut Side, (end, src_scale, dst_scale): (u32, u8, u8)) {
    if src.scale & UNPLACED != 0 {
        src.scale &= !UNPLACED;
        src.low = s.seq;
        src.high = end.wrapping_add((u32::from(dst.window) << dst_scale).max(1));
        // The other's place may be that of data sent once more, before others that arrived.
        if s.flags & ACK != 0 && after(s.ack, dst.low) {
            dst.low = s.ack;
        }
    }
    if dst.scale & UNPLACED != 0 && s.flags & ACK != 0 {
        dst.low = s.ack;
        dst.high = s.ack.wrapping_add((u32::from(s.window) << src_scale).max(1));
    }
}

/// The scales of both sides after the second SYN of a connection whose first one had a scale.
fn agree_on_scale(s: &Segment, src: &mut Side, dst: &mut Side, window: &mut u16) -> (u8, u8) {
    src.scale = s.scale_byte();
    if src.scale & SCALED != 0 {
        *window = scaled_down(*window, src.scale);
        return (src.scale & SCALE, dst.scale & SCALE);
    }
    // Neither side scales.
    dst.window = dst.window.wrapping_shl(u32::from(dst.scale & SCALE));
    dst.scale = 0;
    (0, 0)
}

/// Ends one side by a FIN, or both by a reset.
fn close(s: &Segment, src: &mut Side, dst: &mut Side) {
    if s.flags & FIN != 0 && src.state < TcpState::Closing {
        src.state = TcpState::Closing;
    }
    if s.flags & RST != 0 {
        (src.state, dst.state) = (TcpState::TimeWait, TcpState::TimeWait);
    }
}

/// Moves the windows of both sides.
fn slide(src: &mut Side, dst: &mut Side, window: u16, end: u32, ack: u32, src_scale: u8) {
    src.window = src.window.max(window);
    if after(end, src.low) {
        src.low = end;
    }
    let window = u32::from(window) << src_scale;
    if at_or_after(ack.wrapping_add(window), dst.high) {
        dst.high = ack.wrapping_add(window.max(1));
    }
}

fn timeout(src: TcpState, dst: TcpState) -> TimeoutAttr {
    let (least, most) = (src.min(dst), src.max(dst));
    if least >= TcpState::FinWait2 {
        TimeoutAttr::TcpClose
    } else if least >= TcpState::Closing {
        TimeoutAttr::TcpTimeWait
    } else if least < TcpState::Established {
        TimeoutAttr::TcpSynRecv
    } else if most >= TcpState::Closing {
        TimeoutAttr::TcpFinWait
    } else {
        TimeoutAttr::TcpEstablished
    }
}

#[cfg(test)]
pub(crate) mod tests;
