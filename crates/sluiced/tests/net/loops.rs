//! Cables that close a loop between bridges with a spanning tree.

use testkit::{Daemon, Topology, require_netns, require_programs, wait_for};

use crate::helpers::{BROADCAST, Frame, LIMIT, appctl, seen, send, spec, vsctl, watch};

/// Milliseconds that the clock of a switch moves at a time.
const WARP: &str = "time/warp 500 500";

/// Address of the sender of the n-th frame.
fn sender(n: u32) -> String {
    format!("02:00:00:00:{:02x}:{:02x}", n >> 8 & 0xff, n & 0xff)
}

/// The third bridge of a ring.
#[derive(Clone, Copy, PartialEq)]
enum Third {
    /// One of the switch.
    Own,
    /// One of the kernel, the root with its least delays.
    Kernel,
}

/// A ring of three bridges: no frame arrives twice, and it heals after a cut.
fn ring(protocol: &str, timers: &str, third: Third) {
    let net = Topology::new(2).unwrap();
    // Dummy mode has a clock to move; the ports are devices.
    let daemon = spec(&net.switch).args(["--enable-dummy"]).start().unwrap();
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    for (a, b) in [("c1a", "c1b"), ("c2a", "c2b"), ("c3a", "c3b")] {
        net.switch.ip(&format!("link add {a} type veth peer name {b}")).unwrap();
        net.switch.up(a).unwrap();
        net.switch.up(b).unwrap();
    }
    let edge = format!("other_config:{protocol}-enable=false");
    let add = |bridge: &str, host: &str, cables: [&str; 2]| {
        let [first, second] = cables;
        let host = match host {
            "" => String::new(),
            host => format!("-- add-port {bridge} {host} -- set Port {host} {edge}"),
        };
        vsctl(
            &daemon,
            &format!(
                "add-br {bridge} -- set Bridge {bridge} {protocol}_enable=true {timers} \
                 -- add-port {bridge} {first} -- add-port {bridge} {second} {host}"
            ),
        );
    };
    add("br0", &one.port, ["c1a", "c3b"]);
    add("br1", &two.port, ["c1b", "c2a"]);
    if third == Third::Own {
        add("br2", "", ["c2b", "c3a"]);
    } else {
        let options = "stp_state 1 forward_delay 200 hello_time 100 max_age 600 priority 0";
        if let Err(e) = net.switch.ip(&format!("link add br2 type bridge {options}")) {
            return println!("SKIP: loops: the kernel has no bridge: {e}");
        }
        for port in ["c2b", "c3a"] {
            net.switch.ip(&format!("link set {port} master br2")).unwrap();
        }
        net.switch.up("br2").unwrap();
    }
    let capture = watch(&two.netns, &two.dev);
    let came = |n: u32| seen(&capture.lines()).iter().filter(|(from, _)| *from == sender(n)).count();
    if third == Third::Own {
        appctl(&daemon, "time/stop");
    }
    let mut n = 0;
    let mut passes = |what: &str| {
        wait_for(LIMIT, what, || {
            n += 1;
            if third == Third::Own {
                appctl(&daemon, WARP);
            }
            send(one, &[Frame { to: BROADCAST, from: &sender(n), vlan: None }]);
            came(n) > 0
        })
        .unwrap();
        n
    };
    passes("the ring forwards");
    if third == Third::Kernel {
        let shown = appctl(&daemon, "stp/show br0");
        assert!(shown.contains("  stp-priority  0\n") && shown.contains("root-port       c3b\n"), "{shown}");
        return (1..=n).for_each(|n| assert!(came(n) <= 1, "frame {n}"));
    }
    wait_for_one_tree(&daemon, protocol, third == Third::Own);
    net.switch.ip("link set c1a down").unwrap();
    let last = passes("the ring heals");
    net.switch.ip("link set c1a up").unwrap();
    let last = last.max(passes("the ring forwards again"));
    for n in 1..=last {
        assert!(came(n) <= 1, "frame {n} arrived {} times", came(n));
    }
}

/// Waits until the three bridges agree on one root and block one link.
fn wait_for_one_tree(daemon: &Daemon, protocol: &str, warps: bool) {
    let shown = |bridge: &str| appctl(daemon, &format!("{protocol}/show {bridge}"));
    let roles = || {
        let all = ["br0", "br1", "br2"].map(shown).concat().to_lowercase();
        let lines =
            |word: &str| all.lines().filter(|line| line.starts_with("  c") && line.contains(word)).count();
        (lines(" root "), lines(" alternate "), lines(" designated "))
    };
    wait_for(LIMIT, "one tree", || {
        if warps {
            appctl(daemon, WARP);
        }
        roles() == (2, 1, 3)
    })
    .unwrap();
}

#[test]
fn a_ring_with_stp_has_no_loop() {
    require_netns!();
    require_programs!("ovs-vsctl", "tcpdump");
    ring("stp", "other_config:stp-forward-delay=4 other_config:stp-max-age=6", Third::Own);
}

#[test]
fn a_ring_with_a_bridge_of_the_kernel_has_no_loop() {
    require_netns!();
    require_programs!("ovs-vsctl", "tcpdump");
    ring("stp", "", Third::Kernel);
}

#[test]
fn a_ring_with_rstp_has_no_loop() {
    require_netns!();
    require_programs!("ovs-vsctl", "tcpdump");
    ring("rstp", "", Third::Own);
}
