//! Selection of a bucket of a select group.
//!
//! By default, and with the method `dp_hash`, the datapath hashes the packet, and a table maps values of the hash to
//! buckets by their weights. With the method `hash`, or if that table would be too large, the slow path hashes chosen
//! fields and the bucket with the highest score wins (rendezvous hashing): a dead bucket moves only its own packets.

use super::{Bucket, Group};
use dpif::actions::{HashAction, HashAlgorithm};
use flow::fields::FieldId;
use flow::flow_hash::{self, HashFields};
use flow::text::NoPortNames;
use flow::{Flow, Mask};
use openflow::msg::group::{Group as GroupDesc, GroupType};
use openflow::text::format_group;

/// Maximum number of values of the datapath's hash that a map distinguishes.
const DP_HASH_VALUES_MAX: usize = 256;
/// Minimum of the same.
const DP_HASH_VALUES_LEAST: usize = 16;

/// Method of selection.
#[derive(Debug)]
pub enum Method {
    /// By a hash of the datapath.
    DpHash {
        /// The hash.
        hash: HashAction,
        /// Index of the bucket for each value of the hash; a power of two of them.
        map: Box<[u16]>,
    },
    /// By a hash of these bits of fields.
    Fields {
        /// Fields and masks.
        fields: Box<[(FieldId, u128)]>,
        /// Parameter of the hash.
        basis: u64,
    },
    /// By a symmetric hash over addresses and ports.
    SymmetricL4,
}

/// Buckets in the order in which a dead one is replaced.
pub struct Buckets<'a> {
    map: &'a [u16],
    at: usize,
    left: usize,
}

impl Iterator for Buckets<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let bucket = self.map[self.at % self.map.len()];
        self.at += 1;
        Some(bucket.into())
    }
}

impl Method {
    /// The method of a group.
    pub(super) fn new(desc: &GroupDesc) -> Method {
        let selection = desc.selection.as_ref();
        let name = selection.map_or("", |s| s.method.as_str());
        if desc.ty != GroupType::Select {
            return Method::SymmetricL4;
        }
        if name == "hash" {
            // Fields may have fewer bits than their masks in messages.
            let of_field = |(field, mask): &(FieldId, u128)| (*field, mask & field.full_mask());
            let fields: Box<[_]> =
                selection.map_or(Box::default(), |s| s.fields.iter().map(of_field).collect());
            let basis = selection.map_or(0, |s| s.param);
            return if fields.is_empty() { Method::SymmetricL4 } else { Method::Fields { fields, basis } };
        }
        // As in OVS, an unknown algorithm is the first one.
        let algorithm = match selection.map_or(1, |s| s.param >> 32) {
            1 => HashAlgorithm::SymL4,
            _ => HashAlgorithm::L4,
        };
        let weights: Vec<u16> = desc.buckets.iter().map(|b| b.weight).collect();
        match map_of(&weights) {
            Some(map) => {
                let basis = selection.map_or(0, |s| s.param as u32);
                Method::DpHash { hash: HashAction { algorithm, basis }, map }
            }
            None => Method::SymmetricL4,
        }
    }

    /// Adds the examined fields to a mask and returns their hash. Fields that the packet lacks do not count.
    pub fn hash(&self, flow: &Flow, wc: &mut Mask) -> u32 {
        match self {
            Method::Fields { fields, basis } => {
                fields.iter().for_each(|(field, _)| ofp_actions::look_at_prereq(*field, flow, &mut wc.0));
                let present = || fields.iter().filter(|(field, _)| field.prereq_holds(flow, None));
                present().for_each(|(field, mask)| field.add_mask(&mut wc.0, *mask));
                flow_hash::fields(flow, present().copied(), *basis)
            }
            Method::SymmetricL4 | Method::DpHash { .. } => {
                HashFields::SymmetricL4.add_mask(flow, wc);
                HashFields::SymmetricL4.hash(flow, 0)
            }
        }
    }
}

impl Group {
    /// Candidates for a packet with this hash of the datapath, best first; `map` is that of [`Method::DpHash`].
    pub fn candidates<'a>(&self, map: &'a [u16], dp_hash: u32) -> Buckets<'a> {
        Buckets { map, at: dp_hash as usize % map.len(), left: map.len() }
    }
}

