//! The kinds of threads: a row of each says which system calls, capabilities and files they have.

use caps::Capability::{
    self, CAP_BPF, CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_NICE,
};
use syscalls::Sysno;

use super::files::Files;

/// `prctl(2)`: names of memory (`linux/prctl.h`).
const PR_SET_VMA: u32 = 0x5356_4d41;

/// The status of a file by its name; architectures differ in its name.
#[cfg(target_arch = "x86_64")]
const FSTATAT: Sysno = Sysno::newfstatat;
/// The status of a file by its name; architectures differ in its name.
#[cfg(target_arch = "aarch64")]
const FSTATAT: Sysno = Sysno::fstatat;

/// `bpf(2)`: removal from a map (`linux/bpf.h`).
const BPF_MAP_DELETE_ELEM: u32 = 3;

/// A system call that a thread may make.
#[derive(Clone, Copy, Debug)]
pub(super) enum Allowed {
    /// With all arguments.
    Always(Sysno),
    /// If the argument of this number, counted from 0, is one of these 32-bit values.
    If(Sysno, u8, &'static [u32]),
    /// If these bits of an argument have this value.
    Bits { call: Sysno, argument: u8, mask: u64, value: u64 },
    /// If the first argument is the id of this process.
    OwnProcess(Sysno),
}

use Allowed::{Always, Bits, If, OwnProcess};

/// Calls for one purpose.
type Group = &'static [Allowed];

/// Rights of a kind of thread.
#[derive(Debug)]
pub(super) struct Row {
    name: &'static str,
    groups: &'static [Group],
    pub(super) capabilities: &'static [Capability],
    pub(super) files: Files,
}

/// Calls of each thread: memory, locks, clocks, its end, and descriptors that it has, such as those of the log.
const BASIC: Group = &[
    Always(Sysno::read),
    Always(Sysno::write),
    Always(Sysno::readv),
    Always(Sysno::writev),
    Always(Sysno::close),
    Always(Sysno::fcntl),
    Always(Sysno::sendto),
    Always(Sysno::ppoll),
    Always(Sysno::futex),
    Always(Sysno::clock_gettime),
    Always(Sysno::clock_nanosleep),
    Always(Sysno::nanosleep),
    Always(Sysno::gettimeofday),
    Always(Sysno::restart_syscall),
    Always(Sysno::sched_yield),
    Always(Sysno::sched_getaffinity),
    Always(Sysno::getcpu),
    Always(Sysno::getrandom),
    Always(Sysno::membarrier),
    // No thread makes code.
    Bits { call: Sysno::mmap, argument: 2, mask: libc::PROT_EXEC as u64, value: 0 },
    Bits { call: Sysno::mprotect, argument: 2, mask: libc::PROT_EXEC as u64, value: 0 },
    Always(Sysno::munmap),
    Always(Sysno::mremap),
    Always(Sysno::madvise),
    Always(Sysno::brk),
    Always(Sysno::rt_sigprocmask),
    Always(Sysno::rt_sigreturn),
    // A fault ends the process: its handler restores the default, and so does abort(3).
    If(Sysno::rt_sigaction, 0, &[libc::SIGSEGV as u32, libc::SIGBUS as u32, libc::SIGABRT as u32]),
    Always(Sysno::sigaltstack),
    Always(Sysno::gettid),
    Always(Sysno::getpid),
    // The name of the machine, in lines of the log.
    Always(Sysno::uname),
    OwnProcess(Sysno::tgkill),
    If(
        Sysno::prctl,
        0,
        &[libc::PR_SET_NAME as u32, libc::PR_GET_NAME as u32, libc::PR_SET_TIMERSLACK as u32, PR_SET_VMA],
    ),
    Always(Sysno::set_robust_list),
    Always(Sysno::rseq),
    Always(Sysno::exit),
    Always(Sysno::exit_group),
    #[cfg(target_arch = "x86_64")]
    Always(Sysno::poll),
];

/// Waiting for several descriptors.
const WAITING: Group = &[
    Always(Sysno::epoll_create1),
    Always(Sysno::epoll_ctl),
    Always(Sysno::epoll_pwait),
    Always(Sysno::epoll_pwait2),
    Always(Sysno::eventfd2),
    Always(Sysno::timerfd_create),
    Always(Sysno::timerfd_settime),
    #[cfg(target_arch = "x86_64")]
    Always(Sysno::epoll_wait),
];

/// Messages of sockets that are open, and their options.
const MESSAGES: Group = &[
    Always(Sysno::sendmsg),
    Always(Sysno::sendmmsg),
    Always(Sysno::recvfrom),
    Always(Sysno::recvmsg),
    Always(Sysno::recvmmsg),
    Always(Sysno::getsockopt),
    Always(Sysno::setsockopt),
    Always(Sysno::getsockname),
    If(Sysno::ioctl, 1, &[libc::FIONBIO as u32]),
];

/// Connections of clients to a listener.
const SERVING: Group = &[Always(Sysno::accept4), Always(Sysno::shutdown), Always(Sysno::getpeername)];

/// Facts of devices.
const DEVICE_FACTS: Group = &[
    If(
        Sysno::ioctl,
        1,
        &[
            libc::SIOCGIFMTU as u32,
            libc::SIOCGIFINDEX as u32,
            libc::SIOCGIFHWADDR as u32,
            libc::SIOCETHTOOL as u32,
            libc::TUNGETIFF as u32,
        ],
    ),
    If(Sysno::socket, 0, &[libc::AF_INET as u32]),
];

/// Sockets of packets.
const PACKET_SOCKETS: Group = &[If(Sysno::socket, 0, &[libc::AF_PACKET as u32]), Always(Sysno::bind)];

/// The processors of the calling thread.
const PROCESSORS: Group = &[If(Sysno::sched_setaffinity, 0, &[0])];

/// Sockets of netlink.
const NETLINK: Group = &[If(Sysno::socket, 0, &[libc::AF_NETLINK as u32]), Always(Sysno::bind)];

/// Sockets of UDP.
const UDP: Group = &[
    If(Sysno::socket, 0, &[libc::AF_INET as u32, libc::AF_INET6 as u32]),
    Always(Sysno::bind),
    Always(Sysno::connect),
];

/// Files that exist, by Landlock those of the row.
const EXISTING_FILES: Group = &[
    Bits { call: Sysno::openat, argument: 2, mask: (libc::O_CREAT | libc::O_TRUNC) as u64, value: 0 },
    Always(Sysno::statx),
    Always(Sysno::fstat),
    Always(FSTATAT),
    Always(Sysno::lseek),
];

/// The port type `pcap` removes a record that it wrote in part.
const CUTTING: Group = &[Always(Sysno::ftruncate), Always(Sysno::lseek)];

/// Closing of AF_XDP sockets: they leave the map of their program.
const LEAVING_MAPS: Group = &[If(Sysno::bpf, 0, &[BPF_MAP_DELETE_ELEM])];

/// Facts of open files.
const OPEN_FILES: Group =
    &[Always(Sysno::fstat), Always(Sysno::statx), Always(Sysno::lseek), Always(Sysno::pread64)];

/// Files that the thread makes, replaces and removes, by Landlock in the folders of the row.
const NEW_FILES: Group = &[
    Always(Sysno::openat),
    Always(FSTATAT),
    Always(Sysno::fsync),
    Always(Sysno::fdatasync),
    Always(Sysno::ftruncate),
    Always(Sysno::pwrite64),
    Always(Sysno::fchown),
    Always(Sysno::fchmod),
    Always(Sysno::unlinkat),
    Always(Sysno::renameat2),
    #[cfg(target_arch = "x86_64")]
    Always(Sysno::unlink),
    #[cfg(target_arch = "x86_64")]
    Always(Sysno::rename),
    Always(Sysno::renameat),
];

/// Removal of a socket.
const REMOVAL: Group = &[
    Always(Sysno::statx),
    Always(Sysno::unlinkat),
    #[cfg(target_arch = "x86_64")]
    Always(Sysno::unlink),
];

/// Pipes.
const PIPES: Group = &[Always(Sysno::pipe2)];

/// Processor time of the process.
const USAGE: Group = &[Always(Sysno::getrusage)];

/// Own priority.
const PRIORITY: Group = &[Always(Sysno::setpriority), Always(Sysno::getpriority)];

/// Threads of other processes and their priority.
const TASKS: Group = &[Always(Sysno::getdents64)];

const NO_FILES: Files = Files::Read(&[]);

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $row:expr;)*) => {
        /// A kind of thread.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            pub(super) fn row(self) -> &'static Row {
                match self { $(Kind::$kind => { const ROW: Row = $row; &ROW })* }
            }
        }
    };
}

