//! Rules in the syntax of `ovs-ofctl add-flow` as messages.

use crate::msg::flow_mod::{FlowMod, FlowModCommand, FlowModFlags};
use crate::{Format, GROUP_ANY, NO_BUFFER};
use flow::TableId;
use ofp_actions::text::{self, FlowModText};

/// The flow-mod of a parsed line, in a form.
pub fn flow_mod_of(format: Format, asked: FlowModText) -> FlowMod {
    let command = match asked.command {
        text::FlowModCommand::Add => FlowModCommand::Add,
        text::FlowModCommand::Modify => FlowModCommand::Modify,
        text::FlowModCommand::ModifyStrict => FlowModCommand::ModifyStrict,
        text::FlowModCommand::Delete => FlowModCommand::Delete,
        text::FlowModCommand::DeleteStrict => FlowModCommand::DeleteStrict,
    };
    let mut flags = FlowModFlags::empty();
    flags.set(FlowModFlags::SEND_FLOW_REM, asked.flags.send_flow_rem);
    flags.set(FlowModFlags::CHECK_OVERLAP, asked.flags.check_overlap);
    flags.set(FlowModFlags::RESET_COUNTS, asked.flags.reset_counts);
    flags.set(FlowModFlags::NO_PKT_COUNTS, asked.flags.no_packet_counts);
    flags.set(FlowModFlags::NO_BYT_COUNTS, asked.flags.no_byte_counts);
    // OpenFlow 1.1 and later cannot leave the table to the switch: an addition goes to the first table.
    let everywhere = command.deletes() || format == Format::Nxt;
    let table = asked.table.unwrap_or(if everywhere { TableId::ALL } else { TableId(0) });
    // Without a cookie to select by, a modification may be an addition.
    let cookie = if asked.cookie_mask == 0 { 0 } else { u64::MAX };
    FlowMod {
        format,
        command,
        table,
        cookie: asked.cookie,
        cookie_mask: asked.cookie_mask,
        new_cookie: asked.new_cookie.unwrap_or(cookie),
        idle_timeout_s: asked.idle_timeout_s,
        hard_timeout_s: asked.hard_timeout_s,
        priority: asked.priority,
        buffer_id: NO_BUFFER,
        out_port: asked.out_port,
        out_group: asked.out_group.unwrap_or(GROUP_ANY),
        flags,
        importance: asked.importance,
        matching: asked.rule_match.into(),
        actions: asked.actions,
    }
}
