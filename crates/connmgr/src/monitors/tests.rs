//! Reports of changed rules; the expectations are those of OVS 3.1, asked with the same requests.

use super::*;
use crate::tests::{Client, Switch, flow_mod};
use flow::text::NoPortNames;
use flow::{Match, OfPort, TableId};
use ofp_actions::text::FlowModCommand as Text;
use ofproto::events::REMOVED_QUEUE;
use openflow::GROUP_ANY;
use openflow::msg::bundle::{BundleAdd, BundleControl, BundleControlType};
use openflow::msg::flow_mod::FlowRemovedReason;
use openflow::msg::group::GroupModCommand;
use openflow::text::parse_group_mod;

const ALL: MonitorFlags = MonitorFlags::all();

fn monitor(id: u32, flags: MonitorFlags) -> FlowMonitorRequest {
    FlowMonitorRequest {
        id,
        command: MonitorCommand::Add,
        flags,
        out_port: OfPort::NONE,
        out_group: GROUP_ANY,
        table: TableId::ALL,
        matching: Box::default(),
    }
}

fn request(parts: Vec<FlowMonitorRequest>) -> Message {
    Message::FlowMonitorRequest(Multi::all(parts))
}

/// A report in the syntax of `ovs-ofctl monitor`; lines of one message are joined by `; `.
fn text(m: &Message) -> String {
    let rule = |u: &RuleUpdate| {
        let event = match u.event {
            FlowEvent::Initial => "INITIAL".to_string(),
            FlowEvent::Added => "ADDED".to_string(),
            FlowEvent::Deleted(reason) => format!("DELETED {reason:?}"),
            FlowEvent::Modified => "MODIFIED".to_string(),
        };
        let matching = flow::text::format_match(&u.matching.unpack(), Some(u.priority.into()));
        let actions = ofp_actions::text::format_actions(&u.actions, &NoPortNames);
        format!("{event} table={} cookie={:#x} {matching} actions={actions}", u.table.0, u.cookie)
    };
    let update = |u: &FlowUpdate| match u {
        FlowUpdate::Rule(u) => rule(u),
        FlowUpdate::Abbreviated(xid) => format!("ABBREV {xid:#x}"),
        FlowUpdate::Paused => "PAUSED".to_string(),
        FlowUpdate::Resumed => "RESUMED".to_string(),
    };
    match m {
        Message::FlowMonitorReply(m) => {
            let mut lines: Vec<String> = m.entries.iter().map(update).collect();
            lines.sort();
            lines.join("; ")
        }
        Message::FlowMonitorPaused => "PAUSED".to_string(),
        Message::FlowMonitorResumed => "RESUMED".to_string(),
        other => format!("{other:?}"),
    }
}

fn texts(c: &mut Client, s: &mut Switch) -> Vec<String> {
    c.events(s).iter().map(text).collect()
}

/// Compares the updates that a monitor with the given change to its request gets of each command of another connection.
fn check(change: &dyn Fn(&mut FlowMonitorRequest), commands: &[(Text, &str, &[&str])]) {
    for version in [Version::V10, Version::V12, Version::V13, Version::V14, Version::V15] {
        let mut s = Switch::new();
        let (mut c, mut other) = (s.service(version), s.service(Version::V13));
        let mut m = monitor(1, ALL);
        change(&mut m);
        assert_eq!(c.ask(&mut s, &request(vec![m])), [Message::FlowMonitorReply(Multi::all(Vec::new()))]);
        for (command, line, expected) in commands {
            other.flow(&mut s, *command, line);
            assert_eq!(texts(&mut c, &mut s), *expected, "{version}: {line}");
        }
    }
}

#[test]
fn changes_are_reported_with_their_kind() {
    check(
        &|_| {},
        &[
            (Text::Add, "ip,actions=2", &["ADDED table=0 cookie=0x0 ip actions=output:2"]),
            (Text::Add, "ip,actions=2", &["ADDED table=0 cookie=0x0 ip actions=output:2"]),
            (Text::Add, "ip,actions=1", &["ADDED table=0 cookie=0x0 ip actions=output:1"]),
            // A modification without effect.
            (Text::Modify, "ip,actions=1", &[]),
            (Text::Modify, "ip,actions=2", &["MODIFIED table=0 cookie=0x0 ip actions=output:2"]),
            (Text::Delete, "", &["DELETED Delete table=0 cookie=0x0 ip actions=output:2"]),
            (Text::Delete, "", &[]),
        ],
    );
}

