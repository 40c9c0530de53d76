//! Traffic control of the kernel (rtnetlink(7), `linux/pkt_sched.h`): the queueing discipline of a device and its classes.
//!
//! Handles are those of stock switches: the root is `1:`, the class above all queues `1:fffe`, that of queue N is
//! `1:N+1`, and packets without a queue go to `1:1`. A discipline that is there already is taken over.

mod disciplines;
mod message;
mod police;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use dpif::qos::{Class, Discipline, LinkFacts, QUEUES_MAX, Qos, Queue, QueueStats, ShownQos};

use crate::link::wire::{self, Request};
use message::{KnownClass, TcMessage};

pub use disciplines::Disciplines;
pub use police::police;

/// Handle of the root discipline.
const ROOT: u32 = 1 << 16;
/// Handle of the class above all queues.
const ROOT_CLASS: u32 = ROOT | 0xfffe;
/// Parent of the root (`TC_H_ROOT`).
const NO_PARENT: u32 = u32::MAX;

/// Handle of the class of a queue.
fn handle_of(queue: u32) -> u32 {
    ROOT | (queue + 1)
}

/// Queue of a class.
fn queue_of(handle: u32) -> Option<u32> {
    let minor = handle & 0xffff;
    (handle >> 16 == 1 && (1..=QUEUES_MAX).contains(&minor)).then(|| minor - 1)
}

/// Name of a discipline in the kernel.
fn kernel_name(discipline: &Discipline) -> &'static str {
    discipline.name().trim_start_matches("linux-")
}

/// The root discipline of a device.
struct Root {
    kind: String,
    handle: u32,
}

/// A device, with a socket for its requests.
struct Device {
    socket: OwnedFd,
    ifindex: u32,
}

/// Why a device has no discipline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The kernel lacks the discipline.
    pub is_unknown: bool,
    /// The reason.
    pub text: String,
}

impl From<String> for Refused {
    fn from(text: String) -> Refused {
        Refused { is_unknown: false, text }
    }
}

/// Gives a device a discipline with its queues; `None` leaves the system's own.
///
/// # Errors
/// All failures, with reasons. Queues that the kernel accepts are set nevertheless.
pub fn apply(ifindex: u32, qos: Option<&Qos>, link: LinkFacts) -> Result<(), Refused> {
    let device = Device { socket: wire::open_asking().map_err(|e| text(&e))?, ifindex };
    let Some(qos) = qos else { return device.clear().map_err(|e| text(&e).into()) };
    let failed = |e: &io::Error| {
        let (name, wanted) = (kernel_name(&qos.discipline), qos.discipline.name());
        let is_unknown = matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP));
        let why = if is_unknown { format!("the kernel lacks the discipline {name}") } else { text(e) };
        Refused { is_unknown, text: format!("{wanted}: {why}") }
    };
    match (qos.discipline, qos.discipline.root(link)) {
        (Discipline::Noop, _) => Ok(()),
        (policer, _) if policer.is_policer() => {
            let why = "only ports of the userspace datapath have it";
            Err(format!("{}: {why}", policer.name()).into())
        }
        (_, None) => device.set_classless(&qos.discipline, link).map_err(|e| failed(&e)),
        (_, Some(root)) => {
            device.set_root(&qos.discipline).map_err(|e| failed(&e))?;
            let set = device.set_class(&qos.discipline, ROOT_CLASS, ROOT, &root, link);
            set.map_err(|e| failed(&e))?;
            device.set_queues(qos, link).map_err(Refused::from)
        }
    }
}

