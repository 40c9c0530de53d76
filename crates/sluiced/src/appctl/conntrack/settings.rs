//! Settings of connection trackers: maximum and number of connections, check of TCP sequence numbers, sweep interval.

use super::super::datapath::datapath;
use super::super::{Optional, Reply, Rows, Word, command};
use super::{failed, invalid, number, unsupported};
use crate::control_plane::ControlPlane;
use dpif::{Connections, DpifError};

/// The commands of this module.
pub(in crate::appctl) const ROWS: Rows = &[
    &command(
        "dpctl/ct-disable-tcp-seq-chk",
        Optional(Word("dp")),
        "accept TCP packets of any sequence number",
        accept_any_sequence,
    ),
    &command(
        "dpctl/ct-enable-tcp-seq-chk",
        Optional(Word("dp")),
        "check the sequence numbers of TCP packets",
        check_sequences,
    ),
    &command(
        "dpctl/ct-get-maxconns",
        Optional(Word("dp")),
        "print the maximum number of connections",
        maximum,
    ),
    &command("dpctl/ct-get-nconns", Optional(Word("dp")), "print the number of connections", count),
    &command(
        "dpctl/ct-get-sweep-interval",
        Optional(Word("dp")),
        "print the interval between searches for expired connections, in ms",
        sweep_interval,
    ),
    &command(
        "dpctl/ct-get-tcp-seq-chk",
        Optional(Word("dp")),
        "show whether sequence numbers of TCP are checked",
        sequences_checked,
    ),
    &command(
        "dpctl/ct-set-maxconns",
        (Optional(Word("dp")), Word("maxconns")),
        "set the maximum number of connections",
        set_maximum,
    ),
    &command(
        "dpctl/ct-set-sweep-interval",
        (Optional(Word("dp")), Word("ms")),
        "set the interval between searches for expired connections",
        set_sweep_interval,
    ),
];

type Tracker<'a> = Option<&'a dyn Connections>;
type Text = Result<String, String>;

/// Asks a tracker. A datapath without one supports nothing.
pub(super) fn ask<T>(
    tracker: Tracker<'_>,
    what: &str,
    ask: impl FnOnce(&dyn Connections) -> Result<T, DpifError>,
) -> Result<T, String> {
    ask(tracker.ok_or_else(|| unsupported(what))?).map_err(|e| failed(what, &e))
}

fn counted(tracker: Tracker<'_>) -> Text {
    match tracker {
        None => Ok("0\n".to_string()),
        Some(_) => Ok(format!("{}\n", ask(tracker, "nconns could not be retrieved", |t| t.count())?)),
    }
}

fn maximum_shown(tracker: Tracker<'_>) -> Text {
    Ok(format!("{}\n", ask(tracker, "maxconns could not be retrieved", |t| t.maximum())?))
}

fn maximum_set(tracker: Tracker<'_>, word: &str) -> Text {
    let most = number(word).ok_or_else(|| invalid("maxconns missing or malformed"))?;
    ask(tracker, "ct set maxconns failed", |t| t.set_maximum(most))?;
    Ok("setting maxconns successful".to_string())
}

fn check_shown(tracker: Tracker<'_>) -> Text {
    let checks = ask(tracker, "TCP sequence checking query failed", |t| t.checks_sequences())?;
    Ok(format!("TCP sequence checking: {}\n", if checks { "enabled" } else { "disabled" }))
}

fn check_set(tracker: Tracker<'_>, checks: bool) -> Text {
    let doing = if checks { "enabling" } else { "disabling" };
    let what = format!("{doing} TCP sequence checking failed");
    ask(tracker, &what, |t| t.set_checks_sequences(checks))?;
    Ok(format!("{doing} TCP sequence checking successful"))
}

fn sweep_shown(tracker: Tracker<'_>) -> Text {
    Ok(format!("{}\n", ask(tracker, "failed to get the sweep interval", |t| t.sweep_interval_ms())?))
}

fn sweep_set(tracker: Tracker<'_>, word: &str) -> Text {
    let ms = number(word).ok_or_else(|| invalid("sweep interval missing or malformed"))?;
    ask(tracker, "failed to set the sweep interval", |t| t.set_sweep_interval_ms(ms))?;
    Ok("setting sweep interval successful\n".to_string())
}