#[test]
fn changes_of_one_request_come_together() {
    let (a, b) = ("table=0 cookie=0x0 arp actions=output:2", "table=0 cookie=0x0 ip actions=output:2");
    check(
        &|_| {},
        &[
            (Text::Add, "ip,actions=2", &[&format!("ADDED {b}")]),
            (Text::Add, "arp,actions=2", &[&format!("ADDED {a}")]),
            (Text::Delete, "", &[&format!("DELETED Delete {a}; DELETED Delete {b}")]),
        ],
    );
}

#[test]
fn a_monitor_reports_what_it_asks_for() {
    let add = ("ip,actions=2", "ip,actions=1");
    let without = |flags: MonitorFlags| move |m: &mut FlowMonitorRequest| m.flags -= flags;
    check(
        &without(MonitorFlags::ACTIONS),
        &[(Text::Add, add.0, &["ADDED table=0 cookie=0x0 ip actions=drop"])],
    );
    check(
        &without(MonitorFlags::ADD | MonitorFlags::DELETE),
        &[
            (Text::Add, add.0, &[]),
            (Text::Modify, add.1, &["MODIFIED table=0 cookie=0x0 ip actions=output:1"]),
            (Text::Delete, "", &[]),
        ],
    );
    check(
        &|m| m.table = TableId(3),
        &[
            (Text::Add, add.0, &[]),
            (Text::Add, "table=3,ip,actions=2", &["ADDED table=3 cookie=0x0 ip actions=output:2"]),
        ],
    );
    check(
        &|m| *m.matching = Match::catchall().with(flow::fields::FieldId::EthType, 0x806),
        &[
            (Text::Add, add.0, &[]),
            (Text::Add, "actions=2", &[]),
            (Text::Add, "arp,actions=2", &["ADDED table=0 cookie=0x0 arp actions=output:2"]),
        ],
    );
    // The port of the old or the new actions counts.
    check(
        &|m| m.out_port = OfPort(2),
        &[
            (Text::Add, "arp,actions=1", &[]),
            (Text::Add, add.0, &["ADDED table=0 cookie=0x0 ip actions=output:2"]),
            (Text::Modify, add.1, &["MODIFIED table=0 cookie=0x0 ip actions=output:1"]),
            (Text::Modify, "ip,actions=3", &[]),
            (Text::Modify, add.0, &["MODIFIED table=0 cookie=0x0 ip actions=output:2"]),
            (Text::Add, add.1, &["ADDED table=0 cookie=0x0 ip actions=output:1"]),
            (Text::Delete, "", &[]),
        ],
    );
}

/// Unlike the port, the group of the old actions does not count.
#[test]
fn a_group_of_the_new_actions_is_reported() {
    for version in [Version::V14, Version::V15] {
        let mut s = Switch::new();
        let (mut c, mut other) = (s.service(version), s.service(Version::V13));
        for line in ["group_id=1,type=all,bucket=1", "group_id=2,type=all,bucket=1"] {
            let group = parse_group_mod(line, GroupModCommand::Add, &NoPortNames).unwrap();
            other.silent(&mut s, &Message::GroupMod(group));
        }
        c.ask(&mut s, &request(vec![FlowMonitorRequest { out_group: 2, ..monitor(1, ALL) }]));
        let added = "ADDED table=0 cookie=0x0 ip actions=group:2";
        for (command, line, expected) in [
            (Text::Add, "ip,actions=group:1", None),
            (Text::Add, "ip,actions=group:2", Some(added)),
            (Text::Add, "ip,actions=group:1", None),
            (Text::Modify, "ip,actions=group:2", Some("MODIFIED table=0 cookie=0x0 ip actions=group:2")),
            (Text::Modify, "ip,actions=group:1", None),
            (Text::Add, "ip,actions=group:2", Some(added)),
            (Text::Delete, "", Some("DELETED Delete table=0 cookie=0x0 ip actions=group:2")),
        ] {
            other.flow(&mut s, command, line);
            assert_eq!(texts(&mut c, &mut s), Vec::from_iter(expected), "{version}: {line}");
        }
    }
}

