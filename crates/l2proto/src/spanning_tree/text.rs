//! Texts of `stp/show` and `rstp/show`, and values of status columns.

use super::rstp::{self, Role};
use super::sessions::{Group, Sessions, Tree};
use super::{PORT_RSTP_STATISTICS, PORT_STATISTICS, RSTP_STATUS, STATUS};
use crate::protocol::{LinkValue, SessionId, Status, Table};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Bits of an address in an identifier.
const ADDRESS_BITS: u32 = 48;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;

fn address(id: u64) -> String {
    let bytes: Vec<String> = id.to_be_bytes()[2..].iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

/// An identifier of the older protocol.
fn stp_id(id: u64) -> String {
    format!("{:04x}.{:012x}", id >> ADDRESS_BITS, id & ADDRESS)
}

/// An identifier of the rapid protocol: priority, extension, address.
fn rstp_id(id: u64) -> String {
    format!("{:x}.{:03x}.{:012x}", id >> 60, id >> ADDRESS_BITS & 0xfff, id & ADDRESS)
}

fn role_text(role: Role) -> &'static str {
    match role {
        Role::Disabled => "Disabled",
        Role::Root => "Root",
        Role::Designated => "Designated",
        Role::Alternate => "Alternate",
        Role::Backup => "Backup",
    }
}

fn state_text(port: &rstp::Port) -> &'static str {
    match (port.learning, port.forwarding) {
        (_, true) => "Forwarding",
        (true, false) => "Learning",
        (false, false) => "Discarding",
    }
}

/// Identifier and times, as one of the two parts of the output shows them.
struct Head {
    id: u64,
    hello_s: u64,
    max_age_s: u64,
    forward_delay_s: u64,
}

impl Head {
    fn write(&self, priority: &str, out: &mut String) {
        let Head { id, hello_s, max_age_s, forward_delay_s } = self;
        let _ = writeln!(out, "{priority}{}", id >> ADDRESS_BITS);
        let _ = writeln!(out, "  stp-system-id   {}", address(*id));
        let _ = writeln!(out, "  stp-hello-time  {hello_s}s");
        let _ = writeln!(out, "  stp-max-age     {max_age_s}s");
        let _ = writeln!(out, "  stp-fwd-delay   {forward_delay_s}s");
    }
}

/// A line of a port.
struct Line {
    port_id: u16,
    name: String,
    role: &'static str,
    state: &'static str,
    cost: u32,
}

/// Differences between the outputs of the two protocols.
struct Layout {
    priority: &'static str,
    cost_width: usize,
}

fn write_group(
    name: &str,
    layout: &Layout,
    heads: [Head; 2],
    root: Option<(&str, u32)>,
    mut lines: Vec<Line>,
) -> String {
    let (mut out, [root_head, own_head]) = (format!("---- {name} ----\nRoot ID:\n"), heads);
    root_head.write(layout.priority, &mut out);
    let _ = match root {
        None => writeln!(out, "  This bridge is the root"),
        Some((port, cost)) => writeln!(out, "  root-port       {port}\n  root-path-cost  {cost}"),
    };
    out.push_str("\nBridge ID:\n");
    own_head.write(layout.priority, &mut out);
    let width = layout.cost_width;
    let _ = writeln!(
        out,
        "\n  {:<10} {:<10} {:<10} {:<width$} Pri.Nbr \n  {4:-<10} {4:-<10} {4:-<10} {4:-<width$} -------",
        "Interface", "Role", "State", "Cost", ""
    );
    lines.sort_by_key(|line| line.port_id & 0xff);
    for Line { port_id, name, role, state, cost } in lines {
        let _ = writeln!(
            out,
            "  {name:<10} {role:<10} {state:<10} {cost:<width$} {}.{}",
            port_id >> 8,
            port_id & 0xff
        );
    }
    out.push('\n');
    out
}

impl Sessions {
    fn interface(&self, id: SessionId) -> &str {
        self.sessions.get(&id).map_or("", |session| &session.port.interface)
    }

    pub(super) fn show_group(&self, group: &Group) -> String {
        match &group.tree {
            None => String::new(),
            Some(Tree::Stp(bridge)) => {
                let head = |id: u64, timers: &super::stp::Timers| Head {
                    id,
                    hello_s: timers.hello_ms / 1000,
                    max_age_s: timers.max_age_ms / 1000,
                    forward_delay_s: timers.forward_delay_ms / 1000,
                };
                // As in OVS, the root stands beside the bridge's own times, and the bridge beside those of the root.
                let heads = [head(bridge.root, &bridge.own), head(bridge.id, &bridge.timers)];
                let shown = bridge.ports.iter().filter(|(_, port)| port.args.is_up);
                let lines = shown.map(|(id, port)| Line {
                    port_id: port.args.id,
                    name: self.interface(*id).to_string(),
                    role: bridge.role(*id, port),
                    state: port.state.text(),
                    cost: port.args.cost,
                });
                let root = bridge.root_port.map(|id| (self.interface(id), bridge.root_cost));
                let layout = Layout { priority: "  stp-priority  ", cost_width: 5 };
                write_group(&group.name, &layout, heads, root, lines.collect())
            }
            Some(Tree::Rstp(bridge)) => {
                let head = |id: u64, times: rstp::Seconds| Head {
                    id,
                    hello_s: u64::from(times.hello),
                    max_age_s: u64::from(times.max_age),
                    forward_delay_s: u64::from(times.forward_delay),
                };
                let heads = [
                    head(bridge.root.root, bridge.root_times),
                    head(bridge.settings.id, bridge.settings.seconds()),
                ];
                let lines = bridge.ports.iter().map(|(id, port)| Line {
                    port_id: port.args.id,
                    name: self.interface(*id).to_string(),
                    role: role_text(port.role),
                    state: state_text(port),
                    cost: port.args.cost,
                });
                let root = bridge.root_port.map(|id| (self.interface(id), bridge.root.cost));
                let layout = Layout { priority: "  stp-priority    ", cost_width: 8 };
                write_group(&group.name, &layout, heads, root, lines.collect())
            }
        }
    }

