//! OpenFlow actions and instructions, independent of version and encoding.
//!
//! One list holds both: in OpenFlow 1.1 and later, the instructions stand behind the applied actions in the standard's
//! order (meter, apply, clear, write actions, write metadata, goto table), as [`instruction_order_ok`] checks. An empty
//! list drops. Sources: OpenFlow 1.0 §5.2.4 and 1.3 §7.2.4, §7.2.5; the Nicira extension actions (`NXAST_*`).

use crate::fields::FieldId;
use crate::flow::Flow;
use crate::types::{OfPort, TableId};

/// A range of bits of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SubField {
    /// The field.
    pub field: FieldId,
    /// Lowest bit.
    pub offset_bits: u16,
    /// How many bits, at least 1.
    pub len_bits: u16,
}

impl SubField {
    /// The whole field.
    pub fn whole(field: FieldId) -> SubField {
        SubField { field, offset_bits: 0, len_bits: u16::from(field.def().bits) }
    }

    /// Whether the range lies within the field.
    pub fn is_valid(&self) -> bool {
        let end = u32::from(self.offset_bits) + u32::from(self.len_bits);
        self.len_bits > 0 && end <= u32::from(self.field.def().bits)
    }

    /// The bits of the range, as a mask of the field; of a range beyond every field: none.
    pub fn field_mask(&self) -> u128 {
        let ones = if self.len_bits >= 128 { u128::MAX } else { (1 << self.len_bits) - 1 };
        ones.checked_shl(self.offset_bits.into()).unwrap_or(0)
    }

    /// Value of the range in `flow`.
    pub fn get(&self, flow: &Flow) -> u128 {
        (self.field.get(flow) & self.field_mask()).checked_shr(self.offset_bits.into()).unwrap_or(0)
    }

    /// Writes the range of `flow`; higher bits of `value` are ignored.
    pub fn set(&self, flow: &mut Flow, value: u128) {
        let mask = self.field_mask();
        let old = self.field.get(flow);
        let value = value.checked_shl(self.offset_bits.into()).unwrap_or(0);
        self.field.set(flow, old & !mask | value & mask);
    }

    /// Adds the range to a mask over a flow.
    pub fn add_mask(&self, mask_flow: &mut Flow) {
        self.field.add_mask(mask_flow, self.field_mask());
    }
}

/// How a field assignment was written, so that it is shown and encoded in the same way again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SetStyle {
    /// `set_field:VALUE/MASK->FIELD` (`OFPAT_SET_FIELD`, `NXAST_REG_LOAD2`).
    SetField,
    /// `load:VALUE->FIELD[BITS]` (`NXAST_REG_LOAD`).
    Load,
}

/// Why a packet goes to a controller (`OFPR_*`, wire numbers of OpenFlow 1.3 §7.4.1 and later).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PacketInReason {
    /// No rule matched.
    NoMatch = 0,
    /// An output action.
    Action = 1,
    /// Time to live too small.
    InvalidTtl = 2,
    /// An action set's output (OpenFlow 1.4).
    ActionSet = 3,
    /// A group's output (OpenFlow 1.4).
    Group = 4,
    /// A packet-out's output (OpenFlow 1.4).
    PacketOut = 5,
}

/// Sends the packet to the controllers (`NXAST_CONTROLLER`, `NXAST_CONTROLLER2`, output to `CONTROLLER`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ControllerAction {
    /// At most this many bytes of the packet (65535: all).
    pub max_len_bytes: u16,
    /// Connections with this id only.
    pub controller_id: u16,
    /// Told in the packet-in.
    pub reason: PacketInReason,
    /// Told in the packet-in (Nicira format 2).
    pub userdata: Vec<u8>,
    /// Freeze the translation, to be resumed by the controller.
    pub pause: bool,
    /// Limits the rate.
    pub meter_id: Option<u32>,
}

impl ControllerAction {
    /// What an output to `CONTROLLER` stands for.
    pub fn plain(max_len_bytes: u16) -> ControllerAction {
        ControllerAction {
            max_len_bytes,
            controller_id: 0,
            reason: PacketInReason::Action,
            userdata: Vec::new(),
            pause: false,
            meter_id: None,
        }
    }

    /// Whether it says no more than an output to `CONTROLLER`.
    pub fn is_plain(&self) -> bool {
        *self == ControllerAction::plain(self.max_len_bytes)
    }
}

/// Source of a `learn` specification.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnSource {
    /// Bits of the packet.
    Field(SubField),
    /// A constant, right-aligned.
    Immediate(u128),
}

/// Destination of a `learn` specification.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnDest {
    /// The new rule matches on these bits.
    Match(SubField),
    /// The new rule loads into these bits.
    Load(SubField),
    /// The new rule outputs to the port in the source.
    Output,
}

/// One specification of a `learn` action: `len_bits` bits from source to destination.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LearnSpec {
    /// From where.
    pub source: LearnSource,
    /// To where.
    pub dest: LearnDest,
    /// How many bits.
    pub len_bits: u16,
}

/// Adds or refreshes a rule made from the packet (`NXAST_LEARN`, `NXAST_LEARN2`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LearnAction {
    /// Idle timeout of the new rule, 0 for none.
    pub idle_timeout_s: u16,
    /// Hard timeout of the new rule, 0 for none.
    pub hard_timeout_s: u16,
    /// Priority of the new rule.
    pub priority: u16,
    /// Cookie of the new rule.
    pub cookie: u64,
    /// Table of the new rule.
    pub table: TableId,
    /// Send a flow-removed message when the rule ends.
    pub send_flow_rem: bool,
    /// Delete the learned rules when the rule with this action is deleted.
    pub delete_learned: bool,
    /// Idle timeout after a FIN or RST.
    pub fin_idle_timeout_s: u16,
    /// Hard timeout after a FIN or RST.
    pub fin_hard_timeout_s: u16,
    /// At most so many rules with this cookie in this table; 0 for no limit.
    pub limit: u32,
    /// A bit that says afterwards whether the rule is there.
    pub result_dst: Option<SubField>,
    /// What the new rule consists of.
    pub specs: Vec<LearnSpec>,
}

