//! Frames, settings, texts and states of single bridges. `network` has many bridges with links that fail.

mod network;

use super::bpdu::{Bpdu, flag, payload};
use super::sessions::Sessions;
use super::{PortSettings, Refusal, Settings, config};
use crate::protocol::{
    Columns, Engine, LearnedChange, LineLevel, LinkPort, LinkProtocol, LinkState, LinkValue, SessionId,
    Table, TreePhase,
};
use flow::{MacAddr, OfPort};
use std::collections::BTreeMap;

/// Rows of an interface.
#[derive(Default)]
pub(super) struct Rows {
    columns: BTreeMap<(Table, &'static str), LinkValue>,
    is_local: bool,
    members: usize,
    is_mirror_output: bool,
}

impl Columns for Rows {
    fn column(&self, table: Table, name: &str) -> Option<LinkValue> {
        self.columns.iter().find(|((t, n), _)| (*t, *n) == (table, name)).map(|(_, value)| value.clone())
    }

    fn is_local(&self) -> bool {
        self.is_local
    }

    fn members(&self) -> usize {
        self.members
    }

    fn is_mirror_output(&self) -> bool {
        self.is_mirror_output
    }
}

fn map(pairs: &[(&str, &str)]) -> LinkValue {
    LinkValue::Map(pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect())
}

pub(super) fn rows(is_rapid: bool, bridge: &[(&str, &str)], port: &[(&str, &str)]) -> Rows {
    let enable = if is_rapid { "rstp_enable" } else { "stp_enable" };
    let columns = BTreeMap::from([
        ((Table::Bridge, enable), LinkValue::Flag(true)),
        ((Table::Bridge, "other_config"), map(bridge)),
        ((Table::Port, "other_config"), map(port)),
        ((Table::Interface, "type"), LinkValue::Text("dummy".to_string())),
    ]);
    Rows { columns, is_local: false, members: 1, is_mirror_output: false }
}

fn settings(rows: &Rows) -> Settings {
    config::parse(rows).0.expect("the bridge has a tree")
}

pub(super) fn link_port(bridge: u8, n: u32, is_up: bool) -> LinkPort {
    let of_port = if n == 0 { OfPort::LOCAL } else { OfPort(n) };
    let interface = if n == 0 { format!("br{bridge}") } else { format!("p{n}") };
    LinkPort {
        port: interface.clone(),
        interface,
        bridge: format!("br{bridge}"),
        of_port,
        mac: MacAddr([0xaa, 0x55, 0xaa, 0x55, bridge, n as u8]),
        bridge_mac: MacAddr([0xaa, 0x66, 0xaa, 0x66, 0, bridge]),
        is_up,
        speed_mbps: 10_000,
        is_full_duplex: true,
    }
}

/// A bridge with its own port and ports from 1.
pub(super) fn bridge(sessions: &mut Sessions, n: u8, ports: u32, rows: &Rows, now_ms: u64) -> Vec<SessionId> {
    let given = settings(rows);
    let local = Settings { port: PortSettings::Outside, ..given };
    let mut ids = vec![sessions.put(&link_port(n, 0, true), &local, now_ms)];
    ids.extend((1..=ports).map(|p| sessions.put(&link_port(n, p, true), &given, now_ms)));
    ids
}

/// Runs a lone bridge, and returns its frames.
fn run(sessions: &mut Sessions, from_ms: u64, to_ms: u64) -> Vec<(u64, SessionId, Box<[u8]>)> {
    let (mut sent, mut out) = (Vec::new(), Vec::new());
    let mut now_ms = from_ms;
    while now_ms <= to_ms {
        assert!(!sessions.serve(now_ms, usize::MAX, &mut out));
        sent.extend(out.drain(..).map(|(id, t)| (now_ms, id, t.frame)));
        let next_ms = sessions.wakes_at().expect("a tree has timers");
        assert!(next_ms > now_ms, "work without end at {now_ms}");
        now_ms = next_ms;
    }
    sent
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The frames of OVS 3.5.
#[test]
fn frames_are_those_of_ovs() {
    for (is_rapid, expected) in [
        (
            false,
            "0180c2000000aa55aa5500010026424203000000000080000aa66aa660000000000008000aa66aa66000080010000140002000f00",
        ),
        (
            true,
            "0180c2000000aa55aa550001002742420300000202 0e8000aa66aa66000000000000 8000aa66aa660000 800100001400 02000f0000",
        ),
    ] {
        let mut sessions = Sessions::default();
        let ids = bridge(&mut sessions, 0, 1, &rows(is_rapid, &[], &[]), 1000);
        let sent = run(&mut sessions, 1000, 3100);
        let (_, id, frame) = &sent[0];
        assert_eq!(*id, ids[1]);
        let expected = match is_rapid {
            true => expected.replace(' ', ""),
            false => {
                "0180c2000000aa55aa55000100264242030000000000".to_string()
                    + "8000aa66aa660000000000008000aa66aa660000800100001400 02000f00"
                        .replace(' ', "")
                        .as_str()
            }
        };
        assert_eq!(hex(frame), expected);
        let bpdu = Bpdu::parse(payload(frame).unwrap()).unwrap();
        assert_eq!(bpdu.frame(MacAddr([0xaa, 0x55, 0xaa, 0x55, 0, 1])), *frame);
    }
}

#[test]
fn bad_messages_are_none() {
    let mut sessions = Sessions::default();
    bridge(&mut sessions, 0, 1, &rows(true, &[], &[]), 1000);
    let frame = run(&mut sessions, 1000, 3100)[0].2.clone();
    let good = payload(&frame).unwrap().to_vec();
    for end in 0..good.len() {
        assert_eq!(Bpdu::parse(&good[..end]), None, "{end}");
    }
    for (at, byte) in [(3, 1), (6, 7), (6, 3)] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(Bpdu::parse(&bad), None, "{at}");
    }
    // A rapid message of an unknown role is one of the older protocol.
    let mut old = good.clone();
    old[7] = 0;
    assert!(matches!(Bpdu::parse(&old), Some(Bpdu::Config(m)) if !m.has(flag::PROPOSAL)));
    assert_eq!(payload(&[0; 13]), None);
    let mut long = frame.to_vec();
    long[13] += 1;
    assert_eq!(payload(&long), None);
    // Padding is no part of the payload.
    let mut padded = frame.to_vec();
    padded.resize(60, 0xff);
    assert_eq!(payload(&padded), Some(&good[..]));
}

/// The output of OVS 3.5 for such a bridge.
#[test]
fn the_tree_is_shown_as_by_ovs() {
    let head = |pad: &str| {
        format!(
            "  stp-priority  {pad}32768\n  stp-system-id   aa:66:aa:66:00:00\n  stp-hello-time  2s\n  \
             stp-max-age     20s\n  stp-fwd-delay   15s\n"
        )
    };
    let stp = format!(
        "---- br0 ----\nRoot ID:\n{0}  This bridge is the root\n\nBridge ID:\n{0}\n  \
         Interface  Role       State      Cost  Pri.Nbr \n  \
         ---------- ---------- ---------- ----- -------\n  \
         p1         designated listening  2     128.1\n  p2         designated listening  2     128.2\n\n",
        head("")
    );
    let rstp = format!(
        "---- br0 ----\nRoot ID:\n{0}  This bridge is the root\n\nBridge ID:\n{0}\n  \
         Interface  Role       State      Cost     Pri.Nbr \n  \
         ---------- ---------- ---------- -------- -------\n  \
         p1         Designated Discarding 2000     128.1\n  p2         Designated Discarding 2000     128.2\n\n",
        head("  ")
    );
    for (is_rapid, expected) in [(false, stp), (true, rstp)] {
        let mut sessions = Sessions::default();
        bridge(&mut sessions, 0, 2, &rows(is_rapid, &[], &[]), 1000);
        assert_eq!(sessions.show(None, is_rapid, 1000).as_deref(), Some(&*expected));
        assert_eq!(sessions.show(Some("br0"), is_rapid, 1000).as_deref(), Some(&*expected));
        assert_eq!(sessions.show(None, !is_rapid, 1000).as_deref(), Some(""));
        assert_eq!(sessions.show(Some("br1"), is_rapid, 1000), None);
    }
}

#[test]
fn columns_are_those_of_ovs() {
    let check = |is_rapid: bool, local: &str, port: &str| {
        let mut sessions = Sessions::default();
        let ids = bridge(&mut sessions, 0, 2, &rows(is_rapid, &[], &[]), 1000);
        assert!(run(&mut sessions, 1000, 40_000).len() > 10);
        let text = |id| {
            let status = sessions.status_of(id, 40_000);
            let of = |value: &LinkValue| match value {
                LinkValue::Map(map) => {
                    map.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
                }
                _ => String::new(),
            };
            status.values().map(of).collect::<Vec<_>>().join("").trim().to_string()
        };
        assert_eq!((text(ids[0]).as_str(), text(ids[1]).as_str()), (local, port));
        let states = [ids[0], ids[1]].map(|id| sessions.state(id).may_forward);
        assert_eq!(states, [true, true]);
    };
    check(
        false,
        "stp_bridge_id=8000.aa66aa660000 stp_designated_root=8000.aa66aa660000 stp_root_path_cost=0",
        "stp_port_id=32769 stp_role=designated stp_sec_in_state=9 stp_state=forwarding",
    );
    check(
        true,
        "rstp_bridge_id=8.000.aa66aa660000 rstp_bridge_port_id=0000 rstp_designated_id=8.000.aa66aa660000 \
         rstp_designated_port_id=0000 rstp_root_id=8.000.aa66aa660000 rstp_root_path_cost=0",
        "rstp_designated_bridge_id=8.000.aa66aa660000 rstp_designated_path_cost=0 \
         rstp_designated_port_id=8001 rstp_port_id=8001 rstp_port_role=Designated rstp_port_state=Forwarding",
    );
}

#[test]
fn settings_of_bridges() {
    // Name, value, then the lines of the output that follow "Bridge ID:".
    for (is_rapid, set, expected) in [
        (false, &[("stp-priority", "12241")][..], "12241 00 2 20 15"),
        (false, &[("stp-max-age", "9"), ("stp-forward-delay", "4")], "32768 00 2 9 5"),
        (false, &[("stp-hello-time", "10"), ("stp-max-age", "6")], "32768 00 10 22 15"),
        (false, &[("stp-system-id", "02:00:00:00:00:77"), ("stp-priority", "x")], "32768 77 2 20 15"),
        (true, &[("rstp-priority", "5000"), ("rstp-address", "02:00:00:00:00:78")], "4096 78 2 20 15"),
        (true, &[("rstp-max-age", "6"), ("rstp-forward-delay", "4")], "32768 00 2 6 4"),
        (true, &[("rstp-max-age", "40"), ("rstp-forward-delay", "7")], "32768 00 2 20 15"),
        (true, &[("rstp-max-age", "40"), ("rstp-forward-delay", "21")], "32768 00 2 40 21"),
    ] {
        let mut sessions = Sessions::default();
        bridge(&mut sessions, 0, 1, &rows(is_rapid, set, &[]), 1000);
        let shown = sessions.show(None, is_rapid, 1000).unwrap();
        let lines = shown.lines().skip_while(|line| *line != "Bridge ID:").skip(1).take(5);
        let last =
            |line: &str| line.rsplit([' ', ':']).next().unwrap_or("").trim_end_matches('s').to_string();
        assert_eq!(lines.map(last).collect::<Vec<_>>().join(" "), expected, "{set:?}");
    }
}

#[test]
fn settings_of_ports() {
    let refused = |is_rapid: bool, port: &[(&str, &str)]| settings(&rows(is_rapid, &[], port)).port;
    for is_rapid in [false, true] {
        let [enable, number] =
            if is_rapid { ["rstp-enable", "rstp-port-num"] } else { ["stp-enable", "stp-port-num"] };
        assert_eq!(refused(is_rapid, &[(enable, "false")]), PortSettings::Outside);
        assert_eq!(refused(is_rapid, &[(number, "0")]), PortSettings::Refused(Refusal::Number));
        let mut bond = rows(is_rapid, &[], &[]);
        bond.members = 2;
        assert_eq!(settings(&bond).port, PortSettings::Refused(Refusal::Bond));
        let mut internal = rows(is_rapid, &[], &[]);
        internal.columns.insert((Table::Interface, "type"), LinkValue::Text("internal".to_string()));
        assert_eq!(settings(&internal).port, PortSettings::Refused(Refusal::Internal));
        let mut mirror = rows(is_rapid, &[], &[]);
        mirror.is_mirror_output = true;
        assert_eq!(settings(&mirror).port, PortSettings::Refused(Refusal::Mirror));
        let line = Refusal::Bond.line("p1", is_rapid).1;
        let upper = if is_rapid { "RSTP" } else { "STP" };
        assert_eq!(line, format!("port p1: cannot enable {upper} on bonds, disabling"));
        let (level, line) = Refusal::Mirror.line("p1", is_rapid);
        assert_eq!((level, line), (LineLevel::Debug, format!("port p1: disable {upper} on mirror ports")));
    }
    let mut both = rows(true, &[], &[]);
    both.columns.insert((Table::Bridge, "stp_enable"), LinkValue::Flag(true));
    both.is_local = true;
    let (given, ignored) = config::parse(&both);
    assert!(matches!(given.unwrap().bridge, super::BridgeSettings::Rstp(..)));
    assert_eq!(ignored[0].place, "stp_enable");
}

/// Ports of OVS: numbers of all or of none, and each once.
#[test]
fn numbers_of_ports() {
    let check = |is_rapid: bool, numbers: &[&str], shown: &[&str], line: &str| {
        let mut sessions = Sessions::default();
        let name = if is_rapid { "rstp-port-num" } else { "stp-port-num" };
        for (n, number) in (1..).zip(numbers) {
            let pairs = [(name, *number)];
            let given = settings(&rows(is_rapid, &[], if number.is_empty() { &[] } else { &pairs }));
            sessions.put(&link_port(0, n, true), &given, 1000);
        }
        let text = sessions.show(None, is_rapid, 1000).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("  p"));
        let seen: Vec<String> =
            lines.map(|l| format!("{} {}", &l[2..4], l.rsplit(' ').next().unwrap())).collect();
        assert_eq!(seen, shown, "{numbers:?}");
        let mut lines = Vec::new();
        while let Some(report) = sessions.take_report() {
            lines.extend(report.lines.into_iter().map(|line| line.text));
        }
        assert!(lines.iter().any(|known| known == line) || line.is_empty(), "{lines:?}");
    };
    check(false, &["", ""], &["p1 128.1", "p2 128.2"], "");
    check(false, &["7", "3"], &["p2 128.3", "p1 128.7"], "");
    check(false, &["5", "5"], &["p1 128.5"], "port p2: duplicate stp-port-num 5, disabling");
    check(false, &["300", ""], &["p2 128.1"], "port p1: invalid stp-port-num");
    let mixed = "bridge br0: must manually configure all STP port IDs or none, disabling";
    check(false, &["5", ""], &[], mixed);
    check(true, &["5", "", "5"], &["p2 128.1", "p3 128.2", "p1 128.5"], "");
}

