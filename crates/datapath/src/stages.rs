//! Burst stages common to all packets, as kernels: loops over the arrays of the burst, compiled for each instruction
//! set ([`simd`]).
//!
//! Loads that miss the processor's caches are prefetched in an earlier pass, to overlap them; only for large
//! structures.

use crate::burst::{Arrays, Burst};
use crate::cache::SignatureCache;
use crate::hash::{KeyHasher, split_mix};
use crate::megaflow::{First, MegaflowTable};
use flow::extract::{Metadata, extract};
use flow::template::Common;
use packet::BATCH_MAX_PACKETS;
use simd::{Kernel, Lanes};

/// In [`Burst::results`]: no megaflow matched.
pub(crate) const MISS: u32 = u32::MAX;
/// In [`Burst::results`]: waits behind a ticket.
pub(crate) const WAITS: u32 = u32::MAX - 1;

/// Bytes → keys and header offsets. Returns the number of packets parsed by the template.
pub(crate) struct Extract<'a> {
    pub(crate) burst: &'a mut Burst,
    pub(crate) md: Metadata,
    pub(crate) vlan_limit: u8,
    /// Parses common packets by the template.
    pub(crate) template: bool,
}

impl Kernel for Extract<'_> {
    type Output = u64;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> u64 {
        let Arrays { packets, keys, layouts, .. } = &mut *self.burst.arrays;
        let common = Common::new(&self.md, self.vlan_limit);
        #[cfg(test)]
        crate::tests::parses::count(packets.len());
        let mut hits = 0;
        for ((packet, key), layout) in packets.iter().zip(&mut keys[..]).zip(layouts) {
            let head = if self.template { packet.head() } else { None };
            // Not in a closure, which would be compiled for the baseline.
            let parsed = match head {
                Some(head) => common.extract(head, packet.len(), key, lanes),
                None => None,
            };
            *layout = match parsed {
                Some(parsed) => {
                    hits += 1;
                    parsed
                }
                None => extract(packet.data(), &self.md, self.vlan_limit, key),
            };
        }
        hits
    }
}

/// Keys → hashes, of packets without a result. Prefetches the buckets of a large cache as soon as each is known: the rest of
/// the burst is hashed before the first is read.
pub(crate) struct Hash<'a> {
    pub(crate) burst: &'a mut Burst,
    pub(crate) hasher: &'a KeyHasher,
    pub(crate) cache: &'a SignatureCache,
}

impl Kernel for Hash<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let far = self.cache.worth_prefetching();
        for lane in self.burst.without_result() {
            let hash = self.hasher.key(&self.burst.arrays.keys[lane]);
            self.burst.hashes[lane] = hash;
            if far {
                self.cache.prefetch(hash);
            }
        }
    }
}

/// Hashes → megaflows by the cache, of packets without a result; misses go on the list of misses. Returns the lookups, and the
/// hits among them.
pub(crate) struct FindCached<'a> {
    pub(crate) burst: &'a mut Burst,
    pub(crate) table: &'a mut MegaflowTable,
    pub(crate) cache: &'a SignatureCache,
    pub(crate) now_ms: u64,
}

impl Kernel for FindCached<'_> {
    type Output = (u64, u64);

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) -> (u64, u64) {
        let FindCached { burst, table, cache, now_ms } = self;
        let left = burst.without_result();
        let mut hints = [MISS; BATCH_MAX_PACKETS];
        for lane in left {
            hints[lane] = cache.hint(burst.hashes[lane]).unwrap_or(MISS);
        }
        if table.worth_prefetching() {
            left.for_each(|lane| table.prefetch(hints[lane]));
            // If the first packet has extension blocks, the others probably do, too.
            if burst.arrays.keys[0].base.shape != 0 {
                left.for_each(|lane| table.prefetch_extensions(hints[lane]));
            }
        }
        burst.misses.clear();
        let mut hits = 0;
        for lane in left {
            let (key, bytes) = (&burst.arrays.keys[lane], burst.arrays.packets[lane].len() as u64);
            let mut id = hints[lane];
            let mut list = table.hit(id, key, bytes, now_ms);
            if list.is_none() && id != MISS {
                id = second_hint(cache, table, burst.hashes[lane], key);
                list = table.hit(id, key, bytes, now_ms);
            }
            match list {
                Some(list) => {
                    burst.results[lane] = id;
                    burst.lists[lane] = list;
                    hits += 1;
                }
                None => burst.misses.push(lane as u32),
            }
        }
        (left.count() as u64, hits)
    }
}

/// The megaflow of a packet with an ambiguous signature, or [`MISS`].
#[cold]
fn second_hint(cache: &SignatureCache, table: &MegaflowTable, hash: u64, key: &flow::FlowKey) -> u32 {
    cache.find(hash, |id| table.confirms(id, key)).unwrap_or(MISS)
}

/// The misses → megaflows by the ranked subtables. Returns hits, and subtables visited for them.
pub(crate) struct FindMegaflows<'a> {
    pub(crate) burst: &'a mut Burst,
    pub(crate) table: &'a mut MegaflowTable,
    pub(crate) cache: Option<&'a mut SignatureCache>,
    /// Inserts one in this number of hits into the cache.
    pub(crate) insert_inv_prob: u32,
    pub(crate) random: &'a mut u64,
    pub(crate) now_ms: u64,
}

impl Kernel for FindMegaflows<'_> {
    type Output = (u64, u64);

    #[inline(always)]
    fn run<L: Lanes>(mut self, _: L) -> (u64, u64) {
        let (burst, table) = (self.burst, self.table);
        let (mut hits, mut lookups) = (0, 0);
        let Some(first) = burst.misses.first() else { return (0, 0) };
        // Packets of one burst come from one port, except recirculated ones.
        let mut port = burst.arrays.keys[*first as usize].base.in_port;
        let mut rank = table.rank_of(port);
        let mut firsts = [First::NONE; BATCH_MAX_PACKETS];
        if let Some(rank) = rank.filter(|_| table.worth_prefetching() && burst.misses.len() > 1) {
            for &i in &burst.misses {
                firsts[i as usize] = table.prefetch_first(rank, &burst.arrays.keys[i as usize]);
            }
            firsts.iter().for_each(|first| table.prefetch_slot(*first));
        }
        for &i in &burst.misses {
            let i = i as usize;
            let key = &burst.arrays.keys[i];
            if key.base.in_port != port {
                port = key.base.in_port;
                rank = table.rank_of(port);
                firsts = [First::NONE; BATCH_MAX_PACKETS];
            }
            let Some(rank) = rank else { continue };
            let found = table.lookup_in(rank, key, firsts[i]);
            let Some(id) = found.id else { continue };
            let Some(slot) = table.slab().get_mut(id) else { continue };
            slot.account(1, burst.arrays.packets[i].len() as u64, key.tcp_flags(), self.now_ms);
            burst.results[i] = id;
            burst.lists[i] = slot.list;
            hits += 1;
            lookups += u64::from(found.visited);
            if let Some(cache) = &mut self.cache
                && (self.insert_inv_prob <= 1
                    || split_mix(self.random).is_multiple_of(self.insert_inv_prob.into()))
            {
                cache.insert(burst.hashes[i], id, self.insert_inv_prob);
            }
        }
        (hits, lookups)
    }
}
