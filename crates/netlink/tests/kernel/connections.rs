//! The kernel's connection table, filled with test entries.

use crate::{in_namespace, skip};
use dpif::{
    Connection, ConnectionSink, CtAddresses, CtCounters, CtMatch, CtTransport, CtTuple, CtTupleMatch,
    TimeoutAttr, TimeoutId, TimeoutPolicy,
};
use netlink::socket::{Asked, MessageWriter, NlRequest, Protocol, Socket, flag};
use netlink::{Conntrack, Error};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::ops::ControlFlow;

/// Connections of the large zone: many datagrams, within the limit of a small machine.
const MANY: u16 = 5_000;

/// Creates a UDP connection (`IPCTNL_MSG_CT_NEW`) from port `n` of zone `zone`.
fn make(zone: u16, n: u16) -> NlRequest {
    let asked = Asked::once("make a connection", &[]);
    let mut request = MessageWriter::netfilter([1, 0], flag::CREATE, 2, asked);
    for (kind, [src, dst], [src_port, dst_port]) in [(1, [1, 2], [n, 53]), (2, [2, 1], [53, n])] {
        request.attrs.nested(kind, |tuple| {
            tuple.nested(1, |ip| {
                ip.put(1, &[10, 0, 0, src]);
                ip.put(2, &[10, 0, 0, dst]);
            });
            tuple.nested(2, |transport| {
                transport.u8(1, 17);
                transport.be16(2, src_port);
                transport.be16(3, dst_port);
            });
        });
    }
    // CTA_TIMEOUT, CTA_MARK, CTA_ZONE.
    request.attrs.be32(7, 3000);
    request.attrs.be32(8, 9);
    request.attrs.be16(18, zone);
    request.finish().unwrap()
}

fn tuple(src: u8, dst: u8, ports: [u16; 2]) -> CtTuple {
    let [src, dst] = [src, dst].map(|n| Ipv4Addr::new(10, 0, 0, n));
    let transport = CtTransport::Ports { src: ports[0], dst: ports[1] };
    CtTuple { addresses: CtAddresses::V4 { src, dst }, proto: 17, transport }
}

/// Source ports of the listed connections, up to the requested number.
struct Ports {
    seen: BTreeSet<u16>,
    enough: usize,
    last: Option<Connection>,
}

impl ConnectionSink for Ports {
    fn restart(&mut self) {
        self.seen.clear();
    }

