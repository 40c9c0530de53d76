//! The XDP program that redirects frames to the sockets: `bpf_redirect_map(sockets, receive queue,
//! XDP_PASS)`, as bytecode (RFC 9669), loaded and attached by bpf(2).
//!
//! A link, which is a descriptor, attaches it: closing the descriptor detaches the program, however the
//! process ends. Frames of receive queues without a socket go to the host as before.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libc::{c_int, c_long};

use crate::raw::{self, context};

// `linux/bpf.h`.
const BPF_MAP_CREATE: c_int = 0;
const BPF_MAP_UPDATE_ELEM: c_int = 2;
const BPF_MAP_DELETE_ELEM: c_int = 3;
const BPF_PROG_LOAD: c_int = 5;
const BPF_LINK_CREATE: c_int = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const PSEUDO_MAP_FD: u8 = 1;
const HELPER_REDIRECT_MAP: i32 = 51;
const ACTION_PASS: i32 = 2;
/// Offset of `rx_queue_index` in `xdp_md`.
const RX_QUEUE_INDEX_AT: i16 = 16;
// `linux/if_link.h`.
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// One instruction: `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    // Two bit fields of four bits, in host order.
    let registers = if cfg!(target_endian = "little") { to | from << 4 } else { to << 4 | from };
    Instruction { code, registers, offset, immediate }
}

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    max_entries: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    instructions: u32,
    instructions_at: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log_at: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
}

/// bpf(2); a descriptor or 0.
///
/// # Safety
/// `attributes` must match `command`, and pointers in it must be valid for `command`.
unsafe fn bpf<T>(command: c_int, attributes: &T) -> io::Result<c_int> {
    // SAFETY: pointer and length are those of `attributes`; the rest is the caller's promise.
    let ret = unsafe {
        libc::syscall(libc::SYS_bpf, c_long::from(command), attributes as *const T, size_of::<T>())
    };
    raw::check(ret as c_int)
}

/// The map of sockets by receive queue, read by the program.
pub(super) struct SocketMap(OwnedFd);

impl SocketMap {
    /// For `queues` queues, from 0 on.
    pub(super) fn new(queues: usize) -> io::Result<SocketMap> {
        let attributes =
            MapCreate { map_type: MAP_TYPE_XSKMAP, key_bytes: 4, value_bytes: 4, max_entries: queues as u32 };
        // SAFETY: no pointers; the descriptor is new.
        let fd = unsafe { bpf(BPF_MAP_CREATE, &attributes).map(|fd| raw::own(fd)) };
        fd.map(SocketMap).map_err(context("cannot make a map of sockets (bpf(2); it needs CAP_BPF)"))
    }

    /// Hands the frames of a queue to a socket.
    pub(super) fn set(&self, queue: usize, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        self.change(BPF_MAP_UPDATE_ELEM, queue, (&raw const value) as u64)
            .map_err(context("cannot enter a socket"))
    }

    /// Leaves further frames of a queue to the host.
    pub(super) fn remove(&self, queue: usize) -> io::Result<()> {
        self.change(BPF_MAP_DELETE_ELEM, queue, 0)
    }

    /// `value` is the address of a live `u32`, or 0 for a removal.
    fn change(&self, command: c_int, queue: usize, value: u64) -> io::Result<()> {
        let key = queue as u32;
        let attributes = MapUpdate {
            map: self.0.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const key) as u64,
            value,
            flags: 0,
        };
        // SAFETY: key and value are 4 bytes each, as the map was made, and live through the call, which reads them.
        unsafe { bpf(command, &attributes) }.map(drop)
    }
}

/// Attachment point of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hook {
    /// In the device's driver.
    Driver,
    /// Before the host's stack, on the kernel's own buffers.
    Generic,
}

/// Loads the program for `sockets` and attaches it to a device until the result is dropped.
pub(super) fn attach(sockets: &SocketMap, ifindex: u32, hook: Hook) -> io::Result<OwnedFd> {
    let program = load(sockets).map_err(context("cannot load the XDP program"))?;
    let flags = match hook {
        Hook::Driver => XDP_FLAGS_DRV_MODE,
        Hook::Generic => XDP_FLAGS_SKB_MODE,
    };
    let attributes =
        LinkCreate { program: program.as_raw_fd() as u32, ifindex, attach_type: ATTACH_TYPE_XDP, flags };
    // SAFETY: no pointers; the descriptor is new.
    let link = unsafe { bpf(BPF_LINK_CREATE, &attributes).map(|fd| raw::own(fd)) };
    link.map_err(|e| {
        let why = match e.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => "cannot attach the XDP program: another one is attached",
            Some(libc::EINVAL) => "cannot attach the XDP program (it needs Linux 5.9)",
            _ => "cannot attach the XDP program",
        };
        context(why)(e)
    })
}

fn load(sockets: &SocketMap) -> io::Result<OwnedFd> {
    let program = [
        // r2 = context.rx_queue_index
        instruction(0x61, 2, 1, RX_QUEUE_INDEX_AT, 0),
        // r1 = the map, in two instructions
        instruction(0x18, 1, PSEUDO_MAP_FD, 0, sockets.0.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        // r3 = result if the map has no socket
        instruction(0xb7, 3, 0, 0, ACTION_PASS),
        // r0 = bpf_redirect_map(r1, r2, r3)
        instruction(0x85, 0, 0, 0, HELPER_REDIRECT_MAP),
        instruction(0x95, 0, 0, 0, 0),
    ];
    let mut name = [0; 16];
    name[..10].copy_from_slice(b"sluice_xsk");
    let attributes = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        instructions: program.len() as u32,
        instructions_at: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log_at: 0,
        kernel_version: 0,
        flags: 0,
        name,
        ifindex: 0,
        attach_type: ATTACH_TYPE_XDP,
    };
    // SAFETY: program and license live through the call, which reads them; the descriptor is new.
    unsafe { bpf(BPF_PROG_LOAD, &attributes).map(|fd| raw::own(fd)) }
}
