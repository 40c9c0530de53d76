//! Several receive queues of one device: packet sockets that share its frames (`PACKET_FANOUT`, packet(7)).
//!
//! The kernel selects the socket by a hash of the flow, equal for both directions of a connection; frames
//! without layer 3 addresses all go to one. Fragments are not reassembled for this (`FANOUT_FLAG_DEFRAG`), so
//! those of one datagram may be separated from the rest of its flow, but not from each other.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU16, Ordering};

use libc::c_int;

use crate::raw;

// `linux/if_packet.h`.
const PACKET_FANOUT: c_int = 18;
const MODE_HASH: u32 = 0;
const FLAG_UNIQUEID: u32 = 0x2000;
const FLAG_IGNORE_OUTGOING: u32 = 0x4000;
/// Group numbers tried on kernels before 4.12, which do not allocate one.
const TRIES: u32 = 64;

/// Joins bound `sockets` into a fanout group. Returns whether the kernel suppresses outgoing frames
/// (`ignore_outgoing` requests it; kernels before 5.16 cannot).
pub(super) fn join(sockets: &[BorrowedFd<'_>], ignore_outgoing: bool) -> io::Result<bool> {
    let Some((first, others)) = sockets.split_first() else { return Ok(ignore_outgoing) };
    let wanted = if ignore_outgoing { FLAG_IGNORE_OUTGOING } else { 0 };
    let (id, flags) = match create_group(first, wanted) {
        Err(e) if wanted != 0 && e.raw_os_error() == Some(libc::EINVAL) => (create_group(first, 0)?, 0),
        other => (other?, wanted),
    };
    others.iter().try_for_each(|s| set(s, id, MODE_HASH | flags))?;
    Ok(flags & FLAG_IGNORE_OUTGOING != 0)
}

/// Creates a new group; returns its number.
fn create_group(socket: &BorrowedFd<'_>, flags: u32) -> io::Result<u16> {
    if set(socket, 0, MODE_HASH | flags | FLAG_UNIQUEID).is_ok() {
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
        match set(socket, id, MODE_HASH | flags) {
            Ok(()) => return Ok(id),
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn set(socket: &BorrowedFd<'_>, id: u16, mode_and_flags: u32) -> io::Result<()> {
    raw::set_option(socket, libc::SOL_PACKET, PACKET_FANOUT, u32::from(id) | mode_and_flags << 16)
}

/// Blocks all further input to a socket.
pub(super) fn shut(socket: &BorrowedFd<'_>) -> io::Result<()> {
    let mut nothing = [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: nothing.as_mut_ptr() };
    // The kernel copies the program within the call.
    raw::set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

/// Ends [`shut`].
pub(super) fn open(socket: &BorrowedFd<'_>) -> io::Result<()> {
    raw::set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0 as c_int)
}
