//! Samples for collectors: actions and datagrams as recorded from OVS 3.5.

use super::lacp::frame as lacp_frame;
use super::{FROM_5_TO_7, Lab};
use crate::helpers::{LIMIT, vsctl};
use std::net::UdpSocket;
use std::time::Duration;
use testkit::{require_netns, require_programs, wait_for};

/// A collector beside the switch, with its address.
pub(super) fn collector(lab: &Lab) -> (UdpSocket, String) {
    lab._netns.up("lo").unwrap();
    let socket = lab._netns.enter(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

/// The next datagram that is wanted.
pub(super) fn next(socket: &UdpSocket, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut buffer = [0; 2048];
    loop {
        let length = socket.recv(&mut buffer).expect("a datagram");
        if is_wanted(&buffer[..length]) {
            return buffer[..length].to_vec();
        }
    }
}

/// The datapath actions of a packet, once they are the wanted ones.
fn traces_as(lab: &Lab, flow: &str, wanted: &str) {
    let mut last = String::new();
    wait_for(LIMIT, flow, || {
        let trace = lab.appctl(&format!("ofproto/trace br0 {flow}"));
        last = trace.lines().last().unwrap_or_default().to_string();
        last == format!("Datapath actions: {wanted}")
    })
    .unwrap_or_else(|_| panic!("{flow}: {last} instead of {wanted}"));
}

fn lab() -> Lab {
    let lab = Lab::new();
    vsctl(&lab.daemon, "set Interface p7 options:ifindex=1003");
    lab.ofctl(&["del-flows", "br0"]);
    lab.ofctl(&["-OOpenFlow13", "add-flow", "br0", "in_port=1,actions=output:2"]);
    lab.ofctl(&["-OOpenFlow13", "add-flow", "br0", "in_port=2,actions=output:1,output:3"]);
    let tags = "in_port=3,actions=push_vlan:0x8100,set_field:4105->vlan_vid,output:1";
    lab.ofctl(&["-OOpenFlow13", "add-flow", "br0", tags]);
    lab
}

#[test]
fn sflow_has_the_actions_and_datagrams_of_ovs() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab();
    let (socket, address) = collector(&lab);
    let row = format!("create sFlow targets=\"{address}\" sampling=100 polling=0 header=64 agent=127.0.0.1");
    vsctl(&lab.daemon, &format!("-- --id=@s {row} -- set Bridge br0 sflow=@s"));
    let tagged = "dl_vlan=7,dl_vlan_pcp=3";
    for (flow, cookie, rest) in [
        (format!("in_port=1,{tagged}"), "vid=7,pcp=3,output=2147483649", ",2"),
        (format!("in_port=2,{tagged}"), "vid=7,pcp=3,output=2147483650", ",1,7"),
        (format!("in_port=3,{tagged}"), "vid=9,pcp=0,output=2147483649", ",push_vlan(vid=9,pcp=0),1"),
        (format!("in_port=9,{tagged}"), "vid=7,pcp=3,output=1073742080", ""),
    ] {
        let sample = format!("sample(sample=1.0%,actions(userspace(pid=0,sFlow({cookie}),actions)))");
        traces_as(&lab, &flow, &format!("{sample}{rest}"));
    }
    vsctl(&lab.daemon, "set sFlow . sampling=1");
    let all = "userspace(pid=0,sFlow(vid=0,pcp=0,output=2147483649),actions)";
    traces_as(&lab, "in_port=1", &format!("{all},2"));
    let frame = format!("in_port(3),{FROM_5_TO_7},eth_type(0x1234)");
    for sequence in 1..=3u8 {
        lab.receive("p7", &frame);
        lab.appctl("time/warp 1100");
        let datagram = next(&socket, |_| true);
        assert_eq!(datagram[..12], [0, 0, 0, 5, 0, 0, 0, 1, 127, 0, 0, 1]);
        // Number of samples; then the only one: a flow, its number, the bridge as a source, one in one.
        assert_eq!(datagram[24..32], [0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(datagram[36..48], [0, 0, 0, sequence, 2, 0, 3, 0xe8, 0, 0, 0, 1]);
        // Pool, drops, input, output.
        assert_eq!(datagram[48..64], [0, 0, 0, sequence, 0, 0, 0, 0, 0, 0, 3, 0xeb, 0x80, 0, 0, 1]);
        // The tag that it leaves with.
        assert_eq!(datagram[76..92], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0]);
        // The packet.
        assert_eq!(datagram[116..122], [0x50, 0x54, 0, 0, 0, 7]);
    }
    vsctl(&lab.daemon, "set sFlow . polling=1");
    lab.appctl("time/warp 1100");
    let is_port = |d: &[u8]| d.windows(4).any(|w| w == [0, 0, 0x03, 0xec]);
    let datagram = next(&socket, is_port);
    assert!(datagram.windows(2).any(|w| w == b"p7"), "{datagram:?}");
    vsctl(&lab.daemon, "clear Bridge br0 sflow");
    traces_as(&lab, "in_port=1", "2");
}

/// The 32-bit number at an offset of a datagram.
fn word(datagram: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(datagram[at..at + 4].try_into().unwrap())
}

/// Interfaces with counters in a datagram of sFlow, with their record of LACP.
fn counters(datagram: &[u8]) -> Vec<(u32, Option<&[u8]>)> {
    const LACP: u32 = 7;
    let (mut all, mut at) = (Vec::new(), 28);
    for _ in 0..word(datagram, 24) {
        let (format, end) = (word(datagram, at), at + 8 + word(datagram, at + 4) as usize);
        if format == 2 {
            let (source, mut lacp, mut record) = (word(datagram, at + 12), None, at + 20);
            while record < end {
                let after = record + 8 + word(datagram, record + 4) as usize;
                lacp = lacp.or((word(datagram, record) == LACP).then(|| &datagram[record + 8..after]));
                record = after;
            }
            all.push((source, lacp));
        }
        at = end;
    }
    all
}

/// States as recorded: an active port and a passive one, first without partners, then with one.
#[test]
fn sflow_has_the_counters_of_members_of_aggregates() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let lacp = "set Port p1 lacp=active other_config:lacp-time=fast other_config:lacp-aggregation-key=1 \
                -- set Port p7 lacp=passive other_config:lacp-system-id=02:11:22:33:44:55 \
                -- set Interface p1 options:ifindex=2001 -- set Interface p7 options:ifindex=2007 \
                other_config:lacp-aggregation-key=57";
    vsctl(&lab.daemon, lacp);
    let (socket, address) = collector(&lab);
    let row = format!("create sFlow targets=\"{address}\" sampling=100 polling=1 agent=127.0.0.1");
    vsctl(&lab.daemon, &format!("-- --id=@s {row} -- set Bridge br0 sflow=@s"));
    let mac = vsctl(&lab.daemon, "get Interface br0 mac_in_use").replace(['"', ':', '\n'], "");
    // Systems, key, states, received, three unknown, bad.
    let record = |system: &str, partner: &str, rest: &str| {
        format!("{system}0000{partner}0000{rest}{}", "f".repeat(24))
    };
    let none = "000000000000";
    let wanted = |port: u32, record: String, bad: u32| {
        let mut last = String::new();
        wait_for(LIMIT, "counters", || {
            lab.appctl("time/warp 1100");
            let datagram = next(&socket, |d| counters(d).iter().any(|(source, _)| *source == port));
            let all = counters(&datagram);
            assert!(all.iter().all(|(source, lacp)| lacp.is_none() || [2001, 2007].contains(source)));
            let lacp = all.into_iter().find(|(source, _)| *source == port).and_then(|(_, lacp)| lacp);
            last = lacp.unwrap_or_default().iter().map(|b| format!("{b:02x}")).collect();
            // Behind the number of sent messages, which depends on the time: marks.
            last.len() == 112 && last.starts_with(&format!("{record}{bad:08x}")) && last.ends_with("ffffffff")
        })
        .unwrap_or_else(|_| panic!("{port}: {last} instead of {record}{bad:08x}"));
    };
    wanted(2001, record(&mac, none, "000000010773000000000000"), 0);
    wanted(2007, record("021122334455", none, "000000390470000000000000"), 0);
    for system in [0x0b, 0x0a] {
        lab.receive("p1", &lacp_frame("", 1, system, 0x3d));
    }
    lab.receive("p1", "0180c20000020200000000998809010100");
    wanted(2001, record(&mac, "02000000000a", "00000001073b003d00000003"), 1);
}

#[test]
fn ipfix_of_a_bridge_has_the_actions_and_records_of_ovs() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab();
    let (socket, address) = collector(&lab);
    let row = format!("create IPFIX targets=\"{address}\" sampling=1 obs_domain_id=123 obs_point_id=456");
    vsctl(&lab.daemon, &format!("-- --id=@i {row} -- set Bridge br0 ipfix=@i"));
    let up = |port: u32| format!("userspace(pid=0,ipfix(output_port={port}))");
    let enters = up(u32::MAX);
    traces_as(&lab, "in_port=1", &format!("{enters},{},2", up(2)));
    traces_as(&lab, "in_port=2", &format!("{enters},{},1,{},7", up(1), up(7)));
    traces_as(&lab, "in_port=3", &format!("{enters},push_vlan(vid=9,pcp=0),{},1", up(1)));
    traces_as(&lab, "in_port=7", &enters);
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    for (set, direction, length) in [(256u16, 0, 165), (257, 1, 177)] {
        let data = next(&socket, |d| d[16..18] == set.to_be_bytes());
        assert_eq!(data[12..16], [0, 0, 0, 123]);
        assert_eq!((data[20..24].to_vec(), data[24]), (vec![0, 0, 1, 0xc8], direction));
        assert_eq!(data.len(), length);
    }
    wait_for(LIMIT, "counters", || {
        let counters = lab.ofctl(&["dump-ipfix-bridge", "br0"]);
        counters.contains("bridge ipfix: flows=2, current flows=0, sampled pkts=2, ipv4 ok=0")
    })
    .unwrap();
    vsctl(&lab.daemon, "set IPFIX . sampling=2 other_config:enable-output-sampling=false");
    traces_as(&lab, "in_port=1", &format!("sample(sample=50.0%,actions({enters})),2"));
}

