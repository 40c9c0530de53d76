//! Network service headers through the whole switch. Datapath flows and frames are those of OVS 3.1, apart from
//! contexts in the flows of headers that lack them.

use super::Lab;
use crate::helpers::{appctl_output, vsctl};
use testkit::{TempDir, require_netns, require_programs};

/// A frame with a header of metadata type 1 around a UDP packet.
const MD1: &str = "020000000002020000000001894f0fc6010100000505000000010000000200000003000000044500001c0000000040116ccf\
    0a0000010a00000200010002000853c0";
/// A header of metadata type 2, without contexts.
const MD2: &str =
    "020000000002020000000001894f0fc20201000005ff4500001c0000000040116ccf0a0000010a00000200010002000853c0";
/// The UDP packet in a frame.
const UDP: &str = "02000000000202000000000108004500001c0000000040116ccf0a0000010a00000200010002000853c0";

/// The frames of a pcap file that left the port.
pub(super) fn sent(file: &std::path::Path) -> Vec<String> {
    let bytes = std::fs::read(file).unwrap();
    let (mut frames, mut rest) = (Vec::new(), &bytes[24..]);
    while let [_, _, _, _, _, _, _, _, a, b, c, d, _, _, _, _, after @ ..] = rest {
        let (frame, next) = after.split_at(u32::from_ne_bytes([*a, *b, *c, *d]) as usize);
        frames.push(frame.iter().map(|byte| format!("{byte:02x}")).collect());
        rest = next;
    }
    frames
}

struct Chain {
    lab: Lab,
    dir: TempDir,
}

impl Chain {
    /// Three ports, of which those but the first write what they send, and rules.
    fn new(rules: &[&str]) -> Chain {
        let lab = Lab::empty();
        let dir = TempDir::new("nsh").unwrap();
        let mut setup = "add-br br0 -- set Bridge br0 datapath_type=dummy fail_mode=secure".to_string();
        for n in 1..=3 {
            let pcap = dir.path().join(format!("p{n}"));
            let port = format!("add-port br0 p{n} -- set Interface p{n} type=dummy ofport_request={n}");
            setup += &format!(" -- {port} options:tx_pcap={}", pcap.display());
        }
        vsctl(&lab.daemon, &setup);
        for rule in rules {
            lab.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", rule]);
        }
        lab.appctl("time/stop");
        Chain { lab, dir }
    }

    /// Two frames each: the first of them is translated, the second meets its megaflow.
    fn receive(&self, port: &str, frame: &str) {
        (0..2).for_each(|_| self.lab.receive(port, frame));
        self.lab.appctl("time/warp 100");
    }

    fn sent(&self, port: &str) -> Vec<String> {
        sent(&self.dir.path().join(port))
    }

    fn flows(&self) -> Vec<String> {
        let dump = self.lab.appctl("dpctl/dump-flows");
        let of = |line: &str| {
            let (key, rest) = line.split_once(", packets:")?;
            Some(format!("{key} {}", rest.split_once("actions:")?.1))
        };
        dump.lines().filter_map(of).collect()
    }
}

#[test]
fn service_headers_are_popped_rewritten_and_pushed() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let chain = Chain::new(&[
        "in_port=1,dl_type=0x894f,nsh_spi=5,nsh_c1=1,nsh_mdtype=1,actions=decap(),decap(),resubmit(,1)",
        "in_port=1,dl_type=0x894f,nsh_spi=5,nsh_mdtype=2,actions=set_field:1->nsh_flags,dec_nsh_ttl,3",
        "table=1,packet_type=(1,0x800),udp_dst=2,nw_proto=17,\
         actions=dec_ttl,encap(ethernet),set_field:02:00:00:00:00:09->dl_dst,2",
        "in_port=2,dl_type=0x894f,nsh_mdtype=1,nsh_flags=0/1,actions=set_field:7/0xf->nsh_c1,3",
        "in_port=3,ip,actions=encap(nsh(md_type=1)),set_field:0x1234->nsh_spi,encap(ethernet),\
         set_field:02:00:00:00:00:07->dl_dst,1",
    ]);
    for (port, frame) in [("p1", MD1), ("p1", MD2), ("p2", MD1), ("p3", UDP)] {
        chain.receive(port, frame);
    }
    let popped = "02000000000900000000000008004500001c000000003f116dcf0a0000010a00000200010002000853c0";
    assert_eq!(chain.sent("p2"), [popped; 2]);
    let marked = MD2.replace("894f0fc2", "894f1f82");
    let rewritten = MD1.replace("000505000000010000", "000505000000070000");
    assert_eq!(chain.sent("p3"), [marked.clone(), marked, rewritten.clone(), rewritten]);
    let pushed =
        format!("020000000007000000000000894f0fc601030012 34ff{}{UDP}", "00".repeat(16)).replace(' ', "");
    assert_eq!(chain.sent("p1"), [pushed.as_str(); 2]);
    let eth = "packet_type(ns=0,id=0),eth_type(0x894f)";
    let mut flows = chain.flows();
    let recirculated = flows.iter().find(|flow| flow.contains("ns=1")).unwrap().clone();
    let id = recirculated.split(['(', ')']).nth(1).unwrap();
    flows.retain(|flow| !flow.contains("eth_type(0x0800),ipv4(frag=no) "));
    for flow in [
        format!(
            "recirc_id(0),in_port(1),{eth},nsh(mdtype=1,np=1,spi=0x5,c1=0x1) pop_eth,pop_nsh(),recirc({id})"
        ),
        format!(
            "recirc_id({id}),in_port(1),packet_type(ns=1,id=0x800),eth_type(0x0800),ipv4(proto=17,ttl=64,frag=no),\
             udp(dst=2) set(ipv4(ttl=63)),push_eth(src=00:00:00:00:00:00,dst=02:00:00:00:00:09),2"
        ),
        format!(
            "recirc_id(0),in_port(1),{eth},nsh(flags=0,ttl=63,mdtype=2,spi=0x5) set(nsh(flags=1,ttl=62,spi=0x5)),3"
        ),
        format!(
            "recirc_id(0),in_port(2),{eth},nsh(flags=0x00/0x01,mdtype=1,c1=0x1/0x0000000f) \
             set(nsh(flags=0x00/0x01,c1=0x7/0x0000000f)),3"
        ),
    ] {
        assert!(flows.contains(&flow), "{flow} is not in\n{}", flows.join("\n"));
    }
    // OpenFlow 1.0 lacks these actions.
    let rules = chain.lab.ofctl(&["-O", "OpenFlow13", "dump-flows", "br0"]);
    let rule = rules.lines().find(|rule| rule.contains("packet_type=(1,0x800)")).unwrap();
    assert!(rule.contains("n_packets=2, n_bytes=56"), "{rule}");
}

