//! Peers that read no more: changes are executed, nothing is made for them.

use super::*;
use openflow::msg::control::SwitchConfig;

fn dump() -> Message {
    Message::FlowStatsRequest(all_flows(Format::Standard))
}

/// A rule at this priority.
fn rule(priority: u16) -> Message {
    Message::FlowMod(flow_mod(TextCommand::Add, &format!("priority={priority},actions=drop")))
}

#[test]
fn changes_of_a_peer_that_is_gone_are_executed_and_nothing_is_answered() {
    let mut s = Switch::new();
    let (mut c, mut other) = (s.service(Version::V13), s.service(Version::V13));
    (0..3000).for_each(|n| other.add(&mut s, &format!("ip,nw_dst=10.0.{}.{},actions=1", n >> 8, n & 255)));
    c.silent(&mut s, &Message::SetConfig(SwitchConfig { flags: 0, miss_send_len_bytes: 99 }));
    // Dumps, with changes and a barrier between them.
    let mut bytes = encode(&dump(), Version::V13, 1).unwrap().repeat(100);
    bytes.extend(encode(&rule(7), Version::V13, 2).unwrap());
    bytes.extend(encode(&Message::BarrierRequest, Version::V13, 3).unwrap());
    bytes.extend(encode(&dump(), Version::V13, 4).unwrap().repeat(100));
    bytes.extend(encode(&rule(8), Version::V13, 5).unwrap());
    let id = c.id;
    s.with(|m, ctx, now| {
        m.input(id, &bytes, now);
        m.run(ctx, now);
    });
    // Much is unread: further requests wait, those in the socket too.
    assert!(!s.manager.output(id).is_empty() && !s.manager.wants_input(id));
    s.manager.mute(id);
    assert!(s.manager.is_busy(id) && s.manager.wants_input(id));
    let mut turns = 0;
    while s.manager.is_busy(id) {
        s.with(|m, ctx, now| m.run(ctx, now));
        turns += 1;
    }
    assert!(turns < 5, "{turns}");
    for priority in [7, 8] {
        let answers = other.ask(&mut s, &dump());
        let has = |m: &Message| matches!(m, Message::FlowStatsReply(m) if m.entries.iter().any(|e| e.priority == priority));
        assert!(answers.iter().any(has), "priority {priority}");
    }
    // No event is made for it either.
    let p = port(OfPort(3), Some(3), "p3");
    let now = s.now_ms;
    s.manager.port_changed(None, Some(&p), now);
    s.run();
    let held = s.manager.held(id).unwrap();
    assert_eq!((s.manager.output(id).len(), held.output_bytes, held.input_bytes), (0, 0, 0));
}