#[test]
fn the_action_sample_has_the_actions_and_records_of_ovs() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab();
    let (socket, address) = collector(&lab);
    let bridge = vsctl(&lab.daemon, "get Bridge br0 _uuid");
    let row = format!("create IPFIX targets=\"{address}\"");
    let set = format!("create Flow_Sample_Collector_Set id=1 bridge={} ipfix=@i", bridge.trim());
    vsctl(&lab.daemon, &format!("-- --id=@i {row} -- {set}"));
    let numbers = "collector_set_id=1,obs_domain_id=5,obs_point_id=6";
    let sampled = |probability: u32, rest: &str| {
        format!("userspace(pid=0,flow_sample(probability={probability},{numbers},{rest}))")
    };
    let none = "output_port=4294967295";
    for (action, wanted) in [
        (
            format!("sample(probability=32768,{numbers}),output:2"),
            format!("sample(sample=50.0%,actions({})),2", sampled(32768, none)),
        ),
        (format!("sample(probability=65535,{numbers}),output:2"), format!("{},2", sampled(65535, none))),
        (
            format!("sample(probability=65535,{numbers},sampling_port=2),output:2"),
            format!("{},2", sampled(65535, "output_port=2")),
        ),
        (
            format!("sample(probability=65535,{numbers},sampling_port=1,ingress),output:2"),
            format!("{},2", sampled(65535, &format!("{none},ingress"))),
        ),
        (
            format!("sample(probability=65535,{numbers},sampling_port=2,egress),output:2"),
            format!("{},2", sampled(65535, "output_port=2,egress")),
        ),
        (format!("sample(probability=65535,{numbers})"), sampled(65535, none)),
    ] {
        lab.ofctl(&["add-flow", "br0", &format!("in_port=1,actions={action}")]);
        traces_as(&lab, "in_port=1", &wanted);
    }
    vsctl(&lab.daemon, "set Open_vSwitch . other_config:explicit-sampled-drops=true");
    traces_as(&lab, "in_port=1", &format!("{},drop", sampled(65535, none)));
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    let data = next(&socket, |d| d[16..18] == [1, 0]);
    assert_eq!((&data[12..16], &data[20..24]), (&[0, 0, 0, 5][..], &[0, 0, 0, 6][..]));
    wait_for(LIMIT, "counters", || {
        lab.ofctl(&["dump-ipfix-flow", "br0"]).contains("id   1: flows=1, current flows=0, sampled pkts=1")
    })
    .unwrap();
}

