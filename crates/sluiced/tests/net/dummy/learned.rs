//! Rules that packets learn. Expectations are those of OVS 3.5.0 after the same commands.

use super::*;

impl Lab {
    /// Rules learned from the source address, with these arguments of `learn`.
    fn learning(arguments: &str) -> Lab {
        let lab = Lab::new();
        lab.ofctl(&["del-flows", "br0"]);
        let learn = format!("learn(table=1,{arguments}NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])");
        lab.ofctl(&["add-flow", "br0", &format!("actions={learn},resubmit(,1)")]);
        lab
    }

    fn from(&self, port: u32, source: u8) {
        let eth = format!("eth(src=50:54:00:00:00:{source:02x},dst=50:54:00:00:00:07)");
        self.receive(&format!("p{port}"), &format!("in_port({port}),{eth},eth_type(0x1234)"));
    }

    fn warp(&self, ms: u32) {
        self.appctl(&format!("time/warp {ms} 100"));
    }

    /// Learned rules from their timeouts on.
    fn learned(&self) -> String {
        let dump = self.ofctl(&["dump-flows", "br0", "table=1"]);
        let rules = dump.lines().filter_map(|l| l.split_once("n_bytes=")?.1.split_once(", "));
        rules.map(|(_, rule)| rule).collect::<Vec<_>>().join("; ")
    }
}

#[test]
fn each_packet_that_learns_restarts_the_hard_timeout() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::learning("hard_timeout=1,");
    for n in 0..6 {
        lab.from(1, 5);
        lab.warp(500);
        let age = if n == 0 { "" } else { " hard_age=0," };
        let rule = format!("hard_timeout=1, idle_age=0,{age} dl_src=50:54:00:00:00:05 actions=output:1");
        assert_eq!(lab.learned(), rule, "packet {n}");
    }
    lab.warp(3000);
    assert_eq!(lab.learned(), "");
    lab.from(1, 5);
    lab.warp(500);
    assert!(lab.learned().starts_with("hard_timeout=1, "), "learned anew");
}

#[test]
fn a_place_below_the_limit_is_taken_by_the_next_packet() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::learning("limit=1,");
    lab.from(1, 5);
    lab.from(1, 6);
    lab.warp(500);
    assert_eq!(lab.learned(), "idle_age=0, dl_src=50:54:00:00:00:05 actions=output:1");
    lab.ofctl(&["del-flows", "br0", "table=1"]);
    lab.from(1, 6);
    assert_eq!(lab.learned(), "idle_age=0, dl_src=50:54:00:00:00:06 actions=output:1");
}

#[test]
fn the_latest_packet_wins_behind_paused_revalidation() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    for last in [1, 2] {
        let lab = Lab::learning("");
        for port in [1, 2, 1, 2] {
            lab.from(port, 5);
            lab.warp(500);
        }
        lab.appctl("revalidator/pause");
        lab.from(3 - last, 5);
        lab.warp(300);
        lab.from(last, 5);
        lab.warp(500);
        lab.appctl("revalidator/resume");
        lab.warp(1000);
        let rule = lab.learned();
        assert!(rule.ends_with(&format!("dl_src=50:54:00:00:00:05 actions=output:{last}")), "{last}: {rule}");
    }
}
