//! [`InterfaceConfig`]: a wanted device or patch port, and rules for names.

use std::cmp::Ordering;
use std::sync::Arc;

use ofproto::{MacAddr, OfPort};
use ovsdb::client::RowView;
use ovsdb::value::Uuid;

use super::links::LinkRows;
use super::qos::policing;
use super::reader::{Reader, strings};
use super::unsupported;
use dpif::qos::{Policing, Qos};
use dpif::{OptionNotice, ParsedOptions, PortOptions, RxqAffinity};
use l2proto::LinkSettings;

/// A row of `Interface`, or a bridge's implicit own interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// The row; a bridge's own interface may have none.
    pub row: Option<Uuid>,
    /// Whether it is the interface of a bond (`bond_fake_iface`), which is no member of its port.
    pub is_of_bond: bool,
    /// Name.
    pub name: String,
    /// Type; `system` for the empty one, `internal` for a bridge's own interface.
    pub type_name: String,
    /// Options of its type.
    pub options: PortOptions,
    /// Address to set, for internal interfaces other than a bridge's own.
    pub mac: Option<MacAddr>,
    /// MTU to set.
    pub mtu_request: Option<u32>,
    /// Receive queues pinned to cores (`other_config:pmd-rxq-affinity`).
    pub rxq_affinity: RxqAffinity,
    /// Requested OpenFlow number.
    pub ofport_request: Option<OfPort>,
    /// OpenFlow number in the row, from before a restart.
    pub ofport: Option<OfPort>,
    /// Sessions of link protocols, one of each at most.
    pub links: Arc<[LinkSettings]>,
    /// Quality of service of its port.
    pub qos: Option<Arc<Qos>>,
    /// Limits of what it receives.
    pub policing: Policing,
}

impl InterfaceConfig {
    pub(super) fn implicit_local(bridge: &str, dummy_datapath: bool, links: Arc<[LinkSettings]>) -> Self {
        InterfaceConfig {
            row: None,
            is_of_bond: false,
            name: bridge.to_string(),
            type_name: "internal".into(),
            options: PortOptions::local(dummy_datapath),
            mac: None,
            mtu_request: None,
            rxq_affinity: RxqAffinity::new(),
            ofport_request: None,
            ofport: None,
            links,
            qos: None,
            policing: Policing::default(),
        }
    }

    /// The internal interface with the name of a bond.
    pub(super) fn of_bond(bond: &str, options: PortOptions) -> Self {
        let local = InterfaceConfig::implicit_local(bond, false, Arc::default());
        InterfaceConfig { is_of_bond: true, options, ..local }
    }

    /// Whether it is a patch port, without a device.
    pub fn is_patch(&self) -> bool {
        self.patch_peer().is_some()
    }

    /// Whether it is a host-side device made by the switch.
    pub fn is_internal(&self) -> bool {
        matches!(self.type_name.as_str(), "internal" | "dummy-internal")
    }

    /// The peer of a patch port.
    pub fn patch_peer(&self) -> Option<&str> {
        self.options.patch_peer()
    }
}

/// Maximum name length of kernel devices (`IFNAMSIZ` less the terminating zero).
const MAX_DEVICE_NAME_BYTES: usize = 15;
/// Maximum name length of other interfaces: log lines and replies contain them.
const MAX_NAME_BYTES: usize = 255;
/// Names reserved by datapaths.
const RESERVED: [&str; 3] = ["ovs-netdev", "ovs-dummy", "ovs-system"];

/// Whether the name is permitted for a kernel device.
///
/// # Errors
/// The reason.
pub fn check_device_name(name: &str) -> Result<(), String> {
    check_name(name, false)
}