#[test]
fn own_changes_are_abbreviated() {
    for version in [Version::V10, Version::V13, Version::V15] {
        let mut s = Switch::new();
        let mut c = s.service(version);
        c.ask(&mut s, &request(vec![monitor(1, ALL - MonitorFlags::OWN)]));
        let ask = |c: &mut Client, s: &mut Switch, command, line: &str| {
            let m = Message::FlowMod(flow_mod(command, line));
            c.xid += 2;
            let mut bytes = openflow::encode(&m, version, c.xid).unwrap();
            bytes.extend(openflow::encode(&Message::BarrierRequest, version, c.xid + 1).unwrap());
            c.received.clear();
            c.send_bytes(s, &bytes);
            let (last, told) = c.received.split_last().unwrap();
            assert_eq!(last.1, Message::BarrierReply, "reports come before the barrier's reply");
            let xid = format!("{:#x}", c.xid);
            told.iter().map(|(_, m)| text(m).replace(&xid, "own")).collect::<Vec<_>>()
        };
        assert_eq!(ask(&mut c, &mut s, Text::Add, "ip,actions=2"), ["ABBREV own"]);
        assert_eq!(ask(&mut c, &mut s, Text::Add, "arp,actions=2"), ["ABBREV own"]);
        assert_eq!(ask(&mut c, &mut s, Text::Delete, ""), ["ABBREV own"]);
        // Another monitor wants them in full.
        let mut full = monitor(2, ALL - MonitorFlags::INITIAL);
        *full.matching = Match::catchall().with(flow::fields::FieldId::EthType, 0x806);
        c.ask(&mut s, &request(vec![full]));
        assert_eq!(ask(&mut c, &mut s, Text::Add, "ip,actions=2"), ["ABBREV own"]);
        let told = ask(&mut c, &mut s, Text::Add, "arp,actions=2");
        assert_eq!(told, ["ADDED table=0 cookie=0x0 arp actions=output:2"]);
        assert_eq!(ask(&mut c, &mut s, Text::Delete, "table=0").len(), 1);
    }
}

#[test]
fn a_bundle_is_one_report() {
    let mut s = Switch::new();
    let (mut c, mut own) = (s.service(Version::V14), s.service(Version::V14));
    c.ask(&mut s, &request(vec![monitor(1, ALL)]));
    own.ask(&mut s, &request(vec![monitor(1, ALL - MonitorFlags::OWN)]));
    let control = |ty| Message::BundleControl(BundleControl { bundle_id: 7, ty, flags: 3 });
    own.ask(&mut s, &control(BundleControlType::OpenRequest));
    let mut first = 0;
    for line in ["ip,actions=1", "arp,actions=1"] {
        let message = Box::new(Message::FlowMod(flow_mod(Text::Add, line)));
        own.silent(&mut s, &Message::BundleAdd(BundleAdd { bundle_id: 7, flags: 3, message }));
        first = if first == 0 { own.xid } else { first };
    }
    assert_eq!(texts(&mut c, &mut s), Vec::<String>::new());
    own.received.clear();
    let commit = openflow::encode(&control(BundleControlType::CommitRequest), Version::V14, 900).unwrap();
    own.send_bytes(&mut s, &commit);
    let told: Vec<String> = own.received.iter().map(|(_, m)| text(m)).collect();
    assert_eq!(told[0], format!("ABBREV {first:#x}"));
    assert_eq!(told.len(), 2, "one report, and the reply: {told:?}");
    let (arp, ip) = ("arp actions=output:1", "ip actions=output:1");
    assert_eq!(
        texts(&mut c, &mut s),
        [format!("ADDED table=0 cookie=0x0 {arp}; ADDED table=0 cookie=0x0 {ip}")]
    );
}

#[test]
fn initial_reports_have_each_rule_once() {
    for (version, event) in [(Version::V10, "ADDED"), (Version::V13, "ADDED"), (Version::V14, "INITIAL")] {
        let mut s = Switch::new();
        let mut c = s.service(version);
        for n in 0..2000 {
            c.add(&mut s, &format!("table={},ip,nw_src=10.0.{}.{},actions=2", n % 3, n / 256, n % 256));
        }
        let mut arp = monitor(2, ALL);
        *arp.matching = Match::catchall().with(flow::fields::FieldId::EthType, 0x800);
        let plain = monitor(1, MonitorFlags::INITIAL | MonitorFlags::ADD);
        let told = c.ask(&mut s, &request(vec![plain, arp]));
        assert!(told.len() > 2, "in slices");
        let more = |m: &Message| matches!(m, Message::FlowMonitorReply(m) if m.more);
        assert!(told.iter().rev().skip(1).all(more) && !more(told.last().unwrap()));
        let mut lines: Vec<String> =
            told.iter().flat_map(|m| text(m).split("; ").map(str::to_string).collect::<Vec<_>>()).collect();
        lines.retain(|l| !l.is_empty());
        lines.sort();
        lines.dedup();
        assert_eq!(lines.len(), 2000);
        assert!(
            lines.iter().all(|l| l.starts_with(event) && l.ends_with("actions=output:2")),
            "{}",
            lines[0]
        );
    }
}