/// A new port stops at once, also one whose carrier comes back.
#[test]
fn ports_stop_first() {
    for is_rapid in [false, true] {
        let mut sessions = Sessions::default();
        let given = settings(&rows(is_rapid, &[], &[]));
        assert!(!Sessions::initial_state(&given).may_forward);
        let ids = bridge(&mut sessions, 0, 2, &rows(is_rapid, &[], &[]), 1000);
        assert!(!sessions.state(ids[1]).may_forward && sessions.state(ids[0]) == LinkState::UP);
        run(&mut sessions, 1000, 40_000);
        assert!(sessions.state(ids[1]).may_forward);
        sessions.put(&link_port(0, 1, false), &given, 40_000);
        assert!(!sessions.state(ids[1]).may_forward);
        run(&mut sessions, 40_000, 41_000);
        assert!(!sessions.state(ids[1]).may_forward && sessions.state(ids[2]).may_forward);
        sessions.put(&link_port(0, 1, true), &given, 41_000);
        run(&mut sessions, 41_000, 41_500);
        let tree = sessions.state(ids[1]).tree.unwrap();
        assert_eq!((tree.phase, tree.is_rapid), (TreePhase::Listening, is_rapid));
        let mut flushes = 0;
        while let Some(report) = sessions.take_report() {
            flushes += report.learned.iter().filter(|c| !matches!(c, LearnedChange::MoveTo(_))).count();
        }
        assert!(flushes > 0);
    }
}

