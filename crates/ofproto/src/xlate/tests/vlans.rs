//! Ports, VLANs and priority tags. Expectations are those of `ofproto/trace` of OVS 3.5 with the same ports.

use super::stories::story;
use super::*;

/// Protected ports 1 and 2, others not.
fn protected() -> Rig {
    Rig::with(&[(1, Vlan::Protected), (2, Vlan::Protected)])
}

#[test]
fn nothing_goes_from_a_protected_port_to_another() {
    for (actions, from_1, from_3) in [
        ("output:2", "drop", "2"),
        ("output:2,output:3", "3", "2"),
        ("flood", "3,4", "1,2,4"),
        ("all", "3,4", "1,2,4"),
        ("normal", "3,4", "1,2,4"),
        ("in_port", "drop", "3"),
        ("group:1", "3", "2"),
        ("group:2", "drop", "2"),
        ("bundle(eth_src,50,active_backup,ofport,members:2,3)", "drop", "2"),
        ("load:2->NXM_NX_REG0[],output:NXM_NX_REG0[]", "drop", "2"),
        ("enqueue:2:1", "drop", "skb_priority(0x10002),2"),
        ("output(port=2,max_len=20)", "drop", "trunc(20),2"),
        ("write_actions(output:2)", "drop", "2"),
        ("clone(output:2),output:4", "4", "2,4"),
        ("output:9", "11", "11"),
    ] {
        let groups = [
            "group_id=1,type=all,bucket=output:2,bucket=output:3",
            "group_id=2,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3",
        ];
        let rig = protected().groups(&groups);
        let (a, b) = (rig.a, rig.b);
        let rig = rig.rules(a, &format!("actions={actions}"));
        let rig =
            if actions == "output:9" { rig.rules(b, "actions=1") } else { rig.rules(b, "actions=drop") };
        let t = rig.translate(&Rig::flow(TCP), true);
        assert_eq!(show(&t.actions), from_1, "{actions} from port 1");
        if !actions.starts_with("enqueue") {
            let t = rig.translate(&Rig::flow(&TCP.replace("in_port=1", "in_port=3")), true);
            assert_eq!(show(&t.actions), from_3, "{actions} from port 3");
        }
    }
}

#[test]
fn controllers_and_learned_addresses_at_protected_ports() {
    let rig = protected();
    let a = rig.a;
    let rig = rig.rules(a, "in_port=controller,actions=output:2\n in_port=1,actions=normal");
    rig.acts(&TCP.replace("in_port=1", "in_port=controller"), "2");
    rig.learn(0, "02:00:00:00:00:02", 2);
    rig.acts(TCP, "drop");
    let lines = story(&rig, TCP, false);
    assert_eq!(
        lines[2..],
        ["     -> forwarding to learned port", "     >> Flow is between protected ports, skipping output."]
    );
}

/// An address may be learned late, by counters of a flow of former settings.
#[test]
fn a_learned_port_outside_of_the_vlan_gets_nothing() {
    let to = "arp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02";
    let flood = "push_vlan(0x8100,vid=20,pcp=0),3,4";
    for (of_1, expected) in [
        (Vlan::Access(20), "1"),
        (Vlan::Access(30), flood),
        (Vlan::TrunkOf(30), flood),
        (Vlan::NativeUntagged(30), "push_vlan(0x8100,vid=20,pcp=0),1"),
    ] {
        let rig = Rig::with(&[(1, of_1), (2, Vlan::Access(20))]);
        let (a, b) = (rig.a, rig.b);
        let rig = rig.rules(a, "actions=normal").rules(b, "actions=drop");
        rig.learn(20, "02:00:00:00:00:02", 1);
        rig.acts(&format!("in_port=2,{to}"), expected);
    }
}

/// Bridge `a` with these settings of ports 2 and 3.
fn rig_of(of_2: impl FnOnce(&mut Bundle), of_3: impl FnOnce(&mut Bundle)) -> Rig {
    let rig = Rig::new();
    let (a, b) = (rig.a, rig.b);
    rig.backer.change_bridge(a, |bridge| {
        let ports = Arc::make_mut(&mut bridge.ports);
        of_2(Arc::make_mut(ports.bundles.get_mut(&BundleId(2)).expect("port 2")));
        of_3(Arc::make_mut(ports.bundles.get_mut(&BundleId(3)).expect("port 3")));
    });
    rig.rules(a, "actions=normal").rules(b, "actions=drop")
}

/// A packet received on port 2.
fn from_2(tag: &str) -> String {
    let packet = "in_port=2,arp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02";
    let tag = match tag {
        "" => String::new(),
        tag => {
            let (vid, pcp) = tag.split_once('/').expect("VLAN and priority");
            format!(",dl_vlan={vid},dl_vlan_pcp={pcp}")
        }
    };
    format!("{packet}{tag}")
}