/// Records have tunnels of three kinds: for those the datapath is asked for the outer headers. Encapsulation by actions
/// leaves no sample of an output, as in OVS.
#[test]
fn ipfix_requests_the_headers_of_tunnels_as_ovs_does() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::overriding();
    let kinds = ["vxlan", "gre", "geneve", "gtpu", "erspan", "ip6gre", "vxlan"];
    for (n, kind) in (11..).zip(kinds) {
        let remote = if n == 16 { "fd00::2" } else { "192.0.2.2" };
        let port = format!("add-port br0 t{n} -- set Interface t{n} type={kind} ofport_request={n}");
        vsctl(
            &lab.daemon,
            &format!("{port} options:key={n} options:remote_ip={remote} options:erspan_ver=1"),
        );
        lab.ofctl(&["add-flow", "br0", &format!("in_port=1,dl_vlan={n},actions=output:{n}")]);
    }
    let dp_port = |n: u32| {
        let shown = lab.appctl("dpif/show");
        let row = shown.lines().find_map(|l| l.trim().strip_prefix(&format!("t{n} {n}/"))).expect("a port");
        row.split(':').next().unwrap().to_string()
    };
    let (_socket, address) = collector(&lab);
    let row = format!("create IPFIX targets=\"{address}\" sampling=1");
    vsctl(&lab.daemon, &format!("-- --id=@i {row} -- set Bridge br0 ipfix=@i"));
    let enters = "userspace(pid=0,ipfix(output_port=4294967295))";
    for shows in [true, false] {
        vsctl(&lab.daemon, &format!("set IPFIX . other_config:enable-tunnel-sampling={shows}"));
        for (n, kind) in (11..).zip(kinds) {
            let port = dp_port(n);
            let asked = match shows && matches!(kind, "vxlan" | "gre" | "geneve") {
                true => format!(",tunnel_out_port={port}"),
                false => String::new(),
            };
            let leaves = format!("userspace(pid=0,ipfix(output_port={port}){asked})");
            traces_as(&lab, &format!("in_port=1,dl_vlan={n}"), &format!("{enters},{leaves},{port}"));
        }
    }
    let bridge = vsctl(&lab.daemon, "get Bridge br0 _uuid");
    let set = format!("create Flow_Sample_Collector_Set id=1 bridge={} ipfix=@i", bridge.trim());
    vsctl(&lab.daemon, &format!("clear Bridge br0 ipfix -- --id=@i {row} -- {set}"));
    let numbers = "collector_set_id=1,obs_domain_id=5,obs_point_id=6";
    let sampled = |rest: &str| {
        let rule = format!("in_port=1,actions=sample(probability=65535,{numbers},{rest}),output:11");
        lab.ofctl(&["add-flow", "br0", &rule]);
    };
    let wanted = |n: u32, rest: &str, asked: &str| {
        let port = dp_port(n);
        let cookie = format!("flow_sample(probability=65535,{numbers},output_port={port}{rest})");
        let asked = if asked.is_empty() { String::new() } else { format!(",tunnel_out_port={port}") };
        traces_as(&lab, "in_port=1", &format!("userspace(pid=0,{cookie}{asked}),{}", dp_port(11)));
    };
    sampled("sampling_port=14,ingress");
    wanted(14, ",ingress", "");
    sampled("sampling_port=55");
    traces_as(&lab, "in_port=1", &dp_port(11));
    let trace = lab.appctl("ofproto/trace br0 in_port=1");
    assert!(trace.contains(">>>> can't use unknown port 55 in flow sample action <<<<"), "{trace}");
    sampled("sampling_port=11");
    wanted(11, "", "asked");
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    let named = format!("{numbers},output_port=t11),tunnel_out_port=t11),t11");
    let flows = lab.appctl("dpctl/dump-flows --names");
    assert!(flows.contains(&named), "{flows}");
    vsctl(&lab.daemon, "set IPFIX . other_config:enable-tunnel-sampling=false");
    wanted(11, "", "");
}