/// The discipline of a device as it is, with the settings that were `wanted` where they are known.
///
/// # Errors
/// Of the kernel.
pub fn show(ifindex: u32, wanted: &Qos, link: LinkFacts) -> io::Result<ShownQos> {
    // As in stock switches it shows nothing of what it leaves alone.
    if wanted.discipline == Discipline::Noop {
        return Ok(ShownQos::default());
    }
    let device = Device { socket: wire::open_asking()?, ifindex };
    let Some(root) = device.root()? else { return Ok(ShownQos::default()) };
    let name = format!("linux-{}", root.kind);
    if wanted.discipline.name() != name {
        return Ok(ShownQos { discipline: Some("linux-other".into()), ..ShownQos::default() });
    }
    let known = &wanted.discipline;
    let mut shown = ShownQos { discipline: Some(name), ..ShownQos::default() };
    if !known.has_queues() {
        shown.settings = settings_of(known, link);
        return Ok(shown);
    }
    for (handle, KnownClass { class, stats, .. }) in &device.classes(known)? {
        if *handle == ROOT_CLASS {
            shown.settings.push(("max-rate", class.max_rate.saturating_mul(8).to_string()));
        }
        let Some(queue) = queue_of(*handle) else { continue };
        // The kernel keeps a burst as a time, in ticks.
        let settings = wanted.queues.get(&queue).copied().unwrap_or_default();
        let burst = known.class(&settings, link).map_or(class.burst, |wanted| wanted.burst);
        let class = Class { burst, ..*class };
        shown.queues.push((class.settings(known), QueueStats { queue, ..*stats }));
    }
    Ok(shown)
}

/// The queues of a device in order of their numbers; none without a discipline that has queues.
///
/// # Errors
/// Of the kernel.
pub fn queues(ifindex: u32) -> io::Result<Vec<QueueStats>> {
    let device = Device { socket: wire::open_asking()?, ifindex };
    let Some(root) = device.root()?.filter(|root| root.handle == ROOT) else { return Ok(Vec::new()) };
    let Some(known) = Discipline::parse(&format!("linux-{}", root.kind), |_| 0) else {
        return Ok(Vec::new());
    };
    let classes = device.classes(&known)?;
    let stats = |class: &KnownClass| Some(QueueStats { queue: queue_of(class.handle)?, ..class.stats });
    Ok(classes.values().filter_map(stats).collect())
}

impl Device {
    fn request(&self, kind: u16, flags: i32, handle: u32, parent: u32) -> Request {
        Request::change(kind, flags, &message::header(self.ifindex, handle, parent, 0))
    }

    fn call(&self, request: Request) -> io::Result<Vec<TcMessage>> {
        let answers = request.call_on(&self.socket)?;
        Ok(answers.iter().filter_map(|m| TcMessage::parse(&m.body)).collect())
    }

    /// The root discipline; `None`: the system's own.
    fn root(&self) -> io::Result<Option<Root>> {
        // The kernel tells only other sockets about it otherwise.
        let answers = self.call(self.request(libc::RTM_GETQDISC, libc::NLM_F_ECHO, 0, NO_PARENT))?;
        let found = answers.into_iter().find(|m| m.ifindex == self.ifindex);
        // One that the system made has no handle.
        Ok(found.filter(|m| m.handle >> 16 != 0).map(|m| Root { kind: m.kind, handle: m.handle }))
    }

