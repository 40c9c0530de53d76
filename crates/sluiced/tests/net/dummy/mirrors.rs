//! Mirrors: traces recorded from OVS 3.5, and counters.
//!
//! `mirrors.txt` and the files beside it have steps and answers: `!` words of `ovs-vsctl`, `a` a command, `+` a rule
//! of a bridge, `-` the rules of a match removed, `g` a group, `f` a mirror's filter, `?` a trace, `o` that of a
//! packet-out; answers are indented. `E` are the Ethernet addresses.

use super::Lab;
use crate::helpers::{LIMIT, vsctl};
use testkit::{require_netns, require_programs, wait_for};

const STEPS: &str = include_str!("mirrors.txt");
const OF_RECIRCULATED: &str = include_str!("mirrors_recirculated.txt");
const OF_TUNNELS: &str = include_str!("mirrors_tunnels.txt");
const ADDRESSES: &str = "dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02";

/// The lines of a trace without the first flow, rules under headings, and numbers of recirculations.
fn lines(trace: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in trace.lines().map(|line| line.trim_end()) {
        if line.is_empty() || line.starts_with("Flow:") || line.starts_with("-----") {
            continue;
        }
        let mut line = line.to_string();
        for start in ["recirc(0x", "recirc_id=0x"] {
            while let Some((head, rest)) = line.clone().split_once(start) {
                let rest = rest.trim_start_matches(|c: char| c.is_ascii_hexdigit());
                line = format!("{head}{}…{rest}", start.trim_end_matches("0x"));
            }
        }
        lines.push(line);
    }
    lines
}

/// Sets the filter of a mirror; Debian's `ovs-vsctl` does not know the column.
fn set_filter(lab: &Lab, mirror: &str, filter: &str) {
    let update = format!(
        "[\"Open_vSwitch\",{{\"op\":\"update\",\"table\":\"Mirror\",\"where\":[[\"name\",\"==\",\"{mirror}\"]],\
         \"row\":{{\"filter\":\"{filter}\"}}}}]"
    );
    let db = lab.daemon.rundir().db();
    lab.daemon.ovs("ovsdb-client", &["transact", &db, &update]).unwrap();
    // It waits until the switch has the change.
    vsctl(&lab.daemon, &format!("set Mirror {mirror} external_ids:filter={}", filter.len()));
}

fn step(lab: &Lab, kind: &str, rest: &str) -> Vec<String> {
    let rest = rest.replace(",E", &format!(",{ADDRESSES}"));
    let (first, more) = rest.split_once(' ').unwrap_or((&rest, ""));
    match kind {
        "!" => drop(vsctl(&lab.daemon, &format!("-- {rest}"))),
        "+" => drop(lab.ofctl(&["-OOpenFlow13", "add-flow", first, more])),
        "-" => drop(lab.ofctl(&["-OOpenFlow13", "del-flows", first, more])),
        "g" => drop(lab.ofctl(&["-OOpenFlow15", "add-group", first, more])),
        "a" => drop(lab.appctl(&rest)),
        "f" => set_filter(lab, first, more),
        "?" => return lines(&lab.appctl(&format!("ofproto/trace {rest}"))),
        "o" => return lines(&lab.appctl(&format!("ofproto/trace-packet-out -consistent {rest}"))),
        _ => {}
    }
    Vec::new()
}

/// Runs the steps on a new switch and compares the answers.
fn compare(steps: &str) {
    let lab = Lab::empty();
    let mut all = steps.lines().peekable();
    let mut differing = String::new();
    while let Some(line) = all.next() {
        let mut expected = Vec::new();
        while let Some(answer) = all.next_if(|line| line.starts_with("  ")) {
            expected.push(answer[2..].trim_end().to_string());
        }
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let told = step(&lab, kind, rest);
        if told != expected {
            differing +=
                &format!("{line}\n  told:\n{}\n  expected:\n{}\n", told.join("\n"), expected.join("\n"));
        }
    }
    assert!(differing.is_empty(), "{differing}");
}

#[test]
fn traces_read_as_with_the_stock_switch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovsdb-client");
    compare(STEPS);
}

#[test]
fn traces_of_recirculated_packets_read_as_with_the_stock_switch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    compare(OF_RECIRCULATED);
}

#[test]
fn traces_with_tunnels_read_as_with_the_stock_switch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    compare(OF_TUNNELS);
}

#[test]
fn counters_reach_the_row_and_a_port_that_returns_is_an_output_again() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    vsctl(&lab.daemon, "set Open_vSwitch . other_config:stats-update-interval=5000");
    let mirror = "-- --id=@o get Port p2 -- --id=@m create Mirror name=m0 select_all=true output_port=@o \
         -- set Bridge br0 mirrors=@m";
    vsctl(&lab.daemon, mirror);
    let frame = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x1234)";
    (0..3).for_each(|_| lab.receive("p1", frame));
    let statistics = || lab.daemon.ovs("ovs-vsctl", &["get", "Mirror", "m0", "statistics"]).unwrap().stdout;
    wait_for(LIMIT, "counters of the mirror", || {
        lab.appctl("time/warp 6000 1000");
        statistics().trim() == "{tx_bytes=42, tx_packets=3}"
    })
    .unwrap_or_else(|e| panic!("{e}: {}", statistics()));
    let trace = "ofproto/trace br0 in_port=1,dl_src=50:54:00:00:00:09,dl_dst=50:54:00:00:00:07";
    let actions = || lab.appctl(trace).lines().last().unwrap_or_default().to_string();
    let with = actions();
    assert!(with.starts_with("Datapath actions: 2,"), "{with}");
    // Its mirror goes with the port.
    vsctl(&lab.daemon, "del-port p2");
    assert!(!actions().contains("2,"), "{}", actions());
    let status = lab.daemon.ovs("ovs-vsctl", &["get", "Bridge", "br0", "status"]).unwrap().stdout;
    assert!(status.contains("mirror m0 does not specify output; ignoring"), "{status}");
    vsctl(&lab.daemon, "add-port br0 p2 -- set Interface p2 type=dummy ofport_request=2");
    let set = "-- --id=@o get Port p2 -- set Mirror m0 output_port=@o";
    vsctl(&lab.daemon, set);
    assert!(actions().starts_with("Datapath actions: 2,"), "{}", actions());
    vsctl(&lab.daemon, "clear Bridge br0 mirrors");
    assert!(!actions().starts_with("Datapath actions: 2,"), "{}", actions());
}
