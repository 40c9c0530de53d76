//! [`KindOptions`]: options of a tunnel that only some kinds have.

use flow::{Erspan, Flow};
use std::collections::BTreeMap;

/// Options of a kind; the default is that of a row without any.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KindOptions {
    /// ERSPAN header.
    pub erspan: ErspanOptions,
}

/// Fields of sent ERSPAN headers; `None`: set by rules (`flow`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErspanOptions {
    /// Version: 1 or 2; 0 sends nothing. Without one, rules set all fields.
    pub ver: Option<u8>,
    /// Index.
    pub idx: Option<u32>,
    /// Direction.
    pub dir: Option<u8>,
    /// Hardware id.
    pub hwid: Option<u8>,
}

impl Default for ErspanOptions {
    fn default() -> ErspanOptions {
        ErspanOptions { ver: Some(0), idx: Some(0), dir: Some(0), hwid: Some(0) }
    }
}

impl ErspanOptions {
    /// The header of a packet whose rules left this flow; version 0: the version is none that is sent.
    pub(crate) fn header(&self, flow: &Flow) -> Erspan {
        let of_rules = self.ver.is_none();
        let idx = self.idx.filter(|_| !of_rules);
        let (dir, hwid) = (self.dir.filter(|_| !of_rules), self.hwid.filter(|_| !of_rules));
        let erspan = Erspan {
            ver: self.ver.unwrap_or(flow.tun_erspan_ver),
            idx: idx.unwrap_or(flow.tun_erspan_idx),
            dir: dir.unwrap_or(flow.tun_erspan_dir),
            hwid: hwid.unwrap_or(flow.tun_erspan_hwid),
        };
        match erspan.ver {
            1 => Erspan { ver: 1, idx: erspan.idx, ..Erspan::default() },
            2 => Erspan { idx: 0, ..erspan },
            _ => Erspan::default(),
        }
    }

    fn add_to(&self, all: &mut BTreeMap<&'static str, String>) {
        let mut field = |name, value: Option<u32>, hex: bool| match value {
            Some(0) => {}
            Some(value) if hex => drop(all.insert(name, format!("{value:#x}"))),
            Some(value) => drop(all.insert(name, value.to_string())),
            None => drop(all.insert(name, "flow".to_string())),
        };
        field("erspan_ver", self.ver.map(u32::from), false);
        field("erspan_idx", self.idx, true);
        field("erspan_dir", self.dir.map(u32::from), false);
        field("erspan_hwid", self.hwid.map(u32::from), true);
    }
}

impl KindOptions {
    /// Adds those that differ from the defaults, as in the database.
    pub(super) fn add_to(&self, all: &mut BTreeMap<&'static str, String>) {
        self.erspan.add_to(all);
    }
}
