//! Names of OVS 3.5: every field of ovs-fields(7) and every action of ovs-actions(7) (`names.txt`) has a row. The rows of
//! `fields.tsv` and `actions.tsv` are tried on a running switch with Debian's tools; expectations are the answers of OVS
//! 3.1, but for the order of floods. `refused.tsv` lists names that are refused, each with the area that brings them, and
//! the error. A name without a row fails, as does a row that is wrong. Commands have a table of their own
//! (`net/dummy/commands35.rs`).
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::time::Duration;
use testkit::{Daemon, DaemonSpec, Netns, require_netns, require_programs, wait_for};

const LIMIT: Duration = Duration::from_secs(20);

/// Areas of names that are refused: those of later releases, and what OVS refuses as well.
const AREAS: [&str; 5] = ["tunnels", "link protocols", "telemetry", "DPDK", "as in OVS"];

const SET_UP: &str = "add-br br0 -- set Bridge br0 datapath_type=dummy fail_mode=secure \
    protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15 \
    -- add-port br0 p1 -- set Interface p1 type=dummy ofport_request=1 \
    -- add-port br0 p2 -- set Interface p2 type=dummy ofport_request=2 \
    -- add-port br0 p3 -- set Interface p3 type=dummy ofport_request=3 \
    -- add-port br0 p4 -- set Interface p4 type=dummy ofport_request=4";

struct Lab {
    daemon: Daemon,
    _netns: Netns,
}

impl Lab {
    fn new() -> Lab {
        let netns = Netns::new("names").unwrap();
        let spec = DaemonSpec::new(env!("CARGO_BIN_EXE_sluiced")).unwrap().netns(&netns);
        let args = ["--disable-system", "-vconsole:off", "--enable-dummy", "--pidfile", "--log-file"];
        let daemon = spec.args(args).start().unwrap();
        let socket = daemon.rundir().join(&format!("ovs-vswitchd.{}.ctl", daemon.pid()));
        wait_for(LIMIT, "the control socket", || socket.exists()).unwrap();
        let words: Vec<&str> = SET_UP.split_whitespace().collect();
        daemon.ovs("ovs-vsctl", &words).unwrap();
        let lab = Lab { daemon, _netns: netns };
        assert_eq!(
            lab.ofctl("10", &["add-tlv-map", "br0", "{class=0xffff,type=0,len=4}->tun_metadata0"]),
            None
        );
        lab
    }

    /// The error of a request, if any; log lines are none.
    fn ofctl(&self, version: &str, words: &[&str]) -> Option<String> {
        let version = format!("OpenFlow{version}");
        let tool = self.daemon.tool("ovs-ofctl").args(["-O", &version]).args(words);
        let out = tool.output().unwrap();
        (!out.status.success()).then_some(out.stderr)
    }

    fn rules(&self, version: &str, lines: &[String]) -> Option<String> {
        let version = format!("OpenFlow{version}");
        let tool = self.daemon.tool("ovs-ofctl").args(["-O", &version, "add-flows", "br0", "-"]);
        let out = tool.input(lines.join("\n")).output().unwrap();
        (!out.status.success()).then_some(out.stderr)
    }

    fn appctl(&self, words: &[&str]) -> String {
        let out = self.daemon.tool("ovs-appctl").args(words).output().unwrap();
        out.stdout + &out.stderr
    }

    /// The datapath actions of the last pass of a packet.
    fn actions(&self, packet: &str) -> String {
        let story = self.appctl(&["ofproto/trace", "br0", packet]);
        let last = story.lines().rev().find_map(|l| l.strip_prefix("Datapath actions: "));
        last.map_or_else(|| format!("no actions in {story}"), renumbered)
    }
}

/// Replaces recirculation ids, which depend on earlier packets.
fn renumbered(line: &str) -> String {
    ["recirc(0x", "recirc_id="].iter().fold(line.to_string(), |line, head| match line.split_once(head) {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_hexdigit());
            format!("{before}{}#{rest}", head.trim_end_matches("0x"))
        }
        None => line,
    })
}

/// The rows of a table.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines().filter(|l| !l.starts_with('#')).map(|l| l.split('\t').collect()).collect()
}

/// Its parts but `-`, separated by commas.
fn joined(parts: &[&str]) -> String {
    parts.iter().copied().filter(|p| *p != "-").collect::<Vec<_>>().join(",")
}

