//! Statistics of the machine and of single processes, from proc(5). Unreadable values are omitted.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The name of this machine, as uname(2) has it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A process. Durations are in milliseconds, memory in kilobytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// Virtual memory.
    pub virtual_kb: u64,
    /// Memory held.
    pub resident_kb: u64,
    /// Processor time, user and system.
    pub cpu_ms: u64,
    /// Time since its start.
    pub running_ms: u64,
    /// The processor that it ran on last.
    pub core: u64,
    /// Its parent.
    pub parent: u32,
}

/// Kilobytes of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// All.
    pub total_kb: u64,
    /// In use, caches too.
    pub used_kb: u64,
    /// Caches.
    pub cache_kb: u64,
    /// All swap space.
    pub swap_kb: u64,
    /// Swap space in use.
    pub swap_used_kb: u64,
}

/// Kilobytes of a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSystem {
    /// Its mount point.
    pub mount_point: String,
    /// Its size.
    pub total_kb: u64,
    /// In use.
    pub used_kb: u64,
}

/// Value of sysconf(3) for the name, at least 1.
pub(crate) fn system_value(name: libc::c_int) -> u64 {
    // SAFETY: takes a number and returns one.
    u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0).max(1)
}

/// Processors that are online.
pub fn processors() -> u64 {
    system_value(libc::_SC_NPROCESSORS_ONLN)
}

/// Load over 1, 5 and 15 minutes, as the kernel prints it.
pub fn load_average() -> Option<[String; 3]> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let mut words = text.split_ascii_whitespace().map(str::to_string);
    Some([words.next()?, words.next()?, words.next()?])
}

/// Memory of the machine.
pub fn memory() -> Option<Memory> {
    parse_memory(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

pub(crate) fn parse_memory(text: &str) -> Option<Memory> {
    let kb = |name: &str| -> Option<u64> {
        let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        rest.split_ascii_whitespace().next()?.parse().ok()
    };
    let (total_kb, swap_kb) = (kb("MemTotal")?, kb("SwapTotal").unwrap_or(0));
    Some(Memory {
        total_kb,
        used_kb: total_kb.saturating_sub(kb("MemFree")?),
        cache_kb: kb("Buffers").unwrap_or(0) + kb("Cached").unwrap_or(0),
        swap_kb,
        swap_used_kb: swap_kb.saturating_sub(kb("SwapFree").unwrap_or(0)),
    })
}

/// A process, if it exists.
pub fn process(pid: u32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime_s: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    let (tick, page) = (system_value(libc::_SC_CLK_TCK), system_value(libc::_SC_PAGESIZE));
    parse_process(&stat, (uptime_s * 1000.0) as u64, tick, page / 1024)
}

pub(crate) fn parse_process(stat: &str, uptime_ms: u64, ticks_per_s: u64, page_kb: u64) -> Option<Process> {
    // The second field, the name, is in parentheses and may contain anything; the next is field 3.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ms = |ticks: u64| ticks.saturating_mul(1000) / ticks_per_s;
    Some(Process {
        virtual_kb: field(23)? / 1024,
        resident_kb: field(24)?.saturating_mul(page_kb),
        cpu_ms: ms(field(14)?.saturating_add(field(15)?)),
        running_ms: uptime_ms.saturating_sub(ms(field(22)?)),
        core: field(39)?,
        parent: u32::try_from(field(4)?).ok()?,
    })
}

/// The most memory that this process has held so far, in kilobytes.
pub fn peak_resident_kb() -> Option<u64> {
    // SAFETY: all bits of the structure may be zero: it holds numbers only.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is alive through the call.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } != 0;
    if failed { None } else { u64::try_from(usage.ru_maxrss).ok() }
}

/// Time and memory of this process so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    /// Time of processors for the program itself.
    pub user_ms: u64,
    /// Time of processors for its system calls.
    pub system_ms: u64,
    /// The most memory that it has held.
    pub peak_bytes: u64,
}

/// Time and memory of this process so far; `None` if the system tells nothing.
pub fn usage() -> Option<Usage> {
    // SAFETY: all bits of the structure may be zero: it holds numbers only.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is alive through the call.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } != 0 {
        return None;
    }
    let ms = |t: libc::timeval| u64::try_from(t.tv_sec).unwrap_or(0) * 1000 + t.tv_usec.unsigned_abs() / 1000;
    Some(Usage {
        user_ms: ms(usage.ru_utime),
        system_ms: ms(usage.ru_stime),
        peak_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
    })
}