/// Answers for the datapath of that name.
fn answer(plane: &ControlPlane, name: Option<&str>, text: impl FnOnce(Tracker<'_>) -> Text) -> Reply {
    datapath(&plane.switch, name).and_then(|instance| text(instance.datapath.connections())).into()
}

fn count(plane: &mut ControlPlane, dp: Option<&str>) -> Reply {
    answer(plane, dp, counted)
}

fn maximum(plane: &mut ControlPlane, dp: Option<&str>) -> Reply {
    answer(plane, dp, maximum_shown)
}

/// `[dp] maxconns`
fn set_maximum(plane: &mut ControlPlane, (dp, word): (Option<&str>, &str)) -> Reply {
    answer(plane, dp, |tracker| maximum_set(tracker, word))
}

fn check_sequences(plane: &mut ControlPlane, dp: Option<&str>) -> Reply {
    answer(plane, dp, |tracker| check_set(tracker, true))
}

fn accept_any_sequence(plane: &mut ControlPlane, dp: Option<&str>) -> Reply {
    answer(plane, dp, |tracker| check_set(tracker, false))
}

fn sequences_checked(plane: &mut ControlPlane, dp: Option<&str>) -> Reply {
    answer(plane, dp, check_shown)
}

fn sweep_interval(plane: &mut ControlPlane, dp: Option<&str>) -> Reply {
    answer(plane, dp, sweep_shown)
}

/// `[dp] ms`
fn set_sweep_interval(plane: &mut ControlPlane, (dp, word): (Option<&str>, &str)) -> Reply {
    answer(plane, dp, |tracker| sweep_set(tracker, word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracker::Scripted;

    /// Texts and errors of Open vSwitch 3.1; of the sweep interval: 3.5.
    #[test]
    fn settings_are_shown_and_set() {
        let own = Scripted::default();
        let tracker: Tracker<'_> = Some(&own);
        let ok = |text: &str| Ok(text.to_string());
        assert_eq!(counted(tracker), ok("0\n"));
        assert_eq!(maximum_set(tracker, "5"), ok("setting maxconns successful"));
        assert_eq!(maximum_shown(tracker), ok("5\n"));
        assert_eq!(check_set(tracker, true), ok("enabling TCP sequence checking successful"));
        assert_eq!(check_shown(tracker), ok("TCP sequence checking: enabled\n"));
        assert_eq!(check_set(tracker, false), ok("disabling TCP sequence checking successful"));
        assert_eq!(check_shown(tracker), ok("TCP sequence checking: disabled\n"));
        assert_eq!(sweep_set(tracker, "30000"), ok("setting sweep interval successful\n"));
        assert_eq!(sweep_shown(tracker), ok("30000\n"));
        for bad in ["", "x", "5x", "-1", "99999999999"] {
            let why = "maxconns missing or malformed (Invalid argument)";
            assert_eq!(maximum_set(tracker, bad), Err(why.to_string()), "{bad}");
            let why = "sweep interval missing or malformed (Invalid argument)";
            assert_eq!(sweep_set(tracker, bad), Err(why.to_string()), "{bad}");
        }
        assert_eq!((maximum_shown(tracker), sweep_shown(tracker)), (ok("5\n"), ok("30000\n")));
        own.fail("set maximum", DpifError::Device("no memory".to_string()));
        assert_eq!(maximum_set(tracker, "6"), Err("ct set maxconns failed (no memory)".to_string()));
    }

    #[test]
    fn a_tracker_without_settings_says_so_and_one_less_datapath_too() {
        let plain = Scripted::plain();
        for tracker in [Some(&plain as &dyn Connections), None] {
            for (text, why) in [
                (maximum_shown(tracker), "maxconns could not be retrieved"),
                (maximum_set(tracker, "5"), "ct set maxconns failed"),
                (check_set(tracker, true), "enabling TCP sequence checking failed"),
                (check_set(tracker, false), "disabling TCP sequence checking failed"),
                (check_shown(tracker), "TCP sequence checking query failed"),
                (sweep_shown(tracker), "failed to get the sweep interval"),
                (sweep_set(tracker, "5"), "failed to set the sweep interval"),
            ] {
                assert_eq!(text, Err(format!("{why} (Operation not supported)")));
            }
        }
        let why = "nconns could not be retrieved (Operation not supported)";
        assert_eq!(counted(Some(&plain)), Err(why.to_string()));
        assert_eq!(counted(None), Ok("0\n".to_string()));
    }
}
