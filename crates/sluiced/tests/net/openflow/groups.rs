//! Groups with real traffic, by the tools of OVS.

use super::frames::{HOST_2, IP, eth, source};
use super::{LIMIT, Lab, VERSIONS, number_after, received, send};
use std::collections::BTreeSet;
use testkit::{require_netns, require_programs, wait_for};

/// TCP segments of `flows` conversations.
fn segments(flows: u16) -> Vec<String> {
    (0..flows).map(|n| eth(HOST_2, &source(1), &IP.tcp(1000 + n, 80, 2))).collect()
}

/// Conversations: tcpdump's ring has space for 32 frames that come at once.
const FLOWS: u16 = 40;

/// Source and type of [`end`], as tcpdump prints them.
const END: &str = "02aa 0000 0009 88b6";

/// A frame at the end of the others, flooded.
fn end() -> String {
    eth(HOST_2, &source(9), "88b6")
}

/// Sends the frames from host 1, waits until the rule of TCP has counted them with `before` earlier ones, and returns the
/// conversations that hosts 2 and 3 receive.
fn split(lab: &Lab, frames: &[String], before: usize) -> [BTreeSet<String>; 2] {
    let captures = [lab.watch(2), lab.watch(3)];
    send(lab.host(1), frames);
    lab.wait_packets("tcp", (before + frames.len()) as u64);
    send(lab.host(1), &[end()]);
    captures.map(|capture| {
        capture.wait_for(END, LIMIT).unwrap();
        let all = received(&capture.stop().unwrap());
        all.iter().filter(|f| f[12..24] == source(1)).map(|f| f[68..76].to_string()).collect()
    })
}

#[test]
fn a_select_group_keeps_each_conversation_in_a_bucket() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(3);
    for version in VERSIONS {
        for method in ["", "hash"] {
            if version == "OpenFlow13" && method == "hash" {
                // That version has no methods.
                continue;
            }
            lab.ofctl(&format!("-O {version} del-groups br0"));
            let method = if method.is_empty() { "" } else { "selection_method=hash,fields(tcp_src)," };
            let group = format!(
                "group_id=1,type=select,{method}bucket=weight=1,actions=output:2,bucket=weight=1,actions=output:3"
            );
            lab.ofctl(&format!("-O {version} add-group br0 {group}"));
            lab.rules(version, "priority=1,dl_type=0x88b6,actions=flood\n tcp,actions=group:1\n");
            let frames = segments(FLOWS);
            let [two, three] = split(&lab, &frames, 0);
            assert_eq!(two.len() + three.len(), usize::from(FLOWS), "{version} {method}");
            assert!(two.is_disjoint(&three) && two.len() > 4 && three.len() > 4, "{two:?} {three:?}");
            assert_eq!(
                split(&lab, &frames, frames.len()),
                [two.clone(), three.clone()],
                "{version} {method} again"
            );
            let stats = || lab.ofctl(&format!("-O {version} dump-group-stats br0"));
            let of = |key: &str| number_after(&stats(), key);
            wait_for(LIMIT, "statistics", || of("packet_count=") == 2 * u64::from(FLOWS)).unwrap();
            let buckets = [of("bucket0:packet_count="), of("bucket1:packet_count=")];
            assert_eq!(buckets, [2 * two.len() as u64, 2 * three.len() as u64], "{}", stats());
        }
    }
}

#[test]
fn a_fast_failover_group_follows_the_links() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(3);
    let bucket = |port: u32| format!("bucket=watch_port:{port},actions=output:{port}");
    lab.ofctl(&format!("-O OpenFlow13 add-group br0 group_id=1,type=ff,{},{}", bucket(2), bucket(3)));
    lab.rules("OpenFlow13", "priority=1,dl_type=0x88b6,actions=output:2,output:3\n tcp,actions=group:1\n");
    let frames = segments(4);
    let counts = |before| split(&lab, &frames, before).map(|seen| seen.len());
    assert_eq!(counts(0), [4, 0]);
    let to_three = |at: &str| {
        let expected = format!("Datapath actions: {at}");
        wait_for(LIMIT, &expected, || {
            let dump = lab.appctl("dpctl/dump-flows");
            let trace = lab.appctl("ofproto/trace br0 in_port=1,tcp");
            trace.contains("using bucket 1") == (at == "3") && !dump.is_empty()
        })
        .unwrap();
        // The flows follow.
        lab.appctl("revalidator/wait");
    };
    let port = lab.net.ports()[1].to_string();
    lab.net.switch.run("ip", &["link", "set", &port, "down"]).unwrap();
    to_three("3");
    let capture = lab.watch(3);
    send(lab.host(1), &frames);
    send(lab.host(1), &[end()]);
    capture.wait_for(END, LIMIT).unwrap();
    assert_eq!(received(&capture.stop().unwrap()).len(), 5, "all to host 3");
    lab.net.switch.run("ip", &["link", "set", &port, "up"]).unwrap();
    to_three("2");
    assert_eq!(counts(8), [4, 0]);
}

