//! Drop reasons: one row and one counter for every drop.
//!
//! A reason is one row of a registry: variant, display name, counter of `coverage/show`, the name that the kernel's datapath
//! has for it, a sentence of help. docs/drops.md is written from the rows.

use flow::{DpPort, FlowKey};

/// Samples of dropped packets that a listener wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DropSampling {
    /// First bytes of each packet.
    pub packet_bytes: usize,
    /// Packets of each cause in a second.
    pub per_second: u32,
}

/// A dropped packet.
#[derive(Clone, Debug)]
pub struct DroppedPacket {
    /// Why.
    pub cause: DropCause,
    /// The port that it came from or, of a failed transmission, the one that it was for.
    pub port: DpPort,
    /// Its length in bytes.
    pub bytes: usize,
    /// Its first bytes.
    pub packet: Vec<u8>,
    /// Its key, where the actions of a flow dropped it.
    pub key: Option<Box<FlowKey>>,
}

/// A registry of reasons: the enumeration, in the order of its rows, and what each row says.
macro_rules! reasons {
    ($(#[$about:meta])* $registry:ident, $counter_type:ty:
     $($variant:ident, $name:literal, $counter:expr, $kernel:expr, $help:literal;)+) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $registry {
            $(#[doc = $help] $variant,)+
        }

        impl $registry {
            /// All reasons, in numeric order.
            pub const ALL: [$registry; $registry::COUNT] = [$($registry::$variant),+];
            /// Number of reasons.
            pub const COUNT: usize = [$($name),+].len();

            /// Display name.
            pub fn name(self) -> &'static str {
                match self {
                    $($registry::$variant => $name,)+
                }
            }

            /// Its counter in `coverage/show`: the stock switches' name, if any.
            pub fn counter(self) -> $counter_type {
                match self {
                    $($registry::$variant => $counter,)+
                }
            }

            /// The reason with which the kernel's datapath frees such a packet (`skb:kfree_skb`), if it has one.
            pub fn kernel(self) -> Option<&'static str> {
                match self {
                    $($registry::$variant => $kernel,)+
                }
            }

            /// A sentence that says when.
            pub fn help(self) -> &'static str {
                match self {
                    $($registry::$variant => $help,)+
                }
            }
        }
    };
}

/// The kernel's name of drops for an error of translation.
const WITH_ERROR: Option<&str> = Some("OVS_DROP_EXPLICIT_WITH_ERROR");

reasons! {
    /// Reasons for a drop by translation. The number is that of the attribute of the action `drop`.
    XlateDrop, &'static str:
    Ok, "rules", "drop_action_of_pipeline", Some("OVS_DROP_EXPLICIT"), "By rules.";
    BridgeNotFound, "bridge_not_found", "drop_action_bridge_not_found", WITH_ERROR, "The bridge of the port does not exist.";
    RecursionTooDeep, "recursion_too_deep", "drop_action_recursion_too_deep", WITH_ERROR, "Too many nested resubmits.";
    TooManyResubmits, "too_many_resubmits", "drop_action_too_many_resubmit", WITH_ERROR, "Too many resubmits.";
    StackTooDeep, "stack_too_deep", "drop_action_stack_too_deep", WITH_ERROR, "The stack of `push` actions is full.";
    NoRecirculationContext, "no_recirculation_context", "drop_action_no_recirculation_context", WITH_ERROR, "No recirculation context.";
    RecirculationConflict, "recirculation_conflict", "drop_action_recirculation_conflict", WITH_ERROR, "Recirculated into another bridge.";
    TooManyOutputs, "too_many_outputs", "drop_action_too_many_outputs", WITH_ERROR, "More actions than a megaflow may have.";
    ForwardingDisabled, "forwarding_disabled", "drop_action_forwarding_disabled", WITH_ERROR, "The input port does not exist, or does not receive.";
    VlanNotAllowed, "vlan_not_allowed", "drop_action_vlan_not_allowed", WITH_ERROR, "The port does not accept the packet's VLAN.";
    TooManyMplsLabels, "too_many_mpls_labels", "drop_action_too_many_mpls_labels", WITH_ERROR, "More MPLS labels than a flow has.";
    InvalidTunnelMetadata, "invalid_tunnel_metadata", "drop_action_invalid_tunnel_metadata", WITH_ERROR, "Tunnel options do not agree with the bridge's mappings.";
    UnsupportedPacketType, "unsupported_packet_type", "drop_action_unsupported_packet_type", WITH_ERROR, "The packet's type has no such header to push or pop.";
    Congestion, "congestion", "drop_action_congestion", WITH_ERROR, "The outer header of a tunnel has the mark of congestion, and the packet cannot carry it.";
    TunnelNoRoute, "tunnel_no_route", "drop_action_tunnel_no_route", WITH_ERROR, "No route to the other end of a tunnel, or the route's device cannot send.";
    TunnelNoNeighbour, "tunnel_no_neighbour", "drop_action_tunnel_no_neighbour", WITH_ERROR, "The Ethernet address of a tunnel's next hop is not known yet.";
}

