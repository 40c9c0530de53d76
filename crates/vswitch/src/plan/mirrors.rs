//! [`MirrorEntry`]: the mirrors of a bridge for translation.

use std::collections::BTreeMap;
use std::sync::Arc;

use ofproto::mirror::{MIRRORS_MAX, Mirror, MirrorFilter, MirrorOutput, Mirrors, Selected};
use ofproto::ports::{Bundle, VlanSet};
use ovsdb::value::Uuid;

use crate::config::{MirrorConfig, MirrorTarget};

/// A mirror of a [`super::PortSet`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorEntry {
    /// Its row.
    pub row: Uuid,
    /// Its number, never used again.
    pub id: u32,
    /// Its place among the mirrors of the bridge, kept while it exists.
    pub place: u8,
    /// Its name.
    pub name: String,
    /// Bundles that it selects.
    pub selected: Selected,
    /// VLANs that it selects; `None`: all.
    pub vlans: Option<VlanSet>,
    /// Packets that it selects; `None`: all.
    pub filter: Option<Arc<MirrorFilter>>,
    /// Where its copies go.
    pub output: MirrorOutput,
    /// Bytes after which a copy is cut; 0: never.
    pub snaplen: u16,
}

/// Places and numbers of the mirrors of a bridge.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    by_row: BTreeMap<Uuid, (u8, u32)>,
    next_id: u32,
}

impl Places {
    /// Keeps those of these mirrors only.
    fn retain(&mut self, configs: &[MirrorConfig]) {
        self.by_row.retain(|row, _| configs.iter().any(|config| config.row == *row));
    }

    /// Place and number of a mirror; `None`: all places are taken.
    fn of(&mut self, row: Uuid) -> Option<(u8, u32)> {
        if let Some(held) = self.by_row.get(&row) {
            return Some(*held);
        }
        let is_free = |place: &u8| !self.by_row.values().any(|(used, _)| used == place);
        let place = (0..MIRRORS_MAX as u8).find(is_free)?;
        let held = (place, self.next_id);
        self.next_id += 1;
        self.by_row.insert(row, held);
        Some(held)
    }
}

/// The entries of a bridge's mirrors with these bundles. A mirror whose output port is not open is left out, as is one
/// beyond the maximum.
pub(super) fn entries(
    configs: &[MirrorConfig],
    bundles: &[Arc<Bundle>],
    places: &mut Places,
) -> Vec<MirrorEntry> {
    let open = |name: &str| bundles.iter().find(|bundle| bundle.name == name);
    let mut entries = Vec::new();
    places.retain(configs);
    for config in configs {
        let MirrorConfig { row, name, sources, destinations, vlans, filter, target, snaplen } = config;
        let output = match target {
            MirrorTarget::Vlan(vlan) => MirrorOutput::Vlan(*vlan),
            MirrorTarget::Port(port) => match open(port) {
                Some(bundle) => MirrorOutput::Bundle(bundle.id),
                None => {
                    places.by_row.remove(row);
                    continue;
                }
            },
        };
        let Some((place, id)) = places.of(*row) else { continue };
        let ids = |selects: &dyn Fn(&str) -> bool| {
            bundles.iter().filter(|bundle| selects(&bundle.name)).map(|bundle| bundle.id).collect()
        };
        entries.push(MirrorEntry {
            row: *row,
            id,
            place,
            name: name.clone(),
            selected: Selected {
                received: ids(&|port| sources.contains(port)),
                sent: ids(&|port| destinations.contains(port)),
            },
            vlans: vlans.clone(),
            filter: filter.clone(),
            output,
            snaplen: *snaplen,
        });
    }
    entries
}

/// The mirrors for translation; `None`: there are none. Mirrors of `previous` keep their counters.
pub(super) fn mirrors(entries: &[MirrorEntry], previous: Option<&Mirrors>) -> Option<Arc<Mirrors>> {
    let mirror = |entry: &MirrorEntry| {
        let before = previous.and_then(|all| all.get(entry.place.into())).filter(|m| m.id == entry.id);
        let mirror = Mirror {
            id: entry.id,
            place: entry.place,
            name: entry.name.clone(),
            output: entry.output,
            vlans: entry.vlans.clone(),
            snaplen: entry.snaplen,
            filter: entry.filter.clone(),
            counters: before.map(|mirror| mirror.counters.clone()).unwrap_or_default(),
        };
        (mirror, entry.selected.clone())
    };
    (!entries.is_empty()).then(|| Arc::new(Mirrors::new(entries.iter().map(mirror))))
}
