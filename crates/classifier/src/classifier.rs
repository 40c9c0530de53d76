//! The classifier: its subtables in order of priority, its prefix tries, and its queries.
//!
//! Invariants: each subtable has a rule; it is in `subtables` under its highest priority; `ranks` has each
//! subtable's mask; each trie holds the prefixes of all rules whose mask is a prefix on its field.

use crate::ClsRule;
use crate::hash::BuildKeyed;
use crate::prefixes::{PrefixSet, leading};
use crate::subtable::{PrefixLookup, Subtable};
use flow::fields::FieldId;
use flow::{Flow, Mask, Match, PackedMask, PackedMatch};
use std::cmp::Reverse;
use std::sync::Arc;

/// Maximum fields with a prefix trie.
pub const MAX_PREFIX_FIELDS: usize = 4;

/// The default fields with a trie, as in Open vSwitch 3.5.
pub const DEFAULT_PREFIX_FIELDS: [FieldId; MAX_PREFIX_FIELDS] =
    [FieldId::IpDst, FieldId::IpSrc, FieldId::Ipv6Dst, FieldId::Ipv6Src];

/// Rank of a subtable in lookup order. Among equal priorities, a new or raised subtable is behind the others, a
/// lowered one before them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    max_priority: Reverse<i32>,
    place: i64,
}

type Ranks = imbl::GenericHashMap<PackedMask, Rank, BuildKeyed, imbl::shared_ptr::DefaultSharedPtr>;

/// A field and its prefixes.
#[derive(Clone)]
pub(crate) struct PrefixField {
    field: FieldId,
    set: PrefixSet,
}

/// Bits of a field, at most 128.
fn width_of(field: FieldId) -> u8 {
    field.def().bits.min(128) as u8
}

impl PrefixField {
    fn new(field: FieldId) -> PrefixField {
        PrefixField { field, set: PrefixSet::new(width_of(field)) }
    }

    pub(crate) fn id(&self) -> FieldId {
        self.field
    }

    fn width(&self) -> u8 {
        width_of(self.field)
    }

    /// The first `len` bits of the field.
    pub(crate) fn leading_bits(&self, len: u8) -> u128 {
        leading(len) >> (128 - self.width())
    }

    /// Prefix length of `mask` on the field; 0 if it is no prefix.
    pub(crate) fn prefix_len(&self, mask: &Mask) -> u8 {
        let bits = self.field.get(&mask.0);
        let len = bits.count_ones() as u8;
        if bits == self.leading_bits(len) { len } else { 0 }
    }

    fn value(&self, flow: &Flow) -> u128 {
        self.field.get(flow) << (128 - self.width())
    }
}

/// Results of a lookup in one field's trie.
#[derive(Default)]
pub(crate) struct PrefixesOfFlow {
    value: Option<u128>,
    /// By length less one: whether it was queried, and whether the set has it.
    asked: u128,
    present: u128,
    deciding_bits: Option<u8>,
    /// The packet lacks the field, so the trie does not apply.
    is_mute: bool,
}

impl PrefixesOfFlow {
    fn value(&mut self, field: &PrefixField, flow: &Flow) -> u128 {
        *self.value.get_or_insert_with(|| {
            self.is_mute = !field.field.prereq_holds(flow, None);
            field.value(flow)
        })
    }

    /// Whether a rule with a prefix of `len` bits may match `flow`.
    pub(crate) fn may_match(&mut self, field: &PrefixField, flow: &Flow, len: u8) -> bool {
        let value = self.value(field, flow);
        let bit = 1 << (len - 1);
        if self.asked & bit == 0 && !self.is_mute {
            self.asked |= bit;
            self.present |= if field.set.contains(value, len) { bit } else { 0 };
        }
        self.is_mute || self.present & bit != 0
    }

    /// Number of leading bits that determine this for all lengths.
    pub(crate) fn deciding_bits(&mut self, field: &PrefixField, flow: &Flow) -> u8 {
        let value = self.value(field, flow);
        *self.deciding_bits.get_or_insert_with(|| field.set.deciding_bits(value))
    }
}

