//! Safe wrappers of system calls used by several modules.

use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_ulong, c_void};

/// Room for the part of a frame that does not fit a small buffer.
pub(crate) const OVERFLOW_BYTES: usize = 65536;

thread_local! {
    /// One overflow slot for each frame of the longest burst so far, shared by all queues polled by the
    /// thread. The kernel allocates its memory page by page as large frames arrive.
    static OVERFLOW: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` with that many overflow slots of the thread.
pub(crate) fn with_overflow<R>(slots: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
    OVERFLOW.with_borrow_mut(|overflow| {
        let bytes = slots * OVERFLOW_BYTES;
        if overflow.len() < bytes {
            // Replaced, because untouched memory costs nothing; it has no contents to keep.
            *overflow = vec![0; bytes];
        }
        f(&mut overflow[..bytes])
    })
}

/// Space on the stack for system call arguments of each frame of a burst. Writes only the used part: a small
/// burst does not pay for the largest.
pub(crate) struct Room<T, const N: usize>([MaybeUninit<T>; N]);

impl<T: Copy, const N: usize> Room<T, N> {
    #[inline(always)]
    pub(crate) fn new() -> Room<T, N> {
        Room([const { MaybeUninit::uninit() }; N])
    }

    /// The first `count` places, all with this value, or all places if fewer.
    #[inline(always)]
    pub(crate) fn fill(&mut self, count: usize, value: T) -> &mut [T] {
        let used = &mut self.0[..count.min(N)];
        for place in used.iter_mut() {
            place.write(value);
        }
        // SAFETY: all of them were just written.
        unsafe { used.assume_init_mut() }
    }
}

/// The operation of a failed system call.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
struct Context {
    what: String,
    source: io::Error,
}

/// Adds the operation to an error. A missing device becomes [`io::ErrorKind::NotFound`].
pub(crate) fn context(what: impl Into<String>) -> impl FnOnce(io::Error) -> io::Error {
    |source| {
        let kind = match source.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => io::ErrorKind::NotFound,
            _ => source.kind(),
        };
        io::Error::new(kind, Context { what: what.into(), source })
    }
}

/// -1 means an error in `errno`.
pub(crate) fn check(ret: c_int) -> io::Result<c_int> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

/// -1 means an error in `errno`.
pub(crate) fn check_len(ret: isize) -> io::Result<usize> {
    usize::try_from(ret).map_err(|_| io::Error::last_os_error())
}

/// Takes ownership of a descriptor just returned by a system call.
///
/// # Safety
/// `fd` must be open and owned by nobody else.
pub(crate) unsafe fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller's promise.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// socket(2), not blocking, closed on exec.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; a descriptor that it returns is new.
    unsafe {
        let fd = check(libc::socket(domain, kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, protocol))?;
        Ok(own(fd))
    }
}

/// setsockopt(2) with the bytes of a value.
pub(crate) fn set_option<T: Copy>(fd: &impl AsFd, level: c_int, name: c_int, value: T) -> io::Result<()> {
    // SAFETY: the pointer and length are those of `value`, which lives through the call.
    let ret = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast::<c_void>(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(ret).map(drop)
}

/// getsockopt(2) into the bytes of `value`.
///
/// # Safety
/// Every bit pattern must be a valid `T`.
pub(crate) unsafe fn get_option<T: Copy>(
    fd: &impl AsFd,
    level: c_int,
    name: c_int,
    value: &mut T,
) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and length are those of `value`; any bytes written make a valid T (the caller's promise).
    let ret = unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, (value as *mut T).cast::<c_void>(), &mut len)
    };
    check(ret).map(drop)
}

/// bind(2) to an address structure.
pub(crate) fn bind<A: Copy>(fd: &impl AsFd, address: &A) -> io::Result<()> {
    // SAFETY: the pointer and length are those of `address`; the kernel reads its family before the rest.
    let ret = unsafe {
        libc::bind(
            fd.as_fd().as_raw_fd(),
            (address as *const A).cast::<libc::sockaddr>(),
            size_of::<A>() as libc::socklen_t,
        )
    };
    check(ret).map(drop)
}

/// The index of the device that a packet socket is bound to.
pub(crate) fn bound_ifindex(fd: &impl AsFd) -> io::Result<u32> {
    // SAFETY: plain data for which all zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the pointer and length are those of `address`; the kernel writes no more than that.
    check(unsafe {
        libc::getsockname(fd.as_fd().as_raw_fd(), (&raw mut address).cast::<libc::sockaddr>(), &mut len)
    })?;
    if i32::from(address.sll_family) != libc::AF_PACKET {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(address.sll_ifindex as u32)
}

/// An `ifreq` that names a device; rejects invalid names.
pub(crate) fn ifreq(name: &str) -> io::Result<libc::ifreq> {
    let bad = name.is_empty()
        || name.len() >= libc::IFNAMSIZ
        || name == "."
        || name == ".."
        || name.bytes().any(|b| b == 0 || b == b'/' || b == b':' || b.is_ascii_whitespace());
    if bad {
        let what = format!("\"{name}\" is no device name: 1 to 15 bytes without space, \"/\" and \":\" are");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    // SAFETY: ifreq is plain data for which all zeros are valid.
    let mut req: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in req.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(req)
}

/// A device ioctl (netdevice(7), or a tun one on a tun descriptor) on `fd`.
///
/// # Safety
/// `request` must take an `ifreq`, and pointers within `req` must be valid for what `request` does with them.
pub(crate) unsafe fn ioctl_ifreq(fd: &impl AsFd, request: c_ulong, req: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: `req` lives through the call; the rest is the caller's promise.
    check(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request as _, req as *mut libc::ifreq) }).map(drop)
}

/// The index of a device in the calling thread's network namespace.
pub(crate) fn ifindex(name: &str) -> io::Result<u32> {
    let mut req = ifreq(name)?;
    let any = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: SIOCGIFINDEX takes an ifreq and fills ifru_ifindex.
    let index = unsafe {
        ioctl_ifreq(&any, libc::SIOCGIFINDEX as c_ulong, &mut req)
            .map_err(context(format!("device {name}")))?;
        req.ifr_ifru.ifru_ifindex
    };
    Ok(index as u32)
}

/// The MTU of a device in the network namespace of a socket, in bytes.
pub(crate) fn mtu(socket: &impl AsFd, name: &str) -> io::Result<usize> {
    let mut req = ifreq(name)?;
    // SAFETY: SIOCGIFMTU takes an ifreq and fills ifru_mtu.
    let mtu = unsafe {
        ioctl_ifreq(socket, libc::SIOCGIFMTU as c_ulong, &mut req)?;
        req.ifr_ifru.ifru_mtu
    };
    Ok(mtu as usize)
}

/// Waits until each processor has left the code of the kernel that it was in, interrupts included: a grace period
/// (membarrier(2), `MEMBARRIER_CMD_GLOBAL`).
pub(crate) fn wait_for_processors() -> io::Result<()> {
    // SAFETY: no pointers.
    let ret = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    check(ret as c_int).map(drop)
}
