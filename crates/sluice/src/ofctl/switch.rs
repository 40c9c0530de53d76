//! Commands about the switch itself: its description, its treatment of fragments, whether it answers, and tracked
//! connections of a zone.

use anyhow::{Result, bail};
use openflow::Message;
use openflow::msg::control::SwitchConfig;
use openflow::msg::stats::SwitchDesc;

use super::{Run, connection::Connection};
use crate::hint::hint;

/// Modes of fragments (`OFPC_FRAG_*`).
const FRAGMENTS: [(&str, u16); 4] = [("normal", 0), ("drop", 1), ("reassemble", 2), ("nx-match", 3)];

pub(super) fn dump_desc(run: &mut Run<'_>, _: &str) -> Result<String> {
    let (xid, Message::DescReply(desc)) = run.connection.ask(&Message::DescRequest)? else {
        bail!("the switch gave an answer of another kind");
    };
    Ok(format!("{} (xid={xid:#x}):\n{}", run.title("DESC", false), description(&desc)))
}

fn description(desc: &SwitchDesc) -> String {
    let rows = [
        ("Manufacturer", &desc.manufacturer),
        ("Hardware", &desc.hardware),
        ("Software", &desc.software),
        ("Serial Num", &desc.serial),
        ("DP Description", &desc.datapath),
    ];
    rows.iter().map(|(title, text)| format!("{title}: {text}\n")).collect()
}

fn config(connection: &mut Connection) -> Result<SwitchConfig> {
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

/// Nothing, if the switch answers: by a barrier, because echo replies end in the session.
pub(super) fn probe(run: &mut Run<'_>, _: &str) -> Result<String> {
    let (_, Message::BarrierReply) = run.connection.ask(&Message::BarrierRequest)? else {
        bail!("the switch gave an answer of another kind");
    };
    Ok(String::new())
}

pub(super) fn ct_flush_zone(run: &mut Run<'_>, zone: &str) -> Result<String> {
    let Ok(zone) = zone.parse() else { bail!("invalid zone_id \"{zone}\"") };
    run.connection.carry_out(&[Message::CtFlushZone(zone)])?;
    Ok(String::new())
}
