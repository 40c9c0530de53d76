//! Drop reasons: one reason and one counter for every drop.

/// Reasons for a drop by translation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum XlateDrop {
    /// By rules.
    Ok = 0,
    /// The bridge of the port does not exist.
    BridgeNotFound = 1,
    /// Too many nested resubmits.
    RecursionTooDeep = 2,
    /// Too many resubmits.
    TooManyResubmits = 3,
    /// The stack of `push` actions is full.
    StackTooDeep = 4,
    /// No recirculation context.
    NoRecirculationContext = 5,
    /// Recirculated into another bridge.
    RecirculationConflict = 6,
    /// More actions than a megaflow may have.
    TooManyOutputs = 7,
    /// The input port does not exist, or does not receive.
    ForwardingDisabled = 8,
    /// The port does not accept the packet's VLAN.
    VlanNotAllowed = 9,
    /// More MPLS labels than a flow has.
    TooManyMplsLabels = 10,
    /// Tunnel options do not agree with the bridge's mappings.
    InvalidTunnelMetadata = 11,
    /// The packet's type has no such header to push or pop.
    UnsupportedPacketType = 12,
    /// The outer header of a tunnel has the mark of congestion, and the packet cannot carry it.
    Congestion = 13,
    /// No route to the other end of a tunnel, or the route's device cannot send.
    TunnelNoRoute = 14,
    /// The Ethernet address of a tunnel's next hop is not known yet.
    TunnelNoNeighbour = 15,
}

impl XlateDrop {
    /// Number of reasons.
    pub const COUNT: usize = 16;
    /// All reasons, in numeric order.
    pub const ALL: [XlateDrop; XlateDrop::COUNT] = [
        XlateDrop::Ok,
        XlateDrop::BridgeNotFound,
        XlateDrop::RecursionTooDeep,
        XlateDrop::TooManyResubmits,
        XlateDrop::StackTooDeep,
        XlateDrop::NoRecirculationContext,
        XlateDrop::RecirculationConflict,
        XlateDrop::TooManyOutputs,
        XlateDrop::ForwardingDisabled,
        XlateDrop::VlanNotAllowed,
        XlateDrop::TooManyMplsLabels,
        XlateDrop::InvalidTunnelMetadata,
        XlateDrop::UnsupportedPacketType,
        XlateDrop::Congestion,
        XlateDrop::TunnelNoRoute,
        XlateDrop::TunnelNoNeighbour,
    ];

    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            XlateDrop::Ok => "rules",
            XlateDrop::BridgeNotFound => "bridge_not_found",
            XlateDrop::RecursionTooDeep => "recursion_too_deep",
            XlateDrop::TooManyResubmits => "too_many_resubmits",
            XlateDrop::StackTooDeep => "stack_too_deep",
            XlateDrop::NoRecirculationContext => "no_recirculation_context",
            XlateDrop::RecirculationConflict => "recirculation_conflict",
            XlateDrop::TooManyOutputs => "too_many_outputs",
            XlateDrop::ForwardingDisabled => "forwarding_disabled",
            XlateDrop::VlanNotAllowed => "vlan_not_allowed",
            XlateDrop::TooManyMplsLabels => "too_many_mpls_labels",
            XlateDrop::InvalidTunnelMetadata => "invalid_tunnel_metadata",
            XlateDrop::UnsupportedPacketType => "unsupported_packet_type",
            XlateDrop::Congestion => "congestion",
            XlateDrop::TunnelNoRoute => "tunnel_no_route",
            XlateDrop::TunnelNoNeighbour => "tunnel_no_neighbour",
        }
    }

    /// Its counter in `coverage/show`: the stock switches' name, if any.
    pub fn counter(self) -> &'static str {
        match self {
            XlateDrop::Ok => "drop_action_of_pipeline",
            XlateDrop::BridgeNotFound => "drop_action_bridge_not_found",
            XlateDrop::RecursionTooDeep => "drop_action_recursion_too_deep",
            XlateDrop::TooManyResubmits => "drop_action_too_many_resubmit",
            XlateDrop::StackTooDeep => "drop_action_stack_too_deep",
            XlateDrop::NoRecirculationContext => "drop_action_no_recirculation_context",
            XlateDrop::RecirculationConflict => "drop_action_recirculation_conflict",
            XlateDrop::TooManyOutputs => "drop_action_too_many_outputs",
            XlateDrop::ForwardingDisabled => "drop_action_forwarding_disabled",
            XlateDrop::VlanNotAllowed => "drop_action_vlan_not_allowed",
            XlateDrop::TooManyMplsLabels => "drop_action_too_many_mpls_labels",
            XlateDrop::InvalidTunnelMetadata => "drop_action_invalid_tunnel_metadata",
            XlateDrop::UnsupportedPacketType => "drop_action_unsupported_packet_type",
            XlateDrop::Congestion => "drop_action_congestion",
            XlateDrop::TunnelNoRoute => "drop_action_tunnel_no_route",
            XlateDrop::TunnelNoNeighbour => "drop_action_tunnel_no_neighbour",
        }
    }
}

