//! Bonds of dummies: texts, choices and frames. Answers are those of OVS 3.5.

use super::*;
use crate::helpers::LIMIT;

/// A bridge with a port `p9` and a bond of `p1` and `p2`.
fn lab() -> Lab {
    let lab = Lab::empty();
    let dummy = |n: u32| format!("-- set Interface p{n} type=dummy ofport_request={n}");
    vsctl(
        &lab.daemon,
        &format!(
            "add-br br0 -- set Bridge br0 datapath_type=dummy fail_mode=standalone \
             -- add-port br0 p9 {} -- add-bond br0 bond0 p1 p2 {} {}",
            dummy(9),
            dummy(1),
            dummy(2)
        ),
    );
    lab.appctl("time/stop");
    lab
}

/// The datapath actions of a frame, after the remarks of its trace.
fn trace(lab: &Lab, flow: &str) -> String {
    let text = lab.appctl(&format!("ofproto/trace br0 {flow}"));
    let remarks = text.lines().filter_map(|line| line.trim().strip_prefix("-> "));
    let actions = text.lines().filter_map(|line| line.strip_prefix("Datapath actions: "));
    remarks.chain(actions).collect::<Vec<_>>().join(": ")
}

const FLOODS: &str = "no learned MAC for destination, flooding: ";
const REFUSED: &str = "bonding refused admissibility, dropping: drop";

#[test]
fn an_active_backup_bond_has_one_active_member() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab();
    let out = "in_port=p9,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:05";
    let back = |n: u32| format!("in_port=p{n},dl_src=50:54:00:00:00:07,dl_dst=50:54:00:00:00:05");
    let head = "---- bond0 ----
bond_mode: active-backup
bond may use recirculation: no, Recirc-ID : -1
bond-hash-basis: 0
lb_output action: disabled, bond-id: -1
updelay: 0 ms
downdelay: 0 ms
lacp_status: off
lacp_fallback_ab: false
active-backup primary: <none>
active member mac: aa:55:aa:55:00:0";
    let members = |of_1: &str, of_2: &str| {
        format!(
            "member p1: enabled\n{of_1}  may_enable: true\n\nmember p2: enabled\n{of_2}  may_enable: true\n\n"
        )
    };
    let active = "  active member\n";
    let shown = lab.appctl("bond/show");
    assert!(shown.starts_with(head), "{shown}");
    assert!(shown.ends_with(&format!("(p1)\n\n{}", members(active, ""))), "{shown}");
    assert_eq!(lab.appctl("bond/list"), "bond\ttype\trecircID\tmembers\nbond0\tactive-backup\t0\tp1, p2\n");
    assert_eq!(trace(&lab, out), format!("{FLOODS}100,1"));
    assert_eq!(
        [trace(&lab, &back(1)), trace(&lab, &back(2))],
        [format!("{FLOODS}100,9"), REFUSED.to_string()]
    );
    assert_eq!(lab.appctl("bond/set-active-member bond0 p2"), "done\n");
    assert_eq!(lab.appctl("bond/set-active-slave bond0 p2"), "no change\n");
    assert!(lab.appctl("bond/show bond0").ends_with(&format!("(p2)\n\n{}", members("", active))));
    assert_eq!(trace(&lab, out), format!("{FLOODS}100,2"));
    assert_eq!(
        [trace(&lab, &back(1)), trace(&lab, &back(2))],
        [REFUSED.to_string(), format!("{FLOODS}100,9")]
    );
    let mac = vsctl(&lab.daemon, "get Interface p2 mac_in_use");
    wait_until(&lab.daemon, &format!("Port bond0 bond_active_slave={mac}"));
    lab.appctl("netdev-dummy/set-admin-state p2 down");
    assert!(lab.appctl("bond/show").ends_with(
        "member p1: enabled\n  active member\n  may_enable: true\n\nmember p2: disabled\n  may_enable: false\n\n"
    ));
    assert_eq!(trace(&lab, out), format!("{FLOODS}100,1"));
    lab.appctl("netdev-dummy/set-admin-state p1 down");
    assert_eq!(trace(&lab, out), format!("{FLOODS}100"));
    wait_until(&lab.daemon, "Port bond0 bond_active_slave=\"00:00:00:00:00:00\"");
}

#[test]
fn an_slb_bond_spreads_addresses_and_drops_what_comes_back() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab();
    vsctl(&lab.daemon, "set Port bond0 bond_mode=balance-slb");
    let shown = lab.appctl("bond/show");
    assert!(
        shown.contains(
            "all members active: false\nupdelay: 0 ms\ndowndelay: 0 ms\nnext rebalance: 10000 ms\n"
        ),
        "{shown}"
    );
    let out =
        |n: u32| trace(&lab, &format!("in_port=p9,dl_src=50:54:00:00:00:0{n},dl_dst=50:54:00:00:00:05"));
    assert_eq!([1, 2, 3, 1].map(out), ["100,1", "100,2", "100,1", "100,1"].map(|s| format!("{FLOODS}{s}")));
    let hash = lab.appctl("bond/hash 50:54:00:00:00:01");
    assert_eq!(lab.appctl(&format!("bond/migrate bond0 {} p2", hash.trim())), "migrated\n");
    assert_eq!(out(1), format!("{FLOODS}100,2"));
    let broadcast = "in_port=p2,dl_src=50:54:00:00:00:07,dl_dst=ff:ff:ff:ff:ff:ff";
    assert_eq!(trace(&lab, broadcast), REFUSED);
    vsctl(&lab.daemon, "set Port bond0 other_config:all-members-active=true");
    assert_eq!(trace(&lab, broadcast), format!("{FLOODS}100,9"));
    lab.receive("p9", &format!("{},eth_type(0x1234)", FROM_5_TO_7));
    let back = "in_port=p1,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:09";
    let looped = "SLB bond thinks this packet looped back, dropping: drop";
    wait_for(LIMIT, "the address", || trace(&lab, back) == looped).unwrap();
    let arp = "in_port=p2,dl_src=50:54:00:00:00:05,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=2";
    assert_eq!(trace(&lab, arp), format!("{FLOODS}100,9"));
}

