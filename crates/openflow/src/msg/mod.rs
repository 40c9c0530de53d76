//! Messages as values, independent of version, one file per subject with its structures and their wire forms.
//!
//! A row of the table in `codec` gives the wire form of a value in a version. If a version has several forms
//! of a message (OpenFlow's own and Nicira's), [`Format`] selects one.

pub mod asyncs;
pub mod bundle;
pub mod continuation;
pub mod control;
pub mod ct_flush;
pub mod features;
pub mod flow_mod;
pub mod flow_monitor;
pub mod flow_stats;
pub mod forward;
pub mod group;
pub mod ipfix;
pub mod meter;
mod oxs;
pub mod packet;
pub mod port;
pub mod stats;

use flow::OfPort;
use ofp_wire::ErrorBody;

/// `buffer_id` of "the packet is here, not in a buffer".
pub const NO_BUFFER: u32 = u32::MAX;
/// Any group, in requests.
pub const GROUP_ANY: u32 = u32::MAX;

/// Selects among several wire forms of a message. A form that the version lacks is replaced by the existing
/// one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Format {
    /// The version's standard form.
    #[default]
    Standard,
    /// Nicira's, with NXM matches.
    Nxt,
    /// Nicira's second (`NXT_PACKET_IN2`).
    Nxt2,
}

/// A part of a multipart message. Encoding splits content too long for one message; decoding returns each
/// part separately.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Multi<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// Whether more parts follow.
    pub more: bool,
    /// The wire form.
    pub format: Format,
}

impl<T> Multi<T> {
    /// All entries at once.
    pub fn all(entries: Vec<T>) -> Multi<T> {
        Multi { entries, more: false, format: Format::Standard }
    }
}

