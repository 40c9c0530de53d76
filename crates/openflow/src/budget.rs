//! Memory shared by several connections: one bound over all of them.
//!
//! Each holder has a [`Share`] and reserves memory before use. The last eighth is for work in progress:
//! beyond it ([`Budget::is_short`]) no new work begins, and the owner of the connections closes the one that
//! holds most.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A memory bound and its usage.
#[derive(Debug)]
pub struct Budget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
}

impl Budget {
    /// Creates an unused budget.
    pub fn new(limit_bytes: usize) -> Arc<Budget> {
        Arc::new(Budget { limit_bytes, used_bytes: AtomicUsize::new(0) })
    }

    /// The bound.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Whether only work in progress may take more.
    pub fn is_short(&self) -> bool {
        self.used_bytes() > self.limit_bytes - self.limit_bytes / 8
    }

    /// Whether so much is in use that each connection should hold little.
    pub fn is_half_used(&self) -> bool {
        self.used_bytes() > self.limit_bytes / 2
    }
}

/// The budgets of connections.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// For received, pending input.
    pub input: Arc<Budget>,
    /// For output not sent yet.
    pub output: Arc<Budget>,
}

impl Budgets {
    /// Two bounds.
    pub fn new(input_bytes: usize, output_bytes: usize) -> Budgets {
        Budgets { input: Budget::new(input_bytes), output: Budget::new(output_bytes) }
    }

    /// For one connection, limited by its own bounds.
    pub fn unbounded() -> Budgets {
        Budgets::new(usize::MAX, usize::MAX)
    }
}

/// One holder's part of a budget; dropping it releases the memory.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Share {
    /// None of it yet.
    pub fn new(budget: &Arc<Budget>) -> Share {
        Share { budget: budget.clone(), bytes: 0 }
    }

    /// The budget.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves more; `false`, without effect, if that would exceed the bound.
    #[must_use]
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let taken = self.budget.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.budget.limit_bytes)
        });
        if taken.is_ok() {
            self.bytes += bytes;
        }
        taken.is_ok()
    }

    /// Sets the held amount. An increase must have been released by another share of the budget.
    pub fn set(&mut self, bytes: usize) {
        self.budget.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.budget.used_bytes.fetch_sub(std::mem::replace(&mut self.bytes, bytes), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}