/// Whether the name is permitted for a device or a bridge.
pub(super) fn check_name(name: &str, long: bool) -> Result<(), String> {
    let most = if long { MAX_NAME_BYTES } else { MAX_DEVICE_NAME_BYTES };
    if name.is_empty() {
        return Err("the name is empty".into());
    }
    if name.len() > most {
        return Err(format!("the name has {} bytes, the most is {most}", name.len()));
    }
    if RESERVED.contains(&name) {
        return Err("the name is reserved".into());
    }
    let unusable = |c: char| c == '/' || c == '\\' || c.is_whitespace() || c.is_control();
    if name == "." || name == ".." || name.contains(unusable) {
        return Err("the name is not one that a device can have".into());
    }
    Ok(())
}

/// Natural order of names: `p2` before `p10`.
pub(crate) fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a.as_bytes(), b.as_bytes());
    let digits = |s: &[u8]| s.iter().take_while(|b| b.is_ascii_digit()).count();
    let significant = |s: &[u8]| s.iter().skip_while(|b| **b == b'0').count();
    while let (Some(p), Some(q)) = (x.first(), y.first()) {
        if p.is_ascii_digit() && q.is_ascii_digit() {
            let (m, n) = (digits(x), digits(y));
            let (u, v) = (&x[..m], &y[..n]);
            let (su, sv) = (significant(u), significant(v));
            let order = su.cmp(&sv).then_with(|| u[m - su..].cmp(&v[n - sv..]));
            if order != Ordering::Equal {
                return order;
            }
            (x, y) = (&x[m..], &y[n..]);
        } else if p == q {
            (x, y) = (&x[1..], &y[1..]);
        } else {
            return p.cmp(q);
        }
    }
    x.len().cmp(&y.len()).then_with(|| a.cmp(b))
}

impl<'a> Reader<'a> {
    /// An interface, or the error to write into its row.
    pub(super) fn interface(
        &mut self,
        row: RowView<'a>,
        rows: LinkRows<'a>,
        dummy_datapath: bool,
        qos: Option<Arc<Qos>>,
    ) -> Option<InterfaceConfig> {
        let name = row.str("name");
        let local = name == rows.bridge.str("name");
        let type_name = match row.str("type") {
            _ if local => "internal",
            "" => "system",
            other => other,
        };
        let served_by = match self.supported.serving(type_name, dummy_datapath) {
            Some(served_by) => served_by,
            None => {
                let error = unsupported::interface_type_error(name, type_name);
                self.refuse(row, "type", error);
                return None;
            }
        };
        if let Err(why) = check_name(name, served_by.has_long_names()) {
            self.refuse(row, "name", format!("could not open network device {name} ({why})"));
            return None;
        }
        let options = match served_by.parse(name, type_name, &strings(row, "options")) {
            Ok(ParsedOptions { options, notices }) => {
                for OptionNotice { key, message } in notices {
                    self.notice(row, format!("options:{key}"), message);
                }
                options
            }
            Err(error) => {
                self.refuse(row, "options", error);
                return None;
            }
        };
        let number = |column: &str| {
            let number = row.opt_int(column).and_then(|n| u32::try_from(n).ok());
            number.filter(|n| (1..u32::from(OfPort::MAX_OF10)).contains(n)).map(OfPort)
        };
        Some(InterfaceConfig {
            row: Some(row.uuid()),
            is_of_bond: false,
            name: name.to_string(),
            type_name: type_name.to_string(),
            options,
            mac: self.interface_mac(row, type_name, local),
            mtu_request: row.opt_int("mtu_request").and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0),
            rxq_affinity: self.rxq_affinity(row),
            ofport_request: number("ofport_request").filter(|_| !local),
            ofport: number("ofport").filter(|_| !local),
            links: self.links(rows),
            qos,
            policing: policing(row),
        })
    }

    fn interface_mac(&mut self, row: RowView<'a>, type_name: &str, local: bool) -> Option<MacAddr> {
        let text = row.opt_str("mac")?;
        if local {
            self.notice(row, "mac", "the address of a bridge's own port is set by the bridge's other_config:hwaddr: mac is ignored");
            return None;
        }
        if !type_name.contains("internal") {
            self.notice(row, "mac", "only internal interfaces can be given an address: mac is ignored");
            return None;
        }
        self.mac(row, "mac", text)
    }
}
