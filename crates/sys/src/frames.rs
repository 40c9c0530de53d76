//! Frames to and from devices by packet(7) sockets, many per system call, with the kernel's timestamps
//! (`SO_TIMESTAMPNS`: the arrival at the device, however late it is read). For measuring tools; the switch's
//! own ports are in `netdev`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::poll::PollSet;

/// Maximum frames of one system call.
pub const BURST_MAX: usize = 64;
/// Captured bytes of each received frame; longer ones are truncated.
pub const SNAP_BYTES: usize = 256;
/// Space for one timestamp beside a frame: its header and its value, aligned.
const CONTROL_WORDS: usize = 8;

/// One instruction of a socket filter (classic BPF, as in bpf(4) of the BSDs): operation, jumps, operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterOp {
    /// Operation, such as "load a word".
    pub code: u16,
    /// Number of instructions to skip if a comparison holds.
    pub jump_true: u8,
    /// And when it does not hold.
    pub jump_false: u8,
    /// Operand.
    pub operand: u32,
}

/// Nanoseconds since 1970-01-01 UTC by CLOCK_REALTIME, the clock of the kernel's timestamps.
pub fn wall_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is alive through the call. The clock exists on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    stamp_ns(&now)
}

fn stamp_ns(time: &libc::timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// The index of a device in the calling thread's network namespace.
///
/// # Errors
/// If it does not exist.
pub fn device_index(name: &str) -> io::Result<u32> {
    rustix::net::netdevice::name_to_index(
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?,
        name,
    )
    .map_err(io::Error::from)
}

fn check(ret: libc::c_int) -> io::Result<libc::c_int> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

fn set_option<T: Copy>(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: T) -> io::Result<()> {
    // SAFETY: the pointer and length are those of `value`, which lives through the call.
    let ret = unsafe {
        let length = size_of::<T>() as libc::socklen_t;
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), length)
    };
    check(ret).map(drop)
}

/// A raw packet socket of the calling thread's network namespace. `protocol` 0 receives nothing.
fn packet_socket(protocol: u16) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers; a descriptor that it returns is new.
    unsafe {
        let fd = check(libc::socket(libc::AF_PACKET, kind, i32::from(protocol.to_be())))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn address(device: u32, protocol: u16) -> libc::sockaddr_ll {
    // SAFETY: sockaddr_ll is plain data for which all zeros are valid.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_protocol = protocol.to_be();
    to.sll_ifindex = device as i32;
    to
}

/// Sends frames out of devices of one network namespace.
#[derive(Debug)]
pub struct FrameSender {
    fd: OwnedFd,
}

impl FrameSender {
    /// One for the calling thread's network namespace.
    ///
    /// # Errors
    /// Without CAP_NET_RAW.
    pub fn new() -> io::Result<FrameSender> {
        packet_socket(0).map(|fd| FrameSender { fd })
    }

    /// Sends frames, each to the device with its index, at most 64; returns the number of sent ones, which
    /// are the first.
    ///
    /// # Errors
    /// If the first cannot be sent (`ENETDOWN`: the device is down; `ENXIO`: it is gone; `WouldBlock`: no
    /// space).
    pub fn send(&self, frames: &[(u32, &[u8])]) -> io::Result<usize> {
        let count = frames.len().min(BURST_MAX);
        if count == 0 {
            return Ok(0);
        }
        let mut to = [address(0, 0); BURST_MAX];
        // SAFETY: iovec and mmsghdr are plain data for which all zeros are valid.
        let (mut parts, mut messages): ([libc::iovec; BURST_MAX], [libc::mmsghdr; BURST_MAX]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        for (at, (device, frame)) in frames[..count].iter().enumerate() {
            to[at].sll_ifindex = *device as i32;
            parts[at] = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            let head = &mut messages[at].msg_hdr;
            head.msg_name = (&raw mut to[at]).cast();
            head.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            head.msg_iov = &raw mut parts[at];
            head.msg_iovlen = 1;
        }
        // SAFETY: the first `count` messages point to addresses and frames that live through the call; the kernel only
        // reads the frames.
        let sent = unsafe { libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), count as u32, 0) };
        check(sent).map(|sent| sent as usize)
    }
}

/// A frame as it was received.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Its first bytes, at most 256.
    pub bytes: &'a [u8],
    /// Arrival at the device, ns since 1970 (CLOCK_REALTIME); `None` without a timestamp.
    pub stamp_ns: Option<u64>,
}

/// Space for one burst of received frames.
pub struct Burst {
    bytes: Vec<[u8; SNAP_BYTES]>,
    control: Vec<[u64; CONTROL_WORDS]>,
    frames: Vec<(usize, Option<u64>)>,
}

impl Default for Burst {
    fn default() -> Burst {
        Burst {
            bytes: vec![[0; SNAP_BYTES]; BURST_MAX],
            control: vec![[0; CONTROL_WORDS]; BURST_MAX],
            frames: Vec::with_capacity(BURST_MAX),
        }
    }
}