/// A bridge pushes a service header and pops it again: the frame is the same.
#[test]
fn pushed_headers_are_popped_again() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let chain = Chain::new(&[
        "in_port=1,ip,actions=encap(nsh(md_type=2,tlv(0x1000,10,0x12345678))),encap(ethernet),2",
        "in_port=2,dl_type=0x894f,actions=decap(),decap(),resubmit(,1)",
        "table=1,packet_type=(0,0),actions=3",
        "in_port=3,ip,actions=decap(),encap(mpls),set_field:5->mpls_label,encap(ethernet),1",
    ]);
    chain.receive("p1", UDP);
    let pushed = chain.sent("p2");
    let header = "0fc40203000000ff10000a0412345678";
    assert_eq!(pushed, [format!("{}894f{header}{UDP}", "0".repeat(24)).as_str(); 2]);
    chain.receive("p2", &pushed[0]);
    assert_eq!(chain.sent("p3"), [UDP; 2]);
    chain.receive("p3", UDP);
    let labelled = format!("{}884700005140{}", "0".repeat(24), &UDP[28..]);
    assert_eq!(chain.sent("p1"), [labelled.as_str(); 2]);
}

/// As in OVS: the printed key of a translated flow finds the flow to modify, and none to delete.
#[test]
fn the_key_of_a_translated_flow_finds_it_to_be_modified() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let chain = Chain::new(&[
        "in_port=1,dl_type=0x894f,actions=decap(),decap(),resubmit(,1)",
        "table=1,packet_type=(1,0x800),nw_dst=10.0.0.2,actions=encap(ethernet),2",
    ]);
    chain.lab.appctl("revalidator/pause");
    chain.receive("p1", MD1);
    let keys = || -> Vec<(String, String)> {
        let dump = chain.lab.appctl("dpctl/dump-flows -m");
        let of = |line: &str| {
            let (key, rest) = line.strip_prefix("ufid:")?.split_once(", ")?.1.split_once(", packets:")?;
            Some((key.to_string(), rest.split_once("actions:")?.1.to_string()))
        };
        let mut keys: Vec<_> = dump.lines().filter_map(of).collect();
        keys.sort();
        keys
    };
    let before = keys();
    assert_eq!(before.len(), 2, "{before:#?}");
    assert!(before.iter().any(|(key, _)| key.contains("packet_type(ns=1,id=0x800)")), "{before:#?}");
    let file = chain.dir.path().join("flows");
    for (by_file, actions) in [(false, "p3"), (true, "p2")] {
        for (key, _) in &before {
            // Bits that the mask leaves out do not matter.
            let other = key.replace("src=10.0.0.1/", "src=10.0.0.9/");
            if by_file {
                std::fs::write(&file, format!("{other} {actions}\n")).unwrap();
                chain.lab.appctl(&format!("dpctl/mod-flows {}", file.display()));
            } else {
                chain.lab.appctl(&format!("dpctl/mod-flow {other} {actions}"));
            }
        }
        assert!(keys().iter().all(|(_, now)| now == actions), "{:#?}", keys());
    }
    for (key, _) in &before {
        let refused = appctl_output(&chain.lab.daemon, &format!("dpctl/del-flow {key}"));
        assert!(refused.stderr.contains("deleting flow (No such file or directory)"), "{}", refused.stderr);
        let other = key.replace("in_port(p1)", "in_port(p2)");
        let refused = appctl_output(&chain.lab.daemon, &format!("dpctl/mod-flow {other} 3"));
        assert!(refused.stderr.contains("updating flow table (No such file"), "{}", refused.stderr);
    }
}

/// Flows by command whose packets are no frames are taken, also by OVS; its dummies refuse to send such packets.
#[test]
fn flows_do_not_output_packets_without_an_ethernet_header() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let chain = Chain::new(&[]);
    chain.lab.appctl("revalidator/pause");
    let frames = "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no)";
    let packets = "recirc_id(0x7),in_port(1),packet_type(ns=1,id=0x800),eth_type(0x0800),ipv4(frag=no)";
    for (key, actions) in [(frames, "pop_eth,recirc(0x7)"), (packets, "2,3")] {
        chain.lab.appctl(&format!("dpctl/add-flow {key} {actions}"));
    }
    chain.receive("p1", UDP);
    let dump = chain.lab.appctl("dpctl/dump-flows");
    let used = dump.lines().find(|line| line.starts_with(packets)).unwrap();
    assert!(used.ends_with("actions:2,3") && used.contains("packets:2,"), "{used}");
    assert_eq!([chain.sent("p2"), chain.sent("p3")], [[""; 0]; 2]);
}