    /// Removes a discipline that is not the system's own.
    fn clear(&self) -> io::Result<()> {
        if self.root()?.is_none() {
            return Ok(());
        }
        match self.call(self.request(libc::RTM_DELQDISC, 0, 0, NO_PARENT)) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Creates the root of a discipline with queues, unless it is there.
    fn set_root(&self, discipline: &Discipline) -> io::Result<()> {
        let kind = kernel_name(discipline);
        if self.root()?.is_some_and(|root| root.kind == kind && root.handle == ROOT) {
            return Ok(());
        }
        self.clear()?;
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut request = self.request(libc::RTM_NEWQDISC, flags, ROOT, NO_PARENT);
        message::add_kind(&mut request, kind);
        message::add_root_options(&mut request, discipline);
        self.call(request).map(drop)
    }

    /// Sets a discipline without queues, in place where it can be changed so.
    fn set_classless(&self, discipline: &Discipline, link: LinkFacts) -> io::Result<()> {
        let kind = kernel_name(discipline);
        let set = |flags| {
            let mut request = self.request(libc::RTM_NEWQDISC, flags | libc::NLM_F_CREATE, ROOT, NO_PARENT);
            message::add_kind(&mut request, kind);
            message::add_classless_options(&mut request, discipline, link);
            self.call(request).map(drop)
        };
        let there = self.root()?.is_some_and(|root| root.kind == kind && root.handle == ROOT);
        if there && set(libc::NLM_F_REPLACE).is_ok() {
            return Ok(());
        }
        self.clear()?;
        set(libc::NLM_F_EXCL)
    }

    fn set_class(
        &self,
        discipline: &Discipline,
        handle: u32,
        parent: u32,
        class: &Class,
        link: LinkFacts,
    ) -> io::Result<()> {
        let mut request = self.request(libc::RTM_NEWTCLASS, libc::NLM_F_CREATE, handle, parent);
        message::add_kind(&mut request, kernel_name(discipline));
        message::add_class_options(&mut request, discipline, class, link);
        self.call(request).map(drop)
    }

    /// Sets the classes of all queues, and deletes those of others.
    fn set_queues(&self, qos: &Qos, link: LinkFacts) -> Result<(), String> {
        let zero = Queue::default();
        let mut wanted: BTreeMap<u32, &Queue> = qos.queues.iter().map(|(n, queue)| (*n, queue)).collect();
        wanted.entry(0).or_insert(&zero);
        let classes = self.classes(&qos.discipline).map_err(|e| text(&e))?;
        let mut errors = Vec::new();
        for handle in
            classes.keys().filter(|handle| queue_of(**handle).is_some_and(|n| !wanted.contains_key(&n)))
        {
            if let Err(e) = self.call(self.request(libc::RTM_DELTCLASS, 0, *handle, 0)) {
                errors.push(format!("class {:x}: {}", handle & 0xffff, text(&e)));
            }
        }
        for (number, queue) in wanted.into_iter().filter(|(number, _)| *number < QUEUES_MAX) {
            let Some(class) = qos.discipline.class(queue, link) else { continue };
            let set = self.set_class(&qos.discipline, handle_of(number), ROOT_CLASS, &class, link);
            errors.extend(set.err().map(|e| format!("queue {number}: {}", text(&e))));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }

    /// All classes by handle.
    fn classes(&self, discipline: &Discipline) -> io::Result<BTreeMap<u32, KnownClass>> {
        let header = message::header(self.ifindex, 0, 0, 0);
        let answers = self.call(Request::dump(libc::RTM_GETTCLASS, &header))?;
        let known = answers.iter().filter(|m| m.ifindex == self.ifindex);
        Ok(known.map(|m| (m.handle, m.class(discipline))).collect())
    }
}

/// The classes in a datagram of the kernel, read as those of `hfsc` and of `htb`.
pub(crate) fn classes_of(bytes: &[u8]) -> Vec<[Class; 2]> {
    let kinds = [Discipline::Hfsc { max_rate: 0 }, Discipline::Htb { max_rate: 0 }];
    let all = wire::messages(bytes).filter_map(|m| TcMessage::parse(&m.body));
    all.map(|m| kinds.map(|kind| m.class(&kind).class)).collect()
}

/// Settings of a discipline without queues, in the order of stock switches.
fn settings_of(discipline: &Discipline, link: LinkFacts) -> Vec<(&'static str, String)> {
    let all: &[(&str, u32)] = match discipline {
        Discipline::Sfq { quantum, perturb } => {
            &[("quantum", if *quantum == 0 { link.mtu } else { *quantum }), ("perturb", *perturb)]
        }
        Discipline::Codel { target, limit, interval } => {
            &[("limit", *limit), ("interval", *interval), ("target", *target)]
        }
        Discipline::FqCodel { target, limit, interval, flows, quantum } => &[
            ("limit", *limit),
            ("quantum", *quantum),
            ("flows", *flows),
            ("interval", *interval),
            ("target", *target),
        ],
        Discipline::Netem { latency, limit, loss, jitter } => {
            &[("jitter", *jitter), ("limit", *limit), ("loss", *loss), ("latency", *latency)]
        }
        // Classes have the settings, or the kernel does not know it.
        _ => &[],
    };
    all.iter().map(|(key, value)| (*key, value.to_string())).collect()
}

/// The system's text of an error, without its number.
fn text(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}
