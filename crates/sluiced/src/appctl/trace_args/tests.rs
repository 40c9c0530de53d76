//! Forms of the arguments.

use super::*;

const FRAME: &str = "0200000000010200000000020806";
const ODP: &str = "in_port(1),eth_type(0x0806)";

fn words(line: &str) -> Vec<String> {
    line.split(' ').filter(|w| !w.is_empty()).map(str::to_string).collect()
}

#[test]
fn flows_and_packets_are_distinguished() {
    let bytes = || PacketText::Bytes(hexadecimal(FRAME).unwrap());
    for (line, flow, packet) in [
        ("br0 in_port=1", FlowText::Bridge("br0", "in_port=1"), PacketText::None),
        ("br0 in_port=1 -generate", FlowText::Bridge("br0", "in_port=1"), PacketText::Generate),
        ("--generate br0 in_port=1", FlowText::Bridge("br0", "in_port=1"), PacketText::Generate),
        ("br0 packet_type=(1,0x800)", FlowText::Bridge("br0", "packet_type=(1,0x800)"), PacketText::None),
        (&format!("br0 in_port=1 {FRAME}"), FlowText::Bridge("br0", "in_port=1"), bytes()),
        (ODP, FlowText::Datapath(None, ODP), PacketText::None),
        (&format!("dp {ODP}"), FlowText::Datapath(Some("dp"), ODP), PacketText::None),
        (&format!("{ODP} {FRAME}"), FlowText::Datapath(None, ODP), bytes()),
        (&format!("dp {ODP} {FRAME}"), FlowText::Datapath(Some("dp"), ODP), bytes()),
    ] {
        let args = words(line);
        let parsed = TraceArgs::parse(&args, false).unwrap();
        assert_eq!((parsed.flow, parsed.packet), (flow, packet), "{line}");
        // Options before the actions of a packet-out.
        let args = words(&format!("-consistent {line} output:2"));
        let out = TraceArgs::parse(&args, true).unwrap();
        assert_eq!((out.flow, out.actions, out.consistent), (flow, "output:2", true), "{line}");
    }
}

#[test]
fn a_line_of_a_dump_has_a_key() {
    let line = format!(
        "ufid:cb20d873-b5b3-4763-8250-cabf82011a98, {ODP}, packets:0, bytes:0, used:never, actions:br0"
    );
    for text in [line.as_str(), line.split(", packets").next().unwrap(), line.split_once(' ').unwrap().1, ODP]
    {
        assert_eq!(key_of(text).trim(), ODP, "{text}");
    }
    assert_eq!(key_of("ufid:x, eth()"), "ufid:x, eth()");
}

#[test]
fn payloads_are_bytes_or_lengths() {
    let payload = |line: &str| {
        let args = words(&format!("br0 in_port=1 -generate {line}"));
        let parsed = TraceArgs::parse(&args, false).unwrap();
        flow::compose::compose(
            &flow::text::parse_exact_flow("udp", &flow::text::NoPortNames).unwrap(),
            parsed.payload(),
        )[42..]
            .to_vec()
    };
    assert_eq!(payload("").len(), DEFAULT_L7_BYTES);
    assert_eq!(payload("--l7-len 3"), [0, 1, 2]);
    assert_eq!(payload("--l7 a1b2"), [0xa1, 0xb2]);
}

#[test]
fn faults_are_reported() {
    for (line, error) in [
        ("br0 in_port=1 --foo", "--foo: unknown option"),
        ("br0 in_port=1 -consistent", "-consistent: unknown option"),
        ("br0 in_port=1 --l7", "Missing argument for option --l7"),
        ("br0 in_port=1 --l7 0", "Trailing garbage in packet data"),
        ("br0 in_port=1 --l7-len 70000", "70000: too much L7 data"),
        ("br0 in_port=1 --l7-len x", "x: not a number of bytes"),
        ("br0 in_port=1 --ct-next", "Missing argument for option --ct-next"),
        ("br0 in_port=1 --ct-next trk|est", "trk|est: unknown connection tracking state flag"),
        (
            "br0 in_port=1 --ct-next rel",
            "rel: invalid connection state: If \"trk\" is unset, no other flags are set\n",
        ),
        ("br0 in_port=1 zz", "Trailing garbage in packet data"),
        ("br0 in_port=1 0102", "Packet data too short for Ethernet"),
        ("br0 in_port=1 a b", "too many arguments"),
        (&format!("br0 in_port=1 {FRAME} -generate"), "Syntax error"),
        ("-generate", "Syntax error"),
    ] {
        assert_eq!(TraceArgs::parse(&words(line), false).unwrap_err(), error, "{line}");
    }
    assert_eq!(TraceArgs::parse(&words("output:2"), true).unwrap_err(), "Syntax error");
}
