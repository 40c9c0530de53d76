//! Lines recorded from `ovs-dpctl dump-conntrack` 3.1, and expectations in the layout of 3.5.

use super::*;
use crate::Masked;
use crate::conntrack::CtAddresses;

fn ports(src: &str, dst: &str, proto: u8, ports: [u16; 2]) -> CtTuple {
    let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
    let transport = CtTransport::Ports { src: ports[0], dst: ports[1] };
    CtTuple { addresses: CtAddresses::V4 { src, dst }, proto, transport }
}

fn ping(src: &str, dst: &str, kind: u8) -> CtTuple {
    let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
    let transport = CtTransport::Icmp { id: 262, kind, code: 0 };
    CtTuple { addresses: CtAddresses::V6 { src, dst }, proto: 58, transport }
}

fn line(connection: &Connection, verbose: bool, statistics: bool) -> String {
    let mut out = String::new();
    let format = ConnectionFormat { verbose, statistics };
    write_connection(&mut out, connection, format, &|ns| format!("<{ns}>"));
    out
}

#[test]
fn a_ping_is_printed() {
    let ping = Connection {
        zone: 7,
        mark: 5,
        status: 0xa,
        id: 1_810_233_363,
        timeout_s: 11,
        counters: [CtCounters { packets: 1, bytes: 104 }; 2],
        start_ns: 17,
        ..Connection::new(ping("fd00::1", "fd00::2", 128), ping("fd00::2", "fd00::1", 129))
    };
    let orig = "icmpv6,orig=(src=fd00::1,dst=fd00::2,id=262,type=128,code=0";
    let reply = "reply=(src=fd00::2,dst=fd00::1,id=262,type=129,code=0";
    assert_eq!(line(&ping, false, false), format!("{orig}),{reply}),zone=7,mark=5"));
    assert_eq!(
        line(&ping, false, true),
        format!(
            "{orig},packets=1,bytes=104),{reply},packets=1,bytes=104),start=<17>,zone=7,timeout=11,mark=5"
        )
    );
    let more = "id=1810233363,zone=7,status=SEEN_REPLY|CONFIRMED";
    assert_eq!(line(&ping, true, false), format!("{orig}),{reply}),{more},mark=5"));
    assert_eq!(
        line(&Connection { stop_ns: 18, ..ping }, true, true),
        format!(
            "{orig},packets=1,bytes=104),{reply},packets=1,bytes=104),start=<17>,stop=<18>,{more},timeout=11,mark=5"
        )
    );
}

#[test]
fn protocols_helpers_and_parents_are_printed() {
    let side = |state, flags| TcpSide { state, window_scale: 7, flags };
    let tcp = Connection {
        zone: 1,
        mark: 5,
        labels: 0x1234,
        protocol: Some(CtProtocol::Tcp(side(TcpState::Established, 0x23), side(TcpState::SynRecv, 3))),
        helper: Some("ftp".into()),
        parent: Some(ports("1.0.0.1", "1.0.0.2", 6, [3, 21])),
        ..Connection::new(ports("1.0.0.1", "1.0.0.2", 6, [1, 2]), ports("1.0.0.2", "1.0.0.9", 6, [2, 1]))
    };
    let head =
        "tcp,orig=(src=1.0.0.1,dst=1.0.0.2,sport=1,dport=2),reply=(src=1.0.0.2,dst=1.0.0.9,sport=2,dport=1)";
    assert_eq!(
        line(&tcp, false, true),
        format!("{head},zone=1,timeout=0,mark=5,labels=0x1234,protoinfo=(state=ESTABLISHED),helper=ftp")
    );
    assert_eq!(
        line(&tcp, true, false),
        format!(
            "{head},id=0,zone=1,status=0,mark=5,labels=0x1234,protoinfo=(state_orig=ESTABLISHED,state_reply=SYN_RECV,\
             wscale_orig=7,wscale_reply=7,flags_orig=WINDOW_SCALE|SACK_PERM|MAXACK_SET,\
             flags_reply=WINDOW_SCALE|SACK_PERM),helper=ftp,parent=(src=1.0.0.1,dst=1.0.0.2,sport=3,dport=21)"
        )
    );
    let (there, back) = (ports("1.0.0.1", "1.0.0.2", 132, [1, 2]), ports("1.0.0.2", "1.0.0.1", 132, [2, 1]));
    let sctp = |state| Connection {
        protocol: Some(CtProtocol::Sctp { state, tags: [8, 9] }),
        ..Connection::new(there, back)
    };
    assert!(
        line(&sctp(4), false, false).ends_with(",protoinfo=(state=ESTABLISHED,vtag_orig=8,vtag_reply=9)")
    );
    assert!(line(&sctp(77), false, false).contains("(state=[77],"));
    let other = CtTuple { proto: 47, ..there };
    assert!(line(&Connection::new(other, other), false, false).starts_with("47,orig=("));
}

