//! [`DpShared`]: state shared by all forwarding cores of a datapath: meters, connections, fragments that wait for others.

use crate::actions::Fragment;
use crate::bonds::Bonds;
use crate::meter::{self, Meters};
use conntrack::Tracker;
use conntrack::ipf::{Ipf, OutOfRange};
use dpif::{BondBalancer, EgressPorts, FragmentList, FragmentStatus, OpCounts, TunnelPort};
use flow::DpPort;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use sync::{AtomicU32, AtomicU64, Ordering, Snapshot};

/// See the module.
pub struct DpShared {
    pub(crate) meters: Meters,
    pub(crate) bonds: Bonds,
    /// Operations of all cores.
    pub ops: OpCounts,
    /// Secret.
    seed: u64,
    /// Made when first used: it takes some megabytes.
    tracker: OnceLock<Tracker>,
    fragments: OnceLock<Ipf<Fragment>>,
    /// Ports that share the kept places of the tracker.
    ports: AtomicU32,
    /// Tunnel ports.
    pub(crate) tunnels: Snapshot<BTreeMap<DpPort, TunnelPort>>,
    /// UDP source ports of tunnels: the first in the upper half, the last in the lower.
    egress_ports: AtomicU32,
    /// Number of VLAN tags in keys.
    vlan_limit: AtomicU32,
    /// Sequence numbers, one for each [`Sequence`].
    sequences: [AtomicU32; 4],
    /// Offset of the wall clock from the time of the cores, in microseconds.
    wall_ahead_us: AtomicU64,
}

/// Tunnels that number their packets together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sequence {
    Gre,
    Ip6gre,
    Erspan,
    Ip6erspan,
}

impl Sequence {
    pub(crate) fn of_gre(is_v6: bool) -> Sequence {
        if is_v6 { Sequence::Ip6gre } else { Sequence::Gre }
    }

    pub(crate) fn of_erspan(is_v6: bool) -> Sequence {
        if is_v6 { Sequence::Ip6erspan } else { Sequence::Erspan }
    }
}

impl DpShared {
    /// Without meters and connections; `seed` is secret.
    pub fn new(seed: u64) -> DpShared {
        DpShared {
            meters: meter::none(),
            bonds: Bonds::default(),
            ops: OpCounts::default(),
            seed,
            tracker: OnceLock::new(),
            fragments: OnceLock::new(),
            ports: AtomicU32::new(1),
            tunnels: Snapshot::new(BTreeMap::new()),
            egress_ports: AtomicU32::new(EgressPorts::default().to_bits()),
            vlan_limit: AtomicU32::new(1),
            sequences: Default::default(),
            wall_ahead_us: AtomicU64::new(0),
        }
    }

    /// Bonds that the cores balance.
    pub fn bond_balancer(&self) -> &dyn BondBalancer {
        &self.bonds
    }

    /// Adds, replaces or removes a tunnel port. Changes come from one thread at a time.
    pub fn set_tunnel(&self, port: DpPort, tunnel: Option<TunnelPort>) {
        let mut all = BTreeMap::clone(&self.tunnels.load());
        match tunnel {
            Some(tunnel) => drop(all.insert(port, tunnel)),
            None => drop(all.remove(&port)),
        }
        self.tunnels.store(Arc::new(all));
    }

    /// UDP source ports of tunnels.
    #[inline]
    pub fn egress_ports(&self) -> EgressPorts {
        EgressPorts::from_bits(self.egress_ports.load(Ordering::Relaxed))
    }

    /// Sets them.
    pub fn set_egress_ports(&self, ports: EgressPorts) {
        self.egress_ports.store(ports.to_bits(), Ordering::Relaxed);
    }

    /// Number of VLAN tags in keys.
    #[inline]
    pub fn vlan_limit(&self) -> u8 {
        self.vlan_limit.load(Ordering::Relaxed) as u8
    }

    /// Sets it, at most [`flow::extract::MAX_VLANS`]: cores follow with their next burst. Flows stay, and match keys
    /// of the former limit.
    pub fn set_vlan_limit(&self, tags: u8) {
        self.vlan_limit.store(tags.into(), Ordering::Relaxed);
    }

    pub(crate) fn next_sequence(&self, of: Sequence) -> u32 {
        self.sequences[of as usize].fetch_add(1, Ordering::Relaxed)
    }

    /// Sets the wall clock, for timestamps of ERSPAN: microseconds since 1970 at the time `now_us` of the cores.
    pub fn set_wall_clock(&self, wall_us: u64, now_us: u64) {
        self.wall_ahead_us.store(wall_us.wrapping_sub(now_us), Ordering::Relaxed);
    }

    /// The wall clock at a time of the cores.
    pub(crate) fn wall_us(&self, now_us: u64) -> u64 {
        now_us.wrapping_add(self.wall_ahead_us.load(Ordering::Relaxed))
    }

    /// Its connection tracker.
    #[inline]
    pub fn tracker(&self) -> &Tracker {
        self.tracker.get_or_init(|| {
            let tracker = Tracker::new(self.seed);
            tracker.set_ports(self.ports.load(Ordering::Relaxed));
            tracker
        })
    }

    /// Sets the number of ports, which share the kept places of the tracker. Repeat it: a tracker that is made meanwhile
    /// may miss a change.
    pub fn set_ports(&self, ports: u32) {
        self.ports.store(ports, Ordering::Relaxed);
        if let Some(tracker) = self.tracker.get() {
            tracker.set_ports(ports);
        }
    }

    /// Whether connections or fragments are, or were, there.
    pub fn tracks(&self) -> bool {
        self.tracker.get().is_some() || self.fragments.get().is_some()
    }

    /// The tracker, unless nothing was tracked or configured yet.
    pub fn tracker_in_use(&self) -> Option<&Tracker> {
        self.tracker.get()
    }

    pub(crate) fn fragments(&self) -> &Ipf<Fragment> {
        self.fragments.get_or_init(|| Ipf::new(self.seed.rotate_left(17)))
    }

    /// Settings and counters of reassembly.
    pub fn fragment_status(&self) -> FragmentStatus {
        self.fragments().status()
    }

    /// Incomplete datagrams.
    pub fn fragment_lists(&self) -> Vec<FragmentList> {
        self.fragments().lists()
    }

    /// Enables or disables reassembly of an address family.
    pub fn set_reassembly(&self, v6: bool, enabled: bool) {
        self.fragments().set_enabled(v6, enabled);
    }

    /// Sets the minimum size of all fragments but the last, in bytes.
    ///
    /// # Errors
    /// Below the least value.
    pub fn set_min_fragment_bytes(&self, v6: bool, bytes: u32) -> Result<(), OutOfRange> {
        self.fragments().set_min_fragment_bytes(v6, bytes)
    }

    /// Sets the maximum number of fragments held.
    ///
    /// # Errors
    /// Above the greatest value.
    pub fn set_max_fragments(&self, max: u32) -> Result<(), OutOfRange> {
        self.fragments().set_max_fragments(max)
    }

    /// Drops fragments whose datagram was not complete in time, at most that many; returns their number.
    pub fn expire_fragments(&self, now_ms: u64, at_most: usize) -> usize {
        self.fragments.get().map_or(0, |fragments| fragments.expire(now_ms, at_most).len())
    }
}