/// Drop reason of the datapath. `as usize` indexes a counter array of [`DropReason::COUNT`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum DropReason {
    /// The megaflow has no action or an explicit drop.
    Explicit,
    /// The upcall queue of the port was full.
    UpcallQueueFull,
    /// Too many packets were parked behind one translation.
    ParkedOverflow,
    /// The slow path failed to translate.
    UpcallError,
    /// Too many recirculations.
    RecirculationLimit,
    /// A meter's rate was exceeded.
    Meter,
    /// The output port does not exist.
    NoPort,
    /// An action did not fit the packet (header missing or truncated).
    BadAction,
    /// The frame is shorter than an Ethernet header.
    Runt,
    /// The device rejected it, or did not report a result.
    TxFailed,
    /// Larger than the device's MTU.
    TxTooBig,
    /// The device is down.
    TxDown,
    /// Parked or queued when its port, thread or datapath was removed.
    PortRemoved,
    /// The device or its queueing discipline had no buffer.
    TxNoBuffers,
    /// The transmit queue stayed full.
    TxQueueFull,
    /// A large segment, or a partial checksum, that neither the device nor software could complete.
    TxBadOffload,
    /// Headers of a tunnel could not be pushed.
    TunnelPush,
    /// The outer headers are not those of the tunnel, or have a wrong length or checksum.
    TunnelPop,
}

impl DropReason {
    /// Number of reasons.
    pub const COUNT: usize = 18;
    /// All reasons, in numeric order.
    pub const ALL: [DropReason; DropReason::COUNT] = [
        DropReason::Explicit,
        DropReason::UpcallQueueFull,
        DropReason::ParkedOverflow,
        DropReason::UpcallError,
        DropReason::RecirculationLimit,
        DropReason::Meter,
        DropReason::NoPort,
        DropReason::BadAction,
        DropReason::Runt,
        DropReason::TxFailed,
        DropReason::TxTooBig,
        DropReason::TxDown,
        DropReason::PortRemoved,
        DropReason::TxNoBuffers,
        DropReason::TxQueueFull,
        DropReason::TxBadOffload,
        DropReason::TunnelPush,
        DropReason::TunnelPop,
    ];

    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::Explicit => "explicit",
            DropReason::UpcallQueueFull => "upcall_queue_full",
            DropReason::ParkedOverflow => "parked_overflow",
            DropReason::UpcallError => "upcall_error",
            DropReason::RecirculationLimit => "recirculation_limit",
            DropReason::Meter => "meter",
            DropReason::NoPort => "no_port",
            DropReason::BadAction => "bad_action",
            DropReason::Runt => "runt",
            DropReason::TxFailed => "tx_failed",
            DropReason::TxTooBig => "tx_too_big",
            DropReason::TxDown => "tx_down",
            DropReason::PortRemoved => "port_removed",
            DropReason::TxNoBuffers => "tx_no_buffers",
            DropReason::TxQueueFull => "tx_queue_full",
            DropReason::TxBadOffload => "tx_bad_offload",
            DropReason::TunnelPush => "tunnel_push",
            DropReason::TunnelPop => "tunnel_pop",
        }
    }

    /// Its counter in `coverage/show`: the stock switches' name, if any. `None` for [`DropReason::Explicit`], whose
    /// drops are counted by [`XlateDrop`].
    pub fn counter(self) -> Option<&'static str> {
        Some(match self {
            DropReason::Explicit => return None,
            DropReason::UpcallQueueFull => "datapath_drop_upcall_queue_full",
            DropReason::ParkedOverflow => "datapath_drop_parked_overflow",
            DropReason::UpcallError => "datapath_drop_upcall_error",
            DropReason::RecirculationLimit => "datapath_drop_recirc_error",
            DropReason::Meter => "datapath_drop_meter",
            DropReason::NoPort => "datapath_drop_invalid_port",
            DropReason::BadAction => "datapath_drop_bad_action",
            DropReason::Runt => "datapath_drop_rx_invalid_packet",
            DropReason::TxFailed => "datapath_drop_tx_failed",
            DropReason::TxTooBig => "datapath_drop_tx_too_big",
            DropReason::TxDown => "datapath_drop_tx_down",
            DropReason::PortRemoved => "datapath_drop_port_removed",
            DropReason::TxNoBuffers => "datapath_drop_tx_no_buffers",
            DropReason::TxQueueFull => "datapath_drop_tx_queue_full",
            DropReason::TxBadOffload => "datapath_drop_tx_bad_offload",
            DropReason::TunnelPush => "datapath_drop_tunnel_push_error",
            DropReason::TunnelPop => "datapath_drop_tunnel_pop_error",
        })
    }
}
