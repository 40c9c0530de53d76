//! Limits of a translation. Expectations are those of `ofproto/trace` of OVS 3.1.

use super::*;

/// Pushes of 16 bytes, which take 17, in two tables.
fn pushes(field: &str, first: usize, second: usize) -> Option<XlateDrop> {
    let rig = Rig::new();
    let a = rig.a;
    let list = |n: usize| format!("push:{field},").repeat(n);
    let rules = format!(
        "actions={}resubmit(,1)\n table=1,actions={}resubmit(,2)\n table=2,actions=2",
        list(first),
        list(second)
    );
    let t = rig.rules(a, &rules).translate(&Rig::flow(TCP), false);
    assert_eq!(t.fault.is_some(), t.error.is_some());
    t.error
}

#[test]
fn the_stack_has_64_kilobytes() {
    assert_eq!(pushes("NXM_NX_XXREG0[]", 2500, 1355), None);
    assert_eq!(pushes("NXM_NX_XXREG0[]", 2500, 1356), Some(XlateDrop::StackTooDeep));
    assert_eq!(pushes("NXM_NX_REG0[]", 2500, 1356), None);
    assert_eq!(pushes("NXM_NX_REG0[0..6]", 2500, 2500), None);
}

/// A value that is popped takes no space, and a clone's values end with it.
#[test]
fn values_that_are_gone_take_no_space() {
    for list in ["push:NXM_NX_XXREG0[],pop:NXM_NX_XXREG1[],", "clone(push:NXM_NX_XXREG0[]),"] {
        let rig = Rig::new();
        let a = rig.a;
        let rules = format!("actions={}resubmit(,2)\n table=2,actions=2", list.repeat(4000));
        rig.rules(a, &rules).acts(TCP, "2");
    }
}
