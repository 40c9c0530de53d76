//! Datapaths and the flows that outlive a process ([`crate::state`]): they begin with those of the last one, and rest until
//! their rules are restored.

use super::{Instance, Instances};
use crate::state::{FlowSource, KeptDatapath, KeptFlows};
use dpif::{DpifOp, FlowPut, OpResult, PmdId, PortInfo, PutMode};
use flow::DpPort;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

/// Flows sent to a thread at a time.
const FLOWS_AT_ONCE: usize = 256;

impl Instance {
    /// Whether it rests until its rules are restored.
    pub(crate) fn awaits_rules(&self) -> bool {
        self.awaits_rules
    }

    /// Installs flows of the last process, as far as their ports are the same; returns their number.
    pub(crate) fn install(&self, kept: KeptDatapath) -> usize {
        let Some(datapath) = &self.userspace else { return 0 };
        let place = |port: &PortInfo| (port.number, port.type_name.clone(), port.name.clone());
        let before: BTreeSet<_> = kept.ports.iter().map(place).collect();
        let present = self.datapath.ports();
        let same = present.iter().filter(|port| before.contains(&place(port)));
        let same: BTreeSet<DpPort> = same.map(|port| port.number).collect();
        let mut receivers: BTreeMap<DpPort, Vec<PmdId>> = BTreeMap::new();
        let mut by_thread: BTreeMap<PmdId, Vec<DpifOp>> = BTreeMap::new();
        let mut installed = 0;
        let mut is_served = true;
        for flow in kept.flows.into_iter().filter(|flow| flow.uses(|port| same.contains(&port))) {
            let port = flow.flow.in_port();
            let receivers = receivers.entry(port).or_insert_with(|| datapath.receivers(port));
            let same = receivers.iter().find(|pmd| **pmd == PmdId::Core(flow.core));
            let Some(pmd) = same.or(receivers.first()).copied() else { continue };
            let (key, mask) = (flow.flow.key(), flow.flow.mask());
            let put = FlowPut { ufid: flow.ufid, key, mask, actions: flow.actions, mode: PutMode::Create };
            let puts = by_thread.entry(pmd).or_default();
            puts.push(DpifOp::FlowPut(Box::new(put)));
            if puts.len() >= FLOWS_AT_ONCE {
                installed += self.put(pmd, std::mem::take(puts), &mut is_served);
            }
        }
        let rest = by_thread.into_iter();
        installed + rest.map(|(pmd, puts)| self.put(pmd, puts, &mut is_served)).sum::<usize>()
    }

    /// Puts flows on a thread, while all answer; returns the number of those that it has.
    fn put(&self, pmd: PmdId, puts: Vec<DpifOp>, is_served: &mut bool) -> usize {
        let asked = is_served.then(|| self.ask(pmd, puts)).unwrap_or_else(|| Ok(Vec::new()));
        if let Err(e) = &asked {
            *is_served = false;
            log::warn!(target: "state", "{}: flows of the last process are left out: {e}", self.name());
        }
        asked.iter().flatten().filter(|result| matches!(result, OpResult::Done)).count()
    }

    /// The source of its flows for the next process; `None`: flows of a datapath of the kernel stay there.
    fn flow_source(&self) -> Option<FlowSource> {
        let changes = self.userspace.as_ref()?.port_changes();
        let then = changes.load(Ordering::Acquire);
        Some(FlowSource {
            datapath: self.name().to_string(),
            hash_seed: self.hash_seed,
            ports: self.datapath.ports(),
            backer: self.backer.clone(),
            changes: (changes, then),
        })
    }

    /// Its rules are restored: it serves upcalls and checks flows, unless scripts restore rules too.
    fn rules_restored(&mut self, waits_for_scripts: bool) {
        if std::mem::take(&mut self.awaits_rules) && !waits_for_scripts {
            self.slow.begin();
            self.set_handlers();
            self.slow.log_threads();
        }
    }
}

impl Instances {
    /// Has datapaths begin with flows of the last process: sets the keys of their hash functions, and the numbers of ports.
    pub(crate) fn begin_with(&mut self, kept: &KeptFlows) {
        let all = kept.datapaths.iter();
        self.settings.kept_seeds = all.map(|(name, kept)| (name.clone(), kept.hash_seed)).collect();
        let ports = kept.datapaths.values().flat_map(|kept| &kept.ports);
        self.settings.left.renumber(ports.map(|port| (port.name.clone(), port.number)).collect());
    }

    /// Whether receive queues of the last process wait for their ports.
    pub(crate) fn have_left_queues(&self) -> bool {
        self.settings.left.has_left()
    }

    /// The rules of all datapaths are restored.
    pub(crate) fn rules_restored(&mut self) {
        self.settings.kept_seeds = BTreeMap::new();
        let waits_for_scripts = self.global.as_ref().is_some_and(|global| global.flow_restore_wait);
        self.all_mut().for_each(|instance| instance.rules_restored(waits_for_scripts));
    }

    /// Numbers of changes of the ports of datapaths whose flows are kept.
    pub(crate) fn port_changes(&self) -> Vec<u64> {
        let userspace = self.iter().filter_map(|instance| instance.userspace.as_ref());
        userspace.map(|datapath| datapath.port_changes().load(Ordering::Acquire)).collect()
    }

    /// The sources of flows for the next process.
    pub(crate) fn flow_sources(&self) -> Vec<FlowSource> {
        self.iter().filter_map(Instance::flow_source).collect()
    }
}