#[test]
fn rules_end_with_their_group() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(1);
    for version in VERSIONS {
        let group = "group_id=7,type=all,bucket=actions=output:1";
        lab.ofctl(&format!("-O {version} add-group br0 {group}"));
        lab.rules(version, "in_port=1,actions=group:7\n in_port=2,actions=output:1\n");
        assert_eq!(lab.dump(version), ["in_port=1 actions=group:7", "in_port=2 actions=output:1"]);
        let refused = lab.refused(&format!("-O {version} add-flow br0 actions=group:8"), "");
        assert!(refused.contains("OFPBAC_BAD_OUT_GROUP"), "{refused}");
        let refused = lab.refused(&format!("-O {version} add-group br0 {group}"), "");
        assert!(refused.contains("OFPGMFC_GROUP_EXISTS"), "{refused}");
        lab.ofctl(&format!("-O {version} del-groups br0 group_id=7"));
        assert_eq!(lab.dump(version), ["in_port=2 actions=output:1"]);
        assert_eq!(lab.ofctl(&format!("-O {version} dump-groups br0")).lines().count(), 1);
    }
}

/// `sluice ofctl` prints what `ovs-ofctl` prints, and its changes are the same.
#[test]
fn sluice_prints_groups_as_ovs_ofctl() {
    let sluice = crate::cli::program();
    require_netns!();
    require_programs!(sluice.as_str(), "ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(1);
    let ours = |words: &[&str], input: &str| {
        lab.daemon.tool(&sluice).arg("ofctl").args(words).input(input.to_string()).run().unwrap().stdout
    };
    for version in ["OpenFlow10", "OpenFlow11", "OpenFlow13", "OpenFlow15"] {
        let file = "delete\n\
            add group_id=1,type=all,bucket=output:1,bucket=drop # both\n\
            group_id=2,type=select,bucket=weight=7,actions=output:1,bucket=output:1\n\
            group_id=3,type=ff,bucket=watch_port:1,actions=output:1\n\
            modify group_id=1,type=indirect,bucket=actions=output:1\n";
        ours(&["-O", version, "add-groups", "br0", "-"], file);
        ours(&["-O", version, "--may-create", "mod-group", "br0", "group_id=4,type=all"], "");
        ours(&["-O", version, "del-groups", "br0", "group_id=3"], "");
        for verb in ["dump-groups", "dump-group-features", "dump-group-stats"] {
            let theirs = lab.ofctl(&format!("-O {version} --no-names {verb} br0"));
            let ours = ours(&["-O", version, "--no-names", verb, "br0"], "");
            let plain = |text: &str| {
                let lines = text.lines().map(|line| {
                    let line = line.split(" (xid").next().unwrap_or(line);
                    let (head, rest) = line.split_once("duration=").unwrap_or((line, ""));
                    head.to_string() + rest.split_once(',').map_or("", |(_, rest)| rest)
                });
                lines.collect::<Vec<_>>()
            };
            assert_eq!(plain(&ours), plain(&theirs), "{version} {verb}\n{ours}\n{theirs}");
            assert!(ours.len() > 60, "{ours}");
        }
    }
    let place = "group_id=2,command_bucket_id=first,bucket=bucket_id=9,weight=3,actions=drop";
    ours(&["-O", "OpenFlow15", "insert-buckets", "br0", place], "");
    ours(&["-O", "OpenFlow15", "remove-buckets", "br0", "group_id=2,command_bucket_id=0"], "");
    let dump = lab.ofctl("-O OpenFlow15 dump-groups br0 2");
    let expected = "bucket=bucket_id:9,weight:3,actions=drop,bucket=bucket_id:1,actions=output:1";
    assert!(dump.contains(expected), "{dump}");
    let refused =
        lab.daemon.tool(&sluice).args(["ofctl", "add-group", "br0", "group_id=2,type=all"]).output().unwrap();
    assert!(!refused.status.success() && refused.stderr.contains("OFPGMFC_GROUP_EXISTS"), "{refused:?}");
}
