//! Groups over OpenFlow: modified, described, counted, deleted with their rules.

use super::*;
use dpif::Capabilities;
use openflow::Multi;
use openflow::msg::group::{GROUP_ALL, GroupModCommand, GroupRequest, GroupType};
use openflow::text::{format_group, parse_group_mod};

fn group_mod(command: GroupModCommand, text: &str) -> Message {
    Message::GroupMod(parse_group_mod(text, command, &NoPortNames).unwrap())
}

fn add_group(text: &str) -> Message {
    group_mod(GroupModCommand::Add, text)
}

fn described(s: &mut Switch, c: &mut Client, group: u32) -> Vec<String> {
    let replies = c.ask(s, &Message::GroupDescRequest(GroupRequest { group }));
    let shown = |m: &Message| match m {
        Message::GroupDescReply(m) => {
            m.entries.iter().map(|g| format_group(g, false, &NoPortNames)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    replies.iter().flat_map(shown).collect()
}

#[test]
fn a_group_is_described_and_counted() {
    for version in [Version::V10, Version::V13] {
        let mut s = Switch::new();
        let mut c = s.service(version);
        c.silent(&mut s, &add_group("group_id=5,type=all,bucket=1,bucket=2"));
        c.silent(&mut s, &add_group("group_id=3,type=select,bucket=weight=7,1"));
        assert_eq!(c.refused(&mut s, &add_group("group_id=5,type=all")), ErrorKind::GmfcGroupExists);
        let three = "group_id=3,type=select,bucket=weight:7,actions=output:1";
        let five = "group_id=5,type=all,bucket=actions=output:1,bucket=actions=output:2";
        assert_eq!(described(&mut s, &mut c, GROUP_ALL), [three, five]);
        s.now_ms += 1500;
        c.add(&mut s, "in_port=1,actions=group:5");
        if version == Version::V13 {
            c.add(&mut s, "in_port=2,actions=write_actions(group:5)");
        }
        let unknown = Message::GroupStatsRequest(GroupRequest { group: 77 });
        assert_eq!(c.one(&mut s, &unknown), Message::GroupStatsReply(Multi::all(vec![])));
        let ask = Message::GroupStatsRequest(GroupRequest { group: 5 });
        let Message::GroupStatsReply(stats) = c.one(&mut s, &ask) else { panic!() };
        let [ref stats] = stats.entries[..] else { panic!("{stats:?}") };
        let expected = (5, if version == Version::V13 { 2 } else { 1 }, vec![(0, 0); 2]);
        assert_eq!((stats.id, stats.ref_count, stats.buckets.clone()), expected);
        if version == Version::V13 {
            assert_eq!((stats.duration_s, stats.duration_ns), (1, 500_000_000));
        }
        let Message::GroupFeaturesReply(features) = c.one(&mut s, &Message::GroupFeaturesRequest) else {
            panic!()
        };
        assert_eq!((features.types, features.capabilities), (0xf, 7));
    }
}

#[test]
fn rules_need_their_groups_and_end_with_them() {
    let mut s = Switch::new();
    let mut watcher = s.controller(Version::V13);
    let mut c = s.service(Version::V13);
    let rule = |text: &str| Message::FlowMod(super::flow_mod(TextCommand::Add, text));
    assert_eq!(c.refused(&mut s, &rule("actions=group:1")), ErrorKind::BacBadOutGroup);
    // In the order of the connection.
    let mut bytes = encode(&add_group("group_id=1,type=all,bucket=1"), Version::V13, 7).unwrap();
    for n in 0..3000 {
        let text = format!("send_flow_rem,priority={n},actions=group:1");
        bytes.extend(encode(&rule(&text), Version::V13, 8).unwrap());
    }
    bytes.extend(encode(&rule("table=1,actions=write_actions(group:1)"), Version::V13, 9).unwrap());
    bytes.extend(encode(&rule("table=2,actions=2"), Version::V13, 10).unwrap());
    c.received.clear();
    c.send_bytes(&mut s, &bytes);
    assert_eq!((c.received.len(), s.rules().len()), (0, 3002));
    let mut fm = super::flow_mod(TextCommand::Delete, "table=1");
    fm.out_group = 2;
    c.silent(&mut s, &Message::FlowMod(fm.clone()));
    assert_eq!(s.rules().len(), 3002, "none of group 2");
    fm.out_group = 1;
    c.silent(&mut s, &Message::FlowMod(fm));
    assert_eq!(s.rules().len(), 3001);
    watcher.events(&mut s);
    watcher.received.clear();
    c.silent(&mut s, &group_mod(GroupModCommand::Delete, "group_id=1"));
    assert_eq!(s.rules().len(), 1, "{:?}", s.rules());
    let events = watcher.events(&mut s);
    let of_group = |m: &&Message| matches!(m, Message::FlowRemoved(m) if m.reason == openflow::msg::flow_mod::FlowRemovedReason::GroupDelete);
    assert_eq!(events.iter().filter(of_group).count(), 3000);
    assert_eq!(c.refused(&mut s, &rule("actions=group:1")), ErrorKind::BacBadOutGroup);
    c.silent(&mut s, &group_mod(GroupModCommand::Delete, "group_id=1"));
}

/// As in OVS, on the wire no list of actions has an output to no port or to an unknown reserved one.
#[test]
fn buckets_output_to_ports() {
    let mut s = Switch::new();
    for version in [Version::V10, Version::V13, Version::V15] {
        let mut c = s.service(version);
        for (port, taken) in [(OfPort::NONE, false), (OfPort(0xffff_fff0), false), (OfPort(77), true)] {
            let mut m =
                parse_group_mod("group_id=9,type=all,bucket=1", GroupModCommand::Add, &NoPortNames).unwrap();
            m.format = if version == Version::V10 { Format::Nxt } else { Format::Standard };
            m.group.buckets[0].actions = vec![ofp_actions::Output { port, max_len_bytes: 0 }.into()];
            let m = Message::GroupMod(m);
            if taken {
                c.silent(&mut s, &m);
                c.silent(&mut s, &group_mod(GroupModCommand::Delete, "group_id=9"));
            } else {
                assert_eq!(c.refused(&mut s, &m), ErrorKind::BacBadOutPort, "{version}: {port:?}");
            }
        }
    }
}

/// The deletion of a group's rules continues after the connection that asked for it.
#[test]
fn a_deletion_that_began_is_completed() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    c.silent(&mut s, &add_group("group_id=1,type=all,bucket=1"));
    for n in 0..5000 {
        let text = format!("table={},in_port={n},actions=group:1", n % 3);
        c.send_bytes(
            &mut s,
            &encode(&Message::FlowMod(super::flow_mod(TextCommand::Add, &text)), Version::V13, 8).unwrap(),
        );
    }
    let bytes = encode(&group_mod(GroupModCommand::Delete, "group_id=1"), Version::V13, 9).unwrap();
    let id = c.id;
    s.with(|m, ctx, now| {
        m.input(id, &bytes, now);
        m.run_within(ctx, now, &mut 10);
    });
    let left = s.rules().len();
    assert!((4000..5000).contains(&left), "{left}");
    s.with(|m, ctx, now| {
        m.close(id, ctx, now);
        while m.next_wakeup_ms() == Some(0) {
            m.run(ctx, now);
        }
    });
    assert_eq!(s.rules(), [""; 0]);
}

#[test]
fn bundles_change_groups_and_rules_together() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    c.silent(&mut s, &add_group("group_id=9,type=all,bucket=1"));
    c.add(&mut s, "table=9,actions=group:9");
    let version_before = s.backer.view();
    let mods = |last: &str| {
        vec![
            group_mod(GroupModCommand::Delete, "group_id=9"),
            add_group("group_id=1,type=all,bucket=1"),
            Message::FlowMod(super::flow_mod(TextCommand::Add, "actions=group:1")),
            Message::FlowMod(super::flow_mod(TextCommand::Add, last)),
        ]
    };
    assert_eq!(commit(&mut s, &mods("table=1,actions=group:2")), Err((3, ErrorKind::BacBadOutGroup)));
    assert_eq!(s.rules().len(), 1, "{:?}", s.rules());
    assert_eq!(described(&mut s, &mut c, GROUP_ALL), ["group_id=9,type=all,bucket=actions=output:1"]);
    c.refused(&mut s, &Message::FlowMod(super::flow_mod(TextCommand::Add, "actions=group:1")));
    assert_eq!(commit(&mut s, &mods("table=1,actions=group:1")), Ok(()));
    assert_eq!(described(&mut s, &mut c, GROUP_ALL), ["group_id=1,type=all,bucket=actions=output:1"]);
    assert_eq!(s.rules().len(), 2, "{:?}", s.rules());
    let old = version_before.bridge(s.bridge).unwrap();
    assert!(old.tables.groups().get(9).is_some() && old.tables.groups().get(1).is_none());
}

fn commit(s: &mut Switch, messages: &[Message]) -> Result<(), (usize, ErrorKind)> {
    let numbered = messages.iter().enumerate().map(|(i, m)| {
        let change = match m {
            Message::FlowMod(fm) => Mod::Flow(fm.clone()),
            Message::GroupMod(gm) => Mod::Group(gm.clone()),
            other => panic!("{other:?}"),
        };
        (change, i.to_string().into_bytes().into())
    });
    let cx = ModContext {
        version: Version::V13,
        now_ms: 5,
        debug_actions: false,
        has_meter: &|_| false,
        can: Capabilities::ENOUGH,
    };
    let mut transaction = Transaction::begin(&s.backer, s.bridge, numbered).unwrap();
    loop {
        match transaction.step(&s.backer, &cx, &mut 1) {
            Progress::More => {}
            Progress::Done => return Ok(()),
            Progress::Failed(kind, number) => {
                return Err((String::from_utf8(number.into()).unwrap().parse().unwrap(), kind));
            }
        }
    }
}

/// 10,000 groups of 100 buckets: each change is small, a reply comes in pieces.
#[test]
fn many_groups_stay_usable() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    let (groups, buckets) = if testkit::long() { (10_000, 100) } else { (2_000, 20) };
    let of = |id: u32| {
        let bucket = |n: u32| format!("bucket=watch_port:{},output:{}", 1 + n % 2, 1 + n % 2);
        format!("group_id={id},type=ff,{}", (0..buckets).map(bucket).collect::<Vec<_>>().join(","))
    };
    for id in 0..groups {
        let bytes = encode(&add_group(&of(id)), Version::V13, id).unwrap();
        c.send_bytes(&mut s, &bytes);
    }
    assert_eq!(c.received, []);
    assert_eq!(described(&mut s, &mut c, GROUP_ALL).len(), groups as usize);
    let view = s.backer.view();
    let group = view.bridge(s.bridge).unwrap().tables.groups().get(7).unwrap().clone();
    assert_eq!((group.ty(), group.buckets.len()), (GroupType::FastFailover, buckets as usize));
    c.silent(&mut s, &group_mod(GroupModCommand::Delete, ""));
    assert_eq!(described(&mut s, &mut c, GROUP_ALL), [""; 0]);
}

