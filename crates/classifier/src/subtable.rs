//! The rules of one mask, and the staged lookup among them.
//!
//! Invariants: `indices[i]` counts, for each hash over the first `i + 1` steps, the rules with it; the last step has
//! no index, it searches `rules`. `ports` holds the ports of all rules if the mask has bits there.

use crate::ClsRule;
use crate::blocks::BlockMap;
use crate::bucket::Bucket;
use crate::classifier::{MAX_PREFIX_FIELDS, PrefixField, PrefixesOfFlow};
use crate::hash::Running;
use crate::prefixes::PrefixSet;
use crate::priorities::Priorities;
use crate::shape::{MAX_STEPS, Shape, ports_of};
use flow::{Flow, Mask, Match, PackedMask, PackedMatch};
use std::sync::Arc;

/// Application of a prefix trie to a subtable.
#[derive(Clone, Copy, Default)]
struct PrefixUse {
    /// Length of the mask's prefix on the field; 0 if the mask is no prefix there.
    len: u8,
    /// The step of the field.
    step: u8,
}

/// The rules of one mask.
#[derive(Clone)]
pub(crate) struct Subtable<R> {
    shape: Arc<Shape>,
    seed: u64,
    prefixes: [PrefixUse; MAX_PREFIX_FIELDS],
    priorities: Priorities,
    len: usize,
    rules: BlockMap<Bucket<R>>,
    indices: [BlockMap<u32>; MAX_STEPS - 1],
    ports: PrefixSet,
}

/// Hashes of an existing rule.
pub(crate) struct Located {
    steps: [u64; MAX_STEPS - 1],
    hash: u64,
}

/// The tries of a lookup and their results so far for its flow.
pub(crate) struct PrefixLookup<'a> {
    fields: &'a [Option<PrefixField>; MAX_PREFIX_FIELDS],
    found: [PrefixesOfFlow; MAX_PREFIX_FIELDS],
}

impl<'a> PrefixLookup<'a> {
    pub(crate) fn new(fields: &'a [Option<PrefixField>; MAX_PREFIX_FIELDS]) -> PrefixLookup<'a> {
        PrefixLookup { fields, found: Default::default() }
    }
}

impl<R: ClsRule + Clone> Subtable<R> {
    pub(crate) fn new(
        seed: u64,
        mask: &PackedMask,
        fields: &[Option<PrefixField>; MAX_PREFIX_FIELDS],
    ) -> Subtable<R> {
        let mut table = Subtable {
            shape: Arc::new(Shape::new(mask)),
            seed,
            prefixes: Default::default(),
            priorities: Priorities::default(),
            len: 0,
            rules: BlockMap::default(),
            indices: Default::default(),
            ports: PrefixSet::new(u32::BITS as u8),
        };
        table.use_prefixes(fields);
        table
    }

    /// Records the applicable tries.
    pub(crate) fn use_prefixes(&mut self, fields: &[Option<PrefixField>; MAX_PREFIX_FIELDS]) {
        for (prefix, field) in self.prefixes.iter_mut().zip(fields) {
            let len = field.as_ref().map_or(0, |f| f.prefix_len(&self.shape.mask));
            let step = field.as_ref().filter(|_| len > 0).and_then(|f| self.shape.step_of(f.id()));
            *prefix = step.map_or(PrefixUse::default(), |step| PrefixUse { len, step: step as u8 });
        }
    }

    /// Whether the rules are in any trie.
    pub(crate) fn has_prefixes(&self) -> bool {
        self.prefixes.iter().any(|prefix| prefix.len > 0)
    }

    /// Length of the mask's prefix on the field of trie `i`; 0 if the rules are not in that trie.
    pub(crate) fn prefix_len(&self, i: usize) -> u8 {
        self.prefixes[i].len
    }

    pub(crate) fn mask(&self) -> &Mask {
        &self.shape.mask
    }

    pub(crate) fn priorities(&self) -> &Priorities {
        &self.priorities
    }

    /// The mask, shared with the rules.
    pub(crate) fn packed_mask(&self) -> &PackedMask {
        self.shape.packed()
    }

    /// The hash of the rules' values.
    fn hash(&self, flow: &Flow) -> u64 {
        let mut hash = Running::new(self.seed);
        let words = flow.words();
        self.shape.elements().iter().for_each(|e| hash.add(words[usize::from(e.word)] & e.bits));
        hash.value()
    }