/// Position of a walk over rules; see [`Classifier::walk`].
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// Remaining masks, the current one last.
    masks: Vec<PackedMask>,
    /// Hash to resume at in the subtable of the current mask.
    from: u64,
}

impl Walk {
    /// Whether the walk is complete.
    pub fn is_done(&self) -> bool {
        self.masks.is_empty()
    }
}

/// Result of [`Classifier::lookup_conjunctive`].
pub struct Lookup<'a, R> {
    /// The best rule that is not soft.
    pub hard: Option<&'a R>,
    /// Soft rules above it, highest priority first.
    pub soft: Vec<&'a R>,
}

/// The choice among the rules of one match.
#[derive(PartialEq, Eq)]
enum Pick {
    /// This one.
    Take,
    /// One of those below.
    Pass,
    /// None.
    None,
}

/// Sizes of a classifier's parts; all 0 when it is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// Rules.
    pub rules: usize,
    /// Subtables, one per mask.
    pub subtables: usize,
    /// Entries of the table of masks.
    pub masks: usize,
    /// Entries of all stage indices.
    pub index_entries: usize,
    /// Prefixes in all tries.
    pub prefixes: usize,
    /// Port prefixes in the tries of all subtables.
    pub port_prefixes: usize,
}

/// The rules of an OpenFlow table. Cloning is O(1) and gives a snapshot.
///
/// Priorities are signed, so that hidden rules fit above and below OpenFlow's 0 to 65535. Among matching rules of
/// equal priority the result is unspecified, but the same for all packets that agree in the wildcards.
///
/// `R` is cheap to clone, such as a reference-counted pointer.
#[derive(Clone)]
pub struct Classifier<R> {
    seed: u64,
    len: usize,
    subtables: imbl::OrdMap<Rank, Arc<Subtable<R>>>,
    ranks: Ranks,
    prefixes: [Option<PrefixField>; MAX_PREFIX_FIELDS],
    /// The next rank behind all others, and the next before them.
    next_places: (i64, i64),
}

impl<R: ClsRule + Clone> Classifier<R> {
    /// An empty classifier with tries on [`DEFAULT_PREFIX_FIELDS`]. `seed` keys its hashes: keep it secret from
    /// parties that can cause rules to be added.
    pub fn new(seed: u64) -> Classifier<R> {
        let mut new = Classifier {
            seed,
            len: 0,
            subtables: imbl::OrdMap::new(),
            ranks: Ranks::with_hasher(BuildKeyed(seed)),
            prefixes: Default::default(),
            next_places: (0, -1),
        };
        new.set_prefix_fields(&DEFAULT_PREFIX_FIELDS);
        new
    }

