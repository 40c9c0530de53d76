//! Probes and sessions follow the stopped clock: each step of `time/warp` is a pass of everything.

use super::Lab;
use crate::helpers::{LIMIT, vsctl, wait_until};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use testkit::{require_netns, require_programs};

/// Type of an OpenFlow message.
const ECHO_REQUEST: u8 = 2;

/// The counts of OVS 3.5 after the same commands.
#[test]
fn flaps_of_bfd_are_counted_at_each_step() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = Lab::empty();
    let bridge = |name: &str| format!("add-br {name} -- set Bridge {name} datapath_type=dummy");
    let port = |bridge: &str, name: &str, peer: &str, ms: u32| {
        format!(
            "add-port {bridge} {name} -- set Interface {name} type=patch options:peer={peer} bfd:enable=true \
             bfd:min_tx={ms} bfd:min_rx={ms}"
        )
    };
    let both = [bridge("br0"), bridge("br1"), port("br0", "p0", "p1", 300), port("br1", "p1", "p0", 500)];
    vsctl(&lab.daemon, &both.join(" -- "));
    lab.appctl("time/stop");
    lab.appctl("time/warp 4100 100");
    let flaps = |count: u32, state: &str| {
        let columns = format!("bfd_status:flap_count={count} bfd_status:state={state}");
        wait_until(&lab.daemon, &format!("Interface p0 {columns}"));
    };
    flaps(1, "up");
    let enable = |on: bool, warp: &str| {
        vsctl(&lab.daemon, &format!("set Interface p1 bfd:enable={on}"));
        lab.appctl(&format!("time/warp {warp}"));
    };
    enable(false, "10000");
    flaps(2, "down");
    enable(true, "10000 100");
    flaps(3, "up");
    for _ in 0..3 {
        enable(false, "3000 500");
        enable(true, "3000 500");
    }
    flaps(9, "up");
}

#[test]
fn an_idle_controller_is_probed_at_each_interval_of_the_clock() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = Lab::new();
    let path = lab.daemon.rundir().join("controller");
    let listener = UnixListener::bind(&path).unwrap();
    vsctl(&lab.daemon, &format!("set-controller br0 unix:{}", path.display()));
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut message = || {
        let mut head = [0; 8];
        stream.read_exact(&mut head).unwrap();
        let mut body = vec![0; usize::from(u16::from_be_bytes([head[2], head[3]])) - head.len()];
        stream.read_exact(&mut body).unwrap();
        // OpenFlow 1.0: a hello, and replies of the type behind that of an echo request.
        let kind = if head[1] == ECHO_REQUEST { ECHO_REQUEST + 1 } else { 0 };
        let answer = [&[1, kind, 0, 8], &head[4..]].concat();
        stream.write_all(&answer).unwrap();
        head[1]
    };
    assert_eq!(message(), 0, "a hello");
    wait_until(&lab.daemon, "Controller . is_connected=true");
    lab.appctl("time/stop");
    // The default interval is 5 seconds.
    for _ in 0..3 {
        lab.appctl("time/warp 6000");
        assert_eq!(message(), ECHO_REQUEST);
    }
}
