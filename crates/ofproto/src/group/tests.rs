use super::*;
use flow::text::NoPortNames;
use openflow::ErrorKind;
use openflow::msg::group::GroupModCommand::{self, *};
use openflow::text::{format_group, parse_group_mod};

fn change(groups: &mut Groups, command: GroupModCommand, text: &str) -> Result<GroupChange, ErrorKind> {
    let m = parse_group_mod(text, command, &NoPortNames).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    groups.change(&m, 1000)
}

fn shown(groups: &Groups, id: u32) -> String {
    groups.get(id).map_or("none".into(), |g| format_group(&g.desc(), true, &NoPortNames))
}

/// In the order of commands given to OVS 3.1, with its answers.
#[test]
fn groups_change_as_in_ovs() {
    let mut groups = Groups::default();
    let mut refused = |command, text: &str, kind| {
        let before = groups.all();
        assert_eq!(change(&mut groups, command, text), Err(kind), "{text}");
        assert!(
            before.iter().zip(groups.all()).all(|(a, b)| Arc::ptr_eq(a, &b)),
            "{text}: nothing has changed"
        );
    };
    refused(Modify, "group_id=99,type=all,bucket=1", ErrorKind::GmfcUnknownGroup);
    refused(InsertBucket, "group_id=99,command_bucket_id=last,bucket=1", ErrorKind::GmfcUnknownGroup);
    refused(RemoveBucket, "group_id=99,command_bucket_id=all", ErrorKind::GmfcUnknownGroup);
    refused(Add, "group_id=1,type=select,selection_method=foo,bucket=1", ErrorKind::BpcBadValue);
    change(&mut groups, Add, "group_id=1,type=all,bucket=1,bucket=2").unwrap();
    change(&mut groups, AddOrModify, "group_id=98,type=all,bucket=1").unwrap();
    change(&mut groups, AddOrModify, "group_id=98,type=all,bucket=2").unwrap();
    change(&mut groups, Add, "group_id=10,type=all,bucket=group:99").unwrap();
    change(&mut groups, Add, "group_id=0xffffff00,type=all").unwrap();
    let select = "group_id=2,type=select,selection_method=dp_hash";
    change(
        &mut groups,
        Add,
        &format!("{select},bucket=bucket_id=5,weight=10,1,bucket=bucket_id=7,weight=20,2"),
    )
    .unwrap();
    let mut refused = |command, text: &str, kind| {
        assert_eq!(change(&mut groups, command, text), Err(kind), "{text}");
    };
    refused(Add, "group_id=1,type=all,bucket=1", ErrorKind::GmfcGroupExists);
    refused(
        InsertBucket,
        "group_id=2,command_bucket_id=55,bucket=bucket_id=12,5",
        ErrorKind::GmfcUnknownBucket,
    );
    refused(
        InsertBucket,
        "group_id=2,command_bucket_id=last,bucket=bucket_id=5,5",
        ErrorKind::GmfcBucketExists,
    );
    refused(RemoveBucket, "group_id=2,command_bucket_id=99", ErrorKind::GmfcUnknownBucket);
    let insert = "group_id=2";
    change(
        &mut groups,
        InsertBucket,
        &format!("{insert},command_bucket_id=first,bucket=bucket_id=1,weight=0,3"),
    )
    .unwrap();
    change(&mut groups, InsertBucket, &format!("{insert},command_bucket_id=5,bucket=bucket_id=9,weight=7,4"))
        .unwrap();
    change(
        &mut groups,
        InsertBucket,
        &format!("{insert},command_bucket_id=last,bucket=bucket_id=11,weight=0,5"),
    )
    .unwrap();
    let bucket = |id: u32, weight: u32, port: u32| {
        format!("bucket=bucket_id:{id},weight:{weight},actions=output:{port}")
    };
    let all = [bucket(1, 0, 3), bucket(5, 10, 1), bucket(9, 7, 4), bucket(7, 20, 2), bucket(11, 0, 5)];
    assert_eq!(shown(&groups, 2), format!("{select},{}", all.join(",")));
    change(&mut groups, RemoveBucket, "group_id=2,command_bucket_id=first").unwrap();
    change(&mut groups, RemoveBucket, "group_id=2,command_bucket_id=9").unwrap();
    assert_eq!(shown(&groups, 2), format!("{select},{},{},{}", all[1], all[3], all[4]));
    change(&mut groups, RemoveBucket, "group_id=2,command_bucket_id=all").unwrap();
    assert_eq!(shown(&groups, 2), select);
    assert_eq!(change(&mut groups, Delete, "group_id=77"), Ok(GroupChange::Deleted(vec![])));
    assert_eq!(change(&mut groups, Delete, "group_id=10"), Ok(GroupChange::Deleted(vec![10])));
    assert_eq!(groups.all().iter().map(|g| g.id()).collect::<Vec<_>>(), [1, 2, 98, 0xffff_ff00]);
    let GroupChange::Deleted(mut gone) = change(&mut groups, Delete, "").unwrap() else { panic!() };
    gone.sort_unstable();
    assert_eq!((gone, groups.len(), groups.buckets), (vec![1, 2, 98, 0xffff_ff00], 0, 0));
}

