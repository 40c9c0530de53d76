//! Commands about ports and their queues.

use anyhow::{Context as _, Result, anyhow, bail};
use flow::OfPort;
use flow::text::parse_port;
use openflow::msg::port::{Port, PortMod, config};
use openflow::msg::stats::{QUEUE_ALL, QueueStatsRequest};
use openflow::{Message, Version};

use super::{Run, entries, json};
use crate::hint::hint;

/// Settings of `mod-port`: the bit, and whether it is set.
const SETTINGS: [(&str, u32, bool); 15] = [
    ("up", config::PORT_DOWN, false),
    ("down", config::PORT_DOWN, true),
    ("stp", config::NO_STP, false),
    ("no-stp", config::NO_STP, true),
    ("receive", config::NO_RECV, false),
    ("no-receive", config::NO_RECV, true),
    ("receive-stp", config::NO_RECV_STP, false),
    ("no-receive-stp", config::NO_RECV_STP, true),
    ("forward", config::NO_FWD, false),
    ("no-forward", config::NO_FWD, true),
    ("flood", config::NO_FLOOD, false),
    ("no-flood", config::NO_FLOOD, true),
    ("noflood", config::NO_FLOOD, true),
    ("packet-in", config::NO_PACKET_IN, false),
    ("no-packet-in", config::NO_PACKET_IN, true),
];

/// Names of the settings, for completion.
pub(crate) fn settings() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|(name, ..)| *name)
}

/// A setting of `mod-port`: the bit, and whether it is set.
pub(super) fn setting(text: &str) -> Result<(u32, bool)> {
    match SETTINGS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(text)) {
        Some((_, bit, on)) => Ok((*bit, *on)),
        None => bail!("unknown mod-port command '{text}'{}", hint(text, settings())),
    }
}

/// A port by name or number.
fn number(run: &Run<'_>, text: &str) -> Result<OfPort> {
    parse_port(text, &run.names).ok_or_else(|| {
        let meant = hint(text, run.names.ports.iter().map(|port| port.name.as_str()));
        anyhow!("{}: unknown port `{text}'{meant}", run.target)
    })
}

/// A port, or all without one or with `all`.
fn one_or_all(run: &Run<'_>, text: Option<&String>) -> Result<OfPort> {
    match text {
        None => Ok(OfPort::NONE),
        Some(text) if text.is_empty() || text.eq_ignore_ascii_case("all") => Ok(OfPort::NONE),
        Some(text) => number(run, text),
    }
}

pub(super) fn dump_ports(run: &mut Run<'_>, text: &str) -> Result<String> {
    let port = if text.is_empty() { OfPort::NONE } else { number(run, text)? };
    let request = Message::PortStatsRequest(port);
    run.dump_or(&request, entries!(PortStatsReply), |all, names| json::ports(all, names))
}

pub(super) fn dump_ports_desc(run: &mut Run<'_>, text: &str) -> Result<String> {
    let port = if text.is_empty() { OfPort::NONE } else { number(run, text)? };
    if run.options.json {
        let ports: Vec<Port> =
            run.names.ports.iter().filter(|p| port == OfPort::NONE || p.port == port).cloned().collect();
        return Ok(json::port_descs(&ports));
    }
    run.dump(&Message::PortDescRequest(port))
}

pub(super) fn mod_port(run: &mut Run<'_>, args: &[String]) -> Result<String> {
    let [name, setting] = args else { bail!("needs a port and a setting") };
    let by_number = name.parse().map(OfPort).ok();
    let reserved = parse_port(name, &run.names);
    let found = run.names.ports.iter().find(|p| p.name == *name || Some(p.port) == by_number.or(reserved));
    let Some(port) = found else {
        let meant = hint(name, run.names.ports.iter().map(|port| port.name.as_str()));
        bail!("{}: couldn't find port `{name}'{meant}", run.target);
    };
    let (bit, on) = self::setting(setting)?;
    let message = PortMod {
        port: port.port,
        hw_addr: port.hw_addr,
        config: if on { bit } else { 0 },
        mask: bit,
        advertise: 0,
    };
    run.connection.carry_out(&[Message::PortMod(message)])?;
    Ok(String::new())
}

/// The chosen port and queue.
fn queues(run: &Run<'_>, args: &[String]) -> Result<QueueStatsRequest> {
    let queue = match args.get(1) {
        None => QUEUE_ALL,
        Some(text) if text.is_empty() || text.eq_ignore_ascii_case("all") => QUEUE_ALL,
        Some(text) => text.parse().with_context(|| format!("{text}: not the number of a queue"))?,
    };
    Ok(QueueStatsRequest { port: one_or_all(run, args.first())?, queue })
}

pub(super) fn queue_stats(run: &mut Run<'_>, args: &[String]) -> Result<String> {
    let request = Message::QueueStatsRequest(queues(run, args)?);
    run.dump_or(&request, entries!(QueueStatsReply), |all, names| json::queues(all, names))
}

/// From OpenFlow 1.4 on one request covers all ports; before, each port has its own, and OpenFlow 1.0 has none for all.
pub(super) fn queue_get_config(run: &mut Run<'_>, args: &[String]) -> Result<String> {
    let asked = queues(run, args)?;
    let version = run.connection.version();
    if version >= Version::V14 {
        return run.dump(&Message::QueueDescRequest(asked));
    }
    if version != Version::V10 || asked.port != OfPort::NONE {
        return run.dump(&Message::QueueGetConfigRequest(asked.port));
    }
    let mut ports: Vec<OfPort> = run.names.ports.iter().map(|port| port.port).collect();
    ports.retain(|port| *port != OfPort::LOCAL);
    ports.sort();
    let mut out = String::new();
    for port in ports {
        out += &run.dump(&Message::QueueGetConfigRequest(port))?;
    }
    Ok(out)
}