    /// `stp/show` and `rstp/show`: one bridge or all; `None` without that one.
    pub fn show(&mut self, name: Option<&str>, is_rapid: bool, now_ms: u64) -> Option<String> {
        self.refresh(now_ms);
        let shown: Vec<String> = self.trees(name, is_rapid).map(|group| self.show_group(group)).collect();
        (name.is_none() || !shown.is_empty()).then(|| shown.concat())
    }

    /// The status columns of a session.
    pub fn status_of(&self, id: SessionId, now_ms: u64) -> Status {
        let Some(session) = self.sessions.get(&id) else { return Status::new() };
        let group = self.groups.get(&session.port.bridge);
        let Some(tree) = group.and_then(|group| group.tree.as_ref()) else { return Status::new() };
        if session.port.of_port == flow::OfPort::LOCAL {
            return bridge_status(tree);
        }
        let count = |name: &str, n: u64| (name.to_string(), i64::try_from(n).unwrap_or(i64::MAX));
        match tree {
            Tree::Stp(bridge) => {
                let Some(port) = bridge.ports.get(&id) else { return Status::new() };
                let since_s = now_ms.saturating_sub(port.since_ms) / 1000;
                let status = [
                    ("stp_port_id", port.args.id.to_string()),
                    ("stp_state", port.state.text().to_string()),
                    ("stp_sec_in_state", since_s.to_string()),
                    ("stp_role", bridge.role(id, port).to_string()),
                ];
                let counts = [
                    count("stp_tx_count", session.tx),
                    count("stp_rx_count", session.rx),
                    count("stp_error_count", session.errors),
                ];
                Status::from([
                    ((Table::Port, STATUS), map(status)),
                    ((Table::Port, PORT_STATISTICS), LinkValue::Counters(counts.into())),
                ])
            }
            Tree::Rstp(bridge) => {
                let Some(port) = bridge.ports.get(&id) else { return Status::new() };
                let status = [
                    ("rstp_port_id", format!("{:04x}", port.args.id)),
                    ("rstp_port_role", role_text(port.role).to_string()),
                    ("rstp_port_state", state_text(port).to_string()),
                    ("rstp_designated_bridge_id", rstp_id(port.priority.bridge)),
                    ("rstp_designated_port_id", format!("{:04x}", port.priority.port)),
                    ("rstp_designated_path_cost", port.priority.cost.to_string()),
                ];
                let counts = [
                    count("rstp_tx_count", session.tx),
                    count("rstp_rx_count", session.rx),
                    count("rstp_error_count", session.errors),
                    count("rstp_uptime", port.uptime_s),
                ];
                Status::from([
                    ((Table::Port, RSTP_STATUS), map(status)),
                    ((Table::Port, PORT_RSTP_STATISTICS), LinkValue::Counters(counts.into())),
                ])
            }
        }
    }
}

fn map<const N: usize>(pairs: [(&str, String); N]) -> LinkValue {
    LinkValue::Map(BTreeMap::from(pairs.map(|(key, value)| (key.to_string(), value))))
}

/// The status of a bridge.
pub(super) fn bridge_status(tree: &Tree) -> Status {
    match tree {
        Tree::Stp(bridge) => {
            let status = [
                ("stp_bridge_id", stp_id(bridge.id)),
                ("stp_designated_root", stp_id(bridge.root)),
                ("stp_root_path_cost", bridge.root_cost.to_string()),
            ];
            Status::from([((Table::Bridge, STATUS), map(status))])
        }
        Tree::Rstp(bridge) => {
            let port = bridge.root_port.and_then(|id| bridge.ports.get(&id)).map_or(0, |port| port.args.id);
            let status = [
                ("rstp_bridge_id", rstp_id(bridge.settings.id)),
                ("rstp_root_path_cost", bridge.root.cost.to_string()),
                ("rstp_root_id", rstp_id(bridge.root.root)),
                ("rstp_designated_id", rstp_id(bridge.root.bridge)),
                ("rstp_designated_port_id", format!("{:04x}", bridge.root.port)),
                ("rstp_bridge_port_id", format!("{port:04x}")),
            ];
            Status::from([((Table::Bridge, RSTP_STATUS), map(status))])
        }
    }
}
