//! [`Kept`]: packet sockets that a keeper holds, so that they outlive the process. Frames wait in the receive sockets for the
//! next process; and the end of this one does not wait for the kernel to close its sockets, 13 ms each.
//!
//! A keeper gets each receive socket under a name, in which the next process reads its port and kind ([`queues_of`]):
//! `rx/PORT/QUEUE/KIND`. The ring of a queue that grows has a name of its own, and only while all frames come by it, so that both
//! together are always whole. The next process has no use for transmit sockets, `tx/PORT/N`.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::lending::{LentKind, LentQueue};

const RECEIVING: &str = "rx";
const SENDING: &str = "tx";

/// Holds descriptors for the next process.
pub trait Keeper: Send + Sync {
    /// Holds a descriptor in place of another one of that name. `id`: of this call.
    fn keep(&self, name: &str, id: u64, fd: &Arc<OwnedFd>);

    /// Holds it no longer, unless a later call gave the name another one.
    fn forget(&self, name: &str, id: u64);
}

static KEEPER: OnceLock<Box<dyn Keeper>> = OnceLock::new();

/// Has a keeper hold the sockets of ports from now on; the first one stays.
pub fn set_keeper(keeper: Box<dyn Keeper>) {
    // A process has one.
    let _ = KEEPER.set(keeper);
}

/// A socket that is kept until this is dropped.
#[derive(Debug)]
pub(crate) struct Kept {
    name: String,
    id: u64,
}

impl Kept {
    /// Has a receive socket of a queue kept; `None` without a keeper.
    pub(crate) fn receiving(port: &str, queue: usize, kind: LentKind, fd: &Arc<OwnedFd>) -> Option<Kept> {
        Kept::of(|_| name_of(port, queue, kind), fd)
    }

    /// Has a transmit socket kept; `None` without a keeper.
    pub(crate) fn sending(port: &str, fd: &Arc<OwnedFd>) -> Option<Kept> {
        Kept::of(|id| format!("{SENDING}/{port}/{id}"), fd)
    }

    fn of(name: impl FnOnce(u64) -> String, fd: &Arc<OwnedFd>) -> Option<Kept> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let keeper = KEEPER.get()?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let kept = Kept { name: name(id), id };
        keeper.keep(&kept.name, kept.id, fd);
        Some(kept)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(keeper) = KEEPER.get() {
            keeper.forget(&self.name, self.id);
        }
    }
}

fn name_of(port: &str, queue: usize, kind: LentKind) -> String {
    format!("{RECEIVING}/{port}/{queue}/{kind}")
}

/// Port, queue and kind of a name; `None`: not one of a receive socket.
fn parse(name: &str) -> Option<(&str, usize, LentKind)> {
    let rest = name.strip_prefix(RECEIVING)?.strip_prefix('/')?;
    // Names of devices have no slash.
    let mut parts = rest.splitn(3, '/');
    let (port, queue, kind) = (parts.next()?, parts.next()?.parse().ok()?, LentKind::parse(parts.next()?)?);
    Some((port, queue, kind))
}

/// Queues of the ports of the last process, out of kept descriptors, and the descriptors that are not of a whole port.
pub fn queues_of(
    kept: impl IntoIterator<Item = (String, OwnedFd)>,
) -> (BTreeMap<String, Vec<LentQueue>>, Vec<OwnedFd>) {
    let (mut ports, mut others) = (BTreeMap::<String, BTreeMap<usize, Sockets>>::new(), Vec::new());
    for (name, fd) in kept {
        let Some((port, queue, kind)) = parse(&name) else {
            others.push(fd);
            continue;
        };
        let sockets = ports.entry(port.to_owned()).or_default().entry(queue).or_default();
        match kind {
            LentKind::Growing(_, _, Some(_)) => sockets.ring = Some((kind, fd)),
            _ => sockets.first = Some((kind, fd)),
        }
    }
    let mut whole = BTreeMap::new();
    for (port, queues) in ports {
        let count = queues.len();
        let is_last = queues.last_key_value().is_some_and(|(last, _)| last + 1 == count);
        let queues: Vec<_> = queues.into_values().map(Sockets::queue).collect();
        if is_last && queues.iter().all(Result::is_ok) {
            whole.insert(port, queues.into_iter().flatten().collect());
        } else {
            others
                .extend(queues.into_iter().flat_map(|queue| queue.map_or_else(|fds| fds, |queue| queue.fds)));
        }
    }
    (whole, others)
}

/// The sockets of a queue.
#[derive(Default)]
struct Sockets {
    first: Option<(LentKind, OwnedFd)>,
    ring: Option<(LentKind, OwnedFd)>,
}

impl Sockets {
    /// The queue, or the descriptors if it is not whole.
    fn queue(self) -> Result<LentQueue, Vec<OwnedFd>> {
        match (self.first, self.ring) {
            (Some((LentKind::Growing(..), base)), Some((kind, ring))) => {
                Ok(LentQueue { kind, fds: vec![base, ring] })
            }
            (Some((kind, fd)), None) => Ok(LentQueue { kind, fds: vec![fd] }),
            (first, ring) => Err([first, ring].into_iter().flatten().map(|(_, fd)| fd).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lending::{LentGroup, LentSocket};

    const SOCKET: LentSocket = LentSocket { vnet_hdr: true, drop_outgoing: false };
    const GROUP: LentGroup = LentGroup { id: 7, mode: 6 };

    fn queues(names: &[String]) -> (BTreeMap<String, Vec<LentQueue>>, Vec<OwnedFd>) {
        let fd = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        queues_of(names.iter().map(|name| (name.clone(), fd())))
    }

    #[test]
    fn names_give_whole_ports_only() {
        let growing = |slots| LentKind::Growing(SOCKET, GROUP, slots);
        let (ports, others) = queues(&[
            name_of("eth0", 0, LentKind::Socket(SOCKET)),
            name_of("eth0", 1, LentKind::Socket(SOCKET)),
            name_of("v1", 0, growing(None)),
            name_of("v2", 0, growing(Some(1024))),
            name_of("v2", 0, growing(None)),
            // Without its first queue; without its base; a ring beside another kind.
            name_of("v3", 1, LentKind::Ring(SOCKET, 64)),
            name_of("v4", 0, growing(Some(1024))),
            name_of("v5", 0, growing(Some(1024))),
            name_of("v5", 0, LentKind::Ring(SOCKET, 64)),
            "rx/v6/0/later".to_owned(),
            "rx/v6".to_owned(),
            "tx/v6/5".to_owned(),
            "connection".to_owned(),
        ]);
        let kinds: Vec<_> = ports
            .iter()
            .map(|(port, queues)| {
                (port.as_str(), queues.iter().map(|q| (q.kind, q.fds.len())).collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(
            kinds,
            [
                ("eth0", vec![(LentKind::Socket(SOCKET), 1); 2]),
                ("v1", vec![(growing(None), 1)]),
                ("v2", vec![(growing(Some(1024)), 2)]),
            ]
        );
        assert_eq!(others.len(), 8);
    }
}
