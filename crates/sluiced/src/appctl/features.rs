//! `dpif/show-dp-features` and `dpif/set-dp-features`: the features of a datapath, and fewer of them for translations.

use super::datapath::of_bridge;
use super::{Command, Reply, Wait, command, order_rounds};
use crate::control_plane::ControlPlane;
use crate::dp_features::{FEATURES, Row, Value};
use crate::instances::Instance;
use sync::Ordering;

/// The commands of this module.
pub(super) const ROWS: &[Command] = &[
    command(
        "dpif/set-dp-features",
        "[--force] bridge [feature [value]]",
        1..=4,
        "show or restrict the datapath features that translation uses",
        set,
    ),
    command("dpif/show-dp-features", "bridge", 1..=1, "show the datapath features of a bridge", show),
];

/// `BRIDGE`
fn show(plane: &mut ControlPlane, args: &[String]) -> Reply {
    let show = || {
        let (instance, _) = of_bridge(&plane.switch, &args[0])?;
        let mut can = instance.datapath.capabilities();
        let line = |(_, title, place): &Row| match place(&mut can).value() {
            Value::Flag(on) => format!("{title}: {}\n", if on { "Yes" } else { "No" }),
            Value::Number(n) => format!("{title}: {n}\n"),
        };
        Ok(FEATURES.iter().map(line).collect())
    };
    Reply::from(show())
}

/// `[--force] BRIDGE [FEATURE [VALUE]]`. Faults of the value are the text of a successful reply, as in OVS.
fn set(plane: &mut ControlPlane, args: &[String]) -> Reply {
    let mut changed = false;
    let mut set = || {
        let (force, args) = match args {
            [option, args @ ..] if option == "--force" => (true, args),
            _ => (false, args),
        };
        let name = args.first().ok_or("no such bridge")?;
        let (instance, _) = of_bridge(&plane.switch, name)?;
        // Translations for features that another datapath lacks would fail there.
        if force && args.len() > 2 && !instance.is_dummy() {
            return Err("--force: features beyond those of the datapath are not supported".to_string());
        }
        let row = |name: &String| FEATURES.iter().find(|(key, ..)| key.eq_ignore_ascii_case(name));
        Ok(match args {
            [_, name, ..] if row(name).is_none() => "Unexpected support field\n".to_string(),
            [_, name, value] => match row(name).map(|row| change(instance, row, value, force)) {
                Some(Err(e)) => format!("{e}\n"),
                Some(Ok(is_change)) => {
                    changed = is_change;
                    String::new()
                }
                None => String::new(),
            },
            [_, name] => row(name).map(|row| line(instance, row)).unwrap_or_default(),
            _ => FEATURES.iter().map(|row| line(instance, row)).collect(),
        })
    };
    let answer = set();
    match changed {
        true => Reply::Later(Wait::Rounds(order_rounds(&plane.switch))),
        false => Reply::from(answer),
    }
}

/// The features in force. Translations for a userspace datapath see more VLAN headers than it reports.
fn in_force(instance: &Instance, row: &Row) -> Value {
    let (_, _, place) = row;
    let (mut now, mut detected) = (instance.backer.features(), instance.backer.capabilities);
    match (place(&mut now).value(), place(&mut detected).value()) {
        (now, detected) if now != detected => now,
        _ => place(&mut instance.datapath.capabilities()).value(),
    }
}

fn line(instance: &Instance, row: &Row) -> String {
    let (key, title, place) = row;
    let boot = place(&mut instance.datapath.capabilities()).value();
    format!("{key} ({title}) : [run time]:{}, [boot time]:{boot}\n", in_force(instance, row))
}

/// Sets a feature, and has all flows deleted if it changes, as OVS does. Returns whether it does.
fn change(instance: &Instance, (_, _, place): &Row, value: &str, force: bool) -> Result<bool, &'static str> {
    let boot = place(&mut instance.datapath.capabilities()).value();
    let mut features = instance.backer.features();
    let before = place(&mut features).value();
    place(&mut features).set(value, boot, force)?;
    if place(&mut features).value() == before {
        return Ok(false);
    }
    instance.backer.set_features(features);
    instance.backer.limits.purge.store(true, Ordering::Release);
    Ok(true)
}