#[test]
fn ids_are_checked_as_by_ovs() {
    let initial = MonitorFlags::INITIAL | MonitorFlags::ADD;
    for version in [Version::V10, Version::V12, Version::V13, Version::V14, Version::V15] {
        let mut s = Switch::new();
        let mut c = s.service(version);
        c.one(&mut s, &request(vec![monitor(1, initial)]));
        assert_eq!(c.refused(&mut s, &request(vec![monitor(1, initial)])), ErrorKind::MofcMonitorExists);
        // All parts of a request, or none.
        let both = request(vec![monitor(2, initial), monitor(1, initial)]);
        assert_eq!(c.refused(&mut s, &both), ErrorKind::MofcMonitorExists);
        c.one(&mut s, &request(vec![monitor(2, initial)]));
        let command = |id, command| request(vec![FlowMonitorRequest { command, ..monitor(id, initial) }]);
        if version < Version::V14 {
            assert_eq!(c.refused(&mut s, &Message::FlowMonitorCancel(9)), ErrorKind::MofcUnknownMonitor);
            c.silent(&mut s, &Message::FlowMonitorCancel(2));
            assert_eq!(c.refused(&mut s, &Message::FlowMonitorCancel(2)), ErrorKind::MofcUnknownMonitor);
        } else {
            for ty in [MonitorCommand::Modify, MonitorCommand::Delete] {
                assert_eq!(c.refused(&mut s, &command(9, ty)), ErrorKind::MofcUnknownMonitor);
            }
            c.add(&mut s, "ip,actions=2");
            let told = c.ask(&mut s, &command(2, MonitorCommand::Modify));
            assert_eq!(
                told.iter().map(text).collect::<Vec<_>>(),
                ["INITIAL table=0 cookie=0x0 ip actions=drop"]
            );
            c.one(&mut s, &command(2, MonitorCommand::Delete));
            assert_eq!(c.refused(&mut s, &command(2, MonitorCommand::Delete)), ErrorKind::MofcUnknownMonitor);
        }
        for id in 2..=MAX_MONITORS as u32 {
            c.one(&mut s, &request(vec![monitor(id, initial)]));
        }
        assert_eq!(c.refused(&mut s, &request(vec![monitor(9999, initial)])), ErrorKind::BrcEperm);
    }
}

#[test]
fn the_switch_reports_its_own_removals() {
    let mut s = Switch::new();
    let (mut c, mut other) = (s.service(Version::V14), s.service(Version::V13));
    c.ask(&mut s, &request(vec![monitor(1, MonitorFlags::DELETE)]));
    other.add(&mut s, "priority=5,idle_timeout=1,ip,actions=2");
    other.add(&mut s, "priority=6,hard_timeout=1,ip,actions=2");
    s.pass(1500);
    let mut told = texts(&mut c, &mut s);
    told.sort();
    let line = |reason: FlowRemovedReason, n| {
        format!("DELETED {reason:?} table=0 cookie=0x0 priority={n},ip actions=drop")
    };
    assert_eq!(told, [line(FlowRemovedReason::HardTimeout, 6), line(FlowRemovedReason::IdleTimeout, 5)]);
}

