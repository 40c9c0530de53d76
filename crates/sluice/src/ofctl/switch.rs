//! Commands about the switch itself: its description, its treatment of fragments, and its tracked connections.

use anyhow::{Result, anyhow, bail};
use flow::OfPort;
use openflow::msg::control::SwitchConfig;
use openflow::text::parse_ct_flush;
use openflow::{Message, Version};

use super::{Run, connection::Connection};
use crate::hint::hint;

/// Modes of fragments (`OFPC_FRAG_*`).
pub(super) const FRAGMENTS: [(&str, u16); 4] =
    [("normal", 0), ("drop", 1), ("reassemble", 2), ("nx-match", 3)];

/// The features, from OpenFlow 1.3 on with the ports of a request of their own, and the configuration.
pub(super) fn show(run: &mut Run<'_>, _: &str) -> Result<String> {
    let mut out = run.dump(&Message::FeaturesRequest)?;
    if run.connection.version() >= Version::V13 {
        out += &run.dump(&Message::PortDescRequest(OfPort::NONE))?;
    }
    Ok(out + &run.dump(&Message::GetConfigRequest)?)
}

pub(super) fn dump_desc(run: &mut Run<'_>, _: &str) -> Result<String> {
    run.dump(&Message::DescRequest)
}

pub(super) fn dump_ipfix_bridge(run: &mut Run<'_>, _: &str) -> Result<String> {
    run.dump(&Message::IpfixBridgeRequest)
}

pub(super) fn dump_ipfix_flow(run: &mut Run<'_>, _: &str) -> Result<String> {
    run.dump(&Message::IpfixFlowRequest)
}

pub(super) fn config(connection: &mut Connection) -> Result<SwitchConfig> {
    let (_, Message::GetConfigReply(config)) = connection.ask(&Message::GetConfigRequest)? else {
        bail!("the switch gave an answer of another kind");
    };
    Ok(config)
}

pub(super) fn get_frags(run: &mut Run<'_>, _: &str) -> Result<String> {
    let flags = config(&mut run.connection)?.flags & 3;
    Ok(FRAGMENTS.iter().filter(|(_, bits)| *bits == flags).map(|(name, _)| format!("{name}\n")).collect())
}

/// A mode that the switch lacks is not refused: it keeps the one it has.
pub(super) fn set_frags(run: &mut Run<'_>, mode: &str) -> Result<String> {
    let Some((_, bits)) = FRAGMENTS.iter().find(|(name, _)| *name == mode) else {
        let meant = hint(mode, FRAGMENTS.iter().map(|(name, _)| *name));
        bail!("{mode}: unknown fragment handling mode{meant}");
    };
    let mut wanted = config(&mut run.connection)?;
    wanted.flags = wanted.flags & !3 | bits;
    run.connection.carry_out(&[Message::SetConfig(wanted)])?;
    if config(&mut run.connection)?.flags & 3 != *bits {
        bail!("setting fragment handling mode failed (this switch probably doesn't support mode \"{mode}\")");
    }
    Ok(String::new())
}

pub(super) fn ct_flush_zone(run: &mut Run<'_>, zone: &str) -> Result<String> {
    let Ok(zone) = zone.parse() else { bail!("invalid zone_id \"{zone}\"") };
    run.connection.carry_out(&[Message::CtFlushZone(zone)])?;
    Ok(String::new())
}

pub(super) fn ct_flush(run: &mut Run<'_>, args: &[String]) -> Result<String> {
    let flush = parse_ct_flush(args.iter().map(String::as_str));
    let flush = flush.map_err(|why| anyhow!("Failed to parse CT match: {why}"))?;
    run.connection.carry_out(&[Message::CtFlush(flush)])?;
    Ok(String::new())
}
