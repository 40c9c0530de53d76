//! Safe wrappers of system calls.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libc::{c_int, c_void};

/// Maximum datagrams received per call.
pub(crate) const BATCH_MAX: usize = 1024;

/// -1 means an error in `errno`.
fn check(ret: c_int) -> io::Result<c_int> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

/// -1 means an error in `errno`.
fn check_len(ret: isize) -> io::Result<usize> {
    usize::try_from(ret).map_err(|_| io::Error::last_os_error())
}

/// A netlink socket of that protocol (`NETLINK_*`) in the thread's network namespace, bound to a port id chosen by
/// the kernel, with that id. Sending blocks, receiving does not.
pub(crate) fn open_netlink(protocol: c_int) -> io::Result<(OwnedFd, u32)> {
    // SAFETY: no pointers; a descriptor that it returns is new and nobody else's.
    let fd = unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        OwnedFd::from_raw_fd(check(libc::socket(libc::AF_NETLINK, kind, protocol))?)
    };
    let mut address = no_address();
    address.nl_family = libc::AF_NETLINK as u16;
    let bytes = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: the pointer and length are those of `address`.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) })?;
    let mut told_bytes = bytes;
    // SAFETY: the pointer and length are those of `address`, of which any bytes are valid.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &mut told_bytes) })?;
    Ok((fd, address.nl_pid))
}

fn no_address() -> libc::sockaddr_nl {
    // SAFETY: sockaddr_nl is plain data for which all zeros are valid.
    unsafe { std::mem::zeroed() }
}

/// setsockopt(2) of a number.
pub(crate) fn set_option(fd: &impl AsFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let bytes = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the pointer and length are those of `value`, which lives through the call.
    let ret = unsafe {
        libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, (&raw const value).cast::<c_void>(), bytes)
    };
    check(ret).map(drop)
}

/// getsockopt(2) of a number.
pub(crate) fn get_option(fd: &impl AsFd, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut bytes = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the pointer and length are those of `value`; any bytes make a number.
    let ret = unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, (&raw mut value).cast::<c_void>(), &mut bytes)
    };
    check(ret).map(|_| value)
}

/// Sets the receive buffer size, up to the permitted maximum; returns the actual size, by the kernel's accounting.
pub(crate) fn set_receive_buffer(fd: &impl AsFd, bytes: usize) -> io::Result<usize> {
    // The kernel doubles the given value.
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX) / 2;
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
        .or_else(|_| set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))?;
    Ok(usize::try_from(get_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)?).unwrap_or(0))
}

static SENT: AtomicU64 = AtomicU64::new(0);
static RECEIVED: AtomicU64 = AtomicU64::new(0);

/// Datagrams received from the kernel by this process, by way of this crate.
pub fn messages_received() -> u64 {
    RECEIVED.load(Ordering::Relaxed)
}

/// Datagrams sent to the kernel by this process, by way of this crate.
pub fn messages_sent() -> u64 {
    SENT.load(Ordering::Relaxed)
}

/// Sends one datagram to the kernel, which has processed it on return.
pub(crate) fn send(fd: &impl AsFd, bytes: &[u8]) -> io::Result<()> {
    SENT.fetch_add(1, Ordering::Relaxed);
    loop {
        // SAFETY: the pointer and length are those of `bytes`.
        let sent = unsafe { libc::send(fd.as_fd().as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        match check_len(sent) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(drop),
        }
    }
}

/// Result of a receive call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Received {
    /// Bytes of the buffer that were written.
    pub(crate) bytes: usize,
    /// The datagram was longer than the buffer; the rest is gone.
    pub(crate) cut: bool,
    /// It came from the kernel.
    pub(crate) by_kernel: bool,
}

impl Received {
    /// Before any reception.
    pub(crate) const NOTHING: Received = Received { bytes: 0, cut: false, by_kernel: false };

    fn of(header: &libc::msghdr, from: &libc::sockaddr_nl, bytes: usize) -> Received {
        Received { bytes, cut: header.msg_flags & libc::MSG_TRUNC != 0, by_kernel: from.nl_pid == 0 }
    }
}

/// Receives one datagram without blocking.
pub(crate) fn receive(fd: &impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut got = [Received::NOTHING];
    // One slot of all of the buffer.
    let slot_bytes = buffer.len();
    receive_batch(fd, buffer, slot_bytes, &mut got).map(|_| got[0])
}

/// Receives waiting datagrams without blocking, each into a slot of this many bytes of the buffer and an entry of
/// `got`; returns their number.
pub(crate) fn receive_batch(
    fd: &impl AsFd,
    buffer: &mut [u8],
    slot_bytes: usize,
    got: &mut [Received],
) -> io::Result<usize> {
    let slots = got.len().min(buffer.len() / slot_bytes.max(1)).min(BATCH_MAX);
    let mut froms = vec![no_address(); slots];
    let mut parts: Vec<libc::iovec> = buffer
        .chunks_exact_mut(slot_bytes.max(1))
        .take(slots)
        .map(|slot| libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() })
        .collect();
    let mut headers: Vec<libc::mmsghdr> = froms
        .iter_mut()
        .zip(&mut parts)
        .map(|(from, part)| {
            // SAFETY: mmsghdr is plain data for which all zeros are valid.
            let mut header: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
            header.msg_hdr.msg_name = (from as *mut libc::sockaddr_nl).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header
        })
        .collect();
    loop {
        // SAFETY: each header points to an address and to a slot of its own, which all live until after the loop.
        let count = unsafe {
            libc::recvmmsg(
                fd.as_fd().as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        match check(count) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
            Ok(count) => {
                let count = count as usize;
                RECEIVED.fetch_add(count as u64, Ordering::Relaxed);
                for ((got, header), from) in got.iter_mut().zip(&headers).zip(&froms).take(count) {
                    *got = Received::of(&header.msg_hdr, from, (header.msg_len as usize).min(slot_bytes));
                }
                return Ok(count);
            }
        }
    }
}

/// Waits for readability; returns whether it is readable.
pub(crate) fn wait(fd: &impl AsFd, limit: Duration) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let limit_ms = c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: the pointer is to one structure, as the count says.
    match check(unsafe { libc::poll(&mut poll, 1, limit_ms) }) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(true),
        other => other.map(|count| count > 0),
    }
}

/// Moves the calling thread into a network namespace.
pub(crate) fn enter_namespace(namespace: &impl AsFd) -> io::Result<()> {
    // SAFETY: no pointers are involved.
    check(unsafe { libc::setns(namespace.as_fd().as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}
