//! Events by eBPF: programs at the probes of a switch, one ring buffer for all processors.
//!
//! A `sluiced` reports all stages of its userspace datapath by its own probes, each with the upcall's id. The
//! kernel datapath reports two stages, the miss and the execute, without ids; a stock `ovs-vswitchd` with
//! probes (`--enable-usdt-probes`) reports three more, also without ids. Events wake no thread: the buffer is
//! polled every few milliseconds.

mod names;
mod permit;
mod record;

#[cfg(test)]
mod tests;

use crate::source::{Capture, Polled, Source};
use anyhow::{Context, Result, bail};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, RingBuffer, RingBufferBuilder,
};
use names::Names;
use record::{Layout, Named};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use upcall_events::{Record, Stage};

/// The programs, compiled by `build.rs`.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/upcalls.bpf.o")));

/// Alignment required by ELF readers.
#[repr(C, align(16))]
struct Aligned<T: ?Sized>(T);

/// Polling interval of the buffer.
const LOOK: Duration = Duration::from_millis(2);
/// Interval of checks for losses, costs, and the end of the process.
const REVIEW_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum records taken out of the buffer at a time.
const TAKEN_MAX: usize = 4096;
/// Makes libbpf stop consuming.
const ENOUGH: i32 = -11;
/// Bytes of a page of the buffer.
const PAGE_BYTES: usize = 4096;
/// Number of hits to measure the cost of a probe.
const CALIBRATION_HITS: u32 = 5000;

/// Programs, and their probes of `sluiced`, all with the provider `sluice`.
const OURS: [(&str, &str); 10] = [
    ("miss", "upcall_miss"),
    ("enqueued", "upcall_enqueued"),
    ("refused", "upcall_refused"),
    ("received", "upcall_received"),
    ("translated", "upcall_translated"),
    ("put_sent", "upcall_put_sent"),
    ("execute_sent", "upcall_execute_sent"),
    ("put_done", "upcall_put_done"),
    ("executed", "upcall_executed"),
    ("on_wire", "upcall_on_wire"),
];
/// Programs and probes of a stock switch: program, provider, name.
const STOCK: [(&str, &str, &str); 3] = [
    ("stock_received", "dpif_recv", "recv_upcall"),
    ("stock_put_sent", "dpif_netlink_operate__", "op_flow_put"),
    ("stock_execute_sent", "dpif_netlink_operate__", "op_flow_execute"),
];

/// Name prefix of programs in the kernel datapath.
const KERNEL: &str = "kernel_";
/// A tracepoint of the kernel's datapath.
const KERNEL_MISS: &str = "ovs_dp_upcall";
/// A function of the kernel's datapath.
const KERNEL_EXECUTE: &str = "ovs_packet_cmd_execute";

/// The traced process.
#[derive(Clone, Copy)]
struct Target {
    /// Its id in its own PID namespace.
    pid: u32,
    /// Device (in the kernel's encoding) and inode of that namespace.
    pid_namespace: (u64, u64),
    /// Its network namespace, which has its datapaths; 0: any.
    net: u32,
}

impl Target {
    /// Finds a process by its id here. Programs see the id in the initial namespace, which differs in a
    /// container.
    fn of(pid: u32) -> Result<Target> {
        let namespace = std::fs::metadata(format!("/proc/{pid}/ns/pid"))?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(Target {
            pid: id_in_own_namespace(&status).unwrap_or(pid),
            pid_namespace: (kernel_device(namespace.dev()), namespace.ino()),
            net: std::fs::metadata(format!("/proc/{pid}/ns/net")).map_or(0, |ns| ns.ino() as u32),
        })
    }
}

