//! Why a packet ended without being sent: one reason, one counter, for every drop.

/// Why a translation drops.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum XlateDrop {
    /// The rules say so.
    Ok = 0,
    /// The bridge of the port is not there.
    BridgeNotFound = 1,
    /// Too many nested resubmits.
    RecursionTooDeep = 2,
    /// Too many resubmits.
    TooManyResubmits = 3,
    /// The stack of `push` actions grew too large.
    StackTooDeep = 4,
    /// No recirculation context.
    NoRecirculationContext = 5,
    /// Recirculated into another bridge than it came from.
    RecirculationConflict = 6,
    /// More outputs than a megaflow may have.
    TooManyOutputs = 7,
    /// The input port is not there, or does not receive.
    ForwardingDisabled = 8,
    /// The packet's VLAN may not enter by this port.
    VlanNotAllowed = 9,
}

impl XlateDrop {
    /// All reasons.
    pub const ALL: [XlateDrop; 10] = [
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
    ];
}

/// Why the datapath ended a packet. `as usize` indexes a counter array of [`DropReason::COUNT`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum DropReason {
    /// The megaflow has no action or says drop.
    Explicit,
    /// The upcall queue of the port was full.
    UpcallQueueFull,
    /// Too many packets were parked behind one translation.
    ParkedOverflow,
    /// The slow path could not translate.
    UpcallError,
    /// Recirculated too often.
    RecirculationLimit,
    /// A meter's rate was exceeded.
    Meter,
    /// The output port is not there.
    NoPort,
    /// An action did not fit the packet (header missing or cut).
    BadAction,
    /// The frame is shorter than an Ethernet header.
    Runt,
    /// The device refused or the transmit queue was full.
    TxFailed,
    /// Larger than the device's MTU takes.
    TxTooBig,
    /// The device is down.
    TxDown,
    /// Parked or queued when its port, thread or datapath went away.
    PortRemoved,
}

impl DropReason {
    /// How many reasons there are.
    pub const COUNT: usize = 13;
    /// All reasons, in the order of their numbers.
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
    ];

    /// Name for people and machines.
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
        }
    }
}
