//! The action `sample` with local readers. Expectations are those of `ofproto/trace` of OVS 3.5 after
//! `dpif/set-dp-features --force br0 psample true`.

use super::*;
use crate::sampling::Sampling;

/// Set 1 has group 10, set 2 group 20, set 4 group 0.
fn sampling(flows: bool, explicit_drops: bool) -> Option<Arc<Sampling>> {
    let local_groups = [(1, 10), (2, 20), (4, 0)].into();
    Some(Arc::new(Sampling { flows, explicit_drops, local_groups, ..Sampling::default() }))
}

const WHOLE: &str =
    "sample(probability=65535,collector_set_id=1,obs_domain_id=0x11223344,obs_point_id=0x55667788)";
const HALF: &str = "sample(probability=32768,collector_set_id=2,obs_domain_id=1,obs_point_id=2)";
const GROUP_0: &str = "sample(probability=32768,collector_set_id=4,obs_domain_id=1,obs_point_id=2)";
const NO_GROUP: &str = "sample(probability=65535,collector_set_id=7,obs_domain_id=1,obs_point_id=2)";

fn check(flows: bool, explicit_drops: bool, rows: &[(&str, &str)]) {
    for (rules, actions) in rows {
        let rig = Rig::new();
        let a = rig.a;
        rig.backer.change_bridge(a, |bridge| bridge.sampling = sampling(flows, explicit_drops));
        let rig = rig.rules(a, &format!("actions={rules}"));
        let translated = rig.translate(&Rig::flow(TCP), true);
        assert_eq!(
            dpif::text::format_actions(&translated.actions, &dpif::text::NumbersOnly),
            *actions,
            "{rules}"
        );
    }
}

#[test]
fn a_set_with_a_group_samples_for_local_readers() {
    let registers = "load:7->NXM_NX_REG0[],\
        sample(probability=65535,collector_set_id=1,obs_domain_id=NXM_NX_REG0[],obs_point_id=2),2";
    check(
        false,
        false,
        &[
            (&format!("{WHOLE},2"), "psample(group=10,cookie=0x1122334455667788),2"),
            (&format!("{HALF},2"), "sample(sample=50.0%,actions(psample(group=20,cookie=0x100000002))),2"),
            (&format!("{GROUP_0},2"), "sample(sample=50.0%,actions(psample(group=0,cookie=0x100000002))),2"),
            (&format!("{NO_GROUP},2"), "2"),
            (registers, "psample(group=10,cookie=0x700000002),2"),
            (WHOLE, "psample(group=10,cookie=0x1122334455667788)"),
            // A sample has the headers at its place in the list.
            (
                &format!("mod_nw_tos:4,{WHOLE},mod_dl_src:00:00:00:00:00:09,2"),
                "set(ipv4(tos=0x4/0xfc)),psample(group=10,cookie=0x1122334455667788),set(eth(src=00:00:00:00:00:09)),2",
            ),
        ],
    );
    check(false, true, &[(WHOLE, "psample(group=10,cookie=0x1122334455667788),drop")]);
}

#[test]
fn collectors_of_ipfix_get_their_samples_too() {
    let up = |probability, set, domain, point| {
        format!(
            "userspace(pid=0,flow_sample(probability={probability},collector_set_id={set},obs_domain_id={domain},obs_point_id={point},output_port=4294967295))"
        )
    };
    let (whole, half) = (up(65535, 1, 287_454_020, 1_432_778_632), up(32768, 2, 1, 2));
    check(
        true,
        false,
        &[
            (&format!("{WHOLE},2"), &format!("psample(group=10,cookie=0x1122334455667788),{whole},2")),
            (
                &format!("{HALF},2"),
                &format!("sample(sample=50.0%,actions(psample(group=20,cookie=0x100000002),{half})),2"),
            ),
            (&format!("{NO_GROUP},2"), &format!("{},2", up(65535, 7, 1, 2))),
        ],
    );
}

#[test]
fn a_datapath_without_psample_has_no_local_samples() {
    let rig = Rig::new();
    let a = rig.a;
    rig.backer.change_bridge(a, |bridge| bridge.sampling = sampling(false, false));
    let with = rig.backer.features();
    rig.backer.set_features(dpif::Capabilities { psample: false, ..with });
    rig.rules(a, &format!("actions={WHOLE},2")).acts(TCP, "2");
}
