//! CFM and LLDP with a stopped clock. Frames, texts, columns and times are those of OVS 3.5 after the same commands.

use super::Lab;
use crate::helpers::{vsctl, wait_until};
use testkit::{require_netns, require_programs};

/// Hexadecimal digits of the frames of a pcap file of the little-endian form.
fn frames(path: &std::path::Path) -> Vec<String> {
    let file = std::fs::read(path).unwrap_or_default();
    let (mut rest, mut all) = (file.get(24..).unwrap_or_default(), Vec::new());
    while let Some(length) =
        rest.get(8..12).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()) as usize)
    {
        let Some(frame) = rest.get(16..16 + length) else { break };
        all.push(frame.iter().map(|byte| format!("{byte:02x}")).collect());
        rest = &rest[16 + length..];
    }
    all
}

/// Hexadecimal digits of the address of an interface.
fn mac_of(lab: &Lab, interface: &str) -> String {
    wait_until(&lab.daemon, &format!("Interface {interface} mac_in_use!=[]"));
    let mac = vsctl(&lab.daemon, &format!("get Interface {interface} mac_in_use"));
    mac.chars().filter(char::is_ascii_hexdigit).collect()
}

/// A continuity check of maintenance point 2.
fn ccm(seq: u32, flags: u8) -> String {
    let maid = format!("04036f767302036f7673{}", "00".repeat(38));
    format!("0180c2000030020000000009890200 01{flags:02x}46{seq:08x}0002{maid}{}", "00".repeat(17))
        .replace(' ', "")
}

fn columns(lab: &Lab, interface: &str) -> String {
    let names = "cfm_fault,cfm_fault_status,cfm_flap_count,cfm_health,cfm_remote_mpids,cfm_remote_opstate";
    let shown = vsctl(&lab.daemon, &format!("--columns={names} list Interface {interface}"));
    shown.lines().map(|line| line.split_once(": ").unwrap().1).collect::<Vec<_>>().join(" ")
}

#[test]
fn faults_come_and_go_as_in_ovs() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let pcap = lab.daemon.rundir().join("p2.pcap");
    vsctl(&lab.daemon, &format!("set Interface p2 options:tx_pcap={}", pcap.display()));
    let mac = mac_of(&lab, "p2");
    vsctl(
        &lab.daemon,
        "set Interface p1 cfm_mpid=1 -- set Interface p2 cfm_mpid=123456789 other_config:cfm_extended=true \
         other_config:cfm_interval=300 other_config:cfm_opstate=down other_config:cfm_ccm_vlan=7 \
         other_config:cfm_ccm_pcp=5",
    );
    lab.appctl("time/warp 4500 100");
    assert_eq!(
        lab.appctl("cfm/show"),
        "---- p1 ----\nMPID 1:\n\tfault: recv\n\taverage health: undefined\n\topstate: up\n\tremote_opstate: up\n\
         \tinterval: 1000ms\n\tnext CCM tx: 500ms\n\tnext fault check: 2500ms\n\
         ---- p2 ----\nMPID 123456789: extended\n\tfault: recv\n\taverage health: undefined\n\topstate: down\n\
         \tremote_opstate: up\n\tinterval: 300ms\n\tnext CCM tx: 300ms\n\tnext fault check: 950ms\n"
    );
    wait_until(&lab.daemon, "Interface p1 cfm_fault=true cfm_fault_status=recv cfm_flap_count=1");
    wait_until(&lab.daemon, "Interface p2 cfm_remote_opstate=up cfm_health=[] cfm_remote_mpids=[]");
    let sent = frames(&pcap);
    let start = format!("012320000030{mac}8100a00789020001004600000001fe3104036f767302036f7673");
    assert!(sent[0].starts_with(&start) && sent[0].contains("012c00000000075bcd1501"), "{sent:?}");
    assert_eq!(sent.len(), 16, "at once, and each 300 ms");
    let live = || lab.ofctl(&["-OOpenFlow13", "dump-ports-desc", "br0"]).matches("LIVE").count();
    let before = live();
    for (frame, warp) in [(ccm(1, 4), 1000), (ccm(5, 5), 1500)] {
        lab.receive("p1", &frame);
        lab.appctl(&format!("time/warp {warp} 100"));
    }
    wait_until(&lab.daemon, "Interface p1 cfm_fault=false cfm_fault_status=[] cfm_flap_count=2");
    assert_eq!(columns(&lab, "p1"), "false [] 2 [] [2] []");
    assert_eq!(live(), before + 1, "the port is live again");
    lab.receive("p1", &ccm(6, 0x84));
    lab.appctl("time/warp 3500 100");
    wait_until(&lab.daemon, "Interface p1 cfm_fault=true cfm_fault_status=rdi cfm_flap_count=3");
    assert_eq!(lab.appctl("cfm/set-fault p1 false"), "OK\n");
    wait_until(&lab.daemon, "Interface p1 cfm_fault=false cfm_fault_status=[] cfm_flap_count=3");
    let trace = |port: &str, dst: &str| {
        lab.appctl(&format!("ofproto/trace br0 in_port={port},dl_dst={dst},dl_type=0x8902"))
    };
    let claimed = trace("p1", "01:80:c2:00:00:30");
    assert!(
        claimed.ends_with(
            "Megaflow: recirc_id=0,eth,in_port=1,dl_dst=01:80:c2:00:00:30,dl_type=0x8902\nDatapath actions: drop\n\
             This flow is handled by the userspace slow path because it:\n  - Consists of CFM packets.\n"
        ),
        "{claimed}"
    );
    assert!(!trace("p1", "01:80:c2:00:00:31").contains("slow path"));
    assert!(!trace("p2", "01:80:c2:00:00:30").contains("slow path"));
    vsctl(&lab.daemon, "set Interface p1 cfm_mpid=9000");
    wait_until(&lab.daemon, "Interface p1 cfm_fault=[] cfm_flap_count=[] cfm_remote_mpids=[]");
    assert!(vsctl(&lab.daemon, "get Interface p1 status").contains("cfm_mpid=9000: ignored"));
}

