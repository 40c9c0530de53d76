//! `dpif/show-dp-features` and `dpif/set-dp-features`: the features of a datapath, and fewer of them for translations.

use super::datapath::of_bridge;
use super::{Form, Reply, Rows, Wait, Word, command, order_rounds};
use crate::control_plane::ControlPlane;
use crate::dp_features::{FEATURES, Row, Value};
use crate::instances::Instance;
use sync::Ordering;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "dpif/set-dp-features",
        Form("[--force] bridge [feature [value]]", 1, 4, Setting::parse),
        "show or restrict the datapath features that translation uses",
        set,
    ),
    &command("dpif/show-dp-features", Word("bridge"), "show the datapath features of a bridge", show),
];

/// `BRIDGE`
fn show(plane: &mut ControlPlane, bridge: &str) -> Reply {
    let show = || {
        let (instance, _) = of_bridge(&plane.switch, bridge)?;
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
struct Setting {
    force: bool,
    bridge: String,
    feature: Option<String>,
    value: Option<String>,
}

impl Setting {
    fn parse(words: &[String]) -> Result<Setting, String> {
        let (force, words) = match words {
            [option, words @ ..] if option == "--force" => (true, words),
            _ => (false, words),
        };
        let bridge = words.first().ok_or("no such bridge")?.clone();
        Ok(Setting { force, bridge, feature: words.get(1).cloned(), value: words.get(2).cloned() })
    }
}

fn set(plane: &mut ControlPlane, Setting { force, bridge, feature, value }: Setting) -> Reply {
    let mut changed = false;
    let mut set = || {
        let (instance, _) = of_bridge(&plane.switch, &bridge)?;
        // Translations for features that another datapath lacks would fail there.
        if force && value.is_some() && !instance.is_dummy() {
            return Err("--force: features beyond those of the datapath are not supported".to_string());
        }
        let row = |name: &String| FEATURES.iter().find(|(key, ..)| key.eq_ignore_ascii_case(name));
        let Some(feature) = &feature else {
            return Ok(FEATURES.iter().map(|row| line(instance, row)).collect());
        };
        let Some(row) = row(feature) else { return Ok("Unexpected support field\n".to_string()) };
        Ok(match &value {
            None => line(instance, row),
            Some(value) => match change(instance, row, value, force) {
                Err(e) => format!("{e}\n"),
                Ok(is_change) => {
                    changed = is_change;
                    String::new()
                }
            },
        })
    };
    let answer = set();
    if changed {
        let bridges = plane.switch.instances().bridges();
        let bridges: Vec<_> = bridges.into_iter().map(|(_, bridge)| bridge.id).collect();
        bridges.into_iter().for_each(|bridge| plane.switch.review_local_samples(bridge));
    }
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