    /// The hashes of a rule: those of the steps before the last, stored in the indices, and that of its values.
    fn hashes(&self, values: &[u64]) -> ([u64; MAX_STEPS - 1], u64) {
        let mut hash = Running::new(self.seed);
        let mut steps = [0; MAX_STEPS - 1];
        let last = self.shape.steps() - 1;
        for (step, held) in steps.iter_mut().enumerate().take(last) {
            self.shape.step_values(step, values).for_each(|word| hash.add(word));
            *held = hash.value();
        }
        self.shape.step_values(last, values).for_each(|word| hash.add(word));
        (steps, hash.value())
    }

    /// Adds a rule whose match has this subtable's mask; returns the one that it replaces.
    pub(crate) fn insert(&mut self, rule: R) -> Option<R> {
        let (steps, hash) = self.hashes(rule.matching().values());
        let priority = rule.priority();
        let ports = (self.shape.ports() != 0).then(|| self.ports_of(rule.matching()));
        if let Some(bucket) = self.rules.get_mut(hash) {
            let replaced = bucket.insert(rule);
            if replaced.is_some() {
                return replaced;
            }
        } else {
            self.rules.insert(hash, Bucket::One(rule));
        }
        self.len += 1;
        self.priorities.add(priority);
        for (index, hash) in self.indices.iter_mut().zip(steps).take(self.shape.steps() - 1) {
            if let Some(n) = index.get_mut(hash) {
                *n += 1;
            } else {
                index.insert(hash, 1);
            }
        }
        if let Some(ports) = ports {
            self.ports.insert(ports, self.shape.ports_len());
        }
        None
    }

    fn ports_of(&self, m: &PackedMatch) -> u128 {
        align_ports(self.shape.ports_of_values(m.values()))
    }

    /// The rule with exactly that match and priority, and its location for [`Subtable::remove`]. `m` has this
    /// subtable's mask.
    pub(crate) fn locate(&self, m: &PackedMatch, priority: i32) -> Option<(Located, &R)> {
        let (steps, hash) = self.hashes(m.values());
        self.rules.get(hash)?.get(priority, m.values()).map(|rule| (Located { steps, hash }, rule))
    }

    /// Removes the rule found by [`Subtable::locate`].
    pub(crate) fn remove(&mut self, at: &Located, m: &PackedMatch, priority: i32) -> Option<R> {
        let rule = match self.rules.get(at.hash)? {
            Bucket::Empty => return None,
            Bucket::One(_) => match self.rules.remove(at.hash)? {
                Bucket::One(rule) => rule,
                Bucket::Empty | Bucket::Many(_) => unreachable!("the bucket holds one rule"),
            },
            Bucket::Many(_) => self.rules.get_mut(at.hash)?.remove(priority, m.values())?,
        };
        self.len -= 1;
        self.priorities.remove(priority);
        for (index, hash) in self.indices.iter_mut().zip(at.steps).take(self.shape.steps() - 1) {
            match index.get(hash) {
                Some(1) => drop(index.remove(hash)),
                _ => *index.get_mut(hash).expect("each rule is in each index") -= 1,
            }
        }
        if self.shape.ports() != 0 {
            self.ports.remove(self.ports_of(m), self.shape.ports_len());
        }
        Some(rule)
    }

    /// The rules with the hash of `flow`.
    pub(crate) fn find(&self, flow: &Flow) -> Candidates<'_, R> {
        Candidates { shape: &self.shape, bucket: self.rules.get(self.hash(flow)) }
    }