impl Burst {
    /// The frames of the last receive call, in order.
    pub fn frames(&self) -> impl Iterator<Item = Received<'_>> {
        self.frames
            .iter()
            .zip(&self.bytes)
            .map(|((length, stamp_ns), bytes)| Received { bytes: &bytes[..*length], stamp_ns: *stamp_ns })
    }
}

/// Receives frames from one device, with time stamps.
#[derive(Debug)]
pub struct FrameReceiver {
    fd: OwnedFd,
}

impl FrameReceiver {
    /// Receives frames that pass `filter` on the device with this index in the calling thread's network
    /// namespace, except those sent by the device itself. The socket holds about `buffer_bytes` (each small
    /// frame takes 768).
    ///
    /// # Errors
    /// Without CAP_NET_RAW; if the device does not exist; if the kernel rejects the filter.
    pub fn new(device: u32, filter: &[FilterOp], buffer_bytes: u32) -> io::Result<FrameReceiver> {
        let fd = packet_socket(0)?;
        // Beyond the machine's limit if the process may, up to it otherwise.
        let bytes = i32::try_from(buffer_bytes).unwrap_or(i32::MAX);
        if set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes).is_err() {
            set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
        }
        set_option(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1_i32)?;
        set_option(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1_i32)?;
        attach(&fd, filter)?;
        let all = address(device, libc::ETH_P_ALL as u16);
        // SAFETY: the pointer and length are those of `all`, which lives through the call.
        check(unsafe {
            let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            libc::bind(fd.as_raw_fd(), (&raw const all).cast(), length)
        })?;
        Ok(FrameReceiver { fd })
    }

    /// Waits for a frame for at most `limit`; returns whether one is available.
    ///
    /// # Errors
    /// If waiting fails.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        let mut set = PollSet::new();
        set.add(self.fd(), false);
        set.wait(Some(limit)).map(|ready| ready > 0)
    }

    /// Receives available frames without blocking; returns their number, at most 64.
    ///
    /// # Errors
    /// If the device is gone or down (reported once).
    pub fn receive(&self, into: &mut Burst) -> io::Result<usize> {
        into.frames.clear();
        // SAFETY: iovec and mmsghdr are plain data for which all zeros are valid.
        let (mut parts, mut messages): ([libc::iovec; BURST_MAX], [libc::mmsghdr; BURST_MAX]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        for at in 0..BURST_MAX {
            parts[at] = libc::iovec { iov_base: into.bytes[at].as_mut_ptr().cast(), iov_len: SNAP_BYTES };
            let head = &mut messages[at].msg_hdr;
            head.msg_iov = &raw mut parts[at];
            head.msg_iovlen = 1;
            head.msg_control = into.control[at].as_mut_ptr().cast();
            head.msg_controllen = size_of::<[u64; CONTROL_WORDS]>();
        }
        // SAFETY: all messages point to buffers of the given lengths, which live through the call and are
        // borrowed mutably; there is no timeout.
        let got = unsafe {
            let count = BURST_MAX as u32;
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                messages.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let got = match check(got) {
            Ok(got) => got as usize,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(e) => return Err(e),
        };
        for message in &messages[..got] {
            let length = (message.msg_len as usize).min(SNAP_BYTES);
            into.frames.push((length, stamp_of(&message.msg_hdr)));
        }
        Ok(got)
    }

    /// Number of frames that passed the filter and did not fit the socket, since the last call.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn take_drops(&self) -> io::Result<u64> {
        let mut counts = [0_u32; 2];
        let mut length = size_of::<[u32; 2]>() as libc::socklen_t;
        // SAFETY: the pointer and length are those of `counts`; any bytes written make valid numbers
        // (tpacket_stats: packets and drops).
        check(unsafe {
            let value = (&raw mut counts).cast();
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                value,
                &mut length,
            )
        })?;
        Ok(counts[1].into())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn attach(fd: &OwnedFd, filter: &[FilterOp]) -> io::Result<()> {
    let convert = |op: &FilterOp| libc::sock_filter {
        code: op.code,
        jt: op.jump_true,
        jf: op.jump_false,
        k: op.operand,
    };
    let mut ops: Vec<libc::sock_filter> = filter.iter().map(convert).collect();
    let length = u16::try_from(ops.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let program = libc::sock_fprog { len: length, filter: ops.as_mut_ptr() };
    // The kernel copies the instructions, which live through the call.
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

/// The timestamp of a frame.
fn stamp_of(head: &libc::msghdr) -> Option<u64> {
    // SAFETY: the kernel has filled the control buffer of `head`, which is alive and aligned, up to its
    // length; the macros stay within that length. A header of this kind is followed by a timespec, read
    // unaligned.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(head);
        while !control.is_null() {
            if (*control).cmsg_level == libc::SOL_SOCKET && (*control).cmsg_type == libc::SCM_TIMESTAMPNS {
                let time = libc::CMSG_DATA(control).cast::<libc::timespec>().read_unaligned();
                return Some(stamp_ns(&time));
            }
            control = libc::CMSG_NXTHDR(head, control);
        }
    }
    None
}