    /// An empty classifier with the same seed and prefix fields.
    pub fn emptied(&self) -> Classifier<R> {
        let mut new = Classifier::new(self.seed);
        new.set_prefix_fields(&self.prefix_fields().collect::<Vec<_>>());
        new
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no rules.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Packs a match. Shares an existing mask of the rules.
    pub fn pack(&self, m: &Match) -> PackedMatch {
        let mask = PackedMask::new(m.mask());
        let shared = self.subtable_of(&mask).map(|table| table.packed_mask().clone());
        PackedMatch::with_mask(&shared.unwrap_or(mask), m)
    }

    /// The same match, with the shared mask of the rules.
    pub fn share(&self, m: &PackedMatch) -> PackedMatch {
        self.subtable_of(m.mask()).map_or_else(|| m.clone(), |table| m.sharing(table.packed_mask()))
    }

    /// Adds a rule. Replaces and returns an existing rule with the same match and priority.
    pub fn insert(&mut self, rule: R) -> Option<R> {
        let (m, priority) = (rule.matching().clone(), rule.priority());
        let rank = match self.ranks.get(m.mask()) {
            Some(rank) => *rank,
            None => self.add_subtable(m.mask(), priority),
        };
        let Some(shared) = self.subtables.get_mut(&rank) else { unreachable!("each mask has its subtable") };
        let table = Arc::make_mut(shared);
        let replaced = table.insert(rule);
        if replaced.is_none() {
            self.len += 1;
            if table.has_prefixes() {
                let flow = m.mask().flow_of(m.values());
                for (i, prefix) in self.prefixes.iter_mut().enumerate() {
                    if let Some(prefix) = prefix.as_mut().filter(|_| table.prefix_len(i) > 0) {
                        prefix.set.insert(prefix.value(&flow), table.prefix_len(i));
                    }
                }
            }
            if priority > rank.max_priority.0 {
                let place = self.place_behind();
                self.move_subtable(m.mask(), rank, Rank { max_priority: Reverse(priority), place });
            }
        }
        replaced
    }

    /// Removes and returns the rule of exactly that match and priority.
    pub fn remove(&mut self, m: &PackedMatch, priority: i32) -> Option<R> {
        self.remove_if(m, priority, |_| true)
    }

    /// Removes and returns the rule of exactly that match and priority, if it satisfies `is_wanted`.
    pub fn remove_if(
        &mut self,
        m: &PackedMatch,
        priority: i32,
        is_wanted: impl FnOnce(&R) -> bool,
    ) -> Option<R> {
        let rank = *self.ranks.get(m.mask())?;
        // A miss copies nothing.
        let (at, _) = self.subtables.get(&rank)?.locate(m, priority).filter(|(_, rule)| is_wanted(rule))?;
        let table = Arc::make_mut(self.subtables.get_mut(&rank)?);
        let removed = table.remove(&at, m, priority)?;
        self.len -= 1;
        if table.has_prefixes() {
            let flow = m.mask().flow_of(m.values());
            for (i, prefix) in self.prefixes.iter_mut().enumerate() {
                if let Some(prefix) = prefix.as_mut().filter(|_| table.prefix_len(i) > 0) {
                    prefix.set.remove(prefix.value(&flow), table.prefix_len(i));
                }
            }
        }
        match table.priorities().max() {
            None => {
                self.subtables.remove(&rank);
                self.ranks.remove(m.mask());
            }
            Some(max) if max < rank.max_priority.0 => {
                let place = self.place_before();
                self.move_subtable(m.mask(), rank, Rank { max_priority: Reverse(max), place });
            }
            Some(_) => {}
        }
        Some(removed)
    }

    fn place_behind(&mut self) -> i64 {
        let place = self.next_places.0;
        self.next_places.0 += 1;
        place
    }

    fn place_before(&mut self) -> i64 {
        let place = self.next_places.1;
        self.next_places.1 -= 1;
        place
    }

    fn add_subtable(&mut self, mask: &PackedMask, priority: i32) -> Rank {
        let rank = Rank { max_priority: Reverse(priority), place: self.place_behind() };
        self.subtables.insert(rank, Arc::new(Subtable::new(self.seed, mask, &self.prefixes)));
        self.ranks.insert(mask.clone(), rank);
        rank
    }

    fn move_subtable(&mut self, mask: &PackedMask, from: Rank, to: Rank) {
        if let Some(table) = self.subtables.remove(&from) {
            self.subtables.insert(to, table);
        }
        if let Some(rank) = self.ranks.get_mut(mask) {
            *rank = to;
        }
    }

    fn subtable_of(&self, mask: &PackedMask) -> Option<&Subtable<R>> {
        let rank = self.ranks.get(mask)?;
        self.subtables.get(rank).map(|table| &**table)
    }

    /// The rule of exactly that match and priority.
    pub fn find_exactly(&self, m: &PackedMatch, priority: i32) -> Option<&R> {
        self.subtable_of(m.mask())?.locate(m, priority).map(|(_, rule)| rule)
    }

    /// The rule of highest priority that matches `flow`; soft rules count as any other.
    ///
    /// Adds to `wc` the bits of `flow` that the lookup depended on: every flow that agrees in these bits gets the
    /// same result. Bits that translation always needs (input port, EtherType and so on) are not added for that
    /// reason.
    pub fn lookup(&self, flow: &Flow, wc: Option<&mut Mask>) -> Option<&R> {
        self.search(flow, wc, |_| Pick::Take)
    }

    /// The hard rule of highest priority below `priority` that matches `flow`: one that a rule of that priority hides.
    pub fn lookup_below(&self, flow: &Flow, priority: i32) -> Option<&R> {
        let is_hidden = |rule: &R| rule.priority() >= priority || rule.is_soft();
        self.search(flow, None, |rule| if is_hidden(rule) { Pick::Pass } else { Pick::Take })
    }

    /// The hard rule of highest priority that matches `flow`, without those that a soft rule of the same match hides. Adds to
    /// `wc` as [`Classifier::lookup`] does. OVS looks up the id of a complete conjunction so.
    pub fn lookup_unhidden(&self, flow: &Flow, wc: Option<&mut Mask>) -> Option<&R> {
        self.search(flow, wc, |rule| if rule.is_soft() { Pick::None } else { Pick::Take })
    }

    /// As [`Classifier::lookup`], except that a soft rule ([`ClsRule::is_soft`]) does not end the search. Returns
    /// the best hard rule, and the matching soft rules of higher priority, highest priority first. The bits of `wc`
    /// determine all of these, and the non-matching ones.
    pub fn lookup_conjunctive(&self, flow: &Flow, wc: Option<&mut Mask>) -> Lookup<'_, R> {
        let mut soft = Vec::new();
        let hard = self.search(flow, wc, |rule| {
            if rule.is_soft() {
                soft.push(rule);
                return Pick::Pass;
            }
            Pick::Take
        });
        soft.retain(|rule| hard.is_none_or(|hard| rule.priority() > hard.priority()));
        soft.sort_by_key(|rule| Reverse(rule.priority()));
        Lookup { hard, soft }
    }

