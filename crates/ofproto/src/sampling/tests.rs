use super::*;
use dpif::SflowCookie;
use dpif::actions::{CloneAction, Meter, PopMpls, PushMpls};

fn sflow() -> DpAction {
    let cookie = SflowCookie { vlan_tci: 0, output: 0 };
    DpAction::Userspace(Userspace(UserCookie::Sflow(cookie)))
}

#[test]
fn samples_are_no_outputs() {
    let output = |n| DpAction::Output(Output(DpPort(n)));
    let sample = DpAction::Sample(Sample { probability: 1, actions: vec![Meter(1).into(), sflow()] });
    assert!(is_sampling(&sample) && is_sampling(&sflow()) && !is_sampling(&output(1)));
    let slow = UserCookie::SlowPath { reasons: 1 };
    assert!(!is_sampling(&DpAction::Userspace(Userspace(slow))));
    let nested = DpAction::Clone(CloneAction(vec![output(7)]));
    assert_eq!(outputs(&[sample.clone(), sflow()]), (0, None));
    assert_eq!(outputs(&[sample, output(3), nested]), (2, Some(DpPort(7))));
}

#[test]
fn labels_are_those_that_the_packet_leaves_with() {
    let push = |lse| DpAction::PushMpls(PushMpls { lse, ethertype: 0x8847 });
    let pop = || DpAction::PopMpls(PopMpls { ethertype: 0x0800 });
    let mut flow = Flow { dl_type: 0x8847, ..Flow::default() };
    flow.mpls_lse[0] = 0x1000;
    flow.mpls_lse[1] = 0x2100;
    for (actions, labels) in [
        (vec![], Some(vec![0x2100, 0x1000])),
        (vec![push(0x3000)], Some(vec![0x2100, 0x1000, 0x3000])),
        (vec![pop()], Some(vec![0x2100])),
        (vec![pop(), pop(), pop()], None),
        (vec![push(1), push(2), push(3)], None),
    ] {
        assert_eq!(SampledPath::of(&flow, &actions).labels, labels);
    }
}
