//! Commands about upcalls and the revalidator.

use super::{Answer, Wait, order_rounds};
use crate::daemon::Daemon;
use crate::switch::Switch;
use std::fmt::Write as _;
use sync::Ordering;

pub(super) fn upcall_show(daemon: &mut Daemon, _: &[String]) -> Answer {
    let mut out = String::new();
    for instance in daemon.switch.instances().iter() {
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

pub(super) fn revalidator_wait(daemon: &mut Daemon, _: &[String]) -> Answer {
    Answer::Later(Wait::Rounds(order_rounds(&daemon.switch)))
}

pub(super) fn revalidator_pause(daemon: &mut Daemon, _: &[String]) -> Answer {
    daemon.switch.instances().iter().for_each(|i| i.backer.barrier.paused.store(true, Ordering::Release));
    String::new().into()
}

pub(super) fn revalidator_resume(daemon: &mut Daemon, _: &[String]) -> Answer {
    for instance in daemon.switch.instances().iter() {
        instance.backer.barrier.paused.store(false, Ordering::Release);
        instance.wake_revalidator();
    }
    String::new().into()
}

/// Deletes all flows through the revalidator, which keeps their statistics.
pub(super) fn revalidator_purge(daemon: &mut Daemon, _: &[String]) -> Answer {
    let switch = &daemon.switch;
    for instance in switch.instances().iter() {
        instance.backer.limits.purge.store(true, Ordering::Release);
    }
    Answer::Later(Wait::Rounds(order_rounds(switch)))
}

/// Has the revalidator delete all flows, so that new ones follow the new setting.
fn start_over(switch: &Switch) {
    for instance in switch.instances().iter() {
        instance.backer.limits.purge.store(true, Ordering::Release);
        instance.order_round();
    }
}

fn set_megaflows(daemon: &mut Daemon, on: bool) {
    for instance in daemon.switch.instances().iter() {
        instance.backer.limits.exact_flows.store(!on, Ordering::Relaxed);
    }
    start_over(&daemon.switch);
}

/// Makes exact-match flows from now on.
pub(super) fn disable_megaflows(daemon: &mut Daemon, _: &[String]) -> Answer {
    set_megaflows(daemon, false);
    "megaflows disabled\n".to_string().into()
}

pub(super) fn enable_megaflows(daemon: &mut Daemon, _: &[String]) -> Answer {
    set_megaflows(daemon, true);
    "megaflows enabled\n".to_string().into()
}

/// Has the revalidator read flows by their names alone, or as a whole.
fn set_terse(daemon: &Daemon, on: bool) {
    for instance in daemon.switch.instances().iter() {
        instance.backer.limits.whole_dumps.store(!on, Ordering::Relaxed);
    }
}

pub(super) fn disable_ufid(daemon: &mut Daemon, _: &[String]) -> Answer {
    set_terse(daemon, false);
    "Datapath dumping tersely using UFID disabled\n".to_string().into()
}

pub(super) fn enable_ufid(daemon: &mut Daemon, _: &[String]) -> Answer {
    set_terse(daemon, true);
    "Datapath dumping tersely using UFID enabled for supported datapaths\n".to_string().into()
}

/// Applies until `other_config:flow-limit` or another setting of the whole switch changes.
pub(super) fn set_flow_limit(daemon: &mut Daemon, args: &[String]) -> Answer {
    let Ok(limit) = args[0].parse::<u32>() else {
        return Answer::Now(Err(format!("{}: not a number of flows", args[0])));
    };
    for instance in daemon.switch.instances().iter() {
        instance.backer.limits.set_flow_limit(limit.into());
    }
    format!("set flow_limit to {limit}\n").into()
}