/// The id of a process in its own PID namespace, from its `status` of proc(5): the last of its ids.
fn id_in_own_namespace(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Converts a device number of stat(2) to the kernel's encoding: 12 bits above 20.
fn kernel_device(device: u64) -> u64 {
    let major = device >> 8 & 0xfff | device >> 32 & !0xfff;
    let minor = device & 0xff | device >> 12 & !0xff;
    major << 20 | minor & 0xf_ffff
}

sys::usdt! {
    /// Does nothing: measures the cost of an attached probe.
    probe calibrate = "sluice_upcall_cost", "calibrate", ();
}

/// Records taken out of the buffer.
#[derive(Default)]
struct Consumed {
    /// Not returned yet.
    records: VecDeque<Record>,
    /// Events so far.
    events: u64,
}

/// Events of a switch, gathered by eBPF.
pub struct Bpf {
    pid: u32,
    /// Description of the attached probes.
    attached: String,
    lost: MapHandle,
    ring: RingBuffer<'static>,
    taken: Rc<RefCell<Consumed>>,
    names: Option<Names>,
    next_review: Instant,
    /// Reported part of `lost`.
    reported_lost: [u64; Stage::ALL.len() + 1],
    /// Events, lost ones too, whose cost was reported.
    reported_hits: u64,
    ns_per_hit: u64,
    over: bool,
    /// Nothing is attached any more.
    closed: bool,
    links: Vec<Link>,
    _object: Object,
}

/// Attaches to a switch.
///
/// # Errors
/// There is no switch, it has no probes, or eBPF is not permitted here: the text names the missing part.
pub fn open(capture: &Capture) -> Result<Bpf> {
    if !capture.debug {
        libbpf_rs::set_print(None);
    }
    let pid = match capture.pid {
        Some(pid) => pid,
        None => names::find(&capture.run_dir)?,
    };
    let exe = PathBuf::from(format!("/proc/{pid}/exe"));
    std::fs::metadata(&exe).with_context(|| format!("process {pid} cannot be traced"))?;
    let layout = Layout { packet_bytes: capture.packet_bytes, key_bytes: capture.key_bytes };
    let with_kernel = Path::new("/sys/module/openvswitch").exists();
    let whom = Target::of(pid).with_context(|| format!("process {pid} cannot be traced: its namespaces"))?;
    let object = load(capture, layout, whom, with_kernel).map_err(permit::explain)?;
    let taken = Rc::new(RefCell::new(Consumed { records: VecDeque::from([start(pid)]), events: 0 }));
    let names = Names::of(&capture.run_dir, pid);
    let ring = ring(&object, layout, names.is_none(), taken.clone())?;
    let (links, attached) = attach(&object, pid, &exe)?;
    let mut bpf = Bpf {
        pid,
        attached,
        lost: MapHandle::try_from(&map(&object, "lost")?)
            .context("cannot open the counters of lost events")?,
        ring,
        taken,
        names,
        next_review: Instant::now() + REVIEW_INTERVAL,
        reported_lost: Default::default(),
        reported_hits: 0,
        ns_per_hit: calibration(&object).unwrap_or(0),
        over: false,
        closed: false,
        links,
        _object: object,
    };
    bpf.take_names();
    Ok(bpf)
}

fn load(capture: &Capture, layout: Layout, whom: Target, with_kernel: bool) -> Result<Object> {
    let mut open: OpenObject = ObjectBuilder::default().name("upcalls")?.open_memory(&OBJECT.0)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == "events" {
            // The kernel requires a power of two.
            let pages = capture.buffer_pages.clamp(1, 1 << 18).next_power_of_two();
            map.set_max_entries((pages * PAGE_BYTES) as u32)?;
        } else if name.ends_with(".settings") {
            let settings = [layout.packet_bytes as u32, layout.key_bytes as u32, whom.pid, whom.net];
            let (device, inode) = whom.pid_namespace;
            let settings =
                [settings.map(u32::to_ne_bytes).concat(), [device, inode].map(u64::to_ne_bytes).concat()];
            map.set_initial_value(&settings.concat())?;
        }
    }
    for mut program in open.progs_mut() {
        if program.name().to_string_lossy().starts_with(KERNEL) {
            program.set_autoload(with_kernel);
        }
    }
    Ok(open.load()?)
}

fn map<'o>(object: &'o Object, name: &str) -> Result<libbpf_rs::Map<'o>> {
    let found = object.maps().find(|m| m.name() == name);
    found.with_context(|| format!("the programs have no map {name}"))
}

