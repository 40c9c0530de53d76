//! `ofproto/trace`, whose text other programs parse: compared with a recording of the stock switch.

use testkit::{require_netns, require_programs, wait_for};

use super::frames::{HOST_2, IP, eth, source};
use super::{LIMIT, Lab, send};

const FLOW: &str = "in_port=1,tcp,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_src=10.1.2.3,\
                    nw_dst=192.168.0.1,nw_ttl=64,tp_src=1234,tp_dst=80";

/// Output of ovs-vswitchd 3.5.4; `PORT` replaces the datapath port number of port 2.
const RECORDED: &str = "\
Flow: tcp,in_port=1,vlan_tci=0x0000,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_src=10.1.2.3,nw_dst=192.168.0.1,nw_tos=0,nw_ecn=0,nw_ttl=64,nw_frag=no,tp_src=1234,tp_dst=80,tcp_flags=0

bridge(\"br0\")
-------------
 0. tcp,tp_dst=80, priority 50
    load:0x5->NXM_NX_REG1[]
    resubmit(,3)
 3. tcp,reg1=0x5,nw_src=10.0.0.0/8, priority 32768
    dec_ttl
    mod_dl_dst:aa:bb:cc:dd:ee:ff
    output:2

Final flow: tcp,reg1=0x5,in_port=1,vlan_tci=0x0000,dl_src=50:54:00:00:00:05,dl_dst=aa:bb:cc:dd:ee:ff,nw_src=10.1.2.3,nw_dst=192.168.0.1,nw_tos=0,nw_ecn=0,nw_ttl=63,nw_frag=no,tp_src=1234,tp_dst=80,tcp_flags=0
Megaflow: recirc_id=0,eth,tcp,in_port=1,dl_dst=50:54:00:00:00:07,nw_src=10.0.0.0/8,nw_ttl=64,nw_frag=no,tp_dst=80
Datapath actions: set(eth(dst=aa:bb:cc:dd:ee:ff)),set(ipv4(ttl=63)),PORT
";

#[test]
fn a_trace_equals_that_of_the_stock_switch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new(2);
    let rules = "priority=50,tcp,tp_dst=80,actions=load:5->NXM_NX_REG1[],resubmit(,3)\n\
                 priority=0,actions=NORMAL\n\
                 table=3,tcp,reg1=5,nw_src=10.0.0.0/8,actions=dec_ttl,mod_dl_dst:aa:bb:cc:dd:ee:ff,output:2";
    lab.rules("OpenFlow10", rules);
    let show = lab.appctl("dpif/show");
    let line = show.lines().find(|l| l.contains(&format!("{} 2/", lab.host(2).port))).unwrap();
    let port = line.split("2/").last().unwrap().split(':').next().unwrap();
    let reported = lab.appctl(&format!("ofproto/trace br0 {FLOW}"));
    assert_eq!(reported, RECORDED.replace("PORT", port));
    // A trace sends no packet.
    assert_eq!(lab.packets("tcp"), 0);
}

/// As the stock switch does: the log has the error and the trace of a packet that rules send in a circle.
#[test]
fn a_loop_is_traced_in_the_log() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3");
    let lab = Lab::new(1);
    lab.rules("OpenFlow10", "in_port=1,actions=resubmit(,0)");
    send(lab.host(1), &[eth(HOST_2, &source(1), &IP.udp(1000, 53))]);
    let error = "|ofproto_dpif_xlate|WARN|over max translation depth 64 on bridge br0 while processing udp,in_port=1,";
    let trace = "|ofproto_dpif_upcall|WARN|Flow: udp,in_port=1,";
    let end = [
        "",
        "     >>>> over max translation depth 64 <<<<",
        "",
        "Final flow: unchanged",
        "Megaflow: recirc_id=0,eth,ip,in_port=1,nw_frag=no",
        "Datapath actions: drop",
        "Translation failed (Recursion too deep), packet is dropped.",
    ];
    let end = end.join("\n");
    wait_for(LIMIT, "the trace", || {
        let log = lab.daemon.log();
        log.contains(error) && log.contains(trace) && log.contains(&end)
    })
    .unwrap_or_else(|why| panic!("{why}\n{}", lab.daemon.log()));
}
