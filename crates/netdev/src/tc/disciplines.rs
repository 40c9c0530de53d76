//! [`Disciplines`]: the disciplines that a datapath has given to devices, with the ages of their queues.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use dpif::qos::{LinkFacts, Qos, QueueStats, ShownQos};

use super::Refused;

/// See the module documentation. Other devices cost no request.
#[derive(Default)]
pub struct Disciplines {
    known: Mutex<BTreeMap<u32, Given>>,
}

struct Given {
    qos: Arc<Qos>,
    link: LinkFacts,
    /// Creation of its queues.
    since: BTreeMap<u32, Instant>,
}

impl Disciplines {
    fn known(&self) -> MutexGuard<'_, BTreeMap<u32, Given>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a device a discipline; see [`super::apply`].
    ///
    /// # Errors
    /// As there.
    pub fn set(&self, ifindex: u32, qos: Option<&Arc<Qos>>, link: LinkFacts) -> Result<(), Refused> {
        let result = super::apply(ifindex, qos.map(|qos| &**qos), link);
        let mut known = self.known();
        match qos {
            None => drop(known.remove(&ifindex)),
            Some(qos) => {
                let mut since = known.remove(&ifindex).map(|given| given.since).unwrap_or_default();
                since.retain(|queue, _| *queue == 0 || qos.queues.contains_key(queue));
                for queue in qos.queues.keys().chain([&0]) {
                    since.entry(*queue).or_insert_with(Instant::now);
                }
                known.insert(ifindex, Given { qos: qos.clone(), link, since });
            }
        }
        result
    }

    /// The discipline of a device as it is.
    pub fn shown(&self, ifindex: u32) -> ShownQos {
        let given = self.known().get(&ifindex).map(|given| (given.qos.clone(), given.link));
        let shown = given.map(|(qos, link)| super::show(ifindex, &qos, link).unwrap_or_default());
        shown.unwrap_or_default()
    }

    /// The queues of a device, in order of their numbers.
    pub fn queues(&self, ifindex: u32) -> Vec<QueueStats> {
        let known = self.known();
        let Some(given) = known.get(&ifindex).filter(|given| given.qos.discipline.has_queues()) else {
            return Vec::new();
        };
        let age = |queue| given.since.get(&queue).map(|at| at.elapsed().as_millis() as u64);
        let queues = super::queues(ifindex).unwrap_or_default();
        queues.into_iter().map(|stats| QueueStats { age_ms: age(stats.queue), ..stats }).collect()
    }

    /// Forgets a device that is gone.
    pub fn forget(&self, ifindex: u32) {
        self.known().remove(&ifindex);
    }
}