/// `with_ports`: whether names of ports are wanted.
fn ring(
    object: &Object,
    layout: Layout,
    with_ports: bool,
    taken: Rc<RefCell<Consumed>>,
) -> Result<RingBuffer<'static>> {
    let (mut threads, mut ports) = (HashSet::new(), HashMap::new());
    let take = move |bytes: &[u8]| {
        let Consumed { records, events } = &mut *taken.borrow_mut();
        if let Some((event, name)) = layout.read(bytes) {
            let (thread, number) = (event.thread, event.port);
            match name {
                Named::Thread(name) if threads.insert(thread) => {
                    records.push_back(Record::Thread { thread, name });
                }
                Named::Port(name) if with_ports && ports.get(&number) != Some(&name) => {
                    ports.insert(number, name.clone());
                    records.push_back(Record::Port { number, name });
                }
                _ => {}
            }
            records.push_back(Record::Event(event));
            *events += 1;
        }
        if records.len() < TAKEN_MAX { 0 } else { ENOUGH }
    };
    let events = map(object, "events")?;
    let mut builder = RingBufferBuilder::new();
    builder.add(&events, take)?;
    builder.build().context("cannot map the buffer of events")
}

fn start(pid: u32) -> Record {
    let (wall_ns, ns) = (sys::clock::wall_ns(), sys::clock::machine_ns());
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let program = exe.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Record::Start { pid, program, source: "bpf".to_string(), wall_offset_ns: wall_ns.saturating_sub(ns) }
}

fn link(object: &Object, program: &str, pid: u32, exe: &Path, provider: &str, name: &str) -> Result<Link> {
    let found = object.progs_mut().find(|p| p.name() == program);
    let found = found.with_context(|| format!("there is no program {program}"))?;
    Ok(found.attach_usdt(pid.cast_signed(), exe, provider, name)?)
}

/// Attaches to all available probes, and returns a description.
fn attach(object: &Object, pid: u32, exe: &Path) -> Result<(Vec<Link>, String)> {
    let (program, name) = OURS[0];
    let (mut links, own) = match link(object, program, pid, exe, "sluice", name) {
        Ok(first) => {
            let mut links = vec![first];
            for (program, name) in &OURS[1..] {
                let attached = link(object, program, pid, exe, "sluice", name);
                links.push(attached.with_context(|| format!("cannot attach to sluice:{name}"))?);
            }
            (links, "its own probes")
        }
        Err(e) if is_absent(&e) => match attach_stock(object, pid, exe)? {
            links if links.is_empty() => (links, NO_PROBES),
            links => (links, "probes of a stock switch"),
        },
        Err(e) => return Err(permit::explain(e)),
    };
    let (hooks, seen) = attach_kernel(object);
    links.extend(hooks);
    if links.is_empty() {
        let exe = std::fs::read_link(exe).unwrap_or_default();
        bail!(
            "process {pid} ({}) has no probes: neither those of sluiced nor those of an ovs-vswitchd that was built with \
             --enable-usdt-probes; and {seen}",
            exe.display()
        );
    }
    Ok((links, format!("{own}; {seen}")))
}

/// Description of a stock switch without probes.
const NO_PROBES: &str = "the program itself has no probes";

fn attach_stock(object: &Object, pid: u32, exe: &Path) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    for (program, provider, name) in STOCK {
        match link(object, program, pid, exe, provider, name) {
            Ok(link) => links.push(link),
            Err(e) if is_absent(&e) => {}
            Err(e) => return Err(permit::explain(e)),
        }
    }
    Ok(links)
}

/// Attaches to the available parts of the kernel datapath: both, one, or none; returns a description.
fn attach_kernel(object: &Object) -> (Vec<Link>, String) {
    let program = |name: &str| object.progs_mut().find(|p| p.name() == name && p.autoload());
    let (Some(miss), Some(executed)) = (program("kernel_miss"), program("kernel_executed")) else {
        return (Vec::new(), "the kernel's datapath is not loaded".to_string());
    };
    let hooks = [
        (KERNEL_MISS, miss.attach_raw_tracepoint(KERNEL_MISS)),
        (KERNEL_EXECUTE, executed.attach_kprobe(false, KERNEL_EXECUTE)),
    ];
    let (mut links, mut seen, mut unseen) = (Vec::new(), Vec::new(), Vec::new());
    for (name, hook) in hooks {
        match hook {
            Ok(link) => {
                links.push(link);
                seen.push(name);
            }
            Err(e) => unseen.push(format!("{name} ({e})")),
        }
    }
    let mut message = match seen.is_empty() {
        true => "no hook of the kernel's datapath".to_string(),
        false => format!("the kernel's datapath at {}", seen.join(" and ")),
    };
    if !unseen.is_empty() {
        message += &format!(", not at {}", unseen.join(" and "));
    }
    (links, message)
}

