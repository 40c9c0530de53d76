//! Disabled parts of the fast path, for measurements: each optimisation has a name by which `sluiced --without`
//! disables it, in favour of the plain implementation; also the maximum burst size (`--batch`). None of this affects
//! forwarding results.
//!
//! Read once from the command line and passed down. It is not in the database, and nothing there overrides it.

use super::held::HOLD_US;
use datapath::{PmdConfig, PmdTuning};
use netdev::{RxMethod, SystemOptions};
use packet::BATCH_MAX_PACKETS;
use std::collections::BTreeSet;
use std::str::FromStr;

/// An optimisation that can be disabled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Optimisation {
    /// Each port's masks sorted by hits.
    Ranking,
    /// The flow cache.
    Cache,
    /// Stages compiled for the widest instruction set of the processor.
    Simd,
    /// Common packets parsed by the template.
    Template,
    /// Actions over groups of packets.
    Groups,
    /// A transmit batch of a `system` port in one call.
    Sendmmsg,
    /// Batched transmission on `system` ports.
    Ring,
    /// Checksums and segmentation offloaded to the devices of `system` ports.
    Offload,
    /// Output of several bursts sent together.
    Hold,
    /// Forwarding threads separate from the main loop.
    Threads,
}

/// All of them: name, and the replacement.
const TABLE: [(Optimisation, &str, &str); 10] = [
    (Optimisation::Ranking, "ranking", "masks of a port are tried in the order in which they were made"),
    (Optimisation::Cache, "cache", "no flow cache, whatever emc-insert-inv-prob and smc-enable say"),
    (Optimisation::Simd, "simd", "stages run as compiled for any processor"),
    (Optimisation::Template, "template", "every packet is parsed by the general parser"),
    (
        Optimisation::Groups,
        "groups",
        "actions run packet by packet, and the headers of recirculated packets are read again",
    ),
    (
        Optimisation::Sendmmsg,
        "sendmmsg",
        "`system` ports send each message (a frame, or a merged run of datagrams) by a sendmsg(2) of its own",
    ),
    (Optimisation::Ring, "ring", "`system` ports receive by recvmmsg(2)"),
    (
        Optimisation::Offload,
        "offload",
        "`system` ports send finished frames only: software fills checksums in and cuts large segments. They still \
         receive such frames with what is left to do, as it could not be done otherwise",
    ),
    (Optimisation::Hold, "hold", "output is sent after each burst, unless tx-flush-interval says otherwise"),
    (
        Optimisation::Threads,
        "threads",
        "no forwarding threads: the main loop polls all ports, beside the database, controllers and commands. Settings of \
         forwarding threads and their caches (pmd-*, tx-flush-interval, emc-insert-inv-prob, smc-enable) have no effect",
    ),
];

/// Unknown name of an optimisation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no optimisation has this name; there are {}", names(TABLE.iter().map(|row| row.0)))]
pub struct UnknownOptimisation;

impl Optimisation {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        TABLE.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }
}

impl FromStr for Optimisation {
    type Err = UnknownOptimisation;

    fn from_str(name: &str) -> Result<Optimisation, UnknownOptimisation> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0).ok_or(UnknownOptimisation)
    }
}

fn names(all: impl Iterator<Item = Optimisation>) -> String {
    all.map(Optimisation::name).collect::<Vec<_>>().join(", ")
}

/// See the module documentation. By default everything is on, and bursts have the default size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ablation {
    without: BTreeSet<Optimisation>,
    burst_packets: usize,
}

impl Default for Ablation {
    fn default() -> Ablation {
        Ablation { without: BTreeSet::new(), burst_packets: Ablation::BURST_PACKETS }
    }
}

impl Ablation {
    /// Default maximum packets of a burst.
    pub const BURST_PACKETS: usize = BATCH_MAX_PACKETS;
    /// Largest permitted burst.
    pub const BURST_MAX_PACKETS: usize = packet::BURST_MAX_PACKETS;

    /// All but these.
    pub fn new(without: impl IntoIterator<Item = Optimisation>) -> Ablation {
        Ablation { without: without.into_iter().collect(), ..Ablation::default() }
    }

    /// Sets the maximum burst size in packets, clamped to 1 to [`Ablation::BURST_MAX_PACKETS`].
    pub fn with_bursts(self, packets: usize) -> Ablation {
        Ablation { burst_packets: packets.clamp(1, Ablation::BURST_MAX_PACKETS), ..self }
    }

    /// Maximum packets received at a time.
    pub(crate) fn burst_packets(&self) -> usize {
        self.burst_packets
    }

    /// Microseconds that output waits for further bursts: 0 for bursts of another size than the default.
    pub(crate) fn hold_us(&self) -> u64 {
        let holds = self.has(Optimisation::Hold) && self.burst_packets == Ablation::BURST_PACKETS;
        if holds { HOLD_US } else { 0 }
    }