/// The index of a network device.
pub fn device_index(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: the name ends with a zero, and is alive through the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// The first address of a network device: of IPv4, else of IPv6.
pub fn device_address(name: &str) -> Option<std::net::IpAddr> {
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is alive through the call, which sets it to a list or leaves it.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return None;
    }
    let (mut v4, mut v6, mut next) = (None, None, first);
    while !next.is_null() {
        // SAFETY: `next` is an entry of the list, which is freed below.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        // SAFETY: the name of an entry is a text that ends with a zero, and lives as long as the list.
        let is_it = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) }.to_bytes() == name.as_bytes();
        if !is_it || entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: the address is there, and each kind of address begins with its family.
        match i32::from(unsafe { (*entry.ifa_addr).sa_family }) {
            libc::AF_INET => {
                // SAFETY: an address of this family has this structure; it may not be aligned for it.
                let address: libc::sockaddr_in =
                    unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
                let ip = std::net::Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
                v4 = v4.or(Some(std::net::IpAddr::from(ip)));
            }
            libc::AF_INET6 => {
                // SAFETY: an address of this family has this structure; it may not be aligned for it.
                let address: libc::sockaddr_in6 =
                    unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
                v6 = v6.or(Some(std::net::IpAddr::from(address.sin6_addr.s6_addr)));
            }
            _ => {}
        }
    }
    // SAFETY: the list comes from `getifaddrs`, is freed once, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    v4.or(v6)
}

/// Number of processors of each NUMA node, by the node's number, from sysfs; empty if the kernel tells none.
pub fn numa_nodes() -> std::collections::BTreeMap<u32, usize> {
    let entries = |path: &Path| {
        let dir = std::fs::read_dir(path).into_iter().flatten().flatten();
        dir.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let number = |name: &str, prefix: &str| name.strip_prefix(prefix)?.parse::<u32>().ok();
    let nodes = Path::new("/sys/devices/system/node");
    let found = entries(nodes).into_iter().filter_map(|name| Some((number(&name, "node")?, name)));
    found
        .map(|(node, name)| {
            let cpus = entries(&nodes.join(name)).iter().filter(|cpu| number(cpu, "cpu").is_some()).count();
            (node, cpus)
        })
        .collect()
}

/// Writable file systems on devices of this machine, by their mount points, each once.
pub fn file_systems() -> Vec<FileSystem> {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let without_device = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let points = writable_mounts(&mounts, &without_device);
    points.into_iter().filter_map(|point| file_system(&point)).collect()
}

/// File systems without a device that `/proc/filesystems` leaves out: mounts of namespaces and processes.
const UNLISTED: [&str; 2] = ["nsfs", "pidfs"];

/// Writable mount points on devices, from `/proc/mounts` and `/proc/filesystems`.
pub(crate) fn writable_mounts(mounts: &str, file_systems: &str) -> Vec<String> {
    let without_device: Vec<&str> =
        file_systems.lines().filter_map(|line| line.strip_prefix("nodev")).map(str::trim).collect();
    let mut points: Vec<String> = Vec::new();
    for line in mounts.lines() {
        let mut fields = line.split(' ');
        let (Some(_), Some(point), Some(kind), Some(options)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let point = unescaped(point);
        let has_device = !without_device.contains(&kind) && !UNLISTED.contains(&kind);
        let is_local = has_device && options.split(',').any(|option| option == "rw");
        if is_local && !points.contains(&point) {
            points.push(point);
        }
    }
    points
}

/// Unescapes a field of `/proc/mounts`, in which blanks and backslashes are octal numbers.
fn unescaped(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_string(), |text, (code, plain)| text.replace(code, plain))
}

fn file_system(point: &str) -> Option<FileSystem> {
    let path = CString::new(Path::new(point).as_os_str().as_bytes()).ok()?;
    // SAFETY: plain integers, for which all zeros are valid.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero, and the result is alive through the call.
    if unsafe { libc::statvfs(path.as_ptr(), &mut found) } < 0 {
        return None;
    }
    let kb = |blocks: u64| (u128::from(blocks) * u128::from(found.f_frsize) / 1024) as u64;
    Some(FileSystem {
        mount_point: point.to_string(),
        total_kb: kb(found.f_blocks),
        used_kb: kb(found.f_blocks.saturating_sub(found.f_bfree)),
    })
}