/// Declares a wire number as an enumeration.
macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident: $repr:ident { $($(#[$vdoc:meta])* $variant:ident = $n:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr($repr)]
        pub enum $name {
            $($(#[$vdoc])* $variant = $n,)*
        }

        impl $name {
            /// The value of that number.
            pub fn from_wire(n: $repr) -> Option<$name> {
                match n {
                    $($n => Some($name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use wire_enum;

macro_rules! messages {
    ($($(#[$doc:meta])* $variant:ident $(($body:ty))?;)*) => {
        /// An OpenFlow message.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Message {
            $($(#[$doc])* $variant $(($body))?,)*
        }

        /// Kind of a message, without its content.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Kind {
            $($(#[$doc])* $variant,)*
        }

        impl Message {
            /// Its kind.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Message::$variant { .. } => Kind::$variant,)*
                }
            }
        }
    };
}

messages! {
    /// Greeting with the versions spoken.
    Hello(control::Hello);
    /// An error.
    Error(ErrorBody);
    /// An echo request.
    EchoRequest(Vec<u8>);
    /// I am.
    EchoReply(Vec<u8>);
    /// Requests features.
    FeaturesRequest;
    /// Features.
    FeaturesReply(control::SwitchFeatures);
    /// Requests the configuration.
    GetConfigRequest;
    /// The configuration.
    GetConfigReply(control::SwitchConfig);
    /// Sets the configuration.
    SetConfig(control::SwitchConfig);
    /// A packet for the controller.
    PacketIn(packet::PacketIn);
    /// A packet from the controller.
    PacketOut(packet::PacketOut);
    /// Adds, changes or deletes rules.
    FlowMod(flow_mod::FlowMod);
    /// A rule was removed.
    FlowRemoved(flow_mod::FlowRemoved);
    /// Configures a port.
    PortMod(port::PortMod);
    /// A port changed.
    PortStatus(port::PortStatus);
    /// Configures a table.
    TableMod(control::TableMod);
    /// Adds, changes or deletes groups.
    GroupMod(group::GroupMod);
    /// Adds, changes or deletes meters.
    MeterMod(meter::MeterMod);
    /// Requests a reply after all earlier messages are processed.
    BarrierRequest;
    /// All before is done.
    BarrierReply;
    /// Requests a port's queues.
    QueueGetConfigRequest(OfPort);
    /// A port's queues.
    QueueGetConfigReply(stats::QueueConfig);
    /// Requests a role.
    RoleRequest(control::Role);
    /// The role.
    RoleReply(control::Role);
    /// Requests the enabled asynchronous messages.
    GetAsyncRequest;
    /// The enabled asynchronous messages.
    GetAsyncReply(asyncs::AsyncConfig);
    /// Enables asynchronous messages.
    SetAsync(asyncs::AsyncConfig);
    /// A controller's role was changed.
    RoleStatus(control::RoleStatus);
    /// The room in a table passed a threshold.
    TableStatus(control::TableStatus);
    /// A request of another controller.
    RequestForward(forward::RequestForward);
    /// Opens, closes, commits or discards a bundle.
    BundleControl(bundle::BundleControl);
    /// Adds a message to a bundle.
    BundleAdd(bundle::BundleAdd);
    /// `NXT_SET_FLOW_FORMAT`: 0 OpenFlow 1.0, 2 NXM.
    SetFlowFormat(u32);
    /// `NXT_FLOW_MOD_TABLE_ID`.
    FlowModTableId(bool);
    /// `NXT_RESUME`: a packet-in to continue.
    Resume(packet::PacketIn);
    /// `NXT_SET_PACKET_IN_FORMAT`: 0 standard, 1 NXT, 2 NXT2.
    SetPacketInFormat(u32);
    /// `NXT_FLOW_AGE`.
    FlowAge;
    /// `NXT_SET_CONTROLLER_ID`.
    SetControllerId(u16);
    /// `NXT_CT_FLUSH_ZONE`, with the zone.
    CtFlushZone(u16);
    /// `NXT_CT_FLUSH`.
    CtFlush(ct_flush::CtFlush);
    /// `NXT_TLV_TABLE_MOD`.
    TlvTableMod(control::TlvTableMod);
    /// `NXT_TLV_TABLE_REQUEST`.
    TlvTableRequest;
    /// `NXT_TLV_TABLE_REPLY`.
    TlvTableReply(control::TlvTable);
    /// Deletes a monitor of rules, by its id (before OpenFlow 1.4).
    FlowMonitorCancel(u32);
    /// Changes of rules are no longer reported, deletions excepted (before OpenFlow 1.4).
    FlowMonitorPaused;
    /// Changes of rules are reported again (before OpenFlow 1.4).
    FlowMonitorResumed;
    /// Requests the switch's description.
    DescRequest;
    /// The switch's description.
    DescReply(stats::SwitchDesc);
    /// Requests flow statistics.
    FlowStatsRequest(flow_stats::FlowStatsRequest);
    /// Flow statistics.
    FlowStatsReply(Multi<flow_stats::FlowStats>);
    /// Requests aggregate flow statistics.
    AggregateRequest(flow_stats::FlowStatsRequest);
    /// Aggregate flow statistics.
    AggregateReply(flow_stats::AggregateStats);
    /// Requests table statistics.
    TableStatsRequest;
    /// Table statistics.
    TableStatsReply(Multi<stats::TableStats>);
    /// Requests the statistics of a port, or of all (`NONE`).
    PortStatsRequest(OfPort);
    /// Port statistics.
    PortStatsReply(Multi<port::PortStats>);
    /// Requests queue statistics.
    QueueStatsRequest(stats::QueueStatsRequest);
    /// Queue statistics.
    QueueStatsReply(Multi<stats::QueueStats>);
    /// Requests the statistics of a group or of all.
    GroupStatsRequest(group::GroupRequest);
    /// Group statistics.
    GroupStatsReply(Multi<group::GroupStats>);
    /// Requests group descriptions.
    GroupDescRequest(group::GroupRequest);
    /// Group descriptions.
    GroupDescReply(Multi<group::Group>);
    /// Requests the features of groups.
    GroupFeaturesRequest;
    /// Features of groups.
    GroupFeaturesReply(group::GroupFeatures);
    /// Requests the statistics of a meter or of all.
    MeterStatsRequest(u32);
    /// Meter statistics.
    MeterStatsReply(Multi<meter::MeterStats>);
    /// Requests the configuration of a meter or of all.
    MeterConfigRequest(u32);
    /// Meter configurations.
    MeterConfigReply(Multi<meter::Meter>);
    /// Requests the features of meters.
    MeterFeaturesRequest;
    /// Features of meters.
    MeterFeaturesReply(meter::MeterFeatures);
    /// Requests table features; with entries, requests to change them.
    TableFeaturesRequest(Multi<features::TableFeatures>);
    /// Table features.
    TableFeaturesReply(Multi<features::TableFeatures>);
    /// Requests the description of a port, or of all (`NONE`).
    PortDescRequest(OfPort);
    /// Port descriptions.
    PortDescReply(Multi<port::Port>);
    /// Requests the configuration of tables.
    TableDescRequest;
    /// The configuration of tables.
    TableDescReply(Multi<control::TableMod>);
    /// Requests the configuration of queues.
    QueueDescRequest(stats::QueueStatsRequest);
    /// The configuration of queues.
    QueueDescReply(Multi<stats::QueueDesc>);
    /// Requests notifications of rule changes.
    FlowMonitorRequest(Multi<flow_monitor::FlowMonitorRequest>);
    /// Notifications of rule changes.
    FlowMonitorReply(Multi<flow_monitor::FlowUpdate>);
    /// Requests the counters of the bridge's IPFIX exporter.
    IpfixBridgeRequest;
    /// The counters of the bridge's IPFIX exporter.
    IpfixBridgeReply(ipfix::IpfixStats);
    /// Requests the counters of IPFIX exporters of sampled flows.
    IpfixFlowRequest;
    /// The counters of IPFIX exporters of sampled flows.
    IpfixFlowReply(Multi<ipfix::IpfixStats>);
}

impl Message {
    /// The wire form selected by the message.
    pub(crate) fn format(&self) -> Format {
        match self {
            Message::PacketIn(m) => m.format,
            Message::FlowMod(m) => m.format,
            Message::FlowRemoved(m) => m.format,
            Message::GroupMod(m) => m.format,
            Message::RoleRequest(m) | Message::RoleReply(m) => m.format,
            Message::SetAsync(m) => m.format,
            Message::FlowStatsRequest(m) | Message::AggregateRequest(m) => m.format,
            Message::FlowStatsReply(m) => m.format,
            Message::AggregateReply(m) => m.format,
            Message::Hello(_)
            | Message::Error(_)
            | Message::EchoRequest(_)
            | Message::EchoReply(_)
            | Message::FeaturesRequest
            | Message::FeaturesReply(_)
            | Message::GetConfigRequest
            | Message::GetConfigReply(_)
            | Message::SetConfig(_)
            | Message::PacketOut(_)
            | Message::PortMod(_)
            | Message::PortStatus(_)
            | Message::TableMod(_)
            | Message::MeterMod(_)
            | Message::BarrierRequest
            | Message::BarrierReply
            | Message::QueueGetConfigRequest(_)
            | Message::QueueGetConfigReply(_)
            | Message::GetAsyncRequest
            | Message::GetAsyncReply(_)
            | Message::RoleStatus(_)
            | Message::TableStatus(_)
            | Message::RequestForward(_)
            | Message::BundleControl(_)
            | Message::BundleAdd(_)
            | Message::SetFlowFormat(_)
            | Message::FlowModTableId(_)
            | Message::Resume(_)
            | Message::SetPacketInFormat(_)
            | Message::FlowAge
            | Message::SetControllerId(_)
            | Message::CtFlushZone(_)
            | Message::CtFlush(_)
            | Message::TlvTableMod(_)
            | Message::TlvTableRequest
            | Message::TlvTableReply(_)
            | Message::FlowMonitorCancel(_)
            | Message::FlowMonitorPaused
            | Message::FlowMonitorResumed
            | Message::DescRequest
            | Message::DescReply(_)
            | Message::TableStatsRequest
            | Message::TableStatsReply(_)
            | Message::PortStatsRequest(_)
            | Message::PortStatsReply(_)
            | Message::QueueStatsRequest(_)
            | Message::QueueStatsReply(_)
            | Message::GroupStatsRequest(_)
            | Message::GroupStatsReply(_)
            | Message::GroupDescRequest(_)
            | Message::GroupDescReply(_)
            | Message::GroupFeaturesRequest
            | Message::GroupFeaturesReply(_)
            | Message::MeterStatsRequest(_)
            | Message::MeterStatsReply(_)
            | Message::MeterConfigRequest(_)
            | Message::MeterConfigReply(_)
            | Message::MeterFeaturesRequest
            | Message::MeterFeaturesReply(_)
            | Message::TableFeaturesRequest(_)
            | Message::TableFeaturesReply(_)
            | Message::PortDescRequest(_)
            | Message::PortDescReply(_)
            | Message::TableDescRequest
            | Message::TableDescReply(_)
            | Message::QueueDescRequest(_)
            | Message::QueueDescReply(_)
            | Message::FlowMonitorRequest(_)
            | Message::FlowMonitorReply(_)
            | Message::IpfixBridgeRequest
            | Message::IpfixBridgeReply(_)
            | Message::IpfixFlowRequest
            | Message::IpfixFlowReply(_) => Format::Standard,
        }
    }
}
