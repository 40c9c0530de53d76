//! Active controllers of `type=service` beside primary ones, byte by byte. Expected messages are those of OVS 3.1.

use super::Lab;
use crate::helpers::vsctl;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use testkit::{require_netns, require_programs};

/// Types of messages.
const ERROR: u8 = 1;
const GET_CONFIG: u8 = 7;
const SET_CONFIG: u8 = 9;
const PACKET_IN: u8 = 10;
const FLOW_REMOVED: u8 = 11;
const PORT_STATUS: u8 = 12;
const GET_ASYNC: u8 = 26;

/// An accepted connection of the switch.
struct Controller {
    stream: UnixStream,
    version: u8,
    name: &'static str,
}

impl Controller {
    /// Has the switch connect, as to a controller of that type.
    fn accept(lab: &Lab, listener: &UnixListener, kind: &str, version: u8) -> Controller {
        let name = ["", "OpenFlow10", "", "", "OpenFlow13", "OpenFlow14", "OpenFlow15"][usize::from(version)];
        let set = format!(
            "set-controller br0 unix:own.sock -- set controller br0 type={kind} inactivity_probe=0 \
             -- set bridge br0 protocols={name} fail_mode=secure"
        );
        vsctl(&lab.daemon, &set);
        let (stream, _) = listener.accept().unwrap();
        let mut controller = Controller { stream, version, name };
        controller.send(0, &[]);
        let hello = controller.read();
        assert_eq!((hello[0], hello[1]), (version, 0), "{hello:?}");
        controller
    }

    fn send(&mut self, ty: u8, body: &[u8]) {
        let len = (8 + body.len()) as u16;
        let head = [self.version, ty, (len >> 8) as u8, len as u8, 0, 0, 0, 7];
        self.stream.write_all(&[&head, body].concat()).unwrap();
    }

    /// The next message.
    fn read(&mut self) -> Vec<u8> {
        let mut frame = vec![0; 8];
        self.stream.read_exact(&mut frame).unwrap();
        frame.resize(u16::from_be_bytes([frame[2], frame[3]]).into(), 0);
        self.stream.read_exact(&mut frame[8..]).unwrap();
        frame
    }

    /// The messages so far: those before the reply to a barrier.
    fn so_far(&mut self) -> Vec<Vec<u8>> {
        let (request, reply) = if self.version == 1 { (18, 19) } else { (20, 21) };
        self.send(request, &[]);
        let mut frames = Vec::new();
        loop {
            let frame = self.read();
            if frame[1] == reply {
                return frames;
            }
            frames.push(frame);
        }
    }

    /// The answers to a message, in hexadecimal digits.
    fn ask(&mut self, ty: u8, body: &[u8]) -> Vec<String> {
        self.send(ty, body);
        self.so_far().iter().map(|frame| hex(frame)).collect()
    }

    /// The answers to `NXT_SET_ASYNC_CONFIG2` with these properties.
    fn set_async2(&mut self, properties: &str) -> Vec<String> {
        let body = [&[0, 0, 0x23, 0x20, 0, 0, 0, 27], &bytes(properties)[..]].concat();
        self.ask(4, &body)
    }

