//! Lines of the log about flow-mods, as OVS 3.1 writes them at the same times.

use super::*;
use TextCommand::{Add, Delete, Modify};

#[test]
fn flow_mods_are_reported_after_ten_seconds_and_once_a_minute() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    let mut now_s = 0;
    // Steps: seconds, then commands at that time or the expected report.
    type RemainingActions = (u64, Result<&'static [TextCommand], Option<&'static str>>);
    let steps: [RemainingActions; 15] = [
        (0, Ok(&[Add])),
        (1, Ok(&[Add, Modify, Delete])),
        (9, Err(None)),
        (10, Err(Some("4 flow_mods in the 1 s starting 10 s ago (2 adds, 1 deletes, 1 modifications)"))),
        (11, Ok(&[Add])),
        (12, Ok(&[Delete])),
        (69, Err(None)),
        (70, Err(Some("2 flow_mods in the 1 s starting 59 s ago (1 adds, 1 deletes)"))),
        (71, Ok(&[Modify])),
        (129, Err(None)),
        (130, Err(Some("1 flow_mods 59 s ago (1 modifications)"))),
        (200, Ok(&[Add])),
        (210, Ok(&[Add])),
        (210, Err(Some("2 flow_mods in the last 10 s (2 adds)"))),
        (270, Err(None)),
    ];
    for (at_s, step) in steps {
        s.pass(1000 * (at_s - now_s));
        now_s = at_s;
        match step {
            Err(expected) => {
                let report = s.with(|mgr, _, now_ms| mgr.take_mod_report(c.id, now_ms));
                assert_eq!(report.as_deref(), expected, "at {at_s} s");
            }
            Ok(commands) => {
                commands.iter().for_each(|command| {
                    let text = if command == &Delete { "in_port=9" } else { "in_port=9,actions=drop" };
                    c.flow(&mut s, *command, text);
                });
            }
        }
    }
}

/// Refused ones and those that a rule learned do not count; those of a bundle do, once it is committed.
#[test]
fn the_end_of_a_connection_reports_its_executed_flow_mods() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    let last = |s: &mut Switch, c: &Client| s.with(|mgr, _, now_ms| mgr.take_last_mod_report(c.id, now_ms));
    assert_eq!(last(&mut s, &c), None);
    let refused = flow_mod(Add, "priority=7,actions=group:99");
    c.refused(&mut s, &Message::FlowMod(refused));
    assert_eq!(last(&mut s, &c), None);
    c.flow(&mut s, Delete, "in_port=9");
    assert_eq!(last(&mut s, &c).as_deref(), Some("1 flow_mods in the last 0 s (1 deletes)"));
    assert_eq!(last(&mut s, &c), None);
}
