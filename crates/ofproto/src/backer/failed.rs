//! Failed translations for the log: their errors, and the trace of one in a second.

use crate::xlate::Translation;
use dpif::XlateDrop;
use flow::Flow;
use sync::{AtomicU64, BoundedQueue, Ordering};

/// Maximum errors that wait to be logged.
const ERRORS_MAX: usize = 16;
/// Time between two traces: each may be long.
const TRACE_PAUSE_MS: u64 = 1000;

/// A failed translation with its trace.
#[derive(Debug)]
pub struct Failed {
    /// The packet.
    pub flow: Flow,
    /// Its translation.
    pub translation: Translation,
}

/// Failed translations that wait to be logged.
pub struct Failures {
    errors: BoundedQueue<String>,
    traces: BoundedQueue<Failed>,
    next_trace_ms: AtomicU64,
}

impl Default for Failures {
    fn default() -> Failures {
        Failures {
            errors: BoundedQueue::new(ERRORS_MAX),
            traces: BoundedQueue::new(1),
            next_trace_ms: AtomicU64::new(0),
        }
    }
}

impl Failures {
    /// Keeps the error of a packet's translation; if the queue is full, drops it: others of its kind are logged.
    pub fn report(&self, bridge: &str, flow: &Flow, t: &Translation) {
        let Some(fault) = t.fault.as_deref().filter(|_| self.errors.len() < ERRORS_MAX) else { return };
        let flow = flow::text::format_flow(flow);
        let _ = self.errors.push(format!("{fault} on bridge {bridge} while processing {flow}"));
        if let Some(ports) = &t.patch_loop {
            let _ = self.errors.push(format!("bridge {bridge}: loop of patch ports: {ports}"));
        }
    }

    /// Whether a failed translation is to be repeated with a trace. As in OVS, those of loops are.
    pub(crate) fn wants_trace(&self, t: &Translation, now_ms: u64) -> bool {
        let is_loop = matches!(t.error, Some(XlateDrop::RecursionTooDeep | XlateDrop::TooManyResubmits));
        if !is_loop {
            return false;
        }
        let (order, due_ms) = (Ordering::Relaxed, self.next_trace_ms.load(Ordering::Relaxed));
        let next_ms = now_ms.saturating_add(TRACE_PAUSE_MS);
        now_ms >= due_ms && self.next_trace_ms.compare_exchange(due_ms, next_ms, order, order).is_ok()
    }

    /// Keeps a traced translation, unless the last one still waits.
    pub(crate) fn trace(&self, failed: Failed) {
        let _ = self.traces.push(failed);
    }

    /// The next error.
    pub fn next_error(&self) -> Option<String> {
        self.errors.pop()
    }

    /// The next trace.
    pub fn next_trace(&self) -> Option<Failed> {
        self.traces.pop()
    }
}
