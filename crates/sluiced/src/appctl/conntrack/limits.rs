//! Limits of connections per zone. Limits that the database sets cannot be changed by commands.

use super::super::datapath::datapath;
use super::super::{Form, Reply, Rows, command};
use super::{failed, invalid, number, split_name};
use crate::control_plane::ControlPlane;
use crate::instances::Instance;
use dpif::{Connections, CtLimit, CtZone};
use std::str::FromStr;

/// The commands of this module.
pub(in crate::appctl) const ROWS: Rows = &[
    &command(
        "dpctl/ct-del-limits",
        Form("[dp] [default] [zone=N[,N]...]", 1, 3, Removed::parse),
        "remove the connection limits of zones, or the default limit",
        remove,
    ),
    &command(
        "dpctl/ct-get-limits",
        Form("[dp] [zone=N[,N]...]", 0, 2, Shown::parse),
        "show the connection limits of zones, and their counts",
        show,
    ),
    &command(
        "dpctl/ct-set-limits",
        Form("[dp] [default=L] [zone=N,limit=L]...", 1, 4096, Limits::parse),
        "set the connection limits of zones, or the default limit",
        set,
    ),
];

/// The name of all zones without a limit of their own.
const DEFAULT: &str = "default";

/// The tracker of a datapath with limits.
fn limited(instance: &Instance) -> Result<&dyn Connections, String> {
    instance.datapath.connections().ok_or_else(|| {
        format!("{}: there is no connection tracking, so there are no limits of it", instance.name())
    })
}

/// The connections of a datapath, to change limits.
fn changed(instance: &Instance) -> Result<&dyn Connections, String> {
    may_change(instance.database_owns_limits())?;
    limited(instance)
}

fn may_change(database_owns_them: bool) -> Result<(), String> {
    match database_owns_them {
        true => Err("the zone limits are set via database, use 'ovs-vsctl set-zone-limit <...>' instead. (Operation not permitted)".to_string()),
        false => Ok(()),
    }
}

/// `zone=N[,N]...`
pub(in crate::appctl) fn zones(word: &str) -> Result<Vec<CtZone>, String> {
    let list = word.strip_prefix("zone=").ok_or_else(|| invalid(&format!("invalid argument {word}")))?;
    // Empty parts name no zone, as in the stock tool.
    list.split(',')
        .filter(|zone| !zone.is_empty())
        .map(|zone| number(zone).map(CtZone::Zone).ok_or_else(|| invalid("invalid zone")))
        .collect()
}

/// `[zone=N[,N]...]`
fn shown(tracker: &dyn Connections, words: &[String]) -> Result<String, String> {
    let mut wanted = Vec::new();
    if let Some(word) = words.first() {
        // The limit of other zones is always shown.
        wanted.push(CtZone::Default);
        wanted.extend(zones(word)?);
    }
    if let Some(word) = words.get(1) {
        return Err(invalid(&format!("invalid argument {word}")));
    }
    let limits = tracker.limits(&wanted).map_err(|e| failed("failed to get conntrack limit", &e))?;
    Ok(limits.iter().map(|limit| show_limit(limit) + "\n").collect())
}

fn show_limit(limit: &CtLimit) -> String {
    match limit.zone {
        CtZone::Default => format!("default limit={}", limit.limit),
        CtZone::Zone(zone) => format!("zone={zone},limit={},count={}", limit.limit, limit.count),
    }
}

/// `[dp] [zone=N[,N]...]`
struct Shown {
    datapath: Option<String>,
    /// Text: a datapath without limits is the first fault.
    zones: Vec<String>,
}

impl Shown {
    fn parse(words: &[String]) -> Result<Shown, String> {
        let (datapath, zones) = split_name(words);
        Ok(Shown { datapath, zones: zones.to_vec() })
    }
}

fn show(plane: &mut ControlPlane, asked: Shown) -> Reply {
    let instance = datapath(&plane.switch, asked.datapath.as_deref());
    instance.and_then(limited).and_then(|tracker| shown(tracker, &asked.zones)).into()
}

/// `default=L` or `zone=N,limit=L`.
pub(in crate::appctl) fn limit(word: &str) -> Result<(CtZone, u32), String> {
    if let Some(text) = word.strip_prefix("default=") {
        let limit = number(text).ok_or_else(|| invalid("invalid default limit"))?;
        return Ok((CtZone::Default, limit));
    }
    fn value<T: FromStr>(name: &str, text: &str) -> Result<T, String> {
        number(text).ok_or_else(|| invalid(&format!("failed to parse field {name}")))
    }
    let (mut zone, mut limit) = (None, None);
    for field in word.split(',') {
        match field.split_once('=') {
            Some(("zone", text)) => {
                zone = Some(CtZone::Zone(value("zone", text)?));
            }
            Some(("limit", text)) => limit = Some(value("limit", text)?),
            Some((other, _)) => return Err(invalid(&format!("invalid zone limit field: {other}"))),
            None => return Err(invalid(&format!("field {field} missing value"))),
        }
    }
    zone.zip(limit).ok_or_else(|| invalid("failed to parse zone limit"))
}

/// `[dp] [default=L] [zone=N,limit=L]...`
struct Limits {
    datapath: Option<String>,
    limits: Vec<(CtZone, u32)>,
}

impl Limits {
    fn parse(words: &[String]) -> Result<Limits, String> {
        // A single argument is no name.
        let (datapath, words) = if words.len() > 1 { split_name(words) } else { (None, words) };
        Ok(Limits { datapath, limits: words.iter().map(|word| limit(word)).collect::<Result<_, _>>()? })
    }
}