/// The name of an action, without an argument that tells its forms apart.
fn plain(name: &str) -> &str {
    name.split([':', '(']).next().unwrap_or(name)
}

/// Fails unless the rows have exactly these names.
fn check_names(kind: &str, accepted: BTreeSet<&str>) {
    let line = include_str!("names.txt").lines().find_map(|l| l.strip_prefix(kind)?.strip_prefix(' '));
    let wanted: BTreeSet<&str> = line.unwrap().split_whitespace().collect();
    let one = kind.trim_end_matches('s');
    let refused: BTreeSet<&str> = refused().into_iter().filter(|r| r[0] == one).map(|r| r[2]).collect();
    let both: Vec<&&str> = accepted.intersection(&refused).collect();
    assert!(both.is_empty(), "{kind} with a row of both kinds: {both:?}");
    let rows: BTreeSet<&str> = accepted.union(&refused).copied().collect();
    let without: Vec<&&str> = wanted.difference(&rows).collect();
    let unknown: Vec<&&str> = rows.difference(&wanted).collect();
    assert!(
        without.is_empty() && unknown.is_empty(),
        "{kind} without a row: {without:?}, unknown: {unknown:?}"
    );
}

/// Kind, area, name, argument, error.
fn refused() -> Vec<Vec<&'static str>> {
    let rows = rows(include_str!("refused.tsv"));
    for row in &rows {
        assert!(row.len() == 5 && AREAS.contains(&row[1]), "{row:?}");
    }
    rows
}

fn fields() -> Vec<Vec<&'static str>> {
    rows(include_str!("fields.tsv"))
}

fn actions() -> Vec<Vec<&'static str>> {
    rows(include_str!("actions.tsv"))
}

#[test]
fn every_name_has_a_row() {
    check_names("fields", fields().iter().map(|r| r[0]).collect());
    check_names("actions", actions().iter().map(|r| plain(r[0])).collect());
}

/// The fields of the switch are those of the list, and names of OVS that its manual leaves out.
#[test]
fn every_field_of_the_switch_is_listed() {
    let listed: BTreeSet<&str> =
        fields().iter().chain(&refused()).flat_map(|r| [r[0], r.get(2).copied().unwrap_or("")]).collect();
    let unlisted = ["dp_hash", "recirc_id", "tun_ttl", "tun_tos", "dl_vlan", "dl_vlan_pcp"];
    for field in flow::fields::ALL_FIELDS {
        let name = field.def().name;
        let is_metadata = name.starts_with("tun_metadata");
        // Registers of OVS 3.7 have a test of their own: Debian's tools do not know them.
        let register = |class: &str, first: u32| {
            name.strip_prefix(class).and_then(|n| n.parse().ok()).is_some_and(|n: u32| n >= first)
        };
        let is_later = register("reg", 16) || register("xreg", 8) || register("xxreg", 4);
        assert!(is_metadata || is_later || listed.contains(name) || unlisted.contains(&name), "{name}");
    }
}

