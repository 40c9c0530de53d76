//! What a translation reads: an immutable view of all bridges and the map from datapath ports to them.

use crate::mac_table::MacTable;
use crate::ports::{BridgeId, PortTable};
use crate::tables::Tables;
use crate::tunnel::TunnelPorts;
use flow::{DpPort, FlowKey, OfPort};
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::{AtomicU64, Mutex, Ordering};

/// For which controllers of a bridge packets are made. Says yes when in doubt: of controllers whose ids are equal modulo 64, and as
/// long as nobody has said who listens.
#[derive(Debug)]
pub struct Listeners(AtomicU64);

impl Default for Listeners {
    fn default() -> Listeners {
        Listeners(AtomicU64::new(u64::MAX))
    }
}

impl Listeners {
    /// Those that are told of packets from now on, by their ids.
    pub fn set(&self, controllers: impl Iterator<Item = u16>) {
        self.0.store(controllers.fold(0, |all, id| all | 1 << (id % 64)), Ordering::Release);
    }

    /// Whether a packet for the controllers of that id is to be made.
    pub fn want(&self, controller_id: u16) -> bool {
        self.0.load(Ordering::Acquire) >> (controller_id % 64) & 1 != 0
    }
}

/// How a bridge treats IP fragments (`OFPC_FRAG_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FragHandling {
    /// To its rules, the transport ports of all fragments are 0.
    #[default]
    Normal,
    /// They are dropped.
    Drop,
    /// Its rules see the transport ports of first fragments (`OFPC_FRAG_NX_MATCH`).
    NxMatch,
}

impl FragHandling {
    /// `OFPC_FRAG_MASK`.
    pub const MASK: u16 = 3;

    /// The bits of `OFPT_GET_CONFIG_REPLY`.
    pub fn to_flags(self) -> u16 {
        match self {
            FragHandling::Normal => 0,
            FragHandling::Drop => 1,
            FragHandling::NxMatch => 3,
        }
    }

    /// What the bits of `OFPT_SET_CONFIG` ask for; `None` for reassembly, which this switch does not do.
    pub fn from_flags(flags: u16) -> Option<FragHandling> {
        match flags & FragHandling::MASK {
            0 => Some(FragHandling::Normal),
            1 => Some(FragHandling::Drop),
            3 => Some(FragHandling::NxMatch),
            _ => None,
        }
    }
}

/// One bridge at one moment.
#[derive(Clone)]
pub struct BridgeView {
    /// Its number.
    pub id: BridgeId,
    /// Its name.
    pub name: Arc<str>,
    /// Flow tables.
    pub tables: Tables,
    /// Ports and bundles.
    pub ports: Arc<PortTable>,
    /// Learned addresses: shared by all versions of the view.
    pub macs: Arc<Mutex<MacTable>>,
    /// Datapath numbers of the bridge's meters, by OpenFlow number.
    pub meters: Arc<BTreeMap<u32, u32>>,
    /// Packets that no rule of a table matches go to the controllers (connections of OpenFlow 1.2 or older want that).
    pub miss_to_controller: bool,
    /// Who is told of packets for controllers: shared by all versions of the view.
    pub listeners: Arc<Listeners>,
    /// `NORMAL` forwards the reserved multicast addresses of 802.1D.
    pub forward_bpdu: bool,
    /// What becomes of IP fragments.
    pub frags: FragHandling,
}

/// All bridges of one datapath at one moment.
#[derive(Clone, Default)]
pub struct View {
    /// Bridges by number.
    pub bridges: BTreeMap<BridgeId, Arc<BridgeView>>,
    /// Which bridge and OpenFlow port a datapath port is, unless it is one of tunnels.
    pub dp_ports: BTreeMap<DpPort, (BridgeId, OfPort)>,
    /// The same for tunnels.
    pub tunnels: TunnelPorts,
}

impl View {
    /// The bridge.
    pub fn bridge(&self, id: BridgeId) -> Option<&Arc<BridgeView>> {
        self.bridges.get(&id)
    }

    /// The bridge of that name.
    pub fn bridge_by_name(&self, name: &str) -> Option<&Arc<BridgeView>> {
        self.bridges.values().find(|b| &*b.name == name)
    }

    /// Bridge and OpenFlow port that a packet of this key came in by.
    pub fn receiver(&self, key: &FlowKey) -> Option<(&Arc<BridgeView>, OfPort)> {
        let of_device = || self.dp_ports.get(&key.in_port()).copied();
        let (bridge, of_port) = self.tunnels.receiver(key).or_else(of_device)?;
        Some((self.bridges.get(&bridge)?, of_port))
    }
}
