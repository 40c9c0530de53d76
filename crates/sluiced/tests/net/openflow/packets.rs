//! Packet-ins and packet-outs, as printed and sent by `ovs-ofctl`.

use testkit::{require_netns, require_programs, wait_for};

use super::frames::{HOST_2, IP, eth, source, tagged};
use super::{LIMIT, Lab, VERSIONS, number_after, received, send, wait_text};

/// The number of packet-ins printed by a monitor, without the copies in its debug log.
fn packet_ins(text: &str) -> usize {
    text.lines().filter(|l| l.contains("PACKET_IN") && !l.contains("|vconn|")).count()
}

#[test]
fn packet_ins_carry_metadata_of_the_flow() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3");
    let lab = Lab::new(2);
    for version in VERSIONS {
        let rules = "cookie=0xabc,in_port=1,udp,actions=load:0x5->NXM_NX_REG3[],resubmit(,4)\n\
                     table=4,cookie=0xdef,reg3=5,actions=controller(max_len=64),2\n\
                     in_port=1,dl_type=0x88b5,actions=controller(userdata=01.02.03)";
        lab.rules(version, rules);
        let monitor = lab.monitor(&format!("-O {version} -P nxt_packet_in monitor br0 65534"));
        let sent = tagged(HOST_2, &source(1), 0x6007, &IP.udp(1000, 53));
        send(lab.host(1), &[sent.clone(), sent]);
        wait_for(LIMIT, "two packets", || packet_ins(&monitor.stderr()) == 2).unwrap_or_else(|why| {
            panic!("{version}: {why}\n{}", monitor.stderr());
        });
        let text = monitor.stderr();
        for part in [
            "table_id=4",
            "cookie=0xdef",
            "in_port=1",
            "reg3=0x5",
            "(via action)",
            "(unbuffered)",
            "total_len=60",
            "dl_vlan=7,dl_vlan_pcp=3",
            "nw_src=10.1.1.1",
            "tp_dst=53",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        lab.wait_packets("table=4", 2);
        let frame = eth(HOST_2, &source(2), "88b5");
        drop(monitor);
        let nxt2 = lab.monitor(&format!("-O {version} -P nxt_packet_in2 monitor br0 65534"));
        send(lab.host(1), &[frame]);
        // The log has each message before it is printed.
        wait_for(LIMIT, "the packet", || packet_ins(&nxt2.stderr()) > 0)
            .unwrap_or_else(|why| panic!("{why}\n{}", nxt2.stderr()));
        assert!(nxt2.stderr().contains("userdata=01.02.03"), "{}", nxt2.stderr());
        // Once per packet, including those that hit the megaflow.
        assert_eq!(packet_ins(&nxt2.stderr()), 1, "{}", nxt2.stderr());
    }
}

/// The packet-ins printed by a monitor, each as its lines without the transaction id.
fn reported(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut in_log = false;
    for line in text.lines() {
        in_log = line.contains("|vconn|") || in_log && !line.contains("PACKET_IN");
        match all.last_mut() {
            _ if in_log => {}
            Some(last) if !line.contains("PACKET_IN") => *last = format!("{last}\n{line}"),
            _ => all.push(line[line.find("cookie").unwrap_or(0)..].to_string()),
        }
    }
    all
}

/// Translation sends the packet-in of a flow's first packet, the megaflow those of later ones: they are equal.
#[test]
fn packet_ins_of_first_and_later_packets_are_equal() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3");
    let lab = Lab::new(2);
    let rule = "cookie=0x7,in_port=1,udp,actions=load:5->NXM_NX_REG3[],load:9->OXM_OF_METADATA[],controller,\
                load:3->NXM_NX_PKT_MARK[],mod_nw_tos:8,mod_tp_dst:99,mod_vlan_vid:9,controller(max_len=64),\
                strip_vlan,mod_nw_src:10.9.9.9,controller(userdata=01.02),2";
    lab.rules("OpenFlow10", rule);
    let watch = lab.watch(2);
    let monitor = lab.monitor("-m -m -P nxt_packet_in2 monitor br0 65534");
    let frame = eth(HOST_2, &source(1), &IP.udp(1000, 53));
    send(lab.host(1), &[frame.clone(), frame.clone(), frame]);
    wait_for(LIMIT, "nine packets", || packet_ins(&monitor.stderr()) == 9)
        .unwrap_or_else(|why| panic!("{why}\n{}", monitor.stderr()));
    lab.wait_packets("in_port=1", 3);
    let all = reported(&monitor.stderr());
    let [first, second, third] = [&all[..3], &all[3..6], &all[6..]];
    assert_eq!((first, second), (second, third), "{all:#?}");
    let has = |n: usize, parts: &[&str]| {
        parts.iter().for_each(|part| assert!(first[n].contains(part), "{part}: {}", first[n]));
    };
    has(0, &["reg3=0x5", "metadata=0x9", "nw_tos=0", "tp_dst=53", "vlan_tci=0x0000"]);
    has(1, &["reg3=0x5", "pkt_mark=0x3", "nw_tos=8", "tp_dst=99", "dl_vlan=9", "nw_src=10.1.1.1"]);
    has(2, &["userdata=01.02", "nw_src=10.9.9.9", "vlan_tci=0x0000", "tp_dst=99"]);
    wait_for(LIMIT, "three frames", || received(&watch.lines()).len() == 3).unwrap();
    let forwarded = received(&watch.stop().unwrap());
    assert!(forwarded.iter().all(|f| *f == forwarded[0]), "{forwarded:?}");
}