fn set(plane: &mut ControlPlane, Limits { datapath: of, limits }: Limits) -> Reply {
    let set = || {
        let set = changed(datapath(&plane.switch, of.as_deref())?)?.set_limits(&limits);
        set.map(|()| String::new()).map_err(|e| failed("failed to set conntrack limit", &e))
    };
    set().into()
}

/// The zones of `[default] [zone=N[,N]...]`.
pub(in crate::appctl) fn removed(words: &[String]) -> Result<Vec<CtZone>, String> {
    let (default, words) = match words.split_first() {
        Some((first, rest)) if first == DEFAULT => (Some(CtZone::Default), rest),
        _ => (None, words),
    };
    let own = match words {
        [] if default.is_none() => return Err(invalid("name zones: default, zone=N[,N]...")),
        [] => Vec::new(),
        [word] => zones(word)?,
        [_, word, ..] => return Err(invalid(&format!("invalid argument {word}"))),
    };
    Ok(default.into_iter().chain(own).collect())
}

/// `[dp] [default] [zone=N[,N]...]`
struct Removed {
    datapath: Option<String>,
    zones: Vec<CtZone>,
}

impl Removed {
    fn parse(words: &[String]) -> Result<Removed, String> {
        let is_name = words.len() > 1 && words[0] != DEFAULT;
        let (datapath, words) = if is_name { split_name(words) } else { (None, words) };
        Ok(Removed { datapath, zones: removed(words)? })
    }
}

fn remove(plane: &mut ControlPlane, Removed { datapath: of, zones }: Removed) -> Reply {
    let remove = || {
        let removed = changed(datapath(&plane.switch, of.as_deref())?)?.remove_limits(&zones);
        removed.map(|()| String::new()).map_err(|e| failed("failed to delete conntrack limit", &e))
    };
    remove().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracker::Scripted;
    use dpif::DpifError;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').filter(|w| !w.is_empty()).map(String::from).collect()
    }

    #[test]
    fn limits_are_read() {
        assert_eq!(limit("default=0"), Ok((CtZone::Default, 0)));
        assert_eq!(limit("zone=65535,limit=4294967295"), Ok((CtZone::Zone(65535), u32::MAX)));
        assert_eq!(limit("limit=3,zone=0"), Ok((CtZone::Zone(0), 3)));
        assert_eq!(zones("zone=1,2"), Ok(vec![CtZone::Zone(1), CtZone::Zone(2)]));
        for (word, why) in [
            ("bla", "field bla missing value"),
            ("zone=7", "failed to parse zone limit"),
            ("limit=7", "failed to parse zone limit"),
            ("zone=7,limit=x", "failed to parse field limit"),
            ("zone=7,limit=4294967296", "failed to parse field limit"),
            ("zone=70000,limit=1", "failed to parse field zone"),
            ("zone=7,foo=1", "invalid zone limit field: foo"),
            ("default=x", "invalid default limit"),
        ] {
            assert_eq!(limit(word), Err(format!("{why} (Invalid argument)")), "{word}");
        }
        // As Open vSwitch 3.5.
        assert_eq!(zones("zone="), Ok(vec![]));
        assert_eq!(zones("zone=1,,2,"), Ok(vec![CtZone::Zone(1), CtZone::Zone(2)]));
        for bad in ["zone=x", "zone=1,zone=2", "zone=65536"] {
            assert_eq!(zones(bad), Err("invalid zone (Invalid argument)".to_string()), "{bad}");
        }
        assert_eq!(zones("bla"), Err("invalid argument bla (Invalid argument)".to_string()));
    }

    #[test]
    fn removed_zones_are_read() {
        let zone = CtZone::Zone;
        for (line, expected) in [
            ("default", Ok(vec![CtZone::Default])),
            ("zone=1,2", Ok(vec![zone(1), zone(2)])),
            ("default zone=1", Ok(vec![CtZone::Default, zone(1)])),
            ("", Err("name zones: default, zone=N[,N]... (Invalid argument)")),
            ("zone=1 zone=2", Err("invalid argument zone=2 (Invalid argument)")),
            ("zone=1 default", Err("invalid argument default (Invalid argument)")),
            ("bla", Err("invalid argument bla (Invalid argument)")),
        ] {
            assert_eq!(removed(&words(line)), expected.map_err(String::from), "{line}");
        }
    }

    /// As Open vSwitch 3.1 shows them: also zones without a limit of their own, if they are named.
    #[test]
    fn limits_are_shown() {
        let tracker = Scripted::default();
        tracker.set_limits(&[(CtZone::Default, 10), (CtZone::Zone(7), 5)]).unwrap();
        assert_eq!(shown(&tracker, &[]).unwrap(), "default limit=10\nzone=7,limit=5,count=0\n");
        assert_eq!(
            shown(&tracker, &words("zone=1,7")).unwrap(),
            "default limit=10\nzone=1,limit=10,count=0\nzone=7,limit=5,count=0\n"
        );
        assert_eq!(shown(&tracker, &words("zone=x")).unwrap_err(), "invalid zone (Invalid argument)");
        tracker.fail("limits", DpifError::Unsupported("none here".to_string()));
        let why = "failed to get conntrack limit (Operation not supported)";
        assert_eq!(shown(&tracker, &[]).unwrap_err(), why);
    }

    #[test]
    fn limits_of_the_database_are_not_for_commands() {
        let why = "the zone limits are set via database, use 'ovs-vsctl set-zone-limit <...>' instead. (Operation not permitted)";
        assert_eq!((may_change(false), may_change(true)), (Ok(()), Err(why.to_string())));
    }
}
