//! A scripted connection tracker for unit tests: records calls, holds values, fails as told.

use dpif::{
    Connection, ConnectionSink, Connections, CtLimit, CtMatch, CtTupleMatch, CtZone, DpifError, Expectation,
    ExpectationSink, FragmentCounts, FragmentList, FragmentStatus, Fragments, IpFamily, TimeoutAttr,
    TimeoutId, TimeoutPolicies, TimeoutPolicy,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Scripted {
    calls: RefCell<Vec<String>>,
    failing: RefCell<Option<(String, DpifError)>>,
    policies: RefCell<BTreeMap<TimeoutId, TimeoutPolicy>>,
    limits: RefCell<BTreeMap<CtZone, u32>>,
    plain: bool,
    maximum: Cell<u32>,
    checks: Cell<bool>,
    sweep_ms: Cell<u32>,
    status: Cell<FragmentStatus>,
    /// Its connections.
    pub(crate) connections: Vec<Connection>,
    /// Its expectations.
    pub(crate) expectations: Vec<Expectation>,
    /// Its buckets.
    pub(crate) buckets: Vec<u32>,
    /// Its lists of fragments.
    pub(crate) lists: Vec<FragmentList>,
    /// The last selection flushed.
    pub(crate) flushed: Cell<Option<CtMatch>>,
}

impl Scripted {
    /// One with connections and limits only.
    pub(crate) fn plain() -> Scripted {
        Scripted { plain: true, ..Scripted::default() }
    }

    /// Has calls that begin with this text fail.
    pub(crate) fn fail(&self, call: &str, error: DpifError) {
        *self.failing.borrow_mut() = Some((call.to_string(), error));
    }

    /// Has no call fail.
    pub(crate) fn fail_nothing(&self) {
        *self.failing.borrow_mut() = None;
    }

    /// The calls since the last one of this function.
    pub(crate) fn take_calls(&self) -> Vec<String> {
        self.calls.take()
    }

    /// Adds policies of a former process.
    pub(crate) fn with_policies(&self, ids: &[u32]) {
        let ids = ids.iter().map(|id| (TimeoutId((*id).try_into().unwrap()), TimeoutPolicy::default()));
        self.policies.borrow_mut().extend(ids);
    }

    fn call(&self, call: String) -> Result<(), DpifError> {
        let failing = self.failing.borrow();
        let failed = failing.as_ref().filter(|(what, _)| call.starts_with(what)).map(|(_, e)| e.clone());
        self.calls.borrow_mut().push(call);
        failed.map_or(Ok(()), Err)
    }

    /// Refuses a call that a plain tracker lacks.
    fn has(&self, call: &str) -> Result<(), DpifError> {
        if self.plain {
            return Err(DpifError::Unsupported(format!("no {call} here")));
        }
        self.call(call.to_string())
    }
}

fn zone_name(zone: CtZone) -> String {
    match zone {
        CtZone::Default => "default".to_string(),
        CtZone::Zone(number) => number.to_string(),
    }
}

impl Connections for Scripted {
    fn list(&self, zone: Option<u16>, sink: &mut dyn ConnectionSink) -> Result<(), DpifError> {
        self.call(format!("list {zone:?}"))?;
        let mut all = self.connections.iter().filter(|c| zone.is_none_or(|zone| zone == c.zone));
        let _stopped = all.try_for_each(|c| sink.connection(c));
        Ok(())
    }

    fn flush(&self, which: &CtMatch) -> Result<(), DpifError> {
        self.flushed.set(Some(*which));
        let any = [which.orig, which.reply] == [CtTupleMatch::default(); 2];
        self.call(format!("flush {}", if any { "all tuples" } else { "some" }))
    }

    fn expectations(&self, zone: Option<u16>, sink: &mut ExpectationSink<'_>) -> Result<(), DpifError> {
        self.has("expectations")?;
        let mut all = self.expectations.iter().filter(|e| zone.is_none_or(|zone| zone == e.zone));
        let _stopped: ControlFlow<()> = all.try_for_each(sink);
        Ok(())
    }

    fn buckets(&self) -> Result<Vec<u32>, DpifError> {
        self.has("buckets").map(|()| self.buckets.clone())
    }

    fn count(&self) -> Result<u32, DpifError> {
        self.has("count").map(|()| self.connections.len() as u32)
    }

    fn maximum(&self) -> Result<u32, DpifError> {
        self.has("maximum").map(|()| self.maximum.get())
    }

    fn set_maximum(&self, connections: u32) -> Result<(), DpifError> {
        self.has("set maximum").map(|()| self.maximum.set(connections))
    }

    fn checks_sequences(&self) -> Result<bool, DpifError> {
        self.has("check").map(|()| self.checks.get())
    }

    fn set_checks_sequences(&self, checks: bool) -> Result<(), DpifError> {
        self.has("set check").map(|()| self.checks.set(checks))
    }

    fn sweep_interval_ms(&self) -> Result<u32, DpifError> {
        self.has("sweep").map(|()| self.sweep_ms.get())
    }

    fn set_sweep_interval_ms(&self, interval_ms: u32) -> Result<(), DpifError> {
        self.has("set sweep").map(|()| self.sweep_ms.set(interval_ms))
    }

    fn limits(&self, zones: &[CtZone]) -> Result<Vec<CtLimit>, DpifError> {
        self.call("limits".to_string())?;
        let limits = self.limits.borrow();
        let default = limits.get(&CtZone::Default).copied().unwrap_or(0);
        let zones = if zones.is_empty() {
            let own = limits.keys().filter(|zone| **zone != CtZone::Default);
            std::iter::once(CtZone::Default).chain(own.copied()).collect()
        } else {
            zones.to_vec()
        };
        let of = |zone| CtLimit { zone, limit: limits.get(&zone).copied().unwrap_or(default), count: 0 };
        Ok(zones.into_iter().map(of).collect())
    }

    fn set_limits(&self, limits: &[(CtZone, u32)]) -> Result<(), DpifError> {
        let all: Vec<_> =
            limits.iter().map(|(zone, limit)| format!("{}={limit}", zone_name(*zone))).collect();
        self.call(format!("set limits {}", all.join(" ")))?;
        self.limits.borrow_mut().extend(limits.iter().copied());
        Ok(())
    }

    fn remove_limits(&self, zones: &[CtZone]) -> Result<(), DpifError> {
        let all: Vec<_> = zones.iter().map(|zone| zone_name(*zone)).collect();
        self.call(format!("remove limits {}", all.join(" ")))?;
        self.limits.borrow_mut().retain(|zone, _| !zones.contains(zone));
        Ok(())
    }

    fn timeout_policies(&self) -> Option<&dyn TimeoutPolicies> {
        (!self.plain).then_some(self)
    }

    fn fragments(&self) -> Option<&dyn Fragments> {
        (!self.plain).then_some(self)
    }
}

impl TimeoutPolicies for Scripted {
    fn set(&self, id: TimeoutId, policy: &TimeoutPolicy) -> Result<(), DpifError> {
        let timeouts: Vec<_> = policy.iter().map(|(attr, s)| format!("{}={s}", attr.key())).collect();
        self.call(format!("set policy {} {}", id.0, timeouts.join(",")))?;
        self.policies.borrow_mut().insert(id, *policy);
        Ok(())
    }

    fn ignored(&self) -> &'static [TimeoutAttr] {
        &[TimeoutAttr::IcmpReply]
    }

    fn get(&self, id: TimeoutId) -> Result<TimeoutPolicy, DpifError> {
        self.policies.borrow().get(&id).copied().ok_or(DpifError::NotFound("timeout policy"))
    }

    fn delete(&self, id: TimeoutId) -> Result<(), DpifError> {
        self.call(format!("delete policy {}", id.0))?;
        self.policies.borrow_mut().remove(&id).map(|_| ()).ok_or(DpifError::NotFound("timeout policy"))
    }

    fn list(&self) -> Result<Vec<TimeoutId>, DpifError> {
        let ids: Vec<_> = self.policies.borrow().keys().copied().collect();
        if !ids.is_empty() {
            self.call("list policies".to_string())?;
        }
        Ok(ids)
    }
}

impl Scripted {
    fn change(&self, family: IpFamily, change: impl FnOnce(&mut FragmentCounts)) {
        let mut status = self.status.get();
        match family {
            IpFamily::V4 => change(&mut status.v4),
            IpFamily::V6 => change(&mut status.v6),
        }
        self.status.set(status);
    }
}

impl Fragments for Scripted {
    fn status(&self) -> FragmentStatus {
        self.status.get()
    }

    fn set_enabled(&self, family: IpFamily, enabled: bool) {
        self.change(family, |counts| counts.enabled = enabled);
    }

    fn set_min_bytes(&self, family: IpFamily, bytes: u32) -> Result<(), DpifError> {
        self.call(format!("set minimum {bytes}"))?;
        self.change(family, |counts| counts.min_bytes = bytes);
        Ok(())
    }

    fn set_max(&self, fragments: u32) -> Result<(), DpifError> {
        self.call(format!("set maximum {fragments}"))?;
        self.status.set(FragmentStatus { max: fragments, ..self.status.get() });
        Ok(())
    }

    fn lists(&self, each: &mut dyn FnMut(&FragmentList) -> ControlFlow<()>) {
        let _stopped = self.lists.iter().try_for_each(each);
    }
}