    fn connection(&mut self, connection: &Connection) -> ControlFlow<()> {
        if let CtTransport::Ports { src, .. } = connection.orig.transport {
            self.seen.insert(src);
        }
        self.last = Some(connection.clone());
        if self.seen.len() >= self.enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn list(conntrack: &Conntrack, zone: Option<u16>, enough: usize) -> Ports {
    let mut ports = Ports { seen: BTreeSet::new(), enough, last: None };
    conntrack.list(zone, &mut ports).unwrap();
    ports
}

#[test]
fn connections_are_listed_and_deleted_one_by_one_by_zone_and_together() {
    in_namespace(|_, _| {
        let conntrack = Conntrack::here();
        let mut socket = Socket::open_for(Protocol::Netfilter).unwrap();
        let made: Vec<_> = (1..=MANY).map(|n| make(5, n)).chain((1..=3).map(|n| make(6, n))).collect();
        if let Some(e) = socket.transact(&made, &mut |_, _| ()).into_iter().find_map(Result::err) {
            // The kernel's error for a missing subsystem.
            assert_eq!(e.errno(), Some(libc::EINVAL), "{e}");
            return skip("connections", &e.to_string());
        }
        let count = |zone| list(&conntrack, zone, usize::MAX).seen.len();
        assert_eq!(
            [count(None), count(Some(5)), count(Some(6)), count(Some(7))],
            [MANY.into(), MANY.into(), 3, 0]
        );
        assert_eq!(list(&conntrack, None, 10).seen.len(), 10);
        let one = list(&conntrack, Some(6), usize::MAX).last.unwrap();
        let CtTransport::Ports { src, .. } = one.orig.transport else { panic!("{one:?}") };
        assert_eq!(
            (one.orig, one.reply, one.zone, one.mark),
            (tuple(1, 2, [src, 53]), tuple(2, 1, [53, src]), 6, 9)
        );
        assert!((2000..=3000).contains(&one.timeout_s) && one.id != 0 && one.status & 8 != 0, "{one:?}");
        assert_eq!((one.counters, one.labels, one.helper), ([CtCounters::default(); 2], 0, None));
        // By its name, once; by a field; by zone; all.
        conntrack.delete(6, &tuple(1, 2, [2, 53])).unwrap();
        assert!(conntrack.delete(6, &tuple(1, 2, [2, 53])).unwrap_err().is_not_found());
        assert_eq!([count(Some(5)), count(Some(6))], [MANY.into(), 2]);
        let reply = CtTupleMatch { dst_port: Some(3), ..CtTupleMatch::default() };
        conntrack.delete_matching(&CtMatch { reply, ..CtMatch::default() }).unwrap();
        assert_eq!([count(Some(5)), count(Some(6))], [usize::from(MANY) - 1, 1]);
        conntrack.delete_matching(&CtMatch { zone: Some(5), ..CtMatch::default() }).unwrap();
        assert_eq!([count(Some(5)), count(Some(6))], [0, 1]);
        conntrack.delete_all().unwrap();
        assert_eq!(count(None), 0);
    });
}

#[test]
fn timeout_policies_are_set_replaced_listed_and_deleted() {
    in_namespace(|_, _| {
        let conntrack = Conntrack::here();
        let id = |n: u32| TimeoutId(n.try_into().unwrap());
        let policy =
            |timeouts: &[(TimeoutAttr, u32)]| -> TimeoutPolicy { timeouts.iter().copied().collect() };
        let own = [
            (TimeoutAttr::TcpEstablished, 600),
            (TimeoutAttr::TcpUnack, 7),
            (TimeoutAttr::UdpSingle, 50),
            (TimeoutAttr::UdpMultiple, 60),
            (TimeoutAttr::IcmpFirst, 70),
        ];
        match conntrack.set_timeout_policy(id(7), &policy(&own)) {
            Err(e @ Error::NoTimeouts) => return skip("timeout policies", &e.to_string()),
            done => done.unwrap(),
        }
        conntrack.set_timeout_policy(id(u32::MAX), &TimeoutPolicy::default()).unwrap();
        let all = conntrack.timeout_policies().unwrap();
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), [id(7), id(u32::MAX)]);
        let set = |policy: &TimeoutPolicy| own.map(|(attr, _)| (attr, policy.get(attr).unwrap()));
        assert_eq!(set(&all[&id(7)]), own);
        // The others are defaults, and there are 14 of the kernel's.
        assert_eq!(all[&id(7)].iter().count(), TimeoutAttr::ALL.len() - Conntrack::MISSING_TIMEOUTS.len());
        assert_eq!(all[&id(u32::MAX)].get(TimeoutAttr::TcpEstablished), Some(432_000));
        // Replaced, an unset timeout is the default again.
        conntrack.set_timeout_policy(id(7), &policy(&[(TimeoutAttr::UdpSingle, 51)])).unwrap();
        let again = conntrack.timeout_policies().unwrap()[&id(7)];
        assert_eq!(again.get(TimeoutAttr::UdpSingle), Some(51));
        assert_eq!(again.get(TimeoutAttr::TcpEstablished), Some(432_000));
        conntrack.delete_timeout_policy(id(7)).unwrap();
        assert!(conntrack.delete_timeout_policy(id(7)).unwrap_err().is_not_found());
        conntrack.delete_timeout_policy(id(u32::MAX)).unwrap();
        assert!(conntrack.timeout_policies().unwrap().is_empty());
    });
}