/// An action or instruction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Output to a port; to `CONTROLLER` see [`Action::Controller`].
    Output {
        /// Where to.
        port: OfPort,
        /// Bytes for a controller.
        max_len_bytes: u16,
    },
    /// Output to the port whose number is in a field.
    OutputReg {
        /// The field.
        source: SubField,
        /// Bytes for a controller.
        max_len_bytes: u16,
    },
    /// Send to the controllers.
    Controller(Box<ControllerAction>),
    /// Output through a queue of a port (OpenFlow 1.0 `ENQUEUE`).
    Enqueue {
        /// Port.
        port: OfPort,
        /// Queue.
        queue: u32,
    },
    /// Sets the queue for later outputs.
    SetQueue(u32),
    /// Forgets the queue.
    PopQueue,
    /// Sets bits of a field.
    SetField {
        /// Field.
        field: FieldId,
        /// New value, within `mask`.
        value: u128,
        /// Bits to set.
        mask: u128,
        /// How it was written.
        style: SetStyle,
    },
    /// Copies bits (`NXAST_REG_MOVE`).
    Move {
        /// From.
        source: SubField,
        /// To, of the same length.
        dest: SubField,
    },
    /// Pushes bits on the stack.
    StackPush(SubField),
    /// Pops bits off the stack.
    StackPop(SubField),
    /// `OFPAT_SET_VLAN_VID` of OpenFlow 1.0: sets the VLAN, pushing a tag when there is none.
    SetVlanVid(u16),
    /// `OFPAT_SET_VLAN_PCP` of OpenFlow 1.0.
    SetVlanPcp(u8),
    /// Removes the outermost tag, if there is one.
    StripVlan,
    /// Pushes a tag with this EtherType.
    PushVlan(u16),
    /// `OFPAT_SET_DL_SRC`.
    SetEthSrc(crate::MacAddr),
    /// `OFPAT_SET_DL_DST`.
    SetEthDst(crate::MacAddr),
    /// `OFPAT_SET_NW_SRC`.
    SetIpv4Src(u32),
    /// `OFPAT_SET_NW_DST`.
    SetIpv4Dst(u32),
    /// `OFPAT_SET_NW_TOS`: the DSCP bits in place (low two bits zero).
    SetIpDscp(u8),
    /// `OFPAT_SET_NW_ECN` (OpenFlow 1.1).
    SetIpEcn(u8),
    /// `OFPAT_SET_NW_TTL`.
    SetIpTtl(u8),
    /// `OFPAT_SET_TP_SRC`.
    SetL4Src(u16),
    /// `OFPAT_SET_TP_DST`.
    SetL4Dst(u16),
    /// Decrements the time to live; at 1 or less the packet goes to the controllers with these ids instead.
    DecTtl {
        /// Controller ids; `[0]` when written without any.
        controllers: Vec<u16>,
    },
    /// Sets the tunnel key (`NXAST_SET_TUNNEL`, `NXAST_SET_TUNNEL64`).
    SetTunnel {
        /// Key.
        id: u64,
        /// Written in the 64-bit form.
        wide: bool,
    },
    /// Looks the packet up in a table and continues behind (`NXAST_RESUBMIT`, `NXAST_RESUBMIT_TABLE`).
    Resubmit {
        /// With this input port; `IN_PORT` keeps it.
        in_port: OfPort,
        /// In this table; `None` means the current one.
        table: Option<TableId>,
    },
    /// Adds a rule.
    Learn(Box<LearnAction>),
    /// Shortens the timeouts of its own rule when a TCP connection ends (`NXAST_FIN_TIMEOUT`); 0 leaves one as it is.
    FinTimeout {
        /// Idle timeout behind a FIN or RST.
        idle_timeout_s: u16,
        /// Hard timeout behind one.
        hard_timeout_s: u16,
    },
    /// Does nothing; carries bytes.
    Note(Vec<u8>),
    /// Ends the translation of this packet's actions.
    Exit,
    /// Freezes the translation and resumes it by recirculation: a test action.
    DebugRecirc,
    /// Makes the datapath flow slow-pathed: a test action.
    DebugSlow,
    /// Instruction: passes through a meter.
    Meter(u32),
    /// Instruction: empties the action set.
    ClearActions,
    /// Instruction: merges into the action set.
    WriteActions(Vec<Action>),
    /// Instruction: sets bits of the metadata.
    WriteMetadata {
        /// Value.
        value: u64,
        /// Bits.
        mask: u64,
    },
    /// Instruction: continues in a later table.
    GotoTable(TableId),
}

impl Action {
    /// Place in the order of instructions: meter, applied actions, clear, write, metadata, goto.
    pub fn instruction_rank(&self) -> u8 {
        match self {
            Action::Meter(_) => 0,
            Action::ClearActions => 2,
            Action::WriteActions(_) => 3,
            Action::WriteMetadata { .. } => 4,
            Action::GotoTable(_) => 5,
            _ => 1,
        }
    }
}

/// Whether instructions stand in the standard's order and at most once each (OpenFlow 1.3 §5.9).
pub fn instruction_order_ok(actions: &[Action]) -> bool {
    actions.windows(2).all(|w| {
        let (a, b) = (w[0].instruction_rank(), w[1].instruction_rank());
        a < b || a == 1 && b == 1
    })
}