#[test]
fn fields_are_matched_set_and_masked() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let mut faults = Vec::new();
    for row in fields() {
        let [name, rule, packet, value, other, set, part] = row[..] else { panic!("{row:?}") };
        let of_value = format!("{name}={value}");
        let mut lines = vec![
            "delete".to_string(),
            joined(&["priority=2", rule, &of_value, "actions=2"]),
            joined(&["table=2,priority=2", rule, &of_value, "actions=3"]),
            "priority=3,in_port=4,actions=resubmit(,1)".to_string(),
        ];
        let is_set = set != "-";
        if is_set {
            let then = if set.starts_with("write_actions") { "goto_table:2" } else { "resubmit(,2)" };
            lines.push(joined(&["table=1,priority=2", rule, &format!("actions={set},{then}")]));
        }
        let mut expect = |what: &str, ok: bool, said: &str| {
            if !ok {
                faults.push(format!("{name}: {what}: {said}"));
            }
        };
        // OpenFlow 1.5 has `load` as `set_field` only, which the port refuses.
        let error = lab.rules(if name == "in_port_oxm" { "14" } else { "15" }, &lines);
        expect("accepted", error.is_none(), &error.clone().unwrap_or_default());
        if error.is_some() {
            continue;
        }
        let is_port = name.starts_with("in_port");
        let from = |port: &'static str| if is_port { "-" } else { port };
        if packet != "none" {
            let hit = lab.actions(&joined(&[from("in_port=3"), packet, &of_value]));
            expect("matches its value", hit == "2", &hit);
        }
        let of_other = if other == "-" { "-".to_string() } else { format!("{name}={other}") };
        if packet != "none" && other != "-" {
            let miss = lab.actions(&joined(&[from("in_port=3"), packet, &of_other]));
            expect("does not match another value", miss == "drop", &miss);
        }
        if is_set {
            let of_other = if is_port || packet == "none" { "-" } else { &of_other };
            let packet = if packet == "none" { "-" } else { packet };
            let done = lab.actions(&joined(&["in_port=4", packet, of_other]));
            expect("is set", done.split(',').any(|action| action == "3"), &done);
        } else {
            let set = format!("actions=set_field:{value}->{name}");
            let error = lab.ofctl("15", &["add-flow", "br0", &joined(&[rule, &set])]);
            expect(
                "is read-only",
                error.as_ref().is_some_and(|e| e.contains("read-only") || e.contains("outside of ct action")),
                &format!("{error:?}"),
            );
        }
        let part_of = if part == "-" { format!("{name}={value}/1") } else { format!("{name}={part}") };
        if part != "?" {
            let error = lab.ofctl("15", &["add-flow", "br0", &joined(&[rule, &part_of, "actions=2"])]);
            expect("has a mask", error.is_none() == (part != "-"), &format!("{part_of} {error:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn actions_are_translated_and_dumped() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let group = ["add-group", "br0", "group_id=1,type=all,bucket=output:2,bucket=output:3"];
    assert_eq!(lab.ofctl("13", &group), None);
    assert_eq!(lab.ofctl("13", &["add-meter", "br0", "meter=1,kbps,band=type=drop,rate=1000"]), None);
    let common = [
        "delete",
        "priority=1,in_port=2,actions=3",
        "table=1,tun_metadata0=5,actions=3",
        "table=1,priority=1,actions=2",
        "table=2,tun_id=5,actions=2",
        "table=4,actions=2",
        "table=5,reg0=0,actions=2",
        "table=6,metadata=5,actions=2",
    ];
    let mut faults = Vec::new();
    for row in actions() {
        let [name, rule, list, packet, datapath, dumped] = row[..] else { panic!("{row:?}") };
        let lines: Vec<String> = common.iter().map(|l| l.to_string()).collect();
        assert_eq!(lab.rules("13", &lines), None);
        // Some have a form of their own in OpenFlow 1.0 only.
        let version =
            if ["strip_vlan", "mod_vlan_vid", "mod_vlan_pcp"].contains(&name) { "10" } else { "13" };
        let line = joined(&["priority=2", rule, &format!("actions={list}")]);
        if let Some(error) = lab.ofctl(version, &["add-flow", "br0", &line]) {
            faults.push(format!("{name}: {error}"));
            continue;
        }
        let translated = lab.actions(&joined(&["in_port=1", packet]));
        if translated != datapath {
            faults.push(format!("{name}: {translated}, not {datapath}"));
        }
        let tool = lab.daemon.tool("ovs-ofctl");
        let dump =
            tool.args(["-O", "OpenFlow13", "--no-stats", "dump-flows", "br0", "table=0"]).run().unwrap();
        let of_rule = dump.stdout.lines().find(|l| l.contains("priority=2") && l.contains("actions="));
        let shown = of_rule.and_then(|l| l.split_once("actions=")).map_or("", |(_, shown)| shown);
        if shown != dumped {
            faults.push(format!("{name}: dumped as {shown}, not {dumped}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn refused_fields_and_actions_have_clear_errors() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new();
    for row in refused() {
        let [kind, _, name, argument, expected] = row[..] else { panic!("{row:?}") };
        let line = match kind {
            "field" => format!("{argument},actions=2"),
            "action" => argument.to_string(),
            _ => panic!("{row:?}"),
        };
        let error = lab.ofctl("15", &["add-flow", "br0", &line]);
        assert!(error.as_ref().is_some_and(|e| e.contains(expected)), "{name}: {error:?}");
    }
}