/// The connections that ask for them hear of executed group-mods and meter-mods of others, as in OVS 3.1.
#[test]
fn executed_requests_are_forwarded_to_those_who_ask() {
    use openflow::msg::asyncs::AsyncConfig;
    use openflow::msg::meter::{Band, BandType, Meter, MeterMod, MeterModCommand, flags};
    let mut s = Switch::new();
    let versions = [Version::V10, Version::V12, Version::V13, Version::V14, Version::V15];
    let mut others = versions.map(|version| {
        let mut c = s.controller(version);
        let format = if version < Version::V14 { Format::Nxt2 } else { Format::Standard };
        c.silent(
            &mut s,
            &Message::SetAsync(AsyncConfig { format, request_forward: [3, 0], ..AsyncConfig::default() }),
        );
        c
    });
    let mut deaf = s.controller(Version::V14);
    let mut from = s.controller(Version::V15);
    let all = AsyncConfig { request_forward: [3, 3], ..AsyncConfig::default() };
    from.silent(&mut s, &Message::SetAsync(all));
    let mut check = |s: &mut Switch, message: Message, expected: [Option<&str>; 5]| {
        let answers = from.ask(s, &message);
        for (c, expected) in others.iter_mut().zip(expected) {
            let got: Vec<String> = c.events(s).iter().map(|m| forwarded(m, from.xid)).collect();
            assert_eq!(got, expected.into_iter().collect::<Vec<_>>(), "{}: {message:?}", c.version);
        }
        assert_eq!(deaf.events(s), []);
        answers
    };
    use GroupModCommand as C;
    let add = group_mod(C::Add, "group_id=4,type=all,bucket=bucket_id:5,actions=1");
    assert_eq!(check(&mut s, add.clone(), [Some("Add 1"); 5]), []);
    assert_eq!(check(&mut s, add, [None; 5]).len(), 1, "a failed request is not forwarded");
    let insert = group_mod(C::InsertBucket, "group_id=4,command_bucket_id=last,bucket=bucket_id:9,actions=1");
    let (part, whole) = (Some("InsertBucket 1"), Some("Modify 2"));
    assert_eq!(check(&mut s, insert, [part, whole, whole, whole, part]), []);
    let delete = group_mod(C::Delete, "group_id=4");
    assert_eq!(check(&mut s, delete, [Some("Delete 0"); 5]), []);
    let band = Band { ty: BandType::Drop, rate: 100, burst_size: 0 };
    let meter = Meter { id: 1, flags: flags::KBPS, bands: vec![band] };
    let meter_mod = Message::MeterMod(MeterMod { command: MeterModCommand::Add, meter });
    let told = Some("meter Add 1");
    assert_eq!(check(&mut s, meter_mod, [None, None, told, told, told]), []);
}

/// A forwarded request of this transaction: its command, and the number of buckets or the meter.
fn forwarded(m: &Message, of_xid: u32) -> String {
    let Message::RequestForward(m) = m else { panic!("{m:?}") };
    assert_eq!(m.xid, of_xid);
    match &*m.message {
        Message::GroupMod(m) => format!("{:?} {}", m.command, m.group.buckets.len()),
        Message::MeterMod(m) => format!("meter {:?} {}", m.command, m.meter.id),
        other => panic!("{other:?}"),
    }
}