    /// The best rule that matches `flow`, of those that `pick` takes. It sees the rules of one match by descending priority.
    fn search<'a>(
        &'a self,
        flow: &Flow,
        mut wc: Option<&mut Mask>,
        mut pick: impl FnMut(&'a R) -> Pick,
    ) -> Option<&'a R> {
        let mut tries = PrefixLookup::new(&self.prefixes);
        let mut best: Option<&R> = None;
        for (rank, table) in &self.subtables {
            if best.is_some_and(|best| best.priority() >= rank.max_priority.0) {
                break;
            }
            let candidates = match wc.as_deref_mut() {
                Some(wc) => table.find_staged(flow, &mut tries, wc),
                None => table.find(flow),
            };
            let mut picks = candidates.matching(flow).map(|rule| (pick(rule), rule));
            let found = picks.find(|(pick, _)| *pick != Pick::Pass);
            let found = found.and_then(|(pick, rule)| (pick == Pick::Take).then_some(rule));
            if found.is_some_and(|found| best.is_none_or(|best| found.priority() > best.priority())) {
                best = found;
            }
        }
        best
    }

    /// All rules, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &R> {
        self.subtables.values().flat_map(|table| table.iter())
    }

    /// The rules whose match is within `m` (as selected by a non-strict flow-mod), in no particular order. Examines
    /// only subtables whose mask contains that of `m`.
    pub fn within(&self, m: &Match) -> impl Iterator<Item = &R> {
        let m = *m;
        let tables = self.subtables.values().filter(move |table| table.mask().contains(m.mask()));
        tables.flat_map(move |table| table.within(m))
    }

    /// Begins a walk over the rules of [`Classifier::within`], in the same order, in slices by
    /// [`Classifier::walk_on`].
    pub fn walk(&self, m: &Match) -> Walk {
        let tables = self.subtables.values().filter(|table| table.mask().contains(m.mask()));
        let mut masks: Vec<_> = tables.map(|table| table.packed_mask().clone()).collect();
        masks.reverse();
        Walk { masks, from: 0 }
    }

    /// Continues a walk of the same match: adds rules to `out`; examines about `max` rules, those of one hash
    /// together. Returns the number examined. Each rule present throughout is returned once.
    pub fn walk_on(&self, walk: &mut Walk, m: &Match, max: usize, out: &mut Vec<R>) -> usize {
        let mut looked = 0;
        while looked < max
            && let Some(mask) = walk.masks.last()
        {
            let table = self.subtable_of(mask);
            let slice = table.map(|table| table.within_from(m, walk.from, max - looked, out));
            let (next, n) = slice.unwrap_or((None, 1));
            looked += n.max(1);
            walk.from = next.unwrap_or(0);
            if next.is_none() {
                walk.masks.pop();
            }
        }
        looked
    }

    /// Whether a rule of that priority overlaps `m`: some packet matches both (OFPFF_CHECK_OVERLAP). A rule with the
    /// same match counts.
    pub fn overlaps(&self, m: &Match, priority: i32) -> bool {
        self.subtables
            .iter()
            .take_while(|(rank, _)| rank.max_priority.0 >= priority)
            .any(|(_, table)| table.overlaps(m, priority))
    }

    /// The fields that have a prefix trie.
    pub fn prefix_fields(&self) -> impl Iterator<Item = FieldId> {
        self.prefixes.iter().flatten().map(PrefixField::id)
    }

    /// Sets the fields with a prefix trie. Existing tries are kept; new ones are built from the rules whose mask is
    /// a prefix there. Ignores repeated fields, fields that share bits with others (such as `dl_vlan`, which matches
    /// the tag's presence as well), and all after [`MAX_PREFIX_FIELDS`].
    pub fn set_prefix_fields(&mut self, fields: &[FieldId]) {
        let mut taken: Vec<FieldId> = Vec::new();
        for field in fields.iter().copied().filter(|f| is_plain(*f)) {
            if taken.len() < MAX_PREFIX_FIELDS && !taken.contains(&field) {
                taken.push(field);
            }
        }
        if self.prefix_fields().eq(taken.iter().copied()) {
            return;
        }
        let mut prefixes: [Option<PrefixField>; MAX_PREFIX_FIELDS] = Default::default();
        let mut is_new = [false; MAX_PREFIX_FIELDS];
        for ((slot, is_new), field) in prefixes.iter_mut().zip(&mut is_new).zip(taken) {
            let kept = self.prefixes.iter().flatten().find(|prefix| prefix.field == field);
            *is_new = kept.is_none();
            *slot = Some(kept.cloned().unwrap_or_else(|| PrefixField::new(field)));
        }
        let ranks: Vec<Rank> = self.subtables.keys().copied().collect();
        for rank in ranks {
            if let Some(table) = self.subtables.get_mut(&rank) {
                Arc::make_mut(table).use_prefixes(&prefixes);
            }
        }
        for table in self.subtables.values() {
            for (i, prefix) in prefixes.iter_mut().enumerate() {
                let len = table.prefix_len(i);
                let Some(prefix) = prefix.as_mut().filter(|_| len > 0 && is_new[i]) else { continue };
                for rule in table.iter() {
                    let m = rule.matching();
                    prefix.set.insert(prefix.value(&m.mask().flow_of(m.values())), len);
                }
            }
        }
        self.prefixes = prefixes;
    }

    /// Sizes of all parts, for tests and diagnostics.
    pub fn debug_footprint(&self) -> Footprint {
        let mut sum = Footprint {
            subtables: self.subtables.len(),
            masks: self.ranks.len(),
            prefixes: self.prefixes.iter().flatten().map(|p| p.set.len()).sum(),
            ..Footprint::default()
        };
        for table in self.subtables.values() {
            let (rules, index_entries, port_prefixes) = table.footprint();
            sum.rules += rules;
            sum.index_entries += index_entries;
            sum.port_prefixes += port_prefixes;
        }
        sum
    }
}

/// Whether the field's value is exactly its bits in the flow.
fn is_plain(field: FieldId) -> bool {
    let mut all = Flow::default();
    field.set(&mut all, field.full_mask());
    all.words().iter().map(|w| w.count_ones()).sum::<u32>() == u32::from(field.def().bits)
}
