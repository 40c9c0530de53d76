//! Fail modes: the rules after controllers connect, disconnect and are lost.

use super::*;

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
    // A controller ends it after version negotiation.
    let mut c = s.controller(Version::V13);
    s.pass(0);
    assert_eq!(s.rules(), [""; 0]);
    c.add(&mut s, "table=3,arp,actions=drop");
    s.pass(4_000);
    let id = c.id;
    s.with(|m, ctx, now| m.close(id, ctx, now));
    s.pass(14_999);
    assert_eq!(s.rules(), [OWN]);
    s.pass(1);
    assert_eq!(s.rules(), [OPEN]);
    configure(&mut s, config(FailMode::Secure, true));
    assert_eq!(s.rules(), [""; 0]);
    assert!(!s.manager.is_fail_open());
}

#[test]
fn a_secure_bridge_keeps_its_rules() {
    let mut s = Switch::new();
    configure(&mut s, config(FailMode::Secure, true));
    add_own(&mut s);
    s.pass(1_000_000);
    assert_eq!(s.rules(), [OWN]);
}