    /// The help text of the command line: every name and its meaning.
    pub fn help() -> String {
        let mut text =
            "For measuring only: switch optimisations of the fast path off (comma separated):".to_string();
        for (_, name, instead) in TABLE {
            text += &format!("\n- {name}: {instead}");
        }
        text
    }

    /// Whether an optimisation is on.
    pub fn has(&self, optimisation: Optimisation) -> bool {
        !self.without.contains(&optimisation)
    }

    /// Differences from the default, for the log; `None` without differences.
    pub fn deviation(&self) -> Option<String> {
        let without = names(self.without.iter().copied());
        let bursts = format!("bursts of {} at most", self.burst_packets);
        match (without.is_empty(), self.burst_packets == Ablation::BURST_PACKETS) {
            (true, true) => None,
            (true, false) => Some(bursts),
            (false, true) => Some(format!("without {without}")),
            (false, false) => Some(format!("without {without}; {bursts}")),
        }
    }

    /// Configuration of a forwarding core.
    pub(crate) fn core(&self, config: PmdConfig) -> PmdConfig {
        PmdConfig {
            vector: self.has(Optimisation::Simd),
            template: self.has(Optimisation::Template),
            tuning: self.tuning(config.tuning),
            ..config
        }
    }

    /// Its run-time settings.
    pub(crate) fn tuning(&self, wanted: PmdTuning) -> PmdTuning {
        let cache_insert_inv_prob = match self.has(Optimisation::Cache) {
            true => wanted.cache_insert_inv_prob,
            false => 0,
        };
        let (rank, group) = (self.has(Optimisation::Ranking), self.has(Optimisation::Groups));
        PmdTuning { cache_insert_inv_prob, rank, group, ..wanted }
    }

    /// Options of a `system` port.
    pub(crate) fn system(&self, options: SystemOptions) -> SystemOptions {
        SystemOptions {
            rx_method: match (self.has(Optimisation::Ring), self.has(Optimisation::Threads)) {
                (true, true) => RxMethod::Grow,
                // The main loop does not review queues.
                (true, false) => RxMethod::Ring,
                (false, _) => RxMethod::Recvmmsg,
            },
            sendmmsg: self.has(Optimisation::Sendmmsg),
            tx_offload: self.has(Optimisation::Offload),
            ..options
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpif::PmdId;

    #[test]
    fn each_name_switches_its_own_optimisation_off() {
        let state = |ablation: &Ablation| {
            let core = ablation.core(PmdConfig::new(PmdId::Main, 1));
            let port = ablation.system(SystemOptions::default());
            [
                core.tuning.rank,
                core.tuning.cache_insert_inv_prob != 0,
                core.vector,
                core.template,
                core.tuning.group,
                port.sendmmsg,
                port.rx_method != RxMethod::Recvmmsg,
                port.tx_offload,
                ablation.hold_us() > 0,
                ablation.has(Optimisation::Threads),
            ]
        };
        assert_eq!(state(&Ablation::default()), [true; 10]);
        for (n, (optimisation, name, _)) in TABLE.into_iter().enumerate() {
            assert_eq!(name.parse(), Ok(optimisation));
            let mut wanted = [true; 10];
            wanted[n] = false;
            assert_eq!(state(&Ablation::new([optimisation])), wanted, "{name}");
        }
        assert!("Ring".parse::<Optimisation>().is_err() && "".parse::<Optimisation>().is_err());
        let port = Ablation::new([Optimisation::Offload]).system(SystemOptions::default());
        assert!(port.vnet_hdr, "frames whose checksums are left undone would arrive without a word of it");
    }

    #[test]
    fn no_setting_switches_the_cache_on_again() {
        let ablation = Ablation::new([Optimisation::Cache]);
        for settings in [(None, None), (Some(1), None), (None, Some(true)), (Some(0), Some(true))] {
            let tuning = ablation.tuning(PmdTuning::from_settings(settings.0, settings.1));
            assert_eq!(tuning.cache_insert_inv_prob, 0, "{settings:?}");
        }
    }

    #[test]
    fn differences_from_the_default_are_logged() {
        let deviation = |names: &[&str]| {
            Ablation::new(names.iter().map(|n| n.parse::<Optimisation>().unwrap())).deviation()
        };
        assert_eq!(deviation(&[]), None);
        assert_eq!(deviation(&["ring", "cache", "ring"]).as_deref(), Some("without cache, ring"));
        let bursts = |packets, ablation: Ablation| ablation.with_bursts(packets).deviation();
        assert_eq!(bursts(32, Ablation::default()), None);
        assert_eq!(bursts(1, Ablation::default()).as_deref(), Some("bursts of 1 at most"));
        let both = bursts(1000, Ablation::new([Optimisation::Ring]));
        assert_eq!(both.as_deref(), Some("without ring; bursts of 256 at most"));
        assert_eq!(Ablation::default().with_bursts(0).burst_packets(), 1);
        assert_eq!(Ablation::default().with_bursts(8).hold_us(), 0);
        assert!(Ablation::help().contains("\n- offload: "));
    }
}
