use super::*;
use crate::backer::Backer;
use crate::flow_mod::{ModContext, ModQueue, remove_users_of_meter};
use crate::rule::Rule;
use crate::upcall::handle;
use crate::upcall::tests::{add_by_flow_mod as add, backer_with, miss_of};
use dpif::PmdId;
use flow::Ufid;
use flow::text::NoPortNames;
use ofp_actions::text::{FlowModCommand, parse_flow_mod};
use openflow::Version;
use openflow::msg::group::GroupModCommand;
use openflow::text::parse_group_mod;

const CORE: PmdId = PmdId::Core(0);

/// Whether the changes since its translation affect the only flow.
fn is_affected(backer: &Backer) -> bool {
    let test = |k: &mut crate::ukey::Ukey| backer.latest_changes().affect(k.epoch, &k.lookups, &k.flow);
    backer.ukeys.with(Ufid(1), CORE, test).expect("installed")
}

/// A frame from ...:01 to ...:02 follows this pipeline.
const PIPELINE: &str = "priority=5,dl_dst=02:00:00:00:00:02 actions=resubmit(,3)
    table=3,priority=1 actions=load:7->NXM_NX_REG0[],mod_vlan_vid:9,resubmit(,4)
    table=4,priority=1,reg0=7 actions=resubmit(2,5)
    table=5,priority=1 actions=meter:3,group:6,2";

fn installed() -> (Backer, BridgeId) {
    let (backer, bridge) = backer_with(PIPELINE);
    backer.set_meter(bridge, 3, Some(0));
    change_group(&backer, bridge, GroupModCommand::Add, "group_id=6,type=all,bucket=1");
    assert!(!handle(&backer, vec![miss_of(0x88cc, 1)], 5).is_empty());
    assert!(!is_affected(&backer));
    (backer, bridge)
}

fn change_group(backer: &Backer, bridge: BridgeId, command: GroupModCommand, group: &str) {
    let group_mod = parse_group_mod(group, command, &NoPortNames).expect(group);
    let mut queue = ModQueue::default();
    queue.push(crate::flow_mod::Mod::Group(group_mod), &[]);
    let cx = ModContext {
        version: Version::V13,
        now_ms: 5,
        debug_actions: false,
        has_meter: &|_| true,
        can: dpif::Capabilities::ENOUGH,
    };
    let step = queue.step(backer, bridge, &cx, &mut 10);
    assert!(step.failed.is_empty(), "{step:?}");
}

#[test]
fn rules_affect_flows_that_their_match_may_cover_at_a_lookup() {
    for (line, expected) in [
        // Tables that it does not visit.
        ("table=9 actions=drop", false),
        ("table=2,priority=9,in_port=1 actions=drop", false),
        // Examined bits, as received.
        ("priority=9,dl_dst=02:00:00:00:00:09 actions=drop", false),
        ("priority=9,dl_dst=02:00:00:00:00:02 actions=drop", true),
        ("priority=9,dl_dst=02:00:00:00:00:00/ff:ff:ff:ff:ff:00 actions=drop", true),
        ("table=3,priority=9,dl_dst=02:00:00:00:00:09 actions=drop", false),
        ("table=3,priority=9,dl_dst=02:00:00:00:00:09,reg0=5 actions=drop", false),
        ("priority=9,ip actions=drop", false),
        ("priority=9,dl_type=0x88cc actions=drop", true),
        // Bits that no lookup examined: another packet of the flow may have them.
        ("priority=9,dl_src=02:00:00:00:00:09 actions=drop", true),
        // A lower priority still counts: the test ignores priorities.
        ("priority=1,dl_dst=02:00:00:00:00:02 actions=drop", true),
        // Changed fields, and those that keys lack.
        ("table=4,priority=9,dl_vlan=5 actions=drop", true),
        ("table=4,priority=9,reg0=8 actions=drop", true),
        // The input port of a `resubmit` is another one for one lookup; fields changed once count as changed for all.
        ("table=5,priority=9,in_port=2 actions=drop", true),
        ("priority=9,in_port=2 actions=drop", true),
        ("table=5,priority=9,in_port=7 actions=drop", true),
    ] {
        let (backer, bridge) = installed();
        add(&backer, bridge, line);
        assert_eq!(is_affected(&backer), expected, "{line}");
        // A removed rule counts alike.
        let (backer, bridge) = installed();
        let m = parse_flow_mod(line, FlowModCommand::Add, &NoPortNames).expect(line);
        add(&backer, bridge, line);
        backer.ukeys.with(Ufid(1), CORE, |k| k.epoch = backer.epoch());
        let table = m.table.unwrap_or(TableId(0));
        let removed = backer
            .change_tables(bridge, |tables| tables.remove(table, &m.rule_match.into(), m.priority.into()));
        assert!(removed.flatten().is_some(), "{line}");
        assert_eq!(is_affected(&backer), expected, "removal of {line}");
    }
}