/// A flood of messages is answered within the rate of the standard.
#[test]
fn floods_are_answered_slowly() {
    for is_rapid in [false, true] {
        let mut sessions = Sessions::default();
        let ids = bridge(&mut sessions, 0, 2, &rows(is_rapid, &[], &[]), 1000);
        let sent = run(&mut sessions, 1000, 4000);
        let (mut out, mut frames) = (Vec::new(), 0);
        for n in 0..5000 {
            let mut frame = sent[0].2.to_vec();
            // Worse, better and repeated information of a neighbour.
            frame[14 + 3 + 5 + n % 20] ^= (n % 7) as u8;
            sessions.receive(ids[1], payload(&frame), 4000 + n as u64 / 10);
            sessions.serve(4000 + n as u64 / 10, usize::MAX, &mut out);
            frames += out.drain(..).count();
        }
        assert!(frames < 60, "{frames} frames");
        let mut reports = 0;
        while let Some(report) = sessions.take_report() {
            assert!(report.learned.len() <= 5000 && report.lines.len() <= 5000);
            reports += 1;
        }
        assert!(reports <= 3);
    }
}

#[test]
fn corpus_of_spanning_tree_messages() {
    testkit::replay_corpus(
        concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/spanning_tree_messages"),
        crate::fuzz::spanning_tree_messages,
    );
}
