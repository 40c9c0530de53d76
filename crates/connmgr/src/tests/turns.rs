//! Changes of many rules: turns are bounded, other connections get theirs, and every removed rule is reported.

use super::*;
use dpif::Capabilities;
use ofproto::events::REMOVED_QUEUE;
use std::time::{Duration, Instant};

/// Adds rules with different addresses in one input.
fn fill(s: &Switch, numbers: std::ops::Range<u32>, flags: &str) {
    let cx = ModContext {
        version: Version::V13,
        now_ms: 5,
        debug_actions: true,
        has_meter: &|_| false,
        can: Capabilities::ENOUGH,
    };
    let mut fm = flow_mod(TextCommand::Add, &format!("{flags}ip,nw_dst=10.0.0.0,actions=1"));
    let mods: Vec<FlowMod> = numbers
        .map(|n| {
            let address = u128::from(0x0a00_0000 + n);
            fm.matching = fm.matching.unpack().with(flow::fields::FieldId::IpDst, address).into();
            fm.clone()
        })
        .collect();
    apply_all(s, &mods, &cx).unwrap();
}

fn rule_count(s: &Switch) -> usize {
    s.backer.view().bridge(s.bridge).unwrap().tables.rule_count(TableId(0))
}

/// Passes a request and a barrier in, without a turn.
fn begin(s: &mut Switch, c: &Client, text: &str, command: TextCommand) {
    let mut bytes = encode(&Message::FlowMod(flow_mod(command, text)), c.version, 7).unwrap();
    bytes.extend(encode(&Message::BarrierRequest, c.version, 8).unwrap());
    s.manager.input(c.id, &bytes, s.now_ms);
}

/// One turn of the main loop; returns whether more work is ready.
fn turn(s: &mut Switch) -> bool {
    s.with(|m, ctx, now| m.run(ctx, now));
    s.manager.next_wakeup_ms() == Some(0)
}

/// Messages waiting for a connection.
fn read(s: &mut Switch, c: &Client) -> Vec<Message> {
    let bytes = s.manager.take_output(c.id);
    let mut rest = &bytes[..];
    let mut all = Vec::new();
    while !rest.is_empty() {
        let len = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        all.push(openflow::decode(&rest[..len]).unwrap().2);
        rest = &rest[len..];
    }
    all
}

fn removed(messages: &[Message]) -> usize {
    messages.iter().filter(|m| matches!(m, Message::FlowRemoved(_))).count()
}

#[test]
fn a_change_of_many_rules_goes_in_turns_beside_others() {
    const RULES: u32 = 20_000;
    for (command, text, left) in [
        (TextCommand::Delete, "", 0),
        (TextCommand::Delete, "ip", 0),
        (TextCommand::Delete, "ip,nw_dst=10.0.0.0/19", RULES - 8192),
        (TextCommand::Modify, "actions=2", RULES),
    ] {
        let mut s = Switch::new();
        let (deleter, controller, mut other) =
            (s.service(Version::V13), s.controller(Version::V13), s.service(Version::V10));
        fill(&s, 0..RULES, "send_flow_rem,");
        begin(&mut s, &deleter, text, command);
        let (mut told, mut turns, mut more) = (0, 0, true);
        while more {
            assert_eq!(read(&mut s, &deleter), [], "a barrier waits for what came before");
            let before = rule_count(&s);
            more = turn(&mut s);
            turns += 1;
            assert!(before - rule_count(&s) <= WORK_PER_TURN);
            told += removed(&read(&mut s, &controller));
            if turns == 3 {
                // Other connections send requests and changes meanwhile.
                other.add(&mut s, "priority=7,arp,actions=2");
                other.flow(&mut s, TextCommand::DeleteStrict, "priority=7,arp");
            }
        }
        assert_eq!(read(&mut s, &deleter), [Message::BarrierReply]);
        told += removed(&read(&mut s, &controller));
        let changed = if command == TextCommand::Delete { RULES - left } else { RULES };
        assert!(turns >= changed as usize / WORK_PER_TURN, "{turns} turns");
        assert_eq!(rule_count(&s), left as usize, "{text}");
        assert_eq!(told, (RULES - left) as usize, "{text}");
    }
}

#[test]
fn changes_wait_for_a_controller_that_is_behind_and_nothing_is_lost() {
    const RULES: u32 = 100_000;
    let mut s = Switch::new();
    let (deleter, controller, mut other) =
        (s.service(Version::V13), s.controller(Version::V13), s.service(Version::V13));
    fill(&s, 0..RULES, "send_flow_rem,");
    begin(&mut s, &deleter, "", TextCommand::Delete);
    while turn(&mut s) {}
    // All possible work is done: the other rules remain.
    let waiting = s.backer.events.removed_len(s.bridge);
    assert!((REMOVED_QUEUE..REMOVED_QUEUE + WORK_PER_TURN).contains(&waiting), "{waiting}");
    assert!(rule_count(&s) > 0 && s.backer.events.times_full() > 0);
    assert!(s.manager.next_wakeup_ms().is_some_and(|at| at > s.now_ms));
    assert!(s.manager.is_busy(deleter.id) && !s.manager.has_work(deleter.id));
    assert_eq!(other.ask(&mut s, &Message::TlvTableRequest).len(), 1);
    let mut told = 0;
    for _ in 0..1000 {
        told += removed(&read(&mut s, &controller));
        turn(&mut s);
    }
    assert_eq!((rule_count(&s), told), (0, RULES as usize));
    assert_eq!(read(&mut s, &deleter), [Message::BarrierReply]);
    assert_eq!(s.manager.counters().events_dropped, 0);
}