/// Whether the binary lacks the probe.
fn is_absent(e: &anyhow::Error) -> bool {
    e.downcast_ref::<libbpf_rs::Error>().is_some_and(|e| e.kind() == libbpf_rs::ErrorKind::NotFound)
}

/// Nanoseconds of a probe hit without its program, measured on this process.
fn calibration(object: &Object) -> Result<u64> {
    let exe = Path::new("/proc/self/exe");
    let _attached = link(object, "calibrate", std::process::id(), exe, "sluice_upcall_cost", "calibrate")?;
    let begun_ns = sys::clock::machine_ns();
    for _ in 0..CALIBRATION_HITS {
        if calibrate::armed() {
            calibrate::fire();
        }
    }
    Ok((sys::clock::machine_ns() - begun_ns) / u64::from(CALIBRATION_HITS))
}

impl Bpf {
    fn take_names(&mut self) {
        if let Some(names) = &mut self.names {
            self.taken.borrow_mut().records.extend(names.take());
        }
    }

    /// Consumes the buffer.
    fn consume(&mut self) -> Result<()> {
        match self.ring.consume_raw() {
            n if n >= 0 || n == ENOUGH => Ok(()),
            e => bail!("cannot read the buffer of events: {}", std::io::Error::from_raw_os_error(-e)),
        }
    }

    /// Reads the counters beside the events.
    fn read_counters(&mut self) -> Result<()> {
        self.next_review = Instant::now() + REVIEW_INTERVAL;
        self.take_names();
        let mut counts = [0; Stage::ALL.len() + 1];
        for (place, count) in (0u32..).zip(&mut counts) {
            let value =
                self.lost.lookup(&place.to_ne_bytes(), MapFlags::ANY).context("cannot read lost events")?;
            *count = value.and_then(|v| v.try_into().ok()).map_or(0, u64::from_ne_bytes);
        }
        let Consumed { records, events } = &mut *self.taken.borrow_mut();
        for stage in Stage::ALL {
            let events = counts[stage as usize] - self.reported_lost[stage as usize];
            if events > 0 {
                records.push_back(Record::Lost { stage, events });
            }
        }
        let hits = *events + counts[1..].iter().sum::<u64>();
        if hits > self.reported_hits {
            records
                .push_back(Record::Overhead { events: hits, spent_ns: counts[0] + hits * self.ns_per_hit });
        }
        (self.reported_lost, self.reported_hits) = (counts, hits);
        Ok(())
    }

    fn pop(&self) -> Option<Record> {
        self.taken.borrow_mut().records.pop_front()
    }
}

impl Source for Bpf {
    fn close(&mut self) -> bool {
        self.links.clear();
        self.closed = true;
        true
    }

    fn describe(&self) -> String {
        format!("eBPF on process {} ({})", self.pid, self.attached)
    }

    fn next(&mut self, timeout: Duration) -> Result<Polled> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(record) = self.pop() {
                return Ok(Polled::Record(record));
            }
            if self.closed {
                self.consume()?;
                if self.taken.borrow().records.is_empty() {
                    if self.over {
                        return Ok(Polled::End { note: None });
                    }
                    // Final losses.
                    self.over = true;
                    self.read_counters()?;
                }
                continue;
            }
            if self.over {
                let in_good_order = self.names.as_ref().is_some_and(|n| n.has_ended());
                let note =
                    (!in_good_order).then(|| format!("process {} ended while it was traced", self.pid));
                return Ok(Polled::End { note });
            }
            let now = Instant::now();
            if now >= self.next_review {
                // Before the buffer is emptied for the last time.
                let gone = !Path::new(&format!("/proc/{}", self.pid)).exists();
                self.consume()?;
                self.read_counters()?;
                self.over = gone && self.taken.borrow().records.len() < TAKEN_MAX;
                continue;
            }
            self.consume()?;
            if self.taken.borrow().records.is_empty() {
                if now >= deadline {
                    return Ok(Polled::Nothing);
                }
                std::thread::sleep(LOOK.min(deadline - now));
            }
        }
    }
}