impl Bucket {
    /// Score of the bucket for a packet with this hash of [`Method::hash`]: the highest one wins.
    pub fn score(&self, hash: u32) -> u32 {
        let mut n = u64::from(self.id) << 32 | u64::from(hash);
        n = (n ^ n >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        n = (n ^ n >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((n >> 48) as u32) * u32::from(self.weight)
    }
}

/// How the method of a select group is found, a line for each step, as OVS logs it.
pub fn construction(desc: &GroupDesc) -> Vec<String> {
    let mut lines = vec![format!("Constructing select group {}", desc.id)];
    let selection = desc.selection.as_ref().filter(|s| !s.method.is_empty());
    lines.push(match selection {
        Some(s) => format!("Selection method specified: {}.", s.method),
        None => "No selection method specified. Trying dp_hash.".to_string(),
    });
    if selection.is_some_and(|s| s.method == "hash") {
        let head = format_group(&GroupDesc { buckets: Vec::new(), ..desc.clone() }, true, &NoPortNames);
        lines.push(match head.split_once(",fields") {
            Some((_, fields)) => format!("Hash fields: {}", fields.trim_matches(['(', ')', '='])),
            None => "No hash fields. Falling back to default hash method.".to_string(),
        });
        return lines;
    }
    let weights: Vec<u16> = desc.buckets.iter().map(|b| b.weight).collect();
    let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
    match weights.iter().copied().filter(|w| *w > 0).min() {
        _ if weights.is_empty() => lines.push("  Don't apply dp_hash method without buckets.".to_string()),
        None => lines.push("  Total weight is zero. No active buckets.".to_string()),
        Some(least) => {
            lines.push(format!("  Minimum weight: {least}, total weight: {total}"));
            let slots = total.div_ceil(least.into()).next_power_of_two();
            if slots > DP_HASH_VALUES_MAX as u64 {
                lines.push(format!("  Too many hash values required: {slots}"));
            }
        }
    }
    match Method::new(desc) {
        Method::DpHash { hash, map } => {
            lines.push(format!("  Using {} hash values:", map.len()));
            let mut hits = vec![0; desc.buckets.len()];
            map.iter().for_each(|n| hits[usize::from(*n)] += 1);
            for (bucket, hits) in desc.buckets.iter().zip(hits) {
                let target = f64::from(bucket.weight) * map.len() as f64 / total as f64;
                let (id, weight) = (bucket.id, bucket.weight);
                lines.push(format!("  Bucket {id}: weight={weight}, target={target:.2} hits={hits}"));
            }
            let (values, algorithm) = (map.len(), hash.algorithm as u8);
            let asked = selection.map_or(1, |s| s.param >> 32);
            if asked > 1 {
                lines.push(format!("Invalid dp_hash algorithm {asked}. Defaulting to OVS_HASH_ALG_L4"));
            }
            lines.push(format!("Use dp_hash with {values} hash values using algorithm {algorithm}."));
        }
        Method::Fields { .. } | Method::SymmetricL4 => {
            lines.push("Falling back to default hash method.".to_string());
        }
    }
    lines
}

/// Maps values of a hash to buckets, in numbers proportional to their weights (Webster's method: the next value goes
/// to the bucket with the greatest weight for each of its values). `None`: the weights are too different, or all 0.
fn map_of(weights: &[u16]) -> Option<Box<[u16]>> {
    let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
    let least = weights.iter().copied().filter(|w| *w > 0).min()?;
    let slots = usize::try_from(total.div_ceil(least.into())).ok()?.checked_next_power_of_two()?;
    let slots = slots.max(DP_HASH_VALUES_LEAST);
    if slots > DP_HASH_VALUES_MAX || weights.len() > u16::MAX as usize {
        return None;
    }
    let mut divisors = vec![1u64; weights.len()];
    let next = |_| {
        // Compares quotients; the first of equal ones wins.
        let mut best = 0;
        for n in 1..weights.len() {
            if u64::from(weights[n]) * divisors[best] > u64::from(weights[best]) * divisors[n] {
                best = n;
            }
        }
        divisors[best] += 2;
        best as u16
    };
    Some((0..slots).map(next).collect())
}

#[cfg(test)]
mod tests;