kinds! {
    /// Forwarding threads, and the switch's own scheduler. They open transmit sockets when traffic grows, with buffers
    /// beyond the limit of the system, and keep processors from deep idle states.
    Packets: Row {
        name: "packets",
        groups: &[WAITING, MESSAGES, PACKET_SOCKETS, DEVICE_FACTS, PROCESSORS, EXISTING_FILES, CUTTING],
        capabilities: &[CAP_NET_RAW, CAP_NET_ADMIN],
        files: Files::ReadAndWrite(
            &["/sys/devices/system/cpu/cpuidle/current_driver"],
            &["/dev/cpu_dma_latency"],
        ),
    };
    /// Threads that make and close receive rings.
    Rings: Row { name: "rings", groups: &[MESSAGES, PACKET_SOCKETS], capabilities: &[], files: NO_FILES };
    /// Threads that open and close packet sockets of devices in parallel.
    Devices: Row {
        name: "devices",
        groups: &[WAITING, MESSAGES, PACKET_SOCKETS, NETLINK, DEVICE_FACTS, LEAVING_MAPS],
        capabilities: &[CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF],
        files: NO_FILES,
    };
    /// Threads that work on memory alone: aging of tracked connections, freeing, restored counters and
    /// connections, offload.
    Background: Row { name: "background", groups: &[OPEN_FILES], capabilities: &[], files: NO_FILES };
    /// Handlers and revalidators of userspace datapaths. They carry out operations of the main core, which may send packets and
    /// open transmit sockets.
    Translation: Row {
        name: "translation",
        groups: &[WAITING, MESSAGES, PACKET_SOCKETS, DEVICE_FACTS, CUTTING],
        capabilities: &[CAP_NET_RAW, CAP_NET_ADMIN],
        files: NO_FILES,
    };
    /// Handlers and revalidators of datapaths of the kernel.
    KernelTranslation: Row {
        name: "kernel translation",
        groups: &[WAITING, MESSAGES, NETLINK, EXISTING_FILES],
        capabilities: &[CAP_NET_ADMIN],
        files: Files::Read(&["/proc"]),
    };
    /// Bonds and link protocols: they read links, and send frames by all datapaths, as handlers do.
    Links: Row {
        name: "links",
        groups: &[WAITING, MESSAGES, PACKET_SOCKETS, NETLINK, DEVICE_FACTS, EXISTING_FILES, CUTTING],
        capabilities: &[CAP_NET_RAW, CAP_NET_ADMIN],
        files: Files::Read(&["/proc"]),
    };
    /// Threads that make a reply, or flush connections of a datapath.
    Commands: Row {
        name: "commands",
        groups: &[WAITING, MESSAGES, NETLINK, EXISTING_FILES],
        capabilities: &[CAP_NET_ADMIN],
        files: Files::Read(&["/proc"]),
    };
    /// Writers of the database and of the state, in the given folders. These may belong to another user.
    Files: Row {
        name: "files",
        groups: &[OPEN_FILES, NEW_FILES],
        capabilities: &[CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_CHOWN],
        files: Files::Given,
    };
    /// The export of connections to another process.
    Handover: Row { name: "handover", groups: &[MESSAGES, PRIORITY], capabilities: &[], files: NO_FILES };
    /// Packet sockets that are kept for the next process: the thread tells their holder, and closes those that are kept no longer.
    Kept: Row { name: "kept", groups: &[MESSAGES, PIPES], capabilities: &[], files: NO_FILES };
    /// The return of all threads to their priority.
    Priority: Row {
        name: "priority",
        groups: &[EXISTING_FILES, TASKS, PRIORITY],
        capabilities: &[CAP_SYS_NICE],
        files: Files::Read(&["/proc"]),
    };
    /// Collectors of sFlow, NetFlow and IPFIX.
    Exporters: Row {
        name: "exporters",
        groups: &[WAITING, MESSAGES, UDP, USAGE, EXISTING_FILES],
        capabilities: &[],
        files: Files::Read(&["/proc"]),
    };
    /// The listener of the metrics. It removes its socket, if that is in the given folder.
    Metrics: Row {
        name: "metrics",
        groups: &[WAITING, MESSAGES, SERVING, NETLINK, REMOVAL],
        capabilities: &[],
        files: Files::Removed,
    };
    /// The socket of events of first packets.
    Events: Row { name: "events", groups: &[WAITING, MESSAGES, SERVING], capabilities: &[], files: NO_FILES };
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Whether its threads start others, of the same kind.
    pub(super) fn starts_threads(self) -> bool {
        matches!(self, Kind::Translation | Kind::KernelTranslation | Kind::Kept)
    }

    /// All calls of its threads, but for those that make threads.
    pub(super) fn calls(self) -> impl Iterator<Item = Allowed> {
        [BASIC].iter().chain(self.row().groups).flat_map(|group| group.iter().copied())
    }
}