#[test]
fn a_table_miss_follows_the_openflow_version() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3");
    let lab = Lab::new(1);
    let frame = |n: u8| eth(HOST_2, &source(n), "88b5");
    // 1.0: to controllers with a miss_send_len. 1.3: only by a flow of priority 0.
    let old = lab.monitor("monitor br0 65534");
    let new = lab.monitor("-O OpenFlow13 monitor br0 65534");
    send(lab.host(1), &[frame(1)]);
    wait_text(&old, "(via no_match)");
    assert!(old.stderr().contains("dl_src=02:aa:00:00:00:01"), "{}", old.stderr());
    lab.ofctl("-O OpenFlow13 add-flow br0 priority=0,actions=controller");
    send(lab.host(1), &[frame(2)]);
    wait_text(&new, "dl_src=02:aa:00:00:00:02");
    wait_text(&old, "dl_src=02:aa:00:00:00:02");
    assert!(new.stderr().contains("(via no_match)"), "{}", new.stderr());
    assert!(!new.stderr().contains("dl_src=02:aa:00:00:00:01"), "{}", new.stderr());
    assert!(old.stderr().contains("(via action)"), "{}", old.stderr());
}

#[test]
fn controllers_send_packets() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3", "tcpdump");
    let lab = Lab::new(2);
    for version in VERSIONS {
        lab.rules(
            version,
            "cookie=1,in_port=1,dl_type=0x88b5,actions=2\ncookie=2,in_port=controller,actions=2",
        );
        let capture = lab.watch(2);
        let frame = |n: u8| eth(HOST_2, &source(n), "88b5");
        let out = |in_port: &str, packet: &str, actions: &str| {
            lab.ofctl(&format!(
                "-O {version} packet-out br0 in_port={in_port},packet={packet},actions={actions}"
            ));
        };
        out("controller", &frame(1), "2");
        out("1", &frame(2), "table");
        out("controller", &frame(3), "resubmit(,0)");
        out("controller", &frame(4), "mod_vlan_vid:5,2");
        out("none", &frame(5), "flood");
        wait_for(LIMIT, "five frames", || received(&capture.lines()).len() >= 5).unwrap();
        let expected = [frame(1), frame(2), frame(3), tagged(HOST_2, &source(4), 5, "88b5"), frame(5)];
        let seen = received(&capture.stop().unwrap());
        let short = |f: &String| f.trim_end_matches('0').to_string();
        assert!(seen.iter().map(short).eq(expected.iter().map(short)), "{version}: {seen:#?}");
        assert_eq!(lab.packets("cookie=1/-1"), 1);
        assert_eq!(lab.packets("cookie=2/-1"), 1);
        let bad = format!("packet-out br0 in_port=controller,packet={},actions=ct(table=1)", frame(1));
        let why = lab.refused(&format!("-O {version} {bad}"), "");
        assert!(why.contains("OFPBAC_MATCH_INCONSISTENT"), "{why}");
    }
}

#[test]
fn every_packet_counts_once() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "python3");
    let lab = Lab::new(2);
    let rules = "cookie=1,in_port=1,actions=resubmit(,1),resubmit(,1)\n\
                 table=1,cookie=2,udp,actions=2\ntable=1,cookie=3,actions=drop";
    lab.rules("OpenFlow10", rules);
    // Datapath flows are deleted and reinstalled while OpenFlow flows change.
    for round in 1..=4_u64 {
        let frames: Vec<String> =
            (0..200).map(|n| eth(HOST_2, &source((n % 20) as u8), &IP.udp(n % 50, 53))).collect();
        send(lab.host(1), &frames);
        match round {
            1 => drop(lab.ofctl("add-flow br0 table=1,cookie=2,priority=40000,udp,tp_src=7,actions=2")),
            2 => drop(lab.appctl("revalidator/purge")),
            _ => drop(lab.ofctl("mod-flows br0 cookie=3/-1,actions=2")),
        }
        lab.wait_packets("cookie=1/-1", 200 * round);
        lab.wait_packets("cookie=2/-1", 400 * round);
    }
    let bytes = number_after(&lab.ofctl("dump-aggregate br0 cookie=1/-1"), "byte_count=");
    assert_eq!(bytes, 800 * 60);
    assert_eq!(lab.packets("cookie=3/-1"), 0);
}

/// The first packets of a megaflow and those that hit it pause alike.
#[test]
fn ofctl_resumes_paused_packets() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "tcpdump", "python3");
    let lab = Lab::new(3);
    for version in VERSIONS {
        let rules = "in_port=1,dl_type=0x88b5,actions=set_field:5->reg0,controller(userdata=01.02,pause),resubmit(,4),3\n\
                     table=4,cookie=7,reg0=5,actions=set_field:02:aa:00:00:00:77->eth_src,output:2\n";
        lab.rules(version, rules);
        let monitor = lab.monitor(&format!("-O {version} -P nxt_packet_in2 monitor br0 resume"));
        let captures = [lab.watch(2), lab.watch(3)];
        for n in 1..=3 {
            send(lab.host(1), &[eth(HOST_2, &source(n), "88b5")]);
        }
        for capture in captures {
            wait_for(LIMIT, "three frames", || received(&capture.lines()).len() == 3).unwrap_or_else(|why| {
                panic!("{version}: {why}\n{}", monitor.stderr());
            });
            let frames = received(&capture.stop().unwrap());
            assert!(frames.iter().all(|f| f[12..24] == *"02aa00000077"), "{version}: {frames:?}");
        }
        lab.wait_packets("table=4", 3);
        for part in
            ["userdata=01.02", "continuation.actions=unroll_xlate(table=0, cookie=0),resubmit(,4),output:3"]
        {
            wait_text(&monitor, part);
        }
    }
}