    /// Types of the messages of a packet without a rule, a changed port, and a removed rule.
    fn events(&mut self, lab: &Lab) -> Vec<u8> {
        let ofctl = |words: &[&str]| lab.ofctl(&[&["-O", self.name], words].concat());
        ofctl(&["add-flow", "br0", "priority=0,actions=controller"]);
        lab.receive(
            "p1",
            "50540000000750540000000508004500001c00000000401100000101010102020202000100020008000000",
        );
        if self.version == 1 {
            ofctl(&["mod-port", "br0", "p2", "no-flood"]);
        }
        ofctl(&["add-flow", "br0", "send_flow_rem,dl_type=0x1234,actions=drop"]);
        ofctl(&["del-flows", "br0", "dl_type=0x1234"]);
        if self.version == 1 {
            ofctl(&["mod-port", "br0", "p2", "flood"]);
        }
        let mut types: Vec<u8> = self.so_far().iter().map(|frame| frame[1]).collect();
        types.sort_unstable();
        types.dedup();
        types
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// The asynchronous configuration of a new connection, the same for both types.
const ASYNC_13: &str = "041b002000000007000000030000000000000007000000070000000f00000000";
const ASYNC_14: &str = "051b0068000000070000000800000000000100080000003b0002000800000007000300080000000700040008000000000005000\
    80000003f0006000800000000000700080000000000080008000000000009000800000000000a000800000000000b000800000000";

/// A service is asked for nothing: it hears of no event before it sets a length for packets.
#[test]
fn services_hear_of_events_once_they_ask() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let listener = UnixListener::bind(lab.daemon.rundir().join("own.sock")).unwrap();
    for (kind, length) in [("service", 0_u8), ("primary", 128)] {
        for version in [1, 4, 5] {
            let mut controller = Controller::accept(&lab, &listener, kind, version);
            let config = format!("{version:02x}08000c000000070000{length:04x}");
            assert_eq!(controller.ask(GET_CONFIG, &[]), [config], "{kind}");
            if version > 1 {
                let wanted = if version == 4 { ASYNC_13 } else { ASYNC_14 };
                assert_eq!(controller.ask(GET_ASYNC, &[]), [wanted], "{kind}");
            }
            let all = match version {
                1 => vec![PACKET_IN, FLOW_REMOVED, PORT_STATUS],
                _ => vec![PACKET_IN, FLOW_REMOVED],
            };
            let before = if kind == "service" { Vec::new() } else { all.clone() };
            assert_eq!(controller.events(&lab), before, "{kind} {version}");
            assert_eq!(controller.ask(SET_CONFIG, &[0, 0, 0, 128]), Vec::<String>::new());
            assert_eq!(controller.events(&lab), all, "{kind} {version}");
            let row = vsctl(&lab.daemon, "--columns=type,role,is_connected list controller");
            assert!(row.contains(kind) && row.contains("other") && row.contains("true"), "{row}");
            vsctl(&lab.daemon, "del-controller br0");
        }
    }
}

/// A bridge whose only controller is a service is on its own at once; a primary one has time to connect.
#[test]
fn services_do_not_count_for_the_fail_mode() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let rules = |kind: &str| {
        let set = format!("set-controller br0 unix:nobody.sock -- set controller br0 type={kind}");
        vsctl(&lab.daemon, &format!("del-controller br0 -- set bridge br0 protocols=[] -- {set}"));
        lab.ofctl(&["dump-flows", "br0"]).lines().skip(1).count()
    };
    assert_eq!((rules("service"), rules("primary"), rules("service")), (1, 0, 1));
}

#[test]
fn asynchronous_messages_are_chosen_by_properties() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let listener = UnixListener::bind(lab.daemon.rundir().join("own.sock")).unwrap();
    let nothing = Vec::<String>::new();
    for version in [1, 4] {
        let mut controller = Controller::accept(&lab, &listener, "primary", version);
        // Packets for a primary controller by reason 0 only, for secondary ones by reason 1.
        assert_eq!(controller.set_async2("00000008000000020001000800000001"), nothing);
        if version == 4 {
            let set = "041b002000000007000000010000000200000007000000070000000f00000000";
            assert_eq!(controller.ask(GET_ASYNC, &[]), [set]);
        }
        // Property, and the errors of OpenFlow 1.0 and 1.3: type, code, and of an experimenter its number first.
        for (property, of_10, of_13) in [
            ("0000000700000001", "b0c2000000002320000d0003", "000d0003"),
            ("0000000800000100", "b0c200000000232000010209", "ffff09424f4e4600"),
            ("0099000800000001", "b0c200000000232000010209", "ffff09434f4e4600"),
            ("ffff000c4f4e460000000001", "00010006", "00010006"),
            ("0000000c0000000100000000", "00010006", "00010006"),
            ("000000080000000100", "00010006", "00010006"),
        ] {
            let refused = controller.set_async2(property);
            let error = if version == 1 { of_10 } else { of_13 };
            let head = format!("{version:02x}{ERROR:02x}");
            let [refused] = &refused[..] else { panic!("{property}: {refused:?}") };
            assert!(refused.starts_with(&head), "{property}: {refused}");
            assert!(refused[16..].starts_with(error), "{version} {property}: {refused}");
            assert!(refused.contains(property), "{refused}");
        }
        // Nothing of it has changed; without packet-ins only the others come.
        if version == 4 {
            let set = "041b002000000007000000010000000200000007000000070000000f00000000";
            assert_eq!(controller.ask(GET_ASYNC, &[]), [set]);
        }
        assert_eq!(controller.set_async2("0001000800000000"), nothing);
        let others = if version == 1 { vec![FLOW_REMOVED, PORT_STATUS] } else { vec![FLOW_REMOVED] };
        assert_eq!(controller.events(&lab), others, "{version}");
        vsctl(&lab.daemon, "del-controller br0");
    }
}
