//! Several receive queues of one device: packet sockets that share its frames (`PACKET_FANOUT`, packet(7)).
//!
//! The kernel selects the socket by a hash of the flow, equal for both directions of a connection; frames
//! without layer 3 addresses all go to one. Fragments are not reassembled for this (`FANOUT_FLAG_DEFRAG`), so
//! those of one datagram may be separated from the rest of its flow, but not from each other.
//!
//! A [`Pair`] is a group of up to two sockets, of which a program selects one for all frames. Exchanging the program moves
//! the frames from one socket to the other: each frame reaches exactly one of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use libc::c_int;

use crate::lending::LentGroup;
use crate::raw;

// `linux/if_packet.h`.
const PACKET_FANOUT: c_int = 18;
const PACKET_FANOUT_DATA: c_int = 22;
const MODE_HASH: u32 = 0;
const MODE_CBPF: u32 = 6;
const FLAG_UNIQUEID: u32 = 0x2000;
const FLAG_IGNORE_OUTGOING: u32 = 0x4000;
/// Group numbers tried on kernels before 4.12, which do not allocate one.
const TRIES: u32 = 64;

/// Joins bound `sockets` into a fanout group. Returns whether the kernel suppresses outgoing frames
/// (`ignore_outgoing` requests it; kernels before 5.16 cannot).
pub(super) fn join(sockets: &[BorrowedFd<'_>], ignore_outgoing: bool) -> io::Result<bool> {
    let Some((first, others)) = sockets.split_first() else { return Ok(ignore_outgoing) };
    let (id, mode) = create_group(first, MODE_HASH, ignore_outgoing)?;
    others.iter().try_for_each(|s| set(s, id, mode))?;
    Ok(mode & FLAG_IGNORE_OUTGOING != 0)
}

/// Creates a new group; returns its number, and its mode with the flags that the kernel knows.
fn create_group(socket: &BorrowedFd<'_>, mode: u32, ignore_outgoing: bool) -> io::Result<(u16, u32)> {
    let wanted = if ignore_outgoing { mode | FLAG_IGNORE_OUTGOING } else { mode };
    match create_group_of(socket, wanted) {
        Err(e) if wanted != mode && e.raw_os_error() == Some(libc::EINVAL) => {
            Ok((create_group_of(socket, mode)?, mode))
        }
        other => Ok((other?, wanted)),
    }
}

fn create_group_of(socket: &BorrowedFd<'_>, mode: u32) -> io::Result<u16> {
    if set(socket, 0, mode | FLAG_UNIQUEID).is_ok() {
        let mut value = 0u32;
        // SAFETY: the option is an integer.
        unsafe { raw::get_option(socket, libc::SOL_PACKET, PACKET_FANOUT, &mut value)? };
        return Ok(value as u16);
    }
    // Self-chosen numbers: a group of another process on the same device could be joined; on other devices
    // the kernel rejects it.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = (std::process::id() as u16).wrapping_mul(0x9e37);
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for _ in 0..TRIES {
        let id = base.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        match set(socket, id, mode) {
            Ok(()) => return Ok(id),
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn set(socket: &BorrowedFd<'_>, id: u16, mode_and_flags: u32) -> io::Result<()> {
    let value = u32::from(id) | mode_and_flags << 16;
    if mode_and_flags & 0xff == MODE_CBPF {
        // `fanout_args`: without a number of members the kernel reserves room for 256.
        let sized = raw::set_option(socket, libc::SOL_PACKET, PACKET_FANOUT, [value, PAIR]);
        // Linux before 5.10 does not know it.
        if !sized.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL)) {
            return sized;
        }
    }
    raw::set_option(socket, libc::SOL_PACKET, PACKET_FANOUT, value)
}

/// Members of a [`Pair`].
const PAIR: u32 = 2;
/// Further tries to set a program, and the pause before each: longer than any frame is on its way together.
const AGAIN: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// A group of one socket, and temporarily a second one. The kernel keeps their order (since Linux 5.1 also while the
/// device goes down and up).
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    id: u16,
    mode: u32,
}

/// A socket of a [`Pair`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Member {
    First,
    Second,
}

impl Pair {
    /// A group of the bound `first` socket, which receives all frames. Kernels before 6.13 refuse while the device is
    /// down.
    pub(super) fn of(first: &impl AsFd, ignore_outgoing: bool) -> io::Result<Pair> {
        let (id, mode) = create_group(&first.as_fd(), MODE_CBPF, ignore_outgoing)?;
        Ok(Pair { id, mode })
    }

    /// A group of another process.
    pub(super) fn lent(LentGroup { id, mode }: LentGroup) -> Pair {
        Pair { id, mode }
    }

    /// The group, for another process.
    pub(super) fn lend(self) -> LentGroup {
        let Pair { id, mode } = self;
        LentGroup { id, mode }
    }

    /// Whether the kernel suppresses outgoing frames.
    pub(super) fn ignores_outgoing(self) -> bool {
        self.mode & FLAG_IGNORE_OUTGOING != 0
    }

    /// Adds a second bound socket, which receives nothing until [`Pair::steer`].
    pub(super) fn add(self, second: &impl AsFd) -> io::Result<()> {
        set(&second.as_fd(), self.id, self.mode)
    }

    /// Directs all frames to a member; `first` is any socket of the group. After the return no frame is on its way to
    /// another one. Blocks for 10 to 80 ms.
    pub(super) fn steer(self, first: &impl AsFd, to: Member) -> io::Result<()> {
        program(first, to)?;
        // The kernel waits for frames that still use the program that is replaced. The first one replaced none.
        for _ in 0..AGAIN {
            if program(first, to).is_ok() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// Sets the program of a group: the member for every frame.
fn program(socket: &impl AsFd, to: Member) -> io::Result<()> {
    let mut member =
        [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: to as u32 }];
    let program = libc::sock_fprog { len: 1, filter: member.as_mut_ptr() };
    // The kernel copies the program within the call.
    raw::set_option(socket, libc::SOL_PACKET, PACKET_FANOUT_DATA, program)
}

/// Blocks all further input to a socket.
pub(super) fn shut(socket: &impl AsFd) -> io::Result<()> {
    let mut nothing = [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: nothing.as_mut_ptr() };
    // The kernel copies the program within the call.
    raw::set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

/// Ends [`shut`].
pub(super) fn open(socket: &impl AsFd) -> io::Result<()> {
    raw::set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0 as c_int)
}
