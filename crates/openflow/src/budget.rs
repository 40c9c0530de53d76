//! Memory that several connections share: one bound over all of them.
//!
//! Each holder has a [`Share`] and asks before it takes memory. The last eighth is for what is under way: from there on
//! ([`Budget::is_short`]) nothing new is begun, and the owner of the connections ends the one that holds most.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bound, and how much of it is used.
#[derive(Debug)]
pub struct Budget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
}

impl Budget {
    /// With nothing used.
    pub fn new(limit_bytes: usize) -> Arc<Budget> {
        Arc::new(Budget { limit_bytes, used_bytes: AtomicUsize::new(0) })
    }

    /// The bound.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// How much of it is used.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Whether only what is under way may take more.
    pub fn is_short(&self) -> bool {
        self.used_bytes() > self.limit_bytes - self.limit_bytes / 8
    }

    /// Whether so many connections use it that each is to hold little.
    pub fn is_half_used(&self) -> bool {
        self.used_bytes() > self.limit_bytes / 2
    }
}

/// The budgets of connections.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// Of what came and is not carried out.
    pub input: Arc<Budget>,
    /// Of what was made and is not sent.
    pub output: Arc<Budget>,
}

impl Budgets {
    /// Two bounds.
    pub fn new(input_bytes: usize, output_bytes: usize) -> Budgets {
        Budgets { input: Budget::new(input_bytes), output: Budget::new(output_bytes) }
    }

    /// For one connection, which its own bounds keep small.
    pub fn unbounded() -> Budgets {
        Budgets::new(usize::MAX, usize::MAX)
    }
}

/// How much of a budget one holder has; given back when it goes.
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

    /// What it has.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more; `false`, and nothing is taken, where the bound would be passed.
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

    /// Holds this much from now on. More only where another share of the budget gave it up.
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