#[test]
fn a_controller_that_takes_nothing_is_not_waited_for() {
    const RULES: u32 = 100_000;
    let mut s = Switch::new();
    let (deleter, reader) = (s.service(Version::V13), s.controller(Version::V13));
    let dead = s.client(ConnKind::Controller, Version::V13);
    fill(&s, 0..RULES, "send_flow_rem,");
    begin(&mut s, &deleter, "", TextCommand::Delete);
    let mut told = 0;
    let mut settle = |s: &mut Switch| {
        while turn(s) {
            told += removed(&read(s, &reader));
        }
        told += removed(&read(s, &reader));
        told
    };
    assert!(settle(&mut s) < RULES as usize);
    s.now_ms += 4_999;
    assert!(settle(&mut s) < RULES as usize);
    s.now_ms += 1;
    assert_eq!(settle(&mut s), RULES as usize);
    assert_eq!((rule_count(&s), read(&mut s, &deleter)), (0, vec![Message::BarrierReply]));
    let had = removed(&read(&mut s, &dead)) as u64;
    let id = dead.id;
    s.with(|m, ctx, now| m.close(id, ctx, now));
    assert_eq!(s.manager.counters().events_dropped + had, u64::from(RULES), "counted, also when it is gone");
}

#[test]
fn a_bundle_is_carried_out_at_once_however_many_rules_end() {
    const RULES: u32 = 80_000;
    let mut s = Switch::new();
    let (c, controller) = (s.service(Version::V13), s.controller(Version::V13));
    fill(&s, 0..RULES, "send_flow_rem,");
    let cx = ModContext {
        version: Version::V13,
        now_ms: 5,
        debug_actions: true,
        has_meter: &|_| false,
        can: Capabilities::ENOUGH,
    };
    let delete = [flow_mod(TextCommand::Delete, "")];
    apply_all(&s, &delete, &cx).unwrap();
    assert_eq!((rule_count(&s), s.backer.events.removed_len(s.bridge)), (0, RULES as usize));
    // The next change waits for space.
    fill(&s, 0..1, "");
    begin(&mut s, &c, "", TextCommand::Delete);
    let mut told = 0;
    while turn(&mut s) {
        told += removed(&read(&mut s, &controller));
    }
    told += removed(&read(&mut s, &controller));
    assert_eq!((told, rule_count(&s)), (RULES as usize, 0));
}

#[test]
fn rules_expire_while_the_event_queue_has_space() {
    const RULES: u32 = 70_000;
    let mut s = Switch::new();
    let controller = s.controller(Version::V13);
    fill(&s, 0..RULES, "send_flow_rem,hard_timeout=1,");
    s.now_ms += 10_000;
    let now_ms = s.now_ms;
    s.backer.expire(now_ms);
    assert!(s.backer.events.removed_len(s.bridge) < REMOVED_QUEUE + 1024 && rule_count(&s) > 0);
    let mut told = 0;
    while turn(&mut s) {
        told += removed(&read(&mut s, &controller));
    }
    s.backer.expire(now_ms);
    while turn(&mut s) {
        told += removed(&read(&mut s, &controller));
    }
    told += removed(&read(&mut s, &controller));
    assert_eq!((told, rule_count(&s)), (RULES as usize, 0));
}

/// A flow-mod has about the same cost for any number of rules: no part of it walks over all of them.
#[test]
#[allow(clippy::disallowed_methods, reason = "compares times of one run, whatever they are")]
fn a_flow_mod_costs_the_same_in_a_large_table() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    let requests: Vec<Vec<u8>> = (0..500)
        .flat_map(|n| {
            let text = format!("priority=9,tcp,tcp_dst={n}");
            [(TextCommand::Add, format!("{text},actions=2")), (TextCommand::DeleteStrict, text)]
        })
        .map(|(command, text)| encode(&Message::FlowMod(flow_mod(command, &text)), Version::V13, 5).unwrap())
        .collect();
    let mut took = |s: &mut Switch| -> Duration {
        let round = |s: &mut Switch, c: &mut Client| {
            let begun = Instant::now();
            requests.iter().for_each(|bytes| c.send_bytes(s, bytes));
            begun.elapsed()
        };
        // The minimum of several runs, as other processes use the processor too.
        (0..5).map(|_| round(s, &mut c)).min().unwrap()
    };
    fill(&s, 0..100, "");
    let small = took(&mut s);
    fill(&s, 100..100_000, "");
    let large = took(&mut s);
    assert!(large < small * 8, "{small:?} among 100 rules, {large:?} among 100,000");
}
