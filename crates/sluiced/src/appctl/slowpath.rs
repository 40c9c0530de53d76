//! Commands about upcalls and the revalidator.

use super::{Parsed, Reply, Rows, Wait, command, order_rounds};
use crate::control_plane::ControlPlane;
use crate::switch::Switch;
use std::fmt::Write as _;
use sync::Ordering;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command("revalidator/pause", (), "stop the revalidation of datapath flows", revalidator_pause),
    &command("revalidator/purge", (), "remove all datapath flows through the revalidator", revalidator_purge),
    &command("revalidator/resume", (), "go on with the revalidation of datapath flows", revalidator_resume),
    &command("revalidator/wait", (), "wait until a whole revalidation round is over", revalidator_wait),
    &command("upcall/disable-megaflows", (), "install exact-match flows from now on", disable_megaflows),
    &command("upcall/disable-ufid", (), "read whole flows in each dump", disable_ufid),
    &command("upcall/enable-megaflows", (), "install wildcarded flows again", enable_megaflows),
    &command("upcall/enable-ufid", (), "read flows by their UFIDs in dumps", enable_ufid),
    &command(
        "upcall/set-flow-limit",
        Parsed("limit", flow_limit),
        "set the maximum number of datapath flows",
        set_flow_limit,
    ),
    &command("upcall/show", (), "show the flow counts and limits of the revalidators", upcall_show),
];

fn upcall_show(plane: &mut ControlPlane, (): ()) -> Reply {
    let mut out = String::new();
    for instance in plane.switch.instances().iter() {
        let s = instance.revalidator_stats();
        let limit = instance.backer.limits.flow_limit.load(Ordering::Relaxed);
        let _ = writeln!(
            out,
            "{}:\n  flows         : (current {}) (avg {}) (max {}) (limit {limit})\n  dump duration : {}ms\n  ufid enabled : {}\n",
            instance.name(),
            s.flows,
            s.average_flows,
            s.max_flows,
            s.dump_duration_ms,
            !instance.backer.limits.whole_dumps.load(Ordering::Relaxed)
        );
        let threads = instance.revalidator().threads.load(Ordering::Relaxed);
        for (n, keys) in instance.backer.ukeys.lens(threads).into_iter().enumerate() {
            let _ = writeln!(out, "  {n}: (keys {keys})");
        }
    }
    out.into()
}

fn revalidator_wait(plane: &mut ControlPlane, (): ()) -> Reply {
    Reply::Later(Wait::Rounds(order_rounds(&plane.switch)))
}

fn revalidator_pause(plane: &mut ControlPlane, (): ()) -> Reply {
    plane.switch.instances().iter().for_each(|i| i.backer.barrier.paused.store(true, Ordering::Release));
    String::new().into()
}

fn revalidator_resume(plane: &mut ControlPlane, (): ()) -> Reply {
    for instance in plane.switch.instances().iter() {
        instance.backer.barrier.paused.store(false, Ordering::Release);
        instance.wake_revalidator();
    }
    String::new().into()
}

/// Deletes all flows through the revalidator, which keeps their statistics.
fn revalidator_purge(plane: &mut ControlPlane, (): ()) -> Reply {
    let switch = &plane.switch;
    for instance in switch.instances().iter() {
        instance.backer.limits.purge.store(true, Ordering::Release);
    }
    Reply::Later(Wait::Rounds(order_rounds(switch)))
}

/// Has the revalidator delete all flows, so that new ones follow the new setting.
fn start_over(switch: &Switch) {
    for instance in switch.instances().iter() {
        instance.backer.limits.purge.store(true, Ordering::Release);
        instance.order_round();
    }
}

fn set_megaflows(plane: &mut ControlPlane, on: bool) {
    for instance in plane.switch.instances().iter() {
        instance.backer.limits.exact_flows.store(!on, Ordering::Relaxed);
    }
    start_over(&plane.switch);
}

/// Makes exact-match flows from now on.
fn disable_megaflows(plane: &mut ControlPlane, (): ()) -> Reply {
    set_megaflows(plane, false);
    "megaflows disabled\n".to_string().into()
}

fn enable_megaflows(plane: &mut ControlPlane, (): ()) -> Reply {
    set_megaflows(plane, true);
    "megaflows enabled\n".to_string().into()
}

/// Has the revalidator read flows by their names alone, or as a whole.
fn set_terse(plane: &ControlPlane, on: bool) {
    for instance in plane.switch.instances().iter() {
        instance.backer.limits.whole_dumps.store(!on, Ordering::Relaxed);
    }
}

fn disable_ufid(plane: &mut ControlPlane, (): ()) -> Reply {
    set_terse(plane, false);
    "Datapath dumping tersely using UFID disabled\n".to_string().into()
}

fn enable_ufid(plane: &mut ControlPlane, (): ()) -> Reply {
    set_terse(plane, true);
    "Datapath dumping tersely using UFID enabled for supported datapaths\n".to_string().into()
}

fn flow_limit(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text}: not a number of flows"))
}

/// Applies until `other_config:flow-limit` or another setting of the whole switch changes.
fn set_flow_limit(plane: &mut ControlPlane, limit: u32) -> Reply {
    for instance in plane.switch.instances().iter() {
        instance.backer.limits.set_flow_limit(limit.into());
    }
    format!("set flow_limit to {limit}\n").into()
}
