//! Settings of bonds: columns and keys of a row of `Port`.

use ofproto::MacAddr;
use ofproto::bond::{BondMode, BondSettings};
use ovsdb::client::RowView;

use super::reader::{Reader, flag};
use super::{InterfaceConfig, StringMap};

/// Default of `bond-rebalance-interval`, and its minimum where it is not 0.
const REBALANCE_MS: (u64, u64) = (10_000, 1000);
/// Default of `bond-miimon-interval`.
const POLL_MS: u64 = 200;
/// Largest interval or delay that the schema takes.
const MOST_MS: u64 = i32::MAX as u64;

impl<'a> Reader<'a> {
    /// The interface that `bond_fake_iface` adds to a bond. An interface or a bridge of that name precludes it, as in OVS.
    pub(super) fn bond_interface(
        &mut self,
        row: RowView<'a>,
        interfaces: usize,
        dummy_datapath: bool,
    ) -> Option<InterfaceConfig> {
        const COLUMN: &str = "bond_fake_iface";
        if !row.bool(COLUMN) {
            return None;
        }
        let name = row.str("name");
        let is_taken = |table: &str| self.replica.rows(table).any(|other| other.str("name") == name);
        if interfaces < 2 {
            self.hint(row, COLUMN, "bond_fake_iface: ignored: the port is no bond");
        } else if is_taken("Interface") || is_taken("Bridge") {
            self.notice(
                row,
                COLUMN,
                format!("bond_fake_iface: {name} is the name of another interface: none is added"),
            );
        } else {
            match self.supported.port_options(name, "internal", &StringMap::new(), dummy_datapath) {
                Ok(options) => return Some(InterfaceConfig::of_bond(name, options)),
                Err(why) => self.notice(row, COLUMN, format!("bond_fake_iface: {why}")),
            }
        }
        None
    }

    /// Settings of the bond that a port with several interfaces is.
    pub(super) fn bond(&mut self, row: RowView<'a>, bridge: RowView<'a>, interfaces: usize) -> BondSettings {
        let is_bond = interfaces > 1;
        let mode = self.bond_mode(row, is_bond);
        if is_bond && mode == BondMode::BalanceSlb && !bridge.int_set("flood_vlans").is_empty() {
            let why = "a bond of mode balance-slb loops packets of VLANs that are flooded (flood_vlans): use another mode";
            self.notice(row, "bond_mode", why);
        }
        let delay_ms = |column| u64::try_from(row.int(column)).unwrap_or(0);
        let rebalance_ms = self.setting(row, "bond-rebalance-interval", 0..=MOST_MS, REBALANCE_MS.0);
        let basis = self.setting(row, "bond-hash-basis", 0..=i32::MAX as u64, 0);
        let detection = row.map_str("other_config", "bond-detect-mode");
        if let Some(other) = detection.filter(|mode| !matches!(*mode, "carrier" | "miimon")) {
            let message = format!(
                "other_config:bond-detect-mode={other:?} is neither carrier nor miimon: carrier is used"
            );
            self.hint(row, "other_config:bond-detect-mode".to_string(), message);
        }
        let poll_ms = self.setting(row, "bond-miimon-interval", 1..=MOST_MS, POLL_MS);
        let all_active = ["all-members-active", "all-slaves-active"];
        BondSettings {
            mode,
            updelay_ms: delay_ms("bond_updelay"),
            downdelay_ms: delay_ms("bond_downdelay"),
            basis: basis as u32,
            rebalance_ms: if rebalance_ms == 0 { 0 } else { rebalance_ms.max(REBALANCE_MS.1) },
            fallback_ab: flag(row, "other_config", "lacp-fallback-ab"),
            primary: row.map_str("other_config", "bond-primary").map(str::to_string),
            all_members_active: all_active.iter().any(|key| flag(row, "other_config", key)),
            lb_output: flag(row, "other_config", "lb-output-action"),
            lacp: matches!(row.opt_str("lacp"), Some("active" | "passive")),
            polls: detection == Some("miimon"),
            poll_ms,
            active_mac: row.opt_str("bond_active_slave").and_then(MacAddr::parse),
        }
    }

    fn bond_mode(&mut self, row: RowView<'a>, is_bond: bool) -> BondMode {
        let Some(name) = row.opt_str("bond_mode") else { return BondMode::default() };
        BondMode::parse(name).unwrap_or_else(|| {
            if is_bond {
                let port = row.str("name");
                let message = format!("port {port}: unknown bond_mode {name}, defaulting to active-backup");
                self.notice(row, "bond_mode", message);
            }
            BondMode::default()
        })
    }
}
