//! Mirrors of a bridge (`Mirror` of the database): which bundles each selects, and where its copies go.
//!
//! A bridge has [`MIRRORS_MAX`] mirrors at most. A set of them is a [`MirrorSet`]: a bit for each, by its place. A mirror
//! keeps its place while it exists, so the order of copies does not depend on later mirrors.

use crate::ids::BundleId;
use crate::ports::VlanSet;
use flow::text::{NoPortNames, ParseError, parse_exact_match, parse_match};
use flow::{Flow, Mask, Match};
use std::collections::HashMap;
use std::sync::Arc;
use sync::{AtomicU64, Ordering};

/// Maximum number of mirrors of a bridge.
pub const MIRRORS_MAX: usize = 32;

/// A set of mirrors of a bridge.
pub type MirrorSet = u32;

/// Where the copies of a mirror go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MirrorOutput {
    /// To a bundle, which then sends and takes nothing else.
    Bundle(BundleId),
    /// To all bundles of a VLAN (RSPAN).
    Vlan(u16),
}

/// A match of the packets that are mirrored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MirrorFilter {
    matching: Match,
}

impl MirrorFilter {
    /// Parses a filter. As in OVS, in the syntax of one packet's fields; unlike in OVS, values may have masks, and the
    /// checks of matches of rules apply then.
    ///
    /// # Errors
    /// The text is not a filter, or has an input port: the bundles select that.
    pub fn parse(text: &str) -> Result<MirrorFilter, String> {
        let matching = match parse_exact_match(text, &NoPortNames) {
            Err(e) if is_masked(&e) => parse_match(text, &NoPortNames).ok(),
            Err(e) => return Err(format!("filter is invalid: {text}: {}", e.message)),
            Ok(matching) => Some(matching),
        };
        let matching = matching.ok_or_else(|| format!("filter is invalid: {text}: not a match"))?;
        if matching.mask().0.in_port != 0 {
            return Err("filter is invalid due to in_port field.".to_string());
        }
        Ok(MirrorFilter::of(&matching))
    }

    /// The filter of a match.
    fn of(matching: &Match) -> MirrorFilter {
        MirrorFilter { matching: *matching }
    }

    /// Bits that it compares.
    pub(crate) fn mask(&self) -> &Mask {
        self.matching.mask()
    }

    /// Whether a packet with this flow passes.
    pub fn passes(&self, flow: &Flow) -> bool {
        self.matching.matches(flow)
    }
}

fn is_masked(error: &ParseError) -> bool {
    error.message.contains("wildcards not allowed here")
}

/// Packets and bytes that a mirror selected.
#[derive(Debug, Default)]
pub struct MirrorCounters {
    /// Packets.
    pub packets: AtomicU64,
    /// Bytes.
    pub bytes: AtomicU64,
}

impl MirrorCounters {
    /// Counts packets.
    pub(crate) fn credit(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A mirror, its bundles aside.
#[derive(Clone, Debug)]
pub struct Mirror {
    /// Its number, never used again in its bridge.
    pub id: u32,
    /// Its place.
    pub place: u8,
    /// Its name.
    pub name: String,
    /// Where its copies go.
    pub output: MirrorOutput,
    /// VLANs that it selects; `None`: all.
    pub vlans: Option<VlanSet>,
    /// Bytes after which a copy is cut; 0: never.
    pub snaplen: u16,
    /// Packets that it selects; `None`: all.
    pub filter: Option<Arc<MirrorFilter>>,
    /// Its counters.
    pub counters: Arc<MirrorCounters>,
}

/// The mirrors that concern a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BundleMirrors {
    /// Mirrors of packets that it receives.
    pub of_received: MirrorSet,
    /// Mirrors of packets that it sends.
    pub of_sent: MirrorSet,
    /// Mirrors whose copies go to it.
    pub into: MirrorSet,
}

/// The mirrors of a bridge.
#[derive(Clone, Debug, Default)]
pub struct Mirrors {
    by_place: Vec<Option<Mirror>>,
    /// By place, the mirrors with the same output, the mirror itself included.
    same_output: Vec<MirrorSet>,
    by_bundle: HashMap<BundleId, BundleMirrors>,
}

/// Bundles that a mirror selects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selected {
    /// Bundles whose received packets are mirrored.
    pub received: Vec<BundleId>,
    /// Bundles whose sent packets are mirrored.
    pub sent: Vec<BundleId>,
}

impl Mirrors {
    /// The given mirrors; those without a place of their own below [`MIRRORS_MAX`] are left out.
    pub fn new(mirrors: impl IntoIterator<Item = (Mirror, Selected)>) -> Mirrors {
        let mut all = Mirrors::default();
        for (mirror, selected) in mirrors {
            let place = usize::from(mirror.place);
            if place >= MIRRORS_MAX || all.get(place).is_some() {
                continue;
            }
            let bit: MirrorSet = 1 << place;
            for bundle in selected.received {
                all.by_bundle.entry(bundle).or_default().of_received |= bit;
            }
            for bundle in selected.sent {
                all.by_bundle.entry(bundle).or_default().of_sent |= bit;
            }
            if let MirrorOutput::Bundle(bundle) = mirror.output {
                all.by_bundle.entry(bundle).or_default().into |= bit;
            }
            if all.by_place.len() <= place {
                all.by_place.resize_with(place + 1, || None);
            }
            all.by_place[place] = Some(mirror);
        }
        let places = 0..all.by_place.len();
        let same = |place: usize| {
            let Some(output) = all.get(place).map(|mirror| mirror.output) else { return 0 };
            let others = all.iter().filter(|other| other.output == output);
            others.fold(0, |set, other| set | 1 << other.place)
        };
        all.same_output = places.map(same).collect();
        all
    }

    /// The mirror at that place.
    pub fn get(&self, place: usize) -> Option<&Mirror> {
        self.by_place.get(place)?.as_ref()
    }

    /// All mirrors, by place.
    pub fn iter(&self) -> impl Iterator<Item = &Mirror> {
        self.by_place.iter().flatten()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The mirrors with the output of the one at that place, itself included.
    pub(crate) fn same_output(&self, place: usize) -> MirrorSet {
        self.same_output.get(place).copied().unwrap_or(0)
    }

    /// The mirrors that concern a bundle.
    pub fn of(&self, bundle: BundleId) -> BundleMirrors {
        self.by_bundle.get(&bundle).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
