//! Replies recorded from Linux 6.1 (`corpus/connection`), compared with the output of `ovs-dpctl -m -s
//! dump-conntrack`.

use super::*;
use dpif::text::{ConnectionFormat, write_connection};

fn line(connection: &Connection) -> String {
    let mut out = String::new();
    let format = ConnectionFormat { verbose: true, statistics: true };
    write_connection(&mut out, connection, format, &|ns| (ns / 1_000_000).to_string());
    out
}

#[test]
fn recorded_answers_are_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/connection");
    let mut seen = 0;
    for expected in include_str!("recorded.txt").lines() {
        let (file, expected) = expected.split_once(' ').unwrap();
        let body = std::fs::read(format!("{folder}/{file}")).unwrap();
        let (connection, name) = parse(&body).unwrap();
        assert_eq!(line(&connection), expected, "{file}");
        // Its identity equals both the kernel's form and ours.
        let written = Name::of_tuple(connection.zone, &connection.orig).unwrap();
        assert_eq!(Name { id: Some(connection.id), ..written }, name, "{file}");
        seen += 1;
    }
    assert_eq!(seen, std::fs::read_dir(folder).unwrap().count());
}

/// A body with these attributes after those of a UDP connection.
fn body(more: impl FnOnce(&mut AttrWriter)) -> Vec<u8> {
    let [src, dst] = [1, 2].map(|n| Ipv4Addr::new(10, 0, 0, n));
    let transport = CtTransport::Ports { src: 1, dst: 2 };
    let udp = CtTuple { addresses: CtAddresses::V4 { src, dst }, proto: 17, transport };
    let mut out = AttrWriter::behind(vec![family::INET, 0, 0, 0]);
    out.nested(attr::TUPLE_ORIG, |out| write_tuple(out, &udp));
    out.nested(attr::TUPLE_REPLY, |out| write_tuple(out, &udp));
    more(&mut out);
    out.finish().unwrap()
}

#[test]
fn what_was_not_recorded_is_read() {
    let plain = parse(&body(|_| ())).unwrap().0;
    assert_eq!((plain.zone, plain.id, plain.protocol, &plain.helper), (0, 0, None, &None));
    let helped = body(|out| {
        out.nested(attr::HELP, |out| out.text(inner::HELPER_NAME, "ftp"));
        out.nested(attr::TUPLE_MASTER, |out| write_tuple(out, &plain.orig));
        out.nested(attr::TIMESTAMP, |out| {
            out.put(inner::START, &5u64.to_be_bytes());
            out.put(inner::STOP, &9u64.to_be_bytes());
        });
    });
    let helped = parse(&helped).unwrap().0;
    assert_eq!((helped.helper.as_deref(), helped.parent), (Some("ftp"), Some(plain.orig)));
    assert_eq!((helped.start_ns, helped.stop_ns), (5, 9));
    for (number, state) in [
        (0, TcpState::Closed),
        (1, TcpState::SynSent),
        (2, TcpState::SynRecv),
        (4, TcpState::FinWait1),
        (6, TcpState::LastAck),
        (7, TcpState::TimeWait),
        (8, TcpState::Closing),
        (9, TcpState::SynSent),
        (200, TcpState::Closed),
    ] {
        let tcp = body(|out| {
            out.nested(attr::PROTOINFO, |out| {
                out.nested(protoinfo::TCP, |out| out.u8(protoinfo::STATE, number));
            });
        });
        let side = TcpSide { state, window_scale: 0, flags: 0 };
        assert_eq!(parse(&tcp).unwrap().0.protocol, Some(CtProtocol::Tcp(side, side)), "{number}");
    }
    // DCCP, without protocol data here.
    let dccp = body(|out| out.nested(attr::PROTOINFO, |out| out.put(2, &[])));
    assert_eq!(parse(&dccp).unwrap().0.protocol, None);
}

#[test]
fn what_is_no_connection_is_refused() {
    assert_eq!(parse(&[2, 0, 0]).unwrap_err(), AttrError::Cut { at_bytes: 3 });
    assert_eq!(parse(&[2, 0, 0, 0]).unwrap_err(), AttrError::Missing(attr::TUPLE_ORIG));
    let refused = |why, more: fn(&mut AttrWriter)| assert_eq!(parse(&body(more)).unwrap_err(), why);
    refused(AttrError::Size { kind: attr::ZONE, has_bytes: 1 }, |out| out.u8(attr::ZONE, 7));
    refused(AttrError::Size { kind: attr::LABELS, has_bytes: 4 }, |out| out.u32(attr::LABELS, 7));
    // The last one of a kind counts.
    refused(AttrError::Missing(tuple::IP), |out| out.put(attr::TUPLE_REPLY, &[]));
    refused(AttrError::Missing(tuple::V6_SRC), |out| {
        out.nested(attr::TUPLE_ORIG, |out| out.nested(tuple::IP, |_| ()));
    });
    refused(AttrError::Missing(tuple::ICMP[0]), |out| {
        out.nested(attr::TUPLE_ORIG, |out| {
            out.nested(tuple::IP, |out| {
                out.put(tuple::V4_SRC, &[1; 4]);
                out.put(tuple::V4_DST, &[2; 4]);
            });
            out.nested(tuple::PROTO, |out| out.u8(tuple::NUMBER, 1));
        });
    });
    refused(AttrError::Missing(protoinfo::STATE), |out| {
        out.nested(attr::PROTOINFO, |out| out.nested(protoinfo::TCP, |_| ()));
    });
}

#[test]
fn a_deletion_is_laid_out_as_stock_tools_do() {
    let [src, dst] = [[10, 0, 0, 9], [10, 0, 0, 2]].map(Ipv4Addr::from);
    let transport = CtTransport::Ports { src: 1, dst: 2 };
    let tcp = CtTuple { addresses: CtAddresses::V4 { src, dst }, proto: 6, transport };
    let mut out = AttrWriter::new();
    Name::of_tuple(7, &tcp).unwrap().write(&mut out);
    // Nested attributes are marked, which kernels do not look at here.
    let expected = b"\x34\x00\x01\x80\x14\x00\x01\x80\x08\x00\x01\x00\x0a\x00\x00\x09\x08\x00\x02\x00\x0a\x00\x00\x02\
        \x1c\x00\x02\x80\x05\x00\x01\x00\x06\x00\x00\x00\x06\x00\x02\x00\x00\x01\x00\x00\x06\x00\x03\x00\x00\x02\x00\x00\
        \x06\x00\x12\x00\x00\x07\x00\x00";
    assert_eq!(out.finish().unwrap(), expected);
}