/// The system of the frames is that of the setting; without one the description names the product.
#[test]
fn lldp_frames_are_those_of_ovs() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let pcap = lab.daemon.rundir().join("p2.pcap");
    let options = format!("options:tx_pcap={} lldp:enable=true", pcap.display());
    vsctl(
        &lab.daemon,
        &format!(
            "set Interface p2 {options} -- set Bridge br0 auto_attach=@aa -- --id=@aa create AutoAttach \
             system_name=sw1 system_description=desc mappings:1000=10 mappings:16777215=4095"
        ),
    );
    lab.appctl("time/warp 5000 1000");
    let (digest, mac) = ("00".repeat(32), mac_of(&lab, "p2"));
    let expected = format!(
        "0180c200000e{mac}88cc020704{mac}040305703206020078\
         0a03737731 0c0464657363 0e0400040004 fe3200040d0b{digest}38000000{mac}00000000\
         fe2e00040d0c{digest}000a0003e80fffffffff0000"
    );
    assert_eq!(frames(&pcap), [expected.replace(' ', "")]);
    // As in OVS the answer of a neighbour has no part in it.
    wait_until(&lab.daemon, "Port p2 trunks=10,4095 vlan_mode=trunk");
    let assigned = format!("fe2900040d0c{digest}200a0003e8");
    let element = format!("fe3200040d0b{digest}08800000 0200000000aa20000000").replace(' ', "");
    let frame = format!(
        "0180c200000e02000000000988cc02070402000000000904040531 2f31 06020078 0c04636f7265 {element}{assigned}0000"
    );
    lab.receive("p2", &frame.replace(' ', ""));
    assert_eq!(
        lab.appctl("autoattach/status"),
        "LLDP: p2\n\tAuto Attach Primary Server Id: 02:00:00:00:00:09\n\tAuto Attach Primary Server Descr: core\n\
         \tAuto Attach Primary Server System Id: 02:00:00:00:00:aa:01:00:00:00:00:00\n"
    );
    assert_eq!(
        lab.appctl("autoattach/show-isid br0"),
        "LLDP: p2\nI-SID    VLAN Source      Status  \n-------- ---- ----------- --------\n\
         1000     10   Switch      Active     \n16777215 4095 Switch      Pending    \n"
    );
    let counts = "Statistics: p2\n\ttx cnt: 1\n\trx cnt: 1\n\trx discarded cnt: 0\n\trx unrecognized cnt: 0\n\
                  \tageout cnt: 0\n\tinsert cnt: 1\n\tdelete cnt: 0\n\tdrop cnt: 0\n";
    assert_eq!(lab.appctl("autoattach/statistics"), counts);
    let trace = lab.appctl("ofproto/trace br0 in_port=p2,dl_dst=01:80:c2:00:00:0e,dl_type=0x88cc");
    assert!(
        trace.ends_with(
            "Megaflow: recirc_id=0,eth,in_port=2,dl_type=0x88cc\nDatapath actions: drop\n\
             This flow is handled by the userspace slow path because it:\n  - Consists of LLDP packets.\n"
        ),
        "{trace}"
    );
    // Not as OVS: the neighbour ends with its time to live.
    lab.appctl("time/warp 121000 1000");
    assert_eq!(lab.appctl("autoattach/status"), "LLDP: p2\n");
    vsctl(&lab.daemon, "remove AutoAttach . mappings 1000");
    wait_until(&lab.daemon, "Port p2 trunks=4095 vlan_mode=trunk");
    vsctl(&lab.daemon, "set Port p2 trunks=4095,7 vlan_mode=native-tagged");
    vsctl(&lab.daemon, "clear AutoAttach . mappings");
    wait_until(&lab.daemon, "Port p2 trunks=7 vlan_mode=native-tagged");
    vsctl(&lab.daemon, "remove Interface p2 lldp enable");
    assert_eq!(lab.appctl("autoattach/statistics"), "");
}
