//! Namespaces, veth pairs and frames for the tests.

use std::process::Command;
use std::time::{Duration, Instant};

use netdev::link::{self, OperState};
use netdev::{Port, RxQueue, SystemOptions, TxQueue, TxReport};
use packet::{BATCH_MAX_PACKETS, GsoKind, Offload, Packet, PacketBatch, PacketPool, checksum};

/// EtherType for experiments (IEEE 802): no host handles or sends such frames.
pub(crate) const TEST_ETH_TYPE: u16 = 0x88b5;

/// Runs `f` in a thread with its own network namespace, which ends with it.
pub(crate) fn in_netns(f: impl FnOnce() + Send + 'static) {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    let ran = std::thread::spawn(move || {
        if !enter_netns(&test) {
            return;
        }
        f();
    })
    .join();
    if let Err(panic) = ran {
        std::panic::resume_unwind(panic);
    }
}

/// Moves the calling thread into a new namespace without IPv6 noise; on failure prints the reason for the
/// skip.
pub(crate) fn enter_netns(test: &str) -> bool {
    // SAFETY: changes the namespace of this thread only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        println!("SKIP: {test}: no network namespace ({})", std::io::Error::last_os_error());
        return false;
    }
    if Command::new("ip").arg("-V").output().is_err() {
        println!("SKIP: {test}: no ip command");
        return false;
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        println!("SKIP: {test}: no /dev/net/tun");
        return false;
    }
    for what in ["all", "default"] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{what}/disable_ipv6"), "1");
    }
    true
}

/// Runs `ip` in the thread's namespace.
pub(crate) fn ip(args: &str) {
    run(&format!("ip {args}"));
}

