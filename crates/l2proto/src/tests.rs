//! The registry, with a protocol of a third party.

mod stranger;

use super::bfd;
use super::protocol::{
    ColumnKind, Columns, Environment, LearnedChange, LinkPort, LinkState, LinkValue, Received, RxUse,
    SessionId, Table,
};
use flow::{Flow, FlowKey, MacAddr, Mask, OfPort};
use std::collections::{BTreeMap, BTreeSet};

/// The list of `lib.rs` with one more row.
#[allow(unreachable_pub, dead_code, reason = "the macro makes the public items of a crate")]
mod extended {
    crate::registry::link_protocols! {
        /// Bidirectional forwarding detection.
        Bfd, bfd: super::bfd::Sessions;
        /// The stranger.
        Stranger, stranger: super::stranger::Strangers;
    }
}

use extended::{Engines, LinkClaim, LinkSettings, Protocol};

/// Rows with some columns.
struct Rows(BTreeMap<(Table, &'static str), LinkValue>);

impl Columns for Rows {
    fn column(&self, table: Table, name: &str) -> Option<LinkValue> {
        self.0.iter().find(|((t, n), _)| (*t, *n) == (table, name)).map(|(_, value)| value.clone())
    }

    fn is_local(&self) -> bool {
        false
    }

    fn members(&self) -> usize {
        1
    }
}

fn port(name: &str) -> LinkPort {
    LinkPort {
        interface: name.to_string(),
        port: name.to_string(),
        bridge: "br0".to_string(),
        of_port: OfPort(1),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        bridge_mac: MacAddr([2, 0, 0, 0, 0, 0xff]),
        is_up: true,
        speed_mbps: 10_000,
        is_full_duplex: true,
    }
}

fn map(pairs: &[(&str, &str)]) -> LinkValue {
    LinkValue::Map(pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect())
}

/// Without traffic; the smallest random numbers.
struct Quiet;

impl Environment for Quiet {
    fn rx_packets(&mut self, _: SessionId) -> u64 {
        0
    }

    fn random(&mut self, _: u32) -> u32 {
        0
    }
}

#[test]
fn rows_are_distinct() {
    let all = super::Protocol::ALL;
    let names: BTreeSet<&str> = all.iter().map(|p| p.name()).collect();
    let bits = all.iter().fold(0, |bits, p| bits | p.ovs_slow_path());
    assert_eq!((names.len(), bits.count_ones() as usize), (all.len(), all.len()));
    let commands: Vec<&str> = all.iter().flat_map(|p| p.commands().map(|(_, row)| row.name)).collect();
    assert_eq!(commands.iter().collect::<BTreeSet<_>>().len(), commands.len());
    // A map may have keys of several protocols.
    let columns = || all.iter().flat_map(|p| p.status_columns()).filter(|c| c.kind != ColumnKind::Map);
    let columns: Vec<(Table, &str)> = columns().map(|c| (c.table, c.name)).collect();
    assert_eq!(columns.iter().collect::<BTreeSet<_>>().len(), columns.len());
    for (_, row) in all.iter().flat_map(|p| p.commands()) {
        assert!(row.min_args <= row.max_args && !row.help.is_empty() && !row.help.contains('\n'), "{row:?}");
    }
}

/// Each protocol finds its own columns, claims its own packets, and has its own engine.
#[test]
fn a_protocol_of_a_third_party_needs_a_row_only() {
    assert_eq!(Protocol::ALL, [Protocol::Bfd, Protocol::Stranger]);
    let commands: Vec<&str> = Protocol::Stranger.commands().map(|(_, row)| row.name).collect();
    assert_eq!(commands, ["stranger/show"]);
    let rows = Rows(BTreeMap::from([
        ((Table::Interface, "bfd"), map(&[("enable", "true"), ("mult", "x")])),
        ((Table::Port, "stranger"), LinkValue::Text("blocked".to_string())),
        ((Table::Bridge, "stranger"), LinkValue::Flag(true)),
        ((Table::Interface, "stranger"), LinkValue::Integer(7)),
    ]));
    let (sessions, ignored) = LinkSettings::parse(&rows);
    assert_eq!(sessions.iter().map(LinkSettings::protocol).collect::<Vec<_>>(), Protocol::ALL);
    assert_eq!(ignored.iter().map(|i| i.place.as_str()).collect::<Vec<_>>(), ["bfd:mult"]);
    assert_eq!(sessions[1].rx_use(), RxUse { by_flows: false, by_device: false });
    assert!(LinkSettings::parse(&Rows(BTreeMap::new())).0.is_empty());

    let flow = Flow { dl_type: stranger::ETH_TYPE, ..Flow::default() };
    let claims: Vec<LinkClaim> = sessions.iter().map(LinkSettings::claim).collect();
    let mut mask = Mask::none();
    let claimed = claims.iter().filter(|claim| claim.claims(&flow, &mut mask));
    assert_eq!(claimed.map(LinkClaim::protocol).collect::<Vec<_>>(), [Protocol::Stranger]);
    assert_eq!(mask.0.dl_type, u16::MAX);

    let (mut engines, mut sent) = (Engines::default(), Vec::new());
    assert_eq!(engines.next_wakeup(), None);
    for settings in &sessions {
        engines.configure(&port("p1"), settings, 1000, &mut Quiet);
    }
    assert_eq!(engines.next_wakeup(), Some(0));
    let engine = engines.get(Protocol::Stranger);
    let id = engine.find("p1").expect("it was made above");
    assert_eq!(
        engine.link_state(id, 1000),
        LinkState { may_forward: false, may_learn: false, ..LinkState::UP }
    );
    assert!(!engine.tick(1000, 8, &mut Quiet, &mut sent));
    assert_eq!(sent.iter().map(|(id, t)| (*id, t.frame.len())).collect::<Vec<_>>(), [(id, 60)]);
    let received = Received { ttl: 0, payload: Some(b"open") };
    assert_eq!(engine.input(id, received, 1000, &mut Quiet), Ok(()));
    assert_eq!(engine.link_state(id, 1000), LinkState::UP);
    let report = engine.take_report().expect("it changed");
    assert_eq!((report.status_changed, report.learned), (true, vec![LearnedChange::FlushPort]));
    assert!(engine.take_report().is_none());
    assert_eq!(
        engine.status(id, 1000)[&(Table::Port, "stranger_status")],
        LinkValue::Text("open".to_string())
    );
    let shown = engines.run(Protocol::Stranger, 0, &[], 1000);
    assert_eq!(shown, Ok("p1: open\n".to_string()));
    assert!(engines.run(Protocol::Stranger, 1, &[], 1000).is_err());
    assert!(engines.run(Protocol::Bfd, 1, &["p1".to_string()], 1000).is_ok());
    engines.get(Protocol::Stranger).remove(id);
    assert_eq!(engines.get(Protocol::Stranger).find("p1"), None);
    assert!(engines.get(Protocol::Bfd).find("p1").is_some());
}

#[test]
fn control_packets_have_a_class() {
    let mut key = FlowKey::default();
    assert!(!super::is_control_packet(&key));
    key.base.dl_type = packet::headers::ETH_TYPE_IP;
    key.base.nw_proto = packet::headers::IPPROTO_UDP;
    key.base.tp_dst = bfd::UDP_PORT;
    assert!(super::is_control_packet(&key));
}

#[test]
fn states_restrict_together() {
    let blocked = LinkState { may_forward: false, ..LinkState::UP };
    let dead = LinkState { is_live: false, ..LinkState::UP };
    assert_eq!(blocked.and(dead), LinkState { may_forward: false, is_live: false, ..LinkState::UP });
    assert_eq!(LinkState::UP.and(dead), dead);
}