#[test]
fn priority_tags_by_mode() {
    use PriorityTags::{Always, IfNonzero, Never};
    use VlanMode::{Access, NativeTagged, NativeUntagged, Trunk};
    let zero = "push_vlan(0x8100,vid=0,pcp=0)";
    let untagged = "1,pop_vlan,3,push_vlan(0x8100,vid=5,pcp=0),4";
    let no_priority = "1,pop_vlan,3,push_vlan(0x8100,vid=5,pcp=3),4";
    let priority = "1,pop_vlan,push_vlan(0x8100,vid=0,pcp=3),3,pop_vlan,push_vlan(0x8100,vid=5,pcp=3),4";
    for (mode, tag, tags, packet, expected) in [
        (Trunk, 0, Never, "0/0", "pop_vlan,1,3,4"),
        (Trunk, 0, Never, "0/3", "1,3,4"),
        (Access, 5, Never, "5/3", no_priority),
        (Access, 5, Never, "5/0", untagged),
        (NativeTagged, 5, Never, "5/0", "1,3,4"),
        (Trunk, 0, IfNonzero, "0/0", "pop_vlan,1,3,4"),
        (Trunk, 0, IfNonzero, "0/3", "1,3,4"),
        (Access, 5, IfNonzero, "5/3", priority),
        (Access, 5, IfNonzero, "5/0", untagged),
        (NativeUntagged, 5, IfNonzero, "5/3", priority),
        (Trunk, 0, Always, "", "1,3,4"),
        (Trunk, 0, Always, "0/0", &format!("pop_vlan,1,{zero},3,pop_vlan,4")),
        (Trunk, 0, Always, "0/3", "1,3,4"),
        (Trunk, 0, Always, "5/0", "1,3,4"),
        (Access, 5, Always, "5/3", priority),
        (Access, 5, Always, "5/0", untagged),
        (NativeUntagged, 5, Always, "5/3", priority),
        (NativeUntagged, 5, Always, "5/0", untagged),
        (NativeTagged, 5, Always, "5/3", "1,3,4"),
    ] {
        let of_3 = |b: &mut Bundle| (b.vlan_mode, b.tag, b.priority_tags) = (mode, tag, tags);
        let t = rig_of(|_| (), of_3).translate(&Rig::flow(&from_2(packet)), true);
        assert_eq!(show(&t.actions), expected, "{mode:?} {tags:?} {packet}");
    }
    // A port that gives untagged packets VLAN 0 tags them for `always`.
    for (mode, expected) in [
        (Access, format!("1,{zero},3,pop_vlan,4")),
        (NativeTagged, format!("1,{zero},3,pop_vlan,4")),
        (NativeUntagged, format!("1,{zero},3,pop_vlan,4")),
        (Trunk, "1,3,4".to_string()),
    ] {
        rig_of(|b| b.vlan_mode = mode, |b| b.priority_tags = Always).acts(&from_2(""), &expected);
    }
}

#[test]
fn native_ports_without_a_tag_and_their_trunks() {
    let without = "1,pop_vlan,3,push_vlan(0x8100,vid=0,pcp=3),4";
    for (trunks, packet, as_output, as_input) in [
        (vec![5], "", "1,4", "1,3,4"),
        (vec![5], "0/3", "1,4", "1,3,4"),
        (vec![5], "5/0", "1,3,4", "1,3,4"),
        (vec![0], "", "1,3,4", "1,3,4"),
        (vec![0], "0/3", without, "1,3,4"),
        (vec![0], "5/0", "1,4", "drop:VlanNotAllowed"),
        (vec![0, 5], "", "1,3,4", "1,3,4"),
        (vec![0, 5], "5/0", "1,3,4", "1,3,4"),
    ] {
        let native = |b: &mut Bundle| {
            (b.vlan_mode, b.trunks) = (VlanMode::NativeUntagged, Some(VlanSet::new(trunks.clone())));
        };
        rig_of(|_| (), native).acts(&from_2(packet), as_output);
        rig_of(native, |_| ()).acts(&from_2(packet), as_input);
    }
}

#[test]
fn reserved_addresses_are_not_forwarded() {
    for (to, reserved) in [
        ("01:80:c2:00:00:00", true),
        ("01:80:c2:00:00:0f", true),
        ("01:80:c2:00:00:10", false),
        ("01:00:0c:cc:cc:cc", true),
        ("01:00:0c:cc:cc:cd", true),
        ("01:00:0c:cc:cc:ce", false),
        ("01:00:0c:cd:cd:cd", true),
        ("01:00:0c:cd:cd:ce", false),
        ("01:00:0c:00:00:00", true),
        ("00:e0:2b:00:00:00", true),
        ("00:e0:2b:00:00:02", false),
        ("00:e0:2b:00:00:04", true),
        ("00:e0:2b:00:00:06", true),
        ("00:e0:2b:00:00:08", false),
    ] {
        let rig = rig_of(|_| (), |_| ());
        let a = rig.a;
        let packet = |port: &str| format!("in_port={port},arp,dl_src=02:00:00:00:00:01,dl_dst={to}");
        rig.acts(&packet("2"), if reserved { "drop" } else { "1,3,4" });
        // A controller decides by itself.
        rig.acts(&packet("controller"), "1,2,3,4");
        rig.backer.change_bridge(a, |bridge| bridge.forward_bpdu = true);
        rig.acts(&packet("2"), "1,3,4");
    }
}

#[test]
fn a_loop_of_patch_ports_is_named() {
    let looping = "actions=in_port";
    let rig = Rig::new();
    let (a, b) = (rig.a, rig.b);
    let rig = rig.rules(a, "in_port=1,actions=9\n in_port=9,actions=in_port").rules(b, looping);
    let t = rig.translate(&Rig::flow(TCP), true);
    assert_eq!(t.fault.as_deref(), Some("over max translation depth 64"));
    assert_eq!(t.patch_loop.as_deref(), Some("p9 of a, p9 of b"));
    rig.backer.failures.report("a", &Rig::flow(TCP), &t);
    let told = [rig.backer.failures.next_error(), rig.backer.failures.next_error()];
    assert_eq!(told[1].as_deref(), Some("bridge a: loop of patch ports: p9 of a, p9 of b"));
    // Resubmits alone are another fault.
    let rig = Rig::new();
    let rig = rig.rules(a, "actions=9").rules(b, "actions=resubmit(,0)");
    let t = rig.translate(&Rig::flow(TCP), true);
    assert_eq!((t.fault.is_some(), t.patch_loop), (true, None));
}
