//! Ports and places of receive queues as they pass between processes; [`Inheritance`]: those of the process that a datapath
//! succeeds.

use flow::DpPort;
use netdev::LentQueue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use sync::{Mutex, lock};

/// A port whose queues are lent.
#[derive(Debug)]
pub struct LentPort {
    /// Its name.
    pub name: String,
    /// Type, as [`PortInfo`](crate::PortInfo) has it.
    pub type_name: String,
    /// Its number.
    pub number: DpPort,
    /// Its receive queues by number; none of a port that has none, or that is opened anew.
    pub queues: Vec<LentQueue>,
}

/// Place of a receive queue at the change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePlace {
    /// Its port.
    pub port: DpPort,
    /// Its number in the port.
    pub queue: u16,
    /// Place of the next frame in memory shared with the kernel.
    pub place: u32,
}

/// Ports of the process that a datapath succeeds, until the change. Copies share one state.
#[derive(Clone, Debug, Default)]
pub struct Inheritance(Option<Arc<Mutex<Inherited>>>);

#[derive(Debug, Default)]
struct Inherited {
    /// Ports by name.
    ports: BTreeMap<String, LentPort>,
    /// Receive queues wait for [`Inheritance::end`].
    is_waiting: bool,
    /// Queues by port that a process left at its end.
    left: BTreeMap<String, Vec<LentQueue>>,
    /// Numbers that ports had in that process.
    numbers: BTreeMap<String, DpPort>,
    /// These numbers.
    reserved: BTreeSet<DpPort>,
    /// Such queues that no port will have.
    refused: Vec<LentQueue>,
    /// The first port that could not be opened by its lent queues.
    fault: Option<String>,
}

/// How a port of a successor is opened.
#[derive(Debug)]
pub enum Opening {
    /// As always.
    Usual,
    /// By lent queues.
    By(Vec<LentQueue>),
    /// Only after the change: the other process may have its device.
    Later,
}

impl Inheritance {
    /// A datapath that succeeds one with these ports.
    pub fn new(ports: Vec<LentPort>) -> Inheritance {
        let ports = ports.into_iter().map(|port| (port.name.clone(), port)).collect();
        let inherited = Inherited { ports, is_waiting: true, ..Inherited::default() };
        Inheritance(Some(Arc::new(Mutex::new(inherited))))
    }

    /// Datapaths that come after a process that has ended, and left receive queues of these `system` ports.
    pub fn of_ended(left: BTreeMap<String, Vec<LentQueue>>) -> Inheritance {
        Inheritance(Some(Arc::new(Mutex::new(Inherited { left, ..Inherited::default() }))))
    }

    /// Whether there are such queues.
    pub fn has_left(&self) -> bool {
        self.0.as_ref().is_some_and(|all| !lock(all).left.is_empty())
    }

    /// Ports have these numbers, as far as those are free, as in the process that ended.
    pub fn renumber(&self, numbers: BTreeMap<String, DpPort>) {
        if let Some(all) = &self.0 {
            let all = &mut *lock(all);
            all.reserved = numbers.values().copied().collect();
            all.numbers = numbers;
        }
    }

    /// Whether a port that had this number may still come.
    pub(crate) fn reserves(&self, number: DpPort) -> bool {
        self.0.as_ref().is_some_and(|all| lock(all).reserved.contains(&number))
    }

    /// The queues of such a port, once, if they have that number.
    pub(crate) fn left_queues(&self, name: &str, count: usize) -> Option<Vec<LentQueue>> {
        let mut all = lock(self.0.as_ref()?);
        let queues = all.left.remove(name)?;
        if queues.len() == count {
            return Some(queues);
        }
        all.refused.extend(queues);
        None
    }

    /// No port takes queues that an ended process left.
    pub fn distrust(&self) {
        if let Some(all) = &self.0 {
            let all = &mut *lock(all);
            all.refused.extend(std::mem::take(&mut all.left).into_values().flatten());
        }
    }

    /// The queues that no port has taken, for their end.
    pub fn take_left(&self) -> Vec<LentQueue> {
        self.distrust();
        self.0.as_ref().map(|all| std::mem::take(&mut lock(all).refused)).unwrap_or_default()
    }

    /// Whether receive queues wait until the datapath has all its ports: for the change, or because frames are in them that would
    /// miss ports.
    pub(crate) fn holds_queues(&self) -> bool {
        self.0.as_ref().map(|all| lock(all)).is_some_and(|all| all.is_waiting || !all.left.is_empty())
    }

    /// The number of a port in the other process.
    pub fn number(&self, name: &str) -> Option<DpPort> {
        let all = lock(self.0.as_ref()?);
        let inherited = all.ports.get(name).filter(|_| all.is_waiting).map(|port| port.number);
        inherited.or_else(|| all.numbers.get(name).copied())
    }

    /// How to open a port, once for lent queues; `has_device`: two processes cannot have it open.
    pub fn opening(&self, name: &str, type_name: &str, has_device: bool) -> Opening {
        let Some(mut all) = self.0.as_ref().map(|all| lock(all)).filter(|all| all.is_waiting) else {
            return Opening::Usual;
        };
        match all.ports.get_mut(name).filter(|port| port.type_name == type_name) {
            Some(port) if !port.queues.is_empty() => Opening::By(std::mem::take(&mut port.queues)),
            _ if has_device => Opening::Later,
            _ => Opening::Usual,
        }
    }

    /// Notes a port that could not be opened by its lent queues.
    pub fn failed(&self, fault: String) {
        if let Some(all) = &self.0 {
            lock(all).fault.get_or_insert(fault);
        }
    }

    /// The first such port.
    pub fn fault(&self) -> Option<String> {
        lock(self.0.as_ref()?).fault.clone()
    }

    /// The change is over: ports are opened as always, and unused queues are closed.
    pub fn end(&self) {
        if let Some(all) = &self.0 {
            let mut all = lock(all);
            (all.ports, all.numbers, all.is_waiting) = (BTreeMap::new(), BTreeMap::new(), false);
            all.reserved = BTreeSet::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netdev::LentKind;

    #[test]
    fn an_inherited_port_is_opened_once_by_its_queues_and_others_after_the_change() {
        let fd = std::fs::File::open("/dev/null").unwrap().into();
        let queues = vec![LentQueue { kind: LentKind::Tap, fds: vec![fd] }];
        let port = |name: &str, type_name: &str, n, queues| LentPort {
            name: name.to_string(),
            type_name: type_name.to_string(),
            number: DpPort(n),
            queues,
        };
        let all = Inheritance::new(vec![port("p1", "tap", 3, queues), port("v1", "vxlan", 4, Vec::new())]);
        assert_eq!(
            (all.number("p1"), all.number("v1"), all.number("p2")),
            (Some(DpPort(3)), Some(DpPort(4)), None)
        );
        assert!(matches!(all.opening("p1", "system", true), Opening::Later), "another type");
        assert!(matches!(all.opening("p1", "tap", true), Opening::By(queues) if queues.len() == 1));
        assert!(matches!(all.opening("p1", "tap", true), Opening::Later), "its queues are taken");
        assert!(matches!(all.opening("v1", "vxlan", false), Opening::Usual));
        assert!(matches!(all.opening("p2", "system", true), Opening::Later));
        all.end();
        assert!(matches!(all.opening("p2", "system", true), Opening::Usual));
        assert_eq!(all.number("p1"), None);
        assert!(matches!(Inheritance::default().opening("p1", "tap", true), Opening::Usual));
    }
}