/// Timeout of what the kernel does soon.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Runs a command in the thread's namespace.
pub(crate) fn run(command: &str) {
    let mut words = command.split_whitespace();
    let out = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Waits until the device is up. Before that, its queueing discipline drops frames silently.
pub(crate) fn wait_up(name: &str) {
    let up = |_| {
        std::thread::sleep(Duration::from_millis(2));
        link::link_info(name).unwrap().oper_state == OperState::Up
    };
    assert!((0..10_000).any(up), "{name} does not come up");
}

/// A veth pair, both ends up.
pub(crate) fn veth(a: &str, b: &str) {
    ip(&format!("link add {a} type veth peer name {b}"));
    ip(&format!("link set {a} up"));
    ip(&format!("link set {b} up"));
    wait_up(a);
    wait_up(b);
}

/// One end of a wire: a port with its queues.
pub(crate) struct End {
    pub(crate) port: Port,
    pub(crate) rx: Box<dyn RxQueue>,
    pub(crate) tx: Box<dyn TxQueue>,
    pub(crate) pool: PacketPool,
}

impl End {
    pub(crate) fn of(mut port: Port) -> End {
        let rx = port.rx.remove(0);
        let tx = port.tx().unwrap();
        End { port, rx, tx, pool: PacketPool::new() }
    }

    pub(crate) fn system(name: &str, options: &SystemOptions) -> End {
        End::of(Port::open_system(name, options).unwrap())
    }

    pub(crate) fn send(&mut self, packets: impl IntoIterator<Item = Packet>) -> TxReport {
        let mut batch: PacketBatch = packets.into_iter().collect();
        let report = self.tx.send(&mut batch, &mut self.pool);
        assert!(batch.is_empty());
        report
    }

    /// Frames selected by `wanted`, up to `count` of them, waiting at most [`LIMIT`].
    pub(crate) fn recv_where(&mut self, count: usize, wanted: impl Fn(&Packet) -> bool) -> Vec<Packet> {
        let deadline = Instant::now() + LIMIT;
        let mut got = Vec::new();
        while got.len() < count && Instant::now() < deadline {
            let mut batch = PacketBatch::new();
            let n = self.rx.recv(&mut self.pool, &mut batch, BATCH_MAX_PACKETS).unwrap();
            assert_eq!(n, batch.len());
            got.extend(batch.drain().filter(|p| wanted(p)));
            if n == 0 {
                wait(self.rx.as_ref(), 50);
            }
        }
        got
    }

    /// Test frames, up to `count` of them.
    pub(crate) fn recv(&mut self, count: usize) -> Vec<Packet> {
        self.recv_where(count, is_test_frame)
    }

    /// Whatever waits within `ms`.
    pub(crate) fn recv_for(&mut self, ms: u64) -> Vec<Packet> {
        let deadline = Instant::now() + Duration::from_millis(ms);
        let mut got = PacketBatch::new();
        while Instant::now() < deadline {
            self.rx.recv(&mut self.pool, &mut got, BATCH_MAX_PACKETS).unwrap();
            wait(self.rx.as_ref(), 5);
        }
        got.drain().collect()
    }
}

/// Waits until the queue is readable, or `ms`.
pub(crate) fn wait(rx: &dyn RxQueue, ms: i32) -> bool {
    use std::os::fd::AsRawFd;
    let mut fd = libc::pollfd { fd: rx.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, alive through the call.
    unsafe { libc::poll(&mut fd, 1, ms) > 0 }
}

pub(crate) fn is_test_frame(p: &Packet) -> bool {
    let d = p.data();
    let at = if matches!(u16::from_be_bytes([d[12], d[13]]), 0x8100 | 0x88a8) { 16 } else { 12 };
    u16::from_be_bytes([d[at], d[at + 1]]) == TEST_ETH_TYPE
}

/// A frame of `bytes` with a number in it.
pub(crate) fn frame(number: u8, bytes: usize) -> Packet {
    let mut f = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1];
    f.extend(TEST_ETH_TYPE.to_be_bytes());
    f.extend((f.len()..bytes).map(|i| (i as u8).wrapping_mul(31).wrapping_add(number)));
    Packet::from_slice(&f)
}

/// A TCP super-frame over IPv4 with `payload_bytes`, between addresses that no host has, with the given VLAN
/// tag.
pub(crate) fn tcp_super_frame(payload_bytes: usize, gso_size: u16, tag: Option<[u8; 4]>) -> Packet {
    let mut f = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1];
    f.extend(tag.unwrap_or_default().iter().take(if tag.is_some() { 4 } else { 0 }));
    f.extend([0x08, 0x00]);
    let l3 = f.len();
    let total = 40 + payload_bytes as u16;
    f.extend([0x45, 0, (total >> 8) as u8, total as u8, 0, 7, 0x40, 0, 64, 6, 0, 0]);
    f.extend([198, 51, 100, 1, 198, 51, 100, 2]);
    let sum = checksum::checksum(&f[l3..]).to_be_bytes();
    f[l3 + 10..l3 + 12].copy_from_slice(&sum);
    let l4 = f.len();
    f.extend([0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    f.extend((0..payload_bytes).map(|i| (i % 251) as u8));
    let pseudo = checksum::pseudo(&f[l3 + 12..l3 + 16], &f[l3 + 16..l3 + 20], 6, f.len() - l4);
    let pseudo = checksum::fold(pseudo).to_be_bytes();
    f[l4 + 16..l4 + 18].copy_from_slice(&pseudo);
    let mut p = Packet::from_slice(&f);
    p.offload = Offload {
        needs_csum: true,
        csum_start: l4 as u16,
        csum_offset: 16,
        gso: GsoKind::Tcp4,
        gso_size,
        hdr_len: (l4 + 20) as u16,
        ..Offload::NONE
    };
    p
}

/// A UDP datagram over IPv4 as sent by a host, with a partial checksum.
pub(crate) fn datagram(to: [u8; 6], addresses: [[u8; 4]; 2], port: u16, id: u16, payload: &[u8]) -> Packet {
    let mut f = to.to_vec();
    f.extend([0x02, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0]);
    let l4_bytes = 8 + payload.len();
    f.extend((20 + l4_bytes as u16).to_be_bytes());
    f.extend(id.to_be_bytes());
    f.extend([0x40, 0, 64, 17, 0, 0]);
    f.extend(addresses.concat());
    let sum = checksum::checksum(&f[14..]).to_be_bytes();
    f[24..26].copy_from_slice(&sum);
    f.extend(4000u16.to_be_bytes());
    f.extend(port.to_be_bytes());
    f.extend((l4_bytes as u16).to_be_bytes());
    let pseudo = checksum::pseudo(&addresses[0], &addresses[1], 17, l4_bytes);
    f.extend(checksum::fold(pseudo).to_be_bytes());
    f.extend(payload);
    let mut p = Packet::from_slice(&f);
    p.offload = Offload { needs_csum: true, csum_start: 34, csum_offset: 6, ..Offload::NONE };
    p
}

/// Whether a frame is of [`tcp_super_frame`].
pub(crate) fn is_super_frame(p: &Packet) -> bool {
    p.data().windows(8).take(40).any(|w| w == [198, 51, 100, 1, 198, 51, 100, 2])
}

/// Makes a system call fail with `errno` in the calling thread from now on; `false` if the kernel cannot.
pub(crate) fn fail_syscall(number: libc::c_long, errno: libc::c_int) -> bool {
    const RETURN_ERRNO: u32 = 0x0005_0000;
    const RETURN_ALLOW: u32 = 0x7fff_0000;
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        // The number is first in seccomp_data.
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, RETURN_ERRNO | errno as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, RETURN_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is alive through the call, which copies it; it affects only this thread.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}
