//! Flow offload as seen through a datapath: the state of a flow, statistics, and [`FlowOffloads`].

/// Interface of a device that executes flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffloadLayer {
    /// Traffic control of the kernel.
    Tc,
    /// rte_flow of DPDK.
    Dpdk,
}

impl OffloadLayer {
    /// Its name after `dp:` in dumps.
    pub fn name(self) -> &'static str {
        match self {
            OffloadLayer::Tc => "tc",
            OffloadLayer::Dpdk => "dpdk",
        }
    }
}

/// The part of a flow in a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Offloaded {
    /// None, or one without counters.
    #[default]
    No,
    /// The device classifies packets; the datapath executes the actions.
    Partial,
    /// The device executes the actions.
    Full(OffloadLayer),
}

impl Offloaded {
    /// The layer that executes the actions, as after `dp:` in dumps.
    pub fn layer(self) -> &'static str {
        match self {
            Offloaded::No | Offloaded::Partial => "ovs",
            Offloaded::Full(layer) => layer.name(),
        }
    }
}

/// Time from the request of a put to its end, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OffloadLatency {
    /// Average of all puts.
    pub mean_us: u64,
    /// Standard deviation from it.
    pub deviation_us: u64,
    /// Exponential average of recent puts.
    pub recent_us: u64,
    /// Standard deviation from it.
    pub recent_deviation_us: u64,
}

/// Statistics of flow offload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OffloadStats {
    /// Puts that wait.
    pub enqueued: u64,
    /// Rules in devices, as their providers count them.
    pub inserted: u64,
    /// Puts and changes refused: by a device, by a limit, or because too many waited.
    pub refused: u64,
    /// Averages.
    pub latency: OffloadLatency,
}

/// Flow offload of a datapath.
pub trait FlowOffloads {
    /// Offloads flows of ports whose devices can, from now on (`other_config:hw-offload`).
    fn enable(&self);

    /// Statistics; `None` if offload is not enabled.
    fn stats(&self) -> Option<OffloadStats>;
}