#[test]
fn delays_pass_by_the_clock() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab();
    vsctl(&lab.daemon, "set Port bond0 bond_updelay=5000 bond_downdelay=300");
    lab.appctl("netdev-dummy/set-admin-state p1 down");
    let shown = lab.appctl("bond/show");
    assert!(
        shown.contains(
            "member p1: enabled\n  active member\n  downdelay expires in 300 ms\n  may_enable: false\n"
        ),
        "{shown}"
    );
    lab.appctl("time/warp 300");
    wait_for(LIMIT, "the delay", || {
        lab.appctl("bond/show").contains("member p1: disabled\n  may_enable: false\n")
    })
    .unwrap();
    lab.appctl("netdev-dummy/set-admin-state p1 up");
    let shown = lab.appctl("bond/show");
    assert!(
        shown.contains("member p1: disabled\n  updelay expires in 5000 ms\n  may_enable: true\n"),
        "{shown}"
    );
    lab.appctl("time/warp 5000");
    wait_for(LIMIT, "the delay", || {
        lab.appctl("bond/show").contains("member p1: enabled\n  may_enable: true\n")
    })
    .unwrap();
    // As in OVS, a member disabled by command is enabled after the delay.
    assert_eq!(lab.appctl("bond/disable-member bond0 p1"), "disabled\n");
    assert!(lab.appctl("bond/show").contains("member p1: disabled\n  updelay expires in 5000 ms\n"));
    assert_eq!(lab.appctl("bond/enable-slave bond0 p1"), "enabled\n");
    for (line, error) in [
        ("bond/set-active-member bond0 px", "no such member"),
        ("bond/enable-member bond0 px", "no such member"),
        ("bond/migrate bond0 1 p1", "not an SLB bond"),
        ("bond/show bond1", "no such bond"),
    ] {
        commands::refused(&lab, line, error);
    }
}

#[test]
fn neighbours_learn_addresses_at_another_member() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab();
    let folder = TempDir::new("bond").unwrap();
    let file = folder.path().join("p2.pcap");
    vsctl(&lab.daemon, &format!("set Interface p2 options:tx_pcap={}", file.display()));
    vsctl(&lab.daemon, "add-port br0 p8 tag=5 -- set Interface p8 type=dummy");
    lab.receive("p9", "eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:05),eth_type(0x1234)");
    lab.receive("p8", "eth(src=50:54:00:00:00:08,dst=50:54:00:00:00:05),eth_type(0x1234)");
    wait_for(LIMIT, "the addresses", || lab.appctl("fdb/show br0").lines().count() == 3).unwrap();
    lab.appctl("bond/set-active-member bond0 p2");
    let plain = "ffffffffffff505400000009803500010800060400035054000000090000000050540000000900000000";
    let tagged =
        "ffffffffffff50540000000881000005803500010800060400035054000000080000000050540000000800000000";
    let sent = || {
        let bytes = std::fs::read(&file).unwrap_or_default();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    wait_for(LIMIT, "the announcements", || sent().contains(plain) && sent().contains(tagged)).unwrap();
}

/// The interface of `bond_fake_iface` is an internal port outside the bond. Unlike in OVS it also appears when the column
/// is set later.
#[test]
fn a_bond_has_an_interface_of_its_own() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab();
    vsctl(&lab.daemon, "set Port bond0 bond_fake_iface=true");
    let number = |name: &str| {
        let shown = lab.appctl("dpif/show");
        let line =
            shown.lines().find_map(|line| line.trim().strip_prefix(&format!("{name} "))).map(str::to_string);
        line.and_then(|line| Some(line.split_once('/')?.0.to_string()))
    };
    wait_for(LIMIT, "the interface", || number("bond0").is_some()).unwrap();
    let bond = number("bond0").unwrap_or_default();
    let flow = |port: &str| {
        format!("ofproto/trace br0 in_port={port},dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:05")
    };
    let text = lab.appctl(&flow("bond0"));
    let dropped =
        format!(">>>> received packet on unknown port {bond} <<<<\n     >> no input bundle, dropping\n");
    assert!(text.contains(&dropped), "{text}");
    let flooded = |text: &str| {
        let actions =
            text.lines().find_map(|line| line.strip_prefix("Datapath actions: ")).unwrap_or_default();
        actions.split(',').count()
    };
    assert_eq!(flooded(&lab.appctl(&flow("p9"))), 2, "the bridge's own port and one member");
    lab.ofctl(&["add-flow", "br0", "in_port=p9,actions=bond0"]);
    assert_eq!(flooded(&lab.appctl(&flow("p9"))), 1);
    assert!(!lab.appctl(&flow("p9")).contains("drop"));
    vsctl(&lab.daemon, "set Port bond0 bond_fake_iface=false");
    wait_for(LIMIT, "its end", || number("bond0").is_none()).unwrap();
}
