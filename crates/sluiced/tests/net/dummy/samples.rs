//! Rules that sample packets: without collectors, and for local readers by `sluice sample`.

use super::{FROM_5_TO_7, Lab};
use crate::cli::{program, sluice};
use crate::helpers::{LIMIT, vsctl};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::{require_netns, require_programs, wait_for};

/// As in OVS without collectors, the drop is explicit, whether `explicit-sampled-drops` asks for it or not.
#[test]
fn a_packet_that_is_only_sampled_is_dropped_explicitly() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let sample = "sample(probability=12345,collector_set_id=1,obs_domain_id=1,obs_point_id=2)";
    lab.ofctl(&["add-flow", "br0", &format!("in_port=1,actions={sample}")]);
    lab.ofctl(&["add-flow", "br0", &format!("in_port=2,actions={sample},resubmit(,1)")]);
    let dropped =
        || lab.appctl("coverage/read-counter drop_action_of_pipeline").trim().parse::<u64>().unwrap();
    for setting in ["true", "false"] {
        vsctl(&lab.daemon, &format!("set Open_vSwitch . other_config:explicit-sampled-drops={setting}"));
        for port in 1..=2 {
            let trace = lab.appctl(&format!("ofproto/trace br0 in_port={port}"));
            assert!(trace.ends_with("Datapath actions: drop\n"), "{trace}");
        }
        let before = dropped();
        let frame = format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)");
        (0..3).for_each(|_| lab.receive("p1", &frame));
        assert_eq!(dropped() - before, 3);
    }
    let flows = lab.appctl("dpctl/dump-flows");
    assert!(flows.contains("eth_type(0x1234)") && flows.contains("actions:drop"), "{flows}");
    assert!(!lab.daemon.log().contains("explicit-sampled-drops"), "{}", lab.daemon.log());
}

/// Creates a set of collectors of `br0` with a group of local readers.
fn add_group(lab: &Lab, set: u32, group: u32) {
    let line = format!(
        "vsctl -- --id=@b get Bridge br0 -- create Flow_Sample_Collector_Set id={set} bridge=@b local_group_id={group}"
    );
    // Debian's tool does not know the column.
    sluice(&lab.daemon, &line.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn a_reader_gets_each_sampled_packet_with_its_ids() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", program().as_str());
    let lab = Lab::new();
    add_group(&lab, 1, 10);
    add_group(&lab, 2, 20);
    assert!(lab.appctl("dpif/show-dp-features br0").contains("psample action: Yes"));
    let sample = |set: u32, point: &str| {
        format!(
            "sample(probability=65535,collector_set_id={set},obs_domain_id=0x11223344,obs_point_id={point})"
        )
    };
    lab.ofctl(&["add-flow", "br0", &format!("in_port=1,actions={},2", sample(1, "7"))]);
    let of_register = sample(2, "NXM_NX_REG0[]");
    let line = format!("in_port=2,actions=load:9->NXM_NX_REG0[],{of_register},{},1", sample(1, "8"));
    // Debian's tool takes no register.
    sluice(&lab.daemon, &["ofctl", "add-flow", "br0", &line]);
    let trace = lab.appctl("ofproto/trace br0 in_port=2");
    let wanted =
        "psample(group=20,cookie=0x1122334400000009),psample(group=10,cookie=0x1122334400000008),1\n";
    assert!(trace.ends_with(wanted), "{trace}");
    let frames = [(1, 0x1230), (2, 0x1240), (1, 0x1231), (2, 0x1241)];
    let told = samples_of(&lab, &frames, 24);
    // The reader may begin within a round; from then on no sample is missing.
    let of = |(port, ethertype)| match port {
        1 => vec![("p1", ethertype, 10, 7)],
        _ => vec![("p2", ethertype, 20, 9), ("p2", ethertype, 10, 8)],
    };
    let round: Vec<(&str, u64, u64, u64)> = frames.into_iter().flat_map(of).collect();
    let lines: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 24, "{told}");
    let seen: Vec<(&str, u64, u64, u64)> = lines
        .iter()
        .map(|line| {
            let number = |key: &str| line[key].as_u64().unwrap();
            assert_eq!(
                (number("obs_domain_id"), line["sample_percent"].as_f64()),
                (0x1122_3344, Some(100.0))
            );
            // The EtherType stands behind both addresses.
            let ethertype = u64::from_str_radix(&line["packet"].as_str().unwrap()[26..30], 16).unwrap();
            (line["in_port"].as_str().unwrap(), ethertype, number("group"), number("obs_point_id"))
        })
        .collect();
    let start = round.iter().position(|sample| *sample == seen[0]).unwrap();
    assert!(round.iter().cycle().skip(start).zip(&seen).all(|(wanted, seen)| wanted == seen), "{told}");
}

/// Output of `sluice sample` for that many samples, while these frames arrive in rotation: port and EtherType.
fn samples_of(lab: &Lab, frames: &[(u64, u64)], count: u64) -> String {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let told = scope.spawn(|| {
            let told = sluice(&lab.daemon, &["sample", "--json", "-c", &count.to_string()]);
            over.store(true, Ordering::Release);
            told
        });
        for (port, ethertype) in frames.iter().cycle() {
            if over.load(Ordering::Acquire) || told.is_finished() {
                break;
            }
            let frame = format!("in_port({port}),{FROM_5_TO_7},eth_type({ethertype:#x})");
            lab.receive(&format!("p{port}"), &frame);
        }
        told.join().unwrap()
    })
}

#[test]
fn a_datapath_without_the_action_has_no_local_samples() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", program().as_str());
    let lab = Lab::new();
    lab.appctl("dpif/set-dp-features br0 psample false");
    add_group(&lab, 1, 10);
    lab.ofctl(&[
        "add-flow",
        "br0",
        "in_port=1,actions=sample(probability=65535,collector_set_id=1,obs_domain_id=1,obs_point_id=2),2",
    ]);
    let trace = lab.appctl("ofproto/trace br0 in_port=1");
    assert!(trace.ends_with("Datapath actions: 2\n"), "{trace}");
    let told = "bridge br0: ignoring local sampling configuration: not supported by this datapath";
    assert!(lab.daemon.log().contains(told), "{}", lab.daemon.log());
    let why = "local_group_id: samples for local readers are not taken: the datapath lacks psample";
    let notice = || vsctl(&lab.daemon, "--if-exists get Bridge br0 status:notice");
    wait_for(LIMIT, "the reason in the row", || notice().contains(why)).unwrap();
    assert!(lab.appctl("sluice/status").contains(why));
    lab.appctl("dpif/set-dp-features br0 psample true");
    let trace = lab.appctl("ofproto/trace br0 in_port=1");
    assert!(trace.ends_with("Datapath actions: psample(group=10,cookie=0x100000002),2\n"), "{trace}");
    wait_for(LIMIT, "no reason in the row", || !notice().contains(why)).unwrap();
    lab.appctl("dpif/set-dp-features br0 psample false");
    wait_for(LIMIT, "the reason again", || notice().contains(why)).unwrap();
    vsctl(&lab.daemon, "--all destroy Flow_Sample_Collector_Set");
    wait_for(LIMIT, "no reason without sets", || !notice().contains(why)).unwrap();
    assert!(!lab.appctl("sluice/status").contains(why));
}