/// Errors of messages that ovs-ofctl does not send.
#[test]
fn inconsistent_groups_are_refused() {
    use openflow::msg::group::{Bucket as BucketDesc, GroupMod};
    let plain = BucketDesc {
        id: 0,
        weight: 0,
        watch_port: OfPort::NONE,
        watch_group: openflow::GROUP_ANY,
        actions: vec![],
    };
    let weighty = BucketDesc { weight: 5, ..plain.clone() };
    let watching = BucketDesc { watch_port: OfPort(2), ..plain.clone() };
    for (ty, buckets, expected) in [
        (GroupType::Indirect, vec![], Err(ErrorKind::GmfcInvalidGroup)),
        (GroupType::FastFailover, vec![plain.clone()], Err(ErrorKind::GmfcInvalidGroup)),
        (GroupType::All, vec![weighty.clone()], Err(ErrorKind::GmfcInvalidGroup)),
        (GroupType::All, vec![watching.clone()], Err(ErrorKind::GmfcWatchUnsupported)),
        (GroupType::Select, vec![watching.clone()], Ok(GroupChange::Changed)),
        (GroupType::All, vec![plain.clone(), plain.clone()], Err(ErrorKind::GmfcBadBucket)),
    ] {
        let desc = GroupDesc { ty, id: 1, buckets, selection: None };
        let m = GroupMod { format: Default::default(), command: Add, command_bucket_id: 0, group: desc };
        assert_eq!(Groups::default().change(&m, 0), expected, "{m:?}");
    }
}

#[test]
fn statistics_end_with_a_modification_and_stay_with_buckets() {
    let mut groups = Groups::default();
    change(&mut groups, Add, "group_id=1,type=all,bucket=1,bucket=2").unwrap();
    let counts = |groups: &Groups| {
        let group = groups.get(1).unwrap();
        (group.counter.counts(), group.buckets.iter().map(|b| b.counter.counts()).collect::<Vec<_>>())
    };
    groups.get(1).unwrap().credit(None, 3, 300);
    groups.get(1).unwrap().credit(Some(1), 2, 200);
    assert_eq!(counts(&groups), ((5, 500), vec![(3, 300), (5, 500)]));
    change(&mut groups, InsertBucket, "group_id=1,command_bucket_id=first,bucket=bucket_id=9,3").unwrap();
    assert_eq!(counts(&groups).1, [(0, 0), (3, 300), (5, 500)]);
    change(&mut groups, Modify, "group_id=1,type=all,bucket=1").unwrap();
    assert_eq!(counts(&groups), ((0, 0), vec![(0, 0)]));
}

/// As in OVS: a message that inserts a bucket leaves the type at "all", and the rules for new groups do not apply.
#[test]
fn buckets_are_inserted_into_groups_of_any_type() {
    let mut groups = Groups::default();
    for (id, ty, first) in
        [(1, "all", ""), (2, "select", "weight:5,"), (3, "indirect", ""), (4, "ff", "watch_port:1,")]
    {
        let add = format!("group_id={id},type={ty},bucket={first}actions=output:1");
        change(&mut groups, Add, &add).unwrap();
        let insert = format!("group_id={id},command_bucket_id=first,bucket=bucket_id=7,weight=3,2");
        change(&mut groups, InsertBucket, &insert).unwrap();
        let group = groups.get(id).unwrap();
        assert_eq!(group.buckets.iter().map(|b| (b.id, b.weight)).next(), Some((7, 3)), "{ty}");
        let watched =
            format!("group_id={id},command_bucket_id=last,bucket=bucket_id=8,watch_port:1,actions=output:2");
        assert_eq!(change(&mut groups, InsertBucket, &watched), Err(ErrorKind::GmfcWatchUnsupported));
        change(&mut groups, RemoveBucket, &format!("group_id={id},command_bucket_id=last")).unwrap();
        change(&mut groups, RemoveBucket, &format!("group_id={id},command_bucket_id=all")).unwrap();
        assert_eq!(groups.get(id).unwrap().buckets.len(), 0);
    }
}

#[test]
fn groups_are_bounded() {
    let mut groups = Groups::default();
    let long = vec!["push:NXM_NX_REG0[]"; 700].join(",");
    change(&mut groups, Add, &format!("group_id=1,type=all,bucket={long}")).unwrap();
    for n in 1..3 {
        change(
            &mut groups,
            InsertBucket,
            &format!("group_id=1,command_bucket_id=last,bucket=bucket_id={n},{long}"),
        )
        .unwrap();
    }
    let more = format!("group_id=1,command_bucket_id=last,bucket=bucket_id=9,{long}");
    assert_eq!(change(&mut groups, InsertBucket, &more), Err(ErrorKind::GmfcOutOfBuckets));
    groups.len = MAX_GROUPS;
    assert_eq!(change(&mut groups, Add, "group_id=2,type=all"), Err(ErrorKind::GmfcOutOfGroups));
}

/// A snapshot stays as it was.
#[test]
fn versions_share_what_is_unchanged() {
    let mut groups = Groups::default();
    change(&mut groups, Add, "group_id=1,type=all,bucket=1").unwrap();
    let before = groups.clone();
    assert!(before.is_same(&groups));
    change(&mut groups, Modify, "group_id=1,type=all,bucket=2").unwrap();
    assert!(!before.is_same(&groups));
    assert_eq!(shown(&before, 1), "group_id=1,type=all,bucket=bucket_id:0,actions=output:1");
}

#[test]
fn a_group_is_dated_with_its_counters() {
    let mut groups = Groups::default();
    change(&mut groups, Add, "group_id=1,type=all,bucket=bucket_id=3,1,bucket=bucket_id=4,2").unwrap();
    let group = groups.get(1).unwrap();
    group.counter.credit(5, 300);
    group.buckets[1].counter.credit(2, 120);
    let before = shown(&groups, 1);
    assert!(groups.date(1, 77) && !groups.date(1, 77) && !groups.date(2, 77));
    let group = groups.get(1).unwrap();
    assert_eq!((group.created_ms, group.counter.counts()), (77, (5, 300)));
    assert_eq!(group.buckets.iter().map(|b| b.counter.counts()).collect::<Vec<_>>(), [(0, 0), (2, 120)]);
    assert_eq!(shown(&groups, 1), before);
}