#[test]
fn other_bridges_groups_meters_and_whole_tables_count_by_number() {
    type Act = fn(&Backer, BridgeId);
    let cases: [(&str, Act, bool); 9] = [
        ("the meter", |b, bridge| b.set_meter(bridge, 3, None), true),
        ("another meter", |b, bridge| b.set_meter(bridge, 4, Some(1)), false),
        (
            "the group",
            |b, bridge| change_group(b, bridge, GroupModCommand::Modify, "group_id=6,type=all,bucket=2"),
            true,
        ),
        (
            "another group",
            |b, bridge| change_group(b, bridge, GroupModCommand::Add, "group_id=7,type=all"),
            false,
        ),
        ("all groups", |b, bridge| change_group(b, bridge, GroupModCommand::Delete, "group_id=all"), true),
        (
            "the same table",
            |b, bridge| assert!(b.change_tables(bridge, |t| t.clear(TableId(4))).is_some()),
            true,
        ),
        (
            "another table",
            |b, bridge| {
                add(b, bridge, "table=8 actions=drop");
                assert!(b.change_tables(bridge, |t| t.clear(TableId(8))).is_some());
            },
            false,
        ),
        (
            "users of a meter without users",
            |b, bridge| {
                remove_users_of_meter(b, bridge, 9, 10);
            },
            false,
        ),
        (
            "ports",
            |b, bridge| {
                b.change_bridge(bridge, |_| ());
            },
            true,
        ),
    ];
    for (what, act, expected) in cases {
        let (backer, bridge) = installed();
        act(&backer, bridge);
        assert_eq!(is_affected(&backer), expected, "{what}");
    }
    let (backer, _) = installed();
    let other = backer.add_bridge("b");
    backer.ukeys.with(Ufid(1), CORE, |k| k.epoch = backer.epoch());
    add(&backer, other, "actions=drop");
    assert!(!is_affected(&backer));
}

#[test]
fn the_log_is_bounded_and_what_it_lost_affects_all() {
    let (backer, bridge) = installed();
    let add_one = |n: usize| add(&backer, bridge, &format!("table=9,reg1={n} actions=drop"));
    (0..CHANGES_MAX).for_each(add_one);
    assert!(!is_affected(&backer));
    add_one(CHANGES_MAX);
    assert!(is_affected(&backer));
    // Flows since then are tested again.
    backer.ukeys.with(Ufid(1), CORE, |k| k.epoch += 1);
    assert!(!is_affected(&backer));
    // One transaction with too many changes.
    let many = |tables: &mut crate::tables::Tables| {
        for n in 0..=CHANGES_MAX {
            let line = format!("table=10,reg1={n} actions=drop");
            let m = parse_flow_mod(&line, FlowModCommand::Add, &NoPortNames).expect("valid");
            let like = tables.iter().next().expect("rules").clone();
            let rule = Rule { table: TableId(10), matching: m.rule_match.into(), ..Rule::clone(&like) };
            tables.insert(Arc::new(rule));
        }
    };
    backer.ukeys.with(Ufid(1), CORE, |k| k.epoch = backer.epoch());
    backer.change_tables(bridge, many);
    assert!(is_affected(&backer));
}

#[test]
fn a_change_that_no_packet_sees_starts_no_epoch() {
    let (backer, bridge) = installed();
    let epoch = backer.epoch();
    let recookie = |tables: &mut crate::tables::Tables| {
        let like = tables.iter().next().expect("rules").clone();
        tables.insert(Arc::new(Rule { cookie: 9, ..Rule::clone(&like) }));
    };
    backer.change_tables(bridge, recookie);
    assert_eq!(backer.epoch(), epoch);
}
