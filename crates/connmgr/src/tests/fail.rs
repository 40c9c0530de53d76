//! Fail modes: the rules after controllers connect, disconnect and are lost.

use super::*;
use flow::fields::FieldId;
use ofp_actions::PacketInReason;
use openflow::msg::group::GroupModCommand;
use openflow::msg::meter::{Band, BandType, Meter, MeterMod, MeterModCommand, flags};
use openflow::text::parse_group_mod;

fn config(fail_mode: FailMode, has_controllers: bool) -> RemoteConfig {
    RemoteConfig { fail_mode, has_controllers, max_probe_interval_ms: 5000 }
}

fn configure(s: &mut Switch, c: RemoteConfig) {
    s.with(|m, ctx, now| m.configure(c, ctx, now));
}

fn add_own(s: &mut Switch) {
    let mut c = s.service(Version::V13);
    c.add(s, "table=3,arp,actions=drop");
    let id = c.id;
    s.with(|m, ctx, now| m.close(id, ctx, now));
}

const NORMAL: &str = "table=0 cookie=0x0 priority=0 NORMAL n=0";
const OPEN: &str = "table=0 cookie=0x0 priority=15790320 NORMAL n=0";
const OWN: &str = "table=3 cookie=0x0 arp drop n=0";

#[test]
fn rules_are_flushed_when_the_bridge_gets_another_governor() {
    let mut s = Switch::new();
    configure(&mut s, config(FailMode::Standalone, false));
    assert_eq!(s.rules(), [NORMAL]);
    add_own(&mut s);
    configure(&mut s, config(FailMode::Standalone, false));
    assert_eq!(s.rules(), [NORMAL, OWN], "nothing has changed");
    configure(&mut s, config(FailMode::Secure, false));
    assert_eq!(s.rules(), [""; 0]);
    add_own(&mut s);
    configure(&mut s, config(FailMode::Secure, true));
    assert_eq!(s.rules(), [""; 0]);
    add_own(&mut s);
    configure(&mut s, config(FailMode::Standalone, true));
    configure(&mut s, config(FailMode::Secure, true));
    assert_eq!(s.rules(), [OWN], "with controllers the mode alone flushes nothing");
    configure(&mut s, config(FailMode::Standalone, false));
    assert_eq!(s.rules(), [NORMAL]);
}

#[test]
fn groups_and_meters_are_flushed_with_the_rules() {
    let mut s = Switch::new();
    configure(&mut s, config(FailMode::Secure, false));
    let there = |s: &Switch| {
        let view = s.backer.view();
        let bridge = view.bridge(s.bridge).unwrap();
        let in_datapath = s.datapath.meters.lock().unwrap().len();
        (s.rules().len(), bridge.tables.groups().len(), bridge.meters.len(), in_datapath)
    };
    let add = |s: &mut Switch| {
        let mut c = s.service(Version::V13);
        let group = parse_group_mod("group_id=1,type=all,bucket=2", GroupModCommand::Add, &NoPortNames);
        c.silent(s, &Message::GroupMod(group.unwrap()));
        let bands = vec![Band { ty: BandType::Drop, rate: 100, burst_size: 0 }];
        let meter = Meter { id: 5, flags: flags::PKTPS, bands };
        c.silent(s, &Message::MeterMod(MeterMod { command: MeterModCommand::Add, meter }));
        c.add(s, "actions=meter:5,group:1");
        let id = c.id;
        s.with(|m, ctx, now| m.close(id, ctx, now));
        assert_eq!(there(s), (1, 1, 1, 1));
    };
    add(&mut s);
    configure(&mut s, config(FailMode::Secure, true));
    assert_eq!(there(&s), (0, 0, 0, 0));
    // Numbers are free again.
    add(&mut s);
    configure(&mut s, config(FailMode::Standalone, true));
    assert_eq!(there(&s), (1, 1, 1, 1));
    // At the beginning of fail-open too.
    s.pass(15_000);
    assert!(s.manager.is_fail_open());
    assert_eq!(there(&s), (1, 0, 0, 0));
}

