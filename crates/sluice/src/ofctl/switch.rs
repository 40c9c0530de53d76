//! Commands about the switch itself: its description, its treatment of fragments, and its tracked connections.

use anyhow::{Result, anyhow, bail};
use flow::OfPort;
use openflow::msg::control::SwitchConfig;
use openflow::msg::ct_flush::{CtFlush, CtFlushTuple};
use openflow::{Message, Version};
use std::net::{Ipv4Addr, Ipv6Addr};

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

/// Keywords of a tuple.
const TUPLE: [&str; 10] = [
    "ct_nw_src",
    "ct_nw_dst",
    "ct_ipv6_src",
    "ct_ipv6_dst",
    "ct_nw_proto",
    "ct_tp_src",
    "ct_tp_dst",
    "icmp_id",
    "icmp_type",
    "icmp_code",
];

/// `ct_nw_src=ADDRESS,ct_tp_dst=PORT,...`: fields of one direction, and the protocol.
fn tuple(text: &str) -> Result<(CtFlushTuple, u8)> {
    let mut tuple = CtFlushTuple::default();
    let mut proto = 0;
    for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
        let Some((name, value)) = word.split_once('=') else {
            bail!("Failed to parse ct-tuple: field {word} missing value");
        };
        let bad = || anyhow!("Failed to parse ct-tuple: failed to parse field {name}");
        let v4 = || value.parse::<Ipv4Addr>().map(|a| a.to_ipv6_mapped()).map_err(|_| bad());
        let v6 = || value.parse::<Ipv6Addr>().map_err(|_| bad());
        let port = || value.parse::<u16>().map_err(|_| bad());
        let small = || value.parse::<u8>().map_err(|_| bad());
        match name {
            "ct_nw_src" => tuple.src = Some(v4()?),
            "ct_nw_dst" => tuple.dst = Some(v4()?),
            "ct_ipv6_src" => tuple.src = Some(v6()?),
            "ct_ipv6_dst" => tuple.dst = Some(v6()?),
            "ct_nw_proto" => proto = small()?,
            "ct_tp_src" => tuple.src_port = Some(port()?),
            "ct_tp_dst" => tuple.dst_port = Some(port()?),
            "icmp_id" => tuple.icmp_id = Some(port()?),
            "icmp_type" => tuple.icmp_type = Some(small()?),
            "icmp_code" => tuple.icmp_code = Some(small()?),
            _ => {
                let meant = hint(name, TUPLE);
                bail!("Failed to parse ct-tuple: invalid conntrack tuple field: {name}{meant}");
            }
        }
    }
    Ok((tuple, proto))
}

/// The request of `[zone=ZONE] [TUPLE [REPLY_TUPLE]]`.
fn selection(args: &[String]) -> Result<CtFlush> {
    let mut flush = CtFlush::default();
    let mut tuples = args;
    if let Some((first, rest)) = args.split_first()
        && let Some(zone) = first.strip_prefix("zone=")
    {
        flush.zone = Some(zone.parse().map_err(|_| anyhow!("{first}: failed to parse the zone"))?);
        tuples = rest;
    }
    if let Some(text) = tuples.first() {
        (flush.orig, flush.proto) = tuple(text)?;
    }
    if let Some(text) = tuples.get(1) {
        let (reply, proto) = tuple(text)?;
        flush.reply = reply;
        if proto != 0 && flush.proto != 0 && proto != flush.proto {
            bail!("the tuples have different protocols");
        }
        flush.proto = flush.proto.max(proto);
    }
    match tuples.get(2) {
        Some(extra) => bail!("{extra}: too many arguments"),
        None => Ok(flush),
    }
}

pub(super) fn ct_flush(run: &mut Run<'_>, args: &[String]) -> Result<String> {
    run.connection.carry_out(&[Message::CtFlush(selection(args)?)])?;
    Ok(String::new())
}
