//! [`Settings`]: options of datapaths from the command line, and parts of an earlier process.

use crate::inherited::InheritedDatapath;
use dpif::DummyMode;
use dpif_netdev::ablation::Ablation;
use dpif_netdev::{Inheritance, QueueWatch};
use netdev::dummy::DummyPorts;
use ofproto::sampling::SampleSink;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Options of datapaths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Degree of dummy use.
    pub dummies: DummyMode,
    /// The dummies of all datapaths.
    pub dummy_ports: DummyPorts,
    /// Simulated cores, by their NUMA nodes; empty for the machine's own.
    pub numa: Vec<u16>,
    /// Disabled parts of the fast path.
    pub ablation: Ablation,
    /// Watch of the queues polled by the main loop.
    pub watch: Option<Arc<QueueWatch>>,
    /// Takes sampled packets.
    pub samples: Samples,
    /// Datapaths of the process that this one succeeds, by name.
    pub inherited: BTreeMap<String, InheritedDatapath>,
    /// Receive queues of a process that has ended.
    pub left: Inheritance,
    /// Keys of hash functions of datapaths whose flows that process left, by name: they rest until their rules are restored.
    pub kept_seeds: BTreeMap<String, u64>,
}

impl Settings {
    /// The datapath of the process that this one succeeds.
    pub(super) fn inherited(&self, type_name: &str, short: &str) -> Option<&InheritedDatapath> {
        self.inherited.get(&format!("{type_name}@{short}"))
    }

    /// The key of a datapath that begins with kept flows.
    pub(super) fn kept_seed(&self, type_name: &str, short: &str) -> Option<u64> {
        self.kept_seeds.get(&format!("{type_name}@{short}")).copied()
    }
}

/// Takes sampled packets, if anything does.
#[derive(Clone, Default)]
pub(crate) struct Samples(pub(crate) Option<Arc<dyn SampleSink>>);

impl std::fmt::Debug for Samples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Samples({})", self.0.is_some())
    }
}