#[test]
fn a_standalone_bridge_that_lost_its_controllers_fails_open() {
    let mut s = Switch::new();
    configure(&mut s, config(FailMode::Standalone, true));
    add_own(&mut s);
    s.pass(14_999);
    assert_eq!(s.rules(), [OWN]);
    assert_eq!(s.manager.next_wakeup_ms(), Some(s.now_ms + 1));
    s.pass(1);
    assert!(s.manager.is_fail_open());
    assert_eq!(s.rules(), [OPEN]);
    // A flow-mod of a controller ends it.
    let mut c = s.controller(Version::V13);
    s.pass(0);
    assert_eq!(s.rules(), [OPEN]);
    c.add(&mut s, "table=3,arp,actions=drop");
    assert_eq!(s.rules(), [OWN]);
    assert_eq!(s.manager.take_fail_events(), [FailEvent::Entered(15), FailEvent::Left]);
    // The time counts from its last message.
    s.pass(4_000);
    let id = c.id;
    s.with(|m, ctx, now| m.close(id, ctx, now));
    s.pass(10_999);
    assert_eq!(s.rules(), [OWN]);
    s.pass(1);
    assert_eq!(s.rules(), [OPEN]);
    s.pass(60_000);
    s.pass(1_000);
    assert_eq!(s.manager.take_fail_events(), [FailEvent::Entered(15), FailEvent::Still(76)]);
    configure(&mut s, config(FailMode::Secure, true));
    assert_eq!(s.rules(), [""; 0]);
    assert!(!s.manager.is_fail_open());
}

/// As OVS 3.1: it asks such a controller by a packet of its own every two seconds.
#[test]
fn a_controller_that_does_not_act_admits_a_bridge_after_30_seconds() {
    let mut s = Switch::new();
    configure(&mut s, config(FailMode::Standalone, true));
    s.pass(15_000);
    let mut c = s.controller(Version::V13);
    s.pass(1_999);
    assert!(c.events(&mut s).is_empty());
    s.pass(1);
    let events = c.events(&mut s);
    let [Message::PacketIn(m)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(
        (m.reason, m.metadata.get(FieldId::InPortOxm).0),
        (PacketInReason::NoMatch, OfPort::LOCAL.0.into())
    );
    assert_eq!(m.cookie, u64::MAX);
    let words = (&m.data[..9], m.data[9] & 0x80, &m.data[12..22], m.data.len());
    let rarp = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];
    assert_eq!(words, (&[255, 255, 255, 255, 255, 255, 0, 0x23, 0x20][..], 0x80, &rarp[..], 42));
    assert_eq!((&m.data[6..12], &m.data[6..12]), (&m.data[22..28], &m.data[32..38]));
    assert_eq!(s.manager.next_wakeup_ms(), Some(s.now_ms + 2_000));
    s.pass(2_000);
    assert_eq!(c.events(&mut s).len(), 1);
    // Replies to probes do not admit it before.
    let echo = encode(&Message::EchoReply(Vec::new()), Version::V13, 1).unwrap();
    s.pass(25_999);
    c.send_bytes(&mut s, &echo);
    s.pass(0);
    assert!(s.manager.is_fail_open());
    s.pass(1);
    c.send_bytes(&mut s, &echo);
    s.pass(0);
    assert!(!s.manager.is_fail_open());
    assert_eq!(s.rules(), [""; 0]);
}

#[test]
fn without_probes_a_bridge_fails_open_after_a_second() {
    let mut s = Switch::new();
    configure(&mut s, RemoteConfig { max_probe_interval_ms: 0, ..config(FailMode::Standalone, true) });
    s.pass(999);
    assert!(!s.manager.is_fail_open());
    s.pass(1);
    assert!(s.manager.is_fail_open());
}

#[test]
fn a_secure_bridge_keeps_its_rules() {
    let mut s = Switch::new();
    configure(&mut s, config(FailMode::Secure, true));
    add_own(&mut s);
    s.pass(1_000_000);
    assert_eq!(s.rules(), [OWN]);
}