/// A reader that does not read is paused: after that it hears of deletions of rules that it knows, and at the end of
/// all that it missed.
#[test]
fn a_slow_reader_is_paused_and_resumes() {
    for version in [Version::V10, Version::V13, Version::V15] {
        let mut s = Switch::new();
        let (mut c, mut other) = (s.service(version), s.service(Version::V13));
        for line in ["table=1,ip,actions=1", "table=2,ip,actions=1", "table=4,ip,actions=1"] {
            other.add(&mut s, line);
        }
        let told = c.ask(&mut s, &request(vec![monitor(1, ALL)]));
        assert_eq!(told.len(), 1);
        let flood = |other: &mut Client, s: &mut Switch, n: u16| {
            other.add(s, &format!("priority={n},ip,tcp,tp_src={n},actions=1,2,1,2,1,2"));
        };
        (1..3000).for_each(|n| flood(&mut other, &mut s, n));
        let waiting = s.manager.output(c.id).len();
        assert!(waiting > PAUSE_BYTES && waiting < PAUSE_BYTES + 2000, "{waiting}");
        other.flow(&mut s, Text::Modify, "table=1,ip,actions=3");
        other.flow(&mut s, Text::Delete, "table=2,ip");
        other.add(&mut s, "table=3,ip,actions=1");
        other.flow(&mut s, Text::Delete, "table=3");
        other.flow(&mut s, Text::Delete, "table=4");
        other.add(&mut s, "table=4,ip,actions=7");
        flood(&mut other, &mut s, 3000);
        let lines = texts(&mut c, &mut s);
        let lines: Vec<&str> = lines.iter().flat_map(|l| l.split("; ")).collect();
        let at = |line: &str| lines.iter().position(|l| *l == line).unwrap_or_else(|| panic!("{line}"));
        let (paused, resumed) = (at("PAUSED"), at("RESUMED"));
        assert_eq!(resumed + 1, lines.len());
        let rule = |n: u32, actions: &str| format!("table={n} cookie=0x0 ip actions={actions}");
        let deleted = at(&format!("DELETED Delete {}", rule(2, "output:1")));
        assert!(paused < deleted && lines[paused + 1].starts_with("DELETED"));
        assert!(at(&format!("MODIFIED {}", rule(1, "output:3"))) > deleted);
        assert!(
            at(&format!("ADDED {}", rule(4, "output:7")))
                > at(&format!("DELETED Delete {}", rule(4, "output:1")))
        );
        assert!(!lines.iter().any(|l| l.contains("table=3 ")), "it came and went during the pause");
        assert_eq!(lines.iter().filter(|l| l.contains("tp_src=")).count(), 3000);
        // It goes on as before.
        other.flow(&mut s, Text::Delete, "table=1");
        assert_eq!(texts(&mut c, &mut s), [format!("DELETED Delete {}", rule(1, "output:3"))]);
        assert_eq!(s.backer.events.changes(s.bridge, 0, 9).len(), 0);
    }
}

#[test]
fn without_monitors_nothing_is_queued() {
    let mut s = Switch::new();
    let (mut c, mut other) = (s.service(Version::V13), s.service(Version::V13));
    other.add(&mut s, "ip,actions=1");
    assert_eq!(s.backer.events.end(s.bridge), 0);
    c.one(&mut s, &request(vec![monitor(1, ALL)]));
    other.add(&mut s, "ip,actions=2");
    assert_eq!(s.backer.events.end(s.bridge), 1);
    let id = c.id;
    s.with(|m, ctx, now| m.close(id, ctx, now));
    s.run();
    other.add(&mut s, "ip,actions=3");
    assert_eq!(s.backer.events.end(s.bridge), 1);
}

/// Changes wait for a reader that is getting its first report; one without progress is closed.
#[test]
fn changes_wait_for_a_reader_up_to_a_bound() {
    let mut s = Switch::new();
    let (mut c, mut other) = (s.service(Version::V13), s.service(Version::V13));
    let add = |n: u32| {
        flow_mod(
            Text::Add,
            &format!(
                "table={},udp,nw_src={},actions=1,2,3,1,2,3,1,2,3",
                n >> 16,
                std::net::Ipv4Addr::from(n)
            ),
        )
    };
    let bytes = |n| openflow::encode(&Message::FlowMod(add(n)), Version::V13, n).unwrap();
    (0..16_000).for_each(|n| other.send_bytes(&mut s, &bytes(n)));
    let ask = openflow::encode(&request(vec![monitor(1, ALL)]), Version::V13, 5).unwrap();
    s.with(|m, ctx, now| {
        m.input(c.id, &ask, now);
        m.run(ctx, now);
    });
    let mut n = 100_000;
    while s.backer.events.room(s.bridge) > 0 {
        other.send_bytes(&mut s, &bytes(n));
        n += 1;
    }
    assert!(s.backer.events.changes(s.bridge, 0, usize::MAX).len() < REMOVED_QUEUE + 2048);
    let full = s.backer.events.times_full();
    s.run();
    assert!(s.manager.close_reason(c.id).is_none() && full > 0);
    s.now_ms += 6_000;
    s.run();
    assert!(s.manager.close_reason(c.id).is_some());
    assert_eq!(s.manager.status(c.id).unwrap().counters.events_dropped, 1);
    s.run();
    assert!(s.backer.events.room(s.bridge) > 0, "changes go on");
    let _ = &mut c;
}