    /// The rules with the hash of `flow`; adds to `wc` the bits that determine whether they match it, or that there
    /// are none.
    pub(crate) fn find_staged(
        &self,
        flow: &Flow,
        tries: &mut PrefixLookup<'_>,
        wc: &mut Mask,
    ) -> Candidates<'_, R> {
        let nothing = Candidates { shape: &self.shape, bucket: None };
        let words = flow.words();
        let mut hash = Running::new(self.seed);
        let last = self.shape.steps() - 1;
        for step in 0..=last {
            if self.excluded_by_prefix(step, flow, tries, wc) {
                self.shape.add_steps_before(step, wc);
                return nothing;
            }
            self.shape.step(step).iter().for_each(|e| hash.add(words[usize::from(e.word)] & e.bits));
            if step < last && !self.indices[step].contains(hash.value()) {
                self.shape.add_steps_before(step + 1, wc);
                return nothing;
            }
        }
        let found = Candidates { shape: &self.shape, bucket: self.rules.get(hash.value()) };
        if self.shape.ports() != 0 && found.matching(flow).next().is_none() {
            let ports = align_ports(ports_of(flow) & self.shape.ports());
            self.shape.add_with_ports_prefix(self.ports.deciding_bits(ports), wc);
        } else {
            self.shape.add_steps_before(last + 1, wc);
        }
        found
    }

    /// Whether a trie shows that no rule here can match. Adds the determining bits to `wc`, unless a search of the
    /// subtable itself adds fewer: then the trie is not used.
    fn excluded_by_prefix(
        &self,
        step: usize,
        flow: &Flow,
        tries: &mut PrefixLookup<'_>,
        wc: &mut Mask,
    ) -> bool {
        for (i, prefix) in self.prefixes.iter().enumerate() {
            if prefix.len == 0 || usize::from(prefix.step) != step {
                continue;
            }
            let Some(field) = &tries.fields[i] else { continue };
            let found = &mut tries.found[i];
            if found.may_match(field, flow, prefix.len) {
                continue;
            }
            let deciding = found.deciding_bits(field, flow);
            let bits = field.leading_bits(deciding);
            if deciding <= prefix.len || field.id().get(&wc.0) & bits == bits {
                field.id().add_mask(&mut wc.0, bits);
                return true;
            }
        }
        false
    }

    fn buckets(&self) -> impl Iterator<Item = &Bucket<R>> {
        self.rules.values()
    }

    fn rules_near(&self, m: &Match, exact: bool) -> impl Iterator<Item = &R> + use<'_, R> {
        let one = exact.then(|| self.rules.get(self.hash(m.flow()))).flatten();
        let all = (!exact).then(|| self.buckets());
        one.into_iter().chain(all.into_iter().flatten()).flat_map(Bucket::iter)
    }

    /// All rules.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &R> {
        self.buckets().flat_map(Bucket::iter)
    }

    /// The rules whose match is within `m`.
    pub(crate) fn within(&self, m: Match) -> impl Iterator<Item = &R> {
        let near = self.rules_near(&m, self.mask() == m.mask());
        near.filter(move |rule| self.shape.agrees(rule.matching().values(), &m))
    }

    /// Rules whose match is within `m`, from those of hash `from` on, in the order of their hashes; about `max` of
    /// them. Returns the hash to resume at, and the number of rules examined.
    pub(crate) fn within_from(
        &self,
        m: &Match,
        from: u64,
        max: usize,
        out: &mut Vec<R>,
    ) -> (Option<u64>, usize) {
        if self.mask() == m.mask() {
            let before = out.len();
            out.extend(self.within(*m).cloned());
            return (None, 1 + out.len() - before);
        }
        let mut looked = 0;
        for (hash, bucket) in self.rules.entries_from(from) {
            if looked >= max {
                return (Some(hash), looked);
            }
            let near = bucket.iter().inspect(|_| looked += 1);
            out.extend(near.filter(|rule| self.shape.agrees(rule.matching().values(), m)).cloned());
        }
        (None, looked)
    }

    /// Whether a rule of `priority` overlaps with `m`.
    pub(crate) fn overlaps(&self, m: &Match, priority: i32) -> bool {
        self.priorities.contains(priority)
            && self
                .rules_near(m, m.mask().contains(self.mask()))
                .any(|rule| rule.priority() == priority && self.shape.agrees(rule.matching().values(), m))
    }

    /// Numbers of rules, index entries, port prefixes.
    pub(crate) fn footprint(&self) -> (usize, usize, usize) {
        (self.len, self.indices.iter().map(BlockMap::len).sum(), self.ports.len())
    }
}

/// Rules of one hash, of which the values match one or none.
pub(crate) struct Candidates<'a, R> {
    shape: &'a Shape,
    bucket: Option<&'a Bucket<R>>,
}

impl<'a, R: ClsRule + Clone> Candidates<'a, R> {
    /// Those that match `flow`, highest priority first.
    #[inline]
    pub(crate) fn matching(&self, flow: &Flow) -> impl Iterator<Item = &'a R> {
        let shape = self.shape;
        let all = self.bucket.into_iter().flat_map(Bucket::iter);
        all.filter(move |rule| shape.equals(rule.matching().values(), flow))
    }
}

fn align_ports(ports: u32) -> u128 {
    u128::from(ports) << 96
}
