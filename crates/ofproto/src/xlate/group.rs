//! Groups: selection and liveness of buckets, and their execution on copies of the packet.

use super::ctx::XlateCtx;
use super::state::AfterAction;
use super::trace::TraceEvent;
use super::{MAX_BUCKET_LOOKS, MAX_BUCKETS};
use crate::cache::XlateEffect;
use crate::group::{Bucket, Group, Method};
use dpif::XlateDrop;
use dpif::actions::{HashAction, HashAlgorithm};
use ofp_actions::Action;
use openflow::msg::group::GroupType;
use std::sync::Arc;

impl XlateCtx<'_> {
    /// Executes a group.
    pub(super) fn run_group(&mut self, id: u32) {
        if !self.may_nest() {
            return;
        }
        self.record.lookups.group(self.bridge.id, id);
        let Some(group) = self.bridge.tables.groups().get(id).cloned() else {
            self.record.trace.warning(|| "output to nonexistent group".to_string());
            self.control.after_action = AfterAction::Leave;
            return;
        };
        if group.executes_all() {
            let all: Vec<usize> = (0..group.buckets.len()).collect();
            self.send_to_each(all.into_iter(), |cx, n| cx.run_bucket(&group, n));
            return self.record.cache.push(XlateEffect::Group { group, bucket: None });
        }
        match self.pick(&group) {
            Some(n) => {
                self.record.trace.detail(|| format!("using bucket {}", group.buckets[n].id));
                self.run_bucket(&group, n);
                self.record.cache.push(XlateEffect::Group { group, bucket: Some(n) });
            }
            // As in OVS, also before the hash.
            None => self.record.trace.detail(|| "no live bucket".to_string()),
        }
    }

    /// Selects the bucket of a select or fast failover group. It is none, too, if the packet recirculates before that.
    fn pick(&mut self, group: &Arc<Group>) -> Option<usize> {
        if group.ty() == GroupType::Select && self.packet.was_mpls {
            // The hash needs the headers behind the popped label. As in OVS, no bucket is live until they are known.
            self.freeze_and_repeat();
            return None;
        }
        if group.ty() == GroupType::FastFailover {
            (0..group.buckets.len()).find(|n| self.is_alive(group, *n))
        } else if let Method::DpHash { hash, map } = &group.method
            && self.host.capabilities().recirc
        {
            let dp_hash = self.packet.flow.dp_hash;
            // The datapath hashes the packet first, then the group is executed again. Datapaths compute no 0.
            if dp_hash == 0 {
                let can_all = self.host.capabilities().max_hash_algorithm >= hash.algorithm as u8;
                let algorithm = if can_all { hash.algorithm } else { HashAlgorithm::L4 };
                self.freeze_with_hash(HashAction { algorithm, ..*hash });
                return None;
            }
            self.record.wc.0.dp_hash |= map.len() as u32 - 1;
            let mut tried = vec![false; group.buckets.len()];
            let first_time = |n: &usize| !std::mem::replace(&mut tried[*n], true);
            let candidates: Vec<usize> = group.candidates(map, dp_hash).filter(first_time).collect();
            candidates.into_iter().find(|n| self.is_alive(group, *n))
        } else {
            self.best_score(group)
        }
    }

    /// The live bucket with the highest score; the last of equal ones.
    fn best_score(&mut self, group: &Arc<Group>) -> Option<usize> {
        let hash = group.method.hash(&self.packet.flow, &mut self.record.wc);
        let mut best = None;
        for (n, bucket) in group.buckets.iter().enumerate() {
            if !self.is_alive(group, n) {
                continue;
            }
            let score = bucket.score(hash);
            self.record.trace.detail(|| format!("bucket {}: score {score}", bucket.id));
            if best.is_none_or(|(_, highest)| score >= highest) {
                best = Some((n, score));
            }
        }
        best.map(|(n, _)| n)
    }

    /// Whether a bucket is live: it watches nothing, a live port, or a group with a live bucket. A bucket of a select
    /// group without weight never is.
    fn is_alive(&mut self, group: &Arc<Group>, n: usize) -> bool {
        let mut looks = Looks { under_way: Vec::new(), left: MAX_BUCKET_LOOKS };
        let bucket = &group.buckets[n];
        let alive = self.bucket_is_alive(group, bucket, &mut looks);
        if !alive {
            self.record.trace.detail(|| not_live(bucket));
        }
        alive
    }

    fn bucket_is_alive(&mut self, group: &Group, bucket: &Bucket, looks: &mut Looks) -> bool {
        if group.ty() == GroupType::Select && bucket.weight == 0 {
            return false;
        }
        if !bucket.watches() || self.can_send(bucket.watch_port) {
            return true;
        }
        let Some(id) = bucket.watch_group else { return false };
        self.record.lookups.group(self.bridge.id, id);
        let Some(watched) = self.bridge.tables.groups().get(id).cloned() else { return false };
        // A group that depends on itself is not live by itself.
        if watched.id() == group.id() || looks.under_way.contains(&watched.id()) {
            return false;
        }
        looks.under_way.push(group.id());
        let mut alive = false;
        for inner in &watched.buckets {
            if looks.left == 0 {
                break;
            }
            looks.left -= 1;
            alive = self.bucket_is_alive(&watched, inner, looks);
            if alive {
                break;
            }
        }
        looks.under_way.pop();
        alive
    }

    /// Executes a bucket on a copy of the packet: neither its changes nor `exit` reach later actions.
    fn run_bucket(&mut self, group: &Arc<Group>, n: usize) {
        if self.control.buckets >= MAX_BUCKETS {
            return self.fail(XlateDrop::TooManyResubmits, format!("over {MAX_BUCKETS} group buckets"));
        }
        self.control.buckets += 1;
        let bucket = &group.buckets[n];
        self.record.trace.push(|id| TraceEvent::Bucket(*id), &bucket.id);
        let (flow, was_mpls, n_pending) = (self.packet.flow, self.packet.was_mpls, self.packet.n_pending);
        let in_bucket = std::mem::replace(&mut self.control.in_bucket, true);
        let run = |cx: &mut Self| {
            cx.run_actions(&bucket.actions);
            cx.freeze_if_asked();
        };
        // Later outputs need the headers that it pops or pushes. OVS sends them the packet without its headers, or aborts.
        let clones = !self.control.is_last && bucket.actions.iter().any(changes_packet_type);
        self.nest(true, |cx| if clones { cx.on_clone(run) } else { run(cx) });
        self.control.in_bucket = in_bucket;
        (self.packet.flow, self.packet.was_mpls) = (flow, was_mpls);
        self.forget_headers(n_pending);
        self.end_bucket();
        self.record.trace.pop();
    }
}

fn changes_packet_type(action: &Action) -> bool {
    matches!(action, Action::Encap(_) | Action::Decap(_))
}

/// Bounds of a search for live buckets.
struct Looks {
    /// Groups whose liveness is being determined.
    under_way: Vec<u32>,
    /// Buckets that may still be examined.
    left: u32,
}

fn not_live(bucket: &Bucket) -> String {
    let port = (bucket.watch_port != flow::OfPort::NONE).then(|| format!("port {}", bucket.watch_port));
    // As in OVS, both are called ports.
    let group = bucket.watch_group.map(|id| format!("port {id}"));
    let both: Vec<String> = port.into_iter().chain(group).collect();
    format!("bucket {}: not live due to {}", bucket.id, both.join(" and "))
}
