use super::*;
use dpif::text::parse_actions;
use std::io::{Seek as _, Write as _};

const READER: Reader<'static> = Reader { boot: "boot", program: "program", digest: 7 };

fn list(text: &str) -> Arc<[DpAction]> {
    parse_actions(text, &NumbersOnly).unwrap().into()
}

/// A file with these lines and records behind its first line.
fn file(content: &[&[u8]]) -> Vec<u8> {
    let mut out = [READER.line().as_bytes(), &content.concat()].concat();
    let end = end_line(&out);
    out.extend(end.as_bytes());
    out
}

fn read_bytes(bytes: &[u8], reader: Reader<'_>) -> io::Result<Option<KeptFlows>> {
    let folder = testkit::TempDir::new("flows").unwrap();
    let path = folder.path().join("flows");
    let mut file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    read(file, reader)
}

/// A record of a flow from port 3, with the list of that number.
fn record(list: u32, change: impl FnOnce(&mut FlowKey)) -> Vec<u8> {
    let mut key = FlowKey::default();
    key.base.in_port = 3;
    change(&mut key);
    let mut out = [&9_u128.to_le_bytes()[..], &5_u16.to_le_bytes(), &list.to_le_bytes()].concat();
    for i in key.present_blocks() {
        for block in [key.block(i), &[u64::MAX; 8]] {
            block.iter().for_each(|word| out.extend(word.to_le_bytes()));
        }
    }
    out
}

const LINES: &[u8] = b"interface\t7\tbr0\teth3\ndatapath\t00000000000000ff\tnetdev@ovs-netdev\nport\t3\tsystem\teth3\nactions\t3\nactions\t\nflows\t2\n";

#[test]
fn a_file_is_read_by_the_same_program_with_the_same_settings() {
    use flow::shape;
    let of_tunnel = record(1, |key| key.base.shape = shape::TUNNEL | shape::IPV6);
    let bytes = file(&[LINES, &record(0, |_| {}), &of_tunnel]);
    let all = read_bytes(&bytes, READER).unwrap().unwrap();
    let number = Numbered { bridge: "br0".into(), name: "eth3".into(), number: OfPort(7) };
    assert_eq!(all.numbers, [number]);
    let datapath = &all.datapaths["netdev@ovs-netdev"];
    assert_eq!((datapath.hash_seed, datapath.ports.len(), datapath.flows.len()), (255, 1, 2));
    let [first, second] = &datapath.flows[..] else { panic!("two flows") };
    assert_eq!((first.ufid, first.core, &first.actions), (Ufid(9), 5, &list("3")));
    assert!(second.actions.is_empty() && second.flow.key().has(shape::TUNNEL));
    assert_eq!(second.flow.mask().block(1), &[u64::MAX; 8]);
    assert!(first.uses(|port| port == DpPort(3)) && !first.uses(|port| port == DpPort(4)));
    for other in [
        Reader { boot: "later", ..READER },
        Reader { program: "other", ..READER },
        Reader { program: "", ..READER },
        Reader { digest: 8, ..READER },
    ] {
        assert_eq!(read_bytes(&bytes, other).unwrap(), None);
    }
}

#[test]
fn a_damaged_file_is_refused() {
    let bytes = file(&[LINES, &record(0, |_| {}), &record(1, |_| {})]);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 4;
        read_bytes(&changed, READER).unwrap_err();
        read_bytes(&bytes[..at], READER).unwrap_err();
    }
    for (content, why) in [
        (&[LINES][..], "a flow is wrong"),
        (&[LINES, &record(0, |_| {}), &record(2, |_| {})], "a flow is wrong"),
        (&[LINES, &record(0, |_| {}), &record(0, |key| key.base.recirc_id = 1)], "a flow is wrong"),
        (&[LINES, &record(0, |_| {}), &record(0, |key| key.base.shape = 0x100)], "a flow is wrong"),
        (&[b"flows\t1\n"], "a line is wrong"),
        (&[b"interface\tx\tbr0\teth3\n"], "an interface is wrong"),
        (&[LINES, &record(0, |_| {}), &record(0, |_| {}), b"interface\t7\tbr0\teth3\n"], "a line is wrong"),
        (&[b"datapath\tx\tname\n"], "a datapath is wrong"),
        (&[b"datapath\t1\tname\nport\tx\tsystem\teth3\n"], "a port is wrong"),
        (&[b"datapath\t1\tname\nactions\trecirc(0x1)\n"], "a list of actions is wrong"),
        (&[b"datapath\t1\tname\nflows\t-1\n"], "a number of flows is wrong"),
        (&[b"\xff\tx\n"], "a line is wrong"),
    ] {
        assert_eq!(read_bytes(&file(content), READER).unwrap_err().to_string(), why);
    }
}

#[test]
fn flows_that_need_rules_are_not_kept() {
    for (text, is_kept) in [
        ("3", true),
        ("drop", true),
        ("push_vlan(vid=5,pcp=0),3,pop_vlan,4", true),
        ("clone(set(ipv4(ttl=3)),3),4", true),
        ("check_pkt_len(size=200,gt(4),le(5))", true),
        ("tnl_pop(4)", true),
        ("recirc(0x1)", false),
        ("clone(recirc(0x1)),3", false),
        ("check_pkt_len(size=200,gt(4),le(recirc(0x7)))", false),
        ("meter(1),3", false),
        ("ct(zone=1),3", false),
        ("lb_output(1)", false),
        ("userspace(pid=0,slow_path(controller))", false),
    ] {
        assert_eq!(stand_alone(&list(text)), is_kept, "{text}");
    }
    assert!(!use_ports(&list("clone(set(ipv4(ttl=3)),3),4"), |port| port == DpPort(4)));
}