reasons! {
    /// Drop reason of the datapath. `as usize` indexes a counter array of [`DropReason::COUNT`]. [`DropReason::Explicit`]
    /// has no counter: [`XlateDrop`] counts its drops.
    DropReason, Option<&'static str>:
    Explicit, "explicit", None, Some("OVS_DROP_LAST_ACTION"), "The megaflow has no action or an explicit drop.";
    UpcallQueueFull, "upcall_queue_full", Some("datapath_drop_upcall_queue_full"), None, "The upcall queue of the port was full.";
    ParkedOverflow, "parked_overflow", Some("datapath_drop_parked_overflow"), None, "Too many packets were parked behind one translation.";
    UpcallError, "upcall_error", Some("datapath_drop_upcall_error"), None, "The slow path failed to translate.";
    RecirculationLimit, "recirculation_limit", Some("datapath_drop_recirc_error"), Some("OVS_DROP_DEFERRED_LIMIT"), "Too many recirculations.";
    Meter, "meter", Some("datapath_drop_meter"), Some("OVS_DROP_METER"), "A meter's rate was exceeded.";
    NoPort, "no_port", Some("datapath_drop_invalid_port"), Some("DEV_READY"), "The output port does not exist.";
    BadAction, "bad_action", Some("datapath_drop_bad_action"), Some("OVS_DROP_ACTION_ERROR"), "An action did not fit the packet (header missing or truncated).";
    Runt, "runt", Some("datapath_drop_rx_invalid_packet"), None, "The frame is shorter than an Ethernet header.";
    TxFailed, "tx_failed", Some("datapath_drop_tx_failed"), None, "The device rejected it, or did not report a result.";
    TxTooBig, "tx_too_big", Some("datapath_drop_tx_too_big"), Some("PKT_TOO_BIG"), "Larger than the device's MTU.";
    TxDown, "tx_down", Some("datapath_drop_tx_down"), Some("DEV_READY"), "The device is down.";
    PortRemoved, "port_removed", Some("datapath_drop_port_removed"), None, "Parked or queued when its port, thread or datapath was removed.";
    TxNoBuffers, "tx_no_buffers", Some("datapath_drop_tx_no_buffers"), None, "The device or its queueing discipline had no buffer.";
    TxQueueFull, "tx_queue_full", Some("datapath_drop_tx_queue_full"), None, "The transmit queue stayed full.";
    TxBadOffload, "tx_bad_offload", Some("datapath_drop_tx_bad_offload"), None, "A large segment, or a partial checksum, that neither the device nor software could complete.";
    TunnelPush, "tunnel_push", Some("datapath_drop_tunnel_push_error"), Some("OVS_DROP_ACTION_ERROR"), "Headers of a tunnel could not be pushed.";
    TunnelPop, "tunnel_pop", Some("datapath_drop_tunnel_pop_error"), None, "The outer headers are not those of the tunnel, or have a wrong length or checksum.";
    TxPoliced, "tx_policed", Some("datapath_drop_tx_policed"), None, "Beyond the rates of the port's policer (`egress-policer`, `trtcm-policer`).";
    TxQosQueueFull, "tx_qos_queue_full", Some("datapath_drop_tx_qos_queue_full"), Some("QDISC_DROP"), "Its queue of the switch's own scheduler was full.";
}

/// A reason of either registry: each drop has exactly one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum DropCause {
    /// By translation, as a part of [`DropReason::Explicit`].
    Xlate(XlateDrop),
    /// By the datapath, for another reason.
    Datapath(DropReason),
}

impl DropCause {
    /// Number of causes, counting [`DropReason::Explicit`], which stands for no cause.
    pub const COUNT: usize = XlateDrop::COUNT + DropReason::COUNT;

    /// All causes, in the order of their indices.
    pub fn all() -> impl Iterator<Item = DropCause> {
        let inside = DropReason::ALL.into_iter().filter(|reason| *reason != DropReason::Explicit);
        XlateDrop::ALL.into_iter().map(DropCause::Xlate).chain(inside.map(DropCause::Datapath))
    }

    /// Its place below [`DropCause::COUNT`].
    pub fn index(self) -> usize {
        match self {
            DropCause::Xlate(why) => why as usize,
            DropCause::Datapath(reason) => XlateDrop::COUNT + reason as usize,
        }
    }

    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            DropCause::Xlate(why) => why.name(),
            DropCause::Datapath(reason) => reason.name(),
        }
    }

    /// The kernel's name, if it has one.
    pub fn kernel(self) -> Option<&'static str> {
        match self {
            DropCause::Xlate(why) => why.kernel(),
            DropCause::Datapath(reason) => reason.kernel(),
        }
    }

    /// A sentence that says when.
    pub fn help(self) -> &'static str {
        match self {
            DropCause::Xlate(why) => why.help(),
            DropCause::Datapath(reason) => reason.help(),
        }
    }

    /// Its counter in `coverage/show`.
    pub fn counter(self) -> Option<&'static str> {
        match self {
            DropCause::Xlate(why) => Some(why.counter()),
            DropCause::Datapath(reason) => reason.counter(),
        }
    }
}