/// The short form has the later state of both sides, as Linux's tracker has one only, and two states by the name of another
/// one (`lib/ct-dpif.c` of Open vSwitch).
#[test]
fn states_of_both_sides_are_one_in_short_form() {
    use TcpState::*;
    let states = [
        (Closed, "CLOSED", "CLOSED"),
        (Listen, "LISTEN", "LISTEN"),
        (SynSent, "SYN_SENT", "SYN_SENT"),
        (SynRecv, "SYN_RECV", "ESTABLISHED"),
        (Established, "ESTABLISHED", "ESTABLISHED"),
        (CloseWait, "CLOSE_WAIT", "CLOSE_WAIT"),
        (FinWait1, "FIN_WAIT_1", "FIN_WAIT_1"),
        (Closing, "CLOSING", "CLOSING"),
        (LastAck, "LAST_ACK", "LAST_ACK"),
        (FinWait2, "FIN_WAIT_2", "TIME_WAIT"),
        (TimeWait, "TIME_WAIT", "TIME_WAIT"),
    ];
    let tuple = ports("1.0.0.1", "1.0.0.2", 6, [1, 2]);
    let side = |state| TcpSide { state, window_scale: 0, flags: 0 };
    for (n, (orig, orig_name, orig_short)) in states.into_iter().enumerate() {
        for (m, (reply, reply_name, reply_short)) in states.into_iter().enumerate() {
            let protocol = Some(CtProtocol::Tcp(side(orig), side(reply)));
            let connection = Connection { protocol, ..Connection::new(tuple, tuple) };
            let later = if n > m { orig_short } else { reply_short };
            let short = line(&connection, false, false);
            assert!(
                short.ends_with(&format!(",protoinfo=(state={later})")),
                "{orig_name} {reply_name}: {short}"
            );
            let long =
                format!("(state_orig={orig_name},state_reply={reply_name},flags_orig=0,flags_reply=0)");
            assert!(line(&connection, true, false).ends_with(&long), "{orig_name} {reply_name}");
        }
    }
}

#[test]
fn expectations_are_printed() {
    let data = ports("10.1.1.2", "10.1.1.1", 6, [0, 40000]);
    let control = ports("10.1.1.1", "10.1.1.2", 6, [50000, 21]);
    let plain = Expectation { tuple: data, parent: control, zone: 0, mark: 0, labels: 0 };
    let orig = "tcp,orig=(src=10.1.1.2,dst=10.1.1.1,sport=0,dport=40000)";
    let parent = "parent=(src=10.1.1.1,dst=10.1.1.2,sport=50000,dport=21)";
    for (expectation, expected) in [
        (plain, format!("{orig},{parent}")),
        (
            Expectation { zone: 7, mark: 5, labels: 0xff, ..plain },
            format!("{orig},zone=7,mark=5,labels=0xff,{parent}"),
        ),
    ] {
        let mut out = String::new();
        write_expectation(&mut out, &expectation);
        assert_eq!(out, expected);
    }
}

/// Debug lines of the module `ct_dpif` of OVS 3.5 about `dpctl/flush-conntrack`.
#[test]
fn deleted_connections_are_named() {
    let address = |text: &str| Some(text.parse().unwrap());
    let tuple = |proto: u8| CtTupleMatch { proto, ..CtTupleMatch::default() };
    let none = CtMatch::default();
    for (which, expected) in [
        (none, "<all>"),
        (CtMatch { zone: Some(5), ..none }, "zone 5"),
        (
            CtMatch { mark: Some(Masked { value: 5, mask: 7 }), ..none },
            "zone=0 mark=0x5/0x7 'ct_ipv6_src=::,ct_ipv6_dst=::,ct_tp_src=0,ct_tp_dst=0,ct_nw_proto=0' \
             'ct_ipv6_src=::,ct_ipv6_dst=::,ct_tp_src=0,ct_tp_dst=0'",
        ),
        (
            CtMatch {
                zone: Some(3),
                orig: CtTupleMatch { src: address("1.1.1.1"), ..tuple(17) },
                reply: CtTupleMatch { dst: address("2.2.2.2"), ..tuple(17) },
                ..none
            },
            "zone=3 'ct_nw_src=1.1.1.1,ct_nw_dst=::,ct_tp_src=0,ct_tp_dst=0,ct_nw_proto=17' \
             'ct_nw_src=::,ct_nw_dst=2.2.2.2,ct_tp_src=0,ct_tp_dst=0'",
        ),
        (
            CtMatch {
                orig: CtTupleMatch {
                    src: address("1.1.1.1"),
                    icmp_id: Some(3),
                    icmp_type: Some(8),
                    icmp_code: Some(0),
                    ..tuple(1)
                },
                ..none
            },
            "zone=0 'ct_nw_src=1.1.1.1,ct_nw_dst=::,icmp_id=3,icmp_type=8,icmp_code=0,ct_nw_proto=1' \
             'ct_nw_src=::,ct_nw_dst=::,icmp_id=0,icmp_type=0,icmp_code=0'",
        ),
    ] {
        assert_eq!(format_flush(&which), expected);
    }
}
